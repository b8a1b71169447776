"""What Responses calls things: settings, stop reasons, errors, efforts. Data only."""

from __future__ import annotations

from typing import Literal

from dragoman._ir.events import StopReason
from dragoman._ir.request import Param, Role
from dragoman._ir.shape import ByType, Counters, DroppedUnless, Shape
from dragoman._wire.errors import ErrorKind
from dragoman._wire.json import JSON
from dragoman.codec import TokenCount

FORWARDED_HEADERS = frozenset({"openai-beta", "idempotency-key", "x-codex-beta-features"})

TOKEN_COUNT = TokenCount(
    path="/input_tokens",
    fields=frozenset(
        (
            "model",
            "input",
            "instructions",
            "tools",
            "tool_choice",
            "parallel_tool_calls",
            "reasoning",
            "text",
            "truncation",
        )
    ),
    stand_ins={"input": []},
    constant={"object": "response.input_tokens"},
)

ROLES: frozenset[Role] = frozenset(("user", "assistant", "system", "developer"))

# Settings that need no more than a name, wire -> neutral. `store`, `include` and `text` are read by hand.
PARAMS: dict[str, Param] = {
    "background": "background",
    "client_metadata": "client_metadata",
    "context_management": "context_management",
    "conversation": "conversation",
    "max_output_tokens": "max_output_tokens",
    "max_tool_calls": "max_tool_calls",
    "metadata": "metadata",
    "moderation": "moderation",
    "previous_response_id": "previous_response_id",
    "prompt": "prompt",
    "prompt_cache_key": "prompt_cache_key",
    "prompt_cache_options": "prompt_cache_options",
    "prompt_cache_retention": "prompt_cache_retention",
    "safety_identifier": "safety_identifier",
    "service_tier": "service_tier",
    "store": "store",
    "temperature": "temperature",
    "top_logprobs": "top_logprobs",
    "top_p": "top_p",
    "truncation": "truncation",
    "user": "user",
}

# Where settings stand that are not top-level fields of the same name.
PARAM_PATHS: dict[Param, str] = {
    **{param: f"/{name}" for name, param in PARAMS.items()},
    "include": "/include",
    "logprobs": "/include",
    "verbosity": "/text/verbosity",
}

PARAM_TYPES: dict[str, tuple[tuple[type, ...], str]] = {
    "background": ((bool,), "a boolean"),
    "include": ((list,), "an array"),
    "instructions": ((str,), "a string"),
    "max_output_tokens": ((int,), "an integer"),
    "max_tool_calls": ((int,), "an integer"),
    "metadata": ((dict,), "an object"),
    "parallel_tool_calls": ((bool,), "a boolean"),
    "previous_response_id": ((str,), "a string"),
    "prompt_cache_key": ((str,), "a string"),
    "reasoning": ((dict,), "an object"),
    "safety_identifier": ((str,), "a string"),
    "service_tier": ((str,), "a string"),
    "store": ((bool,), "a boolean"),
    "stream": ((bool,), "a boolean"),
    "temperature": ((int, float), "a number"),
    "text": ((dict,), "an object"),
    "tools": ((list,), "an array"),
    "top_logprobs": ((int,), "an integer"),
    "top_p": ((int, float), "a number"),
    "truncation": ((str,), "a string"),
    "user": ((str,), "a string"),
}

# Values that ask for nothing: they say what every other protocol does anyway, so their absence there is no
# loss. `store` is one of them: only an explicit true asks for something that others cannot give. The writer
# prints them again towards Responses.
NO_OP_VALUES: dict[str, JSON] = {
    "background": False,
    "metadata": {},
    "store": False,
    "top_logprobs": 0,
    "truncation": "disabled",
}

# `include` entries that have a meaning in the IR: sealed reasoning is always carried, and log probabilities
# are the setting `logprobs`.
INCLUDE_REASONING = "reasoning.encrypted_content"
INCLUDE_LOGPROBS = "message.output_text.logprobs"
# What is asked for with these is always given where there is such a thing.
IMPLIED_INCLUDES = frozenset((INCLUDE_REASONING, INCLUDE_LOGPROBS, "web_search_call.action.sources"))

