"""What holds for all tests."""

from collections.abc import Generator
from typing import Any

import pytest


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, Any]:
    """What is missing on a machine takes one line of the summary, and not one for each test that needs it."""
    report = yield
    if report.skipped and isinstance(report.longrepr, tuple):
        report.longrepr = ("tests", None, report.longrepr[2])
    return report
