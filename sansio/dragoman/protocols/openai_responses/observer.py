"""Watching a relayed Responses stream.

Strategy: only the few events that carry the response are decoded, and of the rest only the last one is kept, for
its number: should the stream break off, the error frames continue the numbering and close the response that
was opened.
"""

from __future__ import annotations

from dragoman._ir.events import Usage
from dragoman._ir.losses import Ledger
from dragoman._wire.errors import WireError
from dragoman._wire.exceptions import RemoteProtocolError
from dragoman._wire.json import JSON, JSONObject, decode, encode
from dragoman._wire.sse import Frame, encode_frame
from dragoman.codec import ResponseContext
from dragoman.protocols.openai_responses.common import text_or_none
from dragoman.protocols.openai_responses.envelope import ResponseBuilder
from dragoman.protocols.openai_responses.errors import error_event, parse_error, response_error
from dragoman.protocols.openai_responses.usage import read_usage

_OPENINGS = frozenset(("response.created", "response.queued", "response.in_progress"))
_ENDS = frozenset(("response.completed", "response.incomplete"))
_FAILED_ENDS = frozenset(("response.failed", "response.cancelled"))
_FAILURES = _FAILED_ENDS | {"error"}
# The events that open and end a response carry it, and no others do.
END_MARKS = (b'"response"',)
# Members that say where content belongs, and padding.
_NO_CONTENT = frozenset(
    (
        *("type", "id", "status", "role", "phase", "sequence_number", "item_id", "obfuscation"),
        *("output_index", "content_index", "summary_index", "annotation_index"),
    )
)
_WATCHED = frozenset(name.encode("ascii") for name in _OPENINGS | _ENDS | _FAILURES)


class ResponsesObserver:
    """Watches one stream. See Tap."""

    def __init__(self, context: ResponseContext) -> None:
        self.usage = Usage()
        self.content_started = False
        self.ended = False
        self.stream_finished = False
        self.error: WireError | None = None
        self.whole_body: JSONObject | None = None
        self._exchange = context
        self._response: JSONObject | None = None
        self._last = b""
        self._count = 0

    def observe(self, frame: Frame) -> None:
        self._count += 1
        self._last = frame.data
        if frame.event and frame.event not in _WATCHED:
            self.content_started = self.content_started or _has_content(_object(frame.data))
        else:  # without an event line, only the data tells
            event = _object(frame.data)
            if not event:  # the name alone ends nothing: the data may be cut
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
            if kind in _ENDS:
                self.ended = True
            elif kind in _FAILURES:
                # A failed response says why inside of it.
                self.error = self.error or parse_error(event if kind == "error" else event.get("response"))
            elif kind and kind not in _OPENINGS:  # without a type it is none of this protocol
                self.content_started = self.content_started or _has_content(event)
            if (kind in _ENDS or kind in _FAILED_ENDS) and type(response) is dict:
                self.stream_finished = True
                self.whole_body = response

    def fail(self, error: WireError) -> bytes:
        """An error event and a failed response, numbered on from what was relayed."""
        number = self._next_number()
        out = b""
        response = self._response
        if response is None:
            response = ResponseBuilder(self._exchange, Ledger()).response("in_progress")
            if not self._count:
                out = _numbered("response.created", number, response)
                number += 1
        failed = self.whole_body = {**response, "status": "failed", "error": response_error(error)}
        out += encode_frame(encode(error_event(error, number)), b"error")
        return out + _numbered("response.failed", number + 1, failed)

    def _next_number(self) -> int:
        number = _object(self._last).get("sequence_number")
        return number + 1 if type(number) is int else self._count


def _numbered(kind: str, number: int, response: JSONObject) -> bytes:
    event = {"type": kind, "sequence_number": number, "response": response}
    return encode_frame(encode(event), kind.encode("ascii"))


def _object(data: bytes) -> JSONObject:
    """A relay does not judge: what is no object says nothing."""
    try:
        value = decode(data)
    except RemoteProtocolError:
        return {}
    return value if type(value) is dict else {}


def _has_content(event: JSONObject) -> bool:
    """Whether an event has content. Items and their parts are added empty, but for calls."""
    return any(_is_content(value) for name, value in event.items() if name not in _NO_CONTENT)


def _is_content(value: JSON) -> bool:
    return _has_content(value) if type(value) is dict else bool(value)
