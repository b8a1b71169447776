"""The members of a message, in a stream and in a whole response."""

from __future__ import annotations

from typing import Any

import pytest
from chat_client import (
    CHAT,
    REASONING,
    REFUSAL,
    TEXT,
    call,
    chunks,
    context,
    deltas,
    first_fragment,
    next_fragment,
    response,
    text,
    whole,
    write_stream,
)
from openai.lib.streaming.chat._completions import ChatCompletionStreamState
from openai.types.chat import ChatCompletionChunk

from dragoman._ir.assembly import Fold
from dragoman._ir.events import (
    ENDED,
    Annotation,
    BlockEnded,
    BlockKind,
    BlockStarted,
    Compacted,
    Event,
    Logprobs,
    Opaque,
    ReasoningDelta,
    Signature,
    SignatureDelta,
    Started,
    Stopped,
    StopReason,
    TextDelta,
    Usage,
)
from dragoman._ir.losses import Ledger
from dragoman._ir.request import Request
from dragoman._wire.json import decode
from dragoman._wire.sse import SSEParser
from dragoman.codec import ResponseContext
from dragoman.protocols.openai_chat import SPEC

SIGNED = Signature("anthropic_messages", {"type": "thinking", "thinking": "hm", "signature": "S"}, "claude")

ENTRY = {
    "type": "reasoning.encrypted",
    "data": context().signer.wrap(SIGNED),
    "format": "dragoman-v1",
    "index": 0,
}

PLAIN = Signature(CHAT, {"reasoning": "hm"}, "m")
PLAIN_ENTRY = {**ENTRY, "data": context().signer.wrap(PLAIN)}
NATIVE_DETAILS = [{"type": "reasoning.text", "text": "hm", "signature": "S", "index": 0}]

CITE = {
    "type": "url_citation",
    "url_citation": {"url": "https://u", "title": "T", "start_index": 0, "end_index": 2},
}


def reasoning(block: int, *deltas: ReasoningDelta, signature: Signature | None = None) -> list[Event]:
    signature_delta = [] if signature is None else [SignatureDelta(block, signature)]
    return [BlockStarted(block, REASONING), *deltas, *signature_delta, BlockEnded(block)]


@pytest.mark.parametrize(
    ("events", "expected", "message"),
    [
        ([], [], {"content": ""}),
        (text(0, "a", 'b"\n\u2028'), [{"content": "a"}, {"content": 'b"\n\u2028'}], {"content": 'ab"\n\u2028'}),
        ([*text(0, "a"), *text(1, "b")], [{"content": "a"}, {"content": "b"}], {"content": "ab"}),
        (text(0, "no", kind=REFUSAL), [{"refusal": "no"}], {"content": None, "refusal": "no"}),
        (
            [*reasoning(0, ReasoningDelta(0, "a"), ReasoningDelta(0, "b"), signature=SIGNED), *text(1, "x")],
            [{"reasoning_content": "a"}, {"reasoning_content": "b"}, {"reasoning_details": [ENTRY]}, {"content": "x"}],
            {"content": "x", "reasoning_content": "ab", "reasoning_details": [ENTRY]},
        ),
        # Paragraphs and blocks are set apart by a blank line.
        (
            [*reasoning(0, ReasoningDelta(0, "a"), ReasoningDelta(0, "b", 1)), *reasoning(1, ReasoningDelta(1, "c"))],
            [{"reasoning_content": "a"}, {"reasoning_content": "\n\nb"}, {"reasoning_content": "\n\nc"}],
            {"content": "", "reasoning_content": "a\n\nb\n\nc"},
        ),
        # Redacted: only the signature. Two signatures have two indexes.
        (
            [*reasoning(0, signature=SIGNED), *reasoning(1, signature=SIGNED)],
            [{"reasoning_details": [ENTRY]}, {"reasoning_details": [{**ENTRY, "index": 1}]}],
            {"content": "", "reasoning_details": [ENTRY, {**ENTRY, "index": 1}]},
        ),
        # Chat's own entries need no wrapping.
        (
            reasoning(0, ReasoningDelta(0, "hm"), signature=Signature(CHAT, {"reasoning_details": NATIVE_DETAILS})),
            [{"reasoning_content": "hm"}, {"reasoning_details": NATIVE_DETAILS}],
            {"content": "", "reasoning_content": "hm", "reasoning_details": NATIVE_DETAILS},
        ),
        # Plain reasoning of a Chat server is wrapped like any other.
        (
            reasoning(0, ReasoningDelta(0, "hm"), signature=PLAIN),
            [{"reasoning_content": "hm"}, {"reasoning_details": [PLAIN_ENTRY]}],
            {"content": "", "reasoning_content": "hm", "reasoning_details": [PLAIN_ENTRY]},
        ),
        (
            [*call(0, "c1", "f", '{"a"', ":1}"), *call(1, "c2", "g")],
            [
                first_fragment(0, "c1", "f"),
                next_fragment(0, '{"a"'),
                next_fragment(0, ":1}"),
                first_fragment(1, "c2", "g"),
            ],
            {
                "content": None,
                "tool_calls": [
                    {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}},
                    {"id": "c2", "type": "function", "function": {"name": "g", "arguments": ""}},
                ],
            },
        ),
        (
            [BlockStarted(0, TEXT), TextDelta(0, "ab"), Annotation(0, CHAT, CITE), BlockEnded(0)],
            [{"content": "ab"}, {"annotations": [CITE]}],
            {"content": "ab", "annotations": [CITE]},
        ),
        (
            [BlockStarted(0, TEXT), TextDelta(0, "ab"), Annotation(0, "x", 1, "https://u", "T", 0, 2), BlockEnded(0)],
            [{"content": "ab"}, {"annotations": [CITE]}],
            {"content": "ab", "annotations": [CITE]},
        ),
        (
            [Opaque(CHAT, "images", [1]), Opaque(CHAT, "images", [2]), Opaque(CHAT, "odd", {"id": "a"})],
            [{"images": [1]}, {"images": [2]}, {"odd": {"id": "a"}}],
            {"content": "", "images": [1, 2], "odd": {"id": "a"}},
        ),
    ],
)  # fmt: skip
def test_blocks(events: list[Event], expected: list[Any], message: Any) -> None:
    assert deltas(events) == expected
    found = whole(response(*events))["choices"][0]["message"]
    assert found == {"role": "assistant", "refusal": None, **message}
    accumulated(response(*events))


