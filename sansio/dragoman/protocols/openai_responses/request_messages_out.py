"""Write messages as input items.

Every message becomes items, in the order of its parts; text and media that follow one another share a message item. For
the same protocol, what no pass has changed is the client's own object. The commonest shapes of messages come first.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable

import msgspec

from dragoman._ir.events import ToolKind
from dragoman._ir.losses import Ledger
from dragoman._ir.native import overlaid
from dragoman._ir.request import (
    Media,
    Message,
    OpaquePart,
    Part,
    Reasoning,
    Refusal,
    Role,
    Text,
    ToolCall,
    ToolResult,
)
from dragoman._ir.tools import CacheMark
from dragoman._wire.json import JSON, JSONObject
from dragoman.protocols._openai.settings import CACHE_TTLS
from dragoman.protocols._openai.tool_results import mark_error
from dragoman.protocols.openai_responses.checks import has_unmapped_citations, write_citations
from dragoman.protocols.openai_responses.tables import (
    CALL_ITEMS,
    CALL_OUTPUT_ITEMS,
    NAME,
    RESPONSE_ONLY_FIELDS,
    TRANSLATED_ITEMS,
)

_BREAKPOINT = "prompt_cache_breakpoint"
_FILE_FIELDS = {"base64": "file_data", "text": "file_data", "url": "file_url", "file_id": "file_id"}
_CUSTOM = ToolKind.CUSTOM  # an Enum's member is slow to look up


class InputWriter(msgspec.Struct):
    """Writes the input items of one request."""

    _ledger: Ledger
    _native: bool
    _only_functions: bool = False  # the server has no items of other tools
    _items: list[JSON] = []
    _signed: dict[int, str] = {}  # id() of an item from a signature -> its path

    def items(self, messages: tuple[Message, ...]) -> list[JSON]:
        """Write the items. Raises RequestRefused for content that must not be left out."""
        items = self._items
        for message in messages:
            if self._native:
                if message.native is not None:
                    items.append(message.native)
                else:
                    self._write_message(message)
                continue
            # The commonest shapes: one plain text, one call or one result.
            if message.plain_text:
                items.append(_plain_message(message))
                continue
            content = message.content
            write = _ITEM_WRITERS.get(type(content[0])) if len(content) == 1 else None
            if write is None:
                self._write_message(message)
            else:
                write(self, content[0])
        if self._signed:
            self._drop_dangling()
        return items

    # Messages.

    def _write_message(self, message: Message) -> None:
        content: list[JSON] = []
        for part in message.content or message.parts:
            write = _ITEM_WRITERS.get(type(part))
            if write is None and not (type(part) is OpaquePart and part.path == message.path):
                self._write_content(part, message.role, content)
                continue
            if content:
                self._write_item(message, content)
                content = []
            if self._native and part.native is not None and not self._is_foreign(part):
                self._items.append(part.native)
            elif self._native and part.before and isinstance(part, (ToolCall, ToolResult)) and part.hosted:
                self._items.append({**part.before, "call_id": part.call_id})
            elif write is not None:
                write(self, part)
            else:
                self._write_opaque(part)
        if content:
            self._write_item(message, content)

    def _is_foreign(self, part: Part) -> bool:
        """True for an item that the server does not know, although its protocol has it."""
        return self._only_functions and type(part) is OpaquePart

    def _write_item(self, message: Message, content: list[JSON]) -> None:
        """Write a message item."""
        item: JSONObject = {"type": "message", "role": message.role, "content": content}
        is_ours = not self._native or message.before is None
        if is_ours and len(content) == 1 and content[0].get("annotations") == []:
            item["content"] = content[0]["text"]  # see _plain_message
        if message.phase is not None:
            item["phase"] = message.phase
        self._items.append(overlaid(item, message) if self._native else item)

    def _write_content(self, part: Part, role: Role, content: list[JSON]) -> None:
        if self._native and part.native is not None:
            content.append(part.native)
            return
        if isinstance(part, Text):
            out = self._assistant_text(part) if role == "assistant" else self._input_text(part)
        elif isinstance(part, Refusal):
            kind, field = ("refusal", "refusal") if role == "assistant" else ("input_text", "text")
            out = {"type": kind, field: part.text}
        elif not isinstance(part, Media):
            self._write_opaque(part)
            return
        else:
            out = self._media(part, content)
        content.append(overlaid(out, part) if self._native else out)

    def _input_text(self, part: Text) -> JSONObject:
        """Write a text of the client's side."""
        out: JSONObject = {"type": "input_text", "text": part.text}
        if part.citations:
            self._ledger.dropped(f"{part.path}/citations", "only text of the assistant has citations")
        if part.cache is not None:
            _put_mark(part.cache, out)
        return out

    def _assistant_text(self, part: Text) -> JSONObject:
        """Write a text of the assistant."""
        out: JSONObject = {"type": "output_text", "text": part.text}
        if self._native and part.before is not None:
            return out  # with the client's own annotations
        out["annotations"] = write_citations(part) if part.sources else []
        if part.citations and not part.sources:
            self._ledger.dropped(f"{part.path}/citations", "only citations of web pages have a counterpart")
        elif part.citations and has_unmapped_citations(part):
            self._ledger.altered(f"{part.path}/citations", "only the source and span of citations were kept")
        if part.cache is not None:
            self._move_mark(part.cache)
        return out

    def _media(self, part: Media, before: list[JSON]) -> JSONObject:
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
            elif part.source in ("base64", "text"):
                # OpenAI's server requires a name with inline data (laravel/ai#324, read 2026-11-22).
                out["filename"] = "document.txt" if part.source == "text" else "document.pdf"
            out[_FILE_FIELDS[part.source]] = _uri(part)
        if part.cache is not None:
            _put_mark(part.cache, out)
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
            self._move_mark(part.cache)
        self._items.append(overlaid(item, part) if self._native else item)

    def _write_result(self, part: ToolResult) -> None:
        # Nearly all are plain.
        output: JSON = part.plain_text or self._output(part)
        name = "custom_tool_call_output" if part.kind is _CUSTOM else "function_call_output"
        item: JSONObject = {"type": name, "call_id": part.call_id, "output": output}
        if part.cache is not None:
            _put_mark(part.cache, _last_output_part(item))
        self._items.append(overlaid(item, part) if self._native else item)

    def _move_mark(self, mark: CacheMark) -> None:
        """Mark the nearest content part before the mark's place.

        Only content parts of the client's side and tool outputs can have one (openai-python 3.54.0). So a little less
        is cached, never more.
        """
        part = _last_markable_part(self._items)
        if part is None:
            self._ledger.dropped(mark.path, "no content part before it can have the mark")
        else:
            self._ledger.altered(
                mark.path, "moved to the content part before it: nothing else can have a mark"
            )
            _put_mark(mark, part)

    def _output(self, part: ToolResult) -> JSON:
        output: list[JSON] = []
        for each in part.parts:
            self._write_content(each, "user", output)
        if part.is_error:
            mark_error(part, output, "input_text", self._ledger)
        if not output:
            return ""
        if len(output) == 1 and len(output[0]) == 2 and output[0]["type"] == "input_text":
            return output[0]["text"]
        return output

    # Items that only this vendor can read.

    def _write_reasoning(self, part: Reasoning) -> None:
        if part.signature is None:
            self._ledger.dropped(part.path, "reasoning without a signature cannot be sent back")
            return
        native: JSON = part.signature.native if part.signature.origin == NAME else None
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
                self._ledger.repaired(path, "the server refuses reasoning that no item follows")
                continue
            followed = path is not None or item.get("type") in CALL_ITEMS or item.get("role") == "assistant"
            followed_items.append(item)
        followed_items.reverse()
        self._items[:] = followed_items

    def _write_opaque(self, part: Part) -> None:
        assert isinstance(part, OpaquePart)
        self._ledger.unknown_kind(part.path, f"Responses has no counterpart of {part.kind}")


