"""Same protocol on both sides: the bytes pass unchanged, and an observer watches them.

Whole frames are passed on exactly as they came; an unfinished frame waits for its end. So if the upstream breaks off,
or fails in a line that clients skip, the client's bytes end between two frames, and an error in the protocol's own
form can follow. Nothing else is ever added, nothing passes after the frame that ends the response, and nothing is
changed but errors with a secret in them (ResponseContext.mask). An observer needs the first and the last frames of a
stream (usage, the end, an error), so only those are parsed, and the last ones only after an end marker or if the
caller needs them.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Sequence
from itertools import islice

from dragoman._engine.response_machine import OPEN, Outcome, ResponseMachine
from dragoman._ir.events import Event, Failed, Started, Stopped, Usage
from dragoman._ir.losses import Ledger
from dragoman._wire.errors import ErrorKind, WireError, unreadable_error
from dragoman._wire.exceptions import RemoteProtocolError
from dragoman._wire.frame_cutter import MAX_EVENT_BYTES, FrameCutter, split_frames
from dragoman._wire.framing import reframe
from dragoman._wire.json import MAX_DOCUMENT_BYTES, JSONObject, decode_object
from dragoman._wire.masking import mask_document, mask_error
from dragoman._wire.sse import Frame, encode_frames, parse_frames, parse_raw_event, with_lf
from dragoman.codec import RelayObserver, ResponseContext, UpstreamSpec
from dragoman.protocols import upstream_spec

# Finish, usage and end marker are the last three frames; with several choices each may have a finish.
_LAST_FRAMES = 16
_LAST_RAW_EVENTS = 64  # with the comments between them
# The last frames are in the last bytes. A frame that is longer than that is in its own read.
_LAST_BYTES = 16 * 1024
# Before the first content: the first frames of a response, which may repeat the request's instructions and tools.
_MAX_OPENING_BYTES = 1024 * 1024


class Relay(ResponseMachine):
    r"""Relays one response.

    >>> body = b'{"model":"m","stream":true,"messages":[{"role":"user","content":"Hi"}]}'
    >>> translated = RequestTranslator(client="openai_chat", upstream="openai_chat").translate(body)
    >>> relay = Relay(protocol="openai_chat", context=translated.response_context(id="a1", now=0))
    >>> relay.receive_data(b'data: {"choices":[{"index":0,"delta":{"content":"Hello"}}]}\n\ndata: {"cho')
    >>> relay.data_to_send()
    b'data: {"choices":[{"index":0,"delta":{"content":"Hello"}}]}\n\n'

    Args:
        protocol: of both sides, by name or by spec.
        context: from TranslatedRequest.response_context().
        streams: the body is a stream of events. A whole body passes as it comes.
        member: the member that a whole response always has, by default UpstreamSpec.output_member.
        max_event_bytes: the most bytes that are held of one unfinished event.
        large_bytes: frames beyond it are observed as they come, because their caller knows that this takes long.

    Attributes:
        losses: Always empty.
        stop_reason: None for a stream, which is not decoded.
        upstream_model: None for a stream.
        upstream_id: None for a stream.

    The other attributes are ResponseMachine's.
    """

    def __init__(
        self,
        *,
        protocol: UpstreamSpec | str,
        context: ResponseContext,
        streams: bool = True,
        member: str | None = None,
        max_event_bytes: int = MAX_EVENT_BYTES,
        large_bytes: float = math.inf,
    ) -> None:
        self.losses = Ledger()
        self.outcome = Outcome.OPEN
        self.usage = Usage()
        self._protocol = protocol = upstream_spec(protocol)
        self._context = context
        self._endpoint = context.endpoint or protocol.endpoints[0]
        framing = self._endpoint.framing
        self._frames = None if framing.writer is None or not streams else framing.writer()
        self._observer = protocol.observer(context)
        self._streams = streams
        self._markers = protocol.error_markers + protocol.end_markers
        self._member = member or protocol.output_member
        self._cutter = FrameCutter(max_event_bytes)
        self._recent: deque[bytes] = deque()  # whole frames that the observer has not got yet
        self._recent_bytes = 0
        self._large_bytes = large_bytes
        self._opening_bytes = 0  # before it was committed
        self._failing = False  # an error has passed, but not the last frame
        self._body: list[bytes] = []  # a copy of a whole body, for its usage
        self._body_bytes = 0
        self._out: list[bytes] = []
        self._whole: JSONObject | None = None

    def __repr__(self) -> str:
        return f"<Relay {self._protocol.name}, {self.outcome.value}>"

    def receive_data(self, data: bytes) -> None:
        """Take bytes of the upstream's body."""
        if self.outcome is not OPEN or not data:
            return
        if not self._streams:
            self.committed = True
            self._body_bytes += len(data)
            if self._body_bytes <= MAX_DOCUMENT_BYTES:
                self._body.append(data)
            self._out.append(data)
            return
        whole = self._cutter.receive_data(data)
        if whole:
            if self._failing or _has_any(self._markers, whole):
                self._pass_frames(whole)
            else:
                self._pass(whole)
        if self._cutter.error is not None:
            self.fail(unreadable_error(self._cutter.error))

    @property
    def held_bytes(self) -> int:
        return self._cutter.held_bytes if self._streams else self._body_bytes

    def receive_eof(self) -> None:
        if self.outcome is not Outcome.OPEN:
            return
        if not self._streams:
            self.outcome = Outcome.COMPLETED
            self._note_whole()
            return
        held = self._cutter.take_held()
        if self._fail_in_skipped_line(held):
            return
        self._observe_recent()
        held = self._masked(held)
        self._cutter.hold(held)
        frames = list(parse_frames(held))
        # An unfinished frame is passed on after an end, or if it is one. Otherwise the client does not get it.
        probe = self._probe(frames)
        if self._observer.ended or probe.ended or probe.error is not None:
            self._observe(frames)
        self.fail(WireError(ErrorKind.TRUNCATED, "the upstream's response ended without being complete"))

    def fail(self, error: WireError) -> None:
        """End the response with an error, unless the upstream has ended it already, because nothing follows an end.

        The bytes of an unfinished frame are dropped: it cannot be read.
        """
        if self.outcome is not Outcome.OPEN:
            return
        self._observe_recent()
        end = self._cutter.take_held()
        if self._observer.error is not None:
            self.outcome = Outcome.FAILED
            self.error = mask_error(self._observer.error, self._context.mask)
        elif self._observer.ended:
            self.outcome = Outcome.COMPLETED
        else:
            self.outcome = Outcome.FAILED
            self.error = mask_error(error, self._context.mask)
            end = self._observer.fail(self.error) if self._streams else b""
        if self._frames is not None:
            end = reframe(self._frames, end) + self._frames.eof()
        self._out.append(end)

    def data_to_send(self) -> bytes:
        data = b"".join(self._out)
        self._out.clear()
        return data

    def whole_body(self) -> JSONObject | None:
        """Return the response as one document, of a stream only if its protocol repeats it at the end."""
        if self._streams:
            self._observe_recent()
            return self._observer.whole_body
        return self._whole if self.outcome is Outcome.COMPLETED else None

    def heartbeat(self) -> bytes:
        if not self._streams or self.outcome is not Outcome.OPEN:
            return b""
        self._observe_recent()
        if self._observer.ended or self._observer.error is not None:
            return b""
        return self._endpoint.heartbeat_for(self._context)

    def _pass(self, frames: bytes) -> None:
        """Pass frames on, and keep them for the observer, which gets them directly only before the first content."""
        # In the client's framing here, and not in data_to_send(), because a large frame takes long.
        self._out.append(frames if self._frames is None else reframe(self._frames, frames))
        if not self.committed:
            for frame in parse_frames(frames):
                self._observe((frame,))
                if self._observer.content_started:
                    break
            self._opening_bytes += len(frames)
            # No server sends this much before its first content.
            self.committed = self.committed or self._opening_bytes > _MAX_OPENING_BYTES
        recent = self._recent
        recent.append(frames)
        self._recent_bytes += len(frames)
        while self._recent_bytes - len(recent[0]) >= _LAST_BYTES:
            self._recent_bytes -= len(recent.popleft())
        if len(frames) > self._large_bytes:
            self._observe_recent()

    def _pass_frames(self, frames: bytes) -> None:
        """Pass frames on one by one, up to the one that ends the response. Text may have markers too.

        After an error no content may follow, and no other end, but some protocols report an error in several frames,
        with usage and end markers after it.
        """
        if not self._failing:
            # An end is nearly always the last of many frames.
            first = min(place for marker in self._markers if (place := frames.find(marker)) >= 0)
            plain = FrameCutter().receive_data(frames[:first])
            if plain:
                self._pass(plain)
                frames = frames[len(plain) :]
        for raw_event in split_frames(frames):
            if not (self._failing or _has_any(self._markers, raw_event)):
                self._pass(raw_event)
                continue
            if not self._failing and self._fail_in_skipped_line(raw_event):
                return
            raw_event = self._masked(raw_event)
            if self._failing:
                observer = self._probe(parse_frames(raw_event))
                if observer.error is not None or not (observer.content_started or observer.ended):
                    self._pass(raw_event)
            else:
                observer = self._observer
                self._pass(raw_event)
                self._observe_recent()
                self._failing = observer.error is not None
            if observer.stream_finished:
                self._end()
                return

    def _fail_in_skipped_line(self, raw_event: bytes) -> bool:
        """End the stream if there is an error in a line that clients skip, see `_wire.sse.Frame`. Return True then."""
        line = raw_event.lstrip(b"\r\n")
        frames = list(parse_frames(raw_event)) if line.startswith((b"error:", b"{", b"[")) else []
        if not frames:
            return False
        self._cutter.take_held()
        probe = self._probe(frames)
        self.fail(probe.error or unreadable_error("it has an error without a message"))
        return True

    def _probe(self, frames: Iterable[Frame]) -> RelayObserver:
        """Return another observer, which has read only these frames."""
        probe = self._protocol.observer(self._context)
        for frame in frames:
            probe.observe(frame)
        return probe

    def _masked(self, raw_event: bytes) -> bytes:
        """Apply the mask to a frame that is an error."""
        mask = self._context.mask
        if mask is None or not _has_any(self._protocol.error_markers, raw_event):
            return raw_event
        for frame in parse_frames(raw_event):
            probe = self._probe((frame,))
            # A frame that is neither content nor an end is not defined by the protocol.
            other = not probe.content_started and not _has_any(self._protocol.end_markers, raw_event)
            fails = probe.error is not None or frame.event == b"error" or other
            data = mask_document(frame.data, mask) if fails else frame.data
            if data != frame.data:
                return encode_frames([Frame(frame.event, data)])
        return raw_event

    def _end(self) -> None:
        """End at the last frame. What follows it is dropped."""
        self._cutter.take_held()
        self._observe_recent()
        if not self._observer.ended and self._observer.error is None:
            self._out.pop()  # an end marker without a response is no end
        self.fail(WireError(ErrorKind.TRUNCATED, "the upstream's response ended before it began"))

    def _observe_recent(self) -> None:
        """Pass the last frames to the observer."""
        if self._recent:
            raw_events = with_lf(b"".join(self._recent)).rsplit(b"\n\n", _LAST_RAW_EVENTS)[-_LAST_RAW_EVENTS:]
            self._recent.clear()
            self._recent_bytes = 0
            last = islice(filter(None, map(parse_raw_event, reversed(raw_events))), _LAST_FRAMES)
            self._observe(reversed([*last]))

    def _observe(self, frames: Iterable[Frame]) -> None:
        observer = self._observer
        for frame in frames:
            observer.observe(frame)
        self.usage = observer.usage
        if self.error is None and observer.error is not None:
            # The outcome comes at the end: an error may have several frames.
            self.error = mask_error(observer.error, self._context.mask)
        self.committed = self.committed or observer.content_started or observer.ended

    def _note_whole(self) -> None:
        """Set the attributes from a whole response.

        A body that is no JSON object was cut, and one without `member` or a stop reason is no response: both FAILED,
        for a caller that has held the bytes back. Everything else that cannot be read is passed on.
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
            events: Sequence[Event] = self._protocol.read_whole(value, self._context, Ledger())
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
                self.outcome, self.error = Outcome.FAILED, mask_error(event.error, self._context.mask)
        if self.error is None and self.stop_reason is None and self._member not in value:
            self.outcome = Outcome.FAILED
            self.error = unreadable_error(f"it has no {self._member}")


def _has_any(markers: Iterable[bytes], frames: bytes) -> bool:
    """True if frames may be an error or an end. Usually they are neither, and no frame has to be parsed."""
    for marker in markers:  # noqa: SIM110 -- each read is searched, and a generator costs more than the search
        if frames.find(marker) >= 0:  # several times as fast as `in`
            return True
    return False