def accumulated(events: list[Event]) -> None:
    """Assert that the SDK's accumulator builds the whole response from the stream."""
    response_context = context(include_usage=True)
    state = ChatCompletionStreamState()
    for body in chunks(write_stream(events, response_context, Ledger())):
        state.handle_chunk(ChatCompletionChunk.model_validate(body))
    final = state.current_completion_snapshot.model_dump(exclude_none=True)
    expected = whole(events, response_context)
    assert "usage" not in expected or final["usage"] == expected["usage"]
    for got, expected_choice in zip(final["choices"], expected["choices"], strict=True):
        assert got["finish_reason"] == expected_choice["finish_reason"]
        message = got["message"]
        assert (message.get("content") or "") == (expected_choice["message"]["content"] or "")
        assert message.get("refusal") == expected_choice["message"]["refusal"]
        assert message.get("reasoning_content") == expected_choice["message"].get("reasoning_content")
        made = [{**each, "function": {**each["function"]}} for each in message.get("tool_calls") or []]
        for each in made:
            each.pop("index", None)
            each["function"].pop("parsed_arguments", None)
        assert made == expected_choice["message"].get("tool_calls", [])
        assert message.get("annotations") == expected_choice["message"].get("annotations")


def test_a_whole_response_without_token_counts_has_no_usage() -> None:
    assert "usage" not in whole(response(Usage()))


def test_a_citation_without_url_is_a_loss() -> None:
    ledger = Ledger()
    events: list[Event] = [BlockStarted(0, TEXT), TextDelta(0, "a"), Annotation(0, "x", {}), BlockEnded(0)]
    assert deltas(events, ledger=ledger) == [{"content": "a"}]
    assert "annotations" not in whole(response(*events))["choices"][0]["message"]
    assert [loss.path for loss in ledger] == ["/choices/0/message/annotations"]


TOKEN = {"token": "a", "logprob": -1.0, "bytes": None, "top_logprobs": []}


@pytest.mark.parametrize(("kind", "member"), [(TEXT, "content"), (REFUSAL, "refusal")])
def test_logprobs_have_a_chunk_with_an_empty_delta(kind: BlockKind, member: str) -> None:
    events = response(BlockStarted(0, kind), TextDelta(0, "a"), Logprobs(0, [TOKEN]), BlockEnded(0))
    choice = chunks(write_stream(events, context(), Ledger()))[2]["choices"][0]
    expected = {"content": None, "refusal": None, member: [TOKEN]}
    assert (choice["delta"], choice["logprobs"]) == ({}, expected)
    assert whole(events)["choices"][0]["logprobs"] == expected


