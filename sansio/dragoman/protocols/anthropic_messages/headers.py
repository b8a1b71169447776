"""What a written body demands of its request's headers: the version of the API, and its beta features.

Strategy: tables of what is behind which header. Clients of this protocol send the headers themselves; whoever asks
on behalf of another protocol has to know them, for without them the fields are refused: "Extra inputs are not
permitted".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from dragoman._wire.json import JSON, JSONObject
from dragoman.protocols.anthropic_messages.tables import BETA_HEADER, VERSION_HEADER

# From 2026-10-21 on, requests have no sampling settings.
SAMPLING_VERSION: Final = "2023-06-01"
NEWEST_VERSION: Final = "2026-10-21"
_SAMPLING = ("temperature", "top_p", "top_k")

# Members of the body.
_FIELDS: Mapping[str, str] = {
    "compaction": "compact-2026-09-04",
    "fallbacks": "server-side-fallback-2026-07-01",
    "mcp_servers": "mcp-client-2025-11-20",
    "speed": "fast-mode-2026-02-01",
}
# Edits of `context_management`, by type.
_EDITS: Mapping[str, str] = {
    "clear_thinking_20251015": "context-management-2025-06-27",
    "clear_tool_uses_20250919": "context-management-2025-06-27",
    "compact_20260112": "compact-2026-01-12",
}
# Tools, by type.
_TOOLS: Mapping[str, str] = {
    "advisor_20260301": "advisor-tool-2026-03-01",
    "computer_20250124": "computer-use-2025-01-24",
    "computer_20251124": "computer-use-2025-11-24",
    "mcp_toolset": "mcp-client-2025-11-20",
}
# Members of `output_config`.
_OUTPUT: Mapping[str, str] = {"task_budget": "task-budgets-2026-03-13"}


def request_headers(body: JSONObject) -> tuple[tuple[str, str], ...]:
    """Names and values of the headers for a body that write_request made for another protocol's client."""
    version = SAMPLING_VERSION if any(name in body for name in _SAMPLING) else NEWEST_VERSION
    betas = ",".join(dict.fromkeys(_betas(body)))
    headers = ((VERSION_HEADER[0], version),)
    return (*headers, (BETA_HEADER, betas)) if betas else headers


def _betas(body: JSONObject) -> Iterator[str]:
    yield from _members(body, _FIELDS)
    yield from _members(body.get("output_config"), _OUTPUT)
    management = body.get("context_management")
    yield from _types(management.get("edits") if type(management) is dict else None, _EDITS)
    yield from _types(body.get("tools"), _TOOLS)


def _members(value: JSON, betas: Mapping[str, str]) -> Iterator[str]:
    if type(value) is dict:
        yield from (beta for name, beta in betas.items() if value.get(name) is not None)


def _types(values: JSON, betas: Mapping[str, str]) -> Iterator[str]:
    for each in values if type(values) is list else ():
        kind = each.get("type") if type(each) is dict else None
        if type(kind) is str and kind in betas:
            yield betas[kind]
