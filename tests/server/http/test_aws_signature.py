"""Signatures of AWS: those that botocore makes are verified, and nothing else is, in whatever part it differs."""

import json
import logging
import time
from collections.abc import Callable
from datetime import UTC, datetime
from hashlib import sha256
from types import SimpleNamespace
from typing import Any
from urllib.parse import unquote

import pytest
from botocore.auth import SigV4Auth  # type: ignore[import-untyped]
from botocore.awsrequest import AWSRequest  # type: ignore[import-untyped]
from botocore.credentials import Credentials  # type: ignore[import-untyped]
from gateway.fakes import FakeClient, OneResponse, Script, http_scope
from msgspec.structs import replace

from dragoman import RequestRefused
from dragoman_server.app import create_app
from dragoman_server.http.auth import Keyring
from dragoman_server.http.aws_signature import MAX_SKEW_S, read_signature
from dragoman_server.proxying.client_request import SCOPE_PATH
from dragoman_server.settings import AwsKey, ClientKey, ServerSettings, Settings, UpstreamSettings
from dragoman_server.settings.secret import Secret

NOW = datetime(2026, 11, 29, 12, tzinfo=UTC).timestamp()
KEY_ID, SECRET = "AKIDEXAMPLE", "canary-wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
URL = "http://127.0.0.1:8080/model/arn%3Aaws%3Abedrock/invoke?b=2&a=%20&a-b&a=1"
BODY = (
    b'{"max_tokens":9,"messages":[{"role":"user","content":"Hi"}],"anthropic_version":"bedrock-2023-05-31"}'
)

Scope = dict[str, Any]


def signed(
    url: str = URL,
    body: bytes = BODY,
    method: str = "POST",
    *,
    now: float = NOW,
    service: str = "bedrock",
    key_id: str = KEY_ID,
    secret: str = SECRET,
    token: str | None = None,
    headers: dict[str, str] | None = None,
) -> Scope:
    """Return the scope of a request as botocore signs it."""
    headers = {"content-type": "application/json", "x-two": "a   b ", "user-agent": "no", **(headers or {})}
    request = AWSRequest(method, url, headers=headers, data=body)
    signer = SigV4Auth(Credentials(key_id, secret, token), service, "us-east-1")
    request.context["timestamp"] = f"{datetime.fromtimestamp(now, UTC):%Y%m%dT%H%M%SZ}"
    signer._modify_request_before_signing(request)
    text = signer.string_to_sign(request, signer.canonical_request(request))
    signer._inject_signature_to_request(request, signer.signature(text, request))
    sent = request.prepare()
    path, _, query = sent.url.removeprefix("http://127.0.0.1:8080").partition("?")
    names = {name.lower(): value for name, value in sent.headers.items()}
    names = {name: value.decode() if isinstance(value, bytes) else value for name, value in names.items()}
    host = "127.0.0.1:8080"
    scope = http_scope(unquote(path), method, {"host": host, **names}, query_string=query.encode())
    return {**scope, "raw_path": path.encode()}


def is_valid(scope: Scope, body: bytes = BODY, now: float = NOW, secret: str = SECRET) -> bool:
    signature = read_signature(scope["headers"], now)
    assert signature.key_id == KEY_ID
    return signature.is_valid(scope, body, Secret(secret))


def with_header(scope: Scope, name: str, change: Callable[[str], str]) -> Scope:
    changed = [
        (each, change(value.decode()).encode() if each == name.encode() else value)
        for each, value in scope["headers"]
    ]
    return {**scope, "headers": changed}


@pytest.mark.parametrize(
    "scope",
    [
        signed(),
        signed("http://127.0.0.1:8080/model/us.anthropic.claude-x-v1:0/invoke"),
        signed("http://127.0.0.1:8080/v1/models", b"", "GET"),
        signed(service="bedrock-mantle"),
        signed(service="aws-external-anthropic", token="the-session"),
        signed(now=NOW - MAX_SKEW_S),
        signed(now=NOW + MAX_SKEW_S),
    ],
)
def test_what_botocore_signs_is_valid(scope: Scope) -> None:
    assert is_valid(scope, b"" if scope["method"] == "GET" else BODY)


def test_without_the_path_as_it_was_sent_the_path_is_quoted() -> None:
    """That of the client, where it is served at another one."""
    scope = signed("http://127.0.0.1:8080/anthropic/v1/messages")
    served = {"path": "/v1/messages", SCOPE_PATH: scope["path"]}
    assert [is_valid({**scope, **more, "raw_path": None}) for more in ({}, served)] == [True, True]


