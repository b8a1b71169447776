"""Translate a recorded request and its response again, and find the first difference. Pure."""

import json
import re
from collections.abc import Sequence
from itertools import zip_longest

import msgspec

from dragoman import (
    PROTOCOLS,
    UPSTREAMS,
    ErrorKind,
    Relay,
    RemoteProtocolError,
    RequestRefused,
    RequestTranslator,
    ResponseTranslator,
    WireError,
    peek,
)
from dragoman.codec import Endpoint, ProtocolSpec
from dragoman.jsontext import JSON
from dragoman.sse import Frame, SSEParser
from dragoman_server.proxying.plan import MAX_FAN_OUT
from dragoman_server.proxying.response_reads import is_stream
from dragoman_server.recordings.document import (
    RecordedAttempt,
    Recording,
    RecordingError,
    as_bytes,
    as_text,
    joined,
)
from dragoman_server.relayed.table import rows_at
from dragoman_server.wire.headers import media_type

# What differs from one moment or one secret to the next: times, and signatures that server.secret has signed, also as
# they are in recordings without texts.
_VOLATILE = rb'(?<="completed_at":)\d+|(?:drg|xxx)1\.[\w.=+/-]+'


class Replayed(msgspec.Struct, frozen=True):
    """What a recording becomes now.

    Attributes:
        error: Why the response failed, "" if it did not.
        heartbeat: What the recorded stream may have besides, b"" if it cannot be told from the rest.
    """

    request: bytes
    response: bytes
    error: str
    heartbeat: bytes = b""


class Difference(msgspec.Struct, frozen=True):
    """The first place where the bytes sent now differ from those recorded.

    Attributes:
        where: `request` or `response`.
        event: Its number in a stream, from 0, None in a document.
        pointer: JSON Pointer into the document or the event's data.
        recorded, now: The values there, as JSON; None for a place that is not there.
        kind: The event's name or the type in its data, "" if it has none.
    """

    where: str
    event: int | None
    pointer: str
    recorded: str | None
    now: str | None
    kind: str = ""


def replay(recording: Recording) -> Replayed:
    """Translate the request and the response of the attempt whose response the client got. Raises RecordingError."""
    if rows_at(recording.request.method, recording.request.path):
        raise RecordingError(
            f"requests to {recording.request.path} are relayed as they are, so there is nothing to translate again"
        )
    attempt = attempt_of(recording)
    client, upstream = PROTOCOLS.get(recording.request.protocol), UPSTREAMS.get(attempt.protocol)
    if client is None or upstream is None:
        raise RecordingError(f"unknown protocol: {recording.request.protocol} or {attempt.protocol}")
    endpoint = _endpoint_of(recording, client)
    try:
        capabilities = msgspec.convert(attempt.capabilities, upstream.capabilities)
    except msgspec.ValidationError as error:
        raise RecordingError(f"not a recording: {error}") from None
    translator = RequestTranslator(
        client=client,
        upstream=upstream,
        capabilities=capabilities,
        max_fan_out=MAX_FAN_OUT,
        endpoint=endpoint,
    )
    try:
        body = as_bytes(recording.request.body)
        head = peek(body, endpoint.match(recording.request.path, recording.request.query) or "")
        translated = translator.translate(body, model=attempt.model, request_head=head)
    except (RemoteProtocolError, RequestRefused) as error:
        return Replayed(b"", b"", f"the request is refused now: {error}")
    if translated.fan_out > 1:
        raise RecordingError("a request that is sent once for each choice cannot be replayed")
    context = translated.response_context(
        id=recording.id, now=recording.time, model=recording.model, clock=lambda: recording.time
    )
    pieces = [piece.data for piece in attempt.pieces]
    upstream_streams = is_stream(attempt.response_headers, pieces[0] if pieces else b"")
    streams = endpoint.streams_if(translated.request.stream)
    machine: Relay | ResponseTranslator
    if translated.relayed and upstream_streams == streams:
        machine = Relay(protocol=upstream, context=context, streams=streams)
    else:
        machine = ResponseTranslator(
            client=client,
            upstream=upstream,
            context=context,
            upstream_streams=upstream_streams,
            client_streams=streams,
        )
    sent = []
    for piece in pieces:
        machine.receive_data(piece)
        sent.append(machine.data_to_send())
    if attempt.error is not None:
        machine.fail(WireError(ErrorKind.TRUNCATED, "the connection to the upstream broke"))
    elif recording.response.completed:
        machine.receive_eof()
    sent.append(machine.data_to_send())
    failure = "" if machine.error is None else machine.error.message
    heartbeat = endpoint.heartbeat_for(context)
    is_frame = endpoint.heartbeat_event is not None or heartbeat.endswith(b"\n\n")
    return Replayed(translated.body, b"".join(sent), failure, heartbeat if is_frame else b"")


