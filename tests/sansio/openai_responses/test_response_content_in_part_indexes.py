"""Servers whose events number the parts of an item differently from the finished item: frames in, events out.

Everything is emitted once, and nothing is a loss.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from responses_upstream import (
    ADDED,
    BARE_FINAL,
    CALL,
    CALL_ADDED,
    REASONING,
    created,
    delta,
    ended,
    event,
    events_of,
    message,
    text_part,
)

from dragoman._ir.events import BlockStarted, Event, ReasoningDelta, TextDelta
from dragoman._ir.losses import Ledger

Payload = dict[str, Any]


def reasoning(text: str, **fields: Any) -> Payload:
    return {**REASONING, "content": [{"type": "reasoning_text", "text": text}], **fields}


def counted_by_item(output: int, content: int, item: Payload, *texts: str) -> Iterator[Payload]:
    """One item as vLLM streams gpt-oss since 0.12: `content_index` counts on across items (vllm#45742), and reasoning
    has events of its own, `reasoning_part.added` and `.done`.
    """
    place: Payload = {"item_id": item["id"], "content_index": content}
    is_reasoning = item["type"] == "reasoning"
    part, name = ("reasoning_part", "reasoning_text") if is_reasoning else ("content_part", "output_text")
    whole = {"type": name, "text": "".join(texts), **({} if is_reasoning else {"annotations": []})}
    yield event("output_item.added", output, item=item)
    yield event(f"{part}.added", output, **place, part={**whole, "text": ""})
    for text in texts:
        yield event(f"{name}.delta", output, **place, delta=text)
    yield event(f"{name}.done", output, **place, text="".join(texts))
    yield event(f"{part}.done", output, **place, part=whole)
    yield event("output_item.done", output, item={**item, "content": [whole], "status": "completed"})


def counted_by_delta(output: int, item: Payload, *texts: str) -> Iterator[Payload]:
    """One item as vLLM streamed it before 0.12: a part is announced, and each later event has the next index."""
    is_reasoning = item["type"] == "reasoning"
    name = "reasoning_text" if is_reasoning else "output_text"
    whole = text_part("".join(texts))
    yield event("output_item.added", output, item=item)
    yield event("content_part.added", output, content_index=0, part=text_part(""))
    for index, text in enumerate(texts, 1):
        yield event(f"{name}.delta", output, content_index=index, delta=text)
    yield event(f"{name}.done", output, content_index=len(texts) + 1, text="".join(texts))
    if is_reasoning:
        whole = {"type": "reasoning_text", "text": "".join(texts)}
    else:
        yield event("content_part.done", output, content_index=len(texts) + 2, part=whole)
    yield event("output_item.done", output, item={**item, "content": [whole], "status": "completed"})


def reasoning_then_text_before_0_12() -> Iterator[Payload]:
    """The message is added under the index and id of the reasoning; its parts have an index of their own."""
    yield from counted_by_delta(0, REASONING_TEXT, "H", "mm")
    yield event("output_item.added", item={**MESSAGE, "id": REASONING_TEXT["id"]})
    yield from list(counted_by_delta(1, {**MESSAGE, "id": "n"}, "Hel", "lo"))[1:]


REASONING_TEXT, MESSAGE = {**REASONING, "id": "r"}, message(id="m")
# The final response has new ids, and may have new indexes.
NEW = (reasoning("Hmm", id="rs_new"), message(text_part("Hello"), id="msg_new"))

STREAMS: list[list[Payload]] = [
    [
        *counted_by_item(0, 0, REASONING_TEXT, "H", "mm"),
        *counted_by_item(1, 1, MESSAGE, "Hel", "lo"),
        ended(*NEW),
    ],
    [
        *counted_by_item(1, 0, REASONING_TEXT, "H", "mm"),
        *counted_by_item(2, 1, MESSAGE, "Hel", "lo"),
        ended(*NEW),
    ],
    [*counted_by_delta(0, REASONING_TEXT, "H", "m", "m"), *counted_by_delta(1, MESSAGE, "He", "ll", "o"), ended(*NEW)],
    [*reasoning_then_text_before_0_12(), ended(*NEW)],
    # No event of the parts, or none of the items, repeats it.
    [
        *list(counted_by_item(0, 0, REASONING_TEXT, "Hmm"))[:3],
        *list(counted_by_item(1, 1, MESSAGE, "Hel"))[:3],
        ended(*NEW),
    ],
    [*counted_by_item(0, 3, REASONING_TEXT, "Hmm"), *counted_by_item(1, 7, MESSAGE, "Hello"), BARE_FINAL],
]  # fmt: skip


def texts_and_blocks(events: list[Event]) -> tuple[str, str, int]:
    """Return all reasoning, all text, and the number of blocks."""
    reasoning_parts = "".join(each.text for each in events if isinstance(each, ReasoningDelta))
    text = "".join(each.text for each in events if isinstance(each, TextDelta))
    return reasoning_parts, text, sum(isinstance(each, BlockStarted) for each in events)


@pytest.mark.parametrize("payloads", STREAMS)
def test_parts_are_matched_by_order(payloads: list[Payload]) -> None:
    ledger = Ledger()
    assert texts_and_blocks(events_of(created(), *payloads, ledger=ledger)) == ("Hmm", "Hello", 2)
    assert list(ledger) == []


def test_a_message_added_under_another_index_is_emitted_as_it_comes() -> None:
    payloads = [created(), *list(reasoning_then_text_before_0_12())[:-3], ended(*NEW)]
    texts = [each.text for each in events_of(*payloads) if isinstance(each, TextDelta)]
    assert texts == ["Hel", "lo"]


def test_reasoning_stays_one_paragraph() -> None:
    events = events_of(created(), *counted_by_delta(0, REASONING_TEXT, "H", "m", "m"), BARE_FINAL)
    assert {each.part for each in events if isinstance(each, ReasoningDelta)} == {0}


def test_items_with_new_ids_and_indexes() -> None:
    call = {**CALL, "id": "fc_new", "call_id": "c_new", "arguments": "{}", "status": "completed"}
    begun = [CALL_ADDED, event("function_call_arguments.done", arguments="{}")]
    events = events_of(
        created(),
        *counted_by_item(1, 0, {**MESSAGE, "id": "a"}, "A"),
        *[{**each, "output_index": 2} for each in begun],
        *list(counted_by_item(3, 1, {**MESSAGE, "id": "b"}, "B"))[:3],
        ended(message(text_part("A"), id="x"), call, message(text_part("B, too"), id="y")),
    )
    assert texts_and_blocks(events) == ("", "AB, too", 3)


PARTS: list[tuple[list[tuple[int, str]], list[str], list[str]]] = [
    # Deltas by index, the parts of the finished item, and the texts of the blocks.
    ([(0, "A"), (1, "B")], ["A", "B"], ["A", "B"]),
    ([(1, "A"), (2, "B")], ["A", "B"], ["A", "B"]),
    ([(1, "A"), (2, "B")], ["A", "Bb", "C"], ["A", "Bb", "C"]),
    ([(1, "B")], ["A", "B"], ["B", "A"]),
    ([(0, "C"), (1, "D")], ["A", "B", "C", "D"], ["C", "D", "A", "B"]),
    ([(0, "A"), (0, "B")], ["ABC"], ["ABC"]),
    ([(1, "A"), (1, "B")], ["C", "AB"], ["AB", "C"]),
    ([(0, "B")], ["", "B"], ["B"]),
    # A part that goes on after another one has a second block, and none of its text comes twice.
    ([(0, "A"), (1, "B"), (0, "A")], ["AA", "B"], ["A", "B", "A"]),
    # Text that contradicts the deltas is not emitted.
    ([(0, "A")], ["other"], ["A"]),
    ([(0, "A"), (1, "B")], ["other", "B"], ["A", "B"]),
    ([(0, "A"), (1, "B")], ["AC"], ["A", "B", "C"]),
]


@pytest.mark.parametrize(("deltas", "finished", "blocks"), PARTS)
def test_parts_of_a_finished_item(
    deltas: list[tuple[int, str]], finished: list[str], blocks: list[str]
) -> None:
    begun = [{**delta(text), "content_index": index} for index, text in deltas]
    done = event("output_item.done", item=message(*map(text_part, finished)))
    found: dict[int, str] = {}
    for each in events_of(created(), ADDED, *begun, done, BARE_FINAL):
        if isinstance(each, TextDelta):
            found[each.block] = found.get(each.block, "") + each.text
    assert list(found.values()) == blocks
