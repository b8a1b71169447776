"""E. Ends, errors and truncation: responses that broke off and were sent as whole, or in the wrong form."""

from __future__ import annotations

import json
from typing import Any

import pytest
from failures.responses import Call, Reasoning, Text, frames, payloads, stream
from failures.translate import (
    check_failed,
    each,
    every_pair,
    pairs,
    receive,
    receive_whole,
    translate_request,
)
from failures.whole import whole
from laws.clients import spec_of
from oracle import CHAT, CLIENTS, MESSAGES, PROTOCOL_NAMES, RESPONSES, check_stream
from oracle import samples as s
from translation import client_request

from dragoman import UPSTREAMS, ErrorKind, Outcome, Relay, ResponseTranslator, WireError

pytestmark = pytest.mark.each_protocol

Json = dict[str, Any]

BLOCKS = (Reasoning("Hm."), Text("Let me see."), Call("call_a"))
GOOD = {upstream: frames(stream(upstream, *BLOCKS)) for upstream in PROTOCOL_NAMES}
# How many of the last frames of a good stream may be missing: with the reason for the end the response is complete.
SPARE = {CHAT: 2, MESSAGES: 1, RESPONSES: 0}
# How many of the first frames only announce a response, or open an empty block.
OPENINGS = {CHAT: 1, MESSAGES: 2, RESPONSES: 4}


