"""Credentials of clouds: found by the vendors' libraries in a thread, kept, renewed, and shown to nobody.

Stand-ins answer for the clouds: a signature is checked by botocore, a token by its text.
"""

import json
import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from gateway.fakes import call as ask
from gateway.mocked import mocked
from http_server import Peer, ScriptedServer
from msgspec import structs
from virtual_time import REAL_BACKENDS

from dragoman import UPSTREAMS
from dragoman_server.app import create_app
from dragoman_server.hosts import HostError, UpstreamCall, credentials
from dragoman_server.hosts.credential_libraries import (
    CREDENTIAL_LIBRARIES,
    CredentialLibrary,
    FoundCredential,
)
from dragoman_server.hosts.credentials import (
    EARLY_S,
    PAUSE_S,
    Credential,
    authorize_cloud_call,
    credential_of,
)
from dragoman_server.settings import AccountSettings, ServerSettings, Settings, UpstreamSettings
from dragoman_server.settings.secret import Secret
from dragoman_server.upstream.client import UpstreamClient

pytestmark = [pytest.mark.anyio, pytest.mark.backends(*REAL_BACKENDS)]  # threads

MESSAGES = UPSTREAMS["anthropic_messages"]
HELLO = {"model": "up/claude", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]}
SAID = {"type": "message", "content": [{"type": "text", "text": "Yes."}], "stop_reason": "end_turn"}
NOON = datetime(2026, 11, 23, 12, tzinfo=UTC).timestamp()
VERTEX = "https://aiplatform.googleapis.com/v1/projects/p/locations/global"
RUNTIME = "https://bedrock-runtime.us-east-1.amazonaws.com"
KEY_ID, SECRET_KEY = "AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"


class Library:
    """A vendor's library: tokens t1, t2 and so on, each for an hour. It blocks, and fails if told to."""

    def __init__(self) -> None:
        self.fetched = 0
        self.attempts = 0
        self.running = 0
        self.threads: set[int] = set()
        self.fails: Exception | None = None
        self.now = NOON
        self.pause_s = 0.0
        self.word = "t"
        self.asked: list[tuple[str | None, str]] = []

    def find(self, identity: str | None, scope: str) -> Callable[[], FoundCredential]:
        self.asked.append((identity, scope))

        def fetch() -> FoundCredential:
            self.running += 1
            self.attempts += 1
            assert self.running == 1  # one at a time
            self.threads.add(threading.get_ident())
            time.sleep(self.pause_s)
            self.running -= 1
            if self.fails is not None:
                raise self.fails
            self.fetched += 1
            headers = [("authorization", f"Bearer {self.word}{self.fetched}")]
            return FoundCredential(f"toy {identity}", self.now + 3600, headers)

        return fetch


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Library:
    found = Library()
    monkeypatch.setitem(
        credentials.CREDENTIAL_LIBRARIES, "vertex", CredentialLibrary("toy-auth", "vertex", found.find)
    )  # type: ignore[arg-type]
    credential_of.cache_clear()
    return found


async def test_a_token_is_kept_until_five_minutes_before_its_end(library: Library) -> None:
    credential = Credential(credentials.CREDENTIAL_LIBRARIES["vertex"], None, "s")
    for now, token in ((NOON, 1), (NOON + 3599 - EARLY_S, 1), (NOON + 3600 - EARLY_S, 2)):
        library.now = now
        assert (await credential.get(now)).headers == [("authorization", f"Bearer t{token}")]
    assert threading.get_ident() not in library.threads


async def test_calls_at_the_same_time_share_one_token(library: Library) -> None:
    credential = Credential(credentials.CREDENTIAL_LIBRARIES["vertex"], None, "s")
    library.pause_s = 0.02
    found: list[FoundCredential] = []

    async def get() -> None:
        found.append(await credential.get(NOON))

    async with anyio.create_task_group() as tasks:
        for _ in range(10):
            tasks.start_soon(get)
    assert (len(set(map(id, found))), library.fetched, len(library.threads)) == (1, 1, 1)


