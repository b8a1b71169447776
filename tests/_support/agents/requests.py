"""The requests of real clients, and their upstreams.

Each case is one body and the headers that come with it; the modules `client_*` hold them. The upstreams
are the vendors' own hosts with a current model, and a compatible Chat server with default capabilities.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from agents import claude_code, codex
from agents import other_agents as agents
from oracle import CHAT, MESSAGES, RESPONSES

from dragoman import Capabilities
from dragoman_server.capabilities.providers import PROVIDERS
from dragoman_server.capabilities.resolve import capabilities_for
from dragoman_server.settings import Settings, UpstreamSettings

Json = dict[str, Any]


@dataclass(frozen=True, eq=False)
class Case:
    """One request of one client. headers: without the key."""

    client: str
    name: str
    protocol: str
    body: Json
    headers: dict[str, str]


def _agents(protocol: str, bodies: dict[str, Json]) -> list[Case]:
    return [
        Case(name.partition("-")[0], name, protocol, body, agents.HEADERS[name.partition("-")[0], protocol])
        for name, body in bodies.items()
    ]


CASES: tuple[Case, ...] = (
    Case("claude-code", "claude-code", MESSAGES, claude_code.ADAPTIVE, claude_code.HEADERS),
    Case("claude-code", "claude-code-budget", MESSAGES, claude_code.BUDGET, claude_code.HEADERS),
    Case("codex", "codex", RESPONSES, codex.TURN, codex.HEADERS),
    Case("codex", "codex-compaction", RESPONSES, codex.COMPACTION, codex.HEADERS),
    *_agents(CHAT, agents.CHAT_BODIES),
    *_agents(MESSAGES, agents.MESSAGES_BODIES),
    *_agents(RESPONSES, agents.RESPONSES_BODIES),
)


def vendor_target(provider: str, protocol: str, model: str) -> Capabilities:
    """What the vendor's own host takes, as the server knows it."""
    url = next(each.base_url for each in PROVIDERS if each.name == provider)
    upstream = UpstreamSettings(name="vendor", protocol=protocol, base_url=url)
    return capabilities_for(Settings(), upstream, model)


# The upstream's model and its capabilities.
MODELS: dict[str, str] = {CHAT: "some-model", MESSAGES: "claude-opus-5", RESPONSES: "gpt-5.6"}
TARGETS: dict[str, Capabilities] = {
    CHAT: Capabilities(),
    MESSAGES: vendor_target("anthropic", MESSAGES, MODELS[MESSAGES]),
    RESPONSES: vendor_target("openai", RESPONSES, MODELS[RESPONSES]),
}
