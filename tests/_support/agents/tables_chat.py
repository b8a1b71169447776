"""What becomes of the Chat requests of opencode, pi, qwen and aider at upstreams of the other protocols.

The conversation is the same in all of them, so each upstream has one table for its places, and each client adds
its own rows. At an upstream of their own protocol the bytes are unchanged.
"""

from __future__ import annotations

from typing import Any

from agents.requests import MODELS
from agents.rows import IMPLIED, Row, from_json, lost, made, to
from oracle import CHAT, MESSAGES, RESPONSES

Table = tuple[dict[str, Row], dict[str, Any]]

# Their servers keep what they get, unless they are told not to.
_IN_RESPONSES: dict[str, Any] = {"/store": False}
# Reasoning has to come back wrapped, where the client keeps it.
_THINKING: dict[str, Any] = {"/include/0": "reasoning.encrypted_content"}


def _mark(place: str, **more: Any) -> Row:
    return made("explicit", f"{place}/prompt_cache_breakpoint/mode", **more)


_FROM_CHAT: dict[str, Row] = {
    "/stream": to("/stream"),
    "/stream_options/include_usage": IMPLIED,  # the other protocols have them always
    "/tools/{n}/type": IMPLIED,
    "/tools/{n}/function/name": to("/tools/{n}/name"),
    "/tools/{n}/function/description": to("/tools/{n}/description"),
}
_CHAT_IN_MESSAGES: dict[str, Row] = {
    **_FROM_CHAT,
    "/model": made(MODELS[MESSAGES], "/model"),
    "/tools/{n}/function/parameters/...": to("/tools/{n}/input_schema"),
    "/messages/0/role": IMPLIED,
    "/messages/0/content": to("/system"),
    "/messages/1/role": to("/messages/0/role"),
    "/messages/1/content": to("/messages/0/content"),
}
_CHAT_IN_RESPONSES: dict[str, Row] = {
    **_FROM_CHAT,
    "/model": made(MODELS[RESPONSES], "/model"),
    "/tools/{n}/function/parameters/...": to("/tools/{n}/parameters"),
    "/messages/0/role": IMPLIED,
    "/messages/0/content": to("/instructions"),
    "/messages/1/role": to("/input/0/role"),
    "/messages/1/content": to("/input/0/content/0/text"),
}


def _chat_call_in_messages(source: int, block: int) -> dict[str, Row]:
    """A turn with a call, and its result. block: the place of the call among the turn's blocks."""
    call, use = f"/messages/{source}/tool_calls/0", f"/messages/{source - 1}/content/{block}"
    result = f"/messages/{source}/content/0"
    return {
        f"/messages/{source}/role": to(f"/messages/{source - 1}/role"),
        f"{call}/type": made("tool_use", f"{use}/type"),
        f"{call}/id": to(f"{use}/id"),
        f"{call}/function/name": to(f"{use}/name"),
        f"{call}/function/arguments": from_json(f"{use}/input"),
        f"/messages/{source + 1}/role": made("tool_result", f"{result}/type"),
        f"/messages/{source + 1}/tool_call_id": to(f"{result}/tool_use_id"),
        # A list of one text is the same as the text.
        f"/messages/{source + 1}/content": to(f"{result}/content"),
    }


def _chat_call_in_responses(source: int, item: int) -> dict[str, Row]:
    call = f"/messages/{source}/tool_calls/0"
    return {
        f"/messages/{source}/role": IMPLIED,
        f"{call}/type": made("function_call", f"/input/{item}/type"),
        f"{call}/id": to(f"/input/{item}/call_id"),
        f"{call}/function/name": to(f"/input/{item}/name"),
        f"{call}/function/arguments": to(f"/input/{item}/arguments"),
        f"/messages/{source + 1}/role": made("function_call_output", f"/input/{item + 1}/type"),
        f"/messages/{source + 1}/tool_call_id": to(f"/input/{item + 1}/call_id"),
        f"/messages/{source + 1}/content": to(f"/input/{item + 1}/output"),
    }


def _text_in_messages(source: int) -> dict[str, Row]:
    """What a turn says before its call."""
    return {f"/messages/{source}/content": to(f"/messages/{source - 1}/content/0/text")}


def _text_in_responses(source: int, item: int) -> dict[str, Row]:
    return {
        f"/messages/{source}/role": to(f"/input/{item}/role"),
        f"/messages/{source}/content": to(f"/input/{item}/content/0/text"),
    }


_RESULT_TURNS: dict[str, Any] = {"/messages/{n:2,4}/role": "user"}
_ASSISTANT_TEXT: dict[str, Any] = {
    "type": "message",
    "content/0/type": "output_text",
    "content/0/annotations": [],
}
_REQUESTED: dict[str, Any] = {"type": "message", "content/0/type": "input_text"}


