"""Structured output for upstreams that cannot enforce a schema, or not together with tools.

One pass requests the format in another way, one stage makes the response look as if the upstream supported it. A tool
that the model must call is strictest, but only possible if the client has no tools itself, forbids none and
requests no reasoning with it: in such a conflict the client's settings win. Otherwise the schema is sent as
instructions, and a code fence around the response is stripped. The client never gets a tool that it did not offer.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from dragoman._ir import events
from dragoman._ir.events import EVENTS, BlockKind, Event, StopReason
from dragoman._ir.losses import Ledger
from dragoman._ir.request import Message, Request, ResponseFormat, Text
from dragoman._ir.tools import FunctionTool, ToolChoice
from dragoman._transforms.pass_context import PassContext
from dragoman._wire.json import JSONObject, encode_text
from dragoman.codec import Capabilities

JSON_TOOL = "json_response"

_ANY_OBJECT: JSONObject = {"type": "object"}


def fit_format(request: Request, context: PassContext) -> Request:
    """Return the request with a response format that the upstream supports."""
    form, supported = request.response_format, context.capabilities.structured_output
    reason = "the upstream does not support schemas"
    if form is not None and _is_refused_with_tools(request, context.capabilities):
        supported, reason = "none", "the upstream does not support it together with these tools"
    if form is None or supported == "schema" or (form.schema is None and supported == "object"):
        return request
    ledger, path = context.ledger, form.path
    by_tool = supported == "none" and _can_be_tool_input(request, form, context.capabilities)
    context.undo = msgspec.structs.replace(
        context.undo, strip_code_fence=True, json_tool=JSON_TOOL if by_tool else None
    )
    if by_tool:
        ledger.altered(path, "requested through a forced tool call: the upstream does not support schemas")
        parameters = _ANY_OBJECT if form.schema is None else form.schema
        tool = FunctionTool(
            JSON_TOOL,
            form.description
            or "Give the answer to the user by calling this tool: its input is the whole answer.",
            parameters,
            form.strict,
            path=path,
        )
        choice = ToolChoice("named", JSON_TOOL, path=path)
        return msgspec.structs.replace(request, tools=(tool,), tool_choice=choice, response_format=None)
    ledger.altered(path, f"requested by an instruction: {reason}")
    instruction = Message("system", (Text(_instruction(form), path=path),), path)
    json_mode = ResponseFormat(path=form.path) if supported == "object" else None
    messages = _after_first_system(request.messages, instruction)
    return msgspec.structs.replace(request, messages=messages, response_format=json_mode)


def _is_refused_with_tools(request: Request, capabilities: Capabilities) -> bool:
    choice = request.tool_choice
    accepted = capabilities.format_with_tools
    forced = choice is not None and choice.requires_call
    return bool(request.tools) and (accepted == "no" or (forced and accepted == "not_forced"))


def _can_be_tool_input(request: Request, form: ResponseFormat, capabilities: Capabilities) -> bool:
    """True if the response can be the input of a tool that the model must call."""
    schema = form.schema
    # A forced tool is refused together with reasoning, see `_transforms.unsupported`.
    return (
        capabilities.can_force_tools
        and not request.tools
        and request.tool_choice is None
        and not (request.reasoning is not None and request.reasoning.requests_reasoning)
        and (schema is None or (isinstance(schema, dict) and schema.get("type") == "object"))
    )


def _instruction(form: ResponseFormat) -> str:
    lines = ["Answer with one JSON value and nothing else: no words around it, no code fence."]
    if form.schema is None:
        lines.append("It must be a JSON object.")
    else:
        if form.description:
            lines.append(form.description)
        lines.append(f"It must match this JSON Schema:\n{encode_text(form.schema)}")
    return "\n".join(lines)


def _after_first_system(messages: tuple[Message, ...], instruction: Message) -> tuple[Message, ...]:
    """Insert a message at the head, but after the client's own instructions, so that the cached prefix stays."""
    at = 0
    while at < len(messages) and messages[at].role in ("system", "developer"):
        at += 1
    return (*messages[:at], instruction, *messages[at:])


