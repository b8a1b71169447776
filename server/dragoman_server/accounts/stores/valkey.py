"""Accounts on a Valkey or Redis server, which many gateways share.

Strategy: one connection a gateway, kept open by one task. Commands and what the server pushes share it, so when it
breaks, both are known to be broken, and the next one starts by reading everything. While there is none, every call
fails at once: `Careful` decides then. What has to be one step is a script on the server (`_account_scripts`).

Health is changed by comparing and setting: the gateway works out the transition from what it knows, and the server
takes it if that was still so; otherwise it tells what is, and the gateway works it out again. Each change is published.
When an account was last used is not: every `take` brings it for its candidates.

The library's own pool is not used. A call that is cancelled while it connects takes a place of that pool with it, and
calls here are cancelled after 50 ms.

Needs the extra `dragoman[valkey]`.
"""

import hashlib
import random
import ssl
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import anyio
import msgspec
from anyio.abc import ByteStream, SocketAttribute, UNIXSocketStream
from coredis.connection import BaseConnection, TCPLocation, UnixDomainSocketLocation
from coredis.exceptions import NoScriptError, RedisError

from dragoman_server.accounts.error_actions import Verdict
from dragoman_server.accounts.health import Health, Rest
from dragoman_server.accounts.stores.base import AccountStoreError, Candidate, NoRoom, Rate, Taken
from dragoman_server.accounts.stores.lua import (
    ADD,
    CHANGE,
    GIVE_BACK,
    RESTORE,
    SPEND,
    TAKE,
    TOTAL,
    Script,
)
from dragoman_server.accounts.stores.rate_limits import MAX_CONVERSATIONS, NEVER, coarse, used_at
from dragoman_server.config.valkey_url import ValkeyURL, parse_url

# Of the data: what an older version wrote under another number is not read.
_PREFIX = "dragoman:1:"

# To connect, say who we are, and read everything.
_CONNECT_S = 2.0
# For one answer. Whoever cannot wait that long says so: `Careful` does.
_ANSWER_S = 1.0
# A connection on which nothing comes back is found out by asking this often.
_PING_S = 2.0
# Between attempts to connect; each failure doubles it.
_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 2.0
# Each failure of the comparison means that another gateway went on, so this is never reached.
_MOST_CHANGES = 20

_FRESH = Health()
_encode = msgspec.json.encode
_decode = msgspec.json.Decoder(Health).decode


