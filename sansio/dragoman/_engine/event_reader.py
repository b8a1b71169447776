"""Events of one upstream stream, pulled one at a time: for those who want events, not another protocol.

Strategy: as in h11, receive_data() only buffers and next_event() reads one event, so nothing is lost when the
third event of a chunk is bad, and exactly one method raises for what the peer did.
"""

from __future__ import annotations

from collections import deque
from enum import Enum
from typing import Final, Literal

from dragoman._ir.event_order import EventOrderChecker, ResponseState
from dragoman._ir.events import Event
from dragoman._ir.losses import Ledger
from dragoman._wire.exceptions import LocalProtocolError, RemoteProtocolError
from dragoman._wire.sse import Frame, SSEParser
from dragoman.codec import ResponseContext, UpstreamSpec


class NeedData(Enum):
    """The type of NEED_DATA."""

    NEED_DATA = "need_data"


NEED_DATA: Final = NeedData.NEED_DATA


class EventReader:
    """Reads one stream of `protocol`.

    Call receive_data() with bytes as they come and receive_eof() at the end; after each, call next_event()
    until it gives NEED_DATA. After Ended or Failed it gives NEED_DATA for ever.
    """

    def __init__(self, protocol: UpstreamSpec, context: ResponseContext) -> None:
        self.losses = Ledger()
        self._sse = SSEParser()
        self._reader = protocol.stream_reader(context, self.losses)
        self._checker = EventOrderChecker()
        self._frames: deque[Frame] = deque()
        self._events: deque[Event] = deque()
        self._eof: Literal["no", "yes", "told"] = "no"
        self._error: RemoteProtocolError | None = None

    def receive_data(self, data: bytes) -> None:
        """Take bytes. Never raises."""
        self._frames.extend(self._sse.receive_data(data))

    def receive_eof(self) -> None:
        """The stream ended. Never raises."""
        self._frames.extend(self._sse.receive_eof())
        self._eof = "yes"

    def next_event(self) -> Event | Literal[NeedData.NEED_DATA]:
        """The next event, or NEED_DATA when more bytes are needed.

        Raises RemoteProtocolError when the peer broke its protocol or ended too early; the stream cannot be
        read on then, and every later call raises the same.
        """
        if self._error is not None:
            raise self._error
        try:
            return self._next()
        except RemoteProtocolError as error:
            self._error = error
            raise

    def _next(self) -> Event | Literal[NeedData.NEED_DATA]:
        while not self._events:
            if self._checker.state in (ResponseState.ENDED, ResponseState.FAILED):
                return NEED_DATA
            if self._frames:
                self._events.extend(self._reader.read(self._frames.popleft()))
            elif self._sse.error is not None:
                raise self._sse.error
            elif self._eof == "yes":
                self._eof = "told"
                self._events.extend(self._reader.eof())
            elif self._eof == "told":
                raise RemoteProtocolError("the stream ended before the answer was complete", status=502)
            else:
                return NEED_DATA
        event = self._events.popleft()
        try:
            self._checker.check(event)
        except LocalProtocolError as error:
            raise RemoteProtocolError(f"the stream breaks its order: {error}", status=502) from None
        return event
