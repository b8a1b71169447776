"""Plain settings for an upstream.

Strategy: by table; a converter where the value needs more than another name. What has no place goes into the
ledger, unless it asks for what happens anyway; what would make the answer one to another question is refused.
"""

from __future__ import annotations

import re

from dragoman._ir.losses import Ledger
from dragoman._ir.parameters import Converter
from dragoman._ir.request import Param, Request
from dragoman._wire.exceptions import RemoteProtocolError, dotted_path
from dragoman._wire.json import JSON, JSONObject
from dragoman.protocols.anthropic_messages.tables import (
    CACHE_OPTION_TTL_NAMES,
    COMPACT_EDIT,
    DEFAULT_COMPACT_THRESHOLD,
    IMPLIED_INCLUDES,
    NO_OP_VALUES,
    REJECTED_PARAMS,
    REQUEST_TIER_NAMES,
)

# What looks like an e-mail address names a person.
_EMAIL = re.compile(r"[^@\s]+@[^@\s]+\.[^@\s]+")


def _unless_default(defaults: tuple[JSON, ...]) -> Converter:
    def convert(value: JSON, path: str, ledger: Ledger) -> JSON:
        if value not in defaults:
            ledger.dropped(path, "Messages has no such setting")

    return convert


def _refuse(defaults: tuple[JSON, ...], advice: str) -> Converter:
    def convert(value: JSON, path: str, ledger: Ledger) -> JSON:
        if value not in defaults:
            raise RemoteProtocolError(
                f"{dotted_path(path)} cannot be carried to this upstream: {advice}",
                status=400,
                path=path,
                code="unsupported_parameter",
            )

    return convert


def _elsewhere(value: JSON, path: str, ledger: Ledger) -> JSON:
    """Written by a function that needs more than the value."""
    return None


def _include(value: JSON, path: str, ledger: Ledger) -> JSON:
    if type(value) is not list or not set(map(str, value)) <= IMPLIED_INCLUDES:
        ledger.dropped(path, "Messages gives what it gives")


def _temperature(value: JSON, path: str, ledger: Ledger) -> JSON:
    if type(value) in (int, float) and value > 1:
        ledger.altered(path, "lowered to 1, the highest temperature of Messages")
        return 1
    return value


def _stop(value: JSON, path: str, ledger: Ledger) -> JSON:
    given = value if type(value) is list else [value]
    kept = [text for text in given if not str(text).isspace()]
    if len(kept) < len(given):
        ledger.dropped(path, "each stop sequence must contain non-whitespace")
    return kept or None


def _context_management(value: JSON, path: str, ledger: Ledger) -> JSON:
    """`[{"type": "compaction", "compact_threshold": tokens}]`, the form that all protocols share here."""
    edits: list[JSON] = []
    for index, item in enumerate(value if type(value) is list else [value]):
        if type(item) is not dict or item.get("type") != "compaction":
            ledger.dropped(f"{path}/{index}", "context management that Messages does not have")
            continue
        at = item.get("compact_threshold")
        trigger = {"type": "input_tokens", "value": DEFAULT_COMPACT_THRESHOLD if at is None else at}
        edits.append({"type": COMPACT_EDIT, "trigger": trigger})
        for key in item.keys() - {"type", "compact_threshold"}:
            ledger.dropped(f"{path}/{index}/{key}", "Messages has no such setting")
    return {"edits": edits} if edits else None


def _prompt_cache_options(value: JSON, path: str, ledger: Ledger) -> JSON:
    """`mode: implicit` is what a mark at the top level asks for; `explicit` is how it is without one."""
    if type(value) is not dict or value.get("mode", "implicit") not in ("implicit", "explicit"):
        ledger.dropped(path, "Messages has no such options for the prompt cache")
        return None
    said = {key for key, item in value.items() if item is not None} - {"mode"}
    mark: JSONObject | None = None
    if value.get("mode") == "implicit":
        mark = {"type": "ephemeral"}
        ttl = value.get("ttl")
        if type(ttl) is str and ttl in CACHE_OPTION_TTL_NAMES:
            mark["ttl"] = CACHE_OPTION_TTL_NAMES[ttl]
            said.discard("ttl")
    for key in sorted(said):
        ledger.dropped(f"{path}/{key}", "Messages has no such option for the prompt cache")
    return mark


CONVERTERS: dict[Param, Converter] = {
    **{param: _unless_default(defaults) for param, defaults in NO_OP_VALUES.items()},
    **{param: _refuse(NO_OP_VALUES.get(param, ()), advice) for param, advice in REJECTED_PARAMS.items()},
    "context_management": _context_management,
    "include": _include,
    "max_output_tokens": _elsewhere,
    "max_tool_calls": _elsewhere,
    "prompt_cache_options": _prompt_cache_options,
    "safety_identifier": _elsewhere,
    "service_tier": _elsewhere,
    "stop": _stop,
    "temperature": _temperature,
    "user": _elsewhere,
}


def resolve_max_tokens(request: Request, default: int) -> int:
    """The limit, which this protocol demands. Raises RemoteProtocolError (400) when it is no number."""
    limit = request.params.get("max_output_tokens")
    if limit is None:
        return default
    if type(limit) is not int:
        path = request.param_paths.get("max_output_tokens", "/max_tokens")
        raise RemoteProtocolError(
            f"{dotted_path(path)} must be an integer", status=400, path=path, code="invalid_type"
        )
    return limit


def write_user_and_tier(request: Request, out: JSONObject, ledger: Ledger) -> None:
    """Who asks, and at which tier."""
    params = request.params
    chosen: Param | None = None
    for param in _IDENTIFIERS:
        if params.get(param) is None:
            continue
        if chosen is None:
            chosen = param
        elif params[param] != params[chosen]:
            ledger.dropped(_path(request, param), "Messages takes one identifier: safety_identifier was sent")
    if chosen is not None:
        out["metadata"] = {"user_id": _identifier(params[chosen], _path(request, chosen), ledger)}
    tier = params.get("service_tier")
    if tier == "fast":
        out["speed"] = "fast"
    elif type(tier) is str and tier in REQUEST_TIER_NAMES:
        out["service_tier"] = REQUEST_TIER_NAMES[tier]
    elif tier is not None:
        ledger.dropped(_path(request, "service_tier"), "Messages has no such service tier")


# The first one that is there counts.
_IDENTIFIERS: tuple[Param, ...] = ("safety_identifier", "user")


def _identifier(value: JSON, path: str, ledger: Ledger) -> JSON:
    """ "Do not include any identifying information such as name, email address, or phone number"."""
    if type(value) is not str or _EMAIL.fullmatch(value) is None:
        return value
    import hashlib  # loads OpenSSL: slow to import, and few identifiers need it

    ledger.altered(path, "sent as its SHA-256 hash: an e-mail address may not be an identifier")
    return hashlib.sha256(value.encode("utf-8", "surrogatepass")).hexdigest()


def _path(request: Request, param: Param) -> str:
    return request.param_paths.get(param, f"/{param}")
