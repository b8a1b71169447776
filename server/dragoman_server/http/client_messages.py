"""Read what clients send over a WebSocket of the Responses API: pure, from the bytes of a message to what it asks for.

https://www.openresponses.org/specification (2026-04-24) and the client events of openai-python 3.54.0.
"""

import re

import msgspec

from dragoman import RemoteProtocolError, RequestRefused, peek
from dragoman.jsontext import JSON, decode, encode

# Members of a `response.create` that are about the connection. No upstream gets them: "Unsupported parameter: type".
# The specification forbids the next three, and Codex 0.169.0 sends `stream` all the same.
_OF_CONNECTION = frozenset(("type", "stream_id", "generate", "stream", "stream_options", "background"))

# What OpenAI's server accepts (openai-python 3.54.0).
_LANE = re.compile(r"[A-Za-z0-9_.-]{1,256}")

# Has nothing to say to a gateway: Codex told its vendor's server with it that it was done with a response.
_IGNORED = "response.processed"


class Create(msgspec.Struct):
    """A `response.create`.

    Attributes:
        body: The body of the request over HTTP.
        lane: Its `stream_id`, None for the default.
        generates: False for a warm-up, which prepares later requests.
        previous: The response that it continues, None if it is a new conversation.
    """

    body: bytes
    lane: str | None
    generates: bool
    previous: str | None


class EventReply(msgspec.Struct, frozen=True):
    """What is sent for a message that starts no request.

    Attributes:
        response: The id of the response that the message is about.
    """

    data: bytes
    response: str


class RefusedMessage(msgspec.Struct, frozen=True):
    """A message that is refused, and leaves everything else as it is."""

    error: RemoteProtocolError | RequestRefused
    lane: str | None = None


def read_message(data: bytes) -> Create | EventReply | RefusedMessage | None:
    """Return what a message asks for, None for nothing. data: its text."""
    lane = None
    try:
        members = _members(data)
        lane = _lane(members)
        kind = _value(members, "type")
        if kind == "response.create":
            return _create(data, lane)
        if kind == _IGNORED:
            return None
        if kind == "response.steer":
            return EventReply(_steering_not_supported(members), str(_value(members, "previous_response_id")))
        shown = repr(kind[:100]) if isinstance(kind, str) else "a message without a type"
        raise RemoteProtocolError(
            f"{shown} is not supported here; send response.create", path="/type", code="unknown_message_type"
        )
    except (RemoteProtocolError, RequestRefused) as error:
        return RefusedMessage(error, lane)


def binary_refusal() -> RefusedMessage:
    """Return what becomes of a message in binary."""
    return RefusedMessage(
        RemoteProtocolError("messages must be text with a JSON object", code="invalid_json")
    )


def _members(data: bytes) -> dict[str, msgspec.Raw]:
    """Return the top level of a message, of which peek() also checks what a request has."""
    try:
        return msgspec.json.decode(data, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return peek(data).fields  # raises for everything but lone surrogates, see there


def _value(members: dict[str, msgspec.Raw], name: str) -> JSON:
    return decode(bytes(members.get(name, b"null")))


def _lane(members: dict[str, msgspec.Raw]) -> str | None:
    lane = _value(members, "stream_id")
    if lane is None or (type(lane) is str and _LANE.fullmatch(lane)):
        return lane
    raise RemoteProtocolError(
        "stream_id must have 1 to 256 letters, digits, underscores, hyphens and dots",
        path="/stream_id",
        code="invalid_stream_id",
    )


def _create(data: bytes, lane: str | None) -> Create:
    head = peek(data)
    members = head.fields
    if _value(members, "background") not in (None, False):
        raise RequestRefused(
            "background is not supported over a WebSocket: send the request by POST /v1/responses",
            path="/background",
            code="unsupported_value",
        )
    generate, previous = _value(members, "generate"), _value(members, "previous_response_id")
    if generate is not None and type(generate) is not bool:
        raise RemoteProtocolError("generate must be a boolean", path="/generate", code="invalid_type")
    kept = [
        b"%b:%b" % (encode(name), bytes(raw)) for name, raw in members.items() if name not in _OF_CONNECTION
    ]
    body = b"{%b}" % b",".join([b'"stream":true', *kept])
    return Create(body, lane, generate is not False, previous if type(previous) is str else None)


def _steering_not_supported(members: dict[str, msgspec.Raw]) -> bytes:
    """Return the event for messages to a running response: clients expect no `error`, and their input back."""
    error = {
        "type": "invalid_request_error",
        "code": "steering_not_supported",
        "message": "this gateway cannot steer a running response: send the input with the next response.create",
    }
    steer = {
        name: members.get(name, msgspec.Raw(default))
        for name, default in (("previous_response_id", b"null"), ("input", b"[]"))
    }
    return encode({"type": "response.steer.failed", "sequence_number": 0, "error": error, "steer": steer})


def with_lane(event: bytes, lane: str | None) -> bytes:
    """Return an event with its lane. A lane whose events have no `stream_id` waits for ever: openai-python 3.54.0
    gives them to the default lane.
    """
    return event if lane is None else b'{"stream_id":"%b",%b' % (lane.encode("ascii"), event.lstrip()[1:])
