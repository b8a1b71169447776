"""Write a response as a stream of Chat Completions, or as a whole one.

The SDK's accumulator joins every repeated string, so role, ids and names are sent once (openai-python 3.54.0,
lib/streaming/_deltas.py). All citations go into one chunk before the finish reason, and `usage` into one last chunk
with empty `choices`. Everything in a chunk but its text is constant while a block is open, so the bytes around the text
are made once per block. Citations and signatures refer to positions in the text of the whole message, so the writer
counts its characters. In a whole response one message holds all text, all reasoning and all calls of a choice, so the
blocks are sorted into those.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from dragoman._ir import events
from dragoman._ir.assembly import AssembledBlock, AssembledResponse, OpenBlock
from dragoman._ir.events import BlockKind, Event, ToolKind, Usage
from dragoman._ir.fast_path import Delta
from dragoman._ir.losses import Ledger
from dragoman._wire.json import JSON, JSONObject, encode, encode_strings
from dragoman.codec import ResponseContext
from dragoman.protocols._openai.settings import fit_tier
from dragoman.protocols.openai_chat.errors import error_frame
from dragoman.protocols.openai_chat.reasoning import Position
from dragoman.protocols.openai_chat.response_content_out import (
    PARAGRAPH_BREAK,
    WrittenChoice,
    write_logprobs,
    write_tool_call,
)
from dragoman.protocols.openai_chat.tables import TITLE
from dragoman.protocols.openai_chat.usage import write_usage


class _WrittenBlock(OpenBlock):
    """An open block without its text, and how many characters and calls of its choice are before it."""

    position: Position = (0, 0)
    size: int = 0  # the length of its text in characters


class ChatWriter(msgspec.Struct):
    """Writes one stream. `send` returns the bytes of an event, which may be none."""

    _context: ResponseContext
    _ledger: Ledger
    _choices: dict[int, WrittenChoice] = {}
    _blocks: dict[int, _WrittenBlock] = {}
    # Block -> the bytes around the text of its frames, and the block.
    _text_frames: dict[int, tuple[bytes, bytes, _WrittenBlock]] = {}
    # The same for reasoning, with its choice instead.
    _reasoning_frames: dict[int, tuple[bytes, bytes, WrittenChoice]] = {}
    _usage: Usage = Usage()
    _fields: JSONObject = {}  # members of every chunk
    _head: bytes = b""
    _tail: bytes = b""

    def send(self, event: Event) -> bytes:
        if type(event) is events.TextDelta or type(event) is events.ArgumentsDelta:
            before, after, block = self._text_frames[event.block]
            block.size += len(event.text)
            return before + encode(event.text) + after
        return _SENDERS[type(event)](self, event)

    def send_texts(self, delta: Delta, texts: list[str]) -> bytes:
        if type(delta) is events.ReasoningDelta:
            before, after, _ = self._reasoning_frames[delta.block]
        else:
            before, after, block = self._text_frames[delta.block]
            block.size += sum(map(len, texts))
        return before + (after + before).join(encode_strings(texts)) + after

    def _reasoning_delta(self, event: events.ReasoningDelta) -> bytes:
        before, after, choice = self._reasoning_frames[event.block]
        part = (event.block, event.part)
        text = event.text
        if choice.last_part != part:
            text = PARAGRAPH_BREAK + text if choice.last_part is not None else text
            choice.last_part = part
        return before + encode(text) + after

    def _signature_delta(self, event: events.SignatureDelta) -> bytes:
        self._blocks[event.block].signature = event.signature
        return b""

    def _annotation(self, event: events.Annotation) -> bytes:
        self._blocks[event.block].annotations.append(event)
        return b""

    def _add_usage(self, event: Usage) -> bytes:
        self._usage = self._usage.updated(event)
        return b""

    def _stopped(self, event: events.Stopped) -> bytes:
        head = self._open_choice(event.choice)
        self._choices[event.choice].stopped = event
        return head

    def _compacted(self, event: events.Compacted) -> bytes:
        head = self._open_choice(0)
        self._choices[0].add_compaction(event.text)
        return head + self._chunk(0, {"content": event.text})

    def _started(self, event: events.Started) -> bytes:
        context = self._context
        self._fields = {
            "id": context.response_id("chatcmpl-", event.id),
            "object": "chat.completion.chunk",
            "created": context.now,
            "model": context.model,
        }
        # "All other chunks will also include a `usage` field, but with a null value." (openai-python 3.54.0)
        self._tail = b'],"usage":null}\n\n' if context.request.include_usage else b"]}\n\n"
        self._set_head(event.service_tier)
        return self._open_choice(0)

    def _set_head(self, service_tier: str | None) -> None:
        tier = fit_tier(service_tier, "/service_tier", self._ledger, TITLE)
        if tier is not None:
            self._fields["service_tier"] = tier
        self._head = b"data: " + encode(self._fields)[:-1] + b',"choices":['

    def _frame(self, choice: int, delta: bytes, finish: bytes = b"null", logprobs: bytes = b"null") -> bytes:
        return (
            self._head
            + b'{"index":%d,"delta":%b,"logprobs":%b,"finish_reason":%b}' % (choice, delta, logprobs, finish)
            + self._tail
        )

    def _chunk(self, choice: int, delta: JSONObject) -> bytes:
        return self._frame(choice, encode(delta))

    def _open_choice(self, index: int) -> bytes:
        """Return the first frame of a choice once: its role, and empty content."""
        if index in self._choices:
            return b""
        self._choices[index] = WrittenChoice(index, self._context, self._ledger)
        return self._frame(index, b'{"role":"assistant","content":"","refusal":null}')

    def _block_started(self, event: events.BlockStarted) -> bytes:
        index = event.choice
        out = self._open_choice(index)
        choice = self._choices[index]
        number = choice.calls
        block = _WrittenBlock(event, position=choice.start_block(event))
        self._blocks[event.block] = block
        if event.tool is None:
            before, after = self._split(index, _TEXT_MEMBERS[event.kind], b"}")
            if event.kind is events.REASONING:
                self._reasoning_frames[event.block] = before, after, choice
            else:
                self._text_frames[event.block] = before, after, block
            return out
        if choice.legacy:
            delta: JSONObject = {"function_call": {"name": event.tool.name, "arguments": ""}}
            before, after = self._split(index, b'{"function_call":{"arguments":', b"}}")
        else:
            member, text = _CALL_MEMBERS[event.tool.kind]
            delta = {"tool_calls": [{"index": number, **write_tool_call(event.tool, "")}]}
            head = b'{"tool_calls":[{"index":%d,"%b":{"%b":' % (number, member, text)
            before, after = self._split(index, head, b"}}]}")
        self._text_frames[event.block] = before, after, block
        return out + self._chunk(index, delta)

    def _split(self, choice: int, before: bytes, after: bytes) -> tuple[bytes, bytes]:
        """Return the bytes of a frame before and after its text."""
        start, _, end = self._frame(choice, before + b"\0" + after).partition(b"\0")
        return start, end

    def _block_ended(self, event: events.BlockEnded) -> bytes:
        block = self._blocks.pop(event.block)
        (self._reasoning_frames if block.start.kind is events.REASONING else self._text_frames).pop(
            event.block
        )
        choice = self._choices[block.start.choice]
        choice.cite(block.annotations, block.position, block.size)
        details = choice.end_block(block.start.kind, block.size, block.position, block.signature)
        return self._chunk(block.start.choice, {"reasoning_details": details}) if details else b""

    def _annotations(self, index: int) -> bytes:
        """Return all citations of a choice in one frame.

        At a second frame with citations "Expected list delta entry to have an `index` key" is raised (openai-python
        3.54.0, lib/streaming/_deltas.py), and openai-node keeps only the last one's.
        """
        annotations = self._choices[index].annotations
        return self._chunk(index, {"annotations": annotations}) if annotations else b""

    def _failed(self, event: events.Failed) -> bytes:
        for block in self._blocks.values():
            self._choices[block.start.choice].cite(block.annotations, block.position, block.size)
        return b"".join(map(self._annotations, self._choices)) + error_frame(event.error)

    def _logprobs(self, event: events.Logprobs) -> bytes:
        block = self._blocks[event.block]
        refused = block.start.kind is events.REFUSAL
        logprobs = write_logprobs(None if refused else event.tokens, event.tokens if refused else None)
        return self._frame(block.start.choice, b"{}", logprobs=encode(logprobs))

    def _opaque(self, event: events.Opaque) -> bytes:
        if event.path == f"/{event.kind}":  # a member of the response itself
            if event.kind == "moderation":
                return self._head + b"]," + encode({event.kind: event.native})[1:-1] + self._tail[1:]
            self._fields[event.kind] = event.native  # part of all chunks from now on
            self._set_head(None)
            return b""
        out = self._open_choice(event.choice)
        return out + self._chunk(event.choice, {event.kind: event.native})

    def _ended(self, event: events.Ended) -> bytes:
        out = b""
        if self._usage.service_tier is not None:
            self._set_head(self._usage.service_tier)
        for index, choice in self._choices.items():
            stopped = choice.stopped
            if stopped is None:
                continue
            explanation = choice.explanation(stopped)
            if explanation is not None:
                out += self._chunk(index, {"refusal": explanation})
            out += self._annotations(index)
            finish = encode(choice.finish_reason(stopped))
            if stopped.sequence is not None:
                finish += b',"stop_reason":' + encode(stopped.sequence)
            out += self._frame(index, b"{}", finish)
        if self._context.request.include_usage:
            usage = encode(write_usage(self._usage, self._ledger))
            out += self._head + b'],"usage":' + usage + b"}\n\n"
        return out + b"data: [DONE]\n\n"


_SENDERS: dict[type[Event], Callable[[ChatWriter, Any], bytes]] = {
    events.Started: ChatWriter._started,
    events.BlockStarted: ChatWriter._block_started,
    events.ReasoningDelta: ChatWriter._reasoning_delta,
    events.SignatureDelta: ChatWriter._signature_delta,
    events.Annotation: ChatWriter._annotation,
    events.Logprobs: ChatWriter._logprobs,
    events.BlockEnded: ChatWriter._block_ended,
    events.Opaque: ChatWriter._opaque,
    events.Compacted: ChatWriter._compacted,
    Usage: ChatWriter._add_usage,
    events.Stopped: ChatWriter._stopped,
    events.Ended: ChatWriter._ended,
    events.Failed: ChatWriter._failed,
}

# The bytes of a delta before its text.
_TEXT_MEMBERS = {
    BlockKind.TEXT: b'{"content":',
    BlockKind.REFUSAL: b'{"refusal":',
    BlockKind.REASONING: b'{"reasoning_content":',
}

# The members of a call that contain its text.
_CALL_MEMBERS = {
    ToolKind.FUNCTION: (b"function", b"arguments"),
    ToolKind.CUSTOM: (b"custom", b"input"),
}


def write_whole(response: AssembledResponse, context: ResponseContext, ledger: Ledger) -> JSONObject:
    """Return the body of a whole response, without the optional `usage` if no token count is known."""
    body: JSONObject = {
        "id": context.response_id("chatcmpl-", response.started.id),
        "object": "chat.completion",
        "created": context.now,
        "model": context.model,
        "choices": [
            _whole_choice(response, stopped, context, ledger)
            for stopped in sorted(response.stops, key=lambda stopped: stopped.choice)
        ],
    }
    if response.usage.input is not None or response.usage.output is not None:
        body["usage"] = write_usage(response.usage, ledger)
    for block in response.blocks:
        if type(block) is events.Opaque and _is_response_member(block):
            body[block.kind] = block.native
    tier = fit_tier(response.service_tier, "/service_tier", ledger, TITLE)
    if tier is not None:
        body["service_tier"] = tier
    return body


def _whole_choice(
    response: AssembledResponse, stopped: events.Stopped, context: ResponseContext, ledger: Ledger
) -> JSONObject:
    """Return one choice with its message."""
    choice = WrittenChoice(stopped.choice, context, ledger)
    texts: dict[BlockKind, list[str]] = {}
    tokens: dict[BlockKind, list[JSON]] = {}
    calls: list[JSONObject] = []
    details: list[JSONObject] = []
    opaque: JSONObject = {}
    for block in response.blocks:
        if isinstance(block, AssembledBlock):
            if block.choice != stopped.choice:
                continue
            position = choice.start_block(block)
            if block.annotations:
                choice.cite(block.annotations, position, len(block.text))
            details += choice.end_block(block.kind, len(block.text), position, block.signature)
            if block.logprobs:
                tokens.setdefault(block.kind, []).extend(block.logprobs)
            if block.tool is not None:
                calls.append(
                    {"name": block.tool.name, "arguments": block.text}
                    if choice.legacy
                    else write_tool_call(block.tool, block.text)
                )
            else:
                text = texts.setdefault(block.kind, [])
                text.append(block.text)
                if block.reasoning:
                    text += [part.text for part in block.reasoning]
        elif isinstance(block, events.Compacted):
            choice.add_compaction(block.text)
            texts.setdefault(events.TEXT, []).append(block.text)
        elif block.choice == stopped.choice and not _is_response_member(block):
            opaque[block.kind] = _extended(opaque.get(block.kind), block.native)
    content, refusal = "".join(texts.get(events.TEXT, ())), "".join(texts.get(events.REFUSAL, ()))
    refusal = choice.explanation(stopped) or refusal
    optional: JSONObject = {
        "reasoning_content": PARAGRAPH_BREAK.join(filter(None, texts.get(events.REASONING, ()))),
        "reasoning_details": details,
        "annotations": choice.annotations,
        "function_call": calls[0] if calls and choice.legacy else None,
        "tool_calls": None if choice.legacy else calls,
    }
    logprobs = write_logprobs(tokens.get(events.TEXT), tokens.get(events.REFUSAL)) if tokens else {}
    body: JSONObject = {
        "index": stopped.choice,
        "message": {
            "role": "assistant",
            "content": None if not content and (calls or refusal) else content,
            "refusal": refusal or None,
            **{name: value for name, value in optional.items() if value},
            **opaque,
        },
        "logprobs": logprobs if any(logprobs.values()) else None,
        "finish_reason": choice.finish_reason(stopped),
    }
    return body if stopped.sequence is None else {**body, "stop_reason": stopped.sequence}


def _is_response_member(block: events.Opaque) -> bool:
    """True if it is a member of the response itself, not of a message."""
    return block.path == f"/{block.kind}"


def _extended(before: JSON, native: JSON) -> JSON:
    """Join the pieces of a list, such as images. For any other value the last one counts."""
    return before + native if type(before) is list and type(native) is list else native
