"""Probes for what clients of Messages can send besides blocks: fields, tools, choices, messages."""

from __future__ import annotations

from typing import Any

from fidelity.messages_blocks import BLOCKS
from fidelity.probe import SCHEMA, Body, Probe, probe

_MARK = {"type": "ephemeral", "ttl": "1h"}
_HI = {"role": "user", "content": "Hi"}
_TOOL = {"name": "see", "input_schema": SCHEMA}


def _body(**fields: Any) -> Body:
    return {"model": "m", "max_tokens": 99, "messages": [_HI], **fields}


def _field(name: str, value: Any, **context: Any) -> Probe:
    return probe("Fields", f"`{name}`", _body(**context, **{name: value}), f"/{name}")


def _member(dotted: str, value: Any, **context: Any) -> Probe:
    field, member = dotted.split(".")
    whole = {**context.pop(field, {}), member: value}
    return probe("Fields", f"`{dotted}`", _body(**context, **{field: whole}), f"/{field}/{member}")


def _edit(**edit: Any) -> Probe:
    body = _body(context_management={"edits": [edit]})
    return probe("Fields", f"`{edit['type']}` in `context_management.edits`", body, "/context_management")


_SERVER = {
    "type": "url",
    "name": "Zqserver",
    "url": "https://example.com/Zqmcp",
    "authorization_token": "Zqtoken",
}
_TOOLSET = {"type": "mcp_toolset", "mcp_server_name": "Zqserver"}

FIELDS = [
    probe("Fields", "`model`", _body(model="Zqmodel"), "/model", needed=True),
    probe("Fields", "`max_tokens`", _body(max_tokens=4321), "/max_tokens", swap=99),
    probe(
        "Fields",
        "`messages`",
        _body(messages=[{"role": "user", "content": "Zqhi"}]),
        "/messages",
        needed=True,
    ),
    probe("Fields", "`system` as a string", _body(system="Zqrule"), "/system"),
    probe(
        "Fields",
        "`system` as blocks",
        _body(system=[{"type": "text", "text": "Zqrule"}, {"type": "text", "text": "Zqmore"}]),
        "/system",
    ),
    _field("cache_control", _MARK),
    probe("Fields", "`container` as an id", _body(container="Zqcontainer"), "/container"),
    probe(
        "Fields",
        "`container` with skills",
        _body(
            container={
                "id": "Zqcontainer",
                "skills": [{"skill_id": "Zqskill", "type": "custom", "version": "latest"}],
            }
        ),
        "/container",
    ),
    _field("diagnostics", {"previous_message_id": "Zqbefore"}),
    _field("inference_geo", "eu"),
    _member("metadata.user_id", "Zqwho"),
    _member("output_config.effort", "low"),
    _member("output_config.format", {"type": "json_schema", "schema": SCHEMA}),
    _member("output_config.task_budget", {"type": "tokens", "total": 9000, "remaining": 100}),
    _field("output_format", {"type": "json_schema", "schema": SCHEMA}),
    _field("service_tier", "standard_only"),
    _field("speed", "fast"),
    _field("stop_sequences", ["Zqend", "Zqhalt"]),
    _field("stream", True),
    probe("Fields", "`thinking` adaptive", _body(thinking={"type": "adaptive"}), "/thinking"),
    probe("Fields", "`thinking` disabled", _body(thinking={"type": "disabled"}), "/thinking"),
    probe("Fields", "`thinking` between_tools", _body(thinking={"type": "between_tools"}), "/thinking"),
    probe(
        "Fields",
        "`thinking` enabled, with a budget",
        _body(max_tokens=9000, thinking={"type": "enabled", "budget_tokens": 5000}),
        "/thinking",
    ),
    probe(
        "Fields",
        "`thinking.display`",
        _body(thinking={"type": "adaptive", "display": "summarized"}),
        "/thinking/display",
        swap="omitted",
    ),
    _member("thinking.block_binding", {"prefix_mismatch_behavior": "error"}, thinking={"type": "adaptive"}),
    _field("tool_choice", {"type": "any"}, tools=[_TOOL]),
    _field("tools", [{"name": "Zqname", "input_schema": SCHEMA}]),
    _field("user_profile_id", "Zqprofile"),
    _field("workspace_id", "Zqspace"),
    _field("billing_policy", {"type": "billing_policy", "bill_to": "self"}),
    _field("compaction", {"type": "summarize", "instructions": "Zqshort"}),
    _edit(
        type="clear_tool_uses_20250919",
        trigger={"type": "input_tokens", "value": 30000},
        keep={"type": "tool_uses", "value": 3},
        clear_at_least={"type": "input_tokens", "value": 5000},
        clear_tool_inputs=True,
        exclude_tools=["Zqname"],
    ),
    _edit(type="clear_thinking_20251015", keep={"type": "thinking_turns", "value": 2}),
    _edit(
        type="compact_20260112",
        trigger={"type": "input_tokens", "value": 90000},
        instructions="Zqshort",
        pause_after_compaction=True,
    ),
    _field("fallbacks", [{"model": "Zqother", "max_tokens": 5}]),
    _field("fallback_credit_token", "Zqcredit"),
    _field("mcp_servers", [_SERVER], tools=[_TOOLSET, _TOOL]),
    probe(
        "Fields",
        "`tool_configuration` in `mcp_servers`",
        _body(
            mcp_servers=[{**_SERVER, "tool_configuration": {"allowed_tools": ["Zqname"], "enabled": True}}],
            tools=[_TOOLSET, _TOOL],
        ),
        "/mcp_servers/0/tool_configuration",
    ),
    probe("Fields", "`thread` create", _body(thread={"type": "create"}), "/thread"),
    probe(
        "Fields",
        "`thread` continue",
        _body(thread={"type": "continue", "previous_message_id": "Zqbefore"}),
        "/thread",
    ),
    _field("betas", ["Zqbeta"]),
    _field("temperature", 0.5),
    _field("top_p", 0.97),
    _field("top_k", 40),
    probe("Fields", "any field that nobody knows", _body(x_field="Zqfield"), "/x_field"),
]


