"""Read the body of a Chat Completions request.

Messages and parts are read through tables by role and by type, with shortcuts for the commonest shapes. A part of
unknown type is kept as an opaque part; only wrong JSON types of required members are refused. Legacy members
(`functions`, `function_call`, role `function`) are read as their successors, with ids made from the place of the call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

import msgspec

from dragoman._ir.events import Signature, ToolKind
from dragoman._ir.media_types import split_data_uri
from dragoman._ir.native import changed, extra_of
from dragoman._ir.request import (
    Media,
    Message,
    MessagePaths,
    OpaquePart,
    Param,
    Part,
    Paths,
    Reasoning,
    Refusal,
    Request,
    Text,
    ToolCall,
    ToolResult,
    plain_text_of,
)
from dragoman._ir.shape import OBJECT, STRING, Setting, Shape, has_content, read_members, taken_members
from dragoman._ir.tools import CacheMark
from dragoman._ir.wrapped_signatures import Signer
from dragoman._wire.json import JSON, JSONObject, invalid_value, object_or_empty, wrong_type
from dragoman.protocols._openai.citations import read_citations
from dragoman.protocols.openai_chat.checks import CHECKS, arguments_text, read_cache_mark
from dragoman.protocols.openai_chat.reasoning import part_text, read_turn
from dragoman.protocols.openai_chat.request_settings import (
    REASONING_SETTINGS,
    read_reasoning,
    read_response_format,
)
from dragoman.protocols.openai_chat.shapes import (
    ASSISTANT_SHAPE,
    CALL_SHAPE,
    DEFINED_MEMBERS,
    FUNCTION_CALL_SHAPE,
    MESSAGE_SHAPE,
    PART_SHAPES,
    REQUEST_SHAPE,
    SETTING_PATHS,
    TOOL_MESSAGE_SHAPE,
)
from dragoman.protocols.openai_chat.tables import CACHE_MARKS, NAME
from dragoman.protocols.openai_chat.tools import read_tools

_LEGACY_SETTING_PATHS: dict[Param, str] = {**SETTING_PATHS, "max_output_tokens": "/max_tokens"}

# Roles whose string content needs no further look.
_PLAIN_ROLES = frozenset({"system", "developer", "user", "assistant"})

# Bound here, because an Enum's member is slow to look up.
_FUNCTION, _CUSTOM = ToolKind.FUNCTION, ToolKind.CUSTOM


_PATHS = MessagePaths("messages", parts="tool_calls")

# Members that are no plain settings, and that few requests have.
_SPECIAL = frozenset(
    [
        "tools",
        "functions",
        "web_search_options",
        "tool_choice",
        "function_call",
        "parallel_tool_calls",
        "response_format",
    ]
).union(REASONING_SETTINGS)


def read_request(body: JSONObject, signer: Signer) -> Request:
    """Read a decoded body.

    Raises RemoteProtocolError (400) with the path of a required member that is missing or has a wrong type.
    """
    model = body.get("model")
    if type(model) is not str or not model:
        raise wrong_type("/model", "the name of a model", model)
    settings, extra = read_members(body, REQUEST_SHAPE, wrong_type)
    if body.get("max_completion_tokens") is not None and body.get("max_tokens") is not None:
        extra["max_tokens"] = body["max_tokens"]  # the newer name wins
    fields: dict[str, Any] = {}
    if not _SPECIAL.isdisjoint(body):
        fields = _read_special(body, extra)
    return Request(
        protocol=NAME,
        model=model,
        messages=_read_messages(body.get("messages"), signer),
        stream=body.get("stream") is True,
        include_usage=bool(
            (body.get("stream_options") or {}).get("include_usage")
            or object_or_empty(body.get("usage")).get("include")
        ),
        params=settings,
        param_paths=_LEGACY_SETTING_PATHS if body.get("max_completion_tokens") is None else SETTING_PATHS,
        extra=extra or None,
        defined=DEFINED_MEMBERS,
        **fields,
    )


def _read_special(body: JSONObject, extra: JSONObject) -> dict[str, Any]:
    """Return the fields of the request that few requests set. What cannot be read is added to `extra`."""
    tools, tool_choice = read_tools(body, extra)
    parallel, path = body.get("parallel_tool_calls"), "/parallel_tool_calls"
    if body.get("functions") and parallel is None and not body.get("tools"):
        parallel, path = False, "/functions"  # a legacy message holds one call
    return {
        "tools": tools,
        "tool_choice": tool_choice,
        "parallel_tool_calls": parallel,
        "parallel_path": path,
        "reasoning": read_reasoning(body, extra),
        "response_format": read_response_format(body, extra),
    }


def _read_messages(items: JSON, signer: Signer) -> tuple[Message, ...]:
    if type(items) is not list:
        raise wrong_type("/messages", "an array of messages", items)
    reader = _MessageReader(signer)
    out: list[Message] = []
    for item, paths in zip(items, _PATHS, strict=False):
        path, content_path, _ = paths
        if type(item) is not dict:
            raise wrong_type(path, "a message", item)
        role = item.get("role")
        if type(role) is not str:
            read = None
        elif len(item) == 2 and role in _PLAIN_ROLES and type(content := item.get("content")) is str:
            parts = () if content else (Text("", path=content_path),)
            message = Message(role, parts, path, native=item, plain_text=content)  # type: ignore[arg-type]
            out.append(message)
            continue
        else:
            read = _ROLES.get(role)
        if read is None:
            raise invalid_value(f"{path}/role", f"one of {', '.join(_ROLES)}")
        out.append(read(reader, item, paths))
    return tuple(out)


_TAKEN = taken_members(ASSISTANT_SHAPE)


class _MessageReader(msgspec.Struct):
    """Reads messages in order. A result has no kind itself: it has the kind of the call with its id."""

    _signer: Signer
    _custom: set[str] = set()
    _legacy: tuple[str, str] = ("", "")  # name of the last legacy call, and the id made for it

    def plain(self, item: JSONObject, paths: Paths) -> Message:
        path, content_path, _ = paths
        parts = _read_parts(item.get("content"), content_path)
        return _message(item, path, parts, MESSAGE_SHAPE)

    def assistant(self, item: JSONObject, paths: Paths) -> Message:
        parts: list[Part]
        call_paths: tuple[str, ...]
        path, content_path, call_paths = paths
        calls = item.get("tool_calls")
        if type(calls) is list and len(calls) > len(call_paths):
            call_paths += tuple(
                [f"{path}/tool_calls/{index}" for index in range(len(call_paths), len(calls))]
            )
        if len(item) == 3 and type(calls) is list and "content" in item:
            # A shortcut for an agent's turns: role, content and calls.
            parts = _assistant_parts(item["content"], content_path, calls)
            for index, call in enumerate(calls):
                parts.append(self._call(call, call_paths[index]))
            return Message("assistant", tuple(parts), path, native=item)
        parts = _assistant_parts(item.get("content"), content_path, calls)
        shape: Mapping[str, Shape] | None = None if item.keys() <= _TAKEN else ASSISTANT_SHAPE
        if item.get("annotations") and not _attach_citations(parts, item["annotations"]):
            shape = {**ASSISTANT_SHAPE, "annotations": Setting(None)}
        refusal = CHECKS.optional(item, "refusal", path, STRING)
        if refusal is not None:
            parts.append(Refusal(refusal, f"{path}/refusal"))
        audio = item.get("audio")
        if audio is not None:
            parts.append(OpaquePart(NAME, "audio", audio, f"{path}/audio"))
        if calls is not None and type(calls) is not list:
            raise wrong_type(f"{path}/tool_calls", "an array of tool calls", calls)
        call_parts: list[Part] = []
        for index, call in enumerate(calls or ()):
            call_parts.append(self._call(call, call_paths[index]))
        legacy = CHECKS.optional(item, "function_call", path, OBJECT)
        if legacy is not None:
            call_parts.append(self._legacy_call(legacy, path))
        message = _message(item, path, read_turn(item, path, self._signer, parts, call_parts), shape)
        return message if legacy is None else changed(message)

    def _legacy_call(self, legacy: JSONObject, path: str) -> ToolCall:
        at = f"{path}/function_call"
        name = CHECKS.required(legacy, "name", at, STRING)
        # A legacy call has no id. One made from its place in the conversation can be shared with its result.
        call_id = f"call_{path.rpartition('/')[2]}_{name}"
        self._legacy = name, call_id
        arguments = arguments_text(legacy.get("arguments"))
        return ToolCall(call_id, name, arguments, path=at, **extra_of(legacy, FUNCTION_CALL_SHAPE))

    def _call(self, call: JSON, path: str) -> ToolCall:
        if type(call) is not dict:
            raise wrong_type(path, "a tool call", call)
        function = call.get("function")
        if len(call) == 3 and "type" in call and type(function) is dict and len(function) == 2:
            # A shortcut: only the members that every call has.
            call_id, name, text = call.get("id"), function.get("name"), function.get("arguments")
            if type(call_id) is str and type(name) is str and type(text) is str:
                return ToolCall(call_id, name, text, _FUNCTION, None, None, path, native=call)
        call_id = CHECKS.required(call, "id", path, STRING)
        # Servers that send the empty value of every member get it back, of the other kind too.
        is_custom = type(call.get("custom")) is dict and not has_content(call.get("function"))
        kind = _CUSTOM if is_custom else _FUNCTION
        function = CHECKS.required(call, kind.value, path, OBJECT)
        at = f"{path}/{kind.value}"
        if kind is _CUSTOM:
            self._custom.add(call_id)
            text = CHECKS.required(function, "input", at, STRING)
        else:
            text = arguments_text(function.get("arguments"))
        cache = read_cache_mark(call, path)
        name = CHECKS.required(function, "name", at, STRING)
        return ToolCall(call_id, name, text, kind, cache=cache, path=path, native=call, shape=CALL_SHAPE)

    def tool(self, item: JSONObject, paths: Paths) -> Message:
        path, content_path, _ = paths
        call_id, content = item.get("tool_call_id"), item.get("content")
        if len(item) == 3 and type(call_id) is str and type(content) is str:
            # A shortcut: role, id and text.
            kind = _CUSTOM if call_id in self._custom else _FUNCTION
            parts = () if content else (Text("", path=content_path),)
            result = ToolResult(call_id, parts, kind, None, None, path, plain_text=content)
            return Message("user", (result,), path, native=item)
        return self._result(item, paths, CHECKS.required(item, "tool_call_id", path, STRING))

    def function(self, item: JSONObject, paths: Paths) -> Message:
        path = paths[0]
        name = CHECKS.required(item, "name", path, STRING)
        called, call_id = self._legacy
        if called == name:
            self._legacy = "", ""
        else:
            call_id = f"call_{path.rpartition('/')[2]}_{name}"  # no call requested it
        return self._result(item, paths, call_id)

    def _result(self, item: JSONObject, paths: Paths, call_id: str) -> Message:
        path, content_path, _ = paths
        content: JSON = item.get("content")
        parts = _read_parts(content, content_path)
        result = ToolResult(
            call_id,
            # Parts that only an assistant's message may have are opaque in a result.
            tuple(
                part
                if isinstance(part, (Text, Media, OpaquePart))
                else OpaquePart(
                    NAME,
                    str(content[index]["type"]),
                    content[index],
                    part.path,
                    part.text or None if isinstance(part, (Refusal, Reasoning)) else None,
                )
                for index, part in enumerate(parts)
            ),
            _CUSTOM if call_id in self._custom else _FUNCTION,
            cache=read_cache_mark(item, path),
            path=path,
            plain_text=plain_text_of(parts) if len(item) == 3 and item["role"] == "tool" else "",
            **extra_of(item, TOOL_MESSAGE_SHAPE),
        )
        # The name of role `function` is its call's; in other roles it is the speaker's.
        name = item.get("name") if item["role"] == "tool" else None
        message = Message("user", (result,), path, name, native=item)
        return message if item["role"] == "tool" else changed(message)


_ROLES: dict[str, Callable[[_MessageReader, JSONObject, Paths], Message]] = {
    "system": _MessageReader.plain,
    "developer": _MessageReader.plain,
    "user": _MessageReader.plain,
    "assistant": _MessageReader.assistant,
    "tool": _MessageReader.tool,
    "function": _MessageReader.function,
}


def _message(item: JSONObject, path: str, parts: list[Part], shape: Mapping[str, Shape] | None) -> Message:
    """Build a message. A cache mark on the message is read as one on its last part.

    shape: see Node.
    """
    mark = read_cache_mark(item, path)
    if mark is not None:
        last = parts[-1] if parts else None
        if isinstance(last, (Text, Media, ToolCall)):
            parts[-1] = changed(last, cache=mark)
        else:
            shape = {**(shape or {}), **dict.fromkeys(CACHE_MARKS, Setting(None))}
    is_usual = len(item) == 2 and "content" in item
    message = Message(
        item["role"],
        tuple(parts),
        path,
        item.get("name"),
        native=item,
        shape=None if is_usual else shape,
        plain_text=plain_text_of(parts) if is_usual else "",
    )
    for part in parts:
        if part.native is None and part.shape is not None:
            return changed(message)
    return message


def _attach_citations(parts: list[Part], annotations: JSON) -> bool:
    """Attach a message's annotations to its last text. Return False if there is none or they cannot be read."""
    texts = [index for index, part in enumerate(parts) if isinstance(part, Text)]
    if not texts or type(annotations) is not list:
        return False
    members = [each.get("url_citation") for each in annotations if type(each) is dict]
    # Spans count characters of the message's text.
    sources = read_citations(members, spans=len(texts) == 1)
    parts[texts[-1]] = msgspec.structs.replace(parts[texts[-1]], citations=annotations, sources=sources)
    return True


