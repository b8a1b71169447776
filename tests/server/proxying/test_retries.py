"""F. Retries, the pool and cancelling: the known failures of gateways, one by one."""

# ruff: noqa: E501 -- the tables are read by row

import random
import re
from pathlib import Path
from typing import Any

import anyio
import pytest
from failures.responses import Call, Cost, Text, begun, frames
from failures.responses import stream as stream_of
from failures.translate import each, every_pair
from gateway import pool_rows
from gateway.fakes import FakeClient, Sleep
from gateway.pool_rows import BROKEN
from gateway.provider import (
    InBand,
    RawResponse,
    check_one_beginning,
    check_text,
    good,
    in_band,
    pool_of,
    script_of,
)
from gateway.provider_errors import broken, invalid, limited, server_error
from oracle import CHAT, GEMINI, MESSAGES, PROTOCOL_NAMES, RESPONSES, meaning_of_stream
from oracle import samples as s
from oracle.meaning import Kind, Stop
from virtual_time import VIRTUAL_BACKENDS

from dragoman_server.accounts.stores.base import AccountStoreError, Operation
from dragoman_server.accounts.stores.memory import MemoryAccountStore
from dragoman_server.accounts.stores.resilient import ResilientStore
from dragoman_server.upstream.errors import UpstreamIdleClosed, UpstreamUnreachable

pytestmark = [pytest.mark.anyio, pytest.mark.backends(*VIRTUAL_BACKENDS)]

BOTH = pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
LOST = RawResponse(before=[UpstreamIdleClosed("http://up.test: the idle connection was closed")])


def error_frames(protocol: str) -> bytes:
    return in_band(protocol, InBand(server_error(protocol, "Overloaded"), bare=True), stream=True)


# Sent content: text, and a call whose arguments are not complete.
CONTENT = {"text": (Text("Hello"),), "a call": (Call("call_a", "add", ('{"a": ', "1}")),)}
ENDS: dict[str, Any] = {
    "the connection breaks": lambda protocol: [BROKEN],
    "it just ends": lambda protocol: [],
    "an error in the stream": lambda protocol: [error_frames(protocol)],
}


@pytest.mark.promise("R5")
@every_pair()
@pytest.mark.parametrize("content", CONTENT)
@pytest.mark.parametrize("end", ENDS)
@pytest.mark.each_choice
async def test_f1_no_other_account_is_tried_after_content_was_sent(
    client: str, upstream: str, content: str, end: str
) -> None:
    sent = stream_of(upstream, *CONTENT[content])
    play = RawResponse([*begun(sent, "Hello" if content == "text" else "call_a"), *ENDS[end](upstream)])
    pool = pool_of(upstream, {"a": play, "b": good("Hello from b")})
    tools = [{"name": "add", "input_schema": {"type": "object"}}]
    received = await pool.call(client, body={"tools": tools} if client == MESSAGES else None)
    assert pool.attempted == ["a"]
    assert received.status == 200
    meaning = meaning_of_stream(client, received.body)
    assert meaning.stop is Stop.ERROR
    assert len(meaning.blocks) <= 1
    assert meaning.text(Kind.TEXT) == ("Hello" if content == "text" else "")
    check_one_beginning(client, received)


@BOTH
@every_pair()
@pytest.mark.parametrize("end", ENDS)
@pytest.mark.each_choice
async def test_f2_an_attempt_begins_with_nothing_of_the_last_one(
    client: str, upstream: str, end: str, stream: bool
) -> None:
    """The first account announces another response, with its id and its usage, before it fails."""
    text = Text("" if upstream == GEMINI else "Never")  # Gemini's announces nothing before its content
    opening = frames(stream_of(upstream, text, cost=Cost(prompt=5000)))[: 2 if upstream == RESPONSES else 1]
    opening = [re.sub(rb'"(msg_|chatcmpl-|resp_|r)1"', rb'"\1never"', part) for part in opening]
    failing = pool_of(upstream, {"a": RawResponse([*opening, *ENDS[end](upstream)]), "b": good("Hello")})
    alone = pool_of(upstream, {"b": good("Hello")})
    received, expected = await failing.call(client, stream=stream), await alone.call(client, stream=stream)
    assert failing.attempted == ["a", "b"]
    check_text(client, received, "Hello", stream=stream)
    assert without_ids(received) == without_ids(expected)


