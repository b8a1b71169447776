"""The data of Chat Completions: settings, stop reasons, and shapes of responses, official and of compatible servers.

Names in comments are of hosts and servers in whose recorded responses we have seen a member or value (November 2026).
"""

from __future__ import annotations

from typing import Final, Literal

from dragoman._ir.events import StopReason
from dragoman._ir.parameters import param_paths
from dragoman._ir.request import Param
from dragoman._ir.shape import ByType, Counters, DroppedUnless, Shape
from dragoman._wire.errors import ErrorKind
from dragoman._wire.json import JSONObject

NAME: Final = "openai_chat"

FORWARDED_HEADERS: Final = frozenset({"openai-beta", "idempotency-key"})

# Wire name -> neutral name. Of two with the same meaning the preferred one is last.
PARAMS: dict[str, Param] = {
    "audio": "audio",
    "frequency_penalty": "frequency_penalty",
    "logit_bias": "logit_bias",
    "logprobs": "logprobs",
    "max_tokens": "max_output_tokens",  # "deprecated in favor of `max_completion_tokens`" (openai-python 3.54.0)
    "max_completion_tokens": "max_output_tokens",
    "metadata": "metadata",
    "modalities": "modalities",
    "moderation": "moderation",
    "n": "n",
    "prediction": "prediction",
    "presence_penalty": "presence_penalty",
    "prompt_cache_key": "prompt_cache_key",
    "prompt_cache_options": "prompt_cache_options",
    "prompt_cache_retention": "prompt_cache_retention",
    "safety_identifier": "safety_identifier",
    "seed": "seed",
    "service_tier": "service_tier",
    "stop": "stop",
    "store": "store",
    "temperature": "temperature",
    "top_k": "top_k",  # an extension of most open servers
    "top_logprobs": "top_logprobs",
    "top_p": "top_p",
    "user": "user",
    "verbosity": "verbosity",
}

PARAM_PATHS: dict[Param, str] = param_paths(PARAMS)
LEGACY_PARAM_PATHS: dict[Param, str] = {**PARAM_PATHS, "max_output_tokens": "/max_tokens"}

MaxTokensField = Literal["max_tokens", "max_completion_tokens"]


def _names(limit: MaxTokensField) -> dict[Param, str]:
    names: dict[Param, str] = {param: name for name, param in PARAMS.items()}
    return {**names, "max_output_tokens": limit, "speed": "service_tier"}


# Neutral name -> wire name, for each of the two names of the output limit.
PARAM_NAMES: dict[MaxTokensField, dict[Param, str]] = {
    "max_tokens": _names("max_tokens"),
    "max_completion_tokens": _names("max_completion_tokens"),
}

# "Up to 4 sequences where the API will stop generating further tokens" (openai-python 3.54.0, `stop`).
MAX_STOPS = 4
# "Each request can write up to four breakpoints" (openai-python 3.54.0, `PromptCacheOptions`).
MAX_CACHE_MARKS = 4

# Maximum length in characters. OpenAI documents none; bifrost cuts it at 64 (read 2026-11-22).
MAX_USER = 64
# "with a maximum length of 128 characters" (openai-python 3.54.0, `safety_identifier`).
MAX_SAFETY_IDENTIFIER = 128

# Members of a request that no reader reads, because no other protocol has a counterpart.
NATIVE_FIELDS = frozenset({"extra_content", "include_obfuscation"})
SERVICE_TIERS = frozenset({"auto", "default", "flex", "scale", "priority", "fast"})
# Groq's name of the default tier in responses.
RESPONSE_TIER_ALIASES = {"on_demand": "default"}
# Tiers of other protocols -> their counterparts.
SERVICE_TIER_ALIASES = {"standard_only": "default", "ultrafast": "fast"}

INCLUDE_LOGPROBS = "message.output_text.logprobs"
# Items of `include` (Responses) that need no setting of their own: encrypted reasoning is part of the conversation.
IMPLIED_INCLUDES = frozenset({INCLUDE_LOGPROBS, "reasoning.encrypted_content"})

# Settings for servers that store conversations: to leave them out would change the conversation.
REJECTED_PARAMS: tuple[Param, ...] = ("previous_response_id", "conversation", "prompt", "background")

