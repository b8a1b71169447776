"""What streamed and whole answers share: the pieces of a message that are printed from one block each."""

from __future__ import annotations

from dragoman._ir.events import Annotation, Seal, Stopped, StopReason, ToolHead, ToolKind
from dragoman._ir.losses import Ledger
from dragoman._wire.json import JSON, JSONObject
from dragoman.codec import Exchange
from dragoman.protocols.openai_chat.citations import url_citation
from dragoman.protocols.openai_chat.read_thoughts import Place, place_id
from dragoman.protocols.openai_chat.tables import (
    FINISH_REASONS,
    NAME,
    SEAL_FORMAT,
    SERVICE_TIERS,
    VAGUE_STOPS,
)

# Between paragraphs of reasoning, which here is one string.
BREAK = "\n\n"

NO_PHASE = "messages have no phase here"


def wants_legacy(exchange: Exchange) -> bool:
    """Whether the client speaks of `functions`, and so reads `function_call` alone."""
    raw = exchange.request.raw
    return exchange.request.protocol == NAME and bool(raw.get("functions")) and not raw.get("tools")


def tier_of(tier: str | None, ledger: Ledger) -> str | None:
    if tier in SERVICE_TIERS:
        return tier
    if tier is not None:
        ledger.dropped("/service_tier", "Chat Completions has no such service tier")
    return None


def call_of(head: ToolHead, text: str) -> JSONObject:
    inner: JSONObject = {"name": head.name, "input" if head.kind is ToolKind.CUSTOM else "arguments": text}
    return {"id": head.call_id, "type": head.kind.value, head.kind.value: inner}


def details_of(seal: Seal, number: int, place: Place, exchange: Exchange) -> list[JSONObject]:
    """The entries of reasoning_details that bring a seal back to us. `number` is the index of the first."""
    if seal.origin == NAME and type(seal.native) is dict:
        native = seal.native.get("reasoning_details")
        if type(native) is list:
            return native
    data = exchange.sealer.wrap(seal)
    entry: JSONObject = {"type": "reasoning.encrypted", "data": data, "format": SEAL_FORMAT, "index": number}
    at = place_id(place)
    return [entry if at is None else {**entry, "id": at}]


def annotation_of(event: Annotation, base: int, size: int, choice: int, ledger: Ledger) -> JSONObject | None:
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
    printed = url_citation(event.url, event.title, start, end)
    if event.origin == NAME:
        own = event.native
        return {**own, "url_citation": {**own["url_citation"], **printed["url_citation"]}}
    if event.says_more():
        ledger.altered(path, "only source and span of the citation were carried")
    return printed


def logprobs_of(content: list[JSON], refusal: list[JSON]) -> JSONObject:
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


def finish_reason_of(stopped: Stopped, calls: int, legacy: bool, ledger: Ledger) -> str:
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


def note_late_text(choice: int, ledger: Ledger) -> None:
    ledger.altered(
        f"/choices/{choice}/message/content", "text after a tool call: a message has all text before them"
    )


def note_untold(ledger: Ledger) -> None:
    ledger.dropped("/stop_details/explanation", "there is text, and no place for an explanation beside it")
