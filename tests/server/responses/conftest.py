from collections.abc import AsyncIterator

import pytest
from gateway.simulated import Gateway, gateway
from gateway.stored import ON


@pytest.fixture
async def up() -> AsyncIterator[Gateway]:
    """A gateway that stores responses, before the simulator."""
    async with gateway(**ON) as up:
        yield up
