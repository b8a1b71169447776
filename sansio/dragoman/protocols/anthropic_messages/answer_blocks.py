"""The content blocks of an answer -> events.

Strategy: blocks come one after another under an index. Each open block is a small object that knows what its deltas
brought; text and reasoning blocks show themselves at their first content, tool calls at once, everything else as one
opaque event when it is whole. A block of a whole answer is one that starts full.
"""

from __future__ import annotations

from collections.abc import Sequence

from dragoman._ir.events import (
    Annotation,
    ArgumentsDelta,
    BlockEnded,
    BlockKind,
    BlockStarted,
    Event,
    Opaque,
    ReasoningDelta,
    Search,
    Signature,
    SignatureDelta,
    Source,
    TextDelta,
    ToolHead,
)
from dragoman._ir.losses import Ledger, LossCode, child
from dragoman._ir.shape import note_unread
from dragoman._wire.exceptions import RemoteProtocolError
from dragoman._wire.json import JSON, JSONObject, decode, encode_text, is_object_text
from dragoman.codec import ResponseContext
from dragoman.protocols.anthropic_messages.citations import cited_title, cited_url
from dragoman.protocols.anthropic_messages.tables import (
    BLOCK_SHAPE,
    CITATION_SHAPE,
    DELTA_FIELDS,
    EVENT_FIELDS,
    NAME,
)
from dragoman.protocols.anthropic_messages.values import text_or_empty
from dragoman.protocols.anthropic_messages.wire import KNOWN_THINKING_BLOCK, KNOWN_TOOL_USE, extra_fields


class StreamedBlock:
    """An open block.

    number: its number in the events, -1 while it has not shown itself.
    native: the block as it started; texts: what its deltas brought; cited: how many citations came.
    """

    __slots__ = ("cited", "index", "kind", "native", "number", "texts")

    def __init__(self, index: int, kind: str, native: JSONObject) -> None:
        self.index = index
        self.kind = kind
        self.native = native
        self.number = -1
        self.texts: list[str] = []
        self.cited = 0


