"""Capabilities of an upstream or a model, as settings: what it accepts beyond its protocol.

One table of keys serves every source: well-known hosts and model families, `[[upstreams]]` and `[[capabilities]]` of
the configuration. None means unset, so that one source can be laid over another. They apply to translated requests;
relayed ones stay as the client has written them, unless `relay` is "rewrite".
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Annotated, get_args

from dragoman.codec import Enforced, HostedUse
from dragoman.document import EFFORTS, Refusable
from dragoman_server.settings.fields import SettingKind, SettingSpec, choice, integer, keys_of

# The value of `reasoning_field`, `reasoning_setting` and others for an upstream that has none.
NONE = "none"

# The core's names of parameters: those of Chat Completions if it has the parameter.
REFUSABLE: tuple[str, ...] = tuple(sorted(name for part in get_args(Refusable) for name in get_args(part)))
HOSTED_USES: tuple[str, ...] = get_args(HostedUse)
ENFORCED: tuple[str, ...] = get_args(Enforced)


def _switch(help_: str, default: bool | None = None) -> SettingSpec:
    return SettingSpec(SettingKind.SWITCH, help_, default=default)


@dataclass(frozen=True, slots=True, kw_only=True)
class CapabilitySettings:
    """The capabilities that can be set. A `default` in a key applies if no source sets the value."""

    max_tokens: Annotated[
        int | None,
        integer(
            "max_tokens when the client sends none; unset: default_max_tokens of [server]", 1, 10_000_000
        ),
    ] = None
    max_tokens_field: Annotated[
        str | None,
        choice(
            "name of the token limit in Chat Completions",
            "max_completion_tokens",
            "max_tokens",
            default="max_completion_tokens",
        ),
    ] = None
    reasoning_field: Annotated[
        str | None,
        choice(
            "member in which Chat Completions accepts earlier reasoning",
            "reasoning_content",
            "reasoning",
            NONE,
            default="reasoning_content",
        ),
    ] = None
    reasoning_setting: Annotated[
        str | None,
        choice(
            "setting of the reasoning effort in Chat Completions: a string, {effort}, {type}, or true and false",
            "reasoning_effort",
            "reasoning",
            "thinking",
            "enable_thinking",
            NONE,
            default="reasoning_effort",
        ),
    ] = None
    thinking_type: Annotated[
        str | None,
        choice(
            "type that requests thinking where reasoning_setting is thinking",
            "enabled",
            "adaptive",
            default="enabled",
        ),
    ] = None
    reasoning_back: Annotated[
        str | None,
        choice(
            "assistant turns whose reasoning must be sent back in Chat Completions: none, those with tool calls since"
            " the last user message, or all; a blank replaces reasoning that is lost",
            "never",
            "tool_loop",
            "always",
            default="never",
        ),
    ] = None
    thought_signatures: Annotated[
        bool | None,
        _switch(
            "Chat Completions requires Google's thought_signature with the first tool call of a turn", False
        ),
    ] = None
    efforts: Annotated[
        tuple[str, ...] | None,
        SettingSpec(
            SettingKind.CHOICES,
            "reasoning efforts that are accepted; others are replaced by the nearest; unset: all; empty: no reasoning",
            choices=EFFORTS,
        ),
    ] = None
    thinking: Annotated[
        str | None,
        choice(
            "how models of Messages accept thinking: by effort, by budget, or not at all",
            "adaptive",
            "budget",
            NONE,
            default="adaptive",
        ),
    ] = None
    sampling: Annotated[
        bool | None,
        _switch(
            "Messages accepts temperature, top_p and top_k; unset: unless anthropic_version is 2026-10-21 or later"
        ),
    ] = None
    structured_output: Annotated[
        str | None,
        choice(
            "structured output that is accepted: schemas, JSON objects, or none; the rest is requested in other ways",
            "schema",
            "object",
            NONE,
            default="schema",
        ),
    ] = None
    hosted_tools: Annotated[
        tuple[str, ...] | None,
        SettingSpec(
            SettingKind.CHOICES, "tools that the upstream runs itself", choices=HOSTED_USES, default=()
        ),
    ] = None
    custom_tools: Annotated[
        bool | None,
        _switch("accepts free-text tools; else they are sent as functions; unset: in Responses only"),
    ] = None
    text_content: Annotated[
        str | None,
        choice(
            "content that Chat Completions accepts in text messages: one string only, or parts as well",
            "string",
            "parts",
            default="string",
        ),
    ] = None
    turn_order: Annotated[
        str | None,
        choice(
            "order of turns that Chat Completions accepts: any; no_user_after_tool: user text after a tool's result"
            " becomes part of it; alternate: also no two turns of one role, and no assistant first",
            "any",
            "no_user_after_tool",
            "alternate",
            default="any",
        ),
    ] = None
    tool_images: Annotated[
        bool | None,
        _switch(
            "Chat Completions accepts images in tool messages; else they follow in a user message", False
        ),
    ] = None
    developer_role: Annotated[
        bool | None, _switch("Chat Completions accepts the role developer; else system is sent", False)
    ] = None
    mid_system: Annotated[
        bool | None,
        _switch(
            "accepts system messages after the first turn; else they are sent as marked user text", False
        ),
    ] = None
    cache_marks: Annotated[
        str | None,
        choice(
            "mark of content parts for the prompt cache: prompt_cache_breakpoint (Chat Completions, Responses),"
            " cache_control (Chat Completions), or none",
            NONE,
            "breakpoint",
            "cache_control",
            default=NONE,
        ),
    ] = None
    cache_keys: Annotated[
        bool | None,
        _switch(
            "send prompt_cache_key in Chat Completions or Responses; by default a hash of the conversation",
            False,
        ),
    ] = None
    summaries: Annotated[
        str | None,
        choice(
            "when summaries of reasoning are requested in Responses: whenever the client requests reasoning, when it"
            " requests visible reasoning, or never",
            "auto",
            "requested",
            "never",
            default="requested",
        ),
    ] = None
    unwraps_signatures: Annotated[
        bool | None,
        _switch(
            "is a Dragoman too and unwraps signatures itself; clients of its own protocol send them back as they are",
            False,
        ),
    ] = None
    call_ids: Annotated[
        str | None,
        choice(
            "form that ids of tool calls must have; alnum9: nine letters or digits",
            "any",
            "alnum9",
            default="any",
        ),
    ] = None
    forced_tools: Annotated[
        str | None,
        choice(
            "accepts a tool_choice that requires a call: always, only while the model does not reason, or never",
            "yes",
            "not_thinking",
            "no",
            default="yes",
        ),
    ] = None
    enforces: Annotated[
        tuple[str, ...] | None,
        SettingSpec(
            SettingKind.CHOICES,
            "what it is known to enforce: a strict schema, a required tool call; the rest is checked in the response, "
            "and a breach is recorded in the losses",
            choices=ENFORCED,
            default=(),
        ),
    ] = None
    sampling_pair: Annotated[
        bool | None,
        _switch("accepts temperature and top_p together; else only the temperature is sent", True),
    ] = None
    sampling_at_none: Annotated[
        bool | None,
        _switch("temperature, top_p and logprobs are refused only with an effort above none", False),
    ] = None
    tools_with_effort: Annotated[
        bool | None, _switch("Chat Completions accepts tools together with reasoning_effort", True)
    ] = None
    prefill: Annotated[
        bool | None, _switch("the conversation may end with assistant text, which the model continues", True)
    ] = None
    refuses: Annotated[
        tuple[str, ...] | None,
        SettingSpec(
            SettingKind.CHOICES,
            "settings that cause an error and are therefore left out",
            choices=REFUSABLE,
            default=(),
        ),
    ] = None

    relay: Annotated[
        str | None,
        choice(
            "requests in its own protocol; exact: their bytes pass unchanged, and those of responses; rewrite: they "
            "are adapted like translated ones",
            "exact",
            "rewrite",
            default="exact",
        ),
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
        str,
        SettingSpec(
            SettingKind.TEXT,
            "the upstream's name of the model; * matches any text; later tables override earlier ones",
        ),
    ]
    upstream: Annotated[
        str | None, SettingSpec(SettingKind.NAME, "upstream that the table applies to; unset: all")
    ] = None


CAPABILITY_KEYS = keys_of(CapabilitySettings)


def with_own_keys_first(cls: type[CapabilitySettings]) -> dict[str, SettingSpec]:
    """Return the keys of a class with its own before the inherited ones, because people look for the name first."""
    keys = keys_of(cls)
    return {**{name: key for name, key in keys.items() if name not in CAPABILITY_KEYS}, **CAPABILITY_KEYS}


MODEL_KEYS = with_own_keys_first(ModelCapabilitySettings)
