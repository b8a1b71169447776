"""The effect of a failed attempt on its account: the rules of other pools, and known cases of vendors."""

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


ACTIONS: list[tuple[WireError, ErrorAction]] = [
    (of(403, "The estimated cost of 9 exceeds"), ErrorAction.RETURN_TO_CLIENT),
    (of(403, "Insufficient tokens"), ErrorAction.TRY_NEXT),
    (of(403, "Please upgrade your plan"), ErrorAction.TRY_NEXT),
    (of(403, "Daily LIMIT REACHED"), ErrorAction.TRY_NEXT),
    (of(403, "estimated cost: insufficient tokens"), ErrorAction.RETURN_TO_CLIENT),
    (of(403, "your region"), ErrorAction.RETURN_TO_CLIENT),
    (of(400, "limit reached"), ErrorAction.RETURN_TO_CLIENT),
    (of(429), ErrorAction.COOL_DOWN),
    (of(429, kind=ErrorKind.BILLING, code="insufficient_quota"), ErrorAction.DISABLE),
    (of(402), ErrorAction.DISABLE),
    (of(401), ErrorAction.DISABLE),
    (of(400, "Your credit balance is too low to access the API"), ErrorAction.DISABLE),
    (of(400, "API key not valid. Please pass a valid API key."), ErrorAction.DISABLE),
    (of(408), ErrorAction.RETRY_LATER),
    (of(500), ErrorAction.RETRY_LATER),
    (of(502), ErrorAction.RETRY_LATER),
    (of(503), ErrorAction.RETRY_LATER),
    (of(504), ErrorAction.RETRY_LATER),
    (of(529), ErrorAction.RETRY_LATER),
    (of(599), ErrorAction.RETRY_LATER),
    (WireError(ErrorKind.UNREACHABLE, "refused"), ErrorAction.RETRY_LATER),
    (WireError(ErrorKind.TRUNCATED, "cut"), ErrorAction.RETRY_LATER),
    (WireError(ErrorKind.UNREADABLE, "markup"), ErrorAction.RETRY_LATER),
    (WireError(ErrorKind.OVERLOADED, "inside a stream"), ErrorAction.RETRY_LATER),
    (WireError(ErrorKind.RATE_LIMIT, "inside a stream"), ErrorAction.COOL_DOWN),
    (WireError(ErrorKind.PERMISSION, "Insufficient tokens, inside a stream"), ErrorAction.TRY_NEXT),
    (WireError(ErrorKind.PERMISSION, "Estimated cost is too high, inside a stream"), ErrorAction.RETURN_TO_CLIENT),
    (of(400, "Incorrect API key provided. You can obtain one at x.ai."), ErrorAction.DISABLE),
    *(
        (of(status), ErrorAction.RETURN_TO_CLIENT)
        for status in (400, 403, 404, 405, 409, 413, 415, 418, 422, 499)
    ),
    (of(400, kind=ErrorKind.CONTEXT_LENGTH), ErrorAction.RETURN_TO_CLIENT),
]  # fmt: skip


def test_f10_only_errors_that_depend_on_the_account_are_tried_on_another() -> None:
    for error, action in ACTIONS:
        assert classify(error) is action, error


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


SIGNATURE_ERRORS: list[tuple[WireError, bool]] = [
    (of(400, "The encrypted content gAAA could not be verified.", code="invalid_encrypted_content"), True),
    (of(400, "messages.1.content.0: Invalid `signature` in `thinking` block"), True),
    (of(400, "Corrupted thought signature."), True),
    (of(400, "messages.1.content.0: Invalid signature in thinking block"), True),
    (of(500, "Invalid signature in thinking block"), False),
    (of(400, "messages.1.content.0: Input should be an object"), False),
]  # fmt: skip


def test_c11_c12_errors_about_reasoning_of_another_organization() -> None:
    for error, refuses in SIGNATURE_ERRORS:
        assert refuses_signed_reasoning(error) is refuses, error
