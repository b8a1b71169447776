"""Write events as a Responses stream, and an assembled response as a Responses body.

A stream has "added, deltas, done" at three levels (part, item, response), each repeating the one below. The constant
bytes of the open part's delta frames are kept, so that a delta costs one encoded string; everything else is built from
the finished block by the functions that also write whole responses. Sequence numbers start at 0 without gaps.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from dragoman._ir import events
from dragoman._ir.assembly import AssembledBlock, AssembledResponse, OpenBlock
from dragoman._ir.events import Event, ReasoningForm, ToolHead, ToolKind, Usage
from dragoman._ir.fast_path import Delta
from dragoman._ir.losses import Ledger
from dragoman._wire.json import JSON, LONG_TEXT, JSONObject, encode, encode_long, encode_strings
from dragoman._wire.sse import encode_frame
from dragoman.codec import ResponseContext
from dragoman.protocols.openai_responses.client_tools import announced_fields
from dragoman.protocols.openai_responses.errors import error_event
from dragoman.protocols.openai_responses.response_content_out import (
    TEXT_KINDS,
    ResponseBuilder,
    added_item,
    announced_item,
    as_function_call,
    empty_part,
    finished_part,
    goes_into_content,
    is_client_run,
    is_empty_text,
    reasoning_part,
    write_logprob,
)
from dragoman.protocols.openai_responses.tables import NAME

_NO_LOGPROBS = b',"logprobs":[]}\n\n'
_END = b"}\n\n"


class ResponsesWriter:
    """Writes one stream. See StreamWriter."""

    def __init__(self, context: ResponseContext, ledger: Ledger) -> None:
        self._ledger = ledger
        self._builder = ResponseBuilder(context, ledger)
        self._sequence = 0
        self._encode = encode  # or encode_long, once there is a long text
        self._usage = Usage()
        self._stop: events.Stopped | None = None
        self._has_text = False  # True once there was text
        self._open: OpenBlock | None = None
        self._deferred = False  # the item is announced only once its arguments are complete
        self._item_id = ""
        self._texts: list[str] = []  # of the open block, or the open part of its reasoning
        self._part: tuple[int, ReasoningForm] | None = None
        self._part_index = 0
        self._parts = [0, 0]  # of the open reasoning, in its summary and in its content
        # The bytes of its delta frames: a format for sequence number and text, and what follows the text.
        self._format = self._tail = b""
        self._tail_is_once = False  # the tail has the log probabilities of one delta

    def send(self, event: Event) -> bytes:
        if type(event) is events.TextDelta or type(event) is events.ArgumentsDelta:
            data = self._delta(event.text)
            if self._tail_is_once:
                self._tail, self._tail_is_once = _NO_LOGPROBS, False
            return data
        return _SENDERS[type(event)](self, event)

    def _delta(self, text: str) -> bytes:
        """Write one delta of the open part, or keep it for the end of the block."""
        self._texts.append(text)
        if self._deferred:
            return b""
        number = self._sequence
        self._sequence = number + 1
        return self._format % (number, encode(text)) + self._tail

    def send_texts(self, delta: Delta, texts: list[str]) -> bytes:
        self._texts += texts
        if self._deferred:
            return b""
        number = self._sequence
        self._sequence = number + len(texts)
        form, tail = self._format, self._tail
        return tail.join([form % numbered for numbered in enumerate(encode_strings(texts), number)]) + tail

    def _frame(self, kind: str, **fields: JSON) -> bytes:
        number = self._sequence
        self._sequence = number + 1
        fields = {"type": kind, "sequence_number": number, **fields}
        return encode_frame(self._encode(fields), kind.encode("ascii"))

    def _in_item(self, kind: str, **fields: JSON) -> bytes:
        return self._frame(kind, item_id=self._item_id, output_index=self._builder.index, **fields)

    def _set_delta(self, kind: str, place: str, tail: bytes) -> None:
        """Prepare the delta frames of a part. place: its further index, as JSON members."""
        item_id = encode(self._item_id).decode("utf-8").replace("%", "%%")
        self._format = (
            f'event: {kind}\ndata: {{"type":"{kind}","sequence_number":%d,"item_id":{item_id},'
            f'"output_index":{self._builder.index}{place},"delta":%b'
        ).encode()
        self._tail = tail
        self._tail_is_once = False

    # The response.

    def _started(self, event: events.Started) -> bytes:
        self._builder.started(event)
        response = msgspec.Raw(encode(self._builder.response("in_progress")))
        return self._frame("response.created", response=response) + self._frame(
            "response.in_progress", response=response
        )

    def _note_usage(self, event: Usage) -> bytes:
        self._usage = self._usage.updated(event)
        return b""

    def _note_stop(self, event: events.Stopped) -> bytes:
        self._stop = event
        return b""

    def _ended(self, event: events.Ended) -> bytes:
        stop = self._stop or events.Stopped(events.END)
        out = b""
        explained = _needs_explanation(stop, self._has_text)
        if explained:
            out = self._block_started(events.BlockStarted(-1, events.REFUSAL))
            out += self.send(events.TextDelta(-1, stop.explanation or ""))
            out += self._block_ended(events.BlockEnded(-1))
        response = self._builder.ended(stop, self._usage, explained)
        return out + self._frame(f"response.{response['status']}", response=response)

    def _failed(self, event: events.Failed) -> bytes:
        """Write an error event, then a failed response. Only that has the unfinished item, as incomplete."""
        out = b""
        if self._sequence == 0:  # for clients a stream begins with response.created
            response = self._builder.response("in_progress")
            out = self._frame("response.created", response=response)
        elif self._open is not None:
            block = self._finish(complete=False)
            if self._deferred and block.tool is not None:
                out = self._write_client_call(block, block.tool)
            elif not is_empty_text(block):
                self._leave_open(block)
        out += encode_frame(encode(error_event(event.error, self._sequence)), b"error")
        self._sequence += 1
        response = self._builder.failed(event.error, self._usage)
        return out + self._frame("response.failed", response=response)

    # Items.

    def _block_started(self, event: events.BlockStarted) -> bytes:
        self._open = OpenBlock(event)
        self._texts, self._part, self._parts = self._open.text, None, [0, 0]
        self._item_id = self._builder.item_id(event)
        self._deferred = event.tool is not None and is_client_run(event.tool)
        if self._deferred:
            return b""
        out = self._added(added_item(event, self._item_id))
        if event.tool is not None:
            self._set_delta(f"response.{_CALL_EVENTS[event.tool.kind][0]}.delta", "", _END)
        elif event.kind is not events.REASONING:
            self._has_text = True
            refusal = event.kind is events.REFUSAL
            name = "refusal" if refusal else "output_text"
            self._set_delta(f"response.{name}.delta", ',"content_index":0', _END if refusal else _NO_LOGPROBS)
            part = empty_part(event.kind)
            out += self._in_item("response.content_part.added", content_index=0, part=part)
        return out

    def _block_ended(self, event: events.BlockEnded) -> bytes:
        assert self._open is not None
        out = self._close_part()
        block = self._finish(event.complete)
        if self._deferred and block.tool is not None:
            return self._write_client_call(block, block.tool)
        if block.tool is not None:
            if not event.complete:
                return self._leave_open(block)
            name, field = _CALL_EVENTS[block.tool.kind]
            out = self._in_item(f"response.{name}.done", **{field: block.text})
        elif block.kind is not events.REASONING:
            out = self._text_done(block)
        return b"".join((out, self._item_done(self._builder.finished_item(block, self._item_id))))

    def _finish(self, complete: bool) -> AssembledBlock:
        assert self._open is not None
        block = self._open.finish(complete)
        if block.is_long:
            self._encode = encode_long
        return block

    def _text_done(self, block: AssembledBlock) -> bytes:
        part = finished_part(block, self._ledger)
        if block.kind is events.REFUSAL:
            out = [self._in_item("response.refusal.done", content_index=0, refusal=block.text)]
        else:
            name = "response.output_text.annotation.added"
            out = [
                self._in_item(name, content_index=0, annotation_index=index, annotation=annotation)
                for index, annotation in enumerate(part["annotations"])
            ]
            logprobs = [write_logprob(token, with_bytes=False) for token in block.logprobs]
            name = "response.output_text.done"
            out.append(self._in_item(name, content_index=0, text=block.text, logprobs=logprobs))
        out.append(self._in_item("response.content_part.done", content_index=0, part=part))
        return b"".join(out)

    def _leave_open(self, block: AssembledBlock) -> bytes:
        """Put an item that was cut into the final output without an `output_item.done`.

        It is the last item. Agents run a call as soon as its item is done, whatever its status.
        """
        self._builder.add(self._builder.unfinished_item(block, self._item_id))
        self._open = None
        return b""

    def _write_client_call(self, block: AssembledBlock, tool: ToolHead) -> bytes:
        """Write a call of a tool that the client runs, once it is complete. One that was cut, or has other arguments,
        is written as a call of the function that replaced the tool.
        """
        self._deferred = False
        if block.complete:
            item = self._builder.client_call(block, self._item_id)
            if item is not None:
                announced = announced_fields(tool.hosted or "", item)
                out = self._added({**announced, "status": "in_progress"})
                return out + self._commands(item) + self._item_done(item)
        out = self._block_started(as_function_call(events.BlockStarted(block.number, block.kind, tool=tool)))
        if block.text:
            out += self.send(events.ArgumentsDelta(block.number, block.text))
        return out + self._block_ended(events.BlockEnded(block.number, block.complete))

    def _commands(self, item: JSONObject) -> bytes:
        """Write a shell's commands one by one. These events have no item id."""
        if item["type"] != "shell_call":
            return b""
        out: list[bytes] = []
        for number, command in enumerate(item["action"]["commands"]):
            place = {"output_index": self._builder.index, "command_index": number}
            out.append(self._frame("response.shell_call_command.added", **place, command=""))
            out.append(self._frame("response.shell_call_command.delta", **place, delta=command))
            out.append(self._frame("response.shell_call_command.done", **place, command=command))
        return b"".join(out)

    def _added(self, item: JSONObject) -> bytes:
        return self._frame("response.output_item.added", output_index=self._builder.index, item=item)

    def _item_done(self, item: JSONObject) -> bytes:
        encoded = msgspec.Raw(self._encode(item))
        self._open = None
        out = self._frame("response.output_item.done", output_index=self._builder.index, item=encoded)
        self._builder.add(encoded)
        return out

    def _whole_item(self, event: events.Opaque | events.Compacted) -> bytes:
        item = self._builder.whole_item(event)
        out = self._added(announced_item(item))
        if isinstance(event, events.Opaque) and event.origin != NAME:
            self._item_id = item["id"]
            for state in ("in_progress", "searching", "completed"):
                out += self._in_item(f"response.web_search_call.{state}")
        return out + self._item_done(item)

    # Content of items.

    def _reasoning(self, event: events.ReasoningDelta) -> bytes:
        out = b""
        if self._part != (event.part, event.form):
            out = self._close_part() + self._open_part(event)
        return out + self._delta(event.text)

    def _open_part(self, event: events.ReasoningDelta) -> bytes:
        assert self._open is not None
        in_content = goes_into_content(self._open.start, event.form)
        self._part = (event.part, event.form)
        self._part_index = self._parts[in_content]
        self._parts[in_content] += 1
        self._texts = self._open.parts.setdefault(self._part, [])
        part_event, text_event, index_name = _REASONING_EVENTS[in_content]
        place = {index_name: self._part_index}
        self._set_delta(f"{text_event}.delta", f',"{index_name}":{self._part_index}', _END)
        return self._in_item(f"{part_event}.added", **place, part=reasoning_part("", in_content))

    def _close_part(self) -> bytes:
        if self._part is None or self._open is None:
            return b""
        in_content = goes_into_content(self._open.start, self._part[1])
        part_event, text_event, index_name = _REASONING_EVENTS[in_content]
        place = {index_name: self._part_index}
        text = "".join(self._texts)
        if len(text) > LONG_TEXT:
            self._encode = encode_long
        self._part = None
        out = self._in_item(f"{text_event}.done", **place, text=text)
        return out + self._in_item(f"{part_event}.done", **place, part=reasoning_part(text, in_content))

    def _note_signature(self, event: events.SignatureDelta) -> bytes:
        assert self._open is not None
        self._open.signature = event.signature
        return b""

    def _note_annotation(self, event: events.Annotation) -> bytes:
        """Keep an annotation until the text is complete, because one without a span cites all of it."""
        assert self._open is not None
        self._open.annotations.append(event)
        return b""

    def _note_logprobs(self, event: events.Logprobs) -> bytes:
        """Put log probabilities into the next delta. A refusal has no field for them."""
        assert self._open is not None
        self._open.logprobs += event.tokens
        if self._open.start.kind is events.TEXT:
            self._tail = b',"logprobs":%b}\n\n' % encode(
                [write_logprob(token, with_bytes=False) for token in event.tokens]
            )
            self._tail_is_once = True
        return b""


