"""Events -> a stream, or a whole answer, for a client.

Strategy: the index counts the blocks that were really opened, so it is contiguous. A reasoning block opens
at its first content, because only that tells a readable block from a redacted one. The frame around a text
delta is the same for the whole block: it is made once, and each delta only encodes its text. The stop
reason and the usage wait for the end, where one message_delta says both.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import msgspec

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
    Search,
    Signature,
    SignatureDelta,
    Started,
    Stopped,
    StopReason,
    TextDelta,
    Usage,
)
from dragoman._ir.losses import Ledger, child
from dragoman._ir.signatures import Signer
from dragoman._wire.json import JSON, JSONObject, encode, encode_text, is_object_text
from dragoman._wire.sse import encode_frame
from dragoman.codec import ResponseContext
from dragoman.protocols.anthropic_messages.errors import error_frame
from dragoman.protocols.anthropic_messages.tables import (
    CONTENT_PLACEHOLDER,
    DEFAULT_TIER,
    DELTA_HEADS,
    NAME,
    PING,
    SEARCH_ID_PREFIX,
    STOP_REASON_NAMES,
    STREAMED_INPUT,
    SUMMARY_ORIGIN,
)
from dragoman.protocols.anthropic_messages.usage import final_usage, start_usage

_TAIL = b"}}\n\n"

# Reasoning that was cut off has no seal, and "a thinking block must have a signature": an empty one would look
# broken to clients and be refused by the vendor. This one says that there is nothing to give back to anybody.
NO_SIGNATURE = Signature("", None)

# Fields of the whole message that message_delta has a place for, and where: in its delta or beside it.
_LATE_FIELDS = {"container": True, "context_management": False}


class MessagesWriter:
    """Writes one stream. The events must be legal, one block open at a time."""

    __slots__ = (
        "_calls",
        "_delta",
        "_exchange",
        "_fields",
        "_head",
        "_index",
        "_ledger",
        "_part",
        "_path",
        "_refused",
        "_stop",
        "_tier",
        "_unsigned",
        "_usage",
    )

    def __init__(self, context: ResponseContext, ledger: Ledger) -> None:
        self._exchange = context
        self._ledger = ledger
        self._index = -1  # of the open block, or of the last one
        self._head = b""  # the bytes before the text of a delta of the open block; b"" while it is not shown
        self._path = ""  # where the open block stood in the upstream's answer
        self._part = 0  # the part of the open reasoning block
        self._unsigned = False  # the open block is reasoning without its signature
        self._calls = False
        self._refused = False
        self._stop: Stopped | None = None
        self._tier = DEFAULT_TIER  # what the client was told
        self._usage = Usage()
        self._fields: JSONObject = {}  # of the message, from an upstream of this protocol

    def send(self, event: Event) -> bytes:
        """The frames for one event."""
        if isinstance(event, (TextDelta, ArgumentsDelta)):
            return self._head + encode(event.text) + _TAIL
        if type(event) is ReasoningDelta and event.part == self._part and self._head:
            return self._head + encode(event.text) + _TAIL
        return _SEND[type(event)](self, event)

    def _started(self, event: Started) -> bytes:
        self._tier = event.service_tier or DEFAULT_TIER
        context = self._exchange
        usage = start_usage(context.prompt_tokens, event.service_tier, self._ledger)
        message = _message(context, event.id, [], usage)
        return _frame("message_start", message=message) + PING

    def _block_started(self, event: BlockStarted) -> bytes:
        self._path = event.path or f"/content/{self._index + 1}"
        if event.phase is not None:
            self._ledger.dropped(f"{self._path}/phase", "Messages has no phases of messages")
        self._head = b""
        self._part = 0
        if event.kind is BlockKind.REASONING:
            return b""
        if event.tool is not None:
            self._calls = True
            # Clients that check types take a missing caller or a real one; every call here is a direct one.
            return self._open(
                event.kind,
                {
                    "type": "tool_use",
                    "id": event.tool.call_id,
                    "name": event.tool.name,
                    "input": {},
                    "caller": {"type": "direct"},
                },
            )
        if event.kind is BlockKind.REFUSAL:
            self._refused = True
        return self._open(event.kind, {"type": "text", "text": "", "citations": None})

    def _open(self, kind: BlockKind, block: JSONObject) -> bytes:
        self._index += 1
        head = f'{{"type":"content_block_delta","index":{self._index},"delta":{DELTA_HEADS[kind]}'
        self._head = b"event: content_block_delta\ndata: " + head.encode("ascii")
        return _frame("content_block_start", index=self._index, content_block=block)

    def _think(self) -> bytes:
        """Show the reasoning block, if it is not shown yet."""
        if self._head:
            return b""
        self._unsigned = True
        return self._open(BlockKind.REASONING, {"type": "thinking", "thinking": "", "signature": ""})

    def _reasoning_delta(self, event: ReasoningDelta) -> bytes:
        text = event.text
        shown = b""
        if not self._head:
            shown = self._think()
            self._part = event.part
        else:  # send() has dealt with more of the same part
            self._part = event.part
            text = f"\n\n{text}"
        return shown + self._head + encode(text) + _TAIL

    def _seal_delta(self, event: SignatureDelta) -> bytes:
        redacted = redacted_block(event.seal)
        if redacted is not None and not self._head:
            return self._open(BlockKind.REASONING, redacted)
        return self._think() + self._sign(event.seal)

    def _sign(self, seal: Signature) -> bytes:
        self._unsigned = False
        signature = signature_of(seal, self._exchange.signer)
        return self._delta_frame({"type": "signature_delta", "signature": signature})

    def _annotation(self, event: Annotation) -> bytes:
        citation = write_citation(event, self._path, self._ledger)
        if citation is None:
            return b""
        return self._delta_frame({"type": "citations_delta", "citation": citation})

    def _logprobs(self, event: Logprobs) -> bytes:
        self._ledger.dropped(f"{self._path}/logprobs", "Messages has no log probabilities")
        return b""

    def _delta_frame(self, delta: JSONObject) -> bytes:
        return _frame("content_block_delta", index=self._index, delta=delta)

    def _block_ended(self, event: BlockEnded) -> bytes:
        if not self._head:  # reasoning without any content
            return b""
        self._head = b""
        signed = self._sign(NO_SIGNATURE) if self._unsigned else b""
        return signed + _frame("content_block_stop", index=self._index)

    def _opaque(self, event: Opaque) -> bytes:
        """A block of an upstream of this protocol or a field of its message, or a search of another's."""
        if event.search is not None and event.origin != NAME:
            blocks = write_search(event.search, self._exchange.id, self._index + 1)
            return b"".join([self._whole(block) for block in blocks])
        if event.kind == "message":
            self._fields.update(event.native)
            return b""
        return self._whole(event.native)

    def _compacted(self, event: Compacted) -> bytes:
        return self._whole(write_compaction(event.text, self._exchange.signer))

    def _whole(self, block: JSONObject) -> bytes:
        """The frames of a block that is whole. What clients expect in deltas goes in deltas."""
        self._index += 1
        index = self._index
        start, delta = _cut(block)
        out = _frame("content_block_start", index=index, content_block=start)
        if delta is not None:
            out += self._delta_frame(delta)
        return out + _frame("content_block_stop", index=index)

    def _count(self, event: Usage) -> bytes:
        self._usage = self._usage.updated(event)
        return b""

    def _stopped(self, event: Stopped) -> bytes:
        self._stop = event
        return b""

    def _ended(self, event: Ended) -> bytes:
        # Who was told none takes it for the usual one.
        if self._usage.service_tier not in (None, self._tier):
            self._ledger.altered("/service_tier", "clients were told the tier that the answer began with")
        delta = stop_fields(self._stop, self._calls, self._refused)
        delta["container"] = None
        fields: JSONObject = {
            "delta": delta,
            "usage": final_usage(self._usage, self._ledger),
        }
        for key, value in self._fields.items():
            inside = _LATE_FIELDS.get(key)
            if inside is None:
                self._ledger.dropped(child("", key), "the end of a stream has no place for it")
            elif inside:
                delta[key] = value
            else:
                fields[key] = value
        return _frame("message_delta", **fields) + _frame("message_stop")

    def _failed(self, event: Failed) -> bytes:
        return error_frame(event.error, self._exchange.id)


