"""Streams and whole answers of Chat upstreams, and the events that they stand for.

Every stream here is also read byte by byte, and with bytes after its end; answers that servers send whole are
read as such, and must give the same blocks as their streams.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from dragoman._ir.assembly import AssembledBlock, Fold
from dragoman._ir.event_order import EventOrderChecker
from dragoman._ir.events import (
    ENDED,
    Annotation,
    ArgumentsDelta,
    BlockEnded,
    BlockKind,
    BlockStarted,
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
from dragoman._ir.losses import Ledger, LossCode
from dragoman._ir.request import Request
from dragoman._wire.errors import ErrorKind, WireError
from dragoman._wire.exceptions import RemoteProtocolError
from dragoman._wire.json import encode
from dragoman._wire.sse import Frame, SSEParser
from dragoman.codec import ResponseContext
from dragoman.protocols.openai_chat import SPEC

CHAT = "openai_chat"
DONE = b"data: [DONE]\n\n"
STARTED = Started("c1", "gpt", 7)
TEXT, REASONING, CALL, REFUSAL = BlockKind.TEXT, BlockKind.REASONING, BlockKind.TOOL_CALL, BlockKind.REFUSAL


def context(**params: Any) -> ResponseContext:
    return ResponseContext(Request("other", "asked", (), {}, params=params), "X1", 1, "alias")


def chunk(*choices: Any, **fields: Any) -> bytes:
    body = {
        "id": "c1",
        "object": "chat.completion.chunk",
        "created": 7,
        "model": "gpt",
        "choices": list(choices),
    }
    return b"data: " + encode({**body, **fields}) + b"\n\n"


def delta(index: int = 0, /, finish: Any = None, **members: Any) -> dict[str, Any]:
    return {"index": index, "delta": members, "finish_reason": finish}


def say(*deltas: dict[str, Any], done: bool = True) -> bytes:
    """A stream of one choice: one chunk for each delta, then the stop and [DONE]."""
    out = b"".join([chunk(delta(**members)) for members in deltas])
    return out + chunk(delta(finish="stop")) + (DONE if done else b"")


def events(
    stream: bytes, asked: ResponseContext | None = None, ledger: Ledger | None = None, cut: int = 0
) -> list[Event]:
    """All events of a stream, checked for their legal order; read in pieces of `cut` bytes, 0 for whole."""
    parser, checker = SSEParser(), EventOrderChecker()
    reader = SPEC.stream_reader(asked or context(), Ledger() if ledger is None else ledger)
    out: list[Event] = []
    pieces = [stream] if not cut else [stream[at : at + cut] for at in range(0, len(stream), cut)]
    for piece in pieces:
        for frame in parser.receive_data(piece):
            out += reader.read(frame)
    for frame in parser.receive_eof():
        out += reader.read(frame)
    out += reader.eof()
    for event in out:
        checker.check(event)
    return out


def content(stream: bytes, asked: ResponseContext | None = None, ledger: Ledger | None = None) -> list[Event]:
    """The events between Started and the stop, the stream being read whole, byte by byte, and with a tail."""
    found = events(stream, asked, ledger)
    assert events(stream, asked, cut=1) == found
    if stream.endswith(DONE):
        assert events(stream + chunk(delta(content="late")), asked) == found
    assert found[0] == STARTED
    return [event for event in found[1:] if type(event) not in (Stopped, Usage) and event is not ENDED]


def seal(**native: Any) -> Signature:
    return Signature(CHAT, native, "gpt")


def started(block: int, kind: BlockKind, choice: int = 0) -> BlockStarted:
    return BlockStarted(block, kind, choice)


def call(
    block: int, call_id: str, name: str, kind: ToolKind = ToolKind.FUNCTION, choice: int = 0
) -> BlockStarted:
    return BlockStarted(block, CALL, choice, ToolHead(call_id, name, kind))


# -- text, refusals, reasoning -----------------------------------------------------------------------------

FIRST = {"role": "assistant", "content": "", "refusal": None}


@pytest.mark.parametrize(
    ("deltas", "expected"),
    [
        ([FIRST, {"content": "Hel"}, {"content": ""}, {"content": "lo"}],
         [started(0, TEXT), TextDelta(0, "Hel"), TextDelta(0, "lo"), BlockEnded(0)]),
        # The role in every delta, null everywhere.
        ([{"role": "assistant", "content": "a"}, {"role": "assistant", "content": "b", "tool_calls": None},
          {"role": "assistant", "content": "c"}],
         [started(0, TEXT), TextDelta(0, "a"), TextDelta(0, "b"), TextDelta(0, "c"), BlockEnded(0)]),
        ([FIRST, {"content": None}, {}], []),
        ([{"refusal": "I "}, {"refusal": "won't"}],
         [started(0, REFUSAL), TextDelta(0, "I "), TextDelta(0, "won't"), BlockEnded(0)]),
        # A new block each time the kind changes.
        ([{"content": None, "reasoning_content": "hm"}, {"reasoning_content": "!"}, {"content": "a"},
          {"reasoning_content": "so"}, {"content": "b"}],
         [started(0, REASONING), ReasoningDelta(0, "hm"), ReasoningDelta(0, "!"),
          SignatureDelta(0, seal(reasoning_content="hm!")), BlockEnded(0),
          started(1, TEXT), TextDelta(1, "a"), BlockEnded(1),
          started(2, REASONING), ReasoningDelta(2, "so"),
          SignatureDelta(2, seal(reasoning_content="so")), BlockEnded(2),
          started(3, TEXT), TextDelta(3, "b"), BlockEnded(3)]),
        # The same text under two names, a repeated piece, and the other name alone.
        ([{"reasoning": "ha", "reasoning_content": "ha"}, {"reasoning": "ha", "reasoning_content": "ha"}],
         [started(0, REASONING), ReasoningDelta(0, "ha"), ReasoningDelta(0, "ha"),
          SignatureDelta(0, seal(reasoning_content="haha", reasoning="haha")), BlockEnded(0)]),
        ([{"reasoning": "a"}, {"reasoning": "b"}, {"reasoning": ""}, {"reasoning_content": "c"}],
         [started(0, REASONING), ReasoningDelta(0, "a"), ReasoningDelta(0, "b"), ReasoningDelta(0, "c"),
          SignatureDelta(0, seal(reasoning="ab", reasoning_content="c")), BlockEnded(0)]),
        # Entries are put together by index; the signature comes last, here beside the first text.
        ([{"reasoning": "a", "reasoning_details": [{"type": "reasoning.text", "text": "a", "index": 0}]},
          {"reasoning": "b",
           "reasoning_details": [{"type": "reasoning.text", "text": "b", "index": 0, "format": None}]},
          {"content": "x",
           "reasoning_details": [{"type": "reasoning.text", "text": None, "signature": "S", "index": 0}]}],
         [started(0, REASONING), ReasoningDelta(0, "a"), ReasoningDelta(0, "b"),
          SignatureDelta(0, seal(reasoning="ab", reasoning_details=[
              {"type": "reasoning.text", "text": "ab", "index": 0, "format": None, "signature": "S"}])),
          BlockEnded(0), started(1, TEXT), TextDelta(1, "x"), BlockEnded(1)]),
        # Text in the entries alone; a ciphertext of the same index; the odd thing in the list.
        ([{"reasoning_details": [{"type": "reasoning.summary", "summary": "s", "index": 0}]},
          {"reasoning_details": [{"type": "reasoning.encrypted", "data": "E", "index": 0, "id": "r"}, 5]}],
         [started(0, REASONING), ReasoningDelta(0, "s"),
          SignatureDelta(0, seal(reasoning_details=[
              {"type": "reasoning.summary", "summary": "s", "index": 0},
              {"type": "reasoning.encrypted", "data": "E", "index": 0, "id": "r"}])), BlockEnded(0)]),
        ([{"reasoning_details": [{"type": "reasoning.encrypted", "data": "E"}]}, {"content": "x"}],
         [started(0, REASONING),
          SignatureDelta(0, seal(reasoning_details=[{"type": "reasoning.encrypted", "data": "E"}])),
          BlockEnded(0), started(1, TEXT), TextDelta(1, "x"), BlockEnded(1)]),
        # The whole said again when it is signed.
        ([{"reasoning_content": "a"}, {"reasoning_content": "b"},
          {"thinking_blocks": [{"type": "thinking", "thinking": "ab", "signature": "S"}]}],
         [started(0, REASONING), ReasoningDelta(0, "a"), ReasoningDelta(0, "b"),
          SignatureDelta(0, seal(reasoning_content="ab",
                            thinking_blocks=[{"type": "thinking", "thinking": "ab", "signature": "S"}])),
          BlockEnded(0)]),
        # Content as a list, text and thinking in one delta.
        ([{"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "h"}]}]},
          {"content": [{"type": "thinking", "thinking": "m", "closed": True}, {"type": "text", "text": "1"}]},
          {"content": "2"}, {"content": [{"type": "text", "text": ""}]}],
         [started(0, REASONING), ReasoningDelta(0, "h"), ReasoningDelta(0, "m"),
          SignatureDelta(0, seal(content=[
              {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}], "closed": True}])),
          BlockEnded(0), started(1, TEXT), TextDelta(1, "1"), TextDelta(1, "2"), BlockEnded(1)]),
        ([{"content": [{"type": "reference", "ids": [1]}]}],
         [Opaque(CHAT, "reference", {"type": "reference", "ids": [1]},
                 "/choices/0/message/content", round_trip=False)]),
        ([{"audio": {"id": "a", "data": "QQ=="}}, {"images": []}],
         [Opaque(CHAT, "audio", {"id": "a", "data": "QQ=="}, "/choices/0/message/audio", round_trip=False)]),
    ],
)  # fmt: skip
def test_deltas(deltas: list[dict[str, Any]], expected: list[Event]) -> None:
    assert content(say(*deltas)) == expected


def test_unknown_members_of_a_delta_are_entered_once() -> None:
    ledger = Ledger()
    stream = say({"content": "a", "odd": "x"}, {"content": "b", "odd": "x", "odd/key": 1, "nothing": None})
    events(stream, ledger=ledger)
    assert sorted(loss.path for loss in ledger) == [
        "/choices/0/message/odd",
        "/choices/0/message/odd~1key",
    ]


CITE = {
    "type": "url_citation",
    "url_citation": {"url": "https://u", "title": "T", "start_index": 0, "end_index": 0},
}
SPAN = {"type": "url_citation", "url_citation": {"url": "https://u", "start_index": 1, "end_index": 3}}


ANNOTATIONS = "/choices/0/message/annotations"


def test_annotations_wait_for_their_text() -> None:
    ledger = Ledger()
    stream = say(
        {"content": "", "annotations": [CITE, 5]},
        {"content": "abc"},
        {"annotations": [SPAN, {"type": "file"}]},
        {"tool_calls": [{"index": 0, "id": "c", "function": {"name": "f", "arguments": "{}"}}]},
        {"annotations": [CITE]},
    )
    assert content(stream, ledger=ledger)[:6] == [
        started(0, TEXT),
        Annotation(0, CHAT, CITE, "https://u", "T", path=ANNOTATIONS),
        TextDelta(0, "abc"),
        Annotation(0, CHAT, SPAN, "https://u", None, 1, 3, ANNOTATIONS),
        Annotation(0, CHAT, {"type": "file"}, path=ANNOTATIONS),
        BlockEnded(0),
    ]
    assert [loss.path for loss in ledger] == [ANNOTATIONS]


def test_unknown_fields_of_annotations_are_told_by_their_places() -> None:
    """They are numbered over all deltas, as they are in the whole message."""
    ledger = Ledger()
    odd = {"type": "url_citation", "x": {}, "url_citation": {"url": "https://u", "y": 1, "title": None}}
    content(say({"content": "a", "annotations": [CITE]}, {"annotations": [odd]}), ledger=ledger)
    assert [(loss.code, loss.path) for loss in ledger] == [
        (LossCode.UNKNOWN_FIELD, f"{ANNOTATIONS}/1/x"),
        (LossCode.UNKNOWN_FIELD, f"{ANNOTATIONS}/1/url_citation/y"),
    ]


TOKEN = {"token": "a", "logprob": -1, "bytes": [97], "top_logprobs": []}


def test_logprobs_come_before_their_text_and_have_all_members() -> None:
    ledger = Ledger()
    stream = (
        chunk({**delta(content="a"), "logprobs": {"content": [TOKEN, 5], "refusal": None}})
        + chunk({**delta(content="b"), "logprobs": {"content": [{"token": "b", "logprob": -2}]}})
        + chunk({**delta(refusal="n"), "logprobs": {"refusal": [TOKEN], "content": []}})
        + chunk({**delta(), "logprobs": {"refusal": [TOKEN]}})
        + chunk({**delta(reasoning="x"), "logprobs": {"content": [TOKEN]}})
        + chunk(delta(finish="stop"))
        + DONE
    )
    assert content(stream, ledger=ledger)[:8] == [
        started(0, TEXT),
        Logprobs(0, [TOKEN]),
        TextDelta(0, "a"),
        Logprobs(0, [{"bytes": None, "token": "b", "logprob": -2, "top_logprobs": []}]),
        TextDelta(0, "b"),
        BlockEnded(0),
        started(1, REFUSAL),
        Logprobs(1, [TOKEN]),
    ]
    assert [loss.path for loss in ledger] == ["/choices/0/logprobs/content"]


# -- tool calls --------------------------------------------------------------------------------------------


def piece(index: Any = None, call_id: Any = None, name: Any = None, arguments: Any = None) -> dict[str, Any]:
    members = {"index": index, "id": call_id, "function": {"name": name, "arguments": arguments}}
    return {key: value for key, value in members.items() if value is not None}


def calls(*fragments: Any) -> dict[str, Any]:
    return {"tool_calls": list(fragments)}


ADD = [call(0, "c1", "add"), ArgumentsDelta(0, '{"a":1}')]
MUL = [call(1, "c2", "mul"), ArgumentsDelta(1, '{"b":2}')]
ENDS = [BlockEnded(0), BlockEnded(1)]


@pytest.mark.parametrize(
    ("deltas", "expected"),
    [
        # As OpenAI sends it.
        ([{"role": "assistant", "content": None, **calls({**piece(0, "c1", "add", ""), "type": "function"})},
          calls(piece(0, arguments='{"a"')), calls(piece(0, arguments="")), calls(piece(0, arguments=":1}")),
          calls(piece(1, "c2", "mul", "")), calls(piece(1, arguments='{"b":2}'))],
         [call(0, "c1", "add"), ArgumentsDelta(0, '{"a"'), ArgumentsDelta(0, ":1}"), BlockEnded(0), *MUL,
          BlockEnded(1)]),
        # Fragments that interleave.
        ([calls(piece(0, "c1", "add", ""), piece(1, "c2", "mul", "")), calls(piece(1, arguments='{"b":2}')),
          calls(piece(0, arguments='{"a":1}'))],
         [ADD[0], MUL[0], MUL[1], ADD[1], *ENDS]),
        # Whole calls: without index; with one index for all; all indexes 0 and without ids; id as a number.
        ([calls(piece(None, "c1", "add", '{"a":1}'), piece(None, "c2", "mul", '{"b":2}'))],
         [*ADD, BlockEnded(0), *MUL, BlockEnded(1)]),
        ([calls(piece(0, "c1", "add", '{"a":1}')), calls(piece(0, "c2", "mul", '{"b":2}'))],
         [*ADD, BlockEnded(0), *MUL, BlockEnded(1)]),
        ([calls(piece(0, None, "add", '{"a":1}')), calls(piece(0, None, "mul", '{"b":2}'))],
         [call(0, "call_X1_0", "add"), ADD[1], BlockEnded(0), call(1, "call_X1_1", "mul"), MUL[1], BlockEnded(1)]),
        ([calls(piece(None, None, "add", {"a": 1})), calls(piece(None, None, "add", '{"b":2}'))],
         [call(0, "call_X1_0", "add"), ADD[1], BlockEnded(0), call(1, "call_X1_1", "add"), MUL[1], BlockEnded(1)]),
        ([calls(piece(0, 17, "add"))], [call(0, "17", "add"), BlockEnded(0)]),
        # Without index: continued by id, or by nothing at all.
        ([calls(piece(None, "c1", "add", '{"a"')), calls(piece(None, "c1", None, ":")), calls(piece(arguments="1}"))],
         [ADD[0], ArgumentsDelta(0, '{"a"'), ArgumentsDelta(0, ":"), ArgumentsDelta(0, "1}"), BlockEnded(0)]),
        # Ids and names repeated; a fresh id in each fragment.
        ([calls(piece(0, "c1", "add", '{"a"')), calls(piece(0, "c1", "add", ":1")), calls(piece(0, "zz", None, "}"))],
         [ADD[0], ArgumentsDelta(0, '{"a"'), ArgumentsDelta(0, ":1"), ArgumentsDelta(0, "}"), BlockEnded(0)]),
        # A new id without a name, once the call is whole: the name comes later.
        ([calls(piece(0, "c1", "add", '{"a":1}')), calls(piece(0, "c2")), calls(piece(0, None, "mul", '{"b":2}'))],
         [*ADD, BlockEnded(0), *MUL, BlockEnded(1)]),
        # The name after the id and the arguments.
        ([calls(piece(0, "c1")), calls(piece(0, arguments='{"a"')), calls(piece(0, "", "add", ":1}"))],
         [*ADD, BlockEnded(0)]),
        # Nothing, blanks and repetition after the end.
        ([calls(piece(0)), calls(piece(0, "c1", "add", '{"a":1}')), calls(piece(1, "c2", "mul", '{"b":2}')),
          calls(piece(0, arguments=" \n")), calls(piece(0, arguments='{"a":1}'))],
         [*ADD, BlockEnded(0), *MUL, BlockEnded(1)]),
        ([calls({"index": 0})], []),
        # Text between calls: a whole call need not wait, a half one does.
        ([calls(piece(0, "c1", "add", '{"a":1}')), {"content": "\n"}, calls(piece(1, "c2", "mul", '{"b":2}'))],
         [*ADD, BlockEnded(0), started(1, TEXT), TextDelta(1, "\n"), BlockEnded(1), call(2, "c2", "mul"),
          ArgumentsDelta(2, '{"b":2}'), BlockEnded(2)]),
        ([calls(piece(0, "c1", "add", '{"a"')), {"content": "x"}, calls(piece(0, arguments=":1}"))],
         [ADD[0], ArgumentsDelta(0, '{"a"'), started(1, TEXT), TextDelta(1, "x"), BlockEnded(1),
          ArgumentsDelta(0, ":1}"), BlockEnded(0)]),
        # Custom tools and the legacy form.
        ([calls({"index": 0, "id": "c1", "type": "custom", "custom": {"name": "p", "input": "*** "}}),
          calls({"index": 0, "custom": {"input": "Begin"}})],
         [call(0, "c1", "p", ToolKind.CUSTOM), ArgumentsDelta(0, "*** "), ArgumentsDelta(0, "Begin"), BlockEnded(0)]),
        ([{"content": "x"}, {"function_call": {"name": "f", "arguments": ""}},
          {"function_call": {"arguments": "{}"}}],
         [started(0, TEXT), TextDelta(0, "x"), BlockEnded(0), call(1, "call_X1_0", "f"), ArgumentsDelta(1, "{}"),
          BlockEnded(1)]),
        # No arguments at all.
        ([calls(piece(0, "c1", "add"))], [ADD[0], BlockEnded(0)]),
        ([calls()], []),
    ],
)  # fmt: skip
def test_tool_calls(deltas: list[dict[str, Any]], expected: list[Event]) -> None:
    assert content(say(*deltas)) == expected


@pytest.mark.parametrize(
    ("finish", "arguments", "complete"),
    [
        ("tool_calls", '{"a":1}', True),
        ("length", '{"a":1}', True),
        ("length", '{"a"', False),
        ("content_filter", '{"a"', False),
        ("tool_calls", '{"a"', True),
    ],
)
def test_a_call_that_was_cut_is_not_complete(finish: str, arguments: str, complete: bool) -> None:
    stream = chunk(delta(**calls(piece(0, "c1", "add", arguments)))) + chunk(delta(finish=finish)) + DONE
    assert content(stream)[-1] == BlockEnded(0, complete)


@pytest.mark.parametrize("member", ["content", "refusal", "reasoning_content"])
@pytest.mark.parametrize(
    ("finish", "complete"), [("stop", True), ("length", False), ("content_filter", False)]
)
def test_words_that_were_cut_are_not_complete(member: str, finish: str, complete: bool) -> None:
    stream = chunk(delta(**{member: "x"})) + chunk(delta(finish=finish)) + DONE
    assert content(stream)[-1] == BlockEnded(0, complete)


# -- how it ends -------------------------------------------------------------------------------------------

SOME = chunk(delta(content="x"))
CALLED = chunk(delta(**calls(piece(0, "c1", "add", "{}"))))
USAGE = {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7}


def stop_of(stream: bytes, asked: ResponseContext | None = None) -> Stopped:
    [stop] = [event for event in events(stream, asked) if isinstance(event, Stopped)]
    return stop


@pytest.mark.parametrize(
    ("stream", "reason", "native"),
    [
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
        # The last real word wins; "" is none.
        (chunk(delta(content="x", finish="")) + chunk(delta(finish="stop")) + chunk(delta(finish="length")) + DONE,
         StopReason.MAX_TOKENS, "length"),
        # Content after the finish reason.
        (chunk(delta(content="x", finish="stop")) + SOME + DONE, StopReason.END, "stop"),
        # None at all: [DONE] or a last chunk of usage must say that this was the end.
        (SOME + DONE, StopReason.END, None),
        (CALLED + DONE, StopReason.TOOL_USE, None),
        (SOME + chunk(usage=USAGE), StopReason.END, None),
    ],
)  # fmt: skip
def test_stop_reasons(stream: bytes, reason: StopReason, native: str | None) -> None:
    stop = stop_of(stream)
    assert (stop.reason, stop.native) == (reason, native)


@pytest.mark.parametrize("member", ["stop_reason", "matched_stop"])  # vLLM; SGLang
@pytest.mark.parametrize(
    ("asked", "matched", "reason", "sequence"),
    [
        (["END", "X"], "END", StopReason.STOP_SEQUENCE, "END"),
        ("END", "END", StopReason.STOP_SEQUENCE, "END"),
        (["END"], 128001, StopReason.END, None),  # a token
        (None, "END", StopReason.END, None),
    ],
)
def test_the_matched_stop_sequence(
    asked: Any, matched: Any, reason: StopReason, sequence: Any, member: str
) -> None:
    stream = SOME + chunk({**delta(finish="stop"), member: matched}) + DONE
    stop = stop_of(stream, context(stop=asked))
    assert (stop.reason, stop.sequence) == (reason, sequence)


@pytest.mark.parametrize(
    "stream",
    [
        b"",
        DONE,
        SOME,
        CALLED,
        SOME + chunk(delta(content="y"), usage=USAGE),
        # [DONE] after a half call: someone in between made it up.
        chunk(delta(**calls(piece(0, "c1", "add", '{"a"')))) + DONE,
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
        # A number as code stands for a status; here beside a choice, as OpenRouter sends it.
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


def test_what_a_failed_answer_has_used_counts() -> None:
    found = events(SOME + chunk(error={"message": "x"}, usage=USAGE))
    assert found[-2] == Usage(5, 2)


@pytest.mark.parametrize(
    "frame",
    [
        b"data: {\n\n",
        b"data: 5\n\n",
        chunk("x"),
        chunk({"index": 0, "delta": 5}),
        chunk(delta(content=5)),
        chunk(delta(tool_calls=5)),
        chunk(delta(tool_calls=[5])),
        chunk(delta(tool_calls=[{"index": 0, "function": 5}])),
        chunk(delta(tool_calls=[piece(0, "c1", "f", "{}"), piece(1, "c2", "g"), piece(0, None, None, "!")])),
        chunk(delta(tool_calls=[piece(0, "c1")], finish="stop")) + DONE,
    ],
)
def test_what_cannot_be_read_is_the_upstreams_fault(frame: bytes) -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        events(SOME + frame)
    assert caught.value.status == 502


# -- chunks around the content -----------------------------------------------------------------------------


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
def test_frames_that_say_nothing(noise: bytes) -> None:
    assert events(noise + say({"content": "x"}) + noise) == events(say({"content": "x"}))


def test_what_a_server_leaves_out_is_filled_in() -> None:
    found = events(
        b'data: {"choices":[{"delta":{"content":"x"},"finish_reason":"stop"}],"created":"now"}\n\n'
    )
    assert found[0] == Started("chatcmpl-X1", "asked")


@pytest.mark.parametrize(
    ("tier", "expected"),
    [("flex", "flex"), ("on_demand", "default"), ("odd", None), ("", None), (None, None)],
)
def test_service_tiers_outside_the_enum_are_left_out(tier: Any, expected: Any) -> None:
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
def test_the_last_chunks_say_the_service_tier(
    first: Any, later: Any, usage: Any, expected: list[Event]
) -> None:
    begun = chunk(delta(content="x"), service_tier=first)
    ended = chunk(delta(finish="stop"), service_tier=later) + chunk(service_tier=later, usage=usage)
    assert [each for each in events(begun + ended + DONE) if isinstance(each, Usage)] == expected
    broken = begun + ended + b'data: {"error": {"message": "no"}}\n\n'
    assert [each for each in events(broken) if isinstance(each, Usage)] == expected


def test_a_mended_answer_keeps_the_members_that_nobody_takes() -> None:
    asked, ledger = msgspec.structs.replace(context(), rewritten=True), Ledger()
    stream = (
        chunk(delta(role="assistant"), system_fingerprint="fp", odd=None, obfuscation="xx")
        + chunk(delta(content="x"), provider="P", odd=1)
        + chunk(delta(finish="stop"))
        + DONE
    )
    found = [event for event in content(stream, asked, ledger) if isinstance(event, Opaque)]
    assert found == [
        Opaque(CHAT, "system_fingerprint", "fp", "/system_fingerprint", round_trip=False),
        Opaque(CHAT, "provider", "P", "/provider", round_trip=False),
        Opaque(CHAT, "odd", 1, "/odd", round_trip=False),
    ]
    assert list(ledger) == []
    before = chunk(system_fingerprint="fp", id=None)  # of an answer that has not begun
    assert content(before + say({"content": "x"}), asked) == content(say({"content": "x"}), asked)


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


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"usage": USAGE}, Usage(5, 2)),
        ({"usage": {"prompt_tokens": 5.0, "completion_tokens": True, "total_tokens": "x"}}, Usage(5)),
        ({"usage": {"prompt_tokens": -1, "completion_tokens": 0.5}}, Usage()),
        ({"usage": None}, None),
        ({"x_groq": {"usage": USAGE}}, Usage(5, 2)),
        (
            {
                "usage": {
                    **USAGE,
                    "prompt_tokens_details": {"cached_tokens": 3, "cache_write_tokens": 1, "audio_tokens": 0},
                    "completion_tokens_details": {"reasoning_tokens": 1, "audio_tokens": 4},
                }
            },
            Usage(5, 2, 3, 1, 1, {"completion_tokens_details": {"audio_tokens": 4}}),
        ),
        ({"usage": {**USAGE, "prompt_cache_hit_tokens": 4, "prompt_cache_miss_tokens": 1}}, Usage(5, 2, 4)),
        (
            {"usage": {**USAGE, "cache_read_input_tokens": 4, "cache_creation_input_tokens": 1, "cost": 1}},
            Usage(5, 2, 4, 1),
        ),
        # Reasoning counted beside completion_tokens: the total shows it.
        (
            {"usage": {**USAGE, "total_tokens": 10, "completion_tokens_details": {"reasoning_tokens": 3}}},
            Usage(5, 5, reasoning=3),
        ),
        ({"usage": {**USAGE, "reasoning_tokens": 1}}, Usage(5, 2, reasoning=1)),
    ],
)
def test_usage(fields: dict[str, Any], expected: Usage | None) -> None:
    for stream in (
        SOME + chunk(delta(finish="stop")) + chunk(**fields) + DONE,
        SOME + chunk(delta(finish="stop"), **fields) + DONE,
    ):
        assert next((event for event in events(stream) if isinstance(event, Usage)), None) == expected


def test_usage_in_every_chunk_counts_once_and_may_stand_in_a_choice() -> None:
    stream = (
        SOME
        + chunk(delta(content="y"), usage={"prompt_tokens": 5})
        + chunk(delta(finish="stop"), usage=USAGE)
    )
    assert [event for event in events(stream) if isinstance(event, Usage)] == [Usage(5, 2)]
    stream = SOME + chunk({**delta(finish="stop"), "usage": USAGE}) + DONE
    assert [event for event in events(stream) if isinstance(event, Usage)] == [Usage(5, 2)]


# -- the short lane ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "deltas",
    [
        [{"content": "a"}, {"content": "b"}, {"content": ""}, {"content": None}, {"content": ["x"]}, {"refusal": "r"}],
        [{"reasoning_content": "a"}, {"reasoning_content": "b"}, {"reasoning_content": ""}, {"reasoning": "c"},
         {"reasoning": "d"}, {"content": "e"}],
        [calls(piece(0, "c1", "f", "{")), calls(piece(0, arguments='"a":')), calls(piece(0, arguments="")),
         calls(piece(0, arguments="1}"), piece(1, "c2", "g", "{}")), calls(piece(1, arguments=" ")), calls(),
         {"refusal": "r"}, {"refusal": "s"}],
        [calls(piece(0, "c1", "f", "{")), calls({"index": 0, "function": {"arguments": {}}}),
         calls({"index": 0, "function": None}), calls({"index": "0", "function": {"arguments": ""}})],
    ],
)  # fmt: skip
def test_the_short_lane_gives_what_the_general_lane_gives(deltas: list[dict[str, Any]]) -> None:
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

    # Two members that mean nothing keep a delta out of the short lane.
    assert read({}) == read({"function_call": None, "annotations": None})


# -- whole answers -----------------------------------------------------------------------------------------


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


def test_a_whole_answer_gives_the_blocks_of_its_stream() -> None:
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


def test_a_whole_answer_without_a_finish_reason_is_complete() -> None:
    found = SPEC.read_whole(whole({"role": "assistant", "content": "hi"}, None), context(), Ledger())
    assert found[-2] == Stopped(StopReason.END)
    # Perplexity sends the message beside each delta: it is the same again.
    stream = chunk({**delta(content="hi"), "message": {"content": "hi"}}) + chunk(
        {"index": 0, "message": {"content": "hi"}, "finish_reason": "stop"}
    )
    assert blocks_of(events(stream)) == [("text", "hi", "")]


@pytest.mark.parametrize("body", [{}, {"choices": []}, {"choices": "x"}, whole(5)])
def test_whole_answers_that_cannot_be_read(body: dict[str, Any]) -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        SPEC.read_whole(body, context(), Ledger())
    assert caught.value.status == 502


def test_an_error_with_status_200() -> None:
    found = SPEC.read_whole({"error": {"message": "bad"}}, context(), Ledger())
    assert list(found) == [Failed(WireError(ErrorKind.SERVER, "bad"))]
