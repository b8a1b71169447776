"""Requests of Claude Code to a current model and to one with thinking budgets.

The values are made up; fields, blocks, tools and headers are those of the real client. Texts name their own place.
"""

from __future__ import annotations

from typing import Any

from failures.turns import PIXEL

Json = dict[str, Any]

MARK = {"type": "ephemeral"}

_BETAS = (
    "claude-code-20250219,interleaved-thinking-2025-05-14,context-management-2025-06-27,"
    "thinking-token-count-2026-05-13,advanced-tool-use-2025-11-20"
)
# The client's headers, without its key.
HEADERS = {
    "accept": "application/json",
    "user-agent": "claude-cli/2.1.329 (external, sdk-cli)",
    "anthropic-version": "2023-06-01",
    "anthropic-beta": _BETAS + ",per-turn-control-2026-07-01,effort-2025-11-24",
    "anthropic-dangerous-direct-browser-access": "true",
    "x-app": "cli",
    "x-claude-code-session-id": "5f0c9a2e-8d3b-4a57-9a51-2b7a3d1e6c40",
    "x-stainless-arch": "x64",
    "x-stainless-lang": "js",
    "x-stainless-os": "Linux",
    "x-stainless-package-version": "0.91.1",
    "x-stainless-retry-count": "0",
    "x-stainless-runtime": "node",
    "x-stainless-runtime-version": "v24.3.0",
    "x-stainless-timeout": "600",
}


def _schema(required: list[str], **properties: Json) -> Json:
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


_STRING = {"type": "string"}
_COUNT = {"type": "integer", "minimum": 0}

# Name -> schema. Texts of tools have their names in them.
SCHEMAS: dict[str, Json] = {
    "Agent": _schema(["prompt"], prompt=_STRING, model={"type": "string", "enum": ["sonnet", "opus"]}),
    "Bash": _schema(
        ["command"],
        command=_STRING,
        timeout={"type": "number", "exclusiveMinimum": 0},
        run_in_background={"type": "boolean", "default": False},
    ),
    "Edit": _schema(
        ["file_path", "old_string", "new_string"], file_path=_STRING, old_string=_STRING, new_string=_STRING
    ),
    "ListAgents": _schema([]),
    "Read": _schema(["file_path"], file_path=_STRING, offset=_COUNT, pages={"type": "string", "pattern": "^\\d+$"}),
    "ReportFindings": _schema(
        ["findings"], findings={"type": "array", "maxItems": 32, "items": {"type": "object", "title": "Finding"}}
    ),
    "ScheduleWakeup": _schema(["seconds"], seconds={"type": "number", "exclusiveMinimum": 0}),
    "Skill": _schema(["skill"], skill=_STRING),
    "ToolSearch": _schema(["query"], query=_STRING, max_results={"type": "number", "default": 5}),
    "DeferredToolPlaceholder": _schema([]),
    "Write": _schema(["file_path", "content"], file_path=_STRING, content=_STRING),
    "Workflow": _schema(["script"], script=_STRING),
}  # fmt: skip
DEFERRED = "DeferredToolPlaceholder"
_LOADED_LATE = ("Workflow", DEFERRED)


def _tool(name: str) -> Json:
    tool = {"name": name, "description": f"What {name} is for.", "input_schema": SCHEMAS[name]}
    return tool | ({"defer_loading": True} if name in _LOADED_LATE else {})


SYSTEM = [
    {"type": "text", "text": "x-anthropic-billing-header: cc_version=2.1.329"},
    {"type": "text", "text": "You are a command line agent.", "cache_control": MARK},
    {"type": "text", "text": "Here is how to work.", "cache_control": MARK},
]

_OPENING = [
    {"type": "text", "text": "<system-reminder>Today is a day.</system-reminder>"},
    {"type": "text", "text": "Fix the picture."},
]
_READ = [
    {"type": "thinking", "thinking": "", "signature": "EpQBsig0"},
    {"type": "text", "text": "I look at it."},
    {"type": "tool_use", "id": "toolu_01Read", "name": "Read", "input": {"file_path": "/repo/a.png"}},
    {"type": "tool_use", "id": "toolu_02Bash", "name": "Bash", "input": {"command": "cat nothing"}},
]
_READ_RESULTS = [
    {
        "type": "tool_result",
        "tool_use_id": "toolu_01Read",
        "content": [
            {"type": "text", "text": "1 picture"},
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}},
        ],
    },
    {"type": "tool_result", "tool_use_id": "toolu_02Bash", "content": "cat: no such file", "is_error": True},
]
_SEARCH = [
    {"type": "thinking", "thinking": "", "signature": "EpQBsig1"},
    {"type": "tool_use", "id": "toolu_03Find", "name": "ToolSearch", "input": {"query": "select:Deferred"}},
]


def _search_results(**mark: Json) -> list[Json]:
    return [
        {
            "type": "tool_result",
            "tool_use_id": "toolu_03Find",
            "content": [{"type": "tool_reference", "tool_name": DEFERRED}],
            "is_error": False,
            **mark,
        }
    ]


def _body(model: str, messages: list[Json], **fields: Any) -> Json:
    return {
        "model": model,
        "messages": messages,
        "system": SYSTEM,
        "tools": [_tool(name) for name in SCHEMAS],
        "metadata": {"user_id": f"user_{'1f' * 32}_account__session_5f0c9a2e-0000-4000-8000-000000000000"},
        **fields,
        "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
        "stream": True,
    }


# A model of today: adaptive thinking, effort, system messages in mid-conversation.
ADAPTIVE = _body(
    "claude-opus-5",
    [
        {"role": "user", "content": _OPENING},
        {"role": "system", "content": "The list of agents."},
        {"role": "assistant", "content": _READ},
        {"role": "user", "content": _READ_RESULTS},
        {"role": "assistant", "content": _SEARCH},
        {"role": "user", "content": _search_results()},
        {
            "role": "system",
            "content": [{"type": "text", "text": "Be brief.", "cache_control": MARK}],
            "output_config": {"effort": "low"},
        },
    ],
    max_tokens=128000,
    thinking={"type": "adaptive", "display": "omitted"},
    output_config={"effort": "medium"},
)
# An older one: a budget, and no system messages but at the top.
BUDGET = _body(
    "claude-sonnet-4-5",
    [
        {"role": "user", "content": _OPENING},
        {"role": "assistant", "content": _READ},
        {"role": "user", "content": _READ_RESULTS},
        {"role": "assistant", "content": _SEARCH},
        {"role": "user", "content": _search_results(cache_control=MARK)},
    ],
    max_tokens=32000,
    thinking={"type": "enabled", "budget_tokens": 31999, "display": "omitted"},
)
