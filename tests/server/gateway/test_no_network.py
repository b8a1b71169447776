"""Importing, configuring and starting use no network and run no code of their input.

An audit hook (PEP 578) sees each of these attempts in the process and refuses it.
"""

import ast
import subprocess
import sys
from pathlib import Path

import pytest
from command.process import Server

pytestmark = pytest.mark.promise("S13")

ROOT = Path(__file__).parents[3]

# An address to bind is looked up too, but only names need the network.
WATCH = """
import os, socket, sys

EVENTS = {events!r}

def watch(event, arguments):
    if event not in EVENTS:
        return
    what = arguments[1] if event == "socket.connect" else arguments[0]
    if event == "socket.getaddrinfo":
        what = what.decode() if isinstance(what, bytes) else what
        try:
            socket.inet_aton(what)
        except OSError:
            pass
        else:
            return
    with open({report!r}, "a") as report:
        report.write(f"{{event}} {{what}}\\n")
    raise OSError("not in this test")

sys.addaudithook(watch)
"""
NETWORK = (
    "socket.connect", "socket.getaddrinfo", "socket.gethostbyaddr", "socket.gethostbyname", "socket.sendmsg",
    "socket.sendto", "urllib.Request",
)  # fmt: skip
PROGRAMS = ("os.exec", "os.posix_spawn", "os.spawn", "os.system", "subprocess.Popen")
CODE = ("compile", "exec", "import", "pickle.find_class", "marshal.loads")


class Watched:
    """A process whose attempts are refused and written down. events: as Python names them for audit hooks."""

    def __init__(self, folder: Path, events: tuple[str, ...] = NETWORK) -> None:
        self._report = folder / "attempts"
        self.hook = WATCH.format(events=set(events), report=str(self._report))
        (folder / "sitecustomize.py").write_text(self.hook)
        self.environ = {"PYTHONPATH": str(folder)}

    def run(self, code: str) -> str:
        command = [sys.executable, "-c", code]
        done = subprocess.run(
            command, env=self.environ, capture_output=True, text=True, timeout=120, check=True
        )
        return done.stdout

    @property
    def attempts(self) -> list[str]:
        return self._report.read_text().splitlines() if self._report.exists() else []


@pytest.fixture
def watched(tmp_path: Path) -> Watched:
    return Watched(tmp_path)


def test_the_watch_sees_and_refuses(tmp_path: Path) -> None:
    watched = Watched(tmp_path, NETWORK + PROGRAMS)
    code = """
import socket, subprocess
for act in (lambda: socket.create_connection(("llm.example", 80)),
            lambda: socket.create_connection(("127.0.0.1", 80)), lambda: subprocess.run(["true"])):
    try:
        act()
    except OSError as error:
        print(error)
"""
    assert watched.run(code).splitlines() == ["not in this test"] * 3
    expected = ["socket.getaddrinfo llm.example", "socket.connect ('127.0.0.1', 80)", "subprocess.Popen true"]
    assert watched.attempts == expected


def test_imports_open_no_connection(watched: Watched) -> None:
    code = """
import importlib, pkgutil
import dragoman, dragoman_server
for package in (dragoman, dragoman_server):
    for each in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        if not each.name.endswith("__main__"):
            importlib.import_module(each.name)
            print(each.name)
"""
    assert {"dragoman.protocols", "dragoman_server.cli.commands"} <= set(watched.run(code).splitlines())
    assert watched.attempts == []


CONFIG = """
[server]
port = 0
model_names = "full"

[[upstreams]]
name = "known"
protocol = "openai_chat"
base_url = "https://api.openai.com/v1"
api_key = "$$(touch,pwned)`touch`__import__('os')"

[[upstreams]]
name = "other"
protocol = "openai_chat"
base_url = "https://llm.example/v1"
headers = { x-a = "!!python/object/apply:os.system ['touch pwned']", x-b = "cos%0Asystem%0A" }

[models]
"m" = "known/eval(1)"
"""


COMMANDS = ("--help", "config check", "config show", "config schema", "serve --help")


def test_a_command_that_does_not_serve_opens_no_connection(watched: Watched, tmp_path: Path) -> None:
    file = tmp_path / "some.toml"
    file.write_text(CONFIG)
    watched.environ["DRAGOMAN_CONFIG"] = str(file)
    code = "from dragoman_server.cli.commands import main\n"
    code += f"for each in {COMMANDS}: main(each.split(), standalone_mode=False), print('ended')"
    assert watched.run(code).splitlines().count("ended") == len(COMMANDS)
    assert watched.attempts == []


@pytest.mark.process
def test_a_start_opens_no_connection(watched: Watched) -> None:
    """uvloop's sockets are made in C, where no hook sees them; the started code is the same."""
    environ = {**watched.environ, "OPENAI_API_KEY": "k", "ANTHROPIC_API_KEY": "k", "DRAGOMAN_PORT": "0"}
    with Server("--backend", "trio", env=environ).ready() as server:
        server.get("/healthz")
    assert watched.attempts == []


@pytest.mark.process
def test_only_a_configured_upstream_is_requested_and_the_gateway_serves_without_its_response(
    watched: Watched, tmp_path: Path
) -> None:
    """For a model that the banner can name: the list of a host that is no known provider's is requested."""
    file = tmp_path / "some.toml"
    file.write_text(CONFIG)
    with Server("--config", str(file), env=watched.environ).ready() as server:
        server.get("/healthz")
    assert set(watched.attempts) == {"socket.getaddrinfo llm.example"}


def test_a_configuration_runs_nothing(tmp_path: Path) -> None:
    """The modules for reading it are imported by then: nothing is compiled, imported or run because of its content."""
    file = tmp_path / "some.toml"
    file.write_text(CONFIG)
    watched = Watched(tmp_path, NETWORK + PROGRAMS + CODE)
    (tmp_path / "sitecustomize.py").unlink()
    code = f"""
from dragoman_server.config.loader import load
load(environ={{}}, path={str(file)!r})
{watched.hook}
print(load(environ={{}}, path={str(file)!r}).settings.upstreams[0].name)
"""
    assert watched.run(code) == "known\n"
    assert watched.attempts == []
    assert not (tmp_path / "pwned").exists()


FORBIDDEN = {"eval", "exec", "compile", "__import__"}
# `dragoman run` starts the program that its user names.
RUNS_A_COMMAND = "server/dragoman_server/cli/run/child.py"
MODULES = {"pickle", "marshal", "shelve", "dill", "yaml", "runpy", "code", "imp", "subprocess"}


@pytest.mark.parametrize("source", ["sansio", "server"])
@pytest.mark.no_cover
def test_no_module_can_run_text(source: str) -> None:
    found = []
    for path in (ROOT / source).rglob("*.py"):
        if path == ROOT / RUNS_A_COMMAND:
            continue
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            match node:
                case ast.Call(func=ast.Name(id=name)) if name in FORBIDDEN:
                    found.append(f"{path.name}:{node.lineno}: {name}")
                case ast.Call(func=ast.Attribute(attr="system" | "popen" | "import_module" as name)):
                    found.append(f"{path.name}:{node.lineno}: {name}")
                case ast.Import(names=names) if any(each.name in MODULES for each in names):
                    found.append(f"{path.name}:{node.lineno}: import")
                case ast.ImportFrom(module=str(module)) if module in MODULES and not node.level:
                    found.append(f"{path.name}:{node.lineno}: import from {module}")
    assert found == []
