"""Settings, reasoning and text format -> what a Responses upstream takes."""

from __future__ import annotations

from collections.abc import Mapping

from ..._errors import RemoteProtocolError
from ..._json import JSON, JSONObject
from ..._loss import Ledger
from ..._params import Converter, write_params
from ..._request import Param, ReasoningConfig, Request, ResponseFormat
from . import _tables as tables

_DEFAULT_SCHEMA_NAME = "response"


def settings(request: Request, own: bool, out: JSONObject, ledger: Ledger) -> None:
    """Put everything beside input and tools into `out`."""
    text: JSONObject = {}
    if request.response_format is not None:
        text["format"] = _write_format(request.response_format, own)
    if own:
        _own_settings(request, out, text, ledger)
        return
    verbosity = request.params.get("verbosity")
    if verbosity is not None:
        text["verbosity"] = verbosity
    if text:
        out["text"] = text
    write_params(request, tables.FOREIGN_PARAMS, _CONVERTERS, out, ledger)
    # Nothing of a foreign client's conversation is kept at the vendor: the client cannot refer to it.
    out["store"] = False
    include: list[str] = []
    if request.reasoning is not None:
        reasoning = _write_reasoning(request.reasoning, request.protocol, ledger)
        if reasoning:
            out["reasoning"] = reasoning
            # Models that do not reason answer it with "Encrypted content is not supported with this model", so
            # only a client that speaks of reasoning gets it.
            include.append(tables.INCLUDE_REASONING)
    if request.params.get("logprobs"):
        include.append(tables.INCLUDE_LOGPROBS)
    if include:
        out["include"] = include


def _own_settings(request: Request, out: JSONObject, text: JSONObject, ledger: Ledger) -> None:
    raw = request.raw
    extra = dict(request.extra or {})
    verbosity = request.params.get("verbosity")
    if verbosity is not None:
        text["verbosity"] = verbosity
    text.update(extra.pop("text", {}))
    if text:
        out["text"] = text
    write_params(request, tables.OWN_PARAMS, _OWN_CONVERTERS, out, ledger)
    for name in (*tables.NOTHING_ASKED, "include"):
        if name in raw and name not in out:
            out[name] = raw[name]
    config = request.reasoning
    if config is not None:
        out["reasoning"] = dict(raw["reasoning"])
        if config.effort is not None:
            out["reasoning"]["effort"] = config.effort
    out.update(extra)


def _write_format(form: ResponseFormat, own: bool) -> JSONObject:
    if form.schema is None:
        out: JSONObject = {"type": "json_object"}
    else:
        out = {"type": "json_schema", "name": form.name or _DEFAULT_SCHEMA_NAME, "schema": form.schema}
        if form.description is not None:
            out["description"] = form.description
        if form.strict is not None:
            out["strict"] = form.strict
    if own and form.extra:
        out.update(form.extra)
    return out


def _write_reasoning(config: ReasoningConfig, protocol: str, ledger: Ledger) -> JSONObject:
    out: JSONObject = {}
    effort = _effort(config)
    if config.budget is not None:
        ledger.altered(config.path or "/reasoning", "the budget in tokens is told as an effort")
    elif config.effort not in (None, effort):
        ledger.altered(config.path or "/reasoning", "reasoning is off: its effort was left out")
    if effort is not None:
        out["effort"] = effort
    thinks = config.mode in ("adaptive", "enabled")
    asks = effort not in (None, "none") and protocol in tables.EFFORT_MEANS_SHOW
    if effort != "none" and (config.show == "summarized" or (config.show is None and (thinks or asks))):
        out["summary"] = "auto"
    return out


def _effort(config: ReasoningConfig) -> str | None:
    """An effort in words wins over a budget of tokens: it is what the client said last and plainest."""
    if config.mode == "disabled":
        return "none"
    if config.effort is not None or config.mode is None:
        return config.effort
    if config.budget is None:
        return tables.EFFORT_UNSAID
    for bound, effort in tables.EFFORT_BY_BUDGET:
        if config.budget <= bound:
            return effort
    return tables.EFFORT_BEYOND


def _consumed(value: JSON, path: str, ledger: Ledger) -> JSON:
    """Written elsewhere."""
    return None


def _one_answer(value: JSON, path: str, ledger: Ledger) -> JSON:
    if value != 1:
        raise RemoteProtocolError(
            "Responses gives one answer to a request: send n = 1, or several requests",
            path=path,
            code="unsupported_value",
        )
    return None


def _text_alone(value: JSON, path: str, ledger: Ledger) -> JSON:
    if value != ["text"]:
        ledger.dropped(path, "Responses answers in text alone")
    return None


def _service_tier(value: JSON, path: str, ledger: Ledger) -> JSON:
    tier = tables.SERVICE_TIER_NAMES.get(value, value) if type(value) is str else None
    if tier in tables.SERVICE_TIERS:
        return tier
    ledger.dropped(path, "no such service tier in Responses")
    return None


def _not_stored(value: JSON, path: str, ledger: Ledger) -> JSON:
    if value:
        ledger.dropped(path, "nothing is stored at the upstream for clients of other protocols")
    return None


_CONVERTERS: Mapping[Param, Converter] = {
    "logprobs": _consumed,
    "modalities": _text_alone,
    "n": _one_answer,
    "service_tier": _service_tier,
    "store": _not_stored,
    "verbosity": _consumed,
}
_OWN_CONVERTERS: Mapping[Param, Converter] = {
    "include": _consumed,
    "logprobs": _consumed,
    "verbosity": _consumed,
}
