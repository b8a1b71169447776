"""Run the application for one request, and the queue of the events that it receives."""

import logging
from collections import deque
from collections.abc import Awaitable, Callable
from sys import getsizeof
from typing import Any, TypeAlias

import anyio
import anyio.abc
from anyio import TaskHandle
from starlette.types import ASGIApp, Message

from dragoman_server.platform.cancellation import RestOfTask
from dragoman_server.platform.changes import Changes, futures_of_task
from dragoman_server.platform.start_queue import StartQueue, StartTurn

_log = logging.getLogger("dragoman.http")

# Bytes of a request's body, or of messages, that wait for the application. With more, the client is paused.
_MAX_WAITING = 256 * 1024
# What a message of a WebSocket counts in addition to its content: at most 64 wait.
_MESSAGE = 4 * 1024

_DISCONNECTS = ("http.disconnect", "websocket.disconnect")

# Takes what the application sends; None when it has ended.
AppSend = Callable[[Message | None], Awaitable[None]]


class ClientLeft(ConnectionResetError):
    """Raised by `send` when the client has left. An application that does not catch it ends, and has not failed."""


class AppEvents(Changes):
    """A queue of ASGI events for one application, bounded by their bytes.

    Hypercorn's queue (0.18 asyncio/task_group.py:50, trio/task_group.py:56) is full after ten events, the disconnect
    among them, and stays full if the application ends without reading them: then the reader of the socket never
    returns.

    Args:
        invite: awaited once, before the application waits for the first event.

    Attributes:
        left: The application knows that the client has left.
        ended: The application has ended.
        task: It runs the application, from its start on.
        rest: Of that task, if the application has asked for it.
    """

    __slots__ = (
        *("_bytes", "_events", "_has_left", "_invite", "_last", "_on_disconnect"),
        *("ended", "left", "rest", "task"),
    )

    def __init__(self, invite: Callable[[], Awaitable[None]] | None = None) -> None:
        self._futures = None  # without a call of the base, because each request has one
        # A deque only while there are any: it takes 0.7 KiB, and open streams have none.
        self._events: deque[Message] | None = None
        self._last: Message | None = None  # the disconnect, behind them
        self._bytes = 0
        self.left = self.ended = self._has_left = False
        self._invite = invite
        self._on_disconnect: Callable[[], None] | None = None
        self.rest: RestOfTask | None = None
        self.task: TaskHandle[None]

    async def put(self, event: Message) -> None:
        """Add an event, waiting while the queue is full. After a disconnect or close() nothing waits or is added."""
        while not self.offer(event):
            await self.wait()

    def offer(self, event: Message) -> bool:
        """Do the same if that is possible without waiting, else return False."""
        kind = event["type"]
        if kind in _DISCONNECTS:
            self.end(event, has_left="error" not in event)  # else its body is broken, and it waits
        elif self._last is None and not self.ended:
            if self._bytes > _MAX_WAITING:
                return False
            self._bytes += len(event["body"]) if kind == "http.request" else _size(event)
            if self._events is None:
                self._events = deque()
            self._events.append(event)
            if self._futures is not None:
                self.note()
        return True

    def end(self, event: Message, *, has_left: bool) -> None:
        """Add a disconnect. has_left: the client has left, and the response is not complete."""
        self._last = self._last or event
        if self._futures is not None:
            self.note()
        if has_left and not self.ended:
            self.note_left()

    def note_left(self) -> bool:
        """Note that the client has left, also before events that wait. Return false if nothing is called for it."""
        self._has_left = True
        return self._on_disconnect is not None and self._call_on_disconnect()

    async def get(self) -> Message:
        """Wait for the next event. A disconnect stays in the queue, because ASGI returns it at each call."""
        while (event := self.get_now()) is None:
            invite, self._invite = self._invite, None
            await (self.wait() if invite is None else invite())
        return event

    def get_now(self) -> Message | None:
        """Return the next event if there is one."""
        events = self._events
        if events is None:
            if self._last is not None and not self.left:
                self.left = True
                self.note()
            return self._last
        event, is_full = events.popleft(), self._bytes > _MAX_WAITING
        self._events = events or None
        self._bytes -= len(event["body"]) if event["type"] == "http.request" else _size(event)
        if is_full:
            self.note()
        return event

    def on_disconnect(self, call: Callable[[], None] | None) -> bool:
        """See OnDisconnect."""
        self._on_disconnect = call
        return self._has_left and call is not None and self._call_on_disconnect()

    def rest_of_task(self) -> RestOfTask:
        """Return a scope for what the application does last for its request."""
        self.rest = RestOfTask(self.task)
        return self.rest

    def _call_on_disconnect(self) -> bool:
        call, self._on_disconnect = self._on_disconnect, None
        assert call is not None
        self.left = True
        self.note()
        try:
            call()
        except Exception:  # it must not end the connection, which may have other requests
            _log.exception("the application failed")
        return True

    async def responded(self) -> bool:
        """Wait until the application has ended, or knows that the client has left. Return false for the latter."""
        while not (self.left or self.ended):
            await self.wait()
        return not self.left

    def close(self) -> None:
        """Drop all events, now and later, because the application has ended."""
        self.ended = True
        self._events = None
        if self._futures is not None:
            self.note()


