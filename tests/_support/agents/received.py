"""What a real client receives: an upstream's stream, translated for a recorded request of the client."""

from typing import Any

from failures.translate import WIDE, Received, receive
from oracle import CHAT

from dragoman import Capabilities, Signer

Json = dict[str, Any]

# Codex sends it, and gets its own tools back unchanged; the vendor's types do not have it there.
_UNKNOWN_TO_LITELLM = "search_content_types: unknown to WebSearchTool"


def received_by(
    protocol: str, upstream: str, body: Json, stream: bytes, *, capabilities: Capabilities = WIDE
) -> Received:
    """The same in every cutting, in the client's own form and order."""
    include_usage = protocol != CHAT or "stream_options" in body
    return receive(
        upstream,
        protocol,
        stream,
        body,
        include_usage=include_usage,
        capabilities=capabilities,
        allowed=_UNKNOWN_TO_LITELLM,
    )


def unwrapped(text: str) -> Any:
    """what travels inside of a wrapped signature."""
    signature = Signer().unwrap(text)
    return None if signature is None else signature.native
