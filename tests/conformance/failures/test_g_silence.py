"""G. Silent upstreams: heartbeats to the client, the read timeout, errors after a heartbeat, and no delay of events.

The upstream is a script of bytes and pauses in virtual time. Each test sends a client's streaming request through the
whole gateway, and looks at the bytes that the client received and at the seconds at which they arrived.
"""

from __future__ import annotations

import json
from typing import Any

import httpx2
import pytest
from failures.gateway import UpstreamResponse, gateway, path_of, received_at, request_for
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


SILENCE_S = 130
# Known proxies between client and gateway close an idle connection after this time or later.
SHORTEST_IDLE_TIMEOUT_S = 60
HEARTBEATS = {
    CHAT: b": keepalive\n\n",
    MESSAGES: b'event: ping\ndata: {"type":"ping"}\n\n',
    RESPONSES: b": keepalive\n\n",
    SIMPLE_EVENTS: b": keepalive\n\n",
    SIMPLE_LINES: b" ",
}


def with_silence(upstream: str, where: str) -> UpstreamResponse:
    """Return a complete response of the text "Hello" that pauses for SILENCE_S before its head, body or last frames."""
    data = stream(upstream, Text("Hello"))
    if where == "head":
        return UpstreamResponse([data], delay_s=SILENCE_S)
    if where == "first byte":
        return UpstreamResponse([Sleep(SILENCE_S), data])
    start = up_to_hello(data)
    return UpstreamResponse([start, Sleep(SILENCE_S), data.removeprefix(start)])


def up_to_hello(data: bytes) -> bytes:
    """Return the frames of a stream up to the one with its text."""
    parts = frames(data)
    last = next(number for number, frame in enumerate(parts) if b"Hello" in frame)
    return b"".join(parts[: last + 1])


async def stream_through(
    client: str, upstream: str, response: UpstreamResponse, **settings: Any
) -> FakeClient:
    """Send the client's streaming request through a gateway whose upstream sends this response."""
    async with gateway(upstream, response, **settings) as up:
        return await up.call(path_of(client), request_for(client, upstream))


def times(received: FakeClient) -> list[float]:
    """Return the seconds at which bytes of the body arrived."""
    return [when for when, message in received.messages if message.get("body")]


@pytest.mark.promise("R8")
@every_pair()
@pytest.mark.parametrize("where", ["head", "first byte", "middle"])
async def test_G2_G6_heartbeats_come_often_enough_to_keep_the_connection_open(
    client: str, upstream: str, where: str
) -> None:
    """Every 10 to 30 seconds a heartbeat in the client's own form, wherever the upstream is silent.

    There is one head with its final status, then the body: no interim responses.
    """
    received = await stream_through(client, upstream, with_silence(upstream, where))
    beats = [when for when in times(received) if 0 < when < SILENCE_S]
    assert SILENCE_S / 30 <= len(beats) <= SILENCE_S / 10
    gaps = [after - before for before, after in zip([0.0, *beats], [*beats, SILENCE_S], strict=True)]
    assert all(0 < gap <= 30 for gap in gaps)
    sent = {when: message["body"] for when, message in received.messages if message.get("body")}
    assert all(sent[when].endswith(HEARTBEATS[client]) for when in beats)
    assert received.status == 200
    assert received.messages[0][0] <= 30
    kinds = [message["type"] for _, message in received.messages]
    assert kinds == ["http.response.start", *["http.response.body"] * (len(kinds) - 1)]
    assert check_stream(client, received.body, include_usage=True) == []
    assert meaning_of_client_stream(client, received.body).text(Kind.TEXT) == "Hello"


@each("client", CLIENTS)
async def test_G2_a_client_that_does_not_stream_gets_no_heartbeats(client: str) -> None:
    """One JSON document of a fixed length has no room for a heartbeat."""
    if client in SIMPLE:
        path, body = "/chat/json", request_for(client, CHAT)
    else:
        path, body = path_of(client), request_for(client, CHAT, stream=False)
    async with gateway(CHAT, with_silence(CHAT, "head")) as up:
        received = await up.call(path, body)
    assert times(received) == [SILENCE_S]
    assert received.headers["content-length"] == str(len(received.body))
    assert isinstance(json.loads(received.body), dict)


@every_pair()
@pytest.mark.parametrize("where", ["before the head", "after the head", "after text"])
async def test_G3_a_silent_upstream_times_out_in_spite_of_heartbeats(
    client: str, upstream: str, where: str
) -> None:
    """The upstream has its own read timeout, whatever the client was sent meanwhile."""
    for_ever = 10**6
    response = {
        "before the head": UpstreamResponse(delay_s=for_ever),
        "after the head": UpstreamResponse([Sleep(for_ever)]),
        "after text": UpstreamResponse([up_to_hello(stream(upstream, Text("Hello"))), Sleep(for_ever)]),
    }[where]
    async with gateway(upstream, response, upstream={"read_s": 45.0}) as up:
        received = await up.call(path_of(client), request_for(client, upstream))
    assert [when for when in times(received) if 0 < when < 45] == [10, 20, 30, 40]
    assert times(received)[-1] == 45
    check_failed(client, received)


