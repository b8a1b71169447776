"""Tool calls of one choice: fragments in, blocks out.

Strategy: fragments are told apart by index, but servers leave the index out, use one index for several calls,
repeat ids and names, or send a call whole. A table of the calls by index and a few rules decide which call a
fragment belongs to. "Tool call ended" is never said: a call ends when another one starts and its arguments
are a complete JSON object, or with the answer. Members of a call that we do not know (Google's signatures among
them) go to the client sealed, as reasoning before the call: the server wants them back with it.
"""

from __future__ import annotations

from dragoman._ir.events import (
    ArgumentsDelta,
    BlockEnded,
    BlockKind,
    BlockStarted,
    Event,
    Signature,
    SignatureDelta,
    ToolHead,
    ToolKind,
)
from dragoman._wire.exceptions import RemoteProtocolError
from dragoman._wire.json import JSON, JSONObject, encode_text, is_object_text, kind_of
from dragoman.protocols.openai_chat.tables import (
    CALL_EXTRAS,
    CALL_SHAPE,
    CUSTOM_SHAPE,
    FUNCTION_SHAPE,
    NAME,
)


class StreamedCall:
    """One call. block is -1 until its name is known; pieces is what the model wrote so far.

    extra: members that we do not know, as far as they were not given yet; given: the others.
    """

    __slots__ = ("block", "call_id", "ended", "extra", "given", "kind", "name", "pieces")

    def __init__(self, kind: ToolKind) -> None:
        self.kind = kind
        self.block = -1
        self.call_id = ""
        self.name = ""
        self.pieces: list[str] = []
        self.ended = False
        self.extra: JSONObject = {}
        self.given: JSONObject = {}

    @property
    def text(self) -> str:
        return "".join(self.pieces)

    def is_whole(self) -> bool:
        """Whether nothing more can come: free text never tells."""
        return self.kind is ToolKind.FUNCTION and is_object_text(self.text)


class IdAllocator:
    """Numbers of one answer: its blocks, and its calls for ids that the server did not give."""

    __slots__ = ("_blocks", "_calls", "_token")

    def __init__(self, token: str) -> None:
        self._token = token
        self._blocks = -1
        self._calls = -1

    def next_block(self) -> int:
        self._blocks += 1
        return self._blocks

    def next_call_id(self) -> str:
        self._calls += 1
        return f"call_{self._token}_{self._calls}"


