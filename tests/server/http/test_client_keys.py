"""Client keys: which requests are accepted, in every protocol; no part of a key is shown."""

# ruff: noqa: E501 -- the tables are read by row

import hmac
import json
import logging
import re
import statistics
import time
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import anyio
import pytest
from gateway.fakes import FakeClient, OneResponse, Script
from gateway.fakes import call as call_app
from starlette.routing import Route

from dragoman import PROTOCOLS, RequestRefused, Signer
from dragoman.codec import JSON_ARRAY
from dragoman.events import Signature
from dragoman_server.app import _routes, create_app
from dragoman_server.gateway import Gateway
from dragoman_server.http.auth import OPEN_PATHS, KeyPlaces, Keyring, presented_key
from dragoman_server.settings import ClientKey, ServerSettings, Settings, UpstreamSettings
from dragoman_server.settings import client_keys as access
from dragoman_server.settings.client_keys import hash_client_key, make_signer, may_use, new_key
from dragoman_server.settings.secret import Secret

INVALID_KEYS: list[dict[str, str]] = [{}, {"x-api-key": "drk_wrong"}]


SECRET = Secret("a-secret-of-some-length-0123456789")
NOW = datetime(2026, 11, 23, 12, tzinfo=UTC).timestamp()
KEY, OTHER = "drk_canary-" + "a" * 32, "drk_canary-" + "b" * 32
KEYS = (
    ClientKey(name="red", hash=hash_client_key(KEY, SECRET)),
    ClientKey(name="blue", hash=hash_client_key(OTHER, SECRET), loss_policy="refuse"),
)


# Keys and hashes.


@pytest.mark.promise("S2")
def test_keys_are_long_and_never_the_same() -> None:
    keys = {new_key() for _ in range(100)}
    assert len(keys) == 100
    assert all(key.startswith("drk_") and len(key) == 47 for key in keys)


@pytest.mark.promise("S2")
def test_a_hash_depends_on_the_secret_and_is_no_plain_hash() -> None:
    assert hash_client_key(KEY, SECRET) == hash_client_key(KEY, Secret(SECRET.reveal()))
    assert hash_client_key(KEY, SECRET) != hash_client_key(KEY, Secret("another-secret-of-some-length-0123"))
    assert hash_client_key(KEY, SECRET) != hmac.digest(SECRET.reveal().encode(), KEY.encode(), "sha256").hex()


def test_signatures_and_client_keys_are_keyed_apart() -> None:
    signer = make_signer(SECRET)
    assert signer.secret not in (
        None,
        SECRET.reveal().encode(),
        access._subkey(SECRET, access._CLIENT_KEYS_LABEL),
    )
    assert make_signer(None) == Signer()
    wrapped = signer.wrap(Signature(origin="anthropic_messages", model="m", native={"type": "thinking"}))
    assert make_signer(Secret(SECRET.reveal())).unwrap(wrapped) is not None
    assert make_signer(Secret("another-secret-of-some-length-0123")).unwrap(wrapped) is None


KEY_HEADERS: list[tuple[list[tuple[str, str]], str | None]] = [
    ([("x-api-key", "k")], "k"),
    ([("X-Api-Key", " k ")], "k"),
    ([("authorization", "Bearer k")], "k"),
    ([("authorization", "bearer  k")], "k"),
    ([("authorization", "Bearer of"), ("x-api-key", "k")], "k"),
    ([("x-api-key", ""), ("authorization", "Bearer k")], ""),
    ([("x-api-key", "k"), ("x-api-key", "k")], None),
    ([("authorization", "Bearer k"), ("authorization", "Bearer k")], None),
    ([("authorization", "Basic k")], None),
    ([("authorization", "k")], None),
    ([("authorization", "Bearer")], ""),
    ([("api-key", "k")], "k"),
    ([("x-api-key", "k"), ("api-key", "other")], "k"),
    ([("x-key", "k")], None),
    ([], None),
]


def test_the_key_in_a_clients_headers() -> None:
    for headers, key in KEY_HEADERS:
        assert presented_key([(name.encode(), value.encode()) for name, value in headers]) == key, headers


