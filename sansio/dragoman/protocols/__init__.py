"""The protocols that Dragoman speaks: one folder and one line each."""

from __future__ import annotations

from dragoman.codec import ProtocolSpec, UpstreamSpec
from dragoman.protocols import anthropic_messages, openai_chat, openai_responses, simple_chat

REGISTRY: dict[str, ProtocolSpec] = {
    folder.SPEC.name: folder.SPEC
    for folder in (
        openai_chat,
        anthropic_messages,
        openai_responses,
        simple_chat,
    )
}

# Those that upstreams speak as well: the same objects, by the type that has the second half.
UPSTREAMS: dict[str, UpstreamSpec] = {
    name: spec for name, spec in REGISTRY.items() if isinstance(spec, UpstreamSpec)
}
