"""Behind nginx and haproxy: the gateway sees the requests that the proxy has sent, no more and no others.

Every row of the table of heads goes to the proxy, which keeps its connections to the gateway open. If both did not
agree on where a request ends, bytes that the proxy takes for a body would be a request for the gateway, or the other
way round.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import socket
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from command.process import DEADLINE_S
from edge import EdgeGateway, Gateways
from http_heads import CASES, CHUNKED, HELLO, SECOND, get, post

pytestmark = pytest.mark.process

# Beside the table: requests that have passed other proxies. Each is followed by a second request.
LENGTH_2 = b"content-length: %d\r\n" % len(SECOND)
NO_CHUNKS = b"0\r\n\r\n"
MORE = {
    "a body for GET": get(LENGTH_2) + SECOND,
    "chunks for GET": get(CHUNKED) + HELLO,
    "a coding that Connection names": post(b"connection: transfer-encoding\r\n" + CHUNKED, HELLO),
    "a length that Connection names": post(b"connection: content-length\r\n" + LENGTH_2, SECOND),
    "a length with an underscore": post(b"content_length: 50\r\ncontent-length: 5\r\n", b"hello"),
    "a coding with a colon": post(b"transfer-encoding: :chunked\r\ncontent-length: 5\r\n", NO_CHUNKS),
    "a coding in quotes": post(b'transfer-encoding: "chunked"\r\ncontent-length: 5\r\n', NO_CHUNKS),
    "a coding behind a form feed": post(b"transfer-encoding:\x0cchunked\r\ncontent-length: 5\r\n", NO_CHUNKS),
    "a coding behind a no-break space": post(
        b"transfer-encoding:\xa0chunked\r\ncontent-length: 5\r\n", NO_CHUNKS
    ),
    "an extension with LF": post(CHUNKED, b"5;a\nhello\r\n0\r\n\r\n"),
    "an extension with CR": post(CHUNKED, b"5;a\rb\r\nhello\r\n0\r\n\r\n"),
    "an end of LF": post(CHUNKED, b"5\r\nhello\r\n0\n\n"),
    "a trailer with LF": post(CHUNKED, b"5\r\nhello\r\n0\r\n\n"),
    "a trailer that is a length": post(CHUNKED, b"5\r\nhello\r\n0\r\ncontent-length: 50\r\n\r\n"),
    "a size of seventeen digits": post(CHUNKED, b"00000000000000005\r\nhello\r\n0\r\n\r\n"),
    "a size that overflows": post(CHUNKED, b"10000000000000005\r\nhello\r\n0\r\n\r\n"),
    "a body that is expected": post(b"expect: 100-continue\r\n" + LENGTH_2, SECOND),
    "an upgrade": get(b"connection: upgrade\r\nupgrade: websocket\r\n"),
}

NGINX = """
daemon off; master_process off; pid {directory}/pid; error_log {directory}/error;
events {{}}
http {{
  log_format sent '$request_uri $upstream_status'; access_log {directory}/sent sent;
  client_body_temp_path {directory}/a; proxy_temp_path {directory}/b; fastcgi_temp_path {directory}/c;
  uwsgi_temp_path {directory}/d; scgi_temp_path {directory}/e;
  keepalive_timeout 1s; client_header_timeout 1s; client_body_timeout 1s;
  upstream gateway {{ server 127.0.0.1:{gateway}; keepalive 2; }}
  server {{
    listen 127.0.0.1:{port};
    location / {{
      proxy_pass http://gateway; proxy_http_version 1.1;
      proxy_set_header connection ""; proxy_set_header host localhost;
      proxy_request_buffering off;
    }}
  }}
}}
"""
HAPROXY = """
global
  log stdout format raw local0
defaults
  mode http
  log global
  log-format "%HU %s"
  timeout connect 5s
  timeout server 5s
  timeout client 1s
  timeout http-request 1s
  timeout http-keep-alive 1s
  http-reuse always
frontend clients
  bind 127.0.0.1:{port}
  default_backend gateway
backend gateway
  server gateway 127.0.0.1:{gateway}
"""


class Proxy:
    """A proxy that runs. sent(): the lines of its log about requests that it sent to the gateway."""

    def __init__(self, name: str, directory: Path, gateway: int) -> None:
        self.port = _free_port()
        self._sent = directory / "sent"
        self._sent.touch()
        file = directory / "configuration"
        values = {"directory": directory, "gateway": gateway, "port": self.port}
        if name == "nginx":
            file.write_text(NGINX.format(**values))
            command = ["nginx", "-p", str(directory), "-c", str(file), "-e", str(directory / "error")]
            self._was_sent: Callable[[str], bool] = lambda line: not line.endswith("-")
        else:
            file.write_text(HAPROXY.format(**values))
            command = ["haproxy", "-f", str(file)]
            self._was_sent = lambda line: not line.endswith("<NOSRV>")
        with self._sent.open("a") as out:
            self._process = subprocess.Popen(
                command, stdout=out if name == "haproxy" else None, stderr=subprocess.DEVNULL
            )

    def sent(self) -> list[str]:
        return [line for line in self._sent.read_text("latin-1").splitlines() if self._was_sent(line)]

    def wait(self) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while time.monotonic() < deadline:
            assert self._process.poll() is None, "the proxy has ended"
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", self.port)).close()
                return
            time.sleep(0.02)

    def __enter__(self) -> Proxy:
        self.wait()
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait(DEADLINE_S)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        port = found.getsockname()[1]
        assert isinstance(port, int)
        return port


def _send(port: int, sent: bytes) -> None:
    """Send and read until the proxy closes, which it does when nothing comes for a second."""
    with (
        socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_S) as client,
        contextlib.suppress(OSError),
    ):
        client.sendall(sent)
        while client.recv(65536):
            pass


def _seen(lines: list[str]) -> Counter[str]:
    """Return how often each name of a request is in the lines."""
    return Counter(found[0] for line in lines if (found := re.search(r"/seen/\d+/\d+", line)))


@pytest.mark.promise("S5")
@pytest.mark.parametrize("name", ["nginx", "haproxy"])
def test_a_proxy_and_the_gateway_read_the_same_requests(
    tmp_path: Path, gateways: Gateways, name: str
) -> None:
    if shutil.which(name) is None:
        pytest.skip(f"needs {name}")
    rows = {name: case.sent for name, case in CASES.items()} | {n: sent + SECOND for n, sent in MORE.items()}
    numbered = [sent.replace(b"/seen/", b"/seen/%d/" % number) for number, sent in enumerate(rows.values())]
    with gateways.lend("asyncio") as (_, gateway):
        known = len(gateway.log())
        (tmp_path / name).mkdir()
        with Proxy(name, tmp_path / name, gateway.port) as proxy:
            with ThreadPoolExecutor(len(rows)) as pool:
                list(pool.map(lambda sent: _send(proxy.port, sent), numbered))
            deadline = time.monotonic() + DEADLINE_S / 3
            while True:
                sent, seen = _seen(proxy.sent()), _seen(_paths(gateway)[known:])
                if (sent == seen and len(seen) > 20) or time.monotonic() > deadline:
                    break
                time.sleep(0.02)
    names = list(rows)
    wrong = {f"{names[int(each.split('/')[2])]}: {each}" for each in (sent - seen) + (seen - sent)}
    assert wrong == set()
    assert max(seen.values()) == 1
    assert len(seen) > 20


def _paths(gateway: EdgeGateway) -> list[str]:
    return [str(line.get("path")) for line in gateway.log()]
