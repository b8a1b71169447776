"""Decide what a failed attempt means for its account, and read for how long the upstream accepts no request.

The first rule of one table that matches an error decides. Only errors that another account can cure are tried with
another one, so a 400 that the request caused is never sent with every account. Rules are data, so an upstream can have
its own before these.
"""

from collections.abc import Iterable
from enum import Enum

import msgspec

from dragoman.errors import STATUS_BY_KIND, ErrorKind, WireError

# The longest real wait is until the next month's quota: a server that sends a longer time has a wrong clock, or
# counts in another unit.
MAX_RETRY_AFTER_S = 32 * 24 * 3600.0


class ErrorAction(Enum):
    """What happens after a failed attempt."""

    RETURN_TO_CLIENT = "return_to_client"  # the request is wrong: the client gets the error
    TRY_NEXT = "try_next"  # this account cannot serve this request, another may: its state does not change
    COOL_DOWN = "cool_down"  # the account has reached a rate limit: it is not used for a time
    DISABLE = "disable"  # its money or quota is used up, or its key refused: waiting does not help
    RETRY_LATER = "retry_later"  # the upstream has a temporary problem: several of them are a cooldown


class ErrorRule(msgspec.Struct, frozen=True):
    """One row of a table. It matches an error if each of its conditions does, by any of its members.

    Attributes:
        action: The action to take.
        kinds: The kinds of the error.
        statuses: The statuses that the upstream sent; for an error inside of a stream, the usual status of its kind.
        codes: `code` or `type` of the error.
        words: Parts of the message, in lower case.
    """

    action: ErrorAction
    kinds: frozenset[ErrorKind] = frozenset()
    statuses: frozenset[int] = frozenset()
    codes: frozenset[str] = frozenset()
    words: tuple[str, ...] = ()

    def matches(self, error: WireError) -> bool:
        """True if this row applies to the error."""
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
    # This account does not have enough left for it; another may, and this one may for a smaller request.
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


# Signatures and ciphertexts can be read only in the organization that they were made in.
_SIGNATURE_REFUSED: tuple[ErrorRule, ...] = (
    ErrorRule(ErrorAction.TRY_NEXT, codes=frozenset({"invalid_encrypted_content"})),
    # OpenAI's, of reasoning that an open model shows: "Invalid 'input[39].content': array too long. Expected an array
    # with maximum length 0" (claude-code-router#1783, read 2026-11-30)
    ErrorRule(
        ErrorAction.TRY_NEXT,
        codes=frozenset({"array_above_max_length"}),
        words=(".content': array too long. expected an array with maximum length 0",),
    ),
    ErrorRule(
        ErrorAction.TRY_NEXT,
        statuses=frozenset({400}),
        words=(
            "invalid `signature` in `thinking` block",
            "invalid signature in thinking block",
            "corrupted thought signature",  # Google's
            "invalid thought signature",
        ),
    ),
)


def refuses_signed_reasoning(error: WireError) -> bool:
    """True if the upstream cannot read the signatures or ciphertexts of earlier reasoning.

    They may come from another organization's account. Without them the request can be sent again.
    """
    return any(rule.matches(error) for rule in _SIGNATURE_REFUSED)


def classify(error: WireError, upstream_rules: Iterable[ErrorRule] = ()) -> ErrorAction:
    """Return what follows from an error. upstream_rules: the upstream's own, which come first."""
    for rules in (upstream_rules, ERROR_RULES):
        for rule in rules:
            if rule.matches(error):
                return rule.action
    return ErrorAction.RETURN_TO_CLIENT


def retry_after(
    headers: Iterable[tuple[str, str]], now: float, error: WireError | None = None
) -> float | None:
    """Return the seconds for which an upstream accepts no request, None if neither a header nor the error has them.

    headers: names in lower case. now: seconds since the epoch. A time that has passed is 0. `retry-after` is RFC 9110,
    10.2.3; `retry-after-ms`, which is more precise and wins, is OpenAI's and Azure's.
    """
    values = dict(headers)
    milliseconds = _number(values.get("retry-after-ms", "").strip())
    if milliseconds is not None:
        return _bounded(milliseconds * 0.001)
    text = values.get("retry-after", "").strip()
    seconds = _number(text)
    if seconds is None and text:
        date = _date(text)
        seconds = None if date is None else date - now
    if seconds is None and error is not None:
        seconds = error.retry_after_s
    return None if seconds is None else _bounded(seconds)


def _number(text: str) -> float | None:
    # float() accepts more than digits: "nan", "1_0" and "inf" are not times.
    if not text.replace(".", "", 1).isdecimal() or not text.isascii():
        return None
    return float(text)


def _date(text: str) -> float | None:
    # Slow to import, and few servers send dates.
    from email.utils import mktime_tz, parsedate_tz

    parsed = parsedate_tz(text)
    try:
        return None if parsed is None else float(mktime_tz(parsed))
    except (ValueError, OverflowError):
        return None


def _bounded(seconds: float) -> float:
    return min(max(seconds, 0.0), MAX_RETRY_AFTER_S)
