"""The requests of real clients, and their upstreams.

Each case is a request of the golden fixtures with the headers that come with it. Values are made up; fields, messages,
tools and headers are those of the real clients, and texts name their own place. opencode, pi, qwen and aider send the
third request of a task, Claude Code and Codex one in the middle of their work. The upstreams are the vendors' own hosts
with a current model, and a compatible Chat server with default capabilities.
"""

from dataclasses import dataclass
from typing import Any

import golden
from oracle import CHAT, GEMINI, MESSAGES, RESPONSES

from dragoman import Capabilities
from dragoman_server.capabilities.providers import PROVIDERS
from dragoman_server.capabilities.resolve import capabilities_for
from dragoman_server.settings import Settings, UpstreamSettings

Json = dict[str, Any]

_STAINLESS = {"x-stainless-lang": "js", "x-stainless-retry-count": "0", "x-stainless-runtime": "node"}
_MESSAGES_HEADERS = {"anthropic-version": "2023-06-01"}
_OPENCODE = {
    "user-agent": "opencode/1.18.33 ai-sdk/provider-utils/4.0.23 runtime/bun/1.3",
    "x-session-affinity": "ses_1",
    "x-session-id": "ses_1",
}
# By client and protocol, without the key.
HEADERS: dict[tuple[str, str], dict[str, str]] = {
    ("claude-code", MESSAGES): {
        "accept": "application/json",
        "user-agent": "claude-cli/2.1.329 (external, sdk-cli)",
        "anthropic-beta": (
            "claude-code-20250219,interleaved-thinking-2025-05-14,context-management-2025-06-27,"
            "thinking-token-count-2026-05-13,advanced-tool-use-2025-11-20,per-turn-control-2026-07-01,effort-2025-11-24"
        ),
        "anthropic-dangerous-direct-browser-access": "true",
        "x-app": "cli",
        "x-claude-code-session-id": "5f0c9a2e-8d3b-4a57-9a51-2b7a3d1e6c40",
        "x-stainless-arch": "x64",
        "x-stainless-os": "Linux",
        "x-stainless-package-version": "0.91.1",
        "x-stainless-runtime-version": "v24.3.0",
        "x-stainless-timeout": "600",
        **_MESSAGES_HEADERS,
        **_STAINLESS,
    },
    ("codex", RESPONSES): {
        "accept": "text/event-stream",
        "user-agent": "codex_exec/0.169.0 (Debian 12.0.0; x86_64) dumb (codex_exec; 0.169.0)",
        "originator": "codex_exec",
        "session-id": "019a-session",
        "thread-id": "019a-thread",
        "x-client-request-id": "019a-request",
        "x-codex-beta-features": "remote_compaction_v2",
        "x-codex-turn-metadata": '{"turn_id":"t1"}',
        "x-codex-window-id": "019a-session:0",
    },
    ("opencode", CHAT): _OPENCODE,
    ("opencode", RESPONSES): _OPENCODE,
    ("opencode", MESSAGES): {**_OPENCODE, **_MESSAGES_HEADERS, "anthropic-beta": "structured-outputs-2025-11-13"},
    ("pi", CHAT): {"user-agent": "OpenAI/JS 6.26.0", **_STAINLESS},
    ("pi", RESPONSES): {
        "user-agent": "OpenAI/JS 6.26.0",
        "session_id": "ses_1",
        "x-client-request-id": "ses_1",
        **_STAINLESS,
    },
    ("pi", MESSAGES): {
        "user-agent": "Anthropic/JS 0.91.1",
        "anthropic-dangerous-direct-browser-access": "true",
        "anthropic-beta": "interleaved-thinking-2025-05-14",
        **_MESSAGES_HEADERS,
        **_STAINLESS,
    },
    ("qwen", CHAT): {"user-agent": "QwenCode/0.24.4 (linux; x64)", **_STAINLESS},
    ("qwen", RESPONSES): {"user-agent": "QwenCode/0.24.4 (linux; x64)"},
    ("qwen", MESSAGES): {
        "user-agent": "claude-cli/0.24.4 (external, cli)",
        "x-app": "cli",
        "anthropic-beta": "interleaved-thinking-2025-05-14",
        **_MESSAGES_HEADERS,
        **_STAINLESS,
    },
    ("aider", CHAT): {"user-agent": "OpenAI/Python 2.20.0", "x-stainless-lang": "python"},
    ("aider", MESSAGES): {"user-agent": "litellm/1.81.10", **_MESSAGES_HEADERS},
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Case:
    """One request of one client. headers: without the key."""

    client: str
    name: str
    protocol: str
    body: Json
    headers: dict[str, str]


CASES: tuple[Case, ...] = tuple(
    Case(
        fixture["client"],
        fixture["name"],
        fixture["protocol"],
        fixture["body"],
        HEADERS[fixture["client"], fixture["protocol"]],
    )
    for fixture in golden.fixtures()["request"]
    if "client" in fixture
)
_BODIES = {case.name: case.body for case in CASES if case.client in ("claude-code", "codex")}
# Of a model with adaptive thinking, effort, and system messages in mid-conversation.
CLAUDE_CODE = _BODIES["claude-code"]
CODEX = _BODIES["codex"]
# The same, where the history has become too long.
CODEX_COMPACTION = _BODIES["codex-compaction"]


def vendor_target(provider: str, protocol: str, model: str) -> Capabilities:
    """What the vendor's own host takes, as the server knows it."""
    url = next(each.base_url for each in PROVIDERS if each.name == provider)
    upstream = UpstreamSettings(name="vendor", protocol=protocol, base_url=url)
    return capabilities_for(Settings(), upstream, model)


# The upstream's model and its capabilities.
MODELS: dict[str, str] = {
    CHAT: "some-model",
    MESSAGES: "claude-opus-5",
    RESPONSES: "gpt-5.6",
    GEMINI: "gemini-3.6-flash",
}
TARGETS: dict[str, Capabilities] = {
    CHAT: Capabilities(),
    MESSAGES: vendor_target("anthropic", MESSAGES, MODELS[MESSAGES]),
    RESPONSES: vendor_target("openai", RESPONSES, MODELS[RESPONSES]),
    GEMINI: vendor_target("gemini", GEMINI, MODELS[GEMINI]),
}
