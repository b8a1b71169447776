"""Responses over a WebSocket: messages of a client in, messages of the gateway out, in virtual time."""

# ruff: noqa: E501 -- the tables are read by row

import json
import logging
import sys
from typing import Any

import anyio
import pytest
from gateway.fakes import Draining, FakeWebSocketClient, Script, Sleep, call, http_scope, websocket
from gateway.scripted import (
    CHAT,
    MESSAGES,
    PROTOCOL_NAMES,
    RESPONSES,
    STREAMS,
    chunk,
    scripted,
    stream,
    whole,
)
from gateway.simulated import UPSTREAMS, gateway
from gateway.stored import text_of
from msgspec.structs import replace
from openai.types.responses import ResponsesServerEvent
from oracle import check_error
from pydantic import TypeAdapter
from virtual_time import VIRTUAL_BACKENDS

from dragoman_server.http import websocket as websocket_module
from dragoman_server.http.client_messages import read_message
from dragoman_server.http.websocket import LIFETIME_S, MAX_LANES, MAX_WAITING
from dragoman_server.responses.recent import MAX_RESPONSES

pytestmark = [pytest.mark.anyio, pytest.mark.backends(*VIRTUAL_BACKENDS)]

Event = dict[str, Any]
OF_SDK: TypeAdapter[ResponsesServerEvent] = TypeAdapter(ResponsesServerEvent)
each_upstream = pytest.mark.parametrize("upstream", UPSTREAMS)


async def response_of(client: FakeWebSocketClient, upstream: str, text: Any, **more: Any) -> Event:
    """Return the Response object of a turn that nothing is stored of."""
    client.create(**{"model": f"{upstream}/echo", "input": text, "store": False, **more})
    events = await client.turn()
    for event in events:
        OF_SDK.validate_python(event)
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert events[-1]["type"] == "response.completed", events[-1]
    response: Event = events[-1]["response"]
    return response


async def complete(client: FakeWebSocketClient, **request: Any) -> None:
    """Send a request; its response is the next of its lane."""
    client.create(**request)
    assert (await client.turn(request.get("stream_id")))[-1]["type"] == "response.completed"


async def error_of(client: FakeWebSocketClient, lane: str | None = None) -> tuple[int, str | None]:
    """Return status and code of a turn that is an error."""
    (event,) = await client.turn(lane)
    assert event["type"] == "error"
    OF_SDK.validate_python(event)
    assert check_error(RESPONSES, event["status"], json.dumps({"error": event["error"]}).encode()) == []
    assert event["headers"]["x-request-id"]
    return event["status"], event["error"]["code"]


# The cases of the Open Responses suite.


@each_upstream
async def test_turns_continue_what_nothing_has_stored(upstream: str) -> None:
    async with gateway() as up, websocket(up.app) as client:
        first = await response_of(client, upstream, "one two")
        second = await response_of(client, upstream, "three", previous_response_id=first["id"])
        # The simulator counts the words of the conversation.
        assert second["usage"]["input_tokens"] == 5
        assert text_of(second) == "three"
        assert b"previous_response_id" not in up.last.content
        assert (await response_of(client, upstream, "alone"))["usage"]["input_tokens"] == 1


@each_upstream
async def test_another_connection_knows_nothing_and_works(upstream: str) -> None:
    async with gateway() as up:
        async with websocket(up.app) as client:
            first = await response_of(client, upstream, "Hi")
        async with websocket(up.app) as client:
            for id in (first["id"], "resp_openresponses_missing_1", "not an id"):
                client.create(model=f"{upstream}/echo", store=False, previous_response_id=id)
                assert await error_of(client) == (400, "previous_response_not_found")
            assert text_of(await response_of(client, upstream, "Hi")) == "Hi"
        assert len(up.upstreams.sent) == 2


@each_upstream
async def test_a_continuation_that_fails_forgets_what_it_continues(upstream: str) -> None:
    result = {"type": "function_call_output", "call_id": "call_unknown", "output": "x"}
    async with gateway() as up, websocket(up.app) as client:
        first = await response_of(client, upstream, "Hi")
        client.create(model=f"{upstream}/echo", store=False, previous_response_id=first["id"], input=[result])
        (failed,) = await client.turn()
        assert (failed["status"], failed["error"]["param"]) == (400, "input[0].call_id")
        assert "call_unknown" in failed["error"]["message"]
        client.create(model=f"{upstream}/echo", store=False, previous_response_id=first["id"])
        assert await error_of(client) == (400, "previous_response_not_found")