def _said(*messages: Body) -> Body:
    return _body(messages=[_HI, *messages, {"role": "user", "content": "Go on"}])


_SYSTEM = {"role": "system", "content": [{"type": "text", "text": "Zqrule"}]}

MESSAGES = [
    probe(
        "Messages",
        "`user`",
        _body(messages=[{"role": "user", "content": "Zqwords"}]),
        "/messages/0",
        needed=True,
    ),
    probe("Messages", "`assistant`", _said({"role": "assistant", "content": "Zqwords"}), "/messages/1"),
    probe(
        "Messages",
        "`assistant` as the last one",
        _body(messages=[_HI, {"role": "assistant", "content": "Zqwords"}]),
        "/messages/1",
    ),
    probe("Messages", "`system`", _said(_SYSTEM), "/messages/1"),
    probe("Messages", "system: `clear_at`", _said({**_SYSTEM, "clear_at": "never"}), "/messages/1/clear_at"),
    probe(
        "Messages",
        "system: `output_config.effort`",
        _said({**_SYSTEM, "output_config": {"effort": "low"}}),
        "/messages/1/output_config",
    ),
    probe(
        "Messages",
        "a member that nobody knows",
        _body(messages=[{**_HI, "x_field": "Zqfield"}]),
        "/messages/0/x_field",
    ),
]

_COMMON = {"allowed_callers": ["direct"], "cache_control": _MARK, "defer_loading": True, "strict": True}


def _tool(**tool: Any) -> Probe:
    return probe("Tools", f"`{tool['type']}`", _body(tools=[_TOOL, tool]), "/tools/1")


def _option(name: str, value: Any) -> Probe:
    body = _body(tools=[{**_TOOL, name: value}])
    return probe("Tools", f"`{name}`", body, f"/tools/0/{name}")


_PLACE = {
    "type": "approximate",
    "city": "Zqcity",
    "country": "NO",
    "region": "Zqregion",
    "timezone": "Zqzone",
}
_SEARCH = {
    "name": "web_search",
    "allowed_domains": ["Zqdomain.example"],
    "max_uses": 4,
    "user_location": _PLACE,
}
_FETCH = {
    "name": "web_fetch",
    "allowed_domains": ["Zqdomain.example"],
    "citations": {"enabled": True},
    "max_content_tokens": 5000,
    "max_uses": 4,
    "url_sources": {"user_input": {"type": "all"}},
}
_SCREEN = {"name": "computer", "display_height_px": 600, "display_width_px": 800, "display_number": 1}
_EDITOR = {"name": "str_replace_editor"}
_EDITOR_2 = {"name": "str_replace_based_edit_tool"}

