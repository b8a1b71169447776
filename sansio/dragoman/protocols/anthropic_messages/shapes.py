"""The members of each object of requests and responses, see `_ir.shape`.

They come from anthropic 2.12.0, the betas included. A member that is not in a shape is unknown: it is an extra
member of a request, and a loss of a response.

A new setting that is only a name and a value is a row of REQUEST_SHAPE; CONTRIBUTING.md has the other steps.
"""

from __future__ import annotations

from dragoman._ir.request import Param
from dragoman._ir.shape import (
    ARRAY,
    BOOLEAN,
    HOST_BOOKKEEPING,
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
    TakenIf,
    defined_members,
    members,
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
    **members("type display"),
    "budget_tokens": INTEGER,
    "block_binding": Setting(None),
}
FORMAT_SHAPE = members("type schema")
# An edit of context_management of the type COMPACT_EDIT.
COMPACT_EDIT_SHAPE: dict[str, Shape] = {"type": None, "trigger": members("type value")}
MESSAGE_SHAPE: dict[str, Shape] = {**members("role content"), "clear_at": Setting(None)}

TEXT_SHAPE: dict[str, Shape] = {**members("type text citations"), "cache_control": _CACHE_CONTROL}
# The source of an image or a document; its `type` says which of the other members it has.
_SOURCE: Shape = {
    "type": None,
    "data": TakenIf({"type": ("base64", "text")}),
    "url": TakenIf({"type": ("url",)}),
    "file_id": TakenIf({"type": ("file",)}),
    "media_type": STRING,
}
IMAGE_SHAPE: dict[str, Shape] = {
    "type": None,
    "source": _SOURCE,
    "cache_control": _CACHE_CONTROL,
    "transformations": Setting(None),
}
IMAGE_URL_SHAPE: dict[str, Shape] = {
    "type": None,
    "image_url": members("url detail"),
    "cache_control": _CACHE_CONTROL,
}
DOCUMENT_SHAPE: dict[str, Shape] = {
    **members("type citations"),
    **members("title context", STRING),
    "source": _SOURCE,
    "cache_control": _CACHE_CONTROL,
}
# The shape of both types: thinking has thinking and signature, redacted_thinking has data.
THINKING_BLOCK_SHAPE = members("type thinking signature data")
# A summary that Dragoman made, see `_ir.wrapped_signatures`.
COMPACTION_SHAPE: dict[str, Shape] = {
    **members("type content encrypted_content"),
    "cache_control": _CACHE_CONTROL,
}
TOOL_USE_SHAPE: dict[str, Shape] = {
    **members("type id name input"),
    "cache_control": _CACHE_CONTROL,
    "caller": Setting(None, implied={"type": "direct"}),
    "toolset_name": Setting(None),
}
TOOL_RESULT_SHAPE: dict[str, Shape] = {
    **members("type tool_use_id content is_error"),
    "cache_control": _CACHE_CONTROL,
    "toolset_name": Setting(None),
}
# A tool with a schema: its `type` is absent or "custom".
TOOL_SHAPE: dict[str, Shape] = {
    **members("type name description input_schema strict defer_loading input_examples"),
    **members("allowed_callers eager_input_streaming", Setting(None)),
    "cache_control": _CACHE_CONTROL,
}
WEB_SEARCH_SHAPE: dict[str, Shape] = {
    **members("allowed_domains blocked_domains", ARRAY),
    "max_uses": INTEGER,
    "user_location": OBJECT,
}
MCP_SERVER_SHAPE = members("type name url authorization_token tool_configuration")

# A reader takes only some values of the last ones.
DEFINED_MEMBERS = {
    **defined_members(
        REQUEST_SHAPE,
        THINKING_SHAPE,
        MESSAGE_SHAPE,
        IMAGE_SHAPE,
        TOOL_USE_SHAPE,
        TOOL_RESULT_SHAPE,
        TOOL_SHAPE,
    ),
    **dict.fromkeys(("display", "edits", "type"), True),
}

# Responses. Where nothing else is said, the shapes are for clients of other protocols.

_NO_FIELD = "other protocols have no field for it"
_NO_COUNTER = "other protocols have no such counter"
_NO_COUNTERPART = "a field of the tool call that has no counterpart"

# Blocks of other types are kept whole.
BLOCK_SHAPE: Shape = ByType(
    {
        "text": members("type text citations"),
        "tool_use": {
            **members("type id name input"),
            "caller": DroppedUnless(_NO_COUNTERPART, frozenset({"direct"})),  # the default
            "toolset_name": _NO_COUNTERPART,
        },
    }
)
CITATION_SHAPE: Shape = {
    **members("type url title cited_text encrypted_index source search_result_index file_id"),
    **members("document_index document_title start_char_index end_char_index start_page_number"),
    **members("end_page_number start_block_index end_block_index"),
}

# The members of a message and of message_delta that our writer makes. Clients of this protocol get all others as they
# came.
WRITTEN_RESPONSE_SHAPE = members(
    "id type role model content delta stop_reason stop_sequence stop_details usage"
)
RESPONSE_SHAPE: dict[str, Shape] = {
    **WRITTEN_RESPONSE_SHAPE,
    **members("container context_management diagnostics input_transformations", _NO_FIELD),
    "stop_details": {
        **members("type explanation"),
        **members("category fallback_credit_token fallback_has_prefill_claim recommended_model", _NO_FIELD),
    },
    "base_resp": {"status_code": _NO_FIELD, "status_msg": None},  # MiniMax
    "system_fingerprint": _NO_FIELD,
    **HOST_BOOKKEEPING,
}

DETAILS_SHAPE: Shape = Counters({"thinking_tokens": None})
_TOKENS = members("input_tokens output_tokens cache_read_input_tokens cache_creation_input_tokens")
_ITERATION_SHAPE: Shape = Counters({**_TOKENS, **members("type model cache_creation")})
# The same for usage.
WRITTEN_USAGE_SHAPE: dict[str, Shape] = {
    **_TOKENS,
    **members("output_tokens_details service_tier"),
    "server_tool_use": {"web_search_requests": None},
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
        **members("cost cost_details", _NO_FIELD),
        "is_byok": None,
        # "the geographic region where inference was performed": anthropic 2.12.0, types/usage.py
        "inference_geo": DroppedUnless(_NO_FIELD, frozenset({"not_available"})),
    }
)

# The events of a stream, and their deltas.
EVENT_SHAPE = members(
    "type message index content_block delta"
    " amazon-bedrock-invocationMetrics"  # Bedrock's latencies, in the last event
    " copilot_usage"
)
DELTA_SHAPE = members("type text thinking estimated_tokens signature partial_json citation")