async def test_a_failure_is_told_without_its_text_and_remembered_for_seconds(library: Library) -> None:
    credential = Credential(credentials.CREDENTIAL_LIBRARIES["vertex"], None, "s")
    library.fails = ValueError("of /home/me/key.json")
    with pytest.raises(HostError, match=r"^toy-auth has no credentials for it: ValueError$") as error:
        await credential.get(NOON)
    assert error.value.detail == "of /home/me/key.json"
    library.fails = None
    with pytest.raises(HostError):
        await credential.get(NOON + PAUSE_S - 1)
    assert (await credential.get(NOON + PAUSE_S)).headers


async def test_a_token_that_cannot_be_renewed_is_used_to_its_end(library: Library) -> None:
    credential = Credential(credentials.CREDENTIAL_LIBRARIES["vertex"], None, "s")
    token = await credential.get(NOON)
    library.fails = ValueError("down")
    for now in (NOON + 3598, NOON + 3599):
        assert await credential.get(now) == token
    assert library.attempts == 2  # the second call did not wait for a third one
    with pytest.raises(HostError):
        await credential.get(NOON + 3600)


async def test_tokens_that_end_soon_are_not_fetched_for_each_call(library: Library) -> None:
    credential = Credential(credentials.CREDENTIAL_LIBRARIES["vertex"], None, "s")
    library.now = NOON - 3400  # they last 200 s
    for now, fetched in ((NOON, 1), (NOON + PAUSE_S - 1, 1), (NOON + PAUSE_S, 2)):
        await credential.get(now)
        assert library.fetched == fetched


async def test_a_library_that_cannot_sign(library: Library) -> None:
    def sign(*arguments: object) -> Any:
        raise ValueError("expired")

    library = CredentialLibrary(
        "toy-auth", "bedrock", lambda *_: lambda: FoundCredential("toy", None, sign=sign)
    )
    call = UpstreamCall("POST", RUNTIME, (), b"{}")
    with pytest.raises(HostError, match=r"^toy-auth has no credentials for it: ValueError$"):
        await Credential(library, None, "").sign(call, "bedrock", "us-east-1", NOON)


