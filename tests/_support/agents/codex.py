"""A request of Codex: the items, tools, settings and headers of a turn in the middle of its work.

The values are made up; fields, items, tools and headers are those of the real client. Texts name their own place.
"""

from __future__ import annotations

from typing import Any

from failures.turns import PIXEL

Json = dict[str, Any]

PIXEL_URL = f"data:image/png;base64,{PIXEL}"

# The client's headers, without its key.
HEADERS = {
    "accept": "text/event-stream",
    "user-agent": "codex_exec/0.169.0 (Debian 12.0.0; x86_64) dumb (codex_exec; 0.169.0)",
    "originator": "codex_exec",
    "session-id": "019a-session",
    "thread-id": "019a-thread",
    "x-client-request-id": "019a-request",
    "x-codex-beta-features": "remote_compaction_v2",
    "x-codex-turn-metadata": '{"turn_id":"t1"}',
    "x-codex-window-id": "019a-session:0",
}

GRAMMAR = (
    "start: begin_patch hunk+ end_patch\n"
    'begin_patch: "*** Begin Patch" LF\n'
    'end_patch: "*** End Patch" LF?\n'
    'hunk: "*** Add File: " /(.+)/ LF add_line+\n'
    'add_line: "+" /(.*)/ LF\n'
    "%import common.LF\n"
)


def _schema(required: list[str], **properties: Json) -> Json:
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


_STRING = {"type": "string", "description": "A text."}
_FUNCTIONS: dict[str, Json] = {
    "exec_command": _schema(["cmd"], cmd=_STRING, yield_time_ms={"type": "number"}, tty={"type": "boolean"}),
    "write_stdin": _schema(["session_id"], session_id={"type": "number"}, chars=_STRING),
    "request_user_input": _schema(["questions"], questions={"type": "array", "items": _schema(["id"], id=_STRING)}),
    "view_image": _schema(["path"], path=_STRING, detail={"type": "string", "enum": ["original"]}),
    "get_goal": _schema([]),
    "create_goal": _schema(["objective"], objective=_STRING, token_budget={"type": "integer"}),
    "update_goal": _schema(["status"], status={"type": "string", "enum": ["complete", "blocked"]}),
}  # fmt: skip
_AGENTS: dict[str, Json] = {
    "spawn_agent": _schema(["message"], message=_STRING),
    "wait_agent": _schema(["targets"], targets={"type": "array", "items": _STRING}),
}


def _function(name: str, schema: Json) -> Json:
    return {
        "type": "function",
        "name": name,
        "description": f"What {name} is for.",
        "strict": False,
        "parameters": schema,
    }


NAMESPACE: Json = {
    "type": "namespace",
    "name": "multi_agent_v1",
    "description": "Agents beside you.",
    "tools": [_function(name, schema) for name, schema in _AGENTS.items()],
}
APPLY_PATCH: Json = {
    "type": "custom",
    "name": "apply_patch",
    "description": "Edits files by a patch. It is FREEFORM, so do not wrap it in JSON.",
    "format": {"type": "grammar", "syntax": "lark", "definition": GRAMMAR},
}
TOOL_SEARCH: Json = {
    "type": "tool_search",
    "execution": "client",
    "description": "Searches the tools of apps.",
    "parameters": _schema(["query"], query=_STRING, limit={"type": "number"}),
}
LOCAL_SHELL: Json = {"type": "local_shell"}
WEB_SEARCH: Json = {
    "type": "web_search",
    "external_web_access": False,
    "search_content_types": ["text", "image"],
}
# What a search brought, and what can be called from then on.
FOUND_TOOL: Json = {
    "type": "namespace",
    "name": "mcp__calendar",
    "description": "The calendar.",
    "tools": [_function("list_events", _schema(["day"], day=_STRING)) | {"defer_loading": True}],
}
TOOLS: list[Json] = [
    *(_function(name, schema) for name, schema in _FUNCTIONS.items()),
    APPLY_PATCH,
    NAMESPACE,
    TOOL_SEARCH,
    LOCAL_SHELL,
    WEB_SEARCH,
]


