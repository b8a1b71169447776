"""Run the ASGI application on asyncio, uvloop or trio, in one process or several.

The listening socket is bound before anything else starts: a port in use is one line for the user, port 0 has its real
number, and all workers share the one socket. `server` accepts on it.

A stop has these steps, all bounded. For `drain_delay_s` only the application's readiness changes; then no new
connections, and `drain_s` for the open requests; then their scopes are cancelled, which closes their sockets without a
final chunk, so that clients see that the response was cut. From its first signal to the end of the process a timer runs
(`exit_timer`).

A reload gives new settings to the application and to connections that are accepted from then on.
"""

import gc
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable, Collection
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, cast, runtime_checkable

import anyio
import anyio.to_thread
from anyio.abc import TaskGroup
from starlette.types import ASGIApp, Receive, Scope, Send

from dragoman_server.config.loader import LoadedConfig
from dragoman_server.config.reload import ConfigReloader, Reload, SettingsRefused
from dragoman_server.feed.workers import feed_directory
from dragoman_server.log import capture_foreign_logs, configure_logging
from dragoman_server.platform.clock import event_loop
from dragoman_server.serving.connection import WorkerContext
from dragoman_server.serving.exit_timer import ExitTimer
from dragoman_server.serving.file_limit import raise_file_limit
from dragoman_server.serving.lifespan import lifespan
from dragoman_server.serving.server import serve_connections
from dragoman_server.serving.signals import GROUP_SIGNALS, SignalMeanings, signal_handlers, signal_meanings
from dragoman_server.serving.sockets import BoundAddress, StartupError, bind, notify_service_manager
from dragoman_server.serving.tasks import Request
from dragoman_server.serving.tls import check_tls, tls_context
from dragoman_server.settings import Settings
from dragoman_server.telemetry.metrics import metrics_directory

# The modules of several processes are not imported for one.
if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from dragoman_server.serving.link import SupervisorLink

AppFactory = Callable[[Settings], ASGIApp]


@runtime_checkable
class ReloadableApp(Protocol):
    """An application that can change its settings while it serves.

    Attributes:
        reloader: The application calls it for a reload; None if there is nothing to load.
        draining: A stop has begun.
    """

    reloader: Reload | None
    draining: bool

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None: ...

    async def reload(self, settings: Settings) -> None:
        """Use these settings from now on. Raises ValueError if they cannot be used."""

    async def drained(self) -> None:
        """Return when nothing goes on for which no request is open."""


_log = logging.getLogger("dragoman.server")

# The steps of a stop after drain_s, in seconds: closing the connections that were cut, then the application's shutdown.
# The latter is also the limit for threads that are still busy when the event loop has ended.
CLOSING_S = 2.0
SHUTDOWN_S = 5.0

_STARTUP_S = 30.0
# How often a stop reports the requests that are still open.
REPORT_S = 1.0
# How often freed memory is returned to the system.
TRIM_S = 10.0
_HANDSHAKE_S = 10.0


def serve(
    settings: Settings,
    app_factory: AppFactory,
    *,
    on_ready: Callable[[BoundAddress], None],
    load: Callable[[], LoadedConfig] | None = None,
) -> None:
    """Serve until SIGINT or SIGTERM, then drain and return, after which the process has to end. Raises StartupError.

    app_factory: makes the application from the settings, once in each process; with several workers it must be
        importable by its name.
    on_ready: called once, when all workers accept connections.
    load: loads the configuration again, for a reload. Without it SIGHUP is a stop.
    """
    server = settings.server
    check_backend(server.backend)
    check_tls(server)
    _set_up_logging(settings)
    meanings = signal_meanings(can_reload=load is not None)
    raise_file_limit(server.max_connections)  # before the workers start, which inherit it
    listener = bind(server)
    with listener:
        name = listener.getsockname()
        listening = BoundAddress.of(server, name[0], name[1])

        def ready() -> None:
            notify_service_manager("READY=1")
            on_ready(listening)

        if server.workers == 1:
            _run_worker(settings, app_factory, listener, ready, meanings, load=load)
        else:
            from dragoman_server.serving.supervisor import Supervisor

            worker = partial(worker_main, app_factory=app_factory)
            gc.enable()  # this process only starts others
            with ExitStack() as stack:
                try:
                    forget_gauges = stack.enter_context(metrics_directory(settings))
                    forget_socket = stack.enter_context(feed_directory())
                except OSError as error:
                    raise StartupError(
                        f"{error.strerror}: set TMPDIR to a directory for what the workers share"
                    ) from None

                def on_end(pid: int) -> None:
                    forget_gauges(pid)
                    forget_socket(pid)

                exit_within = ExitTimer().within
                supervisor = Supervisor(
                    settings, worker, listener, ready, meanings, load, _use, _stop_s, exit_within, on_end
                )
                anyio.run(supervisor.run)
    _log.info("stopped")