_SEND: dict[type[Event], Callable[[MessagesWriter, Any], bytes]] = {
    Started: MessagesWriter._started,
    BlockStarted: MessagesWriter._block_started,
    ReasoningDelta: MessagesWriter._reasoning_delta,
    SignatureDelta: MessagesWriter._seal_delta,
    Annotation: MessagesWriter._annotation,
    Logprobs: MessagesWriter._logprobs,
    BlockEnded: MessagesWriter._block_ended,
    Opaque: MessagesWriter._opaque,
    Compacted: MessagesWriter._compacted,
    Usage: MessagesWriter._count,
    Stopped: MessagesWriter._stopped,
    Ended: MessagesWriter._ended,
    Failed: MessagesWriter._failed,
}


def write_whole(answer: AssembledResponse, context: ResponseContext, ledger: Ledger) -> JSONObject:
    """A whole answer."""
    content: list[JSONObject] = []
    fields: JSONObject = {}
    calls = refused = False
    for block in answer.blocks:
        if isinstance(block, Compacted):
            content.append(write_compaction(block.text, context.signer))
            continue
        if isinstance(block, Opaque):
            if block.search is not None and block.origin != NAME:
                content += write_search(block.search, context.id, len(content))
            elif block.kind == "message":
                fields.update(block.native)
            else:
                content.append(block.native)
            continue
        calls = calls or block.kind is BlockKind.TOOL_CALL
        refused = refused or block.kind is BlockKind.REFUSAL
        written = _whole_block(block, len(content), context.signer, ledger)
        if written is not None:
            content.append(written)
    usage = start_usage(context.prompt_tokens, answer.service_tier, ledger)
    usage.update(final_usage(answer.usage, ledger))
    message = _message(context, answer.started.id, content, usage)
    message.update(stop_fields(answer.stops[0] if answer.stops else None, calls, refused))
    message.update(fields)
    return message


