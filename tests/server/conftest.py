import logging
from collections.abc import Iterator
from typing import Any

import pytest
from http_certificate import Certificate, make_certificate
from valkey_server import ValkeyServer, valkey_server


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    """The gateway's logger, which gets back its handlers and level after the test."""
    logger = logging.getLogger("dragoman")
    before = logger.handlers[:], logger.propagate, logger.level
    yield logger
    logger.handlers[:], logger.propagate, level = before
    logger.setLevel(level)


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