async def test_a_library_that_takes_too_long_holds_up_no_call(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(credentials, "WAIT_S", 0.01)
    library.pause_s = 0.2
    with pytest.raises(HostError, match=r"^toy-auth found no credentials within 0\.01 s$"):
        await Credential(credentials.CREDENTIAL_LIBRARIES["vertex"], None, "s").get(NOON)


async def test_a_missing_library_names_its_extra(library: Library) -> None:
    library.fails = ModuleNotFoundError("google")
    with pytest.raises(HostError, match="it needs the extra vertex of Dragoman, see `dragoman doctor`"):
        await Credential(credentials.CREDENTIAL_LIBRARIES["vertex"], None, "s").get(NOON)


async def test_a_token_is_not_dropped_for_the_refusal_of_an_older_one(library: Library) -> None:
    credential = Credential(credentials.CREDENTIAL_LIBRARIES["vertex"], None, "s")
    assert not credential.drop(NOON)  # there is none
    for since, fetched in ((NOON - 1, 1), (NOON, 1), (NOON + 1, 2)):
        await credential.get(NOON)
        assert credential.drop(since)
        await credential.get(NOON)
        assert library.fetched == fetched


async def test_identity_and_scope_are_those_of_the_settings(library: Library) -> None:
    up = UpstreamSettings(name="up", protocol=MESSAGES.name, base_url=VERTEX, token_scope="s", identity="i")
    account = AccountSettings(upstream="up", name="a", identity="other")
    for each in (up.default_account, account):
        await authorize_cloud_call(UpstreamCall("POST", VERTEX, (), b"{}"), up, MESSAGES, each, NOON)
    assert library.asked == [("i", "s"), ("other", "s")]


async def test_an_account_without_credentials_is_a_failure_of_its_upstream(library: Library) -> None:
    library.fails = ValueError("of /home/me/key.json")
    up = UpstreamSettings(name="up", protocol=MESSAGES.name, base_url=VERTEX)
    async with mocked(Settings(upstreams=(up,)), lambda request: httpx2.Response(200, json=SAID)) as app:
        client = await ask(app, "/v1/messages", HELLO)
        refused = await ask(app, "/v1/messages", {**HELLO, "model": "up/.."})
    assert (client.status, refused.status) == (502, 400)
    message = json.loads(client.body)["error"]["message"]
    assert message == 'upstream "up": toy-auth has no credentials for it: ValueError'


@pytest.mark.parametrize("refused", [0, 1, 2])
async def test_a_token_is_renewed_once_at_a_401(library: Library, refused: int) -> None:
    tokens: list[str] = []

    def respond(request: httpx2.Request) -> httpx2.Response:
        tokens.append(request.headers["authorization"])
        assert "x-api-key" not in request.headers
        if len(tokens) <= refused:
            error = {"code": 401, "message": f"no {tokens[-1]}", "status": "UNAUTHENTICATED"}
            return httpx2.Response(401, json={"error": error})
        return httpx2.Response(200, json=SAID)

    library.now = time.time()
    settings = Settings(upstreams=(UpstreamSettings(name="up", protocol=MESSAGES.name, base_url=VERTEX),))
    async with mocked(settings, respond) as app:
        first = await credential_of("vertex", None, "https://www.googleapis.com/auth/cloud-platform").get(0)
        assert first.headers == [("authorization", "Bearer t1")]
        client = await ask(app, "/v1/messages", HELLO)
    assert client.status == (401 if refused == 2 else 200)
    assert tokens == ["Bearer t1", "Bearer t2"][: refused + 1]
    if refused == 2:
        message = json.loads(client.body)["error"]["message"]
        expected = 'upstream "up" refused its credentials (401): `dragoman doctor` shows where they come from'
        assert message == expected


def recorded(folder: Path) -> str:
    return "".join([file.read_text() for file in folder.iterdir()])


async def test_an_error_that_quotes_a_token_is_told_without_it(
    library: Library, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """To the client, in the log and in a recording's head. No header of the request shows it, either."""
    library.word = "a-token-of-some-length-"

    def respond(request: httpx2.Request) -> httpx2.Response:
        quoted = f"cannot use {request.headers['authorization']}"
        error = {"type": "invalid_request_error", "message": quoted}
        return httpx2.Response(400, json={"type": "error", "error": error}, headers={"request-id": quoted})

    up = UpstreamSettings(name="up", protocol=MESSAGES.name, base_url=VERTEX)
    server = ServerSettings(record=str(tmp_path))
    with caplog.at_level(logging.DEBUG):
        async with mocked(Settings(server=server, upstreams=(up,)), respond) as app:
            response = await ask(app, "/v1/messages", HELLO)
    assert b"cannot use ****" in response.body
    for text in (response.body.decode(), repr(response.headers), caplog.text):
        assert library.word not in text
    assert recorded(tmp_path).count(library.word) == 0


async def test_a_key_or_a_header_of_the_settings_is_used_as_it_is(library: Library) -> None:
    call = UpstreamCall("POST", VERTEX, [("authorization", "of the settings")], b"{}")
    headers = {"authorization": Secret("x")}
    with_header = UpstreamSettings(name="up", protocol=MESSAGES.name, base_url=VERTEX, headers=headers)
    account = AccountSettings(upstream="up", name="a")
    assert (await authorize_cloud_call(call, with_header, MESSAGES, account, NOON)).headers == call.headers
    plain = UpstreamSettings(name="up", protocol=MESSAGES.name, base_url=VERTEX)
    keyed = AccountSettings(upstream="up", name="a", api_key=Secret("k"))
    expected = [("authorization", "Bearer k")]
    assert (await authorize_cloud_call(call, plain, MESSAGES, keyed, NOON)).headers == expected
    assert library.fetched == 0


# AWS: botocore signs, and judges.


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY_ID)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    credential_of.cache_clear()


def bedrock(**settings: Any) -> UpstreamSettings:
    host = "bedrock-invoke"
    given = {"name": "up", "protocol": MESSAGES.name, "base_url": RUNTIME, "host": host, **settings}
    return UpstreamSettings(**given)


async def test_the_signature_of_the_vector(aws: None) -> None:
    url = f"{RUNTIME}/model/us.anthropic.claude-sonnet-5-v1:0/invoke"
    headers = [("content-type", "application/json"), ("accept", "application/json"), ("connection", "close")]
    call = UpstreamCall("POST", url, headers, b'{"max_tokens":1}')
    account = AccountSettings(upstream="up", name="a")
    signed = await authorize_cloud_call(call, bedrock(), MESSAGES, account, NOON)
    assert signed == structs.replace(
        call,
        headers=[
            *call.headers,
            ("x-amz-date", "20261123T120000Z"),
            (
                "authorization",
                "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20261123/us-east-1/bedrock/aws4_request, "
                "SignedHeaders=content-type;host;x-amz-date, "
                "Signature=75ca55fe8a27e769772ebb6e029a9321250b5936d3928cecee751ac19867b0f4",
            ),
        ],
    )


def is_signed(request: httpx2.Request, service: str, region: str, token: str | None) -> bool:
    """Sign what came again, by botocore, and compare."""
    signed = request.headers["authorization"].partition("SignedHeaders=")[2].partition(",")[0].split(";")
    assert ("x-amz-security-token" in signed) is (token is not None)
    url = f"{request.url.scheme}://{request.headers['host']}{request.url.raw_path.decode()}"
    headers = {name: request.headers[name] for name in signed if not name.startswith(("host", "x-amz"))}
    again = AWSRequest(request.method, url, headers=headers, data=request.content)
    again.context["timestamp"] = request.headers["x-amz-date"]
    signer = SigV4Auth(Credentials(KEY_ID, SECRET_KEY, token), service, region)
    signer._modify_request_before_signing(again)
    signature = signer.signature(signer.string_to_sign(again, signer.canonical_request(again)), again)
    scope = f"Credential={KEY_ID}/{request.headers['x-amz-date'][:8]}/{region}/{service}/aws4_request"
    return scope in request.headers["authorization"] and request.headers["authorization"].endswith(
        f"Signature={signature}"
    )


@pytest.mark.parametrize(
    ("settings", "service", "region", "token"),
    [
        ({"region": "the URL's counts"}, "bedrock", "us-east-1", None),
        ({"base_url": "http://127.0.0.1:9", "region": "eu-west-1"}, "bedrock", "eu-west-1", "a-session-token"),
        ({"base_url": RUNTIME, "host": "auto"}, "bedrock", "us-east-1", None),
        (
            {"base_url": "https://bedrock-mantle.us-gov-west-1.api.aws", "host": "auto"},
            "bedrock-mantle", "us-gov-west-1", None,
        ),
        (
            {"base_url": "https://aws-external-anthropic.us-west-2.api.aws", "host": "auto"},
            "aws-external-anthropic", "us-west-2", "a-session-token",
        ),
    ],
)  # fmt: skip
async def test_what_is_sent_is_signed_anew_each_time(
    aws: None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture,
    settings: dict[str, Any], service: str, region: str, token: str | None,
) -> None:  # fmt: skip
    """Also if a member was refused, so that the body is another one. Nothing of it is in the log."""
    if token is not None:
        monkeypatch.setenv("AWS_SESSION_TOKEN", token)
    requests: list[httpx2.Request] = []

    def respond(request: httpx2.Request) -> httpx2.Response:
        requests.append(request)
        assert is_signed(request, service, region, token)
        if "top_k" in json.loads(request.content):
            error = {"message": "top_k: Extra inputs are not permitted"}
            headers = {"x-amzn-ErrorType": "ValidationException:http://x"}
            return httpx2.Response(400, json=error, headers=headers)
        return httpx2.Response(200, json=SAID)

    with caplog.at_level(logging.DEBUG):
        async with mocked(Settings(upstreams=(bedrock(**settings),)), respond) as app:
            body = {**HELLO, "model": "up/arn:aws:bedrock:x:1:y/é", "top_k": 3}
            client = await ask(app, "/v1/messages", body)
    assert (client.status, len(requests)) == (200, 2)
    assert requests[0].headers["authorization"] != requests[1].headers["authorization"]
    for secret in (SECRET_KEY, token or SECRET_KEY, requests[0].headers["authorization"][-64:]):
        assert secret not in caplog.text


async def test_what_cannot_be_signed(aws: None, monkeypatch: pytest.MonkeyPatch) -> None:
    account = AccountSettings(upstream="up", name="a")
    call = UpstreamCall("POST", RUNTIME, (), b"{}")
    with pytest.raises(HostError, match=r"^set region: its base URL does not show"):
        await authorize_cloud_call(call, bedrock(base_url="http://127.0.0.1:9"), MESSAGES, account, NOON)
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    credential_of.cache_clear()
    with pytest.raises(HostError, match=r"^botocore has no credentials for it: NoCredentialsError$"):
        await authorize_cloud_call(call, bedrock(), MESSAGES, account, NOON)


async def test_an_identity_of_aws_is_a_profile(
    aws: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "credentials").write_text(
        "[team]\naws_access_key_id = AKIDTEAM\naws_secret_access_key = s\naws_session_token = t\n"
    )
    account = AccountSettings(upstream="up", name="a", identity="team")
    call = UpstreamCall("POST", RUNTIME, (), b"{}")
    signed = await authorize_cloud_call(call, bedrock(), MESSAGES, account, NOON)
    headers = dict(signed.headers)
    assert ("=AKIDTEAM/" in headers["authorization"], headers["x-amz-security-token"]) == (True, "t")


async def test_a_session_is_not_told_by_what_aws_quotes(
    aws: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its errors about signatures repeat what should have been signed."""
    monkeypatch.setenv("AWS_SESSION_TOKEN", "the-session-token")

    def respond(request: httpx2.Request) -> httpx2.Response:
        text = f"should have been x-amz-security-token:{request.headers['x-amz-security-token']}"
        named = {"x-amzn-ErrorType": "InvalidSignatureException"}
        return httpx2.Response(403, json={"message": text}, headers=named)

    server = ServerSettings(record=str(tmp_path / "recordings"))
    with caplog.at_level(logging.DEBUG):
        async with mocked(Settings(server=server, upstreams=(bedrock(),)), respond) as app:
            response = await ask(app, "/v1/messages", HELLO)
    shown = repr([vars(record) for record in caplog.records])
    assert (response.status, "the-session-token" in shown + response.body.decode()) == (401, False)
    assert "should have been x-amz-security-token:****" in shown
    assert "the-session-token" not in recorded(tmp_path / "recordings")


async def test_an_expired_session_is_looked_up_again(
    aws: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """AWS says that with a 403."""
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    profile = "[default]\naws_access_key_id = AKID\naws_secret_access_key = s\naws_session_token = "
    file = tmp_path / "credentials"
    file.write_text(f"{profile}first\n")
    await credential_of("bedrock", None, "").get(0)  # long ago
    tokens: list[str] = []

    def respond(request: httpx2.Request) -> httpx2.Response:
        tokens.append(request.headers["x-amz-security-token"])
        file.write_text(f"{profile}second\n")
        if tokens[-1] == "second":
            return httpx2.Response(200, json=SAID)
        headers = {"x-amzn-ErrorType": "ExpiredTokenException"}
        return httpx2.Response(403, json={"message": "x"}, headers=headers)

    async with mocked(Settings(upstreams=(bedrock(),)), respond) as app:
        assert (await ask(app, "/v1/messages", HELLO)).status == 200
    assert tokens == ["first", "second"]


async def test_what_is_on_the_wire_is_what_was_signed(aws: None) -> None:
    """By the gateway's own transport: the path as it is encoded, the body, and Host with its port."""
    body = json.dumps(SAID).encode()
    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body)
    received: list[bytes] = []

    async def script(peer: Peer) -> None:
        received.append(await peer.request())
        await peer.send(head + body)

    async with ScriptedServer(script) as server:
        up = bedrock(base_url=server.url, region="eu-west-1")
        app = create_app(Settings(upstreams=(up,)), client=UpstreamClient())
        async with app.lifespan():
            client = await ask(app, "/v1/messages", {**HELLO, "model": "up/arn:aws:bedrock:x/é ;%"})
    assert client.status == 200
    head, _, content = received[0].partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    method, target, _ = first.split(" ")
    assert target == "/model/arn:aws:bedrock:x%2F%C3%A9%20%3B%25/invoke"
    headers = dict(line.split(": ", 1) for line in lines)
    request = httpx2.Request(method, f"http://{headers['Host']}{target}", headers=headers, content=content)
    assert is_signed(request, "bedrock", "eu-west-1", None)


# Google and Azure: their libraries, with a server of tokens on loopback.


class TokenServer:
    """Answers each request for a token. It redirects, if told to."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, dict[str, str], bytes]] = []
        self.redirect: str | None = None
        served = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length") or 0))
                served.requests.append((self.path, dict(self.headers.items()), body))
                self.send_response(307 if served.redirect else 200)
                if served.redirect:
                    self.send_header("location", served.redirect)
                self.send_header("content-type", "application/json")
                self.end_headers()
                soon = {"expires_in": 3600, "expires_on": str(int(time.time()) + 3600), "resource": "r"}
                self.wfile.write(
                    json.dumps({"access_token": "the-token", "token_type": "Bearer", **soon}).encode()
                )

            do_GET = do_POST

            def log_message(self, *arguments: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.01,))

    def __enter__(self) -> "TokenServer":
        self.thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


def service_account(folder: Path, token_uri: str) -> str:
    """Write the file of a service account with a new key."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    file = folder / "account.json"
    about = {
        "type": "service_account",
        "client_email": "bot@p.example",
        "project_id": "p",
        "private_key_id": "1",
    }
    file.write_text(json.dumps({**about, "private_key": pem.decode(), "token_uri": token_uri}))
    return str(file)


@pytest.mark.parametrize("by", ["identity", "environment"])
async def test_google_gives_a_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by: str) -> None:
    """By the environment also the project that pays."""
    with TokenServer() as server:
        file = service_account(tmp_path, f"{server.url}/token")
        monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", file)
        monkeypatch.setenv("GOOGLE_CLOUD_QUOTA_PROJECT", "q")
        scope = "https://www.googleapis.com/auth/cloud-platform"
        credential = Credential(CREDENTIAL_LIBRARIES["vertex"], file if by == "identity" else None, scope)
        found = await credential.get(time.time())
        where, project = (f" of {file}", []) if by == "identity" else ("", [("x-goog-user-project", "q")])
        assert found.headers == [("authorization", "Bearer the-token"), *project]
        assert found.source == f"google-auth: service account bot@p.example{where}"
        assert found.until is not None
        assert 3500 < found.until - time.time() < 3700
        assert "the-token" not in repr((found, credential))
        [(path, _, body)] = server.requests
        assert (path, b"assertion=" in body) == ("/token", True)


