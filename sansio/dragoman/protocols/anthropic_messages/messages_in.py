"""Content blocks of a client's request -> parts.

Strategy: one function a block type, found in a table; a type without one becomes an opaque part that keeps the
whole block, with what it says in plain words. The commonest blocks (text alone, a call, a result) take a short way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import cast

from dragoman._ir.events import Signature, ToolKind
from dragoman._ir.request import Media, OpaquePart, Part, Reasoning, Text, ToolCall, ToolResult
from dragoman._ir.signatures import Signer
from dragoman._wire.json import JSON, JSONObject, encode_text
from dragoman.protocols.anthropic_messages.checks import (
    KNOWN_DOCUMENT,
    KNOWN_IMAGE,
    KNOWN_SOURCE,
    KNOWN_TEXT,
    KNOWN_THINKING_BLOCK,
    KNOWN_TOOL_RESULT,
    KNOWN_TOOL_USE,
    extra_fields,
    invalid_request,
    optional_field,
    optional_object,
    read_cache_mark,
    read_citations,
    required_field,
    text_or_empty,
)
from dragoman.protocols.anthropic_messages.tables import (
    NAME,
    SEARCH_ID_PREFIX,
    SOURCE_TYPES,
    SUMMARY_ORIGIN,
    SUMMARY_PREFIX,
)

_FUNCTION = ToolKind.FUNCTION  # an Enum's member is slow to look up


class ReadContext:
    """What is known while one request is read.

    sealer: opens what was sealed here.
    summary: the last part that stands for all that came before it, None when there is none.
    """

    __slots__ = ("signer", "summary")

    def __init__(self, signer: Signer) -> None:
        self.signer = signer
        self.summary: Text | None = None


# Gives None for a block that is only a picture of what travels beside it.
BlockReader = Callable[[JSONObject, str, ReadContext], "Part | None"]


def read_content(
    content: JSON, path: str, reading: ReadContext, readers: Mapping[str, BlockReader] | None = None
) -> tuple[Part, ...]:
    """The parts of a string or of a list of blocks. readers: for its block types, by default those of a message."""
    if type(content) is str:
        return (Text(content, path=path),) if content else ()
    if type(content) is not list:
        raise invalid_request(path, "Input should be a valid string or list")
    if readers is None:
        readers = _BLOCKS
    parts: list[Part] = []
    for index, block in enumerate(content):
        place = f"{path}/{index}"
        if type(block) is not dict:
            raise invalid_request(place, "Input should be an object")
        kind = block.get("type")
        if kind == "text" and len(block) == 2 and type(block.get("text")) is str:
            parts.append(Text(block["text"], None, None, None, place))
            continue
        if type(kind) is not str:
            kind = required_field(block, "type", place, str, "string")
        reader = readers.get(kind)
        if reader is None:
            parts.append(OpaquePart(NAME, kind, block, place, render_text(block)))
            continue
        part = reader(block, place, reading)
        if part is not None:
            parts.append(part)
    return tuple(parts)


def _text(block: JSONObject, path: str, reading: ReadContext) -> Part:
    text = required_field(block, "text", path, str, "string")
    cache, extra = read_cache_mark(block, path, extra_fields(block, KNOWN_TEXT))
    citations = block.get("citations") or None
    return Text(text, cache, citations, extra, path, read_citations(citations) if citations else ())


def _image(block: JSONObject, path: str, reading: ReadContext) -> Part:
    return _media(block, path, KNOWN_IMAGE)


def _document(block: JSONObject, path: str, reading: ReadContext) -> Part:
    return _media(block, path, KNOWN_DOCUMENT)


def _media(block: JSONObject, path: str, known: frozenset[str]) -> Part:
    source = optional_object(block, "source", path)
    if not source:
        raise invalid_request(f"{path}/source", "Field required")
    field, neutral = SOURCE_TYPES.get(text_or_empty(source.get("type")), ("", None))
    data = source.get(field)
    if neutral is None or type(data) is not str:
        return OpaquePart(NAME, block["type"], block, path, render_text(block))
    cache, extra = read_cache_mark(block, path, extra_fields(block, known))
    left = extra_fields(source, KNOWN_SOURCE)
    if left:
        extra = {**(extra or {}), "source": left}
    image = known is KNOWN_IMAGE
    return Media(
        kind="image" if image else "file",
        source=neutral,
        data=data,
        media_type=optional_field(source, "media_type", f"{path}/source", str, "string"),
        filename=None if image else optional_field(block, "title", path, str, "string"),
        context=None if image else optional_field(block, "context", path, str, "string"),
        citations=None if image else block.get("citations"),
        cache=cache,
        extra=extra,
        path=path,
    )


def _thinking(block: JSONObject, path: str, reading: ReadContext) -> Part:
    text = required_field(block, "thinking", path, str, "string")
    return _thought(block, path, reading.signer, text, block.get("signature"))


def _redacted_thinking(block: JSONObject, path: str, reading: ReadContext) -> Part:
    return _thought(block, path, reading.signer, "", required_field(block, "data", path, str, "string"))


def _thought(block: JSONObject, path: str, signer: Signer, text: str, carrier: JSON) -> Part:
    extra: JSONObject | None = None
    if "cache_control" in block:
        # "cache_control cannot be set on thinking blocks": it is no part of what was signed.
        extra = {"cache_control": block["cache_control"]}
        block = {key: value for key, value in block.items() if key != "cache_control"}
    seal: Signature | None = None
    forged = False
    if type(carrier) is str and carrier and not signer.is_wrapped(carrier):
        seal = Signature(NAME, block)  # it holds the whole block
    else:
        if type(carrier) is str and carrier:
            seal = signer.unwrap(carrier)
            forged = seal is None
        left = extra_fields(block, KNOWN_THINKING_BLOCK)
        if left:
            extra = {**(extra or {}), **left}
    return Reasoning(text, seal, extra=extra, path=path, forged=forged)


def _tool_use(block: JSONObject, path: str, reading: ReadContext) -> Part:
    given = block.get("input")
    if len(block) == 4 and type(given) is dict:
        # The short way: type, id, name and input alone.
        call_id, name = block.get("id"), block.get("name")
        if type(call_id) is str and type(name) is str:
            text = encode_text(given) if given else "{}"
            return ToolCall(call_id, name, text, _FUNCTION, None, None, None, None, path)
    call_id = required_field(block, "id", path, str, "string")
    name = required_field(block, "name", path, str, "string")
    # Clients rebuild calls without arguments as null or leave the field out.
    if given is not None and type(given) is not dict:
        raise invalid_request(f"{path}/input", "Input should be a valid dictionary")
    cache, extra = read_cache_mark(block, path, extra_fields(block, KNOWN_TOOL_USE))
    if extra is not None and extra.get("caller") == {"type": "direct"}:
        del extra["caller"]  # says what is so without it
    text = encode_text(given) if given else "{}"
    return ToolCall(call_id, name, text, cache=cache, extra=extra or None, path=path)


def _tool_result(block: JSONObject, path: str, reading: ReadContext) -> Part:
    call_id = required_field(block, "tool_use_id", path, str, "string")
    content = block.get("content")
    found: tuple[Part, ...]
    if type(content) is str and content:
        found = (Text(content, None, None, None, path + "/content"),)
    else:
        found = () if content is None else read_content(content, f"{path}/content", reading, _RESULT_BLOCKS)
    parts = cast("tuple[Text | Media | OpaquePart, ...]", found)
    if len(block) == 3 and content is not None:
        # The short way: type, id and content alone.
        return ToolResult(call_id, parts, _FUNCTION, None, None, None, None, path)
    cache, extra = read_cache_mark(block, path, extra_fields(block, KNOWN_TOOL_RESULT))
    return ToolResult(
        call_id,
        parts,
        is_error=optional_field(block, "is_error", path, bool, "boolean"),
        cache=cache,
        extra=extra,
        path=path,
    )


def _search(block: JSONObject, path: str, reading: ReadContext) -> Part | None:
    """A search of the provider, or a picture that was made here of another provider's."""
    if text_or_empty(block.get("id") or block.get("tool_use_id")).startswith(SEARCH_ID_PREFIX):
        return None
    return OpaquePart(NAME, block["type"], block, path, render_text(block))


