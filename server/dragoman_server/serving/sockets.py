"""Bind the listening socket, and report that it serves. What keeps a server from starting is a StartupError."""

import errno
import os
import socket
from contextlib import suppress
from typing import Self

import msgspec
from msgspec.structs import replace

from dragoman_server.settings import ServerSettings
from dragoman_server.settings.values import is_loopback

# Connections that wait to be accepted. The kernel limits this to net.core.somaxconn.
BACKLOG = 1024

# Bytes of a response that the kernel buffers before the network takes them. Its default is some 4 MB: a client that
# does not read costs as much memory, and one that is only slow seems to read nothing for minutes.
_MAX_UNSENT = 128 * 1024


# What to do about an error of bind(), by its number.
_ADVICE = {
    errno.EACCES: "; choose a port from 1024 on, or let the service manager pass the right to bind this one",
    errno.EADDRNOTAVAIL: "; choose an address of this machine: 127.0.0.1, or 0.0.0.0 for all of them",
}

# The loopback addresses at which clients of this machine reach a server that is bound to all addresses.
_LOOPBACK = {"0.0.0.0": "127.0.0.1", "::": "::1"}


class StartupError(Exception):
    """The server cannot start. The text is one line for the user."""


class BoundAddress(msgspec.Struct, frozen=True):
    """The address that the server has bound; an argument of `on_ready`."""

    scheme: str
    host: str
    port: int
    backend: str

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"

    @property
    def local_url(self) -> str:
        """The URL for clients on this machine, also if the server is bound to all addresses."""
        return replace(self, host=_LOOPBACK.get(self.host, self.host)).url

    @classmethod
    def of(cls, server: ServerSettings, host: str, port: int) -> Self:
        """Return the address at which a server with these settings is bound."""
        return cls("https" if server.tls else "http", host, port, server.backend)


class AddressInUse(StartupError):
    """Another socket has the address."""

    def __init__(self, message: str, address: BoundAddress) -> None:
        super().__init__(message)
        self.address = address


def bind(server: ServerSettings) -> socket.socket:
    """Return the socket. It listens already, so that a second server cannot bind the port.

    Raises StartupError.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            server.host, server.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        if is_loopback(server.host) and not is_loopback(str(address[0])):
            # Because of the name, the configuration was accepted without client keys.
            raise StartupError(
                f"cannot listen on {server.host}: it resolves to {address[0]}, which is not a loopback address; "
                "use 127.0.0.1"
            )
        listener = socket.socket(family, kind, protocol)
    except (OSError, UnicodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not a host name"
        raise StartupError(f"cannot listen on {server.host}: {reason}") from None
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Accepted sockets inherit these options on Linux. A token must not wait for the next one.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if hasattr(socket, "TCP_NOTSENT_LOWAT"):
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, _MAX_UNSENT)
        listener.bind(address)
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        message = f"cannot listen on {server.host} port {server.port}: {error.strerror}"
        if error.errno == errno.EADDRINUSE:
            address_in_use = BoundAddress.of(server, str(address[0]), server.port)
            raise AddressInUse(message, address_in_use) from None
        raise StartupError(message + _ADVICE.get(error.errno or 0, "")) from None
    listener.setblocking(False)
    return listener


def notify_service_manager(state: str) -> None:
    """Send a state to systemd if that has started this process and waits for one (Type=notify). See sd_notify(3)."""
    address = os.environ.get("NOTIFY_SOCKET")
    if address:
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
            # An @ stands for the zero byte before a name in Linux's abstract namespace.
            manager.sendto(state.encode(), f"\0{address[1:]}" if address.startswith("@") else address)
