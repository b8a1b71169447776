"""A gateway for one command: a process on a free port of this machine, which accepts only the key of that command.

It is a worker as `dragoman serve` starts them, in its own session, so that no key of the terminal reaches it. It
ends when this process does.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from socket import socket

import click
from msgspec.structs import replace
from starlette.types import ASGIApp, Receive, Scope, Send

from dragoman_server.serving.link import WorkerStarted
from dragoman_server.serving.run import worker_main
from dragoman_server.serving.sockets import BoundAddress, StartupError, bind
from dragoman_server.settings import ClientKey, Settings
from dragoman_server.settings.client_keys import hash_client_key, new_key
from dragoman_server.settings.secret import Secret

HOST = "127.0.0.1"
# Longer than a worker takes by its own limits (serving.run): to start, and to stop after `drain_s`.
_START_S = 35.0
_STOP_S = 10.0
# A stop may take so long without a word about it.
_QUIET_S = 1.0


@dataclass(frozen=True, slots=True)
class PrivateGateway:
    """A gateway that was started.

    Attributes:
        url: Its address.
        key: The client key.
        report: Its start is reported there.
        used: Its first request is reported there.
    """

    url: str
    key: str = field(repr=False)
    process: SpawnProcess
    report: Connection
    used: Connection

    def wait_until_ready(self) -> None:
        """Wait until it accepts requests. Raises StartupError."""
        if not self.report.poll(_START_S):
            raise StartupError(f"the gateway has not started within {_START_S:g} s")
        try:
            started: WorkerStarted = self.report.recv()
        except EOFError:
            started = WorkerStarted("the gateway ended while it started")
        if started.failure:
            raise StartupError(started.failure)

    @property
    def has_ended(self) -> bool:
        """True if it ended by itself."""
        return self.process.exitcode is not None

    @property
    def was_used(self) -> bool:
        """True if a request with the key has come."""
        return self.used.poll()


@dataclass(frozen=True, slots=True)
class _PrivateApp:
    """Makes the application, behind the key of this run.

    The key has its own secret: `server.secret` signs reasoning, and sessions go on in other runs.

    Attributes:
        used: Gets the first request.
    """

    key: ClientKey
    secret: Secret
    used: Connection

    def __call__(self, settings: Settings) -> ASGIApp:
        from dragoman_server.app import Application
        from dragoman_server.gateway import Gateway
        from dragoman_server.http.auth import KeyAuthMiddleware, Keyring
        from dragoman_server.http.errors import FallbackErrors

        gateway = Gateway(settings)
        errors = FallbackErrors(gateway)
        app = Application(gateway)
        reported = False

        async def reporting(scope: Scope, receive: Receive, send: Send) -> None:
            nonlocal reported
            if scope["type"] != "lifespan" and not reported:
                reported = True
                self.used.send(None)
            await app(scope, receive, send)

        return KeyAuthMiddleware(reporting, Keyring([self.key], self.secret), settings.server, errors.refuse)


def private_settings(settings: Settings) -> Settings:
    """Return the settings for one client on this machine: no TLS, no other keys, no `/admin`, no `/metrics`."""
    server = replace(
        settings.server,
        host=HOST,
        port=0,
        workers=1,
        certfile=None,
        keyfile=None,
        admin_key=None,
        metrics_key=None,
        stored_keys=False,
        drain_delay_s=0.0,  # for load balancers
    )
    return replace(settings, server=server, client_keys=())


@contextmanager
def starting(settings: Settings, log: str) -> Iterator[PrivateGateway]:
    """Start a gateway, and stop it after the block. It accepts requests after wait_until_ready().

    settings: see private_settings(). log: the file that its log is appended to. Raises StartupError.
    """
    key, secret = new_key(), Secret(new_key())
    context = get_context("spawn")
    report, child_end = context.Pipe()
    used, used_end = context.Pipe(duplex=False)
    app = _PrivateApp(ClientKey(name="run", hash=hash_client_key(key, secret)), secret, used_end)
    with bind(settings.server) as listener, report, used:
        host, port = listener.getsockname()[:2]
        url = BoundAddress("http", host, port, settings.server.backend).url
        process = context.Process(target=_serve, args=(settings, app, log, listener, child_end), daemon=True)
        process.start()
        child_end.close()
        used_end.close()
        listener.close()
        try:
            yield PrivateGateway(url, key, process, report, used)
        finally:
            process.terminate()
            with suppress(KeyboardInterrupt):
                process.join(_QUIET_S)
                if process.is_alive():
                    # Processes that the command has left behind may have some.
                    click.echo("dragoman: waiting for open requests; Ctrl-C ends them", err=True)
                process.join(settings.server.drain_s + _STOP_S)
            process.kill()
            process.join()


def _serve(settings: Settings, app: _PrivateApp, log: str, listener: socket, report: Connection) -> None:
    """Run the gateway in its process."""
    os.setsid()
    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for target, source in ((0, nothing), (1, out), (2, out)):
        os.dup2(source, target)
    os.close(out)
    os.close(nothing)
    worker_main(settings, listener, report, app_factory=app)
