"""A burst of requests: a few begin in each turn of the event loop, in their order, and no other task waits for all."""

from itertools import pairwise
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from virtual_time import VIRTUAL_BACKENDS

from dragoman_server.platform.changes import Changes
from dragoman_server.platform.start_queue import MANY, StartQueue
from dragoman_server.serving.tasks import AppEvents, AppTasks

pytestmark = [pytest.mark.anyio, pytest.mark.backends(*VIRTUAL_BACKENDS)]

BURST = range(32)


class Burst:
    """A request on each of some connections. begun: the numbers of those that have begun."""

    def __init__(self) -> None:
        self.begun: list[int] = []
        self.starts = StartQueue()

    def start(self, connections: list[AppTasks]) -> None:
        for number, connection in enumerate(connections):
            connection.start(self._app, number, AppEvents(), self._send)

    def connect(self, tasks: anyio.abc.TaskGroup) -> AppTasks:
        return AppTasks(tasks, set(), self.starts)

    async def _app(self, number: Any, receive: Any, send: Any) -> None:
        self.begun.append(number)

    async def _send(self, message: Any) -> None:
        pass


@pytest.mark.parametrize("earlier_requests", [0, 1])
async def test_other_tasks_run_between_the_requests_of_a_burst(earlier_requests: int) -> None:
    burst, seen = Burst(), [0]
    async with anyio.create_task_group() as tasks:
        connections = [burst.connect(tasks) for _ in BURST]
        for _ in range(earlier_requests):  # whose tasks wait for the next one
            burst.start(connections)
            await anyio.sleep(1)
        burst.begun.clear()
        burst.start(connections)
        while seen[-1] < len(BURST):
            await anyio.lowlevel.checkpoint()
            seen.append(len(burst.begun))
        for connection in connections:
            connection.end()
    # trio shuffles the tasks of one turn, so between two looks may be parts of two.
    assert max(after - before for before, after in pairwise(seen)) <= 2 * MANY
    assert [number // MANY for number in burst.begun] == [number // MANY for number in BURST]


@pytest.mark.promise("S11")
@pytest.mark.parametrize("earlier_requests", [0, 1])
async def test_many_requests_of_one_connection_do_not_delay_those_of_others(earlier_requests: int) -> None:
    burst = Burst()
    async with anyio.create_task_group() as tasks:
        first, *others = [burst.connect(tasks) for _ in range(MANY)]
        for _ in range(earlier_requests):
            burst.start([first, *others])
            await anyio.sleep(1)
        burst.begun.clear()
        burst.start([*[first] * 100, *others])
        await anyio.sleep(1)
        for connection in (first, *others):
            connection.end()
    assert sorted(burst.begun) == list(range(100 + len(others)))
    # trio shuffles the tasks of one turn.
    assert max(burst.begun.index(100 + number) for number in range(len(others))) < 3 * MANY


@pytest.mark.parametrize("earlier_requests", [0, 1])
@pytest.mark.parametrize("turn", range(4))
async def test_a_request_that_is_cancelled_before_it_begins_holds_up_no_other(
    earlier_requests: int, turn: int
) -> None:
    burst = Burst()
    async with anyio.create_task_group() as tasks, anyio.create_task_group() as cancelled:
        # The first one is woken already, the last one is in the middle of the queue.
        connections = [burst.connect(cancelled if number in (0, MANY, 9) else tasks) for number in BURST]
        for _ in range(earlier_requests):
            burst.start(connections)
            await anyio.sleep(1)
        burst.begun.clear()
        burst.start(connections)
        for _ in range(turn):
            await anyio.lowlevel.checkpoint()
        had_begun = set(burst.begun)
        cancelled.cancel_scope.cancel()
        with anyio.CancelScope(shield=True):
            await anyio.sleep(1)
            never = set(BURST) - set(burst.begun)
            assert never <= {0, MANY, 9} - had_begun
            # As many as ever may begin in a turn.
            assert [burst.starts.enter(Changes()) is None for _ in range(MANY + 1)] == [True] * MANY + [False]
            for connection in connections:
                connection.end()


async def test_a_request_that_comes_behind_the_cancel_of_its_connection_holds_up_no_other() -> None:
    burst = Burst()
    for _ in range(MANY):
        async with anyio.create_task_group() as tasks:
            connections = [burst.connect(tasks)]
            burst.start(connections)
            await anyio.sleep(1)  # its task waits for the next one
            tasks.cancel_scope.cancel()
            burst.start(connections)
    assert [burst.starts.enter(Changes()) is None for _ in range(MANY + 1)] == [True] * MANY + [False]
