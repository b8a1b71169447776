"""Run the application's start and end: the ASGI lifespan protocol."""

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
from starlette.types import ASGIApp, Message

from dragoman_server.serving.sockets import StartupError

_log = logging.getLogger("dragoman.server")


@asynccontextmanager
async def lifespan(
    app: ASGIApp, startup_s: float, shutdown_s: float, on_failure: Callable[[], object]
) -> AsyncIterator[dict[str, Any]]:
    """Start the application, and shut it down at the end of the block. Yield the state for the scope of each request.

    startup_s, shutdown_s: seconds that it may take. on_failure: called if the application fails meanwhile, because it
    then answers all requests with errors. Raises StartupError if the application refuses to start, is not ready in
    time, or has failed.
    """
    run = _Lifespan(app, on_failure)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run.run)
        with anyio.move_on_after(startup_s):
            await run.started.wait()
        if not run.started.is_set():
            run.failure = f"it was not ready within {startup_s:g} seconds"
        if run.failure is None:
            yield run.state
            run.stopping.set()
            with anyio.move_on_after(shutdown_s):
                await run.stopped.wait()
        tasks.cancel_scope.cancel()
    if run.failure is not None:
        raise StartupError(f"the application {'failed' if run.began else 'did not start'}: {run.failure}")


class _Lifespan:
    def __init__(self, app: ASGIApp, on_failure: Callable[[], object]) -> None:
        self._app = app
        self._on_failure = on_failure
        self.began = False  # the application has started
        self._sent_startup = False
        self.state: dict[str, Any] = {}
        self.failure: str | None = None
        self.started, self.stopping, self.stopped = anyio.Event(), anyio.Event(), anyio.Event()

    async def run(self) -> None:
        scope = {"type": "lifespan", "asgi": {"version": "3.0", "spec_version": "2.0"}, "state": self.state}
        try:
            await self._app(scope, self._receive, self._send)
        except Exception as error:
            if self.failure is not None:
                pass  # Starlette raises it again after it has reported it
            else:
                if self.began:
                    _log.exception("the application's lifespan failed")
                if not self.stopping.is_set():
                    self.failure = f"{type(error).__name__}: {error}"
                if self.began and self.failure is not None:
                    self._on_failure()
        finally:
            self.started.set()
            self.stopped.set()

    async def _receive(self) -> Message:
        if not self._sent_startup:
            self._sent_startup = True
            return {"type": "lifespan.startup"}
        await self.stopping.wait()
        return {"type": "lifespan.shutdown"}

    async def _send(self, message: Message) -> None:
        # Starlette reports a start that was cancelled, too.
        if message["type"] == "lifespan.startup.failed" and self.failure is None:
            # The message may be a whole traceback; its last line is the exception.
            lines = message.get("message", "").strip().splitlines() or ["no reason was given"]
            name, _, text = lines[-1].strip().partition(": ")
            # Only exceptions of Python itself are without a module there.
            self.failure = (
                text if text and "." in name and name.replace(".", "").isidentifier() else lines[-1].strip()
            )
        self.began |= message["type"] == "lifespan.startup.complete"
        if message["type"].startswith("lifespan.startup."):
            self.started.set()
        else:
            if message["type"] == "lifespan.shutdown.failed":
                _log.error("the application did not shut down cleanly: %s", message.get("message", ""))
            self.stopped.set()
