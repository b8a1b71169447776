"""The interface of account stores: health, leases, rates, counters, and the account of each conversation.

Reading health never waits, because a store holds a view of all accounts and updates it by itself (gateways that share
a store get each other's changes at once). A request makes one call before it is sent, `reserve`, and one when it has
ended; none while the response streams. The transitions are those of `Health`, so every store does the same.

Times are arguments, in seconds since the epoch.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import msgspec

from dragoman_server.accounts.health import Health


class AccountStoreError(Exception):
    """The store does not work. `str()` of it is for the log: it may name a host or a file."""


class Rate(msgspec.Struct, frozen=True):
    """A limit per period, by the generic cell rate algorithm: it fills again steadily.

    key: the name of the counter, which all gateways that share the store use.
    limit: the amount per period, and the largest burst.
    period_s: in seconds.
    """

    key: str
    limit: float
    period_s: float


# A counter's name, and when it may be deleted, None for never.
Counter: TypeAlias = tuple[str, float | None]


def in_order(amounts: Sequence[float]) -> float:
    """Return the sum, as a store on a server makes it: sum() of Python 3.12 and newer is more exact."""
    total = 0.0
    for amount in amounts:
        total += amount
    return total


class Candidate(msgspec.Struct, frozen=True, omit_defaults=True):
    """An account that a request may be sent with.

    requests, tokens: its own limits, None for none. A request counts at once; its tokens are known when it has ended,
    so an account that has used too many has no room until the debt is paid off.
    max_concurrent_requests: None for any number.
    """

    account: str
    requests: Rate | None = None
    tokens: Rate | None = None
    max_concurrent_requests: int | None = None


class KeyUse(msgspec.Struct, frozen=True):
    """What requests with a client key have used. Merging two adds the sums and keeps the later `last_used`.

    last_used: seconds since the epoch, 0 for a key that was never used.
    """

    requests: float = 0.0
    tokens: float = 0.0
    cost_usd: float = 0.0
    last_used: float = 0.0


@dataclass(frozen=True, slots=True)
class Reservation:
    """A reservation for one request with this candidate. lease: its id; it expires by itself."""

    candidate: Candidate
    lease: str


@dataclass(frozen=True, slots=True)
class NoRoom:
    """None of the candidates has room before this time."""

    until: float


class AccountStore(Protocol):
    """Health, leases, rates, and which account a conversation is with.

    Every method may raise AccountStoreError; `ResilientStore` is the store around a store that does not.
    """

    def health(self) -> Mapping[str, Health]:
        """Return the state of all accounts by id; unused ones are missing. Never waits."""

    async def reserve(
        self, candidates: Sequence[Candidate], conversation: str | None, lease: str, now: float
    ) -> Reservation | NoRoom:
        """Reserve a request with the first candidate that has room, and record its use. One round trip.

        conversation: stays with its account if that is among the candidates and has room; otherwise it is with the
        reserved account from now on. lease: a new id.
        """

    async def release(self, reservation: Reservation, tokens: float, now: float) -> None:
        """End a reservation, and count the tokens of its request."""

    async def change(
        self, account: str, change: Callable[[Health], Health], *, repeatable: bool = True
    ) -> None:
        """Change the state of an account by one of Health's transitions. All gateways get the change at once.

        change: may be called several times; returns its argument if nothing changes, which is cheap, because most
        requests succeed. repeatable: it may be made twice, as after a call that timed out and yet took effect.
        """

    async def spend(self, rates: Sequence[tuple[Rate, float]], now: float, *, at_once: bool) -> float:
        """Count an amount for each rate. Return 0, or the time at which all of them have room again.

        at_once: count nothing if there is no room (for requests); otherwise count in any case, which may be a debt (for
        tokens, when they are known).
        """

    async def add(self, counter: str, amount: float, expires: float | None) -> None:
        """Add an amount to a counter that all gateways share. expires: when it may be deleted, None for never."""

    async def add_within(
        self, counters: Sequence[Counter], amount: float, limit: float, now: float
    ) -> list[float]:
        """Add an amount to the first counter if the sum of all is not above the limit, as one step for all gateways.

        Return what each had before: nothing was added if in_order() of that is above the limit.
        """

    async def total(self, counter: str, now: float) -> float:
        """Return the sum of a counter, 0 if it is missing or has expired."""

    async def add_key_use(self, key: str, use: KeyUse) -> None:
        """Add to what the client key of this name has used."""

    async def key_uses(self, keys: Sequence[str]) -> list[KeyUse]:
        """Return what each of these client keys has used."""

    def running(self) -> AbstractAsyncContextManager[None]:
        """Use the store inside of this block: its connections are open, and it receives the others' changes."""
