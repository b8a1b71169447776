"""Hypothesis strategies for events: legal responses, built move by move, and arbitrary events."""

from typing import Any

from hypothesis import strategies as st

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
    ReasoningForm,
    Signature,
    SignatureDelta,
    Started,
    Stopped,
    StopReason,
    TextDelta,
    ToolHead,
    Usage,
)
from dragoman._wire.errors import ErrorKind, WireError

STARTED = Started("up-1", "big-model")
HEAD = ToolHead("call-1", "look")
SIGNATURE = Signature("other", {"sig": "x"}, "big-model")
ERROR = WireError(ErrorKind.SERVER, "it broke")

# One event of every type, for block 0 of choice 0.
SAMPLES: dict[type[Event], Event] = {
    type(event): event
    for event in (
        STARTED,
        BlockStarted(0, BlockKind.TEXT),
        TextDelta(0, "a"),
        ReasoningDelta(0, "r"),
        ArgumentsDelta(0, "{}"),
        SignatureDelta(0, SIGNATURE),
        Annotation(0, "other", {"url": "u"}),
        Logprobs(0, [{"token": "a"}]),
        BlockEnded(0),
        Opaque("other", "thing", {"x": 1}, "/blocks/0"),
        Compacted("so far"),
        Usage(input=1),
        Stopped(StopReason.END),
        ENDED,
        Failed(ERROR),
    )
}


def start_of(kind: BlockKind, block: int = 0, choice: int = 0) -> BlockStarted:
    tool = ToolHead(f"call-{block}", "look") if kind is BlockKind.TOOL_CALL else None
    return BlockStarted(block, kind, choice, tool)


_texts = st.text(st.characters(codec="utf-8"), min_size=1, max_size=5)
_counts = st.none() | st.integers(0, 99)


def _fillings(block: int, kind: BlockKind) -> list[st.SearchStrategy[Any]]:
    """Strategies for the deltas that a block of this kind takes, signatures left out: those come once."""
    text = st.builds(TextDelta, st.just(block), _texts)
    logprobs = st.builds(Logprobs, st.just(block), st.lists(st.fixed_dictionaries({"token": _texts})))
    if kind is BlockKind.TEXT:
        cite = st.builds(Annotation, st.just(block), st.just("other"), st.fixed_dictionaries({"url": _texts}))
        return [text, text, logprobs, cite]
    if kind is BlockKind.REFUSAL:
        return [text, logprobs]
    if kind is BlockKind.REASONING:
        parts = st.integers(0, 2)
        return [
            st.builds(ReasoningDelta, st.just(block), _texts, part=parts, form=st.sampled_from(ReasoningForm))
        ]
    return [st.builds(ArgumentsDelta, st.just(block), _texts)]


usages = st.builds(
    Usage,
    input=_counts,
    output=_counts,
    cached=_counts,
    cache_write=_counts,
    reasoning=_counts,
    extra=st.none() | st.dictionaries(st.sampled_from("ab"), st.integers(0, 9)),
)


@st.composite
def responses(draw: Any, *, choices: int = 1, parallel: int = 3, origin: str = "other") -> list[Event]:
    """A legal response from Started to Ended: blocks opened, filled in turns and closed, opaque ones between."""
    out: list[Event] = [STARTED]
    opened: dict[int, tuple[BlockKind, int]] = {}
    wrapped: set[int] = set()
    stopped: set[int] = set()
    numbers = iter(draw(st.permutations(range(24))))
    for move in draw(
        st.lists(st.sampled_from(["start", "fill", "fill", "signature", "end", "aside"]), max_size=24)
    ):
        if move == "start" and len(opened) < parallel:
            choice = draw(st.integers(0, choices - 1))
            if choice not in stopped:
                kind = draw(st.sampled_from(BlockKind))
                block = next(numbers)
                opened[block] = kind, choice
                out.append(start_of(kind, block, choice))
        elif move == "aside":
            if opened and draw(st.booleans()):
                out.append(draw(usages))
            elif choices > 1 and (quiet := _quiet(choices, stopped, opened)):
                choice = draw(st.sampled_from(quiet))
                stopped.add(choice)
                out.append(Stopped(StopReason.END, choice=choice))
            else:
                number = draw(st.integers(0, 9))
                out.append(Opaque(origin, "thing", {"n": number}, f"/blocks/{len(out)}"))
        elif opened:
            block = draw(st.sampled_from(sorted(opened)))
            kind, choice = opened[block]
            if move == "fill":
                out.append(draw(st.one_of(_fillings(block, kind))))
            elif move == "signature" and kind is BlockKind.REASONING and block not in wrapped:
                wrapped.add(block)
                out.append(SignatureDelta(block, SIGNATURE))
            elif move == "end":
                del opened[block]
                out.append(BlockEnded(block, draw(st.booleans())))
    out += [BlockEnded(block) for block in opened]
    out += [Stopped(StopReason.END, choice=choice) for choice in range(choices) if choice not in stopped]
    return [*out, draw(usages), ENDED]


def _quiet(choices: int, stopped: set[int], opened: dict[int, tuple[BlockKind, int]]) -> list[int]:
    """The choices that may stop now: not stopped and without an open block."""
    busy = {choice for _, choice in opened.values()}
    return [choice for choice in range(choices) if choice not in stopped and choice not in busy]


# Anything, in no order, about few blocks and choices so that they meet.
_blocks = st.integers(0, 2)
arbitrary = st.one_of(
    st.just(STARTED),
    st.builds(start_of, st.sampled_from(BlockKind), _blocks, st.integers(0, 1)),
    st.builds(
        BlockStarted, _blocks, st.sampled_from(BlockKind), st.integers(0, 1), st.none() | st.just(HEAD)
    ),
    st.builds(TextDelta, _blocks, _texts),
    st.builds(ReasoningDelta, _blocks, _texts),
    st.builds(ArgumentsDelta, _blocks, _texts),
    st.builds(SignatureDelta, _blocks, st.just(SIGNATURE)),
    st.builds(Annotation, _blocks, st.just("other"), st.just({})),
    st.builds(Logprobs, _blocks, st.just([])),
    st.builds(BlockEnded, _blocks, st.booleans()),
    st.builds(Stopped, st.just(StopReason.END), choice=st.integers(0, 1)),
    st.just(Usage()),
    st.just(SAMPLES[Opaque]),
    st.just(ENDED),
    st.just(Failed(ERROR)),
)