async def test_the_server_of_tokens_may_not_redirect(tmp_path: Path) -> None:
    with TokenServer() as server:
        server.redirect = f"{server.url}/elsewhere"
        token_uri = f"{server.url}/token"
        credential = Credential(CREDENTIAL_LIBRARIES["vertex"], service_account(tmp_path, token_uri), "s")
        with pytest.raises(HostError, match=r"^google-auth has no credentials for it: RefreshError$"):
            await credential.get(time.time())
        assert {path for path, _, _ in server.requests} == {"/token"}


async def test_google_that_does_not_answer(tmp_path: Path) -> None:
    token_uri = "http://127.0.0.1:9/token"
    credential = Credential(CREDENTIAL_LIBRARIES["vertex"], service_account(tmp_path, token_uri), "s")
    with pytest.raises(HostError, match=r"^google-auth has no credentials for it: TransportError$"):
        await credential.get(time.time())


async def test_azure_gives_a_token_of_a_managed_identity(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith(("AZURE_", "IDENTITY_", "MSI_"))]:
        monkeypatch.delenv(name)
    with TokenServer() as server:
        monkeypatch.setenv("IDENTITY_ENDPOINT", f"{server.url}/msi")
        monkeypatch.setenv("IDENTITY_HEADER", "h")
        scope = "https://ai.azure.com/.default"
        found = await Credential(CREDENTIAL_LIBRARIES["azure"], "the-client-id", scope).get(time.time())
        assert found.headers == [("authorization", "Bearer the-token")]
        assert found.source == "azure-identity: ManagedIdentityCredential"
        assert found.until is not None
        assert 3500 < found.until - time.time() < 3700
        assert "client_id=the-client-id" in server.requests[-1][0]
        assert "resource=https://ai.azure.com" in server.requests[-1][0]


START = """
import anyio, sys
from dragoman_server.app import create_app
from dragoman_server.cli.commands import main
from dragoman_server.settings import Settings, UpstreamSettings

urls = {vertex!r}, {runtime!r}, "https://r.openai.azure.com/openai/v1"
upstreams = [UpstreamSettings(name=f"u{{n}}", protocol="openai_chat", base_url=url) for n, url in enumerate(urls)]

async def start() -> None:
    async with create_app(Settings(upstreams=tuple(upstreams))).lifespan():
        pass

anyio.run(start)
print(sorted({{name.split(".")[0] for name in sys.modules}} & {{"azure", "boto3", "botocore", "google", "msal"}}))
"""


def test_no_library_is_imported_before_it_is_needed() -> None:
    code = START.format(vertex=VERTEX, runtime=RUNTIME)
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "[]\n"
