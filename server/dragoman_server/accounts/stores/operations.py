"""What account stores do, each operation with what it does in tables and which script does the same on a server.

The scripts do the same sums in the same order, so that all results are equal to the last bit.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from dragoman_server.accounts.stores import lua
from dragoman_server.accounts.stores.base import (
    Candidate,
    Counter,
    NoRoom,
    Operation,
    Rate,
    Reservation,
    in_order,
)
from dragoman_server.accounts.stores.tables import ID_S, LEASE_RETRY_S, LEASE_S, NEVER, TOLERANCE_S, Tables
from dragoman_server.policy.health import INITIAL_HEALTH, Health


def with_last_use(health: Health, now: float) -> Health:
    """Return the state of an account that is chosen now."""
    return msgspec.structs.replace(health, last_used=now)


class Write(Operation[None], frozen=True):
    """An operation without a result."""

    def result(self, found: Any) -> None:
        return None

    def is_write(self) -> bool:
        return True


class Reserve(Operation[Reservation | NoRoom], frozen=True):
    """Reserve a request with the first candidate that has room, and record its use.

    Attributes:
        conversation: Stays with its account if that is among the candidates and has room; otherwise it is with the
            reserved account from now on.
        lease: An id that no other reservation of one of these accounts has.
    """

    candidates: Sequence[Candidate]
    conversation: str | None
    lease: str
    now: float
    script = lua.RESERVE

    def apply(self, tables: Tables) -> Reservation | NoRoom:
        candidates, conversation = self.candidates, self.conversation
        health = tables.health()
        if conversation is not None and (account := tables.account_of(conversation, self.now)) is not None:
            candidates = [*[other for other in candidates if other.account == account], *candidates]
        available_at = NEVER
        for candidate in candidates:
            state = health.get(candidate.account, INITIAL_HEALTH)
            at = self._available_at(tables, candidate, state)
            if not at:
                self._record_use(tables, candidate, state)
                return Reservation(candidate, self.lease)
            available_at = min(available_at, at)
        return NoRoom(available_at)

    def _available_at(self, tables: Tables, candidate: Candidate, health: Health) -> float:
        """Return 0 if the account has room now, otherwise the time at which it does, which may be NEVER."""
        now = self.now
        if health.disabled is not None:
            return NEVER
        at = health.cooldown_until if health.cooldown_until > now else 0.0
        if candidate.requests is not None:
            at = max(at, _rate_available_at(tables, candidate.requests, 1.0, now))
        # The number of tokens is not known yet, so it is enough that there is no debt.
        if candidate.tokens is not None:
            at = max(at, _rate_available_at(tables, candidate.tokens, 0.0, now))
        limit = candidate.max_concurrent_requests
        if limit is not None and tables.leases(candidate.account, now) >= limit:
            at = max(at, now + LEASE_RETRY_S)
        return at

    def _record_use(self, tables: Tables, candidate: Candidate, health: Health) -> None:
        account = candidate.account
        if candidate.requests is not None:
            _count(tables, candidate.requests, 1.0, self.now)
        if candidate.max_concurrent_requests is not None:
            tables.put_lease(account, self.lease, self.now + LEASE_S)
        if self.conversation is not None:
            tables.put_conversation(self.conversation, account, self.now)
        tables.put_health(account, with_last_use(health, self.now))

    def keys(self) -> list[str]:
        keys = ["health", "used", "conversations", "conversations:expire"]
        for candidate in self.candidates:
            leases = f"leases:{candidate.account}"
            keys += [_rate_key(candidate.requests) or leases, _rate_key(candidate.tokens) or leases, leases]
        return keys

    def result(self, found: Any) -> Reservation | NoRoom:
        number, available_at = found
        return Reservation(self.candidates[number - 1], self.lease) if number else NoRoom(float(available_at))

    def accounts(self) -> Sequence[str]:
        return [candidate.account for candidate in self.candidates]

    def follow(self, local: Tables, result: Reservation | NoRoom) -> None:
        if isinstance(result, Reservation):
            state = local.health().get(result.candidate.account, INITIAL_HEALTH)
            self._record_use(local, result.candidate, state)

    def unstored(self, result: Reservation | NoRoom) -> Reservation | NoRoom:
        if isinstance(result, Reservation):
            return msgspec.structs.replace(result, is_stored=False)
        return result

    def retries(self, result: object = None) -> Sequence[Operation[Any]]:
        return [
            Release(Reservation(candidate, self.lease), 0.0, self.now)
            for candidate in self.candidates
            if candidate.max_concurrent_requests is not None
        ]


class Release(Write, frozen=True):
    """End a reservation, and count the tokens of its request."""

    reservation: Reservation
    tokens: float
    now: float
    script = lua.RELEASE

    def apply(self, tables: Tables) -> None:
        candidate = self.reservation.candidate
        if candidate.max_concurrent_requests is not None:
            tables.drop_lease(candidate.account, self.reservation.lease)
        if candidate.tokens is not None and self.tokens:
            _count(tables, candidate.tokens, self.tokens, self.now)

    def needed(self, health: Mapping[str, Health]) -> bool:
        candidate = self.reservation.candidate
        return candidate.max_concurrent_requests is not None or (
            candidate.tokens is not None and self.tokens > 0
        )

    def keys(self) -> list[str]:
        candidate = self.reservation.candidate
        leases = f"leases:{candidate.account}"
        return [leases, _rate_key(candidate.tokens) or leases]

    def frees(self) -> bool:
        return self.reservation.is_stored and self.reservation.candidate.max_concurrent_requests is not None

    def missed(self, result: None) -> Sequence[Operation[Any]]:
        counts = self.reservation.candidate.tokens is not None and self.tokens > 0
        return [self] if counts or self.frees() else ()

    def retries(self, result: object = None) -> Sequence[Operation[Any]]:
        return [Release(self.reservation, 0.0, self.now)]


class Change(Write, frozen=True):
    """Change the state of an account by one of Health's transitions. All gateways get the change immediately.

    Attributes:
        change: May be called several times; returns its argument if nothing changes, which is cheap, because most
            requests succeed.
        repeatable: It may be made twice, as after a call that timed out and yet took effect.
    """

    account: str
    change: Callable[[Health], Health]
    repeatable: bool = True
    script = lua.CHANGE

    def apply(self, tables: Tables) -> None:
        if self.needed(tables.health()):
            tables.put_health(self.account, self._after(tables.health()))

    def needed(self, health: Mapping[str, Health]) -> bool:
        return self._after(health) is not health.get(self.account, INITIAL_HEALTH)

    def _after(self, health: Mapping[str, Health]) -> Health:
        return self.change(health.get(self.account, INITIAL_HEALTH))

    def keys(self) -> list[str]:
        return ["health"]

    def argument(self, health: Mapping[str, Health], stored: Mapping[str, bytes]) -> bytes:
        after = msgspec.json.encode(with_last_use(self._after(health), 0.0))
        return msgspec.json.encode([(self.account, stored.get(self.account, b"").decode(), after.decode())])

    def accounts(self) -> Sequence[str]:
        return [self.account]

    def follow(self, local: Tables, result: None) -> None:
        """The store's view has it."""

    def retries(self, result: object = None) -> Sequence[Operation[Any]]:
        return [self] if self.repeatable else ()


