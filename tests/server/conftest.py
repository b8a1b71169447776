import logging
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from http_certificate import Certificate, make_certificate
from valkey_server import ValkeyServer, valkey_server


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    """The gateway's logger. What configure_logging() and capture_foreign_logs() change is restored after the test."""
    logger, root = logging.getLogger("dragoman"), logging.getLogger()
    before = [(each, each.handlers[:], each.propagate, each.level) for each in (logger, root)]
    hooks = sys.excepthook, threading.excepthook, sys.unraisablehook
    yield logger
    for each, handlers, propagate, level in before:
        each.handlers[:], each.propagate = handlers, propagate
        each.setLevel(level)
    sys.excepthook, threading.excepthook, sys.unraisablehook = hooks
    logging.captureWarnings(False)


@pytest.fixture
def record(caplog: pytest.LogCaptureFixture) -> Any:
    """Return a function for the log record of the newest request."""
    caplog.set_level(logging.INFO, "dragoman.requests")
    return lambda: caplog.records[-1].dragoman  # type: ignore[attr-defined]


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return make_certificate(tmp_path_factory.mktemp("certificate"))


@pytest.fixture(scope="session")
def valkey() -> Iterator[ValkeyServer]:
    """A server that runs, with what earlier tests have left there. A test that stops one needs its own."""
    with valkey_server() as running:
        yield running
