"""Run several worker processes on one listening socket.

The workers are spawned, because a fork would copy the state of the event loop. Each gets the settings and the socket
through multiprocessing, creates its own application, and reports on a pipe. One that dies is replaced. All are stopped
if one reports why it cannot start, because the next one could not either, or dies three times before it has served.
"""

import logging
import signal
import socket
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess

import anyio

from dragoman_server.serving.sockets import StartupError

# The main function of a worker: takes the socket, and the pipe on which it sends "" when it serves, else the reason why
# it cannot.
WorkerMain = Callable[[socket.socket, Connection], None]

_log = logging.getLogger("dragoman.server")

# The signals that a terminal sends to all its processes: for Ctrl-C, and when it is closed.
GROUP_SIGNALS = tuple(each for each in signal.Signals if each.name in ("SIGINT", "SIGHUP"))

# So many deaths of one worker before it has served end the gateway.
_MAX_DEATHS = 3

# Before a worker is replaced, so that one that dies at once does not keep the machine busy.
_RESPAWN_PAUSE_S = 1.0

# Seconds between a worker's deadline for a stop and its kill.
_MARGIN_S = 2.0


@dataclass(slots=True)
class Supervisor:
    """Starts the workers, calls on_ready once all of them serve, replaces those that die, and stops them all."""

    workers: int
    worker_main: WorkerMain
    listener: socket.socket
    on_ready: Callable[[], None]
    # Seconds that the workers have for all their own steps of a stop.
    stop_s: float
    # By the worker's number. All are started before the first is waited for.
    processes: dict[int, SpawnProcess] = field(default_factory=dict)
    ready: set[int] = field(default_factory=set)
    # By number, of workers that have not served yet.
    deaths: Counter[int] = field(default_factory=Counter)
    stopping: anyio.Event = field(default_factory=anyio.Event)
    failure: str | None = None
    is_ready: bool = False

    async def run(self) -> None:
        """Keep the workers alive until a signal. Raises StartupError when one cannot start."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._watch_signals)
            tasks.start_soon(self._kill_late)
            try:
                async with anyio.create_task_group() as workers:
                    for number in range(self.workers):
                        workers.start_soon(self._run_worker, number)
            finally:
                for process in self.processes.values():
                    process.kill()
            tasks.cancel_scope.cancel()
        if self.failure is not None:
            raise StartupError(self.failure)

    async def _watch_signals(self) -> None:
        with anyio.open_signal_receiver(*stop_signals()) as signals:
            async for number in signals:
                _log.info("%s: stopping the workers", number.name)
                self._stop()

    async def _kill_late(self) -> None:
        await self.stopping.wait()
        # A worker has ended itself by then, unless its code blocks the interpreter.
        await anyio.sleep(self.stop_s + _MARGIN_S)
        for process in self.processes.values():
            process.kill()

    def _stop(self) -> None:
        # The workers close their copies as well; with the last one the port is free.
        self.listener.close()
        self.stopping.set()
        for process in self.processes.values():
            process.terminate()

    async def _run_worker(self, number: int) -> None:
        """Start worker `number`, and start it again when it dies."""
        while not self.stopping.is_set():
            process, report = self._start()
            self.processes[number] = process
            with report:
                await anyio.wait_readable(report.fileno())
                self._reported(number, report)
            await self._wait_for(process)
            if not self.stopping.is_set():
                _log.error("worker %d ended with code %s; starting another", number, process.exitcode)
                await anyio.sleep(_RESPAWN_PAUSE_S)

    def _start(self) -> tuple[SpawnProcess, Connection]:
        context = get_context("spawn")
        report, child_end = context.Pipe(duplex=False)
        process = context.Process(target=self.worker_main, args=(self.listener, child_end), daemon=True)
        # Blocked signals stay blocked in a new process: they cannot hit a worker that is still importing.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, GROUP_SIGNALS)
        try:
            process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        child_end.close()
        return process, report

    def _reported(self, number: int, report: Connection) -> None:
        try:
            failure = report.recv()
        except EOFError:
            if number in self.ready:
                return
            self.deaths[number] += 1
            if self.deaths[number] < _MAX_DEATHS:
                return
            failure = f"a worker process died while starting, {_MAX_DEATHS} times in a row"
        if not failure:
            self.ready.add(number)
            if len(self.ready) == self.workers and not (self.is_ready or self.stopping.is_set()):
                self.is_ready = True
                self.on_ready()
        elif not self.stopping.is_set() and number not in self.ready:
            # A worker that has served before and now does not start is started again, because the cause may pass.
            self.failure = failure
            self._stop()

    async def _wait_for(self, process: SpawnProcess) -> None:
        await anyio.wait_readable(process.sentinel)
        process.join()


def stop_signals() -> tuple[signal.Signals, ...]:
    """Return the signals that stop the gateway: SIGTERM, SIGINT, and SIGHUP unless nohup ignores it."""
    group = [each for each in GROUP_SIGNALS if signal.getsignal(each) is not signal.SIG_IGN]
    return (signal.SIGTERM, *group)
