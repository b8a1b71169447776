"""What becomes of Codex's requests at a compatible Chat server and at Anthropic's own host, place by place.

At OpenAI's own host the bytes are unchanged, so there is no table for that.
"""

from __future__ import annotations

import json
from typing import Any

from agents.requests import CODEX, MODELS
from agents.rows import IMPLIED, Row, as_json, by, from_json, inside, lost, made, to
from oracle import CHAT, MESSAGES

Json = dict[str, Any]
Table = tuple[dict[str, Row], dict[str, Any]]

# The places of the tools that the client counts from 0.
_PLAIN = "0,1,2,3,4,5,6"
_PATCH, _SPACE, _SEARCH, _SHELL, _WEB = range(7, 12)
assert [
    CODEX["tools"][n].get("name", CODEX["tools"][n]["type"]) for n in (_PATCH, _SPACE, _SEARCH, _SHELL, _WEB)
] == [
    "apply_patch",
    "multi_agent_v1",
    "tool_search",
    "local_shell",
    "web_search",
]
# The names that the namespaces' tools go by: theirs and that of their namespace.
_AGENTS = ("multi_agent_v1__spawn_agent", "multi_agent_v1__wait_agent")
_EVENTS = "mcp__calendar__list_events"

# What a free-text tool is as a function.
_INPUT: Json = {
    "type": "object",
    "properties": {"input": {"type": "string", "description": "The whole input of the tool, as plain text."}},
    "required": ["input"],
    "additionalProperties": False,
}


def _as_input(place: str) -> Row:
    """A free-text tool is a function with one text."""
    return made(_INPUT, place)


def _as_action(place: str) -> Row:
    """The fallback function of local_shell has what the action of a call has."""

    def check(_: Any, schema: Any) -> bool:
        members = ["command", "env", "timeout_ms", "user", "working_directory"]
        return sorted(schema["properties"]) == members and schema["required"] == ["command"]

    return Row((place,), check, "altered", f"/tools/{_SHELL}")


# --- settings ---------------------------------------------------------------------------------------------------

_SETTINGS: dict[str, Row] = {
    "/stream": to("/stream"),
    # No upstream keeps what it is sent, unless it is asked to.
    "/store": IMPLIED,
    # What it requests always comes, wrapped where it must be.
    "/include/{n}": IMPLIED,
    "/client_metadata/...": lost(),
}
_SETTINGS_IN_CHAT: dict[str, Row] = {
    **_SETTINGS,
    "/model": made(MODELS[CHAT], "/model"),
    "/reasoning/effort": to("/reasoning_effort"),
    "/reasoning/summary": lost(),
    "/text/verbosity": to("/verbosity"),
    "/prompt_cache_key": to("/prompt_cache_key"),
}
_SETTINGS_IN_MESSAGES: dict[str, Row] = {
    **_SETTINGS,
    "/model": made(MODELS[MESSAGES], "/model"),
    "/reasoning/effort": to("/output_config/effort"),
    "/reasoning/summary": made("summarized", "/thinking/display"),
    "/text/verbosity": lost(),
    "/prompt_cache_key": lost(),
}
_CHOICES_IN_CHAT: dict[str, Row] = {
    "/tool_choice": IMPLIED,  # auto, the default
    "/parallel_tool_calls": IMPLIED,  # true, the default
}
_CHOICES_IN_MESSAGES: dict[str, Row] = {
    "/tool_choice": to("/tool_choice/type"),
    "/parallel_tool_calls": IMPLIED,  # true, the default
}
# A summary calls no tools. They are shown all the same, for the conversation has calls of them.
_NO_CALL_IN_CHAT = {**_CHOICES_IN_CHAT, "/tool_choice": made("none", "/tool_choice")}
_NO_CALL_IN_MESSAGES = {**_CHOICES_IN_MESSAGES, "/tool_choice": made("none", "/tool_choice/type")}
_ADDED_IN_CHAT: dict[str, Any] = {"/stream_options/include_usage": True}
_ADDED_IN_MESSAGES: dict[str, Any] = {"/max_tokens": 32000, "/thinking/type": "adaptive"}

# --- tools ------------------------------------------------------------------------------------------------------


def _function(source: str, target: str, schema: str, name: Row) -> dict[str, Row]:
    return {
        f"{source}/type": IMPLIED,
        f"{source}/name": name,
        f"{source}/description": to(f"{target}/description"),
        f"{source}/strict": to(f"{target}/strict"),
        f"{source}/parameters/...": to(f"{target}/{schema}"),
    }


