"""The limits of a client key: models, requests and tokens per minute. Through the application, in every protocol."""

import json
import re
from pathlib import Path
from typing import Any

import anyio
import pytest
import rows
from gateway.fakes import FakeClient, Script, Sleep
from gateway.scripted import (
    CHAT,
    MESSAGES,
    NOON,
    PATHS,
    PROTOCOL_NAMES,
    RESPONSES,
    STREAMS,
    WHOLE_RESPONSES,
    chat_response,
    chunk,
    request_body,
    scripted,
    stream,
    whole,
)
from laws.clients import path_of
from starlette.routing import Route

from dragoman import PROTOCOLS
from dragoman_server.accounts.stores.base import AccountStoreError, Operation
from dragoman_server.accounts.stores.memory import MemoryAccountStore
from dragoman_server.accounts.stores.operations import Add, Spend
from dragoman_server.app import _routes
from dragoman_server.http.endpoint import ClientRequest, ProtocolEndpoint
from dragoman_server.log import RequestRecord
from dragoman_server.relayed.table import BELOW, JSON, TABLE, ModelPlace
from dragoman_server.settings import Price
from dragoman_server.wire.headers import limit_headers

pytestmark = pytest.mark.anyio

PROTOCOLS_OF = {"chat": CHAT, "messages": MESSAGES, "responses": RESPONSES}


def script_of(protocol: str, *words: str) -> Script:
    if "unreported" in words:
        return whole(chat_response({"content": "Hello"}, usage=None))
    status = next((int(word.removeprefix("status=")) for word in words if word.startswith("status=")), 200)
    if status != 200:
        return whole({"error": {"message": "x" * 9999}}, status)
    return (STREAMS if "stream" in words else WHOLE_RESPONSES)[protocol]


def options_of(words: list[str]) -> dict[str, Any]:
    def value(name: str, text: str) -> Any:
        if name == "models":
            return tuple(text.split(","))
        return int(text) if text.isdigit() and name != "budget" else float(text) if name == "budget" else text

    pairs = [word.split("=", 1) for word in words if re.match(r"[a-z_]+=", word)]
    return {name: value(name, text) for name, text in pairs}


async def carried_out(lines: list[str]) -> list[str]:
    """Return what the requests of limits.txt get."""
    settings: dict[str, Any] = {"keys": {}, "groups": {}, "prices": [], "models": {}}
    protocol, script, out = CHAT, WHOLE_RESPONSES[CHAT], list[str]()
    requests = [line.removeprefix("> ") for line in lines if line.startswith(("> ", "wait "))]
    for word, *rest in (line.split(" ") for line in lines):
        match word:
            case "upstream":
                protocol = PROTOCOLS_OF[rest[0]]
                script = script_of(protocol, *rest[1:])
            case "key" | "group":
                settings[f"{word}s"][rest[0]] = options_of(rest[1:])
            case "price":
                price = Price(model=rest[0], input=float(rest[1]), output=float(rest[2]))
                settings["prices"].append(price)
            case "name":
                settings["models"][rest[0]] = rest[1] if len(rest) == 2 else tuple(rest[1:])
            case "server":
                settings |= options_of(rest)
    gateway = scripted(protocol, script, **settings)
    for request in requests:
        first, *rest = request.split(" ")
        if first == "wait":
            gateway.clock.now += float(rest[0])
            continue
        options = options_of(rest)
        if first.startswith("/"):
            client = await gateway.call(first, json.loads(rest[0]), key=options.get("key"))
        else:
            client = await gateway.request(PROTOCOLS_OF[first], streams="stream" in rest, **options)
        out.append(shown(client))
    return [*out, f"{len(gateway.upstreams.sent)} sent"]


def shown(client: FakeClient) -> str:
    if client.status == 200:
        return "200"
    error = client.error if isinstance(client.error, dict) else {"message": client.error}
    headers = {name: value for name, value in client.headers.items() if re.search("retry|limit", name)}
    message = error["message"] if len(error["message"]) < 500 else "..."
    told = ", ".join(f"{name} {value}" for name, value in sorted(headers.items()))
    return f"{client.status} {error.get('type')} {error.get('code')}: {message} [{told}]"


def test_the_limits_of_client_keys() -> None:
    rows.check(Path(__file__).with_name("limits.txt"), lambda lines: anyio.run(carried_out, lines))


