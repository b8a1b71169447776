"""Events, and the Chat stream and the whole answer that are printed for them.

Everything printed is read strictly by the types of the official SDK, and by its accumulator of streams, whose
result must be the whole answer.
"""

from __future__ import annotations

from typing import Any

import httpx2
import msgspec
import openai
import pytest
from openai.lib.streaming.chat._completions import ChatCompletionStreamState
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from dragoman._ir.assembly import Fold
from dragoman._ir.event_order import EventOrderChecker
from dragoman._ir.events import (
    ENDED,
    Annotation,
    ArgumentsDelta,
    BlockEnded,
    BlockKind,
    BlockStarted,
    Compacted,
    Event,
    Failed,
    Logprobs,
    Opaque,
    ReasoningDelta,
    Signature,
    SignatureDelta,
    Started,
    Stopped,
    StopReason,
    TextDelta,
    ToolHead,
    ToolKind,
    Usage,
)
from dragoman._ir.losses import Ledger
from dragoman._ir.request import Request
from dragoman._wire.errors import ErrorKind, WireError
from dragoman._wire.sse import SSEParser
from dragoman.codec import ResponseContext
from dragoman.protocols.openai_chat import SPEC

CHAT = "openai_chat"
STARTED = Started("upstream-id", "upstream-model")
TEXT, REASONING, CALL, REFUSAL = BlockKind.TEXT, BlockKind.REASONING, BlockKind.TOOL_CALL, BlockKind.REFUSAL
USAGE = Usage(10, 5, 4, None, 2)
USAGE_BODY = {
    "prompt_tokens": 10,
    "completion_tokens": 5,
    "total_tokens": 15,
    "prompt_tokens_details": {"cached_tokens": 4},
    "completion_tokens_details": {"reasoning_tokens": 2},
}


def context(*, include_usage: bool = False, **raw: Any) -> ResponseContext:
    request = Request(CHAT, "alias", (), raw, stream=True, include_usage=include_usage)
    return ResponseContext(request, "X1", 7, "alias")


def printed(events: list[Event], asked: ResponseContext, ledger: Ledger) -> bytes:
    writer, checker = SPEC.stream_writer(asked, ledger), EventOrderChecker()
    out = b""
    for event in events:
        checker.check(event)
        out += writer.send(event)
    return out


def frames(stream: bytes) -> list[bytes]:
    parser = SSEParser()
    found = parser.receive_data(stream)
    assert parser.receive_eof() == []
    assert all(frame.event == b"" for frame in found)
    return [frame.data for frame in found]


def chunks(stream: bytes) -> list[Any]:
    *bodies, done = frames(stream)
    assert done == b"[DONE]"
    for body in bodies:
        ChatCompletionChunk.model_validate_json(body, strict=True)
    return [msgspec.json.decode(body) for body in bodies]


def deltas(
    events: list[Event], asked: ResponseContext | None = None, ledger: Ledger | None = None
) -> list[Any]:
    """The deltas between the first one and the stop, of a whole answer around `events`."""
    found = chunks(printed(answer(*events), asked or context(), Ledger() if ledger is None else ledger))
    assert found[0]["choices"][0]["delta"] == {"role": "assistant", "content": "", "refusal": None}
    return [chunk["choices"][0]["delta"] for chunk in found[1:-1]]


def answer(*events: Event, stop: StopReason = StopReason.END, **fields: Any) -> list[Event]:
    return [STARTED, *events, Stopped(stop, **fields), ENDED]


def whole(events: list[Event], asked: ResponseContext | None = None, ledger: Ledger | None = None) -> Any:
    fold = Fold()
    for event in events:
        fold.send(event)
    body = SPEC.write_whole(fold.response(), asked or context(), Ledger() if ledger is None else ledger)
    ChatCompletion.model_validate(body, strict=True)
    return body


