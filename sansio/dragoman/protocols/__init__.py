"""The protocols of clients and upstreams, by name. Each has its own folder.

In a folder, files that begin with `request_` are about requests, those with `response_` about responses; if they end in
`_in` they only read, in `_out` they only write. CONTRIBUTING.md lists the others.
"""

from __future__ import annotations

from dragoman.codec import ProtocolSpec, UpstreamSpec
from dragoman.protocols import anthropic_messages, gemini, openai_chat, openai_responses, simple_chat

__all__ = ["PROTOCOLS", "UPSTREAMS", "client_spec", "upstream_spec"]

PROTOCOLS: dict[str, ProtocolSpec] = {
    folder.SPEC.name: folder.SPEC
    for folder in (
        openai_chat,
        anthropic_messages,
        openai_responses,
        gemini,
        simple_chat,
    )
}

# Those that upstreams speak as well: the same objects, by the type that has the second half.
UPSTREAMS: dict[str, UpstreamSpec] = {
    name: spec for name, spec in PROTOCOLS.items() if isinstance(spec, UpstreamSpec)
}


def client_spec(protocol: ProtocolSpec | str) -> ProtocolSpec:
    """Return the protocol with this name; a spec is returned as it is. Raises ValueError for an unknown name."""
    if not isinstance(protocol, str):
        return protocol
    spec = PROTOCOLS.get(protocol)
    if spec is None:
        raise ValueError(f"unknown protocol {protocol!r}: expected one of {', '.join(PROTOCOLS)}")
    return spec


def upstream_spec(protocol: UpstreamSpec | str) -> UpstreamSpec:
    """Return the protocol with this name, as client_spec() does. Raises ValueError if no upstream speaks it."""
    if isinstance(protocol, UpstreamSpec):
        return protocol
    spec = client_spec(protocol)
    if not isinstance(spec, UpstreamSpec):
        raise ValueError(f"no upstream speaks {spec.name}: expected one of {', '.join(UPSTREAMS)}")
    return spec
