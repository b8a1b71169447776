"""One scale of efforts, to budgets and back."""

import pytest

from dragoman._ir.parameters import BUDGETS, DEFAULT_EFFORT, EFFORTS, MIN_BUDGET, effort_of_budget, fit_effort


@pytest.mark.parametrize(
    ("budget", "effort"),
    [(1, "minimal"), (1024, "minimal"), (1025, "low"), (4096, "low"), (8192, "medium"), (12288, "medium"),
     (16384, "high"), (24576, "high"), (32768, "xhigh"), (49152, "xhigh"), (49153, "max")],
)  # fmt: skip
def test_budgets(budget: int, effort: str) -> None:
    assert effort_of_budget(budget) == effort


def test_each_budget_comes_back_as_its_effort() -> None:
    for effort, budget in BUDGETS.items():
        assert budget is None or effort_of_budget(budget) == effort
    assert set(BUDGETS) == set(EFFORTS) - {"none"}
    assert min(filter(None, BUDGETS.values())) == MIN_BUDGET
    assert DEFAULT_EFFORT in EFFORTS


@pytest.mark.parametrize(
    ("effort", "taken", "fitted"),
    [
        ("max", None, "max"),
        ("max", (), "max"),
        ("low", ("low", "high"), "low"),
        ("max", ("low", "medium", "high"), "high"),
        ("none", ("low", "high"), "low"),
        ("minimal", ("none", "low"), "none"),
        ("medium", ("high", "low"), "low"),
        ("ludicrous", ("low", "high"), "ludicrous"),
    ],
)
def test_the_nearest_that_is_taken(effort: str, taken: tuple[str, ...] | None, fitted: str) -> None:
    assert fit_effort(effort, taken) == fitted
