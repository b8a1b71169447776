"""Write the members of messages and responses that streamed and whole responses share."""

from __future__ import annotations

from dragoman._ir.events import (
    Annotation,
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

# Between paragraphs of reasoning, which here is one string.
PARAGRAPH_BREAK = "\n\n"

NO_PHASE = "Chat Completions has no message phases"


def uses_legacy_functions(context: ResponseContext) -> bool:
    """True if the client sent the legacy `functions`, and therefore reads only `function_call`."""
    raw = context.request.raw
    return context.request.protocol == NAME and bool(raw.get("functions")) and not raw.get("tools")


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