class Spend(Operation[list[float]], frozen=True):
    """Count an amount for each rate. Return for each 0, or the time at which it has room again.

    Attributes:
        at_once: Count nothing if one of them has no room (for requests); otherwise count in any case, which may be a
            debt (for tokens, when they are known).
    """

    rates: Sequence[tuple[Rate, float]]
    now: float
    at_once: bool
    script = lua.SPEND

    def apply(self, tables: Tables) -> list[float]:
        if self.at_once:
            available_at = [_rate_available_at(tables, *each, self.now) for each in self.rates]
            if any(available_at):
                return available_at
        self._count(tables)
        if self.at_once:
            return available_at
        return [_rate_available_at(tables, rate, 0.0, self.now) for rate, _ in self.rates]

    def _count(self, tables: Tables) -> None:
        for rate, amount in self.rates:
            _count(tables, rate, amount, self.now)

    def keys(self) -> list[str]:
        return [_rate_key(rate) for rate, _ in self.rates]

    def result(self, found: Any) -> list[float]:
        return [float(at) for at in found]

    def is_write(self) -> bool:
        return not self.at_once

    def follow(self, local: Tables, result: list[float]) -> None:
        if not (self.at_once and any(result)):
            self._count(local)


class Add(Operation[list[float]], frozen=True):
    """Add an amount to the first counter if the sum of all is not above the limit. Return what each had before.

    Nothing was added if in_order() of that is above the limit.

    Attributes:
        amount: 0 only reads. No counter falls below 0.
        limit: None for none.
        lease: An id. With it an amount counts once, and a negative one only if its opposite was counted: so both may be
            repeated, and what a store has forgotten is not taken back.
    """

    counters: Sequence[Counter]
    amount: float
    now: float
    limit: float | None = None
    lease: str = ""
    script = lua.ADD

    def apply(self, tables: Tables) -> list[float]:
        before = [tables.total(counter, self.now) for counter, _ in self.counters]
        self._put(tables, before)
        return before

    def _fits(self, before: Sequence[float]) -> bool:
        return self.limit is None or in_order(before) <= self.limit

    def _put(self, tables: Tables, before: Sequence[float]) -> None:
        counter, end = self.counters[0]
        expires = NEVER if end is None else end
        if not self.amount or not self._fits(before):
            return
        if self.lease and self.amount < 0 and not tables.drop_lease(counter, self.lease):
            return
        if self.lease and self.amount > 0 and not tables.put_lease(counter, self.lease, expires):
            return
        tables.put_total(counter, max(before[0] + self.amount, 0.0), expires)

    def keys(self) -> list[str]:
        keys = [f"counter:{counter}" for counter, _ in self.counters]
        return [*keys, f"leases:{self.counters[0][0]}"] if self.lease else keys

    def result(self, found: Any) -> list[float]:
        return [float(total) for total in found]

    def is_write(self) -> bool:
        return self.limit is None

    def follow(self, local: Tables, result: list[float]) -> None:
        for (counter, expires), total in zip(self.counters, result, strict=True):
            local.put_total(counter, total, NEVER if expires is None else expires)
        self._put(local, result)

    def refusal(self, local: Tables) -> list[float] | None:
        before = [local.total(counter, self.now) for counter, _ in self.counters]
        return None if self._fits(before) else before

    def missed(self, result: list[float]) -> Sequence[Operation[Any]]:
        return [self._of(self.amount)] if self.amount and self._fits(result) else ()

    def retries(self, result: list[float] | None = None) -> Sequence[Operation[Any]]:
        if not self.lease:
            return ()
        counts = self.limit is None if result is None else self._fits(result)
        return [self._of(self.amount if counts else -self.amount)]

    def _of(self, amount: float) -> "Add":
        return Add(self.counters[:1], amount, self.now, lease=self.lease)


