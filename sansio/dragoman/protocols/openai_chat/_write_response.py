"""Events -> a Chat Completions answer, streamed or whole.

Strategy: the SDK's accumulator joins every repeated string, so role, ids and names come once; `usage` comes in
one last chunk with empty `choices`. Everything in a chunk but the text is constant while a block is open: the
bytes before and after it are made once per block. Whole answers are printed from the fold of the same events.
"""

from __future__ import annotations

from dragoman._events import (
    Annotation,
    ArgumentsDelta,
    BlockEnded,
    BlockKind,
    BlockStarted,
    Ended,
    Event,
    Failed,
    Logprobs,
    Opaque,
    ReasoningDelta,
    Seal,
    SealDelta,
    Started,
    Stopped,
    StopReason,
    TextDelta,
    ToolHead,
    ToolKind,
    Usage,
)
from dragoman._fold import Answer, Block
from dragoman._json import JSON, JSONObject, encode
from dragoman._loss import Ledger
from dragoman._spec import Exchange

from ._errors import error_frame
from ._tables import FINISH_REASONS, NAME, SEAL_FORMAT, SERVICE_TIERS, VAGUE_STOPS
from ._usage import write_usage

_NO_TIER = "Chat Completions has no such service tier"
_NO_PHASE = "messages have no phase here"
_NO_EXPLANATION = "there is text, and no place for an explanation beside it"

# Between paragraphs of reasoning, which here is one string.
_BREAK = "\n\n"


class _Choice:
    """What has been written of one choice."""

    __slots__ = ("calls", "part", "seals", "spoke", "stopped", "thought")

    def __init__(self) -> None:
        self.calls = 0
        self.seals = 0
        self.spoke = False  # some text or refusal was written
        self.thought = False  # some reasoning text was written
        self.part: tuple[int, int] | None = None  # block and part of the last reasoning text
        self.stopped: Stopped | None = None


