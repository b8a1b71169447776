"""A folded answer -> the body of a whole Chat Completions answer.

Strategy: one message holds all text, all reasoning and all calls of a choice, so the blocks are sorted into those.
What the stream would say, in the same pieces, only all at once.
"""

from __future__ import annotations

from dragoman._ir.assembly import Answer, Block
from dragoman._ir.events import BlockKind, Compacted, Opaque, Stopped
from dragoman._ir.losses import Ledger
from dragoman._wire.json import JSON, JSONObject
from dragoman.codec import Exchange
from dragoman.protocols.openai_chat.answer_parts import (
    BREAK,
    NO_PHASE,
    annotation_of,
    call_of,
    details_of,
    finish_reason_of,
    logprobs_of,
    note_late_text,
    note_untold,
    tier_of,
    wants_legacy,
)
from dragoman.protocols.openai_chat.usage import write_usage


def write_whole(answer: Answer, exchange: Exchange, ledger: Ledger) -> JSONObject:
    """The body of a whole answer. Usage is optional here: it is left out when nobody knows any figure."""
    body: JSONObject = {
        "id": exchange.answer_id("chatcmpl-", answer.started.id),
        "object": "chat.completion",
        "created": exchange.now,
        "model": exchange.model,
        "choices": [
            _Message(answer, stopped, exchange, ledger).choice()
            for stopped in sorted(answer.stops, key=lambda stopped: stopped.choice)
        ],
    }
    if answer.usage.input is not None or answer.usage.output is not None:
        body["usage"] = write_usage(answer.usage, ledger)
    for block in answer.blocks:
        if isinstance(block, Opaque) and _is_beside(block):
            body[block.kind] = block.native
    tier = tier_of(answer.service_tier, ledger)
    if tier is not None:
        body["service_tier"] = tier
    return body


class _Message:
    """Collects the message of one choice."""

    def __init__(self, answer: Answer, stopped: Stopped, exchange: Exchange, ledger: Ledger) -> None:
        self._stopped = stopped
        self._exchange = exchange
        self._ledger = ledger
        self._legacy = wants_legacy(exchange)
        self._text = ""
        self._refusal = ""
        self._thoughts: list[str] = []
        self._details: list[JSONObject] = []
        self._annotations: list[JSONObject] = []
        self._calls: list[JSONObject] = []
        self._tokens: dict[BlockKind, list[JSON]] = {kind: [] for kind in BlockKind}
        self._others: JSONObject = {}
        for block in answer.blocks:
            if isinstance(block, Compacted):
                self._text += block.text
            elif block.choice != stopped.choice:
                continue
            elif isinstance(block, Block):
                self._take(block)
            elif not _is_beside(block):
                self._others[block.kind] = _extended(self._others.get(block.kind), block.native)

    def _take(self, block: Block) -> None:
        if block.phase is not None:
            self._ledger.dropped(f"/choices/{block.choice}/message/phase", NO_PHASE)
        self._tokens[block.kind] += block.logprobs
        if block.tool is not None:
            self._calls.append(call_of(block.tool, block.text))
        elif block.kind is BlockKind.REASONING:
            self._thoughts += [part.text for part in block.reasoning if part.text]
            if block.seal is not None:
                place = len(self._text), len(self._calls)
                self._details += details_of(block.seal, len(self._details), place, self._exchange)
        elif block.kind is BlockKind.REFUSAL:
            self._refusal += block.text
        else:
            if self._calls:
                note_late_text(block.choice, self._ledger)
            base = len(self._text)
            self._text += block.text
            for each in block.annotations:
                body = annotation_of(each, base, len(block.text), block.choice, self._ledger)
                if body is not None:
                    self._annotations.append(body)

    def choice(self) -> JSONObject:
        stopped = self._stopped
        logprobs = logprobs_of(self._tokens[BlockKind.TEXT], self._tokens[BlockKind.REFUSAL])
        choice: JSONObject = {
            "index": stopped.choice,
            "message": self._message(),
            "logprobs": logprobs if any(logprobs.values()) else None,
            "finish_reason": finish_reason_of(stopped, len(self._calls), self._legacy, self._ledger),
        }
        if stopped.sequence is not None:
            choice["stop_reason"] = stopped.sequence
        return choice

    def _message(self) -> JSONObject:
        text, refusal, explanation = self._text, self._refusal, self._stopped.explanation
        if not text and not refusal:
            refusal = explanation or ""
        elif explanation is not None:
            note_untold(self._ledger)
        message: JSONObject = {
            "role": "assistant",
            "content": None if not text and (self._calls or refusal) else text,
            "refusal": refusal or None,
        }
        if self._thoughts:
            message["reasoning_content"] = BREAK.join(self._thoughts)
        if self._details:
            message["reasoning_details"] = self._details
        if self._annotations:
            message["annotations"] = self._annotations
        if self._calls and self._legacy:
            message["function_call"] = self._calls[0]["function"]
        elif self._calls:
            message["tool_calls"] = self._calls
        message.update(self._others)
        return message


def _is_beside(block: Opaque) -> bool:
    """Whether it is a member of the answer itself, not of a message."""
    return block.path == f"/{block.kind}"


def _extended(before: JSON, native: JSON) -> JSON:
    """Pieces of a list (images) are joined; of anything else the last one counts."""
    return before + native if type(before) is list and type(native) is list else native