class ToolCallReader:
    """The calls of one choice."""

    __slots__ = ("_by_index", "_choice", "_last", "_model", "_numbers", "calls")

    def __init__(self, choice: int, numbers: IdAllocator, model: str) -> None:
        self.calls: list[StreamedCall] = []
        self._choice = choice
        self._numbers = numbers
        self._model = model
        self._by_index: dict[int, StreamedCall] = {}
        self._last: StreamedCall | None = None

    def open_call(self, index: JSON) -> StreamedCall | None:
        """The call whose block is open at this index, for the fast lane."""
        call = self._by_index.get(index) if type(index) is int else None
        return call if call is not None and call.block >= 0 and not call.ended else None

    def read_fragment(self, fragment: JSON, out: list[Event], *, place: int | None = None) -> None:
        """Take one element of `tool_calls`. place: its index when it names none (whole answers)."""
        if type(fragment) is not dict:
            raise unreadable_response(f"a tool call is {kind_of(fragment)}")
        custom = fragment.get("custom")
        kind = ToolKind.CUSTOM if type(custom) is dict else ToolKind.FUNCTION
        inner = custom if kind is ToolKind.CUSTOM else fragment.get("function")
        if inner is None:
            inner = {}
        elif type(inner) is not dict:
            raise unreadable_response(f"a tool call's function is {kind_of(inner)}")
        call_id, name = fragment.get("id"), inner.get("name")
        call_id = call_id if type(call_id) is str else "" if call_id is None else str(call_id)
        name = name if type(name) is str else ""
        piece = _piece(inner.get("input" if kind is ToolKind.CUSTOM else "arguments"))
        index = fragment.get("index")
        if type(index) is not int:
            index = place
        call = self._find(index, call_id, name)
        if call is None:
            if not (call_id or name or piece.strip()):
                return  # an empty fragment before any call
            call = self._start(kind, index, out)
        call.extra.update(_unknown(fragment, inner, kind))
        if call.ended:
            # Its arguments were complete. Blanks, or the whole of them said again, do not change it.
            if piece.strip() and piece != call.text:
                raise unreadable_response("a tool call goes on after its arguments were complete")
            self._give_extra(call, out)
            return
        self._fill(call, call_id, name, piece, out)

    def read_legacy(self, value: JSON, out: list[Event]) -> None:
        """Take a `function_call`: one call without id and index."""
        self.read_fragment({"index": 0, "function": value}, out)

    def end(self, cut: bool, out: list[Event]) -> None:
        """The choice ends: end all calls. cut: the answer was cut short, so a call may be half."""
        for call in self.calls:
            if not call.ended:
                self._end(call, out, complete=not (cut and not call.is_whole()))

    def end_complete(self, out: list[Event]) -> None:
        """Something else starts: end the calls that are complete, so that what follows need not wait."""
        for call in self.calls:
            if not call.ended and call.is_whole():
                self._end(call, out)

    def has_partial_arguments(self) -> bool:
        """Whether a call's arguments stop in the middle."""
        return any(
            call.kind is ToolKind.FUNCTION and call.text.strip() and not is_object_text(call.text)
            for call in self.calls
        )

    def _find(self, index: int | None, call_id: str, name: str) -> StreamedCall | None:
        """The call that a fragment continues, None when it starts a new one."""
        if index is None:
            if call_id:
                return next((call for call in self.calls if call.call_id == call_id), None)
            call = self._last
        else:
            call = self._by_index.get(index)
        if call is None:
            return None
        # "A new id under the same index is a new call": seen from servers that number all calls 0. Without a
        # name it is one, too, unless the call is still being written (others give each fragment a new id).
        if call_id and call.call_id and call_id != call.call_id and (name or call.is_whole()):
            return None
        # Without ids the name tells: a whole call is followed by the next one.
        if name and call.name and not call_id and (name != call.name or index is None) and call.is_whole():
            return None
        return call

    def _start(self, kind: ToolKind, index: int | None, out: list[Event]) -> StreamedCall:
        self.end_complete(out)
        call = StreamedCall(kind)
        self.calls.append(call)
        if index is None:
            index = max(self._by_index, default=-1) + 1
        self._by_index[index] = self._last = call
        return call

    def _fill(self, call: StreamedCall, call_id: str, name: str, piece: str, out: list[Event]) -> None:
        if call.block < 0:
            call.call_id = call.call_id or call_id
            call.name = call.name or name
            if piece:
                call.pieces.append(piece)
            if call.name:
                call.call_id = call.call_id or self._numbers.next_call_id()
                self._give_extra(call, out)
                call.block = self._numbers.next_block()
                head = ToolHead(call.call_id, call.name, call.kind)
                out.append(BlockStarted(call.block, BlockKind.TOOL_CALL, self._choice, head))
                if call.pieces:
                    out.append(ArgumentsDelta(call.block, call.text))
        elif piece:
            call.pieces.append(piece)
            out.append(ArgumentsDelta(call.block, piece))

    def _end(self, call: StreamedCall, out: list[Event], *, complete: bool = True) -> None:
        if call.block < 0:
            raise unreadable_response("a tool call has no name")
        call.ended = True
        out.append(BlockEnded(call.block, complete))
        self._give_extra(call, out)

    def _give_extra(self, call: StreamedCall, out: list[Event]) -> None:
        """Give the members that we do not know. Before the call if they are there then, else after it."""
        extra = {key: value for key, value in call.extra.items() if call.given.get(key) != value}
        if extra:
            native = {CALL_EXTRAS: {call.call_id: extra}}
            out += signature_events(native, self._choice, self._numbers, self._model)
            call.given.update(extra)
        call.extra.clear()


def signature_events(native: JSONObject, choice: int, numbers: IdAllocator, model: str) -> list[Event]:
    """A block of what its maker alone can read and wants back."""
    block = numbers.next_block()
    seal = SignatureDelta(block, Signature(NAME, native, model))
    return [BlockStarted(block, BlockKind.REASONING, choice), seal, BlockEnded(block)]


def _unknown(fragment: JSONObject, inner: JSONObject, kind: ToolKind) -> JSONObject:
    """The members of a call that the protocol does not have, in the shape in which they stood."""
    known = CUSTOM_SHAPE if kind is ToolKind.CUSTOM else FUNCTION_SHAPE
    if fragment.keys() <= CALL_SHAPE.keys() and inner.keys() <= known.keys():
        return {}
    extra = {key: value for key, value in fragment.items() if key not in CALL_SHAPE and value is not None}
    within = {key: value for key, value in inner.items() if key not in known and value is not None}
    return {**extra, kind.value: within} if within else extra


def _piece(value: JSON) -> str:
    """Arguments as text: some servers send the object itself."""
    if type(value) is str:
        return value
    return "" if value is None else encode_text(value)


def unreadable_response(what: str) -> RemoteProtocolError:
    return RemoteProtocolError(what, status=502)
