"""Several worker processes on one address count together, and are seen one by one where that matters."""

import fcntl
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from command.process import DEADLINE_S, GatewayProcess
from prometheus_client.parser import text_string_to_metric_families

from dragoman_server.settings import ServerSettings, Settings
from dragoman_server.settings.secret import Secret
from dragoman_server.telemetry.metrics import metrics_directory

pytestmark = pytest.mark.process

KEY = "metrics-0123456789-0123456789-0123456789"
BODY = {"model": "sim/echo", "messages": [{"role": "user", "content": "Hello"}]}
REQUESTS = 8


class Gateway(GatewayProcess):
    COMMAND = (*GatewayProcess.COMMAND, "--workers", "2")

    def samples(self, name: str) -> dict[str, float]:
        """Return the values of a metric by its label pid, "" without one."""
        text = self.request("GET", "/metrics", authorization=f"Bearer {KEY}")[1].decode()
        return {
            sample.labels.get("pid", ""): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if sample.name == name
        }

    def wait_for(self, name: str, value: float) -> None:
        """Wait until a metric without labels, or their sum, has this value: requests are counted after their end."""
        deadline = time.monotonic() + DEADLINE_S
        while (found := sum(self.samples(name).values())) != value:
            assert time.monotonic() < deadline, found


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Gateway]:
    """On one event loop: what workers share are files."""
    with Gateway(env={"DRAGOMAN_METRICS_KEY": KEY, "TMPDIR": str(tmp_path)}) as server:
        yield server.ready()


def test_they_count_together(gateway: Gateway, tmp_path: Path) -> None:
    (directory,) = tmp_path.glob("dragoman-metrics-*")
    # As a worker leaves it that dies too early: https://github.com/prometheus/client_python/issues/1199
    (directory / "counter_1234567.db").touch()
    descriptor = os.open(directory, os.O_RDONLY)
    with pytest.raises(BlockingIOError):  # no other gateway removes it
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(descriptor)
    for _ in range(REQUESTS):
        assert gateway.request("POST", "/v1/chat/completions", BODY)[0].status == 200
    gateway.wait_for("dragoman_requests_total", REQUESTS)
    for _ in range(4):  # whichever of them is scraped
        assert gateway.samples("dragoman_requests_total") == {"": REQUESTS}
        assert gateway.samples("dragoman_workers") == {"": 2}
        assert gateway.samples("dragoman_open_requests") == {"": 0}
    (first, second) = gateway.samples("process_resident_memory_bytes")
    assert gateway.pid not in (int(first), int(second))

    os.kill(int(first), signal.SIGKILL)
    gateway.wait_for_line("starting another")
    gateway.wait_for("dragoman_workers", 2)
    assert first not in gateway.samples("process_open_fds")
    assert gateway.samples("dragoman_requests_total") == {"": REQUESTS}, "a sum never becomes smaller"

    gateway.signal(signal.SIGTERM)
    assert gateway.wait() == 0
    assert list(tmp_path.iterdir()) == [], "the directory that they shared is removed"


def test_only_what_a_gateway_left_behind_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    names = ("left", "locked", "of-another-user")
    left, locked, others = directories = [tmp_path / f"dragoman-metrics-{name}" for name in names]
    for directory in directories:
        directory.mkdir()
        (directory / "counter_1.db").touch()
    (tmp_path / "elsewhere").mkdir()
    link, file = tmp_path / "dragoman-metrics-link", tmp_path / "dragoman-metrics-file"
    link.symlink_to(tmp_path / "elsewhere")
    file.touch()
    if os.geteuid() == 0:
        os.chown(others, 1234, 1234)
    else:  # only root can give it away
        shutil.rmtree(others)
    descriptor = os.open(locked, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    before = set(tmp_path.iterdir())
    with metrics_directory(Settings(server=ServerSettings(metrics_key=Secret(KEY)))):
        own = Path(os.environ["PROMETHEUS_MULTIPROC_DIR"])
        assert set(tmp_path.iterdir()) == before - {left} | {own}
    os.close(descriptor)
    assert set(tmp_path.iterdir()) == before - {left}


def test_a_directory_that_is_removed_before_it_is_locked_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By another gateway that starts at the same time, before or after this one has opened it."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    made, locks, make, flock = list[str](), list[int](), tempfile.mkdtemp, fcntl.flock

    def made_and_removed(**options: Any) -> str:
        made.append(make(**options))
        if len(made) == 1:
            os.rmdir(made[0])
        return made[-1]

    def removed_and_locked(descriptor: int, operation: int) -> None:
        locks.append(descriptor)
        if len(locks) == 1:
            os.rmdir(made[-1])
        flock(descriptor, operation)

    monkeypatch.setattr(tempfile, "mkdtemp", made_and_removed)
    monkeypatch.setattr(fcntl, "flock", removed_and_locked)
    with metrics_directory(Settings(server=ServerSettings(metrics_key=Secret(KEY)))):
        assert [str(each) for each in tmp_path.iterdir()] == [made[2]]
