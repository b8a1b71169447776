"""What becomes of Claude Code's requests at a compatible Chat server and at OpenAI's own host, place by place.

At its own vendor's host the bytes are unchanged, so there is no table for that.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Any

from agents.requests import MODELS
from agents.rows import IMPLIED, Row, as_json, by, inside, lost, made, to
from oracle import CHAT, RESPONSES

Table = tuple[dict[str, Row], dict[str, Any]]


def _data_url(place: str) -> Row:
    return by(lambda data: f"data:image/png;base64,{data}", place)


def _error(place: str) -> Row:
    """The others have no place for whether a tool failed."""
    return by(lambda text: f"Error: {text}", place)


def _with_a_picture(text: str) -> str:
    return f"{text}\n\n[image: see the next message]"


_FOUND = "The tool DeferredToolPlaceholder can be called now."

# Rows that are the same for both upstreams.
_COMMON: dict[str, Row] = {
    "/stream": to("/stream"),
    "/metadata/user_id": by(lambda name: sha256(name.encode()).hexdigest(), "/user", code="altered"),
    # Upstreams without this setting keep all thinking.
    "/context_management/...": IMPLIED,
}


# At both upstreams: the line for the client's provider, and a tool that no search has found.
_FOR_THE_PROVIDER: dict[str, Row] = {"/system/0/...": lost(), "/tools/11/...": lost()}


def _chat_rows(shift: int) -> dict[str, Row]:
    """Rows of the conversation. shift: how many system messages stand before the first response; they are joined to
    what the user says."""
    read, results, search, found = (number + shift for number in (1, 2, 3, 4))
    requested, first, second, images, requested_again, response = range(2, 8)
    call = f"/messages/{requested}/tool_calls"
    return {
        # --- the opening
        "/messages/0/role": to("/messages/1/role"),
        "/messages/0/content/{n}/type": IMPLIED,
        "/messages/0/content/{n}/text": inside("/messages/1/content"),
        # --- thinking that only its vendor can read, text, two calls
        f"/messages/{read}/role": to(f"/messages/{requested}/role"),
        f"/messages/{read}/content/0/...": lost("foreign_signature"),
        f"/messages/{read}/content/1/type": IMPLIED,
        f"/messages/{read}/content/1/text": to(f"/messages/{requested}/content"),
        f"/messages/{read}/content/2/type": made("function", f"{call}/0/type"),
        f"/messages/{read}/content/2/id": to(f"{call}/0/id"),
        f"/messages/{read}/content/2/name": to(f"{call}/0/function/name"),
        f"/messages/{read}/content/2/input/...": as_json(f"{call}/0/function/arguments"),
        f"/messages/{read}/content/3/type": made("function", f"{call}/1/type"),
        f"/messages/{read}/content/3/id": to(f"{call}/1/id"),
        f"/messages/{read}/content/3/name": to(f"{call}/1/function/name"),
        f"/messages/{read}/content/3/input/...": as_json(f"{call}/1/function/arguments"),
        # --- a picture: tool messages take none, so it follows behind the results
        f"/messages/{results}/role": made("tool", f"/messages/{first}/role", f"/messages/{second}/role"),
        f"/messages/{results}/content/{{n}}/type": IMPLIED,
        f"/messages/{results}/content/0/tool_use_id": to(f"/messages/{first}/tool_call_id"),
        f"/messages/{results}/content/0/content/0/type": IMPLIED,
        f"/messages/{results}/content/0/content/0/text": by(_with_a_picture, f"/messages/{first}/content"),
        f"/messages/{results}/content/0/content/1/type": made(
            "image_url",
            f"/messages/{images}/content/0/type",
            code="altered",
            at=f"/messages/{results}/content/0/content/1",
        ),
        f"/messages/{results}/content/0/content/1/source/type": IMPLIED,
        f"/messages/{results}/content/0/content/1/source/media_type": IMPLIED,  # in the URL
        f"/messages/{results}/content/0/content/1/source/data": _data_url(
            f"/messages/{images}/content/0/image_url/url"
        ),
        # --- a tool that failed
        f"/messages/{results}/content/1/tool_use_id": to(f"/messages/{second}/tool_call_id"),
        f"/messages/{results}/content/1/content": _error(f"/messages/{second}/content"),
        f"/messages/{results}/content/1/is_error": Row(code="altered"),
        # --- the search for tools, which is a call like any other
        f"/messages/{search}/role": to(f"/messages/{requested_again}/role"),
        f"/messages/{search}/content/0/...": lost("foreign_signature"),
        f"/messages/{search}/content/1/type": made(
            "function", f"/messages/{requested_again}/tool_calls/0/type"
        ),
        f"/messages/{search}/content/1/id": to(f"/messages/{requested_again}/tool_calls/0/id"),
        f"/messages/{search}/content/1/name": to(f"/messages/{requested_again}/tool_calls/0/function/name"),
        f"/messages/{search}/content/1/input/...": as_json(
            f"/messages/{requested_again}/tool_calls/0/function/arguments"
        ),
        f"/messages/{found}/role": made("tool", f"/messages/{response}/role"),
        f"/messages/{found}/content/0/type": IMPLIED,
        f"/messages/{found}/content/0/tool_use_id": to(f"/messages/{response}/tool_call_id"),
        f"/messages/{found}/content/0/is_error": IMPLIED,  # false
        f"/messages/{found}/content/0/content/0/...": made(
            _FOUND, f"/messages/{response}/content", code="altered"
        ),
    }


_CHAT_ADDED: dict[str, Any] = {
    # Always requested: the client's protocol has figures in every response.
    "/stream_options/include_usage": True,
    "/messages/0/role": "system",
    "/messages/5/role": "user",
    "/messages/6/content": None,
    "/tools/{n}/type": "function",
}


_CHAT_COMMON: dict[str, Row] = {
    **_COMMON,
    "/model": made(MODELS[CHAT], "/model"),
    "/max_tokens": to("/max_completion_tokens"),
    **_FOR_THE_PROVIDER,
    "/system/{n}/type": IMPLIED,
    "/system/{n}/text": inside("/messages/0/content"),
    "/system/{n}/cache_control/...": lost(),
    "/tools/{n}/name": to("/tools/{n}/function/name"),
    "/tools/{n}/description": to("/tools/{n}/function/description"),
    "/tools/{n}/input_schema/...": to("/tools/{n}/function/parameters"),
    # The conversation has found the tool, so it is sent like the others.
    "/tools/{n:9}/defer_loading": IMPLIED,
}


def _user_text(place: str) -> Row:
    return Row((place,), lambda text, found: f"<system>\n{text}\n</system>" in found)


# System messages in mid-conversation: a server with default capabilities may refuse them.
_SYSTEM_IN_CHAT: dict[str, Row] = {
    "/messages/1/role": Row(code="altered"),
    "/messages/1/content": _user_text("/messages/1/content"),
    "/messages/6/role": made("user", "/messages/8/role", code="altered"),
    "/messages/6/content/0/type": IMPLIED,
    "/messages/6/content/0/text": _user_text("/messages/8/content"),
    "/messages/6/content/0/cache_control/...": lost(),
}


# A later system message sets another effort, which counts from there on.
_EFFORT_CHANGED: dict[str, Row] = {"/output_config/effort": lost("unknown_field", at="/output_config")}

# --- Responses --------------------------------------------------------------------------------------------------


def _responses_rows(shift: int) -> dict[str, Row]:
    """As for Chat. Items stand in the order of the client's blocks."""
    read, results, search, found = (number + shift for number in (1, 2, 3, 4))
    text, call, other, result, failed, requested, response = (f"/input/{n + shift}" for n in range(2, 9))
    return {
        "/messages/0/role": to("/input/1/role"),
        "/messages/0/content/{n}/type": made("input_text", "/input/1/content/{n}/type"),
        "/messages/0/content/{n}/text": to("/input/1/content/{n}/text"),
        f"/messages/{read}/role": to(f"{text}/role"),
        f"/messages/{read}/content/0/...": lost("foreign_signature"),
        f"/messages/{read}/content/1/type": made("output_text", f"{text}/content/0/type"),
        f"/messages/{read}/content/1/text": to(f"{text}/content/0/text"),
        f"/messages/{read}/content/2/type": made("function_call", f"{call}/type"),
        f"/messages/{read}/content/2/id": to(f"{call}/call_id"),
        f"/messages/{read}/content/2/name": to(f"{call}/name"),
        f"/messages/{read}/content/2/input/...": as_json(f"{call}/arguments"),
        f"/messages/{read}/content/3/type": made("function_call", f"{other}/type"),
        f"/messages/{read}/content/3/id": to(f"{other}/call_id"),
        f"/messages/{read}/content/3/name": to(f"{other}/name"),
        f"/messages/{read}/content/3/input/...": as_json(f"{other}/arguments"),
        f"/messages/{results}/role": IMPLIED,
        f"/messages/{results}/content/0/type": made("function_call_output", f"{result}/type"),
        f"/messages/{results}/content/0/tool_use_id": to(f"{result}/call_id"),
        f"/messages/{results}/content/0/content/0/type": made("input_text", f"{result}/output/0/type"),
        f"/messages/{results}/content/0/content/0/text": to(f"{result}/output/0/text"),
        f"/messages/{results}/content/0/content/1/type": made("input_image", f"{result}/output/1/type"),
        f"/messages/{results}/content/0/content/1/source/type": IMPLIED,
        f"/messages/{results}/content/0/content/1/source/media_type": IMPLIED,  # in the URL
        f"/messages/{results}/content/0/content/1/source/data": _data_url(f"{result}/output/1/image_url"),
        f"/messages/{results}/content/1/type": made("function_call_output", f"{failed}/type"),
        f"/messages/{results}/content/1/tool_use_id": to(f"{failed}/call_id"),
        f"/messages/{results}/content/1/content": _error(f"{failed}/output"),
        f"/messages/{results}/content/1/is_error": Row(code="altered"),
        f"/messages/{search}/role": IMPLIED,
        f"/messages/{search}/content/0/...": lost("foreign_signature"),
        f"/messages/{search}/content/1/type": made("function_call", f"{requested}/type"),
        f"/messages/{search}/content/1/id": to(f"{requested}/call_id"),
        f"/messages/{search}/content/1/name": to(f"{requested}/name"),
        f"/messages/{search}/content/1/input/...": as_json(f"{requested}/arguments"),
        f"/messages/{found}/role": IMPLIED,
        f"/messages/{found}/content/0/type": made("function_call_output", f"{response}/type"),
        f"/messages/{found}/content/0/tool_use_id": to(f"{response}/call_id"),
        f"/messages/{found}/content/0/is_error": IMPLIED,  # false
    }


