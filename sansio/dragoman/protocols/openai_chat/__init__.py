"""OpenAI Chat Completions: POST /v1/chat/completions, and the many servers that are compatible with it.

Strategy: this protocol has the widest spread of dialects, so the readers take all that is known to be sent and
the writers send only what the official SDK takes. Streams are deltas without starts and ends; several calls
may be filled in turns, and an answer may have several choices.
"""

from __future__ import annotations

from dragoman._wire.sse import encode_comment
from dragoman.codec import Endpoint, ModelList, RateLimitHeaders, ToolLimits, UpstreamSpec
from dragoman.protocols.openai_chat.errors import is_native_error, read_error, write_error
from dragoman.protocols.openai_chat.observer import ChatObserver
from dragoman.protocols.openai_chat.read_request import read_request
from dragoman.protocols.openai_chat.read_response import ChatReader, read_whole
from dragoman.protocols.openai_chat.tables import FORWARDED_HEADERS, MAX_STOPS, NAME
from dragoman.protocols.openai_chat.write_request import write_request
from dragoman.protocols.openai_chat.write_response import ChatWriter
from dragoman.protocols.openai_chat.write_whole import write_whole

__all__ = ["SPEC"]

SPEC = UpstreamSpec(
    name=NAME,
    path="/chat/completions",
    endpoints=(Endpoint("/v1/chat/completions", heartbeat=encode_comment(b"keepalive")),),
    sequential=False,
    choices=True,
    tool_limits=ToolLimits(
        max_name=64,
        max_call_id=64,
        call_id_chars=False,
        custom=True,
        namespaces=False,
        hosted_tools=frozenset(("web_search",)),
    ),
    read_request=read_request,
    write_request=write_request,
    stream_reader=ChatReader,
    stream_writer=ChatWriter,
    read_whole=read_whole,
    write_whole=write_whole,
    read_error=read_error,
    is_native_error=is_native_error,
    write_error=write_error,
    observer=ChatObserver,
    end_markers=(b"[DONE]",),
    error_markers=(b"error", b'"detail"', b'"message"'),
    output_member="choices",
    max_stop_sequences=MAX_STOPS,
    # Reasoning comes back sealed from clients that hand on what they do not know; many do not.
    clients_drop_signatures=True,
    needs_usage=False,
    forwarded_headers=FORWARDED_HEADERS,
    response_headers=frozenset({"openai-processing-ms"}),
    model_list=ModelList(),
    rate_limit_headers=RateLimitHeaders("x-ratelimit-"),
)
