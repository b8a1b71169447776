"""What the models of well-known families take, where the configuration does not say it.

Strategy: a table from patterns to capabilities, in the vendors' own words where they have some. All rows that fit
count, later ones over earlier ones; a None takes back what an earlier row said. Names are compared in lower case,
with dashes for dots, and without what clouds put before them (`vendor/`, `us.anthropic.`): so one row covers every
spelling.

A model that is newer than the table is taken for one like the newest in it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

from .capabilities import NONE


@dataclass(frozen=True, slots=True)
class ModelFamily:
    """provider: the row counts at this provider's own host alone, by its name in `_providers`."""

    pattern: str
    takes: Mapping[str, object]
    provider: str | None = None


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
    "mid_system": True,
    "structured_output": "schema",
}
# "Both thinking: {type: disabled} and manual extended thinking return a 400 error."
_CLAUDE_ALWAYS_THINKS = {"efforts": ("low", "medium", "high", "xhigh", "max")}
_CLAUDE_4_7 = {**_CLAUDE, "mid_system": False}
# These take sampling on the API version that has it.
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
# "gpt-5.1 defaults to none ... All models before gpt-5.1 do not support none. xhigh is supported for all models
# after gpt-5.1-codex-max."
_GPT_5 = {"efforts": ("none", "low", "medium", "high", "xhigh"), "refuses": _REFUSED_WHEN_REASONING}
# "Function tools with reasoning_effort are not supported for gpt-5.6-luna in /v1/chat/completions." So it is from
# gpt-5.4 on.
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

