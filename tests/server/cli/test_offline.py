"""The checks that need no network: what is found, and what fixes it."""

import contextlib
import os
import sqlite3
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest
import rows
from config_text import CANARY, LOCAL
from http_certificate import make_certificate, make_expired_certificate

from dragoman_server.accounts.stores.sqlite import FILE_FORMAT as ACCOUNTS
from dragoman_server.cli.doctor import offline
from dragoman_server.cli.doctor.offline import offline_findings
from dragoman_server.config.loader import load
from dragoman_server.platform.sqlite_file import SQLiteFile
from dragoman_server.responses.stores.sqlite import FILE_FORMAT as RESPONSES
from dragoman_server.settings.problems import CheckFinding, CheckSeverity
from dragoman_server.usage.stores.sqlite import FILE_FORMAT as USAGE

ROWS = Path(__file__).with_name("offline.txt")
TLS = '[server]\ncertfile = "cert.pem"\nkeyfile = "key.pem"\n'

posix = pytest.mark.skipif(os.name != "posix", reason="file modes of POSIX")


def found(text: str, mode: int = 0o600, **environ: str) -> list[CheckFinding]:
    """Return what is found in a file of this mode, except for notes about extras."""
    file = Path("dragoman.toml")
    file.write_text(text)
    file.chmod(mode)
    findings = offline_findings(load(environ={"LOCAL_KEY": CANARY, **environ}))
    assert CANARY not in repr(findings)
    return [finding for finding in findings if finding.check != "extra"]


@posix
def test_what_is_found_in_a_configuration() -> None:
    def output_of(lines: list[str]) -> list[str]:
        text, mode, environ = "", 0o600, dict[str, str]()
        with pytest.MonkeyPatch.context() as process:
            for line in (line.replace("$CANARY", CANARY) for line in lines):
                word, _, rest = line.partition(" ")
                name, _, value = rest.partition("=")
                match word:
                    case "mode":
                        mode = int(rest, 8)
                    case "env":
                        environ[name] = value
                    case "export":
                        process.setenv(name, value)
                    case _:
                        text += LOCAL if line == "$LOCAL" else line + "\n"
            findings = found(text, mode, **environ)
        return [f"{each.severity.value} {each.check}: {each}" for each in findings] or ["nothing"]

    rows.check(ROWS, output_of)


@posix
def test_a_file_with_a_key_that_others_may_read() -> None:
    key = Path("my key")
    key.write_text(CANARY)
    for mode, fixes in ((0o640, ["chmod 600 'my key'"]), (0o600, [])):
        key.chmod(mode)
        findings = found(LOCAL + 'api_key = "${file:my key}"\n', 0o644)
        assert [finding.fix for finding in findings] == fixes


@posix
def test_a_private_key_that_others_may_read(tmp_path: Path) -> None:
    make_certificate(tmp_path).key.chmod(0o644)
    _, finding = found(TLS)
    assert (finding.subject, finding.fix) == ("key.pem", "chmod 600 key.pem")


def test_a_private_key_that_is_missing(tmp_path: Path) -> None:
    make_certificate(tmp_path).key.unlink()
    (finding,) = found(TLS)
    assert (finding.subject, finding.fix) == ("server.keyfile", "correct dragoman.toml:3")
    (finding,) = found('[server]\nupstream_certfile = "none.pem"\n')
    assert (finding.subject, finding.fix) == ("server.upstream_certfile", "correct dragoman.toml:2")


