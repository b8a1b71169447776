"""Tasks that live as long as the gateway: what upstreams are asked while nobody waits."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
from anyio.abc import TaskGroup


@asynccontextmanager
async def background() -> AsyncIterator[TaskGroup]:
    """A group of tasks, which end with the block. What the block raises leaves as it was."""
    failure: Exception | None = None
    async with anyio.create_task_group() as tasks:
        try:
            yield tasks
        except Exception as error:
            failure = error
        finally:
            tasks.cancel_scope.cancel()
    if failure is not None:
        raise failure  # the group would have wrapped it
