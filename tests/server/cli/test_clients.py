"""What each client gets from `dragoman run`, and which model that is."""

import json
import shlex
import tomllib
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from click.testing import Result
from command.cli import json_server, listing
from command.cli import run as run_command

from dragoman_server.cli.clients import CLIENTS, SDKS, ClientTarget, client_of, options_for, variables_for

URL = "http://127.0.0.1:1234"
TARGET = ClientTarget(
    URL,
    "drk_key",
    "local/qwen3",
    "local/small",
    context=32_768,
    output=8_192,
    models=("local/qwen3", "local/other"),
)
UNCHOSEN = ClientTarget(URL, "drk_key")


def test_claude_code_gets_a_token_and_all_its_models() -> None:
    environ = {"ANTHROPIC_API_KEY": "sk-mine", "CLAUDE_CODE_USE_BEDROCK": "1", "OTHER": "1"}
    assert variables_for(CLIENTS["claude"], TARGET, environ) == {
        "ANTHROPIC_API_KEY": None,
        "CLAUDE_CODE_USE_BEDROCK": None,
        "ANTHROPIC_BASE_URL": URL,
        "ANTHROPIC_AUTH_TOKEN": "drk_key",
        "ANTHROPIC_MODEL": "local/qwen3",
        "ANTHROPIC_DEFAULT_OPUS_MODEL": "local/qwen3",
        "ANTHROPIC_DEFAULT_SONNET_MODEL": "local/qwen3",
        "ANTHROPIC_DEFAULT_FABLE_MODEL": "local/qwen3",
        "ANTHROPIC_DEFAULT_HAIKU_MODEL": "local/small",
        "ANTHROPIC_SMALL_FAST_MODEL": "local/small",
        "CLAUDE_CODE_SUBAGENT_MODEL": "local/qwen3",
        "CLAUDE_CODE_MAX_CONTEXT_TOKENS": "32768",
    }
    assert options_for(CLIENTS["claude"], TARGET) == []


@pytest.mark.parametrize(("context", "window"), [(99_999, None), (100_000, "100000")])
def test_claude_code_gets_no_window_for_compaction_that_it_would_raise(
    context: int, window: str | None
) -> None:
    variables = variables_for(CLIENTS["claude"], replace(TARGET, context=context), {})
    assert variables["CLAUDE_CODE_MAX_CONTEXT_TOKENS"] == str(context)
    assert variables.get("CLAUDE_CODE_AUTO_COMPACT_WINDOW") == window


def test_codex_gets_a_provider_by_options() -> None:
    assert variables_for(CLIENTS["codex"], TARGET, {}) == {"DRAGOMAN_KEY": "drk_key"}
    options = options_for(CLIENTS["codex"], TARGET)
    assert options[::2] == ["-c"] * 4
    assert tomllib.loads("\n".join(options[1::2])) == {
        "model_provider": "dragoman",
        "model_providers": {
            "dragoman": {
                "name": "Dragoman",
                "base_url": f"{URL}/v1",
                "wire_api": "responses",
                "env_key": "DRAGOMAN_KEY",
            }
        },
        "model": "local/qwen3",
        "model_context_window": 32_768,
    }


def test_opencode_gets_a_configuration_without_the_key() -> None:
    variables = variables_for(CLIENTS["opencode"], TARGET, {})
    assert variables["DRAGOMAN_KEY"] == "drk_key"
    config = json.loads(variables["OPENCODE_CONFIG_CONTENT"] or "")
    provider = config["provider"]["dragoman"]
    assert (config["model"], config["small_model"]) == ("dragoman/local/qwen3", "dragoman/local/small")
    assert provider["options"] == {"baseURL": f"{URL}/v1", "apiKey": "{env:DRAGOMAN_KEY}"}
    assert provider["models"] == {
        "local/qwen3": {"limit": {"context": 32_768, "output": 8_192}},
        "local/other": {},
        "local/small": {},
    }


def test_aider_gets_the_names_of_litellm() -> None:
    assert variables_for(CLIENTS["aider"], TARGET, {"AIDER_OPENAI_API_KEY": "sk-mine"}) == {
        "AIDER_OPENAI_API_KEY": None,
        "OPENAI_API_BASE": f"{URL}/v1",
        "OPENAI_API_KEY": "drk_key",
        "AIDER_MODEL": "openai/local/qwen3",
        "AIDER_WEAK_MODEL": "openai/local/small",
        "AIDER_SHOW_MODEL_WARNINGS": "false",
    }


