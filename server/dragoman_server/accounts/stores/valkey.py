"""An account store on a Valkey or Redis server, which many gateways share.

Each gateway has one connection, which one task holds open. Commands and the server's messages share it, so a break is
noticed for both, and the next connection starts by reading everything. While there is none, every call fails
immediately, and `ResilientStore` decides. What must be atomic is a script on the server (lua.py).

Health is changed by compare-and-set: the gateway computes the transition from its view, and the server stores it if
that view was current; otherwise the server returns the current state, and the gateway computes again. Each change is
published, except the last use of an account, which every `reserve` returns for its candidates.

The library's own pool is not used. A call that is cancelled while it connects takes a place of that pool with it, and
calls here are cancelled after 50 ms.

Needs the extra `dragoman[valkey]`.
"""

import hashlib
import random
import ssl
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import cache
from typing import Any, TypeVar

import anyio
import msgspec
from anyio.abc import ByteStream, SocketAttribute, UNIXSocketStream
from coredis.connection import BaseConnection, TCPLocation, UnixDomainSocketLocation
from coredis.exceptions import NoScriptError, RedisError

from dragoman_server.accounts.stores.base import AccountStoreError, Operation
from dragoman_server.accounts.stores.lua import CHANGE
from dragoman_server.accounts.stores.operations import with_last_use
from dragoman_server.accounts.stores.tables import MAX_CONVERSATIONS
from dragoman_server.accounts.stores.valkey_url import ValkeyURL, parse_valkey_url
from dragoman_server.policy.health import INITIAL_HEALTH, Health

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

_CHANNEL = _PREFIX + "changes"

_decode = msgspec.json.Decoder(Health).decode

_T = TypeVar("_T")


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
        self._settings = max_conversations, _CHANNEL  # for the scripts
        self._health: dict[str, Health] = {}
        self._raw: dict[str, bytes] = {}  # the same as the server has it, without the last use
        self._connection: BaseConnection | None = None
        self._failure = "not connected yet"

    def health(self) -> Mapping[str, Health]:
        return self._health

    async def apply(self, operation: Operation[_T]) -> _T:
        for _ in range(_MAX_CHANGE_TRIES):
            if not operation.needed(self._health):
                return operation.result(None)
            argument = operation.argument(self._health, self._raw)
            try:
                if self._connection is None:
                    raise ConnectionError(self._failure)
                found, healths, uses = await self._evaluate(
                    self._connection, operation.script, operation.keys(), argument
                )
            except (RedisError, OSError) as error:
                raise AccountStoreError(f"the account store {self._where}: {error}") from error
            for account, raw in zip(healths[::2], healths[1::2], strict=True):
                self._update(account.decode(), raw)
            for account, use in zip(uses[::2], uses[1::2], strict=True):
                self._update_use(account.decode(), float(use))
            if found is not None:
                return operation.result(found)
        raise AccountStoreError(f"the account store {self._where}: other gateways kept changing it")

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

    async def _evaluate(
        self, connection: BaseConnection, script: str, keys: Sequence[str], argument: bytes
    ) -> Any:
        """Run a script, and return what it returns."""
        names = [_PREFIX + key for key in keys]
        sent: list[int | str | bytes] = [len(names), *names, argument, *self._settings]
        try:
            return await connection.create_request(b"EVALSHA", _digest(script), *sent)
        except NoScriptError:
            # The server has restarted, or its scripts were flushed. EVAL stores the script again.
            return await connection.create_request(b"EVAL", script, *sent)

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
                connection.send_command(b"SUBSCRIBE", _CHANNEL)
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
        found: Any = await connection.create_request(b"HGETALL", _PREFIX + "health")
        used: Any = await connection.create_request(b"HGETALL", _PREFIX + "used")
        lost = [(name, "", raw.decode()) for name, raw in self._raw.items() if name.encode() not in found]
        for account, raw in found.items():
            self._update(account.decode(), raw)
        for account, use in used.items():
            self._update_use(account.decode(), float(use))
        if lost:
            await self._evaluate(connection, CHANGE, ["health"], msgspec.json.encode(lost))


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


@cache
def _digest(script: str) -> str:
    return hashlib.sha1(script.encode(), usedforsecurity=False).hexdigest()


def _reason(error: BaseException) -> str:
    """Return the message of the innermost cause."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return str(error) or type(error).__name__
