"""Read the content blocks of a request into parts, and render blocks without a neutral form as text.

Each block type has a reader in a table; a type without one becomes an opaque part, which keeps the whole block. Its
text is for upstreams of other protocols: each type that holds text for the model (documents, search results, results of
server tools) has a function. Calls of server tools have no text, because it would teach another model to write calls
instead of making them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from dragoman._ir.events import Signature, ToolKind
from dragoman._ir.losses import Loss, LossCode
from dragoman._ir.native import changed, extra_of
from dragoman._ir.request import (
    Citation,
    Media,
    OpaquePart,
    Part,
    Reasoning,
    Text,
    ToolCall,
    ToolResult,
    plain_text_of,
)
from dragoman._ir.shape import BOOLEAN, OBJECT, STRING, read_members
from dragoman._ir.wrapped_signatures import Signer, unwrap_summary
from dragoman._wire.json import JSON, JSONObject, encode_text, object_or_empty, objects_in
from dragoman.protocols.anthropic_messages.checks import (
    CHECKS,
    cited_title,
    cited_url,
    invalid_request,
    read_cache_mark,
    text_or_empty,
    wrong_type,
)
from dragoman.protocols.anthropic_messages.shapes import (
    COMPACTION_SHAPE,
    DOCUMENT_SHAPE,
    IMAGE_SHAPE,
    IMAGE_URL_SHAPE,
    TEXT_SHAPE,
    THINKING_BLOCK_SHAPE,
    TOOL_RESULT_SHAPE,
    TOOL_USE_SHAPE,
)
from dragoman.protocols.anthropic_messages.tables import MARKED, NAME, SEARCH_ID_PREFIX, SOURCE_TYPES

_FUNCTION = ToolKind.FUNCTION  # looking up a member of an Enum is slow
_MODEL: JSONObject = {"type": "direct"}  # the `caller` of a tool, if it is the model itself: the default


# Path and value of an effort in mid-conversation.
EffortOverride = tuple[str, str]


class ReadContext(msgspec.Struct):
    """Shared by the readers of one request.

    signer: unwraps signatures that Dragoman wrapped.
    summary: the last part that replaces everything before it, None if there is none.
    effort: the last effort that a system message in mid-conversation sets, None if none does.
    has_system_messages: True if a system message stands among the messages.
    is_native: False if a part of the message means something else than the block that it was read from.
    repairs: what the blocks lose.
    """

    signer: Signer
    summary: Text | None = None
    effort: EffortOverride | None = None
    has_system_messages: bool = False
    is_native: bool = True
    repairs: list[Loss] = []


# Returns None for a block without a neutral form.
BlockReader = Callable[[JSONObject, str, ReadContext], "Part | None"]


def read_content(
    content: JSON,
    path: str,
    context: ReadContext,
    block_paths: tuple[str, ...] = (),
    readers: Mapping[str, BlockReader] | None = None,
) -> tuple[Part, ...]:
    """Return the parts of a string or a list of blocks.

    block_paths: pointers to the first blocks, where they are known. readers: by block type, by default a message's.
    """
    if type(content) is str:
        return (Text(content, path=path),) if content else ()
    if type(content) is not list:
        raise invalid_request(path, "Input should be a valid string or list")
    known = len(block_paths)
    if len(content) > known:
        block_paths += tuple([f"{path}/{index}" for index in range(known, len(content))])
    parts: list[Part] = []
    index = 0  # enumerate() costs as much as to make a part
    for block in content:
        block_path = block_paths[index]
        index += 1
        kind = block.get("type") if type(block) is dict else None
        if kind == "text" and len(block) == 2 and type(text := block.get("text")) is str:
            parts.append(Text(text, None, None, block_path, native=block))
            continue
        if type(kind) is not str:
            if type(block) is not dict:
                raise invalid_request(block_path, "Input should be an object")
            raise wrong_type(f"{block_path}/type", STRING.name, kind)
        reader = (_MESSAGE_READERS if readers is None else readers).get(kind)
        part = None if reader is None else reader(block, block_path, context)
        if part is not None:
            parts.append(part)
        elif is_made_search(block):  # the search itself comes back in the wrapped signature next to it
            context.is_native = False
        else:
            parts.append(OpaquePart(NAME, kind, block, block_path, render_text(block)))
    return tuple(parts)


def _read_text(block: JSONObject, path: str, context: ReadContext) -> Part:
    text = CHECKS.required(block, "text", path, STRING)
    citations = block.get("citations") or None
    sources = _read_citations(citations)
    mark = read_cache_mark(block, path)
    return Text(text, mark, citations, path, sources, native=block, shape=TEXT_SHAPE)


def _read_citations(citations: JSON) -> tuple[Citation, ...]:
    """Return the citations of web pages. They are about the whole text block."""
    return tuple(
        [
            Citation(url, cited_title(citation))
            for citation in objects_in(citations)
            if (url := cited_url(citation)) is not None
        ]
    )


def _read_media(block: JSONObject, path: str, context: ReadContext) -> Part | None:
    is_image = block["type"] == "image"
    shape = IMAGE_SHAPE if is_image else DOCUMENT_SHAPE
    if not block.get("source"):
        raise wrong_type(f"{path}/source", OBJECT.name, None)
    read_members(block, shape, wrong_type, path)  # checks the types
    source = block["source"]
    member, neutral = SOURCE_TYPES.get(text_or_empty(source.get("type")), ("", None))
    data = source.get(member)
    if neutral is None or type(data) is not str:
        return None
    return Media(
        kind="image" if is_image else "file",
        source=neutral,
        data=data,
        media_type=source.get("media_type"),
        filename=None if is_image else block.get("title"),
        context=None if is_image else block.get("context"),
        citations=None if is_image else block.get("citations"),
        cache=read_cache_mark(block, path),
        path=path,
        native=block,
        shape=shape,
    )


def _read_image_url(block: JSONObject, path: str, context: ReadContext) -> Part:
    """Return the image of a block in OpenAI's form, which some clients send: it can mean nothing else."""
    image = block.get("image_url")
    if type(image) is str:
        image = {"url": image}
    elif type(image) is not dict:
        raise wrong_type(f"{path}/image_url", OBJECT.name, image)
    url = CHECKS.required(image, "url", f"{path}/image_url", STRING)
    detail = CHECKS.optional(image, "detail", f"{path}/image_url", STRING)
    context.is_native = False
    mark, extra = read_cache_mark(block, path), extra_of(block, IMAGE_URL_SHAPE)
    return Media("image", "url", url, detail=detail, cache=mark, path=path, **extra)