def _endpoint_of(recording: Recording, client: ProtocolSpec) -> Endpoint:
    """Return where the request came in. Over a WebSocket the path is the same, and the stream is another."""
    websocket, sent = client.websocket, media_type(recording.response.headers)
    if websocket is not None and sent == websocket.endpoint.media_type:
        return websocket.endpoint
    path, query = recording.request.path, recording.request.query
    matching = [endpoint for endpoint in client.endpoints if endpoint.match(path, query) is not None]
    return (matching or client.endpoints)[0]


def attempt_of(recording: Recording) -> RecordedAttempt:
    """Return the attempt whose response the client got: the one that was read last. Raises RecordingError."""
    good = [each for each in recording.attempts if each.status is not None and 200 <= each.status < 300]
    if not good:
        raise RecordingError("no attempt had a response that was translated")
    return max(good, key=lambda attempt: attempt.pieces[-1].at_s if attempt.pieces else 0.0)


def first_difference(recording: Recording, replayed: Replayed) -> Difference | None:
    """Return the first place where the bytes sent now differ from those recorded, or None."""
    sent = as_bytes(attempt_of(recording).body)
    if sent != replayed.request:
        return _difference("request", None, decoded(sent), decoded(replayed.request))
    before, now = joined(recording.response.pieces), replayed.response
    if beat := replayed.heartbeat:
        before, now = before.replace(beat, b""), now.replace(beat, b"")
    before, now = re.sub(_VOLATILE, b"0", before), re.sub(_VOLATILE, b"0", now)
    if not recording.response.completed:
        now = now[: len(before)]  # the client left
    if before == now:
        return None
    if before[:1] == b"{" or now[:1] == b"{":
        return _difference("response", None, decoded(before), decoded(now))
    return _difference_of_streams(frames_of(before), frames_of(now))


def _difference_of_streams(before: Sequence[Frame], now: Sequence[Frame]) -> Difference:
    for number, (old, new) in enumerate(zip_longest(before, now)):
        if old != new:
            found = _difference("response", number, value_of(old), value_of(new))
            return msgspec.structs.replace(found, kind=kind_of(new or old))
    return Difference("response", None, "", None, None)  # only in comments or line ends


def _difference(where: str, event: int | None, before: JSON, now: JSON) -> Difference:
    pointer, before, now = first_unequal(before, now)
    return Difference(where, event, pointer, _shown(before), _shown(now))


def first_unequal(before: JSON, now: JSON) -> tuple[str, JSON, JSON]:
    """Return a JSON Pointer to the first place where two values differ, and both values there."""
    pointer = ""
    while type(before) is type(now) and isinstance(before, (dict, list)) and before != now:
        if isinstance(before, dict):
            names = [name for name in (*before, *now) if before.get(name, _ABSENT) != now.get(name, _ABSENT)]
            step: str | int = names[0]
            before, now = before.get(step, _ABSENT), now.get(step, _ABSENT)
        else:
            shared = min(len(before), len(now))
            step = next((at for at in range(shared) if before[at] != now[at]), shared)
            before = before[step] if step < len(before) else _ABSENT
            now = now[step] if step < len(now) else _ABSENT
        pointer += f"/{str(step).replace('~', '~0').replace('/', '~1')}"
    return pointer, before, now


# In the place of a member that is not there, which null is not.
_ABSENT = object()


def _shown(value: JSON) -> str | None:
    return None if value is _ABSENT else json.dumps(value)


def decoded(data: bytes) -> JSON:
    """Return a JSON text's value, any other text as it is, and a mark for nothing."""
    try:
        return json.loads(data)
    except ValueError:
        return as_text(data) if data else _ABSENT


def value_of(frame: Frame | None) -> JSON:
    """Return the data of an event."""
    return _ABSENT if frame is None else decoded(frame.data)


def kind_of(frame: Frame | None) -> str:
    """Return the type in an event's data."""
    value = value_of(frame)
    return str(value.get("type", "")) if isinstance(value, dict) else ""


def frames_of(stream: bytes) -> list[Frame]:
    """Return the events of a stream."""
    parser = SSEParser()
    return [*parser.receive_data(stream), *parser.receive_eof()]
