"""Names, limits and shapes of the Responses protocol: settings, stop reasons, items, events. Data only."""

from __future__ import annotations

from typing import Literal

from dragoman._ir.events import StopReason
from dragoman._ir.request import Param, Role
from dragoman._ir.shape import ByType, Counters, DroppedUnless, Shape
from dragoman._wire.json import JSON
from dragoman.codec import TokenCount

NAME = "openai_responses"


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
    defaults={"input": []},
    constant={"object": "response.input_tokens"},
)

ROLES: frozenset[Role] = frozenset(("user", "assistant", "system", "developer"))

# Settings that need only another name, wire -> neutral. `include` and `text` are read by functions.
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

# Paths of the settings in a body.
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

# Values that request nothing: every other protocol behaves like this anyway, so leaving them out is no loss. `store` is
# one of them: only an explicit true requests something that others lack. Responses upstreams get them as they came.
NO_OP_VALUES: dict[str, JSON] = {
    "background": False,
    "metadata": {},
    "store": False,
    "top_logprobs": 0,
    "truncation": "disabled",
}

# `include` entries with a meaning in the document: encrypted reasoning is always kept, and log probabilities are the
# setting `logprobs`.
INCLUDE_REASONING = "reasoning.encrypted_content"
INCLUDE_LOGPROBS = "message.output_text.logprobs"
# Entries that request what every response has anyway if it exists.
IMPLIED_INCLUDES = frozenset((INCLUDE_REASONING, INCLUDE_LOGPROBS, "web_search_call.action.sources"))

# Settings of other protocols that are the same here, neutral -> wire, and those of this protocol.
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
# Items that may have no message in the document: tools, settings, and repetitions of another item.
ITEMS_WITHOUT_MESSAGE = frozenset(
    ("additional_tools", "compaction_trigger", "configuration_update", "web_search_call")
)
# Settings that several fields of the document hold, or that an input item may have changed: copied from the body.
VERBATIM_FIELDS = ("reasoning", "text")

# "Invalid 'max_output_tokens': integer below minimum value. Expected a value >= 16, but got 10 instead."
# (vectorize-io/hindsight#58, read 2026-11-22)
MIN_OUTPUT_TOKENS = 16

# In characters. 128 is the limit of `safety_identifier` (openai-python 3.54.0), which was 64 in older versions. None is
# documented for `user`.
MAX_USER = 64
MAX_SAFETY_IDENTIFIER = 128

SERVICE_TIERS = frozenset(("auto", "default", "flex", "scale", "priority", "fast", "ultrafast"))
# "auto" leaves the choice to the server, and the response names its tier at its end. A response without a tier had
# "default".
AUTO_TIER, DEFAULT_TIER = "auto", "default"
# Other vendors' names of the same tiers, in requests and in responses.
SERVICE_TIER_ALIASES = {"standard_only": "default", "standard": "default", "batch": "flex"}

# Fields of this protocol that are not read, because no other protocol has a counterpart.
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
# Protocols without a setting for visible reasoning: there an effort requests it too.
EFFORT_IMPLIES_SUMMARY = frozenset(("openai_chat",))
# Protocols whose file ids refer to the same vendor's store.
SAME_FILE_STORE = frozenset(("openai_chat", "openai_responses"))

CACHE_TTLS: dict[str, Literal["short", "long"]] = {"30m": "short", "12h": "long"}
CACHE_TTL_NAMES = {short: name for name, short in CACHE_TTLS.items()}
# Other vendors' counters of tokens written to caches of each lifetime, and ours.
CACHE_WRITE_COUNTERS: dict[str, dict[str, str]] = {
    "cache_creation": {
        "ephemeral_5m_input_tokens": "ttl_30m_tokens",
        "ephemeral_1h_input_tokens": "ttl_12h_tokens",
    }
}
# "Each request can write up to four breakpoints." (openai-python 3.54.0, `prompt_cache_options`)
MAX_CACHE_MARKS = 4
# Content parts that can have a mark.
MARKABLE_PARTS = frozenset(("input_text", "input_image", "input_file"))
# Marks with no member beside their ttl.
PLAIN_MARKS: tuple[JSON, ...] = (
    {"mode": "explicit"},
    *({"mode": "explicit", "ttl": ttl} for ttl in CACHE_TTLS),
)

# Items that belong to the user's turn. All others are the assistant's, except for results.
USER_ITEMS = frozenset(("mcp_approval_response", "compaction_trigger"))
CALL_ITEMS = frozenset(("function_call", "custom_tool_call"))
CALL_OUTPUT_ITEMS = frozenset(("function_call_output", "custom_tool_call_output"))
# Items that have a form in the document, so that they never travel in a signature.
TRANSLATED_ITEMS = CALL_ITEMS | CALL_OUTPUT_ITEMS | {"message"}
# Fields of items in responses that the types of requests do not have (openai-python 3.52.0).
RESPONSE_ONLY_FIELDS = frozenset(("created_by",))
# Results of what the provider ran itself.
PROVIDER_OUTPUTS = frozenset(("program_output", "tool_search_output"))

# Names of the web search tool.
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
# Reasons for which a response is incomplete (openai-python 3.54.0, `IncompleteDetails`). All others complete it.
STOP_REASON_NAMES: dict[StopReason, str] = {
    StopReason.MAX_TOKENS: "max_output_tokens",
    StopReason.CONTEXT_WINDOW: "max_output_tokens",
    StopReason.CONTENT_FILTER: "content_filter",
}
# Reasons that mean more than the status `completed` by which they are written.
LOSSY_STOP_REASONS = frozenset((StopReason.PAUSE, StopReason.COMPACTION))

# The fields of a response that are read, see `_ir.shape`.

_NO_FIELD = "other protocols have no field for it"
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
    "async": _NO_FIELD,
}
# Items of other types travel whole, and so does reasoning, in its signature.
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
_FILTERED = "other protocols report only that a response was stopped, not what was found in it"
# What hosts add to their usage, as recorded: prices, times and details. Tokens and searches are in the counters.
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
    # Echo of the request.
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
            "native_finish_reason",  # OpenRouter: the stop reason as the model's vendor names it
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
    "error": {"code": None, "message": None, "param": None, "misalignment": _NO_FIELD},
    "id": None,
    "incomplete_details": {"reason": None},
    "input_transformations": _NO_FIELD,
    "model": None,
    "moderation": _NO_FIELD,
    "object": None,
    "output": None,  # item by item
    "output_text": None,  # the SDK's own, all texts joined
    "prompt_cache_diagnostics": _NO_FIELD,
    "service_tier": None,
    "status": None,
    # Zeros if no images were made.
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
                    # vLLM: counters of each turn, and their sum without those of tools.
                    "cached_tokens_per_turn": None,
                    "input_tokens_per_turn": None,
                    "text_tokens": None,  # xAI, Qwen: the remainder of the total
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
# Events on the progress of an item. Its result is in the finished item.
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
# Events whose content is in no finished item: the path under which they are recorded, and the detail of the loss.
LOST_EVENTS: dict[str, tuple[str, str]] = {
    "response.audio.delta": ("audio", "audio has no counterpart here"),
    "response.audio.done": ("audio", "audio has no counterpart here"),
    "response.audio.transcript.delta": ("audio", "audio has no counterpart here"),
    "response.audio.transcript.done": ("audio", "audio has no counterpart here"),
    "response.image_generation_call.partial_image": (
        "partial_images",
        "other protocols have no field for unfinished images",
    ),
}
# The members of the stream's events. Those about an item or part are repeated in the finished one.
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
