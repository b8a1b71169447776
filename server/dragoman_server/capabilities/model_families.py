"""The table of well-known model families: capabilities of their models that the configuration does not set.

All rows that match apply, later ones over earlier ones; None removes what an earlier row has set. Names are compared in
lower case, with dashes for dots and colons, and without the prefixes of clouds (`vendor/`, `us.anthropic.`), so that
one row covers every spelling. A model that is newer than the table gets the capabilities of the newest in it.
"""

import re
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any

import msgspec

from dragoman_server.capabilities.provider import CHAT, GEMINI, LOOKED_UP, MESSAGES, RESPONSES
from dragoman_server.settings.fields import NONE


class ModelFamily(msgspec.Struct, frozen=True):
    """One row.

    Attributes:
        patterns: Patterns of names, as normalized_model_name() spells them.
        source: Where the capabilities are documented.
        date: When that was read.
        providers: The row applies only at their hosts, by their names in the module `providers`; none: at all.
        protocol: The row applies only to requests in this protocol.
        beginnings: Of the patterns, until their first special character.
    """

    patterns: tuple[str, ...]
    capabilities: Mapping[str, object]
    source: str
    date: str
    providers: tuple[str, ...] = ()
    protocol: str | None = None
    beginnings: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        beginnings = tuple([re.split(r"[*?[]", pattern, maxsplit=1)[0] for pattern in self.patterns])
        msgspec.structs.force_setattr(self, "beginnings", beginnings)


def _rows(
    source: str, *rows: tuple[str, Mapping[str, object]], date: str = LOOKED_UP, **where: Any
) -> list[ModelFamily]:
    """Make rows with one source. Each begins with its patterns, which have a space between them."""
    return [
        ModelFamily(tuple(patterns.split()), capabilities, source, date, **where)
        for patterns, capabilities in rows
    ]


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
# Older models differ from the newest, whose row matches them as well.
_CLAUDE_4_7: dict[str, object] = {"mid_system": False}
# These accept sampling parameters in the API version that has them.
# "`temperature` and `top_p` cannot both be specified for this model."
_CLAUDE_4_6 = {
    **_CLAUDE_4_7,
    "efforts": ("none", "low", "medium", "high", "max"),
    "sampling": None,
    "sampling_pair": False,
}
# "max_tokens: 128000 > 64000, which is the maximum allowed number of output tokens for claude-sonnet-4-5."
_CLAUDE_4_5 = {
    **_CLAUDE_4_6,
    "thinking": "budget",
    "efforts": None,
    "prefill": None,
    "max_output_tokens": 64_000,
}
_CLAUDE_4_1 = {**_CLAUDE_4_5, "structured_output": NONE}
_CLAUDE_4 = {**_CLAUDE_4_1, "sampling_pair": None}
_CLAUDE_3 = {**_CLAUDE_4, "thinking": NONE, "efforts": (), "max_output_tokens": 4096}

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
    "max_output_tokens": 100_000,
    "refuses": (*_REFUSED_WHEN_REASONING, "verbosity"),
    "custom_tools": False,
}
# Older ones make one call at a time, and refuse the parameter.
_O_SERIES_ONE_CALL = {**_O_SERIES, "refuses": (*_REFUSED_WHEN_REASONING, "verbosity", "parallel_tool_calls")}
# "gpt-5.1 defaults to none ... All models before gpt-5.1 do not support none. xhigh is supported for all models
# after gpt-5.1-codex-max."
_GPT_5 = {
    "efforts": ("none", "low", "medium", "high", "xhigh"),
    "max_output_tokens": 128_000,
    "refuses": _REFUSED_WHEN_REASONING,
}
# "Function tools with reasoning_effort are not supported for gpt-5.6-luna in /v1/chat/completions." The
# same holds from gpt-5.4 on.
_NO_EFFORT_BESIDE_TOOLS = {"tools_with_effort": False}
# "gpt-6-astra accepts low, medium, high and xhigh in Chat Completions, Responses adds max; none is rejected."
_GPT_6 = {
    **_GPT_5,
    **_NO_EFFORT_BESIDE_TOOLS,
    "efforts": ("low", "medium", "high", "xhigh"),
    "max_output_tokens": None,
}
# "max_tokens is too large: 32000. This model supports at most 16384 completion tokens."
_JSON_MODE = {
    "efforts": (),
    "max_output_tokens": 4096,
    "refuses": ("verbosity",),
    "custom_tools": False,
    "structured_output": "object",
}

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

