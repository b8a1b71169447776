"""Rows of text files about a pool: settings and answers of its accounts, calls, and what happens in between; below it,
what clients got, and which accounts were asked. Each row is run with clients of all protocols, with streams and
without, in virtual time on one of the backends.

    upstream, {"a": broken(upstream), "b": hello("b")}, max_attempts=2     the arguments of pool_of()
    cool b=20 else/c=5     accounts cool down for so many seconds, `fail b=20`: after failures; also `disable b`,
                           `reset b`, `wait 20`
    play b hello("b")     what an account answers from now on; spend b: its only request of a minute
    call CHAT model=m n=2     a call, or `5 calls`, which begin 0.1 s apart; leaves=5: the client, at 5 s
    log attempts outcome     members of the newest line of the log
    health a     what is known of an account, or of `all`

`upstream` and `other` are protocols that vary with the client's, and `client` is that.
"""

import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import anyio
import rows
from failures.responses import Text, begun
from failures.responses import stream as stream_of
from gateway.fakes import FakeClient, Sleep
from gateway.provider import (
    EPOCH,
    Good,
    PoolGateway,
    RawResponse,
    check_one_beginning,
    check_text,
    pool_of,
)
from gateway.provider_errors import broken, invalid, limited, refusal, unauthorized
from oracle import CHAT, MESSAGES, PROTOCOL_NAMES, check_error
from virtual_time import VIRTUAL_BACKENDS, backend

from dragoman_server.accounts.stores.base import Operation, Rate
from dragoman_server.accounts.stores.memory import MemoryAccountStore
from dragoman_server.accounts.stores.operations import Change, Release, Reserve, Spend
from dragoman_server.policy.error_actions import ErrorAction
from dragoman_server.policy.health import Health
from dragoman_server.settings import RuleSettings
from dragoman_server.settings.secret import Secret
from dragoman_server.upstream.errors import (
    GatewayExhausted,
    UpstreamBroken,
    UpstreamIdleClosed,
    UpstreamTimeout,
    UpstreamTimeoutPhase,
    UpstreamUnreachable,
)


class Leases(MemoryAccountStore):
    """Counts the requests under way. Calls take a time, as they do where the store is outside."""

    def __init__(self, *, reserve_s: float = 0.0, release_s: float = 0.0, failed_s: float = 0.0) -> None:
        super().__init__()
        self._reserve_s, self._release_s, self._failed_s = reserve_s, release_s, failed_s
        self.all: list[str] = []

    async def apply(self, operation: Operation[Any]) -> Any:
        if isinstance(operation, Reserve):
            self.all.append(operation.lease)
            await anyio.sleep(self._reserve_s)
        elif isinstance(operation, Release):
            await anyio.sleep(self._release_s)
        elif isinstance(operation, Change) and operation.needed({}):  # a success changes nothing here
            await anyio.sleep(self._failed_s)
        return await super().apply(operation)

    @property
    def open(self) -> int:
        return sum(len(each) for each in self._expiries.values())


def hello(name: str, before: float = 0.0, between: float = 0.0, **more: Any) -> Good:
    """A response whose text says whose it is. before, between: seconds of silence."""
    silence = {"before": [Sleep(before)] * (before > 0), "between": [Sleep(between)] * (between > 0)}
    return Good(f"Hello from {name}", **silence, **more)


def late(play: RawResponse, seconds: float) -> RawResponse:
    return RawResponse(play.parts, play.status, play.headers, [Sleep(seconds), *play.before])


