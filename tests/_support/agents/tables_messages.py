"""What becomes of the Messages requests of opencode, pi, qwen and aider at upstreams of the other protocols.

The conversation is the same in all of them, so each upstream has one table for its places, and each client adds
its own rows. At an upstream of their own protocol the bytes are unchanged.
"""

from __future__ import annotations

from typing import Any

from agents.requests import MODELS
from agents.rows import IMPLIED, Row, as_json, by, lost, made, to
from oracle import CHAT, MESSAGES, RESPONSES

Table = tuple[dict[str, Row], dict[str, Any]]

# --- to a compatible Chat server ----------------------------------------------------------------------------------

_CHAT: dict[str, Row] = {
    "/model": made(MODELS[CHAT], "/model"),
    "/stream": to("/stream"),
    "/max_tokens": to("/max_completion_tokens"),
    "/tools/{n}/name": to("/tools/{n}/function/name"),
    "/tools/{n}/description": to("/tools/{n}/function/description"),
    "/tools/{n}/input_schema/...": to("/tools/{n}/function/parameters"),
    "/system/0/type": IMPLIED,
    "/system/0/text": to("/messages/0/content"),
    "/messages/0/role": to("/messages/1/role"),
    "/messages/0/content/0/type": IMPLIED,
    "/messages/0/content/0/text": to("/messages/1/content"),
}
# Figures are always requested: the client's protocol has them in every response.
_CHAT_ADDED: dict[str, Any] = {"/stream_options/include_usage": True, "/messages/0/role": "system"}
_CHAT_TOOLS_ADDED: dict[str, Any] = {"/tools/{n}/type": "function", "/messages/{n:2,4}/content": None}
_NO_MARKS: dict[str, Row] = {
    "/system/0/cache_control/...": lost(),
    "/messages/{m}/content/{n}/cache_control/...": lost(),
    "/tools/{n}/cache_control/...": lost(),
}


def _chat_turns(block: int) -> dict[str, Row]:
    """Two calls and their results. block: the place of a call in its turn."""
    rows: dict[str, Row] = {}
    for turn in (1, 3):
        use, call = f"/messages/{turn}/content/{block}", f"/messages/{turn + 1}/tool_calls/0"
        result, response = f"/messages/{turn + 1}/content/0", f"/messages/{turn + 2}"
        rows |= {
            f"/messages/{turn}/role": to(f"/messages/{turn + 1}/role"),
            f"{use}/type": made("function", f"{call}/type"),
            f"{use}/id": to(f"{call}/id"),
            f"{use}/name": to(f"{call}/function/name"),
            f"{use}/input/...": as_json(f"{call}/function/arguments"),
            f"/messages/{turn + 1}/role": made("tool", f"{response}/role"),
            f"{result}/type": IMPLIED,
            f"{result}/tool_use_id": to(f"{response}/tool_call_id"),
            f"{result}/content": to(f"{response}/content"),
        }
    return rows


# The text of earlier thinking is sent where a server accepts it; the signature is only for its vendor.
_REASONING_IN_CHAT: dict[str, Row] = {
    "/messages/{n:1,3}/content/0/type": IMPLIED,
    "/messages/1/content/0/thinking": to("/messages/2/reasoning_content"),
    "/messages/3/content/0/thinking": to("/messages/4/reasoning_content"),
    "/messages/{n:1,3}/content/0/signature": lost("foreign_signature", at="/messages/{n}/content/0"),
}


def _budget(effort: str, place: str) -> dict[str, Row]:
    """A budget in tokens is an effort, about."""
    return {
        "/thinking/type": Row(code="altered", at="/thinking"),
        "/thinking/budget_tokens": made(effort, place),
    }