TOOLS = [
    probe("Tools", "without a type", _body(tools=[{"name": "Zqname", "input_schema": SCHEMA}]), "/tools/0"),
    _tool(type="custom", name="Zqname", description="Zqtext", input_schema=SCHEMA),
    _option("strict", True),
    _option("input_examples", [{"city": "Zqcity"}]),
    _option("eager_input_streaming", True),
    _option("defer_loading", True),
    _option("allowed_callers", ["direct"]),
    _option("cache_control", _MARK),
    _tool(type="bash_20241022", name="bash"),
    _tool(type="bash_20250124", name="bash"),
    *(
        _tool(type=f"code_execution_{version}", name="code_execution")
        for version in ("20250522", "20250825", "20260120", "20260521")
    ),
    _tool(type="browser_toolset_20260801", configs={"navigate": {"enabled": False, "defer_loading": True}}),
    _tool(type="computer_toolset_20260801", configs={"wait": {"enabled": False, "defer_loading": True}}),
    _tool(type="computer_20241022", **_SCREEN),
    _tool(type="computer_20250124", **_SCREEN),
    _tool(type="computer_20251124", enable_zoom=True, **_SCREEN),
    _tool(type="memory_20250818", name="memory"),
    _tool(type="text_editor_20241022", **_EDITOR),
    _tool(type="text_editor_20250124", **_EDITOR),
    _tool(type="text_editor_20250429", **_EDITOR_2),
    _tool(type="text_editor_20250728", max_characters=9000, **_EDITOR_2),
    _tool(type="web_search_20250305", **_SEARCH),
    _tool(type="web_search_20260209", **_SEARCH),
    _tool(type="web_search_20260318", response_inclusion="excluded", **_SEARCH),
    probe(
        "Tools",
        "`blocked_domains` of a web search",
        _body(
            tools=[
                {
                    "type": "web_search_20250305",
                    "name": "web_search",
                    "blocked_domains": ["Zqdomain.example"],
                },
                _TOOL,
            ]
        ),
        "/tools/0/blocked_domains",
    ),
    probe(
        "Tools",
        "`max_uses` of a web search",
        _body(tools=[{"type": "web_search_20250305", "name": "web_search", "max_uses": 4}, _TOOL]),
        "/tools/0/max_uses",
    ),
    _tool(type="web_fetch_20250910", **_FETCH),
    _tool(type="web_fetch_20260209", **_FETCH),
    _tool(type="web_fetch_20260309", use_cache=True, **_FETCH),
    _tool(type="web_fetch_20260318", use_cache=True, response_inclusion="excluded", **_FETCH),
    _tool(
        type="advisor_20260301",
        name="advisor",
        model="Zqmodel",
        caching={"type": "ephemeral"},
        max_tokens=5000,
        max_uses=4,
    ),
    _tool(type="tool_search_tool_bm25_20251119", name="tool_search_tool_bm25"),
    _tool(type="tool_search_tool_bm25", name="tool_search_tool_bm25"),
    _tool(type="tool_search_tool_regex_20251119", name="tool_search_tool_regex"),
    _tool(type="tool_search_tool_regex", name="tool_search_tool_regex"),
    probe(
        "Tools",
        "`mcp_toolset`",
        _body(mcp_servers=[_SERVER], tools=[_TOOL, _TOOLSET]),
        "/tools/1",
        needed=True,
    ),
    probe(
        "Tools",
        "`configs` of an `mcp_toolset`",
        _body(
            mcp_servers=[_SERVER],
            tools=[
                {**_TOOLSET, "default_config": {"enabled": False}, "configs": {"Zqname": {"enabled": True}}},
                _TOOL,
            ],
        ),
        "/tools/0/configs",
    ),
    probe(
        "Tools",
        "`default_config` of an `mcp_toolset`",
        _body(
            mcp_servers=[_SERVER],
            tools=[{**_TOOLSET, "default_config": {"enabled": True, "defer_loading": True}}, _TOOL],
        ),
        "/tools/0/default_config",
    ),
    probe(
        "Tools",
        "`tools` of an `mcp_toolset`",
        _body(
            mcp_servers=[_SERVER],
            tools=[
                {**_TOOLSET, "tools": [{"name": "Zqname", "description": "Zqtext", "input_schema": SCHEMA}]},
                {"name": "see", "input_schema": {"type": "object"}},
            ],
        ),
        "/tools/0/tools",
    ),
    probe(
        "Tools",
        "a tool that nobody knows",
        _body(tools=[_TOOL, {"type": "x_tool_20270101", "name": "Zqname"}]),
        "/tools/1",
    ),
]


def _choice(name: str, choice: Body, swap: Any = None) -> Probe:
    body = _body(tools=[_TOOL], tool_choice=choice)
    more = {} if swap is None else {"swap": swap}
    return probe("Tool choice", name, body, "/tool_choice", **more)


CHOICES = [
    _choice("`auto`", {"type": "auto"}, {"type": "none"}),
    _choice("`any`", {"type": "any"}),
    _choice("`tool`", {"type": "tool", "name": "see"}),
    _choice("`none`", {"type": "none"}),
    _choice(
        "`disable_parallel_tool_use`", {"type": "any", "disable_parallel_tool_use": True}, {"type": "any"}
    ),
]

REQUESTS: list[Probe] = [*FIELDS, *MESSAGES, *BLOCKS, *TOOLS, *CHOICES]
