"""Requests to the simulator, in each protocol's own form, and the turn that follows a response."""

import base64
import json
from typing import Any

from laws.clients import endpoint_of, path_of
from oracle import CHAT, GEMINI, MESSAGES, PROTOCOL_NAMES, RESPONSES

from dragoman_server.simulator import SimulatedReply, reply_to

__all__ = [
    "CHAT",
    "GEMINI",
    "IMAGE",
    "MESSAGES",
    "MESSAGES_MEMBER",
    "PROTOCOL_NAMES",
    "RESPONSES",
    "SCHEMA",
    "Body",
    "encoded",
    "follow",
    "function",
    "request_body",
    "requested_path",
    "response_to",
    "said",
]

Body = dict[str, Any]

# The member with the messages.
MESSAGES_MEMBER = {CHAT: "messages", MESSAGES: "messages", RESPONSES: "input", GEMINI: "contents"}

SCHEMA: Body = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer", "enum": [2, 3, 5]}},
    "required": ["city", "days"],
    "additionalProperties": False,
}

# The smallest thing that is a base64 image in all protocols; nobody decodes the pixels.
IMAGE = b"\x89PNG\r\n\x1a\n and so on"
_IMAGE64 = base64.b64encode(IMAGE).decode()
_IMAGE_URL = f"data:image/png;base64,{_IMAGE64}"


def encoded(body: Body) -> bytes:
    return json.dumps(body, ensure_ascii=False).encode()


def requested_path(protocol: str, body: Body) -> str:
    """The path of a request. Gemini's says which model it is for and whether it streams, and not its body."""
    return path_of(protocol, body["model"], stream=body["stream"])


def response_to(protocol: str, body: Body) -> SimulatedReply:
    """What the simulator responds."""
    return reply_to(protocol, encoded(body), endpoint=endpoint_of(protocol, stream=body.get("stream", False)))


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
    body |= {MESSAGES_MEMBER[protocol]: [user(protocol, text, image=image)]}
    if protocol == CHAT and stream:
        body["stream_options"] = {"include_usage": True}
    limit = {CHAT: "max_completion_tokens", MESSAGES: "max_tokens", RESPONSES: "max_output_tokens"}
    if max_tokens is not None or protocol == MESSAGES:
        limited = {"generationConfig": {"maxOutputTokens": max_tokens}}
        body |= limited if protocol == GEMINI else {limit[protocol]: max_tokens or 4096}
    declared = [function(protocol, name) for name in tools] + [free_text(protocol, name) for name in custom]
    if declared:
        body["tools"] = declared
    return body


def user(protocol: str, text: str, *, image: bool = False) -> Body:
    if protocol == GEMINI:
        media = [{"inlineData": {"mimeType": "image/png", "data": _IMAGE64}}] if image else []
        return {"role": "user", "parts": [{"text": text}, *media]}
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
    if protocol == GEMINI:
        return {"functionDeclarations": [{"name": name, "parametersJsonSchema": schema}]}
    tool = {"name": name, "parameters": schema, "strict": False}
    return {"type": "function", "function": tool} if protocol == CHAT else {"type": "function", **tool}


def free_text(protocol: str, name: str) -> Body:
    """A custom tool, or the function that stands in for one."""
    if protocol in (MESSAGES, GEMINI):
        schema = {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}
        return function(protocol, name, schema)
    return (
        {"type": "custom", "custom": {"name": name}} if protocol == CHAT else {"type": "custom", "name": name}
    )


def said(protocol: str, messages: list[Body]) -> list[Body]:
    """Messages with a role and a text, in the protocol's form."""
    if protocol != GEMINI:
        return messages
    roles = {"user": "user", "assistant": "model"}
    return [{"role": roles[each["role"]], "parts": [{"text": each["content"]}]} for each in messages]


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
    if protocol == GEMINI:
        content = response["candidates"][0]["content"]
        called = [part["functionCall"] for part in content["parts"] if "functionCall" in part]
        parts = [
            {"functionResponse": {"name": call["name"], "id": call["id"], "response": {"output": text}}}
            for call, text in zip(called, results, strict=True)
        ]
        return {**body, "contents": [*body["contents"], content, {"role": "user", "parts": parts}]}
    message = response["choices"][0]["message"]
    tool_messages = [
        {"role": "tool", "tool_call_id": call["id"], "content": text}
        for call, text in zip(message["tool_calls"], results, strict=True)
    ]
    return {**body, "messages": [*body["messages"], message, *tool_messages]}
