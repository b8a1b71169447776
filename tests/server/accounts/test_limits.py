"""The limits of a client key: models, requests and tokens per minute. Through the application, in every protocol."""

import json
import logging
from typing import Any

import anyio
import pytest
from gateway.fakes import FakeClient, Sleep
from gateway.scripted import (
    CHAT,
    MESSAGES,
    NOON,
    PATHS,
    PROTOCOL_NAMES,
    RESPONSES,
    STREAMS,
    TOKENS,
    WHOLE_RESPONSES,
    chat_response,
    chunk,
    request_body,
    scripted,
    stream,
    whole,
)
from starlette.routing import Route

from dragoman import PROTOCOLS
from dragoman_server.accounts.stores.base import AccountStoreError, Operation
from dragoman_server.accounts.stores.memory import MemoryAccountStore
from dragoman_server.accounts.stores.operations import Add, Spend
from dragoman_server.app import _routes
from dragoman_server.http.endpoint import ClientRequest, ProtocolEndpoint
from dragoman_server.log import RequestRecord
from dragoman_server.wire.headers import limit_headers

pytestmark = pytest.mark.anyio

# The endpoint of each protocol, and the types of a 403 and a 429 there.
ENDPOINTS = {
    CHAT: ("/v1/chat/completions", "permission_error", "rate_limit_error"),
    RESPONSES: ("/v1/responses", "permission_error", "rate_limit_error"),
    MESSAGES: ("/v1/messages", "permission_error", "rate_limit_error"),
}
each_protocol = pytest.mark.parametrize("protocol", PROTOCOL_NAMES)


# Models.


ALLOWED_MODELS: list[tuple[tuple[str, ...], str, int]] = [
    ((), "up/m", 200),
    (("up/*",), "up/n", 200),
    (("m",), "up/m", 403),  # by the name that the client sends, not by its route
    (("fast",), "fast", 200),
    (("fast",), "up/m", 403),
    (("up/*",), "fast", 403),
    (("nowhere",), "nowhere", 404),
    (("fast",), "nowhere", 403),  # nothing about existing models
]


async def test_models_that_a_key_may_use() -> None:
    for models, requested, status in ALLOWED_MODELS:
        gateway = scripted(CHAT, keys={"red": {"models": models}}, models={"fast": "up/m"})
        client = await gateway.request(model=requested)
        assert client.status == status, client.body
        assert len(gateway.upstreams.sent) == (status == 200), (models, requested)


@each_protocol
async def test_a_refused_model_is_an_error_of_the_clients_protocol(protocol: str) -> None:
    gateway = scripted(CHAT, keys={"red": {"models": ("a", "b*")}})
    client = await gateway.request(protocol)
    assert client.status == 403
    assert client.error["type"] == ENDPOINTS[protocol][1]
    assert "may not use the model 'up/m'; it may use a, b*" in client.error["message"]
    assert "retry-after" not in client.headers


async def test_a_clients_model_name_is_quoted_bounded_and_printable() -> None:
    gateway = scripted(CHAT, keys={"red": {"models": tuple(f"m{number}" for number in range(99))}})
    message = (await gateway.request(model="x\n" * 999)).error["message"]
    assert "\n" not in message
    assert len(message) < 500
    assert message.endswith("m9, ...")


# Paths that take no model: there is nothing that a key could be refused.
WITHOUT_MODEL = {"/v1/responses/{id}/cancel"}


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
        client = await gateway.call(path, body)
        assert client.status == 403, path
    assert gateway.upstreams.sent == []


async def test_the_default_model_is_checked_too() -> None:
    keys = {"red": {"models": ("up/a",)}, "blue": {"models": ("up/b",)}}
    gateway = scripted(CHAT, keys=keys, default_model="up/a")
    body = {"messages": [{"role": "user", "content": "Hi"}]}
    assert (await gateway.call("/chat/json", body, key="red")).status == 200
    assert (await gateway.call("/chat/json", body, key="blue")).status == 403


async def test_a_request_without_a_model_is_refused_as_without_keys() -> None:
    gateway = scripted(CHAT, keys={"red": {"models": ("a",)}})
    client = await gateway.call(PATHS[CHAT], {"messages": []})
    assert client.status == 400
    assert "model is required" in client.error["message"]


