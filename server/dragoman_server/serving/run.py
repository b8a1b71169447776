"""Run the ASGI application on asyncio, uvloop or trio, in one process or several.

The listening socket is bound before anything else starts: a port in use is one line for the user, port 0 has its real
number, and all workers share the one socket. `server` accepts on it.

A stop has three steps, all bounded. First, no new connections, and `drain_s` for the open requests; then their scopes
are cancelled, which closes their sockets without a final chunk, so that clients see that the response was cut; last, a
timer ends the process.
"""

import gc
import logging
import os
import signal
import socket
import ssl
import sys
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import parent_process
from multiprocessing.connection import Connection
from typing import Any, cast

import anyio
import hypercorn
from starlette.types import ASGIApp

from dragoman_server.log import capture_foreign_logs, configure_logging
from dragoman_server.serving.connection import WorkerContext
from dragoman_server.serving.file_limit import raise_file_limit
from dragoman_server.serving.lifespan import lifespan
from dragoman_server.serving.server import serve_connections
from dragoman_server.serving.sockets import BoundAddress, StartupError, bind, notify_service_manager
from dragoman_server.serving.supervisor import GROUP_SIGNALS, Supervisor, stop_signals
from dragoman_server.settings import ServerSettings, Settings
from dragoman_server.telemetry.metrics import exposes_metrics, shared_directory

AppFactory = Callable[[Settings], ASGIApp]

_log = logging.getLogger("dragoman.server")
_http_log = logging.getLogger("dragoman.http")

# The steps of a stop after drain_s, in seconds: closing the connections that were cut, then the application's shutdown.
CLOSING_S = 2.0
SHUTDOWN_S = 5.0

_STARTUP_S = 30.0
# How often a stop reports the requests that are still open.
REPORT_S = 1.0
# How often freed memory is returned to the system.
TRIM_S = 10.0
_HANDSHAKE_S = 10.0

# Settings of hypercorn that differ from its defaults.
_HYPERCORN = {
    "include_server_header": False,
    # The application logs requests.
    "accesslog": None,
    # An encrypted key is an error; without a password here, OpenSSL waits for one on the terminal.
    "keyfile_password": "",
}


def serve(settings: Settings, app_factory: AppFactory, *, on_ready: Callable[[BoundAddress], None]) -> None:
    """Serve until SIGINT or SIGTERM, then drain and return. Raises StartupError.

    app_factory: makes the application from the settings, once in each process; with several workers it must be
        importable by its name.
    on_ready: called once, when all workers accept connections.
    """
    server = settings.server
    check_backend(server.backend)
    check_tls(server)
    _set_up_logging(settings)
    raise_file_limit(server.max_connections)  # before the workers start, which inherit it
    listener = bind(server)
    with listener:
        name = listener.getsockname()
        listening = BoundAddress.of(server, name[0], name[1])

        def ready() -> None:
            notify_service_manager("READY=1")
            on_ready(listening)

        if server.workers == 1:
            _run_worker(settings, app_factory, listener, ready, stop_signals())
        else:
            worker = partial(worker_main, settings, app_factory)
            gc.enable()  # this process only starts others
            stop_s = server.drain_s + CLOSING_S + SHUTDOWN_S
            with _shared_metrics(settings) as on_end:
                anyio.run(Supervisor(server.workers, worker, listener, ready, stop_s, on_end).run)
    _log.info("stopped")


@contextmanager
def _shared_metrics(settings: Settings) -> Iterator[Callable[[int], None]]:
    """Let the workers count together, if /metrics is on. Return what to call when one has ended."""
    if not exposes_metrics(settings):
        yield lambda pid: None
        return
    with ExitStack() as stack:
        try:
            on_end = stack.enter_context(shared_directory())
        except OSError as error:
            raise StartupError(
                f"the metrics of several workers need a directory for temporary files: {error.strerror}; "
                "set TMPDIR to one, or unset admin_key and metrics_key"
            ) from None
        yield on_end


def _set_up_logging(settings: Settings) -> None:
    server = settings.server
    configure_logging(server.log_level, server.log_format, mask=settings.mask)
    capture_foreign_logs()
    # At level info hypercorn logs its address for each worker; `on_ready` reports it once.
    _http_log.setLevel(logging.DEBUG if server.log_level == "debug" else logging.WARNING)


# Before the start: settings that are refused with one line.


