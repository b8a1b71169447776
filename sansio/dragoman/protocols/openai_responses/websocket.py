"""Responses over a WebSocket: the events of a stream as messages, one JSON object each.

https://www.openresponses.org/specification and openai-python 3.54.0, lib/responses_websocket, both read 2026-11-22.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from dragoman._ir.losses import Ledger
from dragoman._wire.exceptions import RemoteProtocolError
from dragoman._wire.framing import JSON_SEQUENCE, RECORD_SEPARATOR
from dragoman._wire.json import decode, encode, object_or_none
from dragoman.codec import Endpoint, ResponseContext, WebSocketSpec
from dragoman.protocols._openai.errors import parse_error, write_error
from dragoman.protocols.openai_responses.response_content_out import ResponseBuilder

# The number of a heartbeat until it is among the other events.
_UNNUMBERED = -1

_raw_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def write_heartbeat(context: ResponseContext) -> bytes:
    """Return an event for a client that counts messages, and no pings, as signs of life, as Codex 0.169.0 does.

    It is one of the specification, whose clients refuse unknown ones.
    """
    response = ResponseBuilder(context, Ledger()).response("in_progress")
    event = {"type": "response.in_progress", "sequence_number": _UNNUMBERED, "response": response}
    return RECORD_SEPARATOR + encode(event) + b"\n"


def write_error_message(status: int, body: bytes, headers: Mapping[str, str]) -> bytes:
    """Return the `error` event for an error response. Codex 0.169.0 takes one without `status` for no error."""
    return encode({"type": "error", "status": status, **(object_or_none(body) or {}), "headers": headers})


class ResponsesMessages:
    """See WebSocketWriter.

    A heartbeat before the first event of the response announces it, so that the upstream's own announcement is left
    out, and its id stays the one that was announced. An `error` event waits, because a client takes it for the end of
    the response: it is left out before `response.failed`. Behind either, all events are numbered again.
    """

    def __init__(self) -> None:
        self._count = 0
        self._renumbers = False
        self.response_id: str | None = None
        self._id = b""  # the same as JSON
        self._error = b""

    def send(self, data: bytes) -> list[bytes]:
        messages = [self._message(event.rstrip(b"\n")) for event in data.split(RECORD_SEPARATOR)[1:]]
        return [message for message in messages if message]

    def _message(self, event: bytes) -> bytes:
        """Return the message for an event, b"" for none."""
        # Each Response object has this member.
        if not self._renumbers and b'"error"' not in event:
            self._count += 1
            return event
        try:
            members = _raw_members(event)
            kind, number = (decode(bytes(members.get(name, b"null"))) for name in ("type", "sequence_number"))
        except (msgspec.DecodeError, UnicodeDecodeError, RemoteProtocolError):
            self._count += 1
            return event
        if kind == "error":
            self._error, self._renumbers = event, True
            return b""
        self._error = b""
        changed = self._with_id(members)
        if kind == "response.created" and self._count:
            return b""
        if number == _UNNUMBERED:
            self._renumbers = changed = True
            if not self._count:
                members["type"] = msgspec.Raw(b'"response.created"')
        if self._renumbers:
            members["sequence_number"] = msgspec.Raw(b"%d" % self._count)
        self._count += 1
        return encode(members) if changed or self._renumbers else event

    def end(self) -> list[bytes]:
        value = object_or_none(self._error)
        return [] if value is None else [write_error_message(*write_error(parse_error(value), None), {})]

    def _with_id(self, members: dict[str, msgspec.Raw]) -> bool:
        """Put the announced id into the Response object of an event. Return false if it has it, or there is none."""
        raw = bytes(members.get("response", b"")).strip()
        response = _raw_members(raw) if raw.startswith(b"{") else {}
        if "id" not in response:
            return False
        id = bytes(response["id"])
        if self.response_id is None:
            self._id, self.response_id = id, str(decode(id))
        if id == self._id:
            return False
        response["id"] = msgspec.Raw(self._id)
        members["response"] = msgspec.Raw(encode(response))
        return True


def websocket_at(path: str) -> WebSocketSpec:
    """Return how the protocol is served at a path."""
    endpoint = Endpoint(
        path,
        framing=JSON_SEQUENCE,
        media_type=JSON_SEQUENCE.media_type,
        heartbeat_event=write_heartbeat,
    )
    return WebSocketSpec(endpoint, ResponsesMessages, write_error_message)
