"""The start, the end, failures and losses of a Responses response: frames or a body in, events out."""

from __future__ import annotations

from typing import Any

import pytest
from responses_upstream import (
    ADDED,
    BARE_FINAL,
    CALL,
    CALL_ADDED,
    CALL_START,
    CALL_TAIL,
    CONTEXT,
    COUNTED,
    CUT,
    ENCRYPTED,
    HEAD,
    ORIGIN,
    REASONING,
    REASONING_ADDED,
    SEARCH,
    SIGNATURE_END,
    STARTED,
    THINKING,
    USAGE,
    arguments,
    created,
    delta,
    ended,
    event,
    events_of,
    message,
    reasoning_delta,
    summary,
    tail,
    text_part,
)

from dragoman._ir.events import (
    ENDED,
    ArgumentsDelta,
    BlockEnded,
    BlockKind,
    BlockStarted,
    Failed,
    Opaque,
    ReasoningDelta,
    ReasoningForm,
    Search,
    Source,
    Started,
    Stopped,
    StopReason,
    TextDelta,
    Usage,
)
from dragoman._ir.losses import Ledger
from dragoman._wire.errors import ErrorKind, WireError
from dragoman._wire.exceptions import RemoteProtocolError
from dragoman._wire.json import encode
from dragoman._wire.sse import Frame
from dragoman.protocols.openai_responses import SPEC

STOPS: list[tuple[dict[str, Any], Stopped]] = [
    (CUT, Stopped(StopReason.MAX_TOKENS, "max_output_tokens")),
    ({"incomplete_details": {"reason": "max_messages"}}, Stopped(StopReason.MAX_TOKENS, "max_messages")),
    (
        {"incomplete_details": {"reason": "content_filter"}},
        Stopped(StopReason.CONTENT_FILTER, "content_filter"),
    ),
    ({"incomplete_details": {"reason": "steered"}}, Stopped(StopReason.PAUSE, "steered")),
    ({"incomplete_details": {"reason": "odd"}}, Stopped(StopReason.MAX_TOKENS, "odd")),
    ({"incomplete_details": None}, Stopped(StopReason.MAX_TOKENS)),
]


@pytest.mark.parametrize(("fields", "stop"), STOPS)
def test_incomplete_responses(fields: dict[str, Any], stop: Stopped) -> None:
    assert events_of(created(), ended(status="incomplete", **fields)) == [STARTED, COUNTED, stop, ENDED]


def test_the_status_overrides_the_events_name() -> None:
    payload = {**ended(status="incomplete", **CUT), "type": "response.completed"}
    assert events_of(created(), payload)[-2] == Stopped(StopReason.MAX_TOKENS, "max_output_tokens")
    assert events_of(created(), {**ended(status="odd"), "type": "response.completed"}) == [STARTED, *tail()]


SEARCHES: list[tuple[Any, Search | None]] = [
    ({"type": "search", "query": "a"}, Search(("a",))),
    (
        {
            "type": "search",
            "query": "a",
            "queries": ["a", "b"],
            "sources": [{"type": "url", "url": "https://x"}, {"type": "api", "name": "n"}],
        },
        Search(("a", "b"), (Source("https://x"),)),
    ),
    ({"type": "open_page", "url": "https://x"}, None),
    (None, None),
]


@pytest.mark.parametrize(("action", "search"), SEARCHES)
def test_queries_and_sources_of_a_search(action: Any, search: Search | None) -> None:
    item = {"id": "ws_1", "type": "web_search_call", "status": "completed", "action": action}
    assert events_of(created(), event("output_item.done", item=item), ended(item))[1] == Opaque(
        ORIGIN, "web_search_call", item, "/output/0", search=search
    )


