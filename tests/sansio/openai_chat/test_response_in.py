"""Streams and whole responses of Chat upstreams: how they start and end, and what is beside the choices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from chat_upstream import (
    CHAT,
    DONE,
    SOME,
    STARTED,
    TEXT,
    USAGE,
    calls,
    chunk,
    content,
    context,
    delta,
    events,
    fragment,
    started,
    stream_of,
)

from dragoman._ir.assembly import AssembledBlock, Fold
from dragoman._ir.event_order import EventOrderChecker
from dragoman._ir.events import (
    ENDED,
    BlockEnded,
    Event,
    Failed,
    Opaque,
    Started,
    Stopped,
    StopReason,
    TextDelta,
    Usage,
)
from dragoman._ir.losses import Ledger
from dragoman._ir.request import Request
from dragoman._wire.errors import ErrorKind, WireError
from dragoman._wire.exceptions import RemoteProtocolError
from dragoman._wire.json import encode
from dragoman._wire.sse import Frame
from dragoman.codec import ResponseContext
from dragoman.protocols.openai_chat import SPEC

# -- how it ends ------------------------------------------------------------------------------------------


CALLED = chunk(delta(**calls(fragment(0, "c1", "add", "{}"))))


def stop_of(stream: bytes, response_context: ResponseContext | None = None) -> Stopped:
    [stop] = [event for event in events(stream, response_context) if isinstance(event, Stopped)]
    return stop


STOP_REASONS: list[tuple[bytes, StopReason, str | None]] = [
    (SOME + chunk(delta(finish="stop")) + DONE, StopReason.END, "stop"),
    (SOME + chunk(delta(finish="stop")), StopReason.END, "stop"),  # no [DONE]
    (SOME + chunk(delta(finish="length")) + DONE, StopReason.MAX_TOKENS, "length"),
    (SOME + chunk(delta(finish="content_filter")) + DONE, StopReason.CONTENT_FILTER, "content_filter"),
    (SOME + chunk(delta(finish="model_length")) + DONE, StopReason.CONTEXT_WINDOW, "model_length"),
    (SOME + chunk(delta(finish="eos")) + DONE, StopReason.END, "eos"),
    (SOME + chunk(delta(finish="LENGTH")) + DONE, StopReason.MAX_TOKENS, "LENGTH"),
    (CALLED + chunk(delta(finish="stop")) + DONE, StopReason.TOOL_USE, "stop"),
    (SOME + chunk(delta(finish="tool_calls")) + DONE, StopReason.END, "tool_calls"),
    (CALLED + chunk(delta(finish="length")) + DONE, StopReason.MAX_TOKENS, "length"),
    # A9: the last finish reason counts; "" is none.
    (chunk(delta(content="x", finish="")) + chunk(delta(finish="stop")) + chunk(delta(finish="length")) + DONE,
     StopReason.MAX_TOKENS, "length"),
    # Content after the finish reason.
    (chunk(delta(content="x", finish="stop")) + SOME + DONE, StopReason.END, "stop"),
    # A17: all in one chunk.
    (chunk(delta(content="x", finish="stop"), usage=USAGE) + DONE, StopReason.END, "stop"),
    # D6: without one, [DONE] or a last chunk of usage must follow.
    (SOME + DONE, StopReason.END, None),
    (CALLED + DONE, StopReason.TOOL_USE, None),
    (SOME + chunk(usage=USAGE), StopReason.END, None),
]  # fmt: skip


def test_stop_reasons(subtests: pytest.Subtests) -> None:
    for stream, reason, native in STOP_REASONS:
        with subtests.test(stream=stream):
            stop = stop_of(stream)
            assert (stop.reason, stop.native) == (reason, native)


@pytest.mark.parametrize("member", ["stop_reason", "matched_stop"])  # vLLM; SGLang
@pytest.mark.parametrize(
    ("requested", "matched", "reason", "sequence"),
    [
        (["END", "X"], "END", StopReason.STOP_SEQUENCE, "END"),
        ("END", "END", StopReason.STOP_SEQUENCE, "END"),
        (["END"], 128001, StopReason.END, None),  # a token
        (None, "END", StopReason.END, None),
    ],
)
def test_the_matched_stop_sequence(
    requested: Any, matched: Any, reason: StopReason, sequence: Any, member: str
) -> None:
    stream = SOME + chunk({**delta(finish="stop"), member: matched}) + DONE
    stop = stop_of(stream, context(stop=requested))
    assert (stop.reason, stop.sequence) == (reason, sequence)


@pytest.mark.parametrize(
    "stream",
    [
        b"",
        DONE,
        SOME,
        CALLED,
        SOME + chunk(delta(content="y"), usage=USAGE),
        # [DONE] after an incomplete call: a proxy has added it.
        chunk(delta(**calls(fragment(0, "c1", "add", '{"a"')))) + DONE,
        chunk(delta(1, content="x")) + DONE,
    ],
)
def test_an_early_end_is_never_a_success(stream: bytes) -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        events(stream)
    assert caught.value.status == 502


@pytest.mark.parametrize("word", ["error", "abort", "insufficient_system_resource"])
def test_a_finish_reason_may_be_an_error(word: str) -> None:
    found = events(SOME + chunk(delta(finish=word), usage=USAGE) + DONE)
    assert [type(event) for event in found[-2:]] == [Usage, Failed]
    assert type(events(SOME + chunk(delta(finish=word)) + DONE)[-2]) is TextDelta


@pytest.mark.parametrize(
    ("frame", "error"),
    [
        (chunk(error={"message": "slow down", "type": "rate_limit_error"}),
         WireError(ErrorKind.RATE_LIMIT, "slow down", type="rate_limit_error")),
        # A number as code is a status; here beside a choice, as OpenRouter sends it.
        (chunk(delta(content=""), error={"code": 400, "message": "Token limit reached"}),
         WireError(ErrorKind.INVALID_REQUEST, "Token limit reached", 400)),
        (b'event: error\ndata: {"error":{"message":"bad","code":"tool_use_failed"}}\n\n',
         WireError(ErrorKind.SERVER, "bad", code="tool_use_failed")),
        (b'data: {"error":"out of memory"}\n\n', WireError(ErrorKind.SERVER, "out of memory")),
        (b'event: error\ndata: {"message":"bad"}\n\n', WireError(ErrorKind.SERVER, "bad")),
        (b"event: error\ndata: upstream died\n\n", WireError(ErrorKind.SERVER, "upstream died")),
        (b'event: error\ndata: "died"\n\n', WireError(ErrorKind.SERVER, "died")),
        (b'data: {"object":"error","message":"too long","type":"BadRequestError","code":400}\n\n',
         WireError(ErrorKind.INVALID_REQUEST, "too long", 400, type="BadRequestError")),
        (b'data: {"detail":"no"}\n\n', WireError(ErrorKind.SERVER, "no")),
    ],
)  # fmt: skip
def test_errors_inside_a_stream_end_it(frame: bytes, error: WireError) -> None:
    assert events(SOME + frame + SOME + DONE) == [STARTED, started(0, TEXT), TextDelta(0, "x"), Failed(error)]
    assert events(frame) == [Failed(error)]


def test_usage_of_a_failed_response_counts() -> None:
    found = events(SOME + chunk(error={"message": "x"}, usage=USAGE))
    assert found[-2] == Usage(5, 2)


UNREADABLE_CHUNKS: list[bytes] = [
    b"data: {\n\n",
    b"data: 5\n\n",
    chunk("x"),
    chunk({"index": 0, "delta": 5}),
    chunk(delta(content=5)),
    chunk(delta(tool_calls=5)),
    chunk(delta(tool_calls=[5])),
    chunk(delta(tool_calls=[{"index": 0, "function": 5}])),
    chunk(
        delta(tool_calls=[fragment(0, "c1", "f", "{}"), fragment(1, "c2", "g"), fragment(0, None, None, "!")])
    ),
    chunk(delta(tool_calls=[fragment(0, "c1")], finish="stop")) + DONE,
]


def test_unreadable_chunks_are_errors_of_the_upstream(subtests: pytest.Subtests) -> None:
    for frame in UNREADABLE_CHUNKS:
        with subtests.test(frame=frame):
            with pytest.raises(RemoteProtocolError) as caught:
                events(SOME + frame)
            assert caught.value.status == 502


# -- chunks around the content ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "noise",
    [
        b": ping\n\n",
        b"data: \n\n",
        b"data: {}\n\n",
        b'data: {"type":"ping"}\n\n',
        # Azure's first chunk.
        chunk(id="", model="", object="", prompt_filter_results=[]),
        b'data: {"choices":null}\n\n',
    ],
)
def test_frames_without_content(noise: bytes) -> None:
    assert events(noise + stream_of({"content": "x"}) + noise) == events(stream_of({"content": "x"}))


def test_missing_fields_of_the_upstream_are_filled_in() -> None:
    found = events(
        b'data: {"choices":[{"delta":{"content":"x"},"finish_reason":"stop"}],"created":"now"}\n\n'
    )
    assert found[0] == Started("chatcmpl-X1", "asked")


@pytest.mark.parametrize(
    ("tier", "expected"),
    [("flex", "flex"), ("on_demand", "default"), ("odd", None), ("", None), (None, None)],
)
def test_service_tiers_outside_the_enum_are_dropped(tier: Any, expected: Any) -> None:
    [first, *_] = events(chunk(delta(content="x"), service_tier=tier) + DONE)
    assert first == Started("c1", "gpt", 7, expected)


COUNTS = {"prompt_tokens": 1, "completion_tokens": 2}


@pytest.mark.parametrize(
    ("first", "later", "usage", "expected"),
    [
        ("auto", "default", COUNTS, [Usage(1, 2, service_tier="default")]),
        ("auto", "default", None, [Usage(service_tier="default")]),
        (None, "default", None, [Usage(service_tier="default")]),
        ("auto", "auto", COUNTS, [Usage(1, 2)]),
        ("auto", None, None, []),
        ("auto", "odd", None, []),
        ("default", "on_demand", None, []),
    ],
)
def test_a_service_tier_may_change_after_the_start(
    first: Any, later: Any, usage: Any, expected: list[Event]
) -> None:
    begun = chunk(delta(content="x"), service_tier=first)
    ended = chunk(delta(finish="stop"), service_tier=later) + chunk(service_tier=later, usage=usage)
    assert [each for each in events(begun + ended + DONE) if isinstance(each, Usage)] == expected
    broken = begun + ended + b'data: {"error": {"message": "no"}}\n\n'
    assert [each for each in events(broken) if isinstance(each, Usage)] == expected


def test_a_repaired_response_keeps_unread_members() -> None:
    response_context, ledger = msgspec.structs.replace(context(), rewritten=True), Ledger()
    stream = (
        chunk(delta(role="assistant"), system_fingerprint="fp", odd=None, obfuscation="xx")
        + chunk(delta(content="x"), provider="P", odd=1)
        + chunk(delta(finish="stop"))
        + DONE
    )
    found = [event for event in content(stream, response_context, ledger) if isinstance(event, Opaque)]
    assert found == [
        Opaque(CHAT, "system_fingerprint", "fp", "/system_fingerprint", round_trip=False),
        Opaque(CHAT, "provider", "P", "/provider", round_trip=False),
        Opaque(CHAT, "odd", 1, "/odd", round_trip=False),
    ]
    assert list(ledger) == []
    before = chunk(system_fingerprint="fp", id=None)  # before the start of the response
    assert content(before + stream_of({"content": "x"}), response_context) == content(
        stream_of({"content": "x"}), response_context
    )


def test_choices_interleave() -> None:
    stream = (
        chunk(delta(0, content="a"), delta(1, content="b"))
        + chunk(delta(1, content="c"))
        + chunk(delta(0, finish="length"))
        + chunk(delta(1, finish="stop"))
        + DONE
    )
    assert content(stream) == [
        started(0, TEXT),
        TextDelta(0, "a"),
        started(1, TEXT, 1),
        TextDelta(1, "b"),
        TextDelta(1, "c"),
        BlockEnded(0, complete=False),
        BlockEnded(1),
    ]
    stops = [event for event in events(stream) if isinstance(event, Stopped)]
    assert [(stop.choice, stop.reason) for stop in stops] == [(0, StopReason.MAX_TOKENS), (1, StopReason.END)]


def test_a_moderation_chunk_is_opaque() -> None:
    found = events(chunk(delta(content="x")) + chunk(moderation={"input": {}}) + DONE)
    assert Opaque(CHAT, "moderation", {"input": {}}, "/moderation", round_trip=False) in found


CONTEXT = ResponseContext(Request("other", "m", ()), "x1", 1, "alias")


def losses_of(*chunks: Any) -> list[tuple[str, str]]:
    ledger = Ledger()
    reader = SPEC.stream_reader(CONTEXT, ledger)
    finish = choice_chunk({}, finish_reason="stop")
    finished = any(choice.get("finish_reason") for each in chunks for choice in each["choices"])
    for each in chunks if finished else (*chunks, finish):
        reader.read(Frame(b"", encode({"id": "c", "model": "m", **each})))
    reader.read(Frame(b"", b"[DONE]"))
    return [(loss.code.value, loss.path) for loss in ledger]


def choice_chunk(delta: Any, **fields: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, **fields}]}


HELLO = choice_chunk({"role": "assistant", "content": "a"})
CALL_BODY = {"index": 0, "id": "c", "function": {"name": "f", "arguments": ""}}


@pytest.mark.parametrize(
    ("chunks", "losses"),
    [
        ([HELLO, {**choice_chunk({"content": "b"}), "x": 1}], [("unknown_field", "/x")]),
        ([HELLO, choice_chunk({"content": "b"}, x=1)], [("unknown_field", "/choices/0/x")]),
        ([{**HELLO, "service_tier": "odd"}], [("dropped", "/service_tier")]),
        ([{**HELLO, "service_tier": ""}], []),
        ([HELLO, choice_chunk({}, finish_reason="eos")], []),
        ([HELLO, choice_chunk({}, finish_reason="bored")], [("altered", "/choices/0/finish_reason")]),
        ([HELLO, choice_chunk({}, stop_reason="END")], [("dropped", "/choices/0/stop_reason")]),
        (
            [
                choice_chunk({"tool_calls": [CALL_BODY]}),
                choice_chunk({"tool_calls": [{"index": 0, "function": {"arguments": "{", "x": 1}}]}),
                choice_chunk({"tool_calls": [{"index": 0, "y": 1, "function": {"arguments": "}"}}]}),
            ],
            [],  # they are part of a signature
        ),
        (
            [{**HELLO, "usage": {"prompt_tokens": 1, "x": 2, "prompt_tokens_details": {"x": "y", "z": 0}}}],
            [("unknown_field", "/usage/x"), ("unknown_field", "/usage/prompt_tokens_details/x")],
        ),
        ([HELLO, {**HELLO, "usage": {"x": 2}}], [("unknown_field", "/usage/x")]),
    ],
)
def test_losses_of_chunks(chunks: Any, losses: Any) -> None:
    assert losses_of(*chunks) == losses


# -- deltas -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "deltas",
    [
        [{"content": "a"}, {"content": "b"}, {"content": ""}, {"content": None}, {"content": ["x"]}, {"refusal": "r"}],
        [{"reasoning_content": "a"}, {"reasoning_content": "b"}, {"reasoning_content": ""}, {"reasoning": "c"},
         {"reasoning": "d"}, {"content": "e"}],
        [calls(fragment(0, "c1", "f", "{")), calls(fragment(0, arguments='"a":')), calls(fragment(0, arguments="")),
         calls(fragment(0, arguments="1}"), fragment(1, "c2", "g", "{}")), calls(fragment(1, arguments=" ")), calls(),
         {"refusal": "r"}, {"refusal": "s"}],
        [calls(fragment(0, "c1", "f", "{")), calls({"index": 0, "function": {"arguments": {}}}),
         calls({"index": 0, "function": None}), calls({"index": "0", "function": {"arguments": ""}})],
    ],
)  # fmt: skip
def test_members_without_content_change_nothing(deltas: list[dict[str, Any]]) -> None:
    def read(noise: dict[str, Any]) -> list[Event]:
        reader = SPEC.stream_reader(context(), Ledger())
        out: list[Event] = []
        try:
            for members in deltas:
                body = {"id": "c1", "choices": [delta(**members, **noise)]}
                out += reader.read(Frame(b"", encode(body)))
            out += reader.read(Frame(b"", b"[DONE]"))
        except RemoteProtocolError:
            out.append(ENDED)
        return out

    assert read({}) == read({"function_call": None, "annotations": None})


# -- whole responses --------------------------------------------------------------------------------------


def whole(message: Any, finish: Any = "stop", **fields: Any) -> dict[str, Any]:
    choice = {"index": 0, "message": message, "finish_reason": finish, "logprobs": None}
    return {
        "id": "c1",
        "object": "chat.completion",
        "created": 7,
        "model": "gpt",
        "choices": [choice],
        **fields,
    }


def blocks_of(found: Sequence[Event]) -> list[tuple[str, str, str]]:
    checker, fold = EventOrderChecker(), Fold()
    for event in found:
        checker.check(event)
        fold.send(event)
    out = []
    for block in fold.response().blocks:
        assert isinstance(block, AssembledBlock)
        text = block.text or "".join([part.text for part in block.reasoning])
        out.append((block.kind.value, text, block.tool.call_id if block.tool else ""))
    return out


def test_a_whole_response_has_the_blocks_of_its_stream() -> None:
    message = {
        "role": "assistant",
        "content": "hi",
        "refusal": None,
        "reasoning_content": "hm",
        "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}},
            {"id": "", "type": "function", "function": {"name": "f", "arguments": "{}"}},
            {"type": "function", "function": {"name": "f", "arguments": "{}"}},
            {"id": "c4", "type": "custom", "custom": {"name": "p", "input": "raw"}},
        ],
    }
    found = SPEC.read_whole(whole(message, "tool_calls", usage=USAGE), context(), Ledger())
    assert found[0] == STARTED
    assert blocks_of(found) == [
        ("reasoning", "hm", ""),
        ("text", "hi", ""),
        ("tool_call", "{}", "c1"),
        ("tool_call", "{}", "call_X1_0"),
        ("tool_call", "{}", "call_X1_1"),
        ("tool_call", "raw", "c4"),
    ]
    assert list(found[-3:]) == [Stopped(StopReason.TOOL_USE, "tool_calls"), Usage(5, 2), ENDED]


@pytest.mark.parametrize("usage_last", [False, True])
def test_a_stream_that_the_server_ended_without_a_finish_reason_is_complete_and_recorded(
    usage_last: bool,
) -> None:
    ledger = Ledger()
    end = chunk(usage=USAGE) if usage_last else DONE
    assert Stopped(StopReason.END) in events(chunk(delta(content="a")) + end, ledger=ledger)
    assert [(loss.code.value, loss.path) for loss in ledger] == [("altered", "/choices/0/finish_reason")]


def test_a_whole_response_without_a_finish_reason_is_complete() -> None:
    found = SPEC.read_whole(whole({"role": "assistant", "content": "hi"}, None), context(), Ledger())
    assert found[-2] == Stopped(StopReason.END)
    # Perplexity repeats the message beside each delta.
    stream = chunk({**delta(content="hi"), "message": {"content": "hi"}}) + chunk(
        {"index": 0, "message": {"content": "hi"}, "finish_reason": "stop"}
    )
    assert blocks_of(events(stream)) == [("text", "hi", "")]


@pytest.mark.parametrize("body", [{}, {"choices": []}, {"choices": "x"}, whole(5)])
def test_whole_responses_that_cannot_be_read(body: dict[str, Any]) -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        SPEC.read_whole(body, context(), Ledger())
    assert caught.value.status == 502


def test_an_error_with_status_200() -> None:
    found = SPEC.read_whole({"error": {"message": "bad"}}, context(), Ledger())
    assert list(found) == [Failed(WireError(ErrorKind.SERVER, "bad"))]
