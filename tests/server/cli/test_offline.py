"""The checks that need no network: what is found, and what fixes it."""

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from config_text import CANARY, LOCAL
from http_certificate import make_certificate, make_expired_certificate

from dragoman_server.cli.doctor.offline import offline_findings
from dragoman_server.config.loader import load
from dragoman_server.settings.problems import CheckFinding, CheckSeverity

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


def test_nothing_is_wrong() -> None:
    assert found(LOCAL + 'api_key = "${LOCAL_KEY}"\n', 0o644) == []


@posix
@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604])
def test_a_file_with_secrets_that_others_may_read(mode: int) -> None:
    (finding,) = found(LOCAL + f'api_key = "{CANARY}"\n', mode)
    assert (finding.severity, finding.check) == (CheckSeverity.WARNING, "file_mode")
    assert str(finding) == (
        "dragoman.toml: has a secret in line 5, and other users of this machine may read it; chmod 600 dragoman.toml"
    )


@posix
def test_headers_and_proxies_are_secrets_too() -> None:
    for line in (f'headers = {{ x-key = "{CANARY}" }}\n', f'proxy = "http://user:{CANARY}@proxy:3128"\n'):
        findings = [
            finding for finding in found(LOCAL + line, 0o644) if finding.severity is CheckSeverity.WARNING
        ]
        assert [finding.fix for finding in findings] == ["chmod 600 dragoman.toml"], line
    assert found(LOCAL + f'api_key = "{CANARY}"\n') == []


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
    made = make_certificate(tmp_path)
    made.key.chmod(0o644)
    _, finding = found(TLS)
    assert (finding.subject, finding.fix) == ("key.pem", "chmod 600 key.pem")


def test_a_certificate_that_is_missing() -> None:
    (finding,) = found(TLS)
    assert (finding.severity, finding.check) == (CheckSeverity.ERROR, "certificate")
    assert str(finding) == (
        "server.certfile: cannot read the certfile cert.pem: No such file or directory; correct dragoman.toml:2"
    )


def test_a_private_key_that_is_missing(tmp_path: Path) -> None:
    make_certificate(tmp_path).key.unlink()
    (finding,) = found(TLS)
    assert (finding.subject, finding.fix) == ("server.keyfile", "correct dragoman.toml:3")


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
    assert (finding.severity, finding.text) == (
        CheckSeverity.WARNING,
        "cert.pem has expired or is not valid yet",
    )


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


STORES = [
    ("response_store", "stores/a.db", "mkdir -p stores"),
    ("account_store", "my stores/a.db", "mkdir -p 'my stores'"),
]


def test_a_store_without_its_directory() -> None:
    for store, path, fix in STORES:
        (finding,) = found(f'[server]\n{store} = "sqlite"\n{store}_path = "{path}"\n')
        assert (finding.severity, finding.check, finding.fix) == (CheckSeverity.ERROR, "store", fix)


def test_a_store_that_can_be_written() -> None:
    assert found('[server]\nresponse_store = "sqlite"\nresponse_store_path = "a.db"\n') == []


@posix
def test_a_store_that_cannot_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.access", lambda path, mode: False)  # the superuser may write everything
    (finding,) = found('[server]\nresponse_store = "sqlite"\nresponse_store_path = "a.db"\n')
    assert finding.text == ". cannot be written"
    assert finding.fix.endswith("or name another file: dragoman.toml:3")


# Proxies.


def test_a_proxy_of_the_environment_is_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    remote = LOCAL.replace("127.0.0.1:9000", "models.example")
    monkeypatch.setenv("http_proxy", f"http://user:{CANARY}@proxy:3128")
    (finding,) = found(remote)
    assert (finding.severity, finding.check) == (CheckSeverity.NOTE, "proxy")
    assert str(finding) == "upstream local: is reached by the proxy proxy:3128 of the environment"
    monkeypatch.setenv("no_proxy", "models.example")
    assert found(remote) == []


def test_a_proxy_for_a_server_on_this_machine_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("all_proxy", "http://proxy:3128")
    (finding,) = found(LOCAL)
    assert finding.severity is CheckSeverity.WARNING
    assert finding.fix == 'export no_proxy="${no_proxy:+$no_proxy,}127.0.0.1"'


def test_the_proxy_of_an_upstream_is_a_note() -> None:
    (finding,) = found(LOCAL + 'proxy = "http://user:${LOCAL_KEY}@proxy:3128"\n')
    assert str(finding) == "upstream local: is reached by the proxy proxy:3128 of LOCAL_KEY (dragoman.toml:5)"


def test_warnings_of_the_configuration_come_first() -> None:
    first, *_ = found("", DRAGOMAN_PROT="1")
    assert (
        str(first)
        == "DRAGOMAN_PROT: is not a variable of Dragoman; write DRAGOMAN_PORT, or unset DRAGOMAN_PROT"
    )
