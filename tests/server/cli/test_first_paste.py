"""A real gateway process before a fake server: what it prints reaches a model, and so do requests of agents."""

import http.client
import json
import shlex
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlsplit

import pytest
from command.process import Server

pytestmark = pytest.mark.process

RESPONSE = {
    "id": "a",
    "object": "chat.completion",
    "created": 1,
    "model": "m",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "Hi"}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
}


class Gateway(Server):
    COMMAND: ClassVar[tuple[str, ...]] = ("-m", "dragoman_server", "serve", "--port", "0")


class Fake(ThreadingHTTPServer):
    """A server of Chat Completions that has these models. models_requested: in their order."""

    def __init__(self, models: list[str]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.models = models
        self.models_requested: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"


class _Handler(BaseHTTPRequestHandler):
    server: Fake

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        self._respond(200, {"data": [{"id": id, "max_model_len": 32_768} for id in self.server.models]})

    def do_POST(self) -> None:
        model = json.loads(self.rfile.read(int(self.headers["content-length"])))["model"]
        self.server.models_requested.append(model)
        known = model in self.server.models
        self._respond(
            200 if known else 404, RESPONSE if known else {"error": {"message": f"no model {model}"}}
        )

    def _respond(self, status: int, value: Any) -> None:
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


@contextmanager
def serving(*models: str) -> Iterator[Fake]:
    with Fake(list(models)) as fake:
        thread = threading.Thread(target=fake.serve_forever)
        thread.start()
        try:
            yield fake
        finally:
            fake.shutdown()
            thread.join()


def post(gateway: Gateway, path: str, body: dict[str, Any]) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=30)
    try:
        connection.request("POST", path, json.dumps(body), {"content-type": "application/json"})
        response = connection.getresponse()
        return response.status, response.read().decode()
    finally:
        connection.close()


def message(model: str) -> dict[str, Any]:
    return {"model": model, "max_tokens": 9, "messages": [{"role": "user", "content": "Hello"}]}


def run_curl(gateway: Gateway) -> tuple[int, str]:
    """Send the request of the printed curl line."""
    text = shlex.split(next(line for line in gateway.output if line.startswith("  curl ")))
    return post(gateway, urlsplit(text[1]).path, json.loads(text[text.index("-d") + 1]))


def named(directory: Path, fake: Fake) -> tuple[str, ...]:
    file = directory / "dragoman.toml"
    file.write_text(f'[[upstreams]]\nname = "local"\nprotocol = "openai_chat"\nbase_url = "{fake.url}"\n')
    return ("--config", str(file))


def test_an_upstream_of_the_file(tmp_path: Path) -> None:
    with serving("text-embedding-nomic", "qwen3") as fake:
        with Gateway(*named(tmp_path, fake)).ready() as gateway:
            assert run_curl(gateway)[0] == 200
            assert post(gateway, "/v1/messages", message("claude-opus-5-5"))[0] == 200
            assert post(gateway, "/v1/responses", {"model": "gpt-5.6", "input": "Hello"})[0] == 200
        assert fake.models_requested == ["qwen3", "qwen3", "qwen3"]
    printed = "\n".join(gateway.output)
    assert "ANTHROPIC_MODEL=local/qwen3 CLAUDE_CODE_MAX_CONTEXT_TOKENS=32768 claude" in printed
    assert '"model": "sim/' not in printed


def test_a_key_with_a_base_url_of_ones_own() -> None:
    with serving("qwen3", "llama") as fake:
        with Gateway(env={"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": fake.url}).ready() as gateway:
            assert run_curl(gateway)[0] == 200
        assert fake.models_requested == ["qwen3"]


def test_without_a_known_model_the_error_has_the_line_to_add(tmp_path: Path) -> None:
    with serving("qwen3", "llama") as fake, Gateway(*named(tmp_path, fake)).ready() as gateway:
        status, body = post(gateway, "/v1/messages", message("claude-opus-5-5"))
    assert status == 404
    assert json.loads(body)["error"]["message"] == (
        'no model claude-opus-5-5 (add to dragoman.toml, below [models]: "claude-*" = "local/qwen3")'
    )


def test_a_server_that_is_not_there_leaves_a_place_for_the_model(tmp_path: Path) -> None:
    with serving() as fake:
        arguments = named(tmp_path, fake)
    with Gateway(*arguments).ready() as gateway:
        pass
    assert "ANTHROPIC_MODEL=local/MODEL claude" in "\n".join(gateway.output)
    warning = next(line for line in gateway.output if line.startswith("warning: "))
    assert warning.startswith("warning: the models of local are unknown (")
    assert warning.endswith('MODEL, and add default_model = "MODEL" below its [[upstreams]]')


def test_a_server_of_the_environment_has_no_table_to_add_to() -> None:
    with serving() as fake:
        env = {"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": fake.url}
    with Gateway(env=env).ready() as gateway:
        pass
    warning = next(line for line in gateway.output if line.startswith("warning: "))
    assert warning.startswith("warning: the models of openai are unknown (")
    assert warning.endswith("write one in place of MODEL")
