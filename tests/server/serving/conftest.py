import logging

import pytest


@pytest.fixture(autouse=True)
def each_line_of_the_log(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Earlier tests may have configured the gateway's log otherwise."""
    monkeypatch.setattr(logging.getLogger("dragoman"), "propagate", True)
    caplog.set_level(logging.WARNING)
