"""The simple API: POST /chat/json, /chat/stream and /chat/sse. Text in, text out, one endpoint for each form.

Only clients use it, so it has a reader of requests and writers of responses. A response is the model's text; everything
else that a response can hold is recorded as a loss.
"""

from __future__ import annotations

from dragoman._wire.sse import encode_comment
from dragoman.codec import NDJSON, Endpoint, ProtocolSpec, ToolLimits
from dragoman.protocols.simple_chat.errors import write_error
from dragoman.protocols.simple_chat.request_in import read_request
from dragoman.protocols.simple_chat.response_out import SimpleWriter, write_whole
from dragoman.protocols.simple_chat.tables import NAME, SETTING_PATHS, SimpleRequest, SimpleResponse

__all__ = ["SPEC"]

SPEC = ProtocolSpec(
    name=NAME,
    endpoints=(
        Endpoint("/chat/json", streams="never"),
        Endpoint(
            "/chat/stream",
            streams="always",
            framing=NDJSON,
            media_type="application/json",
            # "Insignificant whitespace is allowed before or after any of the six structural characters"
            # -- https://www.rfc-editor.org/rfc/rfc8259#section-2
            # A blank before the next line is part of its JSON text. An empty line would be no JSON text, and clients
            # that parse every line would fail.
            heartbeat=b" ",
        ),
        Endpoint(
            "/chat/sse",
            streams="always",
            media_type="text/event-stream",
            heartbeat=encode_comment(b"keepalive"),
        ),
    ),
    # Texts of several blocks become one text, so they must not be interleaved.
    sequential=True,
    choices=False,
    tool_limits=ToolLimits(),  # clients get no calls
    settings=frozenset(SETTING_PATHS),
    read_request=read_request,
    stream_writer=SimpleWriter,
    write_whole=write_whole,
    write_error=write_error,
    returns_signatures=False,
    needs_usage=False,
    needs_model=False,
    request_type=SimpleRequest,
    response_type=SimpleResponse,
)