class ValkeyAccounts:
    """See AccountStore.

    Args:
        url: `valkey://[user:password@]host:port/db`, `valkeys://` with TLS, `unix:///path?db=0`; `redis` and `rediss`
            mean the same. ValueError, without the URL in it, when it is none of these.
        max_conversations: kept on the server.
    """

    def __init__(self, url: str, *, max_conversations: int = MAX_CONVERSATIONS) -> None:
        self._url = parse_url(url)
        self._where = self._url.where
        self._max_conversations = max_conversations
        self._health: dict[str, Health] = {}
        self._raw: dict[str, bytes] = {}  # the same as the server has it, without the last use
        self._connection: BaseConnection | None = None
        self._why = "not connected yet"

    def health(self) -> Mapping[str, Health]:
        return self._health

    async def take(
        self, candidates: Sequence[Candidate], conversation: str | None, lease: str, now: float
    ) -> Taken | NoRoom:
        keys = [_key("health"), _key("used"), _key("conversations"), _key("conversations:expire")]
        arguments: list[str] = [_number(now), lease, conversation or "", str(self._max_conversations)]
        for each in candidates:
            leases = _key("leases:" + each.account)
            keys += [_rate_key(each.requests) or leases, _rate_key(each.tokens) or leases, leases]
            at_once = "" if each.most_at_once is None else str(each.most_at_once)
            arguments += [each.account, *_limit(each.requests), *_limit(each.tokens), at_once]
        taken, opens, uses, refused = await self._run(TAKE, keys, arguments)
        for candidate, use in zip(candidates, uses, strict=False):
            if use is not None:
                self._learn_use(candidate.account, float(use))
        for account, raw in zip(refused[::2], refused[1::2], strict=True):
            self._learn(account.decode(), raw)
        if not taken:
            return NoRoom(float(opens))
        return Taken(candidates[taken - 1].account, lease)

    async def give_back(self, taken: Taken, candidate: Candidate, tokens: float, now: float) -> None:
        if candidate.most_at_once is None and (candidate.tokens is None or not tokens):
            return
        leases = _key("leases:" + taken.account)
        arguments = [_number(now), taken.lease, _number(tokens), *_limit(candidate.tokens)]
        await self._run(GIVE_BACK, [leases, _rate_key(candidate.tokens) or leases], arguments)

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
        def change(health: Health) -> Health:
            return health.after_failure(verdict, cause, now, after=after, draw=draw, rest=rest)

        await self._change(account, change)

    async def succeeded(self, account: str, *, remaining: float | None) -> None:
        await self._change(account, lambda health: health.after_success(remaining=coarse(remaining)))

    async def disable(self, account: str, cause: str) -> None:
        await self._change(account, lambda health: health.after_failure(Verdict.DISABLE, cause, 0.0))

    async def reset(self, account: str) -> None:
        await self._change(account, Health.after_reset)

    async def spend(self, rates: Sequence[tuple[Rate, float]], now: float, *, at_once: bool) -> float:
        arguments = [_number(now), "1" if at_once else "0"]
        for rate, amount in rates:
            arguments += [*_limit(rate), _number(amount)]
        return float(await self._run(SPEND, [_rate_key(rate) for rate, _ in rates], arguments))

    async def add(self, counter: str, amount: float, expires: float | None) -> None:
        arguments = [_number(amount), _number(NEVER if expires is None else expires)]
        await self._run(ADD, [_key("counter:" + counter)], arguments)

    async def total(self, counter: str, now: float) -> float:
        return float(await self._run(TOTAL, [_key("counter:" + counter)], [_number(now)]))

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """See AccountStore. Begins when the first attempt to connect is over, whether it went well or not."""
        tried = anyio.Event()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._stay_connected, tried)
            await tried.wait()  # bounded by _CONNECT_S
            try:
                yield
            finally:
                tasks.cancel_scope.cancel()
                self._connection, self._why = None, "not connected any more"

    # Calls.

    async def _run(self, script: Script, keys: Sequence[str], arguments: Sequence[str]) -> Any:
        """What the script gives. Raises AccountStoreError."""
        connection = self._connection
        if connection is None:
            raise AccountStoreError(f"the account store {self._where}: {self._why}")
        sent: tuple[int | str, ...] = (len(keys), *keys, *arguments)
        try:
            try:
                return await connection.create_request(b"EVALSHA", _digest(script), *sent)
            except NoScriptError:
                # The server has started, or somebody has flushed its scripts. This makes it remember.
                return await connection.create_request(b"EVAL", script.text, *sent)
        except (RedisError, OSError) as error:
            raise AccountStoreError(f"the account store {self._where}: {script.name}: {error}") from error

    async def _change(self, account: str, change: Callable[[Health], Health]) -> None:
        for _ in range(_MOST_CHANGES):
            before = self._health.get(account, _FRESH)
            health = change(before)
            if health is before:
                return
            known, raw = self._raw.get(account, b""), _encode(used_at(health, 0.0))
            done, found = await self._run(
                CHANGE, [_key("health")], [_channel(), account, known.decode(), raw.decode()]
            )
            self._learn(account, raw if done else found)
            if done:
                return
        raise AccountStoreError(f"the account store {self._where}: others change {account} all the time")

    # The view.

    def _learn(self, account: str, raw: bytes) -> None:
        """The server's health of an account, empty when it has none."""
        if raw == self._raw.get(account, b""):
            return
        used = self._health.get(account, _FRESH).used
        if raw:
            self._raw[account] = raw
            self._health[account] = used_at(_decode(raw), used)
        else:
            self._raw.pop(account, None)
            self._health[account] = Health(used=used)

    def _learn_use(self, account: str, used: float) -> None:
        health = self._health.get(account, _FRESH)
        if health.used != used:
            self._health[account] = used_at(health, used)

    # The connection.

    async def _stay_connected(self, tried: anyio.Event) -> None:
        pause = _PAUSE_S
        while True:
            try:
                await self._connected(tried)
            except Exception as error:  # whatever is wrong with the server, the gateway goes on without it
                self._why = _reason(error)
            tried.set()
            pause = _PAUSE_S if self._connection is not None else min(pause * 2, _LONGEST_PAUSE_S)
            self._connection = None
            await anyio.sleep(pause * random.uniform(0.5, 1.0))

    async def _connected(self, tried: anyio.Event) -> None:
        """One connection, from its beginning until it breaks."""
        with anyio.fail_after(_CONNECT_S):
            stream = await _connect(self._url)
        async with stream, anyio.create_task_group() as tasks:
            connection = _Connection(self._url, stream)
            with anyio.fail_after(_CONNECT_S):
                await tasks.start(connection.run)
                # Before reading: what changes in between comes twice, and nothing is missed.
                connection.send_command(b"SUBSCRIBE", _channel())
                await self._load(connection)
            self._connection = connection
            tried.set()
            tasks.start_soon(_ping, connection)
            async for message in connection.push_messages:
                match message:
                    case [b"message", _, bytes(change)]:
                        account, _, raw = change.rpartition(b"\n")
                        self._learn(account.decode(), raw)

    async def _load(self, connection: BaseConnection) -> None:
        """Make the view what the server knows, and tell it what it has forgotten, for its memory may be new."""
        found: Any = await connection.create_request(b"HGETALL", _key("health"))
        used: Any = await connection.create_request(b"HGETALL", _key("used"))
        lost = {account: raw for account, raw in self._raw.items() if account.encode() not in found}
        for account, raw in found.items():
            self._learn(account.decode(), raw)
        for account, use in used.items():
            self._learn_use(account.decode(), float(use))
        if lost:
            arguments = [text for account, raw in lost.items() for text in (account, raw.decode())]
            await connection.create_request(b"EVAL", RESTORE.text, 1, _key("health"), _channel(), *arguments)


