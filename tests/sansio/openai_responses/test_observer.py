"""A relayed Responses stream: its usage, its end and its failures."""

from __future__ import annotations

import json
from typing import Any

import pytest
from oracle.types import check_event

from dragoman._ir.events import Usage
from dragoman._ir.request import Request
from dragoman._wire.errors import ErrorKind, WireError
from dragoman._wire.json import encode
from dragoman._wire.sse import Frame
from dragoman.codec import ResponseContext
from dragoman.protocols.openai_responses import SPEC

ORIGIN = "openai_responses"


CONTEXT = ResponseContext(Request(ORIGIN, "alias", ()), "x1", 7, "alias")
HEAD: dict[str, Any] = {
    "id": "resp_up",
    "object": "response",
    "created_at": 5,
    "model": "gpt",
    "status": "in_progress",
    "output": [],
    "tools": [],
    "tool_choice": "auto",
    "parallel_tool_calls": True,
    "error": None,
    "incomplete_details": None,
    "instructions": None,
    "metadata": {},
    "temperature": None,
    "top_p": None,
    "access_programs": None,
}
USAGE = {"input_tokens": 3, "output_tokens": 2, "input_tokens_details": {"cached_tokens": 1}}
ERROR = WireError(ErrorKind.TRUNCATED, "cut")


MESSAGE = {"type": "message", "id": "msg_1", "role": "assistant", "status": "in_progress"}


def relayed(kind: str, number: int | None = 0, *, named: bool = True, **fields: Any) -> Frame:
    payload: dict[str, Any] = {"type": kind, **fields}
    if number is not None:
        payload["sequence_number"] = number
    return Frame(kind.encode() if named else b"", encode(payload))


def payloads(data: bytes) -> list[dict[str, Any]]:
    lines = [line[6:] for line in data.decode().split("\n") if line.startswith("data: ")]
    assert [problem for line in lines for problem in check_event(ORIGIN, line)] == []
    return [json.loads(line) for line in lines]


@pytest.mark.parametrize("named", [True, False])
def test_the_end_of_a_relayed_stream(named: bool) -> None:
    observer = SPEC.observer(CONTEXT)
    observer.observe(relayed("response.created", response=HEAD, named=named))
    observer.observe(relayed("response.output_text.delta", 1, delta="a", named=named))
    assert (observer.ended, observer.error is not None, observer.usage, observer.whole_body) == (
        False,
        False,
        Usage(),
        None,
    )
    whole = {**HEAD, "status": "completed", "usage": USAGE}
    observer.observe(relayed("response.completed", 2, response=whole, named=named))
    assert (observer.ended, observer.error is not None, observer.usage, observer.whole_body) == (
        True,
        False,
        Usage(3, 2, 1),
        whole,
    )


@pytest.mark.parametrize(
    ("kind", "last"),
    [
        ("response.completed", True),
        ("response.incomplete", True),
        ("response.failed", True),
        ("response.cancelled", True),
        ("response.created", False),
    ],
)
def test_the_last_frame(kind: str, last: bool) -> None:
    observer = SPEC.observer(CONTEXT)
    one = relayed(kind, 1, response=HEAD)
    observer.observe(one)
    assert observer.stream_finished is last
    assert any(mark in one.data for mark in SPEC.end_markers)


@pytest.mark.parametrize("odd", [b'"temperature":NaN', b'"model":"\xff"'])
def test_an_end_that_only_lenient_clients_can_read_is_an_end(odd: bytes) -> None:
    observer = SPEC.observer(CONTEXT)
    data = b'{"type":"response.completed","response":{"id":"resp_up","status":"completed",%b}}' % odd
    observer.observe(Frame(b"response.completed", data))
    assert (observer.ended, observer.stream_finished, observer.error) == (True, True, None)


@pytest.mark.parametrize("kind", ["response.completed", "response.incomplete", "response.failed", "error"])
def test_an_event_whose_data_was_cut_is_no_end(kind: str) -> None:
    observer = SPEC.observer(CONTEXT)
    observer.observe(Frame(kind.encode(), b'{"type":"response.compl'))
    assert (observer.ended, observer.error is not None, observer.whole_body) == (False, False, None)


