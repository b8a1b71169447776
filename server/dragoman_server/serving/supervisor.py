"""Run several worker processes on one listening socket.

The workers are spawned, because a fork would copy the state of the event loop. Each gets the settings and the socket
through multiprocessing, creates its own application, and has a connection to the supervisor, on which it reports and
gets new settings (see link). One that dies is replaced. All are stopped if one reports why it cannot start, because
the next one could not either, or dies three times before it has served.
"""

import logging
import signal
import socket
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess

import anyio
import anyio.to_thread
from anyio.abc import TaskGroup

from dragoman_server.config.loader import LoadedConfig
from dragoman_server.config.reload import ConfigReloader, ReloadResult, SettingsRefused
from dragoman_server.serving import link
from dragoman_server.serving.signals import GROUP_SIGNALS, SignalMeanings, signal_handlers
from dragoman_server.serving.sockets import StartupError
from dragoman_server.settings import Settings

# The main function of a worker: takes the settings, the socket, and its end of the connection.
WorkerMain = Callable[[Settings, socket.socket, Connection], None]

_log = logging.getLogger("dragoman.server")

# The gateway exits if one worker dies this often before it has served.
_MAX_DEATHS = 3

# Before a worker is replaced, so that one that dies immediately does not keep the machine busy.
_RESPAWN_PAUSE_S = 1.0

# Before a process is started again after the system has refused to: EAGAIN, ENOMEM, EMFILE.
_RETRY_PAUSE_S = 5.0

# Seconds between a worker's deadline for a stop and SIGKILL.
_MARGIN_S = 2.0


# Real-time signals have no names, but for the first and the last one.
_SIGNAL_NAMES = {int(each): each.name for each in signal.Signals}


def _ending(code: int) -> str:
    """Say how a process has ended, by its exit code, which is negative if a signal has ended it."""
    return f"with code {code}" if code >= 0 else f"by {_SIGNAL_NAMES.get(-code, f'signal {-code}')}"


@dataclass(slots=True)
class _WorkerProcess:
    """A worker.

    Attributes:
        sending: Held while something is sent, because a large message is several writes.
        applied: Set when it has responded to the settings that it was sent, or has ended.
    """

    process: SpawnProcess
    connection: Connection
    sending: anyio.Lock = field(default_factory=anyio.Lock)
    applied: anyio.Event = field(default_factory=anyio.Event)
    failure: str = ""