MODEL_FAMILIES = (
    ModelFamily("claude-*", _CLAUDE),
    ModelFamily("claude-fable-*", _CLAUDE_ALWAYS_THINKS),
    ModelFamily("claude-mythos-*", _CLAUDE_ALWAYS_THINKS),
    ModelFamily("claude-opus-4-7*", _CLAUDE_4_7),
    ModelFamily("claude-*-4-6*", _CLAUDE_4_6),
    ModelFamily("claude-*-4-5*", _CLAUDE_4_5),
    ModelFamily("claude-*-4-1*", _CLAUDE_4_1),
    ModelFamily("claude-*-4-0*", _CLAUDE_4),
    ModelFamily("claude-*-4", _CLAUDE_4),
    ModelFamily("claude-*-4-20*", _CLAUDE_4),  # with a date
    ModelFamily("claude-*-4@*", _CLAUDE_4),
    ModelFamily("claude-3*", _CLAUDE_3),
    ModelFamily("claude-3-7-*", {"thinking": "budget", "efforts": None}),
    ModelFamily("claude-2*", _CLAUDE_3),
    ModelFamily("claude-instant*", _CLAUDE_3),
    ModelFamily("gpt-3*", _JSON_MODE),
    ModelFamily("gpt-4*", _JSON_MODE),
    ModelFamily("gpt-4o*", _NO_REASONING),
    ModelFamily("gpt-4-1", _NO_REASONING),
    ModelFamily("gpt-4-1-*", _NO_REASONING),
    ModelFamily("gpt-4-5*", _NO_REASONING),
    ModelFamily("chatgpt-*", _JSON_MODE),
    ModelFamily("o1*", _O_SERIES),
    ModelFamily("o3*", _O_SERIES),
    ModelFamily("o4*", _O_SERIES),
    ModelFamily("gpt-5*", _GPT_5),
    ModelFamily("gpt-5", {"efforts": ("minimal", "low", "medium", "high")}),
    ModelFamily("gpt-5-20*", {"efforts": ("minimal", "low", "medium", "high")}),
    ModelFamily("gpt-5-mini*", {"efforts": ("minimal", "low", "medium", "high")}),
    ModelFamily("gpt-5-nano*", {"efforts": ("minimal", "low", "medium", "high")}),
    ModelFamily("gpt-5-codex*", {"efforts": ("low", "medium", "high")}),
    ModelFamily("gpt-5-pro*", {"efforts": ("high",)}),
    ModelFamily("gpt-5-[1-4]", _SAMPLING_AT_NONE),
    ModelFamily("gpt-5-[1-4]-*", _SAMPLING_AT_NONE),
    ModelFamily("gpt-5-[1-4]-codex*", {"sampling_at_none": None}),
    ModelFamily("gpt-5-[1-4]-pro*", {"sampling_at_none": None}),
    ModelFamily("gpt-5-[4-6]", _NO_EFFORT_BESIDE_TOOLS),
    ModelFamily("gpt-5-[4-6]-*", _NO_EFFORT_BESIDE_TOOLS),
    ModelFamily("gpt-5-1*", {"efforts": ("none", "low", "medium", "high")}),
    ModelFamily("gpt-5-1-codex*", {"efforts": ("low", "medium", "high")}),
    ModelFamily("gpt-5-1-codex-max*", {"efforts": ("none", "low", "medium", "high", "xhigh")}),
    ModelFamily("gpt-5-6*", {"efforts": ("none", "low", "medium", "high", "xhigh", "max")}),
    ModelFamily("gpt-6*", _GPT_6),
    # "prompt_cache_breakpoint is not supported on this model", of every older one.
    ModelFamily("gpt-5-[6-9]*", {"cache_marks": "breakpoint"}, "openai"),
    ModelFamily("gpt-6*", {"cache_marks": "breakpoint"}, "openai"),
    ModelFamily("gpt-5*chat*", {"efforts": (), "refuses": ()}),
    ModelFamily("deepseek-reasoner*", {"refuses": ("logprobs", "top_logprobs")}),
    # Models before grok-4.3 refuse the setting, but for grok-3-mini.
    ModelFamily("grok-*", _GROK),
    ModelFamily("grok-4-3*", {"efforts": ("none", "low", "medium", "high")}),
    ModelFamily("grok-2*", {"efforts": (), "refuses": ()}),
    ModelFamily("grok-3*", {"efforts": (), "refuses": ()}),
    ModelFamily("grok-3-mini*", {"efforts": ("low", "high"), "refuses": _GROK["refuses"]}),
    ModelFamily("grok-4", {"efforts": ()}),
    ModelFamily("grok-4-0*", {"efforts": ()}),
    ModelFamily("grok-4-1*", {"efforts": ()}),
    ModelFamily("grok-4-20*", {"efforts": ()}),
    ModelFamily("grok-4-fast*", {"efforts": ()}),
    ModelFamily("grok-code*", {"efforts": ()}),
    ModelFamily("grok-*non-reasoning*", {"efforts": (), "refuses": ()}),
    # "reasoning_effort: high or none", with these alone; magistral always reasons and takes no such setting.
    ModelFamily("mistral-small-latest", {"efforts": ("none", "high")}, "mistral"),
    ModelFamily("mistral-small-26*", {"efforts": ("none", "high")}, "mistral"),
    ModelFamily("mistral-medium-3-5*", {"efforts": ("none", "high")}, "mistral"),
    ModelFamily("mistral-large-4*", {"efforts": ("low", "medium", "high")}, "mistral"),
    # Of Groq's models, these alone take an effort in words, and these alone keep to a schema.
    ModelFamily("gpt-oss*", {"efforts": ("low", "medium", "high"), "structured_output": "schema"}, "groq"),
    ModelFamily("kimi-k2*", {"structured_output": "schema"}, "groq"),
    ModelFamily("llama-4*", {"structured_output": "schema"}, "groq"),
)


def families_of(model: str, provider: str | None) -> Iterator[ModelFamily]:
    """The rows that fit a model by its name at an upstream, in order. provider: of the upstream's host, if known."""
    name = plain_name(model)
    for family in MODEL_FAMILIES:
        if family.provider in (None, provider) and fnmatchcase(name, family.pattern):
            yield family


def plain_name(model: str) -> str:
    """The name in the spelling of the table."""
    name = model.rpartition("/")[2].lower()
    # Bedrock: region.vendor.name-date-version
    name = name.rpartition("anthropic.")[2]
    return name.replace(".", "-")
