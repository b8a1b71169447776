"""Stores of accounts of every kind, for tests that run over all of them; random calls to them, and calls as text."""

import random
import re
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from valkey_server import ValkeyServer

from dragoman_server.accounts.stores.base import AccountStore, Candidate, NoRoom, Operation, Rate, Reservation
from dragoman_server.accounts.stores.memory import MemoryAccountStore
from dragoman_server.accounts.stores.operations import (
    Add,
    BindIds,
    Change,
    FindAccount,
    ReadKeyTables,
    Release,
    Reserve,
    Spend,
    WriteKeyTable,
)
from dragoman_server.accounts.stores.resilient import ResilientStore
from dragoman_server.accounts.stores.sqlite import SQLiteAccountStore
from dragoman_server.accounts.stores.tables import CONVERSATION_S, ID_S, LEASE_S
from dragoman_server.accounts.stores.valkey import ValkeyAccountStore
from dragoman_server.policy.error_actions import ErrorAction
from dragoman_server.policy.health import Backoff, Health

# In the year 2096: what a server drops by its own clock is not dropped while a test runs.
NOW = 4_000_000_000.0

# Few enough to be reached in a test.
MAX_CONVERSATIONS = 5

KINDS = ("memory", "sqlite", "valkey", "resilient")
SHARED_KINDS = ("sqlite", "valkey", "resilient")
SERVER_KINDS = ("valkey", "resilient")

BACKOFF = Backoff(rate_limit_s=10.0, failure_s=4.0, max_s=30.0, max_failures=3, window_s=60.0, jitter=0.5)


@dataclass
class Kind:
    """Makes stores of one kind. Those that can be shared share one file or server."""

    name: str
    folder: Path
    server: ValkeyServer | None

    def __call__(self) -> AccountStore:
        if self.name == "memory":
            return MemoryAccountStore(max_conversations=MAX_CONVERSATIONS)
        if self.name == "sqlite":
            return SQLiteAccountStore(str(self.folder / "accounts.db"), max_conversations=MAX_CONVERSATIONS)
        store = ValkeyAccountStore(self.server.url, max_conversations=MAX_CONVERSATIONS)
        if self.name == "valkey":
            return store
        # As slow as the machine may be: a local decision would not test the server.
        return ResilientStore(store, MemoryAccountStore(max_conversations=MAX_CONVERSATIONS), deadline_s=20.0)


@contextmanager
def kind_of(name: str, folder: Path, server: ValkeyServer | None) -> Iterator[Kind]:
    if server is not None and name in SERVER_KINDS:
        assert server.command("FLUSHALL") == b"+OK\r\n"
    yield Kind(name, folder, server)


ACCOUNTS = ("up/a", "up/b", "up/c", "other/語")
CANDIDATES = (
    Candidate(
        "up/a",
        requests=Rate("up/a:requests", 3, 60.0),
        tokens=Rate("up/a:tokens", 1000, 60.0, has_debts=True),
    ),
    Candidate("up/b", requests=Rate("up/b:requests", 7, 10.0), max_concurrent_requests=2),
    Candidate("up/c", tokens=Rate("up/c:tokens", 333, 7.0, has_debts=True), max_concurrent_requests=1),
    Candidate("other/語", requests=Rate("all", 20, 60.0)),
)
_RATES = (Rate("key:requests", 5, 60.0), Rate("key:tokens", 70, 13.0, has_debts=True), Rate("all", 20, 60.0))
# More than one reason to pass each of the times that matter: pauses, leases, conversations.
_STEPS = (0.001, 0.1, 1.0, 3.0, 10.0, 61.0, 500.0, 2000.0)
_WEIGHTS = (30, 30, 20, 10, 10, 5, 2, 1)

Call = Callable[[AccountStore], Awaitable[object]]