# Settings that a client of another protocol may have and that are the same here, neutral -> wire.
PARAM_NAMES: dict[Param, str] = {
    "context_management": "context_management",
    "max_output_tokens": "max_output_tokens",
    "max_tool_calls": "max_tool_calls",
    "metadata": "metadata",
    "moderation": "moderation",
    "prompt_cache_key": "prompt_cache_key",
    "prompt_cache_options": "prompt_cache_options",
    "prompt_cache_retention": "prompt_cache_retention",
    "safety_identifier": "safety_identifier",
    "service_tier": "service_tier",
    "temperature": "temperature",
    "top_logprobs": "top_logprobs",
    "top_p": "top_p",
    "user": "user",
}
NATIVE_PARAM_NAMES: dict[Param, str] = {param: name for name, param in PARAMS.items()}
# Items that the document may have no message for: tools, settings, and what was told twice.
ITEMS_WITHOUT_MESSAGE = frozenset(
    ("additional_tools", "compaction_trigger", "configuration_update", "web_search_call")
)
# Settings that several fields of the document share, or that an item of the input may have changed.
VERBATIM_FIELDS = ("reasoning", "text")

# "Invalid 'max_output_tokens': integer below minimum value. Expected a value >= 16."
MIN_OUTPUT_TOKENS = 16

# In characters: longer names of users are refused.
MAX_USER = 64
MAX_SAFETY_IDENTIFIER = 128

SERVICE_TIERS = frozenset(("auto", "default", "flex", "scale", "priority", "fast", "ultrafast"))
# Not a tier, but the wish to have one chosen: an answer that begins with it tells its tier at its end. Clients who were
# told none take it for this one.
AUTO_TIER, DEFAULT_TIER = "auto", "default"
# Other vendors' names for the same thing, as asked for and as answered.
SERVICE_TIER_ALIASES = {"standard_only": "default", "standard": "default", "batch": "flex"}

# Fields of this protocol that are read by nobody, because no other protocol has anything of the kind.
NATIVE_FIELDS = frozenset(
    (
        "access_programs",
        "acknowledged_safety_checks",
        "allowed_callers",
        "async",
        "background_options",
        "caller",
        "context",
        "defer_loading",
        "generate_summary",
        "image",
        "include_obfuscation",
        "logprobs",
        "max_output_length",
        "mode",
        "output_schema",
        "pending_safety_checks",
        "summary",
    )
)
# Protocols whose clients have no switch for seeing the reasoning: naming an effort is all that they can do.
EFFORT_IMPLIES_SUMMARY = frozenset(("openai_chat",))
# Protocols whose file ids name files in the same vendor's store.
SAME_FILE_STORE = frozenset(("openai_chat", "openai_responses"))

CACHE_TTLS: dict[str, Literal["short", "long"]] = {"30m": "short", "12h": "long"}
CACHE_TTL_NAMES = {short: name for name, short in CACHE_TTLS.items()}
# Other vendors' names for what was written to caches of each lifetime.
CACHE_WRITE_COUNTERS: dict[str, dict[str, str]] = {
    "cache_creation": {
        "ephemeral_5m_input_tokens": "ttl_30m_tokens",
        "ephemeral_1h_input_tokens": "ttl_12h_tokens",
    }
}
# The content parts that take a mark.
MARKABLE_PARTS = frozenset(("input_text", "input_image", "input_file"))
# Marks that say no more than their ttl.
PLAIN_MARKS: tuple[JSON, ...] = (
    {"mode": "explicit"},
    *({"mode": "explicit", "ttl": ttl} for ttl in CACHE_TTLS),
)

# Items that stand for what the client's side did; all others are the assistant's, but for results.
USER_ITEMS = frozenset(("mcp_approval_response", "compaction_trigger"))
# Whoever sums up a conversation here seals the summary under this origin; it comes back with these words before it.
SUMMARY_ORIGIN = "dragoman"
SUMMARY_PREFIX = "Summary of the conversation so far:\n"
# Items that have a form in the document, so that they need no seal.
TRANSLATED_ITEMS = frozenset(
    ("message", "function_call", "function_call_output", "custom_tool_call", "custom_tool_call_output")
)
# Fields that items have in answers and must not have in requests.
RESPONSE_ONLY_FIELDS = frozenset(("created_by",))
# Results that the provider's side gives to itself.
PROVIDER_OUTPUTS = frozenset(("program_output", "tool_search_output"))

# The names of the tool that searches the web.
WEB_SEARCH_TYPES = frozenset(
    (
        "web_search",
        "web_search_2025_08_26",
        "web_search_preview",
        "web_search_preview_2025_03_11",
    )
)

