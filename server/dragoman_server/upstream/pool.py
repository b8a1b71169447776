"""Connections kept for reuse, and a limit on how many there are.

A lease is the right to one connection; it is taken before connecting and released after the response. Releasing is a
plain function, so cleanup needs no await, and no cancellation can interrupt it. Leases and idle connections together
never exceed the limit: an idle connection to another origin is closed for a new one.

There is no background task: connections that have been idle for too long are dropped whenever a lease is taken or
released, and one that the server has closed when it is next considered for reuse.
"""

from collections import deque
from dataclasses import dataclass
from typing import NamedTuple

import anyio

from dragoman_server.streams.byte_stream import ByteStream


@dataclass(frozen=True, slots=True)
class PoolLimits:
    """Limits.

    connections: busy and idle ones; by default as many as clients may have.
    idle_s: seconds for which an idle one stays usable.
    """

    connections: int = 10_000
    idle_connections: int = 100
    idle_s: float = 30.0


class Origin(NamedTuple):
    """The values that two requests must share to use one connection."""

    scheme: str
    host: str
    port: int


class _Idle(NamedTuple):
    origin: Origin
    stream: ByteStream
    expires_at: float


class ConnectionLease:
    """One slot of the pool, and the connection in it, if there is one yet. It ends with release()."""

    __slots__ = ("_origin", "_pool", "released", "stream")

    def __init__(self, pool: "ConnectionPool", origin: Origin) -> None:
        self._pool = pool
        self._origin = origin
        self.released = False
        self.stream: ByteStream | None = None

    def reuse(self) -> ByteStream | None:
        """Return the youngest usable idle connection to the origin, if there is one."""
        self.stream = self._pool._take_idle(self._origin)
        return self.stream

    def release(self, *, keep: bool) -> None:
        """Return the slot to the pool. keep: the connection becomes idle, else it is closed. Later calls do nothing."""
        if not self.released:
            self.released = True
            stream, self.stream = self.stream, None
            self._pool._give_back(self._origin, stream, keep=keep)


class ConnectionPool:
    """Connections to all origins. It belongs to one event loop: create it inside of that."""

    def __init__(self, limits: PoolLimits) -> None:
        self._limits = limits
        self._slots = anyio.Semaphore(limits.connections, fast_acquire=True)
        self._idle: deque[_Idle] = deque()  # oldest first
        self._closed = False
        self.busy = 0

    @property
    def idle(self) -> int:
        return len(self._idle)

    async def lease(self, origin: Origin, timeout: float | None) -> ConnectionLease:
        """Wait up to `timeout` seconds for a slot. Raises TimeoutError."""
        if self._closed:
            raise RuntimeError("the connection pool is closed")
        try:
            self._slots.acquire_nowait()  # a scope for the timeout costs more than the rest of a lease
        except anyio.WouldBlock:
            with anyio.fail_after(timeout):
                await self._slots.acquire()
        self.busy += 1
        return ConnectionLease(self, origin)

    def close(self) -> None:
        """Close idle connections now, and busy ones when their leases end."""
        self._closed = True
        while self._idle:
            self._idle.popleft().stream.abort()

    def drop_idle(self, origin: Origin) -> None:
        """Close all idle connections to the origin."""
        for entry in [entry for entry in self._idle if entry.origin == origin]:
            self._idle.remove(entry)
            entry.stream.abort()

    def _take_idle(self, origin: Origin) -> ByteStream | None:
        self._drop_expired()
        for entry in reversed(list(self._idle)):
            if entry.origin == origin:
                self._idle.remove(entry)
                if entry.stream.is_reusable():
                    return entry.stream
                entry.stream.abort()
        if self.busy + len(self._idle) > self._limits.connections:
            self._idle.popleft().stream.abort()
        return None

    def _give_back(self, origin: Origin, stream: ByteStream | None, *, keep: bool) -> None:
        if stream is not None:
            if keep and not self._closed:
                self._idle.append(_Idle(origin, stream, anyio.current_time() + self._limits.idle_s))
            else:
                stream.abort()
        self._drop_expired()
        if len(self._idle) > self._limits.idle_connections:
            self._idle.popleft().stream.abort()
        self.busy -= 1
        self._slots.release()

    def _drop_expired(self) -> None:
        now = anyio.current_time()
        while self._idle and self._idle[0].expires_at <= now:
            self._idle.popleft().stream.abort()
