"""I. Counts of tokens: served for every upstream, of everything in the request, at no cost for accounts."""

from __future__ import annotations

import json
from typing import Any

import anyio
import pytest
from failures.gateway import Gateway, UpstreamResponse, gateway
from failures.translate import each
from failures.turns import PIXEL
from gateway.fakes import FakeClient, Script
from gateway.simulated import gateway as simulated
from oracle import MESSAGES, check_error
from oracle import samples as s

from dragoman_server.settings import ClientKey
from dragoman_server.settings.keys import hash_client_key
from dragoman_server.settings.secret import Secret

pytestmark = [pytest.mark.anyio, pytest.mark.each_protocol]

Json = dict[str, Any]
PATH = "/v1/messages/count_tokens?beta=true"
SECRET = Secret("a-secret-of-some-length-0123456789")
CLIENT_KEY = "drk_client-" + "a" * 32


def request_for(**more: Any) -> Json:
    return {"model": "up/m", "messages": [{"role": "user", "content": "Hello"}], **more}


async def count(up: Gateway, headers: dict[str, str] | None = None, **more: Any) -> int:
    received = await up.call(PATH, request_for(**more), headers=headers)
    assert received.status == 200, received.body
    tokens = json.loads(received.body)["input_tokens"]
    assert isinstance(tokens, int)
    return tokens


@each("upstream")
@pytest.mark.parametrize("name", ["x-api-key", "authorization"])
async def test_I10_counts_require_the_same_key_as_messages(upstream: str, name: str) -> None:
    keys = [ClientKey(name="red", hash=hash_client_key(CLIENT_KEY, SECRET))]
    value = CLIENT_KEY if name == "x-api-key" else f"Bearer {CLIENT_KEY}"
    play = UpstreamResponse([json.dumps(s.WHOLE[upstream]).encode()])
    async with gateway(upstream, play, client_keys=keys, secret=SECRET) as up:
        for path, body in ((PATH, request_for()), ("/v1/messages", request_for(max_tokens=9))):
            for headers in ({}, {name: value[:-1] + "b"}):
                received = await up.call(path, body, headers=headers)
                assert received.status == 401
                assert check_error(MESSAGES, 401, received.body) == []
            assert (await up.call(path, body, headers={name: value})).status == 200
    assert len(up.network.requests) == 1, "the count went nowhere"


@each("upstream")
async def test_I10_a_count_does_not_need_the_fields_of_a_response(upstream: str) -> None:
    """A count needs no limit and no header of the vendor, and is not refused for losses."""
    async with gateway(upstream) as up:
        plain = await count(up)
        assert 0 < plain < 20
        assert await count(up, headers={"anthropic-version": "2023-06-01", "anthropic-beta": "x"}) == plain
        assert await count(up, thinking={"type": "adaptive"}, a_field_of_tomorrow={"a": [1]}) >= plain
        received = await up.call(PATH, request_for(messages="Hello"))
        assert received.status == 400
        assert check_error(MESSAGES, 400, received.body) == []


IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}}
LONG = "some words of instruction " * 100


def turns(*blocks: Json) -> Json:
    return {"messages": [{"role": "user", "content": [{"type": "text", "text": "Hello"}, *blocks]}]}


CALLED = [
    {"role": "user", "content": "Hello"},
    {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "look", "input": {"q": LONG}}]},
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": LONG}]},
]
# What is added to the plain request -> the fewest tokens that it may count for.
PARTS: dict[str, tuple[Json, int]] = {
    "system": ({"system": LONG}, 300),
    "system in blocks": ({"system": [{"type": "text", "text": LONG}]}, 300),
    "description of a tool": (
        {"tools": [{"name": "look", "description": LONG, "input_schema": {"type": "object"}}]},
        300,
    ),
    "schema of a tool": (
        {"tools": [{"name": "look", "input_schema": {"type": "object", "properties": {LONG: {}}}}]},
        300,
    ),
    "picture": (turns(IMAGE), 50),
    "picture of a result": (turns({"type": "tool_result", "tool_use_id": "c", "content": [IMAGE]}), 50),
    "calls and results": ({"messages": CALLED}, 600),
}


@each("upstream")
@pytest.mark.parametrize("part", PARTS)
async def test_I11_everything_in_the_request_is_counted(upstream: str, part: str) -> None:
    """Not only the text of the messages: 48 tokens were once reported for 728."""
    more, least = PARTS[part]
    async with gateway(upstream) as up:
        assert await count(up, **more) >= await count(up) + least


async def test_I11_an_estimated_count_is_marked() -> None:
    async with gateway(MESSAGES) as up:
        received = await up.call(PATH, request_for())
    assert received.headers["dragoman-estimate"] == "true"


# As many as a client sends in the second in which it starts.
BURST = 50


@each("upstream")
async def test_I12_a_burst_of_counts_uses_no_account_limits(upstream: str) -> None:
    async with gateway(upstream) as up:
        async with anyio.create_task_group() as tasks:
            for number in range(BURST):
                tasks.start_soon(_expect_count, up, number)
        assert up.network.requests == []


async def _expect_count(up: Gateway, number: int) -> None:
    assert await count(up, system=f"Tool {number}") > 0


BUSY = b'{"type":"error","error":{"type":"overloaded_error","message":"busy"}}'
LIMITED = b'{"type":"error","error":{"type":"rate_limit_error","message":"slow down"}}'


@pytest.mark.parametrize(("status", "body"), [(529, BUSY), (429, LIMITED), (500, b"<html>")])
async def test_I12_failed_counts_do_not_disable_an_account(status: int, body: bytes) -> None:
    """An upstream that refuses counts still gets requests for responses at once."""
    received: list[FakeClient] = []
    async with simulated({"/count_tokens": Script([body], status=status)}) as up:

        async def one() -> None:
            received.append(
                await up.call("/v1/messages/count_tokens", request_for() | {"model": "anthropic/echo"})
            )

        async with anyio.create_task_group() as tasks:
            for _ in range(BURST):
                tasks.start_soon(one)
        assert {client.status for client in received} == {429 if status == 429 else 200}
        response = await up.json("/v1/messages", request_for(max_tokens=9) | {"model": "anthropic/echo"})
        assert response["content"][0]["text"] == "Hello"
        assert up.last.url.endswith("/v1/messages")
    assert len(up.upstreams.sent) == BURST + 1, "each count was asked for once"
