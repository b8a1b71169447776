"""What a failed attempt means for the account that it was made with.

Strategy: one table, looked through from above; the first rule that fits a fault decides. Only what another account
can cure is tried with another one: "a 400 caused by the request is retried on every account" is the mistake that
this table is made against. Rules are data, so an upstream can have its own before these.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum

import msgspec

from dragoman._wire.errors import STATUS_BY_KIND, ErrorKind, WireError


class ErrorAction(Enum):
    """Who or what has to change."""

    RETURN_TO_CLIENT = "return_to_client"  # the request is at fault: the client is told
    TRY_NEXT = "try_next"  # this account cannot serve this request, another may: nobody is to blame
    COOL_DOWN = "cool_down"  # the account has a rate limit: it rests
    DISABLE = "disable"  # the account is used up, or its key refused: waiting does not help
    RETRY_LATER = "retry_later"  # the upstream has a bad moment: the account rests when it has many


class ErrorRule(msgspec.Struct, frozen=True):
    """One row. A fault fits when it fits each condition that is given; within one, any of its members.

    statuses: as the upstream sent them; of an error inside of an answer, the one that its kind has elsewhere.
    codes: `code` or `type` of the error. words: in the message, in lower case.
    """

    action: ErrorAction
    kinds: frozenset[ErrorKind] = frozenset()
    statuses: frozenset[int] = frozenset()
    codes: frozenset[str] = frozenset()
    words: tuple[str, ...] = ()

    def fits(self, error: WireError) -> bool:
        """Whether this row is about the fault."""
        if self.kinds and error.kind not in self.kinds:
            return False
        status = STATUS_BY_KIND[error.kind] if error.status is None else error.status
        if self.statuses and status not in self.statuses:
            return False
        if self.codes and error.code not in self.codes and error.type not in self.codes:
            return False
        if not self.words:
            return True
        message = error.message.lower()
        return any(word in message for word in self.words)


ERROR_RULES: tuple[ErrorRule, ...] = (
    # No account could pay for this request.
    ErrorRule(ErrorAction.RETURN_TO_CLIENT, statuses=frozenset({403}), words=("estimated cost",)),
    # This account has not enough left for it; another may, and this one may for a smaller request.
    ErrorRule(
        ErrorAction.TRY_NEXT,
        statuses=frozenset({403}),
        words=("insufficient tokens", "upgrade your plan", "limit reached"),
    ),
    ErrorRule(ErrorAction.DISABLE, kinds=frozenset({ErrorKind.BILLING, ErrorKind.AUTHENTICATION})),
    ErrorRule(ErrorAction.COOL_DOWN, kinds=frozenset({ErrorKind.RATE_LIMIT})),
    ErrorRule(
        ErrorAction.RETRY_LATER,
        kinds=frozenset(
            {
                ErrorKind.TIMEOUT,
                ErrorKind.OVERLOADED,
                ErrorKind.SERVER,
                ErrorKind.UNREACHABLE,
                ErrorKind.TRUNCATED,
                ErrorKind.UNREADABLE,
                ErrorKind.MISCONFIGURED,
            }
        ),
    ),
)


# Signatures and ciphertexts can be read in the organization alone that they were made in.
_UNREADABLE: tuple[ErrorRule, ...] = (
    ErrorRule(ErrorAction.TRY_NEXT, codes=frozenset({"invalid_encrypted_content"})),
    ErrorRule(
        ErrorAction.TRY_NEXT,
        statuses=frozenset({400}),
        words=("invalid `signature` in `thinking` block", "invalid signature in thinking block"),
    ),
)


def refuses_signed_reasoning(error: WireError) -> bool:
    """Whether the upstream cannot read the signatures or ciphertexts of earlier reasoning.

    They may come from another organization's account. Without them the request can be sent again.
    """
    return any(rule.fits(error) for rule in _UNREADABLE)


def classify(error: WireError, own: Iterable[ErrorRule] = ()) -> ErrorAction:
    """The verdict on a fault. own: the upstream's rules, which come first."""
    for rules in (own, ERROR_RULES):
        for rule in rules:
            if rule.fits(error):
                return rule.action
    return ErrorAction.RETURN_TO_CLIENT
