"""A connected byte stream, and how to get one on either event loop.

anyio's stream pauses and resumes the socket around every read on asyncio, which is a sixth of the gateway's
CPU when tokens arrive one by one. So there are two small streams of our own behind one Protocol: the loop's
own protocol callbacks on asyncio (`_asyncio_stream`), readiness of the socket on trio (`_trio_stream`).
Connecting is common to both: resolve, then race the addresses as https://www.rfc-editor.org/rfc/rfc8305
says.
"""

import asyncio
import itertools
import socket
import ssl
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

import anyio

__all__ = ["ByteStream", "open_byte_stream"]

# "Connection Attempt Delay ... recommended to be 250 milliseconds".
ATTEMPT_DELAY_S = 0.25

# Tokens leave in small writes, and must not wait for Nagle; a model may think for minutes in silence, in
# which time a NAT forgets the connection or the peer dies unseen, unless the kernel probes.
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


class ByteStream(Protocol):
    """One connected stream. One task reads at a time and one writes; timeouts are seconds, None is for
    ever.

    Both waits raise TimeoutError, or another OSError when the connection breaks, and both can be cancelled.
    """

    async def receive(self, timeout: float | None) -> bytes:
        """What has arrived, waiting until something has; b"" when the peer has closed."""

    async def send_all(self, data: bytes, timeout: float | None) -> None:
        """Hand all of `data` to the kernel."""

    def is_reusable(self) -> bool:
        """Whether an idle stream is still open and silent, as it must be between two exchanges."""

    def abort(self) -> None:
        """Close now. It waits for nothing, so cleanup needs no await; calling it again is harmless."""

    def raw_socket(self) -> "SocketLike":
        """The socket, to ask it for options and addresses."""


class SocketLike(Protocol):
    def getsockopt(self, level: int, optname: int, /) -> int: ...

    def setsockopt(self, level: int, optname: int, value: int, /) -> None: ...


_StartTls = Callable[[ssl.SSLContext, str], Awaitable[ByteStream]]


async def open_byte_stream(
    host: str, port: int, *, tls: ssl.SSLContext | None = None, server_hostname: str | None = None
) -> ByteStream:
    """Connect, and shake hands if `tls` is given. The caller sets the deadline with a cancel scope.

    Raises OSError: gaierror when the name is unknown, SSLError when the handshake fails.
    """
    if anyio.get_cancelled_exc_class() is asyncio.CancelledError:
        from ._asyncio_stream import AsyncioStream

        on_asyncio = await _race(host, port, AsyncioStream.connect)
        stream: ByteStream = on_asyncio
        start_tls: _StartTls = on_asyncio.start_tls
    else:
        # Not at the top: who runs on asyncio should not pay for trio's import.
        from ._trio_stream import TrioStream

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
    """The first address that answers wins; each next one starts after a delay or when one has failed."""
    addresses = _alternate_families(
        [
            (info[0], info[4][0])
            # As bytes, because the host is ASCII already and need not be a valid IDNA name ("my_host").
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
    """Keep the resolver's order within a family, and take the families in turn, its first choice first."""
    by_family: dict[socket.AddressFamily, list[tuple[socket.AddressFamily, str]]] = {}
    for entry in dict.fromkeys(addresses):
        by_family.setdefault(entry[0], []).append(entry)
    rounds = itertools.zip_longest(*by_family.values())
    return [entry for turn in rounds for entry in turn if entry is not None]
