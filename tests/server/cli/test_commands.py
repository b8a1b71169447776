"""The command: exit codes, output, and the lines of the banner, which must be fit to paste into a shell."""

import errno
import gc
import io
import json
import os
import re
import shlex
import signal
import socket
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path
from types import MappingProxyType
from typing import Any
from unittest.mock import Mock

import click
import config_text
import pytest
import rows
from command.cli import run
from command.process import Server
from config_text import CANARY, needed_besides_key
from msgspec.structs import replace
from sdk_clients.processes import Simulator

from dragoman_server.capabilities.providers import PROVIDERS
from dragoman_server.cli.banner import banner, commands, print_banner
from dragoman_server.cli.commands import main
from dragoman_server.cli.model_lists import ModelLists, OfferedModels
from dragoman_server.cli.options import own_command, print_lines
from dragoman_server.config.loader import load
from dragoman_server.models.info import ModelInfo
from dragoman_server.serving.sockets import BoundAddress
from dragoman_server.settings import ServerSettings, Settings, UpstreamSettings, settings_of
from dragoman_server.settings.fields import SettingKind

LOCAL = config_text.LOCAL.replace("/v1", "/v1/account-${LOCAL_KEY}") + 'api_key = "${LOCAL_KEY}"\n'


@pytest.mark.parametrize("group", [(), ("config",), ("keys",)])
def test_the_list_of_commands_is_whole_sentences(group: tuple[str, ...]) -> None:
    listed = run(*group, "--help").stdout.partition("Commands:")[2].split("\n")[1:-1]
    assert listed
    assert [line for line in listed if not line.endswith(".") or line.endswith("...")] == []


