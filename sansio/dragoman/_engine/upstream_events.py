"""The bytes of an upstream's response, read as events in their legal order: one place for pull and push.

ResponseTranslator passes the events on as they come, and EventReader returns them one by one. Nothing is read ahead, so
the events before a broken frame come before its error. Callers read no further after Ended or Failed: a generator that
goes on at the end of the bytes reports a response that is not complete.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec

from dragoman._ir.event_order import OVER, EventOrderChecker
from dragoman._ir.events import (
    DELTAS,
    Annotation,
    BlockEnded,
    BlockStarted,
    Compacted,
    Event,
    Failed,
    Logprobs,
    Opaque,
    SignatureDelta,
    Started,
    Usage,
)
from dragoman._ir.fast_path import DELTA_CHARS, Delta, FastPath
from dragoman._ir.losses import Ledger
from dragoman._wire.exceptions import RemoteProtocolError, unreadable_response
from dragoman._wire.frame_cutter import MAX_EVENT_BYTES
from dragoman._wire.json import MAX_DOCUMENT_BYTES, decode_object
from dragoman._wire.sse import SSEParser, parse_raw_event
from dragoman.codec import ResponseContext, UpstreamSpec

# Returns what takes the texts of deltas like this one, None if the client does not get them.
TextSenderFor = Callable[[Delta], Callable[[list[str]], object] | None]

_BACKSLASH = ord("\\")  # as a number, which is found four times as fast as two bytes
_BLOCK_BYTES = 64  # for which an open block counts, with the events that end it

# The most characters of text in a stream that is translated. Readers, stages and writers keep texts until their block
# ends, or longer: Responses repeats all of them in its last event, and readers accept events up to this size. It is
# sixty times what models write at most.
MAX_TEXT = MAX_EVENT_BYTES
# The most bytes besides texts, of events that have more or gave nothing yet: as many as a whole response may have.
MAX_KEPT_BYTES = MAX_DOCUMENT_BYTES
_DELTAS = frozenset(DELTAS)  # isinstance() of a struct takes ten times as long as to look up its type
_KEPT = frozenset({Annotation, BlockStarted, Compacted, Logprobs, Opaque, SignatureDelta})
# To write a text again takes so many times less, at least, than to translate as many bytes of small events, and so
# does to write again what else is kept.
_TEXT_WEIGHT = 24
_KEPT_WEIGHT = 8

_FIGURES_FIRST: dict[type[Event], int] = {Started: 0, Usage: 1}


class TruncatedResponse(RemoteProtocolError):
    """The upstream's response ended without being complete."""


class _PairJoiner(msgspec.Struct):
    """Joins the two halves of a surrogate pair that a server which counts in UTF-16 has put into two deltas.

    Many JSON parsers refuse half a pair, and texts that are joined after parsing have no character there.

    held: the first halves, as deltas, by block.
    """

    held: dict[int, Delta] = {}

    def join(self, events: Sequence[Event]) -> Sequence[Event]:
        """Return the events with whole pairs, the same object if there is nothing to join."""
        if not self.held and not any(_ends_in_half(event) for event in events):
            return events
        out: list[Event] = []
        for event in events:
            if isinstance(event, BlockEnded) and event.block in self.held:
                out.append(self.held.pop(event.block))
            elif isinstance(event, Failed):
                out += self.held.values()
                self.held.clear()
            elif isinstance(event, DELTAS):
                out += self._take(event)
                continue
            out.append(event)
        return out

    def _take(self, delta: Delta) -> list[Event]:
        """Return what can be passed on with this delta, and hold a first half at its end."""
        replace = msgspec.structs.replace
        held, out = self.held.pop(delta.block, None), list[Event]()
        if held is not None and held == replace(delta, text=held.text):
            text = held.text + delta.text
            delta = replace(
                delta, text=text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
            )
        elif held is not None:  # of another part of the block
            out.append(held)
        if _ends_in_half(delta):
            self.held[delta.block] = replace(delta, text=delta.text[-1])
            delta = replace(delta, text=delta.text[:-1])
        return [*out, delta] if delta.text else out


def _ends_in_half(event: Event) -> bool:
    """True for a delta that ends with the first half of a surrogate pair."""
    return isinstance(event, DELTAS) and "\ud800" <= event.text[-1:] <= "\udbff"


def _too_much_text() -> RemoteProtocolError:
    return unreadable_response(
        f"it has more than {MAX_TEXT} characters, of which each piece counts {DELTA_CHARS} more than it has"
    )


