"""Run the ASGI application under hypercorn, on asyncio, uvloop or trio, in one process or several.

The listening socket is bound here, before anything else starts: a port in use is one clear line, port 0
is known by its real number, and all workers share the one socket. Hypercorn's part begins with that
socket and ends with the connections.

A stop has three steps, all bounded. No new connections, and `drain_s` for the open requests; then their
scopes are cancelled, which closes their sockets without a final chunk, the honest sign of a cut answer;
last, a timer ends the process, since a writer that is blocked on a client which does not read cannot be
cancelled on trio.
"""

import logging
import os
import signal
import socket
import ssl
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import parent_process
from multiprocessing.connection import Connection
from typing import Any, cast

import anyio
import hypercorn
from hypercorn.config import Sockets
from hypercorn.utils import LifespanFailureError, LifespanTimeoutError
from starlette.types import ASGIApp, Receive, Scope, Send

from ._listen import BACKLOG, Listening, StartupError, bind
from ._supervisor import Supervisor
from .log import configure, take_over
from .settings import ServerSettings, Settings

AppFactory = Callable[[Settings], ASGIApp]

_log = logging.getLogger("dragoman.server")
_http_log = logging.getLogger("dragoman.http")

# The steps of a stop after drain_s, in seconds: closing the connections that were cut, then the application's
# own shutdown.
_CLOSING_S = 2.0
_SHUTDOWN_S = 5.0

# Settings of hypercorn, and why they are not its defaults.
_HYPERCORN = {
    # Claude Code and Codex send some 10 KiB of headers; the same limit for both versions of HTTP.
    "h11_max_incomplete_size": 64 * 1024,
    "h2_max_header_list_size": 64 * 1024,
    # One client process seldom has more streams open; more wait instead of being refused.
    "h2_max_concurrent_streams": 128,
    # Longer than the pools of the SDKs keep an idle connection (5 to 60 s), so that the client closes it, not
    # we: a request sent into a closing connection fails. It also bounds the time that headers may take.
    "keep_alive_timeout": 75.0,
    # Agents make thousands of calls in a session; closing after 1000 would be an error in the middle of one.
    "keep_alive_max_requests": 1_000_000,
    # There is no read timeout: while an answer streams, the client is silent for minutes.
    "read_timeout": None,
    "ssl_handshake_timeout": 10.0,
    "startup_timeout": 30.0,
    "shutdown_timeout": _SHUTDOWN_S,
    "include_server_header": False,
    # The request log is the application's.
    "accesslog": None,
    # An encrypted key is an error; without a password here, OpenSSL asks for one on the terminal and waits.
    "keyfile_password": "",
    "backlog": BACKLOG,
}


def serve(settings: Settings, app_factory: AppFactory, *, on_ready: Callable[[Listening], None]) -> None:
    """Serve until SIGINT or SIGTERM, then drain and return. Raises StartupError.

    `app_factory` makes the application from the settings, once in each process; with several workers it must
    be importable by its name. `on_ready` is called once, when all workers accept connections.
    """
    server = settings.server
    _check_backend(server.backend)
    _check_tls(server)
    _set_up_logging(settings)
    listener = bind(server)
    with listener:
        name = listener.getsockname()
        listening = Listening("https" if server.tls else "http", name[0], name[1], server.backend)
        ready = partial(on_ready, listening)
        if server.workers == 1:
            _run_worker(settings, app_factory, listener, ready, (signal.SIGINT, signal.SIGTERM))
        else:
            worker_main = partial(_worker_main, settings, app_factory)
            stop_s = server.drain_s + _CLOSING_S + _SHUTDOWN_S
            anyio.run(Supervisor(server.workers, worker_main, listener, ready, stop_s).run)


def _set_up_logging(settings: Settings) -> None:
    server = settings.server
    configure(server.log_level, server.log_format, mask=settings.mask)
    take_over()
    # At level info hypercorn says where it runs; our own line says it, once for all workers.
    _http_log.setLevel(logging.DEBUG if server.log_level == "debug" else logging.WARNING)


# Before the start: everything that can be refused in one line.


