"""Web pages in a real Chromium, and the server that they come from.

with Upstream(pages := Pages()) as server:
    pages.pages, pages.behind = {"/attack": script}, gateway.port
    reports = browse(pages, [f"http://evil.example:{server.port}/attack"], names={"evil.example"})

A page is a script. What it returns is what its report says. All that is no page is forwarded to the gateway, so that to
the browser a page's own name leads there, as it does after DNS rebinding.
"""

import json
import os
import queue
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
from command.process import DEADLINE_S
from edge import Conversation

OPTIONS = (
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


class Pages:
    """The script of an Upstream that serves pages by their paths, takes their reports, and forwards everything else."""

    def __init__(self) -> None:
        self.pages: Mapping[str, str] = {}
        self.behind = 0  # the gateway's port
        self.next: list[str] = []  # where the browser goes after a report
        self.reports: queue.Queue[Any] = queue.Queue()

    def __call__(self, conversation: Conversation) -> None:
        request = conversation.read()
        if request is None:
            return
        path = request.split(b" ")[1].decode()
        if path in self.pages:
            _respond(conversation, _PAGE.replace("SCRIPT", self.pages[path]), "text/html")
        elif path == "/report":
            _respond(conversation, self.next.pop(0) if self.next else "", "text/plain")
            self.reports.put(json.loads(request.partition(b"\r\n\r\n")[2]))
        elif path == "/favicon.ico":
            _respond(conversation, "", "image/x-icon")
        else:
            with socket.create_connection(("127.0.0.1", self.behind), timeout=DEADLINE_S) as gateway:
                # The next request of this connection may be for a page.
                gateway.sendall(request.replace(b"Connection: keep-alive", b"Connection: close", 1))
                while data := gateway.recv(65536):
                    conversation.send(data)


def _respond(conversation: Conversation, text: str, kind: str) -> None:
    body = text.encode()
    head = (
        f"HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n"
    )
    conversation.send(head.encode() + body)


def chromium() -> str:
    """Return the path of the browser. Skips the test where there is none."""
    found = shutil.which("chromium")
    if found is None:
        pytest.skip("needs chromium")
    return found


@contextmanager
def running(command: Sequence[str], home: str, descriptors: Sequence[int] = ()) -> Iterator[None]:
    """Have the browser run inside of this block. descriptors: that it inherits."""
    browser = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={"PATH": os.environ["PATH"], "HOME": home},
        start_new_session=True,
        pass_fds=descriptors,
    )
    try:
        yield
    finally:
        os.killpg(browser.pid, signal.SIGKILL)
        browser.wait(DEADLINE_S)


def browse(pages: Pages, urls: Sequence[str], names: Collection[str]) -> list[Any]:
    """What the pages report, one after the other in one Chromium. names: of hosts that lead to 127.0.0.1.

    Skips the test where there is no Chromium.
    """
    program = chromium()
    first, *pages.next = urls
    rules = ", ".join(f"MAP {name} 127.0.0.1" for name in names)
    with tempfile.TemporaryDirectory(prefix="dragoman-", ignore_cleanup_errors=True) as folder:
        options = [*OPTIONS, f"--host-resolver-rules={rules}", f"--user-data-dir={folder}"]
        with running([program, *options, first], folder):
            return [pages.reports.get(timeout=DEADLINE_S) for _ in urls]
