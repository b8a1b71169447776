"""A real Valkey or Redis server for tests: its own process, its own folder, a Unix socket, nothing on the network."""

import contextlib
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

BINARY = shutil.which("valkey-server") or shutil.which("redis-server")

# A server starts within some tens of milliseconds, on a machine that does nothing else.
_START_S = 20.0


class ValkeyServer:
    """It starts empty each time, as a server does that keeps nothing on disk."""

    def __init__(self, folder: Path, options: Sequence[str] = ()) -> None:
        self.socket = folder / "s"
        self.url = f"unix://{self.socket}"
        self._folder = folder
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Return when it responds."""
        assert BINARY is not None
        command = [
            BINARY,
            "--port",
            "0",
            "--unixsocket",
            str(self.socket),
            "--save",
            "",
            "--appendonly",
            "no",
        ]
        self._process = subprocess.Popen(
            [*command, *self._options, "--dir", str(self._folder)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        deadline = time.monotonic() + _START_S
        while not self.command("PING"):
            assert self._process.poll() is None, "the server has ended at once"
            assert time.monotonic() < deadline, "the server does not respond"
            time.sleep(0.01)

    def kill(self) -> None:
        """As a crash: what it knew is gone."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def pause(self) -> None:
        """It takes connections and bytes, and sends no response."""
        self._send(signal.SIGSTOP)

    def resume(self) -> None:
        self._send(signal.SIGCONT)

    def _send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def command(self, *arguments: str) -> bytes:
        """Return its response, empty if it cannot be reached."""
        with socket.socket(socket.AF_UNIX) as client, contextlib.suppress(OSError):
            client.settimeout(_START_S)
            client.connect(str(self.socket))
            client.sendall(" ".join(arguments).encode() + b"\r\n")
            return client.recv(65_536)
        return b""


@contextlib.contextmanager
def valkey_server(*options: str) -> Iterator[ValkeyServer]:
    """A server that runs, and is gone afterwards. Where there is none to run, the test is skipped."""
    if BINARY is None:
        pytest.skip("needs valkey-server or redis-server, see docs/state.md")
    # Not pytest's own folder: the path of a Unix socket has 107 bytes at most.
    with tempfile.TemporaryDirectory(prefix="dragoman-") as folder:
        server = ValkeyServer(Path(folder), options)
        try:
            server.start()
            yield server
        finally:
            server.kill()
