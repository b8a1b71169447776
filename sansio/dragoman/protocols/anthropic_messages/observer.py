"""Observe a relayed stream: its usage, its error and its end.

Only the first and last frames have usage and stop reason. Frames of blocks, which are nearly all, are recognized by
their event name and not decoded once content has started.
"""

from __future__ import annotations

from dragoman._ir.losses import Ledger
from dragoman._wire.errors import WireError
from dragoman._wire.exceptions import RemoteProtocolError
from dragoman._wire.json import JSONObject, decode, object_or_none
from dragoman._wire.sse import Frame
from dragoman.codec import RelayObserver, ResponseContext
from dragoman.protocols.anthropic_messages.errors import error_frame, parse_error
from dragoman.protocols.anthropic_messages.usage import UsageReader

_BLOCK_EVENTS = frozenset({b"content_block_delta", b"content_block_start", b"content_block_stop"})

# Members of content_block_start and content_block_delta that hold the content.
_CONTENT_MEMBERS = ("content_block", "delta")


class MessagesObserver(RelayObserver):
    """Observes one relayed stream. For its attributes see `dragoman.codec.RelayObserver`."""

    def __init__(self, context: ResponseContext) -> None:
        self._context = context
        self._started = False
        self._usage_reader = UsageReader(Ledger())  # loses nothing

    def observe(self, frame: Frame) -> None:
        """Read one frame. Never raises."""
        # Some servers leave out the event name; then the first bytes of the data have the type.
        if frame.event in _BLOCK_EVENTS or frame.data.find(b"content_block", 0, 40) >= 0:
            self._started = True
            self.content_started = self.content_started or _has_content(frame.data)
            return
        if frame.event == b"ping":
            return
        value = object_or_none(frame.data)
        if value is not None:
            self._read_event(value, "error" if frame.event == b"error" else value.get("type"))

    def _read_event(self, value: JSONObject, kind: object) -> None:
        if kind == "message_start":
            self._started = True
            message = value.get("message")
            if type(message) is dict:
                self._count(message.get("usage"))
                # A continued response can be complete in its start.
                self.ended = type(message.get("stop_reason")) is str
        elif kind == "message_delta":
            self._count(value.get("usage"))
            delta = value.get("delta")
            # Some servers send no message_stop: the stop reason completes the response as well.
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
            self.usage = self._usage_reader.read(usage)

    def fail(self, error: WireError) -> bytes:
        """Return the frame that ends a stream which was cut off."""
        return error_frame(error, self._context.id)


def _has_content(data: bytes) -> bool:
    """Return True if a frame of a block has content. Blocks start empty, except for tools and results."""
    try:
        value = decode(data)
    except RemoteProtocolError:
        return True  # what cannot be decoded is passed on as content
    members = [value.get(name) for name in _CONTENT_MEMBERS] if type(value) is dict else []
    return any(
        any(field for name, field in member.items() if name != "type")
        for member in members
        if type(member) is dict
    )
