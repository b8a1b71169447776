"""Errors: bodies in, faults out, and back; and the end of a relayed stream."""

from __future__ import annotations

import json
from typing import Any, get_args

import pytest
from openai.types.responses import ResponseError
from oracle.types import check_error_body, check_event

from dragoman._ir.events import Usage
from dragoman._ir.request import Request
from dragoman._wire.errors import STATUS_BY_KIND, ErrorKind, WireError
from dragoman._wire.json import encode
from dragoman._wire.sse import Frame
from dragoman.codec import ResponseContext
from dragoman.protocols.openai_responses import SPEC
from dragoman.protocols.openai_responses.errors import error_object, response_error
from dragoman.protocols.openai_responses.tables import ERRORS, RESPONSE_ERROR_CODES

ORIGIN = "openai_responses"
K = ErrorKind


def error(
    code: str | None = None, sort: str = "invalid_request_error", message: str = "m", **more: Any
) -> bytes:
    return encode({"error": {"message": message, "type": sort, "param": None, "code": code, **more}})


BODIES: list[tuple[int, bytes, WireError]] = [
    (
        400,
        error("unsupported_value", param="input"),
        WireError(K.INVALID_REQUEST, "m", 400, "unsupported_value", "invalid_request_error", "input"),
    ),
    (
        400,
        error("model_not_found"),
        WireError(K.INVALID_REQUEST, "m", 400, "model_not_found", "invalid_request_error"),
    ),
    (
        404,
        error("model_not_found"),
        WireError(K.NOT_FOUND, "m", 404, "model_not_found", "invalid_request_error"),
    ),
    (
        401,
        error("invalid_api_key"),
        WireError(K.AUTHENTICATION, "m", 401, "invalid_api_key", "invalid_request_error"),
    ),
    (
        400,
        error("context_length_exceeded"),
        WireError(K.CONTEXT_LENGTH, "m", 400, "context_length_exceeded", "invalid_request_error"),
    ),
    (
        400,
        error(None, message="Your input exceeds the context window of this model."),
        WireError(
            K.CONTEXT_LENGTH,
            "Your input exceeds the context window of this model.",
            400,
            None,
            "invalid_request_error",
        ),
    ),
    (
        400,
        error(None, message="Your credit balance is too low"),
        WireError(K.BILLING, "Your credit balance is too low", 400, None, "invalid_request_error"),
    ),
    (
        413,
        error(None, message="prompt is too long"),
        WireError(K.CONTEXT_LENGTH, "prompt is too long", 413, None, "invalid_request_error"),
    ),
    (
        429,
        error("rate_limit_exceeded", "tokens"),
        WireError(K.RATE_LIMIT, "m", 429, "rate_limit_exceeded", "tokens"),
    ),
    (
        429,
        error("insufficient_quota", "insufficient_quota"),
        WireError(K.BILLING, "m", 429, "insufficient_quota", "insufficient_quota"),
    ),
    # DeepSeek's code is its type.
    (
        401,
        error("invalid_request_error", "authentication_error"),
        WireError(K.AUTHENTICATION, "m", 401, "invalid_request_error", "authentication_error"),
    ),
    (
        402,
        error("invalid_request_error", "unknown_error"),
        WireError(K.BILLING, "m", 402, "invalid_request_error", "unknown_error"),
    ),
    (429, error(None, "insufficient_quota"), WireError(K.BILLING, "m", 429, None, "insufficient_quota")),
    (
        400,
        error("image_too_large"),
        WireError(K.INVALID_REQUEST, "m", 400, "image_too_large", "invalid_request_error"),
    ),
    (500, error(None, "server_error"), WireError(K.SERVER, "m", 500, None, "server_error")),
    (529, error(None, "overloaded_error"), WireError(K.OVERLOADED, "m", 529, None, "overloaded_error")),
    (
        400,
        b'{"code":"invalid-argument","error":"no such key"}',
        WireError(K.INVALID_REQUEST, "no such key", 400, "invalid-argument"),
    ),
    (422, b'{"detail":[{"loc":["body"]}]}', WireError(K.UNPROCESSABLE, '[{"loc":["body"]}]', 422)),
    (401, b'{"detail":"Unauthorized"}', WireError(K.AUTHENTICATION, "Unauthorized", 401)),
    (
        500,
        b'{"error":{"message":"","code":3}}',
        WireError(K.SERVER, "the upstream answered with status 500", 500, "3"),
    ),
    (404, b'"not here"', WireError(K.NOT_FOUND, "not here", 404)),
    (
        502,
        b"<html>Bad gateway</html>",
        WireError(K.UNREACHABLE, "the upstream answered with status 502 and no readable message", 502),
    ),
    (
        500,
        b"\xff\xfe",
        WireError(K.SERVER, "the upstream answered with status 500 and no readable message", 500),
    ),
    (503, b"upstream is busy\n", WireError(K.OVERLOADED, "upstream is busy", 503)),
    (500, b"", WireError(K.SERVER, "the upstream answered with status 500 and no readable message", 500)),
    (500, b"x" * 3000, WireError(K.SERVER, "x" * 2000, 500)),
]