LOST_EVENTS: list[tuple[dict[str, Any], list[tuple[str, str]]]] = [
    (
        event("image_generation_call.partial_image", 1, partial_image_b64="aW1n", partial_image_index=0),
        [("dropped", "/output/1/partial_images")],
    ),
    ({"type": "response.audio.delta", "delta": "x"}, [("dropped", "/audio")]),
    ({"type": "response.tomorrow.delta", "delta": "x"}, [("unknown_kind", "")]),
    (event("tomorrow.delta", 2, delta="x"), [("unknown_kind", "/output/2")]),
    (event("code_interpreter_call_code.delta", 2, delta="x"), []),
    (event("apply_patch_call_operation_diff.delta", 2, delta="x"), []),
    ({"odd": 1}, []),
]


@pytest.mark.parametrize(("payload", "losses"), LOST_EVENTS)
def test_events_of_progress_are_no_loss_and_others_are(
    payload: dict[str, Any], losses: list[tuple[str, str]]
) -> None:
    ledger = Ledger()
    assert events_of(created(), payload, BARE_FINAL, ledger=ledger) == [STARTED, *tail()]
    assert [(loss.code.value, loss.path) for loss in ledger] == losses


SERVER = ErrorKind.SERVER
FAILURES: list[tuple[dict[str, Any], WireError]] = [
    (
        ended(status="failed", error={"code": "rate_limit_exceeded", "message": "slow"}),
        WireError(ErrorKind.RATE_LIMIT, "slow", code="rate_limit_exceeded"),
    ),
    (ended(status="failed"), WireError(SERVER, "the upstream reported an error")),
    *(
        (ended(status="failed", error={"code": code, "message": "m"}), WireError(kind, "m", code=code))
        for code, kind in (
            ("server_error", SERVER),
            ("server_is_overloaded", ErrorKind.OVERLOADED),
            ("insufficient_quota", ErrorKind.BILLING),
            ("invalid_prompt", ErrorKind.INVALID_REQUEST),
            ("bio_policy", ErrorKind.INVALID_REQUEST),
            ("vector_store_timeout", ErrorKind.TIMEOUT),
            ("image_too_large", ErrorKind.INVALID_REQUEST),
            ("context_length_exceeded", ErrorKind.CONTEXT_LENGTH),
        )
    ),
    (ended(status="cancelled"), WireError(ErrorKind.CANCELLED, "the response was cancelled at the upstream")),
    (
        {"type": "error", "code": "context_length_exceeded", "message": "too long", "param": "input"},
        WireError(ErrorKind.CONTEXT_LENGTH, "too long", code="context_length_exceeded", param="input"),
    ),
    (
        {"type": "error", "error": {"type": "server_error", "code": None, "message": "oops", "param": None}},
        WireError(SERVER, "oops", type="server_error"),
    ),
    ({"error": {"message": "oops", "code": 500}}, WireError(SERVER, "oops", 500)),
]


def test_failures(subtests: pytest.Subtests) -> None:
    for payload, error in FAILURES:
        with subtests.test(payload=payload):
            assert events_of(created(), payload) == [STARTED, Failed(error)]
            assert events_of(created(), payload, delta("late")) == [STARTED, Failed(error)]


def test_an_error_named_only_by_the_event_line() -> None:
    for data, error in (
        (b'{"message":"oops"}', WireError(SERVER, "oops")),
        (b'{"message":"oops","type":"server_error"}', WireError(SERVER, "oops", type="server_error")),
    ):
        reader, observer = SPEC.stream_reader(CONTEXT, Ledger()), SPEC.observer(CONTEXT)
        assert reader.read(Frame(b"error", data)) == (Failed(error),)
        observer.observe(Frame(b"error", data))
        assert observer.error == error


def test_the_end_of_the_stream_before_the_end_of_the_response_is_an_error() -> None:
    reader = SPEC.stream_reader(CONTEXT, Ledger())
    reader.read(Frame(b"", encode(created())))
    with pytest.raises(RemoteProtocolError) as caught:
        reader.eof()
    assert caught.value.status == 502


UNREADABLE_FRAMES: list[bytes] = [
    b"{",
    b"[]",
    b'{"type":"response.created"}',
    b'{"type":"response.completed","response":[]}',
    b"\xff",
]


