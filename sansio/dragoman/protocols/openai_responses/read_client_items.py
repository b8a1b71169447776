"""Calls of tools that the client runs, and their results, in the conversation -> calls and results of the document.

Strategy: a call's input is the JSON of what the item says about it, which is also what the stand-in function takes;
a result becomes words and pictures. So for every other upstream they are an ordinary call and its result.
"""

from __future__ import annotations

from collections.abc import Callable

from dragoman._ir.request import Media, Message, OpaquePart, Text, ToolCall, ToolResult
from dragoman._wire.json import JSON, JSONObject, encode_text, is_object_text
from dragoman.protocols.openai_responses import wire
from dragoman.protocols.openai_responses.client_tools import CLIENT_TOOLS
from dragoman.protocols.openai_responses.common import extra_of, optional, required, wrong_type
from dragoman.protocols.openai_responses.read_parts import image_of
from dragoman.protocols.openai_responses.words import found_tools

# What fields say that goes without saying.
_PLAIN: JSONObject = {
    "acknowledged_safety_checks": [],
    "caller": {"type": "direct"},
    "environment": {"type": "local"},
    "execution": "client",
    "pending_safety_checks": [],
}


def _forget_plain(extra: JSONObject) -> None:
    for name, plain in _PLAIN.items():
        if name in extra and extra[name] in (plain, None):
            del extra[name]


def read_client_call(item: JSONObject, path: str) -> Message:
    """A call as an assistant's message. Raises RemoteProtocolError when it does not say what was called."""
    sort: str = item["type"]
    kind, text = _INPUTS[sort](item, path)
    extra = extra_of(item, wire.CLIENT_CALL) or {}
    _forget_plain(extra)
    call = ToolCall(
        required(item, path, "call_id"),
        CLIENT_TOOLS[kind].name,
        text,
        item_id=optional(item, path, "id"),
        extra=extra or None,
        path=path,
        hosted=kind,
    )
    return Message("assistant", (call,), path)


def _object(item: JSONObject, path: str, name: str) -> JSONObject:
    value = item.get(name)
    if type(value) is not dict:
        raise wrong_type(f"{path}/{name}", "an object", value)
    return {key: member for key, member in value.items() if member is not None}


def _shell_input(item: JSONObject, path: str) -> tuple[str, str]:
    return "shell", encode_text(_object(item, path, "action"))


def _local_shell_input(item: JSONObject, path: str) -> tuple[str, str]:
    action = _object(item, path, "action")
    if action.get("type") == "exec":
        del action["type"]  # the only one
    if not action.get("env", True):
        del action["env"]
    return "local_shell", encode_text(action)


def _patch_input(item: JSONObject, path: str) -> tuple[str, str]:
    return "apply_patch", encode_text(_object(item, path, "operation"))


def _computer_input(item: JSONObject, path: str) -> tuple[str, str]:
    if type(item.get("actions")) is list:
        return "computer", encode_text({"actions": item["actions"]})
    return "computer_use_preview", encode_text({"action": _object(item, path, "action")})


def _search_input(item: JSONObject, path: str) -> tuple[str, str]:
    arguments = item.get("arguments")
    if type(arguments) is str and is_object_text(arguments):
        return "tool_search", arguments
    return "tool_search", encode_text(arguments if type(arguments) is dict else {"query": arguments})


_INPUTS: dict[str, Callable[[JSONObject, str], tuple[str, str]]] = {
    "apply_patch_call": _patch_input,
    "computer_call": _computer_input,
    "local_shell_call": _local_shell_input,
    "shell_call": _shell_input,
    "tool_search_call": _search_input,
}


def read_client_output(item: JSONObject, path: str, call_id: str, kind: str) -> Message:
    """A result as a user's message."""
    extra = extra_of(item, wire.CLIENT_OUTPUT) or {}
    is_error: bool | None = None
    part: Text | Media
    if kind == "apply_patch":
        is_error = item.get("status") == "failed"
        part = Text(optional(item, path, "output") or str(item.get("status")), path=f"{path}/output")
    elif kind == "shell":
        part = Text(_shell_words(item.get("output"), extra), path=f"{path}/output")
    elif kind == "tool_search":
        part = Text(found_tools(item), path=f"{path}/tools")
    elif kind == "local_shell":
        part = Text(_plain(item.get("output")), path=f"{path}/output")
    else:
        screen = _object(item, path, "output")
        left = extra_of(screen, _SCREEN) or {}
        if left.get("type") == "computer_screenshot":
            del left["type"]  # the only one
        part = image_of(screen, f"{path}/output", extra=left or None)
    _forget_plain(extra)
    parts: tuple[Text | Media | OpaquePart, ...] = (part,)
    result = ToolResult(
        call_id,
        parts,
        is_error=is_error,
        item_id=optional(item, path, "id"),
        extra=extra or None,
        path=path,
        hosted=kind,
    )
    return Message("user", (result,), path)


_SCREEN = frozenset(("image_url", "file_id"))


def _plain(value: JSON) -> str:
    return value if type(value) is str else encode_text(value)


_ENTRY = frozenset(("stdout", "stderr", "outcome"))
_OUTCOME = frozenset(("type", "exit_code"))


def _shell_words(output: JSON, extra: JSONObject) -> str:
    """What the commands printed and how they ended. An output that says more is put into `extra`, too."""
    if type(output) is not list:
        return _plain(output)
    lines: list[str] = []
    for entry in output:
        found = entry if type(entry) is dict else {"stdout": _plain(entry)}
        given = found.get("outcome")
        outcome: JSONObject = given if type(given) is dict else {}
        if not (found.keys() <= _ENTRY and outcome.keys() <= _OUTCOME):
            extra["output"] = output
        if found.get("stdout"):
            lines.append(_plain(found["stdout"]).rstrip("\n"))
        if found.get("stderr"):
            lines.append(f"stderr:\n{_plain(found['stderr'])}".rstrip("\n"))
        if outcome.get("type") == "exit":
            lines.append(f"exit code: {outcome.get('exit_code')}")
        elif outcome:
            lines.append("timed out" if outcome.get("type") == "timeout" else _plain(outcome))
    return "\n".join(lines)
