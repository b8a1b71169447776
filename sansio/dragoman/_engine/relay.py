"""Same protocol on both sides: the bytes pass unchanged, and a tap watches.

Strategy: whole frames are passed on exactly as they came; an unfinished frame waits for its end. So when the upstream
breaks off, or fails in a line that clients skip, what the client has ends between two frames, and an error in the
protocol's own form can follow. Nothing else is ever added, nothing passes behind the frame that ends the answer, and
nothing is changed but errors with something in them that the client may not see (Exchange.mask). What a tap looks for
(usage, the end, an error) is in the first and the last frames of a stream, so only those are parsed, and the last ones
only when the protocol's end mark comes or the caller asks.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator, Sequence

from dragoman._engine.response import Outcome
from dragoman._ir.events import Event, Failed, Started, Stopped, StopReason, Usage
from dragoman._ir.losses import Ledger
from dragoman._wire.errors import ErrorKind, WireError, unreadable_error
from dragoman._wire.exceptions import RemoteProtocolError
from dragoman._wire.json import MAX_DOCUMENT_BYTES, JSONObject, decode_object
from dragoman._wire.masking import mask_document, mask_error
from dragoman._wire.sse import BOM, MAX_EVENT_BYTES, MAX_IDLE_BYTES, Frame, SSEParser, parse_raw_event
from dragoman._wire.sse import encode_frame as frame_bytes
from dragoman.codec import ResponseContext, UpstreamSpec

# A line ending and the ending of an empty line, LF, CRLF and CR in any mixture. (CRLF after CR begins as
# CR CR; that its LF comes one piece later does no harm.)
_BLANK_LINES = (b"\n\n", b"\n\r\n", b"\n\r", b"\r\r")
_EDGE = 2  # one byte less than the longest of them
# Atomic: one CRLF is not a CR and an LF.
_BLANK_LINE = re.compile(rb"(?>\r\n|\n|\r){2}")

# An event that clients skip, see `_sse.Frame`. It stands at the beginning, or behind a blank line.
_ERROR_LINE = re.compile(rb"(?:\A|\n\r?\n)(error:)")

# Finish, usage and end marker are the last three frames, but for comments.
_LAST_FRAMES = 64
# The last frames are in the last bytes. A frame that is longer than that stands in one piece of its own.
_LAST_BYTES = 16 * 1024
# What comes before the first content: an answer's announcement, which may repeat the request's instructions and tools.
_MOST_OPENING_BYTES = 1024 * 1024


class Relay:
    """One relayed answer. The same methods and attributes as ResponseTranslator.

    Nobody decodes a relayed stream: stop_reason, upstream_model and upstream_id are known for whole answers.

    Args:
        protocol: of both sides.
        exchange: as for ResponseTranslator.
        streams: whether the body is a stream of events. A whole body passes as it comes.
        member: what a whole body must have to be an answer, by default the member that holds the protocol's.
        max_event_bytes: the most that is held of one unfinished event.

    When the outcome is COMPLETED before the upstream's end, its last event has come: close the upstream.
    """

    def __init__(
        self,
        protocol: UpstreamSpec,
        context: ResponseContext,
        *,
        streams: bool = True,
        member: str | None = None,
        max_event_bytes: int = MAX_EVENT_BYTES,
    ) -> None:
        self.losses = Ledger()
        self.outcome = Outcome.OPEN
        self.error: WireError | None = None
        self.usage = Usage()
        self.stop_reason: StopReason | None = None
        self.upstream_model: str | None = None
        self.upstream_id: str | None = None
        self.committed = False
        self._protocol = protocol
        self._exchange = context
        self._tap = protocol.observer(context)
        self._streams = streams
        self._marks = protocol.end_markers
        self._signs = protocol.error_markers
        self._member = member or protocol.output_member
        self._limit = max_event_bytes
        self._held: list[bytes] = []  # bytes after the last blank line
        self._held_bytes = 0
        self._recent: deque[bytes] = deque()  # whole frames that the tap has not seen yet
        self._recent_bytes = 0
        self._opening_bytes = 0  # before it was committed
        self._idle_bytes = 0  # without an event
        self._failing = False  # an error has passed, but not the last frame
        self._edge = b""  # the last bytes that came, for a blank line that is cut in two
        self._body: list[bytes] = []  # a copy of a whole body, for its usage
        self._body_bytes = 0
        self._out: list[bytes] = []
        self._whole: JSONObject | None = None

    def receive_data(self, data: bytes) -> None:
        if self.outcome is not Outcome.OPEN or not data:
            return
        if not self._streams:
            self.committed = True
            self._body_bytes += len(data)
            if self._body_bytes <= MAX_DOCUMENT_BYTES:
                self._body.append(data)
            self._out.append(data)
            return
        whole = self._whole_frames(data)
        if whole:
            if whole.rfind(b"data") >= 0:
                self._idle_bytes = 0
            else:
                self._idle_bytes += len(whole)
                if self._idle_bytes > MAX_IDLE_BYTES:
                    self.fail(
                        unreadable_error(f"more than {MAX_IDLE_BYTES} bytes without a server-sent event")
                    )
                    return
            if self._failing:
                whole = self._behind_an_error(self._without_secrets(whole))
            elif self._may_fail(whole):
                if self._fails_beside(whole):
                    return
                whole = self._up_to_the_end(self._without_secrets(whole))
            else:
                for mark in self._marks:
                    if whole.rfind(mark) >= 0:
                        whole = self._up_to_the_end(whole)
                        break
            self._pass(whole)
        if self._held_bytes > self._limit:
            self.fail(unreadable_error(f"one server-sent event has more than {self._limit} bytes"))

    def receive_eof(self) -> None:
        if self.outcome is not Outcome.OPEN:
            return
        if not self._streams:
            self.outcome = Outcome.COMPLETED
            self._note_whole()
            return
        held = b"".join(self._held)
        if self._fails_beside(held):
            return
        self._look()
        held = self._without_secrets(held)
        self._held = [held]
        rest = SSEParser()
        frames = [*rest.receive_data(held), *rest.receive_eof()]
        # An unfinished frame is passed on behind an end, or if it is one; otherwise the client never sees it.
        trial = self._protocol.observer(self._exchange)
        for frame in frames:
            trial.observe(frame)
        if self._tap.ended or trial.ended or trial.error is not None:
            self._watch(frames)
        self.fail(WireError(ErrorKind.TRUNCATED, "the upstream's answer ended before it was complete"))

    def fail(self, error: WireError) -> None:
        """End the answer with an error, unless the upstream had ended it already: nothing follows an end.

        What is held of an unfinished frame is dropped: it cannot be read.
        """
        if self.outcome is not Outcome.OPEN:
            return
        self._look()
        if self._tap.error is not None:
            self._finish(Outcome.FAILED)
            self.error = mask_error(self._tap.error, self._exchange.mask)
            return
        if self._tap.ended:
            self._finish(Outcome.COMPLETED)
            return
        self._held.clear()
        self.outcome = Outcome.FAILED
        self.error = mask_error(error, self._exchange.mask)
        if self._streams:
            self._out.append(self._tap.fail(self.error))

    def data_to_send(self) -> bytes:
        data = b"".join(self._out)
        self._out.clear()
        return data

    def whole_body(self) -> JSONObject | None:
        """The answer as one document, once it is there: of a stream only where its protocol repeats it at the end."""
        if self._streams:
            self._look()
            return self._tap.whole_body
        return self._whole if self.outcome is Outcome.COMPLETED else None

    def heartbeat(self) -> bytes:
        """Only frames that are whole are ever sent, so a heartbeat never lands inside of one."""
        if not self._streams or self.outcome is not Outcome.OPEN:
            return b""
        self._look()
        if self._tap.ended or self._tap.error is not None:
            return b""
        return (self._exchange.endpoint or self._protocol.endpoints[0]).heartbeat

    def _may_fail(self, frames: bytes) -> bool:
        """Whether one of the frames may be an error. Usually there is none, and no frame has to be parsed."""
        for sign in self._signs:  # noqa: SIM110 -- each read is searched, and a generator costs more than the search
            if frames.rfind(sign) >= 0:  # some times as fast as `in`
                return True
        return False

    def _fails_beside(self, data: bytes) -> bool:
        """Whether an error is in a line that clients skip. Then it ends the stream, in the protocol's own form."""
        if data.rfind(b"\nerror:") < 0 and not data.startswith(b"error:"):
            return False
        found = _ERROR_LINE.search(data)
        if found is None:
            return False
        self._held.clear()
        if found.start(1):
            self._out.append(data[: found.start(1)])
            self._remember(self._out[-1])
        parser, trial = SSEParser(), self._protocol.observer(self._exchange)
        for frame in [*parser.receive_data(data[found.start(1) :]), *parser.receive_eof()][:1]:
            trial.observe(frame)
        self.fail(trial.error or unreadable_error("it has an error without words"))
        return True

    def _without_secrets(self, frames: bytes) -> bytes:
        """Apply the mask to those of the frames that are errors."""
        mask = self._exchange.mask
        if mask is None:
            return frames
        shown = []
        for piece in _cut(frames):
            frame = _frame_of(piece) if self._may_fail(piece) else None
            if frame is not None:
                trial = self._protocol.observer(self._exchange)
                trial.observe(frame)
                # One that is neither content nor what may be the end is none of the protocol's own.
                other = not trial.content_started and not any(mark in piece for mark in self._marks)
                fails = trial.error is not None or frame.event == b"error" or other
                data = mask_document(frame.data, mask) if fails else frame.data
                if data != frame.data:
                    piece = frame_bytes(data.replace(b"\n", b"\ndata: "), frame.event)
            shown.append(piece)
        return b"".join(shown)

    def _end(self) -> None:
        """End at the last frame. What follows it is dropped."""
        self._held.clear()
        self._look()
        if not self._tap.ended and self._tap.error is None:
            self._out.pop()  # an end mark of no answer is no end
        self.fail(WireError(ErrorKind.TRUNCATED, "the upstream's answer ended before it began"))

    def _finish(self, outcome: Outcome) -> None:
        self._out += self._held
        self._held.clear()
        self.outcome = outcome

    def _remember(self, whole: bytes) -> None:
        if not self.committed:
            for piece in filter(None, _pieces(whole)):
                if (frame := parse_raw_event(piece)) is not None:
                    self._watch((frame,))
                    if self._tap.content_started:
                        break
            self._opening_bytes += len(whole)
            # No announcement of an answer is that long.
            self.committed = self.committed or self._opening_bytes > _MOST_OPENING_BYTES
        recent = self._recent
        recent.append(whole)
        self._recent_bytes += len(whole)
        while self._recent_bytes - len(recent[0]) >= _LAST_BYTES:
            self._recent_bytes -= len(recent.popleft())

    def _look(self) -> None:
        """Show the tap the last frames."""
        if self._recent:
            pieces = _last_pieces(b"".join(self._recent), _LAST_FRAMES)
            self._recent.clear()
            self._recent_bytes = 0
            self._watch(frame for piece in pieces if (frame := parse_raw_event(piece)) is not None)

    def _watch(self, frames: Iterable[Frame]) -> None:
        observer = self._tap
        for frame in frames:
            observer.observe(frame)
        self.usage = observer.usage
        if self.error is None and observer.error is not None:
            # The outcome comes at the end: an error may have several frames.
            self.error = mask_error(observer.error, self._exchange.mask)
        self.committed = self.committed or observer.content_started or observer.ended

    def _up_to_the_end(self, whole: bytes) -> bytes:
        """Pass on frames up to the one that ends the answer. Returns the rest if none does: models write marks, too."""
        start = passed = 0
        for end in _frame_ends(whole):
            piece, before, start = whole[start:end], whole[passed:start], end
            if self._may_fail(piece) or any(mark in piece for mark in self._marks):
                self._pass(before)
                self._pass(piece)  # by itself, for _end() may take it back
                passed = end
                self._look()
                if self._tap.stream_finished:
                    self._end()
                    return b""
                if self._tap.error is not None:
                    self._failing = True
                    return self._behind_an_error(whole[end:])
        return whole[passed:]

    def _behind_an_error(self, whole: bytes) -> bytes:
        """The frames that may follow an error: no content, and no other end.

        Some protocols report an error in several frames, with usage and end marks behind it.
        """
        start, passing = 0, b""
        for end in _frame_ends(whole):
            piece, start = whole[start:end], end
            trial = self._protocol.observer(self._exchange)
            for frame in SSEParser().receive_data(piece):
                trial.observe(frame)
            if trial.error is not None or not (trial.content_started or trial.ended):
                passing += piece
            if trial.stream_finished:
                self._pass(passing)
                self._end()
                return b""
        return passing

    def _pass(self, whole: bytes) -> None:
        if whole:
            self._out.append(whole)
            self._remember(whole)

    def _whole_frames(self, data: bytes) -> bytes:
        """All up to the last blank line; the rest is held."""
        if data.endswith(b"\n\n"):  # as most reads do
            whole = b"".join([*self._held, data]) if self._held else data
            self._edge, self._held, self._held_bytes = b"\n\n", [], 0
            return whole
        joined = self._edge + data
        if b"\r" in joined:
            end = max(joined.rfind(blank) + len(blank) if blank in joined else 0 for blank in _BLANK_LINES)
        else:
            end = joined.rfind(b"\n\n") + 2 if b"\n\n" in joined else 0
        end -= len(self._edge)
        self._edge = joined[-_EDGE:]
        if end <= 0:
            self._held.append(data)
            self._held_bytes += len(data)
            return b""
        whole = b"".join([*self._held, data[:end]]) if self._held else data[:end]
        self._held = [data[end:]] if end < len(data) else []
        self._held_bytes = len(data) - end
        return whole

    def _note_whole(self) -> None:
        """Read what a whole answer says. What is no JSON object was cut, and what lacks the member that holds the
        answer is none: the caller who held the bytes back can still tell so. What cannot be read otherwise is the
        client's to judge.
        """
        if self._body_bytes > MAX_DOCUMENT_BYTES:
            return
        try:
            body = b"".join(self._body)
            self._body.clear()
            value = self._whole = decode_object(body, "it")
        except RemoteProtocolError as error:
            self.outcome = Outcome.FAILED
            self.error = unreadable_error(error)
            return
        try:
            events: Sequence[Event] = self._protocol.read_whole(value, self._exchange, Ledger())
        except (RemoteProtocolError, RecursionError):
            events = ()
        for event in events:
            if isinstance(event, Usage):
                self.usage = self.usage.updated(event)
            elif isinstance(event, Started):
                self.upstream_model, self.upstream_id = event.model, event.id
            elif isinstance(event, Stopped) and event.choice == 0:
                self.stop_reason = event.reason
            elif isinstance(event, Failed):
                self.outcome, self.error = Outcome.FAILED, mask_error(event.error, self._exchange.mask)
        if self.error is None and self._member not in value:
            self.outcome = Outcome.FAILED
            self.error = unreadable_error(f"it has no {self._member}")


