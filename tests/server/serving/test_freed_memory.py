"""Freed memory goes back to the system from time to time. Time is virtual."""

import ctypes
import gc
import weakref
from types import SimpleNamespace

import anyio
import pytest
from virtual_time import VIRTUAL_BACKENDS

from dragoman_server.serving.run import TRIM_S, return_freed_memory

pytestmark = [pytest.mark.anyio, pytest.mark.backends(*VIRTUAL_BACKENDS)]


@pytest.fixture(autouse=True)
def objects_of_other_tests() -> None:
    gc.freeze()  # else each collection walks over all that they have left


async def test_glibc_returns_what_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    requests = {"a request"}
    monkeypatch.setattr(ctypes, "CDLL", lambda name: SimpleNamespace(malloc_trim=calls.append))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(return_freed_memory, requests)
        await anyio.sleep(3.5 * TRIM_S)
        assert calls == []
        requests.clear()
        await anyio.sleep(3 * TRIM_S)
        assert calls == [0, 0, 0]
        tasks.cancel_scope.cancel()


async def test_garbage_is_collected_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """Closed connections of asyncio are in reference cycles, and each holds memory around it."""

    class Cycle:
        def __init__(self) -> None:
            self.itself = self

    left: list[object] = []
    cycle = weakref.ref(Cycle())
    monkeypatch.setattr(
        ctypes, "CDLL", lambda name: SimpleNamespace(malloc_trim=lambda pad: left.append(cycle()))
    )
    requests = {"a request"}
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(return_freed_memory, requests)
        await anyio.sleep(1.5 * TRIM_S)
        assert cycle() is not None, "a collection stops all streams"
        requests.clear()
        await anyio.sleep(TRIM_S)
        assert left == [None]
        tasks.cancel_scope.cancel()


async def test_another_library_needs_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: SimpleNamespace())
    await return_freed_memory(())
