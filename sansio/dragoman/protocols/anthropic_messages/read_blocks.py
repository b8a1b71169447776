"""Content blocks of a client's request -> parts.

Strategy: one function a block type, found in a table; a type without one becomes an opaque part that keeps the
whole block, with what it says in plain words. The commonest blocks (text alone, a call, a result) take a short way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import cast

from dragoman._ir.events import Seal, ToolKind
from dragoman._ir.request import Media, OpaquePart, Part, Text, Thought, ToolCall, ToolResult
from dragoman._ir.signatures import Sealer
from dragoman._wire.json import JSON, JSONObject, encode_text
from dragoman.protocols.anthropic_messages.citations import sources_of
from dragoman.protocols.anthropic_messages.plain import plain_text
from dragoman.protocols.anthropic_messages.read_tools import cache_of
from dragoman.protocols.anthropic_messages.tables import (
    NAME,
    SHOWN_SEARCH,
    SOURCES,
    SUMMARY_ORIGIN,
    SUMMARY_WORDS,
)
from dragoman.protocols.anthropic_messages.values import (
    invalid,
    object_of,
    optional,
    required,
    word,
)
from dragoman.protocols.anthropic_messages.wire import (
    KNOWN_DOCUMENT,
    KNOWN_IMAGE,
    KNOWN_SOURCE,
    KNOWN_TEXT,
    KNOWN_THOUGHT,
    KNOWN_TOOL_RESULT,
    KNOWN_TOOL_USE,
    extra_of,
)

_FUNCTION = ToolKind.FUNCTION  # an Enum's member is slow to look up


class Reading:
    """What is known while one request is read.

    sealer: opens what was sealed here.
    summary: the last part that stands for all that came before it, None when there is none.
    """

    __slots__ = ("sealer", "summary")

    def __init__(self, sealer: Sealer) -> None:
        self.sealer = sealer
        self.summary: Text | None = None


# Gives None for a block that is only a picture of what travels beside it.
BlockReader = Callable[[JSONObject, str, Reading], "Part | None"]


def read_content(
    content: JSON, path: str, reading: Reading, readers: Mapping[str, BlockReader] | None = None
) -> tuple[Part, ...]:
    """The parts of a string or of a list of blocks. readers: for its block types, by default those of a message."""
    if type(content) is str:
        return (Text(content, path=path),) if content else ()
    if type(content) is not list:
        raise invalid(path, "Input should be a valid string or list")
    if readers is None:
        readers = _BLOCKS
    parts: list[Part] = []
    for index, block in enumerate(content):
        place = f"{path}/{index}"
        if type(block) is not dict:
            raise invalid(place, "Input should be an object")
        kind = block.get("type")
        if kind == "text" and len(block) == 2 and type(block.get("text")) is str:
            parts.append(Text(block["text"], None, None, None, place))
            continue
        if type(kind) is not str:
            kind = required(block, "type", place, str, "string")
        reader = readers.get(kind)
        if reader is None:
            parts.append(OpaquePart(NAME, kind, block, place, plain_text(block)))
            continue
        part = reader(block, place, reading)
        if part is not None:
            parts.append(part)
    return tuple(parts)


def _text(block: JSONObject, path: str, reading: Reading) -> Part:
    text = required(block, "text", path, str, "string")
    cache, extra = cache_of(block, path, extra_of(block, KNOWN_TEXT))
    citations = block.get("citations") or None
    return Text(text, cache, citations, extra, path, sources_of(citations) if citations else ())


def _image(block: JSONObject, path: str, reading: Reading) -> Part:
    return _media(block, path, KNOWN_IMAGE)


def _document(block: JSONObject, path: str, reading: Reading) -> Part:
    return _media(block, path, KNOWN_DOCUMENT)


def _media(block: JSONObject, path: str, known: frozenset[str]) -> Part:
    source = object_of(block, "source", path)
    if not source:
        raise invalid(f"{path}/source", "Field required")
    field, neutral = SOURCES.get(word(source.get("type")), ("", None))
    data = source.get(field)
    if neutral is None or type(data) is not str:
        return OpaquePart(NAME, block["type"], block, path, plain_text(block))
    cache, extra = cache_of(block, path, extra_of(block, known))
    left = extra_of(source, KNOWN_SOURCE)
    if left:
        extra = {**(extra or {}), "source": left}
    image = known is KNOWN_IMAGE
    return Media(
        kind="image" if image else "file",
        source=neutral,
        data=data,
        media_type=optional(source, "media_type", f"{path}/source", str, "string"),
        filename=None if image else optional(block, "title", path, str, "string"),
        context=None if image else optional(block, "context", path, str, "string"),
        citations=None if image else block.get("citations"),
        cache=cache,
        extra=extra,
        path=path,
    )


def _thinking(block: JSONObject, path: str, reading: Reading) -> Part:
    text = required(block, "thinking", path, str, "string")
    return _thought(block, path, reading.sealer, text, block.get("signature"))


def _redacted_thinking(block: JSONObject, path: str, reading: Reading) -> Part:
    return _thought(block, path, reading.sealer, "", required(block, "data", path, str, "string"))


def _thought(block: JSONObject, path: str, sealer: Sealer, text: str, carrier: JSON) -> Part:
    extra: JSONObject | None = None
    if "cache_control" in block:
        # "cache_control cannot be set on thinking blocks": it is no part of what was signed.
        extra = {"cache_control": block["cache_control"]}
        block = {key: value for key, value in block.items() if key != "cache_control"}
    seal: Seal | None = None
    forged = False
    if type(carrier) is str and carrier and not sealer.is_wrapped(carrier):
        seal = Seal(NAME, block)  # it holds the whole block
    else:
        if type(carrier) is str and carrier:
            seal = sealer.unwrap(carrier)
            forged = seal is None
        left = extra_of(block, KNOWN_THOUGHT)
        if left:
            extra = {**(extra or {}), **left}
    return Thought(text, seal, extra=extra, path=path, forged=forged)


def _tool_use(block: JSONObject, path: str, reading: Reading) -> Part:
    given = block.get("input")
    if len(block) == 4 and type(given) is dict:
        # The short way: type, id, name and input alone.
        call_id, name = block.get("id"), block.get("name")
        if type(call_id) is str and type(name) is str:
            text = encode_text(given) if given else "{}"
            return ToolCall(call_id, name, text, _FUNCTION, None, None, None, None, path)
    call_id = required(block, "id", path, str, "string")
    name = required(block, "name", path, str, "string")
    # Clients rebuild calls without arguments as null or leave the field out.
    if given is not None and type(given) is not dict:
        raise invalid(f"{path}/input", "Input should be a valid dictionary")
    cache, extra = cache_of(block, path, extra_of(block, KNOWN_TOOL_USE))
    if extra is not None and extra.get("caller") == {"type": "direct"}:
        del extra["caller"]  # says what is so without it
    text = encode_text(given) if given else "{}"
    return ToolCall(call_id, name, text, cache=cache, extra=extra or None, path=path)


def _tool_result(block: JSONObject, path: str, reading: Reading) -> Part:
    call_id = required(block, "tool_use_id", path, str, "string")
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
    cache, extra = cache_of(block, path, extra_of(block, KNOWN_TOOL_RESULT))
    return ToolResult(
        call_id,
        parts,
        is_error=optional(block, "is_error", path, bool, "boolean"),
        cache=cache,
        extra=extra,
        path=path,
    )


def _search(block: JSONObject, path: str, reading: Reading) -> Part | None:
    """A search of the provider, or a picture that was made here of another provider's."""
    if word(block.get("id") or block.get("tool_use_id")).startswith(SHOWN_SEARCH):
        return None
    return OpaquePart(NAME, block["type"], block, path, plain_text(block))


def _compaction(block: JSONObject, path: str, reading: Reading) -> Part:
    carrier = block.get("encrypted_content")
    seal = reading.sealer.unwrap(carrier) if type(carrier) is str else None
    if seal is not None and seal.origin == SUMMARY_ORIGIN and type(seal.native) is dict:
        cache, extra = cache_of(block, path, None)
        text = f"{SUMMARY_WORDS}{seal.native.get('summary')}"
        reading.summary = Text(text, cache, None, extra, path)
        return reading.summary
    return OpaquePart(NAME, "compaction", block, path, plain_text(block))


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
