"""`dragoman init`: the file that it writes is checked, served, private, and says what it is."""

import os
import pty
import socket
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import pytest
from command.cli import run as run_command
from command.process import DEADLINE_S
from config_text import CANARY, needed_besides_key
from msgspec.structs import replace

from dragoman_server.capabilities.local_servers import LOCAL_SERVERS
from dragoman_server.capabilities.providers import PROVIDERS
from dragoman_server.cli.init import initial_config
from dragoman_server.cli.listeners import Listener
from dragoman_server.cli.local_servers import FoundServer
from dragoman_server.config.loader import LoadedConfig, load
from dragoman_server.models.info import ModelInfo
from dragoman_server.models.routes import ModelRoute, resolve
from dragoman_server.platform.extras import install_command
from dragoman_server.serving.sockets import BoundAddress

FILE = Path("dragoman.toml")
BY_NAME = {server.name: server for server in LOCAL_SERVERS}


@pytest.fixture
def servers() -> list[FoundServer]:
    """What is found on this machine."""
    return []


@pytest.fixture(autouse=True)
def _this_machine(monkeypatch: pytest.MonkeyPatch, servers: list[FoundServer]) -> None:
    async def find_local_servers(environ: Mapping[str, str]) -> list[FoundServer]:
        return servers

    monkeypatch.setattr(initial_config, "find_local_servers", find_local_servers)
    # One that is free on every machine that runs this.
    with socket.create_server(("127.0.0.1", 0)) as listener:
        monkeypatch.setenv("DRAGOMAN_PORT", str(listener.getsockname()[1]))


run = partial(run_command, "init")


def written(**environ: str) -> LoadedConfig:
    """Write the file, and load it: without an error and without a warning."""
    result = run("--yes", "--force", **environ)
    assert result.exit_code == 0, result.output
    assert CANARY not in result.output + FILE.read_text()
    loaded = load(environ=environ)
    assert (loaded.path, loaded.warnings) == ("dragoman.toml", ())
    return loaded


def test_each_provider_with_a_key_is_an_upstream_that_refers_to_it() -> None:
    for provider in PROVIDERS:
        for variable, _ in provider.keys:
            environ = {variable: CANARY, **needed_besides_key(provider)}
            loaded = written(**environ)
            environment = load(environ=environ, path=os.devnull).settings
            assert loaded.settings.upstreams == tuple(
                # What the settings leave out is the same.
                replace(each, auth=loaded.settings.upstreams[0].auth, variables={})
                for each in environment.upstreams
            )
            assert f'api_key = "${{{variable}}}"' in FILE.read_text()


CLOUDS = {
    "CLAUDE_CODE_USE_BEDROCK": "1",
    "AWS_DEFAULT_REGION": "us-gov-west-1",
    "ANTHROPIC_AWS_WORKSPACE_ID": "wrkspc_1",
    "ANTHROPIC_VERTEX_PROJECT_ID": "the-project",
    "ANTHROPIC_BEDROCK_MANTLE_BASE_URL": "http://127.0.0.1:8080",
}


def test_clouds_without_a_key_are_upstreams_by_the_variables_of_their_clients() -> None:
    loaded = written(**CLOUDS)
    assert [(each.name, each.base_url) for each in loaded.settings.upstreams] == [
        ("bedrock", "https://bedrock-runtime.us-gov-west-1.amazonaws.com"),
        ("claude-aws", "https://aws-external-anthropic.us-gov-west-1.api.aws"),
        ("vertex", "https://aiplatform.googleapis.com/v1/projects/the-project/locations/global"),
    ]
    assert loaded.settings.upstreams[1].headers["anthropic-workspace-id"].reveal() == "wrkspc_1"
    with_key = written(**CLOUDS, AWS_BEARER_TOKEN_BEDROCK=CANARY)
    assert [each.name for each in with_key.settings.upstreams].count("bedrock") == 1


def test_a_cloud_whose_extra_is_missing_is_a_comment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dragoman_server.platform.extras.find_spec", lambda name: None)
    assert written(**CLOUDS).settings.upstreams == ()
    text = FILE.read_text()
    assert '# name = "vertex"' in text
    assert f"# Install that, and remove the # below: {install_command('vertex')}" in text