@each_upstream
async def test_an_incomplete_response_continues(upstream: str) -> None:
    async with gateway() as up, websocket(up.app) as client:
        client.create(model=f"{upstream}/length", store=False)
        last = (await client.turn())[-1]
        assert last["type"] == "response.incomplete"
        await response_of(client, upstream, "five", previous_response_id=last["response"]["id"])


@each_upstream
async def test_a_compaction_begins_another_conversation(upstream: str) -> None:
    async with gateway() as up, websocket(up.app) as client:
        user = {"type": "message", "role": "user", "content": "Remember cobalt"}
        compact = await call(up.app, "/v1/responses/compact", {"model": f"{upstream}/echo", "input": [user]})
        output = json.loads(compact.body)["output"]
        again = {"type": "message", "role": "user", "content": "go"}
        assert text_of(await response_of(client, upstream, [*output, again], tools=[])) == "go"


async def test_what_is_stored_outlives_the_connection() -> None:
    async with gateway(response_store="memory") as up:
        async with websocket(up.app) as client:
            first = await response_of(client, "chat", "one", store=True)
            second = await response_of(client, "chat", "two", previous_response_id=first["id"])
            assert (first["store"], second["store"]) == (True, False)
            assert (await up.get(f"/v1/responses/{first['id']}"))["id"] == first["id"]
            await up.get(f"/v1/responses/{second['id']}", status=404)
        async with websocket(up.app) as client:
            again = await response_of(client, "messages", "two", previous_response_id=first["id"])
            assert again["usage"]["input_tokens"] == 3
            # A stored item may be referred to as well, and so may one of this connection.
            items = [{"type": "item_reference", "id": again["output"][0]["id"]}]
            assert await response_of(client, "messages", [*items, {"role": "user", "content": "x"}])


async def test_an_upstream_that_stores_its_responses_continues_them() -> None:
    """It has their reasoning, which their items do not show. Another one gets the conversation."""
    up = scripted(RESPONSES, STREAMS[RESPONSES], upstream={"stores_responses": True})
    async with websocket(up.app) as client:
        client.create(input="one", generate=False)
        warm_up = (await client.turn())[-1]["response"]["id"]
        bodies = []
        for more in (
            {"previous_response_id": warm_up},
            {"previous_response_id": "resp_1"},
            {"previous_response_id": "resp_1", "model": "two/m"},
            {"previous_response_id": "resp_1", "store": False},
        ):
            await complete(client, **more)
            bodies.append((up.sent[-1].body.get("previous_response_id"), len(up.sent[-1].body["input"])))
        assert bodies == [(None, 2), ("resp_1", len("Hi")), (None, 4), (None, 5)]


# Codex 0.169.0, as it was measured: a warm-up with the developer's message, and turns with what is new.


@each_upstream
async def test_a_session_of_codex(upstream: str) -> None:
    tool = {"type": "function", "name": "shell", "parameters": {"type": "object", "properties": {}}}
    content = [{"type": "input_text", "text": "Be brief."}]
    developer = {"type": "message", "role": "developer", "content": content}
    include = ["reasoning.encrypted_content"]
    common = {"store": False, "stream": True, "tools": [tool], "include": include, "prompt_cache_key": "k"}
    headers = {
        "openai-beta": "responses_websockets=2026-02-06",
        "x-codex-beta-features": "remote_compaction_v2",
    }
    async with gateway() as up, websocket(up.app, headers=headers) as client:
        client.create(**common, model=f"{upstream}/tools", input=[developer], generate=False)
        warm_up = await client.turn()
        for event in warm_up:
            OF_SDK.validate_python(event)
        expected = ["response.created", "response.completed"]
        assert [event["type"] for event in (warm_up[0], warm_up[-1])] == expected
        response = warm_up[-1]["response"]
        assert (response["output"], response["usage"]["total_tokens"]) == ([], 0)
        assert up.upstreams.sent == []
        user = {"type": "message", "role": "user", "content": "Please call shell"}
        client.create(**common, model=f"{upstream}/tools", input=[user], previous_response_id=response["id"])
        made = (await client.turn())[-1]["response"]
        (asked,) = [item for item in made["output"] if item["type"] == "function_call"]
        assert b"Be brief." in up.last.content
        result = {"type": "function_call_output", "call_id": asked["call_id"], "output": "made by a tool"}
        request = {**common, "model": f"{upstream}/tools", "previous_response_id": made["id"]}
        await complete(client, **request, input=[result])
        for text in (b"Be brief.", b"Please call shell", b"made by a tool"):
            assert text in up.last.content
        for sent in up.upstreams.sent:
            assert {"type", "generate", "stream_id", "previous_response_id"}.isdisjoint(sent.body)
            assert "openai-beta" not in sent.headers


