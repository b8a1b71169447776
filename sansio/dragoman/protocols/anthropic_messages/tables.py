"""Data: what maps to what.

Strategy: every choice that is a list of pairs lives here, both directions side by side where there are two.
"""

from __future__ import annotations

from typing import Literal

from dragoman._ir.events import BlockKind, StopReason
from dragoman._ir.parameters import param_paths
from dragoman._ir.request import Param
from dragoman._ir.shape import ByType, Counters, DroppedUnless, Shape
from dragoman._wire.errors import ErrorKind
from dragoman._wire.json import JSON
from dragoman.codec import TokenCount

NAME = "anthropic_messages"

PING = b'event: ping\ndata: {"type":"ping"}\n\n'

# --- headers ----------------------------------------------------------------------------------------------

# Clients that name no version are old: they sent none before there were two.
VERSION_HEADER = ("anthropic-version", "2023-06-01")
BETA_HEADER = "anthropic-beta"
FORWARDED_HEADERS = frozenset(
    {BETA_HEADER, VERSION_HEADER[0], "anthropic-user-profile-id", "anthropic-workspace-id"}
)

# --- counting tokens --------------------------------------------------------------------------------------

TOKEN_COUNT = TokenCount(
    path="/count_tokens",
    fields=frozenset(
        (
            "model",
            "messages",
            "system",
            "tools",
            "tool_choice",
            "thinking",
            "output_config",
            "cache_control",
            "mcp_servers",
            "context_management",
        )
    ),
    # So large that nothing has to be fitted to it, which would be told as a loss.
    stand_ins={"max_tokens": 128_000},
)

# --- stop reasons -----------------------------------------------------------------------------------------

STOP_REASONS: dict[str, StopReason] = {
    "end_turn": StopReason.END,
    "tool_use": StopReason.TOOL_USE,
    "max_tokens": StopReason.MAX_TOKENS,
    "model_context_window_exceeded": StopReason.CONTEXT_WINDOW,
    "stop_sequence": StopReason.STOP_SEQUENCE,
    "refusal": StopReason.CONTENT_FILTER,
    "pause_turn": StopReason.PAUSE,
    "compaction": StopReason.COMPACTION,
}
STOP_REASON_NAMES: dict[StopReason, str] = {reason: word for word, reason in STOP_REASONS.items()}

# The reasons that leave a block unfinished.
TRUNCATING_STOP_REASONS = frozenset({StopReason.MAX_TOKENS, StopReason.CONTEXT_WINDOW})

# --- blocks -----------------------------------------------------------------------------------------------

# Summaries that were made here: the origin of their seal, see `_transforms.compaction`.
SUMMARY_ORIGIN = "dragoman"
SUMMARY_PREFIX = "Summary of the conversation so far:\n"

# How a line of the system text begins that is for the provider.
BILLING_HEADER = "x-anthropic-billing-header:"

# Blocks whose input streams as JSON text, beside tool_use.
STREAMED_INPUT = frozenset({"server_tool_use", "mcp_tool_use"})

# What a delta for a block of each kind looks like, up to the text.
DELTA_HEADS: dict[BlockKind, str] = {
    BlockKind.TEXT: '{"type":"text_delta","text":',
    BlockKind.REFUSAL: '{"type":"text_delta","text":',
    BlockKind.REASONING: '{"type":"thinking_delta","thinking":',
    BlockKind.TOOL_CALL: '{"type":"input_json_delta","partial_json":',
}

# The field in which each type of source holds its content, and the neutral name of that type.
SOURCE_TYPES: dict[str, tuple[str, Literal["base64", "text", "url", "file_id"]]] = {
    "base64": ("data", "base64"),
    "text": ("data", "text"),
    "url": ("url", "url"),
    "file": ("file_id", "file_id"),
}

# "media_type: image/jpeg, image/png, image/gif, image/webp", by the names that clients use for them.
IMAGE_TYPES: dict[str, str] = {
    "image/jpeg": "image/jpeg",
    "image/jpg": "image/jpeg",
    "image/png": "image/png",
    "image/gif": "image/gif",
    "image/webp": "image/webp",
}

# How base64 data of each type begins: for data that came without a type.
MAGIC: tuple[tuple[str, str], ...] = (
    ("/9j/", "image/jpeg"),
    ("iVBORw0KGgo", "image/png"),
    ("R0lGOD", "image/gif"),
    ("UklGR", "image/webp"),
    ("JVBERi", "application/pdf"),
)