STOP_REASONS: dict[str, StopReason] = {
    "max_output_tokens": StopReason.MAX_TOKENS,
    "max_messages": StopReason.MAX_TOKENS,
    "content_filter": StopReason.CONTENT_FILTER,
    "steered": StopReason.PAUSE,
}
# The reasons for which a response is incomplete; all others complete it.
STOP_REASON_NAMES: dict[StopReason, str] = {
    StopReason.MAX_TOKENS: "max_output_tokens",
    StopReason.CONTEXT_WINDOW: "max_output_tokens",
    StopReason.CONTENT_FILTER: "content_filter",
}
# Reasons after which the conversation goes on elsewhere or otherwise, though the status says no such thing.
LOSSY_STOP_REASONS = frozenset((StopReason.PAUSE, StopReason.COMPACTION))

# Codes and types of errors that say more than the status, in bodies and in streams.
KIND_BY_CODE: dict[str, ErrorKind] = {
    "authentication_error": ErrorKind.AUTHENTICATION,
    "billing_hard_limit_reached": ErrorKind.BILLING,
    "context_length_exceeded": ErrorKind.CONTEXT_LENGTH,
    "insufficient_quota": ErrorKind.BILLING,
    "invalid_api_key": ErrorKind.AUTHENTICATION,
    "invalid_prompt": ErrorKind.INVALID_REQUEST,
    "invalid_request_error": ErrorKind.INVALID_REQUEST,
    "model_not_found": ErrorKind.NOT_FOUND,
    "overloaded": ErrorKind.OVERLOADED,
    "overloaded_error": ErrorKind.OVERLOADED,
    "permission_error": ErrorKind.PERMISSION,
    "rate_limit_error": ErrorKind.RATE_LIMIT,
    "rate_limit_exceeded": ErrorKind.RATE_LIMIT,
    "request_too_large": ErrorKind.TOO_LARGE,
    "server_error": ErrorKind.SERVER,
    "server_is_overloaded": ErrorKind.OVERLOADED,
    "slow_down": ErrorKind.OVERLOADED,
    "vector_store_timeout": ErrorKind.TIMEOUT,
}
# Some servers put the type in the place of the code (DeepSeek, for all statuses): where there is one, it says more.
GENERIC_CODES = frozenset(("invalid_request_error",))

# kind -> (type, code) of the error object.
ERRORS: dict[ErrorKind, tuple[str, str | None]] = {
    ErrorKind.INVALID_REQUEST: ("invalid_request_error", None),
    ErrorKind.CONTEXT_LENGTH: ("invalid_request_error", "context_length_exceeded"),
    ErrorKind.AUTHENTICATION: ("invalid_request_error", "invalid_api_key"),
    ErrorKind.BILLING: ("insufficient_quota", "insufficient_quota"),
    ErrorKind.PERMISSION: ("permission_error", None),
    ErrorKind.NOT_FOUND: ("invalid_request_error", "model_not_found"),
    ErrorKind.METHOD: ("invalid_request_error", None),
    ErrorKind.TIMEOUT: ("server_error", None),
    ErrorKind.CONFLICT: ("conflict", None),
    ErrorKind.TOO_LARGE: ("invalid_request_error", "request_too_large"),
    ErrorKind.UNPROCESSABLE: ("invalid_request_error", None),
    ErrorKind.MEDIA_TYPE: ("invalid_request_error", None),
    ErrorKind.RATE_LIMIT: ("rate_limit_error", "rate_limit_exceeded"),
    ErrorKind.OVERLOADED: ("server_error", "overloaded"),
    ErrorKind.SERVER: ("server_error", None),
    ErrorKind.UNREACHABLE: ("server_error", None),
    ErrorKind.TRUNCATED: ("server_error", None),
    ErrorKind.UNREADABLE: ("server_error", None),
    ErrorKind.MISCONFIGURED: ("server_error", None),
    ErrorKind.CANCELLED: ("server_error", None),
}
# Kinds whose code clients act upon, so that the sender's own code must not stand in its place.
FIXED_CODES = frozenset((ErrorKind.CONTEXT_LENGTH, ErrorKind.BILLING, ErrorKind.RATE_LIMIT))

