"""Read a client's input items as messages, tools and settings of the document.

There is one message per item, in order, with the item's path, so that losses have a place and the writer of the same
protocol can write the items again one by one. Items with tools or settings leave no message: that writer finds them in
the client's body. The commonest shapes of items and parts are tried first, and parts of an unknown type stay whole.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import msgspec

from dragoman._ir.events import Signature, ToolKind
from dragoman._ir.losses import Loss, LossCode
from dragoman._ir.native import extra_of
from dragoman._ir.request import (
    Media,
    Message,
    MessagePaths,
    OpaquePart,
    Part,
    Reasoning,
    Refusal,
    Role,
    Text,
    ToolCall,
    ToolResult,
    plain_text_of,
)
from dragoman._ir.shape import STRING, taken_members
from dragoman._ir.tools import CacheMark, FunctionTool, HostedTool, Namespace, Tool
from dragoman._ir.wrapped_signatures import Signer, unwrap_summary
from dragoman._wire.json import (
    JSON,
    JSONObject,
    encode_text,
    invalid_value,
    objects_in,
    text_or_none,
    wrong_type,
)
from dragoman.protocols._openai.citations import read_citations
from dragoman.protocols.openai_responses.checks import (
    CHECKS,
    missing_field,
    read_media,
    required_text,
)
from dragoman.protocols.openai_responses.client_tools import CLIENT_TOOLS
from dragoman.protocols.openai_responses.request_tool_items_in import (
    read_client_call,
    read_client_output,
    render_text,
)
from dragoman.protocols.openai_responses.shapes import INPUT_SHAPES, PART_SHAPES
from dragoman.protocols.openai_responses.tables import (
    CACHE_LIFETIMES,
    NAME,
    PROVIDER_OUTPUTS,
    ROLES,
    SEARCH_ID_PREFIX,
    USER_ITEMS,
)
from dragoman.protocols.openai_responses.tools import read_tools

# Bound here, because an Enum's member is slow to look up.
_FUNCTION, _CUSTOM = ToolKind.FUNCTION, ToolKind.CUSTOM

# The members of items with which nothing is lost and the reader has nothing more to do, by the type of the item.
_USUAL: dict[str, frozenset[str]] = {
    kind: taken_members(shape) - {"namespace", "phase"} for kind, shape in INPUT_SHAPES.items()
}

_TEXT_PARTS = frozenset(("input_text", "output_text", "text"))

_PATHS = MessagePaths("input")


class InputReader(msgspec.Struct):
    """Reads the items of one request.

    messages, tools, namespaces: those found so far. The caller adds those outside of the input.
    reference: id and path of the first reference to an item that only the vendor's store has.
    effort, format: the last effort and text format that items have set, with their paths.
    compact: True if the conversation is to be summed up.
    repairs: what items lose because they are read, see Request.repairs.
    """

    _signer: Signer
    tools: list[Tool]
    namespaces: list[Namespace]
    messages: list[Message] = []
    reference: tuple[str, str] | None = None
    effort: tuple[str, str] | None = None
    format: tuple[JSON, str] | None = None
    compact: bool = False
    repairs: list[Loss] = []
    _shell_calls: dict[str, str] = {}  # item id of a local shell's call -> its call id
    _tool_indexes: dict[JSON, int] | None = None  # by their keys, if items have tools

    def read(self, items: list[JSON]) -> None:
        """Read all items. Raises RemoteProtocolError with the path of the wrong value."""
        messages = self.messages
        for item, (path, content_path, part_paths) in zip(items, _PATHS, strict=False):
            if type(item) is not dict:
                raise wrong_type(path, "an object", item)
            kind = item.get("type")
            if kind == "message" or kind is None:
                if kind is None and "role" not in item and text_or_none(item.get("id")):
                    self._item_reference(item, path, "item_reference")
                else:
                    messages.append(_read_message(item, path, content_path, part_paths[0]))
                continue
            if type(kind) is not str:
                raise wrong_type(f"{path}/type", STRING.name, kind)
            read = _ITEM_READERS.get(kind)
            if read is not None:
                messages.append(read(item, path))
                continue
            if kind == "compaction_trigger" and item is items[-1]:
                self.compact = True
                self._read_item(item, path, kind)
                continue
            special = _ITEM_METHODS.get(kind, InputReader._opaque)
            special(self, item, path, kind)

    def _read_item(self, item: JSONObject, path: str, kind: str) -> None:
        """Keep an item with tools or settings, which have been read, in its place for the same protocol."""
        part = OpaquePart(NAME, kind, item, path, "", INPUT_SHAPES[kind])
        self.messages.append(Message("user", (part,), path))

    def _opaque(self, item: JSONObject, path: str, kind: str) -> None:
        result = kind.endswith("_output") and kind not in PROVIDER_OUTPUTS
        user = result or kind in USER_ITEMS
        role: Role = "user" if user else "assistant"
        part = OpaquePart(NAME, kind, item, path, render_text(kind, item))
        self.messages.append(Message(role, (part,), path))

    def _item_reference(self, item: JSONObject, path: str, kind: str) -> None:
        if self.reference is None:
            self.reference = required_text(item, "id", path), f"{path}/id"
        self.messages.append(Message("assistant", (OpaquePart(NAME, kind, item, path),), path))

    def _reasoning(self, item: JSONObject, path: str, kind: str) -> None:
        parts = objects_in(item.get("summary")) or objects_in(item.get("content"))
        text = "\n\n".join([part["text"] for part in parts if type(part.get("text")) is str])
        encrypted = item.get("encrypted_content")
        if type(encrypted) is str and self._signer.is_wrapped(encrypted):
            # None if it is forged or damaged: then only the text is left.
            signature = self._signer.unwrap(encrypted)
            extra = extra_of(item, INPUT_SHAPES[kind])
            reasoning = Reasoning(text, signature, path, signature is None, **extra)
        else:
            shape = None if item.keys() <= _USUAL[kind] else INPUT_SHAPES[kind]
            reasoning = Reasoning(text, Signature(NAME, item), path, native=item, shape=shape)
        self.messages.append(Message("assistant", (reasoning,), path))

    def _compaction(self, item: JSONObject, path: str, kind: str) -> None:
        summary = unwrap_summary(item, self._signer)
        if summary is None:
            self._opaque(item, path, kind)
            return
        text = Text(summary, path=f"{path}/encrypted_content")
        self.messages.append(Message("user", (text,), path, **extra_of(item, INPUT_SHAPES[kind])))

    def _web_search(self, item: JSONObject, path: str, kind: str) -> None:
        """Join a search that follows its own signature. A search of another vendor is sent to the client twice: in a
        signature for its vendor, and as an item to display.
        """
        before = self.messages[-1].parts if self.messages else ()
        if len(before) == 1 and isinstance(before[0], Reasoning) and not before[0].text:
            signature = before[0].signature
            if signature is not None and signature.origin != NAME:
                text = render_text(kind, item) or ""
                reasoning = msgspec.structs.replace(before[0], text=text)
                self.messages[-1] = msgspec.structs.replace(self.messages[-1], content=(reasoning,))
                return
        if not (text_or_none(item.get("id")) or "").startswith(SEARCH_ID_PREFIX):
            self._opaque(item, path, kind)

    def _client_call(self, item: JSONObject, path: str, kind: str) -> None:
        if kind == "tool_search_call" and not text_or_none(item.get("call_id")):
            self._opaque(item, path, kind)  # the provider searched
            return
        self.messages.append(read_client_call(item, path))
        item_id = text_or_none(item.get("id"))
        if kind == "local_shell_call" and item_id is not None:
            self._shell_calls[item_id] = item["call_id"]

    def _client_output(self, item: JSONObject, path: str, kind: str) -> None:
        tool = _OUTPUT_TOOLS[kind]
        if tool == "tool_search":
            self._add_tools(item, path, found=True)
        call_id = text_or_none(item.get("call_id"))
        if tool == "local_shell" and call_id is None:
            # `id` is "The unique ID of the local shell tool call" (openai-python 3.54.0): of the call or of its item.
            name = required_text(item, "id", path)
            call_id = self._shell_calls.get(name, name)
        if tool == "tool_search" and call_id is None:
            self._opaque(item, path, kind)  # the provider searched
            return
        if tool == "tool_search" and item.get("tools"):
            detail = "sent among the request's tools, and only their names as the result of the search"
            self.repairs.append(Loss(LossCode.ALTERED, f"{path}/tools", detail))
        self.messages.append(
            read_client_output(item, path, call_id or required_text(item, "call_id", path), tool)
        )

    def _additional_tools(self, item: JSONObject, path: str, kind: str) -> None:
        """Add tools that are declared in the middle of the conversation. For other protocols they are tools."""
        self._add_tools(item, path, found=False)
        self._read_item(item, path, kind)

    def _add_tools(self, item: JSONObject, path: str, *, found: bool) -> None:
        """Add tools. A later declaration replaces an earlier item's, but not one in the request's `tools`. A tool
        that a search has found becomes visible.
        """
        if self._tool_indexes is None:
            self._tool_indexes = {_tool_key(tool): index for index, tool in enumerate(self.tools)}
        known = self._tool_indexes
        for tool in read_tools(item.get("tools") or [], f"{path}/tools", self.namespaces):
            if found:
                tool = _visible(tool)
            index = known.get(_tool_key(tool))
            if index is None:
                known[_tool_key(tool)] = len(self.tools)
                self.tools.append(tool)
            elif (first := self.tools[index]).path.startswith("/tools/"):
                if found:
                    self.tools[index] = _visible(first)
                elif tool.native != first.native:
                    self.repairs.append(
                        Loss(LossCode.DROPPED, tool.path, "the request's tools have one of that name")
                    )
            else:
                self.tools[index] = tool

    def _configuration(self, item: JSONObject, path: str, kind: str) -> None:
        """Read settings that count from here on. The last ones count for the response."""
        reasoning, text = item.get("reasoning"), item.get("text")
        effort = reasoning.get("effort") if type(reasoning) is dict else None
        if type(effort) is str:
            self.effort = (effort, f"{path}/reasoning/effort")
        if type(text) is dict and text.get("format") is not None:
            self.format = (text["format"], f"{path}/text/format")
        for name in ("reasoning", "text"):
            if type(item.get(name)) not in (dict, type(None)):
                self.repairs.append(Loss(LossCode.UNKNOWN_FIELD, f"{path}/{name}", "not an object"))
        self._read_item(item, path, kind)


def _visible(tool: Tool) -> Tool:
    if isinstance(tool, FunctionTool) and tool.deferred:
        return msgspec.structs.replace(tool, deferred=None)
    return tool


def _tool_key(tool: Tool) -> JSON:
    if isinstance(tool, HostedTool):
        return encode_text(tool.native)
    return tool.namespace, tool.name


def _read_message(item: JSONObject, path: str, content_path: str, first_path: str) -> Message:
    role = item.get("role")
    if type(role) is not str or role not in ROLES:
        if role is None:
            raise missing_field(f"{path}/role")
        raise invalid_value(f"{path}/role", "user, assistant, system or developer")
    content = item.get("content")
    parts: tuple[Part, ...]
    if type(content) is str:
        parts = (Text(content, None, None, content_path),)
    elif type(content) is list:
        parts = (
            (_read_part(content[0], first_path),) if len(content) == 1 else read_parts(content, content_path)
        )
    else:
        raise CHECKS.wrong_type(content_path, "a string or an array", content)
    # Nearly all, and most of them have only a role and content, which is faster to see.
    if len(item) == 2 or (len(item) == 3 and "type" in item) or item.keys() <= _USUAL["message"]:
        return Message(role, parts, path, native=item, plain_text=plain_text_of(parts))
    phase = CHECKS.optional(item, "phase", path, STRING) or None
    return Message(role, parts, path, None, phase, native=item, shape=INPUT_SHAPES["message"])


def _read_call(item: JSONObject, path: str) -> Message:
    kind: str = item["type"]
    custom = kind == "custom_tool_call"
    field = "input" if custom else "arguments"
    text = item.get(field)
    if type(text) is str and (len(item) == 4 or item.keys() <= _USUAL[kind]):  # as nearly all
        call_id, name = item.get("call_id"), item.get("name")
        if type(call_id) is str and call_id and type(name) is str and name:
            tool_kind = _CUSTOM if custom else _FUNCTION
            call = ToolCall(call_id, name, text, tool_kind, None, None, path, native=item)
            return Message("assistant", (call,), path)
    if type(text) is not str:
        # Some clients send the arguments as an object, or none at all for a tool without parameters.
        text = "" if text is None else encode_text(text)
    call = ToolCall(
        required_text(item, "call_id", path),
        required_text(item, "name", path),
        text,
        _CUSTOM if custom else _FUNCTION,
        CHECKS.optional(item, "namespace", path, STRING) or None,
        None,
        path,
        native=item,
        shape=INPUT_SHAPES[kind],
    )
    return Message("assistant", (call,), path)


def _read_result(item: JSONObject, path: str) -> Message:
    output = item.get("output")
    where = f"{path}/output"
    parts: tuple[Part, ...]
    if type(output) is str:
        parts = (Text(output, None, None, where),)
    elif type(output) is list:
        parts = read_parts(output, where)
        if Refusal in map(type, parts):  # results have none: such a part is kept as it is, with its text
            parts = tuple(
                [
                    OpaquePart(NAME, "refusal", raw, part.path, part.text) if type(part) is Refusal else part
                    for part, raw in zip(parts, output, strict=True)
                ]
            )
    else:
        raise CHECKS.wrong_type(where, "a string or an array", output)
    kind: str = item["type"]
    call_id = CHECKS.optional(item, "call_id", path, STRING)
    if not call_id:
        # `call_id` may be absent (openai-python 3.52.0): then it is the result of no call, and only text.
        return Message("user", (OpaquePart(NAME, kind, item, path, render_text(kind, item)),), path)
    is_usual = len(item) == 3 or item.keys() <= _USUAL[kind]
    result = ToolResult(
        call_id,
        cast("tuple[Text | Media | OpaquePart, ...]", parts),
        _CUSTOM if kind == "custom_tool_call_output" else _FUNCTION,
        path=path,
        native=item,
        shape=None if is_usual else INPUT_SHAPES[kind],
        plain_text=plain_text_of(parts) if is_usual else "",
    )
    return Message("user", (result,), path)


_ITEM_READERS: dict[str, Callable[[JSONObject, str], Message]] = {
    "function_call": _read_call,
    "custom_tool_call": _read_call,
    "function_call_output": _read_result,
    "custom_tool_call_output": _read_result,
}
_OUTPUT_TOOLS = {tool.output: kind for kind, tool in CLIENT_TOOLS.items()}
_ITEM_METHODS: dict[str, Callable[[InputReader, JSONObject, str, str], None]] = {
    **{tool.call: InputReader._client_call for tool in CLIENT_TOOLS.values()},
    **dict.fromkeys(_OUTPUT_TOOLS, InputReader._client_output),
    "additional_tools": InputReader._additional_tools,
    "compaction": InputReader._compaction,
    "configuration_update": InputReader._configuration,
    "item_reference": InputReader._item_reference,
    "reasoning": InputReader._reasoning,
    "web_search_call": InputReader._web_search,
}


def read_parts(content: list[JSON], path: str) -> tuple[Part, ...]:
    """Read a list of content parts at `path`. Raises RemoteProtocolError for an entry that is no part."""
    if len(content) == 1:
        return (_read_part(content[0], f"{path}/0"),)  # as in most
    return tuple([_read_part(part, f"{path}/{index}") for index, part in enumerate(content)])


def _read_part(part: JSON, path: str) -> Part:
    if type(part) is not dict:
        raise wrong_type(path, "an object", part)
    kind = part.get("type")
    if type(kind) is not str:
        raise CHECKS.wrong_type(f"{path}/type", STRING.name, kind)
    if kind in _TEXT_PARTS:
        text = part.get("text")
        if type(text) is not str:
            raise CHECKS.wrong_type(f"{path}/text", STRING.name, text)
        if len(part) == 2 or len(part) == 2 + (part.get("annotations") == []) + (part.get("logprobs") == []):
            # The other shapes are what servers send and clients return.
            return Text(text, None, None, path, native=part)
        annotations = part.get("annotations") or None
        sources = read_citations(objects_in(annotations))
        mark, shape = _read_cache_mark(part, path), PART_SHAPES["output_text"]
        return Text(text, mark, annotations, path, sources, native=part, shape=shape)
    if kind == "input_image" or kind == "input_file":
        return _read_media(part, path)
    if kind == "refusal" and type(part.get("refusal")) is str:
        return Refusal(part["refusal"], path, native=part, shape=PART_SHAPES[kind])
    return OpaquePart(NAME, kind, part, path)


def _read_cache_mark(part: JSONObject, path: str) -> CacheMark | None:
    mark = part.get("prompt_cache_breakpoint")
    if type(mark) is not dict:
        return None
    return CacheMark(
        f"{path}/prompt_cache_breakpoint", CACHE_LIFETIMES.get(text_or_none(mark.get("ttl")) or "")
    )


def _read_media(part: JSONObject, path: str) -> Media:
    mark, shape = _read_cache_mark(part, path), PART_SHAPES[part["type"]]
    detail = CHECKS.optional(part, "detail", path, STRING) or None
    if part["type"] == "input_image":
        return read_media("image", part, path, detail=detail, cache=mark, native=part, shape=shape)
    name = CHECKS.optional(part, "filename", path, STRING) or None
    return read_media("file", part, path, filename=name, detail=detail, cache=mark, native=part, shape=shape)
