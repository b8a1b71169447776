"""The Response object around the items: what each one has, whenever it is sent."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from responses_client import STARTED, answer, call, output, own, stream, text, thought, whole

from dragoman._ir.events import (
    ArgumentsDelta,
    BlockKind,
    BlockStarted,
    Event,
    Failed,
    ReasoningDelta,
    Stopped,
    StopReason,
    ToolHead,
    ToolKind,
)
from dragoman._wire.errors import ErrorKind, WireError
from dragoman.codec import ResponseContext

FAULT = WireError(ErrorKind.RATE_LIMIT, "slow down")
NUMBER = (int, float)
NULL = type(None)
# What `ResponseResource` of the Open Responses specification (2026-04-24) requires, and of which types.
OPEN_RESPONSES: dict[str, tuple[type, ...]] = {
    "background": (bool,),
    "completed_at": (int, NULL),
    "created_at": (int,),
    "error": (dict, NULL),
    "frequency_penalty": NUMBER,
    "id": (str,),
    "incomplete_details": (dict, NULL),
    "instructions": (str, NULL),
    "max_output_tokens": (int, NULL),
    "max_tool_calls": (int, NULL),
    "metadata": (dict,),
    "model": (str,),
    "object": (str,),
    "output": (list,),
    "parallel_tool_calls": (bool,),
    "presence_penalty": NUMBER,
    "previous_response_id": (str, NULL),
    "prompt_cache_key": (str, NULL),
    "reasoning": (dict, NULL),
    "safety_identifier": (str, NULL),
    "service_tier": (str,),
    "status": (str,),
    "store": (bool,),
    "temperature": NUMBER,
    "text": (dict,),
    "tool_choice": (str, dict),
    "tools": (list,),
    "top_logprobs": (int,),
    "top_p": NUMBER,
    "truncation": (str,),
    "usage": (dict, NULL),
}


@pytest.mark.parametrize(
    "asked", [own(), own(temperature=None, top_p=None, service_tier=None, metadata=None)]
)
def test_every_response_has_what_open_responses_requires(asked: ResponseContext) -> None:
    answers = [answer(*text(), context=asked), stream(STARTED, Failed(FAULT), context=asked)]
    found = [payload["response"] for each in answers for payload in each if "response" in payload]
    assert {each["status"] for each in found} == {"in_progress", "completed", "failed"}
    for response in found:
        wrong = [
            name for name, types in OPEN_RESPONSES.items() if not isinstance(response.get(name, ...), types)
        ]
        assert wrong == []


def test_an_answer_is_complete_when_the_clock_says_so() -> None:
    asked = msgspec.structs.replace(own(), clock=lambda: 9)
    ends = [answer(context=asked)[-1], answer(context=asked, stop=Stopped(StopReason.MAX_TOKENS))[-1]]
    told = [(each["response"]["created_at"], each["response"]["completed_at"]) for each in ends]
    assert told == [(7, 9), (7, None)]


SHELL = ToolHead("c1", "shell", hosted="shell")
OPEN_ITEMS: list[tuple[list[Event], list[dict[str, Any]]]] = [
    (text(0, "a"), [{"type": "message", "status": "completed"}]),
    (text(0, "a")[:-1], [{"type": "message", "status": "incomplete"}]),
    (text(0, "a")[:1], []),  # nothing of it has come
    (
        thought(ReasoningDelta(0, "a"), ReasoningDelta(0, "b", 1))[:-1],
        [
            {
                "type": "reasoning",
                "status": "incomplete",
                "summary": [{"type": "summary_text", "text": "a"}, {"type": "summary_text", "text": "b"}],
            }
        ],
    ),
    (call(0, '{"a')[:-1], [{"type": "function_call", "status": "incomplete", "arguments": '{"a'}]),
    (call(0, "x", kind=ToolKind.CUSTOM)[:-1], []),  # it has no status
    (
        [BlockStarted(0, BlockKind.TOOL_CALL, tool=SHELL), ArgumentsDelta(0, '{"co')],
        [{"type": "function_call", "status": "incomplete", "arguments": '{"co', "id": "fc_x1_0"}],
    ),
]


@pytest.mark.parametrize(("events", "expected"), OPEN_ITEMS)
def test_a_failed_response_holds_the_item_that_was_open(events: list[Event], expected: list[Any]) -> None:
    found = output(stream(STARTED, *events, Failed(FAULT)))
    assert found == whole(STARTED, *events, Failed(FAULT))["output"]
    assert [
        {key: item[key] for key in wanted} for item, wanted in zip(found, expected, strict=True)
    ] == expected
