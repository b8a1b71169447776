"""Names and limits of the Responses protocol: settings, stop reasons, items, events. Data only."""

from __future__ import annotations

import re
from typing import Literal

from dragoman._ir.events import StopReason
from dragoman._ir.request import Param, Role
from dragoman._wire.json import JSON
from dragoman.codec import Endpoint, TokenCount
from dragoman.protocols._openai.settings import CACHE_TTLS, INCLUDE_LOGPROBS, INCLUDE_REASONING, SERVICE_TIERS

NAME = "openai_responses"
# What entries of the ledger call it.
TITLE = "Responses"


# What servers say about a type of tool that they do not have, such as Codex's: LM Studio "tools.6.type: Invalid
# discriminator value. Expected 'function' | 'mcp'" (lmstudio-bug-tracker#1383, #1810), vLLM "tool type namespace not
# supported" or Pydantic's words (vllm#49493, #42475), llama.cpp "'type' of tool must be 'function'" (#20156), others
# "tools[8]: unknown discriminator value: custom" (codex-router#450), "tools[5].type: unknown variant `namespace`"
# (private-ai-gateway#172), "unknown tool type" (coder#28656, all read 2026-12-01).
REFUSALS = {
    "custom_tools": re.compile(
        r"tools[.\[]\d+\]?(?:\.type: invalid|(?:\.type)?: unknown (?:discriminator|variant))"
        r"|(?:unsupported|unknown) tool type|tool type \S+ (?:is )?not supported|type['\"`]? of tool must be"
        r"|'tools', \d+, [^}]{1,200}'input': '(?:namespace|custom)'",
        re.IGNORECASE,
    )
}

FORWARDED_HEADERS = frozenset({"openai-beta", "x-codex-beta-features"})

TOKEN_COUNT = TokenCount(
    endpoints=(Endpoint("/v1/responses/input_tokens"),),
    path="/responses/input_tokens",
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

# Values that request nothing: every other protocol behaves like this anyway, so leaving them out is no loss. `store` is
# one of them: only an explicit true requests something that others lack. Responses upstreams get them as they came.
NO_OP_VALUES: dict[Param, JSON] = {
    "background": False,
    "metadata": {},
    "store": False,
    "top_logprobs": 0,
    "truncation": "disabled",
}

# Entries of `include` that request what every response has anyway if it exists. Log probabilities are the setting
# `logprobs`.
IMPLIED_INCLUDES = frozenset((INCLUDE_REASONING, INCLUDE_LOGPROBS, "web_search_call.action.sources"))

# Prefix of the ids of searches that were made from another protocol's. They come back to be dropped, because the search
# itself comes back in a wrapped signature, if its vendor needs it.
SEARCH_ID_PREFIX = "ws_drg"

# The member of `reasoning` for summaries, and its older name (openai-python 3.52.0).
SUMMARY_NAMES = ("summary", "generate_summary")

# "Invalid 'max_output_tokens': integer below minimum value. Expected a value >= 16, but got 10 instead."
# (vectorize-io/hindsight#58, read 2026-11-22)
MIN_OUTPUT_TOKENS = 16

TIERS = SERVICE_TIERS | {"ultrafast"}
# "auto" leaves the choice to the server, and the response names its tier at its end. A response without a tier had
# "default".
AUTO_TIER, DEFAULT_TIER = "auto", "default"

# Protocols without a setting for visible reasoning: there an effort requests it too.
EFFORT_IMPLIES_SUMMARY = frozenset(("openai_chat",))

# The lifetime that a ttl means.
CACHE_LIFETIMES: dict[str, Literal["short", "long"]] = {ttl: lifetime for lifetime, ttl in CACHE_TTLS.items()}
# Other vendors' counters of tokens written to caches of each lifetime, and ours.
CACHE_WRITE_COUNTERS: dict[str, dict[str, str]] = {
    "cache_creation": {
        "ephemeral_5m_input_tokens": "ttl_30m_tokens",
        "ephemeral_1h_input_tokens": "ttl_12h_tokens",
    }
}

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

# Events on the progress of an item, by its kind. Its result is in the finished item.
_PROGRESS = {
    "apply_patch_call_operation_diff": ("delta", "done"),
    "code_interpreter_call": ("completed", "in_progress", "interpreting"),
    "code_interpreter_call_code": ("delta", "done"),
    "compaction": ("compacting",),
    "file_search_call": ("completed", "in_progress", "searching"),
    "image_generation_call": ("completed", "generating", "in_progress"),
    "mcp_call": ("completed", "failed", "in_progress"),
    "mcp_call_arguments": ("delta", "done"),
    "mcp_list_tools": ("completed", "failed", "in_progress"),
    "reasoning_summary_part": ("added", "done"),
    "shell_call_command": ("added", "delta", "done"),
    "shell_call_output_content": ("delta", "done"),
    "web_search_call": ("completed", "in_progress", "searching"),
}
PROGRESS_EVENTS = frozenset(
    ["keepalive", *[f"response.{item}.{step}" for item, steps in _PROGRESS.items() for step in steps]]
)
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
