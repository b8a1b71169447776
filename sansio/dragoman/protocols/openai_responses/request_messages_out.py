"""Write messages as input items.

Every message becomes items, in the order of its parts; text and media that follow one another share a message item. For
the same protocol, items with a form of their own there (calls of the vendor's tools, settings, declarations of tools)
are copied from the client's body, in their place. The commonest shapes of messages come first.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable

from dragoman._ir.events import ToolKind
from dragoman._ir.losses import Ledger, LossCode
from dragoman._ir.request import (
    Media,
    Message,
    OpaquePart,
    Part,
    Reasoning,
    Refusal,
    Request,
    Role,
    Text,
    ToolCall,
    ToolResult,
)
from dragoman._ir.tools import CacheMark
from dragoman._wire.exceptions import RequestRefused
from dragoman._wire.json import JSON, JSONObject
from dragoman.protocols._openai.settings import CACHE_TTLS, MAX_CACHE_MARKS
from dragoman.protocols.openai_responses.capabilities import ResponsesCapabilities as Capabilities
from dragoman.protocols.openai_responses.checks import has_unmapped_citations, write_citations
from dragoman.protocols.openai_responses.shapes import ITEM_METADATA
from dragoman.protocols.openai_responses.tables import (
    CALL_ITEMS,
    CALL_OUTPUT_ITEMS,
    ITEMS_WITHOUT_MESSAGE,
    MARKABLE_PARTS,
    NAME,
    RESPONSE_ONLY_FIELDS,
    SAME_FILE_STORE,
    TRANSLATED_ITEMS,
)

_BREAKPOINT = "prompt_cache_breakpoint"
NO_MARKS = "the upstream does not accept cache marks"
_FILE_FIELDS = {"base64": "file_data", "text": "file_data", "url": "file_url", "file_id": "file_id"}
# Fields that only repeat or label what the document holds: copied for the same protocol.
_RESTORED_FIELDS = ("status", "name", "namespace", "caller", ITEM_METADATA)

_CUSTOM = ToolKind.CUSTOM  # an Enum's member is slow to look up


class InputWriter:
    """Writes the input items of one request."""

    __slots__ = ("_items", "_ledger", "_marks", "_next", "_request", "_same_protocol", "_signed")

    def __init__(self, request: Request, capabilities: Capabilities, ledger: Ledger) -> None:
        self._request = request
        self._same_protocol = request.protocol == NAME
        self._ledger = ledger
        self._marks = _BreakpointWriter(capabilities.cache_marks == "breakpoint", ledger)
        self._items: list[JSON] = []
        self._signed: dict[int, str] = {}  # id() of an item from a signature -> its path
        self._next = 0  # the client's own items before this one are written

    def items(self, messages: tuple[Message, ...]) -> list[JSON]:
        """Write the items. Raises RequestRefused for content that must not be left out."""
        if self._same_protocol:
            for message in messages:
                self._write_native(message)
            self._skip_to(None)
        else:
            self._write_foreign(messages)
        self._marks.finish()
        return self._items

    def _write_foreign(self, messages: tuple[Message, ...]) -> None:
        items = self._items
        for message in messages:
            # The commonest shapes: one plain text, one call or one result.
            part = message.parts[0] if len(message.parts) == 1 else None
            if type(part) is Text and part.cache is None and part.citations is None and not part.sources:
                items.append(_plain_message(message, part))
                continue
            write = _ITEM_WRITERS.get(type(part))
            if write is None:
                self._write_message(message)
            else:
                write(self, part)
        if self._signed:
            self._drop_dangling()

    # The client's own items.

    def _write_native(self, message: Message) -> None:
        index = _item_index(message.path)
        if index is not None:
            first = self._next  # items before this one are written already
            self._skip_to(index)
            self._next = max(self._next, index + 1)
            if index >= first and (not message.parts or _is_native_item(message.parts[0], message.path)):
                self._items.append(self._raw(message.path))
                return
        self._write_message(message)

    def _skip_to(self, index: int | None) -> None:
        """Write the client's items before `index` that have no message: tools, settings, repetitions."""
        raw = self._request.native.get("input")
        if type(raw) is list:
            end = len(raw) if index is None else index
            # A pass has removed the others, which have no message any more.
            self._items += [
                item for item in raw[self._next : end] if item.get("type") in ITEMS_WITHOUT_MESSAGE
            ]
            self._next = max(self._next, end)

    def _raw(self, path: str) -> JSONObject:
        """Return the client's own item at a path, {} if the path is not that of an item."""
        index = _item_index(path)
        if index is None:
            return {}
        item: JSONObject = self._request.native["input"][index]
        return item

    def _restore(self, item: JSONObject, path: str, item_id: str | None, extra: JSONObject | None) -> None:
        """Add the fields that the document holds for the same protocol only."""
        if item_id is not None:
            item["id"] = item_id
        raw = self._raw(path)
        if raw.get("type", "message") != item["type"]:
            raw = {}  # another item of the client's, which a pass has changed
        for name in _RESTORED_FIELDS:
            if name in raw and name not in item:
                item[name] = raw[name]
        if extra:
            item.update(extra)

    # Messages.

    def _write_message(self, message: Message) -> None:
        content: list[JSON] = []
        for part in message.parts:
            write = _ITEM_WRITERS.get(type(part))
            if write is None and not (isinstance(part, OpaquePart) and part.path == message.path):
                self._write_content(part, message.role, content)
                continue
            if content:
                self._flush(message, content)
            if write is None:
                self._write_opaque(part, self._items)
            else:
                write(self, part)
        if content:
            self._flush(message, content)

    def _flush(self, message: Message, content: list[JSON]) -> None:
        """Move the collected content, which is not empty, into a message item."""
        item: JSONObject = {"type": "message", "role": message.role, "content": list(content)}
        content.clear()
        if message.phase is not None:
            item["phase"] = message.phase
        if self._same_protocol:
            self._restore(item, message.path, message.item_id, message.extra)
            if type(self._raw(message.path).get("content")) is str:
                item["content"] = item["content"][0]["text"]
        self._items.append(item)

    def _write_content(self, part: Part, role: Role, content: list[JSON]) -> None:
        out: JSONObject | None
        if isinstance(part, Text):
            out = self._assistant_text(part) if role == "assistant" else self._input_text(part)
        elif isinstance(part, Refusal):
            kind, field = ("refusal", "refusal") if role == "assistant" else ("input_text", "text")
            out = {"type": kind, field: part.text}
        elif not isinstance(part, Media):
            self._write_opaque(part, content)
            return
        elif role == "assistant":
            self._ledger.dropped(part.path, "an assistant message can contain only text")
            return
        else:
            out = self._media(part, content)
        if out is not None:
            if self._same_protocol and part.extra:
                out.update(part.extra)
            content.append(out)

    def _input_text(self, part: Text) -> JSONObject:
        """Write a text of the client's side."""
        out: JSONObject = {"type": "input_text", "text": part.text}
        if part.citations:
            if self._same_protocol:
                out["annotations"] = part.citations
            else:
                self._ledger.dropped(f"{part.path}/citations", "only text of the assistant has citations")
        if part.cache is not None:
            self._marks.put(part.cache, out)
        return out

    def _assistant_text(self, part: Text) -> JSONObject:
        """Write a text of the assistant."""
        out: JSONObject = {"type": "output_text", "text": part.text}
        if self._same_protocol:
            out["annotations"] = part.citations or []
        else:
            out["annotations"] = write_citations(part)
            if part.citations and not part.sources:
                self._ledger.dropped(
                    f"{part.path}/citations", "only citations of web pages have a counterpart"
                )
            elif part.citations and has_unmapped_citations(part):
                self._ledger.altered(
                    f"{part.path}/citations", "only the source and span of citations were kept"
                )
        if part.cache is not None:
            if self._same_protocol:
                self._marks.put(part.cache, out)
            else:
                self._marks.move(part.cache, self._items)
        return out

    def _media(self, part: Media, before: list[JSON]) -> JSONObject | None:
        if part.kind == "audio":
            raise RequestRefused(
                "Responses does not accept audio input: send text, images or files",
                path=part.path,
                code="unsupported_value",
            )
        if part.source == "file_id" and self._request.protocol not in SAME_FILE_STORE:
            self._ledger.dropped(part.path, "a file id is valid only at the vendor that issued it")
            return None
        if part.context:
            before.append({"type": "input_text", "text": part.context})
            self._ledger.altered(f"{part.path}/context", "sent as text before the file")
        if part.citations:
            self._ledger.dropped(f"{part.path}/citations", "files have no such setting in Responses")
        if part.kind == "image":
            # `detail` is required, with "auto" as its default (openai-python 3.54.0, `ResponseInputImageParam`).
            out: JSONObject = {"type": "input_image", "detail": part.detail or "auto"}
            out["file_id" if part.source == "file_id" else "image_url"] = _uri(part)
        else:
            out = {"type": "input_file"}
            if part.detail is not None:
                out["detail"] = part.detail
            if part.filename is not None:
                out["filename"] = part.filename
            elif part.source in ("base64", "text") and not self._same_protocol:
                # OpenAI's server requires a name with inline data (laravel/ai#324, read 2026-11-22).
                out["filename"] = "document.txt" if part.source == "text" else "document.pdf"
            out[_FILE_FIELDS[part.source]] = _uri(part)
        if part.cache is not None:
            self._marks.put(part.cache, out)
        return out

    # Calls and results.

    def _write_call(self, part: ToolCall) -> None:
        if part.kind is _CUSTOM:
            item: JSONObject = {"type": "custom_tool_call", "call_id": part.call_id, "name": part.name}
            item["input"] = part.input
        else:
            item = {"type": "function_call", "call_id": part.call_id, "name": part.name}
            item["arguments"] = "{}" if not part.input or part.input.isspace() else part.input
        if part.namespace is not None:
            item["namespace"] = part.namespace
        if part.cache is not None:
            self._marks.move(part.cache, self._items)
        if self._same_protocol:
            self._restore(item, part.path, part.item_id, part.extra)
        self._items.append(item)

    def _write_result(self, part: ToolResult) -> None:
        only = part.parts[0] if len(part.parts) == 1 else None
        output: JSON
        if (
            type(only) is Text
            and not (part.is_error or only.citations or self._same_protocol)
            and only.cache is None
        ):
            output = only.text  # the commonest shape
        else:
            output = self._output(part)
        name = "custom_tool_call_output" if part.kind is _CUSTOM else "function_call_output"
        item: JSONObject = {"type": name, "call_id": part.call_id, "output": output}
        if part.cache is not None:
            self._marks.put_on_output(part.cache, item)
        if self._same_protocol:
            self._restore(item, part.path, part.item_id, part.extra)
        self._items.append(item)

    def _output(self, part: ToolResult) -> JSON:
        output: list[JSON] = []
        for each in part.parts:
            self._write_content(each, "user", output)
        if part.is_error:
            self._ledger.altered(f"{part.path}/is_error", 'sent as the text "Error: " before the output')
            if output and output[0]["type"] == "input_text":
                output[0]["text"] = f"Error: {output[0]['text']}"
            else:
                output.insert(0, {"type": "input_text", "text": "Error: "})
        if not output:
            return ""
        as_parts = self._same_protocol and type(self._raw(part.path).get("output")) is list
        if len(output) == 1 and len(output[0]) == 2 and output[0]["type"] == "input_text" and not as_parts:
            return output[0]["text"]
        return output

    # Items that only this vendor can read.

    def _write_reasoning(self, part: Reasoning) -> None:
        if part.signature is None:
            self._ledger.dropped(part.path, "reasoning without a signature cannot be sent back")
            return
        native: JSON = part.signature.native if part.signature.origin == NAME else None
        if native is not None and self._same_protocol:
            self._items.append(native)
            return
        item = unwrapped_item(native, part.path, self._ledger)
        if item is not None:
            self._items.append(item)
            self._signed[id(item)] = part.path

    def _drop_dangling(self) -> None:
        """Drop reasoning of interrupted turns: "Item 'rs_...' of type 'reasoning' was provided without its required
        following item." (vercel/ai#7099, read 2026-11-22)
        """
        followed_items: list[JSON] = []
        followed = False
        for item in reversed(self._items):
            path = self._signed.get(id(item))
            if path is not None and item["type"] == "reasoning" and not followed:
                self._ledger.add(LossCode.REPAIRED, path, "the server refuses reasoning that no item follows")
                continue
            followed = path is not None or item["type"] in CALL_ITEMS or item.get("role") == "assistant"
            followed_items.append(item)
        followed_items.reverse()
        self._items[:] = followed_items

    def _write_opaque(self, part: Part, into: list[JSON]) -> None:
        assert isinstance(part, OpaquePart)
        if part.origin == NAME and self._same_protocol:
            into.append(part.native)
        else:
            self._ledger.add(LossCode.UNKNOWN_KIND, part.path, f"Responses has no counterpart of {part.kind}")


