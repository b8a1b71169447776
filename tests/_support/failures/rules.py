"""The vendors' rules for conversations, with the messages of their refusals.

Each function gets a request body and returns its problems; none is a pass. Nothing of the product is used.
"""

import re
from typing import Any

from oracle import CHAT, GEMINI, MESSAGES, RESPONSES

Json = dict[str, Any]

PLAIN = re.compile(r"[a-zA-Z0-9_-]+")
LONGEST_CALL_ID = 64
# Members with which a message says something.
SAYING = ("content", "tool_calls", "refusal", "reasoning", "reasoning_content", "reasoning_details")
# Items of a turn that the model writes after it has thought.
FOLLOWERS = {"message", "function_call", "custom_tool_call", "web_search_call", "compaction"}


def refused(protocol: str, body: Json) -> list[str]:
    """Why the vendor would refuse the conversation in this request."""
    return _RULES[protocol](body)


def blocks_of(message: Json) -> list[Json]:
    """The content of a Messages message, a string as the text block that it stands for."""
    content = message["content"]
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _messages(body: Json) -> list[str]:
    found: list[str] = []
    waiting: list[str] = []
    seen: set[str] = set()
    for number, message in enumerate(body["messages"]):
        where = f"messages.{number}"
        blocks = blocks_of(message)
        if not blocks:
            found.append(f"{where}: all messages must have non-empty content")
        translated_response = _leading_results(blocks)
        if waiting and (message["role"] != "user" or sorted(translated_response) != sorted(waiting)):
            found.append(f"{where}: `tool_use` ids were found without `tool_result` blocks: {waiting}")
        results = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
        found += [f"{where}: unexpected `tool_use_id`: {each}" for each in results if each not in waiting]
        if results != translated_response:
            found.append(f"{where}: the results are not the first blocks")
        waiting = []
        for block in blocks:
            found += [f"{where}: {problem}" for problem in _block_problems(block)]
            if block["type"] == "tool_use":
                if block["id"] in seen:
                    found.append(f"{where}: `tool_use` ids must be unique")
                seen.add(block["id"])
                waiting.append(block["id"])
    return found + [f"the last turn's call {call} has no result" for call in waiting]


def _leading_results(blocks: list[Json]) -> list[str]:
    ids: list[str] = []
    for block in blocks:
        if block["type"] != "tool_result":
            break
        ids.append(block["tool_use_id"])
    return ids


def _block_problems(block: Json) -> list[str]:
    kind = block["type"]
    if kind == "text" and not block["text"]:
        return ["text content blocks must be non-empty"]
    if kind == "thinking" and not block.get("signature"):
        return ["thinking.signature: Field required"]
    if kind == "tool_result" and isinstance(block.get("content"), list):
        return [problem for inner in block["content"] for problem in _block_problems(inner)]
    if kind != "tool_use":
        return []
    problems = []
    if not PLAIN.fullmatch(block["id"]):
        problems.append(f"tool_use.id: should match '^[a-zA-Z0-9_-]+$': {block['id']!r}")
    if "input" not in block:
        problems.append("tool_use.input: Field required")
    elif not isinstance(block["input"], dict):
        problems.append("tool_use.input: Input should be a valid dictionary")
    return problems


def _chat(body: Json) -> list[str]:
    found: list[str] = []
    waiting: list[str] = []
    for number, message in enumerate(body["messages"]):
        where = f"messages.{number}"
        if message["role"] == "tool":
            call_id = message["tool_call_id"]
            if call_id not in waiting:
                found.append(f"{where}: 'tool' must be a response to a preceding message with 'tool_calls'")
            waiting = [each for each in waiting if each != call_id]
            continue
        if waiting:
            found.append(f"{where}: tool_call_ids did not have response messages: {waiting}")
        waiting = []
        for call in message.get("tool_calls") or []:
            waiting.append(call["id"])
            text = call["function"].get("arguments") if "function" in call else ""
            if not isinstance(text, str):
                found.append(f"{where}: tool_calls.function.arguments: not a string")
        if not any(message.get(member) for member in SAYING):
            found.append(f"{where}: empty message")
    return found + [f"the last turn's call {call} has no result" for call in waiting]


def _responses(body: Json) -> list[str]:
    found: list[str] = []
    items = body["input"]
    called: dict[str, int] = {}
    for number, item in enumerate(items):
        where = f"input.{number}"
        kind = item.get("type", "message")
        if item.get("id") == "":
            found.append(f"{where}: Invalid 'id': empty string")
        if kind in ("function_call", "custom_tool_call"):
            if not 0 < len(item["call_id"]) <= LONGEST_CALL_ID:
                found.append(f"{where}: Invalid 'call_id': string too long")
            if item["call_id"] in called:
                found.append(f"{where}: Duplicate call_id {item['call_id']}")
            called[item["call_id"]] = 0
        elif kind in ("function_call_output", "custom_tool_call_output"):
            if called.get(item["call_id"]) != 0:
                found.append(f"{where}: No tool call found for function call output {item['call_id']}")
            called[item["call_id"]] = 1
        elif kind == "reasoning" and not _is_followed(items[number + 1 :]):
            found.append(f"{where}: 'reasoning' was provided without its required following item")
    return found + [f"No tool output found for function call {call}" for call in called if not called[call]]


def _is_followed(following: list[Json]) -> bool:
    after = next((item for item in following if item.get("type") != "reasoning"), {"role": "user"})
    return after.get("type", "message") in FOLLOWERS and after.get("role", "assistant") == "assistant"


def _gemini(body: Json) -> list[str]:
    found: list[str] = []
    waiting: list[str] = []
    for number, content in enumerate(body["contents"]):
        where = f"contents.{number}"
        parts = content["parts"]
        if not parts:
            found.append(f"{where}: must include at least one parts field")
        found += [f"{where}: a part without data" for part in parts if not _has_gemini_data(part)]
        results = [part["functionResponse"] for part in parts if "functionResponse" in part]
        if (waiting or results) and sorted(result["name"] for result in results) != sorted(waiting):
            found.append(f"{where}: the number of function response parts is not that of function call parts")
        calls = [part["functionCall"] for part in parts if "functionCall" in part]
        if calls and content["role"] != "model":
            found.append(f"{where}: a function call of the user")
        if calls and (number == 0 or body["contents"][number - 1]["role"] != "user"):
            found.append(f"{where}: a function call turn comes after a user turn or a function response turn")
        waiting = [call["name"] for call in calls]
    return found + [f"the last turn's call of {name} has no result" for name in waiting]


def _has_gemini_data(part: Json) -> bool:
    return part.get("text") != "" or "thoughtSignature" in part


_RULES = {CHAT: _chat, MESSAGES: _messages, RESPONSES: _responses, GEMINI: _gemini}
