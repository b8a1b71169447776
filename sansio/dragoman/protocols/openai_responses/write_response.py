"""Events -> a Responses stream, and a folded answer -> a Responses body.

Strategy: the order of a stream is "added, deltas, done" at three levels (part, item, response), each level
repeating what the one below said. The writer keeps the constant bytes of the open part's delta frames, so that
a delta costs one encoded string; everything else is built from the finished block by the functions that also
make whole answers. Numbers of events start at 0 and never skip.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from dragoman._ir.assembly import AssembledBlock, AssembledResponse, ReasoningPart
from dragoman._ir.events import (
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
    ReasoningForm,
    Signature,
    SignatureDelta,
    Started,
    Stopped,
    StopReason,
    TextDelta,
    ToolHead,
    ToolKind,
    Usage,
)
from dragoman._ir.losses import Ledger
from dragoman._wire.errors import WireError
from dragoman._wire.json import JSON, JSONObject, encode
from dragoman._wire.sse import encode_frame
from dragoman.codec import ResponseContext
from dragoman.protocols.openai_responses import write_items as items
from dragoman.protocols.openai_responses.envelope import ResponseBuilder, end_status, note_stop
from dragoman.protocols.openai_responses.errors import error_event, response_error
from dragoman.protocols.openai_responses.wire import NAME

_NO_LOGPROBS = b',"logprobs":[]}\n\n'
_END = b"}\n\n"


class ResponsesWriter:
    """Writes one stream. See StreamWriter."""

    def __init__(self, context: ResponseContext, ledger: Ledger) -> None:
        self._exchange = context
        self._ledger = ledger
        self._envelope = ResponseBuilder(context, ledger)
        self._ids = items.ItemIds(context)
        self._sequence = 0
        self._index = 0  # of the open or the next item
        self._output: list[JSON] = []  # the finished items, encoded
        self._usage = Usage()
        self._stop: Stopped | None = None
        self._spoke = False  # whether there was text
        # The open block.
        self._start: BlockStarted | None = None
        self._holds = False  # it is told when it is complete
        self._item_id = ""
        self._texts: list[str] = []
        self._parts: list[ReasoningPart] = []
        self._part: tuple[int, ReasoningForm] | None = None
        self._seal: Signature | None = None
        self._annotations: list[Annotation] = []
        self._logprobs: list[JSON] = []
        # The constant bytes of its delta frames: before the sequence number, up to the text, after it.
        self._head = self._middle = self._tail = b""
        self._tail_once = False  # the tail carries log probabilities of one delta

    def send(self, event: Event) -> bytes:
        kind = type(event)
        if kind is TextDelta or (kind is ArgumentsDelta and not self._holds):
            text: str = event.text  # type: ignore[union-attr]
            self._texts.append(text)
            number = self._sequence
            self._sequence = number + 1
            data = b"%b%d%b%b%b" % (self._head, number, self._middle, encode(text), self._tail)
            if self._tail_once:
                self._tail, self._tail_once = _NO_LOGPROBS, False
            return data
        return _SENDERS[kind](self, event)

    def _frame(self, kind: str, **fields: JSON) -> bytes:
        number = self._sequence
        self._sequence = number + 1
        return encode_frame(encode({"type": kind, "sequence_number": number, **fields}), kind.encode("ascii"))

    def _in_item(self, kind: str, **fields: JSON) -> bytes:
        return self._frame(kind, item_id=self._item_id, output_index=self._index, **fields)

    def _set_delta(self, kind: str, place: str, tail: bytes) -> None:
        """Prepare the delta frames of a part. place: its further index, as JSON members."""
        self._head = f'event: {kind}\ndata: {{"type":"{kind}","sequence_number":'.encode("ascii")
        item_id = encode(self._item_id)
        self._middle = b',"item_id":%b,"output_index":%d%b,"delta":' % (
            item_id,
            self._index,
            place.encode("ascii"),
        )
        self._tail = tail
        self._tail_once = False

    # The answer.

    def _started(self, event: Started) -> bytes:
        self._envelope.started(event)
        response = msgspec.Raw(encode(self._envelope.response("in_progress")))
        return self._frame("response.created", response=response) + self._frame(
            "response.in_progress", response=response
        )

    def _note_usage(self, event: Usage) -> bytes:
        self._usage = self._usage.updated(event)
        return b""

    def _note_stop(self, event: Stopped) -> bytes:
        self._stop = event
        return b""

    def _ended(self, event: Ended) -> bytes:
        stop = self._stop or Stopped(StopReason.END)
        out = b""
        explains = _explains(stop, self._spoke)
        if explains:
            out = self._whole_block(items.refusal_block(-1, stop.explanation or ""))
        note_stop(stop, explains, self._ledger)
        status, reason = end_status(stop)
        response = self._envelope.response(status, output=self._output, usage=self._usage, incomplete=reason)
        return out + self._frame(f"response.{status}", response=response)

    def _failed(self, event: Failed) -> bytes:
        """An error event, then a failed response. The unfinished item is told there alone, as incomplete."""
        out = b""
        if self._sequence == 0:  # clients know no stream that does not begin with response.created
            response = self._envelope.response("in_progress")
            out = self._frame("response.created", response=response)
        elif self._start is not None:
            block = self._block(self._start, False)
            if self._holds and block.tool is not None:
                out = self._client_call(block, block.tool)
            elif not items.is_empty_text(block):
                self._leave_open(block)
        out += encode_frame(encode(error_event(event.error, self._sequence)), b"error")
        self._sequence += 1
        response = _failed_response(self._envelope, event.error, self._output, self._usage)
        return out + self._frame("response.failed", response=response)

    # Items.

    def _block_started(self, event: BlockStarted) -> bytes:
        self._start = event
        self._item_id = self._ids.for_block(event, self._index)
        self._texts, self._parts, self._part, self._seal = [], [], None, None
        self._annotations, self._logprobs = [], []
        self._holds = event.tool is not None and items.is_client_run(event.tool)
        if self._holds:
            return b""
        item = items.added_item(event, self._item_id)
        out = self._frame("response.output_item.added", output_index=self._index, item=item)
        if event.tool is not None:
            self._set_delta(f"response.{_CALL_EVENTS[event.tool.kind][0]}.delta", "", _END)
        elif event.kind is not BlockKind.REASONING:
            self._spoke = True
            refusal = event.kind is BlockKind.REFUSAL
            name = "refusal" if refusal else "output_text"
            self._set_delta(f"response.{name}.delta", ',"content_index":0', _END if refusal else _NO_LOGPROBS)
            part = items.empty_part(event.kind)
            out += self._in_item("response.content_part.added", content_index=0, part=part)
        return out

    def _block_ended(self, event: BlockEnded) -> bytes:
        start = self._start
        assert start is not None
        if start.kind is BlockKind.REASONING:
            out = self._close_part()
            block = self._block(start, event.complete)
        elif start.tool is not None:
            block = self._block(start, event.complete)
            if self._holds:
                return self._client_call(block, start.tool)
            if not event.complete:
                return self._leave_open(block)
            name, field = _CALL_EVENTS[start.tool.kind]
            out = self._in_item(f"response.{name}.done", **{field: block.text})
        else:
            block = self._block(start, event.complete)
            out = self._text_done(block)
        return out + self._item_done(items.finished_item(block, self._item_id, self._exchange, self._ledger))

    def _block(self, start: BlockStarted, complete: bool) -> AssembledBlock:
        """The open block, with all that has come of it."""
        text = "".join(self._texts)
        part = [] if self._part is None else [ReasoningPart(self._part[1], text)]
        return AssembledBlock(
            number=start.block,
            kind=start.kind,
            text=text,
            tool=start.tool,
            item_id=start.item_id,
            phase=start.phase,
            reasoning=(*self._parts, *part),
            seal=self._seal,
            annotations=tuple(self._annotations),
            logprobs=tuple(self._logprobs),
            complete=complete,
        )

    def _text_done(self, block: AssembledBlock) -> bytes:
        part = items.finished_part(block, self._ledger)
        out = b""
        if block.kind is BlockKind.REFUSAL:
            out = self._in_item("response.refusal.done", content_index=0, refusal=block.text)
        else:
            for index, annotation in enumerate(part["annotations"]):
                out += self._in_item(
                    "response.output_text.annotation.added",
                    content_index=0,
                    annotation_index=index,
                    annotation=annotation,
                )
            logprobs = [items.event_logprob(token) for token in block.logprobs]
            out += self._in_item(
                "response.output_text.done", content_index=0, text=block.text, logprobs=logprobs
            )
        return out + self._in_item("response.content_part.done", content_index=0, part=part)

    def _leave_open(self, block: AssembledBlock) -> bytes:
        """A call that the output limit cut, or what was open when the answer failed: agents run a call as soon as its
        item is done, whatever its status says, so its item is not done. It is the last item, and the response that
        ends the stream shows it as it is.
        """
        item = items.unfinished_item(block, self._item_id, self._index, self._exchange, self._ledger)
        if item is not None:
            self._output.append(item)
        self._start = None
        self._index += 1
        return b""

    def _client_call(self, block: AssembledBlock, tool: ToolHead) -> bytes:
        """A call of a tool that the client runs: its item, once all of it is known. What is no such call, or only
        a part of one, is told as the call of the function that it was.
        """
        self._holds = False
        if block.complete:
            item = items.write_client_call(block, self._item_id, self._index, self._ledger)
            if item is not None:
                added = items.announced_client_call(tool, item)
                out = self._frame("response.output_item.added", output_index=self._index, item=added)
                return out + self._commands(item) + self._item_done(item)
        out = self._block_started(items.as_function_call(BlockStarted(block.number, block.kind, tool=tool)))
        if block.text:
            out += self.send(ArgumentsDelta(block.number, block.text))
        return out + self._block_ended(BlockEnded(block.number, block.complete))

    def _commands(self, item: JSONObject) -> bytes:
        """A shell's commands are also told one by one. These events name no item."""
        if item["type"] != "shell_call":
            return b""
        out = b""
        for number, command in enumerate(item["action"]["commands"]):
            place = {"output_index": self._index, "command_index": number}
            out += self._frame("response.shell_call_command.added", **place, command="")
            out += self._frame("response.shell_call_command.delta", **place, delta=command)
            out += self._frame("response.shell_call_command.done", **place, command=command)
        return out

    def _hold(self, event: ArgumentsDelta) -> bytes:
        self._texts.append(event.text)
        return b""

    def _item_done(self, item: JSONObject) -> bytes:
        encoded = msgspec.Raw(encode(item))
        self._output.append(encoded)
        self._start = None
        out = self._frame("response.output_item.done", output_index=self._index, item=encoded)
        self._index += 1
        return out

    def _opaque(self, event: Opaque) -> bytes:
        if event.origin != NAME:
            return self._search(event)
        item = items.added_opaque(event)
        out = self._frame("response.output_item.added", output_index=self._index, item=item)
        return out + self._item_done(event.native)

    def _search(self, event: Opaque) -> bytes:
        self._item_id = self._ids.for_item("ws", self._index)
        item = items.write_search_call(event, self._item_id, self._ledger)
        added = {**item, "status": "in_progress"}
        out = self._frame("response.output_item.added", output_index=self._index, item=added)
        for state in ("in_progress", "searching", "completed"):
            out += self._in_item(f"response.web_search_call.{state}")
        return out + self._item_done(item)

    def _compacted(self, event: Compacted) -> bytes:
        item = items.write_compaction(event, self._ids.for_item("cmp", self._index), self._exchange)
        out = self._frame("response.output_item.added", output_index=self._index, item=item)
        return out + self._item_done(item)

    def _whole_block(self, block: AssembledBlock) -> bytes:
        """A block that did not come in pieces."""
        out = self._block_started(BlockStarted(block.number, block.kind))
        out += self.send(TextDelta(block.number, block.text))
        return out + self._block_ended(BlockEnded(block.number))

    # What fills them.

    def _reasoning(self, event: ReasoningDelta) -> bytes:
        out = b""
        if self._part != (event.part, event.form):
            out = self._close_part() + self._open_part(event)
        text = event.text
        self._texts.append(text)
        number = self._sequence
        self._sequence = number + 1
        return out + b"%b%d%b%b%b" % (self._head, number, self._middle, encode(text), self._tail)

    def _is_open(self, form: ReasoningForm) -> bool:
        assert self._start is not None
        return items.goes_into_content(self._start, form)

    def _open_part(self, event: ReasoningDelta) -> bytes:
        self._part = (event.part, event.form)
        self._texts = []
        in_content = self._is_open(event.form)
        names = _REASONING_EVENTS[in_content]
        index = sum(1 for part in self._parts if self._is_open(part.form) is in_content)
        self._set_delta(f"{names.text}.delta", f',"{names.index}":{index}', _END)
        empty = items.write_reasoning_part(ReasoningPart(event.form, ""), in_content)
        return self._in_item(f"{names.part}.added", **{names.index: index}, part=empty)

    def _close_part(self) -> bytes:
        if self._part is None:
            return b""
        form = self._part[1]
        self._part = None
        part = ReasoningPart(form, "".join(self._texts))
        in_content = self._is_open(form)
        names = _REASONING_EVENTS[in_content]
        index = sum(1 for each in self._parts if self._is_open(each.form) is in_content)
        self._parts.append(part)
        done = items.write_reasoning_part(part, in_content)
        return self._in_item(f"{names.text}.done", **{names.index: index}, text=part.text) + self._in_item(
            f"{names.part}.done", **{names.index: index}, part=done
        )

    def _note_seal(self, event: SignatureDelta) -> bytes:
        self._seal = event.seal
        return b""

    def _note_annotation(self, event: Annotation) -> bytes:
        """They go out when the text is complete: one without a span cites all of it."""
        self._annotations.append(event)
        return b""

    def _note_logprobs(self, event: Logprobs) -> bytes:
        """Those of the next delta. A refusal has no place for them."""
        self._logprobs += event.tokens
        assert self._start is not None
        if self._start.kind is BlockKind.TEXT:
            self._tail = b',"logprobs":%b}\n\n' % encode(
                [items.event_logprob(token) for token in event.tokens]
            )
            self._tail_once = True
        return b""


