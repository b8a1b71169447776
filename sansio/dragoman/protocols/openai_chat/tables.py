"""The data of Chat Completions, official and of compatible servers: limits, names and stop reasons.

Names in comments are of hosts and servers in whose recorded responses we have seen a member or value (November 2026).
"""

from __future__ import annotations

from typing import Final, Literal

from dragoman._ir.events import StopReason
from dragoman._ir.request import Param
from dragoman._wire.errors import ErrorKind
from dragoman._wire.json import JSONObject
from dragoman.protocols._openai.settings import CACHE_TTLS, INCLUDE_LOGPROBS, INCLUDE_REASONING

NAME: Final = "openai_chat"
# What entries of the ledger call it.
TITLE: Final = "Chat Completions"

FORWARDED_HEADERS: Final = frozenset({"openai-beta"})

# "Up to 4 sequences where the API will stop generating further tokens" (openai-python 3.54.0, `stop`).
MAX_STOPS = 4

# Items of `include` (Responses) that need no setting: encrypted reasoning is part of the conversation.
IMPLIED_INCLUDES = frozenset({INCLUDE_LOGPROBS, INCLUDE_REASONING})

# Settings for servers that store conversations: to leave them out would change the conversation.
REJECTED_PARAMS: tuple[Param, ...] = ("previous_response_id", "conversation", "prompt", "background")

# Where compatible servers put reasoning, in the order in which its text is looked for, because many send the same text
# under two names: as one text (DeepSeek, xAI, Z.ai, Qwen, llama.cpp; OpenRouter, Groq, Ollama, vLLM; GitHub Copilot),
# and as a list of entries (OpenRouter, Vercel; LiteLLM).
REASONING_TEXTS = ("reasoning_content", "reasoning", "reasoning_text")
REASONING_ENTRIES = ("reasoning_details", "thinking_blocks")
# Copilot signs its text in another member, without which it refuses the calls of Gemini 3 (anomalyco/opencode#4468,
# read 2026-11-30).
REASONING_SIGNATURE = "reasoning_opaque"
REASONING_FIELDS = (*REASONING_TEXTS, *REASONING_ENTRIES, REASONING_SIGNATURE)
# The setting for a web search, and the kind of the hosted tool that it is read as.
WEB_SEARCH_OPTIONS = "web_search_options"

# The official cache mark and the one for Claude models -> its members besides the ttl, and its lifetimes (openai-python
# 3.54.0, anthropic 2.12.0).
CACHE_MARKS: dict[str, tuple[JSONObject, dict[Literal["short", "long"], str]]] = {
    "prompt_cache_breakpoint": ({"mode": "explicit"}, CACHE_TTLS),
    "cache_control": ({"type": "ephemeral"}, {"short": "5m", "long": "1h"}),
}

# Capabilities.cache_marks -> the member of a part.
CACHE_MARK_NAMES = {"breakpoint": "prompt_cache_breakpoint", "cache_control": "cache_control"}

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

# Whether it is END or TOOL_USE depends on the calls in the response alone: see `finish_reason` in response_content_out.
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
# LiteLLM's copy of what its provider's response had besides the official fields.
PROVIDER_FIELDS = "provider_specific_fields"
# Google's placeholder for the signature of a call that another model made (continue#8865, read 2026-11-22).
DUMMY_THOUGHT_SIGNATURE: JSONObject = {
    "extra_content": {"google": {"thought_signature": "skip_thought_signature_validator"}}
}
# The member of a signature that holds unknown members of calls: call id -> members.
CALL_EXTRAS = "tool_calls_extra"
# Members that are content (audio, images). No other protocol has a form for them, and they are too large to be sent
# back and forth in signatures.
OPAQUE_FIELDS = ("audio", "images")
# Groq's list of the uses of its built-in tools.
EXECUTED_TOOLS = "executed_tools"

# The format name of our entries in reasoning_details.
SIGNATURE_FORMAT = "dragoman-v1"

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

# Types of sounds -> their names here, which are "wav" and "mp3" (openai-python 3.54.0).
AUDIO_FORMATS = {"mpeg": "mp3", "wave": "wav", "x-wav": "wav"}