# Parts that are items of their own.
_ITEM_WRITERS: dict[type, Callable[[InputWriter, JSON], None]] = {
    ToolCall: InputWriter._write_call,
    ToolResult: InputWriter._write_result,
    Reasoning: InputWriter._write_reasoning,
}


def _item_index(path: str) -> int | None:
    """Return the number of the client's item at a path, None if the path is not that of an item."""
    steps = path.split("/")
    return int(steps[2]) if len(steps) == 3 and steps[1] == "input" else None


def _is_native_item(part: Part, path: str) -> bool:
    """True if a part is an item with a form of its own in this protocol."""
    if isinstance(part, (ToolCall, ToolResult)):
        return part.hosted is not None
    return isinstance(part, OpaquePart) and part.path == path


def unwrapped_item(native: JSON, path: str, ledger: Ledger) -> JSONObject | None:
    """Return the item of a signature as the server accepts it, None if it does not. native: None if it is foreign."""
    kind = native.get("type") if type(native) is dict else None
    # Items with a form in the document never travel in signatures: one that seems to do so was not signed here.
    if type(kind) is not str or kind in TRANSLATED_ITEMS:
        ledger.add(LossCode.FOREIGN_SIGNATURE, path, "only its vendor can read this reasoning")
        return None
    item = {name: value for name, value in native.items() if name not in RESPONSE_ONLY_FIELDS}
    if kind != "reasoning":
        return item  # an item that the client's protocol had no form for
    if not item.get("encrypted_content"):
        # "Items are not persisted when `store` is set to false." (vercel/ai#7543, read 2026-11-22): an id without
        # content refers to nothing.
        ledger.dropped(path, "the reasoning came without its encrypted content")
        return None
    # "Invalid 'input[5].id': ''" (mweinbach/open-grok#23, read 2026-11-22): servers send such ids all the same.
    return {name: value for name, value in item.items() if value not in (None, "")}