async def test_a_clients_model_name_is_quoted_bounded_and_printable() -> None:
    gateway = scripted(CHAT, keys={"red": {"models": tuple(f"m{number}" for number in range(99))}})
    message = (await gateway.request(model="x\n" * 999)).error["message"]
    assert "\n" not in message
    assert len(message) < 500
    assert message.endswith("m9, ...")


# Paths that take no model: there is nothing that a key could be refused.
# Paths of requests without a model, and those that have to be forms: tests/server/http/test_relayed.py.
WITHOUT_MODEL = {
    "/v1/responses/{id}/cancel",
    *(
        path.replace(BELOW, below)
        for row in TABLE
        if row.model in (ModelPlace.ID, ModelPlace.NONE) or JSON not in row.requests
        for path in row.paths
        for below in ("", "/{below:path}")
    ),
}


async def test_every_endpoint_with_a_model_checks_the_models_of_the_key() -> None:
    """A new endpoint that accepts a forbidden model fails here."""
    gateway = scripted(CHAT, keys={"red": {"models": ("other",)}})
    paths = [
        route.path
        for route in _routes(gateway.gateway, lambda: (True, {}))
        if isinstance(route, Route) and "POST" in (route.methods or ()) and route.path not in WITHOUT_MODEL
    ]
    assert len(paths) >= 9
    for path in paths:
        body = {"model": "up/m", "max_tokens": 9, "messages": [], "input": "Hi", "prompt": "Hi"}
        body = {**body, "requests": [{"params": body}]}
        client = await gateway.call(path, body)
        assert client.status == 403, path
    assert gateway.upstreams.sent == []


async def test_the_list_has_only_the_models_of_the_key() -> None:
    keys = {"red": {"models": ("fa*",)}, "blue": {}}
    gateway = scripted(CHAT, keys=keys, models={"fast": "up/m", "slow": "up/n"})
    async with gateway.app.lifespan():
        red = json.loads((await gateway.call("/v1/models", None, key="red", method="GET")).body)
        blue = json.loads((await gateway.call("/v1/models", None, key="blue", method="GET")).body)
        assert (await gateway.call("/v1/models/fast", None, key="red", method="GET")).status == 200
        assert (await gateway.call("/v1/models/slow", None, key="red", method="GET")).status == 404
    assert [each["id"] for each in red["data"]] == ["fast"]
    assert {"fast", "slow"} <= {each["id"] for each in blue["data"]}


async def test_a_refused_request_is_not_sent() -> None:
    """An endpoint without the check sends nothing."""

    class Forgetful(ProtocolEndpoint):
        async def serve(self, call: ClientRequest) -> None:
            await self.carry_out(call, await self.plan(call, json.dumps(request_body(CHAT)).encode()))

    gateway = scripted(CHAT, keys={"red": {}})
    spec = gateway.gateway.protocols[CHAT]
    endpoint = Forgetful(gateway.gateway, spec, spec.endpoints[0])
    client = FakeClient(json.dumps(request_body(CHAT)).encode())
    request = {"type": "http", "method": "POST", "path": "/x", "headers": []}
    await endpoint(request, client.receive, client.send)
    assert client.status == 500
    assert gateway.upstreams.sent == []


LIMIT_ENDS: list[tuple[str, float, str]] = [
    (CHAT, 0.0, "0s"),
    (CHAT, 0.0121, "0.013s"),
    (CHAT, 12.5, "12.5s"),
    (CHAT, 60.0, "1m0s"),
    (RESPONSES, 3725.25, "62m5.25s"),
    (CHAT, -5.0, "0s"),
    (MESSAGES, 0.5, "2026-11-21T12:00:01Z"),
    (MESSAGES, 86400.0, "2026-11-22T12:00:00Z"),
    (MESSAGES, -5.0, "2026-11-21T12:00:00Z"),
]


async def test_the_header_for_the_end_of_a_limit() -> None:
    for protocol, wait, reported in LIMIT_ENDS:
        headers = dict(
            limit_headers(PROTOCOLS[protocol].rate_limit_headers, "tokens", 9, now=NOON, until=NOON + wait)
        )
        assert next(value for name, value in headers.items() if "reset" in name) == reported, (protocol, wait)
        assert int(headers["retry-after"]) >= max(0.0, wait), (protocol, wait)
        assert int(headers["retry-after-ms"]) >= max(0.0, wait) * 1000, (protocol, wait)


# Clients that leave, and upstreams that report no usage.


DELTAS = [f"word-{number} " for number in range(40)]
LONG = stream(*(chunk({"content": word}) for word in DELTAS), chunk({}, "stop"), done=True)


