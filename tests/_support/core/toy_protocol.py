"""A complete small protocol that exists only in tests: the proof that another protocol changes no shared module.

Its stream is one JSON object per frame, `{"e": NAME, ...fields of the event...}`, or an array of several; its
whole response is the folded response as JSON; its request is the request document as JSON. So a test can make any
event or any document appear on the wire, and read back what came out.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec

from dragoman._ir.assembly import AssembledBlock, AssembledResponse
from dragoman._ir.events import (
    ENDED,
    Annotation,
    ArgumentsDelta,
    BlockEnded,
    BlockKind,
    BlockStarted,
    Compacted,
    Ended,
    Event,
    Failed,
    Logprobs,
    Opaque,
    ReasoningDelta,
    SignatureDelta,
    Started,
    Stopped,
    TextDelta,
    Usage,
)
from dragoman._ir.fast_path import Delta, DeltaTemplate, with_texts
from dragoman._ir.losses import Ledger, LossCode, child
from dragoman._ir.parameters import write_params
from dragoman._ir.request import (
    Media,
    Message,
    OpaquePart,
    Reasoning,
    ReasoningConfig,
    Refusal,
    Request,
    ResponseFormat,
    Text,
    ToolCall,
    ToolResult,
)
from dragoman._ir.shape import Setting, Shape, read_members, setting_paths
from dragoman._ir.tools import CustomTool, FunctionTool, HostedTool, Node, ToolChoice
from dragoman._ir.wrapped_signatures import Signer
from dragoman._wire.errors import STATUS_BY_KIND, ErrorKind, WireError, kind_of_status
from dragoman._wire.exceptions import RemoteProtocolError
from dragoman._wire.json import decode, decode_object, encode, wrong_type
from dragoman._wire.sse import Frame, encode_frame
from dragoman.codec import Capabilities, Endpoint, ResponseContext, ToolLimits, UpstreamSpec

EVENTS: dict[str, type[Any]] = {
    "start": Started,
    "block": BlockStarted,
    "text": TextDelta,
    "think": ReasoningDelta,
    "arguments": ArgumentsDelta,
    "signature": SignatureDelta,
    "cite": Annotation,
    "logprobs": Logprobs,
    "done": BlockEnded,
    "opaque": Opaque,
    "compacted": Compacted,
    "usage": Usage,
    "stop": Stopped,
    "end": Ended,
    "fail": Failed,
}
PARTS: dict[str, type[Any]] = {
    "text": Text,
    "refusal": Refusal,
    "media": Media,
    "thought": Reasoning,
    "call": ToolCall,
    "result": ToolResult,
    "opaque": OpaquePart,
}
TOOLS: dict[str, type[Any]] = {"function": FunctionTool, "custom": CustomTool, "hosted": HostedTool}
NAMES = {kind: name for table in (EVENTS, PARTS, TOOLS) for name, kind in table.items()}

# Members of a whole response beside blocks.
WHOLE_NAMES: dict[type[Any], str] = {Opaque: "opaque", Compacted: "compacted"}

PARAMS_WRITTEN: dict[str, str] = {"temperature": "heat", "seed": "dice", "stop": "stop", "n": "n"}
REQUEST_SHAPE: dict[str, Shape] = {
    **dict.fromkeys(("model", "stream", "messages", "tools", "tool_choice", "reasoning")),
    **dict.fromkeys(("response_format", "include_usage", "compact")),
    "heat": Setting("temperature"),
    "dice": Setting("seed"),
    "who": Setting("user"),
    "stop": Setting("stop"),
    "n": Setting("n"),
}
HEARTBEAT = b": toy\n\n"


# Events and documents as JSON


def plain(event: Event) -> dict[str, Any]:
    """One event as it stands on the wire."""
    return {"e": NAMES[type(event)], **msgspec.to_builtins(event)}


def frame_of(event: Event) -> bytes:
    return encode_frame(encode(plain(event)))


def stream_of(events: Sequence[Event]) -> bytes:
    return b"".join(frame_of(event) for event in events)


def event_of(value: Any) -> Event:
    """The event that a JSON value stands for. Raises RemoteProtocolError."""
    try:
        fields = dict(value)
        event: Event = msgspec.convert(fields, EVENTS[fields.pop("e")])
    except (KeyError, TypeError, ValueError, msgspec.ValidationError) as error:
        raise RemoteProtocolError(f"no toy event: {error}", status=502) from None
    return event


def events_of(data: bytes) -> list[Event]:
    """The events of a whole toy stream that we wrote ourselves, comments left out."""
    lines = [part for part in data.split(b"\n\n") if part.startswith(b"data: ")]
    return [event_of(decode(line.removeprefix(b"data: "))) for line in lines]


def _object(table: dict[str, type[Any]], value: Any, path: str, origin: str) -> Any:
    """A part or tool. What its type has no field for is kept as its unknown members."""
    if type(value) is not dict or value.get("t") not in table:
        raise RemoteProtocolError(f"no toy {' or '.join(table)}", path=path, code="invalid_value")
    kind = table[value["t"]]
    known = {key: each for key, each in value.items() if key in kind.__struct_fields__}
    known |= {"path": path}
    if "origin" in kind.__struct_fields__:
        known["origin"] = origin
    extra = {key: each for key, each in value.items() if key not in {"t", "parts", *kind.__struct_fields__}}
    if extra and issubclass(kind, Node):
        known |= {"native": extra, "shape": {}}
    if kind is ToolResult:
        inner = value.get("parts", [])
        parts = tuple(_object(PARTS, each, f"{path}/parts/{at}", origin) for at, each in enumerate(inner))
        return ToolResult(**known, content=parts)
    return msgspec.convert(known, kind)


HIDDEN = frozenset(("path", "native", "before", "shape", "plain_text", "cache", "forged", "rendered"))


def _plain_object(value: Any) -> dict[str, Any]:
    out = {"t": NAMES[type(value)]}
    for name in value.__struct_fields__:
        each = getattr(value, name)
        if name == "content":
            out["parts"] = [_plain_object(part) for part in value.parts]
        elif name not in HIDDEN and each is not None and each != ():
            out[name] = msgspec.to_builtins(each)
    return out


# Requests


def read_request(body: dict[str, Any], signer: Signer, *, name: str) -> Request:
    if type(body.get("model")) is not str:
        raise RemoteProtocolError("model is required", path="/model", code="missing_required_parameter")
    messages = []
    for at, value in enumerate(body.get("messages", [])):
        path = f"/messages/{at}"
        parts = tuple(
            _object(PARTS, part, f"{path}/parts/{index}", name) for index, part in enumerate(value["parts"])
        )
        extra = {key: each for key, each in value.items() if key not in ("role", "parts")} or None
        messages.append(Message(role=value["role"], content=parts, path=path, native=extra, shape={}))
    tools = tuple(_object(TOOLS, tool, f"/tools/{at}", name) for at, tool in enumerate(body.get("tools", [])))
    params, extra = read_members(body, REQUEST_SHAPE, wrong_type)
    return Request(
        protocol=name,
        model=body["model"],
        messages=tuple(messages),
        tools=tools,
        tool_choice=_optional(ToolChoice, body, "tool_choice"),
        stream=bool(body.get("stream")),
        include_usage=bool(body.get("include_usage")),
        compact=bool(body.get("compact")),
        params=params,
        param_paths=setting_paths(REQUEST_SHAPE),
        reasoning=_optional(ReasoningConfig, body, "reasoning"),
        response_format=_optional(ResponseFormat, body, "response_format"),
        extra=extra or None,
    )


def _optional(kind: type[Any], body: dict[str, Any], key: str) -> Any:
    value = body.get(key)
    return None if value is None else msgspec.convert({**value, "path": f"/{key}"}, kind)


def write_request(
    request: Request, capabilities: Capabilities, ledger: Ledger, *, name: str
) -> dict[str, Any]:
    out: dict[str, Any] = {"model": request.model, "messages": []}
    if request.stream:
        out["stream"] = True
    for message in request.messages:
        parts = []
        for part in message.parts:
            if isinstance(part, OpaquePart) and part.origin != name:
                ledger.add(LossCode.UNKNOWN_KIND, part.path, "no counterpart")
                continue
            if isinstance(part, Reasoning) and part.signature is not None and part.signature.origin != name:
                ledger.add(
                    LossCode.FOREIGN_SIGNATURE, child(part.path, "signature"), "only its maker can read it"
                )
                part = msgspec.structs.replace(part, signature=None)
            parts.append(_plain_object(part))
        out["messages"].append({"role": message.role, "parts": parts})
    if request.tools:
        out["tools"] = [_plain_object(tool) for tool in request.tools]
    if request.tool_choice is not None:
        out["tool_choice"] = msgspec.to_builtins(request.tool_choice)
    write_params(request, PARAMS_WRITTEN, {}, out, ledger)
    return out


# Responses


class ToyReader:
    """Accepts any order: the checker judges it."""

    def __init__(self) -> None:
        self._stopped = self._ended = False
        self.texts: list[str] = []  # of all deltas

    def read(self, frame: Frame) -> Sequence[Event]:
        value = decode(frame.data)
        events = [event_of(each) for each in (value if type(value) is list else [value])]
        for event in events:
            if isinstance(event, (TextDelta, ReasoningDelta, ArgumentsDelta)):
                self.texts.append(event.text)
            self._stopped = self._stopped or isinstance(event, Stopped)
            self._ended = self._ended or isinstance(event, (Ended, Failed))
        return events

    def template_for(self, delta: TextDelta | ReasoningDelta | ArgumentsDelta) -> DeltaTemplate | None:
        return DeltaTemplate(b"text", self.texts.extend, b"n", b"pad")

    def eof(self) -> Sequence[Event]:
        if self._ended:
            return []
        if self._stopped:  # as some real servers end: with a reason, without an end event
            return [ENDED]
        raise RemoteProtocolError("the toy stream ended before its end event", status=502)


class ToyWriter:
    def send(self, event: Event) -> bytes:
        return frame_of(event)

    def send_texts(self, delta: Delta, texts: list[str]) -> bytes:
        return b"".join(map(frame_of, with_texts(delta, texts)))


class ToyTap:
    def __init__(self) -> None:
        self.usage = Usage()
        self.content_started = self.ended = self.stream_finished = self._started = False
        self.error: WireError | None = None
        self.whole_body: dict[str, Any] | None = None

    def observe(self, frame: Frame) -> None:
        try:
            event = event_of(decode(frame.data))
        except RemoteProtocolError:
            return
        if isinstance(event, Usage):
            self.usage = self.usage.updated(event)
        self.stream_finished = isinstance(event, Ended)
        self._started = self._started or not self.stream_finished
        self.ended = self.ended or (self._started and isinstance(event, (Stopped, Ended)))
        self.content_started = self.content_started or not isinstance(event, (Started, Usage, Failed, Ended))
        if isinstance(event, Failed):
            self.error = event.error

    def fail(self, error: WireError) -> bytes:
        return frame_of(Failed(error))


def write_whole(response: AssembledResponse, context: ResponseContext, ledger: Ledger) -> dict[str, Any]:
    blocks = [
        {WHOLE_NAMES.get(type(block), "block"): msgspec.to_builtins(block)} for block in response.blocks
    ]
    return {
        "started": msgspec.to_builtins(response.started),
        "blocks": blocks,
        "stops": msgspec.to_builtins(response.stops),
        "usage": msgspec.to_builtins(response.usage),
    }


def read_whole(body: dict[str, Any], context: ResponseContext, ledger: Ledger) -> Sequence[Event]:
    """A body without `stops` is a cut response: no end event is made up for it."""
    if "failed" in body:
        return [Failed(msgspec.convert(body["failed"], WireError))]
    if "started" not in body:
        raise RemoteProtocolError("no toy answer", status=502)
    out: list[Event] = [msgspec.convert(body["started"], Started)]
    for each in body.get("blocks", []):
        if "opaque" in each:
            out.append(msgspec.convert(each["opaque"], Opaque))
        elif "compacted" in each:
            out.append(msgspec.convert(each["compacted"], Compacted))
        else:
            out += events_of_block(msgspec.convert(each["block"], AssembledBlock))
    out.append(msgspec.convert(body.get("usage", {}), Usage))
    stops = msgspec.convert(body.get("stops", []), list[Stopped])
    return [*out, *stops, ENDED] if stops else out


def events_of_block(block: AssembledBlock) -> list[Event]:
    """A folded block as the shortest events that fold to it."""
    number = block.number
    out: list[Event] = [
        BlockStarted(number, block.kind, block.choice, block.tool, block.item_id, block.phase)
    ]
    if block.text:
        calls = block.kind is BlockKind.TOOL_CALL
        out.append(ArgumentsDelta(number, block.text) if calls else TextDelta(number, block.text))
    for at, part in enumerate(block.reasoning):
        out.append(ReasoningDelta(number, part.text, at, part.form))
    if block.signature is not None:
        out.append(SignatureDelta(number, block.signature))
    out += block.annotations
    if block.logprobs:
        out.append(Logprobs(number, list(block.logprobs)))
    return [*out, BlockEnded(number, block.complete)]


# Errors


def read_error(status: int, body: bytes) -> WireError:
    try:
        value = decode_object(body, "the error")["oops"]
        return WireError(ErrorKind(value["kind"]), value["message"], status)
    except (RemoteProtocolError, KeyError, TypeError, ValueError):
        return WireError(kind_of_status(status), f"the upstream answered {status}", status)


def is_native_error(body: bytes) -> bool:
    return body.startswith(b'{"oops":')


def write_error(error: WireError, request_id: str | None) -> tuple[int, bytes]:
    status = STATUS_BY_KIND[error.kind] if error.status is None else error.status
    value = {"kind": error.kind.value, "message": error.message, "param": error.param, "id": request_id}
    return status, encode({"oops": value})


ANY_TOOLS = ToolLimits()


ANY_CONTENT: dict[str, Any] = {
    "cache_mark_form": None,
    "media": frozenset(("image", "file", "audio")),
    "message_members": frozenset(("name",)),
}


def toy(
    name: str = "toy",
    *,
    sequential: bool = False,
    choices: bool = True,
    tools: ToolLimits = ANY_TOOLS,
    returns_signatures: bool = False,
    needs_usage: bool = False,
    path: str = "/toy",
    endpoints: tuple[Endpoint, ...] = (Endpoint("/v1/toy", heartbeat=HEARTBEAT),),
    **habits: Any,
) -> UpstreamSpec:
    """A toy protocol of any name and habits: two of different names are translated, two of one are relayed.

    Unless told otherwise, its clients get no estimates, and what they have no form for is lost to them.
    """
    return UpstreamSpec(
        name=name,
        path=path,
        endpoints=endpoints,
        sequential=sequential,
        choices=choices,
        tool_limits=tools,
        read_request=habits.pop("read_request", partial(read_request, name=name)),
        write_request=habits.pop("write_request", partial(write_request, name=name)),
        stream_reader=lambda context, ledger: ToyReader(),
        stream_writer=lambda context, ledger: ToyWriter(),
        read_whole=read_whole,
        write_whole=write_whole,
        read_error=read_error,
        is_native_error=is_native_error,
        write_error=write_error,
        observer=lambda context: ToyTap(),
        end_markers=(b'"e":"end"',),
        error_markers=(b"error", b'"e":"fail"'),
        output_member="blocks",
        returns_signatures=returns_signatures,
        needs_usage=needs_usage,
        **{**ANY_CONTENT, **habits},
    )


def context_of(*, stream: bool = True, id: str = "abc123", protocol: str = "toy") -> ResponseContext:
    """A response context for a request that does not matter."""
    request = Request(protocol=protocol, model="alias", messages=(), stream=stream, include_usage=False)
    return ResponseContext(request=request, id=id, now=1_790_000_000, model="alias")