async def test_what_only_the_connection_means_reaches_no_upstream() -> None:
    up = scripted(RESPONSES, STREAMS[RESPONSES])
    of_handshake = {"content-encoding": "gzip", "content-length": "9" * 12, "content-type": "text/plain"}
    headers = {"openai-beta": "x=1", "origin": "http://localhost:3000"}
    async with websocket(up.app, headers={**headers, **of_handshake}) as client:
        client.create(
            stream=False, stream_id="a", stream_options={}, background=False, generate=True, store=False
        )
        await client.turn("a")
    assert up.sent[0].body == {"stream": True, "model": "m", "input": "Hi", "store": False}
    assert up.sent[0].headers["openai-beta"] == "x=1"


async def test_a_warm_up_is_planned() -> None:
    up = scripted(RESPONSES, STREAMS[RESPONSES])
    async with websocket(up.app) as client:
        client.create(model="nowhere/m", generate=False)
        assert (await error_of(client))[0] == 404
        client.create(previous_response_id="resp_elsewhere", generate=False)
        assert await error_of(client) == (400, "previous_response_not_found")
        await complete(client, previous_response_id="resp_elsewhere")  # its upstream may have it
    assert [sent.body["previous_response_id"] for sent in up.sent] == ["resp_elsewhere"]


# Other messages.

ERRORS: list[tuple[Any, int, str | None, str | None]] = [
    # the message, the status, the code, the lane
    ("{", 400, "invalid_json", None),
    ("[]", 400, "invalid_json", None),
    (b"\x00", 400, "invalid_json", None),
    ({"model": "up/m", "input": "Hi"}, 400, "unknown_message_type", None),
    ({"type": 5}, 400, "unknown_message_type", None),
    ({"type": "response.append", "input": []}, 400, "unknown_message_type", None),
    ({"type": "response.interrupt", "stream_id": "a.b-c_1"}, 400, "unknown_message_type", "a.b-c_1"),
    ({"type": "response.create", "model": 5, "stream_id": "a"}, 400, None, "a"),
    ({"type": "response.create", "stream_id": ""}, 400, "invalid_stream_id", None),
    ({"type": "response.create", "stream_id": "a b"}, 400, "invalid_stream_id", None),
    ({"type": "response.create", "stream_id": "a" * 257}, 400, "invalid_stream_id", None),
    ({"type": "response.create", "stream_id": 1}, 400, "invalid_stream_id", None),
    ({"type": "response.create", "model": "up/m", "background": True}, 400, "unsupported_value", None),
    ({"type": "response.create", "model": "up/m", "generate": "no"}, 400, "invalid_type", None),
    ({"type": "response.create", "model": "up/m", "previous_response_id": 5, "stream_id": "a"}, 400, "invalid_type", "a"),
    ({"type": "response.create"}, 400, "missing_required_parameter", None),
    ({"type": "response.create", "model": "nowhere/m"}, 404, "model_not_found", None),
]  # fmt: skip


