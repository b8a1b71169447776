"""Schemas and forced calls that an upstream ignores, through the gateway: the response arrives, the loss is noted."""

# ruff: noqa: E501 -- the tables are read by row

import json
import logging
from typing import Any

import pytest
from gateway.scripted import (
    CHAT,
    GEMINI,
    MESSAGES,
    PATHS,
    RESPONSES,
    candidate,
    chat_response,
    chunk,
    events_in,
    messages_response,
    responses_response,
    scripted,
    stream,
    whole,
)

pytestmark = pytest.mark.anyio


SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
VALID, INVALID = '{"city":"Oslo"}', "The city is canary."
TOOL = {"type": "object", "properties": {}}

ASKING: dict[str, dict[str, Any]] = {
    CHAT: {"messages": [{"role": "user", "content": "Where?"}], "response_format": {"type": "json_schema", "json_schema": {"name": "city", "schema": SCHEMA}}},
    MESSAGES: {"max_tokens": 99, "messages": [{"role": "user", "content": "Where?"}], "output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}},
    RESPONSES: {"input": "Where?", "text": {"format": {"type": "json_schema", "name": "city", "schema": SCHEMA}}},
    GEMINI: {"contents": [{"parts": [{"text": "Where?"}]}], "generationConfig": {"responseMimeType": "application/json", "responseJsonSchema": SCHEMA}},
}  # fmt: skip
DEMANDING: dict[str, dict[str, Any]] = {
    CHAT: {
        "messages": [{"role": "user", "content": "Look."}],
        "tools": [{"type": "function", "function": {"name": "look", "parameters": TOOL}}],
        "tool_choice": "required",
    },
    MESSAGES: {
        "max_tokens": 99,
        "messages": [{"role": "user", "content": "Look."}],
        "tools": [{"name": "look", "input_schema": TOOL}],
        "tool_choice": {"type": "tool", "name": "look"},
    },
    RESPONSES: {
        "input": "Look.",
        "tools": [{"type": "function", "name": "look", "parameters": TOOL, "strict": False}],
        "tool_choice": {"type": "function", "name": "look"},
    },
    GEMINI: {
        "contents": [{"parts": [{"text": "Look."}]}],
        "tools": [{"functionDeclarations": [{"name": "look", "parametersJsonSchema": TOOL}]}],
        "toolConfig": {"functionCallingConfig": {"mode": "ANY"}},
    },
}


def response_of(protocol: str, text: str) -> Any:
    if protocol == CHAT:
        return whole(chat_response({"content": text}))
    if protocol == MESSAGES:
        return whole(messages_response([{"type": "text", "text": text}]))
    if protocol == GEMINI:
        return whole(candidate({"text": text}, finish="STOP"))
    part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    item = {"type": "message", "id": "m", "role": "assistant", "status": "completed", "content": [part]}
    return whole(responses_response([item]))


async def reported(client: str, upstream: str, body: Any, text: str, **settings: Any) -> list[str]:
    """Return the loss header of a whole response, which arrives unchanged."""
    gateway = scripted(upstream, response_of(upstream, text), upstream=settings)
    response = await gateway.call(PATHS[client], {"model": "up/m", **body})
    assert json.dumps(text)[1:-1].encode() in response.body
    found = response.headers.get("dragoman-loss", "").partition("; ")[2].split(", ")
    return [loss for loss in found if "=answer:" in loss]


NO_SCHEMA, NO_CALL = ["breach=answer:/content"], ["breach=answer:/tool_calls"]
FOREIGN = [(client, upstream) for client in PATHS for upstream in PATHS if client != upstream]


@pytest.mark.parametrize(("client", "upstream"), FOREIGN)
async def test_an_ignored_schema_is_recorded(client: str, upstream: str) -> None:
    assert await reported(client, upstream, ASKING[client], INVALID) == NO_SCHEMA
    assert await reported(client, upstream, ASKING[client], VALID) == []


@pytest.mark.parametrize(("client", "upstream"), FOREIGN)
async def test_a_missing_forced_call_is_recorded(client: str, upstream: str) -> None:
    assert await reported(client, upstream, DEMANDING[client], INVALID) == NO_CALL


async def test_an_upstream_that_enforces_schemas_is_not_checked() -> None:
    asking = {**ASKING[MESSAGES], **DEMANDING[MESSAGES]}
    assert await reported(MESSAGES, CHAT, asking, INVALID) == [*NO_CALL, *NO_SCHEMA]
    assert await reported(MESSAGES, CHAT, asking, INVALID, enforces=("schema", "tool_choice")) == []


async def test_a_stream_passes_unchanged_and_the_loss_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    deltas = [INVALID[at : at + 4] for at in range(0, len(INVALID), 4)]
    script = stream(*[chunk({"content": delta}) for delta in deltas], chunk({}, "stop"), done=True)
    with caplog.at_level(logging.DEBUG):
        body = {"model": "up/m", "stream": True, **ASKING[RESPONSES]}
        client = await scripted(CHAT, script).call(PATHS[RESPONSES], body)
    events = events_in(client.body)
    assert [each["delta"] for each in events if each["type"] == "response.output_text.delta"] == deltas
    (line,) = [each.__dict__["dragoman"] for each in caplog.records if each.name == "dragoman.requests"]
    assert "breach answer:/content" in line["losses"]
    assert "canary" not in str([record.__dict__ for record in caplog.records])
