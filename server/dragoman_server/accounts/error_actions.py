"""What a failed attempt means for the account that it was made with.

Strategy: one table, looked through from above; the first rule that fits a fault decides. Only what another account
can cure is tried with another one: "a 400 caused by the request is retried on every account" is the mistake that
this table is made against. Rules are data, so an upstream can have its own before these.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum

import msgspec

from dragoman._ir.errors import STATUS_BY_KIND, Fault, FaultKind


class Verdict(Enum):
    """Who or what has to change."""

    ANSWER = "answer"  # the request is at fault: the client is told
    NEXT = "next"  # this account cannot serve this request, another may: nobody is to blame
    COOL = "cool"  # the account has a rate limit: it rests
    DISABLE = "disable"  # the account is used up, or its key refused: waiting does not help
    TROUBLE = "trouble"  # the upstream has a bad moment: the account rests when it has many


class Rule(msgspec.Struct, frozen=True):
    """One row. A fault fits when it fits each condition that is given; within one, any of its members.

    statuses: as the upstream sent them; of an error inside of an answer, the one that its kind has elsewhere.
    codes: `code` or `type` of the error. words: in the message, in lower case.
    """

    verdict: Verdict
    kinds: frozenset[FaultKind] = frozenset()
    statuses: frozenset[int] = frozenset()
    codes: frozenset[str] = frozenset()
    words: tuple[str, ...] = ()

    def fits(self, fault: Fault) -> bool:
        """Whether this row is about the fault."""
        if self.kinds and fault.kind not in self.kinds:
            return False
        status = STATUS_BY_KIND[fault.kind] if fault.status is None else fault.status
        if self.statuses and status not in self.statuses:
            return False
        if self.codes and fault.code not in self.codes and fault.type not in self.codes:
            return False
        if not self.words:
            return True
        message = fault.message.lower()
        return any(word in message for word in self.words)


RULES: tuple[Rule, ...] = (
    # No account could pay for this request.
    Rule(Verdict.ANSWER, statuses=frozenset({403}), words=("estimated cost",)),
    # This account has not enough left for it; another may, and this one may for a smaller request.
    Rule(
        Verdict.NEXT,
        statuses=frozenset({403}),
        words=("insufficient tokens", "upgrade your plan", "limit reached"),
    ),
    Rule(Verdict.DISABLE, kinds=frozenset({FaultKind.BILLING, FaultKind.AUTHENTICATION})),
    Rule(Verdict.COOL, kinds=frozenset({FaultKind.RATE_LIMIT})),
    Rule(
        Verdict.TROUBLE,
        kinds=frozenset(
            {
                FaultKind.TIMEOUT,
                FaultKind.OVERLOADED,
                FaultKind.SERVER,
                FaultKind.UNREACHABLE,
                FaultKind.TRUNCATED,
                FaultKind.UNREADABLE,
                FaultKind.MISCONFIGURED,
            }
        ),
    ),
)


# Signatures and ciphertexts can be read in the organization alone that they were made in.
_UNREADABLE: tuple[Rule, ...] = (
    Rule(Verdict.NEXT, codes=frozenset({"invalid_encrypted_content"})),
    Rule(
        Verdict.NEXT,
        statuses=frozenset({400}),
        words=("invalid `signature` in `thinking` block", "invalid signature in thinking block"),
    ),
)


def refuses_signed_reasoning(fault: Fault) -> bool:
    """Whether the upstream cannot read the signatures or ciphertexts of earlier reasoning.

    They may come from another organization's account. Without them the request can be sent again.
    """
    return any(rule.fits(fault) for rule in _UNREADABLE)


def judge(fault: Fault, own: Iterable[Rule] = ()) -> Verdict:
    """The verdict on a fault. own: the upstream's rules, which come first."""
    for rules in (own, RULES):
        for rule in rules:
            if rule.fits(fault):
                return rule.verdict
    return Verdict.ANSWER
