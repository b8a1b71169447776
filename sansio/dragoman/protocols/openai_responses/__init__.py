"""OpenAI's Responses protocol."""

from __future__ import annotations

from dragoman._wire.sse import comment
from dragoman.codec import Endpoint, ModelList, RateLimitHeaders, ToolRule, UpstreamSpec
from dragoman.protocols.openai_responses.errors import is_fault, read_fault, write_fault
from dragoman.protocols.openai_responses.read_request import read_request
from dragoman.protocols.openai_responses.read_response import ResponsesReader, read_whole
from dragoman.protocols.openai_responses.tables import FORWARDED_HEADERS, TOKEN_COUNT
from dragoman.protocols.openai_responses.tap import END_MARKS, ResponsesTap
from dragoman.protocols.openai_responses.wire import ORIGIN
from dragoman.protocols.openai_responses.write_request import write_request
from dragoman.protocols.openai_responses.write_response import ResponsesWriter, write_whole

SPEC = UpstreamSpec(
    name=ORIGIN,
    path="/responses",
    endpoints=(Endpoint("/v1/responses", heartbeat=comment(b"keepalive")),),
    sequential=True,
    choices=False,
    tools=ToolRule(
        max_name=64,
        max_call_id=64,
        call_id_chars=False,
        custom=True,
        custom_usual=True,
        namespaces=True,
    ),
    read_request=read_request,
    write_request=write_request,
    stream_reader=ResponsesReader,
    stream_writer=ResponsesWriter,
    read_whole=read_whole,
    write_whole=write_whole,
    read_fault=read_fault,
    is_fault=is_fault,
    write_fault=write_fault,
    tap=ResponsesTap,
    end_marks=END_MARKS,
    answer_member="output",
    max_stops=0,
    shows_searches=True,
    failed_bodies=True,
    stored_responses=True,
    forwarded_headers=FORWARDED_HEADERS,
    model_list=ModelList(),
    token_count=TOKEN_COUNT,
    rate_limit_headers=RateLimitHeaders("x-ratelimit-"),
)