# A switch for the vendor's streaming, which does not change the tool.
_EAGER: dict[str, Row] = {"/tools/{n}/eager_input_streaming": lost()}
_FAILED: dict[str, Row] = {
    "/messages/2/content/0/is_error": IMPLIED,  # false
    "/messages/4/content/0/is_error": Row(code="altered"),
}
_AIDER_IN_CHAT: dict[str, Row] = {
    **_CHAT,
    "/temperature": to("/temperature"),
    "/messages/{n:1,2}/content/0/type": IMPLIED,
    "/messages/1/role": to("/messages/2/role"),
    "/messages/1/content/0/text": to("/messages/2/content"),
    "/messages/2/role": to("/messages/3/role"),
    "/messages/2/content/0/text": to("/messages/3/content"),
}
_OPENCODE_IN_CHAT: dict[str, Row] = {
    **_CHAT,
    **_NO_MARKS,
    **_chat_turns(0),
    **_budget("low", "/reasoning_effort"),
    "/tool_choice/type": IMPLIED,  # auto, the default
}

# --- to OpenAI's own host -----------------------------------------------------------------------------------------

_RESPONSES: dict[str, Row] = {
    "/model": made(MODELS[RESPONSES], "/model"),
    "/stream": to("/stream"),
    "/max_tokens": to("/max_output_tokens"),
    "/tools/{n}/name": to("/tools/{n}/name"),
    "/tools/{n}/description": to("/tools/{n}/description"),
    "/tools/{n}/input_schema/...": to("/tools/{n}/parameters"),
    # Instructions with a mark are an item, because their field has no marks.
    "/system/0/type": made("input_text", "/input/0/content/0/type"),
    "/system/0/text": to("/input/0/content/0/text"),
    "/system/0/cache_control/type": made("explicit", "/input/0/content/0/prompt_cache_breakpoint/mode"),
    "/messages/0/role": to("/input/1/role"),
    "/messages/0/content/0/type": made("input_text", "/input/1/content/0/type"),
    "/messages/0/content/0/text": to("/input/1/content/0/text"),
}
_RESPONSES_ADDED: dict[str, Any] = {
    "/store": False,
    "/input/0/type": "message",
    "/input/0/role": "system",
    "/input/1/type": "message",
    "/include/0": "reasoning.encrypted_content",
    "/tools/{n}/type": "function",
    # The server's default is true, the client's false.
    "/tools/{n}/strict": False,
    # The last result has a mark, which only a part can have.
    "/input/5/output/0/type": "input_text",
}


def _items(block: int) -> dict[str, Row]:
    rows: dict[str, Row] = {}
    for turn, item in ((1, 2), (3, 4)):
        use, result = f"/messages/{turn}/content/{block}", f"/messages/{turn + 1}/content/0"
        rows |= {
            f"/messages/{turn}/role": IMPLIED,
            f"{use}/type": made("function_call", f"/input/{item}/type"),
            f"{use}/id": to(f"/input/{item}/call_id"),
            f"{use}/name": to(f"/input/{item}/name"),
            f"{use}/input/...": as_json(f"/input/{item}/arguments"),
            f"/messages/{turn + 1}/role": IMPLIED,
            f"{result}/type": made("function_call_output", f"/input/{item + 1}/type"),
            f"{result}/tool_use_id": to(f"/input/{item + 1}/call_id"),
        }
    return {
        **rows,
        "/messages/2/content/0/content": to("/input/3/output"),
        "/messages/4/content/0/content": to("/input/5/output/0/text"),
        "/messages/4/content/0/cache_control/type": made(
            "explicit", "/input/5/output/0/prompt_cache_breakpoint/mode"
        ),
    }


_REASONING_IN_RESPONSES: dict[str, Row] = {"/messages/{n:1,3}/content/0/...": lost("foreign_signature")}
_OPENCODE_IN_RESPONSES: dict[str, Row] = {
    **_RESPONSES,
    **_items(0),
    **_budget("low", "/reasoning/effort"),
    "/tool_choice/type": to("/tool_choice"),
    # A call cannot have a mark, so it is on the part before it.
    "/messages/2/content/0/content": to("/input/3/output/0/text"),
    "/messages/3/content/0/cache_control/type": made(
        "explicit",
        "/input/3/output/0/prompt_cache_breakpoint/mode",
        code="altered",
        at="/messages/3/content/0/cache_control",
    ),
}
_OPENCODE_IN_RESPONSES_ADDED: dict[str, Any] = {
    **_RESPONSES_ADDED,
    "/input/3/output/0/type": "input_text",
}
_MARKED_TOOLS: dict[str, Row] = {"/tools/{n}/cache_control/...": lost()}