@pytest.mark.parametrize("kind", ["error", "response.failed", "response.cancelled"])
def test_failures(kind: str) -> None:
    observer = SPEC.observer(CONTEXT)
    observer.observe(relayed(kind, 1))
    assert (observer.ended, observer.error is not None, observer.whole_body) == (False, True, None)


FIRST_CONTENT: list[tuple[str, dict[str, Any], bool]] = [
    ("response.created", {}, False),
    ("response.in_progress", {}, False),
    ("response.queued", {}, False),
    ("error", {"message": "no"}, False),
    ("response.failed", {}, False),
    ("response.output_item.added", {"item": {**MESSAGE, "content": []}}, False),
    ("response.output_item.added", {"item": {"type": "reasoning", "id": "rs_1", "summary": []}}, False),
    (
        "response.output_item.added",
        {"item": {"type": "function_call", "name": "f", "arguments": ""}},
        True,
    ),
    (
        "response.content_part.added",
        {"part": {"type": "output_text", "text": "", "annotations": []}},
        False,
    ),
    ("response.output_text.delta", {"delta": "", "obfuscation": "xyz"}, False),
    ("response.output_text.delta", {"delta": "a"}, True),
    (
        "response.output_item.done",
        {"item": {**MESSAGE, "content": [{"type": "output_text", "text": "a"}]}},
        True,
    ),
]


def test_r5_a_response_begins_with_its_first_content(subtests: pytest.Subtests) -> None:
    for named in [True, False]:
        for kind, fields, content_started in FIRST_CONTENT:
            with subtests.test(named=named, kind=kind, content_started=content_started):
                observer = SPEC.observer(CONTEXT)
                observer.observe(relayed(kind, 1, named=named, output_index=0, **fields))
                assert observer.content_started is content_started


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        ("error", {"code": "rate_limit_exceeded", "message": "slow"}),
        ("response.failed", {"response": {"error": {"code": "rate_limit_exceeded", "message": "slow"}}}),
    ],
)
def test_f8_an_error_in_the_stream_has_its_kind(kind: str, fields: dict[str, Any]) -> None:
    observer = SPEC.observer(CONTEXT)
    observer.observe(relayed(kind, 1, **fields))
    observer.observe(relayed("response.failed", 2))
    assert observer.error is not None
    assert (observer.error.kind, observer.error.message) == (ErrorKind.RATE_LIMIT, "slow")


@pytest.mark.parametrize("status", ["failed", "cancelled"])
def test_the_whole_body_of_a_failed_response(status: str) -> None:
    observer = SPEC.observer(CONTEXT)
    observer.observe(relayed("response.created", response=HEAD))
    observer.observe(relayed("error", 1))
    assert observer.whole_body is None
    observer.observe(relayed(f"response.{status}", 2, response={**HEAD, "status": status}))
    assert observer.whole_body == {**HEAD, "status": status}


def test_a_relayed_stream_that_breaks_off_is_closed_under_its_own_id() -> None:
    observer = SPEC.observer(CONTEXT)
    observer.observe(relayed("response.created", response=HEAD))
    observer.observe(relayed("response.output_text.delta", 41, delta="a"))
    failing, failed = payloads(observer.fail(ERROR))
    assert (failing["type"], failing["sequence_number"], failing["message"]) == ("error", 42, "cut")
    assert (failed["type"], failed["sequence_number"]) == ("response.failed", 43)
    assert failed["response"] == {
        **HEAD,
        "status": "failed",
        "error": {"code": "server_error", "message": "cut"},
    }
    assert observer.whole_body == failed["response"]


def test_a_relayed_stream_that_never_began() -> None:
    found = payloads(SPEC.observer(CONTEXT).fail(ERROR))
    assert [(p["type"], p["sequence_number"]) for p in found] == [
        ("response.created", 0),
        ("error", 1),
        ("response.failed", 2),
    ]


@pytest.mark.parametrize("last", [b"{", b"[]", b'{"type":["x"]}', b'{"type":"keepalive"}', b"[DONE]"])
def test_frames_without_a_number_are_counted(last: bytes) -> None:
    observer = SPEC.observer(CONTEXT)
    observer.observe(Frame(b"", last))
    assert [p["sequence_number"] for p in payloads(observer.fail(ERROR))] == [1, 2]
