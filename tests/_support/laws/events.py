"""Responses as events: a fixed set that has everything, and a Hypothesis strategy of legal ones.

`scripted` makes an upstream of any list of events, so that events go through all of ResponseTranslator: its
frames are numbers, and each stands for the events of that number.
"""

# ruff: noqa: E501 -- the tables are read by row

import json
from collections.abc import Sequence
from typing import Any

import msgspec
from hypothesis import strategies as st

from dragoman import UPSTREAMS, Ledger
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
    ReasoningForm,
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
from dragoman._wire.errors import ErrorKind, WireError
from dragoman.codec import ResponseContext, UpstreamSpec
from dragoman.sse import Frame

# The upstream that makes scripted events: none of the real ones, so that everything has to be kept.
SCRIPTED = "scripted"


class _Script:
    """A stream reader whose frames are the numbers of steps."""

    def __init__(self, steps: Sequence[Sequence[Event]]) -> None:
        self._steps = steps

    def read(self, frame: Frame) -> Sequence[Event]:
        return self._steps[int(frame.data)]

    def eof(self) -> Sequence[Event]:
        return ()

    def template_for(self, delta: Any) -> None:
        return None


def scripted(events: Sequence[Event]) -> tuple[UpstreamSpec, bytes]:
    """A protocol in which these events are said, one a frame, and the stream that says them."""

    def reader(context: ResponseContext, ledger: Ledger) -> _Script:
        return _Script([[event] for event in events])

    spec = msgspec.structs.replace(UPSTREAMS["openai_chat"], name=SCRIPTED, stream_reader=reader)
    return spec, b"".join(b"data: %d\n\n" % number for number in range(len(events)))


# --- a fixed set --------------------------------------------------------------------------------------------

_SIGNATURE = Signature(SCRIPTED, {"sealed": "c2VjcmV0"}, "big")
_START = Started("up-1", "big", 5, "priority")
_TOKENS = [{"token": "He", "logprob": -0.5, "bytes": [72, 101], "top_logprobs": []}]
_END = [Usage(100, 50, 20, 10, 30), ENDED]


def _meaning(*blocks: list[Event], stop: Stopped) -> list[Event]:
    return [_START, *[event for block in blocks for event in block], stop, *_END]


def _text(block: int, *texts: str, **fields: Any) -> list[Event]:
    deltas = [TextDelta(block, text) for text in texts]
    return [BlockStarted(block, BlockKind.TEXT, **fields), *deltas, BlockEnded(block)]


def _reasoning(block: int, *parts: tuple[int, str], signature: bool = True) -> list[Event]:
    deltas: list[Event] = [ReasoningDelta(block, text, part, ReasoningForm.SUMMARY) for part, text in parts]
    wrapped: list[Event] = [SignatureDelta(block, _SIGNATURE)] if signature else []
    return [BlockStarted(block, BlockKind.REASONING), *deltas, *wrapped, BlockEnded(block)]


def _call(block: int, name: str, *texts: str, whole: bool = True) -> list[Event]:
    deltas = [ArgumentsDelta(block, text) for text in texts]
    head = ToolHead(f"call_{block}", name)
    return [BlockStarted(block, BlockKind.TOOL_CALL, tool=head), *deltas, BlockEnded(block, whole)]


