"""The supervisor of several workers, where the system refuses what it needs."""

import errno
import os
import socket
from typing import Any

import anyio
import pytest
from virtual_time import VIRTUAL_BACKENDS

from dragoman_server.serving import supervisor
from dragoman_server.serving.signals import SignalMeanings
from dragoman_server.serving.supervisor import Supervisor
from dragoman_server.settings import ServerSettings, Settings

pytestmark = [pytest.mark.anyio, pytest.mark.backends(*VIRTUAL_BACKENDS)]


async def test_a_process_that_the_system_refuses_is_started_later(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    started_at = []

    def start(self: Supervisor) -> Any:
        started_at.append(anyio.current_time())
        if len(started_at) == 2:
            self.stopping.set()
        raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    monkeypatch.setattr(Supervisor, "_start", start)
    with socket.socket() as listener:
        gateway = Supervisor(
            Settings(server=ServerSettings(workers=1)),
            lambda *arguments: None,
            listener,
            lambda: None,
            SignalMeanings(()),
            None,
            lambda settings: None,
            lambda settings: 0.0,
            lambda seconds: None,
            lambda process: None,
        )
        async with anyio.create_task_group() as tasks:
            await gateway._run_worker(0, tasks)
    assert started_at[1] - started_at[0] == pytest.approx(supervisor._RETRY_PAUSE_S)
    assert "worker 0 cannot be started: Resource temporarily unavailable; trying again" in caplog.text


@pytest.mark.parametrize(
    ("code", "said"), [(0, "with code 0"), (7, "with code 7"), (-9, "by SIGKILL"), (-40, "by signal 40")]
)
def test_the_log_says_how_a_worker_has_ended(code: int, said: str) -> None:
    assert supervisor._ending(code) == said