async def test_what_is_wrong_is_answered_and_hurts_nothing() -> None:
    first, *others = STREAMS[CHAT].body
    up = scripted(CHAT, Script([Sleep(1), first, Sleep(1), *others], headers=STREAMS[CHAT].headers))
    async with websocket(up.app) as client:
        client.create(stream_id="runs")
        for message, status, code, lane in ERRORS:
            client.say(message)
            (event,) = await client.turn(lane)
            assert (event["status"], event["error"]["code"]) == (status, code), message
            assert check_error(RESPONSES, status, json.dumps({"error": event["error"]}).encode()) == []
        client.say({"type": "response.processed", "response_id": "x"})
        user = {"type": "message", "role": "user", "content": "stop"}
        steering = {"type": "response.steer", "previous_response_id": "x", "input": [user]}
        client.say(steering)
        steer = await client.next_event()
        OF_SDK.validate_python(steer)
        assert (steer["type"], steer["error"]["code"]) == ("response.steer.failed", "steering_not_supported")
        assert steer["steer"] == {"previous_response_id": "x", "input": [user]}
        assert [event for _, event in client.events if event.get("stream_id") == "runs"] == []
        created = await client.next_event()
        # Clients look for the answer in the lane of the response, also when that has ended.
        for _ in range(2):
            client.say({**steering, "previous_response_id": created["response"]["id"]})
            await anyio.sleep(2)
        events = [event for _, event in client.events[-20:] if event.get("stream_id") == "runs"]
        kinds = [event["type"] for event in events]
        assert kinds.count("response.steer.failed") == 2
        assert kinds.index("response.steer.failed") < kinds.index("response.completed") < len(kinds) - 1
        await complete(client, stream_id="b")
        # msgspec refuses it, and a relay does not.
        client.say('{"type":"response.create","model":"up/m","input":"\\ud800"}')
        assert (await client.turn())[-1]["type"] == "response.completed"


# Lanes.


def slow(seconds: float, protocol: str = CHAT) -> Script:
    return Script([Sleep(seconds), *STREAMS[protocol].body], headers=STREAMS[protocol].headers)


async def test_lanes_run_side_by_side_and_each_in_order() -> None:
    up = scripted(CHAT, slow(4), slow(2), slow(0.5))
    async with websocket(up.app) as client:
        client.create(input="default")
        await anyio.sleep(1)
        client.create(stream_id="a", input="first of a")
        client.create(stream_id="a", input="second of a")
        ends = []
        while len(ends) < 3:
            event = await client.next_event()
            if event["type"] == "response.completed":
                ends.append((event.get("stream_id"), anyio.current_time()))
        assert ends == [("a", pytest.approx(3)), ("a", pytest.approx(3.5)), (None, pytest.approx(4))]
        lanes = {
            event["response"]["id"]: event.get("stream_id")
            for _, event in client.events
            if "response" in event
        }
        assert sorted(lanes.values(), key=str) == [None, "a", "a"]
        expected = ["default", "first of a", "second of a"]
        assert [sent.body["messages"][0]["content"] for sent in up.sent] == expected


async def test_what_has_no_room_is_refused_with_a_time() -> None:
    async with websocket(scripted(CHAT, slow(1)).app) as client:
        for _ in range(3 + MAX_WAITING):
            client.create(stream_id="a")
        for _ in range(2):
            assert await error_of(client, "a") == (429, "rate_limit_exceeded")
        assert client.events[-1][1]["headers"]["retry-after"] == "1"
        for number in range(1, MAX_LANES + 1):
            client.create(stream_id=f"lane-{number}")
        assert await error_of(client, f"lane-{MAX_LANES}") == (429, "rate_limit_exceeded")
        for _ in range(1 + MAX_WAITING):
            assert (await client.turn("a"))[-1]["type"] == "response.completed"
        await complete(client, stream_id=f"lane-{MAX_LANES}")


async def test_as_many_as_have_room_may_come_together() -> None:
    up = scripted(CHAT, slow(1))
    async with websocket(up.app) as client:
        for number in range(MAX_LANES * (1 + MAX_WAITING)):
            client.create(stream_id=f"lane-{number % MAX_LANES}")
        await anyio.sleep(2 + MAX_WAITING)
    assert len(up.sent) == MAX_LANES * (1 + MAX_WAITING)
    assert "error" not in {event["type"] for _, event in client.events}


