"""The stream of chunks that is written for events, read by the types and the accumulator of the official SDK."""

from __future__ import annotations

import httpx2
import msgspec
import openai
import pytest
from chat_client import (
    CHAT,
    STARTED,
    TEXT,
    call,
    chunks,
    context,
    deltas,
    first_fragment,
    frames,
    next_fragment,
    response,
    text,
    whole,
    write_stream,
)

from dragoman._ir.assembly import Fold
from dragoman._ir.events import (
    ENDED,
    Annotation,
    BlockEnded,
    BlockStarted,
    Event,
    Failed,
    Opaque,
    Started,
    Stopped,
    StopReason,
    TextDelta,
    ToolKind,
    Usage,
)
from dragoman._ir.losses import Ledger
from dragoman._wire.errors import ErrorKind, WireError
from dragoman.protocols.openai_chat import SPEC

USAGE = Usage(10, 5, 4, None, 2)

USAGE_BODY = {
    "prompt_tokens": 10,
    "completion_tokens": 5,
    "total_tokens": 15,
    "prompt_tokens_details": {"cached_tokens": 4},
    "completion_tokens_details": {"reasoning_tokens": 2},
}


def test_every_chunk_has_all_its_members() -> None:
    found = chunks(write_stream(response(*text(0, "hi")), context(), Ledger()))
    for chunk in found:
        choices = chunk.pop("choices")
        assert chunk == {
            "id": "chatcmpl-X1",
            "object": "chat.completion.chunk",
            "created": 7,
            "model": "alias",
        }
        assert [choice.keys() for choice in choices] == [{"index", "delta", "logprobs", "finish_reason"}]


def test_a15_usage_comes_last_and_only_if_requested() -> None:
    events = [*response(USAGE, *text(0, "hi"))]
    assert all("usage" not in chunk for chunk in chunks(write_stream(events, context(), Ledger())))
    *others, last = chunks(write_stream(events, context(include_usage=True), Ledger()))
    assert all(chunk["usage"] is None for chunk in others)
    assert (last["choices"], last["usage"]) == ([], USAGE_BODY)
    assert others[-1]["choices"][0]["finish_reason"] == "stop"


def test_a_service_tier_of_the_enum_is_written() -> None:
    events = [Started("a", "b", None, "flex"), *response()[1:]]
    assert all(chunk["service_tier"] == "flex" for chunk in chunks(write_stream(events, context(), Ledger())))
    assert whole(events)["service_tier"] == "flex"
    assert whole([Started("a", "b", None, "batch"), *response()[1:]])["service_tier"] == "flex"
    assert "service_tier" not in whole([Started("a", "b", None, "odd"), *response()[1:]])


def test_a_late_service_tier_is_written_with_the_end() -> None:
    late = [Started("a", "b", None, "auto"), *response(*text(0, "hi"), Usage(service_tier="flex"))[1:]]
    tiers = [
        chunk["service_tier"] for chunk in chunks(write_stream(late, context(include_usage=True), Ledger()))
    ]
    assert tiers == ["auto", "auto", "flex", "flex"]  # role, text, finish, usage
    assert whole(late)["service_tier"] == "flex"


def cite(block: int, at: int) -> list[Event]:
    """A text with a citation of its own."""
    return [
        BlockStarted(block, TEXT),
        TextDelta(block, "ab"),
        Annotation(block, "x", 1, f"https://{at}", "T", at, 2),
        BlockEnded(block),
    ]


def test_citations_of_several_texts_reach_the_sdks_stream_helper_in_one_chunk() -> None:
    events = response(*cite(0, 0), *cite(1, 1), *text(2, "c"))
    stream = write_stream(events, context(), Ledger())
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


def test_citations_before_a_failure_are_written() -> None:
    begun = [STARTED, *cite(0, 0), *cite(1, 1)[:-1]]
    *_, annotations, _ = frames(
        write_stream([*begun, Failed(WireError(ErrorKind.SERVER, "no"))], context(), Ledger())
    )
    found = msgspec.json.decode(annotations)["choices"][0]["delta"]["annotations"]
    assert [each["url_citation"]["url"] for each in found] == ["https://0", "https://1"]