# Where compatible servers put reasoning, in the order in which its text is looked for, because many send the same text
# under two names.
REASONING_FIELDS = (
    "reasoning_content",  # DeepSeek, xAI, Z.ai, Qwen, llama.cpp
    "reasoning",  # OpenRouter, Groq, Ollama, vLLM
    "reasoning_details",  # OpenRouter, Vercel
    "thinking_blocks",  # LiteLLM
)
# What open servers pass to the model's template.
CHAT_TEMPLATE_KWARGS = "chat_template_kwargs"
# The settings for reasoning.
REASONING_SETTINGS = (
    "reasoning_effort",
    "reasoning",
    "thinking",
    "enable_thinking",
    "thinking_budget",
    CHAT_TEMPLATE_KWARGS,
    "include_reasoning",
)

# The setting for a web search, and the kind of the hosted tool that it is read as.
WEB_SEARCH_OPTIONS = "web_search_options"

# Lifetimes of cache marks: `prompt_cache_breakpoint` has 30m and 12h (openai-python 3.54.0), `cache_control` 5m and 1h
# (anthropic 2.12.0).
CACHE_TTLS: dict[str, Literal["short", "long"]] = {"5m": "short", "30m": "short", "1h": "long", "12h": "long"}
BREAKPOINT_TTL_NAMES: dict[str, str] = {"short": "30m", "long": "12h"}
CACHE_CONTROL_TTL_NAMES: dict[str, str] = {"short": "5m", "long": "1h"}

# The first five finish reasons are official (openai-python 3.54.0), the others come from compatible servers. Any other
# one counts as END.
STOP_REASONS: dict[str, StopReason] = {
    "stop": StopReason.END,
    "length": StopReason.MAX_TOKENS,
    "tool_calls": StopReason.TOOL_USE,
    "function_call": StopReason.TOOL_USE,
    "content_filter": StopReason.CONTENT_FILTER,
    "max_tokens": StopReason.MAX_TOKENS,
    "max_output_tokens": StopReason.MAX_TOKENS,
    "model_length": StopReason.CONTEXT_WINDOW,
    "tool_use": StopReason.TOOL_USE,
    "refusal": StopReason.CONTENT_FILTER,
    "safety": StopReason.CONTENT_FILTER,
    "sensitive": StopReason.CONTENT_FILTER,
    "recitation": StopReason.CONTENT_FILTER,
    "prohibited_content": StopReason.CONTENT_FILTER,
    "blocklist": StopReason.CONTENT_FILTER,
}

# Other names of END.
END_FINISH_REASONS = frozenset({"eos", "end_turn", "stop_sequence", "complete"})

# Finish reasons that are errors.
ERROR_FINISH_REASONS: dict[str, ErrorKind] = {
    "error": ErrorKind.SERVER,
    "abort": ErrorKind.SERVER,
    "network_error": ErrorKind.SERVER,
    "insufficient_system_resource": ErrorKind.OVERLOADED,
}

STOP_REASON_NAMES: dict[StopReason, str] = {
    StopReason.END: "stop",
    StopReason.TOOL_USE: "tool_calls",
    StopReason.MAX_TOKENS: "length",
    StopReason.CONTEXT_WINDOW: "length",
    StopReason.STOP_SEQUENCE: "stop",
    StopReason.CONTENT_FILTER: "content_filter",
    StopReason.PAUSE: "stop",
    StopReason.COMPACTION: "stop",
}
# Stop reasons that "stop" does not express fully.
LOSSY_STOP_REASONS = frozenset({StopReason.PAUSE, StopReason.COMPACTION})

# Members of a message that only the upstream can read and needs back: Google's signatures.
EXTRA_CONTENT = "extra_content"
# Google's placeholder for the signature of a call that another model made (continue#8865, read 2026-11-22).
DUMMY_THOUGHT_SIGNATURE: JSONObject = {
    "extra_content": {"google": {"thought_signature": "skip_thought_signature_validator"}}
}
# The member of a signature that holds unknown members of calls: call id -> members.
CALL_EXTRAS = "tool_calls_extra"
# Members of a delta or message that are read. Any other one is unknown.
DELTA_FIELDS = frozenset(
    {
        "role",
        "content",
        "refusal",
        "tool_calls",
        "function_call",
        "annotations",
        EXTRA_CONTENT,
        *REASONING_FIELDS,
    }
)
# Members that are content (audio, images). No other protocol has a form for them, and they are too large to be sent
# back and forth in signatures.
OPAQUE_FIELDS = frozenset({"audio", "images"})
# Groq's list of the uses of its own tools.
EXECUTED_TOOLS = "executed_tools"