def _read_parts(content: JSON, path: str) -> list[Part]:
    if type(content) is str:
        return [Text(content, path=path)]
    if content is None:
        return []
    if type(content) is not list:
        raise wrong_type(path, "a string or an array of parts", content)
    out: list[Part] = []
    for index, part in enumerate(content):
        at = f"{path}/{index}"
        if type(part) is not dict:
            raise wrong_type(at, "a content part", part)
        kind: JSON = part.get("type")
        read = _PARTS.get(kind) if type(kind) is str else None
        if kind == "text" and len(part) == 2 and type(part.get("text")) is str:
            out.append(Text(part["text"], None, None, at, native=part))
        elif read is not None:
            new = read(part, at, read_cache_mark(part, at))
            new = msgspec.structs.replace(new, native=part, shape=PART_SHAPES[kind])
            is_odd = type(part.get(kind)) is str and kind in _BY_URL  # not official, but common
            out.append(changed(new, (kind,)) if is_odd else new)  # type: ignore[type-var]
        elif kind == "thinking":  # earlier reasoning in Mistral's form
            out.append(Reasoning(part_text(part), Signature(NAME, {"content": [part]}), path=at))
        else:
            out.append(OpaquePart(NAME, "part" if kind is None else str(kind), part, at))
    return out


def _assistant_parts(content: JSON, path: str, calls: JSON) -> list[Part]:
    """Read the content of an assistant. Many clients send "" for null next to calls."""
    return [] if content == "" and calls else _read_parts(content, path)


