"""What breaks real agents and SDKs in a streamed response: each with a check for it, and a change that causes it.

A client breaks when it gives up, retries without end, or hangs. This was seen by running the clients against a provider
that sent such streams. The changes prove that the checks find them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from oracle import CHAT, MESSAGES, RESPONSES
from oracle.frames import lenient_frames

Json = dict[str, Any]
Events = list[Json]


@dataclass(frozen=True)
class ClientFailure:
    """occurs: whether a stream has it. spoil: the stream, with it."""

    occurs: Callable[[Events], bool]
    spoil: Callable[[Events], Events]


def events_of(data: bytes) -> Events:
    """The frames' documents; the end mark of a Chat stream left out."""
    return [json.loads(frame.data) for frame in lenient_frames(data) if frame.data != "[DONE]"]


def _kind(event: Json) -> str:
    return str(event.get("type", "")).removeprefix("response.")


def _of(events: Events, *kinds: str) -> Iterator[Json]:
    return (event for event in events if _kind(event) in kinds)


def _without(*kinds: str) -> Callable[[Events], Events]:
    """Events of these types are missing."""
    return lambda events: [event for event in events if _kind(event) not in kinds]


def _changed(kind: str, change: Callable[[Json], Any]) -> Callable[[Events], Events]:
    """Every event of the type, changed in place; of a Chat stream every chunk."""

    def spoil(events: Events) -> Events:
        out = deepcopy(events)
        for event in out:
            if _kind(event) == kind:
                change(event)
        return out

    return spoil


def _lacks(*path: str) -> Callable[[Json], bool]:
    def lacks(event: Any) -> bool:
        for name in path:
            event = event.get(name) if isinstance(event, dict) else None
        return event is None

    return lacks


# --- Messages -----------------------------------------------------------------------------------------------------

_STOPS = {"end_turn", "max_tokens", "stop_sequence", "tool_use", "pause_turn", "refusal"}


def _starts(events: Events) -> Events:
    return list(_of(events, "content_block_start"))


def _tool_starts(events: Events) -> Events:
    return [event for event in _starts(events) if event["content_block"]["type"] == "tool_use"]


def _stop_reasons(events: Events) -> list[Any]:
    return [event["delta"].get("stop_reason") for event in _of(events, "message_delta")]


def _open_blocks(events: Events) -> bool:
    started = [event["index"] for event in _starts(events)]
    return started != [event["index"] for event in _of(events, "content_block_stop")]


def _orphans(events: Events) -> bool:
    started = {event["index"] for event in _starts(events)}
    ends = _of(events, "content_block_delta", "content_block_stop")
    return any(event["index"] not in started for event in ends)


def _renumber(events: Events) -> Events:
    out = deepcopy(events)
    for event in out:
        if "index" in event:
            event["index"] += 1
    return out


_BLOCK_EVENTS = ("content_block_start", "content_block_delta", "content_block_stop")

_MESSAGES: dict[str, ClientFailure] = {
    "no usage at the end": ClientFailure(
        lambda events: any(map(_lacks("usage", "output_tokens"), _of(events, "message_delta"))),
        _changed("message_delta", lambda event: event.pop("usage")),
    ),
    "no usage at the start": ClientFailure(
        lambda events: any(map(_lacks("message", "usage", "input_tokens"), _of(events, "message_start"))),
        _changed("message_start", lambda event: event["message"].pop("usage")),
    ),
    "no index": ClientFailure(
        lambda events: any(map(_lacks("index"), _of(events, *_BLOCK_EVENTS))),
        _changed("content_block_start", lambda event: event.pop("index")),
    ),
    "a block that does not stop": ClientFailure(_open_blocks, _without("content_block_stop")),
    "a block that did not start": ClientFailure(_orphans, _without("content_block_start")),
    "no message_stop": ClientFailure(
        lambda events: _kind(events[-1]) != "message_stop", _without("message_stop")
    ),
    "no message_delta": ClientFailure(
        lambda events: len(list(_of(events, "message_delta"))) != 1, _without("message_delta")
    ),
    "no message_start": ClientFailure(
        lambda events: _kind(events[0]) != "message_start", _without("message_start")
    ),
    "an empty message_start": ClientFailure(
        lambda events: _lacks("message", "id")(events[0]),
        _changed("message_start", lambda event: event.pop("message")),
    ),
    "no stop reason": ClientFailure(
        lambda events: None in _stop_reasons(events),
        _changed("message_delta", lambda event: event["delta"].update(stop_reason=None)),
    ),
    "an unknown stop reason": ClientFailure(
        lambda events: not _STOPS.issuperset(_stop_reasons(events)),
        _changed("message_delta", lambda event: event["delta"].update(stop_reason="odd")),
    ),
    "another stop reason than the calls'": ClientFailure(
        lambda events: (_stop_reasons(events) == ["tool_use"]) is not bool(_tool_starts(events)),
        _changed("message_delta", lambda event: event["delta"].update(stop_reason="end_turn")),
    ),
    "the input in the start of a call": ClientFailure(
        lambda events: any(event["content_block"]["input"] != {} for event in _tool_starts(events)),
        _changed("content_block_start", lambda event: event["content_block"].update(input={"a": 1})),
    ),
    "a gap between the indexes": ClientFailure(
        lambda events: [event["index"] for event in _starts(events)] != list(range(len(_starts(events)))),
        _renumber,
    ),
    "a call without an id": ClientFailure(
        lambda events: any(map(_lacks("content_block", "id"), _tool_starts(events))),
        _changed("content_block_start", lambda event: event["content_block"].pop("id", None)),
    ),
}

