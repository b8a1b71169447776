import logging
from collections.abc import Iterator

import pytest


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    """The gateway's logger, which gets back its handlers and level after the test."""
    logger = logging.getLogger("dragoman")
    before = logger.handlers[:], logger.propagate, logger.level
    yield logger
    logger.handlers[:], logger.propagate, level = before
    logger.setLevel(level)
