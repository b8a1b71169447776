"""Web pages in a real Chromium, and the server that they come from.

with PageServer(pages, behind=gateway.port) as server:
    reports = browse(server, ["http://evil.example:PORT/attack"], names={"evil.example"})

A page is a script. What it returns is what its report says. All that is no page is forwarded to the gateway, so that to
the browser a page's own name leads there, as it does after DNS rebinding.
"""

from __future__ import annotations

import json
import os
import queue
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
from collections.abc import Collection, Mapping, Sequence
from contextlib import closing, suppress
from typing import Any

import pytest
from command.process import DEADLINE_S

CHROMIUM = shutil.which("chromium")

_OPTIONS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-dev-shm-usage"),
    *("--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"),
    # What newer versions ask the user of pages that reach into the local network is not what protects the gateway.
    "--disable-features=LocalNetworkAccessChecks,BlockInsecurePrivateNetworkRequests",
)

_PAGE = """<!doctype html><meta charset="utf-8"><title>page</title><body><script>
const report = async (told) => {
  const next = await (await fetch("/report", {method: "POST", body: JSON.stringify(told)})).text();
  if (next) location = next;
};
(async () => {
SCRIPT
})().then(report, (error) => report({error: String(error)}));
</script>
"""


class PageServer:
    """Serves pages by their paths on 127.0.0.1, takes their reports, and forwards everything else."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.pages: Mapping[str, str] = {}
        self.behind = 0  # the gateway's port
        self.next: list[str] = []  # where the browser goes after a report
        self.reports: queue.Queue[Any] = queue.Queue()

    def __enter__(self) -> PageServer:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with closing(connection), suppress(OSError):
            data = b""
            while b"\r\n\r\n" not in data:
                more = connection.recv(65536)
                if not more:
                    return
                data += more
            path = data.split(b" ")[1].decode()
            if path in self.pages:
                self._respond(connection, _PAGE.replace("SCRIPT", self.pages[path]).encode(), "text/html")
            elif path == "/report":
                self._take(connection, data)
            elif path == "/favicon.ico":
                self._respond(connection, b"", "image/x-icon")
            else:
                self._forward(connection, data)

    def _respond(self, connection: socket.socket, body: bytes, kind: str) -> None:
        head = f"HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n"
        connection.sendall(head.encode() + body)

    def _take(self, connection: socket.socket, data: bytes) -> None:
        head, _, body = data.partition(b"\r\n\r\n")
        length = next(
            int(line.partition(b":")[2])
            for line in head.lower().split(b"\r\n")
            if line.startswith(b"content-length:")
        )
        while len(body) < length:
            body += connection.recv(65536)
        self._respond(connection, (self.next.pop(0) if self.next else "").encode(), "text/plain")
        self.reports.put(json.loads(body))

    def _forward(self, connection: socket.socket, data: bytes) -> None:
        with socket.create_connection(("127.0.0.1", self.behind), timeout=DEADLINE_S) as gateway:
            # The next request of this connection may be for a page.
            gateway.sendall(data.replace(b"Connection: keep-alive", b"Connection: close", 1))
            back = threading.Thread(target=_pipe, args=(gateway, connection), daemon=True)
            back.start()
            _pipe(connection, gateway)
            back.join(DEADLINE_S)


def _pipe(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)


def browse(server: PageServer, urls: Sequence[str], names: Collection[str]) -> list[Any]:
    """What the pages report, one after the other in one Chromium. names: of hosts that lead to 127.0.0.1.

    Skips the test where there is no Chromium.
    """
    if CHROMIUM is None:
        pytest.skip("needs chromium")
    first, *server.next = urls
    rules = ", ".join(f"MAP {name} 127.0.0.1" for name in names)
    with tempfile.TemporaryDirectory(prefix="dragoman-", ignore_cleanup_errors=True) as folder:
        browser = subprocess.Popen(
            [CHROMIUM, *_OPTIONS, f"--host-resolver-rules={rules}", f"--user-data-dir={folder}", first],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={"PATH": os.environ["PATH"], "HOME": folder},
            start_new_session=True,
        )
        try:
            return [server.reports.get(timeout=DEADLINE_S) for _ in urls]
        finally:
            os.killpg(browser.pid, signal.SIGKILL)
            browser.wait(DEADLINE_S)