def cuts(upstream: str) -> list[bytes]:
    """A stream that ends too early, at every frame and inside of every frame."""
    found = GOOD[upstream]
    whole_ones = [b"".join(found[:count]) for count in range(len(found) - SPARE[upstream])]
    return whole_ones + [begun + found[at][: len(found[at]) // 2] for at, begun in enumerate(whole_ones)]


@every_pair()
def test_E1_E2_an_early_end_is_an_error_in_the_clients_form(client: str, upstream: str) -> None:
    """For a Responses client, too, it is no "incomplete", which is a normal end from which it would go on."""
    for data in cuts(upstream):
        received = receive(upstream, client, data)
        check_failed(received)
        assert received.machine.error is not None
        assert received.machine.error.kind is ErrorKind.TRUNCATED
        if client == upstream:
            whole_frames = data[: data.rfind(b"\n\n") + 2] if b"\n\n" in data else b""
            assert received.data.startswith(whole_frames), "what came whole is passed on"
            assert check_stream(client, received.data, include_usage=True) == []
            assert received.machine.committed is (len(frames(whole_frames)) > OPENINGS[upstream])


def whole_machine(client: str, upstream: str) -> Relay | ResponseTranslator:
    body = client_request(client, upstream, None, stream=False)
    context = translate_request(client, upstream, body).response_context()
    if client == upstream:
        return Relay(protocol=UPSTREAMS[upstream], context=context, streams=False)
    return ResponseTranslator(
        client=spec_of(client),
        upstream=UPSTREAMS[upstream],
        context=context,
        upstream_streams=False,
        client_streams=False,
    )


@every_pair()
def test_E1_an_early_end_of_a_whole_response_sends_nothing(client: str, upstream: str) -> None:
    """Nothing was sent yet, so the caller can answer with a plain HTTP error."""
    data = json.dumps(whole(upstream, *BLOCKS)).encode()
    for length in (0, 1, len(data) // 2, len(data) - 1):
        machine = whole_machine(client, upstream)
        machine.receive_data(data[:length])
        machine.receive_eof()
        assert machine.outcome is Outcome.FAILED
        assert machine.error is not None
        if client != upstream:  # the server does not send the bytes of a relay before the outcome
            assert machine.data_to_send() == b""
        status, reported = spec_of(client).write_error(machine.error, None)
        assert status >= 500
        assert json.loads(reported)["error"]["message"]


def in_band(upstream: str, kind: str = "overloaded_error") -> s.Payload:
    """An error inside of a stream, as each kind of server sends it."""
    error = {"type": kind, "message": "Busy."}
    if upstream == CHAT:
        return {"error": {**error, "param": None, "code": None}}
    if upstream == MESSAGES:
        return {"type": "error", "error": error, "request_id": "req_1"}
    failed = s.response("failed", error={"code": "server_is_overloaded", "message": "Busy."})
    return {"type": "response.failed", "response": failed}


def broken(upstream: str, frames_before: int | None = None) -> bytes:
    """A response that ends with an error, by default instead of its end."""
    found = GOOD[upstream][: -SPARE[upstream] - 1 if frames_before is None else frames_before]
    return b"".join(found) + s.render(upstream, [in_band(upstream)])


def endings(upstream: str) -> dict[str, tuple[bytes, str]]:
    """How a stream of each upstream may end -> the type and the message of the error for a Messages client."""
    return {
        "error": (broken(upstream), "overloaded_error"),
        "error first": (broken(upstream, 0), "overloaded_error"),
        "early end": (GOOD[upstream][0], "api_error"),
        "nothing": (b"", "api_error"),
        "nonsense": (GOOD[upstream][0] + b"data: {]\n\n", "api_error"),
    }


@pytest.mark.parametrize("upstream", PROTOCOL_NAMES)
def test_E3_E4_a_failed_stream_has_one_end_in_the_clients_form(upstream: str) -> None:
    """ "stream closed before response.completed"; and clients of Messages ignore an error in Chat's form."""
    for data, named in endings(upstream).values():
        received = receive(upstream, RESPONSES, data, translates=True)
        check_failed(received)
        done = [event["item"] for event in received.of("output_item.done")]
        assert received.events[-1]["response"]["output"][: len(done)] == done
        received = receive(upstream, MESSAGES, data, translates=True)
        check_failed(received)
        assert received.data.decode().split("\n")[-4] == "event: error"
        error = received.events[-1]["error"]
        assert (error.keys(), error["type"]) == ({"type", "message"}, named)
        assert (error["message"] == "Busy.") is (named == "overloaded_error")


@pytest.mark.parametrize("upstream", PROTOCOL_NAMES)
def test_E3_the_last_event_of_responses_has_the_whole_output(upstream: str) -> None:
    for data, end, count in (
        (b"".join(GOOD[upstream]), "completed", 3),
        (stream(upstream, Reasoning("Hm."), Text("Half a"), stop="length"), "incomplete", 2),
    ):
        received = receive(upstream, RESPONSES, data, translates=True)
        assert [kind for kind in received.kinds if kind in ("completed", "incomplete", "failed")] == [end]
        done = [event["item"] for event in received.of("output_item.done")]
        assert (received.kinds[-1], len(done)) == (end, count)
        assert received.events[-1]["response"]["output"] == done


@each("client", (MESSAGES, RESPONSES))
@pytest.mark.parametrize("data", ["early end", "nothing"])
def test_E3_E4_a_relay_that_breaks_off_has_one_end_in_the_clients_form(client: str, data: str) -> None:
    received = receive(client, client, endings(client)[data][0])
    check_failed(received)
    assert check_stream(client, received.data) == []


# What a server sends after `frames` of a good stream -> the kind of the error and its message.
ERRORS: dict[str, tuple[str, int, bytes, ErrorKind, str]] = {
    **{
        f"E5 {kind} after {count} frames": (
            MESSAGES, count, s.render(MESSAGES, [in_band(MESSAGES, kind)]), counted, "Busy.")
        for count in (0, 3, 7)
        for kind, counted in {
            "overloaded_error": ErrorKind.OVERLOADED,
            "rate_limit_error": ErrorKind.RATE_LIMIT,
            "api_error": ErrorKind.SERVER,
            "timeout_error": ErrorKind.TIMEOUT,
            "never_heard_of_error": ErrorKind.SERVER,
        }.items()
    },
    "E11 groq": (
        CHAT, 5,
        b'data: {"error":{"message":"Failed to call a function.","type":"invalid_request_error",'
        b'"code":"tool_use_failed","failed_generation":"<function=add"}}\n\n',
        ErrorKind.INVALID_REQUEST, "Failed to call a function."),
    "E11 groq with its event": (
        CHAT, 5, b'event: error\ndata: {"error":{"message":"Failed.","type":"server_error"}}\n\n',
        ErrorKind.SERVER, "Failed."),
    "E11 openrouter": (
        CHAT, 5,
        b'data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"m","provider":"p",'
        b'"error":{"code":502,"message":"Provider disconnected"},'
        b'"choices":[{"index":0,"delta":{"content":""},"finish_reason":"error"}]}\n\n',
        ErrorKind.UNREACHABLE, "Provider disconnected"),
    "E11 openrouter, then an end mark": (
        CHAT, 5, b'data: {"error":{"code":502,"message":"Provider disconnected"}}\n\ndata: [DONE]\n\n',
        ErrorKind.UNREACHABLE, "Provider disconnected"),
    "E11 a string": (CHAT, 5, b'data: {"error":"model crashed"}\n\n', ErrorKind.SERVER, "model crashed"),
    "E11 vllm": (
        CHAT, 5, b'data: {"object":"error","message":"Too long.","type":"BadRequestError","code":400}\n\n',
        ErrorKind.INVALID_REQUEST, "Too long."),
    "E11 fastapi": (CHAT, 5, b'data: {"detail":"Internal error"}\n\n', ErrorKind.SERVER, "Internal error"),
    "E11 only finish_reason": (
        CHAT, 5,
        b'data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"m",'
        b'"choices":[{"index":0,"delta":{},"finish_reason":"error"}]}\n\ndata: [DONE]\n\n',
        ErrorKind.SERVER, "finish_reason error"),
}  # fmt: skip
# Chat's type and code of a kind.
IN_CHAT = {
    ErrorKind.OVERLOADED: ("server_error", "overloaded"),
    ErrorKind.RATE_LIMIT: ("rate_limit_error", "rate_limit_exceeded"),
    ErrorKind.SERVER: ("server_error", None),
    ErrorKind.TIMEOUT: ("server_error", "timeout"),
}


@pytest.mark.parametrize("row", ERRORS)
def test_an_error_inside_of_a_stream_ends_the_response(row: str) -> None:
    """It is sent, it is no success, and its kind is recorded for the account."""
    upstream, count, sent, kind, message = ERRORS[row]
    data = b"".join(GOOD[upstream][:count]) + sent
    for client in CLIENTS:
        received = receive(upstream, client, data)
        assert received.machine.error is not None
        assert received.machine.error.kind is kind
        if client == upstream:
            assert (received.data, received.machine.outcome) == (data, Outcome.FAILED)
            continue
        check_failed(received)
        assert received.meaning.failure is not None
        assert message in received.machine.error.message
        assert message in received.meaning.failure.message
        if client == CHAT:
            error = received.events[-1]["error"]
            assert (error["message"], error["type"], error["code"]) == (message, *IN_CHAT[kind])


@pytest.mark.parametrize("upstream", PROTOCOL_NAMES)
def test_E5_E11_a_relayed_error_keeps_its_bytes_and_is_a_failure(upstream: str) -> None:
    data = broken(upstream)
    received = receive(upstream, upstream, data)
    assert (received.data, received.machine.outcome) == (data, Outcome.FAILED)


# The number of frames before the line, the holder of its object, and the bytes after it.
ERROR_LINES = {
    "first": (0, b"%b", b"\n\ndata: [DONE]\n\n"),
    "in a block": (3, b"%b", b"\n\n"),
    "nested, and the last": (3, b'{"error":%b}', b""),
}


@every_pair()
@pytest.mark.parametrize("case", ERROR_LINES)
def test_E5_an_error_in_a_separate_line_keeps_its_message(client: str, upstream: str, case: str) -> None:
    """llama.cpp until September 2025, GPUStack: `error: {...}` instead of `data: {...}`. Clients skip such a line."""
    error: Json = {"code": 500, "message": "The model is out of memory.", "type": "server_error"}
    after, holder, tail = ERROR_LINES[case]
    begun = b"".join(GOOD[upstream][:after])
    received = receive(upstream, client, begun + b"error: " + holder % json.dumps(error).encode() + tail)
    check_failed(received)
    assert received.machine.error is not None
    assert received.machine.error.message == error["message"]
    assert error["message"].encode() in received.data
    if client == upstream:
        assert received.data.startswith(begun)
        assert check_stream(client, received.data, include_usage=True) == []


@pairs()
def test_E11_a_whole_response_that_is_an_error_sends_nothing(client: str, upstream: str) -> None:
    """With status 200, as some servers send it."""
    error = in_band(upstream)
    assert isinstance(error, dict)
    machine = whole_machine(client, upstream)
    machine.receive_data(json.dumps(error["response"] if upstream == RESPONSES else error).encode())
    machine.receive_eof()
    assert (machine.outcome, machine.data_to_send()) == (Outcome.FAILED, b"")
    assert machine.error is not None
    assert (machine.error.kind, machine.error.message) == (ErrorKind.OVERLOADED, "Busy.")


@each("client")
@pytest.mark.parametrize("called", [True, False], ids=["calls", "text"])
def test_E6_a_stop_reason_is_an_end_without_message_stop(client: str, called: bool) -> None:
    """Servers that never send message_stop; without a reason the response is cut."""
    blocks = (Text("Hi"), Call("call_a")) if called else (Text("Hi"),)
    *found, end, _ = frames(stream(MESSAGES, *blocks))
    received = receive(MESSAGES, client, b"".join([*found, end]), translates=True)
    assert received.machine.outcome is Outcome.COMPLETED
    ends = {CHAT: ("stop", "tool_calls"), MESSAGES: ("end_turn", "tool_use"), RESPONSES: ("completed",) * 2}
    assert received.finish == ends[client][called]
    assert client != MESSAGES or received.kinds[-1] == "message_stop"
    nothing = {"type": "message_delta", "delta": {"stop_reason": None}, "usage": {"output_tokens": 1}}
    for cut in (found, [*found, s.render(MESSAGES, [nothing])]):
        check_failed(receive(MESSAGES, client, b"".join(cut), translates=True))
    relayed = receive(MESSAGES, MESSAGES, b"".join([*found, end]))
    assert (relayed.data, relayed.machine.outcome) == (b"".join([*found, end]), Outcome.COMPLETED)
    check_failed(receive(MESSAGES, MESSAGES, b"".join(found)))


# The frames before the first content.
LIFECYCLE = {
    CHAT: s.render(CHAT, [s.chunk({"role": "assistant", "content": ""})]),
    MESSAGES: s.render(MESSAGES, [{"type": "message_start", "message": s.message()}, {"type": "ping"}]),
    RESPONSES: b"".join(GOOD[RESPONSES][:2]),
}


@pairs(CLIENTS, PROTOCOL_NAMES)
def test_E7_before_content_nothing_is_committed(client: str, upstream: str) -> None:
    """Events without content do not commit the response, whether or not it ends with an error; any content does."""
    context = translate_request(client, upstream, client_request(client, upstream, None)).response_context()
    begun = ResponseTranslator(client=spec_of(client), upstream=UPSTREAMS[upstream], context=context)
    begun.receive_data(LIFECYCLE[upstream])
    assert begun.outcome is Outcome.OPEN
    assert not begun.committed
    for data in (LIFECYCLE[upstream], broken(upstream, 0)):
        failed = receive(upstream, client, data)
        assert not failed.machine.committed
        assert failed.machine.error is not None
        assert spec_of(client).write_error(failed.machine.error, None)[0] >= 500
    for block in BLOCKS:
        assert receive(upstream, client, stream(upstream, block)).machine.committed


LOST = WireError(ErrorKind.UNREACHABLE, "the connection to the upstream broke")


@every_pair()
def test_E8_after_the_first_byte_errors_are_sent_in_the_stream(client: str, upstream: str) -> None:
    """A read error after partial output: the error is a frame of the client's stream, no HTTP body."""
    for data in cuts(upstream):
        received = receive(upstream, client, data, breaks=LOST)
        check_failed(received)
        assert received.machine.error == LOST
        assert received.meaning.failure is not None
        assert LOST.message in received.meaning.failure.message
        assert check_stream(client, received.data, include_usage=True) == []


# stop_reason of a Messages upstream -> the stop reason of Chat and of Responses.
REASONS = {
    "max_tokens": ("length", "max_output_tokens"),
    "model_context_window_exceeded": ("length", "max_output_tokens"),
    "refusal": ("content_filter", "content_filter"),
    "pause_turn": ("stop", "completed"),
    "stop_sequence": ("stop", "completed"),
    "end_turn": ("stop", "completed"),
}


@pytest.mark.parametrize("reason", REASONS)
def test_E9_every_stop_reason_keeps_its_meaning(reason: str) -> None:
    in_chat, in_responses = REASONS[reason]
    sequence = "END" if reason == "stop_sequence" else None
    ends = {"stop_reason": reason, "stop_sequence": sequence}
    document = whole(MESSAGES, Text("Half a")) | ends
    data = s.render(
        MESSAGES,
        [
            {**payload, "delta": {**payload["delta"], **ends}}
            if payload["type"] == "message_delta"
            else payload
            for payload in payloads(MESSAGES, Text("Half a"))
            if isinstance(payload, dict)
        ],
    )
    for client, finish in ((CHAT, in_chat), (MESSAGES, reason), (RESPONSES, in_responses)):
        received = receive(MESSAGES, client, data, translates=True)
        assert received.finish == finish
        # A Responses response has no place for the sequence.
        assert received.meaning.stop_sequence == (None if client == RESPONSES else sequence)
        lost = {loss.path for loss in received.machine.losses} & {"/choices/0/finish_reason", "/status"}
        assert len(lost) == (reason == "pause_turn" and client != MESSAGES), "it has no counterpart"
    assert receive_whole(MESSAGES, CHAT, document)["choices"][0]["finish_reason"] == in_chat
    found = receive_whole(MESSAGES, RESPONSES, document)
    assert (found["incomplete_details"] or {"reason": found["status"]})["reason"] == in_responses


@pairs()
@pytest.mark.parametrize("text", ["Hm.", ""], ids=["summary", "hidden"])
def test_E10_reasoning_that_uses_up_the_limit_is_an_empty_response(
    client: str, upstream: str, text: str
) -> None:
    """No message, no call, and the output limit as stop reason."""
    received = receive(upstream, client, stream(upstream, Reasoning(text), stop="length"))
    assert received.machine.outcome is Outcome.COMPLETED
    assert received.finish == {CHAT: "length", MESSAGES: "max_tokens", RESPONSES: "max_output_tokens"}[client]
    assert received.meaning.text(*{block.kind for block in received.meaning.blocks}) == text
    document = receive_whole(upstream, client, whole(upstream, Reasoning(text), stop="length"))
    if client == CHAT:
        (choice,) = document["choices"]
        assert (choice["finish_reason"], choice["message"]["role"]) == ("length", "assistant")
        assert not choice["message"]["content"]
    elif client == MESSAGES:
        assert document["stop_reason"] == "max_tokens"
        assert [block["type"] for block in document["content"]] in (["thinking"], ["redacted_thinking"], [])
    else:
        assert document["status"] == "incomplete"
        assert [item["type"] for item in document["output"]] in (["reasoning"], [])