@pytest.mark.parametrize(
    ("headers", "query", "key"),
    [
        ({}, b"a=b&k=the%2Fkey", "the/key"),
        ({}, b"k=one&k=two", None),
        ({}, b"", None),
        ({b"authorization": b"Bearer bearer"}, b"k=other", "bearer"),
        ({b"x-k": b"header", b"authorization": b"Bearer bearer"}, b"k=other", "header"),
    ],
)
def test_the_key_in_a_clients_query(headers: dict[bytes, bytes], query: bytes, key: str | None) -> None:
    assert presented_key(headers.items(), query, KeyPlaces(("x-k",), ("k",))) == key


def headers_with(key: str) -> list[tuple[bytes, bytes]]:
    return [(b"x-api-key", key.encode("latin-1"))]


def test_the_keyring_finds_the_key() -> None:
    keyring = Keyring(KEYS, SECRET)
    assert keyring.authenticate(headers_with(KEY), NOW) is KEYS[0]
    assert keyring.authenticate(headers_with(OTHER), NOW) is KEYS[1]


@pytest.mark.promise("S2")
def test_the_keyring_refuses_every_other_key() -> None:
    for key in ("", KEY[:-1], KEY + "a", KEYS[0].hash, "x" * 100_000, "\xe4\xff"):
        refused = None
        try:
            Keyring(KEYS, SECRET).authenticate(headers_with(key), NOW)
        except RequestRefused as error:
            refused = error
        assert refused is not None, key[:50]
        assert (refused.status, refused.code) == (401, "invalid_api_key"), key[:50]
        assert not key or key not in refused.message, key[:50]


@pytest.mark.promise("S2")
def test_the_time_of_a_comparison_is_constant() -> None:
    """Of many runs that take turns the middle one, for the first key, the last one and none of a hundred."""
    known = [f"drk_{number:043}" for number in range(100)]
    keyring = Keyring([ClientKey(name=key, hash=hash_client_key(key, SECRET)) for key in known], SECRET)
    times: dict[str, list[float]] = {known[0]: [], known[-1]: [], "drk_" + "x" * 43: []}
    for _ in range(101):
        for key, took in times.items():
            begun = time.perf_counter()
            with suppress(RequestRefused):
                keyring.authenticate(headers_with(key), NOW)
            took.append(time.perf_counter() - begun)
    middles = [statistics.median(took) for took in times.values()]
    assert max(middles) < 2 * min(middles)


ALLOWED_MODELS: list[tuple[tuple[str, ...], str, bool]] = [
    ((), "anything", True),
    (("a",), "a", True),
    (("a",), "b", False),
    (("a",), "A", False),
    (("a", "b-*"), "b-1", True),
    (("b-*",), "b-", True),
    (("b-*",), "ab-1", False),
    (("*",), "up/m", True),
    (("claude[1m]",), "claude[1m]", True),
    (("claude[1m]",), "claude1", False),
    (("m?",), "m1", False),
    (("a",), "", False),
]


def test_models_that_a_key_may_use() -> None:
    for models, model, may in ALLOWED_MODELS:
        assert may_use(ClientKey(name="red", hash="0" * 64, models=models), model) is may, (models, model)
        assert may_use(None, model), (models, model)


def at(seconds: float) -> datetime:
    return datetime.fromtimestamp(NOW + seconds, UTC)


# The key as it is configured, and why it is refused.
ENDED = [
    (ClientKey(name="red", hash=KEYS[0].hash, disabled=True), "the client key red is disabled: have it enabled"),
    (ClientKey(name="red", hash=KEYS[0].hash, expires=at(0)), "the client key red expired at 2026-11-23T12:00:00Z: have another one made (dragoman keys rotate red)"),
    (ClientKey(name="red", hash=KEYS[1].hash, previous_hash=KEYS[0].hash, previous_expires=at(-60)), "this key of red ended at 2026-11-23T11:59:00Z: send the newer one"),
    (
        ClientKey(name="red", hash=KEYS[1].hash, previous_hash=KEYS[0].hash, previous_expires=at(60), expires=at(-1)),
        "this key of red ended at 2026-11-23T11:59:59Z: send the newer one",
    ),
]  # fmt: skip


@pytest.mark.promise("S2")
def test_a_key_that_has_ended_is_refused_with_the_reason_and_unknown_ones_without() -> None:
    unknown = "the client key is not known to this gateway"
    for configured, reason in ENDED:
        keyring = Keyring([configured], SECRET)
        for key, expected in ((KEY, reason), (KEY + "x", unknown), (KEYS[0].hash, unknown)):
            with pytest.raises(RequestRefused) as refused:
                keyring.authenticate(headers_with(key), NOW)
            assert (refused.value.status, refused.value.code) == (401, "invalid_api_key")
            assert refused.value.message.startswith(expected)
            assert key not in refused.value.message


