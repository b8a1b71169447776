"""How much a model should think, in the words and figures of all protocols.

Strategy: one scale of efforts, one table of token budgets, read in both directions. Which of the efforts a
target takes is an argument; what it does not take becomes the nearest that it does.
"""

from __future__ import annotations

from collections.abc import Collection

# From least to most.
EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")

# "budget_tokens must be >= 1024 and less than max_tokens."
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

# Thinking without a word on how much.
UNSAID = "high"


def effort_of_budget(budget: int) -> str:
    """The effort that a thinking budget of so many tokens stands for."""
    for limit, effort in _EFFORT_UP_TO:
        if budget <= limit:
            return effort
    return "max"


def fit_effort(effort: str, taken: Collection[str] | None) -> str:
    """The effort itself if the target takes it, else the nearest that it takes, the lesser of two as near.

    taken: the efforts that the target takes, None for all. An unknown word is passed on: vendors add some.
    """
    if taken is None or not taken or effort in taken or effort not in EFFORTS:
        return effort
    at = EFFORTS.index(effort)
    return min(taken, key=lambda other: (abs(EFFORTS.index(other) - at), EFFORTS.index(other)))
