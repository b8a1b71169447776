"""Make the events of a response for its log: numbered without a gap, and about this gateway's response. Pure.

An upstream's stream may be relayed: then its events name the upstream's response, which clients of this gateway cannot
read, and may be numbered in another way. The first event is written before an upstream is called, so that a client has
the id of its response from the beginning.
"""

import re

import msgspec

from dragoman import RemoteProtocolError
from dragoman.jsontext import JSONObject, decode, encode
from dragoman.sse import Frame, SSEParser
from dragoman_server.responses.stores.base import ResponseEvents

# Ends of a stream. A response that was cancelled ends with response.failed, because no event is for that.
_ENDS = frozenset(("response.completed", "response.incomplete", "response.failed", "response.cancelled"))
_CREATED = "response.created"
_NAME = re.compile(r"[a-z_.]+\Z")


class _Numbered(msgspec.Struct):
    sequence_number: int | None = None


_number_of = msgspec.json.Decoder(_Numbered).decode


class ResponseEventWriter:
    """Writes the events of one response.

    Args:
        first: the number of the first event that is written.

    Attributes:
        members: What every Response object in them has.
        next: The number of the next event.
        final: The response that the last event has, None before the end.
    """

    def __init__(self, members: JSONObject, first: int = 0) -> None:
        self.next = first
        self.final: JSONObject | None = None
        self.members = members
        self._parser = SSEParser()

    def begin(self, response: JSONObject) -> ResponseEvents:
        """Return the event that says that the response has begun."""
        return _batch(self.next, [self._frame(_CREATED, {"type": _CREATED, "response": response})])

    def receive(self, data: bytes) -> tuple[ResponseEvents, ResponseEvents]:
        """Take bytes of the stream, and return the events that they complete: those before the last one, and this."""
        first, frames = self.next, list[bytes]()
        for frame in self._parser.receive_data(data):
            if self.final is not None:
                break  # nothing follows the end
            if written := self._written(frame):
                frames.append(written)
        last = frames[-1:] if self.final is not None else []
        before = frames[: len(frames) - len(last)]
        return _batch(first, before), _batch(self.next - len(last), last)

    def end(self, response: JSONObject) -> ResponseEvents:
        """Return the last event, for a response that has failed without one. It replaces an end that is not stored."""
        if self.final is not None:
            self.next -= 1
        self.final = response
        event = {"type": "response.failed", "response": response}
        return _batch(self.next, [self._frame("response.failed", event)])

    def _written(self, frame: Frame) -> bytes:
        """Return an event for the log, b"" for one that does not get there."""
        if b'"response"' not in frame.data and b"\n" not in frame.data and frame.event:
            try:
                if _number_of(frame.data).sequence_number == self.next:
                    self.next += 1
                    return b"event: %b\ndata: %b\n\n" % (frame.event, frame.data)
            except (msgspec.DecodeError, UnicodeDecodeError):
                pass
        try:
            event = decode(frame.data)
        except RemoteProtocolError:
            return b""
        if type(event) is not dict:
            return b""  # such as [DONE], which some servers send
        kind = event.get("type")
        if type(kind) is not str or not _NAME.match(kind):
            kind = frame.event.decode("utf-8", "replace")
        if kind == _CREATED:
            return b""  # see begin()
        response = event.get("response")
        if type(response) is dict:
            event["response"] = response = {**response, **self.members}
            if kind in _ENDS:
                self.final = response
        return self._frame(kind, event)

    def _frame(self, kind: str, event: JSONObject) -> bytes:
        event["sequence_number"] = self.next
        self.next += 1
        return b"event: %b\ndata: %b\n\n" % (kind.encode(), encode(event))


def _batch(first: int, frames: list[bytes]) -> ResponseEvents:
    return ResponseEvents(first, len(frames), b"".join(frames))