def test_a_key_is_valid_until_it_ends() -> None:
    keyring = Keyring([ClientKey(name="red", hash=KEYS[0].hash, expires=at(60))], SECRET)
    key = keyring.authenticate(headers_with(KEY), NOW + 59.9)
    assert [key.state(NOW + seconds, ()) for seconds in (59.9, 60)] == ["active", "expired"]
    with pytest.raises(RequestRefused):
        keyring.authenticate(headers_with(KEY), NOW + 60)


def test_without_keys_every_request_is_accepted_and_keys_need_a_secret() -> None:
    assert Keyring((), SECRET).authenticate([], NOW) is None
    assert Keyring((), None).authenticate([], NOW) is None
    assert not Keyring((), SECRET)
    with pytest.raises(ValueError, match=r"server\.secret"):
        Keyring(KEYS, None)


# The application.

BODY = json.dumps({"model": "up/m", "messages": [{"role": "user", "content": "Hi"}]}).encode()
RESPONSE = b'{"id":"x","object":"chat.completion","choices":[]}'


def settings_of(**server: Any) -> Settings:
    upstream = UpstreamSettings(name="up", protocol="openai_chat", base_url="http://127.0.0.1:9/v1")
    return Settings(server=ServerSettings(secret=SECRET, **server), upstreams=(upstream,), client_keys=KEYS)


async def call(
    path: str, headers: dict[str, str] | None = None, method: str = "POST", app: Any = None, **scope: Any
) -> FakeClient:
    app = app or create_app(settings_of(), client=OneResponse(Script([RESPONSE])))
    return await call_app(app, path, BODY, method, headers, **scope)


@pytest.mark.promise("S16")
def test_all_routes_but_the_listed_ones_need_a_key() -> None:
    """A new route needs a key until it is listed as open."""

    async def statuses_of() -> dict[str, int | None]:
        found = {}
        for route in _routes(Gateway(settings_of()), lambda: (True, {})):
            assert isinstance(route, Route)
            path = re.sub(r"\{\w+(:path)?\}", "x", route.path)
            for method in sorted(route.methods or ("GET",)):
                found[f"{method} {path}"] = (await call(path, method=method)).status
        return found

    statuses = anyio.run(statuses_of)
    assert len(statuses) > 15
    open_ = {name.partition(" ")[2] for name, status in statuses.items() if status != 401}
    assert open_ == OPEN_PATHS


@pytest.mark.anyio
@pytest.mark.parametrize("name", PROTOCOLS)
async def test_a_request_without_a_valid_key_is_refused_in_the_protocol_of_its_path(name: str) -> None:
    for headers in INVALID_KEYS:
        spec = PROTOCOLS[name]
        for endpoint in spec.endpoints:
            response = await call(f"{endpoint.path}?{endpoint.query}", headers)
            ends = (b"[", b"]") if endpoint.framing is JSON_ARRAY else (b"{", b"}")
            assert (response.body[:1], response.body[-1:]) == ends, endpoint
            assert response.status == 401, (endpoint, headers)
            assert response.headers["www-authenticate"] == "Bearer", (endpoint, headers)
            assert response.headers["x-should-retry"] == "false", (endpoint, headers)
            message = response.error
            text = message if isinstance(message, str) else message["message"]
            assert (
                "needs a client key" if not headers else "the client key is not known to this gateway"
            ) in text, (
                endpoint,
                headers,
            )


@pytest.mark.anyio
@pytest.mark.promise("S3")
async def test_the_log_has_the_keys_name_and_never_the_key(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        await call("/v1/chat/completions", {"x-api-key": OTHER})
        await call("/v1/chat/completions", {"x-api-key": "drk_canary-wrong"})
        await call("/v1/chat/completions", {"x-goog-api-key": OTHER})
        await call(f"/v1/chat/completions?key={OTHER}")
        await call("/v1/chat/completions?key=drk_canary-wrong")
    records = [each.__dict__["dragoman"] for each in caplog.records if each.name == "dragoman.requests"]
    assert [record.get("client_key") for record in records] == ["blue", None, "blue", "blue", None]
    assert records[1]["outcome"] == "refused"
    assert "canary" not in str([record.__dict__ for record in caplog.records])
