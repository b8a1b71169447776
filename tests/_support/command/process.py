"""Start a `dragoman` process and talk to it, by default the script command/server.py.

Every wait has a deadline, and every process is reaped.
"""

import http.client
import json
import os
import queue
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import canaries

SCRIPT = Path(__file__).with_name("server.py")
# The machine may be busy: this bounds a hang, it is no expectation.
DEADLINE_S = 60.0
LISTENS = re.compile(r"(?:Dragoman|The simulator) listens on (https?)://(.*):(\d+) \((\w+)\)")


def _own_terminal(terminal: int | None) -> list[str]:
    """The command that makes the terminal on stdin that of the session, and then runs the rest."""
    if terminal is None:
        return []
    code = "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.argv[1], sys.argv[1:])"
    return [sys.executable, "-c", code]


class Server:
    """A running `dragoman serve`. Leave the `with` block to have it killed if it still runs.

    command: to run instead of COMMAND with this Python.
    terminal: a descriptor of what becomes its controlling terminal; by default it has none.
    """

    COMMAND: ClassVar[tuple[str, ...]] = (str(SCRIPT), "serve")

    def __init__(
        self,
        *arguments: str,
        env: Mapping[str, str] | None = None,
        command: Sequence[str] | None = None,
        terminal: int | None = None,
    ) -> None:
        canaries.add((env or {}).values())
        for argument in arguments:
            if argument.endswith(".toml"):
                canaries.add_from(Path(argument))
        self._process = subprocess.Popen(
            [*_own_terminal(terminal), *(command or (sys.executable, *self.COMMAND)), *arguments],
            stdin=subprocess.DEVNULL if terminal is None else terminal,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            # Nothing of the tester's own keys and settings.
            env={
                **{name: os.environ[name] for name in ("PATH", "XDG_STATE_HOME") if name in os.environ},
                "PYTHONWARNINGS": "error",
                **(env or {}),
            },
            start_new_session=True,
        )
        self.output: list[str] = []
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._reads, self._paused = threading.Event(), threading.Event()
        self._reads.set()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()
        self.port = 0
        self.backend = ""
        self.pid = self._process.pid

    def _read(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            if not self._reads.is_set():
                self._paused.set()
                self._reads.wait()
            self.output.append(line.rstrip("\n"))
            canaries.look("output", line)
            self._lines.put(line)
        self._lines.put(None)

    def wait_for_line(self, pattern: str) -> re.Match[str]:
        """The next line of stderr that matches; fails when the process ends before."""
        while (line := self._lines.get(timeout=DEADLINE_S)) is not None:
            match = re.search(pattern, line)
            if match is not None:
                return match
        raise AssertionError("\n".join(["the server ended:", *self.output]))

    def ready(self) -> Self:
        match = self.wait_for_line(LISTENS.pattern)
        self.port, self.backend = int(match[3]), match[4]
        return self

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=DEADLINE_S)

    def request(
        self, method: str, path: str, body: Any = None, **headers: str
    ) -> tuple[http.client.HTTPResponse, bytes]:
        """Send a request on its own connection, so that any worker may get it. body: a JSON value, if there is one."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=DEADLINE_S)
        sent = {"content-type": "application/json", **{k.replace("_", "-"): v for k, v in headers.items()}}
        try:
            connection.request(method, path, None if body is None else json.dumps(body), sent)
            response = connection.getresponse()
            received = response.read()
            canaries.look("body", received)
            return response, received
        finally:
            connection.close()

    def get(self, path: str) -> bytes:
        return self.request("GET", path)[1]

    @staticmethod
    def read_to_end(client: socket.socket) -> bytes:
        """What comes until the server closes, and close as well: the server waits for that for a second."""
        with client:
            return b"".join(iter(lambda: client.recv(65536), b""))

    def wait_until_closed(self) -> None:
        """Wait until nobody accepts connections any more."""
        deadline = time.monotonic() + DEADLINE_S
        while time.monotonic() < deadline:
            try:
                self.connect().close()
            except ConnectionRefusedError:
                return
            except OSError:
                pass  # of a busy machine, or the connection was in the backlog of a socket that was just closed
            time.sleep(0.01)
        raise AssertionError("the socket is still open")

    @property
    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def stop_reading(self) -> None:
        """Read no more of its output until it has ended. From now on each write to stderr blocks it."""
        self._reads.clear()
        descriptor = os.open(f"/proc/{self.pid}/fd/2", os.O_WRONLY | os.O_NONBLOCK)
        with open(descriptor, "wb", buffering=0) as pipe:
            pipe.write(b"\n")
            assert self._paused.wait(DEADLINE_S)
            while pipe.write(b"\n"):
                pass

    def wait(self) -> int:
        """The exit code, once the process has ended and all its output is read."""
        try:
            code = self._process.wait(timeout=DEADLINE_S)
        finally:
            self._reads.set()
        self._reader.join(timeout=DEADLINE_S)
        return code

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            # The session that was made for it: workers go as well.
            os.killpg(self._process.pid, signal.SIGKILL)
        self.wait()
        self._process.stderr.close()


class GatewayProcess(Server):
    """The real command, at any free port."""

    COMMAND: ClassVar[tuple[str, ...]] = ("-m", "dragoman_server", "serve", "--port", "0")

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"
