"""The protocols that Dragoman speaks: one folder and one line each."""

from __future__ import annotations

from .._spec import ProtocolSpec
from .anthropic_messages import SPEC as anthropic_messages
from .openai_chat import SPEC as openai_chat
from .openai_responses import SPEC as openai_responses

REGISTRY: dict[str, ProtocolSpec] = {
    spec.name: spec
    for spec in (
        openai_chat,
        anthropic_messages,
        openai_responses,
    )
}
