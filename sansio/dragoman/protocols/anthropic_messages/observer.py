"""Watching a relayed stream.

Strategy: only the frames at both ends of a stream say anything about usage and success, so the deltas,
which are nearly all of it, are told by their event name and not decoded.
"""

from __future__ import annotations

from dragoman._ir.events import Usage
from dragoman._ir.losses import Ledger
from dragoman._wire.errors import WireError
from dragoman._wire.exceptions import RemoteProtocolError
from dragoman._wire.json import JSONObject, decode
from dragoman._wire.sse import Frame
from dragoman.codec import ResponseContext
from dragoman.protocols.anthropic_messages.errors import error_frame, parse_error
from dragoman.protocols.anthropic_messages.usage import UsageReader

_CONTENT = frozenset({b"content_block_delta", b"content_block_start", b"content_block_stop"})
# The members of a start and of a delta that can have content.
_CARRIERS = ("content_block", "delta")


class MessagesObserver:
    """Follows usage and the end of one relayed stream."""

    __slots__ = (
        "_figures",
        "_id",
        "_started",
        "content_started",
        "ended",
        "error",
        "stream_finished",
        "usage",
        "whole_body",
    )

    def __init__(self, context: ResponseContext) -> None:
        self.usage = Usage()
        self.content_started = False
        self.ended = False
        self.stream_finished = False
        self.error: WireError | None = None
        self.whole_body: JSONObject | None = None  # no frame repeats the answer
        self._id = context.id
        self._figures = UsageReader(Ledger())  # a relay loses nothing
        self._started = False

    def observe(self, frame: Frame) -> None:
        """Look at one frame. Never raises."""
        # Servers that leave out the event name are told by the first bytes of the data.
        if frame.event in _CONTENT or b"content_block" in frame.data[:40]:
            self._started = True
            self.content_started = self.content_started or _has_content(frame.data)
            return
        if frame.event == b"ping":
            return
        try:
            value = decode(frame.data)
        except RemoteProtocolError:
            return
        if type(value) is dict:
            self._look(value, "error" if frame.event == b"error" else value.get("type"))

    def _look(self, value: JSONObject, kind: object) -> None:
        if kind == "message_start":
            self._started = True
            message = value.get("message")
            if type(message) is dict:
                self._count(message.get("usage"))
                # A continued answer can be whole in its start.
                self.ended = type(message.get("stop_reason")) is str
        elif kind == "message_delta":
            self._count(value.get("usage"))
            delta = value.get("delta")
            # Some servers send no message_stop: with a stop reason the answer is complete without it.
            if type(delta) is dict and type(delta.get("stop_reason")) is str:
                self.ended = True
        elif kind == "message_stop":
            self.stream_finished = True
            self.ended = self._started
        elif kind == "error":
            self.error = parse_error(value, None)
            self.stream_finished = True

    def _count(self, usage: object) -> None:
        if type(usage) is dict:
            self.usage = self._figures.read(usage)

    def fail(self, error: WireError) -> bytes:
        """The frame that ends a stream which broke off."""
        return error_frame(error, self._id)


def _has_content(data: bytes) -> bool:
    """Whether a frame of a block has content. Blocks are opened empty, but for tools and results."""
    try:
        value = decode(data)
    except RemoteProtocolError:
        return True  # a relay does not judge
    carried = [value.get(name) for name in _CARRIERS] if type(value) is dict else []
    return any(
        any(each for name, each in part.items() if name != "type") for part in carried if type(part) is dict
    )
