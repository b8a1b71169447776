"""`dragoman_server.asgi:app` in a real server: `hypercorn dragoman_server.asgi:app`."""

import http.client
import json
import signal
from pathlib import Path

import pytest
from command.process import Server

pytestmark = pytest.mark.process

REQUEST = json.dumps({"model": "sim/echo", "messages": [{"role": "user", "content": "Hello"}]})


class Hypercorn(Server):
    COMMAND = ("-m", "hypercorn", "dragoman_server.asgi:app", "--bind", "127.0.0.1:0")


@pytest.mark.parametrize("worker_class", ["asyncio", "uvloop", "trio"])
def test_hypercorn_serves_it(worker_class: str) -> None:
    with Hypercorn("--worker-class", worker_class, env={"DRAGOMAN_LOG_FORMAT": "json"}) as server:
        server.port = int(server.wait_for_line(r"Running on http://127\.0\.0\.1:(\d+)")[1])
        connection = http.client.HTTPConnection("127.0.0.1", server.port)
        connection.request("POST", "/v1/chat/completions", REQUEST, {"content-type": "application/json"})
        response = connection.getresponse()
        assert (response.status, b"Hello" in response.read()) == (200, True)
        connection.close()
        logged = json.loads(server.wait_for_line(r"\{.*")[0])
        assert (logged["path"], logged["status"]) == ("/v1/chat/completions", 200)
        server.signal(signal.SIGTERM)
        assert server.wait() == 0


def test_its_configuration_is_reloaded(tmp_path: Path) -> None:
    file = tmp_path / "dragoman.toml"
    file.write_text("[models]\nbefore = 'sim/echo'\n")
    admin = "admin-canary-0123456789-0123456789-wq7zk"
    environ = {"DRAGOMAN_CONFIG": str(file), "DRAGOMAN_ADMIN_KEY": admin}
    with Hypercorn(env=environ) as server:
        server.port = int(server.wait_for_line(r"Running on http://127\.0\.0\.1:(\d+)")[1])
        for text, status in (
            ("[models]\nafter = 'sim/echo'\n", 200),
            ("[models]\nafter = 'nowhere/x'\n", 422),
        ):
            file.write_text(text)
            connection = http.client.HTTPConnection("127.0.0.1", server.port)
            connection.request("POST", "/admin/reload", headers={"x-api-key": admin})
            response = connection.getresponse()
            assert (response.status, response.read()[:1]) == (status, b"{")
            connection.close()
            assert b'"after"' in server.get("/v1/models")


def test_an_invalid_configuration_is_reported_without_a_traceback() -> None:
    with Hypercorn(env={"DRAGOMAN_PORT": "abc"}) as server:
        server.wait()
    assert server.output == ['environment: DRAGOMAN_PORT: expected an integer, found "abc"']
