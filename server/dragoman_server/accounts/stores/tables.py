"""The tables of account stores in memory and in a file, and the times that all stores agree on.

A rate is stored as one number, the time at which it will have filled again (the "theoretical arrival time" of the
generic cell rate algorithm): it has room as long as that is not further ahead than the rate's period.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping

from dragoman_server.policy.health import Health

# A lease, or money of a budget, that was not given back is free after this time, because its gateway has died. Longer
# than nearly all responses, and no longer than an operator would wait.
LEASE_S = 900.0

# A conversation stays with its account for this time after its last request: as long as providers hold prompt caches.
CONVERSATION_S = 3600.0

# The account that made an id of a vendor is known for this time. OpenAI keeps batches for 30 days, and files until they
# are deleted; an account that is no longer known is found by trying.
ID_S = 90 * 86_400.0

# Clients decide how many conversations there are. An entry takes some hundred bytes; the least recently used goes
# first.
MAX_CONVERSATIONS = 100_000

# An account with too many concurrent requests has room again when one of them ends, and that time is unknown.
LEASE_RETRY_S = 1.0

# Seconds since the epoch are exact to a quarter of a microsecond in a float, and a burst adds that up.
TOLERANCE_S = 1e-3

NEVER = math.inf


class Tables(ABC):
    """What an operation reads and writes, as one step: see Operation.apply()."""

    @abstractmethod
    def health(self) -> Mapping[str, Health]:
        """See AccountStore."""

    @abstractmethod
    def put_health(self, account: str, health: Health) -> None: ...

    @abstractmethod
    def filled(self, rate: str) -> float:
        """Return when a rate will have filled again, 0 for one that was never used."""

    @abstractmethod
    def put_filled(self, rate: str, filled: float) -> None: ...

    @abstractmethod
    def leases(self, account: str, now: float) -> int:
        """Return the number of requests that run with the account."""

    @abstractmethod
    def put_lease(self, account: str, lease: str, expires: float) -> bool:
        """Return true if it is a new one."""

    @abstractmethod
    def drop_lease(self, account: str, lease: str) -> bool:
        """Return true if it was there."""

    @abstractmethod
    def account_of(self, conversation: str, now: float) -> str | None: ...

    @abstractmethod
    def put_conversation(
        self, conversation: str, account: str, now: float, keep_s: float = CONVERSATION_S
    ) -> None:
        """Record the account of a conversation. The least recently used ones are dropped if there are too many."""

    @abstractmethod
    def key_tables(self, name: str | None = None) -> dict[str, str]:
        """Return the tables of client keys by name, or of this one; "" has the version of them all."""

    @abstractmethod
    def put_key_table(self, name: str, table: str) -> None:
        """Put a table in, or remove it if it is empty."""

    @abstractmethod
    def total(self, counter: str, now: float) -> float:
        """Return the sum of a counter, 0 if it is missing or has expired."""

    @abstractmethod
    def put_total(self, counter: str, amount: float, expires: float) -> None: ...