# Parts that become separate items.
_ITEM_WRITERS: dict[type, Callable[[InputWriter, JSON], None]] = {
    ToolCall: InputWriter._write_call,
    ToolResult: InputWriter._write_result,
    Reasoning: InputWriter._write_reasoning,
}


def unwrapped_item(native: JSON, path: str, ledger: Ledger) -> JSONObject | None:
    """Return the item of a signature as the server accepts it, None if it does not. native: None if it is foreign."""
    kind = native.get("type") if type(native) is dict else None
    # Items with a form in the document never travel in signatures: one that seems to do so was not signed here.
    if type(kind) is not str or kind in TRANSLATED_ITEMS:
        ledger.foreign_signature(path, "only its vendor can read this reasoning")
        return None
    if kind == "reasoning" and not (native.get("encrypted_content") or native.get("content")):
        # "Items are not persisted when `store` is set to false." (vercel/ai#7543, read 2026-11-22): an id without
        # content refers to nothing. vLLM and llama.cpp encrypt none, and read the text of `content`.
        ledger.dropped(path, "the reasoning came without its encrypted content")
        return None
    # "Invalid 'input[5].id': ''" (mweinbach/open-grok#23, read 2026-11-22): servers send such ids all the same. Other
    # items are those that the client's protocol had no form for.
    empty = (None, "") if kind == "reasoning" else ()
    return {
        name: value
        for name, value in native.items()
        if name not in RESPONSE_ONLY_FIELDS and value not in empty
    }


def _plain_message(message: Message) -> JSONObject:
    """Write the commonest message: one text.

    That of the assistant is a string: vLLM refuses its parts without the message's id and status, which only Responses
    clients have (MiaAI-Lab/DeepSeek-v4-Flash-DSpark-2x-DGX-Spark#138; vercel/ai#20995, read 2026-12-01).
    """
    content: JSON = message.plain_text
    if message.role != "assistant":
        content = [{"type": "input_text", "text": content}]
    return {"type": "message", "role": message.role, "content": content}


def _uri(part: Media) -> str:
    """Return the media's data as the server reads it: a data URI, a URL or an id."""
    if part.source == "text":
        data = b64encode(part.data.encode("utf-8", "replace")).decode("ascii")
        return f"data:{part.media_type or 'text/plain'};base64,{data}"
    if part.source == "base64" and (part.media_type is not None or part.kind == "image"):
        return f"data:{part.media_type or 'image/png'};base64,{part.data}"
    return part.data


def _put_mark(mark: CacheMark, part: JSONObject) -> None:
    """Mark a content part. If a part has two marks, the longer one stays."""
    if _BREAKPOINT not in part or mark.ttl == "long":
        ttl: JSONObject = {} if mark.ttl is None else {"ttl": CACHE_TTLS[mark.ttl]}
        part[_BREAKPOINT] = {"mode": "explicit", **ttl}


def _last_markable_part(items: list[JSON]) -> JSONObject | None:
    for item in reversed(items):
        if item.get("type") in CALL_OUTPUT_ITEMS:
            return _last_output_part(item)
        if item.get("type") == "message" and item["role"] != "assistant":
            last: JSONObject = item["content"][-1]
            return last
    return None


def _last_output_part(item: JSONObject) -> JSONObject:
    """Return the last part of a tool's output. An output that is a string becomes a list."""
    if type(item["output"]) is str:
        item["output"] = [{"type": "input_text", "text": item["output"]}]
    last: JSONObject = item["output"][-1]
    return last
