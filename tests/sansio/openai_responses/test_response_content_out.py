"""The responses of response_out.txt as others read them: the SDK, the Open Responses specification, our own reader."""

import re

import pytest
from core.rows import responses_of
from openai import omit
from openai.lib.streaming.responses._responses import ResponseStreamState
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from dragoman._ir import assembly
from dragoman._ir.events import ToolKind
from dragoman._ir.request import ToolCall
from dragoman._ir.wrapped_signatures import Signer
from dragoman._wire import json as _json
from dragoman._wire.json import decode, encode_long
from dragoman._wire.sse import SSEParser
from dragoman.protocols.openai_responses import SPEC, response_out

EVENT: TypeAdapter[ResponseStreamEvent] = TypeAdapter(ResponseStreamEvent)
RESPONSES = [
    (row, response)
    for row, response in responses_of("openai_responses")
    if "half a surrogate" not in row.heads[0]  # which the SDK's parser of JSON refuses
]
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


def test_the_sdk_reads_each_stream_and_the_last_event_has_the_complete_response() -> None:
    for row, response in RESPONSES:
        state = ResponseStreamState(input_tools=omit, text_format=omit)
        frames = SSEParser().receive_data(response.stream)
        for event in (EVENT.validate_json(frame.data) for frame in frames):
            if event.type != "error":
                state.handle_event(event)
        if response.body:
            Response.model_validate_json(response.body)
            assert decode(frames[-1].data)["response"] == decode(response.body), row.heads


def test_every_response_has_what_open_responses_requires() -> None:
    statuses = set()
    for _, written in RESPONSES:
        payloads = [decode(frame.data) for frame in SSEParser().receive_data(written.stream)]
        for response in (payload["response"] for payload in payloads if "response" in payload):
            statuses.add(response["status"])
            wrong = [
                name
                for name, types in OPEN_RESPONSES.items()
                if not isinstance(response.get(name, ...), types)
            ]
            assert wrong == []
    assert statuses == {"in_progress", "completed", "incomplete", "failed"}


def test_a_written_call_is_read_again_as_the_same_call() -> None:
    """Of tools that the client runs."""
    kinds = set()
    for row, response in RESPONSES:
        if row.heads[0] == "# a call comes back as its own item":
            [kind] = re.findall(r"ToolHead\('c0', '\w+', hosted='(\w+)'", "".join(row.lines))
            body = {"model": "m", "input": decode(response.body)["output"]}
            [found] = SPEC.read_request(body, Signer()).messages[0].parts
            assert isinstance(found, ToolCall)
            assert (found.call_id, found.hosted, found.kind) == ("c0", kind, ToolKind.FUNCTION)
            kinds.add(kind)
    assert len(kinds) == 6


def test_long_texts_are_encoded_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = [response.stream for _, response in RESPONSES]
    calls: list[object] = []
    monkeypatch.setattr(response_out, "LONG_TEXT", 3)
    monkeypatch.setattr(assembly, "LONG_TEXT", 3)
    monkeypatch.setattr(response_out, "encode_long", lambda value: calls.append(value) or encode_long(value))
    monkeypatch.setattr(_json, "LONG_TEXT", 3)
    assert [
        response.stream for _, response in responses_of("openai_responses") if response.stream in whole
    ] == whole
    assert calls
