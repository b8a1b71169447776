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

from dragoman._ir.assembly import AssembledBlock, AssembledResponse
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
    Signature,
    SignatureDelta,
    Started,
    Stopped,
    TextDelta,
    ToolKind,
    Usage,
)
from dragoman._ir.losses import Ledger
from dragoman._wire.json import JSON, JSONObject, encode
from dragoman.codec import ResponseContext
from dragoman.protocols.openai_chat.errors import error_frame
from dragoman.protocols.openai_chat.response_content_out import (
    NO_PHASE,
    PARAGRAPH_BREAK,
    note_lost_explanation,
    note_text_after_call,
    uses_legacy_functions,
    write_citation,
    write_finish_reason,
    write_logprobs,
    write_reasoning_details,
    write_service_tier,
    write_tool_call,
)
from dragoman.protocols.openai_chat.usage import write_usage


class _WrittenChoice:
    """Counts of one choice, for what is still to be written of it."""

    __slots__ = ("annotations", "calls", "chars", "details", "has_content", "last_part", "stopped")

    def __init__(self) -> None:
        self.annotations: list[JSON] = []
        self.calls = 0
        self.details = 0
        self.chars = 0  # characters of text in blocks that have ended
        self.has_content = False  # a text or refusal was written
        self.last_part: tuple[int, int] | None = None  # block and part of the last reasoning text
        self.stopped: Stopped | None = None


class _WrittenBlock:
    """An open block, and its position in its choice."""

    __slots__ = ("citations", "index", "kind", "pieces", "position", "signature")

    def __init__(self, index: int, kind: BlockKind, position: tuple[int, int]) -> None:
        self.index = index
        self.kind = kind
        self.position = position  # how many characters and calls are before it
        self.pieces: list[str] = []  # its text
        self.citations: list[Annotation] = []
        self.signature: Signature | None = None

    def size(self) -> int:
        """Return the length of its text in characters."""
        return sum(map(len, self.pieces))