def _check_backend(backend: str) -> None:
    if backend == "uvloop":
        try:
            import uvloop  # noqa: F401
        except ImportError:
            raise StartupError("uvloop is not installed here; use --backend asyncio or trio") from None


def _check_tls(server: ServerSettings) -> None:
    if server.certfile is None or server.keyfile is None:
        return
    for what, name in (("certfile", server.certfile), ("keyfile", server.keyfile)):
        try:
            with open(name, "rb"):
                pass
        except OSError as error:
            raise StartupError(f"cannot read the {what} {name}: {error.strerror}") from None
    try:
        _hypercorn_config(server, None).create_ssl_context()
    except (ssl.SSLError, OSError) as error:
        reason = getattr(error, "reason", None) or error
        raise StartupError(
            f"certfile {server.certfile} and keyfile {server.keyfile} are no usable pair: {reason}"
        ) from None


class _HypercornConfig(hypercorn.Config):
    """Hypercorn's configuration with a socket that is bound already."""

    listener: socket.socket | None = None

    def create_sockets(self) -> Sockets:
        assert self.listener is not None
        if self.ssl_enabled:
            return Sockets([self.listener], [], [])
        return Sockets([], [self.listener], [])


def _hypercorn_config(server: ServerSettings, listener: socket.socket | None) -> _HypercornConfig:
    config = _HypercornConfig()
    for name, value in _HYPERCORN.items():
        setattr(config, name, value)
    config.listener = listener
    config.errorlog = _http_log
    config.certfile, config.keyfile = server.certfile, server.keyfile
    config.alpn_protocols = ["h2", "http/1.1"] if server.http2 else ["http/1.1"]
    config.graceful_timeout = server.drain_s + _CLOSING_S
    config.websocket_max_message_size = server.max_body_bytes
    return config


# One worker.