def _tools(inner: str, schema: str, found: int, result: str) -> dict[str, Row]:
    """inner: where a tool's fields are. found: the place of the tool that a search brought; result: what says so."""

    def at(place: int | str) -> str:
        return f"/tools/{place}{inner}"

    patch, space, brought = f"/tools/{_PATCH}", f"/tools/{_SPACE}", "/input/16/tools/0"
    rows = _function(f"/tools/{{n:{_PLAIN}}}", at("{n}"), schema, to(f"{at('{n}')}/name"))
    rows |= {
        # --- a free-text tool, whose description has the grammar
        f"{patch}/type": _as_input(f"{at(_PATCH)}/{schema}"),
        f"{patch}/name": to(f"{at(_PATCH)}/name"),
        f"{patch}/description": inside(f"{at(_PATCH)}/description"),
        f"{patch}/format/type": Row(code="altered", at=f"{patch}/format"),
        f"{patch}/format/syntax": inside(f"{at(_PATCH)}/description"),
        f"{patch}/format/definition": inside(f"{at(_PATCH)}/description"),
        # --- a namespace becomes part of the names of its tools
        f"{space}/type": IMPLIED,
        f"{space}/name": IMPLIED,
        f"{space}/description": lost(),
        # --- what the client runs
        f"/tools/{_SEARCH}/type": made(
            "tool_search", f"{at(10)}/name", code="altered", at=f"/tools/{_SEARCH}"
        ),
        f"/tools/{_SEARCH}/execution": IMPLIED,
        f"/tools/{_SEARCH}/description": to(f"{at(10)}/description"),
        f"/tools/{_SEARCH}/parameters/...": to(f"{at(10)}/{schema}"),
        f"/tools/{_SHELL}/type": _as_action(f"{at(11)}/{schema}"),
        # --- what the client's search has found can be called
        f"{brought}/type": IMPLIED,
        f"{brought}/name": IMPLIED,
        f"{brought}/description": lost(),
        **_function(f"{brought}/tools/0", at(found), schema, made(f"Found the tools: {_EVENTS}", result)),
        f"{brought}/tools/0/defer_loading": IMPLIED,  # it is shown from now on
    }
    for number, name in enumerate(_AGENTS):
        target = at(8 + number)
        rows |= _function(f"{space}/tools/{number}", target, schema, made(name, f"{target}/name"))
    return rows


def _added_tools(inner: str, found: int) -> dict[str, Any]:
    return {
        f"/tools/11{inner}/name": "local_shell",
        f"/tools/11{inner}/description": "Runs one command on the user's computer and gives its output.",
        f"/tools/{found}{inner}/name": _EVENTS,
    }


_TOOLS_IN_CHAT: dict[str, Row] = {
    **_tools("/function", "parameters", 12, "/messages/14/content"),
    f"/tools/{_WEB}/...": lost(),
}
_TOOLS_IN_MESSAGES: dict[str, Row] = {
    **_tools("", "input_schema", 13, "/messages/12/content/0/content"),
    # The vendor's own search has neither of the settings.
    f"/tools/{_WEB}/type": made("web_search_20250305", "/tools/12/type", code="altered", at=f"/tools/{_WEB}"),
    f"/tools/{_WEB}/external_web_access": IMPLIED,
    f"/tools/{_WEB}/search_content_types/{{n}}": IMPLIED,
}

# --- the conversation -------------------------------------------------------------------------------------------

_ITEMS: dict[str, Row] = {
    # An id that only its own vendor can use: nothing refers to it.
    "/input/{n}/id": IMPLIED,
    # Each of them is complete.
    "/input/{n}/status": IMPLIED,
    "/input/{n:0,1,2,4}/type": IMPLIED,
    "/input/3/...": lost("foreign_signature"),
    "/input/4/phase": lost(),
    "/input/9/namespace": IMPLIED,  # in the name
    "/input/{n:15,16}/execution": IMPLIED,
}


def _action_is(read: Any, place: str) -> Row:
    def check(action: Json, arguments: Any) -> bool:
        # No environment is the same as none.
        return bool(read(arguments) == {"command": action["command"], "timeout_ms": action["timeout_ms"]})

    return Row((place,), check)


