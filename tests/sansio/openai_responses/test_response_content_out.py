"""The Response object around the items, and items that only other vendors' responses have."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from responses_client import (
    FOREIGN,
    ORIGIN,
    SIGNER,
    STARTED,
    USAGE,
    call,
    kinds,
    output,
    reasoning_block,
    response_payloads,
    responses_context,
    stream,
    text,
    whole,
)

from dragoman._ir.events import (
    ArgumentsDelta,
    BlockKind,
    BlockStarted,
    Compacted,
    Event,
    Failed,
    Opaque,
    ReasoningDelta,
    Search,
    Signature,
    SignatureDelta,
    Source,
    Started,
    Stopped,
    StopReason,
    ToolHead,
    ToolKind,
)
from dragoman._ir.request import Message, Text
from dragoman._wire.errors import ErrorKind, WireError
from dragoman.codec import ResponseContext
from dragoman.protocols.openai_responses import SPEC


def test_the_response_has_every_field_that_the_vendor_sends() -> None:
    payloads = response_payloads()
    started = payloads[0]["response"]
    assert started == payloads[1]["response"]
    assert started == {
        "id": "resp_x1",
        "object": "response",
        "created_at": 7,
        "status": "in_progress",
        "completed_at": None,
        "error": None,
        "incomplete_details": None,
        "model": "alias",
        "output": [],
        "usage": None,
        "access_programs": None,
        "background": False,
        "store": False,
        "service_tier": "default",
        "frequency_penalty": 0.0,
        "instructions": None,
        "max_output_tokens": None,
        "max_tool_calls": None,
        "metadata": {},
        "parallel_tool_calls": True,
        "presence_penalty": 0.0,
        "previous_response_id": None,
        "prompt_cache_key": None,
        "safety_identifier": None,
        "temperature": 1.0,
        "tool_choice": "auto",
        "top_logprobs": 0,
        "top_p": 1.0,
        "truncation": "disabled",
        "user": None,
        "reasoning": {"effort": None, "summary": None},
        "text": {"format": {"type": "text"}},
        "tools": [],
    }
    usage = {
        "input_tokens": 10,
        "input_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 2},
        "output_tokens": 5,
        "output_tokens_details": {"reasoning_tokens": 3},
        "total_tokens": 15,
    }
    ended = {"status": "completed", "completed_at": 7, "usage": usage}
    assert payloads[-1]["response"] == {**started, **ended}


def test_the_response_shows_whether_it_is_stored() -> None:
    payloads = response_payloads(context=msgspec.structs.replace(responses_context(), stored=True))
    assert [payload["response"]["store"] for payload in payloads if "response" in payload] == [True] * 3


def test_the_clients_own_request_is_echoed() -> None:
    request = {
        "instructions": "be brief",
        "temperature": 0,
        "tool_choice": {"type": "function", "name": "f"},
        "parallel_tool_calls": False,
        "metadata": {"a": "b"},
        "prompt_cache_retention": "24h",
        "reasoning": {"effort": "low"},
        "text": {"verbosity": "low", "format": None},
        "tools": [
            {"type": "function", "name": "f"},
            {"type": "function", "name": "g", "parameters": {"type": "object"}, "strict": True},
            {"type": "custom", "name": "c"},
        ],
    }
    response = response_payloads(context=responses_context(**request))[0]["response"]
    assert {name: response[name] for name in request} == {
        **request,
        "reasoning": {"effort": "low", "summary": None},
        "text": {"verbosity": "low", "format": {"type": "text"}},
        "tools": [
            {"type": "function", "name": "f", "parameters": None, "strict": False},
            {"type": "function", "name": "g", "parameters": {"type": "object"}, "strict": True},
            {"type": "custom", "name": "c"},
        ],
    }


@pytest.mark.parametrize(
    ("tier", "shown", "lost"),
    [
        ("flex", "flex", ()),
        ("standard", "default", ()),
        ("batch", "flex", ("/service_tier",)),
        ("odd", "default", ("/service_tier",)),
        (None, "default", ()),
    ],
)
def test_service_tier(tier: str | None, shown: str, lost: tuple[str, ...]) -> None:
    payloads = stream(Started("u", "m", None, tier))
    assert payloads[0]["response"]["service_tier"] == shown
    late = response_payloads(usage=(msgspec.structs.replace(USAGE, service_tier=tier),), lost=lost)
    assert [each["response"]["service_tier"] for each in late] == ["default", "default", shown]


ERROR = WireError(ErrorKind.RATE_LIMIT, "slow down")
NUMBER = (int, float)
NULL = type(None)
# Required fields of `ResponseResource` in the Open Responses specification (2026-04-24), with their types.
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
    "context",
    [responses_context(), responses_context(temperature=None, top_p=None, service_tier=None, metadata=None)],
)
def test_every_response_has_what_open_responses_requires(context: ResponseContext) -> None:
    responses = [response_payloads(*text(), context=context), stream(STARTED, Failed(ERROR), context=context)]
    found = [payload["response"] for each in responses for payload in each if "response" in payload]
    assert {each["status"] for each in found} == {"in_progress", "completed", "failed"}
    for response in found:
        wrong = [
            name for name, types in OPEN_RESPONSES.items() if not isinstance(response.get(name, ...), types)
        ]
        assert wrong == []


def test_completed_at_is_read_from_the_clock() -> None:
    context = msgspec.structs.replace(responses_context(), clock=lambda: 9)
    ends = [
        response_payloads(context=context)[-1],
        response_payloads(context=context, stop=Stopped(StopReason.MAX_TOKENS))[-1],
    ]
    times = [(each["response"]["created_at"], each["response"]["completed_at"]) for each in ends]
    assert times == [(7, 9), (7, None)]


SHELL = ToolHead("c1", "shell", hosted="shell")
OPEN_ITEMS: list[tuple[list[Event], list[dict[str, Any]]]] = [
    (text(0, "a"), [{"type": "message", "status": "completed"}]),
    (text(0, "a")[:-1], [{"type": "message", "status": "incomplete"}]),
    (text(0, "a")[:1], []),  # without any text
    (
        reasoning_block(ReasoningDelta(0, "a"), ReasoningDelta(0, "b", 1))[:-1],
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
    found = output(stream(STARTED, *events, Failed(ERROR)))
    assert found == whole(STARTED, *events, Failed(ERROR))["output"]
    assert [
        {key: item[key] for key in expected_item} for item, expected_item in zip(found, expected, strict=True)
    ] == expected


MESSAGES = "anthropic_messages"


def search(*queries: str, sources: tuple[Source, ...] = (), round_trip: bool = True) -> Opaque:
    found = Search(queries, sources)
    return Opaque(MESSAGES, "web_search_tool_result", {}, "/content/1", round_trip=round_trip, search=found)


SOURCES = (Source("https://x", "X"), Source("https://y"))
SEARCHES: list[tuple[Opaque, dict[str, Any]]] = [
    (
        search("cats", "dogs", sources=SOURCES),
        {
            "type": "search",
            "query": "cats",
            "queries": ["cats", "dogs"],
            "sources": [{"type": "url", "url": "https://x"}, {"type": "url", "url": "https://y"}],
        },
    ),
    (search(), {"type": "search", "query": "", "queries": [], "sources": []}),
]


@pytest.mark.parametrize(("event", "action"), SEARCHES)
def test_a_search_is_an_item_with_its_progress(event: Opaque, action: dict[str, Any]) -> None:
    payloads = response_payloads(*text(0), event)
    item = {"id": "ws_x1_1", "type": "web_search_call", "status": "completed", "action": action}
    assert output(payloads)[1] == item
    assert kinds(payloads)[-6:-1] == [
        "output_item.added",
        "web_search_call.in_progress",
        "web_search_call.searching",
        "web_search_call.completed",
        "output_item.done",
    ]
    assert payloads[-6]["item"] == {**item, "status": "in_progress"}
    assert [(each["item_id"], each["output_index"]) for each in payloads[-5:-2]] == [("ws_x1_1", 1)] * 3


def test_a_search_that_cannot_return_to_its_vendor_is_a_loss() -> None:
    response_payloads(search("cats", round_trip=False), lost=("/content/1",))


def test_a_search_follows_its_signature() -> None:
    signature = Signature(MESSAGES, {"type": "web_search_tool_result"}, "c")
    items = output(response_payloads(*reasoning_block(SignatureDelta(0, signature)), search("cats")))
    assert [each["id"] for each in items] == ["rs_x1_0", "ws_x1_1"]
    request = SPEC.read_request({"model": "m", "input": items}, SIGNER)
    assert len(request.messages) == 1


def test_a_summary_is_one_compaction_item_only() -> None:
    payloads = response_payloads(Compacted("all of it"), stop=Stopped(StopReason.COMPACTION))
    wrapped = SIGNER.wrap(Signature("dragoman", {"summary": "all of it"}))
    item = {"id": "cmp_x1_0", "type": "compaction", "encrypted_content": wrapped}
    assert output(payloads) == [item]
    assert kinds(payloads)[2:] == ["output_item.added", "output_item.done", "completed"]
    [message] = SPEC.read_request({"model": "m", "input": [item]}, SIGNER).messages
    assert message == Message(
        "user",
        (Text("Summary of the conversation so far:\nall of it", path="/input/0/encrypted_content"),),
        "/input/0",
    )


def test_a_compaction_of_this_vendor_stays_as_it_is() -> None:
    native = {"id": "cmp_up", "type": "compaction", "encrypted_content": "gAAA"}
    assert output(response_payloads(Opaque(ORIGIN, "compaction", native, "/output/0"), context=FOREIGN)) == [
        native
    ]
