"""Heartbeats on a clock that the test turns."""

import pytest

from dragoman._engine.keepalive import Keepalive


@pytest.mark.promise("R8")
def test_due_when_the_silence_has_lasted() -> None:
    keepalive = Keepalive(15, now=100)
    assert keepalive.next_deadline() == 115
    assert not keepalive.due(114.999)
    assert keepalive.due(115)
    assert keepalive.due(200)


def test_bytes_restart_the_silence() -> None:
    keepalive = Keepalive(15, now=100)
    keepalive.sent(110)
    assert keepalive.next_deadline() == 125
    assert not keepalive.due(115)
    assert keepalive.due(125)


@pytest.mark.promise("R8")
def test_one_heartbeat_an_interval() -> None:
    keepalive = Keepalive(10, now=0)
    beats = []
    for now in range(1, 60):
        if now == 25:  # the response sent something by itself
            keepalive.sent(now)
        if keepalive.due(now):
            beats.append(now)
            keepalive.sent(now)
    assert beats == [10, 20, 35, 45, 55]


@pytest.mark.parametrize("interval", [0, -1])
def test_no_heartbeats_without_an_interval(interval: float) -> None:
    keepalive = Keepalive(interval, now=100)
    assert keepalive.next_deadline() is None
    assert not keepalive.due(1e9)