class BindIds(Write, frozen=True):
    """Record which account made ids of a vendor, if that is not known: another one may only name them."""

    ids: Sequence[str]
    account: str
    now: float
    script = lua.BIND_IDS

    def apply(self, tables: Tables) -> None:
        for key in self.keys():
            if tables.account_of(key, self.now) in (None, self.account):
                tables.put_conversation(key, self.account, self.now, ID_S)

    def keys(self) -> list[str]:
        return [f"id:{id}" for id in self.ids]

    def retries(self, result: object = None) -> Sequence[Operation[Any]]:
        return [self]


class FindAccount(Operation[str], frozen=True):
    """Return the account that made the first known one of these ids, "" if none is known."""

    ids: Sequence[str]
    now: float
    script = lua.FIND_ACCOUNT

    def apply(self, tables: Tables) -> str:
        accounts = (tables.account_of(key, self.now) for key in self.keys())
        return next(filter(None, accounts), "")

    def needed(self, health: Mapping[str, Health]) -> bool:
        return bool(self.ids)

    def keys(self) -> list[str]:
        return [f"id:{id}" for id in self.ids]

    def result(self, found: Any) -> str:
        return found.decode() if isinstance(found, bytes) else ""


class ReadKeyTables(Operation[dict[str, str] | None], frozen=True):
    """Return the tables of the client keys that are kept in the store, by name; "" has their version.

    Attributes:
        known: The version that the caller has; None is returned if that is the newest.
    """

    known: str
    script = lua.READ_KEY_TABLES
    only_stored = True

    def apply(self, tables: Tables) -> dict[str, str] | None:
        version = tables.key_tables("").get("", "")
        return None if version == self.known else {"": "", **tables.key_tables()}

    def keys(self) -> list[str]:
        return ["client_keys"]

    def result(self, found: Any) -> dict[str, str] | None:
        if found == 0:
            return None
        texts = [each.decode() for each in found]
        return {"": "", **dict(zip(texts[::2], texts[1::2], strict=True))}


class WriteKeyTable(Operation[bool], frozen=True):
    """Replace the table of a client key. Return false if it was not what the caller thought it was.

    Attributes:
        before, after: Empty for no table.
        version: A new one, which no other write has.
    """

    name: str
    before: str
    after: str
    version: str
    script = lua.WRITE_KEY_TABLE
    only_stored = True

    def apply(self, tables: Tables) -> bool:
        if tables.key_tables(self.name).get(self.name, "") != self.before:
            return False
        tables.put_key_table(self.name, self.after)
        tables.put_key_table("", self.version)
        return True

    def keys(self) -> list[str]:
        return ["client_keys"]

    def result(self, found: Any) -> bool:
        return bool(found)


def _filled(tables: Tables, rate: Rate, now: float) -> float:
    """Return when a rate will have filled again, now at the earliest."""
    filled = tables.filled(rate.key)
    # Without debts it is a period ahead at most: the clock was set back. (Clocks of gateways differ by less.)
    was_set_back = not rate.has_debts and filled > now + 2 * rate.period_s
    return now if was_set_back else max(filled, now)


def _rate_available_at(tables: Tables, rate: Rate, amount: float, now: float) -> float:
    """Return 0 if the amount fits now, otherwise the time at which it does. A full rate fits any amount."""
    filled = _filled(tables, rate, now)
    at = filled + min(amount, rate.limit) * rate.period_s / rate.limit - rate.period_s
    return 0.0 if at <= now + TOLERANCE_S else at


def _count(tables: Tables, rate: Rate, amount: float, now: float) -> None:
    filled = _filled(tables, rate, now)
    tables.put_filled(rate.key, filled + amount * rate.period_s / rate.limit)


def _rate_key(rate: Rate | None) -> str:
    return "" if rate is None else f"rate:{rate.key}"
