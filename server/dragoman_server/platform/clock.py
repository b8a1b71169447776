"""The clock of the running event loop, for what reads it at each event or several times for a request.

And the arguments that run an event loop, on trio with a faster clock; and the form of times in texts.
"""

import asyncio
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from dragoman_server.platform.changes import loop_of_task


def event_loop(backend: str) -> dict[str, Any]:
    """Return the arguments with which anyio.run() runs an event loop, by its name in the settings."""
    if backend != "trio":
        return {"backend": "asyncio", "backend_options": {"use_uvloop": backend == "uvloop"}}
    import trio

    class MonotonicClock(trio.abc.Clock):
        """Trio's own clock takes a call of Python each time, which is at each turn of its scheduler as well."""

        current_time = staticmethod(time.monotonic)

        def start_clock(self) -> None:
            """It runs already."""

        def deadline_to_sleep_time(self, deadline: float) -> float:
            return deadline - time.monotonic()

    return {"backend": "trio", "backend_options": {"clock": MonotonicClock()}}


def event_loop_clock() -> Callable[[], float]:
    """Return what anyio.current_time() calls, which finds the event loop each time: nine tenths of its cost."""
    loop = loop_of_task()
    if loop is not None:
        # asyncio's own method only calls the other.
        own = getattr(loop.time, "__func__", None) is asyncio.BaseEventLoop.time
        return time.monotonic if own else loop.time
    import trio  # not at the top, because asyncio does not need it

    return trio.lowlevel.current_clock().current_time


# Clients and upstreams may send any time, and dates end.
_LAST_TIME = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC).timestamp()


def utc_time(seconds: float) -> datetime:
    """Return a time in UTC. seconds: since the epoch."""
    return datetime.fromtimestamp(min(seconds, _LAST_TIME), UTC)


def utc_text(when: datetime | float) -> str:
    """Return a time to the second in RFC 3339, in UTC. when: a number is seconds since the epoch."""
    time = when.astimezone(UTC) if isinstance(when, datetime) else utc_time(when)
    return f"{time:%Y-%m-%dT%H:%M:%SZ}"
