"""What a failed attempt means for its account: the three tiers of the first pools, and what the field has learned."""

import pytest

from dragoman._ir.errors import Fault, FaultKind, kind_by_words, kind_of_status
from dragoman_server.accounts.error_actions import (
    RULES,
    Rule,
    Verdict,
    judge,
    refuses_signed_reasoning,
)


def of(status: int, message: str = "no", *, kind: FaultKind | None = None, code: str | None = None) -> Fault:
    return Fault(kind or kind_by_words(kind_of_status(status), message), message, status=status, code=code)


@pytest.mark.parametrize(
    ("fault", "verdict"),
    [
        (of(403, "The estimated cost of 9 exceeds"), Verdict.ANSWER),
        (of(403, "Insufficient tokens"), Verdict.NEXT),
        (of(403, "Please upgrade your plan"), Verdict.NEXT),
        (of(403, "Daily LIMIT REACHED"), Verdict.NEXT),
        (of(403, "estimated cost: insufficient tokens"), Verdict.ANSWER),
        (of(403, "your region"), Verdict.ANSWER),
        (of(400, "limit reached"), Verdict.ANSWER),
        (of(429), Verdict.COOL),
        (of(429, kind=FaultKind.BILLING, code="insufficient_quota"), Verdict.DISABLE),
        (of(402), Verdict.DISABLE),
        (of(401), Verdict.DISABLE),
        (of(400, "Your credit balance is too low to access the API"), Verdict.DISABLE),
        (of(400, "API key not valid. Please pass a valid API key."), Verdict.DISABLE),
        (of(408), Verdict.TROUBLE),
        (of(500), Verdict.TROUBLE),
        (of(502), Verdict.TROUBLE),
        (of(503), Verdict.TROUBLE),
        (of(504), Verdict.TROUBLE),
        (of(529), Verdict.TROUBLE),
        (of(599), Verdict.TROUBLE),
        (Fault(FaultKind.UNREACHABLE, "refused"), Verdict.TROUBLE),
        (Fault(FaultKind.TRUNCATED, "cut"), Verdict.TROUBLE),
        (Fault(FaultKind.UNREADABLE, "markup"), Verdict.TROUBLE),
        (Fault(FaultKind.OVERLOADED, "inside a stream"), Verdict.TROUBLE),
        (Fault(FaultKind.RATE_LIMIT, "inside a stream"), Verdict.COOL),
        (Fault(FaultKind.PERMISSION, "Insufficient tokens, inside a stream"), Verdict.NEXT),
        (Fault(FaultKind.PERMISSION, "Estimated cost is too high, inside a stream"), Verdict.ANSWER),
        (of(400, "Incorrect API key provided. You can obtain one at x.ai."), Verdict.DISABLE),
        *((of(status), Verdict.ANSWER) for status in (400, 403, 404, 405, 409, 413, 415, 418, 422, 499)),
        (of(400, kind=FaultKind.CONTEXT_LENGTH), Verdict.ANSWER),
    ],
)
def test_f10_only_what_another_account_can_cure_is_tried_again(fault: Fault, verdict: Verdict) -> None:
    assert judge(fault) is verdict


@pytest.mark.parametrize(
    ("rule", "fits"),
    [
        (Rule(Verdict.NEXT), True),
        (Rule(Verdict.NEXT, kinds=frozenset({FaultKind.SERVER})), True),
        (Rule(Verdict.NEXT, kinds=frozenset({FaultKind.BILLING})), False),
        (Rule(Verdict.NEXT, statuses=frozenset({500, 502})), True),
        (Rule(Verdict.NEXT, statuses=frozenset({502})), False),
        (Rule(Verdict.NEXT, codes=frozenset({"engine"})), True),
        (Rule(Verdict.NEXT, codes=frozenset({"api_error"})), True),
        (Rule(Verdict.NEXT, codes=frozenset({"other"})), False),
        (Rule(Verdict.NEXT, words=("other", "shard 7")), True),
        (Rule(Verdict.NEXT, words=("shard 8",)), False),
        (Rule(Verdict.NEXT, statuses=frozenset({500}), words=("shard 8",)), False),
    ],
)
def test_a_rule_fits_when_all_its_conditions_do(rule: Rule, fits: bool) -> None:
    fault = Fault(FaultKind.SERVER, "Shard 7 is gone", status=500, code="engine", type="api_error")
    assert rule.fits(fault) is fits


def test_an_error_inside_of_an_answer_has_the_status_of_its_kind() -> None:
    rule = Rule(Verdict.NEXT, statuses=frozenset({403}))
    assert rule.fits(Fault(FaultKind.PERMISSION, "no"))
    assert not rule.fits(Fault(FaultKind.SERVER, "no"))
    assert not rule.fits(Fault(FaultKind.PERMISSION, "no", status=404))


def test_an_upstreams_own_rules_come_first() -> None:
    own = (Rule(Verdict.ANSWER, statuses=frozenset({429}), words=("per request",)),)
    assert judge(of(429, "Too many tokens per request"), own) is Verdict.ANSWER
    assert judge(of(429), own) is Verdict.COOL


def test_words_are_compared_in_lower_case() -> None:
    assert all(word == word.lower() for rule in RULES for word in rule.words)


@pytest.mark.parametrize(
    ("fault", "refuses"),
    [
        (
            of(400, "The encrypted content gAAA could not be verified.", code="invalid_encrypted_content"),
            True,
        ),
        (of(400, "messages.1.content.0: Invalid `signature` in `thinking` block"), True),
        (of(400, "messages.1.content.0: Invalid signature in thinking block"), True),
        (of(500, "Invalid signature in thinking block"), False),
        (of(400, "messages.1.content.0: Input should be an object"), False),
    ],
)
def test_c11_reasoning_of_another_organization_is_refused_in_these_words(fault: Fault, refuses: bool) -> None:
    assert refuses_signed_reasoning(fault) is refuses