def test_a_header_that_comes_twice_is_signed_as_one() -> None:
    scope = signed(headers={"x-two": "a b,c"})
    twice = [(b"x-two", b" a  b"), (b"x-two", b"c")]
    assert is_valid(
        {**scope, "headers": [*(each for each in scope["headers"] if each[0] != b"x-two"), *twice]}
    )


def test_the_hash_of_a_body_is_not_the_clients() -> None:
    scope = signed(headers={"x-amz-content-sha256": sha256(BODY).hexdigest()})
    assert [is_valid(scope), is_valid(scope, BODY + b" ")] == [True, False]


@pytest.mark.parametrize(
    "changes",
    [
        {"method": "PUT"},
        {"raw_path": b"/model/arn:aws:bedrock/invoke"},
        {"query_string": b"b=2&a=%20&a-b&a=2"},
        {"headers": with_header(signed(), "x-two", lambda value: "c")["headers"]},
        {"headers": with_header(signed(), "host", lambda value: "other")["headers"]},
        {"headers": [*signed()["headers"], (b"x-two", b"b")]},
        {"headers": [each for each in signed()["headers"] if each[0] != b"x-two"]},
        {"headers": with_header(signed(), "authorization", lambda value: value.replace("-1/", "-2/"))["headers"]},
        {"headers": with_header(signed(), "x-amz-date", lambda value: "20261129T120001Z")["headers"]},
        {"headers": with_header(signed(), "authorization", lambda value: value[:-4] + "0000")["headers"]},
        {"headers": with_header(signed(), "authorization", lambda value: value.replace(";x-two", ""))["headers"]},
    ],
)  # fmt: skip
def test_nothing_of_a_request_may_change(changes: Scope) -> None:
    assert not is_valid({**signed(), **changes})


def test_body_and_secret_may_not_change() -> None:
    assert [is_valid(signed(), BODY + b" "), is_valid(signed(), secret=SECRET + "x")] == [False, False]


REFUSED: list[tuple[Scope, str]] = [
    (signed(now=NOW - MAX_SKEW_S - 1), "its time, 20261129T115459Z, is more than 300 s from the gateway's"),
    (signed(now=NOW + MAX_SKEW_S + 1), "its time, 20261129T120501Z, is more than 300 s from the gateway's"),
    (signed(service="s3"), "it is for another service than aws-external-anthropic, bedrock, bedrock-mantle"),
    (with_header(signed(), "authorization", lambda value: value.replace("host;", "")), "cover that header and host"),
    (with_header(signed(), "authorization", lambda value: value.replace(";x-amz-date", "")), "cover that header"),
    (with_header(signed(), "authorization", lambda value: value.replace("20261129", "20261128")), "of the day of"),
    (with_header(signed(), "authorization", lambda value: value.replace("HMAC-SHA256", "ECDSA-P256")), "it must be"),
    (with_header(signed(), "authorization", lambda value: value + "0"), "it must be AWS4-HMAC-SHA256"),
    (with_header(signed(), "x-amz-date", lambda value: "20261129"), "x-amz-date is not a time"),
    ({**signed(), "headers": [each for each in signed()["headers"] if each[0] != b"x-amz-date"]}, "of the day of"),
]  # fmt: skip


@pytest.mark.parametrize(("scope", "reason"), REFUSED)
def test_a_signature_that_cannot_be_verified_is_refused_with_the_reason(scope: Scope, reason: str) -> None:
    with pytest.raises(RequestRefused) as refused:
        read_signature(scope["headers"], NOW)
    assert reason in refused.value.message
    assert (refused.value.status, refused.value.code) == (401, "invalid_api_key")


def test_other_credentials_are_no_signature() -> None:
    for headers in ([], [(b"authorization", b"Bearer AWS4-HMAC-SHA256")], [(b"x-api-key", b"AWS4-")]):
        assert read_signature(headers, NOW) is None


@pytest.mark.anyio
async def test_without_keys_of_aws_a_signature_is_no_credential() -> None:
    client = await call(signed(now=time.time()), aws_keys=())
    assert client.status == 401
    assert "this gateway needs a client key" in json.loads(client.body)["message"]


# The application.

