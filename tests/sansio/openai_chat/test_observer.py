"""The observer of a relayed stream: its usage, end and error."""

from __future__ import annotations

import msgspec
import pytest

from dragoman._ir.events import (
    Usage,
)
from dragoman._ir.request import Request
from dragoman._wire.errors import ErrorKind, WireError
from dragoman._wire.sse import Frame
from dragoman.codec import RelayObserver, ResponseContext
from dragoman.protocols.openai_chat import SPEC

CONTENT = b'{"choices":[{"delta":{"content":"a"},"finish_reason":null}]}'
GOING = b'{"choices":[{"index":0,"delta":{"content":"\\"usage\\":{ \\"error\\""},"finish_reason":null}]}'


def observer() -> RelayObserver:
    return SPEC.observer(ResponseContext(Request("openai_chat", "m", ()), "X1", 1, "m"))


@pytest.mark.parametrize(
    ("frames", "ended", "failed", "usage"),
    [
        ([GOING], False, False, Usage()),
        ([GOING, b"[DONE]"], True, False, Usage()),
        ([b"[DONE]"], False, False, Usage()),
        ([b'{"choices":[],"prompt_filter_results":[]}', b"[DONE]"], False, False, Usage()),
        ([b'{"choices":[{"delta":{},"finish_reason":"stop"}]}'], True, False, Usage()),
        ([b'{"choices":[{"delta":{}}, 5]}'], False, False, Usage()),
        ([b'{"choices":[{"delta":{},"finish_reason":"error"}]}'], True, True, Usage()),
        ([b'{"error":{"message":"x"}}'], False, True, Usage()),
        ([b'{"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":2}}'], False, False, Usage(1, 2)),
        (
            [
                b'{"choices":[{"finish_reason":null}],"usage":{"prompt_tokens":1}}',
                b'{"usage":{"completion_tokens":2}}',
            ],
            False,
            False,
            Usage(1, 2),
        ),
        ([b'{"choices":[{"finish_reason":null}],"usage":null}'], False, False, Usage()),
        ([b"{", b"5", b'{"choices":5}'], False, False, Usage()),
        ([CONTENT, GOING, CONTENT, b'{"choices":[],"usage":{"prompt_tokens":1}}'], False, False, Usage(1)),
    ],
)
def test_observe(frames: list[bytes], ended: bool, failed: bool, usage: Usage) -> None:
    observed = observer()
    for data in frames:
        observed.observe(Frame(b"", data))
    assert (observed.ended, observed.error is not None, observed.usage) == (ended, failed, usage)


@pytest.mark.parametrize(
    ("data", "last"),
    [(b"[DONE]", True), (b'{"choices":[{"delta":{},"finish_reason":"stop"}]}', False), (b'"[DONE]"', False)],
)
def test_only_done_is_the_last_frame(data: bytes, last: bool) -> None:
    observed = observer()
    observed.observe(Frame(b"", data))
    assert observed.stream_finished is last
    assert not last or any(mark in data for mark in SPEC.end_markers)


FIRST_CONTENT: list[tuple[bytes, bool]] = [
    (b'{"role":"assistant"}', False),
    (b'{"role":"assistant","content":""}', False),
    (b'{"role":"assistant","content":null,"refusal":null}', False),
    (b"{}", False),
    (b"null", False),
    (b'{"content":"a"}', True),
    (b'{"reasoning_content":"a"}', True),
    (b'{"tool_calls":[{"index":0}]}', True),
]


def test_r5_a_response_starts_with_its_first_content(subtests: pytest.Subtests) -> None:
    for delta, content_started in FIRST_CONTENT:
        with subtests.test(delta=delta, content_started=content_started):
            observed = observer()
            observed.observe(
                Frame(b"", b'{"choices":[{"index":0,"delta":' + delta + b',"finish_reason":null}]}')
            )
            assert observed.content_started is content_started


def test_f8_the_first_error_in_a_stream_counts() -> None:
    observed = observer()
    observed.observe(Frame(b"", b'{"error":{"message":"slow down","type":"rate_limit_error","code":429}}'))
    observed.observe(Frame(b"", b'{"error":{"message":"again"}}'))
    assert observed.error is not None
    assert (observed.error.kind, observed.error.message) == (ErrorKind.RATE_LIMIT, "slow down")


def test_an_error_event_is_a_failure_whatever_it_holds() -> None:
    observed = observer()
    observed.observe(Frame(b"error", b"gone"))
    assert observed.error is not None
    assert observed.error.message == "gone"


def test_fail_returns_an_official_error_frame() -> None:
    frame = observer().fail(WireError(ErrorKind.TRUNCATED, "cut"))
    assert frame.startswith(b"data: ")
    assert frame.endswith(b"\n\n")
    assert msgspec.json.decode(frame[6:])["error"]["code"] == "upstream_truncated"
