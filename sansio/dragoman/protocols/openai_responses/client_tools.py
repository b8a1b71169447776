"""Tools that the client runs and whose form the vendor defines: shell, local_shell, apply_patch, tool_search and the
two computers.

Other upstreams get a function with a written-out schema instead of such a tool. The schema has the members of the item
that calls the tool, so the model's arguments become the fields of that item. A call whose arguments lack a required
member stays a call of the function: nothing is made up.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

import msgspec

from dragoman._ir.tools import FunctionTool
from dragoman._wire.exceptions import RemoteProtocolError
from dragoman._wire.json import JSON, JSONObject, decode, encode_text, objects_in, text_or_none
from dragoman._wire.json_schema import SchemaUndecided, find_broken_keyword

COMPUTERS = frozenset(("computer", "computer_use_preview"))


class ClientTool(msgspec.Struct, frozen=True):
    """One kind of tool, and the function in its place.

    name: name of the function.
    prefix: prefix of the ids of its calls.
    description, schema: of the function.
    fields: Return the fields of a call's item from the model's arguments. Raises _InvalidArgumentsError.
    """

    name: str
    prefix: str
    description: str
    schema: JSONObject
    fields: Callable[[JSONObject], JSONObject]

    @property
    def call(self) -> str:
        """The type of the item of its call."""
        return f"{self.name}_call"

    @property
    def output(self) -> str:
        """The type of the item of its result."""
        return "tool_search_output" if self.name == "tool_search" else f"{self.name}_call_output"


class _InvalidArgumentsError(Exception):
    """The arguments lack a member that the item requires."""


# The functions in their place.


def _object_schema(properties: JSONObject, *required: str) -> JSONObject:
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


def _property(kind: str, description: str, **more: JSON) -> JSONObject:
    return {"type": kind, "description": description, **more}


_TEXT = {"type": "string"}
_TIMEOUT = _property("integer", "How long it may run, in milliseconds.")

_SHELL = _object_schema(
    {
        "commands": _property("array", "The commands to run, in this order.", items=_TEXT),
        "timeout_ms": _TIMEOUT,
        "max_output_length": _property("integer", "How many characters of output are wanted at most."),
    },
    "commands",
)
_LOCAL_SHELL = _object_schema(
    {
        "command": _property("array", "The program and its arguments, one item each.", items=_TEXT),
        "env": _property("object", "Environment variables to set.", additionalProperties=_TEXT),
        "timeout_ms": _TIMEOUT,
        "user": _property("string", "The user to run it as."),
        "working_directory": _property("string", "The directory to run it in."),
    },
    "command",
)
_APPLY_PATCH = _object_schema(
    {
        "type": _property(
            "string", "What to do with the file.", enum=["create_file", "update_file", "delete_file"]
        ),
        "path": _property("string", "The path of the file."),
        "diff": _property(
            "string",
            "For create_file the lines of the new file, each with a + before it; for update_file the changes in V4A"
            " form: @@ lines for places, then lines with a space, - or + before them. Left out for delete_file.",
        ),
    },
    "type",
    "path",
)
_TOOL_SEARCH = _object_schema(
    {"query": _property("string", "What the tools that you need must be able to do.")}, "query"
)
_KEYS = _property("array", "Keys: those to press for keypress, else those held down meanwhile.", items=_TEXT)
_ACTION = _object_schema(
    {
        "type": _property(
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
        "x": _property("integer", "Pixels from the left: for click, double_click, move and scroll."),
        "y": _property("integer", "Pixels from the top: for click, double_click, move and scroll."),
        "button": _property(
            "string", "For click: the button.", enum=["left", "right", "wheel", "back", "forward"]
        ),
        "path": _property(
            "array",
            "For drag: the points to pass.",
            items=_object_schema({"x": {"type": "integer"}, "y": {"type": "integer"}}, "x", "y"),
        ),
        "scroll_x": _property("integer", "For scroll: how far to the right."),
        "scroll_y": _property("integer", "For scroll: how far down."),
        "text": _property("string", "For type: the text to type."),
        "keys": _KEYS,
    },
    "type",
)
_COMPUTER = _object_schema(
    {"actions": _property("array", "What to do, in this order.", items=_ACTION)}, "actions"
)
_COMPUTER_PREVIEW = _object_schema({"action": _ACTION}, "action")


# Actions and operations by type: the members that are required, and those that may be there.
_Forms = Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]]
_ACTIONS: _Forms = {
    "click": (("button", "x", "y"), ("keys",)),
    "double_click": (("x", "y"), ("keys",)),
    "drag": (("path",), ("keys",)),
    "keypress": (("keys",), ()),
    "move": (("x", "y"), ("keys",)),
    "screenshot": ((), ()),
    "scroll": (("scroll_x", "scroll_y", "x", "y"), ("keys",)),
    "type": (("text",), ()),
    "wait": ((), ()),
}
_OPERATIONS: _Forms = {
    "create_file": (("path", "diff"), ()),
    "update_file": (("path", "diff"), ()),
    "delete_file": (("path",), ()),
}


def _take(
    value: JSONObject, schema: JSONObject, required: Collection[str], optional: Collection[str]
) -> JSONObject:
    """Return these members of `value`. Optional ones that do not match the schema are left out."""
    out: JSONObject = {}
    for name in (*required, *optional):
        if name in value and find_broken_keyword(schema["properties"][name], value[name]) is None:
            out[name] = value[name]
        elif name in required:
            raise _InvalidArgumentsError
    return out


def _take_all(value: JSONObject, schema: JSONObject) -> JSONObject:
    required = schema["required"]
    return _take(value, schema, required, [name for name in schema["properties"] if name not in required])


def _take_typed(value: JSON, schema: JSONObject, forms: _Forms) -> JSONObject:
    kind = value.get("type") if type(value) is dict else None
    if type(kind) is not str or kind not in forms:
        raise _InvalidArgumentsError
    return {"type": kind, **_take(value, schema, *forms[kind])}


def _shell(arguments: JSONObject) -> JSONObject:
    return {"action": _take_all(arguments, _SHELL), "environment": {"type": "local"}}


def _local_shell(arguments: JSONObject) -> JSONObject:
    return {"action": {"type": "exec", "env": {}, **_take_all(arguments, _LOCAL_SHELL)}}


def _apply_patch(arguments: JSONObject) -> JSONObject:
    return {"operation": _take_typed(arguments, _APPLY_PATCH, _OPERATIONS)}


def _tool_search(arguments: JSONObject) -> JSONObject:
    return {"arguments": arguments, "execution": "client"}


def _actions(arguments: JSONObject) -> list[JSONObject]:
    """Return the actions, which the model may write as a list or as one object."""
    mapped = arguments.get("actions", arguments.get("action"))
    actions = [
        _take_typed(each, _ACTION, _ACTIONS) for each in (mapped if type(mapped) is list else [mapped])
    ]
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


_USES_COMPUTER = "Uses the user's computer. What the screen shows afterwards comes back as a picture."

CLIENT_TOOLS: dict[str, ClientTool] = {
    "apply_patch": ClientTool(
        "apply_patch", "apc", "Creates, changes or deletes one file.", _APPLY_PATCH, _apply_patch
    ),
    "computer": ClientTool("computer", "cu", _USES_COMPUTER, _COMPUTER, _computer),
    "computer_use_preview": ClientTool(
        "computer", "cu", _USES_COMPUTER, _COMPUTER_PREVIEW, _computer_preview
    ),
    "local_shell": ClientTool(
        "local_shell",
        "lsh",
        "Runs one command on the user's computer and gives its output.",
        _LOCAL_SHELL,
        _local_shell,
    ),
    "shell": ClientTool(
        "shell",
        "sh",
        "Runs commands in a shell on the user's computer and gives their output and exit codes.",
        _SHELL,
        _shell,
    ),
    "tool_search": ClientTool(
        "tool_search",
        "tsc",
        "Searches for tools that are not shown yet. What it finds can be called afterwards.",
        _TOOL_SEARCH,
        _tool_search,
    ),
}


def function_fallback(kind: str, tool: JSONObject, path: str) -> FunctionTool | None:
    """Return the function that replaces a tool, None if the provider runs the tool or its kind is another."""
    if kind not in CLIENT_TOOLS or not _client_runs(kind, tool):
        return None
    client_tool = CLIENT_TOOLS[kind]
    description, schema = client_tool.description, client_tool.schema
    if kind == "tool_search":
        description = text_or_none(tool.get("description")) or description
        if type(tool.get("parameters")) is dict:
            schema = tool["parameters"]
    elif kind == "shell":
        description += _skills(tool.get("environment"))
    elif kind == "computer_use_preview":
        width, height = tool.get("display_width"), tool.get("display_height")
        description += f" The screen has {width} x {height} pixels; it is: {tool.get('environment')}."
    return FunctionTool(client_tool.name, description, schema, path=path)


def _client_runs(kind: str, tool: JSONObject) -> bool:
    if kind == "tool_search":
        return tool.get("execution") == "client"
    # A shell in a container is the provider's.
    environment = tool.get("environment")
    return kind != "shell" or type(environment) is not dict or environment.get("type") == "local"


def _skills(environment: JSON) -> str:
    """Return the list of skills in a local environment, as the end of a description."""
    skills = objects_in(environment.get("skills")) if type(environment) is dict else []
    lines = [f"{skill.get('name')} ({skill.get('path')}): {skill.get('description')}" for skill in skills]
    return "\n".join(["\nSkills that can be read there:", *lines]) if lines else ""


def parse_call_arguments(kind: str, text: str) -> tuple[JSONObject, bool] | None:
    """Return the fields of a call's item from the model's arguments, and True if the arguments have values that the
    item has no field for. None if they do not have the form of the item.
    """
    try:
        arguments = decode(text.encode("utf-8", "surrogatepass"))
        if type(arguments) is dict:
            fields = CLIENT_TOOLS[kind].fields(arguments)
            return fields, not _members(arguments) <= _members(fields)
    except (RemoteProtocolError, SchemaUndecided, _InvalidArgumentsError):
        pass
    return None


def _members(value: JSONObject) -> set[str]:
    """Return the members of an object and of the objects in it, encoded with their names. null counts as absent."""
    found: set[str] = set()
    left = [value]
    while left:
        for name, member in left.pop().items():
            inner = [member] if type(member) is dict else objects_in(member)
            left += inner
            if not inner and member is not None:
                found.add(encode_text([name, member]))
    return found


def announced_fields(kind: str, fields: JSONObject) -> JSONObject:
    """Return the fields of an item that is announced: those that the model is still writing are empty."""
    if kind == "shell":
        return {**fields, "action": {**fields["action"], "commands": []}}
    if kind == "local_shell":
        return {**fields, "action": {**fields["action"], "command": []}}
    if kind == "apply_patch" and "diff" in fields["operation"]:
        return {**fields, "operation": {**fields["operation"], "diff": ""}}
    if kind == "tool_search":
        return {**fields, "arguments": {}}
    return fields
