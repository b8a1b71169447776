"""Tables of the protocol: names, and mappings between wire and neutral values.

Values are those of google-genai 3.4.0 (types.py) unless something else is said. Tables of errors are in `errors`, the
members of objects in `shapes`.
"""

from __future__ import annotations

from base64 import b64encode
from functools import partial
from typing import Literal

from dragoman._ir.events import StopReason
from dragoman._ir.request import Param
from dragoman._wire.json import JSON
from dragoman.codec import JSON_ARRAY, Endpoint, TokenCount

NAME = "gemini"

FORWARDED_HEADERS = frozenset({"x-goog-api-client", "x-server-timeout"})

# The versions under which clients find the same API: google-genai and @google/genai from 3.0 on send v1, older ones and
# Gemini CLI v1beta (seen on 2026-11-23), for Vertex AI v1beta1.
_VERSIONS = ("v1beta", "v1", "v1alpha", "v1beta1")
# What stands before a model below them: a version again, if the base URL has one, and `models/`. Clients of Vertex AI
# name the project, but not with an API key, and make publishers/local/models/qwen3 of local/qwen3 (google-genai 3.6.1).
# The AI SDK sends a name with a slash without `models/` (@ai-sdk/google 3.0.141).
_MODEL_PREFIX = (
    "(?:v1[a-z0-9]*/)?(?:models/)*"
    "(?:(?:projects/[^/]+/locations/[^/]+/)?publishers/(?:google/|([^/]+/))models/)?"
)
_endpoint = partial(Endpoint, model_prefix=_MODEL_PREFIX)
# Where a response is JSON. "Supported values are json (default), media, proto, sse" (docs.cloud.google.com/apis/docs/
# system-parameters, read 2026-11-29).
_json_endpoint = partial(_endpoint, query="alt=json", query_optional=True)

# "data: {}" is the only heartbeat that google-genai, Gemini CLI and LangChain survive: a comment ends their stream with
# an error (google-genai 3.4.0, @google/genai 1.30 and langchain-google-genai 4.4.2, tried on 2026-11-23).
HEARTBEAT = b"data: {}\r\n\r\n"
_BLANKS = b"\r\n"  # which may stand anywhere in an array

ENDPOINTS = tuple(
    each
    for path in (f"/{version}/{{model}}" for version in _VERSIONS)
    for each in (
        _json_endpoint(f"{path}:generateContent", streams="never"),
        _endpoint(f"{path}:streamGenerateContent", HEARTBEAT, "always", query="alt=sse"),
        _json_endpoint(f"{path}:streamGenerateContent", _BLANKS, "always", JSON_ARRAY, "application/json"),
    )
)
# A count takes `contents` only, or a whole request in one member (google-genai 3.4.0, CountTokensConfig).
TOKEN_COUNT = TokenCount(
    endpoints=tuple(_json_endpoint(f"/{version}/{{model}}:countTokens") for version in _VERSIONS),
    path="/v1beta/models/{model}:countTokens",
    fields=frozenset(("contents", "systemInstruction", "tools", "toolConfig", "generationConfig")),
    member="totalTokens",
    wrapper="generateContentRequest",
)

# What a part has: the member that says so, and its kind. All others are side data of one of these.
DATA_MEMBERS = (
    *("functionCall", "functionResponse", "inlineData", "fileData", "executableCode", "codeExecutionResult"),
    *("toolCall", "toolResponse", "audioTranscription", "text"),
)
SIGNATURE = "thoughtSignature"
# The member of a signature that is not a whole part: the kind of part that it belongs to, the next call or the text
# before.
SIGNED = "of"

# Placeholders for the signature of a call that another model made (ai.google.dev/gemini-api/docs/thought-signatures,
# read 2026-11-22): Gemini CLI 0.61.0 sends the first as it is, pydantic-ai its base64.
_PLACEHOLDERS = ("skip_thought_signature_validator", "context_engineering_is_the_way_to_go")
DUMMY_SIGNATURE, _OTHER_DUMMY = (b64encode(text.encode("ascii")).decode("ascii") for text in _PLACEHOLDERS)
PLACEHOLDERS = frozenset((*_PLACEHOLDERS, DUMMY_SIGNATURE, DUMMY_SIGNATURE.rstrip("="), _OTHER_DUMMY))

ROLES: dict[str, Literal["user", "assistant", "system"]] = {
    "user": "user",
    "function": "user",  # the older role of results
    "tool": "user",
    "model": "assistant",
    "assistant": "assistant",
    "system": "system",
}

# Tool choice.

MODES: dict[str, Literal["auto", "required", "none"]] = {
    "MODE_UNSPECIFIED": "auto",
    "AUTO": "auto",
    "VALIDATED": "auto",
    "ANY": "required",
    "NONE": "none",
}
MODE_NAMES: dict[str, str] = {"auto": "AUTO", "required": "ANY", "none": "NONE"}