def _message(role: str, *texts: str, **more: Any) -> Json:
    kind = "output_text" if role == "assistant" else "input_text"
    content = [{"type": kind, "text": text} for text in texts]
    return {"type": "message", "role": role, "content": content, **more}


PATCH = '*** Begin Patch\n*** Add File: "a".txt\n+one\\two\n*** End Patch\n'

OPENING: list[Json] = [
    _message("developer", "How permissions work.", "How to use skills."),
    _message("user", "The state of the machine."),
    _message("user", "Fix the picture."),
]
WORK: list[Json] = [
    {"type": "reasoning", "id": "rs_0a", "summary": [], "encrypted_content": "gAAAAreasoning"},
    _message("assistant", "I look at it.", id="msg_0a", phase="commentary"),
    {
        "type": "function_call",
        "id": "fc_0a",
        "status": "completed",
        "call_id": "call_exec",
        "name": "exec_command",
        "arguments": '{"cmd":"ls"}',
    },
    {"type": "function_call_output", "id": "fco_0a", "call_id": "call_exec", "output": "a.png"},
    {
        "type": "function_call",
        "id": "fc_0b",
        "status": "completed",
        "call_id": "call_view",
        "name": "view_image",
        "arguments": '{"path":"a.png"}',
    },
    {
        "type": "function_call_output",
        "id": "fco_0b",
        "call_id": "call_view",
        "output": [{"type": "input_image", "image_url": PIXEL_URL, "detail": "high"}],
    },
    {
        "type": "function_call",
        "id": "fc_0c",
        "status": "completed",
        "call_id": "call_spawn",
        "namespace": "multi_agent_v1",
        "name": "spawn_agent",
        "arguments": '{"message":"help"}',
    },
    {"type": "function_call_output", "id": "fco_0c", "call_id": "call_spawn", "output": "agent-1"},
    {
        "type": "custom_tool_call",
        "id": "ctc_0a",
        "status": "completed",
        "call_id": "call_patch",
        "name": "apply_patch",
        "input": PATCH,
    },
    {"type": "custom_tool_call_output", "call_id": "call_patch", "output": "Success."},
    {
        "type": "local_shell_call",
        "id": "lsh_0a",
        "status": "completed",
        "call_id": "call_shell",
        "action": {"type": "exec", "command": ["ls", "-l"], "env": {}, "timeout_ms": 1000},
    },
    {"type": "function_call_output", "call_id": "call_shell", "output": "total 1"},
    {
        "type": "tool_search_call",
        "id": "tsc_0a",
        "status": "completed",
        "call_id": "call_find",
        "execution": "client",
        "arguments": {"query": "calendar", "limit": 2},
    },
    {
        "type": "tool_search_output",
        "status": "completed",
        "call_id": "call_find",
        "execution": "client",
        "tools": [FOUND_TOOL],
    },
]

SETTINGS: Json = {
    "tool_choice": "auto",
    "parallel_tool_calls": True,
    "reasoning": {"effort": "medium", "summary": "auto"},
    "store": False,
    "stream": True,
    "include": ["reasoning.encrypted_content"],
    "prompt_cache_key": "019a-thread",
    "text": {"verbosity": "low"},
    "client_metadata": {
        "x-codex-installation-id": "019a-installation",
        "x-codex-window-id": "019a-session:0",
        "x-codex-turn-metadata": '{"turn_id":"t1"}',
        "session_id": "019a-session",
        "thread_id": "019a-thread",
        "turn_id": "t1",
        "root_turn_id": "t1",
    },
}

TURN: Json = {"model": "gpt-5.5", "input": [*OPENING, *WORK], "tools": TOOLS, **SETTINGS}
# The same, where the history has become too long.
COMPACTION: Json = {**TURN, "input": [*OPENING, *WORK, {"type": "compaction_trigger"}]}
