"""From a host's name to its addresses, so that a name server that is silent delays its own names only.

The system's resolver blocks a thread, for minutes if a name server does not respond, and cannot be cancelled. So a name
has at most one thread, whoever waits for it and however many of them leave, and no pool of threads that others need. A
literal address needs none.

While no name server answers, a name has the addresses that it had last: https://www.rfc-editor.org/rfc/rfc8767.
"""

import contextlib
import errno
import ipaddress
import math
import socket
import threading
from typing import NamedTuple, TypeAlias

import anyio
import anyio.from_thread
import anyio.lowlevel

Address: TypeAlias = tuple[socket.AddressFamily, str]

# Seconds for which addresses are kept. Shorter than any TTL that matters, long enough for a burst of connections.
KEPT_S = 10.0
# Seconds for which they are used while no name server answers: a plain connection does not notice that another host has
# the address by now.
STALE_S = 3600.0
# Seconds after the start of a look-up for which an answer is waited for where there are such addresses: callers that
# wait for less time find them, too, once these are over. "The suggested value is 1.8 seconds" -- RFC 8767, 5
PATIENCE_S = 1.8
# Names that are looked up at a time, a thread each. A gateway has fewer upstreams, proxies included.
MAX_LOOKUPS = 128
# Names whose addresses are kept, the oldest go first.
MAX_KEPT = 1024
# Errors of the resolver that say nothing about the name: no answer, one of failure (SERVFAIL, REFUSED), no memory.
_UNANSWERED = (socket.EAI_AGAIN, socket.EAI_FAIL, socket.EAI_MEMORY)


class _Lookup:
    """One look-up, for all who wait for it."""

    def __init__(self) -> None:
        self.started = anyio.current_time()
        self.done = anyio.Event()
        self.addresses: list[Address] = []
        self.error: OSError | None = None

    @property
    def is_answered(self) -> bool:
        """True if a name server has said which addresses there are, or that there is none."""
        if not self.done.is_set():
            return False  # the thread may still change the error
        error = self.error
        return error is None or (isinstance(error, socket.gaierror) and error.errno not in _UNANSWERED)


class _Resolved(NamedTuple):
    addresses: list[Address]
    found_at: float
    until: float  # then the name is looked up again


_NOTHING = _Resolved([], -math.inf, -math.inf)


class _Names:
    """The resolved names of one event loop."""

    def __init__(self) -> None:
        self.running: dict[bytes, _Lookup] = {}
        self.kept: dict[bytes, _Resolved] = {}  # in the order of the look-ups


_names: anyio.lowlevel.RunVar[_Names] = anyio.lowlevel.RunVar("dragoman_names")


async def resolve(host: str) -> list[Address]:
    """Return the addresses of a host, those that the resolver prefers first.

    The list is the one that is kept: a caller may put first what works.

    Raises OSError, gaierror if the name is unknown. The caller sets the deadline with a cancel scope.
    """
    with contextlib.suppress(ValueError):
        literal = ipaddress.ip_address(host)
        return [(socket.AF_INET6 if literal.version == 6 else socket.AF_INET, host)]
    names = _names.get(None)
    if names is None:
        _names.set(names := _Names())
    # As bytes, because the host is ASCII and need not be a valid IDNA name ("my_host").
    name = host.encode()
    kept, now = names.kept.get(name, _NOTHING), anyio.current_time()
    if now < kept.until:
        return kept.addresses
    is_usable = now < kept.found_at + STALE_S
    lookup = names.running.get(name)
    if lookup is None:
        try:
            lookup = _start(name, names)
        except OSError:  # too many look-ups, of names that do not respond either, or threads
            if is_usable:
                return kept.addresses
            raise
    with anyio.CancelScope(deadline=lookup.started + PATIENCE_S if is_usable else math.inf):
        await lookup.done.wait()
    if is_usable and not lookup.is_answered:
        names.kept[name] = kept._replace(until=anyio.current_time() + KEPT_S)
        return kept.addresses
    if lookup.error is not None:
        # Another one for each, because a traceback belongs to its request.
        raise type(lookup.error)(*lookup.error.args)
    return lookup.addresses


def _start(name: bytes, names: _Names) -> _Lookup:
    if len(names.running) >= MAX_LOOKUPS:
        raise OSError(errno.EAGAIN, "too many names are being looked up: do the name servers respond?")
    lookup = _Lookup()
    token = anyio.lowlevel.current_token()

    def finish() -> None:
        del names.running[name]
        lookup.done.set()
        if lookup.is_answered:
            names.kept.pop(name, None)
        if lookup.error is None:
            now = anyio.current_time()
            names.kept[name] = _Resolved(lookup.addresses, now, now + KEPT_S)
            if len(names.kept) > MAX_KEPT:
                del names.kept[next(iter(names.kept))]

    def look_up() -> None:
        try:
            found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
            lookup.addresses = [(family, str(address[0])) for family, _, _, _, address in found]
        except OSError as error:
            lookup.error = error
            try:
                socket.socket().close()
            except OSError as shortage:  # of descriptors: glibc says then that the name is unknown
                lookup.error = shortage
        except ValueError as error:  # no name at all
            lookup.error = socket.gaierror(socket.EAI_NONAME, str(error))
        with contextlib.suppress(RuntimeError):  # the event loop has ended meanwhile
            anyio.from_thread.run_sync(finish, token=token)

    # A daemon, because a process that stops must not wait for a name server.
    thread = threading.Thread(target=look_up, name="dragoman look-up", daemon=True)
    try:
        thread.start()
    except RuntimeError as error:
        raise OSError(errno.EAGAIN, str(error)) from None
    names.running[name] = lookup
    return lookup
