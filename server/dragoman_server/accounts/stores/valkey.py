"""An account store on a Valkey or Redis server, which many gateways share.

Each gateway has one connection, which one task holds open. Commands and the server's messages share it, so a break is
noticed for both, and the next connection starts by reading everything. While there is none, every call fails at once,
and `ResilientStore` decides. What must be atomic is a script on the server (lua.py).

Health is changed by compare-and-set: the gateway computes the transition from its view, and the server stores it if
that view was current; otherwise the server returns the current state, and the gateway computes again. Each change is
published, except the last use of an account, which every `reserve` returns for its candidates.

The library's own pool is not used. A call that is cancelled while it connects takes a place of that pool with it, and
calls here are cancelled after 50 ms.

Needs the extra `dragoman[valkey]`.
"""

import hashlib
import json
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

from dragoman_server.accounts.health import INITIAL_HEALTH, Health
from dragoman_server.accounts.stores.base import (
    AccountStoreError,
    Candidate,
    Counter,
    KeyUse,
    NoRoom,
    Rate,
    Reservation,
)
from dragoman_server.accounts.stores.lua import (
    ADD,
    ADD_WITHIN,
    CHANGE,
    KEY_USE,
    RELEASE,
    RESERVE,
    RESTORE,
    SPEND,
    TOTAL,
    LuaScript,
)
from dragoman_server.accounts.stores.tables import MAX_CONVERSATIONS, NEVER, with_last_use
from dragoman_server.config.valkey_url import ValkeyURL, parse_valkey_url

# The number is the version of the data: what another version wrote is not read.
_PREFIX = "dragoman:2:"

# Seconds to connect, authenticate, and read everything.
_CONNECT_S = 2.0
# Seconds for one response. `ResilientStore` waits for less.
_RESPONSE_S = 1.0
# Seconds between pings, which detect a dead connection.
_PING_S = 2.0
# Between attempts to connect; each failure doubles it.
_PAUSE_S = 0.05
_MAX_PAUSE_S = 2.0
# Each failure of the comparison means that another gateway made progress, so this is never reached.
_MAX_CHANGE_TRIES = 20

_KEY_USE_FIELDS = json.dumps(KeyUse.__struct_fields__)

_encode = msgspec.json.encode
_decode = msgspec.json.Decoder(Health).decode