_SENDERS: dict[type, Callable[[ResponsesWriter, JSON], bytes]] = {
    Started: ResponsesWriter._started,
    BlockStarted: ResponsesWriter._block_started,
    ReasoningDelta: ResponsesWriter._reasoning,
    ArgumentsDelta: ResponsesWriter._hold,
    SignatureDelta: ResponsesWriter._note_seal,
    Annotation: ResponsesWriter._note_annotation,
    Logprobs: ResponsesWriter._note_logprobs,
    BlockEnded: ResponsesWriter._block_ended,
    Opaque: ResponsesWriter._opaque,
    Compacted: ResponsesWriter._compacted,
    Usage: ResponsesWriter._note_usage,
    Stopped: ResponsesWriter._note_stop,
    Ended: ResponsesWriter._ended,
    Failed: ResponsesWriter._failed,
}

# The name of a call's events, and of the field that holds its whole text.
_CALL_EVENTS = {
    ToolKind.FUNCTION: ("function_call_arguments", "arguments"),
    ToolKind.CUSTOM: ("custom_tool_call_input", "input"),
}


class _PartEventNames(msgspec.Struct, frozen=True):
    """What the events of a reasoning part are called."""

    part: str
    text: str
    index: str


_REASONING_EVENTS = {
    False: _PartEventNames(
        "response.reasoning_summary_part", "response.reasoning_summary_text", "summary_index"
    ),
    True: _PartEventNames("response.content_part", "response.reasoning_text", "content_index"),
}