CACHE_TTLS: dict[str, Literal["short", "long"]] = {"5m": "short", "1h": "long"}
CACHE_TTL_NAMES: dict[str, str] = {"short": "5m", "long": "1h"}
# The same in `prompt_cache_options`, whose words the other protocols share.
CACHE_OPTION_TTLS: dict[str, str] = {"5m": "30m", "1h": "12h"}
CACHE_OPTION_TTL_NAMES: dict[str, str] = {word: ttl for ttl, word in CACHE_OPTION_TTLS.items()}

# "A maximum of 4 blocks with cache_control may be provided", the one at the top level included.
MAX_CACHE_MARKS = 4

# --- what is read of an answer, see `_ir.shape` --------------------------------------------------------------

_NOWHERE = "has no place in other protocols"
# Blocks of other types travel as they are.
BLOCK_SHAPE: Shape = ByType({"text": {"type": None, "text": None, "citations": None}})
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

# What hosts add beside the official members, for their own bookkeeping.
_MESSAGE_BOOKKEEPING = (
    "copilot_usage",  # GitHub
    "kv_transfer_params",  # vLLM
    "native_finish_reason",  # OpenRouter: the model's own word for stop_reason
    "openrouter_metadata",
    "provider",  # OpenRouter
    "request_id",
    "system_fingerprint",
    "timings",  # llama.cpp
)
_USAGE_BOOKKEEPING = (
    "cost",  # OpenRouter
    "cost_details",
    "inference_geo",  # "where inference was performed"
    "is_byok",  # OpenRouter
)

# For clients of other protocols, of the message, of its end, and of its usage. Those of this one get all that came.
RESPONSE_SHAPE: dict[str, Shape] = {
    "id": None,
    "type": None,
    "role": None,
    "model": None,
    "content": None,
    "stop_reason": None,
    "stop_sequence": None,
    "stop_details": {
        "type": None,
        "explanation": None,
        "category": _NOWHERE,
        "fallback_credit_token": _NOWHERE,
        "fallback_has_prefill_claim": _NOWHERE,
        "recommended_model": _NOWHERE,
    },
    "usage": None,  # piece by piece
    "container": _NOWHERE,
    "context_management": _NOWHERE,
    "diagnostics": _NOWHERE,
    "input_transformations": _NOWHERE,
    "base_resp": {"status_code": _NOWHERE, "status_msg": None},  # MiniMax
    **dict.fromkeys(_MESSAGE_BOOKKEEPING),
}
_NO_COUNTER = "other protocols have no such counter"
DETAILS_SHAPE: Shape = Counters({"thinking_tokens": None})
USAGE_SHAPE: Shape = Counters(
    {
        "input_tokens": None,
        "output_tokens": None,
        "cache_read_input_tokens": None,
        "cache_creation_input_tokens": None,
        "cache_creation": None,  # travels
        "fallback_credit": _NOWHERE,
        "iterations": None,  # see `usage`
        "output_tokens_details": DETAILS_SHAPE,
        "server_tool_use": Counters({"web_search_requests": None, "web_fetch_requests": _NO_COUNTER}),
        "service_tier": None,
        "speed": DroppedUnless(_NO_COUNTER, frozenset({"standard", "fast"})),  # these are told as tiers
        **dict.fromkeys(_USAGE_BOOKKEEPING),
    }
)

# Events of the stream, their deltas included. Texts say all that deltas say.
EVENT_FIELDS = frozenset(
    {
        "type",
        "message",
        "index",
        "content_block",
        "delta",
        "amazon-bedrock-invocationMetrics",  # its times, at the end
        "copilot_usage",
    }
)
DELTA_FIELDS = frozenset(
    {"type", "text", "thinking", "estimated_tokens", "signature", "partial_json", "citation"}
)

# --- settings ---------------------------------------------------------------------------------------------

# Fields of this protocol that are read by nobody, because no other protocol has anything of the kind.
NATIVE_FIELDS = frozenset(
    {
        "allowed_callers",
        "block_binding",
        "caller",
        "clear_at",
        "display",
        "eager_input_streaming",
        "edits",
        "task_budget",
        "toolset_name",
        "transformations",
        "type",
    }
)