def _size(event: Message) -> int:
    """Return what a message of a WebSocket counts. A text has up to four bytes for each of its UTF-8."""
    return (
        _MESSAGE + getsizeof(event["text"] or event["bytes"]) if event["type"] == "websocket.receive" else 0
    )


# Seconds for the end of a response whose application was cancelled.
_LAST_S = 1.0

# An open request, which a stop cancels.
Request: TypeAlias = anyio.CancelScope | TaskHandle[None]

# What serves a request, its ASGI scope, what it receives, what takes what it sends, and its turn.
_Work: TypeAlias = tuple[ASGIApp, Any, AppEvents, AppSend, StartTurn | None]


class AppTasks:
    """The tasks that run applications for the requests of one connection.

    One that has ended its request waits for the next one, because a new task costs several times as much.

    Args:
        tasks: of the connection.
        requests: where all requests are.
        starts: in which they wait for their turn.
    """

    __slots__ = ("_changes", "_ended", "_new_future", "_next", "_requests", "_starts", "_tasks", "_waits")

    def __init__(self, tasks: anyio.abc.TaskGroup, requests: "set[Request]", starts: StartQueue) -> None:
        self._tasks = tasks
        self._requests = requests
        self._starts = starts
        self._waits = self._ended = False
        self._next: _Work | None = None
        self._changes, self._new_future = Changes(), futures_of_task()

    def start(self, app: ASGIApp, scope: Any, events: AppEvents, send: AppSend) -> None:
        """Run an application for a request, in its turn."""
        has_task = self._waits and self._next is None
        turn = self._starts.enter(self, self._changes if has_task else None)
        work = (app, scope, events, send, turn)
        if has_task:
            self._next = work
            if turn is None:
                self._changes.note()
        else:
            handle: list[TaskHandle[None]] = []
            handle.append(self._tasks.start_soon(self._run, work, handle, name="request"))

    def end(self) -> None:
        """Let no task wait any more."""
        self._ended = True
        self._changes.note()

    async def _run(self, work: _Work | None, handle: "list[TaskHandle[None]]") -> None:
        """Run applications, and send None when one has ended, until the task is cancelled. The task is its request."""
        task = handle.pop()
        is_new = True
        while work is not None:
            app, scope, events, send, turn = work
            work = running = None
            self._requests.add(task)
            events.task = task
            try:
                try:
                    if turn is not None and is_new:
                        await self._starts.wait(turn)
                finally:
                    self._starts.begin(turn)
                running = app(scope, events.get, send)
                del scope  # an application may need it no more, and a stream be open for hours
                await running
            except ClientLeft:
                pass
            except Exception:
                # One line, as for any other request with an internal error; the client gets a 500 if the response has
                # not begun.
                _log.exception("the application failed")
            except anyio.get_cancelled_exc_class():
                # Not raised again, see return_if_cancelled().
                with anyio.move_on_after(_LAST_S, shield=True):
                    await send(None)
                return
            finally:
                events.close()
                self._requests.discard(task)
            await send(None)
            if events.rest is not None and events.rest.cancel_called:
                return
            if not self._waits:
                self._waits, is_new = True, False
                del running, app, events, send
                try:
                    while self._next is None and not self._ended:
                        await self._changes.wait(self._new_future)
                except anyio.get_cancelled_exc_class():
                    if self._next is not None:  # the reader was at work when the connection was cancelled
                        self._starts.begin(self._next[-1])
                    raise
                finally:
                    self._waits = False
                    work, self._next = self._next, None