def test_frames_that_cannot_be_read(subtests: pytest.Subtests) -> None:
    for data in UNREADABLE_FRAMES:
        for name in [b"", b"response.output_text.delta"]:
            with subtests.test(data=data, name=name):
                reader = SPEC.stream_reader(CONTEXT, Ledger())
                with pytest.raises(RemoteProtocolError) as caught:
                    reader.read(Frame(name, data))
                assert caught.value.status == 502


def test_a_start_with_fields_of_wrong_types() -> None:
    payload = {"type": "response.created", "response": {"id": 1, "model": None, "created_at": "now"}}
    assert events_of(payload, BARE_FINAL)[0] == Started("", "")
    assert events_of(ADDED, BARE_FINAL)[0] == Started("", "")


def test_service_tier_and_fractions_of_seconds() -> None:
    payload = {"type": "response.created", "response": {**HEAD, "created_at": 5.5, "service_tier": "flex"}}
    assert events_of(payload, BARE_FINAL)[0] == Started("resp_1", "gpt", 5, "flex")


@pytest.mark.parametrize(
    ("last", "usage", "expected"),
    [
        ("flex", USAGE, [COUNTED]),
        (None, USAGE, [COUNTED]),
        ("default", USAGE, [Usage(3, 2, service_tier="default")]),
        ("default", None, [Usage(service_tier="default")]),
        ("auto", USAGE, [COUNTED]),
        ("flex", None, []),
    ],
)
def test_another_service_tier_at_the_end_is_in_the_usage(
    last: str | None, usage: Any, expected: list[Usage]
) -> None:
    ledger = Ledger()
    payload = {"type": "response.created", "response": {**HEAD, "service_tier": "flex"}}
    events = events_of(payload, ended(service_tier=last, usage=usage), ledger=ledger)
    assert events[1:-2] == expected
    assert list(ledger) == []


# Whole responses.


def test_a_whole_response_is_read_like_the_end_of_a_stream() -> None:
    body = ended(ENCRYPTED, message(text_part("Hello")), {**CALL, "arguments": "{}"}, SEARCH)["response"]
    assert SPEC.read_whole(body, CONTEXT, Ledger()) == [
        STARTED,
        THINKING,
        reasoning_delta("ab"),
        reasoning_delta("c", 1),
        *SIGNATURE_END,
        BlockStarted(1, BlockKind.TEXT, item_id="msg_1"),
        TextDelta(1, "Hello"),
        BlockEnded(1),
        BlockStarted(2, BlockKind.TOOL_CALL, tool=CALL_START.tool, item_id="fc_1"),
        ArgumentsDelta(2, "{}"),
        BlockEnded(2),
        Opaque(ORIGIN, "web_search_call", SEARCH, "/output/3", search=Search(())),
        *CALL_TAIL,
    ]


def test_whole_responses_that_failed() -> None:
    failed = ended(status="failed", error={"code": "server_error", "message": "oops"})["response"]
    error = WireError(SERVER, "oops", code="server_error")
    assert SPEC.read_whole(failed, CONTEXT, Ledger()) == [STARTED, Failed(error)]
    assert list(
        SPEC.read_whole({"error": {"code": "server_error", "message": "oops"}}, CONTEXT, Ledger())
    ) == [Failed(error)]


@pytest.mark.parametrize("body", [{}, {"status": "in_progress", "output": []}, {"status": ["completed"]}])
def test_a_body_that_is_not_a_finished_response(body: dict[str, Any]) -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        SPEC.read_whole(body, CONTEXT, Ledger())
    assert caught.value.status == 502


# The fast path.

