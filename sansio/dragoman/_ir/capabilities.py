"""What one upstream accepts beyond its protocol: the switches by which a request is fitted to it."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

# The least output that a request is sent for, and the steps of more.
_LIMIT_STEP = 4096
# One part in so many is added to an estimate of a prompt.
_MARGIN = 10

HostedUse: TypeAlias = Literal["web_search", "code_execution", "mcp"]
Enforced: TypeAlias = Literal["schema", "tool_choice"]


class Capabilities(msgspec.Struct, frozen=True):
    """What one upstream accepts beyond its protocol. The defaults suit the widest range of servers.

    Attributes:
        max_tokens: The limit for Messages upstreams if the client sent none, because they require one.
        max_output_tokens: The largest limit that the model accepts, None if that is unknown. A larger one of a client
            is lowered, because servers refuse it.
        context_window: The tokens of prompt and output together that the model accepts, None if that is unknown.
        custom_tools: Accepts OpenAI's custom (free text) tools; else they are sent as functions with one string. None:
            as servers of its protocol usually do (ToolLimits.custom_by_default).
        text_content: What a Chat upstream accepts as the content of a message that has only text: one string, or a list
            of parts too.
        turn_order: The order of turns that a Chat upstream refuses: none; a user's turn after a tool's result; that and
            every other order in which user and assistant do not take turns.
        developer_role: Accepts the role "developer"; else "system" is sent.
        mid_system: Accepts system messages in mid-conversation; else they are sent as user text at their place.
        max_tokens_field: A Chat upstream's name of the limit.
        reasoning_field: The member in which a Chat upstream accepts earlier reasoning, None for none.
        sampling: A Messages upstream accepts temperature, top_p and top_k (API version 2023-06-01, older models).
        thinking: How a Messages upstream's model accepts thinking: "adaptive" with effort, "budget", or not at all.
        cache_marks: What a Chat or Responses upstream accepts on content parts: `prompt_cache_breakpoint`, or in Chat
            `cache_control` as in Messages.
        cache_keys: A Chat or Responses upstream caches prompts by `prompt_cache_key`.
        efforts: The reasoning efforts that the model accepts, None for all that its protocol has.
        reasoning_setting: The setting by which a Chat upstream is sent the effort, None if it has no such setting:
            `reasoning_effort`; `reasoning` ({"effort": ...}); `thinking` ({"type": "disabled"} or as `thinking_type`);
            `enable_thinking` (a boolean).
        thinking_type: The type that enables thinking in a Chat upstream's `thinking`.
        reasoning_back: The assistant turns whose reasoning a Chat upstream requires: none, those with tool calls, or
            all.
        thought_signatures: A Chat upstream requires Google's signature with the first tool call of a turn.
        structured_output: What the upstream supports: a JSON schema, any JSON object, or neither, in which case
            instructions or a tool are sent instead.
        hosted_tools: The tools that the upstream runs itself: "web_search", "code_execution", "mcp".
        tool_images: A Chat upstream accepts images in tool messages.
        call_ids: "alnum9" for servers whose call ids are nine letters or digits.
        forced_tools: Accepts a `tool_choice` that requires a tool call: always, only without reasoning, or never.
        sampling_pair: Accepts temperature and top_p in one request.
        sampling_at_none: Accepts the sampling settings in `refuses` with effort "none", which is its default.
        tools_with_effort: A Chat upstream accepts tools beside `reasoning_effort`.
        enforces: What the upstream enforces, so that nothing needs to check it: a strict schema, a required tool call.
        prefill: A conversation may end with an assistant turn, which the model continues.
        refuses: Settings and members (neutral names) that the upstream refuses with an error.
        summaries: When summaries of reasoning are requested from a Responses upstream: whenever the client requests
            reasoning, only if it requests to see it, or never.
        encrypted_reasoning: A Responses upstream's model is known to reason: its encrypted reasoning is requested also
            for clients that say nothing of reasoning, so that it is there after a tool call.
        unwraps_signatures: The upstream is a gateway of this kind too, which unwraps what it wrapped: between equal
            protocols its signatures pass as they are.
        billing_header: A Messages upstream bills by the line that Claude Code puts into the system text. Every other
            gets requests without it, because it differs in each, and no cached prompt begins with it.
        relay: How a request of the upstream's own protocol is sent: "exact" passes its bytes and those of the response;
            "rewrite" fits it to these capabilities like any other, and writes the response again.
    """

    max_tokens: int = 32000
    max_output_tokens: int | None = None
    context_window: int | None = None
    custom_tools: bool | None = None
    text_content: Literal["string", "parts"] = "string"
    turn_order: Literal["any", "no_user_after_tool", "alternate"] = "any"
    developer_role: bool = False
    mid_system: bool = False
    max_tokens_field: Literal["max_tokens", "max_completion_tokens"] = "max_completion_tokens"
    reasoning_field: str | None = "reasoning_content"
    sampling: bool = True
    thinking: Literal["adaptive", "budget", "none"] = "adaptive"
    cache_marks: Literal["none", "breakpoint", "cache_control"] = "none"
    cache_keys: bool = False
    efforts: tuple[str, ...] | None = None
    reasoning_setting: Literal["reasoning_effort", "reasoning", "thinking", "enable_thinking"] | None = (
        "reasoning_effort"
    )
    thinking_type: Literal["enabled", "adaptive"] = "enabled"
    reasoning_back: Literal["never", "tool_loop", "always"] = "never"
    thought_signatures: bool = False
    structured_output: Literal["schema", "object", "none"] = "schema"
    hosted_tools: frozenset[HostedUse] = frozenset()
    tool_images: bool = False
    call_ids: Literal["any", "alnum9"] = "any"
    forced_tools: Literal["yes", "not_thinking", "no"] = "yes"
    sampling_pair: bool = True
    sampling_at_none: bool = False
    tools_with_effort: bool = True
    enforces: frozenset[Enforced] = frozenset()
    prefill: bool = True
    refuses: frozenset[str] = frozenset()
    summaries: Literal["auto", "requested", "never"] = "requested"
    encrypted_reasoning: bool = False
    unwraps_signatures: bool = False
    billing_header: bool = True
    relay: Literal["exact", "rewrite"] = "exact"

    def for_prompt(self, tokens: int) -> Capabilities:
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
    def default_max_tokens(self) -> int:
        """The limit for a Messages upstream if the client sent none."""
        return min(self.max_tokens, self.max_output_tokens or self.max_tokens)

    @property
    def can_force_tools(self) -> bool:
        """True if a tool call can be required of the model, if necessary with reasoning disabled."""
        if self.forced_tools != "not_thinking" or self.efforts == ():
            return self.forced_tools != "no"
        return self.reasoning_setting is not None and (self.efforts is None or "none" in self.efforts)
