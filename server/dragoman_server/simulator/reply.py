"""Turn a request into a reply: status, headers, and the body as chunks with the time at which each is due.

The core reads the request and writes the response, in the protocol of the request; a script defines the content. There
is no clock and no randomness: the same request always gets the same bytes, ids and dates included, and times are
counted from when the head of the reply is sent.
"""

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from dragoman import (
    PROTOCOLS,
    ErrorKind,
    Ledger,
    RemoteProtocolError,
    RequestRefused,
    Signer,
    StopReason,
    Usage,
    WireError,
    peek,
)
from dragoman.codec import Fold, ProtocolSpec, ResponseContext
from dragoman.document import Request, refuse_server_state
from dragoman.events import (
    ArgumentsDelta,
    CompactionStage,
    Ended,
    Failed,
    ReasoningDelta,
    Started,
    Stopped,
    TextDelta,
)
from dragoman.jsontext import JSONObject, decode_object, encode
from dragoman_server.config.problems import did_you_mean
from dragoman_server.responses import conversation
from dragoman_server.simulator.request import PromptTokens, SimulatedRequest, prompt_tokens
from dragoman_server.simulator.scripts import SIMULATED_MODELS, Setting, SimulatedModel
from dragoman_server.simulator.steps import ConnectionCut, Delay, Step

# The date of all simulated responses: 2026-01-01T00:00:00Z.
MADE_AT = 1_767_225_600

# Clients of the gateway may put the name of the upstream before the model's.
_PREFIX = "sim/"
_NAME = re.compile(r"([^@]*)(?:@([0-9]{1,9}(?:\.[0-9]{1,9})?))?")

# The largest numbers after `@`: a day, and a pace whose inverse is a useful delay.
_MAX_NUMBERS: Mapping[Setting, int] = {
    Setting.PACE: 1_000_000,
    Setting.SILENCE: 86_400,
    Setting.RETRY_AFTER: 86_400,
}

_JSON_TYPE = ("content-type", "application/json")
_SSE_TYPE = ("content-type", "text/event-stream; charset=utf-8")
# The header in which each vendor's clients expect the id of the request.
_ID_HEADERS = {"anthropic_messages": "request-id"}


class TimedBytes(NamedTuple):
    """Bytes that are due `due_s` seconds after the head. breaks: the connection breaks after them."""

    due_s: float
    data: bytes
    breaks: bool = False


@dataclass(frozen=True, slots=True)
class SimulatedReply:
    """The reply to one request.

    chunks: of the body; they can be iterated once. delay_s: seconds before the head.
    error: the error that the body has, if any.
    """

    status: int
    headers: list[tuple[str, str]]
    chunks: Iterator[TimedBytes]
    delay_s: float = 0
    error: WireError | None = field(default=None, compare=False)


def reply_to(protocol: str, body: bytes, *, compacts: bool = False) -> SimulatedReply:
    """Return the reply to a request body of `protocol`. compacts: it was sent to the path that compacts conversations.

    Nothing in the body makes it raise.
    """
    spec = PROTOCOLS[protocol]
    token = hashlib.sha256(body).hexdigest()[:24]
    try:
        value = decode_object(body, "the request body")
        token = _token(value)
        request = spec.read_request(value, Signer())
        refuse_server_state(request, spec.server_state_params)
        items = conversation.input_items(peek(body)) if compacts else []
    except (RemoteProtocolError, RequestRefused) as error:
        return _refusal(spec, token, error.as_wire_error())
    model, setting = _model_of(request.model)
    if isinstance(model, WireError):
        return _refusal(spec, token, model)
    simulated = SimulatedRequest(request, token, setting)
    wire_error = model.refuse(simulated)
    if wire_error is not None:
        return _refusal(spec, token, wire_error, setting)
    tokens = prompt_tokens(request)
    context = ResponseContext(
        request, token, MADE_AT, request.model, prompt_tokens=_reported_prompt_tokens(request, tokens)
    )
    pace = setting if model.setting is Setting.PACE else 0
    steps = _complete(model.script(simulated), context, tokens, pace)
    if compacts:
        return _whole(
            spec, context, _compacted(steps), lambda body: conversation.build_compaction(body, items)
        )
    if request.compact:
        steps = _compacted(steps)
    if request.stream:
        return SimulatedReply(200, [_SSE_TYPE, _id_header(spec, token)], _streamed(spec, context, steps))
    return _whole(spec, context, steps)


def _token(body: Mapping[str, object]) -> str:
    """Return a hash of the request for ids, without `stream`, so that both ways have the same response."""
    fields = {key: value for key, value in body.items() if key not in ("stream", "stream_options")}
    return hashlib.sha256(encode(fields)).hexdigest()[:24]


