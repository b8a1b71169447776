"""The simple API: POST /chat/json, /chat/stream and /chat/sse. Text in, text out, one endpoint for each form.

Strategy: only clients speak it, so it has readers of requests and writers of answers and no more. A request says
little, so reading it is a few checks; an answer is the model's words, and everything else that an answer can say
goes into the ledger.
"""

from __future__ import annotations

from dragoman._wire.sse import encode_comment
from dragoman.codec import Endpoint, ProtocolSpec, ToolLimits
from dragoman.protocols.simple_chat.errors import write_error
from dragoman.protocols.simple_chat.request_in import read_request
from dragoman.protocols.simple_chat.response_out import SimpleWriter, write_whole
from dragoman.protocols.simple_chat.tables import NAME

__all__ = ["SPEC"]

SPEC = ProtocolSpec(
    name=NAME,
    endpoints=(
        Endpoint("/chat/json", streams="never"),
        Endpoint(
            "/chat/stream",
            streams="always",
            framing="ndjson",
            media_type="application/json",
            # "Insignificant whitespace is allowed before or after any of the six structural characters" -- RFC
            # 8259, 2. A blank before the next line is part of its JSON text; an empty line would be none, and
            # clients that parse every line would stumble over it.
            heartbeat=b" ",
        ),
        Endpoint(
            "/chat/sse",
            streams="always",
            media_type="text/event-stream",
            heartbeat=encode_comment(b"keepalive"),
        ),
    ),
    # Texts of several blocks are one text here: they may not be mixed.
    sequential=True,
    choices=False,
    tool_limits=ToolLimits(),  # there are none, and calls are not shown
    read_request=read_request,
    stream_writer=SimpleWriter,
    write_whole=write_whole,
    write_error=write_error,
    returns_signatures=False,
    needs_usage=False,
    needs_model=False,
)
