"""Functions that are called at their times, by the timers of the event loop. Time is virtual."""

import asyncio

import anyio
import anyio.to_thread
import pytest
from virtual_time import UVLOOP, VIRTUAL_BACKENDS

from dragoman_server.platform.timers import AsyncioTimers, CallAt, Timers, event_loop_timers

pytestmark = [pytest.mark.anyio, pytest.mark.backends(*VIRTUAL_BACKENDS)]


async def test_functions_are_called_at_their_times() -> None:
    call_at, begun, called = event_loop_timers(), anyio.current_time(), list[tuple[str, float]]()

    def note(name: str) -> None:
        called.append((name, round(anyio.current_time() - begun, 3)))
        if name == "second":
            call_at(begun + 6, lambda: note("later"))

    call_at(begun + 3, lambda: note("second"))
    cancelled = call_at(begun + 2, lambda: note("cancelled"))
    await anyio.sleep(1)
    cancelled.cancel()
    call_at(begun + 2, lambda: note("first"))  # before what waits
    call_at(begun, lambda: note("late"))  # after what the event loop may have to read
    never = call_at(begun + 99, lambda: note("never"))
    await anyio.sleep(9)
    assert called == [("late", 1.001), ("first", 2), ("second", 3), ("later", 6)]
    cancelled.cancel()
    never.cancel()


async def test_a_function_that_fails_does_not_end_the_timers(caplog: pytest.LogCaptureFixture) -> None:
    call_at, called = event_loop_timers(), list[str]()
    call_at(anyio.current_time() + 1, lambda: called.append(called[1]))
    call_at(anyio.current_time() + 2, lambda: called.append("next"))
    await anyio.sleep(3)
    assert called == ["next"]
    assert "a timer failed" in caplog.text


async def test_an_event_loop_of_another_thread_has_other_timers() -> None:
    async def other() -> CallAt:
        return event_loop_timers()

    ours = event_loop_timers()
    assert await anyio.to_thread.run_sync(anyio.run, other) != ours
    assert event_loop_timers() == ours


class _Counting(AsyncioTimers):
    looks = 0

    def _call_due(self, now: float) -> None:
        self.looks += 1
        super()._call_due(now)


@pytest.mark.backends(UVLOOP)
async def test_the_event_loop_does_not_turn_until_the_time_of_a_timer_that_is_rounded_down() -> None:
    loop, last = asyncio.get_running_loop(), asyncio.Event()
    timers, begun = _Counting(loop), loop.time()
    for number in range(20):
        timers.call_at(begun + number * 0.0053, lambda: None)
    timers.call_at(begun + 0.1201, last.set)
    with anyio.fail_after(20):
        await last.wait()
    assert timers.looks <= 2 * 21


class _Waiting(Timers):
    def _wait(self) -> None:
        """Nothing is called."""


async def test_cancelled_timers_are_not_kept_till_their_times() -> None:
    timers, called = _Waiting(), list[str]()
    first = timers.call_at(30, lambda: called.append("first"))
    for _ in range(10_000):
        timers.call_at(600, lambda: None).cancel()
    assert len(timers._heap) < 200
    assert timers._heap[0][2] is first


@pytest.mark.backends("asyncio")
async def test_a_function_can_start_a_task_where_anyio_has_not_started_asyncio() -> None:
    ran = anyio.Event()

    async def main() -> None:
        async with anyio.create_task_group() as tasks:
            event_loop_timers()(0, lambda: tasks.start_soon(note))
            with anyio.move_on_after(5):
                await ran.wait()

    async def note() -> None:
        ran.set()

    await anyio.to_thread.run_sync(asyncio.run, main())
    assert ran.is_set()
