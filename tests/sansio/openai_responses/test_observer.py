"""A relayed Responses stream: its usage, its end and its failures."""

import json
from typing import Any

import pytest
from oracle.types import check_event

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
ERROR = WireError(ErrorKind.TRUNCATED, "cut")


def relayed(kind: str, number: int | None = 0, *, named: bool = True, **fields: Any) -> Frame:
    payload: dict[str, Any] = {"type": kind, **fields}
    if number is not None:
        payload["sequence_number"] = number
    return Frame(kind.encode() if named else b"", encode(payload))


def payloads(data: bytes) -> list[dict[str, Any]]:
    lines = [line[6:] for line in data.decode().split("\n") if line.startswith("data: ")]
    assert [problem for line in lines for problem in check_event(ORIGIN, line)] == []
    return [json.loads(line) for line in lines]


@pytest.mark.parametrize("odd", [b'"temperature":NaN', b'"model":"\xff"'])
def test_an_end_that_only_lenient_clients_can_read_is_an_end(odd: bytes) -> None:
    observer = SPEC.observer(CONTEXT)
    data = b'{"type":"response.completed","response":{"id":"resp_up","status":"completed",%b}}' % odd
    observer.observe(Frame(b"response.completed", data))
    assert (observer.ended, observer.stream_finished, observer.error) == (True, True, None)


def test_a_relayed_stream_that_breaks_off_is_closed_under_its_own_id() -> None:
    observer = SPEC.observer(CONTEXT)
    observer.observe(relayed("response.created", response=HEAD))
    observer.observe(relayed("response.output_text.delta", 41, delta="a"))
    failing, failed = payloads(observer.fail(ERROR))
    assert (failing["type"], failing["sequence_number"], failing["message"]) == ("error", 42, "cut")
    assert (failed["type"], failed["sequence_number"]) == ("response.failed", 43)
    expected = {**HEAD, "status": "failed", "error": {"code": "server_error", "message": "cut"}}
    assert failed["response"] == expected
    assert observer.whole_body == failed["response"]


def test_behind_a_failed_response_no_other_follows() -> None:
    observer = SPEC.observer(CONTEXT)
    observer.observe(relayed("response.failed", response=HEAD))
    assert observer.fail(ERROR) == b""


def test_a_relayed_stream_that_never_began() -> None:
    found = payloads(SPEC.observer(CONTEXT).fail(ERROR))
    expected = [("response.created", 0), ("error", 1), ("response.failed", 2)]
    assert [(p["type"], p["sequence_number"]) for p in found] == expected


@pytest.mark.parametrize("last", [b"{", b"[]", b'{"type":["x"]}', b'{"type":"keepalive"}', b"[DONE]"])
def test_frames_without_a_number_do_not_count(last: bytes) -> None:
    """How many of them an observer gets follows from how the bytes were cut."""
    for before, numbers in ((b'{"type":"x","sequence_number":7}', [8, 9]), (b'{"type":"x"}', [0, 1])):
        observer = SPEC.observer(CONTEXT)
        for data in (before, last):
            observer.observe(Frame(b"", data))
        assert [p["sequence_number"] for p in payloads(observer.fail(ERROR))] == numbers