def _text_part(part: JSONObject, path: str, cache: CacheMark | None) -> Part:
    return Text(CHECKS.required(part, "text", path, STRING), cache, path=path)


def _refusal_part(part: JSONObject, path: str, cache: CacheMark | None) -> Part:
    return Refusal(CHECKS.required(part, "refusal", path, STRING), path)


def _url_part(part: JSONObject, path: str, cache: CacheMark | None) -> Part:
    kind: str = part["type"]
    value, at = part.get(kind), f"{path}/{kind}"
    if type(value) is str:
        value = {"url": value}
    elif type(value) is not dict:
        raise wrong_type(at, "an object with a url", value)
    source, data, media_type = _split_url(CHECKS.required(value, "url", at, STRING))
    media_type = media_type or CHECKS.optional(value, "format", at, STRING)
    detail = value.get("detail") if kind == "image_url" else None
    return Media(_BY_URL[kind], source, data, media_type, detail=detail, cache=cache, native=part, path=path)


def _audio_part(part: JSONObject, path: str, cache: CacheMark | None) -> Part:
    audio = CHECKS.required(part, "input_audio", path, OBJECT)
    data = CHECKS.required(audio, "data", f"{path}/input_audio", STRING)
    media_type = f"audio/{audio['format']}" if audio.get("format") else None
    return Media("audio", "base64", data, media_type, cache=cache, native=part, path=path)


