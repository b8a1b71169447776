"""The settings of a client's request that are more than a name and a value.

Strategy: one function a subject. Each gives the neutral form, of which there is one whatever the protocol, and puts
what that form has no room for into the unknown fields under the name of the setting.
"""

from __future__ import annotations

from typing import Literal

from dragoman._ir.parameters import read_params
from dragoman._ir.request import Message, Param, ReasoningConfig, ResponseFormat, Text
from dragoman._wire.json import JSON, JSONObject
from dragoman.protocols.anthropic_messages.tables import (
    CACHE_OPTIONS,
    COMPACT_AT,
    COMPACT_EDIT,
    KEEP_THINKING,
    PARAM_TYPES,
    PARAMS_READ,
    TIER_READ,
)
from dragoman.protocols.anthropic_messages.values import (
    invalid,
    keep,
    object_of,
    objects,
    optional,
    required,
    word,
)
from dragoman.protocols.anthropic_messages.wire import (
    KNOWN_CACHE,
    KNOWN_COMPACTION,
    KNOWN_CONFIG,
    KNOWN_EDIT,
    KNOWN_FORMAT,
    KNOWN_MANAGEMENT,
    KNOWN_METADATA,
    KNOWN_THINKING,
    KNOWN_TRIGGER,
    extra_of,
)

# The effort that a message in mid-conversation asks for: where, and which.
Later = tuple[str, str]


def read_settings(body: JSONObject, left: JSONObject) -> dict[Param, JSON]:
    """The plain settings by neutral name. left: takes unknown fields."""
    for name, kinds, what in PARAM_TYPES:
        if body.get(name) is not None and type(body[name]) not in kinds:
            raise invalid(f"/{name}", f"Input should be a valid {what}")
    params = read_params(body, PARAMS_READ)
    for index, text in enumerate(params.get("stop", ())):
        if type(text) is not str:
            raise invalid(f"/stop_sequences/{index}", "Input should be a valid string")
    if "service_tier" in params:
        params["service_tier"] = TIER_READ.get(params["service_tier"], params["service_tier"])
    if body.get("metadata") is not None:
        metadata = object_of(body, "metadata", "")
        user = optional(metadata, "user_id", "/metadata", str, "string")
        if user is not None:
            params["user"] = user
        keep(left, "metadata", extra_of(metadata, KNOWN_METADATA))
    if body.get("cache_control") is not None:
        params["prompt_cache_options"] = _cache_options(body, left)
    if body.get("context_management") is not None:
        compactions = _compactions(body, left)
        if compactions:
            params["context_management"] = compactions
    return params


def _cache_options(body: JSONObject, left: JSONObject) -> JSONObject:
    """A mark at the top level asks for what the others call the implicit mode."""
    mark = object_of(body, "cache_control", "")
    options: JSONObject = {"mode": "implicit"}
    unknown = extra_of(mark, KNOWN_CACHE) or {}
    ttl: JSON = mark.get("ttl")
    if word(ttl) in CACHE_OPTIONS:
        options["ttl"] = CACHE_OPTIONS[word(ttl)]
    elif ttl is not None:
        unknown["ttl"] = ttl
    if mark.get("type") not in (None, "ephemeral"):
        unknown["type"] = mark["type"]
    keep(left, "cache_control", unknown)
    return options


def _compactions(body: JSONObject, left: JSONObject) -> list[JSON]:
    """The edits that sum up the conversation, in the form of the others; the rest is unknown to them."""
    management = object_of(body, "context_management", "")
    compactions: list[JSON] = []
    others: list[JSON] = []
    for index, edit in enumerate(objects(management, "edits", "/context_management")):
        if edit == KEEP_THINKING:
            continue
        if edit.get("type") != COMPACT_EDIT:
            others.append(edit)
            continue
        trigger = object_of(edit, "trigger", f"/context_management/edits/{index}")
        value = trigger.get("value", COMPACT_AT)
        compactions.append({"type": "compaction", "compact_threshold": value})
        more = extra_of(edit, KNOWN_EDIT) or {}
        keep(more, "trigger", extra_of(trigger, KNOWN_TRIGGER))
        if trigger.get("type") not in (None, "input_tokens"):
            keep(more, "trigger", {"type": trigger["type"]})
        if more:
            others.append(more)
    unknown = extra_of(management, KNOWN_MANAGEMENT) or {}
    if others:
        unknown["edits"] = others
    keep(left, "context_management", unknown)
    return compactions


def read_compaction(body: JSONObject, left: JSONObject) -> tuple[bool, Message | None]:
    """Whether the client wants the conversation summed up, and how, in a message of its own."""
    if body.get("compaction") is None:
        return False, None
    compaction = object_of(body, "compaction", "")
    keep(left, "compaction", extra_of(compaction, KNOWN_COMPACTION))
    if compaction.get("type") != "summarize":
        raise invalid("/compaction/type", "Input should be 'summarize'")
    path = "/compaction/instructions"
    instructions = optional(compaction, "instructions", "/compaction", str, "string")
    return True, Message("user", (Text(instructions, path=path),), path) if instructions else None


def read_reasoning(body: JSONObject, later: Later | None, left: JSONObject) -> ReasoningConfig | None:
    """Thinking and effort. later: an effort in mid-conversation, which counts from there on."""
    config = object_of(body, "output_config", "")
    effort = optional(config, "effort", "/output_config", str, "string")
    effort_path = "/output_config/effort"
    if later is not None:
        if effort not in (None, later[1]):
            keep(left, "output_config", {"effort": effort})
        effort_path, effort = later
    thinking = object_of(body, "thinking", "")
    if not thinking:
        return None if effort is None else ReasoningConfig(effort=effort, path=effort_path)
    extra = extra_of(thinking, KNOWN_THINKING) or {}
    kind: JSON = thinking.get("type")
    display: JSON = thinking.get("display")
    show: Literal["summarized", "omitted"] | None = display
    budget = optional(thinking, "budget_tokens", "/thinking", int, "integer")
    if kind == "between_tools":
        extra["type"] = kind
        kind = "disabled"  # the nearest: no reasoning before the answer
    elif kind not in ("adaptive", "enabled", "disabled"):
        raise invalid(
            "/thinking/type", "Input should be 'adaptive', 'enabled', 'disabled' or 'between_tools'"
        )
    if show not in (None, "summarized", "omitted"):
        extra["display"] = display
        show = "summarized" if display == "updates" else None  # the nearest
    path = effort_path if effort is not None else ""
    show_path = "/thinking/display" if show is not None else ""
    return ReasoningConfig(kind, effort, budget, show, extra or None, "/thinking", path, show_path)


def read_response_format(body: JSONObject, left: JSONObject) -> ResponseFormat | None:
    """The schema of the answer, in either of its places."""
    config = object_of(body, "output_config", "")
    keep(left, "output_config", extra_of(config, KNOWN_CONFIG))
    path = "/output_config/format" if config.get("format") is not None else "/output_format"
    found = object_of(config, "format", "/output_config")
    older = object_of(body, "output_format", "")
    if found and older:
        left["output_format"] = older
    found = found or older
    if not found:
        return None
    if found.get("type") != "json_schema":
        raise invalid(f"{path}/type", "Input should be 'json_schema'")
    schema = required(found, "schema", path, dict, "dictionary")
    # The server always keeps to the schema.
    return ResponseFormat(schema, strict=True, extra=extra_of(found, KNOWN_FORMAT), path=path)
