"""Tasks that run as long as the gateway, such as fetching lists of models while no client waits for them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
from anyio.abc import TaskGroup


class BackgroundTaskGroup:
    """A base class with a task group, which is None outside of running()."""

    _tasks: TaskGroup | None = None

    @property
    def tasks(self) -> TaskGroup:
        """The task group. RuntimeError outside of running()."""
        if self._tasks is None:
            raise RuntimeError(f"{type(self).__name__} is used outside of its running() block")
        return self._tasks

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Keep the task group open. The tasks end with the block; an exception of the block is raised unwrapped."""
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
