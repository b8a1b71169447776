"""The bytes of an upstream's response, read as events in their legal order: one place for pull and push.

ResponseTranslator passes the events on as they come, and EventReader returns them one by one. The generators read
nothing ahead, so the events before a broken frame come before its error. Callers read no further after Ended or Failed:
a generator that goes on at the end of the bytes reports a response that is not complete.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from dragoman._ir.event_order import EventOrderChecker
from dragoman._ir.events import ArgumentsDelta, Event, ReasoningDelta, Started, TextDelta, Usage
from dragoman._ir.fast_path import Delta, FastPath
from dragoman._ir.losses import Ledger
from dragoman._wire.exceptions import RemoteProtocolError, unreadable_response
from dragoman._wire.json import MAX_DOCUMENT_BYTES, decode_object
from dragoman._wire.sse import SSEParser, parse_raw_event
from dragoman.codec import ResponseContext, UpstreamSpec

# Returns what takes the texts of deltas like this one, None if the client does not get them.
TextSenderFor = Callable[[Delta], Callable[[list[str]], object] | None]

_FIGURES_FIRST: dict[type[Event], int] = {Started: 0, Usage: 1}


class TruncatedResponse(RemoteProtocolError):
    """The upstream's response ended before it was complete."""


class StreamEvents:
    """Reads one stream.

    Its generators raise RemoteProtocolError for what cannot be read, and nothing can be read after that.

    Args:
        upstream: the upstream's protocol.
        context: of the response's request.
        losses: where losses are recorded.

    Attributes:
        checker: Of the order of the events.
    """

    def __init__(self, upstream: UpstreamSpec, context: ResponseContext, losses: Ledger) -> None:
        self.checker = EventOrderChecker(unreadable_response)
        self._sse = SSEParser()
        self._reader = upstream.stream_reader(context, losses)
        self._fast_path = FastPath()

    def receive_data(self, data: bytes, text_sender_for: TextSenderFor | None = None) -> Iterator[Event]:
        """Give the events that these bytes complete.

        With `text_sender_for`, most deltas take the fast path: their texts go to what it returned for a delta like
        them, which was checked and sent.
        """
        fast_path, check = self._fast_path, self.checker.check
        frames, position = self._sse.receive_frames(data), 0
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
            fast_path.reset()
            events = self._reader.read(frame)
            for event in events:
                check(event)
                yield event
            if text_sender_for is not None and len(events) == 1 and fast_path.should_learn():
                self._learn(raw_event, events[0], text_sender_for)
        if self._sse.error is not None:
            raise self._sse.error

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
            for event in events:
                self.checker.check(event)
                yield event
        try:
            events = self._reader.eof()
        except RemoteProtocolError as error:
            raise TruncatedResponse(error.message, status=error.status, code=error.code) from None
        for event in events:
            self.checker.check(event)
            yield event
        raise TruncatedResponse("the upstream's response ended before it was complete", status=502)

    def _learn(self, raw_event: bytes, event: Event, text_sender_for: TextSenderFor) -> None:
        if isinstance(event, (TextDelta, ReasoningDelta, ArgumentsDelta)):
            template = self._reader.template_for(event)
            send = None if template is None else text_sender_for(event)
            if template is not None and send is not None:
                self._fast_path.learn_from(raw_event, event.text, template, send)


class WholeEvents:
    """Reads one response that is one JSON document, with the methods of StreamEvents: all events come at the end."""

    def __init__(self, upstream: UpstreamSpec, context: ResponseContext, losses: Ledger) -> None:
        self._upstream = upstream
        self._context = context
        self._losses = losses
        self._body: list[bytes] = []
        self._body_bytes = 0

    def receive_data(self, data: bytes, text_sender_for: TextSenderFor | None = None) -> Iterator[Event]:
        """Buffer bytes. Raises RemoteProtocolError if they are too many."""
        self._body_bytes += len(data)
        if self._body_bytes > MAX_DOCUMENT_BYTES:
            self._body.clear()
            raise unreadable_response(f"it has more than {MAX_DOCUMENT_BYTES} bytes")
        self._body.append(data)
        yield from ()

    def receive_eof(self) -> Iterator[Event]:
        """Give all events."""
        body = b"".join(self._body)
        self._body.clear()
        events = self._upstream.read_whole(decode_object(body, "it"), self._context, self._losses)
        if self._context.undo.stop_sequences:
            # It may end at a stop sequence, before its usage, which is here already.
            events = sorted(events, key=lambda event: _FIGURES_FIRST.get(type(event), 2))
        checker = EventOrderChecker(unreadable_response)
        for event in events:
            checker.check(event)
            yield event
        raise TruncatedResponse("the upstream's response is not complete", status=502)