# `response.error.code` is a closed list; these are its members.
RESPONSE_ERROR_CODES = frozenset(
    (
        "server_error",
        "rate_limit_exceeded",
        "invalid_prompt",
        "data_residency_mismatch",
        "bio_policy",
        "misalignment_policy_violation",
        "vector_store_timeout",
        "invalid_image",
        "invalid_image_format",
        "invalid_base64_image",
        "invalid_image_url",
        "image_too_large",
        "image_too_small",
        "image_parse_error",
        "image_content_policy_violation",
        "invalid_image_mode",
        "image_file_too_large",
        "unsupported_image_media_type",
        "empty_image_file",
        "failed_to_download_image",
        "image_file_not_found",
    )
)
# What stands in for codes outside of the list. A prompt that is too long becomes `invalid_prompt`: the list has
# no `context_length_exceeded` (that one goes into the `error` event), and of its members only `invalid_prompt`
# makes agents give up at once instead of sending the same prompt again five times.
RESPONSE_ERROR_BY_KIND: dict[ErrorKind, str] = {
    ErrorKind.CONTEXT_LENGTH: "invalid_prompt",
    ErrorKind.INVALID_REQUEST: "invalid_prompt",
    ErrorKind.TOO_LARGE: "invalid_prompt",
    ErrorKind.UNPROCESSABLE: "invalid_prompt",
    ErrorKind.RATE_LIMIT: "rate_limit_exceeded",
    ErrorKind.BILLING: "rate_limit_exceeded",
}
DEFAULT_RESPONSE_ERROR = "server_error"

# Statuses that OpenAI's servers do not use, and what they use instead.
STATUS_REPLACEMENTS = {402: 429, 529: 503}

# --- what is read of an answer, see `_ir.shape` ---------------------------------------------------------------

