"""Gemini: POST /v1beta/models/{model}:generateContent, :streamGenerateContent and :countTokens.

The model is in the path, and the path says whether the response is a stream: of server-sent events, or of the elements
of one JSON array. Calls need no ids, results are matched with them in several ways, and parts have signatures.

It has some 2,440 lines of code where 2,200 were planned (`make lines`). A sixth of them is for what no other protocol
has: signatures on parts, calls without ids, arguments in pieces, places in bytes, schemas in two dialects, members in
two spellings. One walk over schemas for all protocols would be no shorter than those that there are. The
shortcuts for usual frames, contents and parts, some 50 lines, are what keeps its pairs near the others in `make bench`.
"""

from __future__ import annotations

import re

from dragoman._ir.media_types import WEB
from dragoman._ir.wrapped_signatures import LIST_MARKER
from dragoman.codec import ModelList, ToolLimits, UpstreamSpec
from dragoman.protocols.gemini.capabilities import GeminiCapabilities
from dragoman.protocols.gemini.errors import is_native_error, read_error, write_error
from dragoman.protocols.gemini.observer import GeminiObserver
from dragoman.protocols.gemini.request_in import read_request
from dragoman.protocols.gemini.request_out import write_request
from dragoman.protocols.gemini.response_in import GeminiReader, read_whole
from dragoman.protocols.gemini.response_out import GeminiWriter, write_whole
from dragoman.protocols.gemini.shapes import SETTING_PATHS
from dragoman.protocols.gemini.signatures import SIGNATURE_PLACES
from dragoman.protocols.gemini.tables import ENDPOINTS, FORWARDED_HEADERS, MEDIA_TYPES, NAME, TOKEN_COUNT

__all__ = ["SPEC"]

SPEC = UpstreamSpec(
    name=NAME,
    reference="https://ai.google.dev/api/generate-content",
    base_path="",
    path="/v1beta/models/{model}:generateContent",
    stream_path="/v1beta/models/{model}:streamGenerateContent?alt=sse",
    endpoints=ENDPOINTS,
    sequential=True,
    choices=True,
    # "Invalid function name. Must start with a letter or an underscore. Must be alphanumeric (a-z, A-Z, 0-9),
    # underscores (_), dots (.), colons (:), or dashes (-), with a maximum length of 64." Gemini 3 has 128.
    tool_limits=ToolLimits(
        max_name=64,
        letter_first=True,
        max_call_id=None,
        custom=False,
        mcp_choice=False,
        hosted_choice=False,
        plain_schemas=False,
    ),
    settings=frozenset(SETTING_PATHS),
    file_store="google",
    read_request=read_request,
    capabilities=GeminiCapabilities,
    write_request=write_request,
    stream_reader=GeminiReader,
    stream_writer=GeminiWriter,
    read_whole=read_whole,
    write_whole=write_whole,
    read_error=read_error,
    is_native_error=is_native_error,
    write_error=write_error,
    observer=GeminiObserver,
    end_markers=(),
    # What the vendor's servers keep between requests.
    server_state_params={
        "cached_content": "cached_content_unsupported",
        "continuation_token": "continuation_token_unsupported",
    },
    output_member="candidates",
    feedback_member="promptFeedback",
    # "up to 5" (google-genai 3.4.0, GenerateContentConfig.stop_sequences)
    max_stop_sequences=5,
    media=frozenset(MEDIA_TYPES),
    url_media=dict.fromkeys(MEDIA_TYPES, (*WEB, "gs://")),
    file_id_media=frozenset(MEDIA_TYPES),
    text_roles=frozenset({"system", "developer"}),
    wrapped_marker=LIST_MARKER,
    signature_places=SIGNATURE_PLACES,
    # "Unknown name "id" at 'contents[1].parts[0].function_call': Cannot find field." (kimi-cli#1582, read 2026-11-22)
    refusals={"function_ids": re.compile("Unknown name \"id\" at '[^']*function_(?:call|response)'")},
    content_members=frozenset({"contents", "systemInstruction", "tools", "cachedContent"}),
    shows_searches=True,
    needs_model=True,
    token_count=TOKEN_COUNT,
    auth_header="x-goog-api-key",
    auth_query="key",
    path_prefixes=(
        *("/v1beta", "/v1alpha", "/v1beta1"),
        *("/v1/publishers/google", "/v1beta1/publishers/google"),  # Vertex AI
    ),
    client_headers=frozenset({"x-goog-api-key", "x-goog-api-client"}),
    forwarded_headers=FORWARDED_HEADERS,
    # "The maximum value is 1000" (ai.google.dev/api/models, read 2026-11-28).
    model_list=ModelList("/v1beta/models", {"pageSize": "1000"}, "pageToken", "models/"),
    model_list_form="google",
)
