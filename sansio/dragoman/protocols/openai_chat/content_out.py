"""Write a whole response, and the members of a message that streamed and whole responses share.

One message holds all text, all reasoning and all calls of a choice, so the blocks are sorted into those.
"""

from __future__ import annotations

from dragoman._ir.assembly import AssembledBlock, AssembledResponse
from dragoman._ir.events import (
    Annotation,
    BlockKind,
    Compacted,
    Opaque,
    Signature,
    Stopped,
    StopReason,
    ToolHead,
    ToolKind,
)
from dragoman._ir.losses import Ledger
from dragoman._wire.json import JSON, JSONObject
from dragoman.codec import ResponseContext
from dragoman.protocols.openai_chat.reasoning import Position, position_id
from dragoman.protocols.openai_chat.tables import (
    LOSSY_STOP_REASONS,
    NAME,
    SERVICE_TIERS,
    SIGNATURE_FORMAT,
    STOP_REASON_NAMES,
)
from dragoman.protocols.openai_chat.usage import write_usage

# Between paragraphs of reasoning, which here is one string.
PARAGRAPH_BREAK = "\n\n"

NO_PHASE = "messages have no phase here"


def uses_legacy_functions(context: ResponseContext) -> bool:
    """Whether the client speaks of `functions`, and so reads `function_call` alone."""
    raw = context.request.raw
    return context.request.protocol == NAME and bool(raw.get("functions")) and not raw.get("tools")


def write_service_tier(tier: str | None, ledger: Ledger) -> str | None:
    if tier in SERVICE_TIERS:
        return tier
    if tier is not None:
        ledger.dropped("/service_tier", "Chat Completions has no such service tier")
    return None


def write_tool_call(head: ToolHead, text: str) -> JSONObject:
    inner: JSONObject = {"name": head.name, "input" if head.kind is ToolKind.CUSTOM else "arguments": text}
    return {"id": head.call_id, "type": head.kind.value, head.kind.value: inner}


def write_reasoning_details(
    seal: Signature, number: int, place: Position, context: ResponseContext
) -> list[JSONObject]:
    """The entries of reasoning_details that bring a seal back to us. `number` is the index of the first."""
    if seal.origin == NAME and type(seal.native) is dict:
        native = seal.native.get("reasoning_details")
        if type(native) is list:
            return native
    data = context.signer.wrap(seal)
    entry: JSONObject = {
        "type": "reasoning.encrypted",
        "data": data,
        "format": SIGNATURE_FORMAT,
        "index": number,
    }
    at = position_id(place)
    return [entry if at is None else {**entry, "id": at}]


def write_citation(event: Annotation, base: int, size: int, choice: int, ledger: Ledger) -> JSONObject | None:
    """A citation in the official form, None when it has none.

    base: how much of the message's text stands before the cited block; size: how much of it the block has.
    """
    if event.origin == NAME and event.url is None:
        own: JSONObject = event.native
        return own
    path = event.path or f"/choices/{choice}/message/annotations"
    if event.url is None:
        ledger.dropped(path, "a citation of something without a URL")
        return None
    if event.start is None or event.end is None:
        start, end = base, base + size  # the whole block is what is cited
    else:
        start, end = base + event.start, base + event.end
    printed = write_url_citation(event.url, event.title, start, end)
    if event.origin == NAME:
        own = event.native
        return {**own, "url_citation": {**own["url_citation"], **printed["url_citation"]}}
    if event.has_unmapped_fields():
        ledger.altered(path, "only source and span of the citation were carried")
    return printed


def write_logprobs(content: list[JSON], refusal: list[JSON]) -> JSONObject:
    return {"content": _tokens(content) or None, "refusal": _tokens(refusal) or None}


def _tokens(tokens: JSON) -> list[JSONObject]:
    """Add `bytes`, null where unknown: events of Responses have none, but Chat requires the member."""
    if type(tokens) is not list:
        return []
    whole = ({"bytes": None, **token} for token in tokens if type(token) is dict)
    return [
        {**token, "top_logprobs": _tokens(token["top_logprobs"])} if "top_logprobs" in token else token
        for token in whole
    ]


def write_finish_reason(stopped: Stopped, calls: int, legacy: bool, ledger: Ledger) -> str:
    reason = stopped.reason
    if reason in LOSSY_STOP_REASONS:
        path = f"/choices/{stopped.choice}/finish_reason"
        ledger.altered(path, f"the upstream stopped for {reason.value}, which is told as stop")
    if reason in (StopReason.END, StopReason.TOOL_USE):
        # Agents go by this word: it says tool_calls if and only if there are some.
        reason = StopReason.TOOL_USE if calls else StopReason.END
    if legacy and reason is StopReason.TOOL_USE:
        return "function_call"
    return STOP_REASON_NAMES[reason]


def note_text_after_call(choice: int, ledger: Ledger) -> None:
    ledger.altered(
        f"/choices/{choice}/message/content", "text after a tool call: a message has all text before them"
    )


def note_lost_explanation(ledger: Ledger) -> None:
    ledger.dropped("/stop_details/explanation", "there is text, and no place for an explanation beside it")


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


def write_url_citation(url: str, title: str | None, start: int | None, end: int | None) -> JSONObject:
    """The official form, in which all four members are required."""
    cited = {"url": url, "title": title or "", "start_index": start or 0, "end_index": end or 0}
    return {"type": "url_citation", "url_citation": cited}
