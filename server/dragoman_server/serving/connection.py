"""One connection of a client: it reads for a protocol of hypercorn, writes for it, and ends when either side wants.

In place of hypercorn's two `tcp_server.py`, on our `ByteStream`. Whatever is raised inside of a connection ends this
connection and nothing else. All that a client is sent goes through `Connection._write`.
"""

import enum
import logging
import math
from dataclasses import dataclass, field
from typing import Any, Protocol

import anyio
import anyio.abc
import hypercorn
from hypercorn.events import Closed, Event, RawData, Updated
from starlette.types import ASGIApp

from .._byte_stream import ByteStream
from ..settings import ServerSettings
from ._limited_log import LimitedLog
from .http1 import HTTP1
from .http2 import HTTP2
from .refusals import Refusal, in_plain_text
from .tasks import TaskGroup, WorkerContext

__all__ = ["Connection", "HTTPProtocol", "Worker", "note_fault"]

# What a client of HTTP/2 sends first (RFC 9113, 3.4).
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

# Bytes given to the stream at once; the client must take them within `send_timeout_s`. A client that does not read
# costs as many bytes here (twice as many with TLS on asyncio, whose transport tells one write late), beside what the
# kernel's buffers hold, and what the protocol and the application keep.
WRITE_SIZE = 64 * 1024

# After our side has ended, what the client still sends is read and dropped for so long: closing a socket with unread
# bytes is a reset, which can take the end of the answer away from the client (RFC 9112, 9.6).
LINGER_S = 1.0
# The same where nothing was being said.
IDLE_LINGER_S = 0.1

_log = logging.getLogger("dragoman.http")
_faults = LimitedLog(_log, logging.ERROR)
_stalls = LimitedLog(_log, logging.WARNING)

Address = tuple[str, int]


class HTTPProtocol(Protocol):
    """What a connection wants of `HTTP1` and `HTTP2`."""

    async def initiate(self) -> None:
        """Comes once, first."""

    async def handle(self, event: Event) -> None:
        """RawData: bytes of the client. Closed: the connection has ended; comes once, last.

        Nothing is read while it runs. It must return soon, or the client's leaving is not seen.
        """

    async def timed_out(self) -> None:
        """The deadline of reading has passed. It may write; the connection ends after it."""

    async def stop(self) -> None:
        """The worker is being stopped. It may write. An idle connection ends after it."""


@dataclass(slots=True)
class Worker:
    """What the connections of one worker have in common.

    state: of the application's lifespan. refusal: answers what never becomes a request of the application.
    """

    app: ASGIApp
    config: hypercorn.Config
    settings: ServerSettings
    state: dict[str, Any]
    refusal: Refusal = in_plain_text
    context: WorkerContext = field(default_factory=WorkerContext)
    # All connections, and those without a request, which fell idle in this order.
    connections: "dict[Connection, None]" = field(default_factory=dict)
    idle: "dict[Connection, None]" = field(default_factory=dict)


class _End(enum.Enum):
    LEFT = enum.auto()  # the client has closed, or the connection broke
    TIMED_OUT = enum.auto()
    ENDED = enum.auto()  # we want no more of it


