"""The events of a response: every reader returns them, every writer takes them.

The event set is the union of the protocols, none of which is the hub. A response is a sequence of blocks; a block is
opened, filled and closed, and several may be open at the same time. Text stays text: tool arguments are the characters
that the model wrote, never parsed JSON. Events are frozen and complete when they are made; their legal order is one
table, in `_ir.event_order`.
"""

from __future__ import annotations

from enum import Enum
from typing import TypeAlias, get_args

import msgspec

from dragoman._ir.losses import Ledger
from dragoman._wire.errors import WireError
from dragoman._wire.json import JSON, JSONObject, read_count


class IdentityEnum(Enum):
    """An Enum whose members are found in sets and dictionaries without a call of Python."""

    __hash__ = object.__hash__


class BlockKind(IdentityEnum):
    """The kind of content of a block."""

    TEXT = "text"
    REFUSAL = "refusal"
    REASONING = "reasoning"
    TOOL_CALL = "tool_call"


class ToolKind(IdentityEnum):
    """How a tool is called: with a JSON object, or with free text (OpenAI's custom tools)."""

    FUNCTION = "function"
    CUSTOM = "custom"


class ReasoningForm(IdentityEnum):
    """Reasoning as the model wrote it, or a summary of it. Responses distinguishes them."""

    FULL = "full"
    SUMMARY = "summary"


class StopReason(IdentityEnum):
    """Why the model stopped. Each protocol has its names in `STOP_REASONS` and `STOP_REASON_NAMES` of its `tables`.

    A new one may belong into TRUNCATING_STOP_REASONS, and into LOSSY_STOP_REASONS of protocols that do not have it.
    """

    END = "end"
    TOOL_USE = "tool_use"
    MAX_TOKENS = "max_tokens"
    CONTEXT_WINDOW = "context_window"
    STOP_SEQUENCE = "stop_sequence"
    CONTENT_FILTER = "content_filter"  # also the model's own refusal: Messages' "refusal"
    PAUSE = "pause"
    COMPACTION = "compaction"


# Members of an Enum take as long to look up as several calls, so what runs in each response uses these.
TEXT, REFUSAL = BlockKind.TEXT, BlockKind.REFUSAL
REASONING, TOOL_CALL = BlockKind.REASONING, BlockKind.TOOL_CALL
END, TOOL_USE, CONTENT_FILTER = StopReason.END, StopReason.TOOL_USE, StopReason.CONTENT_FILTER

# Stop reasons that leave the last block unfinished.
TRUNCATING_STOP_REASONS = frozenset({StopReason.MAX_TOKENS, StopReason.CONTEXT_WINDOW})


class Signature(msgspec.Struct, frozen=True, gc=False):
    """Reasoning that only its vendor can read, kept exactly as it came.

    Attributes:
        origin: The protocol that it came in, e.g. "anthropic_messages".
        native: The whole block or item of that protocol, with signature or ciphertext.
        model: The model that made it, "" if unknown.
    """

    origin: str
    native: JSON
    model: str = ""


class ToolHead(msgspec.Struct, frozen=True, gc=False):
    """The start of a tool call.

    Attributes:
        call_id: The id by which the result refers to it, never empty.
        name: The name of the tool.
        kind: How the tool is called.
        namespace: The tool's namespace, None for none.
        item_id: The id of the item with the call, if the protocol has one (Responses).
        hosted: The kind of the client's HostedTool that a function was sent for. The call is then written in the form
            that calls of such tools have in the client's protocol.
    """

    call_id: str
    name: str
    kind: ToolKind = ToolKind.FUNCTION
    namespace: str | None = None
    item_id: str | None = None
    hosted: str | None = None


class Started(msgspec.Struct, frozen=True, gc=False):
    """A response begins. Always the first event, always once.

    Attributes:
        id: The upstream's id of the response, "" if it has none.
        model: The model that the upstream reports, "" if it reports none.
        created: Seconds since the epoch, None if the upstream reports none.
        service_tier: The tier that the upstream reports, or None.
        usage: The tokens that the upstream has counted already, or None. A Usage event repeats them.
    """

    id: str
    model: str
    created: int | None = None
    service_tier: str | None = None
    usage: Usage | None = None