async def test_what_waits_has_a_limit_of_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(websocket_module, "MAX_WAITING_BYTES", 1000)
    async with websocket(scripted(CHAT, slow(1)).app) as client:
        for lane in (None, None, "b", "b"):
            client.create(stream_id=lane, input="x" * 900)  # the first in a lane does not wait
            await anyio.sleep(0.01)
        assert await error_of(client, "b") == (429, "rate_limit_exceeded")
        await anyio.sleep(1.5)
        client.create(stream_id="b", input="x" * 900)  # nothing works there
        client.create(stream_id="b", input="x" * 900)
        await anyio.sleep(10)
    completed = [
        event.get("stream_id") for _, event in client.events if event["type"] == "response.completed"
    ]
    assert sorted(completed, key=str) == [None, None, "b", "b", "b"]


async def test_a_fork_that_fails_leaves_its_parent_to_the_lane_that_made_it() -> None:
    async with gateway() as up, websocket(up.app) as client:
        first = await response_of(client, "chat", "one")
        fork = {"previous_response_id": first["id"], "store": False}
        client.create(**fork, model="chat/error-429", stream_id="fork")
        assert (await error_of(client, "fork"))[0] == 429
        assert await response_of(client, "chat", "two", previous_response_id=first["id"])
        client.create(**fork, model="chat/error-mid")
        assert (await client.turn())[-1]["type"] == "response.failed"
        client.create(**fork, model="chat/echo")
        assert await error_of(client) == (400, "previous_response_not_found")


async def test_only_the_newest_responses_are_kept() -> None:
    async with gateway() as up, websocket(up.app) as client:
        ids = [(await response_of(client, "chat", "Hi"))["id"] for _ in range(MAX_RESPONSES + 1)]
        for _ in range(MAX_RESPONSES):
            client.create(model="chat/error-mid", store=False)  # leaves nothing to keep
            assert (await client.turn())[-1]["type"] == "response.failed"
        assert await response_of(client, "chat", "x", previous_response_id=ids[1])
        client.create(model="chat/echo", store=False, previous_response_id=ids[0])
        assert await error_of(client) == (400, "previous_response_not_found")


# Silence.


@pytest.mark.promise("R8")
@pytest.mark.parametrize("protocol", PROTOCOL_NAMES)
async def test_silence_is_filled_with_events(protocol: str) -> None:
    up = scripted(protocol, slow(35, protocol), STREAMS[protocol], STREAMS[protocol], response_store="memory")
    async with websocket(up.app) as client:
        client.create()
        events = await client.turn()
        times = [
            at for at, event in client.events if event["type"] in ("response.created", "response.in_progress")
        ]
        assert times[:3] == [pytest.approx(10), pytest.approx(20), pytest.approx(30)]
        kinds = [event["type"] for event in events]
        assert kinds[:3] == ["response.created", "response.in_progress", "response.in_progress"]
        assert kinds.count("response.created") == 1
        assert [event["sequence_number"] for event in events] == list(range(len(events)))
        (id,) = {event["response"]["id"] for event in events if "response" in event}
        # The announced id continues here, and on another connection from the store.
        await complete(client, store=False, previous_response_id=id)
    assert (await up.call(f"/v1/responses/{id}", method="GET")).status == 200
    async with websocket(up.app) as client:
        await complete(client, previous_response_id=id)


async def test_an_announced_id_means_nothing_to_an_upstream_that_stores() -> None:
    stores = {"stores_responses": True}
    up = scripted(RESPONSES, slow(15, RESPONSES), STREAMS[RESPONSES], upstream=stores)
    async with websocket(up.app) as client:
        client.create(input="one")
        await complete(client, input="two", previous_response_id=(await client.turn())[-1]["response"]["id"])
        body = up.sent[-1].body
        assert ("previous_response_id" in body, len(body["input"])) == (False, 2)


async def test_silence_before_a_failure_ends_in_a_failed_response() -> None:
    refusal = whole({"error": {"message": "no"}}, status=500)
    up = scripted(CHAT, Script(refusal.body, status=500, headers=refusal.headers, connect=[Sleep(15)]))
    async with websocket(up.app) as client:
        client.create()
        kinds = [event["type"] for event in await client.turn()]
        assert kinds == ["response.created", "response.failed"]


