"""`dragoman run` as real processes: a toy program gets a gateway, the terminal and signals, and returns its status."""

import http.client
import json
import os
import pty
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import canaries
import pytest
from command.cli import json_server, listing
from command.cli import run as run_command
from command.process import DEADLINE_S
from sdk_clients.processes import Simulator

from dragoman_server.cli.run import launch
from dragoman_server.cli.run.child import run_child
from dragoman_server.cli.run.private_gateway import private_settings
from dragoman_server.settings import ServerSettings, Settings
from dragoman_server.settings.secret import Secret

pytestmark = pytest.mark.process

TOY = [sys.executable, str(Path(__file__).parents[2] / "_support" / "command" / "toy.py")]
RUN = [sys.executable, "-m", "dragoman_server", "run"]
# Its part that shares terminal and signals with the program, without a gateway, which takes a second to start.
CHILD_ONLY = [
    sys.executable,
    "-c",
    "import os, sys; from dragoman_server.cli.run.child import run_child; "
    "sys.exit(run_child(sys.argv[1], sys.argv[1:], os.environ))",
]


def environ_of(folder: Path, **more: str) -> dict[str, str]:
    canaries.add(more.values())
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "XDG_STATE_HOME": os.environ["XDG_STATE_HOME"],
        "TMPDIR": str(folder),
        "PYTHONWARNINGS": "error",
        **more,
    }


class Run:
    """A running `dragoman run` without a terminal, in its own session."""

    def __init__(self, folder: Path, command: list[str], *arguments: str, **environ: str) -> None:
        self.process = subprocess.Popen(
            [*command, *arguments],
            cwd=folder,
            env=environ_of(folder, **environ),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def line(self) -> str:
        """Return the next line that the program prints."""
        return self.process.stdout.readline().rstrip("\n")

    def end(self) -> tuple[int, list[str], list[str]]:
        """Close the program's stdin, and return its exit status and the lines of stdout and stderr."""
        out, err = self.process.communicate(timeout=DEADLINE_S)
        return self.process.returncode, out.splitlines(), err.splitlines()


@contextmanager
def running(folder: Path, *arguments: str, command: list[str] = RUN, **environ: str) -> Iterator[Run]:
    run = Run(folder, command, *arguments, **environ)
    try:
        yield run
    finally:
        if run.process.poll() is None:
            run.process.kill()
        run.process.communicate(timeout=DEADLINE_S)


def run_to_end(folder: Path, *arguments: str, **environ: str) -> tuple[int, list[str], list[str]]:
    with running(folder, *arguments, **environ) as run:
        return run.end()


def accepts(url: str) -> bool:
    """True if something accepts connections there."""
    address = urlsplit(url)
    connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=DEADLINE_S)
    try:
        connection.connect()
        return True
    except ConnectionRefusedError:
        return False
    finally:
        connection.close()


SIMULATOR_WARNING = "warning: there is no upstream: the models are those of the built-in simulator"
NO_REQUEST = (
    f"dragoman: {Path(sys.executable).name} sent no request to the gateway: "
    "its own settings or arguments may lead it elsewhere"
)


def test_a_program_gets_a_gateway_of_its_own_that_ends_with_it(tmp_path: Path) -> None:
    """No load balancer is waited for, and no other key is accepted."""
    with running(tmp_path, "--", *TOY, "wait", DRAGOMAN_DRAIN_DELAY_S="3600") as run:
        url = run.line()
        connection = http.client.HTTPConnection("127.0.0.1", urlsplit(url).port or 0, timeout=DEADLINE_S)
        connection.request("GET", "/v1/models", headers={"authorization": "Bearer any"})
        assert connection.getresponse().status == 401
        connection.close()
        assert run.end() == (0, [], [SIMULATOR_WARNING, NO_REQUEST])
        assert not accepts(url)


def test_a_gateway_of_its_own_has_one_key() -> None:
    settings = Settings(server=ServerSettings(stored_keys=True, secret=Secret("s" * 32)))
    assert not private_settings(settings).needs_keys


