"""Settings, reasoning and text format -> what a Responses upstream takes."""

from __future__ import annotations

from collections.abc import Mapping

from dragoman._ir.losses import Ledger
from dragoman._ir.parameters import (
    DEFAULT_EFFORT,
    Converter,
    effort_of_budget,
    fit_effort,
    hash_longer_than,
    write_params,
)
from dragoman._ir.request import Param, ReasoningConfig, Request, ResponseFormat
from dragoman._wire.json import JSON, JSONObject
from dragoman._wire.json_schema import is_strict
from dragoman.codec import Capabilities
from dragoman.protocols.openai_responses import tables

_DEFAULT_SCHEMA_NAME = "response"


def write_settings(request: Request, capabilities: Capabilities, out: JSONObject, ledger: Ledger) -> None:
    """Put everything beside input and tools of another protocol's request into `out`."""
    text: JSONObject = {}
    if request.response_format is not None:
        text["format"] = _write_format(request.response_format, ledger)
    verbosity = request.params.get("verbosity")
    if verbosity is not None:
        text["verbosity"] = verbosity
    if text:
        out["text"] = text
    write_params(request, tables.PARAM_NAMES, _CONVERTERS, out, ledger)
    if request.params.get("speed") == "fast":
        if "service_tier" in capabilities.refuses:
            ledger.dropped(request.param_paths.get("speed", "/speed"), "the upstream takes no service tier")
        else:
            out["service_tier"] = "fast"
    # The server's default is true, and nothing is kept at the vendor unless the client wants it.
    if "store" not in capabilities.refuses:
        out["store"] = request.params.get("store") is True
    include: list[str] = []
    if request.reasoning is not None:
        reasoning = _write_reasoning(request.reasoning, request.protocol, capabilities, ledger)
        if reasoning:
            out["reasoning"] = reasoning
            # Models that do not reason answer it with "Encrypted content is not supported with this model", so
            # only a client that speaks of reasoning gets it.
            include.append(tables.INCLUDE_REASONING)
    if request.params.get("logprobs"):
        include.append(tables.INCLUDE_LOGPROBS)
    if include and "include" not in capabilities.refuses:
        out["include"] = include
    elif request.params.get("logprobs"):
        ledger.dropped(request.param_paths.get("logprobs", "/logprobs"), "the upstream includes nothing more")


def write_native_settings(request: Request, out: JSONObject, ledger: Ledger) -> None:
    """The same for a request of this protocol. What has several forms in the document is printed as it came."""
    raw = request.raw
    write_params(request, tables.NATIVE_PARAM_NAMES, _OWN_CONVERTERS, out, ledger)
    for name in tables.VERBATIM_FIELDS:
        if raw.get(name) is not None:
            out[name] = raw[name]
    for name in (*tables.NO_OP_VALUES, "include", "stream_options"):
        if name in raw and name not in out:
            out[name] = raw[name]
    if "previous_response_id" not in raw:
        out.pop("previous_response_id", None)  # it stood for a reference among the items
    out.update(
        {name: value for name, value in (request.extra or {}).items() if name not in tables.VERBATIM_FIELDS}
    )


def rewrite_settings(request: Request, capabilities: Capabilities, out: JSONObject, ledger: Ledger) -> None:
    """Take out of a client's own settings what passes took out, and fit its reasoning to the target."""
    for name in (*tables.NO_OP_VALUES, "include"):
        if name in capabilities.refuses:
            out.pop(name, None)
    text = dict(out.get("text") or {})
    form, kind = request.response_format, (text.get("format") or {}).get("type")
    if form is None and kind != "text":
        text.pop("format", None)
    elif form is not None and form.schema is None and kind == "json_schema":
        text["format"] = _write_format(form, ledger)
    if "verbosity" not in request.params:
        text.pop("verbosity", None)
    _put(out, "text", text)
    config = request.reasoning
    if config is None or (config.effort_path or config.path).startswith("/input/"):
        return  # nothing is said, or in mid-conversation
    reasoning = dict(out.get("reasoning") or {})
    fitted = _write_reasoning(config, request.protocol, capabilities, ledger)
    if capabilities.efforts == ():
        reasoning.clear()
        # "Encrypted content is not supported with this model."
        include = [each for each in out.pop("include", ()) if each != tables.INCLUDE_REASONING]
        if include:
            out["include"] = include
    if "summary" not in fitted:
        for name in _SUMMARIES:
            reasoning.pop(name, None)
    elif reasoning.keys() & _SUMMARIES:
        del fitted["summary"]  # it is asked for in the client's own words
    _put(out, "reasoning", {**reasoning, **fitted})


def _put(out: JSONObject, name: str, value: JSONObject) -> None:
    said = {key: each for key, each in value.items() if each is not None}
    if said:
        out[name] = said
    else:
        out.pop(name, None)


