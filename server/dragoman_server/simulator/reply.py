"""A request in, a reply out: status, headers, and the body as pieces with the time at which each is due.

Strategy: the core reads the request and prints the answer, in whichever protocol was asked; a script says
what is in between. There is no clock and no chance here: the same request always gets the same bytes, ids and
dates included, and times are counted from the moment when the head of the reply is sent.
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
from dragoman._ir.assembly import Fold
from dragoman._transforms.compaction import CompactionStage
from dragoman._transforms.extensions import refuse_server_state
from dragoman.codec import ProtocolSpec, ResponseContext
from dragoman.document import Request
from dragoman.events import (
    ArgumentsDelta,
    Ended,
    Failed,
    ReasoningDelta,
    Started,
    Stopped,
    TextDelta,
)
from dragoman.jsontext import JSONObject, decode_object, encode
from dragoman_server.config.problems import did_you_mean
from dragoman_server.responses import conversation as chain
from dragoman_server.simulator.request import PromptTokens, SimulatedRequest, prompt_tokens
from dragoman_server.simulator.scripts import SIMULATED_MODELS, Setting, SimulatedModel
from dragoman_server.simulator.steps import ConnectionCut, Delay, Step

# All simulated answers were made at this moment: 2026-01-01T00:00:00Z.
MADE_AT = 1_767_225_600

# A name of the upstream in front, as clients of the gateway write it, does not hurt.
_PREFIX = "sim/"
_NAME = re.compile(r"([^@]*)(?:@([0-9]{1,9}(?:\.[0-9]{1,9})?))?")

# The largest numbers that make sense behind `@`: more than a day is no test, and a pace has to divide.
_MOST: Mapping[Setting, int] = {
    Setting.PACE: 1_000_000,
    Setting.SILENCE: 86_400,
    Setting.RETRY_AFTER: 86_400,
}

_JSON_TYPE = ("content-type", "application/json")
_SSE_TYPE = ("content-type", "text/event-stream; charset=utf-8")
# Where each vendor's clients look for the id of the request.
_ID_HEADERS = {"anthropic_messages": "request-id"}


class TimedBytes(NamedTuple):
    """Bytes that are due so many seconds after the head. breaks: behind them the connection breaks."""

    due_s: float
    data: bytes
    breaks: bool = False


@dataclass(frozen=True, slots=True)
class SimulatedReply:
    """delay_s: the head waits so long. The pieces can be taken once."""

    status: int
    headers: list[tuple[str, str]]
    chunks: Iterator[TimedBytes]
    delay_s: float = 0
    error: WireError | None = field(default=None, compare=False)


def reply_to(protocol: str, body: bytes, *, compacts: bool = False) -> SimulatedReply:
    """The reply to a request body of `protocol`. compacts: it came to the path that sums up conversations.

    Never raises for what is in the body.
    """
    spec = PROTOCOLS[protocol]
    token = hashlib.sha256(body).hexdigest()[:24]
    try:
        value = decode_object(body, "the request body")
        token = _token(value)
        request = spec.read_request(value, Signer())
        refuse_server_state(request, spec.server_state_params)
        said = chain.input_items(peek(body)) if compacts else []
    except (RemoteProtocolError, RequestRefused) as error:
        return _refusal(spec, token, error.as_wire_error())
    model, setting = _model_of(request.model)
    if isinstance(model, WireError):
        return _refusal(spec, token, model)
    asked = SimulatedRequest(request, token, setting)
    wire_error = model.refuse(asked)
    if wire_error is not None:
        return _refusal(spec, token, wire_error, setting)
    tokens = prompt_tokens(request)
    context = ResponseContext(
        request, token, MADE_AT, request.model, prompt_tokens=_first_figure(request, tokens)
    )
    pace = setting if model.setting is Setting.PACE else 0
    steps = _dressed(model.script(asked), context, tokens, pace)
    if compacts:
        return _whole(spec, context, _summed_up(steps), lambda body: chain.build_compaction(body, said))
    if request.compact:
        steps = _summed_up(steps)
    if request.stream:
        return SimulatedReply(200, [_SSE_TYPE, _id_header(spec, token)], _streamed(spec, context, steps))
    return _whole(spec, context, steps)


def _token(body: Mapping[str, object]) -> str:
    """What ids derive from: the request, but for whether it is streamed, so that both give the same answer."""
    asked = {key: value for key, value in body.items() if key not in ("stream", "stream_options")}
    return hashlib.sha256(encode(asked)).hexdigest()[:24]


def _model_of(name: str) -> tuple[SimulatedModel | WireError, float]:
    """The model of a name such as `echo@50`, and its number."""
    found = _NAME.fullmatch(name.removeprefix(_PREFIX))
    plain = name.removeprefix(_PREFIX).partition("@")[0]
    model = SIMULATED_MODELS.get(plain)
    if not name:
        return WireError(
            ErrorKind.INVALID_REQUEST, "model is required", code="missing_required_parameter", param="model"
        ), 0
    if model is None:
        shown = "".join(char if char.isprintable() else "?" for char in plain[:100])
        message = f'the simulator has no model "{shown}"{did_you_mean(plain, SIMULATED_MODELS)}'
        return WireError(ErrorKind.NOT_FOUND, message, status=404, code="model_not_found", param="model"), 0
    number = None if found is None or found.group(2) is None else float(found.group(2))
    if found is None or (number is not None and (model.setting is None or number > _MOST[model.setting])):
        takes = "no number"
        if model.setting is not None:
            takes = f"{model.setting.value}, a number from 0 to {_MOST[model.setting]}"
        message = f'the model "{plain}" takes {takes} behind @'
        return WireError(
            ErrorKind.INVALID_REQUEST, message, status=400, code="invalid_value", param="model"
        ), 0
    return model, model.default if number is None else number


def _first_figure(request: Request, tokens: PromptTokens) -> int:
    """What a stream says of the prompt before its end: Messages counts without what a cache had or took."""
    if request.protocol == "anthropic_messages":
        return tokens.total - tokens.cached - tokens.cache_write
    return tokens.total


def _dressed(
    script: Iterator[Step], context: ResponseContext, tokens: PromptTokens, pace: float
) -> Iterator[Step]:
    """The script with start, pace, usage and end. One delta is one token, and in text that is one word."""
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


def _summed_up(steps: Iterator[Step]) -> Iterator[Step]:
    """What the model says as the summary of the conversation."""
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
    """All waits come before the head: a server that answers at once has nothing to send earlier. shape: what is made
    of the body.
    """
    fold = Fold()
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
            fold.send(step)
    body = encode(shape(spec.write_whole(fold.response(), context, Ledger())))
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
    # A protocol may have no 503 or no 529 of its own. Servers in between send them all the same.
    status = error.status or status
    headers = [_JSON_TYPE, _id_header(spec, token), ("content-length", str(len(body)))]
    if error.kind is ErrorKind.RATE_LIMIT:
        headers.append(("retry-after", f"{retry_after:g}"))
    return SimulatedReply(status, headers, iter([TimedBytes(0, body)]), delay, error)


def _id_header(spec: ProtocolSpec, token: str) -> tuple[str, str]:
    return _ID_HEADERS.get(spec.name, "x-request-id"), f"req_{token}"