def test_logprobs_without_bytes_get_null() -> None:
    """Events of a Responses upstream have none, but Chat clients require the member."""
    tokens = [
        {"token": "a", "logprob": -1.0, "top_logprobs": [{"token": "b", "logprob": -2.0}, 5]},
        {"token": "c", "logprob": -1.0, "top_logprobs": None},
    ]
    events = response(BlockStarted(0, BlockKind.TEXT), TextDelta(0, "a"), Logprobs(0, tokens), BlockEnded(0))
    top = [{"bytes": None, "token": "b", "logprob": -2.0}]
    assert whole(events)["choices"][0]["logprobs"]["content"] == [
        {"bytes": None, "token": "a", "logprob": -1.0, "top_logprobs": top},
        {"bytes": None, "token": "c", "logprob": -1.0, "top_logprobs": []},
    ]


FINISH_REASONS: list[tuple[StopReason, bool, str, int]] = [
    (StopReason.END, False, "stop", 0),
    (StopReason.END, True, "tool_calls", 0),
    (StopReason.TOOL_USE, True, "tool_calls", 0),
    (StopReason.TOOL_USE, False, "stop", 0),
    (StopReason.MAX_TOKENS, True, "length", 0),
    (StopReason.CONTEXT_WINDOW, False, "length", 0),
    (StopReason.CONTENT_FILTER, False, "content_filter", 0),
    (StopReason.STOP_SEQUENCE, False, "stop", 0),
    (StopReason.PAUSE, False, "stop", 1),
    (StopReason.COMPACTION, False, "stop", 1),
]


def test_finish_reasons(subtests: pytest.Subtests) -> None:
    for reason, calls, finish, losses in FINISH_REASONS:
        with subtests.test(calls=calls, finish=finish):
            events = response(*(call(0, "c1", "f", "{}") if calls else []), stop=reason)
            ledger = Ledger()
            assert (
                chunks(write_stream(events, context(), ledger))[-1]["choices"][0]["finish_reason"] == finish
            )
            assert whole(events)["choices"][0]["finish_reason"] == finish
            assert len(ledger) == losses


def test_a_matched_stop_sequence_is_named() -> None:
    events = response(*text(0, "a"), stop=StopReason.STOP_SEQUENCE, sequence="END")
    assert chunks(write_stream(events, context(), Ledger()))[-1]["choices"][0]["stop_reason"] == "END"
    assert whole(events)["choices"][0]["stop_reason"] == "END"


@pytest.mark.parametrize(("has_text", "refusal"), [(False, "why"), (True, None)])
def test_an_explanation_is_the_refusal_unless_there_is_text(has_text: bool, refusal: Any) -> None:
    events = response(*(text(0, "a") if has_text else []), stop=StopReason.CONTENT_FILTER, explanation="why")
    found = [chunk["choices"][0]["delta"] for chunk in chunks(write_stream(events, context(), Ledger()))]
    assert ({"refusal": "why"} in found) is not has_text
    assert whole(events)["choices"][0]["message"]["refusal"] == refusal


def test_a_summary_is_text() -> None:
    events = response(Compacted("In short."), stop=StopReason.COMPACTION)
    assert deltas([Compacted("In short.")]) == [{"content": "In short."}]
    assert whole(events)["choices"][0]["message"]["content"] == "In short."


# -- citations and losses ---------------------------------------------------------------------------------


def cited(url: str, start: int, end: int, title: str = "") -> dict[str, Any]:
    members = {"url": url, "title": title, "start_index": start, "end_index": end}
    return {"type": "url_citation", "url_citation": members}


def message_and_annotations(*inner: Event) -> tuple[dict[str, Any], list[Any]]:
    """Return the whole response for these events, and the annotations of its stream, which are in one chunk."""
    response_context = ResponseContext(Request(CHAT, "m", (), stream=True), "x1", 1, "alias")
    response = [Started("i", "m"), *inner, Stopped(StopReason.END), ENDED]
    writer, fold = SPEC.stream_writer(response_context, Ledger()), Fold()
    stream = b""
    for event in response:
        stream += writer.send(event)
        fold.send(event)
    deltas = [
        choice["delta"]
        for frame in SSEParser().receive_data(stream)[:-1]
        for choice in decode(frame.data)["choices"]
    ]
    [streamed] = [delta["annotations"] for delta in deltas if "annotations" in delta] or [[]]
    return SPEC.write_whole(fold.response(), response_context, Ledger()), streamed


