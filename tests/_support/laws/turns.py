"""What clients do with a response: assemble it, and send it back with the next request.

Written only from the protocols' rules, as a plain client: it uses nothing of the product, and wrapped signatures are
opaque.
"""

import json
from collections.abc import Callable
from typing import Any

from oracle import CHAT, GEMINI, MESSAGES, RESPONSES, as_object
from oracle.frames import lenient_frames

Json = dict[str, Any]


def payloads(stream: bytes) -> list[Json]:
    found = [as_object(frame.data) for frame in lenient_frames(stream)]
    return [payload for payload in found if payload is not None]


# --- a response, put together ---------------------------------------------------------------------------------


def _chat_message(stream: bytes) -> Json:
    """The message of choice 0: strings joined, entries of reasoning kept one after the other."""
    message: Json = {"role": "assistant", "content": ""}
    calls: dict[int, Json] = {}
    for chunk in payloads(stream):
        for choice in chunk.get("choices") or []:
            delta = choice.get("delta") or {}
            if choice.get("index"):
                continue
            for key in ("content", "refusal", "reasoning_content", "reasoning"):
                if isinstance(delta.get(key), str):
                    message[key] = (message.get(key) or "") + delta[key]
            for key in ("reasoning_details", "thinking_blocks"):
                message[key] = [*message.get(key, []), *(delta.get(key) or [])]
            for fragment in delta.get("tool_calls") or []:
                _grow_call(calls, fragment)
    if calls:
        message["tool_calls"] = [calls[index] for index in sorted(calls)]
    return {key: value for key, value in message.items() if value or key in ("role", "content")}


def _grow_call(calls: dict[int, Json], fragment: Json) -> None:
    call = calls.setdefault(fragment.get("index") or 0, {"type": fragment.get("type") or "function"})
    call["id"] = call.get("id") or fragment.get("id")
    for kind, text in (("function", "arguments"), ("custom", "input")):
        inner = fragment.get(kind)
        if isinstance(inner, dict):
            held = call.setdefault(kind, {"name": "", text: ""})
            held["name"] = held["name"] or inner.get("name") or ""
            held[text] += inner.get(text) or ""


def _messages_content(stream: bytes) -> list[Json]:
    """The content blocks."""
    blocks: dict[int, Json] = {}
    inputs: dict[int, str] = {}
    for event in payloads(stream):
        if event["type"] == "content_block_start":
            blocks[event["index"]] = dict(event["content_block"])
        elif event["type"] == "content_block_delta":
            block, delta = blocks[event["index"]], event["delta"]
            for key in ("text", "thinking"):
                if isinstance(delta.get(key), str):
                    block[key] = (block.get(key) or "") + delta[key]
            if "signature" in delta:
                block["signature"] = delta["signature"]
            if "partial_json" in delta:
                inputs[event["index"]] = inputs.get(event["index"], "") + delta["partial_json"]
    for index, text in inputs.items():
        if as_object(text) is not None:
            blocks[index]["input"] = json.loads(text)
    return [blocks[index] for index in sorted(blocks)]


def _responses_output(stream: bytes) -> list[Json]:
    """The finished items."""
    events = payloads(stream)
    return [event["item"] for event in events if event.get("type") == "response.output_item.done"]


def _gemini_parts(stream: bytes) -> list[Json]:
    """The parts of candidate 0, with pieces of text joined up to the one that is signed."""
    parts: list[Json] = []
    for chunk in payloads(stream):
        for candidate in chunk.get("candidates") or []:
            for part in [] if candidate.get("index") else (candidate.get("content") or {}).get("parts") or []:
                last = parts[-1] if parts else {}
                if part.keys() <= {"text", "thought"} and last.keys() == part.keys():
                    parts[-1] = {**last, "text": last["text"] + part["text"]}
                else:
                    parts.append(part)
    return parts


ASSEMBLE: dict[str, Callable[[bytes], Any]] = {
    CHAT: _chat_message,
    MESSAGES: _messages_content,
    RESPONSES: _responses_output,
    GEMINI: _gemini_parts,
}
WHOLE: dict[str, Callable[[Json], Any]] = {
    CHAT: lambda body: {
        key: value for key, value in body["choices"][0]["message"].items() if value is not None
    },
    MESSAGES: lambda body: body["content"],
    RESPONSES: lambda body: body["output"],
    GEMINI: lambda body: body["candidates"][0]["content"]["parts"],
}


# --- the next request ----------------------------------------------------------------------------------------


def _chat_next(turn: Json) -> Json:
    results = [
        {"role": "tool", "tool_call_id": call["id"], "content": "done"}
        for call in turn.get("tool_calls") or []
    ]
    messages = [{"role": "user", "content": "Hi"}, turn, *(results or [{"role": "user", "content": "Go on"}])]
    return {"model": "m", "messages": messages}