def _read_reasoning(block: JSONObject, path: str, context: ReadContext) -> Part:
    """Return the reasoning of a block, with the vendor's signature, a wrapped one, or none."""
    if block["type"] == "thinking":
        text, carrier = (
            CHECKS.required(block, "thinking", path, STRING),
            text_or_empty(block.get("signature")),
        )
        usual = 3
    else:
        text, carrier, usual = "", CHECKS.required(block, "data", path, STRING), 2
    if carrier and context.signer.is_wrapped(carrier):
        signature = context.signer.unwrap(carrier)
        context.is_native = False
        extra = {} if len(block) == usual else extra_of(block, THINKING_BLOCK_SHAPE)
        return Reasoning(text, signature, path, signature is None, **extra)
    if "cache_control" in block:
        context.is_native = False
        context.repairs.append(Loss(LossCode.REPAIRED, f"{path}/cache_control", MARKED))
        block = {name: value for name, value in block.items() if name != "cache_control"}
    if carrier:
        return Reasoning(text, Signature(NAME, block), path, native=block)
    return Reasoning(text, None, path, native=block, shape=THINKING_BLOCK_SHAPE)


def _read_tool_use(block: JSONObject, path: str, context: ReadContext) -> Part:
    arguments = block.get("input")
    is_usual = len(block) == 4 or (len(block) == 5 and block.get("caller") == _MODEL)
    if is_usual and type(arguments) is dict:
        # A shortcut for nearly all calls: only type, id, name and input, and what has called the tool.
        call_id, name = block.get("id"), block.get("name")
        if type(call_id) is str and type(name) is str:
            text = encode_text(arguments) if arguments else "{}"
            return ToolCall(call_id, name, text, _FUNCTION, None, None, path, native=block)
    call_id = CHECKS.required(block, "id", path, STRING)
    name = CHECKS.required(block, "name", path, STRING)
    # Clients that rebuild calls send null or nothing when there are no arguments.
    if arguments is not None and type(arguments) is not dict:
        raise invalid_request(f"{path}/input", "Input should be a valid dictionary")
    text = encode_text(arguments) if arguments else "{}"
    mark = read_cache_mark(block, path)
    return ToolCall(call_id, name, text, cache=mark, path=path, native=block, shape=TOOL_USE_SHAPE)


