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

NO_PHASE = "Chat Completions has no message phases"


def uses_legacy_functions(context: ResponseContext) -> bool:
    """True if the client sent the legacy `functions`, and therefore reads only `function_call`."""
    return bool(context.echo.get("functions")) and not context.echo.get("tools")


def write_service_tier(tier: str | None, ledger: Ledger) -> str | None:
    """Return the tier if it is an official one, because any other breaks strict clients."""
    if tier in SERVICE_TIERS:
        return tier
    if tier is not None:
        ledger.dropped("/service_tier", "Chat Completions has no such service tier")
    return None


def write_tool_call(head: ToolHead, text: str) -> JSONObject:
    """Return a tool call with `text` as its arguments or input."""
    inner: JSONObject = {"name": head.name, "input" if head.kind is ToolKind.CUSTOM else "arguments": text}
    return {"id": head.call_id, "type": head.kind.value, head.kind.value: inner}


def write_reasoning_details(
    signature: Signature, number: int, position: Position, context: ResponseContext
) -> list[JSONObject]:
    """Return the entries of `reasoning_details` with which a client sends a signature back.

    number: the index of the first entry. A Chat upstream's own entries are returned unchanged.
    """
    if signature.origin == NAME and type(signature.native) is dict:
        native = signature.native.get("reasoning_details")
        if type(native) is list:
            return native
    data = context.signer.wrap(signature)
    entry: JSONObject = {
        "type": "reasoning.encrypted",
        "data": data,
        "format": SIGNATURE_FORMAT,
        "index": number,
    }
    entry_id = position_id(position)
    return [entry if entry_id is None else {**entry, "id": entry_id}]


def write_citation(event: Annotation, base: int, size: int, choice: int, ledger: Ledger) -> JSONObject | None:
    """Return a citation in the official form, None for one without a URL.

    base: the characters of the message's text before the cited block; size: those of the block.
    """
    if event.origin == NAME and event.url is None:
        native: JSONObject = event.native
        return native
    path = event.path or f"/choices/{choice}/message/annotations"
    if event.url is None:
        ledger.dropped(path, "only citations of web pages have a counterpart")
        return None
    if event.start is None or event.end is None:
        start, end = base, base + size  # it cites the whole block
    else:
        start, end = base + event.start, base + event.end
    cited: JSONObject = {"url": event.url, "title": event.title or "", "start_index": start, "end_index": end}
    if event.origin == NAME:
        native = event.native
        return {**native, "url_citation": {**native["url_citation"], **cited}}
    if event.has_unmapped_fields():
        ledger.altered(path, "only the source and span of the citation were kept")
    return {"type": "url_citation", "url_citation": cited}


def write_logprobs(content: list[JSON], refusal: list[JSON]) -> JSONObject:
    """Return the `logprobs` of a choice for the tokens of its text and of its refusal."""
    return {"content": _complete_tokens(content) or None, "refusal": _complete_tokens(refusal) or None}


def _complete_tokens(tokens: JSON) -> list[JSONObject]:
    """Add `bytes`, null where unknown, because Chat requires the member and Responses may lack it."""
    if type(tokens) is not list:
        return []
    whole = ({"bytes": None, **token} for token in tokens if type(token) is dict)
    return [
        {**token, "top_logprobs": _complete_tokens(token["top_logprobs"])}
        if "top_logprobs" in token
        else token
        for token in whole
    ]


def write_finish_reason(stopped: Stopped, calls: int, legacy: bool, ledger: Ledger) -> str:
    """Return the finish reason of a choice with that many tool calls."""
    reason = stopped.reason
    if reason in LOSSY_STOP_REASONS:
        path = f"/choices/{stopped.choice}/finish_reason"
        ledger.altered(path, f"the upstream stopped for {reason.value}, which is reported as stop")
    if reason in (StopReason.END, StopReason.TOOL_USE):
        # Agents act on this value: it is tool_calls if and only if there are some.
        reason = StopReason.TOOL_USE if calls else StopReason.END
    if legacy and reason is StopReason.TOOL_USE:
        return "function_call"
    return STOP_REASON_NAMES[reason]


def note_text_after_call(choice: int, ledger: Ledger) -> None:
    """Record that a text comes after a tool call."""
    ledger.altered(
        f"/choices/{choice}/message/content",
        "text after a tool call: a message has all its text before its calls",
    )


def note_lost_explanation(ledger: Ledger) -> None:
    """Record that the explanation of a refusal is dropped."""
    ledger.dropped(
        "/stop_details/explanation",
        "the response has text; Chat Completions has no field for the explanation",
    )


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