def text(block: int, *pieces: str, choice: int = 0, kind: BlockKind = TEXT) -> list[Event]:
    return [
        BlockStarted(block, kind, choice),
        *[TextDelta(block, each) for each in pieces],
        BlockEnded(block),
    ]


def call(
    block: int, call_id: str, name: str, *pieces: str, kind: ToolKind = ToolKind.FUNCTION
) -> list[Event]:
    return [
        BlockStarted(block, CALL, 0, ToolHead(call_id, name, kind)),
        *[ArgumentsDelta(block, each) for each in pieces],
        BlockEnded(block),
    ]


def test_every_chunk_has_all_its_members() -> None:
    found = chunks(printed(answer(*text(0, "hi")), context(), Ledger()))
    for chunk in found:
        choices = chunk.pop("choices")
        assert chunk == {
            "id": "chatcmpl-X1",
            "object": "chat.completion.chunk",
            "created": 7,
            "model": "alias",
        }
        assert [choice.keys() for choice in choices] == [{"index", "delta", "logprobs", "finish_reason"}]


def test_usage_comes_last_and_only_when_asked_for() -> None:
    events = [*answer(USAGE, *text(0, "hi"))]
    assert all("usage" not in chunk for chunk in chunks(printed(events, context(), Ledger())))
    *others, last = chunks(printed(events, context(include_usage=True), Ledger()))
    assert all(chunk["usage"] is None for chunk in others)
    assert (last["choices"], last["usage"]) == ([], USAGE_BODY)


def test_a_whole_answer_of_which_nobody_knows_the_figures_has_none() -> None:
    assert "usage" not in whole(answer(Usage()))


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        (Usage(3), {"prompt_tokens": 3, "completion_tokens": 0, "total_tokens": 3}),
        (Usage(None, 3), {"prompt_tokens": 0, "completion_tokens": 3, "total_tokens": 3}),
        (Usage(1, 2, cache_write=1), {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}),
    ],
)
def test_figures_are_always_given(usage: Usage, expected: Any) -> None:
    body = whole(answer(usage))["usage"]
    assert {key: body[key] for key in expected} == expected
    assert body["prompt_tokens_details"].get("cache_write_tokens") == usage.cache_write


def test_counters_of_chat_itself_are_printed() -> None:
    extra = {"completion_tokens_details": {"audio_tokens": 4}, "prompt_tokens_details": 5}
    body = whole(answer(Usage(1, 2, extra=extra)))["usage"]
    assert body["completion_tokens_details"] == {"reasoning_tokens": 0, "audio_tokens": 4}


def test_a_service_tier_is_told_when_the_enum_has_it() -> None:
    events = [Started("a", "b", None, "flex"), *answer()[1:]]
    assert all(chunk["service_tier"] == "flex" for chunk in chunks(printed(events, context(), Ledger())))
    assert whole(events)["service_tier"] == "flex"
    assert "service_tier" not in whole([Started("a", "b", None, "batch"), *answer()[1:]])


def test_a_service_tier_that_is_known_late_is_told_with_the_end() -> None:
    late = [Started("a", "b", None, "auto"), *answer(*text(0, "hi"), Usage(service_tier="flex"))[1:]]
    tiers = [chunk["service_tier"] for chunk in chunks(printed(late, context(include_usage=True), Ledger()))]
    assert tiers == ["auto", "auto", "flex", "flex"]  # role, text, finish, usage
    assert whole(late)["service_tier"] == "flex"


SEALED = Signature("anthropic_messages", {"type": "thinking", "thinking": "hm", "signature": "S"}, "claude")
ENTRY = {
    "type": "reasoning.encrypted",
    "data": context().signer.wrap(SEALED),
    "format": "dragoman-v1",
    "index": 0,
}
PLAIN = Signature(CHAT, {"reasoning": "hm"}, "m")
PLAIN_ENTRY = {**ENTRY, "data": context().signer.wrap(PLAIN)}
OWN_DETAILS = [{"type": "reasoning.text", "text": "hm", "signature": "S", "index": 0}]
CITE = {
    "type": "url_citation",
    "url_citation": {"url": "https://u", "title": "T", "start_index": 0, "end_index": 2},
}