def test_a_certificate_that_expires_soon_or_has_expired(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_certificate(tmp_path)  # for two days
    (finding,) = found(TLS)
    until = datetime.now(UTC) + timedelta(days=2)
    assert (finding.severity, finding.check) == (CheckSeverity.WARNING, "certificate")
    assert finding.text == f"cert.pem expires on {until:%Y-%m-%d}"
    assert finding.fix == "renew it: dragoman.toml:2"
    monkeypatch.setattr("dragoman_server.cli.doctor.offline._RENEW_DAYS", 1)
    assert found(TLS) == []
    make_expired_certificate(tmp_path)
    (finding,) = found(TLS)
    # The gateway starts with it, so it is not an error.
    expected = (CheckSeverity.WARNING, "cert.pem has expired or is not valid yet")
    assert (finding.severity, finding.text) == expected


def test_a_certificate_that_a_handshake_refuses_is_left_to_the_clients(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_expired_certificate(tmp_path)
    monkeypatch.setattr("dragoman_server.cli.doctor.offline._OUTSIDE_VALIDITY", ())
    assert found(TLS) == []


def test_an_event_loop_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "uvloop", None)
    (finding,) = found('server.backend = "uvloop"\n')
    assert str(finding) == "server.backend: uvloop is not installed; use --backend asyncio or trio"
    assert finding.severity is CheckSeverity.ERROR


@posix
def test_a_store_that_cannot_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.access", lambda path, mode: False)  # the superuser may write everything
    finding, usage = found('[server]\nresponse_store = "sqlite"\nresponse_store_path = "a.db"\n')
    assert finding.text == ". cannot be written"
    assert finding.fix.endswith("or name another file: dragoman.toml:3")
    made_below = Path(os.environ["XDG_STATE_HOME"]).parent
    assert (usage.severity, usage.text) == (CheckSeverity.WARNING, f"{made_below} cannot be written")
    (usage,) = found('[server]\nusage_store_path = "no/such/b.db"\n')
    assert (usage.subject, usage.text) == ("server.usage_store_path", ". cannot be written")


@posix
def test_a_store_on_a_file_system_that_is_read_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.access", lambda path, mode: False)
    monkeypatch.setattr("os.statvfs", lambda path: SimpleNamespace(f_flag=os.ST_RDONLY | os.ST_NOSUID))
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=10**12))
    finding, _ = found('[server]\nresponse_store = "sqlite"\nresponse_store_path = "a.db"\n')
    assert finding.text == ". cannot be written: its file system is read-only"
    assert finding.fix == "name another file: dragoman.toml:3", "another owner would change nothing"


def test_a_disk_that_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=1_500_000))
    _, finding = found('server.audit_log = "audit.jsonl"\n')
    assert finding.severity is CheckSeverity.WARNING, "an error would keep the gateway from starting"
    assert finding.text == f"the disk of {Path.cwd()} is full: 1 MB are free"


FORMATS = {"response": RESPONSES, "account": ACCOUNTS, "usage": USAGE}


@pytest.mark.parametrize("name", FORMATS)
def test_a_store_that_another_program_or_version_has_made(name: str) -> None:
    text = f'[server]\n{name}_store = "sqlite"\n{name}_store_path = "a.db"\n'
    file = SQLiteFile(FORMATS[name], "a.db", ValueError)

    def made() -> list[tuple[str, str]]:
        before = sorted(os.listdir())
        findings = [
            (each.severity.value, f"{each.subject} {each.text}; {each.fix}")
            for each in found(text)
            if each.subject == f"server.{name}_store_path"
        ]
        expected = [each for each in before if each != "dragoman.toml"]
        assert sorted({*os.listdir()} - {"dragoman.toml"}) == expected
        return findings

    Path("a.db").touch()
    assert made() == []
    file.open(1.0)
    assert made() == [], "while it is used, and its marks are in the log"
    file.close()
    assert made() == []
    severity = "warning" if name == "usage" else "error"
    for statement, maker in (
        ("PRAGMA user_version = 99", "another version of Dragoman"),
        ("PRAGMA application_id = 7", "another program"),
        ("PRAGMA application_id = 0", "another program"),
    ):
        with contextlib.closing(sqlite3.connect("a.db")) as connection:
            connection.execute(statement)
        problem = f"server.{name}_store_path a.db was made by {maker}; name another file: dragoman.toml:3"
        assert made() == [(severity, problem)]
    Path("a.db").write_text("no database, but notes of somebody " * 9)
    assert "another program" in made()[0][1]


# Proxies.


def test_a_library_that_finds_credentials_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("dragoman.toml").write_text(LOCAL + 'host = "bedrock"\n')
    assert [each for each in offline_findings(load(environ={})) if "bedrock" in each.text] == []
    monkeypatch.setattr(offline, "missing_extra", lambda name: f"needs {name}")
    missing = [each for each in offline_findings(load(environ={})) if "bedrock" in each.text]
    assert [(each.severity, each.subject) for each in missing] == [(CheckSeverity.ERROR, "upstream local")]
    assert "[bedrock]" in missing[0].fix
    Path("dragoman.toml").write_text(LOCAL + 'host = "bedrock"\napi_key = "k"\n')
    assert [each for each in offline_findings(load(environ={})) if "bedrock" in each.text] == []
