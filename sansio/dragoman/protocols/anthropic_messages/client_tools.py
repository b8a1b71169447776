"""Tools that the client runs and whose schema the vendor's models know by heart, written out as functions.

Strategy: data. Each family of tool types has one entry; what differs between its versions is a condition on the
version's date. The function has the tool's own name, so its calls are the calls that the client expects.
"""

from __future__ import annotations

from collections.abc import Callable

from dragoman._wire.json import JSONObject

# Describes a tool of the family, its version as the date in its type: (description, JSON Schema of the input).
Describe = Callable[[JSONObject, str], tuple[str, JSONObject]]

_STRING: JSONObject = {"type": "string"}

_INTEGER: JSONObject = {"type": "integer"}


def fallback_schema(tool: JSONObject, kind: str) -> tuple[str, JSONObject] | None:
    """Description and schema for a tool of type `kind`, None when it is not one that the client runs."""
    family, _, version = kind.rpartition("_")
    describe = _FAMILIES.get(family)
    return None if describe is None else describe(tool, version)


def _schema(required: list[str], **properties: JSONObject) -> JSONObject:
    return {"type": "object", "properties": properties, "required": required}


def _said(schema: JSONObject, description: str) -> JSONObject:
    return {**schema, "description": description}


def _one_of(description: str, *values: str) -> JSONObject:
    return {"type": "string", "enum": list(values), "description": description}


def _bash(tool: JSONObject, version: str) -> tuple[str, JSONObject]:
    return (
        "Run a command in a bash shell. The shell keeps its state from call to call: working directory, variables "
        "and background processes. Interactive programs do not work. Give a command, or restart the shell.",
        _schema(
            [],
            command=_said(_STRING, "The command to run. Required unless the shell is restarted."),
            restart={
                "type": "boolean",
                "description": "true starts a new shell in place of the present one.",
            },
        ),
    )


# "The text_editor tool does not include the undo_edit command" from this version on, and calls the text to insert
# by a name of its own.
_EDITOR_2 = "20250429"


def _text_editor(tool: JSONObject, version: str) -> tuple[str, JSONObject]:
    newer = version >= _EDITOR_2
    commands = ["view", "create", "str_replace", "insert", *([] if newer else ["undo_edit"])]
    properties = {
        "command": _one_of("What to do.", *commands),
        "path": _said(_STRING, "The file, or for view a directory."),
        "view_range": _said(
            {"type": "array", "items": _INTEGER},
            "For view of a file: first and last line to show, counted from 1; -1 as the last is the end.",
        ),
        "file_text": _said(_STRING, "For create: the content of the new file."),
        "old_str": _said(
            _STRING, "For str_replace: the text to replace, exactly as it stands there, only once."
        ),
        "new_str": _said(_STRING, f"For str_replace{'' if newer else ' and insert'}: the new text."),
        "insert_line": _said(_INTEGER, "For insert: the line behind which the text goes; 0 is the start."),
    }
    if newer:
        properties["insert_text"] = _said(_STRING, "For insert: the text to insert.")
    description = f"Look at and edit text files. Commands: {', '.join(commands)}."
    if tool.get("max_characters") is not None:
        description += f" A view shows at most {tool['max_characters']} characters of a file."
    return description, _schema(["command", "path"], **properties)


def _memory(tool: JSONObject, version: str) -> tuple[str, JSONObject]:
    return (
        "Keep notes beyond this conversation, as files below /memories. Look into the directory before a task, and "
        "write down what will be needed again. Commands: view, create, str_replace, insert, delete, rename.",
        _schema(
            ["command"],
            command=_one_of("What to do.", "view", "create", "str_replace", "insert", "delete", "rename"),
            path=_said(_STRING, "The file or directory, for all commands but rename."),
            view_range=_said(
                {"type": "array", "items": _INTEGER}, "For view of a file: first and last line to show."
            ),
            file_text=_said(_STRING, "For create: the content of the file."),
            old_str=_said(_STRING, "For str_replace: the text to replace."),
            new_str=_said(_STRING, "For str_replace: the new text."),
            insert_line=_said(_INTEGER, "For insert: the line at which the text goes."),
            insert_text=_said(_STRING, "For insert: the text."),
            old_path=_said(_STRING, "For rename: the present path."),
            new_path=_said(_STRING, "For rename: the new path."),
        ),
    )


_COMPUTER_1 = (
    "key",
    "type",
    "mouse_move",
    "left_click",
    "left_click_drag",
    "right_click",
    "middle_click",
    "double_click",
    "screenshot",
    "cursor_position",
)

_COMPUTER_2 = (
    *_COMPUTER_1,
    "left_mouse_down",
    "left_mouse_up",
    "triple_click",
    "scroll",
    "hold_key",
    "wait",
)


def _computer(tool: JSONObject, version: str) -> tuple[str, JSONObject]:
    newer = version >= "20250124"
    actions = [*(_COMPUTER_2 if newer else _COMPUTER_1)]
    point: JSONObject = {"type": "array", "items": _INTEGER}
    properties = {
        "coordinate": _said(
            point, "x and y in pixels from the top left: where to click, move, scroll or drag to."
        ),
        "text": _said(_STRING, "For type: the text. For key and hold_key: the keys, as in ctrl+s."),
    }
    if newer:
        properties |= {
            "start_coordinate": _said(point, "For left_click_drag: x and y where the drag begins."),
            "scroll_direction": _one_of("For scroll.", "up", "down", "left", "right"),
            "scroll_amount": _said(_INTEGER, "For scroll: how many steps."),
            "duration": {"type": "number", "description": "For wait and hold_key: seconds."},
        }
    if tool.get("enable_zoom"):
        actions.append("zoom")
        properties["region"] = _said(
            point,
            "For zoom: x and y of the top left and of the bottom right corner of what to show enlarged.",
        )
    size = f"{tool.get('display_width_px')} by {tool.get('display_height_px')} pixels"
    screen = "" if tool.get("display_number") is None else f" Its X11 display is :{tool['display_number']}."
    return (
        f"Use a computer by its screen, mouse and keyboard. The screen has {size}.{screen} Take a screenshot to see "
        "what an action did before you go on.",
        _schema(["action"], action=_one_of("What to do.", *actions), **properties),
    )


_FAMILIES: dict[str, Describe] = {
    "bash": _bash,
    "text_editor": _text_editor,
    "memory": _memory,
    "computer": _computer,
}

# What the descriptions say of a tool's own fields.
DESCRIBED_FIELDS = frozenset(
    {
        "type",
        "name",
        "max_characters",
        "display_width_px",
        "display_height_px",
        "display_number",
        "enable_zoom",
    }
)