def check_backend(backend: str) -> None:
    """Raise StartupError if the event loop is not installed."""
    if backend == "uvloop":
        try:
            import uvloop  # noqa: F401
        except ImportError:
            raise StartupError("uvloop is not installed; use --backend asyncio or trio") from None


def check_tls(server: ServerSettings) -> None:
    """Raise StartupError if the certificate and its key cannot be used."""
    if server.certfile is None or server.keyfile is None:
        return
    for what, name in (("certfile", server.certfile), ("keyfile", server.keyfile)):
        try:
            with open(name, "rb"):
                pass
        except OSError as error:
            raise StartupError(f"cannot read the {what} {name}: {error.strerror}") from None
    try:
        _hypercorn_config(server).create_ssl_context()
    except (ssl.SSLError, OSError) as error:
        reason = getattr(error, "reason", None) or error
        raise StartupError(
            f"certfile {server.certfile} and keyfile {server.keyfile} cannot be used together: {reason}"
        ) from None


def _hypercorn_config(server: ServerSettings) -> hypercorn.Config:
    config = hypercorn.Config()
    for name, value in _HYPERCORN.items():
        setattr(config, name, value)
    config.errorlog = _http_log
    config.certfile, config.keyfile = server.certfile, server.keyfile
    config.alpn_protocols = ["h2", "http/1.1"] if server.http2 else ["http/1.1"]
    return config


# One worker.


@dataclass(slots=True)
class _Worker:
    settings: Settings
    app: ASGIApp
    listener: socket.socket
    on_ready: Callable[[], None]
    signals: tuple[signal.Signals, ...]
    is_ready: bool = False
    signals_seen: int = 0
    all_tasks: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    stopping: anyio.Event = field(default_factory=anyio.Event)
    requests: set[anyio.CancelScope] = field(default_factory=set)
    connections: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    exit_timer: threading.Timer | None = None

    async def run(self) -> None:
        """Serve until a signal. Raises StartupError, in a group."""
        with self._signal_handlers(_call_soon(self.settings.server.backend)):
            async with anyio.create_task_group() as tasks:
                self.all_tasks = tasks.cancel_scope
                tasks.start_soon(self._watch_parent)
                tasks.start_soon(self._cut_after_drain)
                tasks.start_soon(return_freed_memory, self.requests)
                await self._serve()
                tasks.cancel_scope.cancel()

    @contextmanager
    def _signal_handlers(self, call_soon: Callable[[Callable[[], None]], object]) -> Iterator[None]:
        def handle(number: int, frame: object) -> None:
            # The timer does not start in the event loop, because code that does not return may block that.
            self.signals_seen += 1
            if not self.is_ready or self.signals_seen > 1:
                self._exit_after(CLOSING_S + (0 if self.is_ready else SHUTDOWN_S))
            else:
                self._exit_after(self._stop_s)
            call_soon(partial(self._signalled, signal.Signals(number).name))

        before = {number: signal.signal(number, handle) for number in self.signals}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            if self.exit_timer is not None:
                self.exit_timer.cancel()

    def _signalled(self, name: str) -> None:
        if not self.is_ready:
            _log.debug("%s during the start", name)
            self.all_tasks.cancel()
        elif self.stopping.is_set():
            _log.info("%s again: not waiting for open requests", name)
            self._cancel_requests()
        else:
            self._stop(name)

    def _stop(self, reason: str) -> None:
        requests, drain_s = len(self.requests), self.settings.server.drain_s
        if requests:
            text = "%s: no new connections, and up to %g s for open requests: %d; a second signal ends them"
            _log.info(text, reason, drain_s, requests)
        else:
            _log.info("%s: no new connections; no request is open", reason)
        self.stopping.set()

    async def _serve(self) -> None:
        server = self.settings.server
        if server.backend != "trio":
            import asyncio

            asyncio.get_running_loop().set_exception_handler(_handle_loop_error)
        config = _hypercorn_config(server)
        async with lifespan(self.app, _STARTUP_S, SHUTDOWN_S) as state:
            with anyio.CancelScope() as self.connections:
                await serve_connections(
                    WorkerContext(self.app, config, server, state, self.requests),
                    self.listener,
                    config.create_ssl_context(),
                    handshake_s=_HANDSHAKE_S,
                    on_ready=self._ready,
                    stopping=self.stopping,
                )

    def _ready(self) -> None:
        self.is_ready = True
        self.on_ready()

    async def _watch_parent(self) -> None:
        parent = parent_process()
        if parent is not None:
            # Readable means that the supervisor has ended, and cannot send a signal.
            await anyio.wait_readable(cast(Any, parent.sentinel))
            if not self.stopping.is_set():
                self._exit_after(self._stop_s)
                self._stop("the supervisor has ended")

    @property
    def _stop_s(self) -> float:
        return self.settings.server.drain_s + CLOSING_S + SHUTDOWN_S

    def _exit_after(self, delay: float) -> None:
        if self.exit_timer is not None:
            self.exit_timer.cancel()
        self.exit_timer = threading.Timer(delay, _exit_now)
        self.exit_timer.daemon = True
        self.exit_timer.start()

    def _cancel_requests(self) -> None:
        if self.requests:
            _log.warning("requests cancelled because they were still open: %d", len(self.requests))
        for cancel_scope in tuple(self.requests):
            cancel_scope.cancel()

    async def _cut_after_drain(self) -> None:
        await self.stopping.wait()
        with anyio.move_on_after(self.settings.server.drain_s):
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
    """Return what was freed to the system, again and again while no request is open, where the C library is glibc.

    glibc returns only the end of its heap. After 64 responses of 8 MiB at once some small object lies behind them, so
    the process keeps up to 500 MiB, of which 56 are in use; with a fixed MALLOC_MMAP_THRESHOLD_ or
    MALLOC_TRIM_THRESHOLD_ it still keeps 100. A call takes 0.1 ms where there is nothing to return, and some 0.3 ms for
    a megabyte that there is: too long a pause for a stream.

    Before that the garbage is collected, of which asyncio leaves some for each connection; the collector by itself runs
    only when there is much more. What was loaded at the start is frozen, so that takes less than a millisecond.
    """
    await anyio.sleep(TRIM_S)
    import ctypes  # not at the start, because nothing needs it there

    trim = getattr(ctypes.CDLL(None) if os.name == "posix" else None, "malloc_trim", None)
    while trim is not None:
        if not requests:
            gc.collect()
            trim(0)
        await anyio.sleep(TRIM_S)