def _frame_ends(frames: bytes) -> Iterator[int]:
    """Where each of whole frames ends, its blank line included."""
    if b"\r" in frames:
        for blank in _BLANK_LINE.finditer(frames):
            yield blank.end()
        return
    end = frames.find(b"\n\n") + 2
    while end > 1:
        yield end
        end = frames.find(b"\n\n", end) + 2


def _cut(frames: bytes) -> Iterator[bytes]:
    """Split into frames, each with its blank line; the last one may lack it."""
    start = 0
    for end in _frame_ends(frames):
        yield frames[start:end]
        start = end
    if start < len(frames):
        yield frames[start:]


def _frame_of(piece: bytes) -> Frame | None:
    parser = SSEParser()
    return next(iter([*parser.receive_data(piece), *parser.receive_eof()]), None)


def _pieces(frames: bytes) -> list[bytes]:
    """The pieces of whole frames, with LF endings."""
    return (
        SSEParser().receive_raw_events(frames) if b"\r" in frames else frames.removeprefix(BOM).split(b"\n\n")
    )


def _last_pieces(frames: bytes, count: int) -> list[bytes]:
    """The last `count` pieces of whole frames, rarely some more."""
    if b"\r" in frames:
        return _pieces(frames)
    pieces = frames.rsplit(b"\n\n", count)
    return pieces[1:] if len(pieces) > count else pieces
