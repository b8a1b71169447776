"""The events of an answer: what every reader gives and every writer takes.

Strategy: one event set that is the union of the protocols, none of which is the hub. An answer is a sequence
of blocks; a block is opened, filled and closed, and several may be open at once. Text stays text: tool
arguments are the characters that the model wrote, never parsed JSON. Events are frozen and complete at birth;
the legal order is one table, in `_ir.event_order`.
"""

from __future__ import annotations

from enum import Enum
from typing import TypeAlias

import msgspec

from dragoman._wire.errors import WireError
from dragoman._wire.json import JSON, JSONObject


class BlockKind(Enum):
    """What a block holds."""

    TEXT = "text"
    REFUSAL = "refusal"
    REASONING = "reasoning"
    TOOL_CALL = "tool_call"


class ToolKind(Enum):
    """How a tool is called: with a JSON object, or with free text (OpenAI's custom tools)."""

    FUNCTION = "function"
    CUSTOM = "custom"


class ReasoningForm(Enum):
    """Reasoning as the model wrote it, or a summary of it (Responses tells the two apart)."""

    FULL = "full"
    SUMMARY = "summary"


class StopReason(Enum):
    """Why the model stopped."""

    END = "end"
    TOOL_USE = "tool_use"
    MAX_TOKENS = "max_tokens"
    CONTEXT_WINDOW = "context_window"
    STOP_SEQUENCE = "stop_sequence"
    CONTENT_FILTER = "content_filter"
    PAUSE = "pause"
    COMPACTION = "compaction"


class Signature(msgspec.Struct, frozen=True, gc=False):
    """Reasoning that only its maker can read, kept exactly as it came.

    origin: the protocol it came in, e.g. "anthropic_messages".
    native: the whole block or item of that protocol, with signature or ciphertext.
    model: the model that made it, "" when unknown.
    """

    origin: str
    native: JSON
    model: str = ""


class ToolHead(msgspec.Struct, frozen=True, gc=False):
    """What is known of a tool call when it starts.

    call_id: the id by which the result will name it, never empty.
    item_id: the id of the item that holds the call, where the protocol has one (Responses).
    hosted: set on the way to the client when it offered a HostedTool of this kind, for which a function stood in:
        the call is then told in the form that such calls have in the client's protocol.
    """

    call_id: str
    name: str
    kind: ToolKind = ToolKind.FUNCTION
    namespace: str | None = None
    item_id: str | None = None
    hosted: str | None = None


class Started(msgspec.Struct, frozen=True, gc=False):
    """The answer begins. Always the first event, always once."""

    id: str
    model: str
    created: int | None = None
    service_tier: str | None = None


class BlockStarted(msgspec.Struct, frozen=True, gc=False):
    """A block is opened.

    block: its number in this answer; numbers are never used twice and say nothing about order.
    choice: the alternative that it belongs to (Chat's `n`); 0 everywhere else.
    tool: set for TOOL_CALL, else None.
    item_id: the id of the item or block in its protocol, where it has one.
    phase: Responses' `phase` of a message ("commentary", "final_answer").
    path: where it stands in the answer that the upstream sent, "" when the reader does not say.
    """

    block: int
    kind: BlockKind
    choice: int = 0
    tool: ToolHead | None = None
    item_id: str | None = None
    phase: str | None = None
    path: str = ""


class TextDelta(msgspec.Struct, frozen=True, gc=False):
    """More text of a TEXT or REFUSAL block."""

    block: int
    text: str


class ReasoningDelta(msgspec.Struct, frozen=True, gc=False):
    """More reasoning text. `part` numbers the paragraphs or summary parts of one block from 0."""

    block: int
    text: str
    part: int = 0
    form: ReasoningForm = ReasoningForm.FULL


class ArgumentsDelta(msgspec.Struct, frozen=True, gc=False):
    """More of a tool's input as the model wrote it: JSON text for a function, free text for a custom tool."""

    block: int
    text: str


class SignatureDelta(msgspec.Struct, frozen=True, gc=False):
    """The opaque carrier of a REASONING block: whole, once, after its text."""

    block: int
    seal: Signature


class Annotation(msgspec.Struct, frozen=True, gc=False):
    """A citation on a TEXT block.

    url, title: the source, None when it is no web page.
    start, end: the cited span as character offsets in the block, None when the protocol does not say.
    origin, native: the annotation as it came.
    path: where the annotations of its block stand in the answer that the upstream sent, "" when the reader does not
        say.
    """

    block: int
    origin: str
    native: JSON
    url: str | None = None
    title: str | None = None
    start: int | None = None
    end: int | None = None
    path: str = ""

    def has_unmapped_fields(self) -> bool:
        """Whether `native` says anything beside the source and the span."""
        told = (None, self.url, self.title, self.start, self.end)
        left = [self.native]
        while left:
            value = left.pop()
            if type(value) is dict:
                left += [member for key, member in value.items() if key != "type"]
            elif type(value) is list or value not in told:
                return True
        return False


