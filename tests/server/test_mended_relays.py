"""Upstreams that speak the client's protocol by halves: exact relays pass what they say, mended ones make it whole."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest
from anthropic import AsyncAnthropic
from gw_fakes import Script
from gw_scripted import MESSAGES, RESPONSES, ScriptedGateway, scripted, stream
from openai import AsyncOpenAI

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def openai_of(gateway: ScriptedGateway) -> AsyncOpenAI:
    http = httpx2.AsyncClient(transport=httpx2.ASGITransport(gateway.app))
    return AsyncOpenAI(api_key="none", base_url="http://gateway.test/v1", http_client=http, max_retries=0)


def anthropic_of(gateway: ScriptedGateway) -> AsyncAnthropic:
    http = httpx2.AsyncClient(transport=httpx2.ASGITransport(gateway.app))
    return AsyncAnthropic(api_key="none", base_url="http://gateway.test", http_client=http, max_retries=0)


# Responses, as llama.cpp's server speaks them: no event has a sequence number or an output index.

ARGUMENTS = '{"city": "Oslo"}'
CALL = {"type": "function_call", "id": "fc_7", "call_id": "call_7", "name": "weather", "status": "completed"}
MESSAGE = {"type": "message", "id": "msg_7", "role": "assistant"}
SAID = {"type": "output_text", "text": "Let me look.", "annotations": [], "logprobs": []}
OUTPUT = [{**MESSAGE, "status": "completed", "content": [SAID]}, {**CALL, "arguments": ARGUMENTS}]


def bare_response(status: str, **more: Any) -> dict[str, Any]:
    return {"id": "resp_7", "object": "response", "created_at": 7, "model": "m", "status": status, **more}


BARE_RESPONSES = stream(
    {"type": "response.created", "response": bare_response("in_progress")},
    {"type": "response.in_progress", "response": bare_response("in_progress")},
    {
        "type": "response.output_item.added",
        "item": {**MESSAGE, "status": "in_progress", "content": []},
    },
    {
        "type": "response.content_part.added",
        "item_id": "msg_7",
        "part": {"type": "output_text", "text": ""},
    },
    {"type": "response.output_text.delta", "item_id": "msg_7", "delta": "Let me "},
    {"type": "response.output_text.delta", "item_id": "msg_7", "delta": "look."},
    {"type": "response.output_text.done", "item_id": "msg_7", "text": "Let me look."},
    {"type": "response.content_part.done", "item_id": "msg_7", "part": SAID},
    {"type": "response.output_item.done", "item": OUTPUT[0]},
    {"type": "response.output_item.added", "item": {**CALL, "status": "in_progress", "arguments": ""}},
    {"type": "response.function_call_arguments.delta", "item_id": "fc_7", "delta": ARGUMENTS},
    {"type": "response.function_call_arguments.done", "item_id": "fc_7", "arguments": ARGUMENTS},
    {"type": "response.output_item.done", "item": OUTPUT[1]},
    {
        "type": "response.completed",
        "response": bare_response(
            "completed", output=OUTPUT, usage={"input_tokens": 3, "output_tokens": 4, "total_tokens": 7}
        ),
    },
)


async def final_response(relay: str) -> Any:
    gateway = scripted(RESPONSES, BARE_RESPONSES, upstream={"relay": relay})
    async with openai_of(gateway) as client, client.responses.stream(model="up/m", input="Hi") as events:
        return await events.get_final_response()


async def test_the_official_sdk_cannot_read_responses_without_indexes() -> None:
    with pytest.raises((IndexError, TypeError, KeyError, AttributeError)):
        await final_response("exact")


async def test_the_official_sdk_reads_them_mended() -> None:
    final = await final_response("mend")
    assert (final.id, final.status, final.output_text) == ("resp_7", "completed", "Let me look.")
    call = final.output[1]
    assert (call.id, call.call_id, call.name, call.arguments) == ("fc_7", "call_7", "weather", ARGUMENTS)
    assert (final.usage.input_tokens, final.usage.output_tokens) == (3, 4)


# Messages without event lines and pings.

HEAD = {
    "id": "msg_7",
    "type": "message",
    "role": "assistant",
    "model": "m",
    "content": [],
    "stop_reason": None,
    "stop_sequence": None,
    "usage": {"input_tokens": 3, "output_tokens": 1},
}
BARE_MESSAGES = Script(
    [
        frame.partition(b"\n")[2]  # no event line
        for frame in stream(
            {"type": "message_start", "message": HEAD},
            {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
            {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hi"}},
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 4}},
            {"type": "message_stop"},
        ).body
        if isinstance(frame, bytes)
    ],
    headers=[("content-type", "text/event-stream")],
)


async def final_message(relay: str) -> Any:
    gateway = scripted(MESSAGES, BARE_MESSAGES, upstream={"relay": relay})
    messages: Any = [{"role": "user", "content": "Hi"}]
    async with (
        anthropic_of(gateway) as client,
        client.messages.stream(model="up/m", max_tokens=9, messages=messages) as events,
    ):
        return await events.get_final_message()


async def test_the_official_sdk_skips_events_without_names() -> None:
    with pytest.raises(AssertionError):
        await final_message("exact")


async def test_mended_events_have_names() -> None:
    final = await final_message("mend")
    assert (final.id, final.content[0].text, final.stop_reason) == ("msg_7", "Hi", "end_turn")
    assert (final.usage.input_tokens, final.usage.output_tokens) == (3, 4)
