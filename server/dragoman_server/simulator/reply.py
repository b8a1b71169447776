"""Turn a request into a reply: status, headers, and the body as chunks with the time at which each is due.

The core reads the request and writes the response, in the protocol of the request; a script defines the content. There
is no clock and no randomness: the same request always gets the same bytes, ids and dates included, and times are
counted from when the head of the reply is sent.
"""

import hashlib
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import TypeAlias

import msgspec
from msgspec.structs import replace

from dragoman import (
    PROTOCOLS,
    Ledger,
    RemoteProtocolError,
    RequestRefused,
    Signer,
    StopReason,
    Usage,
    WireError,
    peek,
)
from dragoman.codec import Endpoint, Fold, ProtocolSpec, ResponseContext
from dragoman.document import refuse_server_state
from dragoman.events import (
    ArgumentsDelta,
    CompactionStage,
    Ended,
    Event,
    Failed,
    ReasoningDelta,
    Started,
    Stopped,
    TextDelta,
)
from dragoman.jsontext import decode_object, encode
from dragoman_server.responses.conversation import build_compaction, input_items
from dragoman_server.simulator.request import SimulatedRequest
from dragoman_server.simulator.scripts import PACE, ConnectionCut, Delay, Step, model_of

# The date of all simulated responses: 2026-01-01T00:00:00Z.
MADE_AT = 1_767_225_600

# The header in which each vendor's clients expect the id of the request.
_ID_HEADERS = {"anthropic_messages": "request-id"}


# What happens, and how many seconds after the head. A cut is about what follows it.
_Timed: TypeAlias = tuple[float, Event | ConnectionCut]


class TimedBytes(msgspec.Struct, frozen=True):
    """Bytes that are due `due_s` seconds after the head.

    Attributes:
        breaks: The connection breaks after them.
    """

    due_s: float
    data: bytes
    breaks: bool = False


class SimulatedReply(msgspec.Struct, frozen=True):
    """The reply to one request.

    Attributes:
        chunks: The chunks of the body; they can be iterated once.
        delay_s: Seconds before the head.
    """

    status: int
    headers: list[tuple[str, str]]
    chunks: Iterator[TimedBytes]
    delay_s: float = 0


def reply_to(
    protocol: str, body: bytes, *, endpoint: Endpoint | None = None, named: str = "", compacts: bool = False
) -> SimulatedReply:
    """Return the reply to a request body of `protocol`. Nothing in the body makes it raise.

    endpoint: by default the protocol's first one. named: the model that the path names. compacts: the path is the one
    that compacts conversations.
    """
    spec = PROTOCOLS[protocol]
    endpoint = endpoint or spec.endpoints[0]
    token, number = _token(body), 0.0
    try:
        value = decode_object(body, "the request body")
        # Without `stream`, so that both ways have the same ids.
        token = _token(encode({k: v for k, v in value.items() if k not in ("stream", "stream_options")}))
        request = spec.read_request(value, Signer())
        stream = endpoint.streams_if(request.stream)
        request = replace(request, model=named or request.model, stream=stream)
        refuse_server_state(request, spec.server_state_params)
        items = input_items(peek(body)) if compacts else []
        model, number = model_of(request.model)
        simulated = SimulatedRequest(request, token, number)
        script = model.script(simulated)
    except (RemoteProtocolError, RequestRefused) as error:
        return _error_reply(spec, endpoint, token, error.as_wire_error(), number)
    total, cached, written = simulated.prompt_tokens()
    # Only Messages reports the prompt at the start, and it counts only uncached tokens there.
    context = ResponseContext(
        request, token, MADE_AT, request.model, prompt_tokens=total - cached - written, endpoint=endpoint
    )
    usage = Usage(total, 0, cached, written, 0)
    events = _complete(script, context, usage, number if model.setting is PACE else 0)
    if compacts or request.compact:
        events = _compacted(events)
    if request.stream and not compacts:
        head = [("content-type", endpoint.media_type), _id_header(spec, token)]
        return SimulatedReply(200, head, _streamed(spec, context, events))
    fold, cut = Fold(), None
    for due_s, event in events:
        if isinstance(event, ConnectionCut):
            cut = event
        elif isinstance(event, Failed):
            return _error_reply(spec, endpoint, token, event.error, delay_s=due_s)
        else:
            fold.send(event)
    value = spec.write_whole(fold.response(), context, Ledger())
    whole = encode(build_compaction(value, items) if compacts else value)
    return json_reply(200, whole, _id_header(spec, token), delay_s=due_s, cut=cut)


def _token(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:24]


def _complete(
    script: Iterable[Step], context: ResponseContext, usage: Usage, pace: float
) -> Iterator[_Timed]:
    """Add start, usage, end and times to a script. One delta is one token, and in text that is one word."""
    generated = reasoned = 0
    due_s, started = 0.0, False
    for step in chain(script, [Stopped(StopReason.END)]):
        if isinstance(step, Delay):
            due_s += step.seconds
            continue
        if not started:
            started = True
            yield due_s, Started(context.id, context.model, context.now)
        if isinstance(step, TextDelta | ReasoningDelta | ArgumentsDelta):
            generated += 1
            reasoned += isinstance(step, ReasoningDelta)
            due_s += 1 / pace if pace else 0
        if isinstance(step, Stopped):
            yield due_s, replace(usage, output=generated, reasoning=reasoned)
        yield due_s, step
        if isinstance(step, Stopped | Failed):
            break
    yield due_s, Ended()


def _compacted(events: Iterator[_Timed]) -> Iterator[_Timed]:
    """Turn the text of the model into the summary of the conversation."""
    stage = CompactionStage()
    for due_s, event in events:
        made = [event] if isinstance(event, ConnectionCut) else stage.send(event)
        yield from ((due_s, made_event) for made_event in made)


def _streamed(spec: ProtocolSpec, context: ResponseContext, events: Iterator[_Timed]) -> Iterator[TimedBytes]:
    writer = spec.framed_writer(context, Ledger())
    breaks = False
    for due_s, event in events:
        if event is ConnectionCut.NO_END:
            return
        if isinstance(event, ConnectionCut):
            breaks = True
        elif data := writer.send(event):
            yield TimedBytes(due_s, data[: len(data) // 2] if breaks else data, breaks)
            if breaks or isinstance(event, Failed):
                return


def _error_reply(
    spec: ProtocolSpec,
    endpoint: Endpoint,
    token: str,
    error: WireError,
    retry_after: float = 0,
    delay_s: float = 0,
) -> SimulatedReply:
    status, body = spec.write_error(error, f"req_{token}")
    body = endpoint.framing.error_body(body)
    # A protocol may have no 503 or 529. Proxies send them all the same.
    status = error.status or status
    headers = [("retry-after", f"{retry_after:g}")] if status == 429 else []
    return json_reply(status, body, _id_header(spec, token), *headers, delay_s=delay_s)


def _id_header(spec: ProtocolSpec, token: str) -> tuple[str, str]:
    return _ID_HEADERS.get(spec.name, "x-request-id"), f"req_{token}"


def json_reply(
    status: int, body: bytes, *headers: tuple[str, str], delay_s: float = 0, cut: ConnectionCut | None = None
) -> SimulatedReply:
    """Make a reply that is not streamed. delay_s: all that the script waits. A cut is in the middle of the body."""
    head = [("content-type", "application/json"), *headers]
    if cut is not ConnectionCut.NO_END:
        head.append(("content-length", str(len(body))))
    chunk = TimedBytes(0, body if cut is None else body[: len(body) // 2], cut is ConnectionCut.MID_FRAME)
    return SimulatedReply(status, head, iter([chunk]), delay_s)
