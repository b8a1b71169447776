"""Capabilities of an upstream or a model, as settings: what it accepts beyond its protocol.

One table of keys serves every source: well-known hosts and model families, `[[upstreams]]` and `[[capabilities]]` of
the configuration. None means unset, so that one source can be laid over another. They apply to translated requests;
relayed ones stay as the client has written them, unless `relay` is "rewrite".
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Annotated, ClassVar, get_args

from msgspec import Meta
from msgspec.structs import asdict

from dragoman import PROTOCOLS
from dragoman.codec import Capabilities, Enforced, HostedUse
from dragoman.document import EFFORTS, REFUSABLE_MEMBERS
from dragoman_server.settings.fields import Name

# The value of `reasoning_field`, `reasoning_setting` and others for an upstream that has none.
NONE = "none"

# The neutral names of the settings of all protocols: those of Chat Completions if it has the setting.
REFUSABLE: tuple[str, ...] = tuple(
    sorted({*REFUSABLE_MEMBERS, *(name for spec in PROTOCOLS.values() for name in spec.settings)})
)
HOSTED_USES: tuple[str, ...] = get_args(HostedUse)
ENFORCED: tuple[str, ...] = get_args(Enforced)


@dataclass(frozen=True, slots=True, kw_only=True)
class CapabilitySettings:
    """The capabilities that can be set. If no source sets one, that of the core applies."""

    # Of an upstream without `sampling`, the version of its API decides; `billing_header` is a row of its host.
    UNSET: ClassVar = {
        name: value
        for name, value in asdict(Capabilities()).items()
        if isinstance(value, str | bool) and name not in ("sampling", "billing_header")
    }

    max_tokens: Annotated[
        int | None,
        Meta(ge=1, le=10_000_000),
        "max_tokens when the client sends none; unset: default_max_tokens of [server]",
    ] = None
    max_output_tokens: Annotated[
        int | None,
        Meta(ge=1, le=10_000_000),
        "largest output limit that the model accepts, to which a client's is lowered; unset: that of the model's family"
        " or of the upstream's model list, as far as known",
    ] = None
    context_window: Annotated[
        int | None,
        Meta(ge=1, le=10_000_000),
        "tokens of prompt and output together that the model accepts; a client's output limit is lowered to what an"
        " estimate of the prompt leaves; unset: as far as the model's family or the upstream's model list says",
    ] = None
    max_tokens_field: Annotated[
        str | None, ("max_completion_tokens", "max_tokens"), "name of the token limit in Chat Completions"
    ] = None
    reasoning_field: Annotated[
        str | None,
        ("reasoning_content", "reasoning", NONE),
        "member in which Chat Completions accepts earlier reasoning",
    ] = None
    reasoning_setting: Annotated[
        str | None,
        ("reasoning_effort", "reasoning", "thinking", "enable_thinking", NONE),
        "setting of the reasoning effort in Chat Completions: a string, {effort}, {type}, or true and false",
    ] = None
    thinking_type: Annotated[
        str | None, ("enabled", "adaptive"), "type that requests thinking where reasoning_setting is thinking"
    ] = None
    reasoning_back: Annotated[
        str | None,
        ("never", "tool_loop", "always"),
        "assistant turns whose reasoning must be sent back in Chat Completions: none, those with tool calls, or all; a"
        " blank replaces reasoning that is lost",
    ] = None
    thought_signatures: Annotated[
        bool | None, "Chat Completions requires Google's thought_signature with the first tool call of a turn"
    ] = None
    efforts: Annotated[
        tuple[str, ...] | None,
        EFFORTS,
        "reasoning efforts that are accepted; others are replaced by the nearest; unset: all; empty: no reasoning",
    ] = None
    thinking: Annotated[
        str | None,
        ("adaptive", "budget", NONE),
        "how models of Messages accept thinking: by effort, by budget, or not at all",
    ] = None
    sampling: Annotated[
        bool | None,
        "Messages accepts temperature, top_p and top_k; unset: unless anthropic_version is 2026-10-21 or later",
    ] = None
    structured_output: Annotated[
        str | None,
        ("schema", "object", NONE),
        "structured output that is accepted: schemas, JSON objects, or none; the rest is requested in other ways",
    ] = None
    hosted_tools: Annotated[tuple[str, ...] | None, HOSTED_USES, "tools that the upstream runs itself"] = None
    custom_tools: Annotated[
        bool | None, "accepts free-text tools; else they are sent as functions; unset: in Responses only"
    ] = None
    text_content: Annotated[
        str | None,
        ("string", "parts"),
        "content that Chat Completions accepts in text messages: one string only, or parts as well",
    ] = None
    turn_order: Annotated[
        str | None,
        ("any", "no_user_after_tool", "alternate"),
        "order of turns that Chat Completions accepts: any; no_user_after_tool: user text after a tool's result"
        " becomes part of it; alternate: also no two turns of one role, and no assistant first",
    ] = None
    tool_images: Annotated[
        bool | None, "Chat Completions accepts images in tool messages; else they follow in a user message"
    ] = None
    developer_role: Annotated[
        bool | None, "Chat Completions accepts the role developer; else system is sent"
    ] = None
    mid_system: Annotated[
        bool | None, "accepts system messages after the first turn; else they are sent as marked user text"
    ] = None
    cache_marks: Annotated[
        str | None,
        (NONE, "breakpoint", "cache_control"),
        "mark of content parts for the prompt cache: prompt_cache_breakpoint (Chat Completions, Responses),"
        " cache_control (Chat Completions), or none",
    ] = None
    cache_keys: Annotated[
        bool | None,
        "send prompt_cache_key in Chat Completions or Responses; by default a hash of the conversation",
    ] = None
    summaries: Annotated[
        str | None,
        ("auto", "requested", "never"),
        "when summaries of reasoning are requested in Responses: whenever the client requests reasoning, when it"
        " requests visible reasoning, or never",
    ] = None
    encrypted_reasoning: Annotated[
        bool | None,
        "request encrypted reasoning in Responses also for clients that say nothing of reasoning, so that it is kept"
        " between tool calls; unset: for model families that are known to reason",
    ] = None
    unwraps_signatures: Annotated[
        bool | None,
        "is a Dragoman too and unwraps signatures itself; clients of its own protocol send them back as they are",
    ] = None
    call_ids: Annotated[
        str | None, ("any", "alnum9"), "form that ids of tool calls must have; alnum9: nine letters or digits"
    ] = None
    forced_tools: Annotated[
        str | None,
        ("yes", "not_thinking", "no"),
        "accepts a tool_choice that requires a call: always, only while the model does not reason, or never",
    ] = None
    enforces: Annotated[
        tuple[str, ...] | None,
        ENFORCED,
        "what it is known to enforce: a strict schema, a required tool call; the rest is checked in the response, "
        "and a breach is recorded in the losses",
    ] = None
    sampling_pair: Annotated[
        bool | None, "accepts temperature and top_p together; else only the temperature is sent"
    ] = None
    sampling_at_none: Annotated[
        bool | None, "temperature, top_p and logprobs are refused only with an effort above none"
    ] = None
    tools_with_effort: Annotated[
        bool | None, "Chat Completions accepts tools together with reasoning_effort"
    ] = None
    prefill: Annotated[
        bool | None, "the conversation may end with assistant text, which the model continues"
    ] = None
    refuses: Annotated[
        tuple[str, ...] | None, REFUSABLE, "settings that cause an error and are therefore left out"
    ] = None

    billing_header: Annotated[
        bool | None,
        "Messages: Claude Code's billing line in the system text is for this upstream; else it is dropped, because it"
        " differs in each request and no cached prompt begins with it; unset: only at Anthropic's host",
    ] = None
    relay: Annotated[
        str | None,
        ("exact", "rewrite"),
        "requests in its own protocol; exact: their bytes pass unchanged, and those of responses; rewrite: they "
        "are adapted like translated ones",
    ] = None

    def explicit_values(self) -> Iterator[tuple[str, object]]:
        """Yield the names and values that are set."""
        for each in fields(CapabilitySettings):
            value = getattr(self, each.name)
            if value is not None:
                yield each.name, value


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCapabilitySettings(CapabilitySettings):
    """One `[[capabilities]]` table."""

    model: Annotated[
        str, "the upstream's name of the model; * matches any text; later tables override earlier ones"
    ]
    upstream: Annotated[Name | None, "upstream that the table applies to; unset: all"] = None