async def test_events_that_come_one_by_one() -> None:
    """As often as not the connection takes them without waiting."""
    *words, finish, done = STREAMS[CHAT].body
    pieces = [step for _ in range(20) for step in (*words, Sleep(0.01))]
    up = scripted(CHAT, Script([*pieces, finish, done], headers=STREAMS[CHAT].headers))
    async with websocket(up.app) as client:
        client.create(stream_id="a")
        events = await client.turn("a")
        assert [event["sequence_number"] for event in events] == list(range(len(events)))
        deltas = [event["delta"] for event in events if event["type"] == "response.output_text.delta"]
        assert deltas == ["Hello"] * 20
        kinds = [event["type"].removeprefix("response.") for event in events[-4:]]
        assert kinds == ["output_text.done", "content_part.done", "output_item.done", "completed"]


# Errors.


async def test_an_upstreams_error_has_its_status_and_headers() -> None:
    refusal = whole({"error": {"message": "slow down", "code": "rate_limit_exceeded"}}, status=429)
    headers = [
        *refusal.headers,
        ("retry-after", "7"),
        ("x-ratelimit-limit-requests", "3"),
        ("set-cookie", "x=1"),
    ]
    up = scripted(CHAT, Script(refusal.body, status=429, headers=headers), STREAMS[CHAT])
    async with websocket(up.app, headers={"origin": "http://localhost:3000"}) as client:
        client.create(stream_id="a")
        (event,) = await client.turn("a")
        assert (event["status"], event["error"]["code"]) == (429, "rate_limit_exceeded")
        shown = {name: value for name, value in event["headers"].items() if not name.endswith("request-id")}
        assert shown == {"retry-after": "7", "retry-after-ms": "7000", "x-ratelimit-limit-requests": "3"}
        await complete(client)


@pytest.mark.parametrize("protocol", PROTOCOL_NAMES)
async def test_a_failure_within_is_one_failed_response(protocol: str) -> None:
    body = STREAMS[protocol].body
    cut = Script(
        body[: -1 if protocol == RESPONSES else 3 if protocol == MESSAGES else 1],
        headers=STREAMS[protocol].headers,
    )
    async with websocket(scripted(protocol, cut, STREAMS[protocol]).app) as client:
        client.create()
        events = await client.turn()
        if protocol != RESPONSES:  # of which no content has come, so it is a plain error
            assert events[-1]["type"] == "response.failed"
            assert [event["sequence_number"] for event in events] == list(range(len(events)))
        await complete(client)


async def test_an_upstreams_error_event_has_a_status() -> None:
    delta = {"type": "response.output_text.delta", "sequence_number": 1, "delta": "x"}
    error = {"type": "error", "sequence_number": 2, "code": "rate_limit_exceeded", "message": "slow down"}
    created = json.loads(STREAMS[RESPONSES].body[0].split(b"data: ")[1])  # type: ignore[union-attr]
    up = scripted(RESPONSES, stream(created, delta, error), STREAMS[RESPONSES])
    async with websocket(up.app) as client:
        client.create()
        events = await client.turn()
        assert [event["type"] for event in events[1:]] == ["response.output_text.delta", "error"]
        assert (events[-1]["status"], events[-1]["error"]["message"]) == (429, "slow down")
        await complete(client)


async def test_a_bug_is_an_error_and_leaves_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    up = scripted(CHAT, stream(chunk({"content": "x"}), chunk({"content": "y"})), STREAMS[CHAT])
    async with websocket(up.app) as client:
        with monkeypatch.context() as patched:
            patched.setattr("dragoman_server.proxying.request_handler.record_end", None)
            client.create()
            while (event := await client.next_event())["type"] != "error":
                pass
        expected = (500, "internal error of the gateway; see its log")
        assert (event["status"], event["error"]["message"]) == expected
        await complete(client)


# The end of a connection.


async def test_after_an_hour_the_connection_ends_with_an_error() -> None:
    up = scripted(CHAT, slow(10))
    async with websocket(up.app) as client:
        await anyio.sleep(LIFETIME_S - 1)
        client.create()
        await anyio.sleep(2)
        client.create(stream_id="late")
        limit = (400, "websocket_connection_limit_reached")
        assert await error_of(client, "late") == limit
        assert (await client.turn())[-1]["type"] == "response.completed"
        assert await error_of(client) == limit
        assert await client.closed() == 1000
    assert len(up.sent) == 1