@pytest.mark.parametrize("in_path", [True, False])
def test_it_is_named_as_a_shell_finds_it(
    in_path: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "bin" / "dragoman"
    program.parent.mkdir()
    program.touch(0o755)
    monkeypatch.setattr("sys.argv", [str(program), "serve"])
    monkeypatch.setenv("PATH", str(program.parent) if in_path else "/nowhere")
    assert own_command() == ("dragoman" if in_path else str(program))


@pytest.mark.parametrize("command", [("serve",), ("config", "check"), ("config", "show")])
def test_help_names_every_setting_with_its_variable(command: tuple[str, ...]) -> None:
    result = run(*command, "--help")
    assert result.exit_code == 0
    text = " ".join(result.stdout.split())
    for name, key in settings_of(ServerSettings).items():
        flag = "--" + name.replace("_", "-")
        if key.kind is SettingKind.SECRET:
            assert flag not in text  # everybody on a machine can read command lines
        else:
            assert flag in text
            assert f"[DRAGOMAN_{name.upper()}]" in text
    assert "[DRAGOMAN_CONFIG]" in text


def test_show_with_origin_prints_the_precedence() -> None:
    Path("dragoman.toml").write_text("[server]\nhost = '127.0.0.2'\nport = 1\nworkers = 2\n" + LOCAL)
    arguments = ("config", "show", "--origin", "--port", "3", "--no-http2")
    result = run(*arguments, LOCAL_KEY=CANARY, DRAGOMAN_PORT="2", DRAGOMAN_WORKERS="4")
    assert result.exit_code == 0
    shown = [re.sub(" +#", " #", line) for line in result.stdout.splitlines()]
    assert 'server.host = "127.0.0.2" # dragoman.toml:2' in shown
    assert "server.port = 3 # --port" in shown
    assert "server.workers = 4 # environment DRAGOMAN_WORKERS" in shown
    assert "server.http2 = false # --http2" in shown
    assert 'server.backend = "asyncio" # default' in shown
    assert 'upstreams[0].api_key = "****q7zk" # dragoman.toml:9, LOCAL_KEY' in shown
    assert CANARY not in result.output


def test_config_show_prints_toml() -> None:
    Path("dragoman.toml").write_text(LOCAL + '[models]\n"gpt-4.1" = "local/x"\n')
    result = run("config", "show", LOCAL_KEY=CANARY)
    server = [line for line in result.stdout.splitlines() if line.startswith(("server.", "models."))]
    document = tomllib.loads("\n".join(server))
    assert document["server"]["cors_origins"] == ["loopback"]
    assert document["models"] == {"gpt-4.1": "local/x"}
    assert "#" not in result.stdout


def test_choices_are_completed() -> None:
    option = next(p for p in main.commands["serve"].params if p.name == "backend")
    assert option._custom_shell_complete(None, option, "u") == ["uvloop"]  # type: ignore[arg-type]


# The banner.


LISTENING = BoundAddress("http", "127.0.0.1", 8080, "trio")


def lines_of(settings_text: str, **environ: str) -> list[str]:
    Path("dragoman.toml").write_text(settings_text)
    return [click.unstyle(line) for line in banner(load(environ=environ), LISTENING, "1.2.3")]


def banner_of(lines: list[str]) -> list[str]:
    text, host, environ, lists = "", "127.0.0.1", dict[str, str](), dict[str, Any]()
    for line in (line.replace("$CANARY", CANARY) for line in lines):
        match line.split(" "):
            case ["env", variable]:
                environ |= [variable.split("=")]
            case ["listens", host]:
                pass
            case ["lists", name, "it", *words]:
                lists[name] = " ".join(["it", *words])
            case ["lists", name, *models]:
                lists[name] = tuple(ModelInfo(model) for model in models)
            case ["window", name, model, size]:
                lists[name] = (ModelInfo(model, context=int(size)),)
            case _:
                text += {"$LOCAL": LOCAL, "$UPSTREAMS": upstreams(5)}.get(line, line + "\n")
    Path("dragoman.toml").write_text(text)
    listening = BoundAddress("http", host, 8080, "trio")
    out = list(banner(load(environ=environ), listening, "1.2.3", MappingProxyType(lists)))
    assert out[-1] == click.style(click.unstyle(out[-1]), bold=True)
    *shown, documentation, listens = [click.unstyle(line) for line in out]
    assert Path(documentation.removeprefix("Documentation: ")).is_file()
    assert CANARY not in "".join(shown)
    return [*(line for line in shown if line), listens]


def test_the_banner_says_how_a_key_is_made_with_another_file() -> None:
    file = Path("my team.toml")
    store = 'account_store = "sqlite"\naccount_store_path = "a.db"\nstored_keys = true\n'
    file.write_text(f'[server]\nsecret = "{"s" * 32}"\n{store}')
    shown = [click.unstyle(line) for line in banner(load(environ={}, path=str(file)), LISTENING, "1.2.3")]
    assert "YOUR_KEY  dragoman keys add NAME --store --config 'my team.toml'" in shown


@pytest.mark.promise("S3")
def test_the_banner() -> None:
    rows.check(Path(__file__).with_name("banner.txt"), banner_of)


def upstream(name: str, *models: str) -> UpstreamSettings:
    return UpstreamSettings(name=name, protocol="openai_chat", base_url="http://a/v1", models=models)


REPORTED: ModelLists = {
    "a": (ModelInfo("text-embedding-3"), ModelInfo("small", context=32_768), ModelInfo("large")),
    "b": "it returned status 404",
}


EXAMPLE_MODELS: list[tuple[Settings, ModelLists, tuple[str | None, int | None]]] = [
    (Settings(), {}, ("sim/echo", None)),
    # Names of the configuration come first.
    (Settings(server=ServerSettings(default_model="a/d"), upstreams=(upstream("a", "x"),)), {}, ("a/d", None)),
    (Settings(upstreams=(upstream("a", "x"),), models={"m-*": "a/y", "m": "a/x"}), REPORTED, ("m", None)),
    (Settings(upstreams=(upstream("a", "x"),), models={"n-*": "a/*", "m-*": ("a/y", "a/x")}), {}, ("a/y", None)),
    (Settings(upstreams=(upstream("a"),), models={"m": "a/small"}), REPORTED, ("m", 32_768)),
    (Settings(upstreams=(upstream("a"), upstream("b", "x", "y"))), {}, ("b/x", None)),
    (Settings(upstreams=(replace(upstream("a", "x"), default_model="y"),)), {}, ("a/y", None)),
    # Then models that an upstream lists.
    (Settings(upstreams=(upstream("b"), upstream("a"))), REPORTED, ("a/small", 32_768)),
    (Settings(upstreams=(upstream("a"),)), {}, (None, None)),
    (Settings(upstreams=(upstream("b"),)), REPORTED, (None, None)),
]  # fmt: skip


def test_the_model_of_the_example() -> None:
    for settings, lists, example in EXAMPLE_MODELS:
        assert OfferedModels(settings, lists).example() == example, settings


def test_with_one_key_every_command_that_names_a_model_uses_one_of_that_provider() -> None:
    for provider in PROVIDERS:
        if not provider.keys or "default_model" not in provider.capabilities:
            continue  # of a cloud, whose names of models are the user's
        model = f"{provider.name}/{provider.capabilities['default_model']}"
        lines = lines_of("", **{provider.keys[0][0]: CANARY, **needed_besides_key(provider)})
        *named, _, _ = lines[lines.index("curl") + 1 : -2 : 2]
        assert len(named) == 3, provider.name
        for text in named:
            assert model in text, provider.name
            assert "sim/" not in text, provider.name


def upstreams(count: int) -> str:
    table = (
        '[[upstreams]]\nname = "team-{0}"\nprotocol = "openai_chat"\nbase_url = "http://10.0.0.{0}:9000/v1"\n'
    )
    return "".join(table.format(number) + f'default_model = "model-{number}"\n' for number in range(count))


def test_the_banner_fits_on_a_screen() -> None:
    secret = "0123456789abcdef" * 2
    keys = "".join(f'[[client_keys]]\nname = "{name}"\nhash = "{name * 64}"\n' for name in "ab")
    for text, environ in (
        ("", {}),
        (upstreams(1), {}),
        (upstreams(40), {}),
        (f'server.secret = "{secret}"\n' + upstreams(3) + keys, {}),
        ("", {variable: CANARY for provider in PROVIDERS for variable, _ in provider.keys}),
        (upstreams(2), {"DRAGOMAN_A": "", "DRAGOMAN_B": "", "DRAGOMAN_C": ""}),
    ):
        lines = lines_of(text, **environ)
        assert sum(max(1, -(-len(line) // 80)) for line in lines) <= 24, "\n".join(lines)


@pytest.mark.parametrize("model", ["sim/echo", 'it\'s "odd" $HOME'])
def test_the_commands_survive_a_shell(model: str) -> None:
    url = "http://127.0.0.1:8080"
    arguments = {title: shlex.split(command) for title, command in commands(url, model).items()}
    assert list(arguments) == ["curl", "Claude Code", "Codex", "OpenAI SDK", "Anthropic SDK"]

    curl = arguments["curl"]
    assert url + "/v1/chat/completions" in curl
    assert json.loads(curl[curl.index("-d") + 1])["model"] == model

    # The names of both SDKs' own variables.
    assert arguments["OpenAI SDK"] == ["export", f"OPENAI_BASE_URL={url}/v1", "OPENAI_API_KEY=any"]
    assert arguments["Anthropic SDK"] == ["export", f"ANTHROPIC_BASE_URL={url}", "ANTHROPIC_API_KEY=any"]

    expected = [f"ANTHROPIC_BASE_URL={url}", "ANTHROPIC_AUTH_TOKEN=any", f"ANTHROPIC_MODEL={model}", "claude"]
    assert arguments["Claude Code"] == expected

    codex = arguments["Codex"]
    assert (codex[:3], codex[-2:]) == (["codex", "-c", 'model_provider="dragoman"'], ["-m", model])
    # Codex reads the value of -c as TOML.
    provider = tomllib.loads(codex[4])["model_providers"]["dragoman"]
    assert provider == {"name": "Dragoman", "base_url": url + "/v1", "wire_api": "responses"}


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


LONG = ["  " + "word " * 60 + "[bold]:smile: 1", "last"]
COLOURED = [click.style(LONG[0], fg="green"), click.style(LONG[1], bold=True)]


def test_a_terminal_gets_colours_and_no_line_is_wrapped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    for stream, environ, coloured in (
        (Terminal(), {"TERM": "xterm-256color"}, True),
        (Terminal(), {"NO_COLOR": "1"}, False),
        (Terminal(), {"TERM": "dumb"}, False),
        (io.StringIO(), {}, False),
    ):
        print_lines(COLOURED, stream, environ)
        text = stream.getvalue()
        assert ("\x1b[" in text) is coloured, environ
        assert re.sub(r"\x1b\[[0-9;]*m", "", text).splitlines() == LONG


def test_a_banner_that_cannot_be_written_does_not_end_the_gateway(monkeypatch: pytest.MonkeyPatch) -> None:
    class Full(io.StringIO):
        def write(self, text: str) -> int:
            raise OSError(errno.ENOSPC, "no space left on device")

    monkeypatch.setattr(sys, "stderr", Full())
    print_banner(load(environ={}), "1.2.3", {}, LISTENING)


# The whole command, in a process.


@pytest.mark.process
def test_serve_prints_the_banner_and_serves(tmp_path: Path) -> None:
    file = tmp_path / "some.toml"
    file.write_text('[server]\nport = 1\nbackend = "asyncio"\n' + LOCAL)
    environ = {"DRAGOMAN_CONFIG": str(file), "DRAGOMAN_PORT": "0", "LOCAL_KEY": CANARY}
    with Server("--backend", "trio", env=environ).ready() as server:
        assert server.backend == "trio"
        assert server.get("/") == b"hello"
    assert server.output[0] == f"Dragoman 0.1.0, configured by {file}"
    curl = next(line for line in server.output if line.startswith("  curl"))
    assert f"http://127.0.0.1:{server.port}/v1/chat/completions" in curl
    assert CANARY not in "\n".join(server.output)


def test_record_is_serve_with_a_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    served: list[Settings] = []
    monkeypatch.setattr("dragoman_server.cli.commands._run", lambda settings, *_: served.append(settings))
    folder = str(tmp_path / "seen")
    assert run("record", folder, "--port", "0").exit_code == 0
    assert run("serve", "--record", folder, "--port", "0").exit_code == 0
    recorded, same = served
    assert (recorded, recorded.server.record) == (same, same.server.record)
    assert recorded.server.record is not None


@pytest.mark.process
def test_simulate_serves_the_simulator() -> None:
    backend = "uvloop"
    with Simulator("--backend", backend).ready() as server:
        assert server.backend == backend
        assert server.stats() == {"opened": 0, "closed": 0, "aborted": 0}
        assert b'"echo"' in server.get("/v1/models")
        server.signal(signal.SIGTERM)
        assert server.wait() == 0
    ready, *lines = server.output
    assert ready == f"The simulator listens on http://127.0.0.1:{server.port} ({backend})"
    stopping, stopped = (json.loads(line)["message"] for line in lines)
    assert (stopping.startswith("SIGTERM: no new connections"), stopped) == (True, "stopped")


def test_simulate_on_a_port_in_use_exits_with_1(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dragoman_server.cli.listeners._HEALTHZ_S", 0.05)  # nobody accepts there
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = run("simulate", "--port", str(port))
    assert result.exit_code == 1
    (line,) = result.stderr.splitlines()
    assert line.startswith(f"dragoman: cannot listen on 127.0.0.1 port {port}: Address already in use by ")
    assert line.endswith(", or with --port 0 for any free port")


def test_the_module_is_the_same_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import dragoman_server.__main__ as module

    monkeypatch.setattr("sys.argv", ["__main__.py", "--version"])
    with pytest.raises(SystemExit) as left:
        module.main()
    gc.enable()  # main() has disabled it, and this process goes on
    assert (left.value.code, capsys.readouterr().out) == (0, f"dragoman {version('dragoman')}\n")


def test_it_ends_without_a_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    """During the imports, and when stdout is a file on a full disk."""
    import dragoman_server.__main__ as module

    full = OSError(errno.ENOSPC, "No space left on device")
    for error, code in ((KeyboardInterrupt(), 130), (full, f"dragoman: {full}")):
        monkeypatch.setattr("dragoman_server.cli.commands.main", Mock(side_effect=error))
        with pytest.raises(SystemExit) as left:
            module.main()
        gc.enable()
        assert left.value.code == code


def test_stdout_takes_any_text(monkeypatch: pytest.MonkeyPatch) -> None:
    import dragoman_server.__main__ as module

    written = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(written, "ascii"))
    monkeypatch.setattr("dragoman_server.cli.commands.main", lambda **_: print("a\ud800é", flush=True))
    module.main()
    gc.enable()
    assert written.getvalue() == rb"a\ud800\xe9" + os.linesep.encode()


def test_looking_at_the_configuration_does_not_import_the_server() -> None:
    import subprocess

    code = (
        "import sys; from dragoman_server.cli.commands import main; main(['config', 'check'], standalone_mode=False); "
        "print([m for m in ('hypercorn', 'trio', 'httpx2', 'starlette') if m in sys.modules])"
    )
    output = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert output.splitlines()[-1] == "[]"


# The extra for grammars.


@pytest.mark.parametrize(
    ("settings", "installed", "noted"),
    [
        ("", False, True),
        ("", True, False),
        ("custom_tools = true\n", False, False),
        ("[server]\ncheck_grammars = false\n", False, False),
    ],
)
def test_check_notes_that_grammars_are_not_checked(
    settings: str, installed: bool, noted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not installed:
        monkeypatch.setattr("dragoman_server.proxying.tool_grammar.find_spec", lambda name: None)
    Path("dragoman.toml").write_text(LOCAL + settings)
    result = run("config", "check", LOCAL_KEY=CANARY)
    assert result.exit_code == 0
    assert (
        "note: server.check_grammars: what models write for tools with a grammar is not checked"
        in result.stderr
    ) is noted
    assert (": local" in result.stderr) is noted