class JsonToolStage(msgspec.Struct):
    """Turns the input of the requested tool into the text of the response.

    Text that the model wrote in addition to the call waits: it is sent only if the tool was never called, because then
    there is nothing else.
    """

    _tool: str
    _ledger: Ledger
    _call: int | None = None  # the block of the call
    _text_blocks: set[int] = set()
    _held: list[Event] = []

    needs_text = True  # see `_transforms.pipeline`
    kinds = EVENTS

    def send(self, event: Event) -> Sequence[Event]:
        if isinstance(event, events.BlockStarted):
            return self._start(event)
        block = getattr(event, "block", None)
        if block in self._text_blocks:
            self._held.append(event)
            return ()
        if isinstance(event, events.ArgumentsDelta) and block == self._call:
            return (events.TextDelta(event.block, event.text),)
        if isinstance(event, events.Stopped):
            return (*self._release(), self._stop(event))
        if isinstance(event, events.Failed):
            return (*self._release(), event)
        return (event,)

    def _start(self, event: events.BlockStarted) -> Sequence[Event]:
        if event.tool is not None and event.tool.name == self._tool:
            if self._call is not None:
                self._text_blocks.add(event.block)  # a second text: no client of this protocol expects one
                return ()
            self._call = event.block
            return (events.BlockStarted(event.block, BlockKind.TEXT, event.choice),)
        if event.kind is BlockKind.TEXT:
            self._text_blocks.add(event.block)
            self._held.append(event)
            return ()
        return (event,)

    def _release(self) -> Sequence[Event]:
        held, self._held = self._held, []
        self._text_blocks.clear()
        if self._call is None:
            return held
        if held:
            self._ledger.dropped("/content", "the model wrote text in addition to the structured output")
        return ()

    def _stop(self, event: events.Stopped) -> events.Stopped:
        if self._call is not None and event.reason is StopReason.TOOL_USE:
            return msgspec.structs.replace(event, reason=StopReason.END)
        return event


class CodeFenceStage(msgspec.Struct):
    """Strips a code fence around the text of the response."""

    _open: dict[int, _Fence] = {}

    needs_text = True  # see `_transforms.pipeline`
    kinds = EVENTS

    def send(self, event: Event) -> Sequence[Event]:
        if isinstance(event, events.BlockStarted) and event.kind is BlockKind.TEXT:
            self._open[event.block] = _Fence()
        elif isinstance(event, events.TextDelta) and event.block in self._open:
            text = self._open[event.block].feed(event.text)
            return (events.TextDelta(event.block, text),) if text else ()
        elif isinstance(event, events.BlockEnded) and event.block in self._open:
            rest = self._open.pop(event.block).finish()
            return (events.TextDelta(event.block, rest), event) if rest else (event,)
        return (event,)


_FENCE = "```"
# The line of a fence has the name of a language. A longer one is text.
_MAX_FENCE_LINE = 100


class _Fence(msgspec.Struct):
    """Strips a code fence around a text, piece by piece. What waits is not looked at again for each piece."""

    _fenced: bool | None = None  # None: not decided
    _head: str = ""  # the beginning of the text, without blanks before it, until it is decided
    _held: list[str] = []

    def feed(self, text: str) -> str:
        if self._fenced is False:
            return text
        self._held.append(text)
        if self._fenced is None and not self._decide(text):
            return ""
        if self._fenced and not text.strip(_MAY_CLOSE):
            return ""
        text = "".join(self._held)
        self._held.clear()
        if self._fenced:
            certain, rest = _split_close(text)
            self._held.append(rest)
            return certain
        return text

    def _decide(self, text: str) -> bool:
        self._head = head = (self._head + text).lstrip()
        if not head.startswith(_FENCE[: len(head)]):
            self._fenced = False
            return True
        _, newline, rest = head.partition("\n")
        if len(head) < len(_FENCE) or not newline:
            self._fenced = False if len(head) > _MAX_FENCE_LINE else None
            return self._fenced is False
        self._fenced = True
        self._held = [rest]
        return True

    def finish(self) -> str:
        text = "".join(self._held)
        if not self._fenced:
            return text
        certain, rest = _split_close(text)
        return certain + rest.strip().removesuffix(_FENCE)


_MAY_CLOSE = "` \t\r\n"


def _split_close(text: str) -> tuple[str, str]:
    """Return a text without what may be the closing fence, and that."""
    certain = text.rstrip().rstrip("`").rstrip()
    return certain, text[len(certain) :]