def test_the_environment_is_the_users_and_what_the_sdks_need(tmp_path: Path) -> None:
    before = environ_of(tmp_path, MINE="1", ANTHROPIC_AUTH_TOKEN="mine", OPENAI_API_KEY="")
    status, out, _ = run_to_end(
        tmp_path,
        "--model",
        "sim/tools",
        "--",
        *TOY,
        "environ",
        MINE="1",
        ANTHROPIC_AUTH_TOKEN="mine",
        OPENAI_API_KEY="",
    )
    assert status == 0
    after = json.loads(out[0])
    changed = {
        name: value for name, value in after.items() if before.get(name) != value and name != "LC_CTYPE"
    }
    key, url = changed["OPENAI_API_KEY"], changed["ANTHROPIC_BASE_URL"]
    assert key.startswith("drk_")
    assert changed == {
        "OPENAI_BASE_URL": url + "/v1",
        "OPENAI_API_BASE": url + "/v1",
        "OPENAI_API_KEY": key,
        "OPENAI_MODEL": "sim/tools",
        "OPENAI_DEFAULT_MODEL": "sim/tools",
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_API_KEY": key,
        "ANTHROPIC_MODEL": "sim/tools",
        "ANTHROPIC_DEFAULT_OPUS_MODEL": "sim/tools",
        "ANTHROPIC_DEFAULT_SONNET_MODEL": "sim/tools",
        "ANTHROPIC_DEFAULT_FABLE_MODEL": "sim/tools",
        "ANTHROPIC_DEFAULT_HAIKU_MODEL": "sim/tools",
        "ANTHROPIC_SMALL_FAST_MODEL": "sim/tools",
        "CLAUDE_CODE_SUBAGENT_MODEL": "sim/tools",
        "GOOGLE_API_KEY": key,
        "GEMINI_API_KEY": key,
        "GOOGLE_GEMINI_BASE_URL": url,
        "GOOGLE_VERTEX_BASE_URL": url,
        "DRAGOMAN_KEY": key,
    }
    assert "ANTHROPIC_AUTH_TOKEN" not in after
    assert sorted(path.name for path in tmp_path.iterdir()) == []  # no file is left


def run_here(*arguments: str, **environ: str) -> tuple[int, list[str]]:
    """Return the exit status and the lines of the command itself."""
    result = run_command("run", *arguments, **environ)
    return result.exit_code, result.output.splitlines()


def test_the_exit_status_is_that_of_the_program() -> None:
    for arguments, status in ((("exit", "7"), 7), (("die", "SIGTERM"), 143), (("die", "SIGKILL"), 137)):
        assert run_child(TOY[0], [*TOY, *arguments], os.environ) == status


