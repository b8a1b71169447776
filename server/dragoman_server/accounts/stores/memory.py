"""An account store in the memory of one process. Its state is lost when the process ends."""

from collections import OrderedDict
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from heapq import heappop, heappush
from typing import TypeVar

from dragoman_server.accounts.stores.base import Operation
from dragoman_server.accounts.stores.tables import CONVERSATION_S, MAX_CONVERSATIONS, NEVER, Tables
from dragoman_server.policy.health import Health

# Counters that are dropped in one call, some 2 us each.
_EXPIRED_AT_ONCE = 1000

_T = TypeVar("_T")


class MemoryAccountStore(Tables):
    """See AccountStore. Never raises AccountStoreError.

    It grows with the accounts, rates and counters that there are; conversations are bounded.
    """

    def __init__(self, *, max_conversations: int = MAX_CONVERSATIONS) -> None:
        self._max_conversations = max_conversations
        self._healths: dict[str, Health] = {}
        self._rates: dict[str, float] = {}
        self._expiries: dict[str, dict[str, float]] = {}  # of leases, by account, the oldest first
        # The account and when it expires, the least recently used first.
        self._conversations: OrderedDict[str, tuple[str, float]] = OrderedDict()
        self._key_tables: dict[str, str] = {}
        self._counters: dict[str, tuple[float, float]] = {}  # the sum, and when it expires
        self._counter_expiries: list[tuple[float, str]] = []  # a heap; one that has changed is there twice

    def running(self) -> AbstractAsyncContextManager[None]:
        return nullcontext()

    async def apply(self, operation: Operation[_T]) -> _T:
        return operation.apply(self)

    def health(self) -> Mapping[str, Health]:
        return self._healths

    def put_health(self, account: str, health: Health) -> None:
        self._healths[account] = health

    def filled(self, rate: str) -> float:
        return self._rates.get(rate, 0.0)

    def put_filled(self, rate: str, filled: float) -> None:
        self._rates[rate] = filled

    def leases(self, account: str, now: float) -> int:
        leases = self._expiries.get(account, {})
        while leases and leases[oldest := next(iter(leases))] <= now:
            del leases[oldest]
        return len(leases)

    def put_lease(self, account: str, lease: str, expires: float) -> bool:
        leases = self._expiries.setdefault(account, {})
        is_new = lease not in leases
        leases[lease] = expires
        return is_new

    def drop_lease(self, account: str, lease: str) -> bool:
        leases = self._expiries.get(account, {})
        was_there = leases.pop(lease, None) is not None
        if not leases:  # names of counters have times in them
            self._expiries.pop(account, None)
        return was_there

    def account_of(self, conversation: str, now: float) -> str | None:
        account, expires = self._conversations.get(conversation, (None, NEVER))
        return account if expires > now else None

    def put_conversation(
        self, conversation: str, account: str, now: float, keep_s: float = CONVERSATION_S
    ) -> None:
        self._conversations[conversation] = account, now + keep_s
        self._conversations.move_to_end(conversation)
        if len(self._conversations) > self._max_conversations:
            self._conversations.popitem(last=False)

    def key_tables(self, name: str | None = None) -> dict[str, str]:
        return {each: table for each, table in self._key_tables.items() if name in (None, each)}

    def put_key_table(self, name: str, table: str) -> None:
        self._key_tables[name] = table
        if not table:
            del self._key_tables[name]

    def total(self, counter: str, now: float) -> float:
        for _ in range(_EXPIRED_AT_ONCE):
            if not self._counter_expiries or self._counter_expiries[0][0] > now:
                break
            self._drop_expired(heappop(self._counter_expiries)[1], now)
        self._drop_expired(counter, now)
        return self._counters.get(counter, (0.0, NEVER))[0]

    def _drop_expired(self, counter: str, now: float) -> None:
        if self._counters.get(counter, (0.0, NEVER))[1] <= now:
            del self._counters[counter]

    def put_total(self, counter: str, amount: float, expires: float) -> None:
        if expires != self._counters.get(counter, (0.0, NEVER))[1]:
            heappush(self._counter_expiries, (expires, counter))
        self._counters[counter] = amount, expires