class Calls:
    """Random calls, the same for the same seed. What was taken in the model is given back later, mostly."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._now = NOW
        self._number = 0
        self._taken: list[Reservation] = []

    def record(self, result: object) -> None:
        """Note the result of the model for the last call."""
        if isinstance(result, Reservation):
            self._taken.append(result)

    def next(self) -> tuple[str, Call]:
        """Return a description for a failing test, and a call."""
        chance = self._random
        # Never twice at the same time: then it is open which of two conversations is the older one.
        self._now += chance.choices(_STEPS, _WEIGHTS)[0] * chance.uniform(0.5, 1.5)
        make = chance.choices(
            (
                self._reserve,
                self._release,
                self._failed,
                self._succeeded,
                self._by_hand,
                self._spend,
                self._count,
            ),
            (40, 20, 10, 10, 4, 10, 6),
        )[0]
        return make(self._now)

    def _reserve(self, now: float) -> tuple[str, Call]:
        candidates = self._random.sample(CANDIDATES, self._random.randint(0, len(CANDIDATES)))
        conversation = self._random.choice([None, *(f"conversation {n}" for n in range(8))])
        self._number += 1
        lease = f"lease {self._number}"
        name = f"take {[each.account for each in candidates]} {conversation} {lease} at {now}"
        return name, lambda store: store.apply(Reserve(candidates, conversation, lease, now))

    def _release(self, now: float) -> tuple[str, Call]:
        if not self._taken:
            return self._reserve(now)
        taken = self._taken.pop(self._random.randrange(len(self._taken)))
        tokens = self._random.choice([0.0, 1.0, 100.0, 333.3, 5000.0])
        return f"release {taken} {tokens} at {now}", lambda store: store.apply(Release(taken, tokens, now))

    def _failed(self, now: float) -> tuple[str, Call]:
        account, action = self._random.choice(ACCOUNTS), self._random.choice(list(ErrorAction))
        after, random = self._random.choice([None, None, 0.5, 7.0, 100.0]), self._random.random()

        def call(store: AccountStore) -> Awaitable[object]:
            return store.apply(failure(account, action, now, after, cause='the "cause" 語', random=random))

        return f"failed {account} {action} after {after} draw {random} at {now}", call

    def _succeeded(self, now: float) -> tuple[str, Call]:
        account, remaining = self._random.choice(ACCOUNTS), self._random.choice([None, None, 0.123, 0.5, 1.0])
        return f"succeeded {account} {remaining}", lambda store: store.apply(
            Change(account, lambda health: health.after_success(remaining=remaining))
        )

    def _by_hand(self, now: float) -> tuple[str, Call]:
        account = self._random.choice(ACCOUNTS)
        # More often back into use than out of it, or nothing would happen in the end.
        if self._random.random() < 0.3:
            return f"disable {account}", lambda store: store.apply(
                Change(account, lambda health: health.after_disabling("by hand"))
            )
        return f"reset {account}", lambda store: store.apply(Change(account, Health.after_reset))

    def _spend(self, now: float) -> tuple[str, Call]:
        rates = [
            (rate, self._random.choice([0.0, 1.0, 2.5, 30.0, 100.0]))
            for rate in self._random.sample(_RATES, self._random.randint(0, len(_RATES)))
        ]
        at_once = self._random.random() < 0.6
        return f"spend {rates} {at_once} at {now}", lambda store: store.apply(
            Spend(rates, now, at_once=at_once)
        )

    def _count(self, now: float) -> tuple[str, Call]:
        # As budgets are counted: under a name of the period, which is not used again.
        period = now // 100 * 100
        counter, expires = self._random.choice([(f"budget 語 {period}", period + 100), ("for ever", None)])
        if self._random.random() < 0.5:
            requested = self._random.choice([counter, f"budget 語 {period - 100}"])
            return f"total {requested} at {now}", lambda store: total(store, requested, now)
        amount = self._random.choice([0.1, 2.25, 1e-9])
        if self._random.random() < 0.5:
            limit = self._random.choice([0.0, 1.0, 10.0])
            name = f"add {counter} {amount} until {expires} within {limit} at {now}"
            also = [(f"budget 語 {period - 50}", period + 50.0), ("for ever", None)][
                : self._random.randint(0, 2)
            ]
            counters = [(counter, expires), *also]
            return f"{name} with {also}", lambda store: store.apply(Add(counters, amount, now, limit))
        return f"add {counter} {amount} until {expires}", lambda store: store.apply(
            Add([(counter, expires)], amount, now)
        )


def failure(
    account: str,
    action: ErrorAction = ErrorAction.COOL_DOWN,
    now: float = NOW,
    after: float | None = None,
    *,
    repeatable: bool = True,
    backoff: Backoff = BACKOFF,
    cause: str = "why",
    random: float = 0.0,
) -> Change:
    """A failed request of an account."""
    return Change(
        account,
        lambda health: health.after_failure(
            action, cause, now, retry_after=after, random=random, backoff=backoff
        ),
        repeatable=repeatable,
    )


async def total(store: AccountStore, counter: str, now: float) -> float:
    """Return the sum of a counter."""
    [amount] = await store.apply(Add([(counter, None)], 0.0, now))
    return amount


# Operations as lines of text.

TOKENS = Rate("up/a:tokens", 1000, 60.0, has_debts=True)
CANDIDATES_OF = {
    "a": Candidate("up/a"),
    "b": Candidate("up/b"),
    "c": Candidate("up/c"),
    "one": Candidate("up/a", max_concurrent_requests=1),
    "three": Candidate("up/a", requests=Rate("up/a:requests", 3, 60.0)),
    "seven": Candidate("up/a", requests=Rate("seven", 7, 60.0)),
    "slow": Candidate("up/b", requests=Rate("up/b:requests", 1, 300.0)),
    "tokens": Candidate("up/a", tokens=TOKENS),
}
RATES = {
    "requests": Rate("key:requests", 2, 60.0),
    "words": Rate("key:tokens", 100, 60.0, has_debts=True),
    "tokens": TOKENS,
}


def operation(word: str, rest: list[str]) -> Operation[Any]:
    """Return the operation of a line in stores.txt or resilient.txt."""
    options = dict(each.split("=") for each in rest if "=" in each)
    names = [each for each in rest if "=" not in each]
    now = NOW + eval(options.get("at", "0"), {"LEASE": LEASE_S, "CONVERSATION": CONVERSATION_S, "ID": ID_S})
    account = f"up/{names[0]}" if names else ""
    lease = options.get("lease", "l")
    match word:
        case "reserve":
            candidates = [CANDIDATES_OF[name] for name in names]
            return Reserve(candidates, options.get("conversation"), lease, now)
        case "release":
            reservation = Reservation(CANDIDATES_OF[names[0]], lease, is_stored="unstored" not in names)
            return Release(reservation, float(options.get("used", 0)), now)
        case "fail":
            after = float(options["after"]) if "after" in options else None
            return failure(account, ErrorAction(names[1]), now, after, repeatable="once" not in names)
        case "disable":
            return Change(account, lambda health: health.after_disabling("by hand"))
        case "reset":
            return Change(account, Health.after_reset)
        case "success":
            remaining = None if names[1] == "None" else float(names[1])
            return Change(account, lambda health: health.after_success(remaining=remaining))
        case "spend":
            rates = [(RATES[name], float(options[name])) for name in RATES if name in options]
            return Spend(rates, now, at_once="later" not in names)
        case "add":
            ends = [rest[rest.index(name) + 1].partition("until=")[2] for name in names]
            counters = [
                (name, NOW + float(end) if end else None) for name, end in zip(names, ends, strict=True)
            ]
            within = float(options["within"]) if "within" in options else None
            return Add(counters, float(options["amount"]), now, within, options.get("lease", ""))
        case "key":
            return WriteKeyTable(
                names[0], options.get("before", ""), options.get("after", ""), options["version"]
            )
        case "keys":
            return ReadKeyTables(options.get("known", ""))
        case "bind":
            return BindIds(names[1:], account, now)
        case "find":
            return FindAccount(names, now)
    raise ValueError(word)


def shown(result: Any) -> str:
    match result:
        case Reservation(candidate):
            return candidate.account if result.is_stored else f"{candidate.account}, unstored"
        case NoRoom(until):
            return f"no room until {until - NOW:.6g}"
        case float():
            return f"{result - NOW if result > NOW / 2 else result:.6g}"
        case dict():
            return str(dict(sorted(result.items())))
        case list():
            return f"[{', '.join(shown(each) for each in result)}]"
    return str(result)


def health_of(store: AccountStore) -> str:
    found = [f"{account} {health}" for account, health in sorted(store.health().items())]
    return re.sub(r"4000\d{6}\.\d", lambda time: f"{float(time[0]) - NOW:g}", "; ".join(found)) or "nothing"


async def carried_out(store: AccountStore, line: str) -> str:
    """Carry out an operation, or look at the health, and return what comes out."""
    word, *rest = line.split()
    return health_of(store) if word == "health" else shown(await store.apply(operation(word, rest)))
