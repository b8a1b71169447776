"""Anthropic Messages: POST /v1/messages.

Content blocks of a stream come strictly one after another, so reader and writer follow an index. Requests have two
roles that must alternate, so the writer builds turns. Blocks and fields that only this protocol has are kept as opaque
blocks and in the objects that parts were read from. Its size comes from what the others lack: signed thinking with
budgets, turns that alternate, strict schemas in a subset, and tools of the vendor that clients run.
"""

from __future__ import annotations

from dragoman.codec import Endpoint, ModelList, RateLimitHeaders, ToolLimits, UpstreamSpec
from dragoman.protocols.anthropic_messages.capabilities import MessagesCapabilities
from dragoman.protocols.anthropic_messages.errors import TOO_LONG, is_native_error, read_error, write_error
from dragoman.protocols.anthropic_messages.observer import MessagesObserver
from dragoman.protocols.anthropic_messages.request_in import BILLING, read_request
from dragoman.protocols.anthropic_messages.request_out import request_headers, write_request
from dragoman.protocols.anthropic_messages.request_thinking import SIGNATURE_PLACES
from dragoman.protocols.anthropic_messages.response_in import MessagesReader, read_whole
from dragoman.protocols.anthropic_messages.response_out import MessagesWriter, write_whole
from dragoman.protocols.anthropic_messages.shapes import SETTING_PATHS
from dragoman.protocols.anthropic_messages.tables import (
    BETA_HEADER,
    FORWARDED_HEADERS,
    NAME,
    PING,
    TOKEN_COUNT,
    VERSION_HEADER,
)

__all__ = ["SPEC"]

SPEC = UpstreamSpec(
    name=NAME,
    reference="https://platform.claude.com/docs/en/api/messages/create",
    base_path="",
    path="/v1/messages",
    endpoints=(Endpoint("/v1/messages", heartbeat=PING),),
    sequential=True,
    choices=False,
    # Ids: "String should match pattern '^[a-zA-Z0-9_-]+$'" (openai-agents-python#1147, read 2026-11-22).
    tool_limits=ToolLimits(max_name=128, max_call_id=None, call_id_chars=True, custom=False, allowed=False),
    settings=frozenset(SETTING_PATHS),
    file_store="anthropic",
    read_request=read_request,
    capabilities=MessagesCapabilities,
    write_request=write_request,
    stream_reader=MessagesReader,
    stream_writer=MessagesWriter,
    read_whole=read_whole,
    write_whole=write_whole,
    read_error=read_error,
    is_native_error=is_native_error,
    overflow_markers=(TOO_LONG.encode(), b"exceed context limit"),  # known to Claude Code 2.1.332
    write_error=write_error,
    observer=MessagesObserver,
    end_markers=(b"message_stop",),
    # On this code the vendor's SDK sends the whole conversation again, without `thread` (anthropic 2.12.0,
    # lib/threads/_thread_state.py).
    server_state_params={"thread": "thread_unsupported_request"},
    output_member="content",
    # "A maximum of 4 blocks with cache_control may be provided" (Anthropic.SDK#50, read 2026-11-22).
    max_cache_marks=4,
    # The API refuses documents in assistant messages (its documentation of version 2026-10-21, read in November 2026),
    # and images.
    text_roles=frozenset({"system", "developer", "assistant"}),
    cache_mark_form=None,
    request_headers=request_headers,
    signature_places=SIGNATURE_PLACES,
    billing_header=BILLING,
    content_members=frozenset(
        {"model", "messages", "system", "tools", "stream", "max_tokens", "container", "mcp_servers"}
    ),
    shows_searches=True,
    usage_at_start=True,
    auth_header="x-api-key",
    forwarded_headers=FORWARDED_HEADERS,
    list_headers=frozenset({BETA_HEADER}),
    version_header=VERSION_HEADER,
    token_count=TOKEN_COUNT,
    model_list_form="anthropic",
    # "Defaults to 20. Ranges from 1 to 1000": `limit` in anthropic 2.12.0, types/model_list_params.py.
    model_list=ModelList("/v1/models", {"limit": "1000"}, "after_id"),
    rate_limit_headers=RateLimitHeaders(
        "anthropic-ratelimit-", "{limit}-{what}", ("requests", "tokens", "input-tokens"), "time"
    ),
)
