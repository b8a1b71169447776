"""Tools that the client runs and whose form the vendor implies: shell, local_shell, apply_patch, tool_search and
the two computers.

Strategy: for upstreams that do not know such a tool a function with a written-out schema stands in. What the model
writes as its arguments is, object for object, what the item of such a call holds, so one table of members says
what the schema asks for and what a call must have. A call that does not have it is told as a call of the function:
nothing is made up.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from dragoman._ir.request import FunctionTool
from dragoman._wire.exceptions import RemoteProtocolError
from dragoman._wire.json import JSON, JSONObject, decode, encode_text
from dragoman.protocols.openai_responses.checks import objects_in, text_or_none

COMPUTERS = frozenset(("computer", "computer_use_preview"))


class ClientTool(msgspec.Struct, frozen=True):
    """One kind of tool.

    name: what its stand-in is called.
    call, output: the types of the items that call it and that give its result.
    prefix: of the ids of the calls.
    """

    name: str
    call: str
    output: str
    prefix: str


CLIENT_TOOLS: dict[str, ClientTool] = {
    "apply_patch": ClientTool("apply_patch", "apply_patch_call", "apply_patch_call_output", "apc"),
    "computer": ClientTool("computer", "computer_call", "computer_call_output", "cu"),
    "computer_use_preview": ClientTool("computer", "computer_call", "computer_call_output", "cu"),
    "local_shell": ClientTool("local_shell", "local_shell_call", "local_shell_call_output", "lsh"),
    "shell": ClientTool("shell", "shell_call", "shell_call_output", "sh"),
    "tool_search": ClientTool("tool_search", "tool_search_call", "tool_search_output", "tsc"),
}

# --- the functions that stand in ---------------------------------------------------------------------------


def _object(properties: JSONObject, *required: str) -> JSONObject:
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


def _said(kind: str, description: str, **more: JSON) -> JSONObject:
    return {"type": kind, "description": description, **more}


_TEXT = {"type": "string"}
_TIMEOUT = _said("integer", "How long it may run, in milliseconds.")

_SHELL = _object(
    {
        "commands": _said("array", "The commands to run, in this order.", items=_TEXT),
        "timeout_ms": _TIMEOUT,
        "max_output_length": _said("integer", "How many characters of output are wanted at most."),
    },
    "commands",
)
_LOCAL_SHELL = _object(
    {
        "command": _said("array", "The program and its arguments, each for itself.", items=_TEXT),
        "env": _said("object", "Environment variables to set.", additionalProperties=_TEXT),
        "timeout_ms": _TIMEOUT,
        "user": _said("string", "The user to run it as."),
        "working_directory": _said("string", "The directory to run it in."),
    },
    "command",
)
_APPLY_PATCH = _object(
    {
        "type": _said(
            "string", "What to do with the file.", enum=["create_file", "update_file", "delete_file"]
        ),
        "path": _said("string", "The path of the file."),
        "diff": _said(
            "string",
            "For create_file the lines of the new file, each with a + before it; for update_file the changes in V4A"
            " form: @@ lines for places, then lines with a space, - or + before them. Left out for delete_file.",
        ),
    },
    "type",
    "path",
)
_TOOL_SEARCH = _object(
    {"query": _said("string", "What the tools that you need must be able to do.")}, "query"
)
_KEYS = _said("array", "Keys: those to press for keypress, else those held down meanwhile.", items=_TEXT)
_ACTION = _object(
    {
        "type": _said(
            "string",
            "What to do.",
            enum=[
                "click",
                "double_click",
                "drag",
                "keypress",
                "move",
                "screenshot",
                "scroll",
                "type",
                "wait",
            ],
        ),
        "x": _said("integer", "Pixels from the left: for click, double_click, move and scroll."),
        "y": _said("integer", "Pixels from the top: for click, double_click, move and scroll."),
        "button": _said(
            "string", "For click: the button.", enum=["left", "right", "wheel", "back", "forward"]
        ),
        "path": _said(
            "array",
            "For drag: the points to pass.",
            items=_object({"x": {"type": "integer"}, "y": {"type": "integer"}}, "x", "y"),
        ),
        "scroll_x": _said("integer", "For scroll: how far to the right."),
        "scroll_y": _said("integer", "For scroll: how far down."),
        "text": _said("string", "For type: the text to type."),
        "keys": _KEYS,
    },
    "type",
)
_COMPUTER = _object({"actions": _said("array", "What to do, in this order.", items=_ACTION)}, "actions")
_COMPUTER_PREVIEW = _object({"action": _ACTION}, "action")

# kind -> description and schema.
_STAND_INS: dict[str, tuple[str, JSONObject]] = {
    "apply_patch": ("Creates, changes or deletes one file.", _APPLY_PATCH),
    "computer": (
        "Uses the user's computer. What the screen shows afterwards comes back as a picture.",
        _COMPUTER,
    ),
    "computer_use_preview": (
        "Uses the user's computer. What the screen shows afterwards comes back as a picture.",
        _COMPUTER_PREVIEW,
    ),
    "local_shell": ("Runs one command on the user's computer and gives its output.", _LOCAL_SHELL),
    "shell": (
        "Runs commands in a shell on the user's computer and gives their output and exit codes.",
        _SHELL,
    ),
    "tool_search": (
        "Searches for tools that are not shown yet. What it finds can be called afterwards.",
        _TOOL_SEARCH,
    ),
}


def function_fallback(kind: str, tool: JSONObject, path: str) -> FunctionTool | None:
    """The function for a tool of this kind, None when the provider runs the tool, or it is of another kind."""
    if kind not in _STAND_INS or not _client_runs(kind, tool):
        return None
    description, schema = _STAND_INS[kind]
    if kind == "tool_search":
        description = text_or_none(tool.get("description")) or description
        if type(tool.get("parameters")) is dict:
            schema = tool["parameters"]
    elif kind == "shell":
        description += _skills(tool.get("environment"))
    elif kind == "computer_use_preview":
        width, height = tool.get("display_width"), tool.get("display_height")
        description += f" The screen has {width} x {height} pixels; it is: {tool.get('environment')}."
    return FunctionTool(CLIENT_TOOLS[kind].name, description, schema, path=path)


def _client_runs(kind: str, tool: JSONObject) -> bool:
    if kind == "tool_search":
        return tool.get("execution") == "client"
    # A shell in a container is the provider's.
    environment = tool.get("environment")
    return kind != "shell" or type(environment) is not dict or environment.get("type") == "local"


def _skills(environment: JSON) -> str:
    """What a local environment offers to be read."""
    skills = objects_in(environment.get("skills")) if type(environment) is dict else []
    lines = [f"{skill.get('name')} ({skill.get('path')}): {skill.get('description')}" for skill in skills]
    return "\n".join(["\nSkills that can be read there:", *lines]) if lines else ""


# --- what the model wrote -> the item of the call ----------------------------------------------------------

MemberCheck = Callable[[JSON], bool]


def _is_text(value: JSON) -> bool:
    return type(value) is str


def _is_count(value: JSON) -> bool:
    return type(value) is int


def _are_texts(value: JSON) -> bool:
    return type(value) is list and all(type(each) is str for each in value)


def _are_named_texts(value: JSON) -> bool:
    return type(value) is dict and _are_texts(list(value.values()))


def _is_path(value: JSON) -> bool:
    return type(value) is list and all(
        type(each) is dict and each.keys() == {"x", "y"} and _is_count(each["x"]) and _is_count(each["y"])
        for each in value
    )


def _is_button(value: JSON) -> bool:
    return value in ("left", "right", "wheel", "back", "forward")


# Members: name -> (check, required).
MemberChecks = Mapping[str, tuple[MemberCheck, bool]]

_POINT: MemberChecks = {"x": (_is_count, True), "y": (_is_count, True)}
_HELD: MemberChecks = {"keys": (_are_texts, False)}
_ACTIONS: Mapping[str, MemberChecks] = {
    "click": {"button": (_is_button, True), **_POINT, **_HELD},
    "double_click": {**_POINT, **_HELD},
    "drag": {"path": (_is_path, True), **_HELD},
    "keypress": {"keys": (_are_texts, True)},
    "move": {**_POINT, **_HELD},
    "screenshot": {},
    "scroll": {"scroll_x": (_is_count, True), "scroll_y": (_is_count, True), **_POINT, **_HELD},
    "type": {"text": (_is_text, True)},
    "wait": {},
}
_OPERATIONS: Mapping[str, MemberChecks] = {
    "create_file": {"path": (_is_text, True), "diff": (_is_text, True)},
    "update_file": {"path": (_is_text, True), "diff": (_is_text, True)},
    "delete_file": {"path": (_is_text, True)},
}
_COMMANDS: MemberChecks = {
    "commands": (_are_texts, True),
    "timeout_ms": (_is_count, False),
    "max_output_length": (_is_count, False),
}
_COMMAND: MemberChecks = {
    "command": (_are_texts, True),
    "env": (_are_named_texts, False),
    "timeout_ms": (_is_count, False),
    "user": (_is_text, False),
    "working_directory": (_is_text, False),
}


class _InvalidArgumentsError(Exception):
    """The arguments lack what the item needs."""


def _take(value: JSONObject, members: MemberChecks) -> JSONObject:
    """The members of an object that the item has. Optional ones of a wrong type are left out."""
    out: JSONObject = {}
    for name, (check, required) in members.items():
        if name in value and check(value[name]):
            out[name] = value[name]
        elif required:
            raise _InvalidArgumentsError
    return out


def _take_typed(value: JSON, forms: Mapping[str, MemberChecks]) -> JSONObject:
    kind = value.get("type") if type(value) is dict else None
    if type(kind) is not str or kind not in forms:
        raise _InvalidArgumentsError
    return {"type": kind, **_take(value, forms[kind])}


def _shell(arguments: JSONObject) -> JSONObject:
    return {"action": _take(arguments, _COMMANDS), "environment": {"type": "local"}}


def _local_shell(arguments: JSONObject) -> JSONObject:
    return {"action": {"type": "exec", "env": {}, **_take(arguments, _COMMAND)}}


def _apply_patch(arguments: JSONObject) -> JSONObject:
    return {"operation": _take_typed(arguments, _OPERATIONS)}


def _tool_search(arguments: JSONObject) -> JSONObject:
    return {"arguments": arguments, "execution": "client"}


def _actions(arguments: JSONObject) -> list[JSONObject]:
    """One action or several, whichever way the model wrote them."""
    told = arguments.get("actions", arguments.get("action"))
    actions = [_take_typed(each, _ACTIONS) for each in (told if type(told) is list else [told])]
    if not actions:
        raise _InvalidArgumentsError
    for each in actions:
        if each["type"] == "double_click":
            each.setdefault("keys", None)  # required, may be null
    return actions


def _computer(arguments: JSONObject) -> JSONObject:
    return {"actions": _actions(arguments), "pending_safety_checks": []}


def _computer_preview(arguments: JSONObject) -> JSONObject:
    actions = _actions(arguments)
    if len(actions) != 1:
        raise _InvalidArgumentsError
    return {"action": actions[0], "pending_safety_checks": []}


_FIELDS: dict[str, Callable[[JSONObject], JSONObject]] = {
    "apply_patch": _apply_patch,
    "computer": _computer,
    "computer_use_preview": _computer_preview,
    "local_shell": _local_shell,
    "shell": _shell,
    "tool_search": _tool_search,
}


def parse_call_arguments(kind: str, text: str) -> JSONObject | None:
    """What the item of a call holds of the arguments that the model wrote, None when they do not have its form."""
    try:
        arguments = decode(text.encode("utf-8", "surrogatepass"))
        if type(arguments) is dict:
            return _FIELDS[kind](arguments)
    except (RemoteProtocolError, _InvalidArgumentsError):
        pass
    return None


def has_unmapped_arguments(text: str, fields: JSONObject) -> bool:
    """Whether arguments that made an item's fields say something that the item does not."""
    told = [fields]
    texts: set[str] = set()
    while told:
        for name, value in told.pop().items():
            texts.add(encode_text([name, value]))
            told += [value] if type(value) is dict else objects_in(value)
    left: list[JSONObject] = [decode(text.encode("utf-8", "surrogatepass"))]
    while left:
        for name, value in left.pop().items():
            inner = [value] if type(value) is dict else objects_in(value)
            if inner and encode_text([name, value]) not in texts:
                left += inner
            elif value is not None and not inner and encode_text([name, value]) not in texts:
                return True
    return False


def announced_fields(kind: str, fields: JSONObject) -> JSONObject:
    """The fields of an item that has just begun: empty where the model is still writing."""
    if kind == "shell":
        return {**fields, "action": {**fields["action"], "commands": []}}
    if kind == "local_shell":
        return {**fields, "action": {**fields["action"], "command": []}}
    if kind == "apply_patch" and "diff" in fields["operation"]:
        return {**fields, "operation": {**fields["operation"], "diff": ""}}
    if kind == "tool_search":
        return {**fields, "arguments": {}}
    return fields
