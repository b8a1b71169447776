"""docs/deploy: what its files name exists, their times fit the gateway's, and their configurations load.

The proxies run in tests/edge/test_deployed_proxies.py.
"""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from dragoman_server.config.loader import LoadedConfig, load
from dragoman_server.serving.run import CLOSING_S, SHUTDOWN_S
from dragoman_server.settings import ServerSettings

ROOT = Path(__file__).parents[1]
DEPLOY = ROOT / "docs" / "deploy"
PAGE = (DEPLOY / "README.md").read_text("utf-8")
COMPOSE = (DEPLOY / "compose.yaml").read_text("utf-8")
UNIT = (DEPLOY / "dragoman.service").read_text("utf-8")
CONTAINERFILE = (DEPLOY / "Containerfile").read_text("utf-8")
KEY = f'\n[[client_keys]]\nname = "laptop"\nhash = "{"0" * 64}"\n'


def loaded(text: str, secrets_in: str, directory: Path) -> LoadedConfig:
    """Load a configuration on 0.0.0.0, with files of secrets that are elsewhere here."""
    for name in re.findall(rf"\$\{{file:{secrets_in}/(\w+)\}}", text):
        (directory / name).write_text("canary-" + name.ljust(32, "x") + "\n")
    file = directory / "dragoman.toml"
    file.write_text(text.replace(secrets_in, str(directory)))
    return load(environ={"DRAGOMAN_HOST": "0.0.0.0"}, path=str(file))


def test_the_configuration_of_the_containers_loads(tmp_path: Path) -> None:
    text = (DEPLOY / "dragoman.toml").read_text("utf-8")
    assert loaded(text + KEY, "/run/secrets", tmp_path).settings.server.account_store == "valkey"
    secrets = set(re.findall(r"/run/secrets/(\w+)", text))
    assert secrets == set(re.findall(r"file: \./secrets/(\w+)", COMPOSE))
    # The server is the service of this name.
    assert re.search(r"^  valkey:$", COMPOSE, re.MULTILINE)
    assert "@valkey" in text


def test_the_configuration_below_systemd_loads(tmp_path: Path) -> None:
    (text,) = re.findall(r"^```toml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    loaded(text + KEY, "/run/credentials/dragoman.service", tmp_path)
    credentials = set(re.findall(r"^LoadCredential=(\w+):", UNIT, re.MULTILINE))
    assert credentials == set(re.findall(r"dragoman\.service/(\w+)", text))


def test_a_manager_waits_for_longer_than_a_stop_takes() -> None:
    server = ServerSettings()
    stop_s = server.drain_delay_s + server.drain_s + CLOSING_S + SHUTDOWN_S
    assert float(re.findall(r"^TimeoutStopSec=(\d+)$", UNIT, re.MULTILINE)[0]) > stop_s + 2
    assert float(re.findall(r"stop_grace_period: (\d+)s$", COMPOSE, re.MULTILINE)[0]) > stop_s + 2


def test_the_image_copies_what_there_is() -> None:
    copied = re.findall(r"^COPY (?!--from)(.*) \S+$", CONTAINERFILE, re.MULTILINE)
    names = [name for each in copied for name in each.split()]
    assert len(names) > 5
    assert [name for name in names if not (ROOT / name).exists()] == []
    assert [name for name in re.findall(r"-r (\S+)", CONTAINERFILE) if not (ROOT / name).exists()] == []


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_systemd_reads_the_unit_and_finds_its_sandbox_tight(tmp_path: Path) -> None:
    command = tmp_path / "dragoman"
    command.touch(0o755)
    unit = tmp_path / "dragoman.service"
    text = UNIT.replace("/opt/dragoman/bin/dragoman serve", f"{command} serve")
    unit.write_text(re.sub(r"^Documentation=.*\n", "", text, flags=re.MULTILINE))
    verified = subprocess.run(
        ["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, check=False
    )
    assert (verified.returncode, verified.stderr) == (0, "")
    # From 0 to 100. Only the network is open.
    rated = ["systemd-analyze", "security", "--offline=true", "--threshold=15", str(unit)]
    assert subprocess.run(rated, capture_output=True, check=False).returncode == 0
