"""Plain settings by table."""

from hashlib import sha256

import pytest

from dragoman._ir.losses import Ledger, LossCode
from dragoman._ir.parameters import (
    BUDGETS,
    DEFAULT_EFFORT,
    EFFORTS,
    MIN_BUDGET,
    Converter,
    effort_of_budget,
    fit_effort,
    hash_longer_than,
    write_params,
)
from dragoman._ir.request import Param, Request
from dragoman._wire.json import JSON


def written(
    params: dict[Param, JSON], names: dict[Param, str], converters: dict[Param, Converter]
) -> tuple[dict[str, JSON], list[tuple[LossCode, str]]]:
    request = Request(protocol="toy", model="m", messages=(), params=params, param_paths={"seed": "/dice"})
    out: dict[str, JSON] = {}
    ledger = Ledger()
    write_params(request, names, converters, out, ledger)
    return out, [(loss.code, loss.path) for loss in ledger]


def test_settings_are_written_under_the_upstreams_name() -> None:
    found = written({"seed": 7, "temperature": 0}, {"seed": "s", "temperature": "t"}, {})
    assert found == ({"s": 7, "t": 0}, [])


def test_fields_without_a_row_are_losses_at_their_path() -> None:
    found = written({"seed": 7, "user": "u"}, {}, {})
    assert found == ({}, [(LossCode.DROPPED, "/dice"), (LossCode.DROPPED, "/user")])


def test_converters() -> None:
    def double(value: JSON, path: str, ledger: Ledger) -> JSON:
        return value * 2

    def refuse(value: JSON, path: str, ledger: Ledger) -> JSON:
        ledger.altered(path, "no")
        return None

    names: dict[Param, str] = {"seed": "s"}
    assert written({"seed": 7}, names, {"seed": double}) == ({"s": 14}, [])
    assert written({"seed": 7}, names, {"seed": refuse}) == ({}, [(LossCode.ALTERED, "/dice")])


def test_a_converter_without_a_name_consumes() -> None:
    seen: list[JSON] = []

    def consume(value: JSON, path: str, ledger: Ledger) -> JSON:
        seen.append((value, path))
        return value

    assert written({"seed": 7}, {}, {"seed": consume}) == ({}, [])
    assert seen == [(7, "/dice")]


@pytest.mark.parametrize(
    ("value", "sent"),
    [
        ("abc", "abc"),
        (7, 7),
        ("abcd", sha256(b"abcd").hexdigest()),
        ("ab\ud800c", sha256(b"ab\xed\xa0\x80c").hexdigest()),
    ],
)
def test_a_long_name_of_a_user_is_hashed(value: JSON, sent: JSON) -> None:
    ledger = Ledger()
    assert hash_longer_than(3)(value, "/user", ledger) == sent
    assert [(loss.code, loss.path) for loss in ledger] == [(LossCode.ALTERED, "/user")] * (sent != value)


# Efforts


def test_budgets(subtests: pytest.Subtests) -> None:
    for budget, effort in [
        (1, "minimal"),
        (1024, "minimal"),
        (1025, "low"),
        (4096, "low"),
        (8192, "medium"),
        (12288, "medium"),
        (16384, "high"),
        (24576, "high"),
        (32768, "xhigh"),
        (49152, "xhigh"),
        (49153, "max"),
    ]:
        with subtests.test(budget=budget, effort=effort):
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
def test_the_nearest_supported_value(effort: str, taken: tuple[str, ...] | None, fitted: str) -> None:
    assert fit_effort(effort, taken) == fitted