PARAMS: dict[str, Param] = {
    "max_tokens": "max_output_tokens",
    "temperature": "temperature",
    "top_p": "top_p",
    "top_k": "top_k",
    "stop_sequences": "stop",
    "service_tier": "service_tier",
    "speed": "speed",
    "container": "container",
    "mcp_servers": "mcp_servers",
    "inference_geo": "inference_geo",
    "diagnostics": "diagnostics",
    "fallbacks": "fallbacks",
    "fallback_credit_token": "fallback_credit_token",
    "billing_policy": "billing_policy",
    "user_profile_id": "user_profile_id",
    "workspace_id": "workspace_id",
    "betas": "betas",
    "thread": "thread",
}
PARAM_PATHS: dict[Param, str] = {
    **param_paths(PARAMS),
    "context_management": "/context_management",
    "prompt_cache_options": "/cache_control",
    "user": "/metadata/user_id",
}

# What the validator demands of them: (name, JSON types, their name in an error).
PARAM_TYPES: tuple[tuple[str, tuple[type, ...], str], ...] = (
    ("temperature", (int, float), "number"),
    ("top_p", (int, float), "number"),
    ("top_k", (int,), "integer"),
    ("stop_sequences", (list,), "list"),
    ("service_tier", (str,), "string"),
    ("speed", (str,), "string"),
    ("stream", (bool,), "boolean"),
)

PARAM_NAMES: dict[Param, str] = {
    "temperature": "temperature",
    "top_p": "top_p",
    "top_k": "top_k",
    "stop": "stop_sequences",
    "context_management": "context_management",
    "prompt_cache_options": "cache_control",
}

SAMPLING_PARAMS: tuple[Param, ...] = ("temperature", "top_p", "top_k")

# Values by which a client asks for what happens here anyway: nothing is lost with them.
NO_OP_VALUES: dict[Param, tuple[JSON, ...]] = {
    "background": (False,),
    "frequency_penalty": (0,),
    "logit_bias": ({},),
    "logprobs": (False,),
    "metadata": ({},),
    "modalities": (["text"],),
    "presence_penalty": (0,),
    "store": (False,),
    "top_logprobs": (0,),
    "truncation": ("disabled",),
    "verbosity": ("medium",),
}

# What of `include` says nothing: it comes in any case.
IMPLIED_INCLUDES = frozenset({"reasoning.encrypted_content", "web_search_call.action.sources"})

# Settings without which the answer would be to another question. The text says what to do instead.
REJECTED_PARAMS: dict[Param, str] = {
    "background": "the upstream answers at once or not at all; ask without `background`",
    "conversation": "the upstream keeps no conversations; send all messages with each request",
    "modalities": "the upstream answers with text alone; ask for text",
    "previous_response_id": "the upstream keeps no answers; send all messages with each request",
    "prompt": "the upstream keeps no prompts; send the messages themselves",
}

# Searches of other protocols, as they are shown to clients of this one: their ids begin like this. What the
# client sends back of them is dropped again, because the search itself travels sealed beside them.
SEARCH_ID_PREFIX = "srvtoolu_drg_"

# What stands where the vendor's API has its ciphertext. It is not empty, because clients check that.
CONTENT_PLACEHOLDER = "shown"

REQUEST_TIERS: dict[str, str] = {"standard_only": "default"}
REQUEST_TIER_NAMES: dict[str, str] = {"auto": "auto", "default": "standard_only", "priority": "auto"}
# The tier of an answer, in the neutral words.
RESPONSE_TIERS: dict[str, str] = {"standard": "default", "priority": "priority", "batch": "flex"}
# "fast" is reported as this one.
FAST_TIER = "priority"
DEFAULT_TIER = "default"
# "auto" is what was asked for: an answer that tells it has not told its tier.
RESPONSE_TIER_NAMES: dict[str, str | None] = {
    "auto": None,
    **{word: tier for tier, word in RESPONSE_TIERS.items()},
}

# --- context management -----------------------------------------------------------------------------------

# The edit that sums up the conversation, and when it does so unless told.
COMPACT_EDIT = "compact_20260112"
DEFAULT_COMPACT_THRESHOLD = 150_000

# An edit that asks for what happens anyway.
KEEP_THINKING_EDIT: JSON = {"type": "clear_thinking_20251015", "keep": "all"}

# --- reasoning --------------------------------------------------------------------------------------------

# What `output_config.effort` takes.
NATIVE_EFFORTS = ("low", "medium", "high", "xhigh", "max")