@dataclass(slots=True)
class Supervisor:
    """Starts the workers, calls on_ready once all of them serve, replaces those that die, and stops them all.

    Attributes:
        settings: Those in use.
        load: Reads the configuration again, None if there is nothing to read.
        use: See ConfigReloader; for this process.
        stop_s: Returns the seconds that a worker has for all its own steps of a stop.
        exit_within: See ExitTimer.within().
    """

    settings: Settings
    worker_main: WorkerMain
    listener: socket.socket
    on_ready: Callable[[], None]
    signals: SignalMeanings
    load: Callable[[], LoadedConfig] | None
    use: Callable[[Settings], None]
    stop_s: Callable[[Settings], float]
    exit_within: Callable[[float], None]
    # Called with the process id of a worker that has ended.
    on_end: Callable[[int], None]
    # By the worker's number. All are started before the first is waited for.
    workers: dict[int, _WorkerProcess] = field(default_factory=dict)
    ready: set[int] = field(default_factory=set)
    # By number, of workers that have not served yet.
    deaths: Counter[int] = field(default_factory=Counter)
    stopping: anyio.Event = field(default_factory=anyio.Event)
    failure: str | None = None
    is_ready: bool = False
    reloader: ConfigReloader | None = None

    async def run(self) -> None:
        """Keep the workers alive until a signal. Raises StartupError when one cannot start."""
        if self.load is not None:
            self.reloader = ConfigReloader(self.settings, self.load, self._use)
        handlers = signal_handlers(
            self.signals,
            reload=self._reload_requested,
            stop=self._signalled,
            stop_begins=self._stop_begins,
        )
        with handlers:
            await self._run()
        if self.failure is not None:
            raise StartupError(self.failure)

    async def _run(self) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._kill_late)
            try:
                async with anyio.create_task_group() as workers:
                    for number in range(self.settings.server.workers):
                        workers.start_soon(self._run_worker, number, tasks)
            finally:
                for worker in self.workers.values():
                    worker.process.kill()
            tasks.cancel_scope.cancel()

    def _reload_requested(self) -> None:
        if self.reloader is not None and not self.stopping.is_set():
            self.reloader.request()

    def _signalled(self, name: str) -> None:
        _log.info("%s: stopping the workers", name)
        self._stop()

    def _stop_begins(self) -> None:
        # The workers end before, or are killed.
        self.exit_within(self.stop_s(self.settings) + 2 * _MARGIN_S)

    async def _kill_late(self) -> None:
        await self.stopping.wait()
        # A worker has ended itself by then, unless its code blocks the interpreter.
        await anyio.sleep(self.stop_s(self.settings) + _MARGIN_S)
        for worker in self.workers.values():
            worker.process.kill()

    def _stop(self) -> None:
        # The workers close their copies as well; with the last one the port is free.
        self.listener.close()
        self.stopping.set()
        for worker in self.workers.values():
            worker.process.terminate()

    # Workers.

    async def _run_worker(self, number: int, tasks: TaskGroup) -> None:
        """Start worker `number`, and start it again when it dies."""
        while not self.stopping.is_set():
            try:
                worker = self.workers[number] = self._start()
            except OSError as error:
                # The other workers serve on. The machine may have room for a process again soon.
                _log.error("worker %d cannot be started: %s; trying again", number, error.strerror)
                with anyio.move_on_after(_RETRY_PAUSE_S):
                    await self.stopping.wait()
                continue
            with worker.connection:
                await self._read_messages(number, worker, tasks)
            await anyio.wait_readable(worker.process.sentinel)
            worker.process.join()
            self.on_end(worker.process.pid or 0)
            if not self.stopping.is_set():
                code = worker.process.exitcode or 0
                _log.error("worker %d ended %s; starting another", number, _ending(code))
                await anyio.sleep(_RESPAWN_PAUSE_S)

    def _start(self) -> _WorkerProcess:
        context = get_context("spawn")
        connection, child_end = context.Pipe()
        arguments = (self.settings, self.listener, child_end)
        process = context.Process(target=self.worker_main, args=arguments, daemon=True)
        # Blocked signals stay blocked in a new process: they cannot hit a worker that is still importing.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, GROUP_SIGNALS)
        try:
            process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        child_end.close()
        return _WorkerProcess(process, connection)

    async def _read_messages(self, number: int, worker: _WorkerProcess, tasks: TaskGroup) -> None:
        """Do what a worker sends, until it has ended."""
        while True:
            await anyio.wait_readable(worker.connection.fileno())
            try:
                message: link.FromWorker = worker.connection.recv()
            except (EOFError, OSError):
                self._ended(number)
                worker.applied.set()
                return
            match message:
                case link.WorkerStarted(failure):
                    self._started(number, failure, tasks)
                case link.Applied(failure):
                    worker.failure = failure
                    worker.applied.set()
                case link.ReloadRequested(request):
                    tasks.start_soon(self._reload_for, worker, request)

    def _started(self, number: int, failure: str, tasks: TaskGroup) -> None:
        if not failure:
            self.ready.add(number)
            if len(self.ready) == self.settings.server.workers and not (
                self.is_ready or self.stopping.is_set()
            ):
                self.is_ready = True
                self.on_ready()
                if self.reloader is not None:
                    tasks.start_soon(self.reloader.run)
        elif not self.stopping.is_set() and number not in self.ready:
            # A worker that has served before and now does not start is started again, because the cause may pass.
            self.failure = failure
            self._stop()

    def _ended(self, number: int) -> None:
        if number in self.ready or self.stopping.is_set():
            return
        self.deaths[number] += 1
        if self.deaths[number] == _MAX_DEATHS:
            self.failure = f"a worker process died while starting, {_MAX_DEATHS} times in a row"
            self._stop()

    # Reloads.

    async def _reload_for(self, worker: _WorkerProcess, request: int) -> None:
        result = ReloadResult(errors=("there is nothing to load again",))
        if self.reloader is not None:
            result = await self.reloader.reload()
        with suppress(OSError):  # it has ended meanwhile
            async with worker.sending:
                worker.connection.send(link.ReloadEnded(request, result))

    async def _use(self, settings: Settings) -> None:
        """See ConfigReloader. Return when all workers use these settings."""
        if self.stopping.is_set():
            raise SettingsRefused("the gateway is stopping")
        self.use(settings)
        self.settings = settings  # of workers that are started from now on
        async with anyio.create_task_group() as tasks:
            for number, worker in self.workers.items():
                tasks.start_soon(self._use_in, number, worker, settings)

    async def _use_in(self, number: int, worker: _WorkerProcess, settings: Settings) -> None:
        worker.applied, worker.failure = anyio.Event(), ""
        failure = f"no response within {link.RELOAD_S:g} s"
        with anyio.move_on_after(link.RELOAD_S):
            try:
                # In a thread, because a worker that does not read would block this process.
                async with worker.sending:
                    await anyio.to_thread.run_sync(worker.connection.send, settings, abandon_on_cancel=True)
            except OSError:  # it has ended, and the next one is started with these settings
                return
            await worker.applied.wait()
            failure = worker.failure
        if failure and not self.stopping.is_set():
            # The next one is started with these settings. This one finishes its requests first.
            _log.error("worker %d cannot use the new configuration and is replaced: %s", number, failure)
            worker.process.terminate()
