"""What is large is done in one of a few threads, and a caller that leaves is not kept."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import anyio
import anyio.lowlevel
import pytest
from virtual_time import REAL_BACKENDS, UVLOOP

from dragoman_server.platform.off_loop import INLINE_BYTES, MAX_THREADS, off_loop

# A thread knows nothing of virtual time.
pytestmark = [pytest.mark.anyio, pytest.mark.backends(*REAL_BACKENDS, UVLOOP)]

LARGE = INLINE_BYTES + 1
LIMIT_S = 60.0


class Work:
    """A call that ends when it may."""

    def __init__(self) -> None:
        self.may_end = threading.Event()
        self.began = self.ended = False

    def __call__(self) -> str:
        self.began = True
        assert self.may_end.wait(LIMIT_S)
        self.ended = True
        return "done"

    async def until(self, state: str) -> None:
        with anyio.fail_after(LIMIT_S):
            while not getattr(self, state):
                await anyio.lowlevel.checkpoint()


@contextmanager
def works(count: int) -> Iterator[list[Work]]:
    """Give calls that have ended when the block has: the threads are those of the process."""
    made = [Work() for _ in range(count)]
    try:
        yield made
    finally:
        for work in made:
            work.may_end.set()


async def thread_of(size: int) -> threading.Thread:
    return await off_loop(size, threading.current_thread)


async def test_only_what_is_large_leaves_the_loop() -> None:
    assert await thread_of(INLINE_BYTES) is threading.current_thread()
    assert await thread_of(LARGE) is not threading.current_thread()


async def test_arguments_results_and_errors_pass() -> None:
    assert await off_loop(LARGE, divmod, 7, 3) == (2, 1)
    with pytest.raises(ZeroDivisionError):
        await off_loop(LARGE, divmod, 7, 0)


async def test_the_loop_runs_meanwhile() -> None:
    with works(1) as [work]:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(off_loop, LARGE, work)
            await work.until("began")
            work.may_end.set()
    assert work.ended


async def test_abandoned_calls_keep_their_threads_and_the_next_ones_wait_in_order() -> None:
    with works(MAX_THREADS + 2) as all_works:
        running, (first, second) = all_works[:MAX_THREADS], all_works[MAX_THREADS:]
        async with anyio.create_task_group() as tasks:
            for work in running:
                tasks.start_soon(off_loop, LARGE, work)
                await work.until("began")
            tasks.cancel_scope.cancel()
        async with anyio.create_task_group() as tasks:
            gone = anyio.Event()

            async def leave() -> None:
                try:
                    await off_loop(LARGE, first)
                finally:
                    gone.set()

            left = tasks.start_soon(leave)
            tasks.start_soon(off_loop, LARGE, second)
            for _ in range(10):
                await anyio.lowlevel.checkpoint()
            assert not first.began
            assert not second.began
            left.cancel()
            await gone.wait()
            running[0].may_end.set()
            await second.until("began")
            second.may_end.set()
        assert not first.began
        assert not running[1].ended


async def test_what_others_use_is_not_abandoned() -> None:
    with works(1) as [work]:
        async with anyio.create_task_group() as tasks:

            async def call() -> None:
                try:
                    await off_loop(LARGE, work, abandon=False)
                finally:
                    assert work.ended

            tasks.start_soon(call)
            await work.until("began")
            tasks.cancel_scope.cancel()
            work.may_end.set()
