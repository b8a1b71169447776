"""Responses over a WebSocket: the events of a stream as messages, one JSON object each.

https://www.openresponses.org/specification and openai-python 3.54.0, lib/responses_websocket, both read 2026-11-22.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from dragoman._ir.losses import Ledger
from dragoman._wire.framing import JSON_SEQUENCE, RECORD_SEPARATOR
from dragoman._wire.json import encode, object_or_none
from dragoman.codec import Endpoint, ResponseContext, WebSocketSpec
from dragoman.protocols._openai.errors import parse_error, write_error
from dragoman.protocols.openai_responses.events import CREATED, EventNumbers, read_members, value_of
from dragoman.protocols.openai_responses.response_content_out import ResponseBuilder

# The number of a heartbeat until it is among the other events.
_UNNUMBERED = -1


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
    the response: it is left out before `response.failed`.
    """

    def __init__(self) -> None:
        self.response_id: str | None = None
        self._numbers = EventNumbers()
        self._error = b""

    def send(self, data: bytes) -> list[bytes]:
        messages = [self._message(event.rstrip(b"\n")) for event in data.split(RECORD_SEPARATOR)[1:]]
        return [message for message in messages if message]

    def _message(self, event: bytes) -> bytes:
        """Return the message for an event, b"" for none."""
        numbers = self._numbers
        if numbers.passes(event):
            return event
        members = read_members(event)
        if members is None:
            return event
        kind = value_of(members, "type")
        if kind == "error":
            self._error = event
            return b""
        self._error = b""
        if kind == CREATED and numbers.next:
            return b""
        if not numbers.next and value_of(members, "sequence_number") == _UNNUMBERED:
            members["type"] = msgspec.Raw(encode(CREATED))
        if self.response_id is None:
            id = value_of(read_members(bytes(members.get("response", b""))) or {}, "id")
            if type(id) is str:
                self.response_id, numbers.members = id, {"id": msgspec.Raw(encode(id))}
        return numbers.write(members)

    def end(self) -> list[bytes]:
        value = object_or_none(self._error)
        return [] if value is None else [write_error_message(*write_error(parse_error(value), None), {})]


def websocket_at(path: str) -> WebSocketSpec:
    """Return how the protocol is served at a path."""
    endpoint = Endpoint(
        path,
        framing=JSON_SEQUENCE,
        media_type=JSON_SEQUENCE.media_type,
        heartbeat_event=write_heartbeat,
    )
    return WebSocketSpec(endpoint, ResponsesMessages, write_error_message)
