"""Connect to a host, and open byte streams on sockets: those, and those that were accepted.

The name is resolved, then its addresses race as in https://www.rfc-editor.org/rfc/rfc8305. The code is common to both
event loops; it chooses the stream of the running one.
"""

import asyncio
import errno
import itertools
import os
import socket
import ssl
from collections.abc import Iterable

import anyio
import anyio.lowlevel

from dragoman_server.platform.cancellation import return_if_cancelled
from dragoman_server.streams.byte_stream import ByteStream
from dragoman_server.streams.resolve import Address, resolve

# "Connection Attempt Delay ... Recommended to be 250 milliseconds" -- RFC 8305, 8
ATTEMPT_DELAY_S = 0.25

# Errors of a socket that follow from this process and its machine, whoever the peer is. See also resolve().
EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EAGAIN)
# Those that say so of some addresses only: no free port, no route, IPv6 that is switched off.
_NO_WAY = (errno.EADDRNOTAVAIL, errno.ENETUNREACH, errno.ENETDOWN)

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


async def open_byte_stream(
    connected: socket.socket, tls: ssl.SSLContext | None = None, server_hostname: str | None = None
) -> ByteStream:
    """Make a stream of a connected socket, which belongs to the stream then.

    With `tls` there is a handshake, in which we are the server if server_hostname is None. Raises OSError if it fails;
    then the socket is closed.
    """
    try:
        if anyio.get_cancelled_exc_class() is asyncio.CancelledError:
            from dragoman_server.streams.asyncio_stream import AsyncioStream

            return await AsyncioStream.open(connected, tls, server_hostname)
        # Not at the top, because asyncio does not need trio's import.
        from dragoman_server.streams.trio_stream import TrioStream

        return await TrioStream.open(connected, tls, server_hostname)
    except BaseException:
        connected.close()
        raise


def load_client_certificate(context: ssl.SSLContext, file: str) -> None:
    """Have new connections show this certificate to servers that ask for one. Raises OSError, ssl.SSLError for one."""
    # Without a password, OpenSSL waits for that of an encrypted key on the terminal.
    context.load_cert_chain(file, password="")


async def connect(host: str, port: int) -> socket.socket:
    """Return the first connection that is established. Start the next attempt after a delay, or when one has failed.

    The caller sets the deadline with a cancel scope. Raises OSError, gaierror if the name is unknown.
    """
    known = await resolve(host)
    addresses = _alternate_families(known)
    if len(addresses) == 1:
        family, address = addresses[0]
        return await _connect(family, address, port)

    connected: list[socket.socket] = []
    errors: list[OSError] = []

    async def attempt(family: socket.AddressFamily, address: str, failed: anyio.Event) -> None:
        try:
            connected.append(await _connect(family, address, port))
        except OSError as error:
            errors.append(error.with_traceback(None))  # whose frames have the list: a reference cycle
            failed.set()
        else:
            # Those before it do not respond, so the next connections begin with it, until the name is looked up again.
            known.remove((family, address))
            known.insert(0, (family, address))
            tasks.cancel_scope.cancel()

    try:
        async with anyio.create_task_group() as tasks:
            for family, address in addresses:
                failed = anyio.Event()
                tasks.start_soon(return_if_cancelled, attempt, family, address, failed)
                with anyio.move_on_after(ATTEMPT_DELAY_S):
                    await failed.wait()
        await anyio.lowlevel.checkpoint_if_cancelled()  # see return_if_cancelled()
        if not connected:
            errors[:] = [cause_of(errors)]
            raise errors.pop()  # not by a name, for the same reason
        return connected.pop(0)
    finally:
        for late in connected:
            late.close()


def cause_of(errors: Iterable[OSError]) -> OSError:
    """Return the error for a host, of those for its addresses; see is_of_machine()."""
    order = sorted(errors, key=lambda error: (error.errno not in EXHAUSTED, error.errno in _NO_WAY))
    return order[0] if order else OSError("the name has no address")


def is_of_machine(error: OSError) -> bool:
    """True if this machine could not try to connect, so that the host is not to blame."""
    return error.errno in EXHAUSTED or error.errno in _NO_WAY


async def _connect(family: socket.AddressFamily, address: str, port: int) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        for level, option, value in _SOCKET_OPTIONS:
            sock.setsockopt(level, option, value)
        await anyio.lowlevel.checkpoint()
        failure = sock.connect_ex((address, port))
        if failure in (errno.EINPROGRESS, errno.EWOULDBLOCK):
            await anyio.wait_writable(sock)
            failure = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if failure:
            raise OSError(failure, os.strerror(failure))
    except BaseException:
        sock.close()
        raise
    return sock


def _alternate_families(addresses: list[Address]) -> list[Address]:
    """Take the families in turn, the resolver's first one first, and keep its order within each."""
    by_family: dict[socket.AddressFamily, list[Address]] = {}
    for entry in dict.fromkeys(addresses):
        by_family.setdefault(entry[0], []).append(entry)
    rounds = itertools.zip_longest(*by_family.values())
    return [entry for turn in rounds for entry in turn if entry is not None]
