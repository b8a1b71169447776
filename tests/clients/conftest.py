"""One simulator and one gateway for each backend serve all tests of this folder.

A test runs over every pair of protocols (`pair`) on one backend with the sync clients. The other backends and the async
clients have the smoke of test_smoke.py, and what is about leaving and waiting: see each_backend of
sdk_clients/processes.py.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache

import pytest
from sdk_clients.processes import PAIRS, Gateway, Pair, Simulator
from sdk_clients.sdk import Sdk, async_sdk, sync_sdk


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
def sdk_of() -> Iterator[Callable[[str, str], Sdk]]:
    """Makes the clients of a kind for a gateway, once: making them costs more than a request."""
    with ExitStack() as stack:
        kinds = {"sync": sync_sdk, "async": async_sdk}
        yield cache(lambda kind, url: stack.enter_context(kinds[kind](url)))


@pytest.fixture
def kind() -> str:
    """Of the clients. Tests that need the others have it as a parameter."""
    return "sync"


@pytest.fixture
def sdk(kind: str, gateway: Gateway, sdk_of: Callable[[str, str], Sdk]) -> Sdk:
    return sdk_of(kind, gateway.url)


@pytest.fixture(params=PAIRS, ids=str)
def pair(request: pytest.FixtureRequest) -> Pair:
    assert isinstance(request.param, Pair)
    return request.param
