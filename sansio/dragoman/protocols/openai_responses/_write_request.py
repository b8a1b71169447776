"""Request -> body for a Responses upstream.

Strategy: every message becomes items, in the order of its parts; text and media that follow one another share
a message item. Towards an upstream that the client speaks to in its own protocol, what the IR has no form for
is printed again from `extra`, opaque parts and the client's own body. For everybody else nothing is stored,
and reasoning comes back encrypted, so that it can travel through the client.
"""

from __future__ import annotations

from base64 import b64encode

from ..._errors import RemoteProtocolError
from ..._events import ToolKind
from ..._json import JSON, JSONObject
from ..._loss import Ledger, LossCode
from ..._request import (
    CacheMark,
    Media,
    Message,
    OpaquePart,
    Part,
    Refusal,
    Request,
    Text,
    Thought,
    Tool,
    ToolCall,
    ToolResult,
)
from ..._spec import Target
from . import _tables as tables
from ._wire import ORIGIN
from ._write_params import settings
from ._write_tools import write_choice, write_tools

# Fields of items that repeat or merely label what the IR holds: printed again for the same protocol.
_KEPT = ("status", "name", "namespace")

_CUSTOM = ToolKind.CUSTOM  # an Enum's member is slow to look up


def write_request(request: Request, target: Target, ledger: Ledger) -> JSONObject:
    """The body.

    Raises RemoteProtocolError for audio and for more than one answer: an answer without them would be another
    answer.
    """
    own = request.protocol == ORIGIN
    writer = _ItemWriter(request, own, target, ledger)
    out: JSONObject = {"model": request.model}
    messages = request.messages
    if messages and _is_instructions(messages, own):
        text = messages[0].parts[0]
        assert isinstance(text, Text)
        out["instructions"] = text.text
        messages = messages[1:]
    elif own and request.raw.get("instructions") == "":
        out["instructions"] = ""
    items = writer.items(messages)
    if own and type(request.raw.get("input")) is str and len(items) == 1:
        out["input"] = request.raw["input"]
    elif items or not own or request.raw.get("input") is not None:
        out["input"] = items
    tools = [tool for tool in request.tools if not tool.path.startswith("/input/")]
    if tools:
        written = write_tools(tools, request, own, ledger)
        if written:
            out["tools"] = written
    if request.tool_choice is not None:
        out["tool_choice"] = write_choice(request.tool_choice, request.tools)
    if request.parallel_tool_calls is not None:
        out["parallel_tool_calls"] = request.parallel_tool_calls
    if request.stream:
        out["stream"] = True
    settings(request, own, out, ledger)
    return out


def _is_instructions(messages: tuple[Message, ...], own: bool) -> bool:
    """Whether the first message goes into `instructions`, which holds one plain text.

    Several system texts, or one with a cache mark, stay items: joining them would lose where one ends.
    """
    first = messages[0]
    if own:
        return first.path == "/instructions"
    if first.role != "system" or len(first.parts) != 1 or first.name is not None:
        return False
    part = first.parts[0]
    if type(part) is not Text or part.cache is not None or part.citations:
        return False
    return len(messages) < 2 or messages[1].role not in ("system", "developer")