def _use(settings: Settings) -> None:
    """Use settings from a reload in this process. Raises SettingsRefused if that is impossible."""
    try:
        check_tls(settings.server)
    except StartupError as error:
        raise SettingsRefused(str(error)) from None
    raise_file_limit(settings.server.max_connections)
    _set_up_logging(settings)


def _set_up_logging(settings: Settings) -> None:
    server = settings.server
    configure_logging(server.log_level, server.log_format, mask=settings.mask)
    capture_foreign_logs()


# Before the start: settings that are refused with one line.


def check_backend(backend: str) -> None:
    """Raise StartupError if the event loop is not installed."""
    if backend == "uvloop":
        try:
            import uvloop  # noqa: F401
        except ImportError:
            raise StartupError("uvloop is not installed; use --backend asyncio or trio") from None


# One worker.


def _stop_s(settings: Settings) -> float:
    """Return the seconds that all steps of a stop may take."""
    server = settings.server
    return server.drain_delay_s + server.drain_s + CLOSING_S + SHUTDOWN_S


@dataclass(slots=True)
class _Worker:
    """A process that serves.

    Attributes:
        exit_within: See ExitTimer.within().
        load: See serve().
        link: To the supervisor, which loads for all workers.
    """

    settings: Settings
    app: ASGIApp
    listener: socket.socket
    on_ready: Callable[[], None]
    signals: SignalMeanings
    exit_within: Callable[[float], None]
    load: Callable[[], LoadedConfig] | None = None
    link: "SupervisorLink | None" = None
    is_ready: bool = False
    signals_seen: int = 0
    stop_begun: anyio.Event = field(default_factory=anyio.Event)
    stopping: anyio.Event = field(default_factory=anyio.Event)
    requests: set[Request] = field(default_factory=set)
    requests_cancelled: bool = False
    connections: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    context: WorkerContext | None = None
    reloader: ConfigReloader | None = None
    _tasks: TaskGroup = field(init=False)

    async def run(self) -> None:
        """Serve until a signal. Raises StartupError, in a group."""
        handlers = signal_handlers(
            self.signals,
            reload=self._reload_requested,
            stop=self._signalled,
            stop_begins=self._stop_begins,
        )
        with handlers:
            async with anyio.create_task_group() as self._tasks:
                if "multiprocessing" in sys.modules:  # without that no process has such a parent
                    self._tasks.start_soon(self._watch_parent)
                self._tasks.start_soon(self._stop_in_steps)
                self._tasks.start_soon(return_freed_memory, self.requests)
                if self.load is not None:
                    self.reloader = ConfigReloader(self.settings, self.load, self._use)
                reloader = self.link or self.reloader
                if isinstance(self.app, ReloadableApp):
                    self.app.reloader = None if reloader is None else reloader.reload
                await self._serve()
                self._tasks.cancel_scope.cancel()

    def _stop_begins(self) -> None:
        self.signals_seen += 1
        if not self.is_ready or self.signals_seen > 1:
            self.exit_within(CLOSING_S + (0 if self.is_ready else SHUTDOWN_S))
        else:
            self.exit_within(_stop_s(self.settings))

    def _signalled(self, name: str) -> None:
        if not self.is_ready:
            _log.debug("%s during the start", name)
            self._tasks.cancel_scope.cancel()
        elif self.stop_begun.is_set():
            _log.info("%s again: not waiting for open requests", name)
            self.stopping.set()
            self._cancel_requests()
        else:
            self._stop(name)

    def _stop(self, reason: str) -> None:
        requests, server = len(self.requests), self.settings.server
        if server.drain_delay_s:
            _log.info("%s: /readyz reports draining, for %g s", reason, server.drain_delay_s)
        elif requests:
            text = "%s: no new connections, and up to %g s for open requests: %d; a second signal ends them"
            _log.info(text, reason, server.drain_s, requests)
        else:
            _log.info("%s: no new connections; no request is open", reason)
        self.stop_begun.set()

    def _reload_requested(self) -> None:
        # Only an event is set, because a task cannot be started here: asyncio runs this in the context of what the
        # signal has interrupted.
        if self.reloader is not None and not self.stop_begun.is_set():
            self.reloader.request()

    async def _use(self, settings: Settings) -> None:
        """Use these settings for what begins from now on. Raises ValueError if that is impossible."""
        if self.stop_begun.is_set():
            raise SettingsRefused("the gateway is stopping")
        await anyio.to_thread.run_sync(lambda: settings.mask)  # takes 0.1 s for thousands of keys
        _use(settings)
        tls = tls_context(settings.server)
        if isinstance(self.app, ReloadableApp):
            try:
                await self.app.reload(settings)
            except ValueError:
                _set_up_logging(self.settings)
                raise
        self.settings = settings
        if self.context is not None:
            self.context.settings, self.context.tls = settings.server, tls

    async def _serve(self) -> None:
        server = self.settings.server
        if server.backend != "trio":
            import asyncio

            asyncio.get_running_loop().set_exception_handler(_handle_loop_error)
        failed = partial(self._stop_without_signal, "the application has failed")
        async with lifespan(self.app, _STARTUP_S, SHUTDOWN_S, failed) as state:
            self.context = WorkerContext(self.app, server, state, tls_context(server), self.requests)
            with anyio.CancelScope() as self.connections:
                await serve_connections(
                    self.context,
                    self.listener,
                    handshake_s=_HANDSHAKE_S,
                    on_ready=self._ready,
                    stopping=self.stopping,
                )
                if isinstance(self.app, ReloadableApp):
                    # As for an open request, until the same deadline, or a second signal.
                    with anyio.CancelScope() as scope:
                        self.requests.add(scope)
                        if self.requests_cancelled:
                            scope.cancel()
                        await self.app.drained()
                    self.requests.discard(scope)

    def _ready(self) -> None:
        self.is_ready = True
        self.on_ready()
        # Not before: settings that come meanwhile are for an application that has started.
        if self.link is not None:
            self._tasks.start_soon(self.link.run, self._use)
        if self.reloader is not None:
            self._tasks.start_soon(self.reloader.run)

    async def _watch_parent(self) -> None:
        from multiprocessing import parent_process

        if (parent := parent_process()) is not None:
            # Readable means that the supervisor has ended, and cannot send a signal.
            await anyio.wait_readable(cast(Any, parent.sentinel))
            self._stop_without_signal("the supervisor has ended")

    def _stop_without_signal(self, reason: str) -> None:
        if not self.stop_begun.is_set():
            self.exit_within(_stop_s(self.settings))
            self._stop(reason)

    def _cancel_requests(self) -> None:
        self.requests_cancelled = True
        if self.requests:
            _log.warning("requests cancelled because they were still open: %d", len(self.requests))
        for request in tuple(self.requests):
            request.cancel()

    async def _stop_in_steps(self) -> None:
        await self.stop_begun.wait()
        server = self.settings.server
        if isinstance(self.app, ReloadableApp):
            self.app.draining = True
        if server.drain_delay_s:
            with anyio.move_on_after(server.drain_delay_s):
                await self.stopping.wait()  # until a second signal
        self.stopping.set()
        with anyio.move_on_after(server.drain_s):
            await self._report_open_requests()
        self._cancel_requests()
        await anyio.sleep(CLOSING_S)
        self.connections.cancel()

    async def _report_open_requests(self) -> None:
        """Log how many requests are open, again and again while that changes. Never return."""
        before = len(self.requests)
        while True:
            await anyio.sleep(REPORT_S)
            if before != (before := len(self.requests)):
                _log.info("open requests: %d", before)


