"""Anthropic Messages: POST /v1/messages.

Strategy: content blocks come strictly one after another, so the stream machines follow an index; requests
have two roles that must alternate, so the writer builds turns. What only this protocol knows travels as
opaque blocks and extra fields.
"""

from __future__ import annotations

from dragoman._ir.signatures import CARRIER
from dragoman.codec import Endpoint, ToolRule, UpstreamSpec
from dragoman.protocols.anthropic_messages.errors import is_fault, read_fault, write_fault
from dragoman.protocols.anthropic_messages.headers import request_headers
from dragoman.protocols.anthropic_messages.read_request import read_request
from dragoman.protocols.anthropic_messages.read_response import MessagesReader, read_whole
from dragoman.protocols.anthropic_messages.tables import NAME, PING, SHOWN_SEARCH
from dragoman.protocols.anthropic_messages.tap import MessagesTap
from dragoman.protocols.anthropic_messages.write_request import write_request
from dragoman.protocols.anthropic_messages.write_response import MessagesWriter, write_whole

__all__ = ["SPEC"]

SPEC = UpstreamSpec(
    name=NAME,
    # The vendor's SDK takes a base URL without the version.
    path="/v1/messages",
    endpoints=(Endpoint("/v1/messages", heartbeat=PING),),
    sequential=True,
    choices=False,
    tools=ToolRule(
        max_name=128, max_call_id=None, call_id_chars=True, custom=False, namespaces=False, allowed=False
    ),
    read_request=read_request,
    write_request=write_request,
    stream_reader=MessagesReader,
    stream_writer=MessagesWriter,
    read_whole=read_whole,
    write_whole=write_whole,
    read_fault=read_fault,
    is_fault=is_fault,
    write_fault=write_fault,
    tap=MessagesTap,
    end_marks=(b"message_stop",),
    # The vendor's SDK sends the whole conversation without it then.
    server_held={"thread": "thread_unsupported_request"},
    answer_member="content",
    request_headers=request_headers,
    carriers=(CARRIER, f'"{SHOWN_SEARCH}'.encode()),
    shows_searches=True,
)