# --- Responses ----------------------------------------------------------------------------------------------------

# Events between an item's beginning and its end.
_INNER = (
    "content_part.added",
    "content_part.done",
    "output_text.delta",
    "output_text.done",
    "function_call_arguments.delta",
    "function_call_arguments.done",
    "reasoning_summary_part.added",
    "reasoning_summary_part.done",
    "reasoning_summary_text.delta",
    "reasoning_summary_text.done",
)
_CALLS = ("function_call", "custom_tool_call", "local_shell_call", "tool_search_call")
_REQUIRED = ("id", "object", "created_at", "model", "output", "parallel_tool_calls", "tool_choice", "tools")


def _items(events: Events, *ends: str) -> Events:
    return [
        event["item"] for event in _of(events, *(f"output_item.{end}" for end in ends or ("added", "done")))
    ]


def _final(events: Events) -> Json:
    response: Json = events[-1].get("response") or {}
    return response


def _calls(events: Events) -> Events:
    return [item for item in _items(events) if item["type"] in _CALLS]


def _joined(events: Events, kind: str, key: str) -> list[tuple[str, str]]:
    """The text of each delta's item, put together."""
    texts: dict[str, str] = {}
    for event in _of(events, f"{kind}.delta"):
        texts[event[key]] = texts.get(event[key], "") + event["delta"]
    return sorted(texts.items())


_DONE = {"output_text": "text", "function_call_arguments": "arguments", "reasoning_summary_text": "text"}


def _deltas_missing(events: Events) -> bool:
    return any(
        _joined(events, kind, "item_id")
        != sorted((e["item_id"], e[name]) for e in _of(events, f"{kind}.done"))
        for kind, name in _DONE.items()
    )


def _parts_missing(events: Events, part: str, delta: str) -> bool:
    opened = {event["item_id"] for event in _of(events, f"{part}.added")}
    return any(event["item_id"] not in opened for event in _of(events, f"{delta}.delta"))


def _unpaired(events: Events, one: str, other: str) -> bool:
    places = [event["output_index"] for event in _of(events, f"output_item.{one}")]
    return places != [event["output_index"] for event in _of(events, f"output_item.{other}")] or not places


def _another_id(events: Events) -> Events:
    return _changed("output_item.done", lambda event: event["item"].update(id="other"))(events)


_RESPONSES: dict[str, ClientFailure] = {
    "no created": ClientFailure(lambda events: _kind(events[0]) != "created", _without("created")),
    "no item_id": ClientFailure(
        lambda events: any(map(_lacks("item_id"), _of(events, *_INNER))),
        _changed("output_text.delta", lambda event: event.pop("item_id")),
    ),
    "no output_index": ClientFailure(
        lambda events: any(
            map(_lacks("output_index"), _of(events, *_INNER, "output_item.added", "output_item.done"))
        ),
        _changed("output_item.added", lambda event: event.pop("output_index")),
    ),
    "text without its part": ClientFailure(
        lambda events: _parts_missing(events, "content_part", "output_text"), _without("content_part.added")
    ),
    "a summary without its part": ClientFailure(
        lambda events: _parts_missing(events, "reasoning_summary_part", "reasoning_summary_text"),
        _without("reasoning_summary_part.added"),
    ),
    "only text that is there at the end": ClientFailure(_deltas_missing, _without("output_text.delta")),
    "arguments that are there at the end alone": ClientFailure(
        _deltas_missing, _without("function_call_arguments.delta")
    ),
    "an item that is not done": ClientFailure(
        lambda events: _unpaired(events, "added", "done"), _without("output_item.done")
    ),
    "an item that was not added": ClientFailure(
        lambda events: _unpaired(events, "done", "added"), _without("output_item.added")
    ),
    "no completed": ClientFailure(lambda events: _kind(events[-1]) != "completed", _without("completed")),
    "incomplete": ClientFailure(
        lambda events: _final(events).get("status") != "completed",
        _changed("completed", lambda event: event["response"].update(status="incomplete")),
    ),
    "an empty output at the end": ClientFailure(
        lambda events: _final(events).get("output") != _items(events, "done"),
        _changed("completed", lambda event: event["response"].update(output=[])),
    ),
    "no usage": ClientFailure(
        lambda events: _lacks("usage", "input_tokens")(_final(events)),
        _changed("completed", lambda event: event["response"].pop("usage")),
    ),
    "little more than a status at the end": ClientFailure(
        lambda events: any(_final(events).get(name) is None for name in _REQUIRED),
        _changed("completed", lambda event: event.update(response={"status": "completed"})),
    ),
    "items without an id": ClientFailure(
        lambda events: any(map(_lacks("id"), _items(events))),
        _changed("output_item.done", lambda event: event["item"].pop("id")),
    ),
    "items without a status": ClientFailure(
        lambda events: any(
            map(_lacks("status"), (i for i in _items(events) if i["type"] in ("message", "function_call")))
        ),
        _changed("output_item.added", lambda event: event["item"].pop("status", None)),
    ),
    "an item whose id changes": ClientFailure(
        lambda events: (
            [i["id"] for i in _items(events, "added")] != [i["id"] for i in _items(events, "done")]
        ),
        _another_id,
    ),
    "a call without its call_id": ClientFailure(
        lambda events: any(map(_lacks("call_id"), _calls(events))),
        _changed("output_item.done", lambda event: event["item"].pop("call_id", None)),
    ),
}

