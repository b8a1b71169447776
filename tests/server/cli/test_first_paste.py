"""A gateway process before a fake server: the line that it prints reaches a model, and so do requests of agents."""

import json
import shlex
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from command.cli import json_server
from command.process import GatewayProcess
from gateway.scripted import chat_response

MODELS = ["text-embedding-nomic", "qwen3"]


def post(gateway: GatewayProcess, path: str, body: dict[str, Any]) -> int:
    return gateway.request("POST", path, body)[0].status


@pytest.mark.process
def test_what_is_printed_reaches_a_model_and_so_do_agents(tmp_path: Path) -> None:
    models_requested: list[str] = []

    def respond(request: Any) -> tuple[int, Any]:
        if request is None:
            return 200, {"data": [{"id": id, "max_model_len": 32_768} for id in MODELS]}
        models_requested.append(request["model"])
        return 200, chat_response({"content": "Hi"})

    with json_server(respond) as url:
        file = tmp_path / "dragoman.toml"
        file.write_text(f'[[upstreams]]\nname = "local"\nprotocol = "openai_chat"\nbase_url = "{url}"\n')
        with GatewayProcess("--config", str(file)).ready() as gateway:
            curl = shlex.split(next(line for line in gateway.output if line.startswith("  curl ")))
            assert post(gateway, urlsplit(curl[1]).path, json.loads(curl[curl.index("-d") + 1])) == 200
            question = {"max_tokens": 9, "messages": [{"role": "user", "content": "Hello"}]}
            assert post(gateway, "/v1/messages", {"model": "claude-opus-5-5", **question}) == 200
            assert post(gateway, "/v1/responses", {"model": "gpt-5.6", "input": "Hello"}) == 200
    assert models_requested == ["qwen3", "qwen3", "qwen3"]
    printed = "\n".join(gateway.output)
    assert "ANTHROPIC_MODEL=local/qwen3 CLAUDE_CODE_MAX_CONTEXT_TOKENS=32768 claude" in printed
    assert '"model": "sim/' not in printed