def _chat_call(call: int, message: int) -> dict[str, Row]:
    """A call and the result behind it."""
    function, result = f"/messages/{message}/tool_calls/0", f"/messages/{message + 1}"
    return {
        f"/input/{call}/type": made("function", f"{function}/type"),
        f"/input/{call}/call_id": to(f"{function}/id"),
        f"/input/{call + 1}/type": made("tool", f"{result}/role"),
        f"/input/{call + 1}/call_id": to(f"{result}/tool_call_id"),
    }


_CHAT_ITEMS: dict[str, Row] = {
    **_ITEMS,
    "/input/0/role": made("system", "/messages/0/role"),
    "/input/0/content/{m}/type": IMPLIED,
    "/input/0/content/{m}/text": inside("/messages/0/content"),
    "/input/{n:1,2}/role": to("/messages/1/role"),
    "/input/{n:1,2}/content/0/type": IMPLIED,
    "/input/{n:1,2}/content/0/text": inside("/messages/1/content"),
    "/input/4/role": to("/messages/2/role"),
    "/input/4/content/0/type": IMPLIED,
    "/input/4/content/0/text": to("/messages/2/content"),
    **_chat_call(5, 2),
    "/input/5/name": to("/messages/2/tool_calls/0/function/name"),
    "/input/5/arguments": to("/messages/2/tool_calls/0/function/arguments"),
    "/input/6/output": to("/messages/3/content"),
    **_chat_call(7, 4),
    "/input/7/name": to("/messages/4/tool_calls/0/function/name"),
    "/input/7/arguments": to("/messages/4/tool_calls/0/function/arguments"),
    **_chat_call(9, 7),
    "/input/9/name": made(_AGENTS[0], "/messages/7/tool_calls/0/function/name"),
    "/input/9/arguments": to("/messages/7/tool_calls/0/function/arguments"),
    "/input/10/output": to("/messages/8/content"),
    **_chat_call(11, 9),
    "/input/11/name": to("/messages/9/tool_calls/0/function/name"),
    "/input/11/input": by(
        lambda text: json.dumps({"input": text}, separators=(",", ":")),
        "/messages/9/tool_calls/0/function/arguments",
    ),
    "/input/12/output": to("/messages/10/content"),
    **_chat_call(13, 11),
    "/input/13/action/...": _action_is(json.loads, "/messages/11/tool_calls/0/function/arguments"),
    "/input/14/output": to("/messages/12/content"),
    **_chat_call(15, 13),
    "/input/15/arguments/...": as_json("/messages/13/tool_calls/0/function/arguments"),
    # The image follows the result, which has a text in its place.
    "/input/8/output/0/type": made(
        "image_url", "/messages/6/content/0/type", code="altered", at="/input/8/output/0"
    ),
    "/input/8/output/0/image_url": to("/messages/6/content/0/image_url/url"),
    "/input/8/output/0/detail": to("/messages/6/content/0/image_url/detail"),
}
_CHAT_ITEMS_ADDED: dict[str, Any] = {
    "/messages/5/content": "[image: see the next message]",
    "/messages/6/role": "user",
    "/messages/{n:4,7,9,11,13}/role": "assistant",
    "/messages/{n:4,7,9,11,13}/content": None,
    "/messages/11/tool_calls/0/function/name": "local_shell",
    "/messages/13/tool_calls/0/function/name": "tool_search",
}


def _block_call(call: int, message: int, block: int = 0) -> dict[str, Row]:
    use, result = f"/messages/{message}/content/{block}", f"/messages/{message + 1}/content/0"
    return {
        f"/input/{call}/type": made("tool_use", f"{use}/type"),
        f"/input/{call}/call_id": to(f"{use}/id"),
        f"/input/{call + 1}/type": made("tool_result", f"{result}/type"),
        f"/input/{call + 1}/call_id": to(f"{result}/tool_use_id"),
    }


