"""The limit of open files: raised to what the connections need, and a line in the log where that is not allowed."""

import resource

import pytest

from dragoman_server.serving import run
from dragoman_server.serving.file_limit import default_max_connections, raise_file_limit
from dragoman_server.settings import ServerSettings, Settings

UNLIMITED = resource.RLIM_INFINITY


class Limits:
    """A system with these limits. allowed: setrlimit() refuses more, as macOS does."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, soft: int, hard: int, allowed: int = 2**40) -> None:
        self.soft, self.hard, self._allowed = soft, hard, allowed
        monkeypatch.setattr(resource, "getrlimit", lambda _: (self.soft, self.hard))
        monkeypatch.setattr(resource, "setrlimit", self._set)

    def _set(self, which: int, limits: tuple[int, int]) -> None:
        soft, hard = limits
        if hard != self.hard or soft > self._allowed or (hard != UNLIMITED and soft > hard):
            raise ValueError("not allowed to raise maximum limit")
        self.soft = soft


@pytest.mark.parametrize(
    ("files", "connections"), [(1024, 480), (64, 16), (1_000_000, 10_000), (UNLIMITED, 10_000)]
)
def test_the_limit_of_connections_follows_that_of_files(
    monkeypatch: pytest.MonkeyPatch, files: int, connections: int
) -> None:
    Limits(monkeypatch, files, files)
    assert default_max_connections() == connections


@pytest.mark.parametrize(
    ("max_connections", "soft", "hard", "after"),
    [
        (0, 1024, 1_000_000, 20_064),
        (0, 1024, UNLIMITED, 20_064),
        (0, 1024, 4096, 4096),
        (5000, 1024, 1_000_000, 10_064),
        # Never lowered.
        (100, 1024, 4096, 1024),
        (0, 50_000, 50_000, 50_000),
        (0, UNLIMITED, UNLIMITED, UNLIMITED),
    ],
)
def test_it_is_raised_to_what_the_connections_need(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    max_connections: int,
    soft: int,
    hard: int,
    after: int,
) -> None:
    limits = Limits(monkeypatch, soft, hard)
    raise_file_limit(max_connections)
    assert limits.soft == after
    assert caplog.records == []


@pytest.mark.parametrize(("hard", "allowed"), [(4096, 2**40), (UNLIMITED, 4096)])
def test_fewer_than_configured_are_a_line_in_the_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, hard: int, allowed: int
) -> None:
    limits = Limits(monkeypatch, 1024, hard, allowed)
    raise_file_limit(5000)
    connections = (limits.soft - 64) // 2
    assert [line.message for line in caplog.records] == [
        f"max_connections is 5000, but the process may open only {limits.soft} files, which is enough for "
        f"{connections} connections with a request each: let it open 10064 (ulimit -n, LimitNOFILE of systemd, "
        "--ulimit nofile of docker)"
    ]


def test_it_is_raised_by_a_reload_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "_set_up_logging", lambda settings: None)
    limits = Limits(monkeypatch, 1024, 1_000_000)
    run._use(Settings(server=ServerSettings(max_connections=5000)))
    assert limits.soft == 10_064
