"""The members that objects of requests and responses have, see `_ir.shape`.

They come from the types of openai-python 3.54.0 and from widespread compatible servers. Other members of a request
are unknown: sent on to an upstream of the same protocol, recorded as a loss for any other. Names in comments are of
hosts and servers in whose recorded responses we have seen a member (November 2026).

A new setting that is only a name and a value is a row of REQUEST_SHAPE; CONTRIBUTING.md has the other steps.
"""

from __future__ import annotations

from dragoman._ir.request import Param
from dragoman._ir.shape import (
    ARRAY,
    HOST_BOOKKEEPING,
    INTEGER,
    OBJECT,
    READ_IN_PART,
    STRING,
    ByType,
    Counters,
    DroppedUnless,
    OneOf,
    Setting,
    Shape,
    TakenIf,
    defined_members,
    members,
    setting_paths,
)
from dragoman.protocols._openai.usage import USAGE_BOOKKEEPING
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
    **members("model messages stream tool_choice function_call parallel_tool_calls"),
    "stream_options": {"include_usage": None, "include_obfuscation": Setting(None)},
    "usage": {"include": None},  # as OpenRouter's clients request it
    "tools": ARRAY,
    "functions": ARRAY,
    "web_search_options": OBJECT,
    "response_format": {"type": None, "json_schema": TakenIf({"type": ("json_schema",)})},
    # Reasoning: the official setting, and the settings of compatible servers.
    "reasoning_effort": STRING,
    "thinking_budget": INTEGER,
    **members("reasoning thinking enable_thinking chat_template_kwargs include_reasoning"),
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
    "text": {**members("type text"), **_MARKS},
    "image_url": {"type": None, "image_url": members("url detail format"), **_MARKS},
    "video_url": {"type": None, "video_url": members("url format"), **_MARKS},  # OpenRouter, vLLM, Qwen
    "input_audio": {"type": None, "input_audio": members("data format"), **_MARKS},
    "file": {
        "type": None,
        "file": {**members("file_data filename format"), "file_id": TakenIf({"file_data": (None,)})},
        **_MARKS,
    },
    "document_url": {**members("type document_url document_name"), **_MARKS},  # Mistral's, of a file
    "refusal": members("type refusal"),
}

