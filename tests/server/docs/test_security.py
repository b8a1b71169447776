"""docs/security.md: its commands run, and its bounds are those of the code."""

import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner
from h2.frame_buffer import CONTINUATION_BACKLOG
from hyperframe.frame import PingFrame, RstStreamFrame, SettingsFrame
from msgspec.structs import astuple

from dragoman._engine.upstream_events import MAX_KEPT_BYTES, MAX_TEXT
from dragoman._ir.fast_path import DELTA_CHARS
from dragoman._wire.frame_cutter import MAX_EVENT_BYTES
from dragoman_server.cli.commands import main
from dragoman_server.config.loader import load
from dragoman_server.http.auth import OPEN_PATHS
from dragoman_server.proxying import attempt, plan
from dragoman_server.serving import http2, http2_connection, request_head
from dragoman_server.serving.connection import KEEP_ALIVE_S
from dragoman_server.serving.http1 import READ_AHEAD_BYTES
from dragoman_server.serving.request_head import MAX_FIELDS, MAX_HEAD_BYTES, MAX_TARGET_BYTES
from dragoman_server.settings import ServerSettings, settings_of
from dragoman_server.settings.client_keys import hash_client_key
from dragoman_server.settings.problems import ConfigError
from dragoman_server.settings.secret import CLIENT_KEY_PREFIX, Secret
from dragoman_server.upstream import http1

TEXT = (Path(__file__).parents[3] / "docs" / "security.md").read_text("utf-8")
(COMMANDS,) = re.findall(r"^```sh\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)
(REFUSAL,) = re.findall(r"^```\n\$ dragoman (.*?)\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)
BOUNDS = TEXT.partition("## Bounds\n")[2].partition("\n## ")[0]
SECRET = "0123456789abcdef" * 4


@pytest.fixture(autouse=True)
def _clean_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_the_refusal_is_the_text_of_the_command() -> None:
    _, _, host = shlex.split(REFUSAL[0])
    with pytest.raises(ConfigError) as caught:
        load(environ={}, flags={"host": host})
    assert str(caught.value) == " ".join(REFUSAL[1].split())


def test_the_commands_run_in_their_order() -> None:
    """As in a shell."""
    made, *lines = [line.partition("#")[0].strip() for line in COMMANDS.splitlines()]
    assert made.startswith("export DRAGOMAN_SECRET=")
    results = []
    for line in lines:
        program, *arguments = shlex.split(line)
        assert program == "dragoman"
        results.append(CliRunner(env={"DRAGOMAN_SECRET": SECRET}).invoke(main, arguments))
        assert results[-1].exit_code == 0, results[-1].output
        if arguments[1] == "add":
            table = Path("dragoman.client_keys.toml").read_text()
    key = results[0].stdout.strip()
    assert key.startswith(CLIENT_KEY_PREFIX)
    assert hash_client_key(key, Secret(SECRET)) in table
    assert results[1].stdout.splitlines()[1].startswith("ci    active")
    assert load(environ={}).settings.client_keys == ()


@pytest.mark.promise("S7")
def test_its_paths_prefixes_and_bounds() -> None:
    assert all(f"`{path}`" in TEXT for path in OPEN_PATHS)
    assert f"begin with `{CLIENT_KEY_PREFIX}`" in TEXT
    upstream = (attempt.MAX_ERROR_BYTES, attempt.MAX_RESPONSE_BYTES, MAX_EVENT_BYTES)
    for row in (
        f"| a request's head | {MAX_HEAD_BYTES // 1024} KiB, {MAX_FIELDS} header lines |",
        f"| the target in it | {MAX_TARGET_BYTES // 1024} KiB |",
        f"before its response has ended | {READ_AHEAD_BYTES // 1024} KiB |",
        f"| an idle connection | {KEEP_ALIVE_S:g} s |",
        f"| {http1.MAX_HEAD // 1024} KiB, {http1.MAX_FIELDS} header lines, {http1.MAX_INTERIM} interim responses |",
        f"| choices (`n`) | {plan.MAX_FAN_OUT} |",
        f"whole response; event | {'; '.join(f'{each // 2**20} MiB' for each in upstream)} |",
        f"| {MAX_TEXT // 2**20} Mi characters, of which each piece counts {DELTA_CHARS} more",
        f"more than it has; {MAX_KEPT_BYTES // 2**20} MiB |",
    ):
        assert row in TEXT
    assert set(re.findall(r"`(\w+_(?:bytes|s|connections))`", BOUNDS)) <= set(settings_of(ServerSettings))


@pytest.mark.promise("S11")
def test_the_limits_of_http2_are_those_of_the_code() -> None:
    """Each number of the table, in the order in which it has them."""
    table = TEXT.partition("A connection of HTTP/2")[2].partition("A malformed request")[0]
    kib, rates = 1024, http2_connection._RATES
    stream, connection = http2_connection.STREAM_WINDOW, http2_connection.CONNECTION_WINDOW
    streams = http2.MAX_STREAMS
    bounded = http2.CONNECTION_BUFFER + streams * http2.MIN_STREAM_BUFFER
    for text in (
        f"| {streams}, among them",
        f"{MAX_HEAD_BYTES // kib} KiB, as HTTP/2 counts",
        f"{request_head.MAX_FIELDS} lines; a path of {request_head.MAX_TARGET_BYTES // kib} KiB",
        f"with {2 * MAX_HEAD_BYTES // kib} KiB, more than {MAX_HEAD_BYTES // kib} KiB as it was sent, or",
        f"or {CONTINUATION_BACKLOG} `CONTINUATION` frames",
        f"{http2.STREAM_BUFFER // kib} KiB of a stream, {bounded / kib / kib} MiB of a connection",
        f"{stream // kib} KiB of a stream, {connection // kib // kib} MiB",
        f"does not read | {http2_connection.MAX_UNSENT // kib} KiB",
        f"below {http2_connection.SMALL_DATA} bytes",
        "bursts of {}, {} a second, of each".format(*astuple(rates[PingFrame][1])),
        f"{http2_connection.UPDATES_PER_DATA} `WINDOW_UPDATE` for each",
        "bursts of {}, {} a second | the same".format(*astuple(rates[RstStreamFrame][1])),
        "bursts of {}, {} a second | the same".format(*astuple(rates[SettingsFrame][1])),
    ):
        assert text in table