class ChatWriter:
    """Writes one stream."""

    __slots__ = (
        "_blocks",
        "_choice_of",
        "_choices",
        "_exchange",
        "_head",
        "_ledger",
        "_legacy",
        "_seals",
        "_tail",
        "_usage",
    )

    def __init__(self, exchange: Exchange, ledger: Ledger) -> None:
        self._exchange = exchange
        self._ledger = ledger
        self._legacy = _wants_legacy(exchange)
        self._choices: dict[int, _Choice] = {}
        self._choice_of: dict[int, int] = {}  # block -> choice
        self._blocks: dict[int, tuple[bytes, bytes]] = {}  # block -> the bytes around the text of a chunk
        self._seals: dict[int, Seal] = {}
        self._usage = Usage()
        self._head = b""
        self._tail = b""

    def send(self, event: Event) -> bytes:
        kind = type(event)
        if kind is TextDelta or kind is ArgumentsDelta:
            before, after = self._blocks[event.block]  # type: ignore[union-attr]
            return before + encode(event.text) + after  # type: ignore[union-attr]
        if isinstance(event, ReasoningDelta):
            before, after = self._blocks[event.block]
            choice = self._choices[self._choice_of[event.block]]
            place = (event.block, event.part)
            text = event.text
            if choice.part != place:
                text = _BREAK + text if choice.part is not None else text
                choice.part = place
            return before + encode(text) + after
        return self._rare(event)

    def _rare(self, event: Event) -> bytes:
        if isinstance(event, BlockStarted):
            return self._start_block(event)
        if isinstance(event, BlockEnded):
            return self._end_block(event)
        if isinstance(event, SealDelta):
            self._seals[event.block] = event.seal
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
            return error_frame(event.fault)
        elif isinstance(event, Logprobs):
            return self._logprobs(event)
        elif isinstance(event, Annotation):
            body = _annotation(event, self._ledger)
            return self._chunk(self._choice_of[event.block], {"annotations": [body]}) if body else b""
        else:
            assert isinstance(event, Opaque)  # deltas went the short way
            return self._opaque(event)
        return b""

    def _start(self, event: Started) -> None:
        exchange = self._exchange
        head: JSONObject = {
            "id": f"chatcmpl-{exchange.id}",
            "object": "chat.completion.chunk",
            "created": exchange.now,
            "model": exchange.model,
        }
        if event.service_tier in SERVICE_TIERS:
            head["service_tier"] = event.service_tier
        elif event.service_tier is not None:
            self._ledger.dropped("/service_tier", _NO_TIER)
        self._head = b"data: " + encode(head)[:-1] + b',"choices":['
        # "All other chunks will also include a usage field, but with a null value."
        self._tail = b'],"usage":null}\n\n' if exchange.request.include_usage else b"]}\n\n"

    def _frame(self, choice: int, delta: bytes, finish: bytes = b"null", logprobs: bytes = b"null") -> bytes:
        return (
            self._head
            + b'{"index":%d,"delta":%b,"logprobs":%b,"finish_reason":%b}' % (choice, delta, logprobs, finish)
            + self._tail
        )

    def _chunk(self, choice: int, delta: JSONObject) -> bytes:
        return self._frame(choice, encode(delta))

    def _open_choice(self, index: int) -> bytes:
        """The first delta of a choice, once: role, and empty content."""
        if index in self._choices:
            return b""
        self._choices[index] = _Choice()
        return self._frame(index, b'{"role":"assistant","content":"","refusal":null}')

    def _start_block(self, event: BlockStarted) -> bytes:
        index = event.choice
        if event.phase is not None:
            self._ledger.dropped(f"/choices/{index}/message/phase", _NO_PHASE)
        out = self._open_choice(index)
        choice = self._choices[index]
        self._choice_of[event.block] = index
        if event.tool is None:
            choice.spoke = choice.spoke or event.kind is not BlockKind.REASONING
            self._around(event.block, index, _MEMBERS[event.kind], b"}")
            return out
        number = choice.calls
        choice.calls += 1
        if self._legacy:
            delta: JSONObject = {"function_call": {"name": event.tool.name, "arguments": ""}}
            self._around(event.block, index, b'{"function_call":{"arguments":', b"}}")
        else:
            member, text = _CALL_MEMBERS[event.tool.kind]
            delta = {"tool_calls": [{"index": number, **_call(event.tool, "")}]}
            before = b'{"tool_calls":[{"index":%d,"%b":{"%b":' % (number, member, text)
            self._around(event.block, index, before, b"}}]}")
        return out + self._chunk(index, delta)

    def _around(self, block: int, choice: int, before: bytes, after: bytes) -> None:
        """Keep the bytes around the text of a block's chunks."""
        whole = self._frame(choice, before + b"\0" + after)
        start, _, end = whole.partition(b"\0")
        self._blocks[block] = (start, end)

    def _end_block(self, event: BlockEnded) -> bytes:
        del self._blocks[event.block]
        index = self._choice_of[event.block]
        seal = self._seals.pop(event.block, None)
        if seal is None:
            return b""
        choice = self._choices[index]
        details = _details(seal, choice.seals, self._exchange)
        choice.seals += len(details)
        return self._chunk(index, {"reasoning_details": details})

    def _logprobs(self, event: Logprobs) -> bytes:
        before, _ = self._blocks[event.block]
        refused = before.endswith(_MEMBERS[BlockKind.REFUSAL])
        logprobs = _logprobs([] if refused else event.tokens, event.tokens if refused else [])
        return self._frame(self._choice_of[event.block], b"{}", logprobs=encode(logprobs))

    def _opaque(self, event: Opaque) -> bytes:
        if event.path == f"/{event.kind}":  # a member of the answer itself
            return self._head + b"]," + encode({event.kind: event.native})[1:-1] + self._tail[1:]
        out = self._open_choice(event.choice)
        return out + self._chunk(event.choice, {event.kind: event.native})

    def _end(self) -> bytes:
        out = b""
        for index, choice in self._choices.items():
            stopped = choice.stopped
            if stopped is None:
                continue
            if stopped.explanation is not None and not choice.spoke:
                out += self._chunk(index, {"refusal": stopped.explanation})
            elif stopped.explanation is not None:
                self._ledger.dropped("/stop_details/explanation", _NO_EXPLANATION)
            finish = encode(_finish_reason(stopped, choice.calls, self._legacy, self._ledger))
            if stopped.sequence is not None:
                finish += b',"stop_reason":' + encode(stopped.sequence)
            out += self._frame(index, b"{}", finish)
        if self._exchange.request.include_usage:
            usage = encode(write_usage(self._usage, self._exchange.prompt_tokens, self._ledger))
            out += self._head + b'],"usage":' + usage + b"}\n\n"
        return out + b"data: [DONE]\n\n"


def write_whole(answer: Answer, exchange: Exchange, ledger: Ledger) -> JSONObject:
    """The body of a whole answer."""
    legacy = _wants_legacy(exchange)
    body: JSONObject = {
        "id": f"chatcmpl-{exchange.id}",
        "object": "chat.completion",
        "created": exchange.now,
        "model": exchange.model,
        "choices": [
            _whole_choice(answer, stopped, legacy, exchange, ledger)
            for stopped in sorted(answer.stops, key=lambda stopped: stopped.choice)
        ],
        "usage": write_usage(answer.usage, exchange.prompt_tokens, ledger),
    }
    for block in answer.blocks:
        if isinstance(block, Opaque) and block.path == f"/{block.kind}":
            body[block.kind] = block.native
    if answer.started.service_tier in SERVICE_TIERS:
        body["service_tier"] = answer.started.service_tier
    elif answer.started.service_tier is not None:
        ledger.dropped("/service_tier", _NO_TIER)
    return body


