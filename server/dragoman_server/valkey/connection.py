"""A connection to a Valkey or Redis server, for a store on it. It is opened again whenever it breaks.

One task holds it open. Commands and the server's messages share it, so a break is noticed for both. While there is
none, every call fails immediately. What must be atomic is a script on the server.

The library's own pool is not used. A call that is cancelled while it connects takes a place of that pool with it, and
callers have short deadlines.

Needs the extra `dragoman[valkey]`.
"""

import hashlib
import logging
import random
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import cache
from typing import Any

import anyio
from anyio.abc import ByteStream, SocketAttribute, UNIXSocketStream
from coredis.connection import BaseConnection, TCPLocation, UnixDomainSocketLocation
from coredis.exceptions import NoScriptError, ResponseError

from dragoman_server.platform.task_group import BackgroundTaskGroup
from dragoman_server.valkey.url import ValkeyURL, parse_valkey_url

# Seconds to connect, authenticate, and get ready.
_CONNECT_S = 2.0
# Seconds for one response. Callers wait for less.
_RESPONSE_S = 1.0
# Seconds between pings, which detect a dead connection.
_PING_S = 2.0
# Between attempts to connect; each failure doubles it.
_PAUSE_S = 0.05
_MAX_PAUSE_S = 2.0

# Seconds by which the clocks of gateways may differ: what they store has times, of which each uses the others'.
_MAX_SKEW_S = 2.0

# Characters of an error from outside in the log.
_MAX_REASON = 500

_log = logging.getLogger("dragoman.server")

# Called with a connection before it is used, and with each message of the server.
Prepare = Callable[[BaseConnection], Awaitable[None]]
Receive = Callable[[Any], None]


class ValkeyConnection(BackgroundTaskGroup):
    """The connection of one store.

    Args:
        url: `valkey://[user:password@]host:port/db`, `valkeys://` with TLS, `unix:///path?db=0`; `redis` and `rediss`
            mean the same. Raises ValueError, without the URL in it, for anything else.
        what: the store's name for errors.
        error: raised instead of the errors of the library and of the network.
    """

    def __init__(self, url: str, what: str, error: type[Exception]) -> None:
        self._url = parse_valkey_url(url)
        self.name = f"{what} {self._url.where}"
        self._error = error
        self._connection: BaseConnection | None = None
        self._uses: anyio.CancelScope | None = None  # of the open connection
        self._failure = "not connected yet"

    async def evaluate(self, script: str, keys: Sequence[str], *arguments: int | str | bytes) -> Any:
        """Run a script, and return what it returns."""
        return await self._call(lambda connection: evaluate(connection, script, keys, *arguments))

    async def request(self, command: bytes, *arguments: int | str | bytes) -> Any:
        """Send a command, and return its response."""
        return await self._call(lambda connection: connection.create_request(command, *arguments))

    async def _call(self, call: Callable[[BaseConnection], Awaitable[Any]]) -> Any:
        try:
            if self._connection is None:
                raise ConnectionError(self._failure)
            return await call(self._connection)
        except Exception as error:  # whatever is wrong with the server
            raise self._error(f"{self.name}: {_reason(error)}") from error

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Read a response inside of this block. One that is not as expected ends the connection.

        Those behind it may be responses to other commands.
        """
        try:
            yield
        except self._error:
            raise
        except Exception as error:
            self._failure = f"a response cannot be read: {_reason(error)}"
            self._connection = None
            if self._uses is not None:
                self._uses.cancel()
            raise self._error(f"{self.name}: {self._failure}") from error

    @asynccontextmanager
    async def running(
        self, prepare: Prepare | None = None, receive: Receive | None = None
    ) -> AsyncIterator[None]:
        """Stay connected inside of this block, which begins when the first attempt has succeeded or failed."""
        tried = anyio.Event()
        try:
            async with super().running():
                self.tasks.start_soon(self._stay_connected, prepare, receive, tried)
                await tried.wait()  # bounded by _CONNECT_S
                yield
        finally:
            self._connection, self._failure = None, "no longer connected"

    async def _stay_connected(
        self, prepare: Prepare | None, receive: Receive | None, tried: anyio.Event
    ) -> None:
        pause = _PAUSE_S
        while True:
            try:
                await self._connected(prepare, receive, tried)
            except Exception as error:  # whatever is wrong with the server, the gateway works without it
                self._failure = _reason(error)
            tried.set()
            pause = _PAUSE_S if self._connection is not None else min(pause * 2, _MAX_PAUSE_S)
            self._connection = None
            await anyio.sleep(pause * random.uniform(0.5, 1.0))

    async def _connected(self, prepare: Prepare | None, receive: Receive | None, tried: anyio.Event) -> None:
        """Open a connection, and use it until it breaks."""
        with anyio.fail_after(_CONNECT_S):
            stream = await _connect(self._url)
        async with stream, anyio.create_task_group() as tasks:
            connection = _Connection(self._url, stream)
            with anyio.fail_after(_CONNECT_S):
                await tasks.start(connection.run)
                if prepare is not None:
                    await prepare(connection)
                await self._compare_clocks(connection)
            self._connection, self._uses = connection, tasks.cancel_scope
            tried.set()
            tasks.start_soon(_ping, connection)
            async for message in connection.push_messages:
                if receive is not None:
                    receive(message)

    async def _compare_clocks(self, connection: BaseConnection) -> None:
        """Warn if the clock of this machine is not that of the server, which is the same for all gateways."""
        with suppress(ResponseError):  # the user may not ask for it
            found: Any = await connection.create_request(b"TIME")
            ahead_s = time.time() - int(found[0]) - int(found[1]) / 1e6
            if abs(ahead_s) > _MAX_SKEW_S:
                order = "ahead of" if ahead_s > 0 else "behind"
                text = "%s: the clock of this machine is %.0f s %s that of the server; those of gateways must agree"
                _log.warning(text, self.name, abs(ahead_s), order)


async def evaluate(
    connection: BaseConnection, script: str, keys: Sequence[str], *arguments: int | str | bytes
) -> Any:
    """Run a script over this connection, and return what it returns."""
    sent: list[int | str | bytes] = [len(keys), *keys, *arguments]
    try:
        return await connection.create_request(b"EVALSHA", _digest(script), *sent)
    except NoScriptError:
        # The server has restarted, or its scripts were flushed. EVAL stores the script again.
        return await connection.create_request(b"EVAL", script, *sent)


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
        return f"store {self.location}"


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
    """Return the message of the innermost cause, cut where it is long."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return str(error)[:_MAX_REASON] or type(error).__name__