def _whole_block(block: AssembledBlock, index: int, signer: Signer, ledger: Ledger) -> JSONObject | None:
    """One block, None when there is nothing in it: an empty block is refused when it comes back."""
    path = block.path or f"/content/{index}"
    if block.phase is not None:
        ledger.dropped(f"{path}/phase", "Messages has no phases of messages")
    if block.kind is BlockKind.TOOL_CALL:
        assert block.tool is not None
        return {
            "type": "tool_use",
            "id": block.tool.call_id,
            "name": block.tool.name,
            "input": _whole_input(block.text, path, ledger),
            "caller": {"type": "direct"},
        }
    if block.kind is BlockKind.REASONING:
        return _whole_reasoning(block, signer)
    if block.logprobs:
        ledger.dropped(f"{path}/logprobs", "Messages has no log probabilities")
    citations = [write_citation(annotation, path, ledger) for annotation in block.annotations]
    kept = [citation for citation in citations if citation is not None]
    if not block.text and not kept:
        return None
    return {"type": "text", "text": block.text, "citations": kept or None}


def _whole_input(text: str, path: str, ledger: Ledger) -> JSON:
    if not text:
        return {}
    if is_object_text(text):
        return msgspec.Raw(text.encode("utf-8"))
    ledger.altered(f"{path}/input", "the arguments are no JSON object: they stand as text under _raw")
    return {"_raw": text}


def _whole_reasoning(block: AssembledBlock, signer: Signer) -> JSONObject | None:
    text = "\n\n".join(part.text for part in block.reasoning)
    if block.seal is None:
        signature = signature_of(NO_SIGNATURE, signer)
        return {"type": "thinking", "thinking": text, "signature": signature} if text else None
    redacted = redacted_block(block.seal)
    if redacted is not None and not text:
        return redacted
    return {"type": "thinking", "thinking": text, "signature": signature_of(block.seal, signer)}


def _cut(block: JSONObject) -> tuple[JSONObject, JSONObject | None]:
    """A block as it starts, and the delta that completes it."""
    if block["type"] in STREAMED_INPUT and block.get("input"):
        # A start with its input would be read as half of it.
        return {**block, "input": {}}, {
            "type": "input_json_delta",
            "partial_json": encode_text(block["input"]),
        }
    if block["type"] == "compaction":
        texts: JSONObject = {key: block[key] for key in ("content", "encrypted_content") if key in block}
        return {**block, **dict.fromkeys(texts)}, {"type": "compaction_delta", **texts}
    return block, None