class ChatWriter:
    """Writes one stream. `send` returns the bytes of an event, which may be none."""

    __slots__ = (
        "_blocks",
        "_choices",
        "_context",
        "_fields",
        "_head",
        "_ledger",
        "_legacy",
        "_reasoning_frames",
        "_tail",
        "_text_frames",
        "_usage",
    )

    def __init__(self, context: ResponseContext, ledger: Ledger) -> None:
        self._context = context
        self._ledger = ledger
        self._legacy = uses_legacy_functions(context)
        self._choices: dict[int, _WrittenChoice] = {}
        self._blocks: dict[int, _WrittenBlock] = {}
        # Block -> the bytes around the text of its frames, and a function that records each text.
        self._text_frames: dict[int, tuple[bytes, bytes, Callable[[str], None]]] = {}
        # The same for reasoning, with its choice instead.
        self._reasoning_frames: dict[int, tuple[bytes, bytes, _WrittenChoice]] = {}
        self._usage = Usage()
        self._fields: JSONObject = {}  # members of every chunk
        self._head = b""
        self._tail = b""

    def send(self, event: Event) -> bytes:
        kind = type(event)
        if kind is TextDelta or kind is ArgumentsDelta:
            before, after, record = self._text_frames[event.block]  # type: ignore[union-attr]
            text: str = event.text  # type: ignore[union-attr]
            record(text)
            return before + encode(text) + after
        if isinstance(event, ReasoningDelta):
            before, after, choice = self._reasoning_frames[event.block]
            part = (event.block, event.part)
            text = event.text
            if choice.last_part != part:
                text = PARAGRAPH_BREAK + text if choice.last_part is not None else text
                choice.last_part = part
            return before + encode(text) + after
        return self._send_other(event)

    def _send_other(self, event: Event) -> bytes:
        if isinstance(event, BlockStarted):
            return self._start_block(event)
        if isinstance(event, BlockEnded):
            return self._end_block(event)
        if isinstance(event, SignatureDelta):
            self._blocks[event.block].signature = event.signature
        elif isinstance(event, Usage):
            self._usage = self._usage.updated(event)
        elif isinstance(event, Stopped):
            head = self._open_choice(event.choice)
            self._choices[event.choice].stopped = event
            return head
        elif isinstance(event, Started):
            self._start(event)
            return self._open_choice(0)
        elif isinstance(event, Ended):
            return self._end()
        elif isinstance(event, Failed):
            return self._fail(event)
        elif isinstance(event, Logprobs):
            return self._logprobs(event)
        elif isinstance(event, Annotation):
            self._blocks[event.block].citations.append(event)
        elif isinstance(event, Compacted):
            return self._open_choice(0) + self._chunk(0, {"content": event.text})
        else:
            assert isinstance(event, Opaque)  # deltas are written above
            return self._opaque(event)
        return b""

    def _start(self, event: Started) -> None:
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

    def _set_head(self, service_tier: str | None) -> None:
        tier = write_service_tier(service_tier, self._ledger)
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
        self._choices[index] = _WrittenChoice()
        return self._frame(index, b'{"role":"assistant","content":"","refusal":null}')

    def _start_block(self, event: BlockStarted) -> bytes:
        index = event.choice
        if event.phase is not None:
            self._ledger.dropped(f"/choices/{index}/message/phase", NO_PHASE)
        out = self._open_choice(index)
        choice = self._choices[index]
        block = self._blocks[event.block] = _WrittenBlock(index, event.kind, (choice.chars, choice.calls))
        if event.tool is None:
            choice.has_content = choice.has_content or event.kind is not BlockKind.REASONING
            if event.kind is BlockKind.TEXT and choice.calls:
                note_text_after_call(index, self._ledger)
            before, after = self._split(index, _TEXT_MEMBERS[event.kind], b"}")
            if event.kind is BlockKind.REASONING:
                self._reasoning_frames[event.block] = before, after, choice
            else:
                self._text_frames[event.block] = before, after, block.pieces.append
            return out
        number = choice.calls
        choice.calls += 1
        if self._legacy:
            delta: JSONObject = {"function_call": {"name": event.tool.name, "arguments": ""}}
            before, after = self._split(index, b'{"function_call":{"arguments":', b"}}")
        else:
            member, text = _CALL_MEMBERS[event.tool.kind]
            delta = {"tool_calls": [{"index": number, **write_tool_call(event.tool, "")}]}
            head = b'{"tool_calls":[{"index":%d,"%b":{"%b":' % (number, member, text)
            before, after = self._split(index, head, b"}}]}")
        self._text_frames[event.block] = before, after, block.pieces.append
        return out + self._chunk(index, delta)

    def _split(self, choice: int, before: bytes, after: bytes) -> tuple[bytes, bytes]:
        """Return the bytes of a frame before and after its text."""
        start, _, end = self._frame(choice, before + b"\0" + after).partition(b"\0")
        return start, end

    def _end_block(self, event: BlockEnded) -> bytes:
        block = self._blocks.pop(event.block)
        (self._reasoning_frames if block.kind is BlockKind.REASONING else self._text_frames).pop(event.block)
        choice = self._choices[block.index]
        if block.kind is BlockKind.TEXT:
            choice.chars += block.size()
        self._cite(block)
        if block.signature is None:
            return b""
        details = write_reasoning_details(block.signature, choice.details, block.position, self._context)
        choice.details += len(details)
        return self._chunk(block.index, {"reasoning_details": details})

    def _cite(self, block: _WrittenBlock) -> None:
        """Collect the citations of a block. One without a span cites the whole block."""
        for citation in block.citations:
            body = write_citation(citation, block.position[0], block.size(), block.index, self._ledger)
            if body is not None:
                self._choices[block.index].annotations.append(body)

    def _annotations(self, index: int) -> bytes:
        """Return all citations of a choice in one frame.

        At a second frame with citations "Expected list delta entry to have an `index` key" is raised (openai-python
        3.54.0, lib/streaming/_deltas.py), and openai-node keeps only those of the last one.
        """
        annotations = self._choices[index].annotations
        return self._chunk(index, {"annotations": annotations}) if annotations else b""

    def _fail(self, event: Failed) -> bytes:
        for block in self._blocks.values():
            self._cite(block)
        return b"".join(map(self._annotations, self._choices)) + error_frame(event.error)

    def _logprobs(self, event: Logprobs) -> bytes:
        block = self._blocks[event.block]
        refused = block.kind is BlockKind.REFUSAL
        logprobs = write_logprobs([] if refused else event.tokens, event.tokens if refused else [])
        return self._frame(block.index, b"{}", logprobs=encode(logprobs))

    def _opaque(self, event: Opaque) -> bytes:
        if event.path == f"/{event.kind}":  # a member of the response itself
            if event.kind == "moderation":
                return self._head + b"]," + encode({event.kind: event.native})[1:-1] + self._tail[1:]
            self._fields[event.kind] = event.native  # part of all chunks from now on
            self._set_head(None)
            return b""
        out = self._open_choice(event.choice)
        return out + self._chunk(event.choice, {event.kind: event.native})

    def _end(self) -> bytes:
        out = b""
        if self._usage.service_tier is not None:
            self._set_head(self._usage.service_tier)
        for index, choice in self._choices.items():
            stopped = choice.stopped
            if stopped is None:
                continue
            if stopped.explanation is not None and not choice.has_content:
                out += self._chunk(index, {"refusal": stopped.explanation})
            elif stopped.explanation is not None:
                note_lost_explanation(self._ledger)
            out += self._annotations(index)
            finish = encode(write_finish_reason(stopped, choice.calls, self._legacy, self._ledger))
            if stopped.sequence is not None:
                finish += b',"stop_reason":' + encode(stopped.sequence)
            out += self._frame(index, b"{}", finish)
        if self._context.request.include_usage:
            usage = encode(write_usage(self._usage, self._ledger))
            out += self._head + b'],"usage":' + usage + b"}\n\n"
        return out + b"data: [DONE]\n\n"


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
            _MessageBuilder(response, stopped, context, ledger).choice()
            for stopped in sorted(response.stops, key=lambda stopped: stopped.choice)
        ],
    }
    if response.usage.input is not None or response.usage.output is not None:
        body["usage"] = write_usage(response.usage, ledger)
    for block in response.blocks:
        if isinstance(block, Opaque) and _is_response_member(block):
            body[block.kind] = block.native
    tier = write_service_tier(response.service_tier, ledger)
    if tier is not None:
        body["service_tier"] = tier
    return body


