"""What holds for all tests."""

import gc
import signal
from collections.abc import Generator
from typing import Any

import canaries
import pytest


def pytest_configure() -> None:
    canaries.watch()
    # Processes inherit what is ignored, and a shell has its jobs in the background ignore these; what is caught they
    # do not inherit.
    for number in (signal.SIGINT, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, lambda *_: None)


def pytest_collection_finish() -> None:
    """Spare the collector the tests themselves: to walk through them stops each thread of this process for a second."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    """No secret of a test gets out: see canaries.py."""
    canaries.found()
    result = yield
    directory = getattr(item, "funcargs", {}).get("tmp_path")
    if directory is not None:
        canaries.look_at_stores(directory)
    seen = canaries.found()
    assert not seen or item.get_closest_marker("tells_secrets"), seen
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, Any]:
    """What is missing on a machine takes one line of the summary, and not one for each test that needs it."""
    report = yield
    if report.skipped and isinstance(report.longrepr, tuple):
        report.longrepr = ("tests", None, report.longrepr[2])
    return report
