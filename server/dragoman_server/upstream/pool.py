"""Connections kept for reuse, and a limit on how many there are.

A lease is the right to one connection; it is taken before connecting and released after the response. Releasing is a
plain function, so cleanup needs no await, and no cancellation can interrupt it. Leases and idle connections together
never exceed the limit: an idle connection to another origin is closed for a new one.

Connections that have been idle for too long are dropped by the task that runs close_expired(); they, and one that the
server has closed, at the latest when they are next considered for reuse. One that is always in use would lead to the
same address whatever becomes of its name, so it has a maximal age.
"""

from collections import OrderedDict, defaultdict
from collections.abc import Collection

import anyio
import msgspec

from dragoman_server.platform.changes import Changes, Flag
from dragoman_server.platform.clock import event_loop_clock
from dragoman_server.streams.byte_stream import ByteStream


class PoolLimits(msgspec.Struct, frozen=True):
    """Limits.

    Attributes:
        connections: Busy and idle ones; by default as many as clients may have.
        idle_s: Seconds for which an idle one stays usable.
        age_s: Seconds after its first response from which on one gets no further request.
    """

    connections: int = 10_000
    idle_connections: int = 100
    idle_s: float = 30.0
    age_s: float = 300.0


class Origin(msgspec.Struct, frozen=True):
    """The values that two requests must share to use one connection."""

    scheme: str
    host: str
    port: int


class _Idle(msgspec.Struct, frozen=True):
    of_origin: list[ByteStream]
    expires_at: float
    old_at: float


class ConnectionLease(msgspec.Struct, eq=False):
    """One slot of the pool, and the connection in it, if there is one yet. It ends with release()."""

    _pool: "ConnectionPool"
    _origin: Origin
    _idle: list[ByteStream]  # of the origin
    released: bool = False
    stream: ByteStream | None = None
    _old_at: float | None = None  # None for a new connection

    def reuse(self) -> ByteStream | None:
        """Return the youngest usable idle connection to the origin, if there is one."""
        pool, streams = self._pool, self._idle
        while streams:
            stream = streams.pop()
            idle, now = pool._idle.pop(stream), pool.time()
            if now < idle.expires_at and now < idle.old_at and stream.is_reusable():
                self.stream, self._old_at = stream, idle.old_at
                return stream
            stream.abort()
        if pool.busy + len(pool._idle) > pool._limits.connections:
            pool._drop_oldest()
        return None

    def release(self, *, keep: bool) -> None:
        """Return the slot to the pool. keep: the connection becomes idle, else it is closed. Later calls do nothing."""
        if self.released:
            return
        self.released = True
        pool, stream, self.stream = self._pool, self.stream, None
        if stream is not None:
            now, limits = pool.time(), pool._limits
            old_at = now + limits.age_s if self._old_at is None else self._old_at
            # The list is another one after drop_idle().
            is_current = not pool._closed and pool._idle_of.get(self._origin) is self._idle
            if keep and is_current and now < old_at:
                pool._idle[stream] = _Idle(self._idle, now + limits.idle_s, old_at)
                self._idle.append(stream)
                pool._idle_changes.note()
                if len(pool._idle) > limits.idle_connections:
                    pool._drop_oldest()
            else:
                stream.abort()
        pool._free_slot()


class ConnectionPool:
    """Connections to all origins. It belongs to one event loop: create it inside of that."""

    def __init__(self, limits: PoolLimits) -> None:
        self._limits = limits
        self.busy = 0  # leases
        self._waiting: OrderedDict[Flag, None] = OrderedDict()  # for a slot, in order
        # All idle connections, and each origin's; the oldest first.
        self._idle: OrderedDict[ByteStream, _Idle] = OrderedDict()
        self._idle_of: defaultdict[Origin, list[ByteStream]] = defaultdict(list)
        self._idle_changes = Changes()
        self._closed = False
        self.time = event_loop_clock()

    @property
    def idle(self) -> int:
        return len(self._idle)

    async def lease(self, origin: Origin, timeout: float | None) -> ConnectionLease:
        """Wait up to `timeout` seconds for a slot. Raises TimeoutError."""
        if self._closed:
            raise RuntimeError("the connection pool is closed")
        if self.busy < self._limits.connections:
            self.busy += 1  # a semaphore takes as long as the rest of a lease
        else:
            await self._wait_for_slot(timeout)
        return ConnectionLease(self, origin, self._idle_of[origin])

    async def _wait_for_slot(self, timeout: float | None) -> None:
        turn = Flag()
        self._waiting[turn] = None
        try:
            with anyio.fail_after(timeout):
                await turn.wait()
        except BaseException:
            if turn.is_set:
                self._free_slot()
            else:
                del self._waiting[turn]
            raise

    def _free_slot(self) -> None:
        """Pass a slot on to the one that has waited longest, or free it."""
        if self._waiting:
            self._waiting.popitem(last=False)[0].set()
        else:
            self.busy -= 1

    async def close_expired(self) -> None:
        """Close each idle connection when its time is over, until cancelled."""
        while True:
            while not self._idle:
                await self._idle_changes.wait()
            oldest = next(iter(self._idle.values()))
            await anyio.sleep(max(0.0, oldest.expires_at - self.time()))
            now = self.time()
            while self._idle and next(iter(self._idle.values())).expires_at <= now:
                self._drop_oldest()

    def close(self) -> None:
        """Close idle connections now, and busy ones when their leases end."""
        self._closed = True
        while self._idle:
            self._drop_oldest()

    def drop_idle(self, origin: Origin) -> None:
        """Close all idle connections to the origin now, and those in use when their leases end."""
        streams = self._idle_of.pop(origin, [])
        while streams:
            stream = streams.pop()
            del self._idle[stream]
            stream.abort()

    def keep_only(self, origins: Collection[Origin]) -> None:
        """Close all idle connections to other origins."""
        for origin in [origin for origin in self._idle_of if origin not in origins]:
            self.drop_idle(origin)

    def _drop_oldest(self) -> None:
        _, oldest = self._idle.popitem(last=False)
        oldest.of_origin.pop(0).abort()