def without_ids(received: FakeClient) -> bytes:
    """Return what the client got, without what is new for each request."""
    body = received.body.replace(received.headers["dragoman-request-id"].encode(), b"ID")
    return re.sub(rb'("(?:created(?:_at)?|completed_at)": ?)\d+', rb"\1 0", body)


# Bytes of an upstream before it fails, and True if the client got content by then.
_TEXT_ITEM = {"type": "message", "id": "msg_1", "role": "assistant", "status": "in_progress", "content": []}
_TEXT_PART = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
_CALL = {"id": "call_1", "type": "function", "index": 0, "function": {"name": "add", "arguments": ""}}
_RESPONSES_TEXT: list[dict[str, Any]] = [
    {"type": "response.created", "response": s.response()},
    {"type": "response.output_item.added", "output_index": 0, "item": _TEXT_ITEM},
    {"type": "response.content_part.added", "part": {"type": "output_text", "text": "", "annotations": []}, **_TEXT_PART},
]  # fmt: skip
_MESSAGES_TEXT: list[dict[str, Any]] = [
    {"type": "message_start", "message": s.message()},
    {"type": "ping"},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
]
OPENINGS: dict[str, tuple[dict[str, list[dict[str, Any]]], bool]] = {
    "an empty block": ({CHAT: [s.chunk({"role": "assistant", "content": ""})], MESSAGES: _MESSAGES_TEXT, RESPONSES: _RESPONSES_TEXT, GEMINI: [s.parts()]}, False),
    "an empty delta": (
        {
            CHAT: [s.chunk({"role": "assistant", "content": ""}), s.chunk({"content": ""})],
            MESSAGES: [*_MESSAGES_TEXT, {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": ""}}],
            RESPONSES: [*_RESPONSES_TEXT, {"type": "response.output_text.delta", "delta": "", **_TEXT_PART}],
            GEMINI: [s.parts({"text": ""})],
        },
        False,
    ),
    "empty reasoning": (
        {
            CHAT: [s.chunk({"role": "assistant", "content": None, "reasoning_content": ""})],
            MESSAGES: [*_MESSAGES_TEXT[:2], {"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": "", "signature": ""}}],
            RESPONSES: [*_RESPONSES_TEXT[:1], {"type": "response.output_item.added", "output_index": 0, "item": {"id": "rs_1", "type": "reasoning", "summary": []}}],
            GEMINI: [s.parts({"text": "", "thought": True})],
        },
        False,
    ),
    "a call without arguments": (
        {
            CHAT: [s.chunk({"role": "assistant", "tool_calls": [_CALL]})],
            MESSAGES: [
                *_MESSAGES_TEXT[:2],
                {
                    "type": "content_block_start",
                    "index": 0,
                    "content_block": {"type": "tool_use", "id": "toolu_1", "name": "add", "input": {}},
                },
            ],
            RESPONSES: [
                *_RESPONSES_TEXT[:1],
                {
                    "type": "response.output_item.added",
                    "output_index": 0,
                    "item": {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "add", "arguments": ""},
                },
            ],
            GEMINI: [s.parts(s.function_call("call_1", "add", {}))],
        },
        True,
    ),
}  # fmt: skip


@pytest.mark.promise("R5")
@every_pair()
@pytest.mark.parametrize("opening", OPENINGS)
@pytest.mark.each_choice
async def test_a_response_begins_with_its_first_content(client: str, upstream: str, opening: str) -> None:
    events, seen = OPENINGS[opening]
    numbered = [
        {"sequence_number": number, **event} if upstream == RESPONSES else event
        for number, event in enumerate(events[upstream])
    ]
    sent = s.render(upstream, numbered).removesuffix(b"data: [DONE]\n\n")
    pool = pool_of(upstream, {"a": RawResponse([sent]), "b": good("Hello from b")})
    received = await pool.call(client)
    assert pool.attempted == (["a"] if seen else ["a", "b"])
    if not seen:
        check_text(client, received, "Hello from b", stream=True)


@pytest.mark.promise("R7")
def test_what_is_sent_again_and_when(record: Any) -> None:
    """The dates in other forms are those of RFC 9110, 5.6.7."""
    pool_rows.check(Path(__file__).with_name("retries.txt"), record)


# Before the response, at its start, and inside of it.
MOMENTS: dict[str, Any] = {
    "no connection": lambda protocol: RawResponse(before=[UpstreamUnreachable("cannot connect")]),
    "an error response": broken,
    "the error alone in the body": lambda protocol: InBand(server_error(protocol, "Overloaded"), bare=True),
    "an error behind the announcement": lambda protocol: InBand(server_error(protocol, "Overloaded")),
    "an empty body": lambda protocol: RawResponse(),
    "a broken connection": lambda protocol: RawResponse([BROKEN]),
}


@BOTH
@each("client")
@each("upstream")
@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("chain", [False, True], ids=["accounts", "upstreams"])
async def test_f9_one_policy_for_every_moment(
    client: str, upstream: str, moment: str, chain: bool, stream: bool
) -> None:
    """Accounts and upstreams are tried alike, whether the failure comes before the stream or in it."""
    plays = {"a": MOMENTS[moment](upstream), "b": good("Hello from b")}
    others = {"else": (RESPONSES if upstream == CHAT else CHAT, ["b"])} if chain else {}
    models = {"x": ("up/m", "else/m") if chain else "up/m"}
    pool = pool_of(upstream, plays, others=others, models=models)
    check_text(client, await pool.call(client, stream=stream, model="x"), "Hello from b", stream=stream)
    assert pool.attempted == ["a", "b"]
    assert len(pool.health("a").failures) == 1


async def test_f9_an_upstream_that_is_silent_after_its_error_is_not_waited_for() -> None:
    for protocol in PROTOCOL_NAMES:
        script = script_of(protocol, InBand(server_error(protocol, "Overloaded")), stream=True)
        pool = pool_of(protocol, {"a": RawResponse([*script.body, Sleep(600)]), "b": good("Hello from b")})
        check_text(protocol, await pool.call(protocol), "Hello from b", stream=True)
        assert anyio.current_time() == 0


@pytest.mark.promise("R5", "R6")
@pytest.mark.no_cover
async def test_random_pools_keep_to_the_most_attempts_and_to_one_request_an_account() -> None:
    """300 pools whose accounts fail in every way there is, on the wire: at most `max_attempts` requests, each account
    once but for unread requests, and no text but that of one response.
    """
    chance = random.Random(0)
    plays = (
        LOST,
        RawResponse(parts=[BROKEN]),
        RawResponse(before=[UpstreamUnreachable("http://up.test: no")]),
        InBand(server_error(CHAT, "Overloaded")),
        limited(CHAT),
        broken(CHAT),
        invalid(CHAT),
        good("Hello"),
        good("Hello", between=[BROKEN]),
    )
    for _ in range(300):
        accounts = {name: chance.choices(plays, k=3) for name in "abcd"[: chance.randint(1, 4)]}
        max_attempts = chance.randint(1, 5)
        pool = pool_of(CHAT, accounts, max_attempts=max_attempts)
        received = await pool.call(CHAT, stream=True)
        assert 1 <= len(pool.attempted) <= max_attempts
        for name, responses in accounts.items():
            assert pool.attempted.count(name) <= (2 if responses[0] is LOST else 1), (
                accounts,
                pool.attempted,
            )
        assert received.body.count(b"Hello") <= 1


# A store of accounts that is slow or down, and upstreams that fail at the same time.


class Bad(MemoryAccountStore):
    """Hangs for a time, or fails."""

    def __init__(self, behaviour: str) -> None:
        super().__init__()
        self._behaviour = behaviour

    async def apply(self, operation: Operation[Any]) -> Any:
        if self._behaviour == "hangs":
            await anyio.sleep_forever()
        if self._behaviour == "is down":
            raise AccountStoreError("no connection")
        await anyio.sleep(0.04)
        return await super().apply(operation)


@pytest.mark.promise("R11")
@BOTH
@pytest.mark.parametrize("behaviour", ["hangs", "is slow", "is down"])
async def test_a_bad_store_and_failing_upstreams_cost_no_request_that_can_succeed(
    behaviour: str, stream: bool
) -> None:
    plays = {"a": LOST, "b": broken(CHAT), "c": RawResponse(parts=[BROKEN]), "d": good("Hello")}
    pool = pool_of(CHAT, plays, store=ResilientStore(Bad(behaviour), MemoryAccountStore()))
    for _ in range(30):
        begun = anyio.current_time()
        check_text(CHAT, await pool.call(CHAT, stream=stream), "Hello", stream=stream)
        # Each of at most ten calls waits for 50 ms, and after three failures in a row no call waits.
        assert anyio.current_time() - begun <= 0.5
