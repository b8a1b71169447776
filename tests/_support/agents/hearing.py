"""What a real client hears: an upstream's stream, translated for the request that the client really sent."""

from __future__ import annotations

from typing import Any

from failures.cross import STEPS, WIDE, Heard, ask
from laws.clients import spec_of
from oracle import CHAT, check_stream

from dragoman import UPSTREAMS, Capabilities, ResponseTranslator, Signer
from dragoman.codec import ResponseContext

Json = dict[str, Any]

# Codex sends it, and gets its own tools back as it sent them; the vendor's types do not know it there.
_OWN = "search_content_types: unknown to WebSearchTool"


def heard_by(
    protocol: str, upstream: str, body: Json, stream: bytes, *, capabilities: Capabilities = WIDE
) -> Heard:
    """The same in every cutting, in the client's own form and order."""
    context = ask(protocol, upstream, body, capabilities=capabilities).exchange()
    heard = [_feed(protocol, upstream, stream, context, step) for step in STEPS]
    for other in heard[1:]:
        assert other.data == heard[0].data, "the network may cut anywhere"
    include_usage = protocol != CHAT or "stream_options" in body
    problems = check_stream(protocol, heard[0].data, include_usage=include_usage)
    assert [problem for problem in problems if not problem.endswith(_OWN)] == []
    return heard[0]


def _feed(protocol: str, upstream: str, stream: bytes, context: ResponseContext, step: int) -> Heard:
    machine = ResponseTranslator(client=spec_of(protocol), upstream=UPSTREAMS[upstream], context=context)
    sent = b"".join(piecewise(machine, stream, step))
    machine.receive_eof()
    return Heard(protocol, sent + machine.data_to_send(), machine)


def piecewise(machine: ResponseTranslator, stream: bytes, step: int) -> list[bytes]:
    """What comes out behind each piece that goes in."""
    out: list[bytes] = []
    for at in range(0, len(stream), step or len(stream)):
        machine.receive_data(stream[at : at + (step or len(stream))])
        out.append(machine.data_to_send())
    return out


def unsealed(text: str) -> Any:
    """what travels inside of a wrapped signature."""
    signature = Signer().unwrap(text)
    return None if signature is None else signature.native
