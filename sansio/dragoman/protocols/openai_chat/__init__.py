"""OpenAI Chat Completions: POST /v1/chat/completions, and the many servers that are compatible with it.

Strategy: this protocol has the widest spread of dialects, so the readers take all that is known to be sent and
the writers send only what the official SDK takes. Streams are deltas without starts and ends; several calls
may be filled in turns, and an answer may have several choices.
"""

from __future__ import annotations

from dragoman._wire.sse import comment
from dragoman.codec import Endpoint, ModelList, RateLimitHeaders, ToolRule, UpstreamSpec
from dragoman.protocols.openai_chat.errors import is_fault, read_fault, write_fault
from dragoman.protocols.openai_chat.read_request import read_request
from dragoman.protocols.openai_chat.read_response import ChatReader, read_whole
from dragoman.protocols.openai_chat.tables import FORWARDED_HEADERS, MAX_STOPS, NAME
from dragoman.protocols.openai_chat.tap import ChatTap
from dragoman.protocols.openai_chat.write_request import write_request
from dragoman.protocols.openai_chat.write_response import ChatWriter
from dragoman.protocols.openai_chat.write_whole import write_whole

__all__ = ["SPEC"]

SPEC = UpstreamSpec(
    name=NAME,
    path="/chat/completions",
    endpoints=(Endpoint("/v1/chat/completions", heartbeat=comment(b"keepalive")),),
    sequential=False,
    choices=True,
    tools=ToolRule(
        max_name=64,
        max_call_id=64,
        call_id_chars=False,
        custom=True,
        namespaces=False,
        hosted=frozenset(("web_search",)),
    ),
    read_request=read_request,
    write_request=write_request,
    stream_reader=ChatReader,
    stream_writer=ChatWriter,
    read_whole=read_whole,
    write_whole=write_whole,
    read_fault=read_fault,
    is_fault=is_fault,
    write_fault=write_fault,
    tap=ChatTap,
    end_marks=(b"[DONE]",),
    error_signs=(b"error", b'"detail"', b'"message"'),
    answer_member="choices",
    max_stops=MAX_STOPS,
    # Reasoning comes back sealed from clients that hand on what they do not know; many do not.
    forgets_seals=True,
    needs_usage=False,
    forwarded_headers=FORWARDED_HEADERS,
    model_list=ModelList(),
    rate_limit_headers=RateLimitHeaders("x-ratelimit-"),
)
