"""Write events as a stream, or as a complete response, for a client.

The index counts the blocks that were opened, so it is contiguous. A reasoning block opens at its first content, because
only that distinguishes a readable block from a redacted one. The frame around a text delta is built once a block, and
each delta only encodes its text. Stop reason and usage wait for the end, where one message_delta has both.

A search of another protocol is written as the two blocks of the vendor's own search. The search itself comes back in
the wrapped signature next to them, so their ids are marked and `request_messages_in` drops them. A summary is wrapped
into the field where the vendor has ciphertext, and read from there.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, cast

import msgspec

from dragoman._ir import events
from dragoman._ir.assembly import AssembledBlock, AssembledResponse
from dragoman._ir.events import BlockKind, Event, Search, Signature, ToolHead, Usage
from dragoman._ir.fast_path import Delta
from dragoman._ir.losses import Ledger, child
from dragoman._ir.tools import input_object
from dragoman._ir.wrapped_signatures import Signer, wrap_summary
from dragoman._wire.json import JSON, JSONObject, encode, encode_strings, encode_text
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
)
from dragoman.protocols.anthropic_messages.usage import write_start_usage, write_usage

_TAIL = b"}}\n\n"

# For reasoning that was cut off before its signature. The field is required (anthropic 2.12.0,
# types/thinking_block.py), an empty one would look broken to clients, and the vendor would refuse it. This one holds
# nothing for any upstream.
NO_SIGNATURE = Signature("", None)

# Fields of the message that message_delta has -> True if they are in its delta, False if next to it.
_MESSAGE_DELTA_FIELDS = {"container": True, "context_management": False}


class MessagesWriter(msgspec.Struct):
    """Writes one stream. The events must be legal, one block open at a time."""

    _context: ResponseContext
    _ledger: Ledger
    _index: int = -1  # of the open block, or of the last one
    _head: bytes = b""  # the bytes before the text of a delta of the open block; b"" before it is opened
    _path: str = ""  # of the open block in the upstream's response
    _part: int = 0  # of the open reasoning block
    _unsigned: bool = False  # the open block is reasoning without a signature so far
    _kinds: tuple[BlockKind, ...] = ()  # of the blocks so far; a set takes 150 bytes more
    _stop: events.Stopped | None = None
    _tier: str = DEFAULT_TIER  # as sent in message_start
    _usage: Usage = Usage()
    _fields: JSONObject = {}  # of the message, if the upstream speaks this protocol

    def send(self, event: Event) -> bytes:
        """Return the frames of one event."""
        if (
            type(event) is events.TextDelta
            or type(event) is events.ArgumentsDelta
            or (type(event) is events.ReasoningDelta and event.part == self._part and self._head)
        ):
            return self._head + encode(event.text) + _TAIL
        return _SENDERS[type(event)](self, event)

    def send_texts(self, delta: Delta, texts: list[str]) -> bytes:
        return self._head + (_TAIL + self._head).join(encode_strings(texts)) + _TAIL

    def _started(self, event: events.Started) -> bytes:
        self._tier = event.service_tier or DEFAULT_TIER
        usage = write_start_usage(self._context.prompt_tokens, event.service_tier, self._ledger)
        if event.usage is not None and event.usage.input:  # 0: it counts at the end
            usage.update(write_usage(event.usage, self._ledger))
        message = _write_message(self._context, event.id, [], usage)
        return _frame("message_start", message=message) + PING

    def _block_started(self, event: events.BlockStarted) -> bytes:
        self._path = event.path or f"/content/{self._index + 1}"
        if event.kind not in self._kinds:
            self._kinds += (event.kind,)
        self._head = b""
        self._part = 0
        if event.kind is events.REASONING:
            return b""
        if event.tool is not None:
            return self._open(event.kind, write_tool_use(event.tool, {}))
        return self._open(event.kind, {"type": "text", "text": "", "citations": None})

    def _open(self, kind: BlockKind, block: JSONObject) -> bytes:
        self._index += 1
        head = f'{{"type":"content_block_delta","index":{self._index},"delta":{DELTA_HEADS[kind]}'
        self._head = b"event: content_block_delta\ndata: " + head.encode("ascii")
        return _frame("content_block_start", index=self._index, content_block=block)

    def _open_thinking(self) -> bytes:
        """Open the reasoning block unless it is open."""
        if self._head:
            return b""
        self._unsigned = True
        return self._open(events.REASONING, {"type": "thinking", "thinking": "", "signature": ""})

    def _reasoning_delta(self, event: events.ReasoningDelta) -> bytes:
        # The first part of a block or a new one: send() writes further deltas of the same part.
        text = f"\n\n{event.text}" if self._head else event.text
        opened = self._open_thinking()
        self._part = event.part
        return opened + self._head + encode(text) + _TAIL

    def _signature_delta(self, event: events.SignatureDelta) -> bytes:
        redacted = redacted_block(event.signature)
        if redacted is not None and not self._head:
            return self._open(events.REASONING, redacted)
        return self._open_thinking() + self._sign(event.signature)

    def _sign(self, signature: Signature) -> bytes:
        self._unsigned = False
        text = signature_text(signature, self._context.signer)
        return self._delta_frame({"type": "signature_delta", "signature": text})

    def _annotation(self, event: events.Annotation) -> bytes:
        citation = write_citation(event, self._path, self._ledger)
        if citation is None:
            return b""
        return self._delta_frame({"type": "citations_delta", "citation": citation})

    def _logprobs(self, event: events.Logprobs) -> bytes:
        self._ledger.dropped(f"{self._path}/logprobs", "Messages has no log probabilities")
        return b""

    def _delta_frame(self, delta: JSONObject) -> bytes:
        return _frame("content_block_delta", index=self._index, delta=delta)

    def _block_ended(self, event: events.BlockEnded) -> bytes:
        if not self._head:  # reasoning without content
            return b""
        self._head = b""
        signed = self._sign(NO_SIGNATURE) if self._unsigned else b""
        return signed + _frame("content_block_stop", index=self._index)

    def _opaque(self, event: events.Opaque | events.Compacted) -> bytes:
        blocks = write_opaque(event, self._context, self._index + 1, self._fields)
        return b"".join([self._complete_block(block) for block in blocks])

    def _complete_block(self, block: JSONObject) -> bytes:
        """Return the frames of a complete block, with a delta for what clients expect in one."""
        self._index += 1
        start, delta = _split_delta(block)
        out = _frame("content_block_start", index=self._index, content_block=start)
        if delta is not None:
            out += self._delta_frame(delta)
        return out + _frame("content_block_stop", index=self._index)

    def _add_usage(self, event: Usage) -> bytes:
        self._usage = self._usage.updated(event)
        return b""

    def _stopped(self, event: events.Stopped) -> bytes:
        self._stop = event
        return b""

    def _ended(self, event: events.Ended) -> bytes:
        if self._usage.service_tier not in (None, self._tier):
            self._ledger.altered(
                "/service_tier", "the client received the tier with which the response began"
            )
        delta = write_stop(self._stop, self._kinds)
        delta["container"] = None
        fields: JSONObject = {
            "delta": delta,
            "usage": write_usage(self._usage, self._ledger),
        }
        for key, value in self._fields.items():
            in_delta = _MESSAGE_DELTA_FIELDS.get(key)
            if in_delta is None:
                self._ledger.dropped(child("", key), "the end of a stream has no field for it")
            elif in_delta:
                delta[key] = value
            else:
                fields[key] = value
        return _frame("message_delta", **fields) + _frame("message_stop")

    def _failed(self, event: events.Failed) -> bytes:
        return error_frame(event.error, self._context.id)


_SENDERS: dict[type[Event], Callable[[MessagesWriter, Any], bytes]] = {
    events.Started: MessagesWriter._started,
    events.BlockStarted: MessagesWriter._block_started,
    events.ReasoningDelta: MessagesWriter._reasoning_delta,
    events.SignatureDelta: MessagesWriter._signature_delta,
    events.Annotation: MessagesWriter._annotation,
    events.Logprobs: MessagesWriter._logprobs,
    events.BlockEnded: MessagesWriter._block_ended,
    events.Opaque: MessagesWriter._opaque,
    events.Compacted: MessagesWriter._opaque,
    Usage: MessagesWriter._add_usage,
    events.Stopped: MessagesWriter._stopped,
    events.Ended: MessagesWriter._ended,
    events.Failed: MessagesWriter._failed,
}


def write_whole(response: AssembledResponse, context: ResponseContext, ledger: Ledger) -> JSONObject:
    """Return the complete response."""
    content: list[JSONObject] = []
    fields: JSONObject = {}
    kinds: set[BlockKind] = set()
    for block in response.blocks:
        if isinstance(block, AssembledBlock):
            kinds.add(block.kind)
            content += _write_block(block, len(content), context.signer, ledger)
        else:
            content += write_opaque(block, context, len(content), fields)
    usage = write_start_usage(context.prompt_tokens, response.service_tier, ledger)
    usage.update(write_usage(response.usage, ledger))
    message = _write_message(context, response.started.id, content, usage)
    message.update(write_stop(response.stops[0] if response.stops else None, kinds))
    message.update(fields)
    return message


def _write_block(block: AssembledBlock, index: int, signer: Signer, ledger: Ledger) -> Sequence[JSONObject]:
    """Return one block, none if it is empty, because the API refuses an empty block when it comes back."""
    path = block.path or f"/content/{index}"
    if block.tool is not None:
        return (write_tool_use(block.tool, input_object(block.text, f"{path}/input", ledger)),)
    if block.kind is events.REASONING:
        text = "\n\n".join(part.text for part in block.reasoning)
        redacted = None if block.signature is None else redacted_block(block.signature)
        if redacted is not None and not text:
            return (redacted,)
        if block.signature is None and not text:
            return ()
        signature = signature_text(block.signature or NO_SIGNATURE, signer)
        return ({"type": "thinking", "thinking": text, "signature": signature},)
    if block.logprobs:
        ledger.dropped(f"{path}/logprobs", "Messages has no log probabilities")
    text_block: JSONObject = {"type": "text", "text": block.text}
    if block.annotations:
        citations = [write_citation(annotation, path, ledger) for annotation in block.annotations]
        written = [citation for citation in citations if citation is not None]
        if written:
            # As Anthropic's server does. The type has null for none, which Vercel's provider (@ai-sdk/anthropic 3)
            # refuses.
            text_block["citations"] = written
    return (text_block,) if len(text_block) > 2 or block.text else ()


def _split_delta(block: JSONObject) -> tuple[JSONObject, JSONObject | None]:
    """Return a block for content_block_start, and the delta that completes it."""
    if block["type"] in STREAMED_INPUT and block.get("input"):
        # Clients append the JSON text of deltas to an empty input.
        return {**block, "input": {}}, {
            "type": "input_json_delta",
            "partial_json": encode_text(block["input"]),
        }
    if block["type"] == "compaction":
        texts: JSONObject = {key: block[key] for key in ("content", "encrypted_content") if key in block}
        return {**block, **dict.fromkeys(texts)}, {"type": "compaction_delta", **texts}
    return block, None


# For streams and whole responses.


def _write_message(
    context: ResponseContext, upstream_id: str, content: list[JSONObject], usage: JSONObject
) -> JSONObject:
    """Return the message object with every field of its type (anthropic 2.12.0, types/message.py)."""
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


def write_stop(stop: events.Stopped | None, kinds: Collection[BlockKind]) -> JSONObject:
    """Return stop_reason, stop_sequence and stop_details. kinds: of the blocks of the response."""
    reason = events.END if stop is None else stop.reason
    if reason is events.END:
        # Agents run tools only on tool_use, and some upstreams end such a turn with another reason.
        if events.TOOL_CALL in kinds:
            reason = events.TOOL_USE
        elif events.REFUSAL in kinds:
            reason = events.CONTENT_FILTER
    details: JSON = None
    if reason is events.CONTENT_FILTER:
        native = None if stop is None else stop.details
        explanation = None if stop is None else stop.explanation
        details = (
            native
            if type(native) is dict and native.get("type") == "refusal"
            else {"type": "refusal", "category": None, "explanation": explanation}
        )
    return {
        "stop_reason": STOP_REASON_NAMES[reason],
        "stop_sequence": None if stop is None else stop.sequence,
        "stop_details": details,
    }


def write_tool_use(tool: ToolHead, arguments: JSON) -> JSONObject:
    """Return the block of a call. Clients that check types take no caller or a known one; "direct" is the default."""
    return {
        "type": "tool_use",
        "id": tool.call_id,
        "name": tool.name,
        "input": arguments,
        "caller": {"type": "direct"},
    }


def signature_text(signature: Signature, signer: Signer) -> str:
    """Return the signature of a thinking block: the vendor's own, else a wrapped one. It is never empty."""
    if signature.origin == NAME and type(signature.native) is dict:
        text = signature.native.get("signature")
        if type(text) is str and text:
            return text
    return signer.wrap(signature)


