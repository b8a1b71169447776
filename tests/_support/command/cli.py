"""The command inside of the process of the tests, and a server on this machine that it may ask."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from click.testing import CliRunner, Result

from dragoman_server.cli.commands import main

# What a POST contains (None for a GET) -> status and JSON of the response.
Respond = Callable[[Any], tuple[int, Any]]


def run(*arguments: str, body: Any = b"", **environ: str) -> Result:
    """Run a command. body: its stdin, bytes or a JSON value."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return CliRunner(env=environ).invoke(main, arguments, input=data)


class _Handler(BaseHTTPRequestHandler):
    server: "_JsonServer"

    def log_message(self, *_: object) -> None:
        pass

    def do_POST(self) -> None:
        data = self.rfile.read(int(self.headers["content-length"] or 0))
        try:
            request = json.loads(data)
        except ValueError:
            self._respond(400, {"error": {"message": "not JSON"}})
        else:
            self._respond(*self.server.respond(request))

    def do_GET(self) -> None:
        self._respond(*self.server.respond(None))

    def _respond(self, status: int, value: Any) -> None:
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


class _JsonServer(ThreadingHTTPServer):
    def __init__(self, respond: Respond) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.respond = respond


@contextmanager
def json_server(respond: Respond) -> Iterator[str]:
    """Serve while the block lasts. Yields the base URL of Chat Completions there."""
    with _JsonServer(respond) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/v1"
        finally:
            server.shutdown()
            thread.join()


def listing(*models: dict[str, Any]) -> Respond:
    """Respond with a list of these models, and to nothing else."""
    return lambda request: (200, {"data": models}) if request is None else (501, {})