# --- by client and upstream ---------------------------------------------------------------------------------------

TABLES: dict[tuple[str, str, str], Table] = {
    ("opencode", MESSAGES, CHAT): (_OPENCODE_IN_CHAT, {**_CHAT_ADDED, **_CHAT_TOOLS_ADDED}),
    ("opencode-eager", MESSAGES, CHAT): (
        {**_OPENCODE_IN_CHAT, **_EAGER},
        {**_CHAT_ADDED, **_CHAT_TOOLS_ADDED},
    ),
    ("pi", MESSAGES, CHAT): (
        {
            **_CHAT,
            **_NO_MARKS,
            **_chat_turns(1),
            **_REASONING_IN_CHAT,
            **_EAGER,
            **_FAILED,
            "/messages/4/content/0/content": by(lambda text: f"Error: {text}", "/messages/5/content"),
            **_budget("low", "/reasoning_effort"),
            "/thinking/display": lost(),
        },
        {**_CHAT_ADDED, **_CHAT_TOOLS_ADDED},
    ),
    ("qwen", MESSAGES, CHAT): (
        {
            **_CHAT,
            **_NO_MARKS,
            **_chat_turns(1),
            **_REASONING_IN_CHAT,
            "/messages/4/content/0/content/0/type": IMPLIED,
            "/messages/4/content/0/content/0/text": to("/messages/5/content"),
            **_budget("xhigh", "/reasoning_effort"),
            "/temperature": to("/temperature"),
        },
        {**_CHAT_ADDED, **_CHAT_TOOLS_ADDED},
    ),
    ("aider", MESSAGES, CHAT): (_AIDER_IN_CHAT, _CHAT_ADDED),
    ("opencode", MESSAGES, RESPONSES): (_OPENCODE_IN_RESPONSES, _OPENCODE_IN_RESPONSES_ADDED),
    ("opencode-eager", MESSAGES, RESPONSES): (
        {**_OPENCODE_IN_RESPONSES, **_EAGER},
        _OPENCODE_IN_RESPONSES_ADDED,
    ),
    ("pi", MESSAGES, RESPONSES): (
        {
            **_RESPONSES,
            **_items(1),
            **_REASONING_IN_RESPONSES,
            **_EAGER,
            **_FAILED,
            "/messages/4/content/0/content": by(lambda text: f"Error: {text}", "/input/5/output/0/text"),
            **_budget("low", "/reasoning/effort"),
            "/thinking/display": made("auto", "/reasoning/summary"),
            **_MARKED_TOOLS,
        },
        _RESPONSES_ADDED,
    ),
    ("qwen", MESSAGES, RESPONSES): (
        {
            **_RESPONSES,
            **_items(1),
            **_REASONING_IN_RESPONSES,
            "/messages/4/content/0/content/0/type": made("input_text", "/input/5/output/0/type"),
            "/messages/4/content/0/content/0/text": to("/input/5/output/0/text"),
            **_budget("xhigh", "/reasoning/effort"),
            "/temperature": lost(),
            **_MARKED_TOOLS,
        },
        _RESPONSES_ADDED,
    ),
    ("aider", MESSAGES, RESPONSES): (
        {
            **_RESPONSES,
            "/system/0/type": IMPLIED,
            "/system/0/text": to("/instructions"),
            "/temperature": lost(),
            "/messages/{n}/role": to("/input/{n}/role"),
            "/messages/{n:0,2}/content/0/type": made("input_text", "/input/{n}/content/0/type"),
            "/messages/1/content/0/type": made("output_text", "/input/1/content/0/type"),
            "/messages/{n}/content/0/text": to("/input/{n}/content/0/text"),
            **{f"/messages/0/{name}": to(f"/input/0/{name}") for name in ("role", "content/0/text")},
            "/messages/0/content/0/type": made("input_text", "/input/0/content/0/type"),
        },
        {"/store": False, "/input/{n}/type": "message", "/input/1/content/0/annotations": []},
    ),
}
