"""Requests to the simulator, in each protocol's own form, and the turn that follows a response."""

from __future__ import annotations

import base64
import json
from typing import Any

from oracle import CHAT, MESSAGES, PROTOCOL_NAMES, RESPONSES

__all__ = [
    "CHAT",
    "IMAGE",
    "MESSAGES",
    "PATHS",
    "PROTOCOL_NAMES",
    "RESPONSES",
    "SCHEMA",
    "Body",
    "encoded",
    "follow",
    "function",
    "request_body",
]

Body = dict[str, Any]

PATHS = {CHAT: "/v1/chat/completions", MESSAGES: "/v1/messages", RESPONSES: "/v1/responses"}

SCHEMA: Body = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer", "enum": [2, 3, 5]}},
    "required": ["city", "days"],
    "additionalProperties": False,
}

# The smallest thing that is a base64 image in all three protocols; nobody decodes the pixels.
IMAGE = b"\x89PNG\r\n\x1a\n and so on"
_IMAGE64 = base64.b64encode(IMAGE).decode()
_IMAGE_URL = f"data:image/png;base64,{_IMAGE64}"


def encoded(body: Body) -> bytes:
    return json.dumps(body, ensure_ascii=False).encode()


def request_body(
    protocol: str,
    model: str,
    text: str = "Tell me something",
    *,
    stream: bool = False,
    tools: tuple[str, ...] = (),
    custom: tuple[str, ...] = (),
    max_tokens: int | None = None,
    image: bool = False,
) -> Body:
    """A request with one user message. `tools` are functions with SCHEMA, `custom` free-text tools."""
    body: Body = {"model": model, "stream": stream}
    body |= {"input" if protocol == RESPONSES else "messages": [user(protocol, text, image=image)]}
    if protocol == CHAT and stream:
        body["stream_options"] = {"include_usage": True}
    limit = {CHAT: "max_completion_tokens", MESSAGES: "max_tokens", RESPONSES: "max_output_tokens"}[protocol]
    if max_tokens is not None or protocol == MESSAGES:
        body[limit] = max_tokens or 4096
    declared = [function(protocol, name) for name in tools] + [free_text(protocol, name) for name in custom]
    if declared:
        body["tools"] = declared
    return body


def user(protocol: str, text: str, *, image: bool = False) -> Body:
    if not image:
        return {"role": "user", "content": text}
    parts = {
        CHAT: [{"type": "text", "text": text}, {"type": "image_url", "image_url": {"url": _IMAGE_URL}}],
        MESSAGES: [{"type": "text", "text": text}, _messages_image()],
        RESPONSES: [{"type": "input_text", "text": text}, _responses_image()],
    }
    return {"role": "user", "content": parts[protocol]}


def _messages_image() -> Body:
    return {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": _IMAGE64}}


def _responses_image() -> Body:
    return {"type": "input_image", "image_url": _IMAGE_URL, "detail": "auto"}


def function(protocol: str, name: str, schema: Body = SCHEMA) -> Body:
    if protocol == MESSAGES:
        return {"name": name, "input_schema": schema}
    tool = {"name": name, "parameters": schema, "strict": False}
    return {"type": "function", "function": tool} if protocol == CHAT else {"type": "function", **tool}


def free_text(protocol: str, name: str) -> Body:
    """A custom tool, or the function that stands in for one."""
    if protocol == MESSAGES:
        schema = {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}
        return function(protocol, name, schema)
    return (
        {"type": "custom", "custom": {"name": name}} if protocol == CHAT else {"type": "custom", "name": name}
    )


def follow(protocol: str, body: Body, response: Body, results: list[str], *, image: bool = False) -> Body:
    """The next turn: the response as it came, and a result for each of its calls, in order."""
    if protocol == RESPONSES:
        calls = [item for item in response["output"] if item["type"].endswith("_call")]
        outputs: list[Body] = [
            {
                "type": f"{call['type']}_output",
                "call_id": call["call_id"],
                "output": [{"type": "input_text", "text": text}, _responses_image()] if image else text,
            }
            for call, text in zip(calls, results, strict=True)
        ]
        return {**body, "input": [*body["input"], *response["output"], *outputs]}
    if protocol == MESSAGES:
        content = response["content"]
        blocks: list[Body] = [
            {
                "type": "tool_result",
                "tool_use_id": block["id"],
                "content": [{"type": "text", "text": text}, _messages_image()] if image else text,
            }
            for block, text in zip((b for b in content if b["type"] == "tool_use"), results, strict=True)
        ]
        turn = [{"role": "assistant", "content": content}, {"role": "user", "content": blocks}]
        return {**body, "messages": [*body["messages"], *turn]}
    message = response["choices"][0]["message"]
    tool_messages = [
        {"role": "tool", "tool_call_id": call["id"], "content": text}
        for call, text in zip(message["tool_calls"], results, strict=True)
    ]
    return {**body, "messages": [*body["messages"], message, *tool_messages]}