def _call_soon(backend: str) -> Callable[[Callable[[], None]], object]:
    """Return the function by which a signal handler makes the running event loop call another one."""
    if backend == "trio":
        import trio

        return trio.lowlevel.current_trio_token().run_sync_soon
    import asyncio

    return asyncio.get_running_loop().call_soon_threadsafe


def _handle_loop_error(loop: Any, context: dict[str, Any]) -> None:
    # A handshake fails if a client sends plain HTTP or does not trust the certificate, and connections may break: these
    # are not errors of the gateway.
    if not isinstance(context.get("exception"), OSError):
        loop.default_exception_handler(context)


def _exit_now() -> None:
    _log.warning("some connections did not close in time; exiting without them")
    logging.shutdown()
    os._exit(0)


def _run_worker(
    settings: Settings,
    app_factory: AppFactory,
    listener: socket.socket,
    on_ready: Callable[[], None],
    signals: tuple[signal.Signals, ...],
) -> None:
    def ready() -> None:
        # The command has disabled collections, see __main__. None has to look at what is loaded by now: 0.2 MB of that
        # is garbage and stays, and to find it takes as long as a fifth of the start.
        gc.freeze()
        gc.enable()
        on_ready()

    async def main() -> None:
        await _Worker(settings, app_factory(settings), listener, ready, signals).run()

    try:
        if settings.server.backend == "trio":
            anyio.run(main, backend="trio")
        else:
            anyio.run(main, backend_options={"use_uvloop": settings.server.backend == "uvloop"})
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
    settings: Settings, app_factory: AppFactory, listener: socket.socket, report: Connection
) -> None:
    """Run a worker process. It sends "" on `report` when it serves, else the reason why it cannot."""
    # Ctrl-C and a closed terminal reach the whole process group. Only the supervisor acts on them, and sends SIGTERM.
    for number in GROUP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, GROUP_SIGNALS)
    _set_up_logging(settings)
    try:
        _run_worker(settings, app_factory, listener, partial(report.send, ""), (signal.SIGTERM,))
    except StartupError as error:
        # A supervisor that has ended, or has had a report of this worker, has closed its end.
        with suppress(OSError):
            report.send(str(error))
        sys.exit(1)
    except Exception:  # which multiprocessing would print in its own form
        _log.exception("a worker process failed")
        sys.exit(1)