_SENDERS: dict[type, Callable[[ResponsesWriter, JSON], bytes]] = {
    events.Started: ResponsesWriter._started,
    events.BlockStarted: ResponsesWriter._block_started,
    events.ReasoningDelta: ResponsesWriter._reasoning,
    events.SignatureDelta: ResponsesWriter._note_signature,
    events.Annotation: ResponsesWriter._note_annotation,
    events.Logprobs: ResponsesWriter._note_logprobs,
    events.BlockEnded: ResponsesWriter._block_ended,
    events.Opaque: ResponsesWriter._whole_item,
    events.Compacted: ResponsesWriter._whole_item,
    Usage: ResponsesWriter._note_usage,
    events.Stopped: ResponsesWriter._note_stop,
    events.Ended: ResponsesWriter._ended,
    events.Failed: ResponsesWriter._failed,
}

# Name of a call's events, and of the field with its whole text.
_CALL_EVENTS = {
    ToolKind.FUNCTION: ("function_call_arguments", "arguments"),
    ToolKind.CUSTOM: ("custom_tool_call_input", "input"),
}


# Names of a reasoning part's events, of the events of its text, and of its index: in summaries, and in the content.
_REASONING_EVENTS = {
    False: ("response.reasoning_summary_part", "response.reasoning_summary_text", "summary_index"),
    True: ("response.content_part", "response.reasoning_text", "content_index"),
}