# With thinking on, "top_p can be set between 0.95 and 1".
MIN_TOP_P = 0.95

# --- errors -----------------------------------------------------------------------------------------------

KIND_BY_TYPE: dict[str, ErrorKind] = {
    "invalid_request_error": ErrorKind.INVALID_REQUEST,
    "authentication_error": ErrorKind.AUTHENTICATION,
    "billing_error": ErrorKind.BILLING,
    "permission_error": ErrorKind.PERMISSION,
    "not_found_error": ErrorKind.NOT_FOUND,
    "timeout_error": ErrorKind.TIMEOUT,
    "conflict_error": ErrorKind.CONFLICT,
    "memory_path_conflict_error": ErrorKind.CONFLICT,
    "memory_precondition_failed_error": ErrorKind.CONFLICT,
    "request_too_large": ErrorKind.TOO_LARGE,
    "rate_limit_error": ErrorKind.RATE_LIMIT,
    "overloaded_error": ErrorKind.OVERLOADED,
    "api_error": ErrorKind.SERVER,
}

# Types that say no more than the status does: the status decides when there is one.
GENERIC_TYPES = frozenset({"invalid_request_error", "api_error"})

# `error.details.error_code` where it says more than the type: money is used up, so waiting does not help.
KIND_BY_CODE: dict[str, ErrorKind] = {
    "contract_spend_limit_reached": ErrorKind.BILLING,
    "enforced_spend_limit_reached": ErrorKind.BILLING,
}

# The codes that the protocol has, for `error.details.error_code`.
DETAIL_CODES = frozenset(
    {
        *KIND_BY_CODE,
        "available_tools_limit_exceeded",
        "claude_code_version_too_old",
        "compaction_block_ambiguous",
        "compaction_block_misplaced",
        "compaction_content_mismatch",
        "compaction_incomplete_turn",
        "compaction_nothing_to_summarize",
        "compaction_signature_invalid",
        "compaction_tool_changes_mismatch",
        "compaction_too_many_tool_references",
        "compaction_unavailable",
        "file_expired",
        "ramp_limit_exceeded",
        "request_body_too_large_after_decoding",
        "sandbox_egress_restricted",
        "thread_already_continued",
        "thread_continue_in_flight",
        "thread_fingerprint_mismatch",
        "thread_not_found",
        "thread_unsupported_request",
        "tool_name_conflict",
        "tool_reference_unresolved",
    }
)

# Kind -> (type, status).
ERRORS: dict[ErrorKind, tuple[str, int]] = {
    ErrorKind.INVALID_REQUEST: ("invalid_request_error", 400),
    ErrorKind.CONTEXT_LENGTH: ("invalid_request_error", 400),
    ErrorKind.AUTHENTICATION: ("authentication_error", 401),
    ErrorKind.BILLING: ("billing_error", 402),
    ErrorKind.PERMISSION: ("permission_error", 403),
    ErrorKind.NOT_FOUND: ("not_found_error", 404),
    ErrorKind.METHOD: ("invalid_request_error", 405),
    ErrorKind.TIMEOUT: ("timeout_error", 504),
    ErrorKind.CONFLICT: ("conflict_error", 409),
    ErrorKind.TOO_LARGE: ("request_too_large", 413),
    ErrorKind.UNPROCESSABLE: ("invalid_request_error", 422),
    ErrorKind.MEDIA_TYPE: ("invalid_request_error", 415),
    ErrorKind.RATE_LIMIT: ("rate_limit_error", 429),
    ErrorKind.OVERLOADED: ("overloaded_error", 529),
    ErrorKind.SERVER: ("api_error", 500),
    ErrorKind.UNREACHABLE: ("api_error", 502),
    ErrorKind.TRUNCATED: ("api_error", 502),
    ErrorKind.UNREADABLE: ("api_error", 502),
    # Not "overloaded_error": Claude Code tries that again whatever else is said.
    ErrorKind.MISCONFIGURED: ("api_error", 503),
    ErrorKind.CANCELLED: ("api_error", 499),
}

# The statuses that this protocol's clients know. 503 is not among them: overload is 529 here.
KNOWN_STATUSES = frozenset(
    {400, 401, 402, 403, 404, 405, 408, 409, 412, 413, 415, 422, 429, 431, 499, 500, 501, 504, 529}
)