def _item(place: int, form: dict[str, Any]) -> dict[str, Any]:
    """What makes an item a message."""
    return {f"/input/{place}/{name}": value for name, value in form.items()}


_NO_TEXT = IMPLIED  # null, or "" beside calls

_EFFORT_IN_MESSAGES: dict[str, Row] = {"/reasoning_effort": to("/output_config/effort")}
_ADAPTIVE: dict[str, Any] = {"/thinking/type": "adaptive"}
_EFFORT_IN_RESPONSES: dict[str, Row] = {"/reasoning_effort": to("/reasoning/effort")}
_STRICT: dict[str, Row] = {"/tools/{n}/function/strict": to("/tools/{n}/strict")}
# The server's default is true, the client's false.
_UNSAID_STRICT: dict[str, Any] = {"/tools/{n}/strict": False}
_FUNCTIONS: dict[str, Any] = {"/tools/{n}/type": "function"}

_OPENCODE_CHAT_IN_MESSAGES: dict[str, Row] = {
    "/max_tokens": to("/max_tokens"),
    "/tool_choice": to("/tool_choice/type"),
    **_EFFORT_IN_MESSAGES,
    **_chat_call_in_messages(2, 1),
    **_text_in_messages(2),
    **_chat_call_in_messages(4, 0),
    "/messages/4/content": _NO_TEXT,
    **_CHAT_IN_MESSAGES,
}
_OPENCODE_CHAT_IN_RESPONSES: dict[str, Row] = {
    "/max_tokens": to("/max_output_tokens"),
    "/tool_choice": to("/tool_choice"),
    **_EFFORT_IN_RESPONSES,
    **_chat_call_in_responses(2, 2),
    **_text_in_responses(2, 1),
    **_chat_call_in_responses(4, 4),
    "/messages/4/content": _NO_TEXT,
    **_CHAT_IN_RESPONSES,
}
_OPENCODE_CHAT_IN_RESPONSES_ADDED: dict[str, Any] = {
    **_IN_RESPONSES,
    **_THINKING,
    **_UNSAID_STRICT,
    **_FUNCTIONS,
    **_item(0, _REQUESTED),
    **_item(1, _ASSISTANT_TEXT),
}
_QWEN_PARTS: dict[str, Row] = {
    "/max_tokens": to("/max_tokens"),
    "/messages/1/content/{n}/type": to("/messages/0/content/{n}/type"),
    "/messages/1/content/{n}/text": to("/messages/0/content/{n}/text"),
    "/messages/{n:3,5}/content/0/type": IMPLIED,
    "/messages/3/content/0/text": to("/messages/2/content/0/content"),
    "/messages/5/content/0/text": to("/messages/4/content/0/content"),
}
_AIDER_CHAT: dict[str, Row] = {"/temperature": lost()}  # models of today take no sampling settings

