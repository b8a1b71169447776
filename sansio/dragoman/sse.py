"""Server-sent events: bytes in, frames out, as the HTML standard has them, or events out of another framing.

Feed receive_data() of SSEParser or FrameDecoder with bytes as they come, and call SSEParser.receive_eof() at the end.
"""

from dragoman._wire.framing import FrameDecoder
from dragoman._wire.sse import Frame, SSEParser

__all__ = [
    "Frame",
    "FrameDecoder",
    "SSEParser",
]
