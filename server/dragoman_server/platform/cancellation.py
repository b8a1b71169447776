"""Tasks that can be cancelled and leave nothing to the garbage collector."""

from collections.abc import Awaitable, Callable
from typing import TypeVarTuple

import anyio

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
