"""Read and write the settings of a request that are more than a name and a value, and write the plain ones.

Clients request reasoning with the official setting and with half a dozen others, and mix several. A table lists these
places and the field that each sets. The first of several for the same field counts; a later one that differs goes into
`extra`. An upstream gets the one setting that it supports, with the nearest effort that its model supports, and
structured output with `strict` only where the server would not refuse it.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from dragoman._ir.losses import Ledger, child
from dragoman._ir.parameters import Converter, fit_effort, requested_effort, write_params
from dragoman._ir.request import Param, ReasoningConfig, Request, ResponseFormat
from dragoman._ir.shape import INTEGER, OBJECT, STRING, JSONType, extra_members
from dragoman._wire.json import JSON, JSONObject
from dragoman.protocols._openai.settings import (
    DEFAULT_SCHEMA_NAME,
    ID_CONVERTERS,
    INCLUDE_LOGPROBS,
    JSON_INSTRUCTION,
    with_tiers,
)
from dragoman.protocols.openai_chat.capabilities import ChatCapabilities as Capabilities
from dragoman.protocols.openai_chat.checks import CHECKS
from dragoman.protocols.openai_chat.shapes import FORMAT_SHAPE, SETTING_PATHS
from dragoman.protocols.openai_chat.tables import IMPLIED_INCLUDES, TITLE

# What open servers pass to the model's template.
_TEMPLATE = "chat_template_kwargs"

_SWITCH = {True: "adaptive", False: "disabled"}
# Groq's name for what the model does anyway (console.groq.com/docs/reasoning), and no name.
_NO_EFFORT = ("default", "")

# Setting -> its member ("" for none) -> the field of ReasoningConfig that it sets, and the type of the value or what
# each value means. All but the first are of compatible servers: Qwen, Z.ai, OpenRouter and vLLM (November 2026).
_PLACES: dict[str, dict[str, tuple[str, JSONType | Mapping[JSON, str]]]] = {
    "reasoning_effort": {"": ("effort", STRING)},
    "reasoning": {
        "effort": ("effort", STRING),
        "enabled": ("mode", _SWITCH),
        "max_tokens": ("budget", INTEGER),
        "exclude": ("display", {True: "omitted", False: "summarized"}),
    },
    "thinking": {
        "type": ("mode", {mode: mode for mode in ("enabled", "disabled", "adaptive")}),
        "budget_tokens": ("budget", INTEGER),
    },
    "enable_thinking": {"": ("mode", _SWITCH)},
    _TEMPLATE: {"enable_thinking": ("mode", _SWITCH), "thinking": ("mode", _SWITCH)},
    "thinking_budget": {"": ("budget", INTEGER)},
    "include_reasoning": {"": ("display", {True: "summarized", False: "omitted"})},
}


REASONING_SETTINGS = tuple(_PLACES)


def read_reasoning(body: JSONObject, extra: JSONObject) -> ReasoningConfig | None:
    """Read the settings for reasoning, None if there are none or only unknown ones.

    Raises RemoteProtocolError (400) for an effort or budget of a wrong type.
    """
    found: dict[str, JSON] = {}
    paths: dict[str, str] = {}
    for key in filter(body.__contains__, _PLACES):
        members = _PLACES[key]
        if body[key] is None:
            continue
        holder = body[key] if type(body[key]) is dict else {"": body[key]}
        unread = {name: value for name, value in holder.items() if value is not None}
        for member, (field, values) in members.items():
            if isinstance(values, JSONType):
                meaning = CHECKS.optional(holder, member, f"/{key}", values)
            else:
                value = holder.get(member)
                meaning = values.get(value) if type(value) in (bool, str) else None
            if meaning in _NO_EFFORT:
                del unread[member]
            elif meaning is not None and _agrees(field, found.setdefault(field, meaning), meaning):
                paths.setdefault(field, f"/{key}/{member}" if member else f"/{key}")
                del unread[member]
        if unread:
            extra[key] = unread if holder is body[key] else body[key]
    if not found:
        return None
    if "budget" in found and found.get("mode") != "disabled":
        found["mode"] = "enabled"
    effort_path = paths.get("effort", "")
    path = next((paths[field] for field in ("budget", "mode", "display") if field in paths), effort_path)
    if path.count("/") > 1:
        path = path.rpartition("/")[0]
    return ReasoningConfig(**found, path=path, effort_path="" if effort_path == path else effort_path)


def _agrees(field: str, first: JSON, later: JSON) -> bool:
    if field == "mode":
        return (first == "disabled") is (later == "disabled")
    return bool(first == later)


def write_reasoning(
    config: ReasoningConfig, request: Request, capabilities: Capabilities, out: JSONObject, ledger: Ledger
) -> None:
    """Put the setting for reasoning that the upstream supports into `out`."""
    if (
        request.native
        and config.path == f"/{_TEMPLATE}"
        and capabilities.reasoning_setting == "reasoning_effort"
    ):
        # Only the client has the template of the model, and with it the names of its settings.
        out[_TEMPLATE] = request.native[_TEMPLATE]
        config = msgspec.structs.replace(config, mode=None, path=config.effort_path or config.path)
    path = config.path
    if config.display is not None:
        ledger.dropped(
            config.display_path or path, "Chat Completions has no setting for whether reasoning is visible"
        )
    requested = requested_effort(config)
    if requested is None:
        return
    if config.mode == "disabled" and config.effort not in (None, "none"):
        ledger.dropped(config.effort_path or path, "reasoning is off: its effort was left out")
    setting = capabilities.reasoning_setting
    at = (config.effort_path or path) if config.effort is not None else path
    if setting is None:
        ledger.dropped(at, "the upstream has no setting for reasoning")
        if config.mode is not None or config.budget is not None:
            ledger.dropped(path, "the upstream has no setting for reasoning")
        return
    if requested == "none" and setting in ("thinking", "enable_thinking"):
        # DeepSeek: "thinking options type cannot be disabled when reasoning_effort is set" (cc-switch#3876, read
        # 2026-11-22).
        out[setting] = {"type": "disabled"} if setting == "thinking" else False
    elif (
        setting == "reasoning" and config.effort is None and config.budget is not None and requested != "none"
    ):
        out["reasoning"] = {"max_tokens": config.budget}
    else:
        if config.budget is not None and requested != "none":
            ledger.altered(path, "the token budget was converted to an effort")
        _write_effort(requested, config.effort is not None, at, capabilities, out, ledger)


def _write_effort(
    requested: str, by_name: bool, at: str, capabilities: Capabilities, out: JSONObject, ledger: Ledger
) -> None:
    """Put the effort that the upstream accepts into `out`. by_name: the client sent an effort."""
    setting = capabilities.reasoning_setting
    assert setting is not None
    effort = fit_effort(requested, capabilities.efforts)
    restricted = setting == "reasoning_effort" and not capabilities.tools_with_effort
    if restricted and effort != "none" and "tools" in out:
        # "Function tools with reasoning_effort are not supported for ... in /v1/chat/completions. To use function
        # tools, use /v1/responses or set reasoning_effort to 'none'." (itzcrazykns/vane#1173, read 2026-11-22)
        ledger.altered(at, "the model does not accept an effort together with tools in Chat Completions")
        if fit_effort("none", capabilities.efforts) != "none":
            return
        effort = "none"
    elif effort != requested:
        ledger.altered(at, f"sent as {effort}, the nearest effort that the model accepts")
    if setting in ("thinking", "enable_thinking"):
        out[setting] = {"type": capabilities.thinking_type} if setting == "thinking" else True
        if capabilities.efforts:
            out["reasoning_effort"] = effort
        elif by_name:
            ledger.altered(at, "sent as a switch: the upstream has no setting for the effort")
    else:
        out[setting] = {"effort": effort} if setting == "reasoning" else effort


def read_response_format(body: JSONObject, extra: JSONObject) -> ResponseFormat | None:
    """Read `response_format`. One of an unknown type is extra as a whole."""
    value = body.get("response_format")
    if value is None:
        return None
    kind = value.get("type")
    path = "/response_format"
    if kind == "json_object":
        # Servers of open models take the schema here as well (llama.cpp, Together, Fireworks). An empty one is none.
        schema = CHECKS.optional(value, "schema", path, OBJECT)
        if extra.get("response_format", {}).keys() == {"schema"}:
            del extra["response_format"]
        return ResponseFormat(schema or None, path=path)
    if kind == "json_schema":
        schema, at = CHECKS.required(value, "json_schema", path, OBJECT), f"{path}/json_schema"
        return ResponseFormat(
            schema.get("schema") or {},
            CHECKS.optional(schema, "name", at, STRING),
            CHECKS.optional(schema, "description", at, STRING),
            schema.get("strict"),
            extra_members(schema, FORMAT_SHAPE),
            at,
        )
    if kind != "text" or "response_format" in extra:
        extra["response_format"] = value  # a server's own kind, such as a grammar
    return None


def write_response_format(
    form: ResponseFormat, settings: Request, messages: list[JSONObject], out: JSONObject, ledger: Ledger
) -> None:
    """Put the response format into `out`. messages: the wire messages, to which an instruction may be added."""
    path = form.path
    if form.schema is None:
        out["response_format"] = {"type": "json_object"}
        if not any(_mentions_json(message) for message in messages):
            _add_instruction(messages, JSON_INSTRUCTION)
            ledger.altered(
                path, "the server requires the word JSON in the messages: an instruction was added"
            )
        return
    if settings.response_format is None:
        return  # no pass has changed it
    schema: JSONObject = {"name": form.name or DEFAULT_SCHEMA_NAME}
    if form.description is not None:
        schema["description"] = form.description
    schema["schema"] = form.schema
    if form.strict is not None:
        schema["strict"] = form.strict
    out["response_format"] = {"type": "json_schema", "json_schema": schema}


def _mentions_json(message: JSONObject) -> bool:
    content = message.get("content")
    texts = [content] if type(content) is str else [part.get("text") for part in content or ()]
    return any(type(text) is str and "json" in text.lower() for text in texts)


def _add_instruction(messages: list[JSONObject], text: str) -> None:
    """Add an instruction to the system message at the head, because some servers take no other."""
    first = messages[0] if messages else {}
    if first.get("role") not in ("system", "developer"):
        messages.insert(0, {"role": "system", "content": text})
    elif type(first["content"]) is str:
        first["content"] = f"{first['content']}\n\n{text}"
    else:
        first["content"] = [*first["content"], {"type": "text", "text": text}]


_NAMES: dict[Param, str] = {param: path[1:] for param, path in SETTING_PATHS.items()}
# Neutral name -> wire name, for each of the two names of the output limit.
_SETTING_NAMES: dict[str, dict[Param, str]] = {
    limit: {**_NAMES, "max_output_tokens": limit, "speed": "service_tier"}
    for limit in ("max_tokens", "max_completion_tokens")
}


def write_settings(request: Request, capabilities: Capabilities, out: JSONObject, ledger: Ledger) -> None:
    """Put the plain settings into `out`."""
    if request.params:
        refuses_tiers = "service_tier" in capabilities.refuses
        with_marks = capabilities.cache_marks == "breakpoint"
        converters = with_tiers(
            CONVERTERS if with_marks else _CONVERTERS_WITHOUT_MARKS, request, refuses_tiers, TITLE
        )
        write_params(request, _SETTING_NAMES[capabilities.max_tokens_field], converters, out, ledger)
        if not request.native and ("include" in request.params or "top_logprobs" in out):
            _derived_settings(request, capabilities, out, ledger)


def _derived_settings(request: Request, capabilities: Capabilities, out: JSONObject, ledger: Ledger) -> None:
    """Put the settings into `out` that become another one."""
    requested = INCLUDE_LOGPROBS in (request.params.get("include") or ())
    if requested and "logprobs" in capabilities.refuses:
        ledger.dropped(request.path_of("include"), "the upstream does not accept logprobs")
        requested = False
    if out.get("logprobs") is False and "top_logprobs" in out:
        ledger.dropped(request.path_of("top_logprobs"), "no log probabilities are requested")
        del out["top_logprobs"]
    elif requested or "top_logprobs" in out:
        out["logprobs"] = True  # "must be set to `true` if" top_logprobs is used (openai-python 3.54.0)


def _include(value: JSON, path: str, ledger: Ledger) -> JSON:
    for index, item in enumerate(value if type(value) is list else ()):
        if type(item) is not str or item not in IMPLIED_INCLUDES:
            ledger.dropped(child(path, index), "Chat Completions has nothing of the kind to include")
    return None


def _drop_cache_options(value: JSON, path: str, ledger: Ledger) -> JSON:
    ledger.dropped(path, "the upstream does not accept cache marks")
    return None


CONVERTERS: Mapping[Param, Converter] = {
    **ID_CONVERTERS,
    "include": _include,
    "background": lambda value, path, ledger: None,  # false here: write_request refuses true
}
_CONVERTERS_WITHOUT_MARKS = {**CONVERTERS, "prompt_cache_options": _drop_cache_options}