EVENTS: dict[str, list[Event]] = {
    "empty": _meaning(stop=Stopped(StopReason.END)),
    "text": _meaning(_text(0, "Hel", "lo \U0001f600", "\u2028\n\n"), stop=Stopped(StopReason.END)),
    "texts": _meaning(_text(0, "One."), _text(1, " Two."), stop=Stopped(StopReason.END)),
    "thought": _meaning(_reasoning(0, (0, "So"), (0, "."), (1, "And?")), _text(1, "Hm."), stop=Stopped(StopReason.END)),
    "silent-thought": _meaning(_reasoning(0), _text(1, "Hm."), stop=Stopped(StopReason.END)),
    "unsealed": _meaning(_reasoning(0, (0, "So"), signature=False), _text(1, "Hm."), stop=Stopped(StopReason.END)),
    "interleaved": _meaning(
        _reasoning(0, (0, "a")),
        _call(1, "f", '{"a":', " 1}"),
        _reasoning(2, (0, "b")),
        _call(3, "g"),
        _text(4, "c"),
        stop=Stopped(StopReason.TOOL_USE),
    ),
    "parallel": [
        _START,
        BlockStarted(0, BlockKind.TOOL_CALL, tool=ToolHead("call_0", "f")),
        BlockStarted(1, BlockKind.TOOL_CALL, tool=ToolHead("call_1", "g")),
        ArgumentsDelta(1, '{"b":'),
        ArgumentsDelta(0, '{"a":'),
        ArgumentsDelta(1, "2}"),
        ArgumentsDelta(0, "1}"),
        BlockEnded(1),
        BlockEnded(0),
        Stopped(StopReason.TOOL_USE),
        *_END,
    ],
    "cut-call": _meaning(_text(0, "a"), _call(1, "f", '{"a":', whole=False), stop=Stopped(StopReason.MAX_TOKENS)),
    "cut-text": _meaning(_text(0, "a"), stop=Stopped(StopReason.MAX_TOKENS)),
    "custom": [
        _START,
        BlockStarted(0, BlockKind.TOOL_CALL, tool=ToolHead("call_0", "patch", ToolKind.CUSTOM)),
        ArgumentsDelta(0, '*** "Begin"\n'),
        BlockEnded(0),
        Stopped(StopReason.TOOL_USE),
        *_END,
    ],
    "refusal": [_START, BlockStarted(0, BlockKind.REFUSAL), TextDelta(0, "I will "), TextDelta(0, "not."), BlockEnded(0), Stopped(StopReason.END), *_END],
    "filtered": _meaning(stop=Stopped(StopReason.CONTENT_FILTER, explanation="Not that.")),
    "sequence": _meaning(_text(0, "one "), stop=Stopped(StopReason.STOP_SEQUENCE, sequence="STOP")),
    "cited": [
        _START,
        BlockStarted(0, BlockKind.TEXT),
        Logprobs(0, _TOKENS),
        TextDelta(0, "He"),
        Annotation(0, SCRIPTED, {"url": "https://example.com"}, "https://example.com", "E", 0, 2),
        BlockEnded(0),
        Stopped(StopReason.END),
        *_END,
    ],
}  # fmt: skip


# --- random responses ------------------------------------------------------------------------------------------

_texts = st.text(st.characters(codec="utf-8"), min_size=1, max_size=6)
_values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | _texts,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(_texts, inner, max_size=2),
    max_leaves=4,
)
_objects = st.dictionaries(_texts, _values, max_size=3).map(
    lambda value: json.dumps(value, ensure_ascii=False)
)
_counts = st.integers(0, 99)
_usages = st.builds(
    lambda fresh, cached, written, output, thinking_block: Usage(
        fresh + cached + written, output + thinking_block, cached, written, thinking_block
    ),
    _counts,
    _counts,
    _counts,
    _counts,
    _counts,
)
_tokens = st.lists(
    st.fixed_dictionaries(
        {"token": _texts, "logprob": st.floats(-9, 0), "bytes": st.just([1]), "top_logprobs": st.just([])}
    ),
    min_size=1,
    max_size=2,
)
_errors = st.builds(WireError, st.sampled_from(ErrorKind), _texts.map(lambda text: f"broke: {text.strip()}"))
_heads = st.builds(
    ToolHead, st.uuids().map(str), st.sampled_from(("f", "look_up", "A-9")), st.sampled_from(ToolKind)
)


