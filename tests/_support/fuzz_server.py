"""A gateway process that is sent anything, and whether it is well afterwards."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import ssl
from collections.abc import Sequence
from pathlib import Path

from edge import EdgeGateway, Upstream, wait_until
from http_certificate import Certificate

# For a response to others, on a busy machine.
TIMEOUT_S = 60.0


class Served:
    """See above. A `with` block starts it."""

    def __init__(self, directory: Path, upstream: Upstream, certificate: Certificate, backend: str) -> None:
        lines = f'certfile = "{certificate.cert}"\nkeyfile = "{certificate.key}"'
        self.gateway = EdgeGateway(directory, upstream, backend=backend, server=lines)
        self._certificate = certificate
        self._seen = 0  # lines of the log

    def __enter__(self) -> Served:
        with contextlib.ExitStack() as open_yet:
            open_yet.enter_context(self.gateway)
            self.gateway.ready()
            self._tls = {name: self._context(name) for name in ("http/1.1", "h2")}
            self._health_client = http.client.HTTPSConnection(
                "127.0.0.1", self.gateway.port, timeout=TIMEOUT_S, context=self._certificate.client()
            )
            open_yet.callback(self._health_client.close)
            self.is_alive()
            self._descriptors = self.gateway.descriptors
            self._close = open_yet.pop_all().close
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def _context(self, protocol: str) -> ssl.SSLContext:
        context = self._certificate.client()
        context.set_alpn_protocols([protocol])
        return context

    def send(self, protocol: str, parts: Sequence[bytes], reads_response: bool) -> bytes:
        """Send bytes over a new connection and leave it. reads_response: return what comes back within 50 ms."""
        found = b""
        plain = socket.create_connection(("127.0.0.1", self.gateway.port), timeout=TIMEOUT_S)
        # The gateway may close at any byte.
        with (
            self._tls[protocol].wrap_socket(plain, server_hostname="127.0.0.1") as client,
            contextlib.suppress(OSError),
        ):
            for part in parts:
                client.sendall(part)
            client.settimeout(0.05)
            while reads_response and (data := client.recv(65536)):
                found += data
        return found

    def is_alive(self) -> None:
        """Assert that it responds to others, and has logged no exception."""
        self._health_client.request("GET", "/healthz")
        response = self._health_client.getresponse()
        assert (response.status, response.read()) == (200, b'{"status":"ok","name":"dragoman"}')
        lines, self._seen = self.gateway.output[self._seen :], len(self.gateway.output)
        for line in lines:
            assert "Traceback" not in line, line
            assert not line.startswith("{") or json.loads(line)["level"] in ("info", "warning"), line

    def is_well(self) -> None:
        """It is alive, and has let go of all connections."""
        self.is_alive()
        expected = self._descriptors
        wait_until(lambda: self.gateway.descriptors <= expected, TIMEOUT_S, f"{expected} descriptors")
