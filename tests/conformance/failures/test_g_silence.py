"""G. Keep-alive: what a client receives while nothing comes from the upstream, and that nothing is held back."""

from __future__ import annotations

import json
from typing import Any

import httpx2
import pytest
from failures.gateway import Play, gateway, path_of, received_at, request_for
from failures.responses import Call, Reasoning, Text, frames, stream
from failures.translate import each, every_pair
from gateway.fakes import FakeClient, Sleep
from oracle import (
    CHAT,
    CLIENTS,
    MESSAGES,
    RESPONSES,
    SIMPLE,
    SIMPLE_EVENTS,
    SIMPLE_LINES,
    check_stream,
    meaning_of_client_stream,
)
from oracle.frames import as_object, lenient_frames
from oracle.meaning import Kind
from virtual_time import VIRTUAL_BACKENDS

pytestmark = [pytest.mark.anyio, pytest.mark.backends(*VIRTUAL_BACKENDS), pytest.mark.each_protocol]


# The shortest time after which anything between client and gateway is known to cut a silent connection.
CUT_S = 60
SILENCE_S = 130
# What each client takes for a sign of life.
BEATS = {
    CHAT: b": keepalive\n\n",
    MESSAGES: b'event: ping\ndata: {"type":"ping"}\n\n',
    RESPONSES: b": keepalive\n\n",
    SIMPLE_EVENTS: b": keepalive\n\n",
    SIMPLE_LINES: b" ",
}


def silent(upstream: str, where: str) -> Play:
    """A good answer with a long silence in it."""
    data = stream(upstream, Text("Hello"))
    if where == "head":
        return Play([data], before=SILENCE_S)
    if where == "first byte":
        return Play([Sleep(SILENCE_S), data])
    parts = frames(data)
    said = next(number for number, frame in enumerate(parts) if b"Hello" in frame) + 1
    return Play([b"".join(parts[:said]), Sleep(SILENCE_S), b"".join(parts[said:])])


async def stream_through(client: str, upstream: str, play: Play, **settings: Any) -> FakeClient:
    async with gateway(upstream, play, **settings) as up:
        return await up.call(path_of(client), request_for(client, upstream))


def times(client: FakeClient) -> list[float]:
    return [when for when, message in client.messages if message.get("body")]


@pytest.mark.promise("R8")
@every_pair()
@pytest.mark.parametrize("where", ["head", "first byte", "middle"])
async def test_G2_heartbeats_come_often_enough_to_keep_the_connection_open(
    client: str, upstream: str, where: str
) -> None:
    """Heartbeats every 10 to 30 seconds in the client's own form, wherever the model thinks."""
    received = await stream_through(client, upstream, silent(upstream, where))
    beats = [when for when in times(received) if 0 < when < SILENCE_S]
    assert SILENCE_S / 30 <= len(beats) <= SILENCE_S / 10
    gaps = [after - before for before, after in zip([0.0, *beats], [*beats, SILENCE_S], strict=True)]
    assert all(0 < gap <= 30 for gap in gaps)
    said = {when: message["body"] for when, message in received.messages if message.get("body")}
    assert all(said[when].endswith(BEATS[client]) for when in beats)
    assert received.status == 200
    assert check_stream(client, received.body, include_usage=True) == []
    assert meaning_of_client_stream(client, received.body).said(Kind.TEXT) == "Hello"


@each("client", CLIENTS)
async def test_G2_a_client_that_does_not_stream_gets_no_heartbeats(client: str) -> None:
    """There is no place for a heartbeat in one JSON document of a known length."""
    if client in SIMPLE:
        path, body = "/chat/json", request_for(client, CHAT)
    else:
        path, body = path_of(client), request_for(client, CHAT, stream=False)
    async with gateway(CHAT, silent(CHAT, "head")) as up:
        received = await up.call(path, body)
    assert times(received) == [SILENCE_S]
    assert received.headers["content-length"] == str(len(received.body))
    assert isinstance(json.loads(received.body), dict)


@every_pair()
@pytest.mark.parametrize("where", ["before the head", "after the head", "after words"])
async def test_G3_a_silent_upstream_times_out_in_spite_of_heartbeats(
    client: str, upstream: str, where: str
) -> None:
    """The silence of the upstream has a limit of its own, whatever the client was sent meanwhile."""
    ever = 10**6
    plays = {
        "before the head": Play(before=ever),
        "after the head": Play([Sleep(ever)]),
        "after words": Play([_beginning(upstream), Sleep(ever)]),
    }
    async with gateway(upstream, plays[where], upstream={"read_s": 45.0}) as up:
        received = await up.call(path_of(client), request_for(client, upstream))
    assert [when for when in times(received) if 0 < when < 45] == [10, 20, 30, 40]
    assert times(received)[-1] == 45
    check_failed(client, received)


async def test_G3_the_upstream_times_out_by_default() -> None:
    async with gateway(CHAT, Play([Sleep(10**6)])) as up:
        received = await up.call(path_of(MESSAGES), request_for(MESSAGES, CHAT))
    assert CUT_S < times(received)[-1] < 3600
    check_failed(MESSAGES, received)


