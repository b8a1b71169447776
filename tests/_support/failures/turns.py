"""Neutral conversations, and the requests in which clients of each protocol send them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from failures.responses import Call, Reasoning, Text
from oracle import CHAT, MESSAGES, RESPONSES

Json = dict[str, Any]

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
SCHEMA: Json = {"type": "object", "properties": {"a": {"type": "integer"}}}


@dataclass(frozen=True)
class User:
    text: str


@dataclass(frozen=True)
class Model:
    """A turn of the model."""

    blocks: tuple[Text | Call | Reasoning, ...]


@dataclass(frozen=True)
class Result:
    """What a tool gave. Results that stand side by side answer one turn."""

    id: str
    text: str = "done"


def model(*blocks: Text | Call | Reasoning) -> Model:
    return Model(blocks)


Turn = User | Model | Result


def request(protocol: str, *turns: Turn, tools: tuple[str, ...] = ("add",), **fields: Any) -> Json:
    """A request with this conversation and these tools."""
    return {"model": "m", **_LIMITS.get(protocol, {}), **_WRITE[protocol](turns, tools), **fields}


_LIMITS: dict[str, Json] = {MESSAGES: {"max_tokens": 4096}, RESPONSES: {"store": False}}


def _chat(turns: tuple[Turn, ...], tools: tuple[str, ...]) -> Json:
    messages: list[Json] = []
    for turn in turns:
        if isinstance(turn, User):
            messages.append({"role": "user", "content": turn.text})
        elif isinstance(turn, Result):
            messages.append({"role": "tool", "tool_call_id": turn.id, "content": turn.text})
        else:
            messages.append(_chat_turn(turn))
    declared = [{"type": "function", "function": {"name": name, "parameters": SCHEMA}} for name in tools]
    return {"messages": messages, "tools": declared}


def _chat_turn(turn: Model) -> Json:
    message: Json = {
        "role": "assistant",
        "content": "".join(block.text for block in turn.blocks if isinstance(block, Text)) or None,
    }
    reasoning = "".join(block.text for block in turn.blocks if isinstance(block, Reasoning))
    calls = [
        {"id": block.id, "type": "function", "function": {"name": block.name, "arguments": block.arguments}}
        for block in turn.blocks
        if isinstance(block, Call)
    ]
    message |= {"reasoning_content": reasoning} if reasoning else {}
    return message | ({"tool_calls": calls} if calls else {})


def _messages(turns: tuple[Turn, ...], tools: tuple[str, ...]) -> Json:
    messages: list[Json] = []
    for before, turn in zip((None, *turns), turns, strict=False):
        if isinstance(turn, User):
            messages.append({"role": "user", "content": turn.text})
        elif isinstance(turn, Result):
            result = {"type": "tool_result", "tool_use_id": turn.id, "content": turn.text}
            if isinstance(before, Result):
                messages[-1]["content"].append(result)
            else:
                messages.append({"role": "user", "content": [result]})
        else:
            messages.append({"role": "assistant", "content": [_messages_block(b) for b in turn.blocks]})
    return {"messages": messages, "tools": [{"name": name, "input_schema": SCHEMA} for name in tools]}


def _messages_block(block: Text | Call | Reasoning) -> Json:
    if isinstance(block, Text):
        return {"type": "text", "text": block.text}
    if isinstance(block, Reasoning):
        return {"type": "thinking", "thinking": block.text, "signature": block.signature}
    return {
        "type": "tool_use",
        "id": block.id,
        "name": block.name,
        "input": json.loads(block.arguments or "{}"),
    }


def _responses(turns: tuple[Turn, ...], tools: tuple[str, ...]) -> Json:
    items: list[Json] = []
    for turn in turns:
        if isinstance(turn, User):
            items.append({"role": "user", "content": turn.text})
        elif isinstance(turn, Result):
            items.append({"type": "function_call_output", "call_id": turn.id, "output": turn.text})
        else:
            items += [_responses_item(block) for block in turn.blocks]
    declared = [{"type": "function", "name": name, "parameters": SCHEMA, "strict": False} for name in tools]
    return {"input": items, "tools": declared}


def _responses_item(block: Text | Call | Reasoning) -> Json:
    if isinstance(block, Text):
        part = {"type": "output_text", "text": block.text, "annotations": []}
        return {"type": "message", "role": "assistant", "content": [part]}
    if isinstance(block, Reasoning):
        summary = [{"type": "summary_text", "text": block.text}]
        return {"type": "reasoning", "summary": summary, "encrypted_content": block.signature}
    return {"type": "function_call", "call_id": block.id, "name": block.name, "arguments": block.arguments}


_WRITE = {CHAT: _chat, MESSAGES: _messages, RESPONSES: _responses}


# --- what an upstream was sent, read back ------------------------------------------------------------------------


def calls_of(protocol: str, body: Json) -> list[tuple[str, str, Any]]:
    """Id, name and arguments of each call in a request; arguments as text, of Messages as the object."""
    if protocol == CHAT:
        calls = [call for message in body["messages"] for call in message.get("tool_calls") or []]
        return [(call["id"], call["function"]["name"], call["function"]["arguments"]) for call in calls]
    if protocol == RESPONSES:
        items = [item for item in body["input"] if item.get("type") == "function_call"]
        return [(item["call_id"], item["name"], item["arguments"]) for item in items]
    blocks = [block for block in all_blocks(body) if block["type"] == "tool_use"]
    return [(block["id"], block["name"], block["input"]) for block in blocks]


def results_of(protocol: str, body: Json) -> list[tuple[str, str]]:
    """Call id and text of each result in a request."""
    if protocol == CHAT:
        found = [message for message in body["messages"] if message["role"] == "tool"]
        return [(message["tool_call_id"], text_in(message["content"])) for message in found]
    if protocol == RESPONSES:
        items = [item for item in body["input"] if item.get("type") == "function_call_output"]
        return [(item["call_id"], text_in(item["output"])) for item in items]
    blocks = [block for block in all_blocks(body) if block["type"] == "tool_result"]
    return [(block["tool_use_id"], text_in(block.get("content", ""))) for block in blocks]


def all_blocks(body: Json) -> list[Json]:
    """The content blocks of all messages of a Messages request."""
    contents = [message["content"] for message in body["messages"]]
    return [block for content in contents if isinstance(content, list) for block in content]


def text_in(content: Any) -> str:
    """The text of a content that may be a list of parts."""
    if isinstance(content, str):
        return content
    return "".join(part.get("text", "") for part in content or [])


def outline(protocol: str, body: Json) -> list[str]:
    """Who speaks, in order: roles of a Chat request, kinds of blocks or items with their role otherwise."""
    if protocol == CHAT:
        return [message["role"] for message in body["messages"]]
    if protocol == RESPONSES:
        return [item.get("role") or item["type"] for item in body["input"]]
    return [
        f"{message['role']} {' '.join(block['type'] for block in message['content'])}"
        if isinstance(message["content"], list)
        else f"{message['role']} text"
        for message in body["messages"]
    ]