@pytest.mark.promise("S18")
@pytest.mark.parametrize(("status", "body", "error"), BODIES)
def test_error_bodies_of_all_shapes(status: int, body: bytes, error: WireError) -> None:
    assert SPEC.read_error(status, body) == error


@pytest.mark.parametrize(
    ("body", "is_one"),
    [
        (error(), True),
        (b'{"error":"x"}', False),
        (b'{"error":{}}', False),
        (b"[]", False),
        (b"<html>", False),
    ],
)
def test_which_bodies_clients_can_read(body: bytes, is_one: bool) -> None:
    assert SPEC.is_native_error(body) is is_one


@pytest.mark.parametrize("kind", ErrorKind)
def test_every_kind_has_a_body_and_a_legal_code(kind: ErrorKind) -> None:
    error = WireError(kind, "m")
    status, body = SPEC.write_error(error, "req_1")
    assert check_error_body(ORIGIN, body) == []
    assert status == {402: 429}.get(STATUS_BY_KIND[kind], STATUS_BY_KIND[kind])
    sort, code = ERRORS[kind]
    assert json.loads(body)["error"] == {"message": "m", "type": sort, "param": None, "code": code}
    ResponseError.model_validate(response_error(error))


def test_the_list_of_codes_is_the_vendors() -> None:
    assert frozenset(get_args(ResponseError.model_fields["code"].annotation)) == RESPONSE_ERROR_CODES


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (WireError(K.OVERLOADED, "m", 529), 503),
        (WireError(K.BILLING, "m", 402), 429),
        (WireError(K.TIMEOUT, "m", 408), 408),
        (WireError(K.SERVER, "m", 200), 500),
    ],
)
def test_statuses(error: WireError, status: int) -> None:
    assert SPEC.write_error(error, None)[0] == status


def test_a_senders_code_is_kept_where_clients_do_not_act_on_another() -> None:
    assert error_object(WireError(K.INVALID_REQUEST, "m", code="odd", param="input"))["code"] == "odd"
    assert error_object(WireError(K.CONTEXT_LENGTH, "m", code="odd"))["code"] == "context_length_exceeded"
    assert (
        response_error(WireError(K.INVALID_REQUEST, "m", code="image_too_large"))["code"] == "image_too_large"
    )
    # Not in the closed list, and only this member of it makes agents give up at once.
    assert (
        response_error(WireError(K.CONTEXT_LENGTH, "m", code="context_length_exceeded"))["code"]
        == "invalid_prompt"
    )


# A relayed stream.

EXCHANGE = ResponseContext(Request(ORIGIN, "alias", (), {}), "x1", 7, "alias")
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
FAULT = WireError(K.TRUNCATED, "cut")


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
def test_the_tap_sees_how_a_relayed_stream_ends(named: bool) -> None:
    observer = SPEC.observer(EXCHANGE)
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
def test_the_tap_knows_the_last_frame(kind: str, last: bool) -> None:
    observer = SPEC.observer(EXCHANGE)
    one = relayed(kind, 1, response=HEAD)
    observer.observe(one)
    assert observer.stream_finished is last
    assert any(mark in one.data for mark in SPEC.end_markers)


