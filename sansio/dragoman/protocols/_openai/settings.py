"""Settings that OpenAI's protocols share: service tiers, ids of users, lifetimes of cached prompts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from dragoman._ir.losses import Ledger
from dragoman._ir.parameters import Converter, hash_longer_than
from dragoman._ir.request import Param, Request
from dragoman._wire.json import JSON

# Tiers that requests and responses of both protocols have (openai-python 3.54.0).
SERVICE_TIERS = frozenset({"auto", "default", "flex", "scale", "priority", "fast"})
# Other vendors' names of the same tiers: the name of Messages in responses, and Groq's.
_SAME_TIERS = {"standard": "default", "on_demand": "default"}
# Tiers of other vendors and protocols -> the nearest one.
_NEAREST_TIERS = {"standard_only": "default", "batch": "flex", "ultrafast": "fast"}

# Items of `include`: log probabilities, and reasoning that a client can send back.
INCLUDE_LOGPROBS = "message.output_text.logprobs"
INCLUDE_REASONING = "reasoning.encrypted_content"

# Lifetimes of `prompt_cache_breakpoint`, and how many a request may have: "Each request can write up to four
# breakpoints" (openai-python 3.54.0, `PromptCacheOptions`).
CACHE_TTLS: dict[Literal["short", "long"], str] = {"short": "30m", "long": "12h"}
MAX_CACHE_MARKS = 4

# OpenAI refuses the format `json_object` if no message has the word: "'messages' must contain the word 'json' in some
# form, to use 'response_format' of type 'json_object'." (xray.koplugin#33, read 2026-11-22)
JSON_INSTRUCTION = "Answer with one JSON object."
# The vendor's store of files. Both protocols have their ids.
FILE_STORE = "openai"
# A schema needs a name (openai-python 3.54.0).
DEFAULT_SCHEMA_NAME = "response"

# In characters. "with a maximum length of 128 characters" (openai-python 3.54.0, `safety_identifier`). OpenAI documents
# no limit of `user`; bifrost cuts it at 64 (read 2026-11-22).
ID_CONVERTERS: Mapping[Param, Converter] = {
    "safety_identifier": hash_longer_than(128),
    "user": hash_longer_than(64),
}


def fit_tier(
    tier: JSON, path: str, ledger: Ledger, protocol: str, tiers: frozenset[str] = SERVICE_TIERS
) -> str | None:
    """Return the official name of a tier, None if it has none, because any other breaks strict clients."""
    if tier is None:
        return None
    name = tier if type(tier) is str else ""
    if name in tiers:
        return name
    nearest = _NEAREST_TIERS.get(name)
    if nearest is not None:
        ledger.altered(path, f"the nearest service tier is {nearest}")
    elif name not in _SAME_TIERS:
        ledger.dropped(path, f"{protocol} has no such service tier")
    return nearest or _SAME_TIERS.get(name)


def with_tiers(
    converters: Mapping[Param, Converter],
    request: Request,
    refuses_tiers: bool,
    protocol: str,
    tiers: frozenset[str] = SERVICE_TIERS,
) -> Mapping[Param, Converter]:
    """Return converters with those of the service tier, if the request has one.

    `speed` of Messages is a service tier here. If both are set, the speed counts.
    """
    if "service_tier" not in request.params and "speed" not in request.params:
        return converters
    is_fast = request.params.get("speed") == "fast" and not refuses_tiers

    def convert_tier(value: JSON, path: str, ledger: Ledger) -> JSON:
        if is_fast and value != "fast":
            ledger.dropped(path, "the speed was sent in its place")
            return None
        return fit_tier(value, path, ledger, protocol, tiers)

    def convert_speed(value: JSON, path: str, ledger: Ledger) -> JSON:
        if value not in ("fast", "standard"):
            ledger.dropped(path, f"{protocol} has no such speed")
        elif value == "fast" and refuses_tiers:
            ledger.dropped(path, "the upstream does not accept a service tier")
        return "fast" if is_fast and value == "fast" else None

    return {**converters, "service_tier": convert_tier, "speed": convert_speed}
