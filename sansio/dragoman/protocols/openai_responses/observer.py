"""Observe a relayed Responses stream.

Only the few events that carry the response are decoded. The last one with a number is kept: if the stream breaks off,
the error frames continue the numbering and close the response that was opened.
"""

from __future__ import annotations

from dragoman._ir.losses import Ledger
from dragoman._wire.errors import WireError
from dragoman._wire.json import JSONObject, encode, object_or_none, text_or_none
from dragoman._wire.sse import Frame, encode_frame
from dragoman.codec import RelayObserver, ResponseContext
from dragoman.protocols._openai.errors import parse_error
from dragoman.protocols.openai_responses.errors import error_event, has_error, response_error
from dragoman.protocols.openai_responses.response_content_out import ResponseBuilder
from dragoman.protocols.openai_responses.usage import read_usage

_OPENING_EVENTS = frozenset(("response.created", "response.queued", "response.in_progress"))
_END_EVENTS = frozenset(("response.completed", "response.incomplete"))
_FAILED_END_EVENTS = frozenset(("response.failed", "response.cancelled"))
_FAILURE_EVENTS = _FAILED_END_EVENTS | {"error"}
# Only the events that open and end a response carry it.
END_MARKERS = (b'"response"',)
# Members that are not content: places, labels and padding.
_NO_CONTENT_FIELDS = frozenset(
    (
        *("type", "id", "status", "role", "phase", "sequence_number", "item_id", "obfuscation"),
        *("output_index", "content_index", "summary_index", "annotation_index"),
    )
)
_DECODED_EVENTS = frozenset(name.encode("ascii") for name in _OPENING_EVENTS | _END_EVENTS | _FAILURE_EVENTS)


class ResponsesObserver(RelayObserver):
    """Observes one stream. See RelayObserver."""

    def __init__(self, context: ResponseContext) -> None:
        self._context = context
        self._response: JSONObject | None = None
        self._last_numbered = b""
        self._is_empty = True
        self._unexplained = False  # the response has failed, and an error is to follow that says why

    def observe(self, frame: Frame) -> None:
        self._is_empty = False
        if frame.data.find(b'"sequence_number"') >= 0:
            self._last_numbered = frame.data
        if frame.event and frame.event not in _DECODED_EVENTS:
            self.content_started = self.content_started or _has_content(object_or_none(frame.data) or {})
        else:  # also without an event line: then only the data has the type
            event = object_or_none(frame.data) or _as_clients_read(frame.data) or {}
            if not event:  # a name whose data was cut ends nothing
                return
            kind = text_or_none(event.get("type")) or frame.event.decode("ascii")
            if frame.event == b"error":
                kind = "error"
            response = event.get("response")
            if type(response) is dict:
                self._response = response
                usage = read_usage(response)
                if usage is not None:
                    self.usage = self.usage.updated(usage)
            if kind in _END_EVENTS:
                self.ended = True
            elif (
                kind == "response.failed"
                and self.error is None
                and type(response) is dict
                and not has_error(response)
            ):
                # Azure sends the error behind it (maximhq/bifrost#6419, read 2026-12-01).
                self._unexplained = True
            elif kind in _FAILURE_EVENTS:
                # The error of a failed response is inside of it.
                self.error = self.error or parse_error(event if kind == "error" else event.get("response"))
            elif kind and kind not in _OPENING_EVENTS:  # without a type it is no event of this protocol
                self.content_started = self.content_started or _has_content(event)
            if (kind in _END_EVENTS or kind in _FAILED_END_EVENTS) and type(response) is dict:
                self.stream_finished = not self._unexplained
                self.whole_body = response

    def fail(self, error: WireError) -> bytes:
        """Return an error event and a failed response, numbered on from the relayed events, else from 0."""
        if self._unexplained:
            return b""  # the client has its end
        last = (object_or_none(self._last_numbered) or {}).get("sequence_number")
        number = last + 1 if type(last) is int else 0
        out = b""
        response = self._response
        if response is None:
            response = ResponseBuilder(self._context, Ledger()).response("in_progress")
            if self._is_empty:
                out = _numbered("response.created", number, response)
                number += 1
        failed = self.whole_body = {**response, "status": "failed", "error": response_error(error)}
        out += encode_frame(encode(error_event(error, number)), b"error")
        return out + _numbered("response.failed", number + 1, failed)


def _as_clients_read(data: bytes) -> JSONObject | None:
    """Return the object that lenient clients read from a text with NaN or bytes that are no UTF-8, None for no object.

    Such an event has ended the response for them: nothing may follow it.
    """
    import json  # takes longer to load than a protocol does, and such events are rare

    try:
        value = json.loads(data.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None
    return value if type(value) is dict else None


def _numbered(kind: str, number: int, response: JSONObject) -> bytes:
    event = {"type": kind, "sequence_number": number, "response": response}
    return encode_frame(encode(event), kind.encode("ascii"))


def _has_content(event: JSONObject) -> bool:
    """True if an event has content. Items and their parts are announced empty, except for calls."""
    return any(
        _has_content(value) if type(value) is dict else bool(value)
        for name, value in event.items()
        if name not in _NO_CONTENT_FIELDS
    )