def _explains(stop: Stopped, spoke: bool) -> bool:
    """Whether the reason of a refusal is all that the client can be told."""
    return stop.reason is StopReason.CONTENT_FILTER and bool(stop.explanation) and not spoke


def _failed_response(
    envelope: ResponseBuilder, error: WireError, output: list[JSON], usage: Usage
) -> JSONObject:
    known = usage.input is not None or usage.output is not None
    return envelope.response(
        "failed", output=output, usage=usage if known else None, error=response_error(error)
    )


def write_whole(answer: AssembledResponse, context: ResponseContext, ledger: Ledger) -> JSONObject:
    """The body of a whole answer, equal to the response that ends a stream of the same events."""
    envelope = ResponseBuilder(context, ledger)
    envelope.started(answer.started)
    ids = items.ItemIds(context)
    stop = answer.stops[0] if answer.stops else Stopped(StopReason.END)
    blocks = list(answer.blocks)
    spoke = any(isinstance(block, AssembledBlock) and block.kind in items.TEXT_KINDS for block in blocks)
    failed = answer.error is not None
    if failed:
        blocks = [
            block
            for block in blocks
            if not (isinstance(block, AssembledBlock) and items.is_empty_text(block))
        ]
    explains = not failed and _explains(stop, spoke)
    if explains:
        blocks.append(items.refusal_block(-1, stop.explanation or ""))
    output: list[JSON] = []
    for index, block in enumerate(blocks):
        item = _whole_item(block, index, ids, context, ledger)
        if item is not None:
            output.append(item)
    if answer.error is not None:
        return _failed_response(envelope, answer.error, output, answer.usage)
    note_stop(stop, explains, ledger)
    status, reason = end_status(stop)
    return envelope.response(status, output=output, usage=answer.usage, incomplete=reason)


def _whole_item(
    block: AssembledBlock | Opaque | Compacted,
    index: int,
    ids: items.ItemIds,
    context: ResponseContext,
    ledger: Ledger,
) -> JSONObject | None:
    """The item at this place, None when it cannot be shown."""
    if isinstance(block, Compacted):
        return items.write_compaction(block, ids.for_item("cmp", index), context)
    if isinstance(block, Opaque):
        if block.origin != NAME:
            return items.write_search_call(block, ids.for_item("ws", index), ledger)
        native: JSONObject = block.native
        return native
    item_id = ids.for_block(block, index)
    if block.tool is not None:
        if block.complete and items.is_client_run(block.tool):
            item = items.write_client_call(block, item_id, index, ledger)
            if item is not None:
                return item
        if items.is_client_run(block.tool):
            block = items.as_function_call(block)
            item_id = ids.for_block(block, index)
        if not block.complete:
            return items.unfinished_item(block, item_id, index, context, ledger)
    return items.finished_item(block, item_id, context, ledger)