# The name of it, and an older one.
_SUMMARIES = {"summary", "generate_summary"}


def _write_format(form: ResponseFormat, ledger: Ledger) -> JSONObject:
    if form.schema is None:
        return {"type": "json_object"}
    out: JSONObject = {
        "type": "json_schema",
        "name": form.name or _DEFAULT_SCHEMA_NAME,
        "schema": form.schema,
    }
    if form.description is not None:
        out["description"] = form.description
    out["strict"] = bool(form.strict) and is_strict(form.schema)
    if form.strict and not out["strict"]:
        ledger.altered(
            form.path or "/response_format", "the schema is outside of what the server takes as strict"
        )
    return out


def _write_reasoning(
    config: ReasoningConfig, protocol: str, capabilities: Capabilities, ledger: Ledger
) -> JSONObject:
    out: JSONObject = {}
    wanted = _effort(config)
    path = config.path or "/reasoning"
    if capabilities.efforts == ():
        # "UnsupportedGrammar parameter: 'reasoning.effort' is not supported with this model."
        if config.thinks or config.display is not None or config.extra:
            for place in dict.fromkeys((path, config.effort_path or path)):
                ledger.dropped(place, "the model does not reason")
        return out
    if config.budget is not None:
        ledger.altered(path, "the budget in tokens is told as an effort")
    elif config.effort not in (None, wanted):
        ledger.altered(path, "reasoning is off: its effort was left out")
    effort = None if wanted is None else fit_effort(wanted, capabilities.efforts)
    if effort != wanted:
        ledger.altered(config.effort_path or path, f"the model does not take this effort: {effort} was sent")
    if effort is not None:
        out["effort"] = effort
    if effort != "none" and _wants_summary(config, effort, protocol, capabilities, ledger):
        out["summary"] = "auto"
    return out


def _wants_summary(
    config: ReasoningConfig, effort: str | None, protocol: str, capabilities: Capabilities, ledger: Ledger
) -> bool:
    """Whether to ask for a summary: "Your organization must be verified to generate reasoning summaries"."""
    asked = config.display == "summarized"
    if capabilities.summaries == "never":
        if asked:
            ledger.dropped(config.display_path or config.path, "the upstream is not asked for summaries")
        return False
    if capabilities.summaries == "requested" or config.display is not None:
        return asked
    # Clients that want thinking without a word on seeing it.
    means_show = effort is not None and protocol in tables.EFFORT_IMPLIES_SUMMARY
    return means_show or config.mode in ("adaptive", "enabled")


def _effort(config: ReasoningConfig) -> str | None:
    """An effort in words wins over a budget of tokens: it is what the client said last and plainest."""
    if config.mode == "disabled":
        return "none"
    if config.effort is not None or config.mode is None:
        return config.effort
    return DEFAULT_EFFORT if config.budget is None else effort_of_budget(config.budget)


def _consumed(value: JSON, path: str, ledger: Ledger) -> JSON:
    """Written elsewhere."""
    return None


def _text_alone(value: JSON, path: str, ledger: Ledger) -> JSON:
    if value != ["text"]:
        ledger.dropped(path, "Responses answers in text alone")
    return None


def _service_tier(value: JSON, path: str, ledger: Ledger) -> JSON:
    tier = tables.SERVICE_TIER_ALIASES.get(value, value) if type(value) is str else None
    if tier in tables.SERVICE_TIERS:
        return tier
    ledger.dropped(path, "no such service tier in Responses")
    return None


def _speed(value: JSON, path: str, ledger: Ledger) -> JSON:
    if value not in ("fast", "standard"):
        ledger.dropped(path, "no such speed in Responses")
    return None


def _output_tokens(value: JSON, path: str, ledger: Ledger) -> JSON:
    if type(value) is int and value < tables.MIN_OUTPUT_TOKENS:
        ledger.altered(path, f"raised to {tables.MIN_OUTPUT_TOKENS}, the lowest limit of Responses")
        return tables.MIN_OUTPUT_TOKENS
    return value


_CONVERTERS: Mapping[Param, Converter] = {
    "logprobs": _consumed,
    "max_output_tokens": _output_tokens,
    "mcp_servers": _consumed,  # see `note_servers`
    "modalities": _text_alone,
    "safety_identifier": hash_longer_than(tables.MAX_SAFETY_IDENTIFIER),
    "service_tier": _service_tier,
    "speed": _speed,
    "store": _consumed,
    "user": hash_longer_than(tables.MAX_USER),
    "verbosity": _consumed,
}
_OWN_CONVERTERS: Mapping[Param, Converter] = {
    "include": _consumed,
    "logprobs": _consumed,
    "verbosity": _consumed,
}
