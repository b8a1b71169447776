"""What a block says in plain words, for targets that have no such block.

Strategy: one function a block type that holds words for the model: documents, search results, summaries, what a
server tool gave back, which tools there are now. Calls of server tools have none: as text they would teach another
model to write calls instead of making them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from dragoman._wire.json import JSON, JSONObject


def plain_text(block: JSONObject) -> str | None:
    """The words of a block, None when it has none."""
    words = _WORDS.get(block["type"])
    return (words(block) or None) if words is not None else None


def _dicts(content: JSON) -> Iterator[JSONObject]:
    """The objects in a list; nothing in anything else."""
    if type(content) is list:
        yield from (item for item in content if type(item) is dict)


def _joined(content: JSON) -> str:
    """The text of a string or of the text blocks in a list."""
    if type(content) is str:
        return content
    return _lines(*[item.get("text") for item in _dicts(content)], between="\n\n")


def _lines(*parts: JSON, between: str = "\n") -> str:
    """Those of the parts that are texts with something in them."""
    return between.join(part for part in parts if type(part) is str and part)


def _object(block: JSONObject, name: str) -> JSONObject:
    found = block.get(name)
    return found if type(found) is dict else {}


def _document(block: JSONObject) -> str:
    source = _object(block, "source")
    text = _joined(source.get("content")) or (source.get("data") if source.get("type") == "text" else "")
    return _lines(block.get("title"), block.get("context"), text, between="\n\n") if text else ""


def _search_result(block: JSONObject) -> str:
    return _lines(block.get("title"), block.get("source"), _joined(block.get("content")), between="\n\n")


def _web_search(block: JSONObject) -> str:
    found = [_lines(item.get("title"), item.get("url")) for item in _dicts(block.get("content"))]
    return _lines("Found by a web search:", *found, between="\n\n") if any(found) else ""


def _web_fetch(block: JSONObject) -> str:
    content = _object(block, "content")
    text = _document(_object(content, "content"))
    return _lines(f"Fetched from {content.get('url')}:", text, between="\n\n") if text else ""


def _ran(block: JSONObject) -> str:
    content = _object(block, "content")
    if content.get("type") == "text_editor_code_execution_view_result":
        return _lines("A file in the sandbox:", content.get("content"))
    said = _lines(content.get("stdout"), content.get("stderr"))
    return _lines(f"Code was run, with exit code {content.get('return_code')}:", said) if said else ""


def _mcp_result(block: JSONObject) -> str:
    text = _joined(block.get("content"))
    head = "A tool failed:" if block.get("is_error") else "A tool gave back:"
    return _lines(head, text) if text else ""


def _advisor(block: JSONObject) -> str:
    text = _object(block, "content").get("text")
    return _lines("Advice:", text) if text else ""


def _tools_found(block: JSONObject) -> str:
    found = _dicts(_object(block, "content").get("tool_references"))
    return _lines(*[_tool_reference(item) for item in found])


def _tool_reference(block: JSONObject) -> str:
    return f"The tool {block['tool_name']} can be called now." if block.get("tool_name") else ""


def _tool_change(block: JSONObject) -> str:
    tool = _object(block, "tool")
    name = tool.get("name") or _object(tool, "definition").get("name")
    whose = tool.get("server_name") or _object(tool, "definition").get("mcp_server_name")
    if not name and not whose:
        return ""
    what = f"The tool {name}" if name else "Each tool"
    if whose:
        what += f" of the MCP server {whose}"
    return f"{what} can {'be called now' if block['type'] == 'tool_addition' else 'no longer be called'}."


def _browser_state(block: JSONObject) -> str:
    tabs = [
        _lines(
            f"Tab {tab.get('tab_id')}{' (active)' if tab.get('active') else ''}:",
            tab.get("title"),
            tab.get("url"),
            between=" ",
        )
        for tab in _dicts(block.get("tabs"))
    ]
    changes = [
        _lines(
            str(change.get("type")).replace("_", " ") + ":",
            change.get("tab_id"),
            change.get("url"),
            change.get("path"),
            change.get("error"),
            between=" ",
        )
        for change in _dicts(block.get("state_changes"))
    ]
    return _lines(*tabs, *changes)


def _compaction(block: JSONObject) -> str:
    return _joined(block.get("content"))


_WORDS: dict[str, Callable[[JSONObject], str]] = {
    "document": _document,
    "search_result": _search_result,
    "web_search_tool_result": _web_search,
    "web_fetch_tool_result": _web_fetch,
    "code_execution_tool_result": _ran,
    "bash_code_execution_tool_result": _ran,
    "text_editor_code_execution_tool_result": _ran,
    "mcp_tool_result": _mcp_result,
    "advisor_tool_result": _advisor,
    "tool_search_tool_result": _tools_found,
    "tool_reference": _tool_reference,
    "tool_addition": _tool_change,
    "tool_removal": _tool_change,
    "browser_state": _browser_state,
    "compaction": _compaction,
}
