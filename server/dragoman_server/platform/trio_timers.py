"""Timers on trio: a task waits for the earliest time. See `timers`, which has those of asyncio."""

import trio

from dragoman_server.platform.timers import Timers


class TrioTimers(Timers):
    """The timers of one event loop."""

    def __init__(self) -> None:
        super().__init__()
        self._sleep = trio.CancelScope()

    def _wait(self) -> None:
        self._sleep.deadline = self._next

    async def run(self) -> None:
        while True:
            with self._sleep:
                await trio.sleep_forever()
            self._call_due(trio.current_time())
            self._sleep = trio.CancelScope(deadline=self._next)


_TIMERS = trio.lowlevel.RunVar[TrioTimers]("dragoman timers")


def timers_of_loop() -> TrioTimers:
    """Return those of the running event loop. Their task is in trio's own task group, and ends with the event loop."""
    try:
        return _TIMERS.get()
    except LookupError:
        timers = TrioTimers()
        _TIMERS.set(timers)
        trio.lowlevel.spawn_system_task(timers.run)
        return timers
