"""What a real client receives: an upstream's stream, translated for a recorded request of the client."""

from __future__ import annotations

from typing import Any

from failures.translate import STEPS, WIDE, Received, translate_request
from laws.clients import spec_of
from oracle import CHAT, check_stream

from dragoman import UPSTREAMS, Capabilities, ResponseTranslator, Signer
from dragoman.codec import ResponseContext

Json = dict[str, Any]

# Codex sends it, and gets its own tools back unchanged; the vendor's types do not have it there.
_UNKNOWN_TO_LITELLM = "search_content_types: unknown to WebSearchTool"


def received_by(
    protocol: str, upstream: str, body: Json, stream: bytes, *, capabilities: Capabilities = WIDE
) -> Received:
    """The same in every cutting, in the client's own form and order."""
    context = translate_request(protocol, upstream, body, capabilities=capabilities).response_context()
    received = [_feed(protocol, upstream, stream, context, step) for step in STEPS]
    for other in received[1:]:
        assert other.data == received[0].data, "the network may cut anywhere"
    include_usage = protocol != CHAT or "stream_options" in body
    problems = check_stream(protocol, received[0].data, include_usage=include_usage)
    assert [problem for problem in problems if not problem.endswith(_UNKNOWN_TO_LITELLM)] == []
    return received[0]


def _feed(protocol: str, upstream: str, stream: bytes, context: ResponseContext, step: int) -> Received:
    machine = ResponseTranslator(client=spec_of(protocol), upstream=UPSTREAMS[upstream], context=context)
    sent = b"".join(piecewise(machine, stream, step))
    machine.receive_eof()
    return Received(protocol, sent + machine.data_to_send(), machine)


def piecewise(machine: ResponseTranslator, stream: bytes, step: int) -> list[bytes]:
    """What comes out behind each piece that goes in."""
    out: list[bytes] = []
    for at in range(0, len(stream), step or len(stream)):
        machine.receive_data(stream[at : at + (step or len(stream))])
        out.append(machine.data_to_send())
    return out


def unwrapped(text: str) -> Any:
    """what travels inside of a wrapped signature."""
    signature = Signer().unwrap(text)
    return None if signature is None else signature.native
