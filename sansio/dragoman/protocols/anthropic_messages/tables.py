"""Tables of the protocol: names, and mappings between wire and neutral values.

Both directions of a mapping stand side by side. Tables of errors are in `errors`, the members of objects in `shapes`.
"""

from __future__ import annotations

from typing import Literal

from dragoman._ir.events import BlockKind, StopReason
from dragoman._ir.request import Param
from dragoman._wire.json import JSON
from dragoman.codec import Endpoint, TokenCount

NAME = "anthropic_messages"

PING = b'event: ping\ndata: {"type":"ping"}\n\n'

# Headers.

# The header, and its value for a request without it: clients named no version before there were two.
VERSION_HEADER = ("anthropic-version", "2023-06-01")
BETA_HEADER = "anthropic-beta"
FORWARDED_HEADERS = frozenset(
    {BETA_HEADER, VERSION_HEADER[0], "anthropic-user-profile-id", "anthropic-workspace-id"}
)

# Counting tokens.

# The fields of anthropic 2.12.0, types/beta/message_count_tokens_params.py, that the writer writes.
TOKEN_COUNT = TokenCount(
    endpoints=(Endpoint("/v1/messages/count_tokens"),),
    path="/v1/messages/count_tokens",
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
    # So large that no budget has to be lowered to fit, which would be recorded as a loss.
    defaults={"max_tokens": 128_000},
)

# Tool choice.

# There is no list of allowed tools, see ToolLimits.
TOOL_CHOICES: dict[str, Literal["auto", "none", "required", "named"]] = {
    "auto": "auto",
    "any": "required",
    "none": "none",
    "tool": "named",
}
TOOL_CHOICE_NAMES: dict[str, str] = {mode: name for name, mode in TOOL_CHOICES.items()}

# Stop reasons. For clients of other protocols: STOP_REASON_NAMES in their `tables`; `stop_details.explanation` is
# Stopped.explanation.

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
# Of several names of a reason the first one. Calls or a refusal in the response replace END: see `write_stop`.
STOP_REASON_NAMES: dict[StopReason, str] = {reason: name for name, reason in reversed(STOP_REASONS.items())}

# Blocks.

# Start of the line that Claude Code puts into the system text for its provider.
BILLING_HEADER = "x-anthropic-billing-header:"

# Blocks besides tool_use whose input is streamed as JSON text.
STREAMED_INPUT = frozenset({"server_tool_use", "mcp_tool_use"})

# The JSON of a delta of each kind of block, up to its text.
DELTA_HEADS: dict[BlockKind, str] = {
    BlockKind.TEXT: '{"type":"text_delta","text":',
    BlockKind.REFUSAL: '{"type":"text_delta","text":',
    BlockKind.REASONING: '{"type":"thinking_delta","thinking":',
    BlockKind.TOOL_CALL: '{"type":"input_json_delta","partial_json":',
}

# Type of a source -> the field with its content, and the neutral name of the type.
SOURCE_TYPES: dict[str, tuple[str, Literal["base64", "text", "url", "file_id"]]] = {
    "base64": ("data", "base64"),
    "text": ("data", "text"),
    "url": ("url", "url"),
    "file": ("file_id", "file_id"),
}

# anthropic 2.12.0, types/base64_image_source_param.py
IMAGE_TYPES = ("image/jpeg", "image/png", "image/gif", "image/webp")

# What is said of a mark on reasoning: "thinking.cache_control: Extra inputs are not permitted" (inspect_ai#3967, read
# 2026-11-22).
MARKED = "cache_control cannot be set on thinking blocks"
CACHE_TTLS: dict[str, Literal["short", "long"]] = {"5m": "short", "1h": "long"}
CACHE_TTL_NAMES: dict[str, str] = {ttl: name for name, ttl in CACHE_TTLS.items()}
# The same for the mark at the top level, which is `prompt_cache_options` in the neutral request.
CACHE_OPTION_TTLS: dict[str, str] = {"short": "30m", "long": "12h"}
CACHE_OPTION_TTL_NAMES: dict[str, str] = {
    option: CACHE_TTL_NAMES[ttl] for ttl, option in CACHE_OPTION_TTLS.items()
}

# Settings.

SAMPLING_PARAMS: tuple[Param, ...] = ("temperature", "top_p", "top_k")

# Values that request what happens anyway: dropping them loses nothing.
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

# Values of `include` that request what every response has.
IMPLIED_INCLUDES = frozenset({"reasoning.encrypted_content", "web_search_call.action.sources"})

# Prefix of the ids of search blocks that were made from another protocol's search. When they come back they are
# dropped, because the search itself comes back in the wrapped signature next to them.
SEARCH_ID_PREFIX = "srvtoolu_drg_"

# Replaces the vendor's ciphertext. It is not empty, because clients check that.
CONTENT_PLACEHOLDER = "shown"

REQUEST_TIERS: dict[str, str] = {"standard_only": "default"}
REQUEST_TIER_NAMES: dict[str, str] = {"auto": "auto", "default": "standard_only", "priority": "auto"}
# Tier of a response -> its neutral name.
RESPONSE_TIERS: dict[str, str] = {"standard": "default", "priority": "priority", "batch": "batch"}
# The tier as which the speed "fast" is reported.
FAST_TIER = "priority"
DEFAULT_TIER = "default"
# "auto" is the tier that was requested: a response that reports it does not report its tier.
RESPONSE_TIER_NAMES: dict[str, str | None] = {
    "auto": None,
    **{word: tier for tier, word in RESPONSE_TIERS.items()},
}

# Context management.

# The edit that summarizes the conversation, and its trigger: "Defaults to 150000 input tokens." (anthropic 2.12.0,
# types/beta/beta_compact_20260112_edit_param.py)
COMPACT_EDIT = "compact_20260112"
DEFAULT_COMPACT_THRESHOLD = 150_000

# An edit that requests what happens anyway.
KEEP_THINKING_EDIT: JSON = {"type": "clear_thinking_20251015", "keep": "all"}

# Reasoning.

# Values of `output_config.effort` (anthropic 2.12.0, types/output_config_param.py).
NATIVE_EFFORTS = ("low", "medium", "high", "xhigh", "max")

# The lowest top_p with thinking on (platform.claude.com/docs on thinking, read 2026-11-22).
MIN_TOP_P = 0.95