# The format name of our own entries in reasoning_details.
SIGNATURE_FORMAT = "dragoman-v1"

# The shapes of responses: which members the reader reads or may ignore, and which are losses (see `_ir.shape`).
_NO_FIELD = "other protocols have no field for it"
_TOP: dict[str, Shape] = {"token": None, "bytes": None, "logprob": None}
_TOKEN: Shape = {**_TOP, "top_logprobs": [_TOP]}
_PART: Shape = {"type": None, "text": None}
_FILTER_RESULTS = DroppedUnless(
    "other protocols report only that a response was stopped, not what was found in it", frozenset({"safe"})
)

# What hosts add to the official members for their own bookkeeping.
_USAGE_BOOKKEEPING = (
    # OpenRouter, Vercel
    "cost",
    "cost_details",
    "is_byok",
    "market_cost",
    # xAI
    "context_details",
    "cost_in_usd_ticks",
    "num_server_side_tools_used",
    "num_sources_used",
    "server_side_tool_usage_details",
    # Groq
    "completion_time",
    "prompt_time",
    "queue_time",
    "total_time",
    # GPUStack
    "draft_tokens",
    "draft_tokens_acceptance",
    "prompt_tokens_per_second",
    "time_per_output_token_ms",
    "time_to_first_token_ms",
    "tokens_per_second",
    # SambaNova
    "acceptance_rate",
    "completion_tokens_after_first_per_sec",
    "completion_tokens_after_first_per_sec_first_ten",
    "completion_tokens_after_first_per_sec_graph",
    "completion_tokens_per_sec",
    "end_time",
    "is_last_response",
    "start_time",
    "stop_reason",
    "time_to_first_token",
    "time_to_first_token_graph",
    "total_latency",
    "total_tokens_per_sec",
    # Mistral; Perplexity; MiniMax; Qwen
    "service_tier",
    "citation_tokens",
    "search_context_size",
    "total_characters",
    "x_details",
)
_CHUNK_BOOKKEEPING = (
    "__verbose",  # llama.cpp, and its times
    "timings",
    "copilot_usage",  # GitHub
    "generationId",  # Vercel
    "kv_transfer_params",  # vLLM
    "latency_checkpoint",  # Azure
    "model_info",  # LM Studio, as the next two
    "runtime",
    "stats",
    "obfuscation",  # padding of OpenAI
    "p",  # padding of Mistral and Cloudflare
    "openrouter_metadata",
    "perf_metrics",  # Fireworks
    "prompt_progress",  # llama.cpp
    "provider",  # OpenRouter
    "request_id",  # Z.ai
    "system_fingerprint",
    "time_info",  # Cerebras
    "trace_details",
    "usage_breakdown",  # Groq: the figures of each model behind a compound one
    "weight_version",
)
_CHOICE_BOOKKEEPING = (
    "content_filter_offsets",  # Azure
    "native_finish_reason",  # OpenRouter: the model's own word for finish_reason
    "seed",  # Together, as the next one, which repeats the text
    "text",
    "token_ids",  # vLLM
)

# The counters in details that only this protocol has. The others have a field in Usage, or follow from the total.
NATIVE_COUNTERS = frozenset(
    {
        "accepted_prediction_tokens",
        "audio_tokens",
        "image_tokens",
        "rejected_prediction_tokens",
        "video_tokens",
    }
)
_DETAILS: Shape = Counters(
    dict.fromkeys(
        [*NATIVE_COUNTERS, "cached_tokens", "cache_write_tokens", "reasoning_tokens", "text_tokens"]
    )
)
_USAGE: Shape = Counters(
    {
        "prompt_tokens": None,
        "completion_tokens": None,
        "total_tokens": None,
        "reasoning_tokens": None,
        "cached_tokens": None,
        "prompt_cache_hit_tokens": None,
        "prompt_cache_miss_tokens": None,
        "cache_read_input_tokens": None,
        "cache_creation_input_tokens": None,
        "prompt_tokens_details": _DETAILS,
        "completion_tokens_details": _DETAILS,
        "server_tool_use_details": Counters(
            {"web_search_requests": None, "tool_calls_executed": None, "tool_calls_requested": None}
        ),
        **dict.fromkeys(_USAGE_BOOKKEEPING),
    }
)

