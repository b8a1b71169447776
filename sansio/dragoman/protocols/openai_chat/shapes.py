"""The members that objects of requests and responses have, see `_ir.shape`.

They come from the types of openai-python 3.54.0 and from widespread compatible servers. Other members of a request
are unknown: sent on to an upstream of the same protocol, recorded as a loss for any other. Names in comments are of
hosts and servers in whose recorded responses we have seen a member (November 2026).
"""

from __future__ import annotations

from dragoman._ir.request import Param
from dragoman._ir.shape import (
    ARRAY,
    INTEGER,
    OBJECT,
    STRING,
    ByType,
    Counters,
    DroppedUnless,
    OneOf,
    Setting,
    Shape,
    native_members,
    setting_paths,
)
from dragoman.protocols.openai_chat.tables import (
    CACHE_MARKS,
    EXECUTED_TOOLS,
    EXTRA_CONTENT,
    NATIVE_COUNTERS,
    OPAQUE_FIELDS,
    PROVIDER_FIELDS,
    REASONING_FIELDS,
)

# -- requests -------------------------------------------------------------------------------------------------

# If two settings have the same meaning, the preferred one is last.
REQUEST_SHAPE: dict[str, Shape] = {
    "model": None,
    "messages": None,
    "stream": None,
    "stream_options": {"include_usage": None, "include_obfuscation": Setting(None)},
    "tools": ARRAY,
    "functions": ARRAY,
    "tool_choice": None,
    "function_call": None,
    "parallel_tool_calls": None,
    "web_search_options": OBJECT,
    "response_format": {"type": None, "json_schema": None},
    # Reasoning: the official setting, and the settings of compatible servers.
    "reasoning_effort": STRING,
    "reasoning": None,
    "thinking": None,
    "enable_thinking": None,
    "chat_template_kwargs": None,
    "thinking_budget": INTEGER,
    "include_reasoning": None,
    "audio": Setting("audio"),
    "frequency_penalty": Setting("frequency_penalty"),
    "logit_bias": Setting("logit_bias"),
    "logprobs": Setting("logprobs"),
    # "deprecated in favor of `max_completion_tokens`" (openai-python 3.54.0)
    "max_tokens": Setting("max_output_tokens"),
    "max_completion_tokens": Setting("max_output_tokens"),
    "metadata": Setting("metadata"),
    "modalities": Setting("modalities"),
    "moderation": Setting("moderation"),
    "n": Setting("n"),
    "prediction": Setting("prediction"),
    "presence_penalty": Setting("presence_penalty"),
    "prompt_cache_key": Setting("prompt_cache_key"),
    "prompt_cache_options": Setting("prompt_cache_options"),
    "prompt_cache_retention": Setting("prompt_cache_retention"),
    "safety_identifier": Setting("safety_identifier"),
    "seed": Setting("seed"),
    "service_tier": Setting("service_tier"),
    "stop": Setting("stop"),
    "store": Setting("store"),
    "temperature": Setting("temperature"),
    "top_k": Setting("top_k"),  # an extension of most open servers
    "top_logprobs": Setting("top_logprobs"),
    "top_p": Setting("top_p"),
    "user": Setting("user"),
    "verbosity": Setting("verbosity"),
}
SETTING_PATHS: dict[Param, str] = setting_paths(REQUEST_SHAPE)

# The members of a mark are read if they have the values that ours have.
_MARKS: dict[str, Shape] = {
    name: {
        **{key: OneOf((value,)) for key, value in members.items()},
        "ttl": OneOf(tuple(lifetimes.values())),
    }
    for name, (members, lifetimes) in CACHE_MARKS.items()
}
# Content parts by type. The reader takes other types whole.
PART_SHAPES: dict[str, dict[str, Shape]] = {
    "text": {"type": None, "text": None, **_MARKS},
    "image_url": {"type": None, "image_url": {"url": None, "detail": None}, **_MARKS},
    "input_audio": {"type": None, "input_audio": {"data": None, "format": None}, **_MARKS},
    "file": {"type": None, "file": {"file_data": None, "file_id": None, "filename": None}, **_MARKS},
    "refusal": {"type": None, "refusal": None},
}

# A message of any role but assistant. `cache_control` is what agents send for Claude models.
MESSAGE_SHAPE: dict[str, Shape] = {"role": None, "content": None, "name": None, **_MARKS}
TOOL_MESSAGE_SHAPE: dict[str, Shape] = {**MESSAGE_SHAPE, "tool_call_id": None}
ASSISTANT_SHAPE: dict[str, Shape] = {
    **MESSAGE_SHAPE,
    "refusal": None,
    "audio": None,
    "function_call": None,
    "tool_calls": None,
    "annotations": None,
    EXTRA_CONTENT: Setting(None),
    **dict.fromkeys(REASONING_FIELDS),
    # What SDKs add to a message that they received, and send back with it: the content parsed, by OpenAI's; LiteLLM's
    # copy of what has no official field.
    "parsed": None,
    PROVIDER_FIELDS: {"refusal": None},
}
# An entry of `reasoning_details` or `thinking_blocks`.
REASONING_ENTRY_SHAPE: dict[str, Shape] = dict.fromkeys(
    ("type", "text", "summary", "thinking", "signature", "data", "format", "id", "index")
)
# A legacy `function_call`, and the object in a tool call.
FUNCTION_CALL_SHAPE: dict[str, Shape] = {"name": None, "arguments": None}
_CALL: dict[str, Shape] = {
    "id": None,
    "type": None,
    "function": FUNCTION_CALL_SHAPE,
    "custom": {"name": None, "input": None},
}
CALL_SHAPE: dict[str, Shape] = {
    **_CALL,
    **_MARKS,
    EXTRA_CONTENT: Setting(None),
    # As in messages: the stream helper of OpenAI's SDK leaves the position, and its parser the arguments as an object.
    "function": {**FUNCTION_CALL_SHAPE, "parsed_arguments": None},
    "index": None,
    PROVIDER_FIELDS: {},
}

