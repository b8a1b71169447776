"""The table of well-known model families: capabilities of their models that the configuration does not set.

All rows that match apply, later ones over earlier ones; None removes what an earlier row has set. Names are compared in
lower case, with dashes for dots and colons, and without the prefixes of clouds (`vendor/`, `us.anthropic.`), so that
one row covers every spelling. A model that is newer than the table gets the capabilities of the newest in it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

from dragoman_server.settings.capabilities import NONE


@dataclass(frozen=True, slots=True)
class ModelFamily:
    """One row.

    pattern: of names, as normalized_model_name() spells them.
    source: where the capabilities are documented. date: when that was read.
    provider: the row applies only at this provider's hosts, by its name in `providers`.
    """

    pattern: str
    capabilities: Mapping[str, object]
    source: str
    date: str
    provider: str | None = None


def _rows(
    source: str, date: str, *rows: tuple[str, Mapping[str, object]], provider: str | None = None
) -> tuple[ModelFamily, ...]:
    return tuple(
        [ModelFamily(pattern, capabilities, source, date, provider) for pattern, capabilities in rows]
    )


# Messages.

# "Opus 4.7 and later: non-default sampling values are refused." "none": thinking can be disabled.
_CLAUDE = {
    # "Thinking may not be enabled when tool_choice forces tool use." Adaptive thinking may not be, either.
    "forced_tools": "not_thinking",
    # "This model does not support assistant message prefill."
    "prefill": False,
    "thinking": "adaptive",
    "efforts": ("none", "low", "medium", "high", "xhigh", "max"),
    "sampling": False,
    "structured_output": "schema",
}
# "Both thinking: {type: disabled} and manual extended thinking return a 400 error."
_CLAUDE_ALWAYS_THINKS = {"efforts": ("low", "medium", "high", "xhigh", "max")}
_CLAUDE_4_7 = {**_CLAUDE, "mid_system": False}
# These accept sampling parameters in the API version that has them.
# "`temperature` and `top_p` cannot both be specified for this model."
_CLAUDE_4_6 = {
    **_CLAUDE_4_7,
    "efforts": ("none", "low", "medium", "high", "max"),
    "sampling": None,
    "sampling_pair": False,
}
_CLAUDE_4_5 = {**_CLAUDE_4_6, "thinking": "budget", "efforts": None, "prefill": None}
_CLAUDE_4_1 = {**_CLAUDE_4_5, "structured_output": NONE}
_CLAUDE_4 = {**_CLAUDE_4_1, "sampling_pair": None}
_CLAUDE_3 = {**_CLAUDE_4, "thinking": NONE, "efforts": ()}

# Chat Completions and Responses.

# "Currently unsupported with reasoning models: temperature, top_p, presence_penalty, frequency_penalty, logprobs,
# top_logprobs, logit_bias." "stop: not supported with latest reasoning models."
_REFUSED_WHEN_REASONING = (
    "temperature",
    "top_p",
    "presence_penalty",
    "frequency_penalty",
    "logprobs",
    "top_logprobs",
    "logit_bias",
    "stop",
)
_O_SERIES = {
    "efforts": ("low", "medium", "high"),
    "refuses": (*_REFUSED_WHEN_REASONING, "verbosity"),
    "custom_tools": False,
}
# Older ones make one call at a time, and refuse the parameter.
_O_SERIES_ONE_CALL = {**_O_SERIES, "refuses": (*_REFUSED_WHEN_REASONING, "verbosity", "parallel_tool_calls")}
# "gpt-5.1 defaults to none ... All models before gpt-5.1 do not support none. xhigh is supported for all models
# after gpt-5.1-codex-max."
_GPT_5 = {"efforts": ("none", "low", "medium", "high", "xhigh"), "refuses": _REFUSED_WHEN_REASONING}
# "Function tools with reasoning_effort are not supported for gpt-5.6-luna in /v1/chat/completions." The
# same holds from gpt-5.4 on.
_NO_EFFORT_BESIDE_TOOLS = {"tools_with_effort": False}
# "gpt-6-astra accepts low, medium, high and xhigh in Chat Completions, Responses adds max; none is rejected."
_GPT_6 = {**_GPT_5, **_NO_EFFORT_BESIDE_TOOLS, "efforts": ("low", "medium", "high", "xhigh")}
# "Supported when using reasoning effort none, the default: temperature, top_p, logprobs."
_SAMPLING_AT_NONE = {"sampling_at_none": True}
_NO_REASONING = {
    "efforts": (),
    "refuses": ("verbosity",),
    "custom_tools": False,
    "structured_output": "schema",
}
_JSON_MODE = {**_NO_REASONING, "structured_output": "object"}

# "presencePenalty, frequencyPenalty and stop parameters are not supported by reasoning models."
_GROK = {
    "efforts": ("low", "medium", "high"),
    "refuses": ("presence_penalty", "frequency_penalty", "stop"),
}

# "invalid temperature: only 1 is allowed for this model": all sampling is fixed.
_KIMI = {
    "efforts": ("low", "high", "max"),
    "refuses": ("frequency_penalty", "n", "presence_penalty", "temperature", "top_p"),
}
_SWITCH = {"reasoning_setting": "thinking", "efforts": None}  # on or off, without efforts

_FROM_MINIMAL = ("minimal", "low", "medium", "high")

MODEL_FAMILIES = (
    *_rows(
        "platform.claude.com/docs: models",
        "2026-11-22",
        # Messages only. Servers of other protocols in front of these models have their own place for system text.
        ("claude-*", {"mid_system": True}),
        provider="anthropic",
    ),
    *_rows(
        "platform.claude.com/docs: models, thinking; oh-my-pi#341; vercel/ai#12296; litellm#15097",
        "2026-11-22",
        ("claude-*", _CLAUDE),
        ("claude-fable-*", _CLAUDE_ALWAYS_THINKS),
        ("claude-mythos-*", _CLAUDE_ALWAYS_THINKS),
        ("claude-opus-4-7*", _CLAUDE_4_7),
        ("claude-*-4-6*", _CLAUDE_4_6),
        ("claude-*-4-5*", _CLAUDE_4_5),
        ("claude-*-4-1*", _CLAUDE_4_1),
        ("claude-*-4-0*", _CLAUDE_4),
        ("claude-*-4", _CLAUDE_4),
        ("claude-*-4-20*", _CLAUDE_4),  # with a date
        ("claude-*-4@*", _CLAUDE_4),
        ("claude-3*", _CLAUDE_3),
        ("claude-3-7-*", {"thinking": "budget", "efforts": None}),
        ("claude-2*", _CLAUDE_3),
        ("claude-instant*", _CLAUDE_3),
    ),
    *_rows(
        "platform.openai.com/docs: models",
        "2026-11-21",
        ("gpt-3*", _JSON_MODE),
        ("gpt-4*", _JSON_MODE),
        ("gpt-4o*", _NO_REASONING),
        ("gpt-4-1", _NO_REASONING),
        ("gpt-4-1-*", _NO_REASONING),
        ("gpt-4-5*", _NO_REASONING),
        ("chatgpt-*", _JSON_MODE),
    ),
    *_rows(
        "platform.openai.com/docs: models, reasoning; khoj#1377",
        "2026-11-22",
        ("o1*", _O_SERIES_ONE_CALL),
        ("o3*", _O_SERIES),
        ("o3-mini*", _O_SERIES_ONE_CALL),
        ("o4*", _O_SERIES),
        ("gpt-5*", _GPT_5),
        ("gpt-5", {"efforts": _FROM_MINIMAL}),
        ("gpt-5-20*", {"efforts": _FROM_MINIMAL}),
        ("gpt-5-mini*", {"efforts": _FROM_MINIMAL}),
        ("gpt-5-nano*", {"efforts": _FROM_MINIMAL}),
        ("gpt-5-codex*", {"efforts": ("low", "medium", "high")}),
        ("gpt-5-pro*", {"efforts": ("high",)}),
        ("gpt-5-1*", {"efforts": ("none", "low", "medium", "high")}),
        ("gpt-5-1-codex*", {"efforts": ("low", "medium", "high")}),
        ("gpt-5-1-codex-max*", {"efforts": ("none", "low", "medium", "high", "xhigh")}),
        ("gpt-5-6*", {"efforts": ("none", "low", "medium", "high", "xhigh", "max")}),
    ),
    *_rows(
        "vercel/ai#10932",
        "2026-11-22",
        ("gpt-5-[1-4]", _SAMPLING_AT_NONE),
        ("gpt-5-[1-4]-*", _SAMPLING_AT_NONE),
        ("gpt-5-[1-4]-codex*", {"sampling_at_none": None}),
        ("gpt-5-[1-4]-pro*", {"sampling_at_none": None}),
    ),
    *_rows(
        "itzcrazykns/vane#1173; openai/openai-openapi#541; onyx#15008; BerriAI/litellm-docs#1173",
        "2026-11-22",
        ("gpt-5-[4-6]", _NO_EFFORT_BESIDE_TOOLS),
        ("gpt-5-[4-6]-*", _NO_EFFORT_BESIDE_TOOLS),
        ("gpt-6*", _GPT_6),
    ),
    *_rows(
        "kilocode#13022; stacklok/mecatl#1573; bifrost#7240",
        "2026-11-22",
        # "prompt_cache_breakpoint is not supported on this model": all older ones.
        ("gpt-5-[6-9]*", {"cache_marks": "breakpoint"}),
        ("gpt-6*", {"cache_marks": "breakpoint"}),
        provider="openai",
    ),
    *_rows("litellm#13781", "2026-11-22", ("gpt-5*chat*", {"efforts": (), "refuses": ()})),
    *_rows(
        "docs.x.ai: reasoning; @ai-sdk/xai 3.0.97, 4.0.8",
        "2026-11-22",
        # Models before grok-4.3 refuse the setting, except for grok-3-mini.
        ("grok-*", _GROK),
        ("grok-4-3*", {"efforts": ("none", "low", "medium", "high")}),
        ("grok-2*", {"efforts": (), "refuses": ()}),
        ("grok-3*", {"efforts": (), "refuses": ()}),
        ("grok-3-mini*", {"efforts": ("low", "high"), "refuses": _GROK["refuses"]}),
        ("grok-4", {"efforts": ()}),
        ("grok-4-0*", {"efforts": ()}),
        ("grok-4-1*", {"efforts": ()}),
        ("grok-4-20*", {"efforts": ()}),
        ("grok-4-fast*", {"efforts": ()}),
        ("grok-code*", {"efforts": ()}),
        ("grok-*non-reasoning*", {"efforts": (), "refuses": ()}),
    ),
    *_rows(
        "mistral-vibe#578 (vLLM); hermes-agent#20154 (NIM); crush#279 (OpenRouter); opencode#19115; llama.cpp#19851",
        "2026-11-22",
        # "Unexpected role 'user' after role 'tool'", on every host of Mistral's models. "Expected last role User or
        # Tool (or Assistant with prefix True) for serving but got assistant."
        ("*[sx]tral-*", {"turn_order": "no_user_after_tool", "prefill": False}),
        # "After the optional system message, conversation roles must alternate user and assistant roles except for
        # tool calls and results."
        ("devstral-*", {"turn_order": "alternate"}),
    ),
    *_rows(
        "docs.mistral.ai: reasoning",
        "2026-11-21",
        # "reasoning_effort: high or none", only with these; magistral always reasons and has no such setting.
        ("mistral-small-latest", {"efforts": ("none", "high")}),
        ("mistral-small-26*", {"efforts": ("none", "high")}),
        ("mistral-medium-3-5*", {"efforts": ("none", "high")}),
        ("mistral-large-4*", {"efforts": ("low", "medium", "high")}),
        provider="mistral",
    ),
    *_rows(
        "console.groq.com/docs: reasoning, structured outputs",
        "2026-11-21",
        # Of Groq's models, only these accept an effort, and only these enforce a schema.
        ("gpt-oss*", {"efforts": ("low", "medium", "high"), "structured_output": "schema"}),
        ("kimi-k2*", {"structured_output": "schema"}),
        ("llama-4*", {"structured_output": "schema"}),
        provider="groq",
    ),
    *_rows(
        "VideoAdGuard#34; kimi-code#686; agentscope's page on Kimi; TeXRA#1905",
        "2026-11-22",
        ("kimi-*", _KIMI),
        ("kimi-k2*", _SWITCH),
        ("kimi-for-coding*", _SWITCH),
        ("moonshot-v1*", {"efforts": (), "forced_tools": None, "reasoning_back": None}),
        provider="moonshot",
    ),
    *_rows(
        "docs.z.ai/guides/capabilities/thinking-mode",
        "2026-11-22",
        ("glm-5-[2-9]*", {"efforts": ("low", "medium", "high")}),
        provider="zai",
    ),
    *_rows(
        "alibabacloud.com/help/model-studio: structured output",
        "2026-11-22",
        ("qwen3-8-max*", {"structured_output": "schema"}),
        provider="dashscope",
    ),
    *_rows(
        "ai.google.dev/gemini-api/docs/openai: thinking",
        "2026-11-22",
        # "Reasoning cannot be turned off for Gemini 2.5 Pro or 3 models."
        ("gemini-2-5-flash*", {"efforts": ("none", "low", "medium", "high")}),
        provider="gemini",
    ),
)


def families_of(model: str, provider: str | None) -> Iterator[ModelFamily]:
    """Yield the rows that match a model, by its name at the upstream, in order. provider: of the upstream's host."""
    name = normalized_model_name(model)
    for family in MODEL_FAMILIES:
        if family.provider in (None, provider) and fnmatchcase(name, family.pattern):
            yield family


def normalized_model_name(model: str) -> str:
    """Return the name in the spelling of the table."""
    name = model.rpartition("/")[2].lower()
    # Bedrock: region.vendor.name-date-version
    for vendor in ("anthropic.", "openai."):
        name = name.rpartition(vendor)[2]
    # OpenRouter's variants and Ollama's tags follow a colon.
    return name.replace(".", "-").replace(":", "-")