async def return_freed_memory(requests: Collection[object]) -> None:
    """Return freed memory to the system, again and again while no request is open, where the C library is glibc.

    glibc returns only the end of its heap. After 64 concurrent responses of 8 MiB, one small object at that end keeps
    500 MiB resident, of which 56 are used; with a fixed MALLOC_MMAP_THRESHOLD_ or MALLOC_TRIM_THRESHOLD_ it is still
    100. A call takes 0.1 ms if there is nothing to return, and about 0.3 ms for each MiB, too long while a stream is
    open.

    Before that the garbage is collected, of which asyncio leaves some for each connection; the collector by itself runs
    only when there is much more. Objects of the start are frozen, so there is little to look at.
    """
    await anyio.sleep(TRIM_S)
    import ctypes  # not at the start, because nothing needs it there

    trim = getattr(ctypes.CDLL(None) if os.name == "posix" else None, "malloc_trim", None)
    while trim is not None:
        if not requests:
            gc.collect()
            trim(0)
        await anyio.sleep(TRIM_S)


def _handle_loop_error(loop: Any, context: dict[str, Any]) -> None:
    # A handshake fails if a client sends plain HTTP or does not trust the certificate, and connections may break: these
    # are not errors of the gateway.
    if not isinstance(context.get("exception"), OSError):
        loop.default_exception_handler(context)


