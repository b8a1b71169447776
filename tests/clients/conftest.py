"""One simulator and one gateway for each backend serve all tests of this folder.

A test runs over every pair of protocols (`pair`) on one backend with the sync clients. On the other backends, and with
the async clients, runs what is about waiting: see each_backend of sdk_clients/processes.py.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache

import pytest
from sdk_clients.processes import PAIRS, Gateway, Pair, Simulator
from sdk_clients.sdk import Sdk, sync_sdk


@pytest.fixture(scope="session")
def simulator() -> Iterator[Simulator]:
    with Simulator() as running:
        running.ready()
        yield running


@pytest.fixture(scope="session")
def gateway_on(
    simulator: Simulator, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[str], Gateway]]:
    """Starts a gateway on a backend, once. At the end none of them may have logged a traceback."""
    started: list[Gateway] = []
    with ExitStack() as stack:

        @cache
        def start(backend: str) -> Gateway:
            gateway = Gateway(tmp_path_factory.mktemp(backend), simulator, backend)
            stack.enter_context(gateway)
            started.append(gateway.ready())
            return gateway

        yield start
    for gateway in started:
        text = "\n".join(gateway.output)
        assert "Traceback" not in text, text


@pytest.fixture
def backend() -> str:
    """Of the gateway. Tests that need another one have it as a parameter."""
    return "asyncio"


@pytest.fixture
def gateway(backend: str, gateway_on: Callable[[str], Gateway]) -> Gateway:
    return gateway_on(backend)


@pytest.fixture(scope="session")
def sdk_of() -> Iterator[Callable[[str], Sdk]]:
    """Makes the clients for a gateway, once: making them costs more than a request."""
    with ExitStack() as stack:
        yield cache(lambda url: stack.enter_context(sync_sdk(url)))


@pytest.fixture
def sdk(gateway: Gateway, sdk_of: Callable[[str], Sdk]) -> Sdk:
    return sdk_of(gateway.url)


@pytest.fixture(params=PAIRS, ids=str)
def pair(request: pytest.FixtureRequest) -> Pair:
    assert isinstance(request.param, Pair)
    return request.param