_PICTURE = "/messages/4/content/0/content/0"
_MESSAGES_ITEMS: dict[str, Row] = {
    **_ITEMS,
    "/input/0/role": IMPLIED,  # system and developer are one
    "/input/0/content/{m}/type": made("text", "/system/{m}/type"),
    "/input/0/content/{m}/text": to("/system/{m}/text"),
    "/input/{n:1,2}/role": to("/messages/0/role"),
    "/input/1/content/0/type": made("text", "/messages/0/content/0/type"),
    "/input/1/content/0/text": to("/messages/0/content/0/text"),
    "/input/2/content/0/type": made("text", "/messages/0/content/1/type"),
    "/input/2/content/0/text": to("/messages/0/content/1/text"),
    "/input/4/role": to("/messages/1/role"),
    "/input/4/content/0/type": made("text", "/messages/1/content/0/type"),
    "/input/4/content/0/text": to("/messages/1/content/0/text"),
    **_block_call(5, 1, 1),
    "/input/5/name": to("/messages/1/content/1/name"),
    "/input/5/arguments": from_json("/messages/1/content/1/input"),
    "/input/6/output": to("/messages/2/content/0/content"),
    **_block_call(7, 3),
    "/input/7/name": to("/messages/3/content/0/name"),
    "/input/7/arguments": from_json("/messages/3/content/0/input"),
    **_block_call(9, 5),
    "/input/9/name": made(_AGENTS[0], "/messages/5/content/0/name"),
    "/input/9/arguments": from_json("/messages/5/content/0/input"),
    "/input/10/output": to("/messages/6/content/0/content"),
    **_block_call(11, 7),
    "/input/11/name": to("/messages/7/content/0/name"),
    "/input/11/input": by(lambda text: {"input": text}, "/messages/7/content/0/input"),
    "/input/12/output": to("/messages/8/content/0/content"),
    **_block_call(13, 9),
    "/input/13/action/...": _action_is(dict, "/messages/9/content/0/input"),
    "/input/14/output": to("/messages/10/content/0/content"),
    **_block_call(15, 11),
    "/input/15/arguments/...": to("/messages/11/content/0/input"),
    "/input/8/output/0/type": made("image", f"{_PICTURE}/type"),
    "/input/8/output/0/image_url": by(lambda url: url.partition("base64,")[2], f"{_PICTURE}/source/data"),
    "/input/8/output/0/detail": Row(code="altered", at="/input/8/output/0"),
}
_MESSAGES_ITEMS_ADDED: dict[str, Any] = {
    f"{_PICTURE}/source/type": "base64",
    f"{_PICTURE}/source/media_type": "image/png",
    "/messages/{n:3,5,7,9,11}/role": "assistant",
    "/messages/{n:2,4,6,8,10,12}/role": "user",
    "/messages/9/content/0/name": "local_shell",
    "/messages/11/content/0/name": "tool_search",
}


def _requests(place: str) -> Row:
    """The instruction that requests a summary."""
    return Row((place,), lambda _, text: text.startswith("The conversation so far will be replaced by"))


# --- by case and upstream ---------------------------------------------------------------------------------------

_CODEX_IN_CHAT: dict[str, Row] = {**_SETTINGS_IN_CHAT, **_CHOICES_IN_CHAT, **_TOOLS_IN_CHAT, **_CHAT_ITEMS}
_CODEX_IN_CHAT_ADDED: dict[str, Any] = {
    **_ADDED_IN_CHAT,
    **_CHAT_ITEMS_ADDED,
    **_added_tools("/function", 12),
    "/tools/{n}/type": "function",
}
_CODEX_IN_MESSAGES: dict[str, Row] = {
    **_SETTINGS_IN_MESSAGES,
    **_CHOICES_IN_MESSAGES,
    **_TOOLS_IN_MESSAGES,
    **_MESSAGES_ITEMS,
}
_CODEX_IN_MESSAGES_ADDED: dict[str, Any] = {
    **_ADDED_IN_MESSAGES,
    **_MESSAGES_ITEMS_ADDED,
    **_added_tools("", 13),
    "/tools/12/name": "web_search",
}

TABLES: dict[tuple[str, str], Table] = {
    ("codex", CHAT): (_CODEX_IN_CHAT, _CODEX_IN_CHAT_ADDED),
    ("codex", MESSAGES): (_CODEX_IN_MESSAGES, _CODEX_IN_MESSAGES_ADDED),
    ("codex-compaction", CHAT): (
        {**_CODEX_IN_CHAT, **_NO_CALL_IN_CHAT, "/input/17/type": _requests("/messages/15/content")},
        {**_CODEX_IN_CHAT_ADDED, "/messages/15/role": "user"},
    ),
    ("codex-compaction", MESSAGES): (
        {
            **_CODEX_IN_MESSAGES,
            **_NO_CALL_IN_MESSAGES,
            "/input/17/type": _requests("/messages/12/content/1/text"),
        },
        {**_CODEX_IN_MESSAGES_ADDED, "/messages/12/content/1/type": "text"},
    ),
}