UP = "http://up.test"
BROKEN = UpstreamBroken(f"{UP}: the connection broke")
PROXY = {"proxy": Secret("http://user:hidden@one.test:1")}
# What the first line of a row is made of.
NAMES: dict[str, Any] = {
    **{each.__name__: each for each in (hello, late, broken, invalid, limited, refusal, unauthorized)},
    **{each.__name__: each for each in (RawResponse, Sleep, Leases, RuleSettings)},
    "CHAT": CHAT,
    "MESSAGES": MESSAGES,
    "BROKEN": BROKEN,
    "IDLE_CLOSED": UpstreamIdleClosed(f"{UP}: the idle connection was closed"),
    "EXHAUSTED": GatewayExhausted(f"cannot connect to {UP}: Too many open files"),
    "NO_SLOT": UpstreamTimeout(f"{UP}: no free connection", UpstreamTimeoutPhase.POOL),
    "NO_PROXY": UpstreamUnreachable(f"the proxy did not connect to {UP}"),
    "LATE_PROXY": UpstreamTimeout(f"{UP}: connect timeout", UpstreamTimeoutPhase.CONNECT),
    "EMPTY": [b"{}", b'{"status":"ok"}', b"", b": PROCESSING\n\n", b"data: [DONE]\n\n"],
    "BEGUN": begun(stream_of(MESSAGES, Text("Hello")), "Hello")[0],
    # More arguments of pool_of().
    "CHAIN": {"models": {"m": ("up/one", "else/two")}},
    "HEDGED": {
        "upstream": {"hedge_s": 2},
        "accounts": {name: {"max_concurrent_requests": 5} for name in "abc"},
    },
    "BEHIND_PROXIES": {
        "accounts": {"a": PROXY, "b": PROXY, "c": {"proxy": Secret("http://two.test:1")}},
        "others": {"else": (MESSAGES, "c")},
        "models": {"m": ("up/m", "else/m")},
    },
}