def test_custom_calls_have_their_own_member() -> None:
    events = call(0, "c1", "patch", "*** ", "Begin", kind=ToolKind.CUSTOM)
    first = {"index": 0, "id": "c1", "type": "custom", "custom": {"name": "patch", "input": ""}}
    stream = write_stream(response(*events), context(), Ledger())
    bodies = [msgspec.json.decode(body) for body in frames(stream)[1:-2]]
    assert [body["choices"][0]["delta"]["tool_calls"] for body in bodies] == [
        [first],
        [{"index": 0, "custom": {"input": "*** "}}],
        [{"index": 0, "custom": {"input": "Begin"}}],
    ]
    message = whole(response(*events))["choices"][0]["message"]
    assert message["tool_calls"] == [
        {"id": "c1", "type": "custom", "custom": {"name": "patch", "input": "*** Begin"}}
    ]


def test_calls_may_interleave() -> None:
    one, two = call(0, "c1", "f", "{}"), call(1, "c2", "g", "[]")
    mixed = [event for pair in zip(one, two, strict=True) for event in pair]
    assert deltas(mixed) == [
        first_fragment(0, "c1", "f"),
        first_fragment(1, "c2", "g"),
        next_fragment(0, "{}"),
        next_fragment(1, "[]"),
    ]


def test_a2_calls_are_counted_from_zero() -> None:
    found = deltas([*text(0), *call(1, "c1", "f", "{}"), *call(2, "c2", "f", "{}")])
    assert [each["index"] for delta in found for each in delta["tool_calls"]] == [0, 0, 1, 1]


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
    found = [chunk["choices"][0] for chunk in chunks(write_stream(events, context(), Ledger()))]
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


def test_moderation_has_a_chunk_of_its_own() -> None:
    events = response(Opaque(CHAT, "moderation", {"odd": 1}, "/moderation"))
    for response_context in (context(), context(include_usage=True)):
        body = msgspec.json.decode(frames(write_stream(events, response_context, Ledger()))[1])
        assert (body["choices"], body["moderation"]) == ([], {"odd": 1})
    fold = Fold()
    for event in events:
        fold.send(event)
    assert SPEC.write_whole(fold.response(), context(), Ledger())["moderation"] == {"odd": 1}


def test_other_members_of_the_response_go_into_the_chunks_that_follow() -> None:
    """A chunk of their own would have no choice, which clients expect only of the last one."""
    events = response(Opaque(CHAT, "provider", "P", "/provider"), *text(0, "x"))
    found = chunks(write_stream(events, context(), Ledger()))
    assert [(chunk.get("provider"), len(chunk["choices"])) for chunk in found] == [
        (None, 1),
        ("P", 1),
        ("P", 1),
    ]


def test_clients_of_functions_get_function_call() -> None:
    response_context = context(functions=[{"name": "f"}])
    events = response(*call(0, "c1", "f", "{}"), stop=StopReason.TOOL_USE)
    found = chunks(write_stream(events, response_context, Ledger()))
    assert [chunk["choices"][0]["delta"] for chunk in found[1:-1]] == [
        {"function_call": {"name": "f", "arguments": ""}},
        {"function_call": {"arguments": "{}"}},
    ]
    assert found[-1]["choices"][0]["finish_reason"] == "function_call"
    choice = whole(events, response_context)["choices"][0]
    assert (choice["message"]["function_call"], choice["finish_reason"]) == (
        {"name": "f", "arguments": "{}"},
        "function_call",
    )


@pytest.mark.parametrize("before", [[], [STARTED, BlockStarted(0, TEXT), TextDelta(0, "a")]])
def test_a_failure_is_an_error_frame_without_done(before: list[Event]) -> None:
    error = WireError(ErrorKind.RATE_LIMIT, "slow down")
    *_, last = frames(write_stream([*before, Failed(error)], context(), Ledger()))
    assert msgspec.json.decode(last) == {
        "error": {
            "message": "slow down",
            "type": "rate_limit_error",
            "param": None,
            "code": "rate_limit_exceeded",
        }
    }


def test_half_a_surrogate_pair_does_not_stop_the_stream() -> None:
    assert b'"content":"\\ud83d"' in write_stream(response(*text(0, "\ud83d")), context(), Ledger())
