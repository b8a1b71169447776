"""Upstreams that implement the protocol only in part: exact relays keep their responses, rewriting ones repair them."""

# ruff: noqa: E501 -- the tables are read by row

import json
from typing import Any

import httpx2
import pytest
from anthropic import AsyncAnthropic
from gateway.fakes import Script
from gateway.scripted import (
    CHAT,
    MESSAGES,
    RESPONSES,
    ScriptedGateway,
    messages_response,
    scripted,
    stream,
    whole,
)
from openai import AsyncOpenAI
from virtual_time import REAL_BACKENDS

from dragoman import UPSTREAMS
from dragoman_server.capabilities.resolve import capabilities_for
from dragoman_server.settings import Settings, UpstreamSettings

pytestmark = [pytest.mark.anyio, pytest.mark.backends(REAL_BACKENDS[0])]


def openai_of(gateway: ScriptedGateway) -> AsyncOpenAI:
    http = httpx2.AsyncClient(transport=httpx2.ASGITransport(gateway.app))
    return AsyncOpenAI(api_key="none", base_url="http://localhost/v1", http_client=http, max_retries=0)


def anthropic_of(gateway: ScriptedGateway) -> AsyncAnthropic:
    http = httpx2.AsyncClient(transport=httpx2.ASGITransport(gateway.app))
    return AsyncAnthropic(api_key="none", base_url="http://localhost", http_client=http, max_retries=0)


# Responses of llama.cpp's server: no event has a sequence number or an output index.

ARGUMENTS = '{"city": "Oslo"}'
CALL = {"type": "function_call", "id": "fc_7", "call_id": "call_7", "name": "weather", "status": "completed"}
MESSAGE = {"type": "message", "id": "msg_7", "role": "assistant"}
TEXT_PART = {"type": "output_text", "text": "Let me look.", "annotations": [], "logprobs": []}
OUTPUT = [{**MESSAGE, "status": "completed", "content": [TEXT_PART]}, {**CALL, "arguments": ARGUMENTS}]


def bare_response(status: str, **more: Any) -> dict[str, Any]:
    return {"id": "resp_7", "object": "response", "created_at": 7, "model": "m", "status": status, **more}


BARE_RESPONSES = stream(
    {"type": "response.created", "response": bare_response("in_progress")},
    {"type": "response.in_progress", "response": bare_response("in_progress")},
    {"type": "response.output_item.added", "item": {**MESSAGE, "status": "in_progress", "content": []}},
    {"type": "response.content_part.added", "item_id": "msg_7", "part": {"type": "output_text", "text": ""}},
    {"type": "response.output_text.delta", "item_id": "msg_7", "delta": "Let me "},
    {"type": "response.output_text.delta", "item_id": "msg_7", "delta": "look."},
    {"type": "response.output_text.done", "item_id": "msg_7", "text": "Let me look."},
    {"type": "response.content_part.done", "item_id": "msg_7", "part": TEXT_PART},
    {"type": "response.output_item.done", "item": OUTPUT[0]},
    {"type": "response.output_item.added", "item": {**CALL, "status": "in_progress", "arguments": ""}},
    {"type": "response.function_call_arguments.delta", "item_id": "fc_7", "delta": ARGUMENTS},
    {"type": "response.function_call_arguments.done", "item_id": "fc_7", "arguments": ARGUMENTS},
    {"type": "response.output_item.done", "item": OUTPUT[1]},
    {"type": "response.completed", "response": bare_response("completed", output=OUTPUT, usage={"input_tokens": 3, "output_tokens": 4, "total_tokens": 7})},
)  # fmt: skip


async def final_response(relay: str) -> Any:
    gateway = scripted(RESPONSES, BARE_RESPONSES, upstream={"relay": relay})
    async with openai_of(gateway) as client, client.responses.stream(model="up/m", input="Hi") as events:
        return await events.get_final_response()


async def test_the_official_sdk_cannot_read_responses_without_indexes() -> None:
    with pytest.raises((IndexError, TypeError, KeyError, AttributeError)):
        await final_response("exact")