KEY = ClientKey(name="red", hash="0" * 64, models=("arn*", "claude*"))
AWS_KEY = AwsKey(access_key_id=KEY_ID, secret_access_key=Secret(SECRET), client_key="red")
MESSAGE = {"id": "m", "type": "message", "role": "assistant", "content": [], "stop_reason": "end_turn"}


async def call(
    scope: Scope,
    body: bytes = BODY,
    key: ClientKey = KEY,
    aws_keys: tuple[AwsKey, ...] = (AWS_KEY,),
    **server: Any,
) -> FakeClient:
    upstream = UpstreamSettings(name="up", protocol="anthropic_messages", base_url="http://127.0.0.1:9")
    settings = Settings(
        server=ServerSettings(secret=Secret("a-secret-of-some-length-0123456789"), **server),
        upstreams=(upstream,),
        models={"*": "up/m"},
        client_keys=(key,),
        aws_keys=aws_keys,
    )
    app = create_app(settings, client=OneResponse(Script([json.dumps(MESSAGE).encode()])))
    client = FakeClient(body)
    await app({**scope, "extensions": {}}, client.receive, client.send)
    assert client.finished
    return client


@pytest.mark.anyio
@pytest.mark.promise("S2")
async def test_a_signed_request_is_that_of_its_client_key(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        served = await call(signed(now=time.time()))
        listed = await call(signed("http://127.0.0.1:8080/v1/models", b"", "GET", now=time.time()), b"")
        not_allowed = await call(signed("http://127.0.0.1:8080/model/gpt/invoke", now=time.time()))
    assert [served.status, listed.status, not_allowed.status] == [200, 200, 403]
    records = [each.__dict__["dragoman"] for each in caplog.records if each.name == "dragoman.requests"]
    assert {record["client_key"] for record in records} == {"red"}
    assert records[0]["path"] == "/model/arn:aws:bedrock/invoke"
    assert SECRET[:12] not in str([record.__dict__ for record in caplog.records])
    assert SECRET[:12] not in repr(AWS_KEY)


@pytest.mark.anyio
@pytest.mark.promise("S2")
async def test_who_did_not_sign_gets_to_know_nothing_of_a_key() -> None:
    """Unknown and forged signatures have the same error; that a key has ended, only its owner learns."""
    now = time.time()
    ended = replace(KEY, disabled=True)
    unknown = await call(signed(now=now, key_id="AKIDOTHER"))
    forged = await call(signed(now=now, secret="other"), key=ended)
    changed = await call(signed(now=now), BODY.replace(b"Hi", b"Ho"))
    disabled = await call(signed(now=now), key=ended)
    gone = await call(signed(now=now), key=replace(KEY, name="blue"))
    assert unknown.body == forged.body == changed.body
    texts = [json.loads(client.body)["message"] for client in (forged, disabled, gone)]
    assert "no key here has this id, or it was made with another secret or for another request" in texts[0]
    assert "the client key red is disabled" in texts[1]
    assert "there is no client key red" in texts[2]
    for client in (unknown, forged, changed, disabled, gone):
        assert (client.status, client.headers["x-amzn-errortype"]) == (401, "UnrecognizedClientException")


def test_an_aws_key_may_be_that_of_a_stored_key() -> None:
    stored: Any = SimpleNamespace(keys={"red": KEY, "blue": replace(KEY, name="blue", group="gone")})
    keyring = Keyring((), Secret("secret"), stored=stored, aws_keys=(AWS_KEY,))
    assert keyring.aws_keys.get(KEY_ID) is AWS_KEY
    assert keyring.named("red", NOW) is KEY
    for name, reason in (("blue", "there is no group gone"), ("green", "there is no client key green")):
        with pytest.raises(RequestRefused, match=reason):
            keyring.named(name, NOW)


@pytest.mark.anyio
async def test_the_limits_of_bodies_hold_for_what_is_signed() -> None:
    client = await call(signed(now=time.time(), secret="other"), max_body_bytes=len(BODY) - 1)
    assert (client.status, client.headers["x-amzn-errortype"]) == (413, "ValidationException")


@pytest.mark.anyio
async def test_a_client_that_leaves_before_its_request_is_complete_gets_nothing() -> None:
    client = FakeClient(BODY, leaves_after=0)
    client._body.clear()
    server = ServerSettings(secret=Secret("a-secret-of-some-length-0123456789"))
    app = create_app(Settings(server=server, client_keys=(KEY,), aws_keys=(AWS_KEY,)))
    await app(signed(now=time.time()), client.receive, client.send)
    assert client.messages == []
