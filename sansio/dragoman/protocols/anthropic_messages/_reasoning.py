"""Reasoning settings for an upstream.

Strategy: models take thinking in one of two ways, adaptively with an effort or with a budget of tokens; the
target says which. Effort is the word that all protocols share, so it wins over a budget. A request that
came in this protocol says itself what it wants and is printed as it came.
"""

from __future__ import annotations

from dragoman._json import JSONObject
from dragoman._loss import Ledger
from dragoman._request import ReasoningConfig, Request
from dragoman._spec import Target

from ._conversation import merge
from ._tables import BUDGET_EFFORTS, BUDGETS, EFFORTS, MIN_BUDGET


def write_reasoning(request: Request, target: Target, out: JSONObject, ledger: Ledger, own: bool) -> None:
    """Put `thinking` and `output_config.effort` into `out`, and raise `max_tokens` where needed."""
    config = request.reasoning
    if config is None:
        return
    if own:
        _as_it_came(config, out)
    elif config.mode == "disabled" or config.effort == "none":
        # With thinking off there is no effort: "thinking cannot be disabled when an effort is set".
        if target.thinking == "adaptive":
            out["thinking"] = {"type": "disabled"}
        if config.effort not in (None, "none") or config.budget is not None:
            ledger.altered(path_of(config), "thinking is off: how much of it was wanted was left out")
    else:
        if config.effort is not None and config.budget is not None:
            ledger.altered(path_of(config), "the effort was heeded and not the budget")
        if target.thinking == "adaptive":
            _adaptive(config, out, ledger)
        else:
            _budget(request, config, out, ledger)


def _as_it_came(config: ReasoningConfig, out: JSONObject) -> None:
    if config.effort is not None:
        out["output_config"] = {"effort": config.effort}
    if config.mode is None:
        return
    thinking: JSONObject = {"type": config.mode}
    if config.budget is not None:
        thinking["budget_tokens"] = config.budget
    if config.show is not None:
        thinking["display"] = config.show
    merge(thinking, config.extra)
    out["thinking"] = thinking


def _adaptive(config: ReasoningConfig, out: JSONObject, ledger: Ledger) -> None:
    effort = config.effort
    if effort is None and config.budget is not None:
        effort = next((word for limit, word in BUDGET_EFFORTS if config.budget <= limit), "max")
        ledger.altered(path_of(config), "the budget was sent as an effort: the model takes no budget")
    elif effort is not None and EFFORTS.get(effort) != effort:
        path = config.effort_path or path_of(config)
        ledger.altered(path, f"the effort was sent as {EFFORTS.get(effort, 'high')}")
        effort = EFFORTS.get(effort, "high")
    if effort is not None:
        out["output_config"] = {"effort": effort}
    out["thinking"] = {"type": "adaptive"}
    if config.show is not None:
        out["thinking"]["display"] = config.show


def _budget(request: Request, config: ReasoningConfig, out: JSONObject, ledger: Ledger) -> None:
    limit: int = out["max_tokens"]
    if config.effort is not None:
        budget = BUDGETS.get(config.effort, BUDGETS["high"])
    elif config.budget is not None:
        budget = config.budget
    elif config.mode is not None:
        budget = BUDGETS["high"]
    else:
        ledger.dropped(
            path_of(config), "the model thinks only with a budget, and the request names no effort"
        )
        return
    if limit <= MIN_BUDGET:
        # The smallest budget does not fit under the client's limit: the limit keeps its meaning for the text.
        path = request.param_paths.get("max_output_tokens", "/max_tokens")
        ledger.altered(path, f"raised by {MIN_BUDGET}, the smallest budget for thinking")
        limit = out["max_tokens"] = limit + MIN_BUDGET
    budget = limit - 1 if budget is None else max(min(budget, limit - 1), MIN_BUDGET)
    out["thinking"] = {"type": "enabled", "budget_tokens": budget}
    if config.show is not None:
        out["thinking"]["display"] = config.show


def path_of(config: ReasoningConfig) -> str:
    """Where the setting stood in the client's body."""
    return config.path or "/reasoning"