def _file_part(part: JSONObject, path: str, cache: CacheMark | None) -> Part:
    file = CHECKS.required(part, "file", path, OBJECT)
    at = f"{path}/file"
    filename = file.get("filename")
    by_name = "application/pdf" if str(filename).lower().endswith(".pdf") else None
    source: Literal["base64", "url", "file_id"]
    sent = CHECKS.optional(file, "file_data", at, STRING)
    source, data, media_type = _split_url(
        CHECKS.required(file, "file_id", at, STRING) if sent is None else sent
    )
    if "://" not in data[:16]:  # such as https:// or gs://, which clients have put in the place of an id, too
        source = "base64" if sent is not None else "file_id"
    media_type = media_type or CHECKS.optional(file, "format", at, STRING) or by_name
    return Media("file", source, data, media_type, filename, cache=cache, native=part, path=path)


def _document_part(part: JSONObject, path: str, cache: CacheMark | None) -> Part:
    source, data, media_type = _split_url(CHECKS.required(part, "document_url", path, STRING))
    name = CHECKS.optional(part, "document_name", path, STRING)
    return Media("file", source, data, media_type, name, cache=cache, native=part, path=path)


# Type of a part with a URL -> the kind.
_BY_URL: dict[str, Literal["image", "video"]] = {"image_url": "image", "video_url": "video"}

# Type -> the reader, which gets the part, its path and its cache mark.
_PARTS: dict[str, Callable[[JSONObject, str, CacheMark | None], Part]] = {
    "text": _text_part,
    "image_url": _url_part,
    "video_url": _url_part,
    "input_audio": _audio_part,
    "file": _file_part,
    "document_url": _document_part,
    "refusal": _refusal_part,
}


def _split_url(url: str) -> tuple[Literal["base64", "url"], str, str | None]:
    """Return "base64", the data and the media type of a data: URI in base64, or "url", the URL itself and None."""
    found = split_data_uri(url)
    return ("url", url, None) if found is None else ("base64", found[1], found[0] or None)
