"""Write the body for an upstream: instructions, contents, tools, settings and reasoning.

The model is in the path. A request that does not leave its protocol (`Capabilities.relay` "rewrite") keeps all of the
client's settings that passes and capabilities do not change.
"""

from __future__ import annotations

from dragoman._ir.losses import Ledger, LossCode, child
from dragoman._ir.parameters import (
    Converter,
    drop_unless,
    effort_of_budget,
    fit_effort,
    refuse_params,
    write_params,
)
from dragoman._ir.request import Param, ReasoningConfig, Request, ResponseFormat
from dragoman._wire.json import JSON, JSONObject
from dragoman.protocols.gemini import tables
from dragoman.protocols.gemini.capabilities import GeminiCapabilities as Capabilities
from dragoman.protocols.gemini.request_messages_out import ContentsWriter
from dragoman.protocols.gemini.schemas import openapi_schema
from dragoman.protocols.gemini.shapes import SETTING_PATHS
from dragoman.protocols.gemini.signatures import SignedParts
from dragoman.protocols.gemini.tools import write_tools

_SETTINGS = "generationConfig"
_NO_SETTING = "Gemini has no such setting"
_NAMES: dict[Param, str] = {
    # Without labels: they are for bills, and not accepted everywhere.
    **{param: path.rpartition("/")[2] for param, path in SETTING_PATHS.items() if param != "metadata"},
    "include": "responseLogprobs",
}
# The settings at the top of a body.
_TOP = frozenset(path[1:] for path in SETTING_PATHS.values() if path.count("/") == 1)
# The members that are always written again, or in the path; and the places of the response's format.
_WRITTEN = ("/contents", "/systemInstruction", "/tools", "/model")
_THINKING = f"/{_SETTINGS}/thinkingConfig"
_FORMAT_PLACES = tuple(
    f"/{_SETTINGS}/{name}" for name in ("responseMimeType", "responseSchema", "responseJsonSchema")
)


def write_request(request: Request, capabilities: Capabilities, ledger: Ledger) -> JSONObject:
    """Return the body. Raises RequestRefused (400) for settings that may not be left out."""
    was = request.received
    settings = request.changed_settings()
    out: JSONObject = {}
    _write_conversation(request, capabilities, out, ledger)
    write_tools(request, capabilities, out, ledger)
    config: JSONObject = {}
    write_params(settings, _NAMES, CONVERTERS, config, ledger)
    if "logprobs" in config:
        config.setdefault("responseLogprobs", True)  # required with a number
    for name in [each for each in config if each in _TOP]:
        out[name] = config.pop(name)
    form = settings.response_format
    if form is not None:
        _write_format(form, config, capabilities, ledger)
    reasoning = request.reasoning
    is_same = was is not None and reasoning is was.reasoning
    if reasoning is not None and not is_same:
        thinking = _write_thinking(reasoning, capabilities, ledger)
        if thinking:
            config["thinkingConfig"] = thinking
    if config:
        out[_SETTINGS] = config
    return request.native_body(out, _WRITTEN if is_same else (*_WRITTEN, _THINKING), _FORMAT_PLACES)


def _write_conversation(
    request: Request, capabilities: Capabilities, out: JSONObject, ledger: Ledger
) -> None:
    """Write `systemInstruction` and `contents`."""
    native, messages = request.native, request.messages
    leading = request.leading_instructions("/contents")
    if leading and len(leading) == len(messages) and not native:
        leading.pop()  # "contents is not specified": the last one becomes the user's
    signed = SignedParts(placeholders=capabilities.thought_signatures)
    conversation = ContentsWriter(capabilities, ledger, signed, bool(native))
    parts = [part for message in leading for part in conversation.system_parts(message)]
    was = request.received
    if was is not None and len(leading) == 1 and leading[0] is was.messages[0]:
        out["systemInstruction"] = native["systemInstruction"]  # no pass has changed it
    elif parts:
        out["systemInstruction"] = {"parts": parts}
    out["contents"] = conversation.write(messages[len(leading) :])