# --- shared by both ---------------------------------------------------------------------------------------


def _message(
    context: ResponseContext, upstream_id: str, content: list[JSONObject], usage: JSONObject
) -> JSONObject:
    """The message object, with every field that the vendor's types demand."""
    return {
        "id": context.response_id("msg_", upstream_id),
        "type": "message",
        "role": "assistant",
        "model": context.model,
        "content": content,
        "stop_reason": None,
        "stop_sequence": None,
        "stop_details": None,
        "container": None,
        "diagnostics": None,
        "usage": usage,
    }


def stop_fields(stop: Stopped | None, calls: bool, refused: bool) -> JSONObject:
    """stop_reason, stop_sequence and stop_details."""
    reason = StopReason.END if stop is None else stop.reason
    if reason is StopReason.END:
        # Agents run tools only on tool_use, whatever the upstream called the end of such a turn.
        if calls:
            reason = StopReason.TOOL_USE
        elif refused:
            reason = StopReason.CONTENT_FILTER
    details: JSON = None
    if reason is StopReason.CONTENT_FILTER:
        given = None if stop is None else stop.details
        explanation = None if stop is None else stop.explanation
        details = (
            given
            if type(given) is dict and given.get("type") == "refusal"
            else {"type": "refusal", "category": None, "explanation": explanation}
        )
    return {
        "stop_reason": STOP_REASON_NAMES[reason],
        "stop_sequence": None if stop is None else stop.sequence,
        "stop_details": details,
    }


def signature_of(seal: Signature, signer: Signer) -> str:
    """The signature for a thinking block: the vendor's own, else the wrapped seal. Never an empty one."""
    if seal.origin == NAME and type(seal.native) is dict:
        signature = seal.native.get("signature")
        if type(signature) is str and signature:
            return signature
    return signer.wrap(seal)


def redacted_block(seal: Signature) -> JSONObject | None:
    """The native redacted_thinking block, if the seal is one."""
    if seal.origin == NAME and type(seal.native) is dict and seal.native.get("type") == "redacted_thinking":
        return cast(JSONObject, seal.native)
    return None


def _frame(event: str, **fields: JSON) -> bytes:
    return encode_frame(encode({"type": event, **fields}), event.encode("ascii"))


def write_citation(event: Annotation, block: str, ledger: Ledger) -> JSONObject | None:
    """The citation for an annotation, None when it is no citation of a web page. block: the path of its block."""
    if event.origin == NAME:
        return cast(JSONObject, event.native)
    path = event.path or f"{block}/citations"
    if event.url is None:
        ledger.dropped(path, "an annotation that names no web page")
        return None
    if event.start is not None or event.end is not None or event.has_unmapped_fields():
        ledger.altered(path, "only URL and title of the citation were carried")
    return {
        "type": "web_search_result_location",
        "url": event.url,
        "title": event.title,
        "cited_text": "",
        "encrypted_index": "",
    }


def write_search(search: Search, response_id: str, index: int) -> tuple[JSONObject, JSONObject]:
    """The blocks of a search that stands at `index` of the answer."""
    use_id = f"{SEARCH_ID_PREFIX}{response_id}_{index}"
    use: JSONObject = {
        "type": "server_tool_use",
        "id": use_id,
        "name": "web_search",
        "input": {"query": "\n".join(search.queries)},
        "caller": {"type": "direct"},
    }
    found = [
        {
            "type": "web_search_result",
            "url": source.url,
            "title": source.title or source.url,
            "encrypted_content": CONTENT_PLACEHOLDER,
            "page_age": None,
        }
        for source in search.sources
    ]
    result: JSONObject = {
        "type": "web_search_tool_result",
        "tool_use_id": use_id,
        "content": found,
        "caller": {"type": "direct"},
    }
    return use, result


def write_compaction(text: str, signer: Signer) -> JSONObject:
    """The block that takes the place of the conversation."""
    carrier = signer.wrap(Signature(SUMMARY_ORIGIN, {"summary": text}))
    return {"type": "compaction", "content": text, "encrypted_content": carrier}