def test_a_base_url_of_ones_own_is_a_reference_too() -> None:
    loaded = written(OPENAI_API_KEY=CANARY, OPENAI_BASE_URL="http://10.0.0.1:9000/v1")
    assert 'base_url = "${OPENAI_BASE_URL}"' in FILE.read_text()
    assert loaded.settings.upstreams[0].protocols == ("openai_chat",)


def test_servers_of_this_machine_are_upstreams_with_their_models(servers: list[FoundServer]) -> None:
    models = (ModelInfo("nomic-embed"), ModelInfo("qwen3:8b", context=40_960), ModelInfo("llama"))
    servers.append(FoundServer(BY_NAME["ollama"], models))
    (upstream,) = written().settings.upstreams
    assert (upstream.name, upstream.base_url) == ("ollama", "http://127.0.0.1:11434/v1")
    assert (upstream.default_model, upstream.api_key) == ("qwen3:8b", None)
    text = FILE.read_text()
    assert (
        "# Ollama: at http://127.0.0.1:11434, models: nomic-embed, qwen3:8b (40960 tokens), llama\n" in text
    )
    assert "OLLAMA_CONTEXT_LENGTH=64000" in text


def test_the_names_that_agents_send_lead_somewhere(servers: list[FoundServer]) -> None:
    servers.append(FoundServer(BY_NAME["vllm"], (ModelInfo("qwen3"),)))
    for environ, targets in (
        ({}, ("vllm/qwen3", "vllm/qwen3")),
        ({"ANTHROPIC_API_KEY": CANARY}, ("anthropic/claude-opus", "anthropic/claude-sonnet-5-5")),
        ({"DEEPSEEK_API_KEY": CANARY}, ("deepseek/deepseek-v4-pro", "deepseek/deepseek-v4-pro")),
    ):
        settings = written(**environ).settings
        for model, target in zip(("claude-opus", "gpt-5.6"), targets, strict=True):
            route = resolve(settings, None, model)
            assert isinstance(route, ModelRoute)
            assert f"{route.upstream}/{route.upstream_model}" == target
        assert settings.server.default_model == next(iter(reversed(targets)))


def test_a_server_that_requires_a_key_is_a_comment(servers: list[FoundServer]) -> None:
    servers.append(FoundServer(BY_NAME["jan"], None))
    assert written().settings.upstreams == ()
    text = FILE.read_text()
    assert "# Set JAN_API_KEY, and remove the # below.\n" in text
    table = text.partition("# [[upstreams]]\n")[2].partition("\n\n")[0]
    (upstream,) = tomllib.loads("[[upstreams]]\n" + table.replace("# ", ""))["upstreams"]
    assert (upstream["name"], upstream["api_key"]) == ("jan", "${JAN_API_KEY}")


def test_a_server_with_a_key_of_the_environment_refers_to_it(servers: list[FoundServer]) -> None:
    servers.append(FoundServer(BY_NAME["vllm"], (ModelInfo("q"),)))
    written(VLLM_API_KEY=CANARY)
    assert 'api_key = "${VLLM_API_KEY}"' in FILE.read_text()


def test_a_server_that_a_variable_names_already_is_written_once(servers: list[FoundServer]) -> None:
    servers.append(FoundServer(BY_NAME["ollama"], (ModelInfo("q"),)))
    loaded = written(OPENAI_API_KEY=CANARY, OPENAI_BASE_URL="http://localhost:11434/v1")
    assert [upstream.name for upstream in loaded.settings.upstreams] == ["openai"]


ODD_NAMES = ["$HOME/${X}", 'q"\\q', "qwen*", "größe", "a" * 200]


def test_odd_names_of_models_do_not_break_the_file(servers: list[FoundServer]) -> None:
    for name in ODD_NAMES:
        servers[:] = [FoundServer(BY_NAME["vllm"], (ModelInfo(name), ModelInfo("plain")))]
        (upstream,) = written().settings.upstreams
        assert upstream.default_model in (name, "plain")
    servers[:] = [FoundServer(BY_NAME["vllm"], (ModelInfo("$HOME/${X}"),))]
    assert written().settings.upstreams[0].default_model == "$HOME/${X}"


