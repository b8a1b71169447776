"""What is known of upstream accounts, and what a store of it has to do.

Strategy: reading costs nothing and asks nobody, for a store keeps a view of all accounts' health and brings it up to
date by itself (a store that many gateways share is told by the others at once). Whoever sends a request asks the store
one question, `take`, and tells it once how it went; nothing is asked while an answer streams. The transitions
themselves are the core's (`Health`), so every store does the same.

Times are arguments, in seconds since the epoch.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

from dragoman_server.accounts.error_actions import Verdict
from dragoman_server.accounts.health import Health, Rest


class AccountStoreError(Exception):
    """The store cannot be asked. `str()` of it is for the log: it may name a host or a file."""


@dataclass(frozen=True, slots=True)
class Rate:
    """A limit of so much in so many seconds, kept by the generic cell rate algorithm: it fills again steadily.

    key: what is counted; every gateway that shares the store counts on it. most: also the largest burst.
    """

    key: str
    most: float
    period_s: float


@dataclass(frozen=True, slots=True)
class Candidate:
    """An account that a request may be sent with.

    requests, tokens: its own limits, if any. A request counts for one at once; its tokens are known when it has
    ended, so an account that has spent too many has no room until they are paid off.
    most_at_once: requests at the same time, None for any number.
    """

    account: str
    requests: Rate | None = None
    tokens: Rate | None = None
    most_at_once: int | None = None


@dataclass(frozen=True, slots=True)
class Taken:
    """Room for one request with this account. lease: what give_back() needs; it expires by itself in the end."""

    account: str
    lease: str


@dataclass(frozen=True, slots=True)
class NoRoom:
    """None of the candidates has room before this time."""

    until: float


class AccountStore(Protocol):
    """Health, leases, rates, and which account a conversation is with.

    Every method may raise AccountStoreError; `Careful` is the store around a store that does not.
    """

    def health(self) -> Mapping[str, Health]:
        """The view of all accounts: those that nothing is known of are missing. Never waits."""

    async def take(
        self, candidates: Sequence[Candidate], conversation: str | None, lease: str, now: float
    ) -> Taken | NoRoom:
        """Take room with the first candidate that has some, and note that it is used now.

        conversation: one that was with an account stays with it if that is among the candidates and has room;
        otherwise it is with the account that was taken from now on. lease: an id that is new. One round trip.
        """

    async def give_back(self, taken: Taken, candidate: Candidate, tokens: float, now: float) -> None:
        """The request has ended, and cost so many tokens."""

    async def failed(
        self,
        account: str,
        verdict: Verdict,
        cause: str,
        now: float,
        *,
        after: float | None,
        draw: float,
        rest: Rest,
    ) -> None:
        """See Health.after_failure. What changes is known to all gateways at once."""

    async def succeeded(self, account: str, *, remaining: float | None) -> None:
        """See Health.after_success. Cheap when nothing changes: most requests succeed."""

    async def disable(self, account: str, cause: str) -> None:
        """Take an account out of use until reset()."""

    async def reset(self, account: str) -> None:
        """Put an account back into use, whatever was wrong with it."""

    async def spend(self, rates: Sequence[tuple[Rate, float]], now: float, *, at_once: bool) -> float:
        """Count so much for each rate. Gives 0, or the time at which there is room for all of them again.

        at_once: nothing is counted where there is no room (for requests); else it is counted in any case and
        becomes a debt (for tokens, when they are known).
        """

    async def add(self, counter: str, amount: float, expires: float | None) -> None:
        """Count so much under this name, for all gateways. expires: when it may be forgotten, None for never."""

    async def total(self, counter: str, now: float) -> float:
        """What has been counted under this name: 0 when nothing has, or when it has expired."""

    def running(self) -> AbstractAsyncContextManager[None]:
        """The time in which the store works: connections are open, and it listens to the others."""
