"""Events, tasks, and the queue to an application, on anyio, with the interfaces that hypercorn's protocols use."""

import logging
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import anyio
import anyio.abc
from hypercorn.typing import ASGIReceiveEvent, ASGISendEvent
from starlette.types import ASGIApp

_log = logging.getLogger("dragoman.http")

# Bytes of a request's body that wait for the application. With more, the client is paused.
_MAX_WAITING = 256 * 1024


class ClearableEvent:
    """An event that can be cleared, as hypercorn uses it."""

    def __init__(self) -> None:
        self._event = anyio.Event()

    async def set(self) -> None:
        self._event.set()

    async def clear(self) -> None:
        # Only if it is set, because tasks may wait for it (hypercorn 0.18 trio/worker_context.py:47 never wakes
        # them).
        if self._event.is_set():
            self._event = anyio.Event()

    async def wait(self) -> None:
        await self._event.wait()

    def is_set(self) -> bool:
        return self._event.is_set()


class AppEvents:
    """A queue of ASGI events for one application, bounded by their bytes.

    Hypercorn's queue (0.18 asyncio/task_group.py:50, trio/task_group.py:56) is full after ten events, the disconnect
    among them, and stays full if the application ends without reading them: then the reader of the socket never
    returns.
    """

    def __init__(self) -> None:
        self._events: deque[ASGIReceiveEvent] = deque()
        self._bytes = 0
        self._closed = False
        self._disconnected = False
        self._changed: anyio.Event | None = None

    async def put(self, event: ASGIReceiveEvent) -> None:
        """Add an event, waiting while the queue is full. Nothing waits after a disconnect or close()."""
        if event["type"] in ("http.disconnect", "websocket.disconnect"):
            self._disconnected = True
        while self._bytes > _MAX_WAITING and not self._closed and not self._disconnected:
            await self._change()
        if not self._closed:
            self._events.append(event)
            self._bytes += _size(event)
            self._wake()

    async def get(self) -> ASGIReceiveEvent:
        """Wait for the next event. A disconnect stays in the queue, because ASGI returns it at each call."""
        while not self._events:
            await self._change()
        event = self._events[0]
        if event["type"] not in ("http.disconnect", "websocket.disconnect"):
            self._events.popleft()
            self._bytes -= _size(event)
            self._wake()
        return event

    def close(self) -> None:
        """Drop all events, now and later, because the application has ended."""
        self._closed = True
        self._events.clear()
        self._bytes = 0
        self._wake()

    async def _change(self) -> None:
        if self._changed is None:
            self._changed = anyio.Event()
        await self._changed.wait()

    def _wake(self) -> None:
        if self._changed is not None:
            self._changed.set()
            self._changed = None


def _size(event: ASGIReceiveEvent) -> int:
    if event["type"] == "http.request":
        return len(event["body"])
    if event["type"] == "websocket.receive":
        return len(event.get("bytes") or event.get("text") or b"")
    return 0


class ConnectionTaskGroup:
    """The tasks of one connection, as hypercorn's protocols start them."""

    def __init__(self, tasks: anyio.abc.TaskGroup) -> None:
        self._tasks = tasks

    async def spawn_app(
        self,
        app: ASGIApp,
        config: object,
        scope: Any,
        send: Callable[[ASGISendEvent | None], Awaitable[None]],
    ) -> Callable[[ASGIReceiveEvent], Awaitable[None]]:
        events = AppEvents()
        self._tasks.start_soon(_run_app, app, scope, events, send)
        return events.put

    def spawn(self, func: Callable[..., Coroutine[Any, Any, None]], *args: Any) -> None:
        self._tasks.start_soon(func, *args)


async def _run_app(
    app: ASGIApp, scope: Any, events: AppEvents, send: Callable[[ASGISendEvent | None], Awaitable[None]]
) -> None:
    try:
        await app(scope, events.get, send)  # type: ignore[arg-type]
    except Exception:
        # One line, as for any other request with an internal error; the client gets a 500 if the response has not
        # begun.
        _log.exception("the application failed")
    finally:
        events.close()
    # Not when the task is cancelled: then the connection ends.
    await send(None)