class ContentBlockReader:
    """The blocks of one answer.

    open: the open ones by their index.
    model: the model that answers; seals name it.
    called: there has been a tool call.
    """

    __slots__ = ("_cut", "_exchange", "_ledger", "_next", "_queries", "called", "model", "open")

    def __init__(self, context: ResponseContext, ledger: Ledger) -> None:
        self.open: dict[JSON, StreamedBlock] = {}
        self.model = ""
        self.called = False
        self._exchange = context
        self._ledger = ledger
        self._next = 0  # the number of the next block
        self._cut = -1  # a tool call that ended with half a JSON text: was it the limit?
        self._queries: dict[str, str] = {}  # what was searched for, by the id of the search

    def start(self, index: int, native: JSON) -> list[Event]:
        """Open a block, with what it holds already."""
        if type(native) is not dict or type(native.get("type")) is not str:
            raise unreadable_response("a content block has no type")
        note_unread(native, BLOCK_SHAPE, f"/content/{index}", self._ledger)
        block = self.open[index] = StreamedBlock(index, native["type"], native)
        kind = block.kind
        if kind == "text":
            events = self._text(block, native.get("text"))
            citations = native.get("citations")
            for citation in citations if type(citations) is list else ():
                events += self._cite(block, citation)
            return events
        if kind == "thinking":
            if self._exchange.request.protocol == NAME:  # for others it travels with the seal
                self._ledger.unknown_fields(f"/content/{index}", extra_fields(native, KNOWN_THINKING_BLOCK))
            return self._think(block, native.get("thinking"))
        if kind == "tool_use":
            return [self._call(block)]
        return []

    def _show(self, block: StreamedBlock, kind: BlockKind, tool: ToolHead | None = None) -> BlockStarted:
        block.number = self._next
        self._next += 1
        return BlockStarted(block.number, kind, tool=tool, path=f"/content/{block.index}")

    def _call(self, block: StreamedBlock) -> BlockStarted:
        native = block.native
        call_id, name = native.get("id"), native.get("name")
        if type(name) is not str or not name:
            raise unreadable_response("a tool call has no name")
        if type(call_id) is not str or not call_id:
            call_id = f"toolu_{self._exchange.id}_{self._next}"
        left = extra_fields(native, KNOWN_TOOL_USE) or {}
        for key, value in left.items():
            if value != {"type": "direct"}:  # the caller that every call has when it says nothing
                path = child(f"/content/{block.index}", key)
                self._ledger.dropped(path, "a field of the tool call that has no counterpart")
        self.called = True
        return self._show(block, BlockKind.TOOL_CALL, ToolHead(call_id, name))

    def _text(self, block: StreamedBlock, text: JSON) -> list[Event]:
        """The first text of a block: read() gives the rest."""
        if type(text) is not str or not text:
            return []
        return [self._show(block, BlockKind.TEXT), TextDelta(block.number, text)]

    def _think(self, block: StreamedBlock, text: JSON) -> list[Event]:
        """The first text of a block: read() gives the rest."""
        if type(text) is not str or not text:
            return []
        block.texts.append(text)
        return [self._show(block, BlockKind.REASONING), ReasoningDelta(block.number, text)]

    def _cite(self, block: StreamedBlock, citation: JSON) -> list[Event]:
        if type(citation) is not dict:
            return []
        events: list[Event] = []
        if block.number < 0:
            events.append(self._show(block, BlockKind.TEXT))
        path = f"/content/{block.index}/citations"
        note_unread(citation, CITATION_SHAPE, child(path, block.cited), self._ledger)
        block.cited += 1
        url, title = cited_url(citation), cited_title(citation)
        events.append(Annotation(block.number, NAME, citation, url, title, path=path))
        return events

    def delta(self, block: StreamedBlock, what: JSON, delta: JSONObject) -> Sequence[Event]:
        """Every delta but the commonest."""
        kind = block.kind
        if kind == "text":
            if what == "text_delta":
                return self._text(block, delta.get("text"))
            if what == "citations_delta":
                return self._cite(block, delta.get("citation"))
        elif kind == "thinking":
            if what == "thinking_delta":
                return self._think(block, delta.get("thinking"))
            if what == "signature_delta":
                block.native = {**block.native, "signature": delta.get("signature")}
                return ()
        elif kind != "tool_use":
            self._fill(block, what, delta)
            return ()
        self._ledger.add(
            LossCode.UNKNOWN_KIND,
            f"/content/{block.index}",
            "a delta of a type that does not belong to the block",
        )
        return ()

    def note_fields(self, block: StreamedBlock, event: JSONObject, delta: JSONObject) -> None:
        """Enter what a delta brings beside its text. Opaque blocks keep it."""
        self._ledger.unknown_fields(f"/content/{block.index}", extra_fields(event, EVENT_FIELDS))
        if block.kind in ("text", "thinking", "tool_use"):
            self._ledger.unknown_fields(f"/content/{block.index}", extra_fields(delta, DELTA_FIELDS))

    def _fill(self, block: StreamedBlock, what: JSON, delta: JSONObject) -> None:
        """More of an opaque block: its input as JSON text, or texts that grow."""
        if what == "input_json_delta":
            text = delta.get("partial_json")
            if type(text) is str:
                block.texts.append(text)
            return
        block.native = dict(block.native)
        for key, value in delta.items():
            if key == "type" or value is None:
                continue
            held = block.native.get(key)
            block.native[key] = held + value if type(held) is str and type(value) is str else value

    def close(self, block: StreamedBlock, cut: bool = False) -> list[Event]:
        """The end of a block. `cut`: it was not ended by the upstream, and the output limit was reached."""
        kind = block.kind
        if kind == "text":
            return [BlockEnded(block.number, not cut)] if block.number >= 0 else []
        if kind == "thinking":
            return self._close_thinking(block, cut)
        if kind == "redacted_thinking":
            start = self._show(block, BlockKind.REASONING)
            return [start, self._seal(block, block.native), BlockEnded(block.number)]
        if kind == "tool_use":
            return self._close_call(block, cut)
        native = block.native
        if block.texts:
            native = {**native, "input": _parsed("".join(block.texts))}
        return [Opaque(NAME, kind, native, f"/content/{block.index}", search=self._search(kind, native))]

    def _search(self, kind: str, native: JSONObject) -> Search | None:
        """What a web search was for and what it found, at its end."""
        if kind == "server_tool_use":
            given = native.get("input")
            query = given.get("query") if type(given) is dict else None
            if native.get("name") == "web_search" and type(query) is str:
                self._queries[text_or_empty(native.get("id"))] = query
            return None
        if kind != "web_search_tool_result":
            return None
        query = self._queries.get(text_or_empty(native.get("tool_use_id")))
        results = native.get("content")  # an object when the search failed
        sources = [
            Source(result["url"], result["title"] if type(result.get("title")) is str else None)
            for result in (results if type(results) is list else ())
            if type(result) is dict and type(result.get("url")) is str
        ]
        return Search(() if query is None else (query,), tuple(sources))

    def _close_thinking(self, block: StreamedBlock, cut: bool) -> list[Event]:
        events: list[Event] = []
        if block.number < 0:
            # "display: omitted": only the signature comes, and it must go back.
            if not block.native.get("signature"):
                return []
            events.append(self._show(block, BlockKind.REASONING))
        if not cut or block.native.get("signature"):
            events.append(self._seal(block, {**block.native, "thinking": "".join(block.texts)}))
        events.append(BlockEnded(block.number, not cut))
        return events

    def _close_call(self, block: StreamedBlock, cut: bool) -> list[Event]:
        events: list[Event] = []
        text = "".join(block.texts)
        given = block.native.get("input")
        if not text and given:
            # Calls made from inside a container come whole in their start.
            text = encode_text(given)
            events.append(ArgumentsDelta(block.number, text))
        if text and not is_object_text(text):
            self._cut = block.number
        else:
            events.append(BlockEnded(block.number, bool(text) or not cut))
        return events

    def end_pending_call(self, cut: bool) -> list[Event]:
        """End the tool call that stopped in the middle of its arguments, now that the reason is known."""
        if self._cut < 0:
            return []
        number, self._cut = self._cut, -1
        return [BlockEnded(number, not cut)]

    def _seal(self, block: StreamedBlock, native: JSONObject) -> SignatureDelta:
        return SignatureDelta(block.number, Signature(NAME, native, self.model))


def _parsed(text: str) -> JSON:
    """The input of a server tool as an object; what is no JSON stays text."""
    try:
        return decode(text.encode("utf-8", "surrogatepass"))
    except RemoteProtocolError:
        return text


def unreadable_response(message: str) -> RemoteProtocolError:
    """For an answer that cannot be read."""
    return RemoteProtocolError(message, status=502)
