"""Run work on large data in a thread: the event loop serves all other requests meanwhile.

All work on bytes from outside is linear, and a small input is handled where it is, without a thread. One function
decides, by the size of the input. The threads are few, and an abandoned call keeps its thread until it ends, so clients
that leave cannot pile them up; further calls wait in order.

Calls that block, such as those of SQLite, are not for these two threads: in_threads() takes others.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from typing import Protocol, TypeVar

import anyio

from dragoman_server.platform.cancellation import Arguments

Result = TypeVar("Result")

# Inputs up to this size are handled on the loop. The slowest kind, small values in a request that is translated, takes
# 0.35 s of CPU for each MiB: 45 ms. Most requests of chats are smaller.
INLINE_BYTES = 128 * 1024

# Python runs one thread at a time, so more would not be faster. The second lets others pass one that takes seconds.
MAX_THREADS = 2


class OffLoop(Protocol):
    """off_loop(), or what calls it and ends the wait for another reason as well."""

    async def __call__(
        self, size: int, function: Callable[[*Arguments], Result], *arguments: *Arguments
    ) -> Result: ...


@cache
def _threads() -> ThreadPoolExecutor:
    # Made with the first large input, so after a fork of workers.
    return ThreadPoolExecutor(MAX_THREADS, "dragoman-large")


async def off_loop(
    size: int,
    function: Callable[[*Arguments], Result],
    *arguments: *Arguments,
    abandon: bool = True,
) -> Result:
    """Call the function, in a thread if its input has more than INLINE_BYTES, and return what it returns.

    A caller that is cancelled while it waits for a thread leaves immediately.

    Args:
        size: of the input, in bytes.
        function: uses nothing that the loop's thread changes meanwhile.
        abandon: a cancelled caller does not wait for the end of the call. False: it does, because others use what the
            function changes.
    """
    if size <= INLINE_BYTES:
        return function(*arguments)
    return await in_threads(_threads(), function, *arguments, abandon=abandon)


async def in_threads(
    threads: Executor,
    function: Callable[[*Arguments], Result],
    *arguments: *Arguments,
    abandon: bool = True,
) -> Result:
    """Call the function in one of these threads, and return what it returns. abandon: see off_loop()."""
    ended = anyio.Event()
    call_in_loop = calls_in_loop()

    def note_end(call: Future[Result]) -> None:
        with suppress(RuntimeError):  # the loop has ended, and nobody waits
            call_in_loop(ended.set)

    call = threads.submit(function, *arguments)
    call.add_done_callback(note_end)
    try:
        await ended.wait()
        return call.result()
    except anyio.get_cancelled_exc_class():
        if not call.cancel() and not abandon:
            with anyio.CancelScope(shield=True):
                await ended.wait()
        raise
    finally:
        del call  # a reference cycle: the traceback of its exception has this frame


def calls_in_loop() -> Callable[[Callable[[], object]], object]:
    """Return what lets another thread call a function in the running loop, without waiting for it."""
    if anyio.get_cancelled_exc_class() is asyncio.CancelledError:
        return asyncio.get_running_loop().call_soon_threadsafe
    import trio  # not at the top, because asyncio does not need it

    return trio.lowlevel.current_trio_token().run_sync_soon