def _needs_explanation(stop: events.Stopped, has_text: bool) -> bool:
    """True if the explanation of a refusal is the only text for the client."""
    return stop.reason is events.CONTENT_FILTER and bool(stop.explanation) and not has_text


def write_whole(response: AssembledResponse, context: ResponseContext, ledger: Ledger) -> JSONObject:
    """Return the body of a whole response, equal to the response that ends a stream of the same events."""
    builder = ResponseBuilder(context, ledger)
    builder.started(response.started)
    stop = response.stops[0] if response.stops else events.Stopped(events.END)
    blocks = list(response.blocks)
    has_text = any(isinstance(block, AssembledBlock) and block.kind in TEXT_KINDS for block in blocks)
    failed = response.error is not None
    explained = not failed and _needs_explanation(stop, has_text)
    if explained:
        blocks.append(AssembledBlock(number=-1, kind=events.REFUSAL, text=stop.explanation or ""))
    for block in blocks:
        if isinstance(block, AssembledBlock):
            if not (failed and is_empty_text(block)):
                builder.add(_block_item(block, builder))
        else:
            builder.add(builder.whole_item(block))
    if response.error is not None:
        return builder.failed(response.error, response.usage)
    return builder.ended(stop, response.usage, explained)


def _block_item(block: AssembledBlock, builder: ResponseBuilder) -> JSONObject | None:
    """Return the item of a block, None if it must be left out."""
    item_id = builder.item_id(block)
    if block.tool is not None and is_client_run(block.tool):
        item = builder.client_call(block, item_id) if block.complete else None
        if item is not None:
            return item
        block = as_function_call(block)
        item_id = builder.item_id(block)
    if block.tool is not None and not block.complete:
        return builder.unfinished_item(block, item_id)
    return builder.finished_item(block, item_id)
