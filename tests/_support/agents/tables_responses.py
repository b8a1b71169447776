"""What becomes of the Responses requests of opencode, pi and qwen at upstreams of the other protocols.

The conversation is the same in all of them, so each upstream has one table for its places, and each client adds
its own rows. At an upstream of their own protocol the bytes are unchanged.
"""

from __future__ import annotations

from typing import Any

from agents.requests import MODELS
from agents.rows import IMPLIED, Row, from_json, lost, made, to
from oracle import CHAT, MESSAGES, RESPONSES

Table = tuple[dict[str, Row], dict[str, Any]]

_COMMON: dict[str, Row] = {
    "/stream": to("/stream"),
    "/store": IMPLIED,  # no upstream keeps what it is sent, unless it is asked to
    "/include/{n}": IMPLIED,  # it always comes, wrapped where it must be
    "/tools/{n}/type": IMPLIED,
    "/input/{n}/id": IMPLIED,  # ids that only their own vendor can use
}

# --- to a compatible Chat server ----------------------------------------------------------------------------------

_CHAT: dict[str, Row] = {
    **_COMMON,
    "/model": made(MODELS[CHAT], "/model"),
    "/max_output_tokens": to("/max_completion_tokens"),
    "/prompt_cache_key": to("/prompt_cache_key"),
    "/tools/{n}/name": to("/tools/{n}/function/name"),
    "/tools/{n}/description": to("/tools/{n}/function/description"),
    "/tools/{n}/parameters/...": to("/tools/{n}/function/parameters"),
}
_CHAT_ADDED: dict[str, Any] = {
    # Always requested: the client's protocol has figures in every response.
    "/stream_options/include_usage": True,
    "/tools/{n}/type": "function",
    "/messages/{n:2,4}/role": "assistant",
    "/messages/{n:2,4}/content": None,
}
_STRICT_IN_CHAT: dict[str, Row] = {"/tools/{n}/strict": to("/tools/{n}/function/strict")}
_DEVELOPER_IN_CHAT: dict[str, Row] = {
    "/input/0/role": made("system", "/messages/0/role"),
    "/input/0/content": to("/messages/0/content"),
    "/input/1/role": to("/messages/1/role"),
    "/input/1/content/0/type": IMPLIED,
    "/input/1/content/0/text": to("/messages/1/content"),
}
_REASONING_IN_CHAT: dict[str, Row] = {
    "/reasoning/effort": to("/reasoning_effort"),
    "/reasoning/summary": lost(),
}


def _chat_calls(*items: int) -> dict[str, Row]:
    """items: the places of the calls in the input; their results follow."""
    rows: dict[str, Row] = {}
    for item, message in zip(items, (2, 4), strict=True):
        call, result = f"/messages/{message}/tool_calls/0", f"/messages/{message + 1}"
        rows |= {
            f"/input/{item}/type": made("function", f"{call}/type"),
            f"/input/{item}/call_id": to(f"{call}/id"),
            f"/input/{item}/name": to(f"{call}/function/name"),
            f"/input/{item}/arguments": to(f"{call}/function/arguments"),
            f"/input/{item + 1}/type": made("tool", f"{result}/role"),
            f"/input/{item + 1}/call_id": to(f"{result}/tool_call_id"),
            f"/input/{item + 1}/output": to(f"{result}/content"),
        }
    return rows


# The text of the summary is sent where a server accepts it; encrypted content is only for its vendor.
_REASONING_ITEMS_IN_CHAT: dict[str, Row] = {
    "/input/{n:2,5}/type": IMPLIED,
    "/input/{n:2,5}/summary/0/type": IMPLIED,
    "/input/2/summary/0/text": to("/messages/2/reasoning_content"),
    "/input/5/summary/0/text": to("/messages/4/reasoning_content"),
    "/input/{n:2,5}/encrypted_content": lost("foreign_signature", at="/input/{n}"),
}

# --- to Anthropic's own host --------------------------------------------------------------------------------------

_MESSAGES: dict[str, Row] = {
    **_COMMON,
    "/model": made(MODELS[MESSAGES], "/model"),
    "/max_output_tokens": to("/max_tokens"),
    "/prompt_cache_key": lost(),
    "/tools/{n}/name": to("/tools/{n}/name"),
    "/tools/{n}/description": to("/tools/{n}/description"),
    "/tools/{n}/parameters/...": to("/tools/{n}/input_schema"),
}
_MESSAGES_ADDED: dict[str, Any] = {
    "/messages/{n:1,3}/role": "assistant",
    "/messages/{n:2,4}/role": "user",
}
_STRICT_IN_MESSAGES: dict[str, Row] = {"/tools/{n}/strict": to("/tools/{n}/strict")}
_DEVELOPER_IN_MESSAGES: dict[str, Row] = {
    "/input/0/role": IMPLIED,  # system and developer are one
    "/input/0/content": to("/system"),
    "/input/1/role": to("/messages/0/role"),
    "/input/1/content/0/type": IMPLIED,
    "/input/1/content/0/text": to("/messages/0/content"),
}
_REASONING_IN_MESSAGES: dict[str, Row] = {
    "/reasoning/effort": to("/output_config/effort"),
    "/reasoning/summary": made("summarized", "/thinking/display"),
}
_ADAPTIVE: dict[str, Any] = {"/thinking/type": "adaptive"}


