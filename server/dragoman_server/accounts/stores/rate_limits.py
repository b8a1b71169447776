"""When an account has room: the arithmetic that all stores of accounts share.

Strategy: pure functions over plain values. The store in memory is made of them, the one in a file applies them to what
it has read, and the scripts of the one on a server do the same sums in the same order, so that all of them give the
same answers to the last bit.

A rate is kept as one number, the time at which it will have filled again (the "theoretical arrival time" of the
generic cell rate algorithm): it has room as long as that is not further ahead than the rate's period.
"""

import math
from collections.abc import Mapping, Sequence

import msgspec

from dragoman_server.accounts.health import Health
from dragoman_server.accounts.stores.base import Candidate, Rate

# After this time room is taken to be free again, though nobody gave it back: its gateway has died. Longer than nearly
# all answers, and no longer than an operator would wait.
LEASE_S = 900.0

# So long a conversation stays with its account after its last request: as long as providers keep prompt caches.
CONVERSATION_S = 3600.0

# Conversations are counted up by clients. An entry takes some hundred bytes; the one unused for longest goes first.
MAX_CONVERSATIONS = 100_000

# An account with too many requests at once has room again when one of them ends, which nobody knows beforehand.
ASK_AGAIN_S = 1.0

# Seconds since the epoch are exact to a quarter of a microsecond in a float, and a burst adds that up.
SLACK_S = 1e-3

NEVER = math.inf


def fits_at(rate: Rate, filled: float, amount: float, now: float) -> float:
    """0 when so much fits now, otherwise the time at which it does. More than the largest burst fits a full rate.

    filled: when the rate will have filled again.
    """
    at = max(filled, now) + min(amount, rate.most) * rate.period_s / rate.most - rate.period_s
    return 0.0 if at <= now + SLACK_S else at


def counted(rate: Rate, filled: float, amount: float, now: float) -> float:
    """When the rate will have filled again, after so much of it was used."""
    return max(filled, now) + amount * rate.period_s / rate.most


def opens_at(
    candidate: Candidate, health: Health, filled: Mapping[str, float], leases: int, now: float
) -> float:
    """0 when the account has room now, otherwise the time at which it does, NEVER included.

    filled: by the rates' keys, what is missing is full. leases: how many requests are on their way with it.
    """
    if health.disabled is not None:
        return NEVER
    at = health.cools_until if health.cools_until > now else 0.0
    # Of the tokens nobody knows yet how many it will be: it is enough that there is no debt.
    for rate, amount in ((candidate.requests, 1.0), (candidate.tokens, 0.0)):
        if rate is not None:
            at = max(at, fits_at(rate, filled.get(rate.key, 0.0), amount, now))
    if candidate.most_at_once is not None and leases >= candidate.most_at_once:
        at = max(at, now + ASK_AGAIN_S)
    return at


def preferred(candidates: Sequence[Candidate], account: str | None) -> Sequence[Candidate]:
    """The candidates, the one with this account first."""
    if account is None:
        return candidates
    return sorted(candidates, key=lambda candidate: candidate.account != account)


def coarse(remaining: float | None) -> float | None:
    """A share of a rate limit in whole percents: it is no news to anybody that a thousandth less is left."""
    return None if remaining is None else round(remaining, 2)


def used_at(health: Health, now: float) -> Health:
    """The account as it is after it was chosen."""
    return msgspec.structs.replace(health, used=now)
