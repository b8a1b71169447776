"""Compute when an account has room: the arithmetic that all account stores share.

The functions are pure. The stores in memory and in a file use them, and the scripts of the store on a server do the
same sums in the same order, so that all results are equal to the last bit.

A rate is stored as one number, the time at which it will have filled again (the "theoretical arrival time" of the
generic cell rate algorithm): it has room as long as that is not further ahead than the rate's period.
"""

import math
from collections.abc import Mapping, Sequence

import msgspec

from dragoman_server.accounts.health import Health
from dragoman_server.accounts.stores.base import Candidate, Rate

# A lease that was not given back ends after this time, because its gateway has died. Longer than nearly all responses,
# and no longer than an operator would wait.
LEASE_S = 900.0

# A conversation stays with its account for this time after its last request: as long as providers hold prompt caches.
CONVERSATION_S = 3600.0

# Clients decide how many conversations there are. An entry takes some hundred bytes; the least recently used goes
# first.
MAX_CONVERSATIONS = 100_000

# An account with too many requests at once has room again when one of them ends, and that time is unknown.
LEASE_RETRY_S = 1.0

# Seconds since the epoch are exact to a quarter of a microsecond in a float, and a burst adds that up.
TOLERANCE_S = 1e-3

NEVER = math.inf


def rate_available_at(rate: Rate, filled: float, amount: float, now: float) -> float:
    """Return 0 if the amount fits now, otherwise the time at which it does. A full rate fits any amount.

    filled: when the rate will have filled again.
    """
    at = max(filled, now) + min(amount, rate.limit) * rate.period_s / rate.limit - rate.period_s
    return 0.0 if at <= now + TOLERANCE_S else at


def consume(rate: Rate, filled: float, amount: float, now: float) -> float:
    """Return when the rate will have filled again after this amount was used."""
    return max(filled, now) + amount * rate.period_s / rate.limit


def account_available_at(
    candidate: Candidate, health: Health, filled: Mapping[str, float], leases: int, now: float
) -> float:
    """Return 0 if the account has room now, otherwise the time at which it does, which may be NEVER.

    filled: by the rates' keys; a missing one is full. leases: the number of requests that run with it.
    """
    if health.disabled is not None:
        return NEVER
    at = health.cooldown_until if health.cooldown_until > now else 0.0
    # The number of tokens is not known yet, so it is enough that there is no debt.
    for rate, amount in ((candidate.requests, 1.0), (candidate.tokens, 0.0)):
        if rate is not None:
            at = max(at, rate_available_at(rate, filled.get(rate.key, 0.0), amount, now))
    if candidate.max_concurrent_requests is not None and leases >= candidate.max_concurrent_requests:
        at = max(at, now + LEASE_RETRY_S)
    return at


def put_first(candidates: Sequence[Candidate], account: str | None) -> Sequence[Candidate]:
    """Return the candidates, the one with this account first."""
    if account is None:
        return candidates
    return sorted(candidates, key=lambda candidate: candidate.account != account)


def with_last_use(health: Health, now: float) -> Health:
    """Return the state of an account that is chosen now."""
    return msgspec.structs.replace(health, last_used=now)
