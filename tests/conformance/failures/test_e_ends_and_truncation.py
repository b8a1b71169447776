"""E. Ends, errors and truncation: responses that broke off and were sent as whole, or in the wrong form."""

from __future__ import annotations

import json
from typing import Any

import pytest
from failures.responses import Call, Reasoning, Text, frames, stream
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
OTHERS = (MESSAGES, RESPONSES)

BLOCKS = (Reasoning("Hm."), Text("Let me see."), Call("call_a"))
# How many of the last frames of a good stream may be missing: with the reason for the end the response is complete.
SPARE = {CHAT: 2, MESSAGES: 1, RESPONSES: 0}
# How many of the first frames only announce a response, or open an empty block.
OPENINGS = {CHAT: 1, MESSAGES: 2, RESPONSES: 4}


def cuts(upstream: str) -> list[bytes]:
    """A stream that ends too early, at every frame and inside of every frame."""
    found = frames(stream(upstream, *BLOCKS))
    needed = len(found) - SPARE[upstream]
    whole_ones = [b"".join(found[:count]) for count in range(needed)]
    return whole_ones + [begun + found[at][: len(found[at]) // 2] for at, begun in enumerate(whole_ones)]


@every_pair()
def test_E1_an_early_end_is_an_error_in_the_clients_form(client: str, upstream: str) -> None:
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


@every_pair()
def test_E1_an_early_end_of_a_whole_response_sends_nothing(client: str, upstream: str) -> None:
    """Nothing was sent yet, so the caller can answer with a plain HTTP error."""
    body = client_request(client, upstream, None, stream=False)
    context = translate_request(client, upstream, body).response_context()
    data = json.dumps(whole(upstream, *BLOCKS)).encode()
    for length in (0, 1, len(data) // 2, len(data) - 1):
        machine: Relay | ResponseTranslator
        if client == upstream:
            machine = Relay(protocol=UPSTREAMS[upstream], context=context, streams=False)
        else:
            machine = ResponseTranslator(
                client=spec_of(client),
                upstream=UPSTREAMS[upstream],
                context=context,
                upstream_streams=False,
                client_streams=False,
            )
        machine.receive_data(data[:length])
        machine.receive_eof()
        assert machine.outcome is Outcome.FAILED
        assert machine.error is not None
        if client != upstream:  # the server does not send the bytes of a relay before the outcome
            assert machine.data_to_send() == b""
        status, reported = spec_of(client).write_error(machine.error, None)
        assert status >= 500
        assert json.loads(reported)["error"]["message"]


@each("upstream")
def test_E2_an_early_end_is_never_sent_as_incomplete(upstream: str) -> None:
    """ "incomplete" with "max_output_tokens" is a normal end for a Responses client: it would go on from there."""
    for data in cuts(upstream):
        received = receive(upstream, RESPONSES, data)
        (failed,) = received.of("failed")
        assert failed["response"]["status"] == "failed"
        assert failed["response"]["error"]["message"]
        assert failed["response"]["incomplete_details"] is None


def in_band(upstream: str, kind: str = "overloaded_error", message: str = "Busy.") -> s.Payload:
    """An error inside of a stream, as each kind of server sends it."""
    error = {"type": kind, "message": message}
    if upstream == CHAT:
        return {"error": {**error, "param": None, "code": None}}
    if upstream == MESSAGES:
        return {"type": "error", "error": error, "request_id": "req_1"}
    failed = s.response("failed", error={"code": "server_is_overloaded", "message": message})
    return {"type": "response.failed", "response": failed}


def broken(upstream: str, *, after: int = -1, message: str = "Busy.") -> bytes:
    """A response that ends with an error. after: so many frames of it came, by default all but the end."""
    found = frames(stream(upstream, *BLOCKS))
    frames_before = found[: len(found) - SPARE[upstream] - 1] if after < 0 else found[:after]
    return b"".join(frames_before) + s.render(upstream, [in_band(upstream, message=message)])


# How a stream of each upstream may end, and how that is reported a Responses client.
TERMINALS: dict[str, str] = {
    "good": "completed",
    "cut by the limit": "incomplete",
    "error": "failed",
    "error first": "failed",
    "early end": "failed",
    "nothing": "failed",
    "nonsense": "failed",
}


def ending(upstream: str, case: str) -> bytes:
    good = stream(upstream, *BLOCKS)
    return {
        "good": good,
        "cut by the limit": stream(upstream, Reasoning("Hm."), Text("Half a"), stop="length"),
        "error": broken(upstream),
        "error first": broken(upstream, after=0),
        "early end": frames(good)[0],
        "nothing": b"",
        "nonsense": frames(good)[0] + b"data: {]\n\n",
    }[case]


@each("upstream")
@pytest.mark.parametrize("case", TERMINALS)
def test_E3_a_responses_stream_always_has_one_end(upstream: str, case: str) -> None:
    """ "stream closed before response.completed": the last event always has the outcome."""
    received = receive(upstream, RESPONSES, ending(upstream, case), translates=True)
    ends = [kind for kind in received.kinds if kind in ("completed", "incomplete", "failed")]
    assert ends == [TERMINALS[case]]
    assert received.kinds[-1] == TERMINALS[case]
    final = received.events[-1]["response"]
    done = [event["item"] for event in received.of("output_item.done")]
    assert final["output"][: len(done)] == done
    if case in ("good", "cut by the limit"):
        assert len(final["output"]) == len(done) == (3 if case == "good" else 2)


@pytest.mark.parametrize("case", ["early end", "nothing"])
def test_E3_a_relayed_responses_stream_has_one_end(case: str) -> None:
    received = receive(RESPONSES, RESPONSES, ending(RESPONSES, case))
    assert received.kinds[-2:] == ["error", "failed"]
    assert check_stream(RESPONSES, received.data) == []


@each("client")
def test_E3_an_empty_final_output_is_filled_from_the_deltas(client: str) -> None:
    """An upstream that sends `output: []` at the end."""
    found = frames(stream(RESPONSES, *BLOCKS))
    final = json.loads(found[-1].partition(b"data: ")[2])
    final["response"]["output"] = []
    data = b"".join(found[:-1]) + s.render(RESPONSES, [final])
    expected = [("reasoning", "Hm."), ("text", "Let me see."), ("call", 'add({"a": 1})')]
    received = receive(RESPONSES, client, data, translates=True)
    assert received.gist == expected
    if client == RESPONSES:
        kinds = [item["type"] for item in received.events[-1]["response"]["output"]]
        assert kinds == ["reasoning", "message", "function_call"]


@each("upstream")
@pytest.mark.parametrize("case", ["error", "error first", "early end", "nothing", "nonsense"])
def test_E4_a_messages_client_gets_errors_in_its_own_form(upstream: str, case: str) -> None:
    """`event: error` with a typed object: clients of Messages ignore an error in Chat's form."""
    received = receive(upstream, MESSAGES, ending(upstream, case), translates=True)
    check_failed(received)
    *_, name, data = received.data.decode().rstrip("\n").split("\n")
    assert name == "event: error"
    reported = json.loads(data.removeprefix("data: "))
    assert reported["type"] == "error"
    assert reported["error"].keys() == {"type", "message"}
    assert reported["error"]["type"] == ("overloaded_error" if case.startswith("error") else "api_error")
    if case.startswith("error"):
        assert reported["error"]["message"] == "Busy."


@pytest.mark.parametrize("case", ["early end", "nothing"])
def test_E4_an_error_at_the_end_of_a_relay_has_the_clients_form(case: str) -> None:
    received = receive(MESSAGES, MESSAGES, ending(MESSAGES, case))
    check_failed(received)
    assert received.events[-1]["error"].keys() == {"type", "message"}
    assert check_stream(MESSAGES, received.data) == []


# Type of the error inside a Messages stream -> what the gateway counts it as, and Chat's type and code.
IN_BAND: dict[str, tuple[ErrorKind, str, str | None]] = {
    "overloaded_error": (ErrorKind.OVERLOADED, "server_error", "overloaded"),
    "rate_limit_error": (ErrorKind.RATE_LIMIT, "rate_limit_error", "rate_limit_exceeded"),
    "api_error": (ErrorKind.SERVER, "server_error", None),
    "timeout_error": (ErrorKind.TIMEOUT, "server_error", "timeout"),
    "never_heard_of_error": (ErrorKind.SERVER, "server_error", None),
}


@each("client", [client for client in CLIENTS if client != MESSAGES])
@pytest.mark.parametrize("kind", IN_BAND)
@pytest.mark.parametrize("after", [0, 3, 7], ids=["first", "in a block", "later"])
def test_E5_an_error_event_ends_the_response(client: str, kind: str, after: int) -> None:
    """It is sent, it is no success, and its kind is recorded for the account."""
    sent = b"".join(frames(stream(MESSAGES, *BLOCKS))[:after])
    received = receive(MESSAGES, client, sent + s.render(MESSAGES, [in_band(MESSAGES, kind)]))
    check_failed(received)
    counted, named, code = IN_BAND[kind]
    assert received.machine.error is not None
    assert (received.machine.error.kind, received.machine.error.message) == (counted, "Busy.")
    if client == CHAT:
        error = received.events[-1]["error"]
        assert (error["message"], error["type"], error["code"]) == ("Busy.", named, code)


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
    begun = b"".join(frames(stream(upstream, *BLOCKS))[:after])
    received = receive(upstream, client, begun + b"error: " + holder % json.dumps(error).encode() + tail)
    check_failed(received)
    assert received.machine.error is not None
    assert received.machine.error.message == error["message"]
    assert error["message"].encode() in received.data
    if client == upstream:
        assert received.data.startswith(begun)
        assert check_stream(client, received.data, include_usage=True) == []


@each("upstream")
def test_E5_a_relayed_error_is_a_failure(upstream: str) -> None:
    """The bytes pass as they are; the outcome is a failure all the same."""
    data = broken(upstream)
    received = receive(upstream, upstream, data)
    assert received.data == data
    assert received.machine.outcome is Outcome.FAILED


@each("client")
@pytest.mark.parametrize("called", [True, False], ids=["calls", "text"])
def test_E6_a_stop_reason_is_an_end_without_message_stop(client: str, called: bool) -> None:
    """Servers that never send message_stop."""
    blocks = (Text("Hi"), Call("call_a")) if called else (Text("Hi"),)
    data = b"".join(frames(stream(MESSAGES, *blocks))[:-1])
    received = receive(MESSAGES, client, data, translates=True)
    assert received.machine.outcome is Outcome.COMPLETED
    ends = {CHAT: ("stop", "tool_calls"), MESSAGES: ("end_turn", "tool_use"), RESPONSES: ("completed",) * 2}
    assert received.finish == ends[client][called]
    if client == MESSAGES:
        assert received.kinds[-1] == "message_stop"


@each("client")
def test_E6_without_a_stop_reason_it_is_cut(client: str) -> None:
    data = b"".join(frames(stream(MESSAGES, Text("Hi")))[:-2])
    check_failed(receive(MESSAGES, client, data, translates=True))
    nothing = {"type": "message_delta", "delta": {"stop_reason": None}, "usage": {"output_tokens": 1}}
    check_failed(receive(MESSAGES, client, data + s.render(MESSAGES, [nothing]), translates=True))


def test_E6_a_relay_has_the_same_outcome() -> None:
    found = frames(stream(MESSAGES, Text("Hi")))
    whole_enough = b"".join(found[:-1])
    received = receive(MESSAGES, MESSAGES, whole_enough)
    assert (received.data, received.machine.outcome) == (whole_enough, Outcome.COMPLETED)
    check_failed(receive(MESSAGES, MESSAGES, b"".join(found[:-2])))


# The frames before the first content.
LIFECYCLE = {
    CHAT: s.render(CHAT, [s.chunk({"role": "assistant", "content": ""})]),
    MESSAGES: s.render(MESSAGES, [{"type": "message_start", "message": s.message()}, {"type": "ping"}]),
    RESPONSES: s.render(
        RESPONSES,
        [
            {"type": "response.created", "response": s.response()},
            {"type": "response.in_progress", "response": s.response()},
        ],
    ),
}


@pairs(CLIENTS, PROTOCOL_NAMES)
def test_E7_before_content_nothing_is_committed(client: str, upstream: str) -> None:
    """Events without content do not commit the response, whether or not it ends with an error."""
    context = translate_request(client, upstream, client_request(client, upstream, None)).response_context()
    begun = ResponseTranslator(client=spec_of(client), upstream=UPSTREAMS[upstream], context=context)
    begun.receive_data(LIFECYCLE[upstream])
    assert begun.outcome is Outcome.OPEN
    assert not begun.committed
    for data in (LIFECYCLE[upstream], broken(upstream, after=0)):
        failed = receive(upstream, client, data)
        assert not failed.machine.committed
        assert failed.machine.error is not None
        assert spec_of(client).write_error(failed.machine.error, None)[0] >= 500


@pairs(CLIENTS, PROTOCOL_NAMES)
@pytest.mark.parametrize(
    "block", [Text("Hi"), Reasoning("Hm."), Call("call_a")], ids=["text", "reasoning", "call"]
)
def test_E7_content_commits_the_response(client: str, upstream: str, block: Any) -> None:
    received = receive(upstream, client, stream(upstream, block))
    assert received.machine.committed


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


# stop_reason of a Messages upstream -> the stop reason in each client's protocol.
REASONS: dict[str, dict[str, str]] = {
    "max_tokens": {CHAT: "length", RESPONSES: "max_output_tokens"},
    "model_context_window_exceeded": {CHAT: "length", RESPONSES: "max_output_tokens"},
    "refusal": {CHAT: "content_filter", RESPONSES: "content_filter"},
    "pause_turn": {CHAT: "stop", RESPONSES: "completed"},
    "stop_sequence": {CHAT: "stop", RESPONSES: "completed"},
    "end_turn": {CHAT: "stop", RESPONSES: "completed"},
}


def stopped(reason: str) -> bytes:
    ends = stream(MESSAGES, Text("Half a")).replace(
        b'"stop_reason": "end_turn"', b'"stop_reason": "%s"' % reason.encode()
    )
    if reason == "stop_sequence":
        ends = ends.replace(
            b'"stop_sequence": null, "stop_details"', b'"stop_sequence": "END", "stop_details"'
        )
    return ends


@each("client")
@pytest.mark.parametrize("reason", REASONS)
def test_E9_every_stop_reason_keeps_its_meaning(client: str, reason: str) -> None:
    received = receive(MESSAGES, client, stopped(reason), translates=True)
    assert received.finish == REASONS[reason].get(client, reason)
    reported = client != RESPONSES and reason == "stop_sequence"  # a Responses response has no place for it
    assert received.meaning.stop_sequence == ("END" if reported else None)


@each("client", (CHAT, RESPONSES))
@pytest.mark.parametrize("reason", REASONS)
def test_E9_stop_reasons_of_whole_responses_keep_their_meaning(client: str, reason: str) -> None:
    upstream_response = whole(MESSAGES, Text("Half a")) | {"stop_reason": reason}
    if reason == "stop_sequence":
        upstream_response["stop_sequence"] = "END"
    document = receive_whole(MESSAGES, client, upstream_response)
    if client == CHAT:
        assert document["choices"][0]["finish_reason"] == REASONS[reason][CHAT]
    else:
        details = document["incomplete_details"]
        assert (details["reason"] if details else document["status"]) == REASONS[reason][RESPONSES]


@pytest.mark.parametrize(("client", "path"), [(CHAT, "/choices/0/finish_reason"), (RESPONSES, "/status")])
def test_E9_a_stop_reason_without_a_counterpart_is_a_loss(client: str, path: str) -> None:
    received = receive(MESSAGES, client, stopped("pause_turn"))
    assert path in [loss.path for loss in received.machine.losses]


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
        assert choice["finish_reason"] == "length"
        assert choice["message"]["role"] == "assistant"
        assert not choice["message"]["content"]
    elif client == MESSAGES:
        assert document["stop_reason"] == "max_tokens"
        assert [block["type"] for block in document["content"]] in (["thinking"], ["redacted_thinking"], [])
    else:
        assert document["status"] == "incomplete"
        assert [item["type"] for item in document["output"]] in (["reasoning"], [])


# Errors inside of a 200 stream, as servers of the Chat protocol send them -> their message.
CHAT_ERRORS: dict[str, tuple[bytes, str]] = {
    "groq": (
        b'data: {"error":{"message":"Failed to call a function.","type":"invalid_request_error",'
        b'"code":"tool_use_failed","failed_generation":"<function=add"}}\n\n',
        "Failed to call a function.",
    ),
    "groq with its event": (
        b'event: error\ndata: {"error":{"message":"Failed.","type":"server_error"}}\n\n',
        "Failed.",
    ),
    "openrouter": (
        b'data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"m","provider":"p",'
        b'"error":{"code":502,"message":"Provider disconnected"},'
        b'"choices":[{"index":0,"delta":{"content":""},"finish_reason":"error"}]}\n\n',
        "Provider disconnected",
    ),
    "openrouter, then an end mark": (
        b'data: {"error":{"code":502,"message":"Provider disconnected"}}\n\ndata: [DONE]\n\n',
        "Provider disconnected",
    ),
    "a string": (b'data: {"error":"model crashed"}\n\n', "model crashed"),
    "vllm": (b'data: {"object":"error","message":"Too long.","type":"BadRequestError","code":400}\n\n', "Too long."),
    "fastapi": (b'data: {"detail":"Internal error"}\n\n', "Internal error"),
    "only finish_reason": (
        b'data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"m",'
        b'"choices":[{"index":0,"delta":{},"finish_reason":"error"}]}\n\ndata: [DONE]\n\n',
        "finish_reason error",
    ),
}  # fmt: skip


@each("client", [client for client in CLIENTS if client != CHAT])
@pytest.mark.parametrize("server", CHAT_ERRORS)
def test_E11_an_error_after_deltas_is_sent_as_an_error(client: str, server: str) -> None:
    sent, message = CHAT_ERRORS[server]
    received = receive(CHAT, client, b"".join(frames(stream(CHAT, *BLOCKS))[:5]) + sent)
    check_failed(received)
    assert received.meaning.failure is not None
    assert message in received.meaning.failure.message


@pytest.mark.parametrize("server", CHAT_ERRORS)
def test_E11_a_relayed_error_keeps_its_bytes_and_is_a_failure(server: str) -> None:
    data = b"".join(frames(stream(CHAT, *BLOCKS))[:5]) + CHAT_ERRORS[server][0]
    received = receive(CHAT, CHAT, data)
    assert received.data == data
    assert received.machine.outcome is Outcome.FAILED


@pairs()
def test_E11_a_whole_response_that_is_an_error_sends_nothing(client: str, upstream: str) -> None:
    """With status 200, as some servers send it."""
    error = in_band(upstream)
    assert isinstance(error, dict)
    upstream_response = error["response"] if upstream == RESPONSES else error
    context = translate_request(
        client, upstream, client_request(client, upstream, None, stream=False)
    ).response_context()
    machine = ResponseTranslator(
        client=spec_of(client),
        upstream=UPSTREAMS[upstream],
        context=context,
        upstream_streams=False,
        client_streams=False,
    )
    machine.receive_data(json.dumps(upstream_response).encode())
    machine.receive_eof()
    assert (machine.outcome, machine.data_to_send()) == (Outcome.FAILED, b"")
    assert machine.error is not None
    assert (machine.error.kind, machine.error.message) == (ErrorKind.OVERLOADED, "Busy.")
