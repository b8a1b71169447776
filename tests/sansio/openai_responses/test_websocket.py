"""The messages of a WebSocket: which event each of them is, whatever heartbeats and errors stand among the events."""

# ruff: noqa: E501 -- the tables are read by row

import json
from typing import Any

import pytest

from dragoman._wire.framing import JSON_SEQUENCE
from dragoman.codec import ResponseContext
from dragoman.document import Request
from dragoman.protocols import PROTOCOLS
from dragoman.sse import Frame

SPEC = PROTOCOLS["openai_responses"].websocket
CONTEXT = ResponseContext(
    request=Request("openai_responses", "m", messages=()), id="ours", now=1, model="m", endpoint=SPEC.endpoint
)
HEARTBEAT = SPEC.endpoint.heartbeat_for(CONTEXT)


def event(kind: str, number: int | None, id: str | None = None, **more: Any) -> bytes:
    members: dict[str, Any] = {"type": kind} | ({} if number is None else {"sequence_number": number})
    if id is not None:
        members["response"] = {"id": id, "error": None}
    return b"\x1e%b\n" % json.dumps({**members, **more}, separators=(",", ":")).encode()


CREATED = event("response.created", 0, "up")
PROGRESS = event("response.in_progress", 1, "up")
DELTA = event("response.output_text.delta", 2, delta="x")
COMPLETED = event("response.completed", 3, "up")
ERROR = event("error", 3, code="rate_limit_exceeded", message="slow down")
FAILED = event("response.failed", 4, "up")

# What goes in, and what comes out: type without its prefix, number, id of the response.
CASES: dict[str, tuple[list[bytes], list[tuple[str, int | None, str | None]]]] = {
    "a response": ([CREATED, PROGRESS, DELTA, COMPLETED], [("created", 0, "up"), ("in_progress", 1, "up"), ("output_text.delta", 2, None), ("completed", 3, "up")]),
    "silence before it begins": (
        [HEARTBEAT, HEARTBEAT, CREATED, PROGRESS, DELTA, COMPLETED],
        [
            ("created", 0, "resp_ours"),
            ("in_progress", 1, "resp_ours"),
            ("in_progress", 2, "resp_ours"),
            ("output_text.delta", 3, None),
            ("completed", 4, "resp_ours"),
        ],
    ),
    "silence within": (
        [CREATED, HEARTBEAT, DELTA, COMPLETED],
        [
            ("created", 0, "up"),
            ("in_progress", 1, "up"),
            ("output_text.delta", 2, None),
            ("completed", 3, "up"),
        ],
    ),
    "silence, then a failure": ([HEARTBEAT, CREATED, ERROR, FAILED], [("created", 0, "resp_ours"), ("failed", 1, "resp_ours")]),
    "an error before the failure that it is": ([CREATED, DELTA, ERROR, FAILED], [("created", 0, "up"), ("output_text.delta", 1, None), ("failed", 2, "up")]),
    "an error alone": ([CREATED, ERROR], [("created", 0, "up"), ("error", None, None)]),
    "no numbers, no ids": ([event("response.created", None, response={"error": None}), DELTA], [("created", 0, None), ("output_text.delta", 1, None)]),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_messages(name: str) -> None:
    incoming, expected = CASES[name]
    writer = SPEC.writer()
    first, *others = incoming
    messages = [*writer.send(first), *writer.send(b"".join(others)), *writer.end()]
    out = [json.loads(message) for message in messages]
    assert [
        (
            each["type"].removeprefix("response."),
            each.get("sequence_number"),
            each.get("response", {}).get("id"),
        )
        for each in out
    ] == expected


def test_what_has_its_number_and_id_keeps_its_bytes() -> None:
    writer = SPEC.writer()
    broken = b'{"type":"error"'
    spaced = b'{ "type" : "response.output_text.delta", "sequence_number": 0, "n": 1.0 }'
    completed = b'{"type":"response.completed","sequence_number":1,"response":{"id":"up","n":1.0}}'
    for each in (broken, spaced, completed):
        assert writer.send(b"\x1e" + each + b"\n") == [each]
    assert writer.end() == []


def test_an_error_has_a_status() -> None:
    writer = SPEC.writer()
    assert writer.send(ERROR) == []
    (message,) = writer.end()
    error = {"message": "slow down", "type": "rate_limit_error", "param": None, "code": "rate_limit_exceeded"}
    assert json.loads(message) == {"type": "error", "status": 429, "error": error, "headers": {}}


@pytest.mark.parametrize(
    ("data", "written"),
    [
        (b'{"a":1}', b'\x1e{"a":1}\n'),
        (b' {"a":\n1} ', b'\x1e{"a":\n1}\n'),
        (b'{"a":"\x1e"}', b'\x1e{"a":""}\n'),  # no JSON, and no second text
        (b"[DONE]", b""),
    ],
)
def test_a_sequence_has_each_object_behind_a_separator(data: bytes, written: bytes) -> None:
    writer = JSON_SEQUENCE.writer()
    assert writer.send(Frame(b"", data)) + writer.eof() == written
