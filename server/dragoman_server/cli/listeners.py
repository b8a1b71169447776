"""Find who listens on a port of this machine: its process, where there is /proc, and if it is a Dragoman."""

import os
import socket
import ssl
import sys
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from itertools import takewhile
from pathlib import Path

import anyio

from dragoman import RemoteProtocolError
from dragoman.jsontext import decode
from dragoman_server.hosts import UpstreamCall
from dragoman_server.serving.sockets import AddressInUse, BoundAddress, StartupError
from dragoman_server.settings.problems import printable
from dragoman_server.upstream.client import UpstreamClient
from dragoman_server.upstream.errors import UpstreamError
from dragoman_server.upstream.transport import Http1Transport, UpstreamTimeouts

# Seconds for a server of this machine to respond to GET /healthz, and the largest body that is read.
_HEALTHZ_S = 1.0
_MAX_HEALTHZ_BYTES = 4096

# Enough to name a program and its script.
_MAX_COMMAND_LENGTH = 80

# How many ports above the one in use are tried.
_PORTS_TRIED = 100

# TCP_LISTEN in include/net/tcp_states.h of Linux.
_LISTEN = "0A"


@dataclass(frozen=True, slots=True)
class Listener:
    """Who listens on an address.

    Attributes:
        port: The port of that address.
        process: Such as `process 4711 (ollama serve)`, or the user if no more may be read; "" if nothing is known.
        url: The gateway's URL, if it is a Dragoman.
    """

    port: int
    process: str = ""
    url: str | None = None

    def __str__(self) -> str:
        if self.url is None:
            return self.process or f"another process (`lsof -nP -iTCP:{self.port} -sTCP:LISTEN` shows it)"
        return f"a Dragoman that serves {self.url}" + (self.process and f", {self.process}")


def startup_text(error: StartupError) -> str:
    """Return the text of an error at the start. If the address is in use, it says who uses it, and what to do."""
    if not isinstance(error, AddressInUse):
        return str(error)
    listener = anyio.run(find_listener, error.address)
    use_it = "use it, or " if listener.url else ""
    return f"{error} by {listener}; {use_it}{port_advice(error.address)}"


def port_advice(address: BoundAddress) -> str:
    """Return what to do about an address that is in use."""
    other = free_port(address)
    return (
        f"start with --port {other}, or with --port 0 for any free port" if other else "start with --port 0"
    )


def free_port(address: BoundAddress) -> int | None:
    """Return the next higher port that can be bound, or None if a hundred of them are in use."""
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    for port in range(address.port + 1, min(address.port + _PORTS_TRIED, 65_535) + 1):
        with suppress(OSError), socket.socket(family) as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind((address.host, port))
            return port
    return None


async def find_listener(address: BoundAddress) -> Listener:
    """Return who listens there. Waits for _HEALTHZ_S at most."""
    url = address.local_url
    return Listener(address.port, _process_of(address), url if await is_dragoman(url) else None)


async def is_dragoman(url: str) -> bool:
    """True if a Dragoman serves this base URL. Waits for _HEALTHZ_S at most."""
    # The certificate of a gateway need not be valid for a loopback address, and nothing is sent to it.
    tls = ssl.create_default_context()
    tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    with anyio.move_on_after(_HEALTHZ_S), suppress(UpstreamError, RemoteProtocolError):
        # Not by a proxy of the environment.
        async with (
            UpstreamClient(transport=Http1Transport(tls=tls)) as client,
            client.open(
                UpstreamCall("GET", f"{url}/healthz"), timeouts=UpstreamTimeouts(*[_HEALTHZ_S] * 4)
            ) as response,
        ):
            body = decode(await response.read_all(_MAX_HEALTHZ_BYTES))
            return isinstance(body, dict) and body.get("name") == "dragoman"
    return False


# Processes, as Linux lists them below /proc.


def _process_of(address: BoundAddress) -> str:
    """Return the process that listens there, or its user, or "" where that cannot be found out."""
    found = _sockets(address)
    if not found:
        return ""
    uid, inode = found[0]
    for directory in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if any(os.readlink(file) == f"socket:[{inode}]" for file in (directory / "fd").iterdir()):
                return f"process {directory.name} ({_command(directory)})"
    import pwd  # not on Windows, which has no /proc either

    try:
        return f"a process of the user {pwd.getpwuid(uid).pw_name}"
    except KeyError:
        return f"a process of the user {uid}"


def _sockets(address: BoundAddress) -> list[tuple[int, str]]:
    """Return user and inode of the sockets that keep `address` from being bound."""
    found = []
    host = _without_mapping(ip_address(address.host))
    for table in ("tcp", "tcp6"):
        with suppress(OSError), open(f"/proc/net/{table}", encoding="ascii") as lines:
            for line in lines:
                local, _, state, _, _, _, uid, _, inode = line.split()[1:10]
                if state != _LISTEN or int(local.partition(":")[2], 16) != address.port:
                    continue
                other = _address(local.partition(":")[0])
                if other == host or other.is_unspecified or host.is_unspecified:
                    found.append((int(uid), inode))
    return found


def _address(text: str) -> IPv4Address | IPv6Address:
    """Parse an address of /proc/net/tcp: words of 32 bits in the machine's byte order."""
    words = [int(text[at : at + 8], 16).to_bytes(4, sys.byteorder) for at in range(0, len(text), 8)]
    return _without_mapping(ip_address(b"".join(words)))


def _without_mapping(address: IPv4Address | IPv6Address) -> IPv4Address | IPv6Address:
    return getattr(address, "ipv4_mapped", None) or address


def _command(directory: Path) -> str:
    """Return the command line up to its first option, because the options may contain keys."""
    words = (
        (directory / "cmdline").read_bytes()[: 4 * _MAX_COMMAND_LENGTH].decode(errors="replace").split("\0")
    )
    # `python -m module`
    kept = list(takewhile(lambda word: word == "-m" or not word.startswith("-"), filter(None, words)))
    if kept:
        kept[0] = Path(kept[0]).name
    command = printable(" ".join(kept), "?")
    return command[:_MAX_COMMAND_LENGTH] or (directory / "comm").read_text().strip()