class StreamEvents:
    """Reads one stream.

    Its generators raise RemoteProtocolError for what cannot be read, and nothing can be read after that.

    Args:
        upstream: the upstream's protocol.
        context: of the response's request.
        losses: where losses are recorded.

    Attributes:
        checker: Checks the order of the events.
        chars: Of the texts that took the fast path.
    """

    def __init__(self, upstream: UpstreamSpec, context: ResponseContext, losses: Ledger) -> None:
        self.checker = EventOrderChecker(unreadable_response)
        self._sse = SSEParser()
        self._reader = upstream.stream_reader(context, losses)
        self._fast_path = FastPath()
        self._pairs = _PairJoiner()
        self._quiet_bytes = 0  # of events that gave nothing yet
        self._kept_bytes = 0  # of events that gave more than a text

    @property
    def held_bytes(self) -> int:
        """The bytes that are held of an unfinished event, with those of what the next event may end: events that
        gave nothing yet, open blocks, and what is written again, by what that costs."""
        again = self._fast_path.size // _TEXT_WEIGHT + self._kept_bytes // _KEPT_WEIGHT
        return self._sse.held_bytes + self._quiet_bytes + _BLOCK_BYTES * len(self.checker.open_blocks) + again

    @property
    def chars(self) -> int:
        return self._fast_path.chars

    def receive_data(self, data: bytes, text_sender_for: TextSenderFor | None = None) -> Iterable[Event]:
        """Give the events that these bytes complete.

        With `text_sender_for`, most deltas take the fast path: their texts go to what it returned for a delta like
        them, which was checked and sent.
        """
        frames, position = self._sse.receive_frames(data), 0
        if self._fast_path.learned:
            position = self._fast_path.take(frames, 0)
        error = self._sse.error
        if self._fast_path.size > MAX_TEXT:
            position, error = len(frames), _too_much_text()
        if position == len(frames) and error is None:
            return ()  # as in most reads
        return self._read(frames, position, error, text_sender_for)

    def _read(
        self,
        frames: bytes,
        position: int,
        error: RemoteProtocolError | None,
        text_sender_for: TextSenderFor | None,
    ) -> Iterator[Event]:
        """Give the events of the frames from this place on, then raise the error."""
        fast_path, check, pairs = self._fast_path, self.checker.check, self._pairs
        size = len(frames)
        while position < size:
            if fast_path.learned:
                position = fast_path.take(frames, position)
                if position == size:
                    break
            end = frames.find(b"\n\n", position)
            raw_event, position = frames[position:end], end + 2
            frame = parse_raw_event(raw_event)
            if frame is None:
                continue
            if fast_path.learned:
                fast_path.reset()
            read = events = self._reader.read(frame)
            self._count(raw_event, read)
            if pairs.held or _BACKSLASH in raw_event:  # half a pair can only be an escape
                events = pairs.join(read)
            for event in events:
                check(event)
                yield event
            if (
                text_sender_for is not None
                and events is read
                and (len(events) == 1 or (len(events) == 2 and type(events[0]) is Usage))
                and fast_path.should_learn()
            ):
                self._learn(raw_event, events[-1], text_sender_for, is_last=position == size)
        if error is not None:
            raise error

    def _count(self, raw_event: bytes, read: Sequence[Event]) -> None:
        """Count what an event has given. Raises RemoteProtocolError for too much."""
        size, is_kept = 0, False
        for event in read:
            kind = type(event)
            if kind in _DELTAS:
                size += len(event.text) + DELTA_CHARS  # type: ignore[union-attr]
            elif kind in _KEPT:
                is_kept = True
        if size:
            self._fast_path.size += size
            if self._fast_path.size > MAX_TEXT:
                raise _too_much_text()
        if not read:
            self._quiet_bytes += len(raw_event)
        elif is_kept:
            self._kept_bytes += max(0, len(raw_event) - size)
        else:
            return
        if self._quiet_bytes + self._kept_bytes > MAX_KEPT_BYTES:
            raise unreadable_response(f"it has more than {MAX_KEPT_BYTES} bytes besides its texts")

    def receive_eof(self) -> Iterator[Event]:
        """Give the last events. Raises TruncatedResponse if the response is not complete."""
        tail = self._sse.receive_eof()
        if self._sse.error is not None:
            raise self._sse.error
        if tail:
            try:
                events = self._reader.read(tail[0])
            except RemoteProtocolError:
                events = ()  # cut in the middle of the frame: the end of the stream decides
            for event in self._pairs.join(events):
                self.checker.check(event)
                yield event
        try:
            events = self._reader.eof()
        except RemoteProtocolError as error:
            raise TruncatedResponse(error.message, status=error.status, code=error.code) from None
        for event in self._pairs.join(events):
            self.checker.check(event)
            yield event
        # pi 0.73 goes by the text of an error, and tries again after "ended without": so all of this kind say that.
        raise TruncatedResponse("the upstream's response ended without being complete", status=502)

    def _learn(
        self, raw_event: bytes, event: Event, text_sender_for: TextSenderFor, *, is_last: bool
    ) -> None:
        if isinstance(event, DELTAS):
            template = self._reader.template_for(event)
            if template is None or (is_last and template.counts and template.counts in raw_event):
                return  # the next read will probably have one event as well, which is left to the reader
            send = text_sender_for(event)
            if send is not None:
                self._fast_path.learn_from(raw_event, event.text, template, send)


class WholeEvents(msgspec.Struct):
    """Reads one response that is one JSON document, with the members of StreamEvents: all events come at the end."""

    _upstream: UpstreamSpec
    _context: ResponseContext
    _losses: Ledger
    _body: list[bytes] = []
    held_bytes: int = 0

    chars = 0

    def receive_data(self, data: bytes, text_sender_for: TextSenderFor | None = None) -> Iterable[Event]:
        """Buffer bytes. Raises RemoteProtocolError if they are too many."""
        self.held_bytes += len(data)
        if self.held_bytes > MAX_DOCUMENT_BYTES:
            self._body.clear()
            raise unreadable_response(f"it has more than {MAX_DOCUMENT_BYTES} bytes")
        self._body.append(data)
        return ()

    def receive_eof(self) -> Sequence[Event]:
        """Return all events. Raises TruncatedResponse if the response is not complete."""
        body = b"".join(self._body)
        self._body.clear()
        events = self._upstream.read_whole(decode_object(body, "it"), self._context, self._losses)
        if self._context.undo.stop_sequences:
            # It may end at a stop sequence, before its usage, which is here already.
            events = sorted(events, key=lambda event: _FIGURES_FIRST.get(type(event), 2))
        checker = EventOrderChecker(unreadable_response)
        checker.check(*events)
        if checker.state not in OVER:
            raise TruncatedResponse("the upstream's response is not complete", status=502)
        return events