class _Requests:
    """The application, with a scope around each request, so that a stop can cut what is left."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._scopes: set[anyio.CancelScope] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        with anyio.CancelScope() as cancel_scope:
            self._scopes.add(cancel_scope)
            try:
                await self._app(scope, receive, send)
            finally:
                self._scopes.discard(cancel_scope)

    def cut(self) -> None:
        """Cancel all requests that are open."""
        if self._scopes:
            _log.warning("requests cut, as they were still open: %d", len(self._scopes))
        for cancel_scope in tuple(self._scopes):
            cancel_scope.cancel()


@dataclass(slots=True)
class _Worker:
    settings: Settings
    requests: _Requests
    listener: socket.socket
    on_ready: Callable[[], None]
    signals: tuple[signal.Signals, ...]
    is_ready: bool = False
    stopping: anyio.Event = field(default_factory=anyio.Event)
    last_resort: threading.Timer | None = None

    async def run(self) -> None:
        server = self.settings.server
        config = _hypercorn_config(server, self.listener)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._watch_signals, tasks.cancel_scope)
            tasks.start_soon(self._watch_parent)
            tasks.start_soon(self._cut_after_drain)
            # In a task of its own: on CPython 3.11 asyncio's TaskGroup, which hypercorn is stopped through,
            # leaves its task marked as cancelled, and the mark would turn this clean end into an error.
            tasks.start_soon(self._serve, config, tasks.cancel_scope)

    async def _serve(self, config: _HypercornConfig, everything: anyio.CancelScope) -> None:
        try:
            await (
                self._on_trio(config) if self.settings.server.backend == "trio" else self._on_asyncio(config)
            )
        finally:
            if self.last_resort is not None:
                self.last_resort.cancel()
        everything.cancel()

    async def _on_asyncio(self, config: _HypercornConfig) -> None:
        import asyncio

        from hypercorn.asyncio import serve

        asyncio.get_running_loop().set_exception_handler(_note_unhandled)
        await serve(cast(Any, self.requests), config, shutdown_trigger=self._until_stop, mode="asgi")

    async def _on_trio(self, config: _HypercornConfig) -> None:
        from hypercorn.trio import serve

        await serve(cast(Any, self.requests), config, shutdown_trigger=self._until_stop, mode="asgi")

    async def _until_stop(self) -> None:
        # Hypercorn calls its trigger when the application has started and the socket is served: the one
        # moment that both backends report. On trio it also does so, in a cancelled scope, when the
        # application has refused to start; the checkpoint tells the two apart.
        await anyio.lowlevel.checkpoint()
        self.is_ready = True
        self.on_ready()
        await self.stopping.wait()

    async def _watch_signals(self, everything: anyio.CancelScope) -> None:
        with anyio.open_signal_receiver(*self.signals) as signals:
            async for _ in signals:
                if not self.is_ready:
                    everything.cancel()
                elif self.stopping.is_set():
                    # Asked a second time, somebody does not want to wait.
                    self.requests.cut()
                    self._leave_after(_CLOSING_S)
                else:
                    self._stop()

    async def _watch_parent(self) -> None:
        parent = parent_process()
        if parent is not None:
            # Readable means: the supervisor is gone, and nobody will tell us to stop.
            await anyio.wait_readable(cast(Any, parent.sentinel))
            self._stop()

    def _stop(self) -> None:
        if not self.stopping.is_set():
            self._leave_after(self.settings.server.drain_s + _CLOSING_S + _SHUTDOWN_S)
            self.stopping.set()

    def _leave_after(self, delay: float) -> None:
        if self.last_resort is not None:
            self.last_resort.cancel()
        self.last_resort = threading.Timer(delay, _leave)
        self.last_resort.daemon = True
        self.last_resort.start()

    async def _cut_after_drain(self) -> None:
        await self.stopping.wait()
        await anyio.sleep(self.settings.server.drain_s)
        self.requests.cut()


# A handshake fails when a client speaks plain HTTP or does not trust us: its fault, and it was told. A lifespan that
# fails in a worker that is stopped meanwhile, because another one could not start either, has nobody to tell.
_EXPECTED = (ssl.SSLError, LifespanFailureError)


def _note_unhandled(loop: Any, context: dict[str, Any]) -> None:
    if not isinstance(context.get("exception"), _EXPECTED):
        loop.default_exception_handler(context)


def _leave() -> None:
    _log.warning("some connections did not close in time; leaving them")
    logging.shutdown()
    os._exit(0)


def _run_worker(
    settings: Settings,
    app_factory: AppFactory,
    listener: socket.socket,
    on_ready: Callable[[], None],
    signals: tuple[signal.Signals, ...],
) -> None:
    worker = None

    async def main() -> None:
        nonlocal worker
        worker = _Worker(settings, _Requests(app_factory(settings)), listener, on_ready, signals)
        await worker.run()

    backend = settings.server.backend
    options: dict[str, Any] = {}
    if backend == "uvloop":
        import uvloop

        options["loop_factory"] = uvloop.new_event_loop
    try:
        anyio.run(main, backend="trio" if backend == "trio" else "asyncio", backend_options=options)
    except (Exception, BaseExceptionGroup) as error:
        text = _startup_failure(error)
        if text is None:
            raise
        raise StartupError(text) from None


def _startup_failure(error: BaseException) -> str | None:
    """The one line for an application that refuses to start, else None."""
    if isinstance(error, BaseExceptionGroup):
        return next(filter(None, map(_startup_failure, error.exceptions)), None)
    if isinstance(error, LifespanFailureError | LifespanTimeoutError):
        # The message of a failed lifespan may be a whole traceback; its last line is the exception.
        lines = str(error).rstrip("' \n").splitlines()
        return f"the application did not start: {lines[-1].strip()}"
    return None


# Several workers.


def _worker_main(
    settings: Settings, app_factory: AppFactory, listener: socket.socket, report: Connection
) -> None:
    """The whole life of a worker process. Says "" on `report` when it serves, or why it cannot."""
    # Ctrl-C reaches the whole process group; the supervisor alone acts on it, and tells us with SIGTERM.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
    _set_up_logging(settings)
    try:
        _run_worker(settings, app_factory, listener, partial(report.send, ""), (signal.SIGTERM,))
    except StartupError as error:
        # A supervisor that is gone, or that heard of us already, has closed its end.
        with suppress(OSError):
            report.send(str(error))
        sys.exit(1)
    except Exception:  # multiprocessing would print it in its own form
        _log.exception("a worker process failed")
        sys.exit(1)