def _compaction(block: JSONObject, path: str, reading: ReadContext) -> Part:
    carrier = block.get("encrypted_content")
    seal = reading.signer.unwrap(carrier) if type(carrier) is str else None
    if seal is not None and seal.origin == SUMMARY_ORIGIN and type(seal.native) is dict:
        cache, extra = read_cache_mark(block, path, None)
        text = f"{SUMMARY_PREFIX}{seal.native.get('summary')}"
        reading.summary = Text(text, cache, None, extra, path)
        return reading.summary
    return OpaquePart(NAME, "compaction", block, path, render_text(block))


_RESULT_BLOCKS: dict[str, BlockReader] = {"text": _text, "image": _image, "document": _document}
_BLOCKS: dict[str, BlockReader] = {
    **_RESULT_BLOCKS,
    "thinking": _thinking,
    "redacted_thinking": _redacted_thinking,
    "tool_use": _tool_use,
    "tool_result": _tool_result,
    "server_tool_use": _search,
    "web_search_tool_result": _search,
    "compaction": _compaction,
}


def render_text(block: JSONObject) -> str | None:
    """The words of a block, None when it has none."""
    words = _RENDERERS.get(block["type"])
    return (words(block) or None) if words is not None else None


def _objects(content: JSON) -> Iterator[JSONObject]:
    """The objects in a list; nothing in anything else."""
    if type(content) is list:
        yield from (item for item in content if type(item) is dict)


