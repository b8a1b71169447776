"""A folded answer -> the body of a whole Chat Completions answer.

Strategy: one message holds all text, all reasoning and all calls of a choice, so the blocks are sorted into those.
What the stream would say, in the same pieces, only all at once.
"""

from __future__ import annotations

from dragoman._ir.assembly import AssembledBlock, AssembledResponse
from dragoman._ir.events import BlockKind, Compacted, Opaque, Stopped
from dragoman._ir.losses import Ledger
from dragoman._wire.json import JSON, JSONObject
from dragoman.codec import ResponseContext
from dragoman.protocols.openai_chat.answer_parts import (
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


def write_whole(answer: AssembledResponse, context: ResponseContext, ledger: Ledger) -> JSONObject:
    """The body of a whole answer. Usage is optional here: it is left out when nobody knows any figure."""
    body: JSONObject = {
        "id": context.response_id("chatcmpl-", answer.started.id),
        "object": "chat.completion",
        "created": context.now,
        "model": context.model,
        "choices": [
            _MessageBuilder(answer, stopped, context, ledger).choice()
            for stopped in sorted(answer.stops, key=lambda stopped: stopped.choice)
        ],
    }
    if answer.usage.input is not None or answer.usage.output is not None:
        body["usage"] = write_usage(answer.usage, ledger)
    for block in answer.blocks:
        if isinstance(block, Opaque) and _is_beside(block):
            body[block.kind] = block.native
    tier = write_service_tier(answer.service_tier, ledger)
    if tier is not None:
        body["service_tier"] = tier
    return body


class _MessageBuilder:
    """Collects the message of one choice."""

    def __init__(
        self, answer: AssembledResponse, stopped: Stopped, context: ResponseContext, ledger: Ledger
    ) -> None:
        self._stopped = stopped
        self._exchange = context
        self._ledger = ledger
        self._legacy = uses_legacy_functions(context)
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
            elif isinstance(block, AssembledBlock):
                self._take(block)
            elif not _is_beside(block):
                self._others[block.kind] = _extended(self._others.get(block.kind), block.native)

    def _take(self, block: AssembledBlock) -> None:
        if block.phase is not None:
            self._ledger.dropped(f"/choices/{block.choice}/message/phase", NO_PHASE)
        self._tokens[block.kind] += block.logprobs
        if block.tool is not None:
            self._calls.append(write_tool_call(block.tool, block.text))
        elif block.kind is BlockKind.REASONING:
            self._thoughts += [part.text for part in block.reasoning if part.text]
            if block.seal is not None:
                place = len(self._text), len(self._calls)
                self._details += write_reasoning_details(
                    block.seal, len(self._details), place, self._exchange
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
        if self._thoughts:
            message["reasoning_content"] = PARAGRAPH_BREAK.join(self._thoughts)
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