# --- Chat Completions ---------------------------------------------------------------------------------------------

_FINISHES = {"stop", "length", "tool_calls", "content_filter", "function_call"}
_META = ("id", "object", "created", "model")


def _choices(events: Events) -> Events:
    return [choice for event in events for choice in event.get("choices") or []]


def _fragments(events: Events) -> Events:
    deltas = [choice.get("delta") or {} for choice in _choices(events)]
    return [fragment for delta in deltas for fragment in delta.get("tool_calls") or []]


def _openings(events: Events) -> Events:
    """The first fragment of each call: the one with its name."""
    return [fragment for fragment in _fragments(events) if (fragment.get("function") or {}).get("name")]


def _finishes(events: Events) -> list[str]:
    return [choice["finish_reason"] for choice in _choices(events) if choice.get("finish_reason")]


def _each_choice(change: Callable[[Json], Any]) -> Callable[[Events], Events]:
    def spoil(events: Events) -> Events:
        out = deepcopy(events)
        for choice in _choices(out):
            change(choice)
        return out

    return spoil


def _each_fragment(*names: str) -> Callable[[Events], Events]:
    def spoil(events: Events) -> Events:
        out = deepcopy(events)
        for fragment in _fragments(out):
            for name in names:
                fragment.pop(name, None)
        return out

    return spoil


def _finish_as(reason: str | None) -> Callable[[Events], Events]:
    return _each_choice(lambda choice: choice["finish_reason"] and choice.update(finish_reason=reason))


_CHAT: dict[str, ClientFailure] = {
    "no role": ClientFailure(
        lambda events: _lacks("delta", "role")(_choices(events)[0]),
        _each_choice(lambda choice: choice["delta"].pop("role", None)),
    ),
    "chunks that say not what they are": ClientFailure(
        lambda events: any(event.get(name) is None for event in events for name in _META),
        _changed("", lambda event: event.pop("id")),
    ),
    "no choices": ClientFailure(
        lambda events: any(map(_lacks("choices"), events)), _changed("", lambda event: event.pop("choices"))
    ),
    "a call without an index": ClientFailure(
        lambda events: any(map(_lacks("index"), _fragments(events))), _each_fragment("index")
    ),
    "a call without a type": ClientFailure(
        lambda events: any(map(_lacks("type"), _openings(events))), _each_fragment("type")
    ),
    "a call without an id": ClientFailure(
        lambda events: any(map(_lacks("id"), _openings(events))), _each_fragment("id")
    ),
    "no finish reason": ClientFailure(lambda events: len(_finishes(events)) != 1, _finish_as(None)),
    "an unknown finish reason": ClientFailure(
        lambda events: not _FINISHES.issuperset(_finishes(events)), _finish_as("odd")
    ),
    "a finish reason of another end": ClientFailure(
        lambda events: _finishes(events) != (["tool_calls"] if _fragments(events) else ["stop"]),
        _finish_as("length"),
    ),
    "no delta": ClientFailure(
        lambda events: any(not isinstance(choice.get("delta"), dict) for choice in _choices(events)),
        _each_choice(lambda choice: choice.update(delta=None)),
    ),
    "no usage": ClientFailure(
        lambda events: not any(event.get("usage") for event in events),
        _changed("", lambda event: event.pop("usage", None)),
    ),
}

CLIENT_FAILURES: dict[str, dict[str, ClientFailure]] = {
    CHAT: _CHAT,
    MESSAGES: _MESSAGES,
    RESPONSES: _RESPONSES,
}
