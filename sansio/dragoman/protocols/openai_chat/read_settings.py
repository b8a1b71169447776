"""The settings that are more than a name and a value: reasoning, and the form of the answer.

Strategy: how much a model shall think is said in one official way and in half a dozen dialects, of which clients mix
several. A table names the places and what each is about; of several that are about the same the first one counts.
What a later one says otherwise, and what nothing of ours has room for, goes into `extra`.
"""

from __future__ import annotations

from collections.abc import Callable

from dragoman._ir.request import ReasoningConfig, ResponseFormat
from dragoman._wire.json import JSON, JSONObject
from dragoman.protocols.openai_chat import wire
from dragoman.protocols.openai_chat.checks import text_of, wrong
from dragoman.protocols.openai_chat.tables import REASONING_SETTINGS


def _budget(value: JSON, path: str) -> int:
    if type(value) is not int:
        raise wrong(path, "an integer", value)
    return value


def _switch(value: JSON, path: str) -> str | None:
    """A plain switch says whether, and not how much."""
    return ("adaptive" if value else "disabled") if type(value) is bool else None


def _mode(value: JSON, path: str) -> str | None:
    return value if value in ("enabled", "disabled", "adaptive") else None


def _hides(value: JSON, path: str) -> str | None:
    return ("omitted" if value else "summarized") if type(value) is bool else None


def _shows(value: JSON, path: str) -> str | None:
    return ("summarized" if value else "omitted") if type(value) is bool else None


# Setting, its member ("" for none), the field of ReasoningConfig that it is about, and how to read it. A reader that
# gives None does not know the value.
_SAYINGS: tuple[tuple[str, str, str, Callable[[JSON, str], str | int | None]], ...] = (
    ("reasoning_effort", "", "effort", text_of),
    ("reasoning", "effort", "effort", text_of),
    ("reasoning", "enabled", "mode", _switch),
    ("reasoning", "max_tokens", "budget", _budget),
    ("reasoning", "exclude", "show", _hides),
    ("thinking", "type", "mode", _mode),
    ("thinking", "budget_tokens", "budget", _budget),
    ("enable_thinking", "", "mode", _switch),
    ("chat_template_kwargs", "enable_thinking", "mode", _switch),
    ("chat_template_kwargs", "thinking", "mode", _switch),
    ("thinking_budget", "", "budget", _budget),
    ("include_reasoning", "", "show", _shows),
)
_MEMBERS = {
    "reasoning": wire.KNOWN_REASONING,
    "thinking": wire.KNOWN_THINKING,
    "chat_template_kwargs": wire.KNOWN_TEMPLATE,
}


def read_reasoning(body: JSONObject, extra: JSONObject) -> ReasoningConfig | None:
    """What a body says about reasoning, None when it says nothing that is understood.

    Raises RemoteProtocolError (400) for an effort or budget of a wrong type.
    """
    if not any(key in body for key in REASONING_SETTINGS):
        return None
    for key, known in _MEMBERS.items():
        holder = body.get(key)
        left = wire.unknown(holder, known) if type(holder) is dict else holder
        if left is not None:
            extra[key] = left
    found: dict[str, JSON] = {}
    paths: dict[str, str] = {}
    for key, member, field, read in _SAYINGS:
        value = body.get(key)
        path = f"/{key}"
        if member:
            value = value.get(member) if type(value) is dict else None
            path = f"{path}/{member}"
        if value is None:
            continue
        meaning = read(value, path)
        if meaning is None or not _agrees(field, found.setdefault(field, meaning), meaning):
            extra[key] = {**extra.get(key, {}), member: value} if member else value
        else:
            paths.setdefault(field, path)
    if not found:
        return None
    if "budget" in found and found.get("mode") != "disabled":
        found["mode"] = "enabled"
    effort_path = paths.get("effort", "")
    path = next((paths[field] for field in ("budget", "mode", "show") if field in paths), effort_path)
    if path.count("/") > 1:
        path = path.rpartition("/")[0]
    return ReasoningConfig(**found, path=path, effort_path="" if effort_path == path else effort_path)


def _agrees(field: str, first: JSON, later: JSON) -> bool:
    if field == "mode":
        return (first == "disabled") is (later == "disabled")
    return bool(first == later)


def read_response_format(value: JSON, extra: JSONObject) -> ResponseFormat | None:
    if value is None:
        return None
    if type(value) is not dict:
        raise wrong("/response_format", "an object", value)
    kind = value.get("type")
    left = wire.unknown(value, wire.KNOWN_RESPONSE_FORMAT)
    if left:
        extra["response_format"] = left if kind != "text" else value
    if kind == "json_schema":
        path = "/response_format/json_schema"
        schema = value.get("json_schema")
        if type(schema) is not dict:
            raise wrong(path, "an object", schema)
        return ResponseFormat(
            schema.get("schema") or {},
            schema.get("name"),
            schema.get("description"),
            schema.get("strict"),
            wire.unknown(schema, wire.KNOWN_JSON_SCHEMA),
            path,
        )
    if kind == "json_object":
        return ResponseFormat(path="/response_format")
    if kind != "text":
        extra["response_format"] = value  # a server's own kind, such as a grammar
    return None
