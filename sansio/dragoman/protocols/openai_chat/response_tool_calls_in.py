"""Read the tool calls of one choice: fragments in, blocks out.

A fragment belongs to a call by its index, but we have seen servers leave the index out, use one index for several
calls, repeat ids and names, or send a call whole. So a table of the calls by index and a few rules find the call. No
event says that a call has ended: it ends when another one starts and its arguments are a complete JSON object, or with
the response. Members of a call that we do not know (Google's signatures among them) go to the client as a signature, in
a reasoning block before the call, because the server needs them back with it.
"""

from __future__ import annotations

from itertools import repeat

import msgspec

from dragoman._ir import events
from dragoman._ir.events import BlockKind, Event, Signature, ToolHead, ToolKind
from dragoman._ir.shape import extra_members, has_content
from dragoman._wire.exceptions import unreadable_response
from dragoman._wire.json import JSON, JSONObject, ObjectEnd, is_object_text, kind_of
from dragoman.protocols.openai_chat.checks import arguments_text
from dragoman.protocols.openai_chat.shapes import CALL_DELTA_SHAPE
from dragoman.protocols.openai_chat.tables import CALL_EXTRAS, NAME


class StreamedCall(msgspec.Struct):
    """One call of a response.

    number: its place among the calls of its choice.
    block: its number in the events, -1 until the name of the call is known.
    pieces: the arguments so far.
    may_be_next: a fragment like the last one starts another call once this one is complete.
    extra: unknown members that are not emitted yet; emitted_extra: those that are.
    """

    kind: ToolKind
    number: int
    block: int = -1
    call_id: str = ""
    name: str = ""
    pieces: list[str] = []
    ended: bool = False
    may_be_next: bool = False
    extra: JSONObject = {}
    emitted_extra: JSONObject = {}
    _end: ObjectEnd = msgspec.field(default_factory=ObjectEnd)
    _seen: int = 0  # the pieces that `_end` has

    @property
    def text(self) -> str:
        return "".join(self.pieces)

    def is_complete(self) -> bool:
        """True if nothing more can come. The input of a custom tool is free text and may always go on."""
        if self.kind is not ToolKind.FUNCTION:
            return False
        # Only new items are looked at, because this is asked again and again.
        self._end.feed("".join(self.pieces[self._seen :]))
        self._seen = len(self.pieces)
        return self._end.reached

    def repeats(self, piece: str) -> bool:
        """True if a piece is all of the arguments once more, with which some servers end a call.

        See BerriAI/litellm#20480 and anomalyco/opencode#17339, read in November 2026.
        """
        if not self.pieces or not piece.startswith(self.pieces[0]) or not self.is_complete():
            return False
        # Joined once, however many pieces follow, without the blanks behind the object.
        self.pieces[:] = [self.text.rstrip()]
        self._seen = 1
        return piece.rstrip() == self.pieces[0]

    def differs(self, name: str, piece: str) -> bool:
        """True if a whole call with this name and these arguments is another one."""
        if self.name not in ("", name):
            return True
        return bool(piece.strip()) and self.is_complete() and not self.repeats(piece)

    def add(self, texts: list[str]) -> None:
        """Add pieces behind the first one, and take those that repeat all of the arguments out of the list."""
        if any(map(str.startswith, texts, repeat(self.pieces[0]))):
            pieces, texts[:] = texts[:], []
            for piece in pieces:
                if not self.repeats(piece):
                    self.pieces.append(piece)
                    texts.append(piece)
        else:
            self.pieces += texts


class IdAllocator(msgspec.Struct):
    """Numbers the blocks of one response, and makes ids for calls that came without one."""

    _response_id: str
    _blocks: int = -1
    _calls: int = -1

    def next_block(self) -> int:
        self._blocks += 1
        return self._blocks

    def next_call_id(self) -> str:
        self._calls += 1
        return f"call_{self._response_id}_{self._calls}"


