"""Tasks that live as long as the gateway: what upstreams are asked while nobody waits."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
from anyio.abc import TaskGroup


class Background:
    """Asks upstreams in the background. Outside of running() there is no group of tasks, and no upstream is asked."""

    _tasks: TaskGroup | None = None

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """The time in which upstreams are asked. The tasks end with the block; what it raises leaves as it was."""
        failure: Exception | None = None
        async with anyio.create_task_group() as self._tasks:
            try:
                yield
            except Exception as error:
                failure = error
            finally:
                self._tasks.cancel_scope.cancel()
                self._tasks = None
        if failure is not None:
            raise failure  # the group would have wrapped it