# A legacy function, and the object in a tool.
FUNCTION_SHAPE: dict[str, Shape] = {"name": None, "description": None, "parameters": None, "strict": None}
TOOL_SHAPE: dict[str, Shape] = {
    "type": None,
    "function": FUNCTION_SHAPE,
    "custom": {
        "name": None,
        "description": None,
        "format": ByType(
            {
                "text": {"type": None},
                "grammar": {"type": None, "grammar": {"definition": None, "syntax": None}},
            }
        ),
    },
    **_MARKS,
}
LOCATION_SHAPE: dict[str, Shape] = {"city": None, "country": None, "region": None, "timezone": None}
WEB_SEARCH_SHAPE: dict[str, Shape] = {
    "search_context_size": None,
    "user_location": {"type": None, "approximate": LOCATION_SHAPE},
}
# The object in `response_format`.
FORMAT_SHAPE: dict[str, Shape] = {"name": None, "description": None, "schema": None, "strict": None}

NATIVE_MEMBERS = frozenset[str]().union(*map(native_members, (REQUEST_SHAPE, ASSISTANT_SHAPE, CALL_SHAPE)))

# -- responses ------------------------------------------------------------------------------------------------

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
    "is_byok",
    # xAI
    "context_details",
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
    "openrouter_metadata",
    "perf_metrics",  # Fireworks
    "prompt_progress",  # llama.cpp
    "provider",  # OpenRouter
    "request_id",  # Z.ai
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
        # OpenRouter, Vercel; xAI.
        **dict.fromkeys(("cost", "cost_details", "market_cost", "cost_in_usd_ticks"), _NO_FIELD),
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
# A tool call, or a fragment of one. What else it has goes to the client in a signature.
CALL_DELTA_SHAPE: dict[str, Shape] = {**_CALL, "index": None}
# A delta, or the message of a whole response.
DELTA_SHAPE: dict[str, Shape] = {
    "role": None,
    "content": None,
    "refusal": None,
    "tool_calls": None,
    "function_call": None,
    "annotations": None,
    EXTRA_CONTENT: None,
    EXECUTED_TOOLS: None,
    **dict.fromkeys((*REASONING_FIELDS, *OPAQUE_FIELDS)),
    "channel": None,  # Groq: which kind of text it is
    "name": None,  # MiniMax: its own
    "padding": None,  # GitHub
    "token_id": None,  # Together
    "graph_data": _NO_FIELD,  # Writer
    PROVIDER_FIELDS: _NO_FIELD,  # LiteLLM
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
    PROVIDER_FIELDS: _NO_FIELD,  # LiteLLM
    **dict.fromkeys(_CHOICE_BOOKKEEPING),
}
# Members of a response or chunk that its reader reads, and padding. A client of this protocol gets the others as they
# came.
READ_SHAPE: dict[str, Shape] = {
    "id": None,
    "object": None,
    "created": None,
    "model": None,
    "choices": None,
    "error": None,
    "moderation": None,
    "service_tier": None,
    "usage": _USAGE,
    # Lists of pages, read as citations.
    "citations": None,
    "search_results": None,
    # Padding of OpenAI; of Mistral and Cloudflare.
    "obfuscation": None,
    "p": None,
}
RESPONSE_SHAPE: dict[str, Shape] = {
    **READ_SHAPE,
    "metadata": None,  # repeats the request
    "prompt": None,  # Together: repeats the request
    "prompt_filter_results": [{"prompt_index": None, "content_filter_results": _FILTER_RESULTS}],  # Azure
    "x_groq": {"id": None, "seed": None, "usage": _USAGE, "usage_breakdown": None},
    # MiniMax.
    "base_resp": {"status_code": _NO_FIELD, "status_msg": None},
    "input_sensitive": _NO_FIELD,
    "output_sensitive": _NO_FIELD,
    # Perplexity, in addition to its lists of pages.
    "images": _NO_FIELD,
    "related_questions": _NO_FIELD,
    "status": None,
    "system_fingerprint": _NO_FIELD,
    "type": None,
    # LiteLLM, from Google's responses: usually empty.
    "vertex_ai_citation_metadata": _NO_FIELD,
    "vertex_ai_grounding_metadata": _NO_FIELD,
    "vertex_ai_safety_results": _NO_FIELD,
    "vertex_ai_url_context_metadata": _NO_FIELD,
    **dict.fromkeys(_CHUNK_BOOKKEEPING),
}
