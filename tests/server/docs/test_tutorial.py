"""docs/tutorial.md: its commands run in their order, in an empty home, and print what the page shows."""

import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from command.process import Server

PAGE = Path(__file__).parents[3] / "docs" / "tutorial.md"
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
INSTALLS = "python3 -m venv ~/gateway\n~/gateway/bin/pip install '.[server]'\n"
PORTS = ("8080", "8081", "8443")
# It stands for Claude Code: a client that uses the variables which it gets.
CLAUDE = """#!/bin/sh
curl -fsS "$ANTHROPIC_BASE_URL/v1/messages" -H "authorization: Bearer $ANTHROPIC_AUTH_TOKEN" -d @- <<END
{"model": "$ANTHROPIC_MODEL", "max_tokens": 9, "messages": [{"role": "user", "content": "$4"}]}
END
"""


def free_ports(count: int) -> Iterator[str]:
    with ExitStack() as stack:
        for _ in range(count):
            listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
            yield str(listener.getsockname()[1])


class Terminals:
    """A shell, and a terminal for each server: `serve` and `simulate`."""

    def __init__(self, home: Path, stack: ExitStack) -> None:
        (home / "gateway").symlink_to(Path(sys.executable).parents[1])
        (home / "bin").mkdir()
        (home / "bin" / "claude").write_text(CLAUDE)
        (home / "bin" / "claude").chmod(0o700)
        self._ports = dict(zip(PORTS, free_ports(len(PORTS)), strict=True))
        self._env = {"HOME": str(home), "PATH": f"{home}/bin:/usr/local/bin:/usr/bin:/bin"}
        self._env |= {"DRAGOMAN_LOG_FORMAT": "text", "DRAGOMAN_PORT": self._ports["8080"]}
        self._stack, self._home = stack, home
        self._servers: dict[str, Server] = {}
        self._shell = stack.enter_context(
            subprocess.Popen(
                ["bash"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                env=self._env,
                cwd=home,
            )
        )
        self.logged: list[str] = []

    def ported(self, text: str) -> str:
        return re.sub(r"\b80(?:80|81)\b|\b8443\b", lambda match: self._ports[match[0]], text)

    def run(self, block: str) -> str:
        """Return what a block prints; of the last command only if it succeeds."""
        assert self._shell.stdin is not None
        assert self._shell.stdout is not None
        self._shell.stdin.write(f"{self.ported(block)}\necho; echo '-- end' $?\n")
        self._shell.stdin.flush()
        printed = ""
        for line in self._shell.stdout:
            if line.startswith("-- end "):
                assert line == "-- end 0\n", printed
                return printed
            printed += line
        raise AssertionError(f"the shell ended: {printed}")

    def serve(self, line: str) -> None:
        """Start a server in its terminal, after Ctrl-C to the one that runs there."""
        name = line.split()[1]
        self.stop(name)
        if name == "simulate":
            line = f"{line} --port 8081"
        command = ("bash", "-c", f"cd ~/team && exec ~/gateway/bin/{self.ported(line)}")
        self._servers[name] = self._stack.enter_context(Server(command=command, env=self._env)).ready()

    def stop(self, *names: str) -> None:
        for server in (self._servers.pop(name) for name in names if name in self._servers):
            server.signal(signal.SIGINT)
            assert server.wait() == 0
            self.logged += server.output


def shows(printed: str, line: str) -> bool:
    """Whether a line was printed; … stands for what differs."""
    return re.search(".*".join(map(re.escape, line.split("…"))), printed) is not None


@pytest.mark.process
@pytest.mark.skipif(
    not (shutil.which("curl") and shutil.which("openssl")), reason="it needs curl and openssl"
)
def test_the_tutorial_from_its_first_to_its_last_command(tmp_path: Path) -> None:
    assert BLOCKS[0] == ("sh", INSTALLS)  # what test_packaging.py installs from a wheel
    printed, of_log = "", []
    with ExitStack() as stack:
        terminals = Terminals(tmp_path, stack)
        for language, block in BLOCKS[1:]:
            if language == "text":
                of_log += [line for line in block.splitlines() if not shows(printed, terminals.ported(line))]
            elif re.fullmatch(r"dragoman (?:serve|simulate)\b.*\n", block):
                terminals.serve(block.strip())
            else:
                printed = terminals.run(block)
        terminals.stop("serve", "simulate")
    assert [line for line in of_log if not shows("\n".join(terminals.logged), line)] == []
    assert len(of_log) == 3  # the rest was printed