async def test_a_stop_lets_the_running_responses_end() -> None:
    draining, up = Draining(), scripted(CHAT, slow(5))
    async with websocket(up.app, draining=draining) as client:
        client.create()
        client.create(input="waits")
        await anyio.sleep(1)
        draining.begins.set()
        await anyio.sleep(1)
        client.create(stream_id="late")
        assert (await error_of(client, "late"))[0] == 503
        assert (await client.turn())[-1]["type"] == "response.completed"
        assert (await error_of(client))[0] == 503  # what waited
        assert await client.closed() == 1012
    assert len(up.sent) == 1


@pytest.mark.parametrize(("leaves_after", "ends_at"), [(0.3, 0.3), (5, 1)])
async def test_an_idle_connection_is_closed_at_once_by_a_stop(leaves_after: float, ends_at: float) -> None:
    draining, up, ended = Draining(), scripted(CHAT), list[float]()

    async def served(*of_connection: Any) -> None:
        await up.app(*of_connection)
        ended.append(anyio.current_time())

    async with websocket(served, draining=draining) as client:
        draining.begins.set()
        assert await client.closed() == 1012
        await anyio.sleep(leaves_after)
    assert ended == [pytest.approx(ends_at)]


async def test_a_stop_that_does_not_wait_says_so() -> None:
    up = scripted(CHAT, slow(50))

    async def stopped(*of_connection: Any) -> None:
        with anyio.move_on_after(5):
            await up.app(*of_connection)

    async with websocket(stopped) as client:
        client.create()
        await client.closed()
    assert client.events[-1][1]["status"] == 503
    assert client.messages[-1][1] == {"type": "websocket.close", "code": 1012}
    assert up.upstreams.open_now == 0


