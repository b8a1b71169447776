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
        integer("max_tokens when the client gave none; else server.default_max_tokens", 1, 10_000_000),
    ] = None
    max_tokens_field: Annotated[
        str | None,
        choice(
            "the name of the limit in Chat Completions",
            "max_completion_tokens",
            "max_tokens",
            default="max_completion_tokens",
        ),
    ] = None
    reasoning_field: Annotated[
        str | None,
        choice(
            "where Chat Completions takes earlier reasoning back",
            "reasoning_content",
            "reasoning",
            NONE,
            default="reasoning_content",
        ),
    ] = None
    reasoning_setting: Annotated[
        str | None,
        choice(
            "how Chat Completions is told how much to think: a word, {effort}, {type}, or true and false",
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
            "the type that asks for thinking where reasoning_setting is thinking",
            "enabled",
            "adaptive",
            default="enabled",
        ),
    ] = None
    reasoning_back: Annotated[
        str | None,
        choice(
            "the assistant's turns whose reasoning Chat Completions demands back: none, those with calls since the user"
            " last spoke, or all; where it is lost, a blank stands for it",
            "never",
            "tool_loop",
            "always",
            default="never",
        ),
    ] = None
    thought_signatures: Annotated[
        bool | None,
        _switch("Chat Completions demands Google's thought_signature with the first call of a turn", False),
    ] = None
    efforts: Annotated[
        tuple[str, ...] | None,
        SettingSpec(
            SettingKind.CHOICES,
            "the reasoning efforts that are taken, others become the nearest; unset: all; empty: no reasoning at all",
            choices=EFFORTS,
        ),
    ] = None
    thinking: Annotated[
        str | None,
        choice(
            "how the models of Messages take thinking: by effort, by budget, or not at all",
            "adaptive",
            "budget",
            NONE,
            default="adaptive",
        ),
    ] = None
    sampling: Annotated[
        bool | None,
        _switch(
            "Messages takes temperature, top_p and top_k; unset: unless anthropic_version is 2026-10-21 or later"
        ),
    ] = None
    structured_output: Annotated[
        str | None,
        choice(
            "what is known of structured output: schemas, JSON objects, or nothing; what is not is asked for otherwise",
            "schema",
            "object",
            NONE,
            default="schema",
        ),
    ] = None
    hosted_tools: Annotated[
        tuple[str, ...] | None,
        SettingSpec(
            SettingKind.CHOICES, "the tools that the upstream runs itself", choices=HOSTED_USES, default=()
        ),
    ] = None
    custom_tools: Annotated[
        bool | None, _switch("takes free-text tools; else they go as functions; unset: only in Responses")
    ] = None
    text_content: Annotated[
        str | None,
        choice(
            "what Chat Completions takes of messages that are text alone: one string, or several parts as well",
            "string",
            "parts",
            default="string",
        ),
    ] = None
    turn_order: Annotated[
        str | None,
        choice(
            "the order of turns in Chat Completions: any; no user behind a tool's result, so that what the user says"
            " becomes part of that; alternate: nor two turns of one role, nor an assistant at the head",
            "any",
            "no_user_after_tool",
            "alternate",
            default="any",
        ),
    ] = None
    tool_images: Annotated[
        bool | None,
        _switch("Chat Completions takes images in tool messages; else they follow as a user message", False),
    ] = None
    developer_role: Annotated[
        bool | None, _switch("Chat Completions knows the role developer; else it goes as system", False)
    ] = None
    mid_system: Annotated[
        bool | None,
        _switch("takes system messages after the first turn; else they go as marked user text", False),
    ] = None
    cache_marks: Annotated[
        str | None,
        choice(
            "what marks content parts for the prompt cache: prompt_cache_breakpoint (Chat Completions, Responses),"
            " cache_control (Chat Completions), or nothing",
            NONE,
            "breakpoint",
            "cache_control",
            default=NONE,
        ),
    ] = None
    cache_keys: Annotated[
        bool | None,
        _switch(
            "Chat Completions or Responses gets a prompt_cache_key; a hash of the conversation if there is none",
            False,
        ),
    ] = None
    summaries: Annotated[
        str | None,
        choice(
            "when Responses is asked for summaries of its reasoning: whenever the client wants reasoning, when it asks"
            " to see it, or never",
            "auto",
            "requested",
            "never",
            default="requested",
        ),
    ] = None
    unwraps_signatures: Annotated[
        bool | None,
        _switch(
            "is a Dragoman too, which opens what it has sealed: clients of its own protocol give it back as it is",
            False,
        ),
    ] = None
    call_ids: Annotated[
        str | None,
        choice(
            "what ids of tool calls may look like: alnum9 are nine letters or digits",
            "any",
            "alnum9",
            default="any",
        ),
    ] = None
    forced_tools: Annotated[
        str | None,
        choice(
            "takes a tool_choice that demands a call: always, only while the model does not think, or never",
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
            "what it is known to make the model do: keep to a strict schema, call a tool that is demanded; the rest is "
            "checked, and the losses say `breach`",
            choices=ENFORCED,
            default=(),
        ),
    ] = None
    sampling_pair: Annotated[
        bool | None, _switch("takes temperature and top_p together; else the temperature is sent alone", True)
    ] = None
    sampling_at_none: Annotated[
        bool | None,
        _switch("temperature, top_p and logprobs count as refused only with an effort above none", False),
    ] = None
    tools_with_effort: Annotated[
        bool | None, _switch("Chat Completions takes tools beside reasoning_effort", True)
    ] = None
    prefill: Annotated[
        bool | None, _switch("the conversation may end with words of the assistant, which it continues", True)
    ] = None
    refuses: Annotated[
        tuple[str, ...] | None,
        SettingSpec(
            SettingKind.CHOICES,
            "settings that are answered with an error, so they are left out",
            choices=REFUSABLE,
            default=(),
        ),
    ] = None

    relay: Annotated[
        str | None,
        choice(
            "requests in its own protocol: exact: bytes pass, and those of answers; rewrite: fitted like translated "
            "ones",
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
            "the upstream's name of the model, * for any text; later tables win over earlier ones",
        ),
    ]
    upstream: Annotated[
        str | None, SettingSpec(SettingKind.NAME, "only at the upstream of this name; unset: at all")
    ] = None


CAPABILITY_KEYS = keys_of(CapabilitySettings)


def with_own_keys_first(cls: type[CapabilitySettings]) -> dict[str, SettingSpec]:
    """Return the keys of a class with its own before the inherited ones, because people look for the name first."""
    keys = keys_of(cls)
    return {**{name: key for name, key in keys.items() if name not in CAPABILITY_KEYS}, **CAPABILITY_KEYS}


MODEL_KEYS = with_own_keys_first(ModelCapabilitySettings)