class ToolCallReader(msgspec.Struct):
    """Reads the calls of one choice."""

    _choice: int
    _ids: IdAllocator
    _model: str
    calls: list[StreamedCall] = []
    by_block: dict[int, StreamedCall] = {}
    _by_index: dict[int, StreamedCall] = {}
    _by_id: dict[str, StreamedCall] = {}  # the first with each id
    _changed: dict[int, StreamedCall] = {}  # those that may have become complete, by number
    _next_index: int = 0  # above all indexes so far
    _last: StreamedCall | None = None

    def read_fragment(self, fragment: JSON, out: list[Event], *, default_index: int | None = None) -> None:
        """Read one element of `tool_calls`.

        default_index: its index if it has none, as in whole responses.
        """
        if type(fragment) is not dict:
            raise unreadable_response(f"a tool call is {kind_of(fragment)}")
        kind, member, inner = ToolKind.CUSTOM, "input", fragment.get("custom")
        # Some servers send the empty value of every member, that of the other kind too.
        if type(inner) is not dict or has_content(fragment.get("function")):
            kind, member, inner = ToolKind.FUNCTION, "arguments", fragment.get("function")
            if inner is None:
                inner = {}
            elif type(inner) is not dict:
                raise unreadable_response(f"a tool call's function is {kind_of(inner)}")
        call_id, name = fragment.get("id"), inner.get("name")
        call_id = call_id if type(call_id) is str else "" if call_id is None else str(call_id)
        name = name if type(name) is str else ""
        piece = arguments_text(inner.get(member))
        index = fragment.get("index")
        if type(index) is not int:
            index = default_index
        call = self._find(index, call_id, name)
        if call is not None and default_index is not None and name and call.differs(name, piece):
            call = None  # in whole responses calls may share an index, and even an id
        if call is None:
            if not (call_id or name or piece.strip()):
                return  # an empty fragment before any call
            call = self._start(kind, index, out)
        extra = extra_members(fragment, CALL_DELTA_SHAPE)
        if extra:
            call.extra.update(extra)
        if call.ended:
            # Its arguments were complete. Blanks do not change them, nor does a repetition of the whole.
            if piece.strip() and piece.rstrip() != call.text.rstrip():
                raise unreadable_response("a tool call continues after its arguments were complete")
            self._emit_extra(call, out)
            return
        # Groq's servers write the null of a call without arguments as text (recorded in 2026). No object begins so.
        if call.repeats(piece) or (piece == "null" and kind is ToolKind.FUNCTION and not call.pieces):
            piece = ""
        self._fill(call, call_id, name, piece, out)

    def end(self, cut: bool, out: list[Event]) -> None:
        """End all calls, because the choice ends. cut: it was cut short, so the last call may be incomplete."""
        for call in self.calls:
            if not call.ended:
                self._end(call, out, complete=not (cut and not call.is_complete()))

    def end_complete(self, out: list[Event]) -> None:
        """End the calls that are complete, because something else starts. One that has not changed is not looked at."""
        for _, call in sorted(self._changed.items()):
            if not call.ended and call.is_complete():
                self._end(call, out)
        self._changed.clear()

    def has_partial_arguments(self) -> bool:
        """True if the arguments of a call stop in the middle."""
        return any(
            call.kind is ToolKind.FUNCTION and call.text.strip() and not is_object_text(call.text)
            for call in self.calls
        )

    def _find(self, index: int | None, call_id: str, name: str) -> StreamedCall | None:
        """Return the call that a fragment continues, None if it starts a new one."""
        if index is None:
            if call_id:
                return self._by_id.get(call_id)
            call = self._last
        else:
            call = self._by_index.get(index)
        if call is None:
            return None
        # A new id at the same index is a new call, because some servers number all calls 0. Without a name it is one
        # only if the call before it is complete, because other servers give each fragment a new id.
        # Without ids a name after a complete call starts the next one.
        if call_id:
            call.may_be_next = call.call_id not in ("", call_id)
        else:
            call.may_be_next = bool(name and call.name) and (name != call.name or index is None)
        if call.may_be_next and ((call_id and name) or call.is_complete()):
            return None
        return call

    def _start(self, kind: ToolKind, index: int | None, out: list[Event]) -> StreamedCall:
        self.end_complete(out)
        call = StreamedCall(kind, len(self.calls))
        self.calls.append(call)
        if index is None:
            index = self._next_index
        self._next_index = max(self._next_index, index + 1)
        self._by_index[index] = self._last = call
        return call

    def _fill(self, call: StreamedCall, call_id: str, name: str, piece: str, out: list[Event]) -> None:
        if piece:
            call.pieces.append(piece)
        if call.block < 0:
            call.call_id = call.call_id or call_id
            call.name = call.name or name
            if call.name:
                call.call_id = call.call_id or self._ids.next_call_id()
                self._emit_extra(call, out)
                call.block = self._ids.next_block()
                self.by_block[call.block] = call
                head = ToolHead(call.call_id, call.name, call.kind)
                out.append(events.BlockStarted(call.block, BlockKind.TOOL_CALL, self._choice, head))
                if call.pieces:
                    out.append(events.ArgumentsDelta(call.block, call.text))
            self._by_id.setdefault(call.call_id, call)
        elif piece:
            out.append(events.ArgumentsDelta(call.block, piece))
        self._changed[call.number] = call

    def _end(self, call: StreamedCall, out: list[Event], *, complete: bool = True) -> None:
        if call.block < 0:
            raise unreadable_response("a tool call has no name")
        call.ended = True
        out.append(events.BlockEnded(call.block, complete))
        self._emit_extra(call, out)

    def _emit_extra(self, call: StreamedCall, out: list[Event]) -> None:
        """Emit the unknown members of a call: before it if they came with its start, otherwise after it."""
        extra = {key: value for key, value in call.extra.items() if call.emitted_extra.get(key) != value}
        if extra:
            native = {CALL_EXTRAS: {call.call_id: extra}}
            out += signature_events(native, self._choice, self._ids, self._model)
            call.emitted_extra.update(extra)
        call.extra.clear()


def signature_events(native: JSONObject, choice: int, ids: IdAllocator, model: str) -> list[Event]:
    """Return a reasoning block with a signature for members that only the upstream can read and needs back."""
    block = ids.next_block()
    signature = events.SignatureDelta(block, Signature(NAME, native, model))
    return [events.BlockStarted(block, BlockKind.REASONING, choice), signature, events.BlockEnded(block)]