class _Connection(BaseConnection):
    """The library's connection over a stream that is there already: one that never came to be leaves things open."""

    def __init__(self, url: ValkeyURL, stream: ByteStream) -> None:
        location = UnixDomainSocketLocation(url.path) if url.path else TCPLocation(url.host, url.port)
        password = url.password.reveal() if url.password is not None else None
        super().__init__(
            location, stream_timeout=_ANSWER_S, username=url.username, password=password, db=url.db
        )
        self._connected = stream

    async def _connect(self) -> ByteStream:
        return self._connected

    def describe(self) -> str:
        return f"account store {self.location}"


class _UnixStream(ByteStream):
    """A Unix socket that waits for bytes before it reads.

    On asyncio, anyio's own stream leaves an error in the loop's log when it is cancelled in the moment in which bytes
    come; waiting for the socket does not.
    """

    def __init__(self, stream: UNIXSocketStream) -> None:
        self._stream = stream

    async def receive(self, max_bytes: int = 65_536) -> bytes:
        await anyio.wait_readable(self._stream.extra(SocketAttribute.raw_socket))
        return await self._stream.receive(max_bytes)

    async def send(self, item: bytes) -> None:
        await self._stream.send(item)

    async def send_eof(self) -> None:
        await self._stream.send_eof()

    async def aclose(self) -> None:
        await self._stream.aclose()


async def _connect(url: ValkeyURL) -> ByteStream:
    if url.path:
        return _UnixStream(await anyio.connect_unix(url.path))
    if not url.tls:
        return await anyio.connect_tcp(url.host, url.port)
    # It trusts the system's authorities, and looks at the name.
    context = ssl.create_default_context()
    return await anyio.connect_tcp(url.host, url.port, ssl_context=context, tls_standard_compatible=False)


async def _ping(connection: BaseConnection) -> None:
    """Raises TimeoutError when no answer comes."""
    while True:
        await anyio.sleep(_PING_S)
        await connection.create_request(b"PING")


def _key(name: str) -> str:
    return _PREFIX + name


def _rate_key(rate: Rate | None) -> str:
    return "" if rate is None else _key("rate:" + rate.key)


def _channel() -> str:
    return _key("changes")


def _limit(rate: Rate | None) -> tuple[str, str]:
    return ("", "") if rate is None else (_number(rate.most), _number(rate.period_s))


def _number(value: float) -> str:
    """The shortest text that is read back as the same number, here and there."""
    return repr(float(value))


_DIGESTS: dict[Script, str] = {
    script: hashlib.sha1(script.text.encode(), usedforsecurity=False).hexdigest()
    for script in (TAKE, GIVE_BACK, SPEND, CHANGE, RESTORE, ADD, TOTAL)
}


def _digest(script: Script) -> str:
    return _DIGESTS[script]


def _reason(error: BaseException) -> str:
    """The innermost cause in words."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return str(error) or type(error).__name__
