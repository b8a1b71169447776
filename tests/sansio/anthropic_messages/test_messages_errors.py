"""Errors both ways, and the tap of a relayed stream."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman._ir.events import Failed, Usage
from dragoman._ir.losses import Ledger
from dragoman._ir.request import Request
from dragoman._wire.errors import ErrorKind, WireError
from dragoman._wire.json import decode, encode
from dragoman._wire.sse import Frame
from dragoman.codec import ResponseContext
from dragoman.protocols.anthropic_messages import SPEC

CREDIT = "Your credit balance is too low to access the Anthropic API."


def body(kind: str, message: str = "words", **fields: Any) -> bytes:
    return encode(
        {"type": "error", "error": {"type": kind, "message": message, **fields}, "request_id": "req_1"}
    )


@pytest.mark.promise("S18")
@pytest.mark.parametrize(
    ("status", "data", "kind", "message"),
    [
        (400, body("invalid_request_error"), ErrorKind.INVALID_REQUEST, "words"),
        (401, body("authentication_error"), ErrorKind.AUTHENTICATION, "words"),
        (402, body("billing_error"), ErrorKind.BILLING, "words"),
        (403, body("permission_error"), ErrorKind.PERMISSION, "words"),
        (404, body("not_found_error"), ErrorKind.NOT_FOUND, "words"),
        (409, body("conflict_error"), ErrorKind.CONFLICT, "words"),
        (412, body("memory_precondition_failed_error"), ErrorKind.CONFLICT, "words"),
        (413, body("request_too_large"), ErrorKind.TOO_LARGE, "words"),
        (422, body("invalid_request_error"), ErrorKind.UNPROCESSABLE, "words"),
        (429, body("rate_limit_error"), ErrorKind.RATE_LIMIT, "words"),
        (500, body("api_error"), ErrorKind.SERVER, "words"),
        (502, body("api_error"), ErrorKind.UNREACHABLE, "words"),
        (504, body("timeout_error"), ErrorKind.TIMEOUT, "words"),
        (529, body("overloaded_error"), ErrorKind.OVERLOADED, "words"),
        (400, body("odd_error"), ErrorKind.INVALID_REQUEST, "words"),
        (
            400,
            body("invalid_request_error", "prompt is too long: 3 tokens > 2 maximum"),
            ErrorKind.CONTEXT_LENGTH,
            "prompt is too long: 3 tokens > 2 maximum",
        ),
        (400, body("invalid_request_error", CREDIT), ErrorKind.BILLING, CREDIT),
        (
            400,
            body("invalid_request_error", "API key not valid."),
            ErrorKind.AUTHENTICATION,
            "API key not valid.",
        ),
        (
            429,
            body("rate_limit_error", details={"error_code": "enforced_spend_limit_reached"}),
            ErrorKind.BILLING,
            "words",
        ),
        (401, b'{"detail":"Invalid API Key"}', ErrorKind.AUTHENTICATION, "Invalid API Key"),
        (422, b'{"detail":[{"msg":"bad"}]}', ErrorKind.UNPROCESSABLE, '[{"msg":"bad"}]'),
        (400, b'{"code":"x","error":"Incorrect"}', ErrorKind.INVALID_REQUEST, "Incorrect"),
        (500, b'{"error":{"message":""}}', ErrorKind.SERVER, "the upstream reported an error (status 500)"),
        (503, b"upstream connect error", ErrorKind.OVERLOADED, "upstream connect error"),
        (400, b"maximum context length is 5", ErrorKind.CONTEXT_LENGTH, "maximum context length is 5"),
        (
            502,
            b"<html>",
            ErrorKind.UNREACHABLE,
            "the upstream answered with status 502 and no readable message",
        ),
        (500, b"\xff\x00", ErrorKind.SERVER, "the upstream answered with status 500 and no readable message"),
        (500, b"", ErrorKind.SERVER, "the upstream answered with status 500 and no readable message"),
        (500, b"[1]", ErrorKind.SERVER, "[1]"),
        (500, b"x" * 5000, ErrorKind.SERVER, "x" * 2000),
    ],
)
def test_read_fault(status: int, data: bytes, kind: ErrorKind, message: str) -> None:
    error = SPEC.read_error(status, data)
    assert (error.kind, error.message, error.status) == (kind, message, status)


def test_read_fault_keeps_what_the_sender_named() -> None:
    data = body("invalid_request_error", code="c", param="p")
    assert SPEC.read_error(400, data) == WireError(
        ErrorKind.INVALID_REQUEST, "words", 400, "c", "invalid_request_error", "p", "req_1"
    )


@pytest.mark.parametrize(
    ("error", "status", "kind", "message"),
    [
        (WireError(ErrorKind.INVALID_REQUEST, "m"), 400, "invalid_request_error", "m"),
        (WireError(ErrorKind.CONTEXT_LENGTH, "m"), 400, "invalid_request_error", "prompt is too long: m"),
        (
            WireError(ErrorKind.CONTEXT_LENGTH, "The prompt is too long."),
            400,
            "invalid_request_error",
            "The prompt is too long.",
        ),
        (WireError(ErrorKind.AUTHENTICATION, "m"), 401, "authentication_error", "m"),
        (WireError(ErrorKind.BILLING, "m", 429), 402, "billing_error", "m"),
        (WireError(ErrorKind.METHOD, "m"), 405, "invalid_request_error", "m"),
        (WireError(ErrorKind.TIMEOUT, "m"), 504, "timeout_error", "m"),
        (WireError(ErrorKind.TIMEOUT, "m", 408), 408, "timeout_error", "m"),
        (WireError(ErrorKind.TOO_LARGE, "m"), 413, "request_too_large", "m"),
        (WireError(ErrorKind.RATE_LIMIT, "m", 429), 429, "rate_limit_error", "m"),
        (WireError(ErrorKind.OVERLOADED, "m", 503), 529, "overloaded_error", "m"),
        (WireError(ErrorKind.OVERLOADED, "m", 529), 529, "overloaded_error", "m"),
        (WireError(ErrorKind.SERVER, "m", 501), 501, "api_error", "m"),
        (WireError(ErrorKind.UNREACHABLE, "m"), 502, "api_error", "m"),
        (WireError(ErrorKind.TRUNCATED, "m"), 502, "api_error", "m"),
        (WireError(ErrorKind.UNREADABLE, "m"), 502, "api_error", "m"),
        (WireError(ErrorKind.MISCONFIGURED, "m"), 503, "api_error", "m"),
    ],
)
def test_write_fault(error: WireError, status: int, kind: str, message: str) -> None:
    written, data = SPEC.write_error(error, "req_2")
    assert written == status
    assert decode(data) == {
        "type": "error",
        "error": {"type": kind, "message": message},
        "request_id": "req_2",
    }
    assert SPEC.is_native_error(data)


@pytest.mark.parametrize(
    ("code", "details"),
    [
        ("thread_unsupported_request", {"error_code": "thread_unsupported_request"}),
        ("enforced_spend_limit_reached", {"error_code": "enforced_spend_limit_reached"}),
        ("unsupported_value", None),  # of another protocol
        (None, None),
    ],
)
def test_codes_of_the_protocol_are_written_as_details(code: str | None, details: object) -> None:
    _, data = SPEC.write_error(WireError(ErrorKind.INVALID_REQUEST, "m", 400, code), None)
    assert decode(data)["error"].get("details") == details
    assert SPEC.read_error(400, data).code == (code if details else None)


@pytest.mark.parametrize("kind", ErrorKind)
def test_every_kind_has_a_type(kind: ErrorKind) -> None:
    status, data = SPEC.write_error(WireError(kind, "m"), None)
    assert status >= 400
    assert decode(data)["request_id"] is None


@pytest.mark.parametrize(
    "data",
    [b"{", b"[]", b'{"type":"x"}', b'{"type":"error"}', b'{"type":"error","error":{"type":"a","message":1}}'],
)
def test_bodies_of_another_form(data: bytes) -> None:
    assert not SPEC.is_native_error(data)


# --- the tap

EXCHANGE = ResponseContext(Request("anthropic_messages", "m", (), {}), "x", 1, "m")


def encode_frame(value: Any, event: str | None = None) -> Frame:
    return Frame((value["type"] if event is None else event).encode(), encode(value))


START = encode_frame(
    {"type": "message_start", "message": {"usage": {"input_tokens": 3, "cache_read_input_tokens": 4}}}
)
DELTA = encode_frame(
    {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 5}}
)


@pytest.mark.parametrize(
    ("frames", "usage", "ended", "failed"),
    [
        ([], Usage(), False, False),
        ([START], Usage(7, None, 4), False, False),
        ([START, DELTA], Usage(7, 5, 4), True, False),
        ([START, encode_frame({"type": "message_stop"})], Usage(7, None, 4), True, False),
        (
            [encode_frame({"type": "content_block_stop"}), encode_frame({"type": "message_stop"})],
            Usage(),
            True,
            False,
        ),
        ([encode_frame({"type": "message_stop"})], Usage(), False, False),
        ([encode_frame({"type": "error", "error": {}})], Usage(), False, True),
        (
            [
                encode_frame({"type": "ping"}),
                encode_frame({"type": "message_delta"}),
                encode_frame({"type": "odd"}),
            ],
            Usage(),
            False,
            False,
        ),
        ([encode_frame({"type": "message_start"})], Usage(), False, False),
        (
            [encode_frame({"type": "message_start", "message": {"stop_reason": "tool_use"}})],
            Usage(),
            True,
            False,
        ),
        ([Frame(b"message_stop", b"{"), Frame(b"", b"[]")], Usage(), False, False),
        ([encode_frame({"type": "content_block_start", "message_stop": 1}, "")], Usage(), False, False),
        ([encode_frame({"type": "message_delta", "delta": {"stop_reason": None}})], Usage(), False, False),
    ],
)
def test_tap(frames: list[Frame], usage: Usage, ended: bool, failed: bool) -> None:
    observer = SPEC.observer(EXCHANGE)
    for one in frames:
        observer.observe(one)
    assert (observer.usage, observer.ended, observer.error is not None) == (usage, ended, failed)


@pytest.mark.parametrize(
    ("one", "last"),
    [
        (DELTA, False),
        (encode_frame({"type": "message_stop"}), True),
        (encode_frame({"type": "error", "error": {}}), True),
    ],
)
def test_the_tap_knows_the_last_frame(one: Frame, last: bool) -> None:
    observer = SPEC.observer(EXCHANGE)
    observer.observe(one)
    assert observer.stream_finished is last
    assert any(mark in one.data for mark in (*SPEC.end_markers, b"error")) is last


@pytest.mark.parametrize(
    ("one", "content_started"),
    [
        (START, False),
        (encode_frame({"type": "ping"}), False),
        (encode_frame({"type": "error", "error": {}}), False),
        (encode_frame({"type": "content_block_start", "content_block": {"type": "text", "text": ""}}), False),
        (encode_frame({"type": "content_block_start", "content_block": {"type": "text", "text": "a"}}), True),
        (
            encode_frame(
                {
                    "type": "content_block_start",
                    "content_block": {"type": "tool_use", "name": "f", "input": {}},
                }
            ),
            True,
        ),
        (encode_frame({"type": "content_block_delta", "delta": {"type": "text_delta", "text": ""}}), False),
        (
            encode_frame({"type": "content_block_delta", "delta": {"type": "text_delta", "text": "a"}}, ""),
            True,
        ),
        (encode_frame({"type": "content_block_stop", "index": 0}), False),
        (encode_frame({"type": "content_block_delta", "delta": "a"}), False),
        (Frame(b"content_block_delta", b"[]"), False),
        (Frame(b"content_block_delta", b"{"), True),  # a relay does not judge
    ],
)
def test_r5_an_answer_begins_with_its_first_content(one: Frame, content_started: bool) -> None:
    observer = SPEC.observer(EXCHANGE)
    observer.observe(one)
    assert observer.content_started is content_started


def test_f8_an_error_in_the_stream_is_told_apart() -> None:
    observer = SPEC.observer(EXCHANGE)
    observer.observe(
        encode_frame({"type": "error", "error": {"type": "overloaded_error", "message": "busy"}})
    )
    assert observer.error == WireError(ErrorKind.OVERLOADED, "busy", type="overloaded_error")


def test_an_error_named_by_the_event_line_alone() -> None:
    one = Frame(b"error", b'{"message":"oops","type":"server_error"}')
    observer, error = SPEC.observer(EXCHANGE), WireError(ErrorKind.SERVER, "oops", type="server_error")
    observer.observe(one)
    assert observer.error == error
    assert list(SPEC.stream_reader(EXCHANGE, Ledger()).read(one)) == [Failed(error)]


def test_an_error_named_by_its_member_alone() -> None:
    one = Frame(b"", b'{"error":{"message":"oops"}}')
    assert list(SPEC.stream_reader(EXCHANGE, Ledger()).read(one)) == [
        Failed(WireError(ErrorKind.SERVER, "oops"))
    ]


def test_the_tap_ends_a_broken_stream() -> None:
    data = SPEC.observer(EXCHANGE).fail(WireError(ErrorKind.TRUNCATED, "cut"))
    assert data == (
        b'event: error\ndata: {"type":"error","error":{"type":"api_error","message":"cut"},"request_id":"x"}\n\n'
    )


def test_the_heartbeat() -> None:
    assert SPEC.endpoints[0].heartbeat == b'event: ping\ndata: {"type":"ping"}\n\n'