class BlockStarted(msgspec.Struct, frozen=True, gc=False):
    """A block is opened.

    Attributes:
        block: Its number in this response. Numbers are never used twice, and have no order.
        kind: The kind of its content.
        choice: The choice that it belongs to (Chat's `n`); 0 everywhere else.
        tool: Set for TOOL_CALL, else None.
        item_id: The id of the item or block in its protocol, if it has one.
        phase: Responses' `phase` of a message ("commentary", "final_answer").
        path: A JSON Pointer to its place in the upstream's response, "" if unknown.
    """

    block: int
    kind: BlockKind
    choice: int = 0
    tool: ToolHead | None = None
    item_id: str | None = None
    phase: str | None = None
    path: str = ""


class TextDelta(msgspec.Struct, frozen=True, gc=False):
    """More text of a TEXT or REFUSAL block.

    Attributes:
        block: The number of the block.
        text: The characters to append.
    """

    block: int
    text: str


class ReasoningDelta(msgspec.Struct, frozen=True, gc=False):
    """More text of a REASONING block.

    Attributes:
        block: The number of the block.
        text: The characters to append.
        part: The number of the paragraph or summary part in this block, from 0. It never decreases.
        form: The reasoning itself, or a summary.
    """

    block: int
    text: str
    part: int = 0
    form: ReasoningForm = ReasoningForm.FULL


class ArgumentsDelta(msgspec.Struct, frozen=True, gc=False):
    """More of a tool's input, as the model wrote it.

    Attributes:
        block: The number of the TOOL_CALL block.
        text: JSON text for a function, free text for a custom tool.
    """

    block: int
    text: str


class SignatureDelta(msgspec.Struct, frozen=True, gc=False):
    """The signature of a REASONING block: whole, once, after its text.

    Attributes:
        block: The number of the block.
        signature: The signature.
    """

    block: int
    signature: Signature


class Annotation(msgspec.Struct, frozen=True, gc=False):
    """A citation on a TEXT block.

    Attributes:
        block: The number of the block.
        origin: The protocol that it came in.
        native: The annotation as it came.
        url: The web page that is cited, None for other sources.
        title: The page's title, or None.
        start: The first character of the cited span, as an offset in the block, None if unknown.
        end: The end of that span, None if unknown.
        path: A JSON Pointer to the annotations of its block in the upstream's response, "" if unknown.
    """

    block: int
    origin: str
    native: JSON
    url: str | None = None
    title: str | None = None
    start: int | None = None
    end: int | None = None
    path: str = ""

    def cited_url(self, path: str, ledger: Ledger) -> str | None:
        """Return the web page that another protocol's annotation cites, None if it cites none. Losses are recorded."""
        if self.url is None:
            ledger.dropped(path, "only citations of web pages have a counterpart")
        elif self.has_unmapped_fields():
            ledger.altered(path, "only the source and span of the citation were kept")
        return self.url

    def has_unmapped_fields(self) -> bool:
        """True if `native` has values besides the source and the span."""
        mapped = (None, self.url, self.title, self.start, self.end)
        left = [self.native]
        while left:
            value = left.pop()
            if type(value) is dict:
                left += [member for key, member in value.items() if key != "type"]
            elif type(value) is list or value not in mapped:
                return True
        return False


class Logprobs(msgspec.Struct, frozen=True, gc=False):
    """Log probabilities of tokens of a TEXT or REFUSAL block, before the text that they are about.

    Attributes:
        block: The number of the block.
        tokens: Objects with token, logprob, bytes and top_logprobs. Chat and Responses share the shape.
    """

    block: int
    tokens: list[JSON]


class BlockEnded(msgspec.Struct, frozen=True, gc=False):
    """A block is closed.

    Attributes:
        block: The number of the block.
        complete: False if the model was cut off inside the block (output limit).
    """

    block: int
    complete: bool = True


class Source(msgspec.Struct, frozen=True, gc=False):
    """A web page that a search found.

    Attributes:
        url: The page's URL.
        title: The page's title, or None.
    """

    url: str
    title: str | None = None


class Search(msgspec.Struct, frozen=True, gc=False):
    """A web search of the provider.

    Attributes:
        queries: The texts that were searched for.
        sources: The pages that were found, empty if the provider does not report them.
    """

    queries: tuple[str, ...]
    sources: tuple[Source, ...] = ()


class Opaque(msgspec.Struct, frozen=True, gc=False):
    """A whole block, item or frame without an event class, e.g. a server tool's result.

    Attributes:
        origin: The protocol that it came in.
        kind: Its type in that protocol, e.g. "web_search_tool_result".
        native: The object as it came.
        path: A JSON Pointer to its place in the upstream's response.
        choice: The choice that it belongs to.
        round_trip: A client should send it back with the conversation; False if it matters only now.
        search: The web search that it ends, or None.
    """

    origin: str
    kind: str
    native: JSON
    path: str = ""
    choice: int = 0
    round_trip: bool = True
    search: Search | None = None