# A message of any role but assistant. `cache_control` is what agents send for Claude models.
MESSAGE_SHAPE: dict[str, Shape] = {**members("role content name"), **_MARKS}
TOOL_MESSAGE_SHAPE: dict[str, Shape] = {**MESSAGE_SHAPE, "tool_call_id": None}
ASSISTANT_SHAPE: dict[str, Shape] = {
    **MESSAGE_SHAPE,
    **members("refusal audio function_call tool_calls annotations"),
    EXTRA_CONTENT: Setting(None),
    **dict.fromkeys(REASONING_FIELDS),
    # Mistral's and DeepSeek's: the response continues the message, which is the last one. Elsewhere it does so anyway.
    "prefix": None,
    # What SDKs add to a message that they received, and send back with it: the content parsed, by OpenAI's; LiteLLM's
    # copy of what has no official field.
    "parsed": None,
    PROVIDER_FIELDS: {"refusal": None},
}
# An entry of `reasoning_details` or `thinking_blocks`.
REASONING_ENTRY_SHAPE = members("type text summary thinking signature data format id index")
# A legacy `function_call`, and the object in a tool call.
FUNCTION_CALL_SHAPE = members("name arguments")
_CALL: dict[str, Shape] = {
    **members("id type"),
    "function": FUNCTION_CALL_SHAPE,
    "custom": members("name input"),
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
FUNCTION_SHAPE = members("name description parameters strict")
TOOL_SHAPE: dict[str, Shape] = {
    "type": None,
    "function": FUNCTION_SHAPE,
    "custom": {
        **members("name description"),
        "format": ByType(
            {
                "text": members("type"),
                "grammar": {"type": None, "grammar": members("definition syntax")},
            }
        ),
    },
    **_MARKS,
}
LOCATION_SHAPE = members("city country region timezone")
WEB_SEARCH_SHAPE: dict[str, Shape] = {
    "search_context_size": None,
    "user_location": {"type": None, "approximate": LOCATION_SHAPE},
}
# The object in `response_format`.
FORMAT_SHAPE = members("name description schema strict")

DEFINED_MEMBERS = {
    **defined_members(REQUEST_SHAPE, ASSISTANT_SHAPE, CALL_SHAPE, *PART_SHAPES.values()),
    **dict.fromkeys(("tool_choice", "function_call", "max_tokens"), READ_IN_PART),
    "type": "a value that only some servers know",  # of a response format
}

# -- responses ------------------------------------------------------------------------------------------------

_NO_FIELD = "other protocols have no field for it"
_TOP = members("token bytes logprob")
_TOKEN: Shape = {**_TOP, "top_logprobs": [_TOP]}
_PART = members("type text")
_FILTER_RESULTS = DroppedUnless(
    "other protocols report only that a response was stopped, not what was found in it", frozenset({"safe"})
)

# What hosts add to chunks and to choices for their own bookkeeping.
_CHUNK_BOOKKEEPING = members(
    "__verbose prompt_progress "  # llama.cpp
    "generationId "  # Vercel
    "latency_checkpoint "  # Azure
    "created_at model_id model_version system "  # IBM: a time, what repeats the model, and warnings about it
    "model_info runtime stats "  # LM Studio
    "perf_metrics "  # Fireworks
    "sla_metrics "  # a host behind Hugging Face's router
    "time_info "  # Cerebras
    "trace_details "
    "usage_breakdown "  # Groq: the figures of each model behind a compound one
    "weight_version"
)
_CHOICE_BOOKKEEPING = members(
    "content_filter_offsets "  # Azure
    "native_finish_reason "  # OpenRouter: the model's own word for finish_reason
    "seed text "  # Together; the second repeats the text
    "token_ids"  # vLLM
)

_DETAILS: Shape = Counters(
    {
        **dict.fromkeys(NATIVE_COUNTERS),
        **members("cached_tokens cache_write_tokens reasoning_tokens text_tokens"),
    }
)
_USAGE: Shape = Counters(
    {
        **members("prompt_tokens completion_tokens total_tokens reasoning_tokens cached_tokens"),
        **members("prompt_cache_hit_tokens prompt_cache_miss_tokens"),
        **members("cache_read_input_tokens cache_creation_input_tokens"),
        "num_cached_tokens": None,  # Mistral
        **members("prompt_tokens_details completion_tokens_details", _DETAILS),
        "server_tool_use_details": Counters(
            members("web_search_requests tool_calls_executed tool_calls_requested")
        ),
        **members("cost cost_details market_cost cost_in_usd_ticks", _NO_FIELD),  # OpenRouter, Vercel; xAI
        **USAGE_BOOKKEEPING,
    }
)

ANNOTATION_SHAPE: Shape = {
    "type": None,
    "url_citation": {
        **members("url title start_index end_index"),
        "content": None,  # OpenRouter: a quotation from the page, whose loss the writer records
    },
}
# A content that is a list.
CONTENT_SHAPE: Shape = [ByType({"text": _PART, "thinking": {**members("type closed"), "thinking": [_PART]}})]
# A tool call, or a fragment of one. What else it has goes to the client in a signature.
CALL_DELTA_SHAPE: dict[str, Shape] = {**_CALL, "index": None}
# A delta, or the message of a whole response.
DELTA_SHAPE: dict[str, Shape] = {
    **members("role content refusal tool_calls function_call annotations"),
    **dict.fromkeys((EXTRA_CONTENT, EXECUTED_TOOLS, *REASONING_FIELDS, *OPAQUE_FIELDS)),
    "channel": None,  # Groq: which kind of text it is
    "name": None,  # MiniMax: its own
    "padding": None,  # GitHub
    "token_id": None,  # Together
    "index": None,  # Mistral: that of the choice
    "graph_data": _NO_FIELD,  # Writer
    PROVIDER_FIELDS: _NO_FIELD,  # LiteLLM
    # Vercel's router, and what the host behind it adds to its response.
    "provider_metadata": {
        "gateway": None,
        "google": {
            **members("promptFeedback safetyRatings usageMetadata"),
            **members("groundingMetadata urlContextMetadata", _NO_FIELD),
        },
        "openai": members("responseId serviceTier"),
    },
}
CHOICE_SHAPE: dict[str, Shape] = {
    **members("index delta message finish_reason matched_stop stop_reason"),
    "usage": _USAGE,
    "logprobs": {"content": [_TOKEN], "refusal": [_TOKEN]},
    # Azure, of older and newer versions.
    **members("content_filter_result content_filter_results", _FILTER_RESULTS),
    "obfuscation": None,  # padding of Bedrock
    PROVIDER_FIELDS: _NO_FIELD,  # LiteLLM
    **_CHOICE_BOOKKEEPING,
}
# Members of a response or chunk that its reader reads, and padding. A client of this protocol gets the others as they
# came.
READ_SHAPE: dict[str, Shape] = {
    **members("id object created model choices error moderation service_tier"),
    "usage": _USAGE,
    **members("citations search_results"),  # lists of pages, read as citations
    **members("obfuscation p"),  # padding of OpenAI; of Mistral and Cloudflare
}
RESPONSE_SHAPE: dict[str, Shape] = {
    **READ_SHAPE,
    **members("metadata prompt"),  # repeat the request; the second at Together
    # Azure, of older and newer versions.
    "prompt_filter_results": [
        {"prompt_index": None, **members("content_filter_result content_filter_results", _FILTER_RESULTS)}
    ],
    "x_groq": {**members("id seed usage_breakdown"), "usage": _USAGE},
    # MiniMax.
    "base_resp": {"status_code": _NO_FIELD, "status_msg": None},
    **members("input_sensitive output_sensitive", _NO_FIELD),
    # Perplexity, in addition to its lists of pages.
    **members("status type"),
    **members("images related_questions", _NO_FIELD),
    "system_fingerprint": _NO_FIELD,
    # LiteLLM, from Google's responses: usually empty.
    **members("vertex_ai_citation_metadata vertex_ai_grounding_metadata", _NO_FIELD),
    **members("vertex_ai_safety_results vertex_ai_url_context_metadata", _NO_FIELD),
    **HOST_BOOKKEEPING,
    **_CHUNK_BOOKKEEPING,
}
