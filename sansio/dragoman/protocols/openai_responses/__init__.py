"""OpenAI's Responses protocol: POST /v1/responses.

It is the largest protocol: requests have some twenty types of items, each tool that clients run has types for its call
and its result, and a stream announces, fills and repeats parts, items and the response.
"""

from __future__ import annotations

from dragoman._wire.sse import encode_comment
from dragoman.codec import Endpoint, ModelList, RateLimitHeaders, ToolLimits, UpstreamSpec
from dragoman.protocols._openai.errors import is_native_error, read_error, write_error
from dragoman.protocols._openai.settings import FILE_STORE, MAX_CACHE_MARKS
from dragoman.protocols.openai_responses.capabilities import ResponsesCapabilities
from dragoman.protocols.openai_responses.events import StoredEvents
from dragoman.protocols.openai_responses.observer import END_MARKERS, ResponsesObserver
from dragoman.protocols.openai_responses.request_in import read_request
from dragoman.protocols.openai_responses.request_out import SIGNATURE_PLACES, write_request
from dragoman.protocols.openai_responses.response_content_out import ECHOED_MEMBERS
from dragoman.protocols.openai_responses.response_in import ResponsesReader, read_whole
from dragoman.protocols.openai_responses.response_out import ResponsesWriter, write_whole
from dragoman.protocols.openai_responses.shapes import SETTING_PATHS
from dragoman.protocols.openai_responses.tables import FORWARDED_HEADERS, NAME, REFUSALS, TOKEN_COUNT
from dragoman.protocols.openai_responses.websocket import websocket_at

SPEC = UpstreamSpec(
    name=NAME,
    reference="https://platform.openai.com/docs/api-reference/responses",
    path="/responses",
    endpoints=(Endpoint("/v1/responses", heartbeat=encode_comment(b"keepalive")),),
    sequential=True,
    choices=False,
    tool_limits=ToolLimits(max_name=64, max_call_id=64, custom_by_default=True, namespaces=True),
    settings=frozenset(SETTING_PATHS),
    message_members=frozenset({"phase"}),
    file_store=FILE_STORE,
    read_request=read_request,
    capabilities=ResponsesCapabilities,
    write_request=write_request,
    stream_reader=ResponsesReader,
    stream_writer=ResponsesWriter,
    read_whole=read_whole,
    write_whole=write_whole,
    read_error=read_error,
    is_native_error=is_native_error,
    overflow_markers=(b"context_length_exceeded",),  # known to Codex 0.171
    write_error=write_error,
    observer=ResponsesObserver,
    end_markers=END_MARKERS,
    output_member="output",
    max_stop_sequences=0,
    max_cache_marks=MAX_CACHE_MARKS,
    text_roles=frozenset({"assistant"}),
    checks_strict_schemas=True,
    cache_mark_form=lambda capabilities: (
        "prompt_cache_breakpoint" if capabilities.cache_marks == "breakpoint" else None
    ),
    signature_places=SIGNATURE_PLACES,
    content_members=frozenset(
        {
            "model",
            "input",
            "instructions",
            "tools",
            "stream",
            "previous_response_id",
            "conversation",
            "prompt",
        }
    ),
    refusals=REFUSALS,
    relay_refusals=frozenset(REFUSALS),
    shows_searches=True,
    echoed_members=ECHOED_MEMBERS,
    failed_bodies=True,
    stored_responses=StoredEvents,
    websocket=websocket_at("/v1/responses"),
    forwarded_headers=FORWARDED_HEADERS,
    response_headers=frozenset({"openai-processing-ms"}),
    model_list=ModelList(),
    token_count=TOKEN_COUNT,
    rate_limit_headers=RateLimitHeaders("x-ratelimit-"),
)
