"""Use an account store that may be slow or down, with the memory of this process as the fallback.

Every call has a deadline. When the store fails, this gateway decides from its own memory, which has the same
requests. After a few consecutive failures the store is no longer called (the circuit breaker is open): a task probes
it from time to time, so that no request waits for that, and writes what the store has missed before it is used again.

A call that timed out may have taken effect, so it is retried only if that does no harm: a cooldown or a lease that is
given back, never tokens or money.
"""

import logging
import math
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import anyio

from dragoman_server.accounts.stores.base import AccountStore, AccountStoreError, Operation
from dragoman_server.accounts.stores.memory import MemoryAccountStore
from dragoman_server.accounts.stores.operations import Add
from dragoman_server.platform.task_group import BackgroundTaskGroup
from dragoman_server.policy.health import INITIAL_HEALTH, Health

LOG = logging.getLogger("dragoman.accounts")

_T = TypeVar("_T")

# A request waits no longer than this for a store, because a worse choice of account costs less.
DEADLINE_S = 0.05
# Consecutive failures that open the circuit breaker.
_MAX_FAILURES = 3
# Seconds between probes while the store does not respond.
_PROBE_S = 0.25
# A store that fails so soon after it worked again is left alone for longer each time: from _PROBE_S up to this.
_MAX_PAUSE_S = 5.0
# It writes, as requests do: a store with a full disk, or a server that only reads, does not work. It has expired.
PROBE: Operation[Any] = Add([("probe", 1.0)], 1.0, 0.0)
# Writes that the store has missed. The oldest are dropped, because they are out of date; leases would stay for long.
_MAX_PENDING = 1000
# Tries of one write, so that one which never works does not block all others.
_MAX_TRIES = 3


class ResilientStore(BackgroundTaskGroup):
    """See AccountStore. Raises AccountStoreError only for what is `only_stored`, which has the caller's deadline.

    Args:
        store: the one that may fail.
        local: the fallback.
        deadline_s: for each call.

    Attributes:
        local_decisions: How often a decision was made without the store.
    """

    def __init__(
        self, store: AccountStore, local: MemoryAccountStore, deadline_s: float = DEADLINE_S
    ) -> None:
        self.local_decisions = 0
        self._store = store
        self._local = local
        self._deadline_s = deadline_s
        self._failures = 0  # consecutive
        self._answers = 0
        self._open = False
        self._closed_at = -math.inf
        self._pause_s = 0.0  # before each probe, if it flaps
        # What the store has missed, each with the number of its tries.
        self._pending: deque[tuple[Operation[Any], int]] = deque()
        # Accounts whose state in the local memory is newer than in the store's view.
        self._changed: set[str] = set()
        self._needs_catch_up = anyio.Event()  # set: the store has failed

    @property
    def is_open(self) -> bool:
        """True while the store is not called."""
        return self._open

    def health(self) -> Mapping[str, Health]:
        view = self._store.health()
        if not self._changed:
            return view
        known = self._local.health()
        return {**view, **{account: known[account] for account in self._changed}}

    async def apply(self, operation: Operation[_T]) -> _T:
        if operation.only_stored:
            return await self._store.apply(operation)
        if not operation.needed(self.health()):
            return operation.result(None)
        if self._pending and (refusal := operation.refusal(self._local)) is not None:
            return refusal  # by sums that have what the store has missed
        # Writes stay in their order; and what the store has missed for a reason may be what makes room there.
        if self._open or (self._pending and (operation.is_write() or self._failures)):
            return self._apply_locally(operation, sent=False)
        answers = self._answers
        try:
            result = await self._apply_in_time(operation)
        except (AccountStoreError, TimeoutError) as error:
            # With an answer meanwhile the store works, and this process is late, as when many requests begin at once.
            if isinstance(error, AccountStoreError) or self._answers == answers:
                self._failed(error)
            return self._apply_locally(operation, sent=True)
        except anyio.get_cancelled_exc_class():
            for retry in operation.retries():
                retry.apply(self._local)
            self._miss(operation.retries(), 1)
            raise
        self._answers += 1
        if not self._pending:  # else a success of something else does not count
            self._failures = 0
        operation.follow(self._local, result)
        return result

    def _apply_locally(self, operation: Operation[_T], *, sent: bool) -> _T:
        """Return the result from the local memory. sent: the store may have applied it, too."""
        view, local = self._store.health(), self._local
        accounts = operation.accounts()
        for account in accounts:
            if account not in self._changed:
                local.put_health(account, view.get(account, INITIAL_HEALTH))
        result = operation.apply(local)
        known = local.health()
        self._changed.update([each for each in accounts if known[each] is not view.get(each, INITIAL_HEALTH)])
        if not operation.is_write():
            self.local_decisions += 1
        self._miss(operation.retries(result) if sent else operation.missed(result), int(sent))
        return result if sent else operation.unstored(result)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """See AccountStore. Raises what the wrapped store raises."""
        async with self._store.running(), super().running():
            self._needs_catch_up.set()  # a store that is down from the start is detected immediately
            self.tasks.start_soon(self._catch_up_loop)
            yield

    async def _apply_in_time(self, operation: Operation[_T]) -> _T:
        with anyio.fail_after(self._deadline_s):
            return await self._store.apply(operation)

    # While the store is down.

    def _failed(self, error: Exception) -> None:
        self._failures += 1
        if self._failures >= _MAX_FAILURES and not self._open:
            self._open = True
            again = anyio.current_time() - self._closed_at < _MAX_PAUSE_S
            self._pause_s = min(2 * self._pause_s or _PROBE_S, _MAX_PAUSE_S) if again else 0.0
            reason = str(error) or f"no response within {self._deadline_s * 1000:g} ms"
            LOG.warning(
                "the account store does not work; this gateway decides from its own memory: %s", reason
            )

    def _miss(self, operations: Sequence[Operation[Any]], tries: int) -> None:
        for operation in operations:
            while len(self._pending) >= _MAX_PENDING:
                self._drop_oldest()
            self._pending.append((operation, tries))
        self._needs_catch_up.set()

    def _drop_oldest(self) -> None:
        """Drop the oldest write, of those that free nothing if there are any."""
        for _ in range(len(self._pending)):
            oldest = self._pending.popleft()
            if not oldest[0].frees():
                return
            self._pending.append(oldest)
        self._pending.popleft()

    async def _catch_up_loop(self) -> None:
        while True:
            await self._needs_catch_up.wait()
            if self._open:
                await anyio.sleep(self._pause_s)
            if not await self._catch_up():
                await anyio.sleep(_PROBE_S)
                continue
            self._changed.clear()
            self._needs_catch_up = anyio.Event()
            if self._open:
                # Else a probe does not count: a store may be able to do that while it fails requests.
                self._failures = 0
                self._open, self._closed_at = False, anyio.current_time()
                LOG.info(
                    "the account store works again, after %d local decisions in all", self.local_decisions
                )

    async def _catch_up(self) -> bool:
        """Make all writes that the store has missed. Return false if it does not respond."""
        operation, tries = PROBE, 0
        try:
            await self._apply_in_time(PROBE)
            while self._pending:
                operation, tries = self._pending.popleft()
                await self._apply_in_time(operation)
        except (AccountStoreError, TimeoutError) as error:
            # If newer ones have taken its place, it is out of date.
            if tries + 1 < _MAX_TRIES and (len(self._pending) < _MAX_PENDING or operation.frees()):
                self._pending.extendleft([(retry, tries + 1) for retry in operation.retries()])
            self._failed(error)
            return False
        return True
