"""What one upstream accepts beyond its protocol: the switches by which a request is fitted to it.

Capabilities has what the passes and the engine ask for. What only one protocol's writer asks for is in a class of that
protocol, which extends it (`UpstreamSpec.capabilities`). The text of a field is its documentation, also in the tables
and the help of the gateway, whose settings are made from these fields.
"""

from typing import Annotated, Literal, Self, TypeAlias, TypeVar

import msgspec
from msgspec import Meta

from dragoman._ir.parameters import EFFORTS

_C = TypeVar("_C", bound="Capabilities")

# The least output that a request is sent for, and the steps of more.
_LIMIT_STEP = 4096
# One part in so many is added to an estimate of a prompt.
_MARGIN = 10

HostedUse: TypeAlias = Literal["web_search", "code_execution", "mcp"]
Enforced: TypeAlias = Literal["schema", "tool_choice"]
TokenLimit = Annotated[int, Meta(ge=1, le=10_000_000)]

# Capabilities of several protocols, but not of all.
MidSystem = Annotated[bool, "accepts system messages after the first turn; else they are marked user text"]
ThoughtSignatures = Annotated[bool, "requires Google's thought_signature with a turn's first call"]
ToolImages = Annotated[bool, "accepts images in tool messages; else a user message follows"]
CacheMarks = Annotated[
    Literal["none", "breakpoint", "cache_control"],
    "cache marks of content parts: prompt_cache_breakpoint, cache_control (Chat Completions only), or none",
]


class Capabilities(msgspec.Struct, frozen=True):
    """What one upstream accepts beyond any protocol. The defaults suit the widest range of servers."""

    max_output_tokens: Annotated[TokenLimit | None, "largest output limit; others are lowered to it"] = None
    context_window: Annotated[
        TokenLimit | None, "tokens of prompt and output together; a client's limit is lowered to what is left"
    ] = None
    efforts: Annotated[
        tuple[str, ...] | None,
        EFFORTS,
        "accepted reasoning efforts; others become the nearest; empty: no reasoning",
    ] = None
    structured_output: Annotated[
        Literal["schema", "object", "none"], "accepted structured output; the rest is requested in other ways"
    ] = "schema"
    format_with_tools: Annotated[
        Literal["yes", "not_forced", "no"],
        "accepts structured output together with tools; not_forced: unless a call is required",
    ] = "yes"
    schema_references: Annotated[
        bool, "accepts $ref in schemas; else definitions are sent in the place of references"
    ] = True
    hosted_tools: Annotated[frozenset[HostedUse], "tools that the upstream runs itself"] = frozenset()
    custom_tools: Annotated[
        bool | None,
        "accepts free-text tools; else these, and in Responses any others, become functions; unset: in Responses only",
    ] = None
    cache_keys: Annotated[bool, "send prompt_cache_key, by default a hash of the conversation"] = False
    unwraps_signatures: Annotated[bool, "is a Dragoman too, which unwraps signatures itself"] = False
    call_ids: Annotated[Literal["any", "alnum9"], "form of call ids; alnum9: nine letters or digits"] = "any"
    forced_tools: Annotated[
        Literal["yes", "not_thinking", "no"],
        "accepts a required tool call; not_thinking: only without reasoning",
    ] = "yes"
    enforces: Annotated[
        frozenset[Enforced],
        "known to be enforced: strict schemas, required calls; the rest is checked in the response",
    ] = frozenset()
    sampling_pair: Annotated[bool, "accepts temperature and top_p together; else top_p is left out"] = True
    sampling_at_none: Annotated[bool, "refuses temperature, top_p and logprobs only with reasoning"] = False
    prefill: Annotated[bool, "the conversation may end with assistant text, which is continued"] = True
    refuses: Annotated[frozenset[str], "settings that cause an error, so they are left out"] = frozenset()
    billing_header: Annotated[
        bool,
        "Claude Code's billing line in the system text, new in each request, is sent; else it is dropped",
    ] = True
    relay: Annotated[
        Literal["exact", "rewrite"], "requests in its own protocol pass byte for byte, or are adapted as well"
    ] = "exact"

    def as_type(self, cls: type[_C]) -> _C:
        """Return these capabilities with the defaults of a protocol. Raises TypeError if they belong to another one."""
        return self if isinstance(self, cls) else cls(**msgspec.structs.asdict(self))

    def for_prompt(self, tokens: int) -> Self:
        """Return what the model accepts behind a prompt of about so many tokens: a limit that fits in the window.

        Servers refuse prompt and limit that are larger together: "However, you requested 131134 tokens (122942 in the
        messages, 8192 in the completion)" (DeepSeek: fast-agent#621; vLLM: vllm#20409; OpenRouter: OpenHands#9937;
        Anthropic: docker-agent#569, all read 2026-11-28). Others stop at the end of the window by themselves. If
        there is room for too little, the limit stays: such an error makes clients compact their conversation.
        """
        window = self.context_window
        if window is None:
            return self
        # In steps, because what follows from the limit, such as a thinking budget, is part of the cached prompt.
        step = min(_LIMIT_STEP, window // 8)
        room = (window - tokens - tokens // _MARGIN) // step * step if step else 0
        if room <= 0 or (self.max_output_tokens is not None and self.max_output_tokens <= room):
            return self
        return msgspec.structs.replace(self, max_output_tokens=room)

    @property
    def requires_user_first(self) -> bool:
        """True if a conversation has to begin with a message of the user."""
        return False

    @property
    def can_disable_reasoning(self) -> bool:
        """True if the upstream can be told that the model shall not reason."""
        return self.efforts is None or "none" in self.efforts

    @property
    def can_force_tools(self) -> bool:
        """True if a tool call can be required of the model, if necessary with reasoning disabled."""
        if self.forced_tools != "not_thinking" or self.efforts == ():
            return self.forced_tools != "no"
        return self.can_disable_reasoning
