"""Server-sent events: bytes in, frames out, as the HTML standard has them.

Feed SSEParser.receive_data() with bytes as they come and call receive_eof() at the end.
"""

from dragoman._wire.sse import Frame, SSEParser

__all__ = [
    "Frame",
    "SSEParser",
]