class ValkeyAccountStore:
    """See AccountStore.

    Args:
        url: `valkey://[user:password@]host:port/db`, `valkeys://` with TLS, `unix:///path?db=0`; `redis` and `rediss`
            mean the same. Raises ValueError, without the URL in it, for anything else.
        max_conversations: stored on the server.
    """

    def __init__(self, url: str, *, max_conversations: int = MAX_CONVERSATIONS) -> None:
        self._url = parse_valkey_url(url)
        self._where = self._url.where
        self._max_conversations = max_conversations
        self._health: dict[str, Health] = {}
        self._raw: dict[str, bytes] = {}  # the same as the server has it, without the last use
        self._connection: BaseConnection | None = None
        self._failure = "not connected yet"

    def health(self) -> Mapping[str, Health]:
        return self._health

    async def reserve(
        self, candidates: Sequence[Candidate], conversation: str | None, lease: str, now: float
    ) -> Reservation | NoRoom:
        keys = [_key("health"), _key("used"), _key("conversations"), _key("conversations:expire")]
        for each in candidates:
            leases = _key("leases:" + each.account)
            keys += [_rate_key(each.requests) or leases, _rate_key(each.tokens) or leases, leases]
        arguments = [_number(now), lease, conversation or "", str(self._max_conversations)]
        arguments.append(_encode(candidates).decode())
        chosen, available_at, uses, unusable = await self._run(RESERVE, keys, arguments)
        for candidate, use in zip(candidates, uses, strict=False):
            if use is not None:
                self._update_use(candidate.account, float(use))
        for account, raw in zip(unusable[::2], unusable[1::2], strict=True):
            self._update(account.decode(), raw)
        if not chosen:
            return NoRoom(float(available_at))
        return Reservation(candidates[chosen - 1], lease)

    async def release(self, reservation: Reservation, tokens: float, now: float) -> None:
        candidate = reservation.candidate
        leases = _key("leases:" + candidate.account)
        arguments = [_number(now), reservation.lease, _number(tokens), _encode(candidate.tokens).decode()]
        await self._run(RELEASE, [leases, _rate_key(candidate.tokens) or leases], arguments)

    async def change(
        self, account: str, change: Callable[[Health], Health], *, repeatable: bool = True
    ) -> None:
        for _ in range(_MAX_CHANGE_TRIES):
            before = self._health.get(account, INITIAL_HEALTH)
            health = change(before)
            if health is before:
                return
            known, raw = self._raw.get(account, b""), _encode(with_last_use(health, 0.0))
            done, found = await self._run(
                CHANGE, [_key("health")], [_channel(), account, known.decode(), raw.decode()]
            )
            self._update(account, raw if done else found)
            if done:
                return
        raise AccountStoreError(f"the account store {self._where}: other gateways kept changing {account}")

    async def spend(self, rates: Sequence[tuple[Rate, float]], now: float, *, at_once: bool) -> float:
        arguments = [_number(now), "1" if at_once else "0", _encode(rates).decode()]
        return float(await self._run(SPEND, [_rate_key(rate) for rate, _ in rates], arguments))

    async def add(self, counter: str, amount: float, expires: float | None) -> None:
        arguments = [_number(amount), _number(NEVER if expires is None else expires)]
        await self._run(ADD, [_key("counter:" + counter)], arguments)

    async def add_within(
        self, counters: Sequence[Counter], amount: float, limit: float, now: float
    ) -> list[float]:
        expires = counters[0][1]
        numbers = (amount, NEVER if expires is None else expires, limit, now)
        keys = [_key("counter:" + counter) for counter, _ in counters]
        return [float(before) for before in await self._run(ADD_WITHIN, keys, list(map(_number, numbers)))]

    async def total(self, counter: str, now: float) -> float:
        return float(await self._run(TOTAL, [_key("counter:" + counter)], [_number(now)]))

    async def add_key_use(self, key: str, use: KeyUse) -> None:
        values = [_number(each) for each in msgspec.structs.astuple(use)]
        await self._run(KEY_USE, [_key("use:" + key)], [_KEY_USE_FIELDS, *values])

    async def key_uses(self, keys: Sequence[str]) -> list[KeyUse]:
        found = (
            await self._run(KEY_USE, [_key("use:" + key) for key in keys], [_KEY_USE_FIELDS]) if keys else []
        )
        return [KeyUse(*[float(value or 0) for value in values]) for values in found]

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """See AccountStore. Begins when the first attempt to connect has succeeded or failed."""
        tried = anyio.Event()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._stay_connected, tried)
            await tried.wait()  # bounded by _CONNECT_S
            try:
                yield
            finally:
                tasks.cancel_scope.cancel()
                self._connection, self._failure = None, "no longer connected"

    # Calls.

    async def _run(self, script: LuaScript, keys: Sequence[str], arguments: Sequence[str]) -> Any:
        """Run a script, and return its result. Raises AccountStoreError."""
        connection = self._connection
        if connection is None:
            raise AccountStoreError(f"the account store {self._where}: {self._failure}")
        sent: tuple[int | str, ...] = (len(keys), *keys, *arguments)
        try:
            try:
                return await connection.create_request(b"EVALSHA", _DIGESTS[script], *sent)
            except NoScriptError:
                # The server has restarted, or its scripts were flushed. EVAL stores the script again.
                return await connection.create_request(b"EVAL", script.text, *sent)
        except (RedisError, OSError) as error:
            raise AccountStoreError(f"the account store {self._where}: {script.name}: {error}") from error

    # The view.

    def _update(self, account: str, raw: bytes) -> None:
        """Put an account's health from the server into the view. raw: empty if the server has none."""
        if raw == self._raw.get(account, b""):
            return
        used = self._health.get(account, INITIAL_HEALTH).last_used
        if raw:
            self._raw[account] = raw
            self._health[account] = with_last_use(_decode(raw), used)
        else:
            self._raw.pop(account, None)
            self._health[account] = Health(last_used=used)

    def _update_use(self, account: str, used: float) -> None:
        health = self._health.get(account, INITIAL_HEALTH)
        if health.last_used != used:
            self._health[account] = with_last_use(health, used)

    # The connection.

    async def _stay_connected(self, tried: anyio.Event) -> None:
        pause = _PAUSE_S
        while True:
            try:
                await self._connected(tried)
            except Exception as error:  # whatever is wrong with the server, the gateway works without it
                self._failure = _reason(error)
            tried.set()
            pause = _PAUSE_S if self._connection is not None else min(pause * 2, _MAX_PAUSE_S)
            self._connection = None
            await anyio.sleep(pause * random.uniform(0.5, 1.0))

    async def _connected(self, tried: anyio.Event) -> None:
        """Open a connection, and use it until it breaks."""
        with anyio.fail_after(_CONNECT_S):
            stream = await _connect(self._url)
        async with stream, anyio.create_task_group() as tasks:
            connection = _Connection(self._url, stream)
            with anyio.fail_after(_CONNECT_S):
                await tasks.start(connection.run)
                # Before reading: changes in between arrive twice, and none is missed.
                connection.send_command(b"SUBSCRIBE", _channel())
                await self._load(connection)
            self._connection = connection
            tried.set()
            tasks.start_soon(_ping, connection)
            async for message in connection.push_messages:
                match message:
                    case [b"message", _, bytes(change)]:
                        account, _, raw = change.rpartition(b"\n")
                        self._update(account.decode(), raw)

    async def _load(self, connection: BaseConnection) -> None:
        """Read the view from the server, and restore what the server has lost, because its memory may be new."""
        found: Any = await connection.create_request(b"HGETALL", _key("health"))
        used: Any = await connection.create_request(b"HGETALL", _key("used"))
        lost = {account: raw for account, raw in self._raw.items() if account.encode() not in found}
        for account, raw in found.items():
            self._update(account.decode(), raw)
        for account, use in used.items():
            self._update_use(account.decode(), float(use))
        if lost:
            arguments = [text for account, raw in lost.items() for text in (account, raw.decode())]
            await connection.create_request(b"EVAL", RESTORE.text, 1, _key("health"), _channel(), *arguments)


