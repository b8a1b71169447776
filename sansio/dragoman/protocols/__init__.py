"""The protocols that Dragoman speaks: one folder and one line each."""

from __future__ import annotations

from .._spec import ProtocolSpec, UpstreamSpec
from .anthropic_messages import SPEC as anthropic_messages
from .openai_chat import SPEC as openai_chat
from .openai_responses import SPEC as openai_responses
from .simple_chat import SPEC as simple_chat

REGISTRY: dict[str, ProtocolSpec] = {
    spec.name: spec
    for spec in (
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
