"""Settings of requests, translated by tables, and the scale of reasoning efforts.

A protocol declares which wire names mean which neutral names; reading, writing and recording losses are the same for
all. A value that needs more than another name has a converter in the writer's table. Efforts and token budgets of
reasoning have one scale, read in both directions.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from dragoman._ir.losses import Ledger
from dragoman._ir.request import Param, ReasoningConfig, Request
from dragoman._wire.exceptions import RequestRefused, dotted_path
from dragoman._wire.json import JSON, JSONObject

# Returns the value to send, or None if it has to be dropped. Records its own losses.
Converter = Callable[[JSON, str, Ledger], JSON]


def hash_longer_than(limit: int) -> Converter:
    """Return a converter for ids of users, whose length a vendor limits. The hash stands for the same user.

    limit: in characters.
    """

    def convert(value: JSON, path: str, ledger: Ledger) -> JSON:
        if type(value) is not str or len(value) <= limit:
            return value
        import hashlib  # loads OpenSSL: slow to import, and names that need it are rare

        ledger.altered(path, f"longer than {limit} characters: its hash was sent")
        return hashlib.sha256(value.encode("utf-8", "surrogatepass")).hexdigest()

    return convert


def drop_unless(defaults: tuple[JSON, ...], detail: str) -> Converter:
    """Return a converter that drops a setting. defaults: its values that request what happens anyway."""

    def convert(value: JSON, path: str, ledger: Ledger) -> JSON:
        if value not in defaults:
            ledger.dropped(path, detail)

    return convert


# Settings of OpenAI's servers whose loss would change the meaning of the request -> what the client can do instead.
REFUSED_PARAMS: dict[Param, str] = {
    "background": "the upstream has no background mode; send the request without `background`",
    "conversation": "the upstream does not store conversations; send all messages with each request",
    "modalities": "the upstream responds only with text; request text",
    "previous_response_id": "the upstream does not store responses; send all messages with each request",
    "prompt": "the upstream does not store prompts; send the messages themselves",
}


def refuse_params(defaults: Mapping[Param, tuple[JSON, ...]]) -> dict[Param, Converter]:
    """Return the converters of a protocol without REFUSED_PARAMS. defaults: values that request what happens anyway."""
    return {
        param: _refuse_unless(defaults.get(param, ()), advice) for param, advice in REFUSED_PARAMS.items()
    }


def _refuse_unless(defaults: tuple[JSON, ...], advice: str) -> Converter:
    """Return a converter that refuses a setting (400)."""

    def convert(value: JSON, path: str, ledger: Ledger) -> JSON:
        if value not in defaults:
            raise RequestRefused(
                f"{dotted_path(path)} cannot be sent to this upstream: {advice}",
                path=path,
                code="unsupported_parameter",
            )

    return convert


def write_params(
    request: Request,
    names: Mapping[Param, str],
    converters: Mapping[Param, Converter],
    out: JSONObject,
    ledger: Ledger,
) -> None:
    """Write the request's settings to `out` under the upstream's names; a setting without a row is recorded as a loss.

    A setting with a converter and no name is only passed to its converter, which may record a loss.
    """
    for param, value in request.params.items():
        name, convert = names.get(param), converters.get(param)
        if convert is not None:
            value = convert(value, request.path_of(param), ledger)
        elif name is None:
            ledger.dropped(request.path_of(param), "the upstream's protocol has no such setting")
        if name is not None and value is not None:
            out[name] = value


# From least to most.
EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")

# `budget_tokens` must be at least 1024 and less than `max_tokens` (anthropic-python 2.12.0,
# thinking_config_enabled_param.py).
MIN_BUDGET = 1024

# Effort -> budget (tokens) of models that take budgets only. None is all that the output limit leaves.
BUDGETS: dict[str, int | None] = {
    "minimal": MIN_BUDGET,
    "low": 2048,
    "medium": 8192,
    "high": 16384,
    "xhigh": 32768,
    "max": None,
}

# The largest budget that still counts as this effort; "max" beyond the last.
_EFFORT_UP_TO = ((1024, "minimal"), (4096, "low"), (12288, "medium"), (24576, "high"), (49152, "xhigh"))

# Reasoning without a requested amount.
DEFAULT_EFFORT = "high"


def effort_of_budget(budget: int) -> str:
    """Return the effort for a thinking budget of so many tokens."""
    for limit, effort in _EFFORT_UP_TO:
        if budget <= limit:
            return effort
    return "max"


def requested_effort(config: ReasoningConfig) -> str | None:
    """Return the effort that a configuration amounts to, None for none. A named one wins over a budget."""
    if config.mode == "disabled":
        return "none"
    if config.effort is not None or config.mode is None:
        return config.effort
    return DEFAULT_EFFORT if config.budget is None else effort_of_budget(config.budget)


def fit_effort(effort: str, taken: Collection[str] | None) -> str:
    """Return the effort itself if the upstream accepts it, else the nearest one, the lesser of two as near.

    taken: the efforts that the upstream accepts, None for all. An unknown name is passed on, because vendors add some.
    """
    if taken is None or not taken or effort in taken or effort not in EFFORTS:
        return effort
    at = EFFORTS.index(effort)
    return min(taken, key=lambda other: (abs(EFFORTS.index(other) - at), EFFORTS.index(other)))