@pytest.mark.parametrize("kind", ["response.completed", "response.incomplete", "response.failed", "error"])
def test_the_name_of_an_event_whose_data_were_cut_ends_nothing(kind: str) -> None:
    observer = SPEC.observer(EXCHANGE)
    observer.observe(Frame(kind.encode(), b'{"type":"response.compl'))
    assert (observer.ended, observer.error is not None, observer.whole_body) == (False, False, None)


@pytest.mark.parametrize("kind", ["error", "response.failed", "response.cancelled"])
def test_the_tap_sees_failures(kind: str) -> None:
    observer = SPEC.observer(EXCHANGE)
    observer.observe(relayed(kind, 1))
    assert (observer.ended, observer.error is not None, observer.whole_body) == (False, True, None)


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize(
    ("kind", "fields", "content_started"),
    [
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
    ],
)
def test_r5_an_answer_begins_with_its_first_content(
    kind: str, fields: dict[str, Any], content_started: bool, named: bool
) -> None:
    observer = SPEC.observer(EXCHANGE)
    observer.observe(relayed(kind, 1, named=named, output_index=0, **fields))
    assert observer.content_started is content_started


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        ("error", {"code": "rate_limit_exceeded", "message": "slow"}),
        ("response.failed", {"response": {"error": {"code": "rate_limit_exceeded", "message": "slow"}}}),
    ],
)
def test_f8_an_error_in_the_stream_is_told_apart(kind: str, fields: dict[str, Any]) -> None:
    observer = SPEC.observer(EXCHANGE)
    observer.observe(relayed(kind, 1, **fields))
    observer.observe(relayed("response.failed", 2))
    assert observer.error is not None
    assert (observer.error.kind, observer.error.message) == (ErrorKind.RATE_LIMIT, "slow")


@pytest.mark.parametrize("status", ["failed", "cancelled"])
def test_the_tap_sees_the_whole_of_an_answer_that_failed(status: str) -> None:
    observer = SPEC.observer(EXCHANGE)
    observer.observe(relayed("response.created", response=HEAD))
    observer.observe(relayed("error", 1))
    assert observer.whole_body is None
    observer.observe(relayed(f"response.{status}", 2, response={**HEAD, "status": status}))
    assert observer.whole_body == {**HEAD, "status": status}


def test_a_relayed_stream_that_breaks_off_is_closed_under_its_own_id() -> None:
    observer = SPEC.observer(EXCHANGE)
    observer.observe(relayed("response.created", response=HEAD))
    observer.observe(relayed("response.output_text.delta", 41, delta="a"))
    failing, failed = payloads(observer.fail(FAULT))
    assert (failing["type"], failing["sequence_number"], failing["message"]) == ("error", 42, "cut")
    assert (failed["type"], failed["sequence_number"]) == ("response.failed", 43)
    assert failed["response"] == {
        **HEAD,
        "status": "failed",
        "error": {"code": "server_error", "message": "cut"},
    }
    assert observer.whole_body == failed["response"]


def test_a_relayed_stream_that_never_began() -> None:
    found = payloads(SPEC.observer(EXCHANGE).fail(FAULT))
    assert [(p["type"], p["sequence_number"]) for p in found] == [
        ("response.created", 0),
        ("error", 1),
        ("response.failed", 2),
    ]


@pytest.mark.parametrize("last", [b"{", b"[]", b'{"type":["x"]}', b'{"type":"keepalive"}', b"[DONE]"])
def test_frames_that_say_nothing_do_not_disturb(last: bytes) -> None:
    observer = SPEC.observer(EXCHANGE)
    observer.observe(Frame(b"", last))
    assert [p["sequence_number"] for p in payloads(observer.fail(FAULT))] == [1, 2]