# Ends. "STOP" also ends a response with calls.

STOP_REASONS: dict[str, StopReason] = {
    "STOP": StopReason.END,
    "MAX_TOKENS": StopReason.MAX_TOKENS,
    "CONTINUATION": StopReason.MAX_TOKENS,
    "UNEXPECTED_TOOL_CALL": StopReason.TOOL_USE,  # an error if the called tool was not declared
    **dict.fromkeys(("SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT"), StopReason.CONTENT_FILTER),
    **dict.fromkeys(("SPII", "MODEL_ARMOR", "ESCALATION", "IMAGE_SAFETY"), StopReason.CONTENT_FILTER),
    **dict.fromkeys(("IMAGE_PROHIBITED_CONTENT", "IMAGE_RECITATION"), StopReason.CONTENT_FILTER),
}
# Their numbers, and those of `blockReason`: some upstreams answer them (`enum-encoding=int`; googleapis,
# google/cloud/aiplatform/v1beta1/content.proto and prediction_service.proto).
FINISH_REASONS = (
    *("FINISH_REASON_UNSPECIFIED", "STOP", "MAX_TOKENS", "SAFETY", "RECITATION", "OTHER", "BLOCKLIST"),
    *("PROHIBITED_CONTENT", "SPII", "MALFORMED_FUNCTION_CALL"),
)
BLOCK_REASONS = ("", "SAFETY", "OTHER", "BLOCKLIST", "PROHIBITED_CONTENT")
# All others are "STOP". A refusal replaces END, a malformed call all of them: see `CandidateWriter.end`.
STOP_REASON_NAMES: dict[StopReason, str] = {
    StopReason.MAX_TOKENS: "MAX_TOKENS",
    StopReason.CONTEXT_WINDOW: "MAX_TOKENS",
    StopReason.CONTENT_FILTER: "SAFETY",
}
# Stop reasons that "STOP" does not express fully.
LOSSY_STOP_REASONS = frozenset({StopReason.PAUSE, StopReason.COMPACTION})
# What the model wrote cannot be used: never an empty success (CLIProxyAPI#1100, read 2026-11-22).
ERROR_FINISH_REASONS = frozenset(
    {*("MALFORMED_FUNCTION_CALL", "TOO_MANY_TOOL_CALLS", "MISSING_THOUGHT_SIGNATURE"), "MALFORMED_RESPONSE"}
)

# Reasoning.

# `thinkingLevel` has these efforts in capitals.
LEVELS = ("minimal", "low", "medium", "high", "xhigh")
# Those that every model with levels has (ai.google.dev/gemini-api/docs/thinking, read 2026-11-22).
LEVELS_OF_ALL = ("low", "medium", "high")
# Effort -> budget of models that have budgets: the steps of the vendor's own layer for Chat Completions.
EFFORT_BUDGETS = {"minimal": 1024, "low": 1024, "medium": 8192, "high": 24576, "xhigh": 24576, "max": 24576}
# The least budget of gemini-2.5-pro, whose reasoning cannot be disabled.
LEAST_BUDGET = 128
# A budget that the model chooses.
DYNAMIC_BUDGET = -1

# Settings.

MIME_TYPE_JSON = "application/json"
MODALITIES = ("TEXT", "IMAGE", "AUDIO", "VIDEO")
SERVICE_TIERS: dict[str, str] = {"standard": "default", "flex": "flex", "priority": "priority"}
SERVICE_TIER_NAMES: dict[str, str] = {tier: name for name, tier in SERVICE_TIERS.items()}
DETAILS: dict[str, str] = {"MEDIA_RESOLUTION_LOW": "low", "MEDIA_RESOLUTION_HIGH": "high"}
DETAIL_NAMES: dict[str, str] = {detail: name for name, detail in DETAILS.items()}

# Values that request what happens anyway: dropping them loses nothing.
NO_OP_VALUES: dict[Param, tuple[JSON, ...]] = {
    "background": (False,),
    "frequency_penalty": (0,),
    "logit_bias": ({},),
    "metadata": ({},),
    "modalities": (["text"],),
    "presence_penalty": (0,),
    "store": (False,),  # there: for later requests; here: whether the vendor logs the request
    "truncation": ("disabled",),
    "verbosity": ("medium",),
}
# Values of `include` that request what every response has.
IMPLIED_INCLUDES = frozenset({"reasoning.encrypted_content", "web_search_call.action.sources"})
INCLUDE_LOGPROBS = "message.output_text.logprobs"

# Media types, which the API requires, of data that say none.
MEDIA_TYPES = {
    "image": "image/png",
    "file": "application/octet-stream",
    "audio": "audio/wav",
    "video": "video/mp4",
}
