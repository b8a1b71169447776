"""Events of one upstream stream, pulled one at a time: for callers that need events, not another protocol.

As in h11, receive_data() only buffers and next_event() reads one event, so nothing is lost when the third event of a
chunk is bad, and only one method raises for what the peer did.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from enum import Enum
from typing import Final, Literal

from dragoman._engine.upstream_events import StreamEvents
from dragoman._ir.event_order import OVER
from dragoman._ir.events import Event
from dragoman._ir.losses import Ledger
from dragoman._ir.request import Request
from dragoman._wire.exceptions import RemoteProtocolError
from dragoman._wire.json import too_deep
from dragoman.codec import ResponseContext, UpstreamSpec
from dragoman.protocols import upstream_spec


class _NeedData(Enum):
    NEED_DATA = "need_data"


NEED_DATA: Final = _NeedData.NEED_DATA


class EventReader:
    r"""Reads one stream of an upstream.

    Call receive_data() with bytes as they come and receive_eof() at the end; after each, call next_event() until it
    returns NEED_DATA. After Ended or Failed it always returns NEED_DATA.

    >>> reader = EventReader("openai_chat")
    >>> reader.receive_data(b'data: {"choices":[{"index":0,"delta":{"content":"Hello"}}]}\n\n')
    >>> while (event := reader.next_event()) is not NEED_DATA:
    ...     print(type(event).__name__)
    Started
    BlockStarted
    TextDelta

    Args:
        protocol: the upstream's, by name or by spec.
        context: of the response's request, if it matters, see TranslatedRequest.response_context().

    Attributes:
        losses: What the stream has and events have no field for.
    """

    def __init__(self, protocol: UpstreamSpec | str, context: ResponseContext | None = None) -> None:
        spec = upstream_spec(protocol)
        if context is None:
            request = Request(protocol=spec.name, model="", messages=(), stream=True)
            context = ResponseContext(request=request, id="0", now=0, model="")
        self.losses = Ledger()
        self._stream = StreamEvents(spec, context, self.losses)
        self._unread: deque[Iterator[Event]] = deque()
        self._error: RemoteProtocolError | None = None
        self._name = spec.name

    def __repr__(self) -> str:
        return f"<EventReader {self._name}, {self._stream.checker.state.value}>"

    def receive_data(self, data: bytes) -> None:
        """Buffer bytes. Never raises."""
        self._unread.append(iter(self._stream.receive_data(data)))

    def receive_eof(self) -> None:
        """Mark the end of the stream. Never raises."""
        self._unread.append(self._stream.receive_eof())

    def next_event(self) -> Event | Literal[_NeedData.NEED_DATA]:
        """Return the next event, or NEED_DATA if more bytes are needed.

        Raises RemoteProtocolError if the peer broke its protocol or ended too early. Nothing more can be read then, and
        every later call raises the same exception.
        """
        if self._error is not None:
            raise self._error
        try:
            while self._unread and self._stream.checker.state not in OVER:
                event = next(self._unread[0], None)
                if event is not None:
                    return event
                self._unread.popleft()
        except RemoteProtocolError as error:
            self._error = error
            raise
        except RecursionError:
            self._error = too_deep()
            raise self._error from None
        return NEED_DATA
