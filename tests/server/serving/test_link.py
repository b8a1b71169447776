"""What a worker does for its supervisor: it uses settings, and passes on requests for a reload."""

from collections.abc import Iterator
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any

import anyio
import pytest
from virtual_time import REAL_BACKENDS

from dragoman_server.config.reload import ReloadResult
from dragoman_server.serving.link import Applied, ReloadEnded, ReloadRequested, SupervisorLink
from dragoman_server.settings import ServerSettings, Settings

pytestmark = [pytest.mark.anyio, pytest.mark.backends(*REAL_BACKENDS)]

PORT_1, PORT_2 = (Settings(server=ServerSettings(port=port)) for port in (1, 2))


@pytest.fixture
def ends() -> Iterator[tuple[Connection, Connection]]:
    supervisor, worker = Pipe()
    with supervisor, worker:
        yield supervisor, worker


async def received(supervisor: Connection) -> Any:
    await anyio.wait_readable(supervisor.fileno())
    return supervisor.recv()


async def test_settings_are_used_or_refused(ends: tuple[Connection, Connection]) -> None:
    supervisor, worker = ends
    used = []

    async def use(settings: Settings) -> None:
        if settings.server.port == 2:
            raise ValueError("port 2 cannot be used")
        used.append(settings)

    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(SupervisorLink(worker).run, use)
            supervisor.send(PORT_1)
            assert await received(supervisor) == Applied()
            supervisor.send(PORT_2)
            assert await received(supervisor) == Applied("port 2 cannot be used")
            supervisor.close()  # as by its death: the worker has its own way to notice
    assert used == [PORT_1]


async def test_a_reload_is_requested_and_its_result_passed_on(ends: tuple[Connection, Connection]) -> None:
    supervisor, worker = ends
    link = SupervisorLink(worker)
    results = []

    async def use(settings: Settings) -> None: ...

    async def reload() -> None:
        results.append(await link.reload())

    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(link.run, use)
            tasks.start_soon(reload)
            tasks.start_soon(reload)
            for number in (1, 2):
                assert await received(supervisor) == ReloadRequested(number)
                assert not supervisor.poll(), "one request at a time"
                supervisor.send(PORT_1)
                assert await received(supervisor) == Applied()
                # That of a request that was given up.
                supervisor.send(ReloadEnded(number - 1, ReloadResult(errors=("late",))))
                supervisor.send(ReloadEnded(number, ReloadResult(errors=(f"error {number}",))))
            await anyio.wait_all_tasks_blocked()  # the last result has arrived
            supervisor.close()
    assert results == [ReloadResult(errors=("error 1",)), ReloadResult(errors=("error 2",))]


async def test_a_supervisor_that_has_ended_is_an_error_of_the_reload(
    ends: tuple[Connection, Connection],
) -> None:
    supervisor, worker = ends
    supervisor.close()
    (error,) = (await SupervisorLink(worker).reload()).errors
    assert error == "it was not completed within 40 s; see the log"
