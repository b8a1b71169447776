"""`dragoman doctor` and `dragoman config check`: what is printed, and the exit codes."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
import rows
from click.testing import Result
from command.cli import json_server, listing, run
from command.process import DEADLINE_S
from config_text import CANARY, LOCAL

from dragoman_server.cli.doctor.command import _host
from dragoman_server.platform.extras import install_command
from dragoman_server.settings import UpstreamSettings


@pytest.fixture(autouse=True)
def _any_port(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRAGOMAN_PORT", "0")


@pytest.fixture
def upstream() -> Iterator[str]:
    with json_server(listing({"id": "qwen3"})) as url:
        yield url


def closed_url() -> str:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return f"http://127.0.0.1:{listener.getsockname()[1]}/v1"


def write(url: str, more: str = "") -> None:
    Path("dragoman.toml").write_text(LOCAL.replace("http://127.0.0.1:9000/v1", url) + more)


def lines(result: Result) -> list[str]:
    return [click.unstyle(line) for line in result.stdout.splitlines()]


def test_without_errors_it_exits_with_0(upstream: str) -> None:
    write(upstream)
    result = run("doctor", DRAGOMAN_PROT="1")
    assert result.exit_code == 0, result.output
    printed = lines(result)
    assert printed[0] == "ok       dragoman.toml: is correct; upstreams: local"
    assert printed[1:3] == [
        "warning  DRAGOMAN_PROT: is not a variable of Dragoman",
        "         fix: write DRAGOMAN_PORT, or unset DRAGOMAN_PROT",
    ]
    assert any(line.startswith("ok       upstream local: responds within ") for line in printed)
    assert printed[-1] == "errors: 0, warnings: 1"


def test_the_row_of_a_host() -> None:
    def output_of(lines: list[str]) -> list[str]:
        base_url, host = lines[0].split()
        found = _host(UpstreamSettings(name="up", protocol="openai_chat", base_url=base_url, host=host))
        assert (found.check, found.subject) == ("host", "upstream up")
        return [found.text]

    rows.check(Path(__file__).with_name("hosts.txt"), output_of)


def test_an_extra_that_is_missing_is_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dragoman_server.platform.extras.find_spec", lambda name: None)
    assert lines(run("doctor", DRAGOMAN_OTEL="true"))[:2] == [
        "error    environment: DRAGOMAN_OTEL: needs an extra",
        f"         fix: {install_command('otel')}",
    ]


def test_json_has_a_stable_shape() -> None:
    write(closed_url(), f'api_key = "{CANARY}"\n')
    Path("dragoman.toml").chmod(0o644)
    result = run("doctor", "--json")
    assert result.exit_code == 1
    assert CANARY not in result.output
    report = json.loads(result.stdout)
    assert (report["version"], report["errors"], report["warnings"]) == (1, 1, 1)
    expected = [["check", "fix", "severity", "subject", "text"]] * len(report["findings"])
    assert [sorted(each) for each in report["findings"]] == expected
    checks = [(each["severity"], each["check"], each["subject"]) for each in report["findings"]]
    assert checks == [
        ("ok", "config", "dragoman.toml"),
        ("warning", "file_mode", "dragoman.toml"),
        ("ok", "host", "upstream local"),
        ("ok", "port", "server.port"),
        ("error", "connect", "upstream local"),
    ]
    assert (report["findings"][0]["fix"], report["findings"][1]["fix"]) == (None, "chmod 600 dragoman.toml")


# The offline half.


@pytest.mark.process
@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_ctrl_c_ends_it_without_a_traceback(backend: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        write(f"http://127.0.0.1:{silent.getsockname()[1]}/v1")
        process = subprocess.Popen(
            [sys.executable, "-m", "dragoman_server", "doctor"],
            env={"PATH": os.environ["PATH"], "DRAGOMAN_BACKEND": backend, "DRAGOMAN_PORT": "0"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        with process:
            silent.settimeout(DEADLINE_S)
            connection, _ = silent.accept()
            connection.recv(1)  # it waits for a response by now
            process.send_signal(signal.SIGINT)
            output, errors = process.communicate(timeout=DEADLINE_S)
        connection.close()
    # What needs no network is there already.
    assert (process.returncode, output.splitlines()) == (
        1,
        [
            b"ok       dragoman.toml: is correct; upstreams: local",
            b"ok       upstream local: is at a host on a private network: gets what nearly all servers accept",
        ],
    )
    assert errors.strip() == b"Aborted!"