def _block_calls(*items: int) -> dict[str, Row]:
    rows: dict[str, Row] = {}
    for item, message in zip(items, (1, 3), strict=True):
        use, result = f"/messages/{message}/content/0", f"/messages/{message + 1}/content/0"
        rows |= {
            f"/input/{item}/type": made("tool_use", f"{use}/type"),
            f"/input/{item}/call_id": to(f"{use}/id"),
            f"/input/{item}/name": to(f"{use}/name"),
            f"/input/{item}/arguments": from_json(f"{use}/input"),
            f"/input/{item + 1}/type": made("tool_result", f"{result}/type"),
            f"/input/{item + 1}/call_id": to(f"{result}/tool_use_id"),
            f"/input/{item + 1}/output": to(f"{result}/content"),
        }
    return rows


# Nothing unsigned may pass for a thought there.
_REASONING_ITEMS_IN_MESSAGES: dict[str, Row] = {"/input/{n:2,5}/...": lost("foreign_signature")}

# --- by client and upstream ---------------------------------------------------------------------------------------

_DEFAULTS_IN_CHAT: dict[str, Row] = {"/tool_choice": IMPLIED}  # auto
_REQUESTED_IN_CHAT: dict[str, Row] = {**_STRICT_IN_CHAT, **_DEVELOPER_IN_CHAT, **_REASONING_IN_CHAT}
_REQUESTED_IN_MESSAGES: dict[str, Row] = {
    **_STRICT_IN_MESSAGES,
    **_DEVELOPER_IN_MESSAGES,
    **_REASONING_IN_MESSAGES,
}

TABLES: dict[tuple[str, str, str], Table] = {
    ("opencode", RESPONSES, CHAT): (
        {**_CHAT, **_REQUESTED_IN_CHAT, **_chat_calls(2, 4), **_DEFAULTS_IN_CHAT},
        _CHAT_ADDED,
    ),
    ("opencode-reasoning", RESPONSES, CHAT): (
        {
            **_CHAT,
            **_REQUESTED_IN_CHAT,
            **_REASONING_ITEMS_IN_CHAT,
            **_chat_calls(3, 6),
            **_DEFAULTS_IN_CHAT,
            "/text/verbosity": to("/verbosity"),
        },
        _CHAT_ADDED,
    ),
    ("pi", RESPONSES, CHAT): (
        {**_CHAT, **_REQUESTED_IN_CHAT, **_REASONING_ITEMS_IN_CHAT, **_chat_calls(3, 6)},
        _CHAT_ADDED,
    ),
    ("qwen", RESPONSES, CHAT): (
        {
            **_CHAT,
            "/instructions": to("/messages/0/content"),
            "/input/0/type": IMPLIED,
            "/input/0/role": to("/messages/1/role"),
            "/input/0/content/0/type": IMPLIED,
            "/input/0/content/0/text": to("/messages/1/content"),
            **_chat_calls(1, 3),
            **_DEFAULTS_IN_CHAT,
            "/parallel_tool_calls": IMPLIED,  # true, the default
        },
        {**_CHAT_ADDED, "/messages/0/role": "system"},
    ),
    ("opencode", RESPONSES, MESSAGES): (
        {
            **_MESSAGES,
            **_REQUESTED_IN_MESSAGES,
            **_block_calls(2, 4),
            "/tool_choice": to("/tool_choice/type"),
        },
        {**_MESSAGES_ADDED, **_ADAPTIVE},
    ),
    ("opencode-reasoning", RESPONSES, MESSAGES): (
        {
            **_MESSAGES,
            **_REQUESTED_IN_MESSAGES,
            **_REASONING_ITEMS_IN_MESSAGES,
            **_block_calls(3, 6),
            "/tool_choice": to("/tool_choice/type"),
            "/text/verbosity": lost(),
        },
        {**_MESSAGES_ADDED, **_ADAPTIVE},
    ),
    ("pi", RESPONSES, MESSAGES): (
        {**_MESSAGES, **_REQUESTED_IN_MESSAGES, **_REASONING_ITEMS_IN_MESSAGES, **_block_calls(3, 6)},
        {**_MESSAGES_ADDED, **_ADAPTIVE},
    ),
    ("qwen", RESPONSES, MESSAGES): (
        {
            **_MESSAGES,
            "/instructions": to("/system"),
            "/input/0/type": IMPLIED,
            "/input/0/role": to("/messages/0/role"),
            "/input/0/content/0/type": IMPLIED,
            "/input/0/content/0/text": to("/messages/0/content"),
            **_block_calls(1, 3),
            "/tool_choice": to("/tool_choice/type"),
            "/parallel_tool_calls": IMPLIED,  # true, the default
        },
        _MESSAGES_ADDED,
    ),
}
