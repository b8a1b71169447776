"""Call functions at their times: by asyncio's timers; trio has none, so `trio_timers` has them there.

A cancel scope with a deadline takes a KiB on asyncio and 30 us on trio, and a task that waits in it four KiB more.
"""

from asyncio import AbstractEventLoop
from collections.abc import Callable
from contextlib import suppress
from contextvars import Context
from functools import lru_cache, partial
from typing import Protocol, TypeAlias

from dragoman_server.platform.changes import loop_of_task


class Timer(Protocol):
    """A function that waits for its time."""

    def cancel(self) -> None:
        """Do not call it, if it was not called yet."""


# Call a function at this time of event_loop_clock(). It may not wait, nor raise.
CallAt: TypeAlias = Callable[[float, Callable[[], object]], Timer]


def event_loop_timers() -> CallAt:
    """Return how to call functions later in the event loop of the running task."""
    loop = loop_of_task()
    if loop is not None:
        return _timers_of(loop)
    # Not at the top, because asyncio does not need trio's import.
    from dragoman_server.platform.trio_timers import timers_of_loop

    return timers_of_loop().call_at


@lru_cache(maxsize=1)  # because each open stream would have one
def _timers_of(loop: AbstractEventLoop) -> CallAt:
    """Return how to call functions in a context in which anyio knows that it is on asyncio.

    A timer has no task to ask for that.
    """
    context = Context()
    with suppress(ImportError):  # then anyio knows it anyway
        import sniffio

        context.run(sniffio.current_async_library_cvar.set, "asyncio")
    return partial(loop.call_at, context=context)