async def test_G3_the_upstream_times_out_by_default() -> None:
    async with gateway(CHAT, UpstreamResponse([Sleep(10**6)])) as up:
        received = await up.call(path_of(MESSAGES), request_for(MESSAGES, CHAT))
    assert SHORTEST_IDLE_TIMEOUT_S < times(received)[-1] < 3600
    check_failed(MESSAGES, received)


ENDS = {CHAT: b"[DONE]", MESSAGES: b"message_stop", RESPONSES: b"response.completed"}


def check_failed(client: str, received: FakeClient) -> None:
    """The stream ends with an error in the client's own form, and has nothing that ends a complete response."""
    assert received.status == 200
    assert received.finished
    if client in SIMPLE:
        check_simple_error(client, received.body)
        return
    events = [as_object(frame.data) for frame in lenient_frames(received.body)]
    last = events[-1]
    assert last is not None
    assert (last.get("type") or "error") == {RESPONSES: "response.failed"}.get(client, "error")
    assert (last["response"] if client == RESPONSES else last)["error"]["message"]
    assert ENDS[client] not in received.body


@each("upstream")
async def test_G4_a_ping_has_its_type_in_its_data(upstream: str) -> None:
    """Clients decode each event by the type in its data, and fail on an empty object."""
    received = await stream_through(MESSAGES, upstream, with_silence(upstream, "middle"))
    pings = [frame.data for frame in lenient_frames(received.body) if frame.event == "ping"]
    assert len(pings) > 10
    assert {as_object(ping) == {"type": "ping"} for ping in pings} == {True}


def check_simple_error(client: str, body: bytes) -> None:
    assert check_stream(client, body) == []
    if client == SIMPLE_LINES:
        last = json.loads(body.split(b"\n")[-2])
        assert last.keys() == {"error", "done"}
    else:
        assert [frame.event for frame in lenient_frames(body)][-2:] == ["error", None]


# Errors of the upstream after 25 seconds, when heartbeats were sent.
LATE: dict[str, UpstreamResponse] = {
    "overloaded": UpstreamResponse(
        [b'{"error":{"message":"busy","type":"overloaded_error"}}'], status=529, delay_s=25
    ),
    "refused": UpstreamResponse(
        [b'{"error":{"message":"no","type":"invalid_request_error"}}'], status=400, delay_s=25
    ),
    "html": UpstreamResponse([b"<html>Bad Gateway</html>"], status=502, delay_s=25),
    "broken": UpstreamResponse([Sleep(25), httpx2.ReadError("reset")]),
    "empty": UpstreamResponse([Sleep(25)]),
    "nonsense": UpstreamResponse([Sleep(25), b"data: {]\n\n"]),
}


@every_pair()
@pytest.mark.parametrize("late", LATE)
async def test_G5_after_a_heartbeat_an_error_is_sent_in_the_stream(
    client: str, upstream: str, late: str
) -> None:
    """The status was sent with the first heartbeat: it is 200."""
    received = await stream_through(client, upstream, LATE[late])
    assert [message["status"] for _, message in received.messages if "status" in message] == [200]
    check_failed(client, received)


@every_pair()
@pytest.mark.parametrize("late", ["overloaded", "refused", "html"])
async def test_G5_before_any_heartbeat_an_error_has_its_own_status(
    client: str, upstream: str, late: str
) -> None:
    """After a short silence nothing was sent yet, so the status can still be the error's."""
    soon = UpstreamResponse(LATE[late].parts, LATE[late].status, delay_s=5)
    received = await stream_through(client, upstream, soon)
    assert received.status in {"overloaded": (503, 529), "refused": (400,), "html": (500, 502)}[late]
    assert received.headers["content-type"] == "application/json"
    assert json.loads(received.body)["error"]["message"]


# One word for each content delta of the response in the next test, easy to find in any client's bytes.
TEXTS = ("one-", "two-", "three-", "four-")


@every_pair()
async def test_G9_each_event_is_sent_at_once(client: str, upstream: str) -> None:
    """The upstream sends one frame a second, and the client receives each in its own second."""
    call = Call("call_a", "add", ('{"a": "three-', 'four-"}'))
    parts = frames(stream(upstream, Reasoning("one-"), Text("two-"), call))
    one_a_second = UpstreamResponse([step for part in parts for step in (part, Sleep(1))])
    received = await stream_through(client, upstream, one_a_second, keepalive_s=0)
    for text in TEXTS[1:2] if client in SIMPLE else TEXTS:
        word = text.encode()
        second = next(number for number, part in enumerate(parts) if word in part)
        assert received_at(received, lambda data, word=word: word in data) == second, text  # type: ignore[misc]
