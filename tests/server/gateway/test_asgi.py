"""`dragoman_server.asgi:app` in a real server: `hypercorn dragoman_server.asgi:app`."""

import json
import signal
import socket
import threading
import time
from pathlib import Path
from typing import Self

import pytest
from command.process import DEADLINE_S, Server
from edge import CHAT_PATH, STREAM_HEAD, Conversation, Upstream, chat, chunk, post, waits
from oracle import MESSAGES, check_error
from trials import trials

pytestmark = pytest.mark.process

HANDSHAKE = (
    b"GET /v1/messages HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: Upgrade\r\nupgrade: websocket\r\n"
    b"sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)
REQUEST = {"model": "sim/echo", "messages": [{"role": "user", "content": "Hello"}]}


each_worker_class = pytest.mark.parametrize("worker_class", ["asyncio", "uvloop", "trio"])

# The rule for our own server (R1), which holds here as well.
LEAVING_S = 0.25


class Hypercorn(Server):
    COMMAND = ("-m", "hypercorn", "dragoman_server.asgi:app", "--bind", "127.0.0.1:0")

    def listening(self) -> Self:
        self.port = int(self.wait_for_line(r"Running on http://127\.0\.0\.1:(\d+)")[1])
        return self


def read_until(client: socket.socket, text: bytes) -> bytes:
    data = b""
    while text not in data:
        more = client.recv(65536)
        assert more, data
        data += more
    return data


def check_responses(server: Hypercorn) -> None:
    """Check one of each kind: a response, and the refusal of a WebSocket."""
    response, received = server.request("POST", "/v1/chat/completions", REQUEST)
    assert (response.status, b"Hello" in received) == (200, True)
    with server.connect() as client:
        client.sendall(HANDSHAKE)
        head, _, body = read_until(client, b'"error"').partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 426 ")
    assert b"content-type: application/json" in head.lower()
    assert check_error(MESSAGES, 426, body) == []
    logged = json.loads(server.wait_for_line(r"\{.*")[0])
    assert (logged["path"], logged["status"]) == ("/v1/chat/completions", 200)


@each_worker_class
def test_hypercorn_serves_it_with_silence_leaving_and_a_stop(worker_class: str, tmp_path: Path) -> None:
    stopping = threading.Event()

    def ends_during_the_stop(conversation: Conversation) -> None:
        if conversation.read() is not None:
            conversation.send(STREAM_HEAD + chunk("Hello"))
            stopping.wait(DEADLINE_S)
            conversation.send(chunk(finish_reason="stop") + b"data: [DONE]\n\n")

    file = tmp_path / "dragoman.toml"
    with Upstream(waits) as upstream:
        file.write_text(
            'server = { keepalive_s = 0.1, log_format = "json" }\n'
            '[[upstreams]]\nname = "up"\nprotocol = "openai_chat"\n'
            f'base_url = "{upstream.url}"\nmodels = ["m"]\nmodel_list = false\n'
        )
        options = ("--worker-class", worker_class, "--graceful-timeout", f"{DEADLINE_S:.0f}")
        with Hypercorn(*options, env={"DRAGOMAN_CONFIG": str(file)}) as server:
            server.listening()
            check_responses(server)
            for stream in (True, False):
                for trial in trials():
                    before = len(upstream.with_request)
                    with trial:
                        with server.connect() as client:
                            client.sendall(post(CHAT_PATH, chat(stream=stream)))
                            if stream:
                                read_until(client, b": keepalive")
                            conversation = upstream.wait_for(before + 1)
                        left = time.monotonic()
                        assert upstream.wait_closed(conversation) - left < LEAVING_S
            upstream.script = ends_during_the_stop
            with server.connect() as client:
                client.sendall(post(CHAT_PATH, chat()))
                read_until(client, b"Hello")
                server.signal(signal.SIGTERM)
                for _ in range(10):
                    read_until(client, b": keepalive")
                stopping.set()
                assert read_until(client, b"0\r\n\r\n").endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")
            assert server.wait() == 0
        assert not [line for line in server.output if "Traceback" in line]


def test_its_configuration_is_reloaded(tmp_path: Path) -> None:
    file = tmp_path / "dragoman.toml"
    file.write_text("[models]\nbefore = 'sim/echo'\n")
    admin = "admin-canary-0123456789-0123456789-wq7zk"
    environ = {"DRAGOMAN_CONFIG": str(file), "DRAGOMAN_ADMIN_KEY": admin}
    with Hypercorn(env=environ) as server:
        server.listening()
        for text, status in (
            ("[models]\nafter = 'sim/echo'\n", 200),
            ("[models]\nafter = 'nowhere/x'\n", 422),
        ):
            file.write_text(text)
            response, received = server.request("POST", "/admin/reload", x_api_key=admin)
            assert (response.status, received[:1]) == (status, b"{")
            assert b'"after"' in server.get("/v1/models")


def test_an_invalid_configuration_is_reported_without_a_traceback() -> None:
    with Hypercorn(env={"DRAGOMAN_PORT": "abc"}) as server:
        server.wait()
    assert server.output == ['environment: DRAGOMAN_PORT: expected an integer, found "abc"']
