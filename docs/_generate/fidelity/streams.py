"""Make the frames of a stream from its blocks and items, so that a row has each of them once and whole.

`{"block": {...}, "deltas": [...]}` stands for the events of a content block of Messages, and
`{"item": {...}, "events": [...]}` for deltas of an output item of Responses; the second member has more deltas or
events. Everything else is a frame as it is.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

Json = Any
Frame = dict[str, Json]

# The subject of a document is an object with this one member: a list of its value, or of another value and its own.
SUBJECT = "«"
# The members that stand for several frames.
PIECES = ("block", "item")

# By type of block: its deltas, as a type and the members that come with it.
_DELTAS: dict[str, list[tuple[str, ...]]] = {
    "text": [("text_delta", "text")],
    "thinking": [("thinking_delta", "thinking"), ("signature_delta", "signature")],
    "compaction": [("compaction_delta", "content", "encrypted_content")],
}
# By type of item or part: the member that comes in deltas, and the name of these events.
_TEXTS = {
    "output_text": ("text", "output_text"),
    "refusal": ("refusal", "refusal"),
    "reasoning_text": ("text", "reasoning_text"),
    "summary_text": ("text", "reasoning_summary_text"),
    "function_call": ("arguments", "function_call_arguments"),
    "custom_tool_call": ("input", "custom_tool_call_input"),
}
# By member of an item with parts: the number of a part, and the name of its events.
_PARTS = {
    "summary": ("summary_index", "reasoning_summary_part"),
    "content": ("content_index", "content_part"),
}


def frames_of(stream: list[Json]) -> list[Json]:
    """Return the frames of a stream, numbered, with all items in the response at its end.

    All frames of a block or item that is the subject are subjects.
    """
    frames: list[Json] = []
    items: list[Json] = []
    blocks = 0
    for each in stream:
        is_subject = SUBJECT in each
        *other, whole = each[SUBJECT] if is_subject else [each]
        made = [whole]
        if "block" in whole:
            made = [{**frame, "index": blocks} for frame in _block_frames(**whole)]
            blocks += 1
        elif "item" in whole:
            at = {"output_index": len(items), "item_id": whole["item"].get("id", "")}
            made = [{**at, **frame} for frame in _item_frames(**whole)]
            items.append(whole["item"])
        frames += [{SUBJECT: [*other, frame]} for frame in made] if is_subject else made
    if items and "response" in frames[-1]:
        frames[-1] = {**frames[-1], "response": {**frames[-1]["response"], "output": items}}
    return frames


def _block_frames(block: Frame, deltas: Sequence[Frame] = ()) -> Iterator[Frame]:
    start = dict(block)
    streamed: list[Frame] = []
    for kind, *members in _DELTAS.get(block["type"], []):
        streamed.append({"type": kind, **{member: block[member] for member in members}})
        start |= dict.fromkeys(members, None if kind == "compaction_delta" else "")
    streamed += [{"type": "citations_delta", "citation": each} for each in start.pop("citations", ())]
    if block["type"] in ("tool_use", "server_tool_use"):
        streamed.append({"type": "input_json_delta", "partial_json": json.dumps(block["input"])})
        start["input"] = {}
    yield {"type": "content_block_start", "content_block": start}
    yield from ({"type": "content_block_delta", "delta": delta} for delta in (*streamed, *deltas))
    yield {"type": "content_block_stop"}


def _item_frames(item: Frame, events: Sequence[Frame] = ()) -> Iterator[Frame]:
    empty: Frame = {member: [] for member in _PARTS if member in item}
    status = {"status": "in_progress"} if "status" in item else {}
    yield {"type": "response.output_item.added", "item": {**_begun(item), **status, **empty}}
    yield from _text_events(item, {})
    for member in empty:
        index, name = _PARTS[member]
        for number, part in enumerate(item[member]):
            at = {index: number}
            yield {"type": f"response.{name}.added", **at, "part": _begun(part)}
            yield from _text_events(part, at)
            yield {"type": f"response.{name}.done", **at, "part": part}
    yield from events
    yield {"type": "response.output_item.done", "item": item}


def _begun(thing: Frame) -> Frame:
    """Return an item or part as it is before the deltas."""
    text = {_TEXTS[thing["type"]][0]: ""} if thing["type"] in _TEXTS else {}
    return {**thing, **text, **({"annotations": []} if "annotations" in thing else {})}


def _text_events(thing: Frame, at: Frame) -> Iterator[Frame]:
    if thing["type"] in _TEXTS:
        member, name = _TEXTS[thing["type"]]
        at = {**at, **({"logprobs": thing["logprobs"]} if "logprobs" in thing else {})}
        yield {"type": f"response.{name}.delta", **at, "delta": thing[member]}
        for number, each in enumerate(thing.get("annotations", ())):
            kind = "response.output_text.annotation.added"
            yield {"type": kind, **at, "annotation_index": number, "annotation": each}
        yield {"type": f"response.{name}.done", **at, member: thing[member]}