def _messages_next(turn: list[Json]) -> Json:
    # "Text content blocks must be non-empty"; clients drop what cannot go back.
    content = [block for block in turn if block.get("type") != "text" or block.get("text")]
    content = [{key: value for key, value in block.items() if value is not None} for block in content]
    results = [
        {"type": "tool_result", "tool_use_id": block["id"], "content": "done"}
        for block in content
        if block["type"] == "tool_use"
    ]
    response: list[Json] = results or [{"type": "text", "text": "Go on"}]
    return {
        "model": "m",
        "max_tokens": 9,
        "messages": [
            {"role": "user", "content": "Hi"},
            {"role": "assistant", "content": content},
            {"role": "user", "content": response},
        ],
    }


def _responses_next(turn: list[Json]) -> Json:
    outputs = {"function_call": "function_call_output", "custom_tool_call": "custom_tool_call_output"}
    results = [
        {"type": outputs[item["type"]], "call_id": item["call_id"], "output": "done"}
        for item in turn
        if item["type"] in outputs
    ]
    response: list[Json] = results or [{"role": "user", "content": "Go on"}]
    return {"model": "m", "store": False, "input": [{"role": "user", "content": "Hi"}, *turn, *response]}


def _gemini_next(turn: list[Json]) -> Json:
    # Gemini CLI sends back no thoughts, and empty text only with a signature.
    sent = [
        part
        for part in turn
        if part.get("thoughtSignature") or not (part.get("thought") or part == {"text": ""})
    ]
    calls = [part["functionCall"] for part in sent if "functionCall" in part]
    results = [
        {"functionResponse": {"id": call["id"], "name": call["name"], "response": {"output": "done"}}}
        for call in calls
    ]
    contents = [
        {"role": "user", "parts": [{"text": "Hi"}]},
        {"role": "model", "parts": sent},
        {"role": "user", "parts": results or [{"text": "Go on"}]},
    ]
    return {"model": "m", "contents": [content for content in contents if content["parts"]]}


NEXT: dict[str, Callable[[Any], Json]] = {
    CHAT: _chat_next,
    MESSAGES: _messages_next,
    RESPONSES: _responses_next,
    GEMINI: _gemini_next,
}


# --- what of an assistant's turn only its vendor can read ---------------------------------------------------------


def _chat_carriers(message: Json) -> list[Any]:
    """Reasoning in the fields in which the server gave it: texts without blanks, and what is signed."""
    fields = ("reasoning_content", "reasoning")
    found: list[Any] = [(field, "".join(message[field].split())) for field in fields if message.get(field)]
    for field in ("reasoning_details", "thinking_blocks"):
        for entry in message.get(field) or []:
            found += [(field, key, entry[key]) for key in ("signature", "data") if entry.get(key)]
    return found


def _messages_carriers(content: list[Json]) -> list[Any]:
    blocks = [block for block in content if block.get("type") in ("thinking", "redacted_thinking")]
    return [block for block in blocks if block.get("signature") or block.get("data")]


def _responses_carriers(output: list[Json]) -> list[Any]:
    """Reasoning with its ciphertext, and the texts that have a phase."""
    found: list[Any] = []
    for item in output:
        if item.get("type") == "reasoning" and item.get("encrypted_content"):
            found.append({key: value for key, value in item.items() if value is not None})
        elif item.get("phase"):
            content = item["content"]
            text = content if type(content) is str else "".join([part.get("text", "") for part in content])
            found.append((item["phase"], text))
    return found


# In the place of a signature for a call that another vendor's model made, in base64.
GEMINI_PLACEHOLDER = "c2tpcF90aG91Z2h0X3NpZ25hdHVyZV92YWxpZGF0b3I="


def _gemini_carriers(parts: list[Json]) -> list[Any]:
    """What is signed, by the kind of the part and, of a call, its name."""
    found = []
    for part in parts:
        signature = part.get("thoughtSignature")
        kind = next(iter(part.keys() - {"thoughtSignature", "thought"}), "text")
        if signature and signature != GEMINI_PLACEHOLDER:
            found.append(
                {"part": kind, "call": part.get("functionCall", {}).get("name"), "signature": signature}
            )
    return found


CARRIERS: dict[str, Callable[[Any], list[Any]]] = {
    CHAT: _chat_carriers,
    MESSAGES: _messages_carriers,
    RESPONSES: _responses_carriers,
    GEMINI: _gemini_carriers,
}


def turn_of(protocol: str, body: Json) -> Any:
    """The assistant's turns of a request, in the form of a response that was put together."""
    if protocol == RESPONSES:
        return body["input"]
    if protocol == GEMINI:
        return [
            part for content in body["contents"] if content["role"] == "model" for part in content["parts"]
        ]
    turns = [message for message in body["messages"] if message["role"] == "assistant"]
    if protocol == CHAT:
        return turns[0] if turns else {}
    contents = [turn["content"] for turn in turns]
    return [block for content in contents if isinstance(content, list) for block in content]