class Connection:
    """One connection. client, server: the addresses. tls: whether it is used."""

    def __init__(
        self, worker: Worker, stream: ByteStream, client: Address | None, server: Address | None, *, tls: bool
    ) -> None:
        self.worker = worker
        self.settings = worker.settings
        self.client = client
        self.server = server
        self.tls = tls
        self._stream = stream
        self._protocol: HTTPProtocol | None = None
        self._tasks: anyio.abc.TaskGroup
        # The scope around a wait for bytes, and nothing else: a write is never cut by it.
        self._reading: anyio.CancelScope | None = None
        self._deadline = math.inf
        self._ended = False  # nothing more is read
        self._closed = False  # nothing more is written
        self._linger_s = LINGER_S
        self._first = b""  # of the client, until it is known which protocol it speaks
        self._writing = anyio.Lock(fast_acquire=True)

    @property
    def protocol_arguments(self) -> tuple[Any, ...]:
        """What the constructors of hypercorn's protocols take."""
        worker = self.worker
        tasks = TaskGroup(self._tasks)
        context, state = worker.context, worker.state
        return worker.app, worker.config, context, tasks, state, self.tls, self.client, self.server, self.send

    # Called by the server.

    async def run(self) -> None:
        """Serve the client until either side ends. What goes wrong is one line in the log."""
        self.worker.connections[self] = None
        self._updated(idle=True)
        try:
            async with anyio.create_task_group() as self._tasks:
                await self._begin()
                await self._finish(await self._read())
        except BaseExceptionGroup as group:
            # hypercorn 0.18 trio/run.py:98: one connection's exception ends them all, and the process.
            ours, other = group.split(Exception)
            if ours is not None:
                note_fault(ours)
            if other is not None:
                raise other from None
        finally:
            self._closed = True
            self._protocol = None  # they refer to each other
            self._stream.abort()
            self.worker.idle.pop(self, None)
            del self.worker.connections[self]

    async def stop(self) -> None:
        """The worker takes no new requests. Ends the connection at once if it is idle. Raises nothing."""
        try:
            if self._protocol is not None:
                await self._protocol.stop()
        except Exception as error:
            note_fault(error)
            self._break()
        if self in self.worker.idle:
            self.end()

    # Called by the protocol.

    async def send(self, event: Event) -> None:
        """RawData: bytes for the client. Updated: whether a request is open. Closed: end()."""
        if isinstance(event, RawData):
            await self._write(event.data)
        elif isinstance(event, Updated):
            self._updated(event.idle)
        elif isinstance(event, Closed):
            self.end()

    def end(self) -> None:
        """Read no more. What is written by then still reaches the client."""
        if self in self.worker.idle:
            del self.worker.idle[self]
            self._linger_s = IDLE_LINGER_S
        self._ended = True
        if self._reading is not None:
            self._reading.cancel()

    def read_within(self, seconds: float | None) -> None:
        """Set the deadline of reading, from now, or take it away. When it passes: HTTPProtocol.timed_out().

        Updated(idle=True) sets it to the time that a connection may be idle, Updated(idle=False) takes it away.
        """
        self._deadline = math.inf if seconds is None else anyio.current_time() + seconds
        if self._reading is not None:
            self._reading.deadline = self._deadline

    def _updated(self, idle: bool) -> None:
        if not idle:
            self.worker.idle.pop(self, None)
            self.read_within(None)
        elif not self._ended:
            self.worker.idle[self] = None
            # hypercorn 0.18 asyncio/tcp_server.py:73, trio/tcp_server.py:96: a task that sleeps for as long, and
            # keeps the socket of a client that has left.
            self.read_within(self.worker.config.keep_alive_timeout)
            if self.worker.context.terminated.is_set():
                self.end()

    # Reading.

    async def _begin(self) -> None:
        """Choose the protocol, where that needs nothing from the client."""
        if self._stream.alpn_protocol() == "h2":
            await self._speak(HTTP2(self))
        elif self.tls or not self.settings.http2:
            await self._speak(HTTP1(self))

    async def _speak(self, protocol: HTTPProtocol) -> None:
        self._protocol = protocol
        await protocol.initiate()

    async def _read(self) -> _End:
        while not self._ended:
            data = b""
            # One scope for many waits; what is done in between cannot be cut by it.
            with anyio.CancelScope() as scope:
                while not self._ended:
                    if self._deadline != math.inf:
                        scope.deadline = self._deadline
                    self._reading = scope
                    try:
                        data = await self._stream.receive(None)
                    except OSError:
                        return _End.LEFT
                    finally:
                        self._reading = None
                    if scope.cancel_called:
                        break  # as the bytes came
                    if self._deadline != math.inf:
                        scope.deadline = math.inf
                    if not data:
                        return _End.LEFT
                    await self._received(data)
            if scope.cancelled_caught:
                return _End.ENDED if self._ended else _End.TIMED_OUT
            if scope.cancel_called:
                if not data:
                    return _End.LEFT
                await self._received(data)
        return _End.ENDED

    async def _received(self, data: bytes) -> None:
        if self._protocol is None:
            # Clear text: HTTP/2 with prior knowledge (RFC 9113, 3.3), which proxies speak to what is behind them. A
            # switch of its own would help nobody: it is the same HTTP/2 as with TLS.
            data = self._first = self._first + data
            if len(data) < len(_PREFACE) and _PREFACE.startswith(data):
                return
            await self._speak(HTTP2(self) if data.startswith(_PREFACE) else HTTP1(self))
        if self._protocol is not None:
            await self._protocol.handle(RawData(data))

    async def _finish(self, end: _End) -> None:
        self._ended = True
        if end is _End.LEFT:
            # The descriptor is given back now, whatever the tasks still do.
            self._closed = True
            self._stream.abort()
        if self._protocol is not None:
            if end is _End.TIMED_OUT:
                await self._protocol.timed_out()
            await self._protocol.handle(Closed())
        async with self._writing:  # after those who wait to write
            closed, self._closed = self._closed, True
        if not closed:
            await self._stream.end(self._linger_s)

    # Writing.

    async def _write(self, data: bytes) -> None:
        """Give all of it to the stream. Once the connection is closed, the bytes are dropped."""
        rest: bytes | memoryview = data
        if self._closed or len(data) > WRITE_SIZE or self._writing.locked():
            await self._writing.acquire()
        else:
            # Mostly the kernel takes it at once, and nothing has to wait.
            try:
                unsent = self._stream.send_now(data)
            except OSError:
                self._break()
                return
            if unsent is None:
                return
            rest = unsent
            self._writing.acquire_nowait()
        try:
            await self._write_in_turn(rest)
        finally:
            self._writing.release()

    async def _write_in_turn(self, data: bytes | memoryview) -> None:
        if self._closed:
            # Who writes without an end must let others run.
            await anyio.lowlevel.checkpoint()
            return
        timeout = self.settings.send_timeout_s
        try:
            for start in range(0, len(data) or 1, WRITE_SIZE):
                await self._stream.send_all(data[start : start + WRITE_SIZE], timeout)
        except TimeoutError:
            _stalls.log("a client took nothing for %g seconds; its requests are cancelled", timeout)
            self._break()
            self._tasks.cancel_scope.cancel()
        except OSError:
            self._break()
        except BaseException:
            # Cancelled with a part of the bytes sent: nothing may follow it. hypercorn 0.18 trio/tcp_server.py:86
            # shields the write instead, so that a client which does not read keeps its request for ever.
            self._break()
            raise

    def _break(self) -> None:
        self._closed = True
        self._stream.abort()
        self.end()


def note_fault(error: BaseException) -> None:
    """One line for what a connection has ended with: what and where, and not its text, which may quote the client."""
    cause, trace = error, error.__traceback__
    while isinstance(cause, BaseExceptionGroup):
        cause = cause.exceptions[0]
        trace = cause.__traceback__ or trace
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    where = "?" if trace is None else f"{trace.tb_frame.f_globals.get('__name__')}:{trace.tb_lineno}"
    _faults.log("a connection was ended by a fault of ours: %s in %s", type(cause).__name__, where)
    _log.debug("the fault of this connection", exc_info=error)
