"""Read the content blocks of a response into events.

Blocks come one after another under an index. Text and reasoning blocks start at their first content, tool calls at
once, and each other block becomes one opaque event when it is complete. A block of a complete response is read as one
whose start holds everything.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from dragoman._ir import events
from dragoman._ir.events import BlockKind, Event, Search, Signature, Source, ToolHead
from dragoman._ir.fast_path import Delta
from dragoman._ir.losses import Ledger, child
from dragoman._ir.shape import note_unread, response_shape
from dragoman._wire.exceptions import RemoteProtocolError, unreadable_response
from dragoman._wire.json import (
    JSON,
    JSONObject,
    decode,
    encode_text,
    is_object_text,
    object_or_empty,
    objects_in,
)
from dragoman.codec import ResponseContext
from dragoman.protocols.anthropic_messages.checks import cited_title, cited_url, string_or_none, text_or_empty
from dragoman.protocols.anthropic_messages.shapes import BLOCK_SHAPE, CITATION_SHAPE, THINKING_BLOCK_SHAPE
from dragoman.protocols.anthropic_messages.tables import NAME

_BLOCK, _CITATION, _THINKING = map(response_shape, (BLOCK_SHAPE, CITATION_SHAPE, THINKING_BLOCK_SHAPE))


class Content(msgspec.Struct, frozen=True):
    """A type of block: the kind of its content, and the event, the type and the member with the text of its deltas."""

    kind: BlockKind
    event: type[Delta]
    delta_type: str
    member: str


# Blocks of all other types are opaque.
_CONTENT: dict[str, Content] = {
    "text": Content(BlockKind.TEXT, events.TextDelta, "text_delta", "text"),
    "thinking": Content(BlockKind.REASONING, events.ReasoningDelta, "thinking_delta", "thinking"),
    "tool_use": Content(BlockKind.TOOL_CALL, events.ArgumentsDelta, "input_json_delta", "partial_json"),
}


class StreamedBlock(msgspec.Struct, gc=False):
    """An open block.

    number: its number in the events, -1 before its BlockStarted.
    content: what its deltas have, None of an opaque block.
    native: the block of content_block_start, with what signatures and deltas added.
    texts: the texts of its deltas, unless it is text.
    members: of an opaque block, with the pieces of their texts.
    citations: the number of citations so far.
    """

    index: int
    kind: str
    content: Content | None
    native: JSONObject
    number: int = -1
    texts: list[str] = []
    members: dict[str, list[str]] = {}
    citations: int = 0


class ContentBlockReader(msgspec.Struct):
    """Reads the blocks of one response.

    open: the open blocks by index.
    model: the responding model, which is part of signatures.
    called: True after a tool call.
    """

    _context: ResponseContext
    _ledger: Ledger
    open: dict[JSON, StreamedBlock] = {}
    model: str = ""
    called: bool = False
    _next: int = 0  # the number of the next block
    _pending_call: int = -1  # a call with incomplete arguments, whose end depends on the stop reason
    _queries: dict[str, str] = {}  # by the id of the search

    @property
    def has_begun(self) -> bool:
        """True if a block has begun."""
        return bool(self.open or self._next)

    def start(self, index: int, native: JSON) -> list[Event]:
        """Return the events of content_block_start, with the content that the block has already."""
        if type(native) is not dict or type(native.get("type")) is not str:
            raise unreadable_response("a content block has no type")
        note_unread(native, _BLOCK, f"/content/{index}", self._ledger)
        kind = native["type"]
        content = _CONTENT.get(kind)
        block = self.open[index] = StreamedBlock(index, kind, content, native)
        if kind == "tool_use":
            return [self._start_call(block)]
        if content is None:
            return []
        out = [*self._add(block, content, native.get(content.member))]
        if kind == "text":
            for citation in objects_in(native.get("citations")):
                out += self._add_citation(block, citation)
        elif self._context.request.protocol == NAME:  # for other clients the signature holds them
            note_unread(native, _THINKING, f"/content/{index}", self._ledger)
        return out

    def _start_block(
        self, block: StreamedBlock, kind: BlockKind, tool: ToolHead | None = None
    ) -> events.BlockStarted:
        block.number = self._next
        self._next += 1
        return events.BlockStarted(block.number, kind, tool=tool, path=f"/content/{block.index}")

    def _start_call(self, block: StreamedBlock) -> events.BlockStarted:
        native = block.native
        call_id, name = native.get("id"), native.get("name")
        if type(name) is not str or not name:
            raise unreadable_response("a tool call has no name")
        if type(call_id) is not str or not call_id:
            call_id = f"toolu_{self._context.id}_{self._next}"
        self.called = True
        return self._start_block(block, BlockKind.TOOL_CALL, ToolHead(call_id, name))

    def _add(self, block: StreamedBlock, content: Content, text: JSON) -> Sequence[Event]:
        """Return the delta of a text, behind the start of the block if it is the first one."""
        if type(text) is not str or not text:
            return ()
        event = content.event
        if event is not events.TextDelta:
            block.texts.append(text)
        if block.number >= 0:
            return (event(block.number, text),)
        return (self._start_block(block, content.kind), event(block.number, text))

    def _add_citation(self, block: StreamedBlock, citation: JSON) -> list[Event]:
        if type(citation) is not dict:
            return []
        out: list[Event] = []
        if block.number < 0:
            out.append(self._start_block(block, BlockKind.TEXT))
        path = f"/content/{block.index}/citations"
        note_unread(citation, _CITATION, child(path, block.citations), self._ledger)
        block.citations += 1
        url, title = cited_url(citation), cited_title(citation)
        out.append(events.Annotation(block.number, NAME, citation, url, title, path=path))
        return out

    def delta(self, block: StreamedBlock, delta: JSONObject) -> Sequence[Event]:
        """Return the events of content_block_delta."""
        delta_type = delta.get("type")
        content = block.content
        if content is None:
            self._extend_opaque(block, delta_type, delta)
            return ()
        if delta_type == content.delta_type:
            return self._add(block, content, delta.get(content.member))
        if delta_type == "citations_delta" and block.kind == "text":
            return self._add_citation(block, delta.get("citation"))
        if delta_type == "signature_delta" and block.kind == "thinking":
            block.native["signature"] = delta.get("signature")
            return ()
        self._ledger.unknown_kind(
            f"/content/{block.index}", "a delta of a type that does not belong to the block"
        )
        return ()

    def _extend_opaque(self, block: StreamedBlock, delta_type: JSON, delta: JSONObject) -> None:
        """Add a delta to an opaque block: JSON text of its input, or fields whose texts are joined."""
        if delta_type == "input_json_delta":
            text = delta.get("partial_json")
            if type(text) is str:
                block.texts.append(text)
            return
        for key, value in delta.items():
            if key == "type" or value is None:
                continue
            before = block.native.get(key)
            if type(before) is str and type(value) is str:
                block.members.setdefault(key, [before]).append(value)
            else:
                block.native[key] = value
                block.members.pop(key, None)

    def close(self, block: StreamedBlock, cut: bool = False) -> list[Event]:
        """Return the end of a block. cut: the upstream did not end it, because the output limit was reached."""
        kind = block.kind
        if kind == "text":
            return [events.BlockEnded(block.number, not cut)] if block.number >= 0 else []
        if kind == "thinking":
            return self._close_thinking(block, cut)
        if kind == "redacted_thinking":
            start = self._start_block(block, BlockKind.REASONING)
            return [start, self._signature(block, block.native), events.BlockEnded(block.number)]
        if kind == "tool_use":
            return self._close_call(block, cut)
        native = {**block.native, **{key: "".join(texts) for key, texts in block.members.items()}}
        if text := "".join(block.texts):  # an input without members has one delta, of no text
            native = {**native, "input": _parse_input(text)}
        return [
            events.Opaque(NAME, kind, native, f"/content/{block.index}", search=self._search(kind, native))
        ]

    def _search(self, kind: str, native: JSONObject) -> Search | None:
        """Return query and sources of a web search at its result, None for all other blocks."""
        if kind == "server_tool_use":
            query = object_or_empty(native.get("input")).get("query")
            if native.get("name") == "web_search" and type(query) is str:
                self._queries[text_or_empty(native.get("id"))] = query
            return None
        if kind != "web_search_tool_result":
            return None
        query = self._queries.get(text_or_empty(native.get("tool_use_id")))
        sources = [
            Source(result["url"], string_or_none(result.get("title")))
            for result in objects_in(native.get("content"))  # an object if the search failed
            if type(result.get("url")) is str
        ]
        return Search(() if query is None else (query,), tuple(sources))

    def _close_thinking(self, block: StreamedBlock, cut: bool) -> list[Event]:
        out: list[Event] = []
        if block.number < 0:
            # With `display: omitted` "a signature is returned for multi-turn continuity" (anthropic 2.12.0,
            # types/thinking_config_enabled_param.py).
            if not block.native.get("signature"):
                return []
            out.append(self._start_block(block, BlockKind.REASONING))
        if not cut or block.native.get("signature"):
            out.append(self._signature(block, {**block.native, "thinking": "".join(block.texts)}))
        out.append(events.BlockEnded(block.number, not cut))
        return out

    def _close_call(self, block: StreamedBlock, cut: bool) -> list[Event]:
        out: list[Event] = []
        text = "".join(block.texts)
        arguments = block.native.get("input")
        if not text and arguments:
            # Calls that code in a container makes come with their input in content_block_start.
            text = encode_text(arguments)
            out.append(events.ArgumentsDelta(block.number, text))
        elif arguments and arguments != _parse_input(text):
            self._ledger.dropped(f"/content/{block.index}/input", "the deltas of the block are its input")
        if text and not is_object_text(text):
            self._pending_call = block.number
        else:
            out.append(events.BlockEnded(block.number, bool(text) or not cut))
        return out

    def end_pending_call(self, cut: bool) -> list[Event]:
        """Return the end of the call that stopped in the middle of its arguments. cut: the output limit was reached."""
        if self._pending_call < 0:
            return []
        number, self._pending_call = self._pending_call, -1
        return [events.BlockEnded(number, not cut)]

    def _signature(self, block: StreamedBlock, native: JSONObject) -> events.SignatureDelta:
        return events.SignatureDelta(block.number, Signature(NAME, native, self.model))


def _parse_input(text: str) -> JSON:
    """Return the input of a server tool, as text if it is no JSON."""
    try:
        return decode(text.encode("utf-8", "surrogatepass"))
    except RemoteProtocolError:
        return text