@pytest.mark.parametrize("protocol", PROTOCOL_NAMES)
async def test_a_client_that_leaves_is_charged_for_what_it_got(protocol: str, record: Any) -> None:
    gateway = scripted(CHAT, LONG, keys={"red": {"tokens_per_minute": 10}})
    body = json.dumps(request_body(protocol, streams=True)).encode()
    client_that_leaves = FakeClient(body, leaves_at=b"word-30")
    await gateway.call(path_of(protocol, "up/m"), None, client=client_that_leaves)
    assert (record()["outcome"], record()["estimated"]) == ("client_left", True)
    assert 31 <= record()["output_tokens"] <= 150
    assert 0 < record()["input_tokens"] < 50
    assert (await gateway.request(protocol)).status == 429


async def test_a_client_that_leaves_before_content_is_charged_for_its_prompt() -> None:
    script = WHOLE_RESPONSES[CHAT]
    slow = type(script)(script.body, headers=script.headers, connect=[Sleep(60)])
    gateway = scripted(CHAT, slow, keys={"red": {"tokens_per_minute": 1}})
    client_that_leaves = FakeClient(
        json.dumps(request_body(CHAT)).encode(), leaves_after=anyio.current_time() + 1
    )
    await gateway.call(PATHS[CHAT], None, client=client_that_leaves)
    assert client_that_leaves.messages == []
    assert (await gateway.request()).status == 429


async def test_a_relayed_stream_without_usage_is_estimated() -> None:
    """A Chat client that does not request usage gets none, neither translated nor relayed."""
    gateway = scripted(CHAT, LONG, keys={"red": {"tokens_per_minute": 10}})
    assert (await gateway.request(CHAT, streams=True)).status == 200
    assert (await gateway.request(CHAT)).status == 429


# The store.


class Broken(MemoryAccountStore):
    """A store that fails on demand: an error, or silence."""

    def __init__(self, silent: bool) -> None:
        super().__init__()
        self.silent = silent
        self.works = False

    async def apply(self, operation: Operation[Any]) -> Any:
        if self.works or not isinstance(operation, Spend):
            return await super().apply(operation)
        if self.silent:
            await anyio.sleep_forever()
        raise AccountStoreError("no route to the store")


@pytest.mark.parametrize(
    ("silent", "reason"),
    [(False, "no route to the store"), (True, "no response in time")],
    ids=["fails", "is silent"],
)
async def test_a_failing_store_refuses_no_request(
    silent: bool, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    store = Broken(silent)
    gateway = scripted(CHAT, keys={"red": {"requests_per_minute": 1, "tokens_per_minute": 1}}, store=store)
    begun = anyio.current_time()
    for _ in range(3):
        assert (await gateway.request()).status == 200
    assert anyio.current_time() - begun < 10
    lines = [each for each in caplog.records if each.name == "dragoman.errors"]
    assert len(lines) == 1
    assert lines[0].getMessage() == f"the limits of client keys are not counted: {reason}"
    store.works = True
    assert (await gateway.request()).status == 200
    assert (await gateway.request()).status == 429


class Untouchable(MemoryAccountStore):
    async def apply(self, operation: Operation[Any]) -> Any:
        assert not isinstance(operation, Spend | Add), "nobody is to ask"
        return await super().apply(operation)


async def test_a_key_without_limits_uses_no_store() -> None:
    gateway = scripted(CHAT, keys={"red": {"models": ("up/*",)}}, store=Untouchable())
    assert (await gateway.request()).status == 200


async def test_requests_are_counted_when_the_server_stops() -> None:
    """A request that is cancelled in its middle is charged for its tokens so far."""
    slow = stream(*(chunk({"content": word}) for word in DELTAS))
    slow.body = [*slow.body, Sleep(3600)]
    gateway = scripted(CHAT, slow, WHOLE_RESPONSES[CHAT], keys={"red": {"tokens_per_minute": 10}})
    with anyio.move_on_after(60):
        await gateway.request(CHAT, streams=True)
    assert (await gateway.request()).status == 429


def test_the_record_has_nothing_about_limits() -> None:
    assert "cost_usd" not in RequestRecord(id="a", protocol=CHAT, path="/").as_dict()
    found = RequestRecord(id="a", protocol=CHAT, path="/", cost_usd=1.23456789e-5).as_dict()["cost_usd"]
    assert found == 1.235e-5
