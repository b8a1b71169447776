"""What a block says in plain words, for targets that have no such block.

Strategy: only blocks that are content for the model have words: a compaction block is all that is left of a
conversation, a search result is a document. Calls and results of server tools have none.
"""

from __future__ import annotations

from collections.abc import Callable

from dragoman._json import JSON, JSONObject


def plain_text(block: JSONObject) -> str | None:
    """The words of a block, None when it has none."""
    words = _WORDS.get(block["type"])
    return (words(block) or None) if words is not None else None


def _joined(content: JSON) -> str:
    """The text of a string or of the text blocks in a list."""
    if type(content) is str:
        return content
    if type(content) is not list:
        return ""
    return "\n\n".join(
        block["text"] for block in content if type(block) is dict and type(block.get("text")) is str
    )


def _document(block: JSONObject) -> str:
    source = block.get("source")
    title = block.get("title")
    text = _joined(source.get("content")) if type(source) is dict else ""
    return f"{title}\n\n{text}" if text and type(title) is str else text


def _search_result(block: JSONObject) -> str:
    head = [block[key] for key in ("title", "source") if type(block.get(key)) is str]
    return "\n\n".join([*head, _joined(block.get("content"))])


def _compaction(block: JSONObject) -> str:
    return _joined(block.get("content"))


def _tool_reference(block: JSONObject) -> str:
    return f"The tool {block['tool_name']} can be called now." if block.get("tool_name") else ""


_WORDS: dict[str, Callable[[JSONObject], str]] = {
    "document": _document,
    "search_result": _search_result,
    "compaction": _compaction,
    "tool_reference": _tool_reference,
}