class _MessageBuilder:
    """Builds the message of one choice."""

    def __init__(
        self, response: AssembledResponse, stopped: Stopped, context: ResponseContext, ledger: Ledger
    ) -> None:
        self._stopped = stopped
        self._context = context
        self._ledger = ledger
        self._legacy = uses_legacy_functions(context)
        self._text = ""
        self._refusal = ""
        self._reasoning: list[str] = []
        self._details: list[JSONObject] = []
        self._annotations: list[JSONObject] = []
        self._calls: list[JSONObject] = []
        self._tokens: dict[BlockKind, list[JSON]] = {kind: [] for kind in BlockKind}
        self._opaque_members: JSONObject = {}
        for block in response.blocks:
            if isinstance(block, Compacted):
                self._text += block.text
            elif block.choice != stopped.choice:
                continue
            elif isinstance(block, AssembledBlock):
                self._add(block)
            elif not _is_response_member(block):
                self._opaque_members[block.kind] = _extended(
                    self._opaque_members.get(block.kind), block.native
                )

    def _add(self, block: AssembledBlock) -> None:
        if block.phase is not None:
            self._ledger.dropped(f"/choices/{block.choice}/message/phase", NO_PHASE)
        self._tokens[block.kind] += block.logprobs
        if block.tool is not None:
            self._calls.append(write_tool_call(block.tool, block.text))
        elif block.kind is BlockKind.REASONING:
            self._reasoning += [part.text for part in block.reasoning if part.text]
            if block.signature is not None:
                position = len(self._text), len(self._calls)
                self._details += write_reasoning_details(
                    block.signature, len(self._details), position, self._context
                )
        elif block.kind is BlockKind.REFUSAL:
            self._refusal += block.text
        else:
            if self._calls:
                note_text_after_call(block.choice, self._ledger)
            base = len(self._text)
            self._text += block.text
            for each in block.annotations:
                body = write_citation(each, base, len(block.text), block.choice, self._ledger)
                if body is not None:
                    self._annotations.append(body)

    def choice(self) -> JSONObject:
        stopped = self._stopped
        logprobs = write_logprobs(self._tokens[BlockKind.TEXT], self._tokens[BlockKind.REFUSAL])
        choice: JSONObject = {
            "index": stopped.choice,
            "message": self._message(),
            "logprobs": logprobs if any(logprobs.values()) else None,
            "finish_reason": write_finish_reason(stopped, len(self._calls), self._legacy, self._ledger),
        }
        if stopped.sequence is not None:
            choice["stop_reason"] = stopped.sequence
        return choice

    def _message(self) -> JSONObject:
        text, refusal, explanation = self._text, self._refusal, self._stopped.explanation
        if not text and not refusal:
            refusal = explanation or ""
        elif explanation is not None:
            note_lost_explanation(self._ledger)
        message: JSONObject = {
            "role": "assistant",
            "content": None if not text and (self._calls or refusal) else text,
            "refusal": refusal or None,
        }
        if self._reasoning:
            message["reasoning_content"] = PARAGRAPH_BREAK.join(self._reasoning)
        if self._details:
            message["reasoning_details"] = self._details
        if self._annotations:
            message["annotations"] = self._annotations
        if self._calls and self._legacy:
            message["function_call"] = self._calls[0]["function"]
        elif self._calls:
            message["tool_calls"] = self._calls
        message.update(self._opaque_members)
        return message


def _is_response_member(block: Opaque) -> bool:
    """True if it is a member of the response itself, not of a message."""
    return block.path == f"/{block.kind}"


def _extended(before: JSON, native: JSON) -> JSON:
    """Join the pieces of a list, such as images. Of any other value the last one counts."""
    return before + native if type(before) is list and type(native) is list else native
