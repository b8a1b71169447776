"""What a supervisor and its workers send each other: readiness, reloads, settings, and results.

A worker that is asked for a reload passes that on to the supervisor, which loads the configuration, sends the settings
to all workers, waits until they use them, and returns the result.
"""

import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import TypeAlias

import anyio
import msgspec

from dragoman_server.config.reload import LOAD_S, ReloadResult
from dragoman_server.settings import Settings

_log = logging.getLogger("dragoman.server")

# Seconds for new settings to be in use in all processes.
RELOAD_S = 30.0
# And for its result, which comes after the file was read and all processes have responded, or are late.
_RESULT_S = LOAD_S + RELOAD_S


class WorkerStarted(msgspec.Struct, frozen=True):
    """From a worker: it serves; or it cannot start, for this reason."""

    failure: str = ""


class Applied(msgspec.Struct, frozen=True):
    """From a worker: it uses the settings that it was sent; or it cannot, for this reason."""

    failure: str = ""


class ReloadRequested(msgspec.Struct, frozen=True):
    """From a worker: reload the configuration of all workers.

    Attributes:
        number: The number of this request of the worker.
    """

    number: int


class ReloadEnded(msgspec.Struct, frozen=True):
    """To a worker: the result of a reload that it has requested. Its request may be over by then."""

    number: int
    result: ReloadResult


FromWorker: TypeAlias = WorkerStarted | Applied | ReloadRequested


@dataclass(slots=True)
class SupervisorLink:
    """A worker's end of the connection to its supervisor."""

    connection: Connection
    _lock: anyio.Lock = field(default_factory=anyio.Lock)
    _answered: anyio.Event = field(default_factory=anyio.Event)
    _number: int = 0
    _result: ReloadResult = field(default_factory=ReloadResult)

    async def run(self, use: Callable[[Settings], Awaitable[None]]) -> None:
        """Receive settings and results until the supervisor ends. use: raises ValueError if that is impossible."""
        with suppress(EOFError, OSError):  # somebody else notices that
            while True:
                await anyio.wait_readable(self.connection.fileno())
                message: Settings | ReloadEnded = self.connection.recv()
                if isinstance(message, Settings):
                    self.connection.send(await _applied(use, message))
                elif message.number == self._number:
                    self._result = message.result
                    self._answered.set()

    async def reload(self) -> ReloadResult:
        """Have the configuration of all workers reloaded. See config.reload.Reload."""
        async with self._lock:
            self._answered = anyio.Event()
            self._number += 1
            try:
                with anyio.fail_after(_RESULT_S):
                    self.connection.send(ReloadRequested(self._number))
                    await self._answered.wait()
            except (OSError, TimeoutError):
                return ReloadResult(errors=(f"it was not completed within {_RESULT_S:g} s; see the log",))
            return self._result


async def _applied(use: Callable[[Settings], Awaitable[None]], settings: Settings) -> Applied:
    try:
        await use(settings)
    except ValueError as error:
        return Applied(str(error))
    except Exception:  # this worker is replaced, after its requests
        _log.exception("a reload failed")
        return Applied("an internal error")
    return Applied()