FAST_PATHS: list[tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = [
    (ADDED, delta("Hel"), ended(message(text_part("Hello")))),
    (CALL_ADDED, arguments("Hel"), ended({**CALL, "arguments": "Hello"})),
    (REASONING_ADDED, summary("Hel"), ended({**REASONING, "summary": [{"text": "Hello"}]})),
]


@pytest.mark.parametrize(("added", "first", "last"), FAST_PATHS)
def test_text_of_the_fast_path_is_not_emitted_again(
    added: dict[str, Any], first: dict[str, Any], last: dict[str, Any]
) -> None:
    reader = SPEC.stream_reader(CONTEXT, Ledger())
    for payload in (
        created(),
        event("output_item.added", 7, item={"id": "ws_1", "type": "web_search_call"}),
        added,
    ):
        reader.read(Frame(b"", encode(payload)))
    found = reader.read(Frame(b"", encode(first)))[-1]
    assert isinstance(found, (TextDelta, ArgumentsDelta, ReasoningDelta))
    hint = reader.template_for(found)
    assert hint is not None
    assert (hint.key, hint.number, hint.padding) == (b"delta", b"sequence_number", b"obfuscation")
    assert hint.on_texts is not None
    hint.on_texts(["l", "o"])
    after = reader.read(Frame(b"", encode(last)))
    assert [each for each in after if type(each) is type(found)] == []
    assert reader.template_for(found) is None


def test_reasoning_of_several_parts_has_no_fast_path() -> None:
    reader = SPEC.stream_reader(CONTEXT, Ledger())
    for payload in (created(), REASONING_ADDED, summary("a"), summary("b", 1)):
        reader.read(Frame(b"", encode(payload)))
    assert reader.template_for(ReasoningDelta(0, "b", 1, ReasoningForm.SUMMARY)) is None


def test_a_delta_for_an_item_of_another_kind_is_ignored() -> None:
    odd = event("output_text.delta", 1, content_index=0, delta="x")
    search = event("output_item.added", 1, item=SEARCH)
    assert events_of(created(), search, odd, event("output_item.done", 1, item=SEARCH), BARE_FINAL) == [
        STARTED,
        Opaque(ORIGIN, "web_search_call", SEARCH, "/output/1", search=Search(())),
        *tail(),
    ]


@pytest.mark.parametrize(
    ("added", "matching", "odd"),
    [
        (ADDED, delta("a"), [arguments("x"), summary("x")]),
        (REASONING_ADDED, summary("a"), [arguments("x"), delta("x")]),
        (CALL_ADDED, arguments("{}"), [delta("x"), summary("x")]),
    ],
)
def test_deltas_of_another_kind_are_not_put_into_an_item(
    added: dict[str, Any], matching: dict[str, Any], odd: list[dict[str, Any]]
) -> None:
    assert events_of(created(), added, matching, *odd, BARE_FINAL) == events_of(
        created(), added, matching, BARE_FINAL
    )


AUTO = {"type": "response.created", "response": {**HEAD, "service_tier": "auto"}}


@pytest.mark.parametrize(
    ("payloads", "losses"),
    [
        (
            [event("output_item.done", item=message(text_part("a"), x=1), y=1)],
            [("unknown_field", "/output/0/y"), ("unknown_field", "/output/0/x")],
        ),
        ([{**created(), "x": 1}], [("unknown_field", "/x")]),
        (
            [event("output_item.done", item=message({"type": "odd", "odd": 1}))],
            [("unknown_kind", "/output/0/content/0")],
        ),
        (
            [ADDED, delta("a"), event("output_item.done", item=message({"type": "odd"}, text_part("a")))],
            [("unknown_kind", "/output/0/content/0")],
        ),
        (
            [ended(moderation={"input": {"flagged": True}}, x=1)],
            [("dropped", "/moderation"), ("unknown_field", "/x")],
        ),
        (
            [ended(status="incomplete", incomplete_details={"reason": "bored"})],
            [("altered", "/incomplete_details/reason")],
        ),
        ([ended(status="incomplete", incomplete_details={"reason": "steered"})], []),
        ([AUTO, ended(service_tier="priority")], []),
    ],
)
def test_fields_without_an_event_are_losses(payloads: Any, losses: list[tuple[str, str]]) -> None:
    ledger = Ledger()
    reader = SPEC.stream_reader(CONTEXT, ledger)
    for payload in payloads:
        reader.read(Frame(b"", encode(payload)))
    assert [(loss.code.value, loss.path) for loss in ledger] == losses
