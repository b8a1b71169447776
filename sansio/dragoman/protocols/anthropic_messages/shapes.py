"""The members of each object of requests and responses, see `_ir.shape`.

They come from anthropic 2.12.0, the betas included. A member that is not in a shape is unknown: it is an extra
member of a request, and a loss of a response.
"""

from __future__ import annotations

from dragoman._ir.request import Param
from dragoman._ir.shape import (
    ARRAY,
    BOOLEAN,
    INTEGER,
    NUMBER,
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
from dragoman.protocols.anthropic_messages.tables import CACHE_TTLS

# Requests.

_CACHE_CONTROL: Shape = {"type": OneOf(("ephemeral",)), "ttl": OneOf(tuple(CACHE_TTLS))}

REQUEST_SHAPE: dict[str, Shape] = {
    "model": STRING,
    "max_tokens": Setting("max_output_tokens", INTEGER),
    "messages": ARRAY,
    "system": None,
    "stream": BOOLEAN,
    "tools": ARRAY,
    "tool_choice": {"type": None, "name": None, "disable_parallel_tool_use": BOOLEAN},
    "thinking": OBJECT,
    "output_config": {"effort": STRING, "format": OBJECT, "task_budget": Setting(None)},
    "output_format": OBJECT,  # the older place of output_config.format, deprecated
    "context_management": {"edits": None},
    "compaction": {"type": None, "instructions": STRING},
    "cache_control": _CACHE_CONTROL,
    "temperature": Setting("temperature", NUMBER),
    "top_p": Setting("top_p", NUMBER),
    "top_k": Setting("top_k", INTEGER),
    "stop_sequences": Setting("stop", ARRAY),
    "service_tier": Setting("service_tier", STRING),
    "speed": Setting("speed", STRING),
    "container": Setting("container"),
    "mcp_servers": Setting("mcp_servers", ARRAY),
    "inference_geo": Setting("inference_geo"),
    "diagnostics": Setting("diagnostics"),
    "fallbacks": Setting("fallbacks"),
    "fallback_credit_token": Setting("fallback_credit_token"),
    "billing_policy": Setting("billing_policy"),
    "user_profile_id": Setting("user_profile_id"),
    "workspace_id": Setting("workspace_id"),
    "betas": Setting("betas"),
    "thread": Setting("thread"),
    "metadata": {"user_id": Setting("user", STRING)},
}
# A path to each setting, and to two whose values are translated by functions.
SETTING_PATHS: dict[Param, str] = {
    **setting_paths(REQUEST_SHAPE),
    "context_management": "/context_management",
    "prompt_cache_options": "/cache_control",
}
THINKING_SHAPE: dict[str, Shape] = {
    "type": None,
    "budget_tokens": INTEGER,
    "display": None,
    "block_binding": Setting(None),
}
FORMAT_SHAPE: dict[str, Shape] = {"type": None, "schema": None}
# An edit of context_management of the type COMPACT_EDIT.
COMPACT_EDIT_SHAPE: dict[str, Shape] = {"type": None, "trigger": {"type": None, "value": None}}
MESSAGE_SHAPE: dict[str, Shape] = {"role": None, "content": None, "clear_at": Setting(None)}

TEXT_SHAPE: dict[str, Shape] = {
    "type": None,
    "text": None,
    "citations": None,
    "cache_control": _CACHE_CONTROL,
}
# The source of an image or a document; its `type` says which of the other members it has.
_SOURCE: Shape = {"type": None, "media_type": STRING, "data": None, "url": None, "file_id": None}
IMAGE_SHAPE: dict[str, Shape] = {
    "type": None,
    "source": _SOURCE,
    "cache_control": _CACHE_CONTROL,
    "transformations": Setting(None),
}
IMAGE_URL_SHAPE: dict[str, Shape] = {
    "type": None,
    "image_url": {"url": None, "detail": None},
    "cache_control": _CACHE_CONTROL,
}
DOCUMENT_SHAPE: dict[str, Shape] = {
    "type": None,
    "source": _SOURCE,
    "title": STRING,
    "context": STRING,
    "citations": None,
    "cache_control": _CACHE_CONTROL,
}
# The shape of both types: thinking has thinking and signature, redacted_thinking has data.
THINKING_BLOCK_SHAPE: dict[str, Shape] = {"type": None, "thinking": None, "signature": None, "data": None}
# A summary that Dragoman made, see `_ir.signatures`.
COMPACTION_SHAPE: dict[str, Shape] = {
    "type": None,
    "content": None,
    "encrypted_content": None,
    "cache_control": _CACHE_CONTROL,
}
TOOL_USE_SHAPE: dict[str, Shape] = {
    "type": None,
    "id": None,
    "name": None,
    "input": None,
    "cache_control": _CACHE_CONTROL,
    "caller": Setting(None, implied={"type": "direct"}),
    "toolset_name": Setting(None),
}
TOOL_RESULT_SHAPE: dict[str, Shape] = {
    "type": None,
    "tool_use_id": None,
    "content": None,
    "is_error": None,
    "cache_control": _CACHE_CONTROL,
    "toolset_name": Setting(None),
}
# A tool with a schema: its `type` is absent or "custom".
TOOL_SHAPE: dict[str, Shape] = {
    "type": None,
    "name": None,
    "description": None,
    "input_schema": None,
    "strict": None,
    "defer_loading": None,
    "input_examples": None,
    "cache_control": _CACHE_CONTROL,
    "allowed_callers": Setting(None),
    "eager_input_streaming": Setting(None),
}
WEB_SEARCH_SHAPE: dict[str, Shape] = {
    "allowed_domains": ARRAY,
    "blocked_domains": ARRAY,
    "max_uses": INTEGER,
    "user_location": OBJECT,
}
MCP_SERVER_SHAPE: dict[str, Shape] = {
    "type": None,
    "name": None,
    "url": None,
    "authorization_token": None,
    "tool_configuration": None,
}

# Members of requests that only this protocol has. A reader takes only some values of the first ones.
NATIVE_MEMBERS = frozenset({"display", "edits", "type"}).union(
    *map(
        native_members,
        (
            REQUEST_SHAPE,
            THINKING_SHAPE,
            MESSAGE_SHAPE,
            IMAGE_SHAPE,
            TOOL_USE_SHAPE,
            TOOL_RESULT_SHAPE,
            TOOL_SHAPE,
        ),
    )
)

# Responses. Where nothing else is said, the shapes are for clients of other protocols.

_NO_FIELD = "other protocols have no field for it"
_NO_COUNTER = "other protocols have no such counter"
_NO_COUNTERPART = "a field of the tool call that has no counterpart"

# Blocks of other types are kept whole.
BLOCK_SHAPE: Shape = ByType(
    {
        "text": {"type": None, "text": None, "citations": None},
        "tool_use": {
            "type": None,
            "id": None,
            "name": None,
            "input": None,
            "caller": DroppedUnless(_NO_COUNTERPART, frozenset({"direct"})),  # the default
            "toolset_name": _NO_COUNTERPART,
        },
    }
)
CITATION_SHAPE: Shape = dict.fromkeys(
    (
        "type",
        "url",
        "title",
        "cited_text",
        "encrypted_index",
        "source",
        "search_result_index",
        "document_index",
        "document_title",
        "file_id",
        "start_char_index",
        "end_char_index",
        "start_page_number",
        "end_page_number",
        "start_block_index",
        "end_block_index",
    )
)

# Members that hosts add for their own bookkeeping (seen in recorded responses, November 2026).
_MESSAGE_BOOKKEEPING = (
    "copilot_usage",  # GitHub
    "kv_transfer_params",  # vLLM
    "native_finish_reason",  # OpenRouter: stop_reason as the model's vendor named it
    "openrouter_metadata",
    "provider",  # OpenRouter
    "request_id",
    "timings",  # llama.cpp
)
# The members of a message and of message_delta that our writer makes. Clients of this protocol get all others as they
# came.
WRITTEN_RESPONSE_SHAPE: dict[str, Shape] = {
    "id": None,
    "type": None,
    "role": None,
    "model": None,
    "content": None,
    "delta": None,
    "stop_reason": None,
    "stop_sequence": None,
    "stop_details": None,
    "usage": None,
}
RESPONSE_SHAPE: dict[str, Shape] = {
    **WRITTEN_RESPONSE_SHAPE,
    "stop_details": {
        "type": None,
        "explanation": None,
        "category": _NO_FIELD,
        "fallback_credit_token": _NO_FIELD,
        "fallback_has_prefill_claim": _NO_FIELD,
        "recommended_model": _NO_FIELD,
    },
    "container": _NO_FIELD,
    "context_management": _NO_FIELD,
    "diagnostics": _NO_FIELD,
    "input_transformations": _NO_FIELD,
    "base_resp": {"status_code": _NO_FIELD, "status_msg": None},  # MiniMax
    "system_fingerprint": _NO_FIELD,
    **dict.fromkeys(_MESSAGE_BOOKKEEPING),
}

DETAILS_SHAPE: Shape = Counters({"thinking_tokens": None})
_ITERATION_SHAPE: Shape = Counters(
    {
        "type": None,
        "model": None,
        "input_tokens": None,
        "output_tokens": None,
        "cache_read_input_tokens": None,
        "cache_creation_input_tokens": None,
        "cache_creation": None,
    }
)
# The same for usage.
WRITTEN_USAGE_SHAPE: dict[str, Shape] = {
    "input_tokens": None,
    "output_tokens": None,
    "cache_read_input_tokens": None,
    "cache_creation_input_tokens": None,
    "output_tokens_details": None,
    "server_tool_use": {"web_search_requests": None},
    "service_tier": None,
}
USAGE_SHAPE: Shape = Counters(
    {
        **WRITTEN_USAGE_SHAPE,
        "cache_creation": None,  # kept in Usage.extra
        "fallback_credit": _NO_FIELD,
        "iterations": [_ITERATION_SHAPE],  # summed up by UsageReader
        "output_tokens_details": DETAILS_SHAPE,
        "server_tool_use": Counters({"web_search_requests": None, "web_fetch_requests": _NO_COUNTER}),
        "speed": DroppedUnless(_NO_COUNTER, frozenset({"standard", "fast"})),  # both are reported as tiers
        # OpenRouter.
        "cost": _NO_FIELD,
        "cost_details": _NO_FIELD,
        "is_byok": None,
        # "the geographic region where inference was performed": anthropic 2.12.0, types/usage.py
        "inference_geo": DroppedUnless(_NO_FIELD, frozenset({"not_available"})),
    }
)

# The events of a stream, and their deltas.
EVENT_SHAPE: dict[str, Shape] = dict.fromkeys(
    (
        "type",
        "message",
        "index",
        "content_block",
        "delta",
        "amazon-bedrock-invocationMetrics",  # Bedrock's latencies, in the last event
        "copilot_usage",
    )
)
DELTA_SHAPE: dict[str, Shape] = dict.fromkeys(
    ("type", "text", "thinking", "estimated_tokens", "signature", "partial_json", "citation")
)