class Requests:
    """Carries out a row: the pool, and what happens to it. client, stream: of the calls."""

    def __init__(self, client: str, upstream: str, record: Any, *, stream: bool) -> None:
        self._client, self._stream, self._record = client, stream, record
        other = PROTOCOL_NAMES[PROTOCOL_NAMES.index(upstream) - 1]
        self._names = {"client": client, "upstream": upstream, "other": other}

    async def run(self, lines: list[str]) -> list[str]:
        self._pool: PoolGateway = eval(
            f"pool_of({lines[0]})", {**NAMES, **self._names, "pool_of": self._pool_of}
        )
        found = [f"{line}{await self._output(*line.split())}" for line in lines[1:]]
        assert len(set(self._store.all)) == len(self._store.all), "each reservation has its own lease"
        return found

    def _pool_of(self, *of_upstream: Any, store: Leases | None = None, **more: Any) -> PoolGateway:
        self._store = store or Leases()
        return pool_of(*of_upstream, store=self._store, **more)

    async def _output(self, word: str, *rest: str) -> str:
        options = dict(each.split("=") for each in rest if "=" in each)
        now, sent = self._pool.pool.clock(), len(self._pool.provider.sent)
        match word:
            case "wait":
                await anyio.sleep(float(rest[0]))
                attempts = self._attempts(sent)
                return f" -> {attempts}" * bool(attempts)
            case "cool" | "fail":
                action = ErrorAction.COOL_DOWN if word == "cool" else ErrorAction.RETRY_LATER
                for account, after in options.items():
                    await self._change(
                        account, partial(Health.after_failure, retry_after=float(after)), action, "", now
                    )
            case "disable":
                await self._change(rest[0], Health.after_disabling, "")
            case "reset":
                await self._change(rest[0], Health.after_reset)
            case "spend":
                rate = Rate(f"up/{rest[0]} requests", 1, 60.0)
                await self._store.apply(Spend([(rate, 1.0)], now, at_once=True))
            case "play":
                self._pool.provider.play(rest[0], eval(" ".join(rest[1:]), NAMES))
            case "health":
                every = dict(sorted(self._store.health().items()))
                health = str(every if rest[0] == "all" else self._pool.health(rest[0]))
                return " -> " + re.sub(r"17\d{8}\.\d", lambda time: f"{float(time[0]) - EPOCH:g}", health)
            case "log":
                return " -> " + ", ".join(str(self._record().get(name)) for name in rest)
            case "call":
                return " -> " + await self._calls(1, rest, **options)
            case _:
                return " -> " + await self._calls(int(word), (), **options)
        return ""

    async def _change(self, account: str, change: Any, *rest: Any) -> None:
        account = account if "/" in account else f"up/{account}"
        await self._store.apply(Change(account, lambda health: change(health, *rest)))

    def _attempts(self, first: int) -> str:
        """The accounts that were asked, other models than m, when the response was closed, and the proxy."""
        return ", ".join(
            f"{each.account}{f' {each.model}' * (each.model != 'm')} at {each.at:g}"
            + f" to {each.closed_at:g}" * (each.closed_at not in (None, each.at))
            + f" by {urlsplit(each.proxy).hostname}" * bool(each.proxy)
            for each in self._pool.provider.sent[first:]
        )

    async def _calls(
        self, count: int, names: Sequence[str], *, model: str = "up/m", leaves: str = "", **body: str
    ) -> str:
        """Make so many calls. What the clients got, what was sent when, and when it ended."""
        client = NAMES[names[0]] if names and "=" not in names[0] else self._client
        sent, began = len(self._pool.provider.sent), anyio.current_time()
        received: list[str] = []

        async def call(number: int) -> None:
            await anyio.sleep(number / 10)
            members = {name: int(value) for name, value in body.items()}
            way = {"stream": self._stream, "leaves_after": float(leaves) if leaves else None}
            response = await self._pool.call(client, model=model, body=members, **way)
            received.append(self._shown(client, response) if response.finished else "left")

        async with anyio.create_task_group() as tasks:
            for number in range(count):
                tasks.start_soon(call, number)
        now, leases = anyio.current_time(), self._store.open
        ended = [f"ended at {now:g}"] * (now > began) + [f"{leases} leases are left"] * (leases > 0)
        return "; ".join([*sorted(received), self._attempts(sent) or "nothing sent", *ended])

    def _shown(self, client: str, response: FakeClient) -> str:
        if response.status == 200:
            texts = [f"Hello from {name}" for name in "abc"]
            [text] = [each for each in texts if each.encode() in response.body]
            check_text(client, response, text, stream=self._stream)
            if self._stream:
                check_one_beginning(client, response)
            *before, (ended, _) = response.messages
            beats = [f"{at:g}" for at, each in before if each.get("body") and at < ended]
            return f"{text}, also at {', '.join(beats)}" if beats else text
        status, message = response.status or 0, response.error["message"]
        assert check_error(client, status, response.body) == []
        shown = ("retry-after", "x-should-retry", "dragoman-loss")
        headers = [f"{name} {response.headers[name]}" for name in shown if name in response.headers]
        delays = [each["retryDelay"] for each in response.error.get("details") or [] if "retryDelay" in each]
        for delay in delays:  # Gemini's, which its message repeats
            assert delay == f"{int(response.headers['retry-after-ms']) / 1000:g}s"
            assert message.endswith(f". Please retry in {delay}.")
            message = message.removesuffix(f" Please retry in {delay}.")
        return " ".join([str(status), *headers, message.removesuffix(".")])


def check(path: Path, record: Any) -> None:
    """Compare a file with today's outputs. record: the fixture. If they differ by the client, that is said before."""

    def output_of(lines: list[str]) -> list[str]:
        found = dict[str, list[str]]()
        for stream in (True, False):
            for number, client in enumerate(PROTOCOL_NAMES):
                upstream = PROTOCOL_NAMES[(number + len(lines[0])) % 4]
                requests = Requests(client, upstream, record, stream=stream)
                name, options = backend(VIRTUAL_BACKENDS[(number + stream) % 2])
                out = "\n".join(anyio.run(requests.run, lines, backend=name, backend_options=options))
                found.setdefault(out, []).append(f"{client} {'stream' if stream else 'whole'}")
        return [*found] if len(found) == 1 else [f"{', '.join(ways)}\n{out}" for out, ways in found.items()]

    rows.check(path, output_of)
