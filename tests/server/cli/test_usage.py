"""`dragoman usage`: from the running gateway or from the store, for people, for spreadsheets and for programs."""

import csv
import io
import json
import os
import sys
import time
from pathlib import Path

import anyio
import pytest
from command.cli import json_server, run

from dragoman_server.cli.usage import _figures, state_directory, with_usage_file
from dragoman_server.config.loader import load
from dragoman_server.usage.stores.base import KeyUse, UsageBatch, UsageCounts, UsageLabels
from dragoman_server.usage.stores.sqlite import SQLiteUsageStore

ADMIN = "admin-canary-0123456789-0123456789-wq7zk"
HOUR = int(time.time() // 3600)


def fill(path: Path) -> None:
    """Store the usage of two keys."""
    rows = {
        UsageLabels(HOUR, "ci", "openai", "openai/default", "gpt-6-sol"): UsageCounts(
            requests=3, errors=1, input_tokens=12_345, output_tokens=678, cached_tokens=9_000, cost_usd=0.5
        ),
        UsageLabels(HOUR, "ci", "local", "local/a", '=1+"1"'): UsageCounts(1, output_tokens=5, unpriced=1),
        UsageLabels(HOUR - 200, "web\x1b[31m", "openai", "openai/default", "gpt-6-sol"): UsageCounts(
            2, cost_usd=1234.5
        ),
    }
    ci = KeyUse(4, 13_028, 0.5, 1_790_000_000.0)
    uses = {"ci": ci, "web\x1b[31m": KeyUse(2, 0, 1234.5, 1_780_000_000.0)}
    batch = UsageBatch("1", rows, uses, 0)

    async def write() -> None:
        store = SQLiteUsageStore(str(path))
        async with store.running():
            await store.add(batch)

    anyio.run(write)


@pytest.fixture
def file() -> Path:
    path = Path(os.environ["XDG_STATE_HOME"]) / "dragoman" / "usage.sqlite"
    fill(path)
    return path


def test_the_table_for_people(file: Path) -> None:
    result = run("usage", "--by", "key,model", "--since", "30d")
    assert result.exit_code == 0, result.stderr
    assert result.stdout.splitlines() == [
        "key          model      requests  errors   input  cached  output       cost",
        "ci           gpt-6-sol         3       1  12,345   9,000     678    $0.5000",
        r"web\x1b[31m  gpt-6-sol         2       0       0       0       0  $1,234.50",
        'ci           =1+"1"            1       0       0       0       5   no price',
        "total                          6       1  12,345   9,000     683  $1,235.00",
        "requests without a price, which are not in the cost: 1 (docs/usage.md#prices)",
    ]
    assert run("usage", "--key", "web\x1b[31m").stdout.splitlines()[1].split() == [*"00000", "$0.00"]
    result = run("usage", "--key", "cli")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.splitlines() == [
        f"there is no dragoman.toml in {Path.cwd()}: --config or DRAGOMAN_CONFIG names another file",
        "dragoman: --key must be the name of a client key; dragoman keys list has them",
    ]
    result = run("usage", "--by", "day", "--limit", "1", "--since", "4w")
    assert len(result.stdout.splitlines()) == 4
    assert "there are more rows than 1: --limit shows more of them" in result.stderr


def test_for_spreadsheets_and_for_programs(file: Path) -> None:
    rows = list(csv.DictReader(io.StringIO(run("usage", "--csv", "--by", "model").stdout)))
    assert [row["model"] for row in rows] == ["gpt-6-sol", '\'=1+"1"'], "which no spreadsheet computes"
    assert (rows[0]["cost_usd"], rows[1]["cost_usd"], rows[0]["first_byte_0.05s"]) == ("0.5", "", "0")
    assert "first_byte_more" in rows[0]
    (row,) = csv.DictReader(io.StringIO(run("usage", "--csv").stdout))
    assert row["requests"] == "4"
    found = json.loads(run("usage", "--json", "--by", "account").stdout)
    assert [row["account"] for row in found["rows"]] == ["openai/default", "local/a"]


def test_keys_are_listed_with_what_they_have_used(file: Path) -> None:
    Path("dragoman.toml").write_text(
        f'[server]\nsecret = "{"s" * 32}"\n[[client_keys]]\nname = "ci"\nhash = "{"0" * 64}"\nbudget = 1\n'
        'group = "team"\n[[groups]]\nname = "team"\nmodels = ["up/*"]\n'
        '[[prices]]\nmodel = "*"\ninput = 1\noutput = 1\n'
    )
    result = run("keys", "list")
    assert result.stderr == ""
    assert result.stdout.splitlines()[1].split() == [
        "ci", "team", "active", "4", "13028", "$0.5000", "2026-09-21", "14:13", "budget=1/month"
    ]  # fmt: skip
    assert result.stdout.splitlines()[2:] == ["", "group  settings", "team  models=up/*"]
    by_group = json.loads(run("usage", "--by", "group", "--since", "30d", "--json").stdout)["rows"]
    assert [(each["group"], each["requests"]) for each in by_group] == [("team", 4), ("", 2)]
    (row,) = json.loads(run("keys", "list", "--json").stdout)["keys"]
    assert (row["budget_spent"], row["budget_left"]) == (None, None), "they are in the memory of the gateway"


def test_the_running_gateway_is_asked_first(file: Path) -> None:
    found = {"since": "", "until": "", "by": [], "rows": [], "first_byte_bounds_s": [], "truncated": False}
    total = {"requests": 77, "errors": 0, "input_tokens": 0, "cached_tokens": 0, "output_tokens": 0}
    found["total"] = {**total, "cost_usd": 0.0, "unpriced": 0}
    with json_server(lambda _: (200, found)) as url:
        port = url.rsplit(":", 1)[1].split("/")[0]
        result = run("usage", DRAGOMAN_ADMIN_KEY=ADMIN, DRAGOMAN_PORT=port)
    assert result.stdout.splitlines()[1].split()[0] == "77"
    with json_server(lambda _: (503, {"error": {"message": "the usage store does not respond"}})) as url:
        port = url.rsplit(":", 1)[1].split("/")[0]
        result = run("usage", DRAGOMAN_ADMIN_KEY=ADMIN, DRAGOMAN_PORT=port)
    assert result.stdout.splitlines()[1].split()[0] == "4", "and its store, if it does not answer"


def test_a_file_of_another_program(file: Path) -> None:
    file.write_bytes(b"x" * 5000)
    result = run("usage")
    assert result.exit_code == 1
    assert "file is not a database" in result.stderr


STATES = [
    ("linux", {"XDG_STATE_HOME": "/state"}, "/state/dragoman"),
    ("linux", {"XDG_STATE_HOME": "relative"}, "/home/me/.local/state/dragoman"),
    ("linux", {}, "/home/me/.local/state/dragoman"),
    ("linux", {"STATE_DIRECTORY": "/var/lib/one:/var/lib/two", "XDG_STATE_HOME": "/state"}, "/var/lib/one"),
    ("darwin", {}, "/home/me/Library/Application Support/dragoman"),
    ("win32", {"LOCALAPPDATA": "/local"}, "/local/dragoman"),
    ("win32", {}, None),
]


def test_the_users_state_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    for system, environ, expected in STATES:
        monkeypatch.setattr(sys, "platform", system)
        assert state_directory(environ) == (expected and Path(expected)), (system, environ)

    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", no_home)
    monkeypatch.setattr(sys, "platform", "linux")
    assert state_directory({}) is None


def test_only_the_commands_store_usage_in_a_file_unless_told(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = load(environ={})
    assert loaded.settings.server.usage_store is None
    server = with_usage_file(loaded).settings.server
    path = str(Path(os.environ["XDG_STATE_HOME"]) / "dragoman" / "usage.sqlite")
    assert (server.usage_store, server.usage_store_path) == ("sqlite", path)
    named = with_usage_file(load(environ={"DRAGOMAN_USAGE_STORE_PATH": "u.db"})).settings.server
    assert (named.usage_store, named.usage_store_path) == ("sqlite", "u.db")
    told = load(environ={"DRAGOMAN_USAGE_STORE": "memory"})
    assert with_usage_file(told) is told
    monkeypatch.setattr("dragoman_server.cli.usage.state_directory", lambda _: None)
    assert with_usage_file(loaded) is loaded


def test_money_is_shown_with_the_digits_that_it_has() -> None:
    shown = {
        None: "no price",
        0.0: "$0.00",
        9e-6: "$0.000009",
        0.0125: "$0.0125",
        1.005: "$1.00",
        1e6: "$1,000,000.00",
    }
    counts = {"requests": 1, "errors": 0, "input_tokens": 0, "cached_tokens": 0, "output_tokens": 0}
    assert {cost: _figures({**counts, "cost_usd": cost})[-1] for cost in shown} == shown
