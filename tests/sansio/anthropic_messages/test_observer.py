"""The observer of a relayed stream."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman._ir.events import Failed, Usage
from dragoman._ir.losses import Ledger
from dragoman._ir.request import Request
from dragoman._wire.errors import ErrorKind, WireError
from dragoman._wire.json import encode
from dragoman._wire.sse import Frame
from dragoman.codec import ResponseContext
from dragoman.protocols.anthropic_messages import SPEC

CONTEXT = ResponseContext(Request("anthropic_messages", "m", ()), "x", 1, "m")


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
        (
            [frame({"type": "content_block_stop"}), frame({"type": "message_stop"})],
            Usage(),
            True,
            False,
        ),
        ([frame({"type": "message_stop"})], Usage(), False, False),
        ([frame({"type": "error", "error": {}})], Usage(), False, True),
        (
            [
                frame({"type": "ping"}),
                frame({"type": "message_delta"}),
                frame({"type": "odd"}),
            ],
            Usage(),
            False,
            False,
        ),
        ([frame({"type": "message_start"})], Usage(), False, False),
        (
            [frame({"type": "message_start", "message": {"stop_reason": "tool_use"}})],
            Usage(),
            True,
            False,
        ),
        ([Frame(b"message_stop", b"{"), Frame(b"", b"[]")], Usage(), False, False),
        ([frame({"type": "content_block_start", "message_stop": 1}, "")], Usage(), False, False),
        ([frame({"type": "message_delta", "delta": {"stop_reason": None}})], Usage(), False, False),
    ],
)
def test_usage_end_and_error(frames: list[Frame], usage: Usage, ended: bool, failed: bool) -> None:
    observer = SPEC.observer(CONTEXT)
    for one in frames:
        observer.observe(one)
    assert (observer.usage, observer.ended, observer.error is not None) == (usage, ended, failed)


@pytest.mark.parametrize(
    ("one", "last"),
    [
        (DELTA, False),
        (frame({"type": "message_stop"}), True),
        (frame({"type": "error", "error": {}}), True),
    ],
)
def test_the_last_frame_finishes_the_stream(one: Frame, last: bool) -> None:
    observer = SPEC.observer(CONTEXT)
    observer.observe(one)
    assert observer.stream_finished is last
    assert any(mark in one.data for mark in (*SPEC.end_markers, b"error")) is last


FIRST_CONTENT: list[tuple[Frame, bool]] = [
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
    (
        frame({"type": "content_block_delta", "delta": {"type": "text_delta", "text": "a"}}, ""),
        True,
    ),
    (frame({"type": "content_block_stop", "index": 0}), False),
    (frame({"type": "content_block_delta", "delta": "a"}), False),
    (Frame(b"content_block_delta", b"[]"), False),
    (Frame(b"content_block_delta", b"{"), True),  # a relay does not judge
]


def test_r5_content_starts_with_the_first_text(subtests: pytest.Subtests) -> None:
    for one, content_started in FIRST_CONTENT:
        with subtests.test(content_started=content_started):
            observer = SPEC.observer(CONTEXT)
            observer.observe(one)
            assert observer.content_started is content_started


def test_f8_an_error_event_is_the_error_of_the_stream() -> None:
    observer = SPEC.observer(CONTEXT)
    observer.observe(frame({"type": "error", "error": {"type": "overloaded_error", "message": "busy"}}))
    assert observer.error == WireError(ErrorKind.OVERLOADED, "busy", type="overloaded_error")


def test_an_error_that_only_the_event_line_names() -> None:
    one = Frame(b"error", b'{"message":"oops","type":"server_error"}')
    observer, error = SPEC.observer(CONTEXT), WireError(ErrorKind.SERVER, "oops", type="server_error")
    observer.observe(one)
    assert observer.error == error
    assert list(SPEC.stream_reader(CONTEXT, Ledger()).read(one)) == [Failed(error)]


def test_fail_returns_an_error_event() -> None:
    data = SPEC.observer(CONTEXT).fail(WireError(ErrorKind.TRUNCATED, "cut"))
    assert data == (
        b'event: error\ndata: {"type":"error","error":{"type":"api_error","message":"cut"},"request_id":"x"}\n\n'
    )
