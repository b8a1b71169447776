"""The stream of one request, on its way to its client: what waits in its outbox, its writer, and its heartbeats.

The upstream's reader sends its beginning and its end. In between it has a writer, a task of the request's group, while
there is something that its client does not take at once. A heartbeat is another one, which a timer starts after a
silence.
"""

from typing import Protocol

import anyio
from anyio.abc import TaskGroup

from dragoman import ErrorKind, Keepalive, Outcome, ResponseMachine, WireError
from dragoman_server.platform.cancellation import return_if_cancelled
from dragoman_server.platform.off_loop import INLINE_BYTES
from dragoman_server.platform.timers import Timer, event_loop_timers
from dragoman_server.proxying.client_request import ClientRequest
from dragoman_server.proxying.outbox import Outbox

_STOPPED = WireError(ErrorKind.OVERLOADED, "the gateway is stopping: the response is cut here")


class StreamSource(Protocol):
    """What a stream is made of."""

    @property
    def translating(self) -> anyio.Event | None:
        """Set when the thread ends that makes the next bytes, None while none does."""

    def begin_stream(self) -> tuple[int, list[tuple[bytes, bytes]]]:
        """Return the status and the headers of the response, which begins now."""

    def heartbeat(self) -> bytes:
        """Return what is sent in a silence, b"" if nothing can be."""


class ClientStream:
    """One stream. Call close() of its outbox when nothing is put any more, sent() then, and stop() in any case.

    Args:
        tasks: the group of the request.
        keepalive: the silence after which a heartbeat is due.

    Attributes:
        outbox: What is not sent yet. Code that takes bytes from a machine must put them here before its next await: so
            they stay in order.
        sent_at: When the client got something the last time.
        head_sent, end_sent: The head, and the end, of the response has been handed to the server.
    """

    __slots__ = (
        *("_keepalive", "_request", "_source", "_tasks", "_timer", "_call_at"),
        *("end_sent", "head_sent", "outbox", "sent_at"),
    )

    def __init__(
        self, source: StreamSource, request: ClientRequest, tasks: TaskGroup, keepalive: Keepalive
    ) -> None:
        self.outbox = Outbox(request.response)
        self.end_sent = self.head_sent = False
        self._source = source
        self._request = request
        self._tasks = tasks
        self._call_at = event_loop_timers()
        self._keepalive = keepalive
        self.sent_at = request.time()
        self._timer: Timer | None = None
        self._set_timer()

    def start_writer(self) -> None:
        """Let a writer send what waits, if there is none."""
        if self.outbox.wants_writer():
            self._tasks.start_soon(return_if_cancelled, self._write, name="write")

    async def send(self) -> None:
        """Send what waits, if there is no writer: instead of one, where nothing else is to be done before."""
        if self.outbox.wants_writer():
            await self._write()

    def fail(self, machine: ResponseMachine) -> None:
        """Send an error to a client that takes it at once: nothing waits for a stream that is cut."""
        # The end of one that is complete waits until it is stored; no connection takes a large one at once.
        if machine.outcome is Outcome.OPEN and machine.held_bytes <= INLINE_BYTES:
            machine.fail(_STOPPED)
            self.outbox.put(machine.data_to_send())

    def stop(self) -> None:
        """Send no heartbeats any more."""
        if self._timer is not None:
            self._timer.cancel()

    async def _write(self) -> None:
        """Send what is in the outbox: nothing else writes meanwhile."""
        response = self._request.response
        while (chunk := self.outbox.take()) is not None:
            if not self.head_sent:
                self.head_sent = True
                await response.start(*self._source.begin_stream())
            self.end_sent = chunk.last
            await (response.end if chunk.last else response.write)(chunk.data)
            self.sent_at = self._request.time()

    def _set_timer(self) -> None:
        if (deadline := self._keepalive.next_deadline()) is not None:
            self._timer = self._call_at(deadline, self._time_is_up)

    def _time_is_up(self) -> None:
        """Send a heartbeat, if nothing was sent since the timer was set."""
        # What is not sent yet is for a client that does not read.
        now = self._request.time()
        self._keepalive.sent(now if self.outbox.unsent else self.sent_at)
        if self._keepalive.due(now):
            self._tasks.start_soon(return_if_cancelled, self._send_heartbeat, name="heartbeat")
        else:
            self._set_timer()

    async def _send_heartbeat(self) -> None:
        while (translating := self._source.translating) is not None:
            await translating.wait()
        if self.outbox.closed or not (heartbeat := self._source.heartbeat()):
            return  # nor later
        if not self.outbox.put(heartbeat) and self.outbox.wants_writer():
            await self._write()
        if not self.outbox.closed:
            self._keepalive.sent(self._request.time())
            self._set_timer()
