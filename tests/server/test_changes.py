"""Waits for changes: they end together, at any number, and leave nothing if they are cancelled."""

import anyio
import pytest
from virtual_time import VIRTUAL_BACKENDS

from dragoman_server.platform.changes import Changes

pytestmark = [pytest.mark.anyio, pytest.mark.backends(*VIRTUAL_BACKENDS)]


@pytest.mark.parametrize("cancelled", [0, 1, 50])
async def test_a_change_ends_all_waits_before_it(cancelled: int) -> None:
    changes, ended = Changes(), list[float]()

    async def wait() -> None:
        await changes.wait()
        ended.append(anyio.current_time())

    async with anyio.create_task_group() as tasks:
        for _ in range(20):
            tasks.start_soon(wait)
        for _ in range(cancelled):
            with anyio.move_on_after(0.1):
                await changes.wait()
        await anyio.sleep_until(10)
        changes.note()
        late = tasks.start_soon(wait)
        await anyio.sleep_until(20)
        late.cancel()
    assert ended == [10] * 20


async def test_cancelled_waits_are_not_kept() -> None:
    changes = Changes()
    for _ in range(1000):
        with anyio.move_on_after(0.1):
            await changes.wait()
    assert len(changes._futures or ()) <= 16