def _run_worker(
    settings: Settings,
    app_factory: AppFactory,
    listener: socket.socket,
    on_ready: Callable[[], None],
    signals: SignalMeanings,
    *,
    load: Callable[[], LoadedConfig] | None = None,
    link: "SupervisorLink | None" = None,
) -> None:
    def ready() -> None:
        # The command has disabled collections, see __main__. None has to look at the objects loaded so far: 0.2 MB of
        # them is garbage and stays, and to find it takes as long as a fifth of the start.
        gc.freeze()
        gc.enable()
        on_ready()

    exit_timer = ExitTimer()

    async def main() -> None:
        app = app_factory(settings)
        await _Worker(settings, app, listener, ready, signals, exit_timer.within, load, link).run()
        exit_timer.within(SHUTDOWN_S)  # nothing is left to wait for but threads

    try:
        anyio.run(main, **event_loop(settings.server.backend))
    except (Exception, BaseExceptionGroup) as error:
        refusal = _startup_error(error)
        if refusal is None:
            raise
        raise refusal from None


def _startup_error(error: BaseException) -> StartupError | None:
    if isinstance(error, BaseExceptionGroup):
        return next(filter(None, map(_startup_error, error.exceptions)), None)
    return error if isinstance(error, StartupError) else None


# Several workers.


def worker_main(
    settings: Settings, listener: socket.socket, connection: "Connection", *, app_factory: AppFactory
) -> None:
    """Run a worker process. connection: to the supervisor."""
    from dragoman_server.serving.link import SupervisorLink, WorkerStarted

    # Ctrl-C and a closed terminal reach the whole process group. Only the supervisor acts on them, and sends SIGTERM.
    for number in GROUP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, GROUP_SIGNALS)
    _set_up_logging(settings)
    ready = partial(connection.send, WorkerStarted())
    try:
        with listener:
            link, meanings = SupervisorLink(connection), SignalMeanings((signal.SIGTERM,))
            _run_worker(settings, app_factory, listener, ready, meanings, link=link)
    except StartupError as error:
        # A supervisor that has ended, or has had a report of this worker, has closed its end.
        with suppress(OSError):
            connection.send(WorkerStarted(str(error)))
        sys.exit(1)
    except Exception:  # which multiprocessing would print in its own form
        _log.exception("a worker process failed")
        sys.exit(1)