def _plain_message(message: Message, part: Text) -> JSONObject:
    """Write the commonest message: one text."""
    if message.role == "assistant":
        content: JSONObject = {"type": "output_text", "text": part.text, "annotations": []}
    else:
        content = {"type": "input_text", "text": part.text}
    item: JSONObject = {"type": "message", "role": message.role, "content": [content]}
    if message.phase is not None:
        item["phase"] = message.phase
    return item


def _uri(part: Media) -> str:
    """Return the media's data as the server reads it: a data URI, a URL or an id."""
    if part.source == "text":
        data = b64encode(part.data.encode("utf-8", "replace")).decode("ascii")
        return f"data:{part.media_type or 'text/plain'};base64,{data}"
    if part.source == "base64" and (part.media_type is not None or part.kind == "image"):
        return f"data:{part.media_type or 'image/png'};base64,{part.data}"
    return part.data


class _BreakpointWriter:
    """Writes the cache marks of one request as `prompt_cache_breakpoint`.

    Only content parts of the client's side and tool outputs can have one (openai-python 3.54.0). A mark on anything
    else moves to the nearest such part before it, so that a little less is cached, never more. Of more than
    MAX_CACHE_MARKS the last ones stay, because they mark the longest prefixes.

    taken: True if the upstream accepts marks.
    """

    __slots__ = ("_ledger", "_placed", "_taken")

    def __init__(self, taken: bool, ledger: Ledger) -> None:
        self._taken = taken
        self._ledger = ledger
        self._placed: list[tuple[str, JSONObject]] = []

    def put(self, mark: CacheMark, part: JSONObject) -> None:
        """Mark a content part. Of two marks on one part the longer one stays."""
        if not self._taken:
            self._ledger.dropped(mark.path, NO_MARKS)
            return
        if _BREAKPOINT not in part:
            self._placed.append((mark.path, part))
        elif mark.ttl != "long":
            return
        ttl: JSONObject = {} if mark.ttl is None else {"ttl": CACHE_TTLS[mark.ttl]}
        part[_BREAKPOINT] = {"mode": "explicit", **ttl}

    def put_on_output(self, mark: CacheMark, item: JSONObject) -> None:
        """Mark the output of a tool."""
        self.put(mark, _last_output_part(item) if self._taken else {})

    def move(self, mark: CacheMark, items: list[JSON]) -> None:
        """Mark the nearest content part of the items before the mark's place."""
        part = _last_markable_part(items) if self._taken else None
        if part is not None:
            self._ledger.altered(
                mark.path, "moved to the content part before it: nothing else can have a mark"
            )
            self.put(mark, part)
        elif self._taken:
            self._ledger.dropped(mark.path, "no content part before it can have the mark")
        else:
            self.put(mark, {})

    def finish(self) -> None:
        """Remove the marks beyond the limit."""
        for path, part in self._placed[:-MAX_CACHE_MARKS]:
            del part[_BREAKPOINT]
            self._ledger.dropped(
                path, f"at most {MAX_CACHE_MARKS} cache marks are allowed: the last ones are kept"
            )


def _last_markable_part(items: list[JSON]) -> JSONObject | None:
    for item in reversed(items):
        if item["type"] in CALL_OUTPUT_ITEMS:
            return _last_output_part(item)
        if item["type"] == "message" and item["content"][-1]["type"] in MARKABLE_PARTS:
            last: JSONObject = item["content"][-1]
            return last
    return None


def _last_output_part(item: JSONObject) -> JSONObject:
    """Return the last part of a tool's output. An output that is a string becomes a list."""
    if type(item["output"]) is str:
        item["output"] = [{"type": "input_text", "text": item["output"]}]
    last: JSONObject = item["output"][-1]
    return last