def _beginning(upstream: str) -> bytes:
    """A stream up to its first words."""
    parts = frames(stream(upstream, Text("Hello")))
    said = next(number for number, frame in enumerate(parts) if b"Hello" in frame) + 1
    return b"".join(parts[:said])


ENDS = {CHAT: b"[DONE]", MESSAGES: b"message_stop", RESPONSES: b"response.completed"}


def check_failed(client: str, received: FakeClient) -> None:
    """The stream ends with the client's own form of an error, and with nothing that looks like a success."""
    assert received.status == 200
    assert received.finished
    if client in SIMPLE:
        check_failed_simply(client, received.body)
        return
    events = [as_object(frame.data) for frame in lenient_frames(received.body)]
    last = events[-1]
    assert last is not None
    assert (last.get("type") or "error") == {RESPONSES: "response.failed"}.get(client, "error")
    assert (last["response"] if client == RESPONSES else last)["error"]["message"]
    assert ENDS[client] not in received.body


@each("upstream")
async def test_G4_a_ping_has_its_type_in_its_data(upstream: str) -> None:
    """Clients decode each event by the type in its data; an empty object kills their stream."""
    received = await stream_through(MESSAGES, upstream, silent(upstream, "middle"))
    pings = [frame.data for frame in lenient_frames(received.body) if frame.event == "ping"]
    assert len(pings) > 10
    assert {as_object(ping) == {"type": "ping"} for ping in pings} == {True}


def check_failed_simply(client: str, body: bytes) -> None:
    assert check_stream(client, body) == []
    if client == SIMPLE_LINES:
        last = json.loads(body.split(b"\n")[-2])
        assert last.keys() == {"error", "done"}
    else:
        assert [frame.event for frame in lenient_frames(body)][-2:] == ["error", None]


# What may go wrong after heartbeats went out.
LATE: dict[str, Play] = {
    "overloaded": Play([b'{"error":{"message":"busy","type":"overloaded_error"}}'], status=529, before=25),
    "refused": Play([b'{"error":{"message":"no","type":"invalid_request_error"}}'], status=400, before=25),
    "html": Play([b"<html>Bad Gateway</html>"], status=502, before=25),
    "broken": Play([Sleep(25), httpx2.ReadError("reset")]),
    "empty": Play([Sleep(25)]),
    "nonsense": Play([Sleep(25), b"data: {]\n\n"]),
}


@every_pair()
@pytest.mark.parametrize("late", LATE)
async def test_G5_after_a_heartbeat_an_error_is_sent_in_the_stream(
    client: str, upstream: str, late: str
) -> None:
    """The status went out with the first heartbeat: it is 200, and stays so."""
    received = await stream_through(client, upstream, LATE[late])
    assert [message["status"] for _, message in received.messages if "status" in message] == [200]
    check_failed(client, received)


@every_pair()
@pytest.mark.parametrize("late", ["overloaded", "refused", "html"])
async def test_G5_before_any_heartbeat_an_error_has_its_own_status(
    client: str, upstream: str, late: str
) -> None:
    """A short silence costs nobody the status: nothing goes out before there is something to say."""
    play = LATE[late]
    soon = Play(play.parts, play.status, before=5)
    received = await stream_through(client, upstream, soon)
    assert received.status in {"overloaded": (503, 529), "refused": (400,), "html": (500, 502)}[late]
    assert received.headers["content-type"] == "application/json"
    assert json.loads(received.body)["error"]["message"]


@every_pair()
@pytest.mark.parametrize("where", ["head", "middle"])
async def test_G6_heartbeats_are_part_of_the_final_response(client: str, upstream: str, where: str) -> None:
    """One head with its final status, then the body: nothing informational before, beside or instead."""
    received = await stream_through(client, upstream, silent(upstream, where))
    kinds = [message["type"] for _, message in received.messages]
    assert kinds == ["http.response.start", *["http.response.body"] * (len(kinds) - 1)]
    begun = received.messages[0]
    assert begun[1]["status"] == 200
    assert begun[0] <= 30


# Words that are distinguished wherever they stand. A piece of a call ends up inside of a JSON string.
PIECES = ("one-", "two-", "three-", "four-")


@every_pair()
async def test_G9_each_event_is_sent_at_once(client: str, upstream: str) -> None:
    """A response in frames, one a second: nothing waits for what follows."""
    call = Call("call_a", "add", ('{"a": "three-', 'four-"}'))
    parts = frames(stream(upstream, Reasoning("one-"), Text("two-"), call))
    play = [step for part in parts for step in (part, Sleep(1))]
    received = await stream_through(client, upstream, Play(play), keepalive_s=0)
    for piece in PIECES[1:2] if client in SIMPLE else PIECES:
        word = piece.encode()
        came = next(number for number, part in enumerate(parts) if word in part)
        assert received_at(received, lambda data, word=word: word in data) == came, piece  # type: ignore[misc]
