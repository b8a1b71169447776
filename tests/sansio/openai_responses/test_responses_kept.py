"""What a body says beyond what the document and the events hold is kept beside them, or entered as a loss."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman._ir.events import (
    ENDED,
    Annotation,
    BlockEnded,
    BlockKind,
    BlockStarted,
    Logprobs,
    Started,
    Stopped,
    StopReason,
    TextDelta,
    Usage,
)
from dragoman._ir.losses import Ledger
from dragoman._ir.request import CacheMark, Message, Namespace, ReasoningConfig, Request, Text
from dragoman._ir.signatures import Sealer
from dragoman._wire.json import encode
from dragoman._wire.sse import Frame
from dragoman.codec import Exchange, Target
from dragoman.protocols.openai_responses import SPEC

EXCHANGE = Exchange(Request("openai_chat", "m", (), {}), "x1", 7, "alias")
FUNCTION = {"type": "function", "name": "f"}


def read(**body: Any) -> Request:
    return SPEC.read_request({"model": "m", "input": "hi", **body}, Sealer())


@pytest.mark.parametrize(
    ("body", "extra"),
    [
        ({"text": {"format": {"type": "text"}}}, None),
        ({"text": {"format": {"type": "text", "x": 1}}}, {"text": {"format": {"type": "text", "x": 1}}}),
        ({"tool_choice": FUNCTION}, None),
        ({"tool_choice": {**FUNCTION, "x": 1}}, {"tool_choice": {**FUNCTION, "x": 1}}),
        ({"tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [FUNCTION]}}, None),
        (
            {"tool_choice": {"type": "allowed_tools", "mode": "odd", "tools": [FUNCTION]}},
            {"tool_choice": {"type": "allowed_tools", "mode": "odd", "tools": [FUNCTION]}},
        ),
        (
            {"tool_choice": {"type": "allowed_tools", "tools": [{**FUNCTION, "x": 1}]}},
            {"tool_choice": {"type": "allowed_tools", "tools": [{**FUNCTION, "x": 1}]}},
        ),
    ],
)
def test_settings_that_say_more(body: Any, extra: Any) -> None:
    assert read(**body).extra == extra


GRAMMAR = {"type": "grammar", "syntax": "lark", "definition": "d"}


@pytest.mark.parametrize(
    ("form", "extra"),
    [
        (None, None),
        ({"type": "text"}, None),
        (GRAMMAR, None),
        ({**GRAMMAR, "x": 1}, {"format": {**GRAMMAR, "x": 1}}),
        ({"type": "odd"}, {"format": {"type": "odd"}}),
        ("odd", {"format": "odd"}),
    ],
)
def test_formats_that_say_more(form: Any, extra: Any) -> None:
    [tool] = read(tools=[{"type": "custom", "name": "c", "format": form}]).tools
    assert getattr(tool, "extra", None) == extra


def test_what_a_namespace_says() -> None:
    space = {"type": "namespace", "name": "n", "description": "d", "x": 1, "tools": [FUNCTION]}
    assert read(tools=[space]).namespaces == (Namespace("d", {"x": 1}, "/tools/0"),)


def test_what_an_item_of_tools_says() -> None:
    item = {"type": "additional_tools", "role": "developer", "tools": [FUNCTION]}
    assert read(input=[item]).messages == ()
    assert read(input=[{**item, "x": 1}]).messages == (Message("user", (), "/input/0", extra={"x": 1}),)


def test_a_cache_mark_that_says_more() -> None:
    mark = {"mode": "explicit", "ttl": "12h", "x": 1}
    part = {"type": "input_text", "text": "a", "prompt_cache_breakpoint": mark}
    [found] = read(input=[{"role": "user", "content": [part]}]).messages[0].parts
    at = "/input/0/content/0"
    assert found == Text(
        "a", CacheMark(f"{at}/prompt_cache_breakpoint", "long"), None, {"prompt_cache_breakpoint": mark}, at
    )


@pytest.mark.parametrize(
    "config",
    [
        ReasoningConfig("enabled", budget=2000, path="/thinking"),
        ReasoningConfig("disabled", "high", path="/thinking"),
    ],
)
def test_reasoning_that_is_told_otherwise(config: ReasoningConfig) -> None:
    ledger = Ledger()
    said = (Message("user", (Text("hi"),), "/m"),)
    SPEC.write_request(Request("openai_chat", "m", said, {}, reasoning=config), Target(), ledger)
    assert [(loss.code.value, loss.path) for loss in ledger] == [("altered", "/thinking")]


# --- answers

ITEM = {"type": "message", "id": "i", "role": "assistant", "status": "completed"}
PART = {"type": "output_text", "text": "a", "annotations": []}
HEAD = {"id": "r", "model": "m", "created_at": 5, "output": []}


def done(item: Any, **fields: Any) -> dict[str, Any]:
    return {"type": "response.output_item.done", "output_index": 0, "item": item, **fields}


def ended(status: str = "completed", **fields: Any) -> dict[str, Any]:
    return {"type": f"response.{status}", "response": {**HEAD, "status": status, **fields}}


def opened(tier: str) -> dict[str, Any]:
    return {"type": "response.created", "response": {**HEAD, "service_tier": tier}}


@pytest.mark.parametrize(
    ("events", "losses"),
    [
        (
            [done({**ITEM, "content": [PART], "x": 1}, y=1)],
            [("unknown_field", "/output/0/y"), ("unknown_field", "/output/0/x")],
        ),
        ([{"type": "response.created", "response": HEAD, "x": 1}], [("unknown_field", "/x")]),
        ([done({**ITEM, "content": [{"type": "odd", "odd": 1}]})], [("unknown_kind", "/output/0/content/0")]),
        (
            [ended(moderation={"input": {"flagged": True}}, x=1)],
            [("dropped", "/moderation"), ("unknown_field", "/x")],
        ),
        (
            [ended("incomplete", incomplete_details={"reason": "bored"})],
            [("altered", "/incomplete_details/reason")],
        ),
        ([ended("incomplete", incomplete_details={"reason": "steered"})], []),
        ([opened("auto"), ended(service_tier="default")], []),
        # Told with the usage.
        ([opened("auto"), ended(service_tier="priority")], []),
        ([opened("priority"), ended(service_tier="default")], []),
    ],
)
def test_events_that_say_more(events: Any, losses: Any) -> None:
    ledger = Ledger()
    reader = SPEC.stream_reader(EXCHANGE, ledger)
    for event in events:
        reader.read(Frame(event["type"].encode(), encode(event)))
    assert [(loss.code.value, loss.path) for loss in ledger] == losses


def test_answers_that_say_more() -> None:
    ledger = Ledger()
    writer = SPEC.stream_writer(EXCHANGE, ledger)
    for event in (
        Started("i", "m"),
        BlockStarted(0, BlockKind.TEXT),
        TextDelta(0, "a"),
        Annotation(0, "other", {"url": "u", "cited_text": "a"}, "u"),
        BlockEnded(0),
        BlockStarted(1, BlockKind.REFUSAL),
        Logprobs(1, [{"token": "n", "logprob": -1}]),
        TextDelta(1, "no"),
        BlockEnded(1),
        Usage(1, 2, extra={"iterations": []}),
        Stopped(StopReason.END),
        ENDED,
    ):
        writer.send(event)
    assert {loss.path for loss in ledger} == {"/annotations/0", "/logprobs/1", "/usage/iterations"}