def _read_tool_result(block: JSONObject, path: str, context: ReadContext) -> Part:
    call_id, failed = block.get("tool_use_id"), block.get("is_error")
    content: JSON = block.get("content")
    parts: tuple[Any, ...] = ()
    is_usual = len(block) == (4 if failed is False else 3)
    if is_usual and type(call_id) is str:
        # Shortcuts for nearly all results: a text, as a string or as the only block.
        if type(content) is str and content:
            return ToolResult(call_id, (), _FUNCTION, failed, None, path, native=block, plain_text=content)
        if (text := _only_text(content)) is not None:
            parts = (Text(text, None, None, f"{path}/content/0", native=content[0]),)
            return ToolResult(call_id, parts, _FUNCTION, failed, None, path, native=block, plain_text=text)
    is_native, context.is_native = context.is_native, True
    if content is not None:
        parts = read_content(content, f"{path}/content", context, readers=_RESULT_READERS)
    is_usual = is_usual and bool(parts)
    result = ToolResult(
        CHECKS.required(block, "tool_use_id", path, STRING),
        parts,
        is_error=CHECKS.optional(block, "is_error", path, BOOLEAN),
        cache=read_cache_mark(block, path),
        path=path,
        native=block,
        shape=None if is_usual else TOOL_RESULT_SHAPE,
        plain_text=plain_text_of(parts) if is_usual else "",
    )
    if not context.is_native:
        return changed(result)
    context.is_native = is_native
    return result


def _only_text(content: JSON) -> str | None:
    """Return the text of content that is one text block without other members, None for any other."""
    block = content[0] if type(content) is list and len(content) == 1 else None
    if type(block) is not dict or len(block) != 2 or block.get("type") != "text":
        return None
    text = block.get("text")
    return text if type(text) is str else None


def is_made_search(block: JSONObject) -> bool:
    """True for a block that Dragoman made of another vendor's search."""
    return text_or_empty(block.get("id") or block.get("tool_use_id")).startswith(SEARCH_ID_PREFIX)


def _read_compaction(block: JSONObject, path: str, context: ReadContext) -> Part | None:
    """Return Dragoman's own summary as text that replaces all before it. The vendor's has no neutral form."""
    summary = unwrap_summary(block, context.signer)
    if summary is None:
        return None
    extra = extra_of(block, COMPACTION_SHAPE)
    context.summary = Text(summary, read_cache_mark(block, path), path=path, **extra)
    return context.summary


_RESULT_READERS: dict[str, BlockReader] = {
    "text": _read_text,
    "image": _read_media,
    "image_url": _read_image_url,
    "document": _read_media,
}
_MESSAGE_READERS: dict[str, BlockReader] = {
    **_RESULT_READERS,
    "thinking": _read_reasoning,
    "redacted_thinking": _read_reasoning,
    "tool_use": _read_tool_use,
    "tool_result": _read_tool_result,
    "compaction": _read_compaction,
}