def _responses_added(shift: int) -> dict[str, Any]:
    added: dict[str, Any] = {
        "/input/0/type": "message",
        "/input/0/role": "system",
        "/input/1/type": "message",
        f"/input/{2 + shift}/type": "message",
        f"/input/{2 + shift}/content/0/annotations": [],  # required
        f"/input/{5 + shift}/output/1/detail": "auto",  # required
        "/tools/{n}/type": "function",
        # The server's default is true, the client's false.
        "/tools/{n}/strict": False,
        # The client's protocol keeps nothing and gives reasoning back wrapped.
        "/store": False,
        "/include/0": "reasoning.encrypted_content",
    }
    return added


def _system_in_responses(source: int) -> dict[str, Row]:
    block, part = f"/system/{source}", f"/input/0/content/{source - 1}"
    return {
        f"{block}/type": made("input_text", f"{part}/type"),
        f"{block}/text": to(f"{part}/text"),
        f"{block}/cache_control/type": made("explicit", f"{part}/prompt_cache_breakpoint/mode"),
    }


_RESPONSES_COMMON: dict[str, Row] = {
    **_COMMON,
    "/model": made(MODELS[RESPONSES], "/model"),
    "/max_tokens": to("/max_output_tokens"),
    **_FOR_THE_PROVIDER,
    **_system_in_responses(1),
    **_system_in_responses(2),
    "/tools/{n}/name": to("/tools/{n}/name"),
    "/tools/{n}/description": to("/tools/{n}/description"),
    "/tools/{n}/input_schema/...": to("/tools/{n}/parameters"),
    # The conversation has found the tool, so it is sent like the others.
    "/tools/{n:9}/defer_loading": IMPLIED,
}