class Logprobs(msgspec.Struct, frozen=True, gc=False):
    """Log probabilities of tokens of a TEXT or REFUSAL block, before the text that they are about.

    tokens: objects with token, logprob, bytes and top_logprobs: Chat and Responses share the shape.
    """

    block: int
    tokens: list[JSON]


class BlockEnded(msgspec.Struct, frozen=True, gc=False):
    """A block is closed. complete is False when the model was cut off inside it (output limit)."""

    block: int
    complete: bool = True


class Source(msgspec.Struct, frozen=True, gc=False):
    """A web page that a search found."""

    url: str
    title: str | None = None


class Search(msgspec.Struct, frozen=True, gc=False):
    """What a web search of the provider looked for and found; sources is empty where it does not tell."""

    queries: tuple[str, ...]
    sources: tuple[Source, ...] = ()


class Opaque(msgspec.Struct, frozen=True, gc=False):
    """A whole block, item or frame that has no form of its own here, e.g. a server tool's result.

    kind: its type in its protocol, e.g. "web_search_tool_result".
    path: where it stands in the answer that the upstream sent.
    carried: a client that gives it back with the conversation helps the upstream to go on; False for what is
        only of interest now.
    search: what it says, if it is the end of a web search.
    """

    origin: str
    kind: str
    native: JSON
    path: str = ""
    choice: int = 0
    round_trip: bool = True
    search: Search | None = None


class Compacted(msgspec.Struct, frozen=True, gc=False):
    """The summary that takes the place of the conversation so far: what the model wrote when asked for one."""

    text: str


class Usage(msgspec.Struct, frozen=True, gc=False):
    """Token counts so far. Cumulative: a later one replaces an earlier one field by field. None = unknown.

    input: all prompt tokens, cached ones included (OpenAI's way of counting).
    cached: those read from a prompt cache; cache_write: those written to one.
    output: all generated tokens, reasoning included; reasoning: those spent on it.
    extra: counters that only one protocol has, by its own names.
    searches: web searches that the provider made.
    service_tier: the tier that it was served on, where that is another than what the start said.
    """

    input: int | None = None
    output: int | None = None
    cached: int | None = None
    cache_write: int | None = None
    reasoning: int | None = None
    extra: JSONObject | None = None
    searches: int | None = None
    service_tier: str | None = None

    def consistent(self) -> Usage:
        """The same figures with no part larger than its whole. Some servers count reasoning beside the output,
        and clients that subtract would show negative numbers.
        """
        cached, written, reasoning = self.cached, self.cache_write, self.reasoning
        if self.input is not None:
            cached = None if cached is None else min(cached, self.input)
            written = None if written is None else min(written, self.input - (cached or 0))
        if self.output is not None and reasoning is not None:
            reasoning = min(reasoning, self.output)
        return msgspec.structs.replace(self, cached=cached, cache_write=written, reasoning=reasoning)

    def plus(self, other: Usage) -> Usage:
        """The figures of two answers together. What one of them does not know is the other's."""
        extra = {**(self.extra or {}), **(other.extra or {})} or None
        return Usage(
            _sum(self.input, other.input),
            _sum(self.output, other.output),
            _sum(self.cached, other.cached),
            _sum(self.cache_write, other.cache_write),
            _sum(self.reasoning, other.reasoning),
            extra,
            _sum(self.searches, other.searches),
            self.service_tier or other.service_tier,
        )

    def updated(self, later: Usage) -> Usage:
        """These figures with every known figure of `later` in their place."""
        return Usage(
            input=self.input if later.input is None else later.input,
            output=self.output if later.output is None else later.output,
            cached=self.cached if later.cached is None else later.cached,
            cache_write=self.cache_write if later.cache_write is None else later.cache_write,
            reasoning=self.reasoning if later.reasoning is None else later.reasoning,
            extra=self.extra if later.extra is None else {**(self.extra or {}), **later.extra},
            searches=self.searches if later.searches is None else later.searches,
            service_tier=later.service_tier or self.service_tier,
        )


def _sum(one: int | None, other: int | None) -> int | None:
    return other if one is None else one if other is None else one + other


class Stopped(msgspec.Struct, frozen=True, gc=False):
    """One choice is finished.

    native: the reason in the upstream's own word.
    sequence: the stop sequence that matched, None when not told.
    explanation: why content was refused, in the upstream's words.
    details: the upstream's own object about the stop, if any.
    """

    reason: StopReason
    native: str | None = None
    choice: int = 0
    sequence: str | None = None
    explanation: str | None = None
    details: JSON = None


class Ended(msgspec.Struct, frozen=True, gc=False):
    """The answer is complete. Nothing follows."""


class Failed(msgspec.Struct, frozen=True, gc=False):
    """The answer broke off with an error. Nothing follows. Open blocks stay unfinished."""

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