def _model_of(name: str) -> tuple[SimulatedModel | WireError, float]:
    """Return the model of a name such as `echo@50`, and its number."""
    found = _NAME.fullmatch(name.removeprefix(_PREFIX))
    plain = name.removeprefix(_PREFIX).partition("@")[0]
    model = SIMULATED_MODELS.get(plain)
    if not name:
        return WireError(
            ErrorKind.INVALID_REQUEST, "model is required", code="missing_required_parameter", param="model"
        ), 0
    if model is None:
        printable = "".join(char if char.isprintable() else "?" for char in plain[:100])
        message = f'the simulator has no model "{printable}"{did_you_mean(plain, SIMULATED_MODELS)}'
        return WireError(ErrorKind.NOT_FOUND, message, status=404, code="model_not_found", param="model"), 0
    number = None if found is None or found.group(2) is None else float(found.group(2))
    if found is None or (
        number is not None and (model.setting is None or number > _MAX_NUMBERS[model.setting])
    ):
        accepted = "no number"
        if model.setting is not None:
            accepted = f"{model.setting.value}, a number from 0 to {_MAX_NUMBERS[model.setting]},"
        message = f'the model "{plain}" accepts {accepted} after @'
        return WireError(
            ErrorKind.INVALID_REQUEST, message, status=400, code="invalid_value", param="model"
        ), 0
    return model, model.default if number is None else number


def _reported_prompt_tokens(request: Request, tokens: PromptTokens) -> int:
    """Return the tokens of the prompt that the start of a stream reports: in Messages without those of the cache."""
    if request.protocol == "anthropic_messages":
        return tokens.total - tokens.cached - tokens.cache_write
    return tokens.total


def _complete(
    script: Iterator[Step], context: ResponseContext, tokens: PromptTokens, pace: float
) -> Iterator[Step]:
    """Add start, pace, usage and end to a script. One delta is one token, and in text that is one word."""
    generated = reasoned = 0
    started = stopped = False
    for step in script:
        if isinstance(step, Delay):
            yield step
            continue
        if not started:
            started = True
            yield Started(context.id, context.model, context.now)
        if isinstance(step, TextDelta | ReasoningDelta | ArgumentsDelta):
            generated += 1
            reasoned += isinstance(step, ReasoningDelta)
            if pace:
                yield Delay(1 / pace)
        elif isinstance(step, Stopped):
            stopped = True
            yield _usage(tokens, generated, reasoned)
        yield step
        if isinstance(step, Failed):
            return
    if not started:
        yield Started(context.id, context.model, context.now)
    if not stopped:
        yield _usage(tokens, generated, reasoned)
        yield Stopped(StopReason.END)
    yield Ended()


def _usage(tokens: PromptTokens, generated: int, reasoned: int) -> Usage:
    return Usage(tokens.total, generated, tokens.cached, tokens.cache_write, reasoned)


def _compacted(steps: Iterator[Step]) -> Iterator[Step]:
    """Turn the text of the model into the summary of the conversation."""
    stage = CompactionStage()
    for step in steps:
        for event in (step,) if isinstance(step, Delay | ConnectionCut) else stage.send(step):
            yield event
            if isinstance(event, Failed):
                return


def _streamed(spec: ProtocolSpec, context: ResponseContext, steps: Iterator[Step]) -> Iterator[TimedBytes]:
    writer = spec.stream_writer(context, Ledger())
    due = 0.0
    breaking = False
    for step in steps:
        if isinstance(step, Delay):
            due += step.seconds
        elif step is ConnectionCut.NO_END:
            return
        elif isinstance(step, ConnectionCut):
            breaking = True
        else:
            data = writer.send(step)
            if data and breaking:
                yield TimedBytes(due, data[: len(data) // 2], breaks=True)
                return
            if data:
                yield TimedBytes(due, data)


def _whole(
    spec: ProtocolSpec,
    context: ResponseContext,
    steps: Iterator[Step],
    shape: Callable[[JSONObject], JSONObject] = lambda body: body,
) -> SimulatedReply:
    """Make a reply that is not streamed. All delays come before its head. shape: changes the body."""
    assembly = Fold()
    delay = 0.0
    cut: ConnectionCut | None = None
    for step in steps:
        if isinstance(step, Delay):
            delay += step.seconds
        elif isinstance(step, ConnectionCut):
            cut = step
        elif isinstance(step, Failed):
            return _refusal(spec, context.id, step.error, delay=delay)
        else:
            assembly.send(step)
    body = encode(shape(spec.write_whole(assembly.response(), context, Ledger())))
    headers = [_JSON_TYPE, _id_header(spec, context.id)]
    if cut is not ConnectionCut.NO_END:
        headers.append(("content-length", str(len(body))))
    if cut is not None:
        body = body[: len(body) // 2]
    return SimulatedReply(
        200, headers, iter([TimedBytes(0, body, breaks=cut is ConnectionCut.MID_FRAME)]), delay
    )


def _refusal(
    spec: ProtocolSpec, token: str, error: WireError, retry_after: float = 0, *, delay: float = 0
) -> SimulatedReply:
    status, body = spec.write_error(error, f"req_{token}")
    # A protocol may have no 503 or 529. Proxies send them all the same.
    status = error.status or status
    headers = [_JSON_TYPE, _id_header(spec, token), ("content-length", str(len(body)))]
    if error.kind is ErrorKind.RATE_LIMIT:
        headers.append(("retry-after", f"{retry_after:g}"))
    return SimulatedReply(status, headers, iter([TimedBytes(0, body)]), delay, error)


def _id_header(spec: ProtocolSpec, token: str) -> tuple[str, str]:
    return _ID_HEADERS.get(spec.name, "x-request-id"), f"req_{token}"
