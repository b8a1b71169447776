"""The clock of the running event loop, for what reads it at each event or several times for a request.

And the form of times in texts.
"""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime

import anyio


def event_loop_clock() -> Callable[[], float]:
    """Return what anyio.current_time() calls, which finds the event loop each time: nine tenths of its cost."""
    if anyio.get_cancelled_exc_class() is asyncio.CancelledError:
        return asyncio.get_running_loop().time
    import trio  # not at the top, because asyncio does not need it

    return trio.current_time


def utc_text(when: datetime) -> str:
    """Return a time to the second in RFC 3339, in UTC."""
    return f"{when.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"