def _write_format(
    form: ResponseFormat, config: JSONObject, capabilities: Capabilities, ledger: Ledger
) -> None:
    """Put the format of the response into the settings. It is always strict."""
    config["responseMimeType"] = tables.MIME_TYPE_JSON
    if form.schema is None:
        return
    if form.strict is False:
        ledger.altered(f"{form.path}/strict", "the upstream always enforces the schema")
    schema = form.schema
    for key, name, value in (("title", "name", form.name), ("description", "description", form.description)):
        if value is not None and type(schema) is dict and schema.get(key) in (None, value):
            schema = {**schema, key: value}
        elif value is not None:
            ledger.dropped(f"{form.path}/{name}", f"the schema has no place for a {key}")
    if capabilities.schema_dialect == "json_schema":
        config["responseJsonSchema"] = schema
    else:
        config["responseSchema"] = openapi_schema(schema, f"{form.path}{form.schema_member}", ledger)


# Reasoning.


def _write_thinking(config: ReasoningConfig, capabilities: Capabilities, ledger: Ledger) -> JSONObject:
    """Return `thinkingConfig`: a level or a budget, never both, because that is refused."""
    by = capabilities.thinking_by
    disabled = config.mode == "disabled" or config.effort == "none"
    at = config.effort_path or config.path
    if by == "none":
        if not disabled:
            ledger.dropped(config.path, "the model does not reason")
        return {}
    thinking: JSONObject = {}
    if not disabled and (config.requests_reasoning or config.display is not None):
        thinking["includeThoughts"] = config.display != "omitted"
    if config.effort not in (None, "none") and config.budget is not None:
        ledger.altered(config.path, "the effort was sent and not the budget")
    effort = "none" if disabled else config.effort
    if by == "budget":
        if effort is not None:
            thinking["thinkingBudget"] = _budget(effort, capabilities, at, ledger)
        elif config.budget is not None:
            thinking["thinkingBudget"] = config.budget
        elif config.mode == "adaptive":
            thinking["thinkingBudget"] = tables.DYNAMIC_BUDGET
        return thinking
    if effort is None and config.budget is not None:
        effort = effort_of_budget(config.budget)
        ledger.altered(config.path, "the token budget was converted to a level: the model has no budgets")
    if effort is None:
        return thinking
    accepted = [each for each in capabilities.efforts or tables.LEVELS_OF_ALL if each in tables.LEVELS]
    level = fit_effort(effort, accepted)
    if level != effort:
        ledger.altered(at, f"sent as {level}, the nearest level that the model accepts")
    thinking["thinkingLevel"] = level.upper() if level in tables.LEVELS else level  # that of a later model
    return thinking


def _budget(effort: str, capabilities: Capabilities, path: str, ledger: Ledger) -> int:
    if effort == "none":
        if capabilities.can_disable_reasoning:
            return 0
        ledger.altered(path, "sent as the least budget: the model's reasoning cannot be disabled")
        return tables.LEAST_BUDGET
    known = effort if effort in tables.EFFORT_BUDGETS else "high"
    if known != effort:
        ledger.altered(path, f"an unknown effort was read as {known}")
    return tables.EFFORT_BUDGETS[known]


# Settings.


def _include(value: JSON, path: str, ledger: Ledger) -> JSON:
    """Return True if log probabilities are requested. All else is in every response, or nowhere."""
    items = value if type(value) is list else [value]
    for index, item in enumerate(items):
        if item != tables.INCLUDE_LOGPROBS and str(item) not in tables.IMPLIED_INCLUDES:
            ledger.dropped(child(path, index), "Gemini has nothing of the kind to include")
    return True if tables.INCLUDE_LOGPROBS in items else None


def _keep_unless(defaults: tuple[JSON, ...]) -> Converter:
    return lambda value, path, ledger: None if value in defaults else value


def _stop(value: JSON, path: str, ledger: Ledger) -> JSON:
    return value if type(value) is list else [value]


def _service_tier(value: JSON, path: str, ledger: Ledger) -> JSON:
    name = tables.SERVICE_TIER_NAMES.get(value) if type(value) is str else None
    if name is None and value != "auto":
        ledger.add(LossCode.DROPPED, path, "Gemini has no such service tier")
    return name


CONVERTERS: dict[Param, Converter] = {
    **{
        param: _keep_unless(defaults) if param in _NAMES else drop_unless(defaults, _NO_SETTING)
        for param, defaults in tables.NO_OP_VALUES.items()
    },
    **refuse_params(tables.NO_OP_VALUES),
    "include": _include,
    "service_tier": _service_tier,
    "stop": _stop,
}