def _whole_choice(
    answer: Answer, stopped: Stopped, legacy: bool, exchange: Exchange, ledger: Ledger
) -> JSONObject:
    texts: dict[BlockKind, list[str]] = {kind: [] for kind in BlockKind}
    tokens: dict[BlockKind, list[JSON]] = {kind: [] for kind in BlockKind}
    calls: list[Block] = []
    details: list[JSONObject] = []
    annotations: list[JSONObject] = []
    others: JSONObject = {}
    for block in answer.blocks:
        if block.choice != stopped.choice:
            continue
        if isinstance(block, Opaque):
            if block.path != f"/{block.kind}":
                others[block.kind] = _extended(others.get(block.kind), block.native)
            continue
        if block.phase is not None:
            ledger.dropped(f"/choices/{block.choice}/message/phase", _NO_PHASE)
        tokens[block.kind] += block.logprobs
        if block.kind is BlockKind.TOOL_CALL:
            calls.append(block)
        elif block.kind is BlockKind.REASONING:
            texts[block.kind] += [part.text for part in block.reasoning if part.text]
            if block.seal is not None:
                details += _details(block.seal, len(details), exchange)
        else:
            texts[block.kind].append(block.text)
            annotations += [body for each in block.annotations if (body := _annotation(each, ledger))]
    text, refusal = "".join(texts[BlockKind.TEXT]), "".join(texts[BlockKind.REFUSAL])
    if not text and not refusal:
        refusal = stopped.explanation or ""
    elif stopped.explanation is not None:
        ledger.dropped("/stop_details/explanation", _NO_EXPLANATION)
    message: JSONObject = {
        "role": "assistant",
        "content": None if not text and (calls or refusal) else text,
        "refusal": refusal or None,
    }
    if texts[BlockKind.REASONING]:
        message["reasoning_content"] = _BREAK.join(texts[BlockKind.REASONING])
    if details:
        message["reasoning_details"] = details
    if annotations:
        message["annotations"] = annotations
    if calls and legacy:
        message["function_call"] = _called(calls[0])["function"]
    elif calls:
        message["tool_calls"] = [_called(block) for block in calls]
    message.update(others)
    logprobs = _logprobs(tokens[BlockKind.TEXT], tokens[BlockKind.REFUSAL])
    choice: JSONObject = {
        "index": stopped.choice,
        "message": message,
        "logprobs": logprobs if any(logprobs.values()) else None,
        "finish_reason": _finish_reason(stopped, len(calls), legacy, ledger),
    }
    if stopped.sequence is not None:
        choice["stop_reason"] = stopped.sequence
    return choice


def _extended(before: JSON, native: JSON) -> JSON:
    """Pieces of a list (images) are joined; of anything else the last one counts."""
    return before + native if type(before) is list and type(native) is list else native


# The constant part of a delta before its text.
_MEMBERS = {
    BlockKind.TEXT: b'{"content":',
    BlockKind.REFUSAL: b'{"refusal":',
    BlockKind.REASONING: b'{"reasoning_content":',
}
# The members of a call that hold its text.
_CALL_MEMBERS = {
    ToolKind.FUNCTION: (b"function", b"arguments"),
    ToolKind.CUSTOM: (b"custom", b"input"),
}


def _wants_legacy(exchange: Exchange) -> bool:
    """Whether the client speaks of `functions`, and so reads `function_call` alone."""
    raw = exchange.request.raw
    return exchange.request.protocol == NAME and bool(raw.get("functions")) and not raw.get("tools")


def _called(block: Block) -> JSONObject:
    assert block.tool is not None  # the fold keeps the head of every call
    return _call(block.tool, block.text)


def _call(head: ToolHead, text: str) -> JSONObject:
    inner: JSONObject = {"name": head.name, "input" if head.kind is ToolKind.CUSTOM else "arguments": text}
    return {"id": head.call_id, "type": head.kind.value, head.kind.value: inner}


def _details(seal: Seal, number: int, exchange: Exchange) -> list[JSONObject]:
    """The entries of reasoning_details that bring a seal back to us. `number` is the index of the first."""
    if seal.origin == NAME and type(seal.native) is dict:
        native = seal.native.get("reasoning_details")
        if type(native) is list:
            return native
    data = exchange.sealer.wrap(seal)
    return [{"type": "reasoning.encrypted", "data": data, "format": SEAL_FORMAT, "index": number}]


def _annotation(event: Annotation, ledger: Ledger) -> JSONObject | None:
    if event.origin == NAME:
        native: JSONObject = event.native
        return native
    if event.url is None:
        ledger.dropped("/choices/0/message/annotations", "a citation of something without a URL")
        return None
    if event.says_more():
        ledger.altered("/choices/0/message/annotations", "only source and span of the citation were carried")
    citation = {
        "url": event.url,
        "title": event.title or "",
        "start_index": event.start or 0,
        "end_index": event.end or 0,
    }
    return {"type": "url_citation", "url_citation": citation}


def _logprobs(content: list[JSON], refusal: list[JSON]) -> JSONObject:
    return {"content": content or None, "refusal": refusal or None}


def _finish_reason(stopped: Stopped, calls: int, legacy: bool, ledger: Ledger) -> str:
    reason = stopped.reason
    if reason in VAGUE_STOPS:
        path = f"/choices/{stopped.choice}/finish_reason"
        ledger.altered(path, f"the upstream stopped for {reason.value}, which is told as stop")
    if reason in (StopReason.END, StopReason.TOOL_USE):
        # Agents go by this word: it says tool_calls if and only if there are some.
        reason = StopReason.TOOL_USE if calls else StopReason.END
    if legacy and reason is StopReason.TOOL_USE:
        return "function_call"
    return FINISH_REASONS[reason]