def redacted_block(signature: Signature) -> JSONObject | None:
    """Return the native redacted_thinking block, None if the signature is not one."""
    native = signature.native
    if signature.origin == NAME and type(native) is dict and native.get("type") == "redacted_thinking":
        return cast(JSONObject, native)
    return None


def _frame(event: str, **fields: JSON) -> bytes:
    return encode_frame(encode({"type": event, **fields}), event.encode("ascii"))


def write_citation(event: events.Annotation, block: str, ledger: Ledger) -> JSONObject | None:
    """Return the citation for an annotation, None if it does not cite a web page. block: the path of its block."""
    if event.origin == NAME:
        return cast(JSONObject, event.native)
    path = event.path or f"{block}/citations"
    if event.url is None:
        ledger.dropped(path, "only citations of web pages have a counterpart")
        return None
    if event.start is not None or event.end is not None or event.has_unmapped_fields():
        ledger.altered(path, "only the URL and title of the citation were kept")
    return {
        "type": "web_search_result_location",
        "url": event.url,
        "title": event.title or event.url,  # some clients accept no null
        "cited_text": "",
        "encrypted_index": "",
    }


def write_opaque(
    event: events.Opaque | events.Compacted, context: ResponseContext, index: int, fields: JSONObject
) -> Sequence[JSONObject]:
    """Return the blocks of an event: this protocol's own, a summary, or a search of another one at `index`.

    A field of the message is added to `fields`.
    """
    if isinstance(event, events.Compacted):
        summary = wrap_summary(event.text, context.signer)
        return ({"type": "compaction", "content": event.text, "encrypted_content": summary},)
    if event.search is not None and event.origin != NAME:
        return _write_search(event.search, f"{SEARCH_ID_PREFIX}{context.id}_{index}")
    if event.kind == "message":
        fields.update(event.native)
        return ()
    return (event.native,)


def _write_search(search: Search, use_id: str) -> Sequence[JSONObject]:
    """Return the blocks of a search and of its results."""
    use: JSONObject = {
        "type": "server_tool_use",
        "id": use_id,
        "name": "web_search",
        "input": {"query": "\n".join(search.queries)},
        "caller": {"type": "direct"},
    }
    results = [
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
        "content": results,
        "caller": {"type": "direct"},
    }
    return use, result