ANNOTATION_SHAPE: Shape = {
    "type": None,
    "url_citation": {
        "url": None,
        "title": None,
        "start_index": None,
        "end_index": None,
        "content": None,  # OpenRouter: a quotation from the page, whose loss the writer records
    },
}
# A content that is a list.
CONTENT_SHAPE: Shape = [
    ByType({"text": _PART, "thinking": {"type": None, "thinking": [_PART], "closed": None}})
]
# Members of a delta, and of the message of a whole response, that the reader does not read.
MESSAGE_SHAPE: dict[str, Shape] = {
    "channel": None,  # Groq: which kind of text it is
    "name": None,  # MiniMax: its own
    "padding": None,  # GitHub
    "token_id": None,  # Together
    "graph_data": _NO_FIELD,  # Writer
    "provider_specific_fields": _NO_FIELD,  # LiteLLM
    # Vercel's router, and what the host behind it adds to its response.
    "provider_metadata": {
        "gateway": None,
        "google": {
            "groundingMetadata": _NO_FIELD,
            "promptFeedback": None,
            "safetyRatings": None,
            "urlContextMetadata": _NO_FIELD,
            "usageMetadata": None,
        },
        "openai": {"responseId": None, "serviceTier": None},
    },
}
CHOICE_SHAPE: dict[str, Shape] = {
    "index": None,
    "delta": None,
    "message": None,
    "finish_reason": None,
    "matched_stop": None,
    "stop_reason": None,
    "usage": _USAGE,
    "logprobs": {"content": [_TOKEN], "refusal": [_TOKEN]},
    "content_filter_results": _FILTER_RESULTS,  # Azure
    "provider_specific_fields": _NO_FIELD,  # LiteLLM
    **dict.fromkeys(_CHOICE_BOOKKEEPING),
}
RESPONSE_SHAPE: dict[str, Shape] = {
    "id": None,
    "object": None,
    "created": None,
    "model": None,
    "choices": None,
    "error": None,
    "metadata": None,  # repeats the request
    "moderation": None,
    "prompt": None,  # Together: repeats the request
    "prompt_filter_results": [{"prompt_index": None, "content_filter_results": _FILTER_RESULTS}],  # Azure
    "service_tier": None,
    "usage": _USAGE,
    "x_groq": {"id": None, "seed": None, "usage": _USAGE, "usage_breakdown": None},
    # Lists of pages, read as citations.
    "citations": None,
    "search_results": None,
    # MiniMax.
    "base_resp": {"status_code": _NO_FIELD, "status_msg": None},
    "input_sensitive": _NO_FIELD,
    "output_sensitive": _NO_FIELD,
    # Perplexity, beside its lists of pages.
    "images": _NO_FIELD,
    "related_questions": _NO_FIELD,
    "status": None,
    "type": None,
    # LiteLLM, from Google's responses: usually empty.
    "vertex_ai_citation_metadata": _NO_FIELD,
    "vertex_ai_grounding_metadata": _NO_FIELD,
    "vertex_ai_safety_results": _NO_FIELD,
    "vertex_ai_url_context_metadata": _NO_FIELD,
    **dict.fromkeys(_CHUNK_BOOKKEEPING),
}
# The official members of a tool call. Any other goes to the client in a signature.
CALL_FIELDS = frozenset({"index", "id", "type", "function", "custom"})
FUNCTION_FIELDS = frozenset({"name", "arguments"})
CUSTOM_FIELDS = frozenset({"name", "input"})
# Members of a chunk that its reader reads, and padding. The others are kept for a client of this protocol.
CHUNK_FIELDS = frozenset(
    (
        "choices",
        "citations",
        "created",
        "error",
        "id",
        "model",
        "moderation",
        "object",
        "obfuscation",
        "p",
        "search_results",
        "service_tier",
        "usage",
    )
)