@pytest.mark.parametrize("client", [*CLIENTS.values(), SDKS])
def test_what_is_not_known_is_left_out(client: object) -> None:
    assert isinstance(client, type(SDKS))
    values = [*variables_for(client, UNCHOSEN, {}).values(), *options_for(client, UNCHOSEN)]
    assert not any("None" in (value or "") or "null" in (value or "") for value in values)


@pytest.mark.parametrize(
    ("command", "client"),
    [
        ("claude", CLIENTS["claude"]),
        ("/usr/local/bin/claude", CLIENTS["claude"]),
        ("codex.exe", CLIENTS["codex"]),
        ("python", SDKS),
        ("claude-squad", SDKS),
    ],
)
def test_the_name_of_the_command_decides(command: str, client: object) -> None:
    assert client_of(command) is client


def test_a_proxy_is_not_used_for_a_gateway_on_this_machine() -> None:
    proxy = {"HTTPS_PROXY": "http://proxy.example:3128", "no_proxy": "intranet.example"}
    changes = variables_for(SDKS, UNCHOSEN, proxy)
    assert (changes["no_proxy"], changes["NO_PROXY"]) == ("intranet.example,127.0.0.1", "127.0.0.1")
    far = ClientTarget("https://gateway.example", "drk_key")
    assert "NO_PROXY" not in variables_for(SDKS, far, proxy)


def test_the_key_is_not_in_a_repr() -> None:
    assert "drk_key" not in repr(TARGET)


# Models.


run = partial(run_command, "run", "--print-env")


def models_of(result: Result) -> dict[str, str]:
    """Return the printed variables that name the models of Claude Code's largest and smallest tier."""
    assert result.exit_code == 0, result.output
    pairs = [line.removeprefix("export ").split("=", 1) for line in result.stdout.splitlines()]
    found = {name: shlex.split(value)[0] for name, value in pairs if name.startswith("ANTHROPIC_DEFAULT_")}
    return {
        tier: found[name]
        for tier in ("OPUS", "HAIKU")
        if (name := f"ANTHROPIC_DEFAULT_{tier}_MODEL") in found
    }


@pytest.fixture
def upstream() -> Iterator[str]:
    """The configuration of a server that lists two models with their context windows."""
    models = ({"id": "qwen3", "max_model_len": 32_768}, {"id": "small", "max_model_len": 8_192})
    with json_server(listing(*models)) as url:
        yield f'[[upstreams]]\nname = "local"\nprotocol = "openai_chat"\nbase_url = "{url}"\n'


def test_the_context_window_of_the_upstream_reaches_the_client(upstream: str) -> None:
    Path("dragoman.toml").write_text(upstream)
    assert "export CLAUDE_CODE_MAX_CONTEXT_TOKENS=32768\n" in run("claude").stdout
    assert "model_context_window=8192" in run("--model", "local/small", "codex").stdout


def test_a_window_that_is_too_small_for_the_client_is_a_warning(upstream: str) -> None:
    Path("dragoman.toml").write_text(upstream)
    (warning, fix) = run("--model", "local/small", "claude").stderr.splitlines()
    assert warning == (
        'warning  the model: "small" has a context window of 8,192 tokens, '
        "and the first request of claude takes about 12,500"
    )
    assert fix == "         fix: load the model with a larger context window, or use another model"
    assert run("--model", "local/qwen3", "claude").stderr == ""
    assert run("--model", "local/small", "python").stderr == ""
    routes = '[models]\n"claude-haiku-*" = "local/small"\n"claude-*" = "local/qwen3"\n'
    Path("dragoman.toml").write_text(upstream + routes)
    assert run("claude").stderr.startswith('warning  the model: "small" has')


def test_names_that_stand_for_other_models_have_the_smallest_of_their_windows(upstream: str) -> None:
    routes = '[models]\n"claude-haiku-*" = "local/small"\n"claude-*" = "local/qwen3"\n'
    Path("dragoman.toml").write_text(upstream + routes)
    result = run("claude")
    assert models_of(result) == {}
    assert "export CLAUDE_CODE_MAX_CONTEXT_TOKENS=8192\n" in result.stdout