async def test_the_list_has_only_the_models_of_the_key() -> None:
    gateway = scripted(
        CHAT, keys={"red": {"models": ("fa*",)}, "blue": {}}, models={"fast": "up/m", "slow": "up/n"}
    )
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
    await endpoint(
        {"type": "http", "method": "POST", "path": "/x", "headers": []}, client.receive, client.send
    )
    assert client.status == 500
    assert gateway.upstreams.sent == []


# Requests by the minute.


@each_protocol
async def test_the_limit_of_requests_per_minute(protocol: str) -> None:
    gateway = scripted(CHAT, keys={"red": {"requests_per_minute": 2}, "blue": {}})
    statuses = [(await gateway.request(protocol)).status for _ in range(3)]
    assert statuses == [200, 200, 429]
    assert len(gateway.upstreams.sent) == 2
    assert (await gateway.request(protocol, key="blue")).status == 200
    gateway.clock.now += 30  # the limit recovers steadily, not at the full minute
    assert [(await gateway.request(protocol)).status for _ in range(2)] == [200, 429]


# The headers that the libraries of each vendor read.
REPORTED = {
    CHAT: {
        "x-ratelimit-limit-requests": "2",
        "x-ratelimit-remaining-requests": "0",
        "x-ratelimit-reset-requests": "30s",
    },
    MESSAGES: {
        "anthropic-ratelimit-requests-limit": "2",
        "anthropic-ratelimit-requests-remaining": "0",
        "anthropic-ratelimit-requests-reset": "2026-11-21T12:00:30Z",
    },
}
REPORTED[RESPONSES] = REPORTED[CHAT]


@each_protocol
@pytest.mark.parametrize("streams", [False, True])
async def test_a_limit_is_an_error_of_the_clients_protocol(protocol: str, streams: bool) -> None:
    gateway = scripted(CHAT, keys={"red": {"requests_per_minute": 2}})
    for _ in range(2):
        await gateway.request(protocol)
    client = await gateway.request(protocol, streams=streams)
    assert client.status == 429
    assert client.error["type"] == ENDPOINTS[protocol][2]
    assert "the client key red may use 2 requests a minute; try again in 30.000s" in client.error["message"]
    assert (client.headers["retry-after"], client.headers["retry-after-ms"]) == ("30", "30000")
    assert {name: value for name, value in client.headers.items() if "ratelimit" in name} == REPORTED[
        protocol
    ]


async def test_the_simple_api_reports_when_to_try_again() -> None:
    gateway = scripted(CHAT, keys={"red": {"requests_per_minute": 1}}, default_model="up/m")
    body = {"messages": [{"role": "user", "content": "Hi"}]}
    assert (await gateway.call("/chat/json", body)).status == 200
    client = await gateway.call("/chat/sse", body)
    assert client.status == 429
    assert client.headers["retry-after"] == "60"
    assert not [name for name in client.headers if "ratelimit" in name]


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


async def test_counting_and_listing_are_no_requests() -> None:
    gateway = scripted(CHAT, keys={"red": {"requests_per_minute": 1}})
    counting = {"model": "up/m", "messages": [{"role": "user", "content": "Hi"}]}
    for _ in range(3):
        assert (await gateway.call("/v1/messages/count_tokens", counting)).status == 200
    assert (await gateway.request()).status == 200
    assert (await gateway.request()).status == 429


async def test_a_request_that_is_refused_later_counts_too() -> None:
    gateway = scripted(CHAT, keys={"red": {"requests_per_minute": 1}})
    assert (await gateway.request(model="nowhere/x")).status in (400, 404)
    assert (await gateway.request()).status == 429


# Tokens by the minute.


@each_protocol
@pytest.mark.parametrize("upstream", PROTOCOL_NAMES)
@pytest.mark.parametrize("streams", [False, True], ids=["whole", "stream"])
@pytest.mark.each_choice
async def test_tokens_are_counted_at_the_end(protocol: str, upstream: str, streams: bool) -> None:
    script = (STREAMS if streams else WHOLE_RESPONSES)[upstream]
    gateway = scripted(upstream, script, keys={"red": {"tokens_per_minute": TOKENS - 1}})
    client = await gateway.request(protocol, streams=streams)
    assert client.status == 200, client.body
    refused = await gateway.request(protocol)
    assert refused.status == 429
    name = "anthropic-ratelimit-tokens-limit" if protocol == MESSAGES else "x-ratelimit-limit-tokens"
    assert refused.headers[name] == f"{TOKENS - 1}"
    # One token too many: the next request passes when it has recovered.
    assert int(refused.headers["retry-after-ms"]) == 60_000 // (TOKENS - 1)
    gateway.clock.now += 60 / (TOKENS - 1)
    assert (await gateway.request(protocol)).status == 200