def test_with_nothing_found_it_says_how_to_go_on() -> None:
    result = run("--yes")
    assert result.exit_code == 0
    assert "simulator responds, as sim/echo" in result.stdout
    assert result.stdout.count("llama.cpp") == 1, "it has two usual ports"
    assert "set a key such as OPENAI_API_KEY, or start a server; then: dragoman init --force" in result.stdout
    assert written().settings.upstreams == ()


def test_it_prints_what_it_found_and_the_next_commands(servers: list[FoundServer]) -> None:
    servers.append(FoundServer(BY_NAME["vllm"], (ModelInfo("q"),)))
    result = run("--yes", "--config", "my file.toml", OPENAI_API_KEY=CANARY)
    assert result.stdout.splitlines() == [
        "Found:",
        "  openai: key in OPENAI_API_KEY",
        "  vLLM: at http://127.0.0.1:8000, models: q",
        "Wrote my file.toml. Next:",
        "  dragoman doctor --config 'my file.toml'   # are the keys valid, do the models exist?",
        "  dragoman serve --config 'my file.toml'",
        "  dragoman run --config 'my file.toml' -- claude   # or codex, opencode, gemini, copilot, aider, any command",
    ]


# The port.


def test_a_port_in_use_is_avoided(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dragoman_server.cli.listeners._HEALTHZ_S", 0.05)  # nobody accepts there
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        run("--yes", DRAGOMAN_PORT=str(port))
        text = FILE.read_text()
    assert tomllib.loads(text)["server"]["port"] != port
    assert f"# {port} was in use when this file was made.\n" in text


def test_the_port_of_a_gateway_that_runs_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    async def find_listener(address: BoundAddress) -> Listener:
        return Listener(address.port, "", address.local_url)

    monkeypatch.setattr(initial_config, "find_listener", find_listener)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        run("--yes", DRAGOMAN_PORT=str(port))
    assert tomllib.loads(FILE.read_text())["server"]["port"] == port


def test_an_address_that_cannot_be_bound_is_reported_at_the_start() -> None:
    result = run("--yes", DRAGOMAN_HOST="192.0.2.1", DRAGOMAN_ALLOW_PUBLIC_WITHOUT_KEYS="yes")
    assert result.exit_code == 0, result.output


# The file itself.


@pytest.mark.skipif(os.name != "posix", reason="file modes of POSIX")
def test_only_its_owner_may_read_it() -> None:
    FILE.write_text("")
    FILE.chmod(0o644)
    assert run("--yes", "--force").exit_code == 0
    assert FILE.stat().st_mode & 0o777 == 0o600


def test_it_never_replaces_a_file_without_force() -> None:
    FILE.write_text("# mine\n")
    result = run("--yes")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == "dragoman: dragoman.toml exists already; add --force to replace it\n"
    assert FILE.read_text() == "# mine\n"


def test_a_directory_that_does_not_exist() -> None:
    result = run("--yes", "--config", "none/dragoman.toml")
    assert result.exit_code == 1
    assert "cannot write" in result.stderr


def test_without_a_terminal_there_is_no_question() -> None:
    result = run()
    assert (result.exit_code, FILE.exists()) == (2, False)
    assert result.stderr == "dragoman: stdin is not a terminal: add --yes to write the file\n"


def test_a_wrong_variable_is_reported_first() -> None:
    result = run("--yes", OPENAI_API_KEY="with a space")
    assert (result.exit_code, FILE.exists()) == (2, False)
    assert result.stderr.startswith("environment: OPENAI_API_KEY: ")


# In a process, as a user starts it.


@pytest.mark.process
@pytest.mark.parametrize(("answer", "code"), [(b"\n", 0), (b"n\n", 1)])
def test_the_question_on_a_terminal(answer: bytes, code: int) -> None:
    ours, theirs = pty.openpty()
    os.write(ours, answer)
    process = subprocess.run(
        [sys.executable, "-m", "dragoman_server", "init"],
        env={"PATH": os.environ["PATH"], "DRAGOMAN_PORT": "0"},
        stdin=theirs,
        capture_output=True,
        timeout=DEADLINE_S,
    )
    os.close(ours)
    os.close(theirs)
    assert process.returncode == code, process.stderr
    assert b"Write dragoman.toml? [Y/n]: " in process.stderr
    assert FILE.exists() == (code == 0)