# "Function calling with a response mime type: 'application/json' is unsupported"; since Gemini 3 it is only "Forced
# function calling (ANY mode)".
_FORMATS = (
    ("gemini-*", {"format_with_tools": "not_forced"}),
    ("gemini-[12]-*", {"format_with_tools": "no"}),
)

_FROM_MINIMAL = ("minimal", "low", "medium", "high")

MODEL_FAMILIES = (
    *_rows(
        "platform.claude.com/docs: models",
        # Messages only. Servers of other protocols in front of these models have their own place for system text.
        ("claude-*", {"mid_system": True}),
        providers=("anthropic", "foundry", "claude-aws", "claude-google"),
    ),
    *_rows(
        "platform.claude.com/docs: models, thinking; oh-my-pi#341; vercel/ai#12296; litellm#15097",
        ("claude-*", _CLAUDE),
        ("claude-fable-* claude-mythos-*", _CLAUDE_ALWAYS_THINKS),
        ("claude-opus-4-7*", _CLAUDE_4_7),
        ("claude-*-4-6*", _CLAUDE_4_6),
        ("claude-*-4-5*", _CLAUDE_4_5),
        ("claude-*-4-1*", _CLAUDE_4_1),
        # -20 begins a date.
        ("claude-*-4-0* claude-*-4 claude-*-4-20* claude-*-4@*", _CLAUDE_4),
        ("claude-3* claude-2* claude-instant*", _CLAUDE_3),
        ("claude-3-5-*", {"max_output_tokens": 8192}),
        ("claude-3-7-*", {"thinking": "budget", "efforts": None, "max_output_tokens": 64_000}),
        ("claude-opus-4-[01]* claude-opus-4 claude-opus-4-20*", {"max_output_tokens": 32_000}),
    ),
    *_rows(
        "anthropic-sdk-typescript#1038; litellm#18430; braintrustdata/lingua#160",
        # "URL sources are not supported"
        ("claude-*", {"refuses": ("media_url",)}),
        date="2026-12-01",
        providers=("bedrock", "vertex"),
        protocol=MESSAGES,
    ),
    *_rows(
        "platform.openai.com/docs: models",
        ("gpt-3* gpt-4* chatgpt-*", _JSON_MODE),
        # "This model's maximum context length is 8192 tokens." Prompt and limit count together.
        ("gpt-4 gpt-4-0613", {"max_output_tokens": 8192, "context_window": 8192}),
        ("gpt-4o* gpt-4-5*", {"structured_output": "schema", "max_output_tokens": 16_384}),
        ("gpt-4-1 gpt-4-1-*", {"structured_output": "schema", "max_output_tokens": 32_768}),
        ("chatgpt-4o*", {"max_output_tokens": 16_384}),
        date="2026-11-21",
    ),
    *_rows(
        "platform.openai.com/docs: models, reasoning; khoj#1377",
        ("o3* o4*", _O_SERIES),
        ("o1* o3-mini*", _O_SERIES_ONE_CALL),
        ("gpt-5*", _GPT_5),
        ("gpt-5 gpt-5-20* gpt-5-mini* gpt-5-nano*", {"efforts": _FROM_MINIMAL}),
        ("gpt-5-codex*", {"efforts": ("low", "medium", "high")}),
        ("gpt-5-pro*", {"efforts": ("high",)}),
        ("gpt-5-1*", {"efforts": ("none", "low", "medium", "high")}),
        ("gpt-5-1-codex*", {"efforts": ("low", "medium", "high")}),
        ("gpt-5-1-codex-max*", {"efforts": ("none", "low", "medium", "high", "xhigh")}),
        ("gpt-5-6*", {"efforts": ("none", "low", "medium", "high", "xhigh", "max")}),
    ),
    *_rows(
        "vercel/ai#10932",
        # "Supported when using reasoning effort none, the default: temperature, top_p, logprobs."
        ("gpt-5-[1-4] gpt-5-[1-4]-*", {"sampling_at_none": True}),
        ("gpt-5-[1-4]-codex* gpt-5-[1-4]-pro*", {"sampling_at_none": None}),
    ),
    *_rows(
        "itzcrazykns/vane#1173; openai/openai-openapi#541; onyx#15008; BerriAI/litellm-docs#1173",
        ("gpt-5-[4-6] gpt-5-[4-6]-*", _NO_EFFORT_BESIDE_TOOLS),
        ("gpt-6*", _GPT_6),
    ),
    *_rows(
        "itzcrazykns/vane#1173",
        # A client's effort together with tools is refused as well.
        ("gpt-5-[4-6] gpt-5-[4-6]-* gpt-6*", {"relay": "rewrite"}),
        providers=("openai", "azure", "bedrock", "mantle"),
        protocol=CHAT,
    ),
    *_rows(
        "kilocode#13022; stacklok/mecatl#1573; bifrost#7240",
        # "prompt_cache_breakpoint is not supported on this model": all older ones.
        ("gpt-5-[6-9]* gpt-6*", {"cache_marks": "breakpoint"}),
        providers=("openai", "azure"),
    ),
    *_rows(
        "pydantic-ai#6536",
        # Ids of calls begin at call_0 in every response. In a rewritten one they are distinct in their conversation.
        ("gpt-[5-9]*", {"relay": "rewrite"}),
        # "Supported options: ["auto"]"
        ("gpt-oss-*", {"relay": "rewrite", "forced_tools": "no"}),
        date="2026-11-23",
        providers=("mantle",),
        protocol=RESPONSES,
    ),
    *_rows(
        "pydantic-ai#6536 and live tests of 2026-10-09",
        # A schema is ignored.
        ("gpt-oss-*", {"structured_output": NONE}),
        providers=("bedrock",),
        protocol=CHAT,
    ),
    *_rows("litellm#13781", ("gpt-5*chat*", {"efforts": (), "refuses": (), "max_output_tokens": 16_384})),
    *_rows(
        "docs.x.ai: reasoning; @ai-sdk/xai 3.0.97, 4.0.8",
        # Models before grok-4.3 refuse the setting, except for grok-3-mini.
        ("grok-*", _GROK),
        ("grok-4-3*", {"efforts": ("none", "low", "medium", "high")}),
        ("grok-2* grok-3*", {"efforts": (), "refuses": ()}),
        ("grok-3-mini*", {"efforts": ("low", "high"), "refuses": _GROK["refuses"]}),
        ("grok-4 grok-4-0* grok-4-1* grok-4-20* grok-4-fast* grok-code*", {"efforts": ()}),
        ("grok-*non-reasoning*", {"efforts": (), "refuses": ()}),
    ),
    *_rows(
        "mistral-vibe#578 (vLLM); hermes-agent#20154 (NIM); crush#279 (OpenRouter); opencode#19115; llama.cpp#19851",
        # "Unexpected role 'user' after role 'tool'", on every host of Mistral's models. "Expected last role User or
        # Tool (or Assistant with prefix True) for serving but got assistant."
        ("*[sx]tral-*", {"turn_order": "no_user_after_tool", "prefill": False}),
        # "After the optional system message, conversation roles must alternate user and assistant roles except for
        # tool calls and results."
        ("devstral-*", {"turn_order": "alternate"}),
    ),
    *_rows(
        "pydantic-ai#6593, #10987",
        # max_completion_tokens is a 422, by the names that Azure suggests for deployments.
        ("*[sx]tral-*", {"max_tokens_field": "max_tokens"}),
        # $ref and $defs in schemas are refused.
        ("grok-*", {"schema_references": False, "relay": "rewrite"}),
        date="2026-11-23",
        providers=("azure",),
        protocol=CHAT,
    ),
    *_rows(
        "docs.mistral.ai: reasoning",
        # "reasoning_effort: high or none", only with these; magistral always reasons and has no such setting.
        ("mistral-small-latest mistral-small-26* mistral-medium-3-5*", {"efforts": ("none", "high")}),
        ("mistral-large-4*", {"efforts": ("low", "medium", "high")}),
        date="2026-11-21",
        providers=("mistral",),
    ),
    *_rows(
        "console.groq.com/docs: reasoning, structured outputs",
        # Only these of Groq's models accept an effort, and only these enforce a schema.
        ("gpt-oss*", {"efforts": ("low", "medium", "high"), "structured_output": "schema"}),
        ("kimi-k2* llama-4*", {"structured_output": "schema"}),
        date="2026-11-21",
        providers=("groq",),
    ),
    *_rows(
        "VideoAdGuard#34; kimi-code#686; agentscope's page on Kimi; TeXRA#1905",
        ("kimi-*", _KIMI),
        ("kimi-k2* kimi-for-coding*", _SWITCH),
        ("moonshot-v1*", {"efforts": (), "forced_tools": None, "reasoning_back": None}),
        providers=("moonshot",),
    ),
    *_rows(
        "docs.z.ai/guides/capabilities/thinking-mode; dev.to/aihubmix",
        ("glm-5-[2-9]*", {"efforts": ("low", "medium", "high")}),
        # It cannot stop to think, so there is no switch.
        # "max_tokens above 131072 is a 400 with the range."
        ("glm-5-3*", {"reasoning_setting": "reasoning_effort", "max_output_tokens": 131_072}),
        providers=("zai",),
    ),
    *_rows(
        "alibabacloud.com/help/model-studio: structured output",
        ("qwen3-8-max*", {"structured_output": "schema"}),
        providers=("dashscope",),
    ),
    *_rows(
        "ai.google.dev/gemini-api/docs/openai: thinking",
        # "Reasoning cannot be turned off for Gemini 2.5 Pro or 3 models."
        ("gemini-2-5-flash*", {"efforts": ("none", "low", "medium", "high")}),
        providers=("gemini",),
        protocol=CHAT,
    ),
    *_rows(
        "crewAI#6973; harness-sdk#3639",
        # Models before 3 continue the last content, the others refuse it. They refuse a search together with functions.
        ("gemini-*", {"prefill": False}),
        ("gemini-[12]-*", {"prefill": None, "mixed_tools": False}),
        protocol=GEMINI,
    ),
    *_rows("python-genai#867; vercel/ai#16540", *_FORMATS, date="2026-12-01", protocol=GEMINI),
    *_rows("ai-manus#101", *_FORMATS, date="2026-12-01", providers=("gemini",), protocol=CHAT),
    *_rows(
        "ai.google.dev/gemini-api/docs/thinking; ai.google.dev/gemini-api/docs/deprecations",
        # The lowest level is not accepted by all models from 3 on, and none can be told not to think.
        ("gemini-3-flash* gemini-3-[156]-flash*", {"efforts": ("minimal", "low", "medium", "high")}),
        ("gemini-2-5-pro*", {"thinking_by": "budget"}),
        (
            "gemini-2-5-flash*",
            {"thinking_by": "budget", "efforts": ("none", "minimal", "low", "medium", "high")},
        ),
        # "On models that do not know signatures a forged one is an invalid argument."
        ("gemini-2-0* gemini-1-*", {"thinking_by": "none", "efforts": (), "thought_signatures": False}),
        protocol=GEMINI,
    ),
)


def families_of(model: str, provider: str | None, protocol: str) -> Iterator[ModelFamily]:
    """Yield the rows that match a model, by its name at the upstream, in order. provider: of the upstream's host."""
    name = normalized_model_name(model)
    for family in MODEL_FAMILIES:
        if (
            name.startswith(family.beginnings)  # first, because few rows have it
            and (not family.providers or provider in family.providers)
            and family.protocol in (None, protocol)
            # fnmatch compiles a pattern when it first matches with it, which costs 0.1 ms: only patterns of the family.
            and any(
                name.startswith(beginning) and fnmatchcase(name, pattern)
                for beginning, pattern in zip(family.beginnings, family.patterns, strict=True)
            )
        ):
            yield family


def normalized_model_name(model: str) -> str:
    """Return the name in the spelling of the table."""
    name = model.rpartition("/")[2].lower()
    # Bedrock: region.vendor.name-date-version
    for vendor in ("anthropic.", "openai.", "xai."):
        name = name.rpartition(vendor)[2]
    # OpenRouter's variants and Ollama's tags follow a colon.
    return name.replace(".", "-").replace(":", "-")