_SYSTEM_IN_RESPONSES: dict[str, Row] = {
    "/messages/1/role": to("/input/2/role"),
    "/messages/1/content": to("/input/2/content/0/text"),
    "/messages/6/role": to("/input/10/role"),
    "/messages/6/content/0/type": made("input_text", "/input/10/content/0/type"),
    "/messages/6/content/0/text": to("/input/10/content/0/text"),
    "/messages/6/content/0/cache_control/type": made(
        "explicit", "/input/10/content/0/prompt_cache_breakpoint/mode"
    ),
}


# --- by case and upstream ---------------------------------------------------------------------------------------

# Chat has no setting for the display of thinking.
_THINKING_IN_CHAT: dict[str, Row] = {"/thinking/display": lost()}

TABLES: dict[tuple[str, str], Table] = {
    ("claude-code", CHAT): (
        {
            **_CHAT_COMMON,
            **_chat_rows(1),
            **_SYSTEM_IN_CHAT,
            **_EFFORT_CHANGED,
            "/messages/6/output_config/effort": to("/reasoning_effort"),
            "/thinking/type": IMPLIED,  # an effort makes a model think
            **_THINKING_IN_CHAT,
        },
        _CHAT_ADDED,
    ),
    ("claude-code-budget", CHAT): (
        {
            **_CHAT_COMMON,
            **_chat_rows(0),
            "/messages/4/content/0/cache_control/...": lost(),
            "/thinking/type": Row(code="altered", at="/thinking"),
            "/thinking/budget_tokens": made("xhigh", "/reasoning_effort"),
            **_THINKING_IN_CHAT,
        },
        _CHAT_ADDED,
    ),
    ("claude-code", RESPONSES): (
        {
            **_RESPONSES_COMMON,
            **_responses_rows(1),
            "/messages/5/content/0/content/0/...": made(_FOUND, "/input/9/output", code="altered"),
            **_SYSTEM_IN_RESPONSES,
            **_EFFORT_CHANGED,
            "/messages/6/output_config/effort": to("/reasoning/effort"),
            "/thinking/type": IMPLIED,  # an effort makes a model think
            "/thinking/display": IMPLIED,  # nothing is shown unless it is requested
        },
        {
            **_responses_added(1),
            "/input/2/type": "message",
            "/input/2/content/0/type": "input_text",
            "/input/10/type": "message",
        },
    ),
    ("claude-code-budget", RESPONSES): (
        {
            **_RESPONSES_COMMON,
            **_responses_rows(0),
            "/messages/4/content/0/content/0/...": made(_FOUND, "/input/8/output/0/text", code="altered"),
            "/messages/4/content/0/cache_control/type": made(
                "explicit", "/input/8/output/0/prompt_cache_breakpoint/mode"
            ),
            "/thinking/type": Row(code="altered", at="/thinking"),
            "/thinking/budget_tokens": made("xhigh", "/reasoning/effort"),
            "/thinking/display": IMPLIED,  # nothing is shown unless it is requested
        },
        _responses_added(0) | {"/input/8/output/0/type": "input_text"},
    ),
}
