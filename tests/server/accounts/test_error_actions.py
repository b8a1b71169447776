"""The effect of a failed attempt on its account: the rules of other pools, and known cases of vendors."""

from pathlib import Path

import rows

from dragoman._wire.errors import ErrorKind, WireError, kind_from_message, kind_of_status
from dragoman_server.policy.error_actions import (
    ERROR_RULES,
    ErrorAction,
    ErrorRule,
    classify,
    refuses_signed_reasoning,
)


def of(
    status: int, message: str = "no", *, kind: ErrorKind | None = None, code: str | None = None
) -> WireError:
    return WireError(
        kind or kind_from_message(kind_of_status(status), message), message, status=status, code=code
    )


def action(lines: list[str]) -> list[str]:
    status, kind, code, message = lines[0].split(" ", 3)
    found = of(int(status), message) if status != "-" else WireError(ErrorKind.SERVER, message)
    error = WireError(
        found.kind if kind == "-" else ErrorKind(kind),
        message,
        status=found.status,
        code=None if code == "-" else code,
    )
    signed = ["it refuses signed reasoning"] if refuses_signed_reasoning(error) else []
    return [classify(error).value, *signed]


def test_f10_only_errors_that_depend_on_the_account_are_tried_on_another() -> None:
    rows.check(Path(__file__).with_name("errors.txt"), action)


RULES: list[tuple[ErrorRule, bool]] = [
    (ErrorRule(ErrorAction.TRY_NEXT), True),
    (ErrorRule(ErrorAction.TRY_NEXT, kinds=frozenset({ErrorKind.SERVER})), True),
    (ErrorRule(ErrorAction.TRY_NEXT, kinds=frozenset({ErrorKind.BILLING})), False),
    (ErrorRule(ErrorAction.TRY_NEXT, statuses=frozenset({500, 502})), True),
    (ErrorRule(ErrorAction.TRY_NEXT, statuses=frozenset({502})), False),
    (ErrorRule(ErrorAction.TRY_NEXT, codes=frozenset({"engine"})), True),
    (ErrorRule(ErrorAction.TRY_NEXT, codes=frozenset({"api_error"})), True),
    (ErrorRule(ErrorAction.TRY_NEXT, codes=frozenset({"other"})), False),
    (ErrorRule(ErrorAction.TRY_NEXT, words=("other", "shard 7")), True),
    (ErrorRule(ErrorAction.TRY_NEXT, words=("shard 8",)), False),
    (ErrorRule(ErrorAction.TRY_NEXT, statuses=frozenset({500}), words=("shard 8",)), False),
]


def test_a_rule_matches_if_all_its_conditions_do() -> None:
    for rule, fits in RULES:
        error = WireError(ErrorKind.SERVER, "Shard 7 is gone", status=500, code="engine", type="api_error")
        assert rule.matches(error) is fits, rule


def test_an_error_inside_a_response_has_the_status_of_its_kind() -> None:
    rule = ErrorRule(ErrorAction.TRY_NEXT, statuses=frozenset({403}))
    assert rule.matches(WireError(ErrorKind.PERMISSION, "no"))
    assert not rule.matches(WireError(ErrorKind.SERVER, "no"))
    assert not rule.matches(WireError(ErrorKind.PERMISSION, "no", status=404))


def test_an_upstreams_own_rules_come_first() -> None:
    rules = (ErrorRule(ErrorAction.RETURN_TO_CLIENT, statuses=frozenset({429}), words=("per request",)),)
    assert classify(of(429, "Too many tokens per request"), rules) is ErrorAction.RETURN_TO_CLIENT
    assert classify(of(429), rules) is ErrorAction.COOL_DOWN


def test_texts_are_compared_in_lower_case() -> None:
    assert all(word == word.lower() for rule in ERROR_RULES for word in rule.words)
