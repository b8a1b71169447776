"""The headers of a request for an upstream, and the time that an identifier takes."""

import time
from typing import Any

import pytest

from dragoman import Ledger
from dragoman.document import Request
from dragoman.protocols.anthropic_messages import SPEC
from dragoman.protocols.anthropic_messages.capabilities import MessagesCapabilities

NEWEST = ("anthropic-version", "2026-10-21")
MCP = "mcp-client-2025-11-20"


BETAS: list[tuple[Any, str | None]] = [
    ({}, None),
    ({"tools": [{"name": "bash", "input_schema": {}}]}, None),
    ({"mcp_servers": [{"type": "url"}]}, MCP),
    ({"mcp_servers": None}, None),
    ({"tools": [{"name": "a"}, {"type": "mcp_toolset", "mcp_server_name": "s"}]}, MCP),
    ({"mcp_servers": [{}], "tools": [{"type": "mcp_toolset"}]}, MCP),
    ({"tools": [{"type": "computer_20251124"}]}, "computer-use-2025-11-24"),
    ({"tools": [{"type": "advisor_20260301"}]}, "advisor-tool-2026-03-01"),
    ({"tools": [{"type": "web_search_20260318"}, {"type": "code_execution_20260521"}]}, None),
    ({"context_management": {"edits": [{"type": "compact_20260112"}]}}, "compact-2026-01-12"),
    ({"context_management": {"edits": [{"type": "clear_tool_uses_20250919"}] * 2}}, "context-management-2025-06-27"),
    ({"context_management": None}, None),
    ({"context_management": {"edits": None}, "tools": None}, None),
    ({"compaction": {"type": "summarize"}}, "compact-2026-09-04"),
    ({"fallbacks": "default"}, "server-side-fallback-2026-07-01"),
    ({"speed": "fast", "mcp_servers": []}, f"{MCP},fast-mode-2026-02-01"),
    ({"output_config": {"effort": "low"}}, None),
    ({"output_config": {"task_budget": {"type": "tokens", "total": 1}}}, "task-budgets-2026-03-13"),
    # Content and schemas that only resemble such members.
    ({"messages": [{"role": "user", "content": '{"mcp_servers":[1]}'}]}, None),
    ({"tools": [{"name": "a", "input_schema": {"properties": {"x": {"type": "mcp_toolset"}}}}]}, None),
    ({"messages": [{"role": "assistant", "content": [{"input": {"compaction": 1}}]}]}, None),
    ({"context_management": {"edits": [{"type": ["odd"]}]}}, None),
]  # fmt: skip


def test_betas(subtests: pytest.Subtests) -> None:
    for body, betas in BETAS:
        with subtests.test(body=body):
            expected = (NEWEST,) if betas is None else (NEWEST, ("anthropic-beta", betas))
            assert SPEC.request_headers({"model": "m", **body}) == expected


@pytest.mark.parametrize("name", ["temperature", "top_p", "top_k"])
def test_sampling_settings_need_the_older_version(name: str) -> None:
    assert SPEC.request_headers({"model": "m", name: 1}) == (("anthropic-version", "2023-06-01"),)


def test_whether_an_identifier_is_an_address_is_found_in_linear_time() -> None:
    """Quadratic work would take half a minute here, in one call, during which no other thread runs."""
    start = time.process_time()
    request = Request("other", "m", (), params={"user": f"a@{'.' * 100_000}@"})
    written = SPEC.write_request(request, MessagesCapabilities(), Ledger())
    assert time.process_time() - start < 2
    assert len(written["metadata"]["user_id"]) == 100_003
