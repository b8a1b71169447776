"""Open byte streams: resolve the name, then race the addresses as in https://www.rfc-editor.org/rfc/rfc8305.

The code is common to both event loops; it chooses the stream of the running one.
"""

import asyncio
import itertools
import socket
import ssl
from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio

from dragoman_server.streams.byte_stream import ByteStream

# "Connection Attempt Delay ... Recommended to be 250 milliseconds" -- RFC 8305, 8
ATTEMPT_DELAY_S = 0.25

# Requests must not wait for Nagle's algorithm. A model may send nothing for minutes, and without probes of the kernel a
# NAT then drops the connection, or a dead peer is not noticed.
_SOCKET_OPTIONS = tuple(
    (level, getattr(socket, name), value)
    for level, name, value in (
        (socket.IPPROTO_TCP, "TCP_NODELAY", 1),
        (socket.SOL_SOCKET, "SO_KEEPALIVE", 1),
        (socket.IPPROTO_TCP, "TCP_KEEPIDLE", 60),
        (socket.IPPROTO_TCP, "TCP_KEEPINTVL", 30),
        (socket.IPPROTO_TCP, "TCP_KEEPCNT", 4),
    )
    if hasattr(socket, name)
)

_StartTls = Callable[[ssl.SSLContext, str], Awaitable[ByteStream]]


async def open_byte_stream(
    host: str, port: int, *, tls: ssl.SSLContext | None = None, server_hostname: str | None = None
) -> ByteStream:
    """Connect, with a TLS handshake if `tls` is not None. The caller sets the deadline with a cancel scope.

    Raises OSError: gaierror if the name is unknown, SSLError if the handshake fails.
    """
    if anyio.get_cancelled_exc_class() is asyncio.CancelledError:
        from dragoman_server.streams.asyncio_stream import AsyncioStream

        on_asyncio = await _race(host, port, AsyncioStream.connect)
        stream: ByteStream = on_asyncio
        start_tls: _StartTls = on_asyncio.start_tls
    else:
        # Not at the top, because asyncio does not need trio's import.
        from dragoman_server.streams.trio_stream import TrioStream

        on_trio = await _race(host, port, TrioStream.connect)
        stream = on_trio
        start_tls = on_trio.start_tls
    try:
        for level, option, value in _SOCKET_OPTIONS:
            stream.raw_socket().setsockopt(level, option, value)
        if tls is not None:
            stream = await start_tls(tls, server_hostname or host)
    except BaseException:
        stream.abort()
        raise
    return stream


_S = TypeVar("_S", bound=ByteStream)
_Connect = Callable[[socket.AddressFamily, str, int], Awaitable[_S]]


async def _race(host: str, port: int, connect: _Connect[_S]) -> _S:
    """Return the first connection that is established. Start the next attempt after a delay, or when one has failed."""
    addresses = _alternate_families(
        [
            (info[0], info[4][0])
            # As bytes, because the host is ASCII and need not be a valid IDNA name ("my_host").
            for info in await anyio.getaddrinfo(host.encode(), port, type=socket.SocketKind.SOCK_STREAM)
        ]
    )
    if len(addresses) == 1:
        family, address = addresses[0]
        return await connect(family, address, port)

    winner: _S | None = None
    errors: list[OSError] = []

    async def attempt(family: socket.AddressFamily, address: str, failed: anyio.Event) -> None:
        nonlocal winner
        try:
            stream = await connect(family, address, port)
        except OSError as error:
            errors.append(error)
            failed.set()
        else:
            if winner is None:
                winner = stream
                tasks.cancel_scope.cancel()
            else:
                stream.abort()

    try:
        async with anyio.create_task_group() as tasks:
            for family, address in addresses:
                failed = anyio.Event()
                tasks.start_soon(attempt, family, address, failed)
                with anyio.move_on_after(ATTEMPT_DELAY_S):
                    await failed.wait()
    except BaseException:
        if winner is not None:
            winner.abort()
        raise
    if winner is None:
        raise errors[0] if errors else OSError("the name has no address")
    return winner


def _alternate_families(
    addresses: list[tuple[socket.AddressFamily, str]],
) -> list[tuple[socket.AddressFamily, str]]:
    """Take the families in turn, the resolver's first one first, and keep its order within each."""
    by_family: dict[socket.AddressFamily, list[tuple[socket.AddressFamily, str]]] = {}
    for entry in dict.fromkeys(addresses):
        by_family.setdefault(entry[0], []).append(entry)
    rounds = itertools.zip_longest(*by_family.values())
    return [entry for turn in rounds for entry in turn if entry is not None]