def text_block(block: int, *inner: Event) -> list[Event]:
    return [BlockStarted(block, BlockKind.TEXT), *inner, BlockEnded(block)]


def test_spans_count_in_the_whole_message() -> None:
    body, streamed = message_and_annotations(
        *text_block(0, TextDelta(0, "αβ"), TextDelta(0, "c")),
        *text_block(
            1,
            Annotation(1, "x", {}, "https://all", "T"),  # before the text: its end is not known yet
            TextDelta(1, "de"),
            Annotation(1, "x", {}, "https://part", None, 1, 2),
        ),
    )
    assert streamed == [cited("https://all", 3, 5, "T"), cited("https://part", 4, 5, "https://part")]
    assert body["choices"][0]["message"]["annotations"] == streamed


def test_native_citations_get_the_members_that_clients_require() -> None:
    native = {"type": "url_citation", "url_citation": {"url": "https://a", "x": 1}}
    body, streamed = message_and_annotations(
        *text_block(0, TextDelta(0, "ab"), Annotation(0, CHAT, native, "https://a"))
    )
    full = {"url": "https://a", "title": "https://a", "start_index": 0, "end_index": 2, "x": 1}
    assert streamed == [{"type": "url_citation", "url_citation": full}]
    assert body["choices"][0]["message"]["annotations"] == streamed


def test_spans_of_citations_count_a_summary_before_the_text() -> None:
    cited = Annotation(0, "x", {}, "https://u", "T", 0, 2)
    body, streamed = message_and_annotations(
        Compacted("In short."), *text_block(0, TextDelta(0, "ab"), cited)
    )
    assert (streamed[0]["url_citation"]["start_index"], streamed[0]["url_citation"]["end_index"]) == (9, 11)
    assert body["choices"][0]["message"]["annotations"] == streamed


CITED = Annotation(0, "other", {"type": "t", "url": "u", "at": [1], "words": "w"}, "u")
REFUSED = Stopped(StopReason.CONTENT_FILTER, explanation="why")


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize(
    ("events", "losses"),
    [
        (
            [
                Started("i", "m", service_tier="ultrafast"),
                BlockStarted(0, BlockKind.TEXT),
                TextDelta(0, "a"),
                BlockEnded(0),
                Stopped(StopReason.END),
            ],
            {"/service_tier"},
        ),
        (
            [
                Started("i", "m", service_tier="flex"),
                BlockStarted(0, BlockKind.TEXT),
                TextDelta(0, "a"),
                CITED,
                BlockEnded(0),
                REFUSED,
            ],
            {"/choices/0/message/annotations", "/stop_details/explanation"},
        ),
        (
            [Started("i", "m"), Stopped(StopReason.END), Usage(1, 2, extra={"iterations": []})],
            {"/usage/iterations"},
        ),
    ],
)
def test_losses_of_a_response(events: list[Event], losses: set[str], whole: bool) -> None:
    ledger = Ledger()
    response_context = ResponseContext(Request(CHAT, "m", ()), "x1", 1, "alias")
    if whole:
        fold = Fold()
        for event in (*events, ENDED):
            fold.send(event)
        SPEC.write_whole(fold.response(), response_context, ledger)
    else:
        writer = SPEC.stream_writer(response_context, ledger)
        for event in (*events, ENDED):
            writer.send(event)
    assert {loss.path for loss in ledger} == losses


def test_a_citation_with_all_its_members_is_no_loss() -> None:
    native = {"type": "url_citation", "url": "u", "title": "t", "start_index": 1, "end_index": 2}
    cited = Annotation(0, "openai_responses", native, "u", "t", 1, 2)
    ledger = Ledger()
    writer = SPEC.stream_writer(ResponseContext(Request("other", "m", ()), "x1", 1, "alias"), ledger)
    response = (Started("i", "m"), BlockStarted(0, BlockKind.TEXT), TextDelta(0, "abc"), cited, BlockEnded(0))
    out = [writer.send(event) for event in (*response, Stopped(StopReason.END), ENDED)]
    assert b'"end_index":2' in out[-1]
    assert len(ledger) == 0


def test_text_after_a_call_is_a_loss() -> None:
    events = response(*call(0, "c1", "f", "{}"), *text(1, "late"), stop=StopReason.TOOL_USE)
    streamed, whole_ledger = Ledger(), Ledger()
    write_stream(events, context(), streamed)
    whole(events, ledger=whole_ledger)
    assert [loss.path for loss in streamed] == ["/choices/0/message/content"]
    assert list(whole_ledger) == list(streamed)