def test_a_command_that_cannot_be_run(tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("")
    (tmp_path / "broken").write_text("#!/nowhere/at/all\n")
    (tmp_path / "broken").chmod(0o700)
    assert run_here("no-such-command") == (127, ["dragoman: no-such-command: command not found"])
    assert run_here("./none") == (127, ["dragoman: ./none: command not found"])
    assert run_here("./plain") == (126, ["dragoman: ./plain is not an executable file"])
    found = run_here("./broken")
    assert found == (126, [SIMULATOR_WARNING, "dragoman: cannot run ./broken: No such file or directory"])


def test_each_signal_is_passed_on_once(tmp_path: Path) -> None:
    with running(tmp_path, *TOY, "signals", "6") as run:
        assert run.line().startswith("ready")
        for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1"):
            run.process.send_signal(signal.Signals[name])
            assert run.line() == name
        os.killpg(run.process.pid, signal.SIGINT)  # which the program gets, too
        assert run.end()[:2] == (0, ["SIGINT", "more 0"])


def test_open_requests_of_other_processes_are_served_to_the_end(tmp_path: Path) -> None:
    # Twenty words, of which the first has come when the command ends. All other tests run on asyncio.
    run = run_to_end(tmp_path, *TOY, "leave", "sim/slow@10", DRAGOMAN_BACKEND="trio")
    waiting = "dragoman: waiting for open requests; Ctrl-C ends them"
    assert run == (0, ["data: [DONE]"], [SIMULATOR_WARNING, waiting])


def test_the_status_is_found_if_a_parent_ignores_its_children(tmp_path: Path) -> None:
    ignore = "import os, signal, sys\n"
    ignore += "signal.signal(signal.SIGCHLD, signal.SIG_IGN); os.execv(sys.argv[1], sys.argv[1:])"
    command = [sys.executable, "-c", ignore, *CHILD_ONLY, *TOY, "exit", "5"]
    done = subprocess.run(command, cwd=tmp_path, env=environ_of(tmp_path), timeout=DEADLINE_S, check=False)
    assert done.returncode == 5


def test_the_gateway_ends_if_this_process_is_killed(tmp_path: Path) -> None:
    with running(tmp_path, *TOY, "wait") as run:
        url = run.line()
        run.process.kill()
        deadline = time.monotonic() + DEADLINE_S
        while accepts(url):
            assert time.monotonic() < deadline
            time.sleep(0.02)


@pytest.mark.skipif(
    sys.platform != "linux", reason="elsewhere nothing tells a process that its parent has ended"
)
def test_the_program_gets_a_signal_if_this_process_is_killed(tmp_path: Path) -> None:
    """With a gateway that has gone, an agent without a terminal would try again for hours."""
    with running(tmp_path, *TOY, "signals", "1", command=CHILD_ONLY) as run:
        assert run.line().startswith("ready")
        run.process.kill()
        assert run.end()[:2] == (-signal.SIGKILL, ["SIGTERM", "more 0"])


class Terminal:
    """`dragoman run` as the leader of a session with its own terminal."""

    def __init__(self, folder: Path, command: list[str]) -> None:
        self.pid, self._terminal = pty.fork()
        if self.pid == 0:
            os.chdir(folder)
            os.execve(sys.executable, command, environ_of(folder))
        self._output = b""

    def wait_for(self, text: str) -> None:
        while text.encode() not in self._output:
            self._output += os.read(self._terminal, 4096)

    def read_to_end(self) -> str:
        try:
            while data := os.read(self._terminal, 4096):
                self._output += data
        except OSError:
            pass  # Linux reports the end of a terminal as an error
        return self._output.decode()

    def type(self, keys: bytes) -> None:
        os.write(self._terminal, keys)

    def close(self) -> None:
        os.close(self._terminal)


@contextmanager
def terminal(folder: Path, *arguments: str, command: list[str] = CHILD_ONLY) -> Iterator[Terminal]:
    started = Terminal(folder, [*command, *arguments])
    try:
        yield started
    finally:
        started.close()


def status_of(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


# Each of these tests forks, and the child does nothing but exec.
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded")
class TestOnATerminal:
    def test_the_program_has_the_terminal(self, tmp_path: Path) -> None:
        with terminal(tmp_path, *TOY, "terminal") as run:
            assert run.read_to_end().splitlines() == ["True"]
            assert status_of(run.pid) == 0

    def test_ctrl_c_reaches_the_program_once_and_signals_from_elsewhere_do(self, tmp_path: Path) -> None:
        with terminal(tmp_path, *TOY, "signals", "3", command=RUN) as run:
            run.wait_for("ready")
            os.kill(run.pid, signal.SIGTERM)
            run.wait_for("SIGTERM")
            # The program has the key's signal before we can pass it on, so a second one would not merge with it.
            os.kill(run.pid, signal.SIGSTOP)
            assert os.WIFSTOPPED(os.waitpid(run.pid, os.WUNTRACED)[1])
            run.type(b"\x03")
            run.wait_for("SIGINT")
            os.kill(run.pid, signal.SIGQUIT)
            os.kill(run.pid, signal.SIGCONT)
            # The terminal echoes the key.
            shown = run.read_to_end().splitlines()[-5:]
            assert shown == ["SIGTERM", "^CSIGINT", "SIGQUIT", "more 0", NO_REQUEST]
            assert status_of(run.pid) == 0

    def test_a_closed_terminal_ends_everything(self, tmp_path: Path) -> None:
        with terminal(tmp_path, *TOY, "wait", command=RUN) as run:
            run.wait_for("/v1")
        assert status_of(run.pid) == 128 + signal.SIGHUP

    def test_it_stops_and_continues_with_the_program(self, tmp_path: Path) -> None:
        with terminal(tmp_path, *TOY, "stop") as run:
            run.wait_for("stopping")
            assert os.WIFSTOPPED(os.waitpid(run.pid, os.WUNTRACED)[1])
            os.kill(run.pid, signal.SIGCONT)
            assert run.read_to_end().splitlines()[-1] == "continued"
            assert status_of(run.pid) == 0


def test_a_failed_request_names_the_log_at_the_end(tmp_path: Path) -> None:
    status, out, err = run_to_end(tmp_path, *TOY, "post", "sim/error-500")
    assert (status, out) == (0, ["500"])
    assert err[:-1] == [SIMULATOR_WARNING]
    words, _, log = err[-1].rpartition(": ")
    assert words == "dragoman: the gateway logged warnings or errors"
    assert Path(log).stat().st_mode & 0o777 == 0o600
    assert json.loads(Path(log).read_text())["outcome"] == "failed"


# The first server of a chain is not there: what the file has beside it, and if the command is started.
DEAD = '[[upstreams]]\nname = "dead"\nprotocol = "openai_chat"\nbase_url = "http://127.0.0.1:1/v1"\n'
WITH_SIMULATOR = "[server]\nsimulator = true\n"
UNREACHABLE: list[tuple[str, tuple[str, ...], bool]] = [
    (DEAD, (), False),
    (DEAD + '[models]\n"claude-*" = "dead/x"\n', ("--client", "claude"), False),
    (DEAD, ("--model", "dead/x"), False),
    (WITH_SIMULATOR + DEAD + '[models]\nm = ["dead/x", "sim/echo"]\n', ("--model", "m"), True),
]


@pytest.mark.parametrize(("text", "arguments", "starts"), UNREACHABLE)
def test_an_upstream_that_is_not_there_is_reported_before_the_command(
    tmp_path: Path, text: str, arguments: tuple[str, ...], starts: bool
) -> None:
    (tmp_path / "dragoman.toml").write_text(text)
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\nexit 0\n")
    program.chmod(0o700)
    line = text.splitlines().index('base_url = "http://127.0.0.1:1/v1"') + 1
    assert run_here(*arguments, "--", str(program)) == (
        0 if starts else 1,
        [
            "error    upstream dead: nothing listens at http://127.0.0.1:1",
            f"         fix: start that server, or correct the base URL: dragoman.toml:{line}",
            NO_REQUEST.replace(Path(sys.executable).name, "program")
            if starts
            else "dragoman: the command was not started, because its models cannot be reached",
        ],
    )


@pytest.fixture(scope="module")
def simulator() -> Iterator[Simulator]:
    with Simulator().ready() as simulator:
        yield simulator


def test_nothing_is_said_of_an_upstream_that_works_and_the_log_goes_to_a_file(
    tmp_path: Path, simulator: Simulator
) -> None:
    url, log = f"http://127.0.0.1:{simulator.port}", tmp_path / "gateway.log"
    (tmp_path / "dragoman.toml").write_text(DEAD.replace("http://127.0.0.1:1", url))
    assert run_to_end(tmp_path, "--log", str(log), *TOY, "post", "dead/echo") == (0, ["Hello"], [])
    assert any('"outcome": "completed"' in line for line in log.read_text().splitlines())


def test_a_server_that_only_waits_does_not_keep_the_command_from_starting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch, "_WAIT_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        (tmp_path / "dragoman.toml").write_text(DEAD.replace("http://127.0.0.1:1", url))
        status, lines = run_here("--model", "dead/x", "--", *TOY, "exit", "3")
    assert (status, lines[0]) == (3, f"error    upstream dead: {url} sent no response head within 0.2 s")


def test_what_outranks_the_users_own_settings_is_a_file_that_nobody_else_reads(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    program = tmp_path / "claude"
    program.write_text('#!/bin/sh\necho "$1" "$3"; ls -l "$2" | cut -c 1-10; echo "$2"; cat "$2"\n')
    program.chmod(0o700)
    assert run_here("--model", "sim/echo", "--", str(program), "-p")[0] == 0
    words, mode, name, text = capfd.readouterr().out.splitlines()
    assert (words, mode) == ("--settings -p", "-rw-------")
    assert not Path(name).exists()
    variables = json.loads(text)["env"]
    assert variables["ANTHROPIC_BASE_URL"].startswith("http://127.0.0.1:")
    assert variables["ANTHROPIC_AUTH_TOKEN"].startswith("drk_")
    assert (variables["ANTHROPIC_MODEL"], variables["ANTHROPIC_API_KEY"]) == ("sim/echo", "")
    # Another program gets no option of a client that it starts.
    assert run_here("--model", "sim/echo", "--client", "claude", "--", "echo", "-p")[0] == 0
    assert capfd.readouterr().out == "-p\n"


def test_a_running_gateway_is_used_and_goes_on(capfd: pytest.CaptureFixture[str]) -> None:
    names = ("OPENAI_BASE_URL", "OPENAI_API_KEY", "OPENAI_MODEL")
    with json_server(listing({"id": "text-embedding-3"}, {"id": "nick"})) as url:
        command = ("--gateway", url + "/", *TOY, "env", *names)
        assert run_here(*command, DRAGOMAN_KEY="a-key-of-the-user") == (0, [])
        assert accepts(url)
    found = json.loads(capfd.readouterr().out)
    assert found == {"OPENAI_BASE_URL": url, "OPENAI_API_KEY": "a-key-of-the-user", "OPENAI_MODEL": "nick"}


def test_a_client_keeps_its_names_if_a_running_gateway_lists_them() -> None:
    with json_server(listing({"id": "claude-x"})) as url:
        status, lines = run_here("--gateway", url, "--print-env", "claude")
        assert status == 0
        assert not any("MODEL" in line for line in lines)
        status, lines = run_here("--gateway", url, "--print-env", "codex")
        assert any('model="claude-x"' in line for line in lines)


def test_a_gateway_that_does_not_respond() -> None:
    status, lines = run_here("--gateway", "http://127.0.0.1:1", *TOY, "exit", "0")
    assert status == 1
    assert lines[0].startswith("dragoman: the gateway at http://127.0.0.1:1 returned no list of models (")


def test_a_shell_loads_the_printed_variables(tmp_path: Path, simulator: Simulator) -> None:
    gateway = f"http://127.0.0.1:{simulator.port}"
    command = shlex.join([*RUN, "--print-env", "--gateway", gateway, "--model", "echo"])
    script = ["sh", "-c", f'eval "$({command})"; exec {shlex.join(TOY)} post']
    environ = environ_of(tmp_path)
    assert subprocess.check_output(script, cwd=tmp_path, env=environ, timeout=DEADLINE_S) == b"Hello\n"


def test_a_gateway_that_cannot_start(tmp_path: Path) -> None:
    (tmp_path / "dragoman.toml").write_text(
        '[server]\nresponse_store = "sqlite"\nresponse_store_path = "none/at/all"\n'
    )
    status, lines = run_here("--log", "log", *TOY, "exit", "0")
    assert status == 1
    assert lines[-1].startswith("dragoman: ")
