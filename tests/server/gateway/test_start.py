"""The cost of a start and of the first request, in what they load and call: times depend on the machine."""

import signal
import socket
import threading
from pathlib import Path

import pytest
from command.process import DEADLINE_S, Server

# Writes a line for each module that is imported, and for each request how many Python functions it called and if
# garbage is collected.
REPORT = """
import gc, logging, sys

calls = 0

def count(frame, event, argument):
    global calls
    calls += event == "call"

def requested(record):
    global calls
    print("calls", calls, "collector", gc.isenabled(), file=sys.stderr, flush=True)
    calls = 0
    return True

class Report:
    def find_spec(self, name, path=None, target=None):
        print("imports", name, file=sys.stderr, flush=True)

logging.getLogger("dragoman.requests").addFilter(requested)
sys.meta_path.insert(0, Report())
sys.setprofile(count)
from dragoman_server.__main__ import main
main()
"""

# What only some configurations use.
UNUSED = {
    "coredis": "the account store valkey",
    "dragoman.lint": "the command lint",
    "h11": "heads that are not plain",
    "h2": "clients over HTTP/2",
    "httpx2": "proxies, and URLs that are not plain",
    "importlib.metadata": "plug-ins, and advice about extras",
    "urllib.request": "proxies of the environment",
    "dragoman_server.cli.keys.command": "the command keys",
    "httpcore2": "upstreams over TLS or by a proxy",
    "socksio": "SOCKS proxies",
    "trio": "the backend trio",
    "uvloop": "the backend uvloop",
}

# How many times as many functions as a later request the first one may call.
FIRST_REQUEST = 3

RESPONSE = (
    b'{"id":"c","object":"chat.completion","model":"m","choices":'
    b'[{"index":0,"message":{"role":"assistant","content":"Hello"},"finish_reason":"stop"}]}'
)


class ReportingServer(Server):
    COMMAND = ("-c", REPORT, "serve")

    def imports_since(self, line: int) -> set[str]:
        return {each.removeprefix("imports ") for each in self.output[line:] if each.startswith("imports ")}

    def post(self) -> int:
        """Send a request, and return the number of its calls."""
        body = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]}
        response, received = self.request("POST", "/v1/messages", body)
        assert (response.status, b"Hello" in received) == (200, True)
        return int(self.wait_for_line(r"^calls (\d+) collector True$")[1])


def respond(listener: socket.socket, requests: int) -> None:
    """Be the upstream, on one connection."""
    with listener.accept()[0] as connection:
        for _ in range(requests):
            request = b""
            while not request.endswith(b"}"):
                request += connection.recv(65536)
            head = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(RESPONSE)}\r\n\r\n"
            connection.sendall(head.encode() + RESPONSE)


def config(folder: Path, *lines: str, backend: str = "asyncio") -> str:
    """Return the name of a file with one upstream, whose list of models the banner does not fetch."""
    server = ["[server]", "port = 0", f'backend = "{backend}"', 'usage_store = "memory"']
    upstream = ["[[upstreams]]", 'name = "up"', 'protocol = "openai_chat"', "model_list = false"]
    file = folder / "some.toml"
    file.write_text("\n".join([*server, *upstream, *lines]))
    return str(file)


@pytest.mark.process
@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_the_start_and_the_first_request(backend: str, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        upstream = threading.Thread(target=respond, args=(listener, 3), daemon=True)
        upstream.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
        file = config(tmp_path, f'base_url = "{url}"', 'default_model = "m"', backend=backend)
        with ReportingServer("--config", file).ready() as server:
            assert UNUSED.keys() & server.imports_since(0) == UNUSED.keys() & {backend}
            server.get("/healthz")
            server.get("/nothing")
            server.wait_for_line("^calls")
            started = len(server.output)
            first, _, later = server.post(), server.post(), server.post()
            assert server.imports_since(started) <= {"concurrent.futures.thread"}
            assert first < FIRST_REQUEST * later
            server.signal(signal.SIGTERM)
            assert server.wait() == 0
        upstream.join(DEADLINE_S)


HTTP = 'base_url = "http://llm.example/v1"'
PROXY = 'proxy = "http://proxy.example:3128"'


@pytest.mark.process
@pytest.mark.parametrize(
    ("lines", "environ"),
    [
        pytest.param([HTTP, PROXY], {}, id="a proxy"),
        pytest.param([HTTP, "[[accounts]]", 'upstream = "up"', 'name = "a"', PROXY], {}, id="an account's proxy"),
        pytest.param([HTTP], {"http_proxy": "http://proxy.example:3128"}, id="a proxy of the environment"),
    ],
)  # fmt: skip
def test_what_requests_by_a_proxy_need_is_loaded_at_the_start(
    lines: list[str], environ: dict[str, str], tmp_path: Path
) -> None:
    with ReportingServer("--config", config(tmp_path, *lines), env=environ).ready() as server:
        assert "httpcore2" in server.imports_since(0)


@pytest.mark.process
def test_tls_needs_nothing_of_httpx2s_transport(tmp_path: Path) -> None:
    """It would import trio as well: 50 ms."""
    https = 'base_url = "https://llm.example/v1"'
    with ReportingServer("--config", config(tmp_path, https)).ready() as server:
        assert not {"httpcore2", "trio"} & server.imports_since(0)
