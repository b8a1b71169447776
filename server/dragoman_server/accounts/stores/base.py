"""The interface of account stores: health, leases, rates, counters, and the account of each conversation.

Reading health never waits, because a store holds a view of all accounts and updates it by itself (gateways that share a
store get each other's changes immediately). Everything else is an operation, a value that every store applies with the
same result, to the last bit: operations.py has them. A request applies one before it is sent, `Reserve`, and one when
it has ended; none while the response streams.

Times are arguments, in seconds since the epoch.
"""

from abc import ABCMeta, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from functools import cached_property
from typing import Any, ClassVar, Generic, Protocol, TypeAlias, TypeVar

import anyio
import msgspec

from dragoman_server.accounts.stores.tables import Tables
from dragoman_server.policy.health import Health

_T = TypeVar("_T")


class AccountStoreError(Exception):
    """The store does not work. `str()` of it is for the log: it may name a host or a file."""


class Rate(msgspec.Struct, frozen=True):
    """A limit per period, by the generic cell rate algorithm: it fills again steadily.

    Attributes:
        key: The name of the counter, which all gateways that share the store use.
        limit: The amount per period, and the largest burst.
        period_s: The period in seconds.
        has_debts: An amount counts when it is known, if it fits or not.
    """

    key: str
    limit: float
    period_s: float
    has_debts: bool = False


# A counter's name, and when it may be deleted, None for never.
Counter: TypeAlias = tuple[str, float | None]


def in_order(amounts: Sequence[float]) -> float:
    """Return the sum, as a store on a server makes it: sum() of Python 3.12 and newer is more exact."""
    total = 0.0
    for amount in amounts:
        total += amount
    return total


class Candidate(msgspec.Struct, frozen=True, omit_defaults=True, dict=True):
    """An account that a request may be sent with.

    Attributes:
        requests, tokens: Its own limits, None for none. A request counts immediately; its tokens are known when it has
            ended, so an account that has used too many has no room until the debt is paid off.
        max_concurrent_requests: None for any number.
    """

    account: str
    requests: Rate | None = None
    tokens: Rate | None = None
    max_concurrent_requests: int | None = None

    @cached_property
    def is_limited(self) -> bool:
        """A reservation has to be ended."""
        return self.tokens is not None or self.max_concurrent_requests is not None


class Reservation(msgspec.Struct, frozen=True, omit_defaults=True):
    """A reservation for one request with this candidate.

    Attributes:
        lease: Its id; it expires by itself.
        is_stored: False if it was made without the store, which does not have the lease.
    """

    candidate: Candidate
    lease: str
    is_stored: bool = True


class NoRoom(msgspec.Struct, frozen=True):
    """None of the candidates has room before this time."""

    until: float


class _OperationType(msgspec.StructMeta, ABCMeta):
    """Of structs with abstract methods."""


class Operation(msgspec.Struct, Generic[_T], frozen=True, metaclass=_OperationType):
    """One step of a store, and what each kind of store needs to know about it."""

    # Makes the same step on a server: see lua.py.
    script: ClassVar[str]
    # The memory of this process is no fallback: if the store fails, the operation does.
    only_stored: ClassVar[bool] = False

    @abstractmethod
    def apply(self, tables: Tables) -> _T:
        """Make the step in memory or in a file."""

    def needed(self, health: Mapping[str, Health]) -> bool:
        """False if it would change nothing. health: the store's view."""
        return True

    # On a server.

    @abstractmethod
    def keys(self) -> list[str]:
        """Return the keys of its script."""

    def argument(self, health: Mapping[str, Health], stored: Mapping[str, bytes]) -> bytes:
        """Return the argument of its script. health: the view. stored: the same, as the server has it."""
        return msgspec.json.encode(self)

    @abstractmethod
    def result(self, found: Any) -> _T:
        """Return what the script has found, None if it was not needed."""

    # Where a store may fail, and this process's memory is the fallback: see ResilientStore.

    def is_write(self) -> bool:
        """True if nobody needs its result, so that it can be made later, after the writes before it."""
        return False

    def accounts(self) -> Sequence[str]:
        """Return the accounts whose health it reads."""
        return ()

    def follow(self, local: Tables, result: _T) -> None:
        """Record what the store has done."""
        if self.is_write():
            self.apply(local)

    def refusal(self, local: Tables) -> _T | None:
        """Return the result if the view suffices to refuse it, otherwise None."""
        return None

    def unstored(self, result: _T) -> _T:
        """Return the result as that of a decision which the store does not get to know."""
        return result

    def frees(self) -> bool:
        """True if something in the store is not free until this is done."""
        return False

    def missed(self, result: _T) -> "Sequence[Operation[Any]]":
        """Return what the store has missed, if it was applied here alone, with this result."""
        return [self] if self.is_write() else ()

    def retries(self, result: _T | None = None) -> "Sequence[Operation[Any]]":
        """Return what to do if the store may have done it, and may not: only what does no harm if it is done twice.

        result: of the same step here; None if nobody uses one.
        """
        return ()


class AccountStore(Protocol):
    """Health, leases, rates, and which account a conversation is with."""

    def health(self) -> Mapping[str, Health]:
        """Return the state of all accounts by id; unused ones are missing. Never waits."""

    async def apply(self, operation: Operation[_T]) -> _T:
        """Make a step, whole, for all gateways that share the store. One round trip.

        May raise AccountStoreError; `ResilientStore` is the store around a store that does not.
        """

    def running(self) -> AbstractAsyncContextManager[None]:
        """Use the store inside of this block: its connections are open, and it receives the others' changes."""


# The store has its own deadline. This one is for a store that does not meet it.
STORE_S = 5.0


async def apply_in_time(store: AccountStore, operation: Operation[_T], limit_s: float = STORE_S) -> _T:
    """Return what the store's apply() does. Raises AccountStoreError, also if there is no response in time."""
    try:
        with anyio.fail_after(limit_s):
            return await store.apply(operation)
    except TimeoutError:
        raise AccountStoreError("no response in time") from None
