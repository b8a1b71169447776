"""Tasks that can be cancelled and leave nothing to the garbage collector."""

from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import TypeVarTuple

import anyio
import msgspec
from anyio import TaskHandle

Arguments = TypeVarTuple("Arguments")


async def return_if_cancelled(
    function: Callable[[*Arguments], Awaitable[object]], *arguments: *Arguments
) -> None:
    """Call the function in a task of a group, and return if that is cancelled.

    The group then may end as if its tasks had: call checkpoint_if_cancelled() behind it, unless only handles of its
    tasks are cancelled.

    A task that raises the exception stays in memory until a garbage collection, with all that its frames refer to. On
    asyncio, task_done() (anyio 4.16 _asyncio.py:932) has the exception in a variable, and is in its traceback; on trio,
    the task's handle has it, and TaskHandle.cancel() is in its traceback.
    """
    try:
        await function(*arguments)
    except anyio.get_cancelled_exc_class():
        return


class RestOfTask(msgspec.Struct):
    """A cancel scope for the last work of a task, which costs a tenth of another one: to cancel it cancels the task.

    So what is awaited behind it has to be shielded then.

    Attributes:
        cancel_called: As that of other scopes.
    """

    _task: "TaskHandle[None]"
    cancel_called: bool = False

    def cancel(self) -> None:
        self.cancel_called = True
        self._task.cancel()

    def __enter__(self) -> "RestOfTask":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if not self.cancel_called:
            return False
        cancelled = anyio.get_cancelled_exc_class()
        if not isinstance(error, BaseExceptionGroup):
            return isinstance(error, cancelled)
        _, others = error.split(cancelled)
        if others is not None:
            raise others
        return True