async def test_the_official_sdk_reads_rewritten_streams() -> None:
    final = await final_response("rewrite")
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


async def test_rewritten_events_have_names() -> None:
    final = await final_message("rewrite")
    assert (final.id, final.content[0].text, final.stop_reason) == ("msg_7", "Hi", "end_turn")
    assert (final.usage.input_tokens, final.usage.output_tokens) == (3, 4)


# Hosts that need it are rows of resolved.txt.

OPENAI = "https://api.openai.com/v1"


def test_the_configuration_decides_if_a_relay_is_rewritten() -> None:
    for url in ("http://localhost:8080/v1", OPENAI):
        for mode in ("exact", "rewrite"):
            upstream = UpstreamSettings.of(name="up", protocol=RESPONSES, base_url=url, relay=mode)
            settings = Settings(upstreams=(upstream,))
            assert capabilities_for(settings, upstream, "m").relay == mode, (url, mode)


def test_hosts_refuse_chat_parameters_only_in_chat() -> None:
    """A rewritten Responses request keeps its `store`, though the server's Chat Completions may check bodies."""
    base_url = "http://127.0.0.1:8000/v1"
    local: dict[str, Any] = {"protocol": CHAT, "protocols": (CHAT, RESPONSES), "base_url": base_url}
    upstream = UpstreamSettings(name="up", **local)
    settings = Settings(upstreams=(upstream,))
    assert "store" in capabilities_for(settings, upstream, "m", UPSTREAMS[CHAT]).refuses
    assert "store" not in capabilities_for(settings, upstream, "m", UPSTREAMS[RESPONSES]).refuses


# Other endpoints of a rewritten upstream.


async def test_a_rewritten_upstream_counts_tokens() -> None:
    """The request has the fields of its endpoint for counts, and its response is not rewritten."""
    upstream = {"relay": "rewrite", "counts_tokens": True}
    gateway = scripted(MESSAGES, whole({"input_tokens": 42}), upstream=upstream)
    requested = {"model": "up/m", "messages": [{"role": "user", "content": "Hi"}], "temperature": 0.5}
    client = await gateway.call("/v1/messages/count_tokens", requested)
    assert (client.status, json.loads(client.body)) == (200, {"input_tokens": 42})
    assert gateway.sent[0].url.endswith("/v1/messages/count_tokens")
    assert gateway.sent[0].body.keys() == {"model", "messages"}


async def test_a_rewritten_upstream_compacts() -> None:
    compaction = {"id": "resp_7", "object": "response.compaction", "output": [{"type": "compaction"}]}
    gateway = scripted(RESPONSES, whole(compaction), upstream={"relay": "rewrite"})
    client = await gateway.call("/v1/responses/compact", {"model": "up/m", "input": "Hi"})
    assert (client.status, json.loads(client.body)) == (200, compaction)


async def test_the_betas_of_a_rewritten_request_reach_the_upstream() -> None:
    response = whole(messages_response([{"type": "text", "text": "Hello"}]))
    gateway = scripted(MESSAGES, response, upstream={"relay": "rewrite"})
    requested = {"model": "up/m", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]}
    headers = {"anthropic-version": "2023-06-01", "anthropic-beta": "odd-2026-01-01"}
    client = await gateway.call("/v1/messages", requested, headers)
    sent = gateway.sent[0].headers
    assert client.status == 200
    assert (sent["anthropic-version"], sent["anthropic-beta"]) == ("2023-06-01", "odd-2026-01-01")


async def test_an_upstream_that_is_a_gateway_is_not_rewritten() -> None:
    response = whole(messages_response([{"type": "text", "text": "Hello"}]))
    gateway = scripted(MESSAGES, response, upstream={"relay": "rewrite", "unwraps_signatures": True})
    requested = {"model": "up/m", "max_tokens": 9, "messages": [{"role": "user", "content": [], "odd": 1}]}
    await gateway.call("/v1/messages", requested)
    assert gateway.sent[0].body == {**requested, "model": "m"}
