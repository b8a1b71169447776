"""What an upstream was sent of a conversation, read back from the request."""

from typing import Any

from oracle import CHAT, RESPONSES

Json = dict[str, Any]


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
