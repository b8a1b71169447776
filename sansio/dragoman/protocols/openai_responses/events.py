"""Rewrite the events of a response: numbered without a gap, and about one response, whatever an upstream says.

An upstream's stream may be relayed: then its events name the upstream's response, and may be numbered in another way or
not at all. A stored response begins before its upstream is called, so that a client has its id from the beginning.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from dragoman._wire.errors import WireError
from dragoman._wire.exceptions import RemoteProtocolError
from dragoman._wire.json import JSON, JSONObject, decode, encode, object_or_none
from dragoman._wire.sse import ANY_SIZE, Frame, SSEParser, encode_frame
from dragoman.codec import StoredEventWriter
from dragoman.protocols.openai_responses.errors import error_event

CREATED = "response.created"
# Ends of a stream. A response that was cancelled ends with response.failed, because no event is for that.
_ENDS = frozenset(("response.completed", "response.incomplete", "response.failed", "response.cancelled"))
_NAME = re.compile(r"[a-z_.]+\Z")


class _Numbered(msgspec.Struct):
    sequence_number: int | None = None


_number_of = msgspec.json.Decoder(_Numbered).decode
_members_of = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def read_members(data: bytes) -> dict[str, msgspec.Raw] | None:
    """Return the members of an object as their bytes, None for what is no JSON object."""
    try:
        return _members_of(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        value = object_or_none(data)  # which accepts lone surrogates
        return value and {name: msgspec.Raw(encode(each)) for name, each in value.items()}


def value_of(members: Mapping[str, msgspec.Raw], name: str) -> JSON:
    """Return the value of a member, None if it is missing or cannot be read."""
    try:
        return decode(bytes(members.get(name, b"null")))
    except RemoteProtocolError:
        return None


class EventNumbers:
    """Numbers the events of one response.

    Attributes:
        next: The number of the next event.
        members: What every Response object in them has.
    """

    def __init__(self, first: int = 0, members: Mapping[str, JSON] | None = None) -> None:
        self.next = first
        self.members = {name: msgspec.Raw(encode(value)) for name, value in (members or {}).items()}

    def passes(self, event: bytes) -> bool:
        """Count an event that stays as it is: with the next number, and neither an error nor with a Response object."""
        if event.find(b'"response"') >= 0 or event.find(b'"error"') >= 0:
            return False
        try:
            if _number_of(event).sequence_number != self.next:
                return False
        except (msgspec.DecodeError, UnicodeDecodeError):
            return False
        self.next += 1
        return True

    def write(self, members: dict[str, msgspec.Raw]) -> bytes:
        """Return an event with the next number."""
        response = bytes(members.get("response", b""))
        if self.members and response.startswith(b"{"):
            members["response"] = msgspec.Raw(encode({**(read_members(response) or {}), **self.members}))
        members["sequence_number"] = msgspec.Raw(b"%d" % self.next)
        self.next += 1
        return encode(members)


class StoredEvents(StoredEventWriter):
    """See StoredEventWriter."""

    def __init__(self, members: JSONObject, first: int = 0) -> None:
        self.members = members
        self.final: JSONObject | None = None
        self._numbers = EventNumbers(first, members)
        # The data is limited already, and a text may have more bytes where it is written than where it was read.
        self._parser = SSEParser(max_event_bytes=ANY_SIZE)

    @property
    def next(self) -> int:
        return self._numbers.next

    def begin(self, response: JSONObject) -> bytes:
        return self._event(CREATED, response)

    def receive(self, data: bytes) -> list[bytes]:
        frames: list[bytes] = []
        for frame in self._parser.receive_data(data):
            if self.final is None and (written := self._written(frame)):
                frames.append(written)
        return frames

    def end(self, response: JSONObject) -> bytes:
        if self.final is not None:
            self._numbers.next -= 1
        self.final = response
        return self._event("response.failed", response)

    def error(self, error: WireError) -> bytes:
        event = error_event(error, 0)
        del event["sequence_number"]
        return encode_frame(encode(event), b"error")

    def _written(self, frame: Frame) -> bytes:
        """Return an event for the log, b"" for one that does not get there."""
        if frame.event and frame.data.find(b"\n") < 0 and self._numbers.passes(frame.data):
            return encode_frame(frame.data, frame.event)
        members = read_members(frame.data)
        if members is None:
            return b""  # such as [DONE], which some servers send
        kind = value_of(members, "type")
        if type(kind) is not str or not _NAME.match(kind):
            kind = frame.event.decode("utf-8", "replace")
        if kind == CREATED:
            return b""  # see begin()
        if kind in _ENDS:
            response = value_of(members, "response")
            if type(response) is not dict:
                return b""
            self.final = {**response, **self.members}
        return encode_frame(self._numbers.write(members), kind.encode())

    def _event(self, kind: str, response: JSONObject) -> bytes:
        members = {"type": msgspec.Raw(encode(kind)), "response": msgspec.Raw(encode(response))}
        return encode_frame(self._numbers.write(members), kind.encode())
