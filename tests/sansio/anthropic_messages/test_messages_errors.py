"""Errors both ways, and the tap of a relayed stream."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman._ir.errors import Fault, FaultKind
from dragoman._ir.events import Failed, Usage
from dragoman._ir.losses import Ledger
from dragoman._ir.request import Request
from dragoman._wire.json import decode, encode
from dragoman._wire.sse import Frame
from dragoman.codec import Exchange
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
        (400, body("invalid_request_error"), FaultKind.INVALID_REQUEST, "words"),
        (401, body("authentication_error"), FaultKind.AUTHENTICATION, "words"),
        (402, body("billing_error"), FaultKind.BILLING, "words"),
        (403, body("permission_error"), FaultKind.PERMISSION, "words"),
        (404, body("not_found_error"), FaultKind.NOT_FOUND, "words"),
        (409, body("conflict_error"), FaultKind.CONFLICT, "words"),
        (412, body("memory_precondition_failed_error"), FaultKind.CONFLICT, "words"),
        (413, body("request_too_large"), FaultKind.TOO_LARGE, "words"),
        (422, body("invalid_request_error"), FaultKind.UNPROCESSABLE, "words"),
        (429, body("rate_limit_error"), FaultKind.RATE_LIMIT, "words"),
        (500, body("api_error"), FaultKind.SERVER, "words"),
        (502, body("api_error"), FaultKind.UNREACHABLE, "words"),
        (504, body("timeout_error"), FaultKind.TIMEOUT, "words"),
        (529, body("overloaded_error"), FaultKind.OVERLOADED, "words"),
        (400, body("odd_error"), FaultKind.INVALID_REQUEST, "words"),
        (
            400,
            body("invalid_request_error", "prompt is too long: 3 tokens > 2 maximum"),
            FaultKind.CONTEXT_LENGTH,
            "prompt is too long: 3 tokens > 2 maximum",
        ),
        (400, body("invalid_request_error", CREDIT), FaultKind.BILLING, CREDIT),
        (
            400,
            body("invalid_request_error", "API key not valid."),
            FaultKind.AUTHENTICATION,
            "API key not valid.",
        ),
        (
            429,
            body("rate_limit_error", details={"error_code": "enforced_spend_limit_reached"}),
            FaultKind.BILLING,
            "words",
        ),
        (401, b'{"detail":"Invalid API Key"}', FaultKind.AUTHENTICATION, "Invalid API Key"),
        (422, b'{"detail":[{"msg":"bad"}]}', FaultKind.UNPROCESSABLE, '[{"msg":"bad"}]'),
        (400, b'{"code":"x","error":"Incorrect"}', FaultKind.INVALID_REQUEST, "Incorrect"),
        (500, b'{"error":{"message":""}}', FaultKind.SERVER, "the upstream reported an error (status 500)"),
        (503, b"upstream connect error", FaultKind.OVERLOADED, "upstream connect error"),
        (400, b"maximum context length is 5", FaultKind.CONTEXT_LENGTH, "maximum context length is 5"),
        (
            502,
            b"<html>",
            FaultKind.UNREACHABLE,
            "the upstream answered with status 502 and no readable message",
        ),
        (500, b"\xff\x00", FaultKind.SERVER, "the upstream answered with status 500 and no readable message"),
        (500, b"", FaultKind.SERVER, "the upstream answered with status 500 and no readable message"),
        (500, b"[1]", FaultKind.SERVER, "[1]"),
        (500, b"x" * 5000, FaultKind.SERVER, "x" * 2000),
    ],
)
def test_read_fault(status: int, data: bytes, kind: FaultKind, message: str) -> None:
    fault = SPEC.read_fault(status, data)
    assert (fault.kind, fault.message, fault.status) == (kind, message, status)


def test_read_fault_keeps_what_the_sender_named() -> None:
    data = body("invalid_request_error", code="c", param="p")
    assert SPEC.read_fault(400, data) == Fault(
        FaultKind.INVALID_REQUEST, "words", 400, "c", "invalid_request_error", "p", "req_1"
    )


@pytest.mark.parametrize(
    ("fault", "status", "kind", "message"),
    [
        (Fault(FaultKind.INVALID_REQUEST, "m"), 400, "invalid_request_error", "m"),
        (Fault(FaultKind.CONTEXT_LENGTH, "m"), 400, "invalid_request_error", "prompt is too long: m"),
        (
            Fault(FaultKind.CONTEXT_LENGTH, "The prompt is too long."),
            400,
            "invalid_request_error",
            "The prompt is too long.",
        ),
        (Fault(FaultKind.AUTHENTICATION, "m"), 401, "authentication_error", "m"),
        (Fault(FaultKind.BILLING, "m", 429), 402, "billing_error", "m"),
        (Fault(FaultKind.METHOD, "m"), 405, "invalid_request_error", "m"),
        (Fault(FaultKind.TIMEOUT, "m"), 504, "timeout_error", "m"),
        (Fault(FaultKind.TIMEOUT, "m", 408), 408, "timeout_error", "m"),
        (Fault(FaultKind.TOO_LARGE, "m"), 413, "request_too_large", "m"),
        (Fault(FaultKind.RATE_LIMIT, "m", 429), 429, "rate_limit_error", "m"),
        (Fault(FaultKind.OVERLOADED, "m", 503), 529, "overloaded_error", "m"),
        (Fault(FaultKind.OVERLOADED, "m", 529), 529, "overloaded_error", "m"),
        (Fault(FaultKind.SERVER, "m", 501), 501, "api_error", "m"),
        (Fault(FaultKind.UNREACHABLE, "m"), 502, "api_error", "m"),
        (Fault(FaultKind.TRUNCATED, "m"), 502, "api_error", "m"),
        (Fault(FaultKind.UNREADABLE, "m"), 502, "api_error", "m"),
        (Fault(FaultKind.MISCONFIGURED, "m"), 503, "api_error", "m"),
    ],
)
def test_write_fault(fault: Fault, status: int, kind: str, message: str) -> None:
    written, data = SPEC.write_fault(fault, "req_2")
    assert written == status
    assert decode(data) == {
        "type": "error",
        "error": {"type": kind, "message": message},
        "request_id": "req_2",
    }
    assert SPEC.is_fault(data)


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
    _, data = SPEC.write_fault(Fault(FaultKind.INVALID_REQUEST, "m", 400, code), None)
    assert decode(data)["error"].get("details") == details
    assert SPEC.read_fault(400, data).code == (code if details else None)


@pytest.mark.parametrize("kind", FaultKind)
def test_every_kind_has_a_type(kind: FaultKind) -> None:
    status, data = SPEC.write_fault(Fault(kind, "m"), None)
    assert status >= 400
    assert decode(data)["request_id"] is None


@pytest.mark.parametrize(
    "data",
    [b"{", b"[]", b'{"type":"x"}', b'{"type":"error"}', b'{"type":"error","error":{"type":"a","message":1}}'],
)
def test_bodies_of_another_form(data: bytes) -> None:
    assert not SPEC.is_fault(data)


# --- the tap

EXCHANGE = Exchange(Request("anthropic_messages", "m", (), {}), "x", 1, "m")


def frame(value: Any, event: str | None = None) -> Frame:
    return Frame((value["type"] if event is None else event).encode(), encode(value))


START = frame(
    {"type": "message_start", "message": {"usage": {"input_tokens": 3, "cache_read_input_tokens": 4}}}
)
DELTA = frame({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 5}})


@pytest.mark.parametrize(
    ("frames", "usage", "ended", "failed"),
    [
        ([], Usage(), False, False),
        ([START], Usage(7, None, 4), False, False),
        ([START, DELTA], Usage(7, 5, 4), True, False),
        ([START, frame({"type": "message_stop"})], Usage(7, None, 4), True, False),
        ([frame({"type": "content_block_stop"}), frame({"type": "message_stop"})], Usage(), True, False),
        ([frame({"type": "message_stop"})], Usage(), False, False),
        ([frame({"type": "error", "error": {}})], Usage(), False, True),
        (
            [frame({"type": "ping"}), frame({"type": "message_delta"}), frame({"type": "odd"})],
            Usage(),
            False,
            False,
        ),
        ([frame({"type": "message_start"})], Usage(), False, False),
        ([frame({"type": "message_start", "message": {"stop_reason": "tool_use"}})], Usage(), True, False),
        ([Frame(b"message_stop", b"{"), Frame(b"", b"[]")], Usage(), False, False),
        ([frame({"type": "content_block_start", "message_stop": 1}, "")], Usage(), False, False),
        ([frame({"type": "message_delta", "delta": {"stop_reason": None}})], Usage(), False, False),
    ],
)
def test_tap(frames: list[Frame], usage: Usage, ended: bool, failed: bool) -> None:
    tap = SPEC.tap(EXCHANGE)
    for one in frames:
        tap.watch(one)
    assert (tap.usage, tap.ended, tap.fault is not None) == (usage, ended, failed)


@pytest.mark.parametrize(
    ("one", "last"),
    [
        (DELTA, False),
        (frame({"type": "message_stop"}), True),
        (frame({"type": "error", "error": {}}), True),
    ],
)
def test_the_tap_knows_the_last_frame(one: Frame, last: bool) -> None:
    tap = SPEC.tap(EXCHANGE)
    tap.watch(one)
    assert tap.last is last
    assert any(mark in one.data for mark in (*SPEC.end_marks, b"error")) is last


@pytest.mark.parametrize(
    ("one", "begun"),
    [
        (START, False),
        (frame({"type": "ping"}), False),
        (frame({"type": "error", "error": {}}), False),
        (frame({"type": "content_block_start", "content_block": {"type": "text", "text": ""}}), False),
        (frame({"type": "content_block_start", "content_block": {"type": "text", "text": "a"}}), True),
        (
            frame(
                {
                    "type": "content_block_start",
                    "content_block": {"type": "tool_use", "name": "f", "input": {}},
                }
            ),
            True,
        ),
        (frame({"type": "content_block_delta", "delta": {"type": "text_delta", "text": ""}}), False),
        (frame({"type": "content_block_delta", "delta": {"type": "text_delta", "text": "a"}}, ""), True),
        (frame({"type": "content_block_stop", "index": 0}), False),
        (frame({"type": "content_block_delta", "delta": "a"}), False),
        (Frame(b"content_block_delta", b"[]"), False),
        (Frame(b"content_block_delta", b"{"), True),  # a relay does not judge
    ],
)
def test_r5_an_answer_begins_with_its_first_content(one: Frame, begun: bool) -> None:
    tap = SPEC.tap(EXCHANGE)
    tap.watch(one)
    assert tap.begun is begun


def test_f8_an_error_in_the_stream_is_told_apart() -> None:
    tap = SPEC.tap(EXCHANGE)
    tap.watch(frame({"type": "error", "error": {"type": "overloaded_error", "message": "busy"}}))
    assert tap.fault == Fault(FaultKind.OVERLOADED, "busy", type="overloaded_error")


def test_an_error_named_by_the_event_line_alone() -> None:
    one = Frame(b"error", b'{"message":"oops","type":"server_error"}')
    tap, fault = SPEC.tap(EXCHANGE), Fault(FaultKind.SERVER, "oops", type="server_error")
    tap.watch(one)
    assert tap.fault == fault
    assert list(SPEC.stream_reader(EXCHANGE, Ledger()).read(one)) == [Failed(fault)]


def test_an_error_named_by_its_member_alone() -> None:
    one = Frame(b"", b'{"error":{"message":"oops"}}')
    assert list(SPEC.stream_reader(EXCHANGE, Ledger()).read(one)) == [Failed(Fault(FaultKind.SERVER, "oops"))]


def test_the_tap_ends_a_broken_stream() -> None:
    data = SPEC.tap(EXCHANGE).fail(Fault(FaultKind.TRUNCATED, "cut"))
    assert data == (
        b'event: error\ndata: {"type":"error","error":{"type":"api_error","message":"cut"},"request_id":"x"}\n\n'
    )


def test_the_heartbeat() -> None:
    assert SPEC.endpoints[0].heartbeat == b'event: ping\ndata: {"type":"ping"}\n\n'