def thought(block: int, *pieces: ReasoningDelta, seal: Signature | None = None) -> list[Event]:
    sealed = [] if seal is None else [SignatureDelta(block, seal)]
    return [BlockStarted(block, REASONING), *pieces, *sealed, BlockEnded(block)]


def first_piece(index: int, call_id: str, name: str) -> dict[str, Any]:
    function = {"name": name, "arguments": ""}
    return {"tool_calls": [{"index": index, "id": call_id, "type": "function", "function": function}]}


def next_piece(index: int, arguments: str) -> dict[str, Any]:
    return {"tool_calls": [{"index": index, "function": {"arguments": arguments}}]}


@pytest.mark.parametrize(
    ("events", "expected", "message"),
    [
        ([], [], {"content": ""}),
        (text(0, "a", 'b"\n\u2028'), [{"content": "a"}, {"content": 'b"\n\u2028'}], {"content": 'ab"\n\u2028'}),
        ([*text(0, "a"), *text(1, "b")], [{"content": "a"}, {"content": "b"}], {"content": "ab"}),
        (text(0, "no", kind=REFUSAL), [{"refusal": "no"}], {"content": None, "refusal": "no"}),
        (
            [*thought(0, ReasoningDelta(0, "a"), ReasoningDelta(0, "b"), seal=SEALED), *text(1, "x")],
            [{"reasoning_content": "a"}, {"reasoning_content": "b"}, {"reasoning_details": [ENTRY]}, {"content": "x"}],
            {"content": "x", "reasoning_content": "ab", "reasoning_details": [ENTRY]},
        ),
        # Paragraphs and blocks are set apart by a blank line.
        (
            [*thought(0, ReasoningDelta(0, "a"), ReasoningDelta(0, "b", 1)), *thought(1, ReasoningDelta(1, "c"))],
            [{"reasoning_content": "a"}, {"reasoning_content": "\n\nb"}, {"reasoning_content": "\n\nc"}],
            {"content": "", "reasoning_content": "a\n\nb\n\nc"},
        ),
        # Redacted: nothing but the seal. Two seals have two places.
        (
            [*thought(0, seal=SEALED), *thought(1, seal=SEALED)],
            [{"reasoning_details": [ENTRY]}, {"reasoning_details": [{**ENTRY, "index": 1}]}],
            {"content": "", "reasoning_details": [ENTRY, {**ENTRY, "index": 1}]},
        ),
        # Chat's own entries need no wrapping.
        (
            thought(0, ReasoningDelta(0, "hm"), seal=Signature(CHAT, {"reasoning_details": OWN_DETAILS})),
            [{"reasoning_content": "hm"}, {"reasoning_details": OWN_DETAILS}],
            {"content": "", "reasoning_content": "hm", "reasoning_details": OWN_DETAILS},
        ),
        # Plain reasoning of a Chat server is wrapped like anybody's.
        (
            thought(0, ReasoningDelta(0, "hm"), seal=PLAIN),
            [{"reasoning_content": "hm"}, {"reasoning_details": [PLAIN_ENTRY]}],
            {"content": "", "reasoning_content": "hm", "reasoning_details": [PLAIN_ENTRY]},
        ),
        (
            [*call(0, "c1", "f", '{"a"', ":1}"), *call(1, "c2", "g")],
            [first_piece(0, "c1", "f"), next_piece(0, '{"a"'), next_piece(0, ":1}"), first_piece(1, "c2", "g")],
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
    found = whole(answer(*events))["choices"][0]["message"]
    assert found == {"role": "assistant", "refusal": None, **message}
    accumulated(answer(*events))


def accumulated(events: list[Event]) -> None:
    """The SDK's accumulator makes of the stream what the whole answer says."""
    asked = context(include_usage=True)
    state = ChatCompletionStreamState()
    for body in chunks(printed(events, asked, Ledger())):
        state.handle_chunk(ChatCompletionChunk.model_validate(body))
    final = state.current_completion_snapshot.model_dump(exclude_none=True)
    expected = whole(events, asked)
    assert "usage" not in expected or final["usage"] == expected["usage"]
    for got, wanted in zip(final["choices"], expected["choices"], strict=True):
        assert got["finish_reason"] == wanted["finish_reason"]
        message = got["message"]
        assert (message.get("content") or "") == (wanted["message"]["content"] or "")
        assert message.get("refusal") == wanted["message"]["refusal"]
        assert message.get("reasoning_content") == wanted["message"].get("reasoning_content")
        made = [{**each, "function": {**each["function"]}} for each in message.get("tool_calls") or []]
        for each in made:
            each.pop("index", None)
            each["function"].pop("parsed_arguments", None)
        assert made == wanted["message"].get("tool_calls", [])
        assert message.get("annotations") == wanted["message"].get("annotations")


def cite(block: int, at: int) -> list[Event]:
    """A text with a citation of its own."""
    return [
        BlockStarted(block, TEXT),
        TextDelta(block, "ab"),
        Annotation(block, "x", 1, f"https://{at}", "T", at, 2),
        BlockEnded(block),
    ]


def test_citations_of_several_texts_reach_the_sdks_stream_helper_in_one_chunk() -> None:
    events = answer(*cite(0, 0), *cite(1, 1), *text(2, "c"))
    stream = printed(events, context(), Ledger())
    transport = httpx2.MockTransport(
        lambda _: httpx2.Response(200, headers={"content-type": "text/event-stream"}, content=stream)
    )
    client = openai.OpenAI(
        api_key="k", base_url="http://gateway/v1", http_client=httpx2.Client(transport=transport)
    )
    with client.chat.completions.stream(model="m", messages=[{"role": "user", "content": "?"}]) as helper:
        final = helper.get_final_completion()
    found = [each.model_dump() for each in final.choices[0].message.annotations or ()]
    assert [each["url_citation"]["url"] for each in found] == ["https://0", "https://1"]
    assert found == whole(events)["choices"][0]["message"]["annotations"]
    assert [list(delta) for delta in deltas(events[1:-2])] == [["content"]] * 3 + [["annotations"]]


def test_citations_before_a_failure_are_told() -> None:
    begun = [STARTED, *cite(0, 0), *cite(1, 1)[:-1]]
    *_, annotations, _ = frames(
        printed([*begun, Failed(WireError(ErrorKind.SERVER, "no"))], context(), Ledger())
    )
    found = msgspec.json.decode(annotations)["choices"][0]["delta"]["annotations"]
    assert [each["url_citation"]["url"] for each in found] == ["https://0", "https://1"]


def test_custom_calls_have_their_own_member() -> None:
    events = call(0, "c1", "patch", "*** ", "Begin", kind=ToolKind.CUSTOM)
    first = {"index": 0, "id": "c1", "type": "custom", "custom": {"name": "patch", "input": ""}}
    stream = printed(answer(*events), context(), Ledger())
    bodies = [msgspec.json.decode(body) for body in frames(stream)[1:-2]]
    assert [body["choices"][0]["delta"]["tool_calls"] for body in bodies] == [
        [first],
        [{"index": 0, "custom": {"input": "*** "}}],
        [{"index": 0, "custom": {"input": "Begin"}}],
    ]
    message = whole(answer(*events))["choices"][0]["message"]
    assert message["tool_calls"] == [
        {"id": "c1", "type": "custom", "custom": {"name": "patch", "input": "*** Begin"}}
    ]


def test_calls_may_be_filled_in_turns() -> None:
    one, two = call(0, "c1", "f", "{}"), call(1, "c2", "g", "[]")
    mixed = [event for pair in zip(one, two, strict=True) for event in pair]
    assert deltas(mixed) == [
        first_piece(0, "c1", "f"),
        first_piece(1, "c2", "g"),
        next_piece(0, "{}"),
        next_piece(1, "[]"),
    ]


def test_a_citation_without_url_is_a_loss() -> None:
    ledger = Ledger()
    events: list[Event] = [BlockStarted(0, TEXT), TextDelta(0, "a"), Annotation(0, "x", {}), BlockEnded(0)]
    assert deltas(events, ledger=ledger) == [{"content": "a"}]
    assert "annotations" not in whole(answer(*events))["choices"][0]["message"]
    assert [loss.path for loss in ledger] == ["/choices/0/message/annotations"]


TOKEN = {"token": "a", "logprob": -1.0, "bytes": None, "top_logprobs": []}


@pytest.mark.parametrize(("kind", "member"), [(TEXT, "content"), (REFUSAL, "refusal")])
def test_logprobs_stand_beside_the_delta(kind: BlockKind, member: str) -> None:
    events = answer(BlockStarted(0, kind), TextDelta(0, "a"), Logprobs(0, [TOKEN]), BlockEnded(0))
    choice = chunks(printed(events, context(), Ledger()))[2]["choices"][0]
    expected = {"content": None, "refusal": None, member: [TOKEN]}
    assert (choice["delta"], choice["logprobs"]) == ({}, expected)
    assert whole(events)["choices"][0]["logprobs"] == expected


def test_logprobs_without_bytes_get_null() -> None:
    """Events of a Responses upstream have none, and Chat's clients require the member."""
    told = [
        {"token": "a", "logprob": -1.0, "top_logprobs": [{"token": "b", "logprob": -2.0}, 5]},
        {"token": "c", "logprob": -1.0, "top_logprobs": None},
    ]
    events = answer(BlockStarted(0, BlockKind.TEXT), TextDelta(0, "a"), Logprobs(0, told), BlockEnded(0))
    top = [{"bytes": None, "token": "b", "logprob": -2.0}]
    assert whole(events)["choices"][0]["logprobs"]["content"] == [
        {"bytes": None, "token": "a", "logprob": -1.0, "top_logprobs": top},
        {"bytes": None, "token": "c", "logprob": -1.0, "top_logprobs": []},
    ]


@pytest.mark.parametrize(
    ("reason", "calls", "finish", "losses"),
    [
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
    ],
)
def test_finish_reasons(reason: StopReason, calls: bool, finish: str, losses: int) -> None:
    events = answer(*(call(0, "c1", "f", "{}") if calls else []), stop=reason)
    ledger = Ledger()
    assert chunks(printed(events, context(), ledger))[-1]["choices"][0]["finish_reason"] == finish
    assert whole(events)["choices"][0]["finish_reason"] == finish
    assert len(ledger) == losses


def test_a_matched_stop_sequence_is_named() -> None:
    events = answer(*text(0, "a"), stop=StopReason.STOP_SEQUENCE, sequence="END")
    assert chunks(printed(events, context(), Ledger()))[-1]["choices"][0]["stop_reason"] == "END"
    assert whole(events)["choices"][0]["stop_reason"] == "END"


@pytest.mark.parametrize(("said", "refusal"), [(False, "why"), (True, None)])
def test_why_an_answer_was_refused_is_its_refusal_unless_there_is_text(said: bool, refusal: Any) -> None:
    events = answer(*(text(0, "a") if said else []), stop=StopReason.CONTENT_FILTER, explanation="why")
    found = [chunk["choices"][0]["delta"] for chunk in chunks(printed(events, context(), Ledger()))]
    assert ({"refusal": "why"} in found) is not said
    assert whole(events)["choices"][0]["message"]["refusal"] == refusal


def test_choices_have_their_own_first_delta_calls_and_stop() -> None:
    events: list[Event] = [
        STARTED,
        *text(0, "a"),
        *text(1, "b", choice=1),
        Opaque(CHAT, "images", [1], "", 2),
        Stopped(StopReason.END, choice=3),
        Stopped(StopReason.MAX_TOKENS, choice=1),
        Stopped(StopReason.END),
        ENDED,
    ]
    found = [chunk["choices"][0] for chunk in chunks(printed(events, context(), Ledger()))]
    assert [(choice["index"], "role" in choice["delta"], choice["finish_reason"]) for choice in found] == [
        (0, True, None),
        (0, False, None),
        (1, True, None),
        (1, False, None),
        (2, True, None),
        (2, False, None),
        (3, True, None),
        (0, False, "stop"),
        (1, False, "length"),
        (3, False, "stop"),
    ]
    choices = whole(events)["choices"]
    assert [(choice["index"], choice["message"]["content"]) for choice in choices] == [
        (0, "a"),
        (1, "b"),
        (3, ""),
    ]


def test_a_member_of_the_answer_itself_stands_at_its_top() -> None:
    events = answer(Opaque(CHAT, "moderation", {"odd": 1}, "/moderation"))
    for asked in (context(), context(include_usage=True)):
        body = msgspec.json.decode(frames(printed(events, asked, Ledger()))[1])
        assert (body["choices"], body["moderation"]) == ([], {"odd": 1})
    fold = Fold()
    for event in events:
        fold.send(event)
    assert SPEC.write_whole(fold.response(), context(), Ledger())["moderation"] == {"odd": 1}


def test_other_members_of_the_answer_go_with_the_chunks_that_follow() -> None:
    """A chunk of their own would have no choice, which clients do not expect before the last one."""
    events = answer(Opaque(CHAT, "provider", "P", "/provider"), *text(0, "x"))
    found = chunks(printed(events, context(), Ledger()))
    assert [(chunk.get("provider"), len(chunk["choices"])) for chunk in found] == [
        (None, 1),
        ("P", 1),
        ("P", 1),
    ]


def test_clients_of_functions_get_function_call() -> None:
    asked = context(functions=[{"name": "f"}])
    events = answer(*call(0, "c1", "f", "{}"), stop=StopReason.TOOL_USE)
    found = chunks(printed(events, asked, Ledger()))
    assert [chunk["choices"][0]["delta"] for chunk in found[1:-1]] == [
        {"function_call": {"name": "f", "arguments": ""}},
        {"function_call": {"arguments": "{}"}},
    ]
    assert found[-1]["choices"][0]["finish_reason"] == "function_call"
    choice = whole(events, asked)["choices"][0]
    assert (choice["message"]["function_call"], choice["finish_reason"]) == (
        {"name": "f", "arguments": "{}"},
        "function_call",
    )


@pytest.mark.parametrize("before", [[], [STARTED, BlockStarted(0, TEXT), TextDelta(0, "a")]])
def test_a_failure_is_an_error_frame_without_done(before: list[Event]) -> None:
    error = WireError(ErrorKind.RATE_LIMIT, "slow down")
    *_, last = frames(printed([*before, Failed(error)], context(), Ledger()))
    assert msgspec.json.decode(last) == {
        "error": {
            "message": "slow down",
            "type": "rate_limit_error",
            "param": None,
            "code": "rate_limit_exceeded",
        }
    }


def test_half_a_surrogate_pair_does_not_stop_the_stream() -> None:
    assert b'"content":"\\ud83d"' in printed(answer(*text(0, "\ud83d")), context(), Ledger())


def test_a_summary_is_printed_as_text() -> None:
    events = answer(Compacted("In short."), stop=StopReason.COMPACTION)
    assert deltas([Compacted("In short.")]) == [{"content": "In short."}]
    assert whole(events)["choices"][0]["message"]["content"] == "In short."
