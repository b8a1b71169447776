"""What each client gets from `dragoman run`, and which model that is."""

import shlex
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import rows
from click.testing import Result
from command.cli import json_server, listing
from command.cli import run as run_command

from dragoman_server.cli.clients import CLIENTS, SDKS, ClientTarget, client_of

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


def given(lines: list[str]) -> list[str]:
    name, what, *variables = lines[0].split(" ")
    unchosen = ClientTarget("https://gateway.example" if what == "far" else URL, "drk_key")
    target = unchosen if what in ("key", "far") else TARGET
    if what.startswith("window="):
        target = replace(unchosen, context=int(what.removeprefix("window=")))
    client = SDKS if name == "sdk" else CLIENTS[name]
    changes = client.environment(target, dict(each.split("=") for each in variables))
    out = [f"{name}={value}" if value is not None else f"-{name}" for name, value in changes.items()]
    return [*out, *client.arguments(target)]


def test_what_a_client_gets() -> None:
    rows.check(Path(__file__).with_name("clients.txt"), given)


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
