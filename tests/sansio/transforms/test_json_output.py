"""Structured output for upstreams without it: what is requested instead, and what the client gets."""

import pytest
from core.events import STARTED, start_of
from core.passes import through
from hypothesis import given
from hypothesis import strategies as st

from dragoman._ir.events import (
    ENDED,
    BlockEnded,
    BlockKind,
    BlockStarted,
    Event,
    Stopped,
    StopReason,
    TextDelta,
)
from dragoman._transforms.json_output import CodeFenceStage, JsonToolStage

# The tool's response


def staged(stage: JsonToolStage | CodeFenceStage, events: list[Event]) -> list[Event]:
    return through(stage, events)


def text(block: int, *texts: str) -> list[Event]:
    return [start_of(BlockKind.TEXT, block), *[TextDelta(block, each) for each in texts], BlockEnded(block)]


END = Stopped(StopReason.END)


# The fence


FENCES = [
    ('{"a":1}', '{"a":1}'),
    ('```json\n{"a":1}\n```', '{"a":1}'),
    ('```\n{"a":1}\n```\n', '{"a":1}'),
    ('\n ```json\n{"a":\n1}```', '{"a":\n1}'),
    ("```json\n{}", "{}"),
    ('```json\n{"a":"`` `"}\n```', '{"a":"`` `"}'),
    ('{"a":"```"}', '{"a":"```"}'),
    ("`x`", "`x`"),
    ("``", "``"),
    ("```json", "```json"),
    ("```" + "x" * 200 + "\n```", "```" + "x" * 200 + "\n```"),  # that is no name of a language
    ("```\na ` ```", "a `"),
    ("```\na\n \n` `b", "a\n \n` `b"),
    ("", ""),
    ("  7", "  7"),
]


def test_a_markdown_fence_is_removed(subtests: pytest.Subtests) -> None:
    for fenced, bare in FENCES:
        with subtests.test(fenced=fenced, bare=bare):
            for size in (1, 2, 3, 100):
                texts = [fenced[at : at + size] for at in range(0, len(fenced), size)]
                out = staged(CodeFenceStage(), [STARTED, *text(0, *texts), END, ENDED])
                assert "".join(each.text for each in out if isinstance(each, TextDelta)) == bare
                assert all(each.text for each in out if isinstance(each, TextDelta))
                assert [type(each) for each in out if not isinstance(each, TextDelta)] == [
                    type(STARTED), BlockStarted, BlockEnded, Stopped, type(ENDED),
                ]  # fmt: skip


@given(st.text("`a\n {", max_size=20), st.integers(1, 5))
def test_any_cut_of_a_fence_gives_the_same(fenced: str, size: int) -> None:
    def bare(size: int) -> str:
        texts = [fenced[at : at + size] for at in range(0, len(fenced), size)]
        out = staged(CodeFenceStage(), text(0, *texts))
        return "".join(each.text for each in out if isinstance(each, TextDelta))

    assert bare(size) == bare(100)