@st.composite
def _fillings(draw: Any, start: BlockStarted) -> list[Event]:
    """What comes inside of one block, in order."""
    block = start.block
    if start.tool is not None:
        whole = draw(_objects if start.tool.kind is ToolKind.FUNCTION else _texts)
        cut = draw(st.integers(0, len(whole)))
        return [ArgumentsDelta(block, text) for text in (whole[:cut], whole[cut:]) if text]
    if start.kind is BlockKind.REASONING:
        parts = sorted(draw(st.lists(st.integers(0, 2), max_size=4)))
        form = draw(st.sampled_from(ReasoningForm))
        texts: list[Event] = [ReasoningDelta(block, draw(_texts), part, form) for part in parts]
        signed: list[Event] = [SignatureDelta(block, _SIGNATURE)] if draw(st.booleans()) or not texts else []
        return [*texts, *signed]
    first: list[Event] = [TextDelta(block, draw(_texts))]
    more = [st.builds(TextDelta, st.just(block), _texts), st.builds(Logprobs, st.just(block), _tokens)]
    if start.kind is BlockKind.TEXT:
        more.append(st.just(Annotation(block, SCRIPTED, {"url": "u"}, "https://example.com", "E")))
    return first + draw(st.lists(st.one_of(more), max_size=4))


# Chat has one text a choice, so blocks of text cannot be open together there; calls can everywhere.
CALLS = frozenset({BlockKind.TOOL_CALL})
ANY = frozenset(BlockKind)


@st.composite
def legal(
    draw: Any, *, choices: int = 1, fails: bool = False, together: frozenset[BlockKind] = CALLS
) -> list[Event]:
    """A legal response: Started to Ended, or, with `fails`, to a Failed at any point.

    together: the kinds of which several blocks may be open in one choice.
    """
    events: list[Event] = [Started("up-1", "big", 5)]
    kinds = draw(st.lists(st.tuples(st.integers(0, choices - 1), st.sampled_from(BlockKind)), max_size=4))
    # Indexes do not define the order.
    starts = [
        BlockStarted(n * 7 % 11, kind, choice, draw(_heads) if kind is BlockKind.TOOL_CALL else None)
        for n, (choice, kind) in enumerate(kinds)
    ]
    opened: dict[BlockStarted, list[Event]] = {}
    for start in starts:
        while not _fits(start, opened, together) or (opened and draw(st.booleans())):
            _go_on(draw, opened, events)
        opened[start] = draw(_fillings(start))
        events.append(start)
    while opened:
        _go_on(draw, opened, events)
    for choice in range(choices):
        own = [start for start in starts if start.choice == choice]
        ends = [events.index(BlockEnded(start.block)) for start in own]
        called = any(start.tool is not None for start in own)
        plain = StopReason.TOOL_USE if called else StopReason.END
        reason = draw(st.sampled_from([plain, plain, StopReason.MAX_TOKENS, StopReason.CONTENT_FILTER]))
        at = draw(st.integers(max(ends, default=0) + 1, len(events))) if choices > 1 else len(events)
        events.insert(at, Stopped(reason, choice=choice))
    if fails:
        return [*events[: draw(st.integers(0, len(events)))], Failed(draw(_errors))]
    return [*events, ENDED]


def _fits(
    start: BlockStarted, opened: dict[BlockStarted, list[Event]], together: frozenset[BlockKind]
) -> bool:
    beside = {other.kind for other in opened if other.choice == start.choice}
    return len(opened) < 3 and (not beside or beside | {start.kind} <= together)


def _go_on(draw: Any, opened: dict[BlockStarted, list[Event]], events: list[Event]) -> None:
    """The next event of one of the open blocks, or one that belongs to none."""
    start = draw(st.sampled_from([*opened, None]))
    if start is None:
        aside = st.just(Opaque(SCRIPTED, "thing", {"n": len(events)}, f"/blocks/{len(events)}"))
        events.append(draw(_usages | aside))
    elif opened[start]:
        events.append(opened[start].pop(0))
    else:
        del opened[start]
        events.append(BlockEnded(start.block))