class _ItemWriter:
    """Writes the input items of one request."""

    __slots__ = ("_added", "_items", "_ledger", "_marks", "_own", "_request", "_sealed")

    def __init__(self, request: Request, own: bool, target: Target, ledger: Ledger) -> None:
        self._request = request
        self._own = own
        self._ledger = ledger
        self._marks = own or target.cache_marks
        self._items: list[JSON] = []
        self._sealed: list[tuple[JSON, str]] = []  # foreign clients' reasoning items, with their paths
        # index of an `additional_tools` item -> its tools
        self._added: dict[int, list[Tool]] = {}
        if own:
            for tool in request.tools:
                if tool.path.startswith("/input/"):
                    self._added.setdefault(int(tool.path.split("/")[2]), []).append(tool)

    def items(self, messages: tuple[Message, ...]) -> list[JSON]:
        items = self._items
        for message in messages:
            if self._added:
                self._write_added_before(message.path)
            parts = message.parts
            if len(parts) == 1:
                # Nearly all messages: one plain text, one call or one result.
                part = parts[0]
                if type(part) is Text:
                    if part.cache is None and part.citations is None and not self._own:
                        self._note_name(message)
                        items.append(_plain_message(message, part))
                        continue
                elif type(part) is ToolCall:
                    self._note_name(message)
                    self._write_call(part)
                    continue
                elif type(part) is ToolResult:
                    self._note_name(message)
                    self._write_result(part)
                    continue
            self._write_message(message)
        if self._added:
            self._write_added_before(None)
        if self._sealed:
            self._drop_dangling()
        return items

    def _write_added_before(self, path: str | None) -> None:
        steps = (path or "").split("/")
        index = int(steps[2]) if len(steps) > 2 else None
        for number in sorted(self._added):
            if path is None or (index is not None and number < index):
                raw = self._request.raw["input"][number]
                tools = write_tools(self._added.pop(number), self._request, True, self._ledger)
                self._items.append({**raw, "tools": tools})

    def _note_name(self, message: Message) -> None:
        if message.name is not None:
            self._ledger.dropped(f"{message.path}/name", "Responses has no names on messages")

    def _write_message(self, message: Message) -> None:
        self._note_name(message)
        content: list[JSON] = []
        for part in message.parts:
            kind = type(part)
            if kind is Text or kind is Media or kind is Refusal:
                self._write_content(part, message, content)
                continue
            if kind is OpaquePart and part.path != message.path:
                self._write_opaque(part, content)  # type: ignore[arg-type]
                continue
            if content:
                self._flush(message, content)
            if isinstance(part, ToolCall):
                self._write_call(part)
            elif isinstance(part, ToolResult):
                self._write_result(part)
            elif isinstance(part, Thought):
                self._write_thought(part)
            else:
                assert isinstance(part, OpaquePart)
                self._write_opaque(part, self._items)
        if content:
            self._flush(message, content)

    def _flush(self, message: Message, content: list[JSON]) -> None:
        """Put what was collected, which is something, into a message item."""
        item: JSONObject = {"type": "message", "role": message.role, "content": list(content)}
        content.clear()
        if message.phase is not None:
            item["phase"] = message.phase
        if self._own:
            self._restore(item, message.path, message.item_id, message.extra)
            raw = self._raw(message.path)
            if type(raw.get("content")) is str:
                item["content"] = item["content"][0]["text"]
        self._items.append(item)

    def _raw(self, path: str) -> JSONObject:
        """The client's own item at a path, {} when the path is not that of an item."""
        steps = path.split("/")
        if len(steps) != 3 or steps[1] != "input":
            return {}
        item: JSONObject = self._request.raw["input"][int(steps[2])]
        return item

    def _restore(self, item: JSONObject, path: str, item_id: str | None, extra: JSONObject | None) -> None:
        """Give an item back what the IR holds for the same protocol only."""
        if item_id is not None:
            item["id"] = item_id
        raw = self._raw(path)
        for name in _KEPT:
            if name in raw and name not in item:
                item[name] = raw[name]
        if extra:
            item.update(extra)

    def _write_content(self, part: Part, message: Message, content: list[JSON]) -> None:
        if isinstance(part, Text):
            out = self._text(part, "output_text" if message.role == "assistant" else "input_text")
        elif isinstance(part, Media):
            if message.role == "assistant":
                self._ledger.dropped(part.path, "an assistant's message holds text alone in Responses")
                return
            media = self._media(part)
            if media is None:
                return
            out = media
        elif isinstance(part, Refusal) and message.role == "assistant":
            out = {"type": "refusal", "refusal": part.text}
        else:
            assert isinstance(part, Refusal)
            out = {"type": "input_text", "text": part.text}
        if self._own and part.extra:
            out.update(part.extra)
        content.append(out)

    def _text(self, part: Text, kind: str) -> JSONObject:
        out: JSONObject = {"type": kind, "text": part.text}
        if kind == "output_text":
            out["annotations"] = part.citations if self._own and part.citations else []
        if part.citations and not self._own:
            self._ledger.dropped(f"{part.path}/citations", "citations of another protocol")
        self._mark(part.cache, out)
        return out

    def _mark(self, mark: CacheMark | None, out: JSONObject) -> None:
        if mark is None:
            return
        if not self._marks:
            self._ledger.dropped(mark.path, "this upstream takes no cache breakpoints")
            return
        written: JSONObject = {"mode": "explicit"}
        if mark.ttl is not None:
            written["ttl"] = tables.CACHE_TTL_NAMES[mark.ttl]
        out["prompt_cache_breakpoint"] = written

    def _media(self, part: Media) -> JSONObject | None:
        if part.kind == "audio":
            raise RemoteProtocolError(
                "Responses takes no audio input: send text, images or files",
                path=part.path,
                code="unsupported_value",
            )
        if part.source == "file_id" and self._request.protocol not in tables.SAME_FILE_STORE:
            self._ledger.dropped(part.path, "the file lies in another vendor's store")
            return None
        if part.kind == "image":
            # "detail" is required on an image; "auto" is what its absence means.
            out: JSONObject = {"type": "input_image", "detail": part.detail or "auto"}
            out["file_id" if part.source == "file_id" else "image_url"] = _uri(part)
        else:
            out = {"type": "input_file"}
            if part.detail is not None:
                out["detail"] = part.detail
            if part.filename is not None:
                out["filename"] = part.filename
            elif part.source in ("base64", "text") and not self._own:
                # The server wants a name beside inline data.
                out["filename"] = "document.txt" if part.source == "text" else "document.pdf"
            out[_FILE_FIELDS[part.source]] = _uri(part)
        for name in ("context", "citations"):
            if getattr(part, name):
                self._ledger.dropped(f"{part.path}/{name}", "files have no such field in Responses")
        self._mark(part.cache, out)
        return out

    def _write_call(self, part: ToolCall) -> None:
        if part.kind is _CUSTOM:
            item: JSONObject = {"type": "custom_tool_call", "call_id": part.call_id, "name": part.name}
            item["input"] = part.input
        else:
            item = {"type": "function_call", "call_id": part.call_id, "name": part.name}
            item["arguments"] = part.input or "{}"
        if part.namespace is not None:
            item["namespace"] = part.namespace
        if part.cache is not None:
            self._note_mark(part.cache)
        if self._own:
            self._restore(item, part.path, part.item_id, part.extra)
        self._items.append(item)

    def _note_mark(self, mark: CacheMark) -> None:
        self._ledger.dropped(mark.path, "only content parts take cache breakpoints in Responses")

    def _write_result(self, part: ToolResult) -> None:
        if part.cache is not None:
            self._note_mark(part.cache)
        if len(part.parts) == 1 and not part.is_error and not self._own:
            only = part.parts[0]
            if type(only) is Text and only.cache is None and not only.citations:
                name = "custom_tool_call_output" if part.kind is _CUSTOM else "function_call_output"
                self._items.append({"type": name, "call_id": part.call_id, "output": only.text})
                return  # nearly all results are one plain text
        output: list[JSON] = []
        for each in part.parts:
            if isinstance(each, Text):
                output.append(self._text(each, "input_text"))
            elif isinstance(each, Media):
                media = self._media(each)
                if media is not None:
                    output.append(media)
            else:
                self._write_opaque(each, output)
                continue
            if self._own and each.extra and output:
                output[-1].update(each.extra)
        custom = part.kind is _CUSTOM
        item: JSONObject = {
            "type": "custom_tool_call_output" if custom else "function_call_output",
            "call_id": part.call_id,
            "output": self._output(part, output),
        }
        if self._own:
            self._restore(item, part.path, part.item_id, part.extra)
        self._items.append(item)

    def _output(self, part: ToolResult, output: list[JSON]) -> JSON:
        if part.is_error:
            self._ledger.altered(f"{part.path}/is_error", 'told as the words "Error: " before the output')
            if output and output[0]["type"] == "input_text":
                output[0]["text"] = f"Error: {output[0]['text']}"
            else:
                output.insert(0, {"type": "input_text", "text": "Error: "})
        if not output:
            return ""
        as_parts = self._own and type(self._raw(part.path).get("output")) is list
        if len(output) == 1 and len(output[0]) == 2 and output[0]["type"] == "input_text" and not as_parts:
            return output[0]["text"]
        return output

    def _write_thought(self, part: Thought) -> None:
        seal = part.seal
        if seal is None:
            self._ledger.dropped(part.path, "reasoning without its sealed form cannot be given back")
        elif seal.origin != ORIGIN:
            self._ledger.add(LossCode.FOREIGN_SEAL, part.path, "only its maker can read this reasoning")
        elif self._own and self._raw(part.path) is seal.native:
            self._items.append(seal.native)
        elif not seal.native.get("encrypted_content"):
            # "Items are not persisted when store is false": an id alone leads nowhere.
            self._ledger.dropped(part.path, "the reasoning came without its encrypted content")
        else:
            # What the server answers with null it refuses to be sent.
            item = {name: value for name, value in seal.native.items() if value is not None}
            self._items.append(item)
            self._sealed.append((item, part.path))

    def _drop_dangling(self) -> None:
        """ "Item of type 'reasoning' was provided without its required following item": an interrupted turn
        leaves such reasoning behind. The assistant's item has to follow it.
        """
        paths = {id(item): path for item, path in self._sealed}
        kept: list[JSON] = []
        followed = False
        for item in reversed(self._items):
            if id(item) in paths and not followed:
                self._ledger.add(
                    LossCode.REPAIRED,
                    paths[id(item)],
                    "reasoning that nothing follows is refused by the server",
                )
                continue
            followed = item["type"] in _FOLLOWERS or item.get("role") == "assistant"
            kept.append(item)
        kept.reverse()
        self._items[:] = kept

    def _write_opaque(self, part: OpaquePart, into: list[JSON]) -> None:
        if part.origin == ORIGIN and self._own:
            into.append(part.native)
        else:
            self._ledger.add(LossCode.UNKNOWN_KIND, part.path, f"no counterpart for {part.kind} in Responses")


_FOLLOWERS = frozenset(("function_call", "custom_tool_call", "reasoning"))
_FILE_FIELDS = {"base64": "file_data", "text": "file_data", "url": "file_url", "file_id": "file_id"}


def _plain_message(message: Message, part: Text) -> JSONObject:
    """The commonest message: one text."""
    if message.role == "assistant":
        content: JSONObject = {"type": "output_text", "text": part.text, "annotations": []}
    else:
        content = {"type": "input_text", "text": part.text}
    item: JSONObject = {"type": "message", "role": message.role, "content": [content]}
    return item


def _uri(part: Media) -> str:
    """The media's data where the server reads it: a data URI, or as it is."""
    if part.source == "text":
        data = b64encode(part.data.encode("utf-8", "replace")).decode("ascii")
        return f"data:{part.media_type or 'text/plain'};base64,{data}"
    if part.source == "base64" and (part.media_type is not None or part.kind == "image"):
        return f"data:{part.media_type or 'image/png'};base64,{part.data}"
    return part.data