def _join_texts(content: JSON) -> str:
    """The text of a string or of the text blocks in a list."""
    if type(content) is str:
        return content
    return _join(*[item.get("text") for item in _objects(content)], between="\n\n")


def _join(*parts: JSON, between: str = "\n") -> str:
    """Those of the parts that are texts with something in them."""
    return between.join(part for part in parts if type(part) is str and part)


def _object(block: JSONObject, name: str) -> JSONObject:
    found = block.get(name)
    return found if type(found) is dict else {}


def _render_document(block: JSONObject) -> str:
    source = _object(block, "source")
    text = _join_texts(source.get("content")) or (source.get("data") if source.get("type") == "text" else "")
    return _join(block.get("title"), block.get("context"), text, between="\n\n") if text else ""


def _render_search_result(block: JSONObject) -> str:
    return _join(block.get("title"), block.get("source"), _join_texts(block.get("content")), between="\n\n")


def _render_web_search(block: JSONObject) -> str:
    found = [_join(item.get("title"), item.get("url")) for item in _objects(block.get("content"))]
    return _join("Found by a web search:", *found, between="\n\n") if any(found) else ""


def _render_web_fetch(block: JSONObject) -> str:
    content = _object(block, "content")
    text = _render_document(_object(content, "content"))
    return _join(f"Fetched from {content.get('url')}:", text, between="\n\n") if text else ""


def _render_code_result(block: JSONObject) -> str:
    content = _object(block, "content")
    if content.get("type") == "text_editor_code_execution_view_result":
        return _join("A file in the sandbox:", content.get("content"))
    said = _join(content.get("stdout"), content.get("stderr"))
    return _join(f"Code was run, with exit code {content.get('return_code')}:", said) if said else ""


def _render_mcp_result(block: JSONObject) -> str:
    text = _join_texts(block.get("content"))
    head = "A tool failed:" if block.get("is_error") else "A tool gave back:"
    return _join(head, text) if text else ""


def _render_advice(block: JSONObject) -> str:
    text = _object(block, "content").get("text")
    return _join("Advice:", text) if text else ""


def _render_tool_search(block: JSONObject) -> str:
    found = _objects(_object(block, "content").get("tool_references"))
    return _join(*[_render_tool_reference(item) for item in found])


def _render_tool_reference(block: JSONObject) -> str:
    return f"The tool {block['tool_name']} can be called now." if block.get("tool_name") else ""


def _render_tool_change(block: JSONObject) -> str:
    tool = _object(block, "tool")
    name = tool.get("name") or _object(tool, "definition").get("name")
    whose = tool.get("server_name") or _object(tool, "definition").get("mcp_server_name")
    if not name and not whose:
        return ""
    what = f"The tool {name}" if name else "Each tool"
    if whose:
        what += f" of the MCP server {whose}"
    return f"{what} can {'be called now' if block['type'] == 'tool_addition' else 'no longer be called'}."


def _render_browser_state(block: JSONObject) -> str:
    tabs = [
        _join(
            f"Tab {tab.get('tab_id')}{' (active)' if tab.get('active') else ''}:",
            tab.get("title"),
            tab.get("url"),
            between=" ",
        )
        for tab in _objects(block.get("tabs"))
    ]
    changes = [
        _join(
            str(change.get("type")).replace("_", " ") + ":",
            change.get("tab_id"),
            change.get("url"),
            change.get("path"),
            change.get("error"),
            between=" ",
        )
        for change in _objects(block.get("state_changes"))
    ]
    return _join(*tabs, *changes)


def _render_compaction(block: JSONObject) -> str:
    return _join_texts(block.get("content"))


_RENDERERS: dict[str, Callable[[JSONObject], str]] = {
    "document": _render_document,
    "search_result": _render_search_result,
    "web_search_tool_result": _render_web_search,
    "web_fetch_tool_result": _render_web_fetch,
    "code_execution_tool_result": _render_code_result,
    "bash_code_execution_tool_result": _render_code_result,
    "text_editor_code_execution_tool_result": _render_code_result,
    "mcp_tool_result": _render_mcp_result,
    "advisor_tool_result": _render_advice,
    "tool_search_tool_result": _render_tool_search,
    "tool_reference": _render_tool_reference,
    "tool_addition": _render_tool_change,
    "tool_removal": _render_tool_change,
    "browser_state": _render_browser_state,
    "compaction": _render_compaction,
}
