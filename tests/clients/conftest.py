"""One simulator and one gateway for each backend serve all tests of this folder.

`gateway`, `sdk` and `pair` say what a test runs over: every backend of the gateway, sync and async clients,
every client protocol to every upstream protocol.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache

import pytest
from cl_processes import PAIRS, Gateway, Pair, Simulator
from cl_sdk import Sdk, async_sdk, sync_sdk


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


@pytest.fixture(params=["asyncio", "trio"])
def gateway(request: pytest.FixtureRequest, gateway_on: Callable[[str], Gateway]) -> Gateway:
    return gateway_on(request.param)


@pytest.fixture(scope="session")
def sdk_of() -> Iterator[Callable[[str, str], Sdk]]:
    """Makes the clients of a kind for a gateway, once: making them costs more than a request."""
    with ExitStack() as stack:
        kinds = {"sync": sync_sdk, "async": async_sdk}
        yield cache(lambda kind, url: stack.enter_context(kinds[kind](url)))


@pytest.fixture(params=["sync", "async"])
def sdk(request: pytest.FixtureRequest, gateway: Gateway, sdk_of: Callable[[str, str], Sdk]) -> Sdk:
    return sdk_of(request.param, gateway.url)


@pytest.fixture(params=PAIRS, ids=str)
def pair(request: pytest.FixtureRequest) -> Pair:
    assert isinstance(request.param, Pair)
    return request.param