class Compacted(msgspec.Struct, frozen=True, gc=False):
    """The summary that takes the place of the conversation so far, written by the model on request.

    Attributes:
        text: The summary.
    """

    text: str


class Usage(msgspec.Struct, frozen=True, gc=False):
    """Token counts so far. Cumulative: a later event replaces an earlier one field by field. None means unknown.

    Attributes:
        input: All prompt tokens, cached ones included (as OpenAI counts).
        output: All generated tokens, reasoning included.
        cached: Prompt tokens that were read from a cache.
        cache_write: Prompt tokens that were written to a cache.
        reasoning: Generated tokens of reasoning.
        extra: Counters that only one protocol has, by its own names.
        searches: Web searches that the provider made.
        service_tier: The tier that served the request, if it is another than Started has.
    """

    input: int | None = None
    output: int | None = None
    cached: int | None = None
    cache_write: int | None = None
    reasoning: int | None = None
    extra: JSONObject | None = None
    searches: int | None = None
    service_tier: str | None = None

    @property
    def cache_write_1h(self) -> int | None:
        """The part of `cache_write` that is kept for an hour, which has its own price. `extra` has it, for writers."""
        written = (self.extra or {}).get("cache_creation")
        return read_count(written, "ephemeral_1h_input_tokens")

    def consistent(self) -> Usage:
        """Return the same figures with no part larger than its whole.

        Some servers count reasoning apart from the output, and clients that subtract it would get negative numbers.
        """
        cached, written, reasoning = self.cached, self.cache_write, self.reasoning
        if (self.input is None or (cached or 0) + (written or 0) <= self.input) and (
            self.output is None or (reasoning or 0) <= self.output
        ):
            return self  # as nearly always
        if self.input is not None:
            cached = None if cached is None else min(cached, self.input)
            written = None if written is None else min(written, self.input - (cached or 0))
        if self.output is not None and reasoning is not None:
            reasoning = min(reasoning, self.output)
        return msgspec.structs.replace(self, cached=cached, cache_write=written, reasoning=reasoning)

    def plus(self, other: Usage) -> Usage:
        """Return the sum of the figures of two responses. A figure that only one of them has is taken as it is."""
        figures = {name: _sum(getattr(self, name), getattr(other, name)) for name in _FIGURES}
        extra = {**(self.extra or {}), **(other.extra or {})} or None
        return Usage(**figures, extra=extra, service_tier=self.service_tier or other.service_tier)

    def updated(self, later: Usage) -> Usage:
        """Return these figures, replaced by the known figures of `later`."""
        if self == _UNKNOWN:
            return later
        known = {name: value for name, value in msgspec.structs.asdict(later).items() if value is not None}
        if later.extra is not None:
            known["extra"] = {**(self.extra or {}), **later.extra}
        return msgspec.structs.replace(self, **known)


_UNKNOWN = Usage()
_FIGURES = ("input", "output", "cached", "cache_write", "reasoning", "searches")


def _sum(one: int | None, other: int | None) -> int | None:
    return other if one is None else one if other is None else one + other


class Stopped(msgspec.Struct, frozen=True, gc=False):
    """One choice is finished.

    Attributes:
        reason: Why the model stopped.
        native: The reason as the upstream names it.
        choice: The number of the choice.
        sequence: The stop sequence that matched, None if it was not reported.
        explanation: The upstream's text on why content was refused.
        details: The upstream's own object about the stop, if any.
    """

    reason: StopReason
    native: str | None = None
    choice: int = 0
    sequence: str | None = None
    explanation: str | None = None
    details: JSON = None


class Ended(msgspec.Struct, frozen=True, gc=False):
    """The response is complete. Nothing follows."""


class Failed(msgspec.Struct, frozen=True, gc=False):
    """The response broke off with an error. Nothing follows. Open blocks stay unfinished.

    Attributes:
        error: What went wrong.
    """

    error: WireError


Event: TypeAlias = (
    Started
    | BlockStarted
    | TextDelta
    | ReasoningDelta
    | ArgumentsDelta
    | SignatureDelta
    | Annotation
    | Logprobs
    | BlockEnded
    | Opaque
    | Compacted
    | Usage
    | Stopped
    | Ended
    | Failed
)

ENDED = Ended()

EVENTS: frozenset[type[Event]] = frozenset(get_args(Event))
# All deltas with text, for isinstance(). A tuple that is written there is built at each call.
DELTAS = (TextDelta, ReasoningDelta, ArgumentsDelta)
