"""A gateway process on each backend, with TLS, that all the tests which send bytes to one share."""

from collections.abc import Iterator

import pytest
from edge import LOOPS, Upstream
from fuzz_server import Served
from http_certificate import make_certificate


@pytest.fixture(scope="session", params=LOOPS)
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    directory = tmp_path_factory.mktemp("served")
    with (
        Upstream() as upstream,
        Served(directory, upstream, make_certificate(directory), request.param) as served,
    ):
        yield served