TABLES: dict[tuple[str, str, str], Table] = {
    ("opencode", CHAT, MESSAGES): (
        _OPENCODE_CHAT_IN_MESSAGES,
        {**_ADAPTIVE, **_RESULT_TURNS, "/messages/1/content/0/type": "text"},
    ),
    ("opencode-marks", CHAT, MESSAGES): (
        {
            "/messages/0/cache_control/...": to("/system/0/cache_control"),
            "/messages/0/content": to("/system/0/text"),
            "/messages/4/cache_control/...": to("/messages/3/content/0/cache_control"),
            "/messages/5/cache_control/...": to("/messages/4/content/0/cache_control"),
            **{k: v for k, v in _OPENCODE_CHAT_IN_MESSAGES.items() if k != "/messages/0/content"},
        },
        {**_ADAPTIVE, **_RESULT_TURNS, "/messages/1/content/0/type": "text", "/system/0/type": "text"},
    ),
    ("opencode", CHAT, RESPONSES): (_OPENCODE_CHAT_IN_RESPONSES, _OPENCODE_CHAT_IN_RESPONSES_ADDED),
    ("opencode-marks", CHAT, RESPONSES): (
        {
            **_OPENCODE_CHAT_IN_RESPONSES,
            # A mark makes of the instructions an item, and the places of the others move by one.
            **_text_in_responses(2, 2),
            **_chat_call_in_responses(4, 5),
            "/messages/0/role": to("/input/0/role"),
            "/messages/0/content": to("/input/0/content/0/text"),
            "/messages/1/role": to("/input/1/role"),
            "/messages/1/content": to("/input/1/content/0/text"),
            **{
                k: v
                for k, v in _chat_call_in_responses(2, 3).items()
                if k not in ("/messages/2/role", "/messages/3/content")
            },
            "/messages/3/content": to("/input/4/output/0/text"),
            "/messages/4/content": _NO_TEXT,
            "/messages/5/content": to("/input/6/output/0/text"),
            "/messages/0/cache_control/type": _mark("/input/0/content/0"),
            "/messages/4/cache_control/type": _mark(
                "/input/4/output/0", code="altered", at="/messages/4/cache_control"
            ),
            "/messages/5/cache_control/type": _mark("/input/6/output/0"),
        },
        {
            **_IN_RESPONSES,
            **_THINKING,
            **_UNSAID_STRICT,
            **_FUNCTIONS,
            **_item(0, _REQUESTED),
            **_item(1, _REQUESTED),
            **_item(2, _ASSISTANT_TEXT),
            "/input/{n:4,6}/output/0/type": "input_text",
        },
    ),
    ("pi", CHAT, MESSAGES): (
        {
            "/store": IMPLIED,  # nothing is kept
            "/max_completion_tokens": to("/max_tokens"),
            "/messages/1/content/0/type": IMPLIED,
            "/messages/1/content/0/text": to("/messages/0/content"),
            "/messages/{n:2,4}/reasoning_content": lost("foreign_signature"),
            **_EFFORT_IN_MESSAGES,
            **_STRICT,
            **_chat_call_in_messages(2, 0),
            "/messages/2/content": _NO_TEXT,
            **_chat_call_in_messages(4, 1),
            **_text_in_messages(4),
            **_CHAT_IN_MESSAGES,
        },
        {**_ADAPTIVE, **_RESULT_TURNS, "/messages/3/content/0/type": "text"},
    ),
    ("pi", CHAT, RESPONSES): (
        {
            **_CHAT_IN_RESPONSES,
            "/messages/0/role": to("/input/0/role"),
            "/messages/0/content": to("/input/0/content/0/text"),
            "/store": to("/store"),
            "/max_completion_tokens": to("/max_output_tokens"),
            "/messages/1/role": to("/input/1/role"),
            "/messages/1/content/0/type": made("input_text", "/input/1/content/0/type"),
            "/messages/1/content/0/text": to("/input/1/content/0/text"),
            "/messages/{n:2,4}/reasoning_content": lost("foreign_signature"),
            **_EFFORT_IN_RESPONSES,
            **_STRICT,
            **_chat_call_in_responses(2, 2),
            "/messages/2/content": _NO_TEXT,
            **_chat_call_in_responses(4, 5),
            **_text_in_responses(4, 4),
        },
        {
            **_THINKING,
            **_FUNCTIONS,
            **_item(0, _REQUESTED),
            "/input/1/type": "message",
            **_item(4, _ASSISTANT_TEXT),
        },
    ),
    ("qwen", CHAT, MESSAGES): (
        {
            **_QWEN_PARTS,
            **_chat_call_in_messages(2, 0),
            "/messages/2/content": _NO_TEXT,
            **_chat_call_in_messages(4, 1),
            **_text_in_messages(4),
            **_CHAT_IN_MESSAGES,
        },
        {**_RESULT_TURNS, "/messages/3/content/0/type": "text"},
    ),
    ("qwen", CHAT, RESPONSES): (
        {
            "/max_tokens": to("/max_output_tokens"),
            "/messages/1/content/{n}/type": made("input_text", "/input/0/content/{n}/type"),
            "/messages/1/content/{n}/text": to("/input/0/content/{n}/text"),
            **_chat_call_in_responses(2, 1),
            "/messages/2/content": _NO_TEXT,
            **_chat_call_in_responses(4, 4),
            **_text_in_responses(4, 3),
            "/messages/{n:3,5}/content/0/type": IMPLIED,
            "/messages/3/content/0/text": to("/input/2/output"),
            "/messages/5/content/0/text": to("/input/5/output"),
            **_CHAT_IN_RESPONSES,
        },
        {
            **_IN_RESPONSES,
            **_UNSAID_STRICT,
            **_FUNCTIONS,
            "/input/0/type": "message",
            **_item(3, _ASSISTANT_TEXT),
        },
    ),
    ("aider", CHAT, MESSAGES): (
        {
            **_AIDER_CHAT,
            "/messages/2/role": to("/messages/1/role"),
            "/messages/2/content": to("/messages/1/content"),
            "/messages/3/role": to("/messages/2/role"),
            "/messages/3/content": to("/messages/2/content"),
            **_CHAT_IN_MESSAGES,
        },
        {"/max_tokens": 32000},
    ),
    ("aider", CHAT, RESPONSES): (
        {
            **_AIDER_CHAT,
            "/messages/2/role": to("/input/1/role"),
            "/messages/2/content": to("/input/1/content/0/text"),
            "/messages/3/role": to("/input/2/role"),
            "/messages/3/content": to("/input/2/content/0/text"),
            **_CHAT_IN_RESPONSES,
        },
        {**_IN_RESPONSES, **_item(0, _REQUESTED), **_item(1, _ASSISTANT_TEXT), **_item(2, _REQUESTED)},
    ),
}