@pytest.mark.parametrize(
    ("requests", "tokens", "named"), [(9, 1, "tokens"), (1, 9, "requests"), (1, 1, "tokens")]
)
async def test_the_limit_that_is_reached_is_named(requests: int, tokens: int, named: str) -> None:
    keys = {"red": {"requests_per_minute": requests, "tokens_per_minute": tokens}}
    gateway = scripted(CHAT, keys=keys)
    assert (await gateway.request()).status == 200
    client = await gateway.request()
    assert client.status == 429
    assert f"{named} a minute" in client.error["message"]
    assert f"x-ratelimit-limit-{named}" in client.headers


# Clients that leave, and upstreams that report no usage.


class LeavingClient(FakeClient):
    """Leaves when it has received so much of the response."""

    def __init__(self, body: bytes, seen: bytes) -> None:
        super().__init__(body, leaves_after=None)
        self._seen = seen
        self._left = anyio.Event()

    async def receive(self) -> Any:
        if self._body is not None:
            return await super().receive()
        await self._left.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        await super().send(message)
        if self._seen in self.body:
            self._left.set()
            await anyio.sleep_forever()


DELTAS = [f"word-{number} " for number in range(40)]
LONG = stream(*(chunk({"content": word}) for word in DELTAS), chunk({}, "stop"), done=True)


@each_protocol
async def test_a_client_that_leaves_is_charged_for_what_it_got(
    protocol: str, caplog: pytest.LogCaptureFixture
) -> None:
    gateway = scripted(CHAT, LONG, keys={"red": {"tokens_per_minute": 10}})
    client_that_leaves = LeavingClient(json.dumps(request_body(protocol, streams=True)).encode(), b"word-30")
    with caplog.at_level(logging.INFO):
        await gateway.call(PATHS[protocol], None, client=client_that_leaves)
    (record,) = [each.__dict__["dragoman"] for each in caplog.records if "dragoman" in each.__dict__]
    assert record["outcome"] == "client_left"
    assert record["estimated"] is True
    assert 31 <= record["output_tokens"] <= 150
    assert 0 < record["input_tokens"] < 50
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


@pytest.mark.parametrize("status", [400, 500])
async def test_an_error_of_the_upstream_uses_no_tokens(status: int) -> None:
    gateway = scripted(
        CHAT, whole({"error": {"message": "x" * 9999}}, status), keys={"red": {"tokens_per_minute": 1}}
    )
    for _ in range(3):
        assert (await gateway.request()).status == status


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


@pytest.mark.parametrize("silent", [False, True], ids=["fails", "is silent"])
async def test_a_failing_store_refuses_no_request(silent: bool, caplog: pytest.LogCaptureFixture) -> None:
    store = Broken(silent)
    gateway = scripted(CHAT, keys={"red": {"requests_per_minute": 1, "tokens_per_minute": 1}}, store=store)
    begun = anyio.current_time()
    for _ in range(3):
        assert (await gateway.request()).status == 200
    assert anyio.current_time() - begun < 10
    lines = [each for each in caplog.records if each.name == "dragoman.errors"]
    assert len(lines) == 1
    assert "the limits of client keys are not counted" in lines[0].getMessage()
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
    assert (
        RequestRecord(id="a", protocol=CHAT, path="/", cost_usd=1.23456789e-5).as_dict()["cost_usd"]
        == 1.235e-5
    )


async def test_a_whole_response_without_usage_is_estimated() -> None:
    response = whole(chat_response({"content": "Hello"}, usage=None))
    gateway = scripted(CHAT, response, keys={"red": {"tokens_per_minute": 5}})
    assert (await gateway.request()).status == 200
    assert (await gateway.request()).status == 429