_NOWHERE = "has no place in other protocols"
_TOP: dict[str, Shape] = {"token": None, "bytes": None, "logprob": None}
_TOKEN: Shape = {**_TOP, "top_logprobs": [_TOP]}
_TEXT: Shape = {"type": None, "text": None, "annotations": None, "logprobs": [_TOKEN]}
# Web pages have the first members, files the others.
ANNOTATION_SHAPE: Shape = dict.fromkeys(
    ("type", "url", "title", "start_index", "end_index", "file_id", "filename", "index", "container_id")
)
_CALL: dict[str, Shape] = {
    "type": None,
    "id": None,
    "call_id": None,
    "name": None,
    "namespace": None,
    "status": None,
    "caller": None,
    "created_by": None,
    "async": _NOWHERE,
}
# Items of other types travel whole, and so does reasoning, inside of its seal.
ITEM_SHAPE: Shape = ByType(
    {
        "message": {
            "type": None,
            "id": None,
            "role": None,
            "status": None,
            "phase": None,
            "created_by": None,
            "content": [ByType({"output_text": _TEXT, "refusal": {"type": None, "refusal": None}})],
        },
        "function_call": {**_CALL, "arguments": None},
        "custom_tool_call": {**_CALL, "input": None},
    }
)
_FILTERED = "other protocols tell only that an answer was stopped, not what was found in it"
# Of hosts beside their usage: prices, times, and how they came to the figures. Tokens and searches are in the figures.
_USAGE_BOOKKEEPING = (
    "completion_time",  # Groq, as the other times
    "context_details",  # xAI
    "cost",  # OpenRouter
    "cost_details",
    "cost_in_nano_usd",  # xAI
    "cost_in_usd_ticks",
    "is_byok",  # OpenRouter
    "num_server_side_tools_used",  # xAI
    "num_sources_used",
    "prompt_time",
    "queue_time",
    "server_side_tool_usage_details",  # xAI
    "total_time",
    "x_details",  # Qwen: the same figures once more, by billing type
)
RESPONSE_SHAPE: dict[str, Shape] = {
    # What repeats the request.
    **dict.fromkeys(
        (
            "access_programs",
            "background",
            "conversation",
            "frequency_penalty",
            "image",
            "instructions",
            "max_output_tokens",
            "max_tool_calls",
            "metadata",
            "parallel_tool_calls",
            "presence_penalty",
            "previous_response_id",
            "prompt",
            "prompt_cache_key",
            "prompt_cache_options",
            "prompt_cache_retention",
            "reasoning",
            "safety_identifier",
            "store",
            "temperature",
            "text",
            "tool_choice",
            "tools",
            "top_logprobs",
            "top_p",
            "truncation",
            "user",
        )
    ),
    # The server's own bookkeeping.
    **dict.fromkeys(
        (
            "billing",  # OpenAI: {"payer": "developer"}
            "copilot_usage",  # GitHub
            "kv_transfer_params",  # vLLM
            "native_finish_reason",  # OpenRouter: the model's own word for what the status says
            "openrouter_metadata",
            "provider",  # OpenRouter
            "request_id",
            "session_id",  # OpenRouter
            "system_fingerprint",
            "timings",  # llama.cpp
            "x_groq",
        )
    ),
    "completed_at": None,
    "content_filters": [  # Azure
        {
            "blocked": _FILTERED,
            "content_filter_offsets": None,
            "content_filter_raw": None,
            "content_filter_results": DroppedUnless(_FILTERED, frozenset(("safe",))),
            "source_type": None,
        }
    ],
    "created_at": None,
    "error": {"code": None, "message": None, "param": None, "misalignment": _NOWHERE},
    "id": None,
    "incomplete_details": {"reason": None},
    "input_transformations": _NOWHERE,
    "model": None,
    "moderation": _NOWHERE,
    "object": None,
    "output": None,  # item by item
    "output_text": None,  # the SDK's own, all texts joined
    "prompt_cache_diagnostics": _NOWHERE,
    "service_tier": None,
    "status": None,
    # Servers that made no images tell of them, too: nothing but zeros.
    "tool_usage": {
        "image_gen": "other protocols have no such counters",
        "web_search": {"num_requests": None},
    },
    "usage": Counters(
        {
            "input_tokens": None,
            "input_tokens_details": Counters(
                {
                    "cached_tokens": None,
                    "cache_write_tokens": None,
                    "cache_write_tokens_details": None,
                    # vLLM's figures of each turn, and their sum without the tools' part.
                    "cached_tokens_per_turn": None,
                    "input_tokens_per_turn": None,
                    "text_tokens": None,  # xAI, Qwen: what is left of the whole
                }
            ),
            "output_tokens": None,
            "output_tokens_details": Counters(
                {
                    "reasoning_tokens": None,
                    "output_tokens_per_turn": None,  # vLLM, as the next two
                    "tool_output_tokens": None,
                    "tool_output_tokens_per_turn": None,
                    "text_tokens": None,
                }
            ),
            "total_tokens": None,
            **dict.fromkeys(_USAGE_BOOKKEEPING),
        }
    ),
}
# Events that tell how an item gets on. What comes of it is in the finished item.
PROGRESS_EVENTS = frozenset(
    f"response.{name}"
    for name in (
        "apply_patch_call_operation_diff.delta",
        "apply_patch_call_operation_diff.done",
        "code_interpreter_call.completed",
        "code_interpreter_call.in_progress",
        "code_interpreter_call.interpreting",
        "code_interpreter_call_code.delta",
        "code_interpreter_call_code.done",
        "compaction.compacting",
        "file_search_call.completed",
        "file_search_call.in_progress",
        "file_search_call.searching",
        "image_generation_call.completed",
        "image_generation_call.generating",
        "image_generation_call.in_progress",
        "mcp_call.completed",
        "mcp_call.failed",
        "mcp_call.in_progress",
        "mcp_call_arguments.delta",
        "mcp_call_arguments.done",
        "mcp_list_tools.completed",
        "mcp_list_tools.failed",
        "mcp_list_tools.in_progress",
        "reasoning_summary_part.added",
        "reasoning_summary_part.done",
        "shell_call_command.added",
        "shell_call_command.delta",
        "shell_call_command.done",
        "shell_call_output_content.delta",
        "shell_call_output_content.done",
        "web_search_call.completed",
        "web_search_call.in_progress",
        "web_search_call.searching",
    )
) | {"keepalive"}
# Events whose content is in no finished item: the place that they stand for, and why it goes nowhere.
LOST_EVENTS: dict[str, tuple[str, str]] = {
    "response.audio.delta": ("audio", "answers hold no sound here"),
    "response.audio.done": ("audio", "answers hold no sound here"),
    "response.audio.transcript.delta": ("audio", "answers hold no sound here"),
    "response.audio.transcript.done": ("audio", "answers hold no sound here"),
    "response.image_generation_call.partial_image": (
        "partial_images",
        "pictures that are not finished have no place in other protocols",
    ),
}
# The members of the stream's events. What they say of an item or part says the finished one again.
EVENT_FIELDS = frozenset(
    (
        "annotation",
        "annotation_index",
        "arguments",
        "code",
        "content_index",
        "delta",
        "input",
        "item",
        "item_id",
        "logprobs",
        "name",
        "obfuscation",
        "output_index",
        "part",
        "refusal",
        "response",
        "sequence_number",
        "status",
        "summary_index",
        "text",
        "type",
    )
)
