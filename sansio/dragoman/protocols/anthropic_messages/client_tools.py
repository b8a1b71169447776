"""Descriptions and schemas of tools that the client runs and that need no schema for the vendor's models.

With them another vendor's model can call the same tool as a function: it has the same name and input, so its calls are
those that the client expects. Each family of tool types has one entry; versions differ by the date in the type.
"""

from __future__ import annotations

from collections.abc import Callable

from dragoman._wire.json import JSONObject

# Takes a tool and the date in its type, returns (description, JSON Schema of the input).
Describe = Callable[[JSONObject, str], tuple[str, JSONObject]]

_STRING: JSONObject = {"type": "string"}
_INTEGER: JSONObject = {"type": "integer"}


def fallback_schema(tool: JSONObject, kind: str) -> tuple[str, JSONObject] | None:
    """Return description and schema for a tool of type `kind`, None if the client does not run it."""
    family, _, version = kind.rpartition("_")
    describe = _FAMILIES.get(family)
    return None if describe is None else describe(tool, version)


def _schema(required: list[str], **properties: JSONObject) -> JSONObject:
    return {"type": "object", "properties": properties, "required": required}


def _describe(schema: JSONObject, description: str) -> JSONObject:
    return {**schema, "description": description}


def _one_of(description: str, *values: str) -> JSONObject:
    return {"type": "string", "enum": list(values), "description": description}


def _bash(tool: JSONObject, version: str) -> tuple[str, JSONObject]:
    return (
        "Run a command in a bash shell. The shell keeps its state from call to call: working directory, variables "
        "and background processes. Interactive programs do not work. Give a command, or restart the shell.",
        _schema(
            [],
            command=_describe(_STRING, "The command to run. Required unless the shell is restarted."),
            restart={
                "type": "boolean",
                "description": "true starts a new shell and ends the present one.",
            },
        ),
    )


# From this version on there is no command undo_edit, and the text to insert has its own field.
_EDITOR_WITHOUT_UNDO = "20250429"


def _text_editor(tool: JSONObject, version: str) -> tuple[str, JSONObject]:
    newer = version >= _EDITOR_WITHOUT_UNDO
    commands = ["view", "create", "str_replace", "insert", *([] if newer else ["undo_edit"])]
    properties = {
        "command": _one_of("What to do.", *commands),
        "path": _describe(_STRING, "The file, or for view a directory."),
        "view_range": _describe(
            {"type": "array", "items": _INTEGER},
            "For view of a file: first and last line to show, counted from 1; -1 as the last is the end.",
        ),
        "file_text": _describe(_STRING, "For create: the content of the new file."),
        "old_str": _describe(
            _STRING,
            "For str_replace: the text to replace, exactly as in the file, where it must occur only once.",
        ),
        "new_str": _describe(_STRING, f"For str_replace{'' if newer else ' and insert'}: the new text."),
        "insert_line": _describe(_INTEGER, "For insert: the line after which the text goes; 0 is the start."),
    }
    if newer:
        properties["insert_text"] = _describe(_STRING, "For insert: the text to insert.")
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
            path=_describe(_STRING, "The file or directory, for all commands but rename."),
            view_range=_describe(
                {"type": "array", "items": _INTEGER}, "For view of a file: first and last line to show."
            ),
            file_text=_describe(_STRING, "For create: the content of the file."),
            old_str=_describe(_STRING, "For str_replace: the text to replace."),
            new_str=_describe(_STRING, "For str_replace: the new text."),
            insert_line=_describe(_INTEGER, "For insert: the line at which the text goes."),
            insert_text=_describe(_STRING, "For insert: the text."),
            old_path=_describe(_STRING, "For rename: the present path."),
            new_path=_describe(_STRING, "For rename: the new path."),
        ),
    )


_FIRST_ACTIONS = (
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
_LATER_ACTIONS = (
    *_FIRST_ACTIONS,
    "left_mouse_down",
    "left_mouse_up",
    "triple_click",
    "scroll",
    "hold_key",
    "wait",
)


def _computer(tool: JSONObject, version: str) -> tuple[str, JSONObject]:
    newer = version >= "20250124"
    actions = [*(_LATER_ACTIONS if newer else _FIRST_ACTIONS)]
    point: JSONObject = {"type": "array", "items": _INTEGER}
    properties = {
        "coordinate": _describe(
            point, "x and y in pixels from the top left: where to click, move, scroll or drag to."
        ),
        "text": _describe(_STRING, "For type: the text. For key and hold_key: the keys, as in ctrl+s."),
    }
    if newer:
        properties |= {
            "start_coordinate": _describe(point, "For left_click_drag: x and y where the drag begins."),
            "scroll_direction": _one_of("For scroll.", "up", "down", "left", "right"),
            "scroll_amount": _describe(_INTEGER, "For scroll: how many steps."),
            "duration": {"type": "number", "description": "For wait and hold_key: seconds."},
        }
    if tool.get("enable_zoom"):
        actions.append("zoom")
        properties["region"] = _describe(
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