# Blocks as text.


def render_text(block: JSONObject) -> str | None:
    """Return the text of a block, None if it has none."""
    render = _RENDERERS.get(block["type"])
    return (render(block) or None) if render is not None else None


def _join_texts(content: JSON) -> str:
    """Return a string, or the texts of a list of blocks."""
    if type(content) is str:
        return content
    return _join(*[item.get("text") for item in objects_in(content)], between="\n\n")


def _join(*parts: JSON, between: str = "\n") -> str:
    """Join the parts that are non-empty strings."""
    return between.join(part for part in parts if type(part) is str and part)


def _render_document(block: JSONObject) -> str:
    source = object_or_empty(block.get("source"))
    text = _join_texts(source.get("content")) or (source.get("data") if source.get("type") == "text" else "")
    return _join(block.get("title"), block.get("context"), text, between="\n\n") if text else ""


def _render_search_result(block: JSONObject) -> str:
    return _join(block.get("title"), block.get("source"), _join_texts(block.get("content")), between="\n\n")


def _render_web_search(block: JSONObject) -> str:
    results = [_join(item.get("title"), item.get("url")) for item in objects_in(block.get("content"))]
    return _join("Found by a web search:", *results, between="\n\n") if any(results) else ""


def _render_web_fetch(block: JSONObject) -> str:
    content = object_or_empty(block.get("content"))
    text = _render_document(object_or_empty(content.get("content")))
    return _join(f"Fetched from {content.get('url')}:", text, between="\n\n") if text else ""


def _render_code_result(block: JSONObject) -> str:
    content = object_or_empty(block.get("content"))
    if content.get("type") == "text_editor_code_execution_view_result":
        return _join("A file in the sandbox:", content.get("content"))
    output = _join(content.get("stdout"), content.get("stderr"))
    return _join(f"Code was run, with exit code {content.get('return_code')}:", output) if output else ""


def _render_mcp_result(block: JSONObject) -> str:
    text = _join_texts(block.get("content"))
    head = "A tool failed:" if block.get("is_error") else "A tool returned:"
    return _join(head, text) if text else ""


def _render_advice(block: JSONObject) -> str:
    text = object_or_empty(block.get("content")).get("text")
    return _join("Advice:", text) if text else ""


def _render_tool_search(block: JSONObject) -> str:
    references = objects_in(object_or_empty(block.get("content")).get("tool_references"))
    return _join(*[_render_tool_reference(item) for item in references])


def _render_tool_reference(block: JSONObject) -> str:
    return f"The tool {block['tool_name']} can be called now." if block.get("tool_name") else ""


def _render_tool_change(block: JSONObject) -> str:
    tool = object_or_empty(block.get("tool"))
    name = tool.get("name") or object_or_empty(tool.get("definition")).get("name")
    server = tool.get("server_name") or object_or_empty(tool.get("definition")).get("mcp_server_name")
    if not name and not server:
        return ""
    subject = f"The tool {name}" if name else "Each tool"
    if server:
        subject += f" of the MCP server {server}"
    return f"{subject} can {'be called now' if block['type'] == 'tool_addition' else 'no longer be called'}."


def _render_browser_state(block: JSONObject) -> str:
    lines: list[str] = []
    for tab in objects_in(block.get("tabs")):
        head = f"Tab {tab.get('tab_id')}{' (active)' if tab.get('active') else ''}:"
        lines.append(_join(head, tab.get("title"), tab.get("url"), between=" "))
    for change in objects_in(block.get("state_changes")):
        details = [change.get(name) for name in ("tab_id", "url", "path", "error")]
        lines.append(_join(str(change.get("type")).replace("_", " ") + ":", *details, between=" "))
    return _join(*lines)


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