@pytest.mark.parametrize(("count", "message"), [(100, "{"), (5, "x" * 100)])
async def test_a_flood_ends_the_connection(count: int, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(websocket_module, "MAX_WAITING_BYTES", 100)
    words = [step for _ in range(1000) for step in (STREAMS[CHAT].body[0], Sleep(0.001))]
    up = scripted(CHAT, Script(words, headers=STREAMS[CHAT].headers))
    async with websocket(up.app, client=FakeWebSocketClient(pace=0.05)) as client:
        client.create()
        await anyio.sleep(1)
        for _ in range(count):
            client.say(message)
        assert await client.closed() == 1008
        await anyio.sleep(1)
        assert await client.closed() == 1008  # the last message
        assert up.upstreams.open_now == 0


# Leaving.


@pytest.mark.parametrize("path", ["/v1/responses", "/v1/messages"])
async def test_a_client_that_leaves_in_the_handshake(path: str) -> None:
    client = FakeWebSocketClient()
    client.leave()
    scope = {**http_scope(path), "type": "websocket", "extensions": {"websocket.http.response": {}}}
    await scripted(CHAT).app(scope, client.receive, client.send)
    assert client.messages == []


@pytest.mark.promise("R1")
@pytest.mark.parametrize("pace", [0, 1000])
async def test_a_client_that_leaves_ends_everything_at_once(
    pace: float, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "dragoman.requests")
    script = Script([*STREAMS[CHAT].body[:1], Sleep(100)], headers=STREAMS[CHAT].headers)
    up, client = scripted(CHAT, script), FakeWebSocketClient()
    async with websocket(up.app, client=client):
        client.create()
        client.create(input="waits")
        client.create(stream_id="a")
        await anyio.sleep(2)
        assert up.upstreams.open_now == 2
        client._pace = pace  # no answer reads, and no write ends
        client.leave()
    assert anyio.current_time() < 2.25
    assert (len(up.sent), up.upstreams.open_now) == (2, 0)
    assert [line.dragoman["outcome"] for line in caplog.records] == ["client_left"] * 2  # type: ignore[attr-defined]


async def test_a_message_has_the_limit_of_a_body() -> None:
    async with websocket(scripted(CHAT, STREAMS[CHAT], max_body_bytes=2000).app) as client:
        message = '{"type":"response.create","model":"up/m","input":"%s"}'
        client.say(message % ("é" * 1000))
        assert await error_of(client) == (413, "request_too_large")
        client.say(message % ("é" * 900))
        assert (await client.turn())[-1]["type"] == "response.completed"


async def test_an_open_stream_does_not_hold_its_request(monkeypatch: pytest.MonkeyPatch) -> None:
    bodies = list[bytes]()

    def reading(data: bytes) -> Any:
        found = read_message(data)
        bodies.append(found.body)  # type: ignore[union-attr]
        return found

    monkeypatch.setattr(websocket_module, "read_message", reading)
    script = Script([*STREAMS[CHAT].body[:1], Sleep(100)], headers=STREAMS[CHAT].headers)
    async with websocket(scripted(CHAT, script).app) as client:
        client.create()
        await anyio.sleep(10)
        assert client.events
        references = sys.getrefcount(bodies[0])  # pytest would hold it in an assertion
        assert references == 2, "the list has it, and the call"


# Handshakes.

HANDSHAKES: list[tuple[str, dict[str, str], dict[str, Any], int]] = [
    # the path, the headers, the settings, the status
    ("/v1/responses", {}, {"websocket": False}, 426),
    ("/v1/messages", {}, {}, 426),
    ("/v1/responses/x", {}, {}, 426),
    ("/admin/keys", {}, {}, 426),
    ("/v1/responses", {"origin": "https://evil.example"}, {}, 403),
    ("/v1/responses", {"host": "rebind.example"}, {}, 421),
    ("/v1/responses", {}, {"keys": {"red": {}}}, 401),
    ("/v1/responses", {"authorization": "Bearer drk_blue"}, {"keys": {"red": {}}}, 401),
    ("/v1/responses", {"authorization": "Bearer drk_red", "origin": "https://evil.example"}, {"keys": {"red": {}}}, 403),
]  # fmt: skip


@pytest.mark.parametrize(("path", "headers", "settings", "status"), HANDSHAKES)
async def test_a_handshake_is_refused_by_a_response(
    path: str, headers: dict[str, str], settings: dict[str, Any], status: int
) -> None:
    async with websocket(scripted(CHAT, **settings).app, path, headers) as client:
        refused, body = client.refused
        assert (refused, bool(body["error"]["message"])) == (status, True)


@pytest.mark.parametrize("headers", [{}, {"origin": "http://localhost:3000"}])
async def test_a_handshake_with_a_key_is_accepted(headers: dict[str, str], record: Any) -> None:
    up = scripted(CHAT, STREAMS[CHAT], keys={"red": {"requests_per_minute": 2}})
    async with websocket(up.app, headers={**headers, "authorization": "Bearer drk_red"}) as client:
        assert client.messages[0][1]["type"] == "websocket.accept"
        client.create(generate=False)  # counts for no limit
        await client.turn()
        for _ in range(2):
            await complete(client)
        line = record()
        assert (line["client_key"], line["path"], line["outcome"]) == ("red", "/v1/responses", "completed")
        assert (line["input_tokens"], line["output_tokens"]) == (3, 4)
        client.create()
        assert await error_of(client) == (429, "rate_limit_exceeded")
        assert client.events[-1][1]["headers"]["retry-after"]


async def test_a_client_that_is_set_for_azure_finds_it() -> None:
    async with websocket(scripted(CHAT, STREAMS[CHAT]).app, "/openai/v1/responses") as client:
        await complete(client)


async def test_a_turn_has_the_configuration_of_its_time() -> None:
    up = scripted(CHAT, STREAMS[CHAT], keys={"red": {}})
    async with up.app.lifespan(), websocket(up.app, headers={"authorization": "Bearer drk_red"}) as client:
        await complete(client)
        key = replace(up.gateway.settings.client_keys[0], disabled=True)
        await up.app.reload(replace(up.gateway.settings, client_keys=(key,)))
        client.create()
        assert await error_of(client) == (401, "invalid_api_key")
        # The connection keeps no configuration.
        await anyio.wait_all_tasks_blocked()
        assert len(up.app._in_use) == 1
