"""The Response object around the items, and items that only other vendors' responses have."""

from __future__ import annotations

import msgspec
import pytest
from core.natives import with_unknown_members
from responses_client import (
    SIGNER,
    STARTED,
    kinds,
    output,
    reasoning_block,
    response_payloads,
    responses_context,
    stream,
    text,
)

from dragoman._ir.events import (
    Compacted,
    Failed,
    Opaque,
    Search,
    Signature,
    SignatureDelta,
    Source,
    Stopped,
    StopReason,
)
from dragoman._ir.request import Message, Text
from dragoman._wire.errors import ErrorKind, WireError
from dragoman.codec import ResponseContext
from dragoman.protocols.openai_responses import SPEC

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


MESSAGES = "anthropic_messages"


def search(*queries: str, sources: tuple[Source, ...] = (), round_trip: bool = True) -> Opaque:
    found = Search(queries, sources)
    return Opaque(MESSAGES, "web_search_tool_result", {}, "/content/1", round_trip=round_trip, search=found)


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
    [message] = with_unknown_members(
        SPEC, SPEC.read_request({"model": "m", "input": [item]}, SIGNER).messages
    )
    assert message == Message(
        "user",
        (Text("Summary of the conversation so far:\nall of it", path="/input/0/encrypted_content"),),
        "/input/0",
    )
