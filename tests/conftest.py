"""Hooks and fixtures for all tests."""

import gc
import os
import signal
import tempfile
from collections.abc import Generator
from typing import Any

import canaries
import coverage
import hypothesis
import pytest
from combinations import chosen
from file_scheduling import FileScheduling
from virtual_time import AnyioBackend, backend

# These health checks and the deadline measure the machine, and a slow one is no reason to fail.
hypothesis.settings.register_profile(
    "any machine",
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow, hypothesis.HealthCheck.data_too_large],
)
hypothesis.settings.load_profile("any machine")


def pytest_configure(config: pytest.Config) -> None:
    canaries.watch()
    # Commands that serve keep a file in the user's state directory.
    state = tempfile.TemporaryDirectory(prefix="dragoman-state-")
    config.add_cleanup(state.cleanup)
    os.environ["XDG_STATE_HOME"] = state.name
    # Processes inherit what is ignored, and a shell has its jobs in the background ignore these; what is caught they
    # do not inherit.
    for number in (signal.SIGINT, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, lambda *_: None)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> FileScheduling | None:
    return FileScheduling(config, log) if config.getoption("dist") == "loadfile" else None


@pytest.hookimpl(wrapper=True, optionalhook=True)
def pytest_xdist_auto_num_workers() -> Generator[None, int, int]:
    """Have two workers more than cores, because tests of processes and sockets wait for half of their time."""
    return (yield) + 2


@pytest.fixture
def anyio_backend(request: pytest.FixtureRequest) -> AnyioBackend:
    return backend(request.param)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test on asyncio in virtual time, or on what its marker `backends` names: see virtual_time.py."""
    if "anyio_backend" in metafunc.fixturenames and not any(
        "anyio_backend" in mark.args[0] for mark in metafunc.definition.iter_markers("parametrize")
    ):
        marker = metafunc.definition.get_closest_marker("backends")
        metafunc.parametrize("anyio_backend", marker.args if marker else ["asyncio"], indirect=True)


@pytest.hookimpl(wrapper=True)
def pytest_pycollect_makeitem() -> Generator[None, Any, Any]:
    items = yield
    return chosen(items) if isinstance(items, list) else items


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        # Coverage doubles the time. What only a generated input runs needs a row in a table too.
        if hypothesis.is_hypothesis_test(getattr(item, "obj", None)):
            item.add_marker("no_cover")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, Any, Any]:
    """Spare the collector the tests themselves: a quarter of the time to import them would be its walks through what
    is there, and each later one would stop all threads of this process for a second.

    Imports cover the same lines in each worker, and are half as fast when that is measured: the first worker does.
    """
    recorder = coverage.Coverage.current() if os.environ.get("PYTEST_XDIST_WORKER", "gw0") != "gw0" else None
    gc.disable()
    if recorder is not None:
        recorder.stop()
    try:
        return (yield)
    finally:
        if recorder is not None:
            recorder.start()
        gc.collect()
        gc.freeze()
        gc.enable()


def pytest_runtest_setup() -> None:
    assert canaries.is_watching(), "an earlier test has left its own handlers on the root logger"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    """Check that no secret of a test is in an output: see canaries.py."""
    canaries.found()
    result = yield
    directory = getattr(item, "funcargs", {}).get("tmp_path")
    if directory is not None:
        canaries.look_at_stores(directory)
    seen = canaries.found()
    assert not seen or item.get_closest_marker("prints_secrets"), seen
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, Any]:
    """Report a program that is missing on a machine in one line, and not in one for each test that needs it."""
    report = yield
    if report.skipped and isinstance(report.longrepr, tuple):
        report.longrepr = ("tests", None, report.longrepr[2])
    return report