class _Connection(BaseConnection):
    """The library's connection over an open stream, because a connection that fails to open leaks resources there."""

    def __init__(self, url: ValkeyURL, stream: ByteStream) -> None:
        location = UnixDomainSocketLocation(url.path) if url.path else TCPLocation(url.host, url.port)
        password = url.password.reveal() if url.password is not None else None
        super().__init__(
            location, stream_timeout=_RESPONSE_S, username=url.username, password=password, db=url.db
        )
        self._stream = stream

    async def _connect(self) -> ByteStream:
        return self._stream

    def describe(self) -> str:
        return f"account store {self.location}"


class _UnixStream(ByteStream):
    """A Unix socket that waits for bytes before it reads.

    On asyncio, anyio's own stream leaves an error in the loop's log when it is cancelled at the moment when
    bytes arrive; waiting for the socket does not.
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
    # It uses the system's certificate authorities, and checks the name.
    context = ssl.create_default_context()
    return await anyio.connect_tcp(url.host, url.port, ssl_context=context, tls_standard_compatible=False)


async def _ping(connection: BaseConnection) -> None:
    """Ping the server for ever. Raises TimeoutError if no response comes."""
    while True:
        await anyio.sleep(_PING_S)
        await connection.create_request(b"PING")


def _key(name: str) -> str:
    return _PREFIX + name


def _rate_key(rate: Rate | None) -> str:
    return "" if rate is None else _key("rate:" + rate.key)


def _channel() -> str:
    return _key("changes")


def _number(value: float) -> str:
    """Return the shortest text that both sides read as the same number."""
    return repr(float(value))


_DIGESTS: dict[LuaScript, str] = {
    script: hashlib.sha1(script.text.encode(), usedforsecurity=False).hexdigest()
    for script in (RESERVE, RELEASE, SPEND, CHANGE, RESTORE, ADD, TOTAL, ADD_WITHIN, KEY_USE)
}


def _reason(error: BaseException) -> str:
    """Return the message of the innermost cause."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return str(error) or type(error).__name__
