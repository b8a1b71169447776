"""Which signals stop the gateway, and when SIGHUP is a reload."""

import signal

import pytest

from dragoman_server.serving import signals
from dragoman_server.serving.signals import SignalMeanings, signal_meanings

TERM, INT, HUP = signal.SIGTERM, signal.SIGINT, signal.SIGHUP


def meanings(
    monkeypatch: pytest.MonkeyPatch, *, can_reload: bool = True, nohup: bool = False, terminal: bool = False
) -> SignalMeanings:
    monkeypatch.setattr(signals, "has_terminal", lambda: terminal)
    handler = signal.SIG_IGN if nohup else signal.SIG_DFL
    monkeypatch.setattr(signals.signal, "getsignal", lambda number: handler)
    return signal_meanings(can_reload=can_reload)


def test_sighup_is_a_reload_unless_the_terminal_was_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    for terminal in (False, True):
        found = meanings(monkeypatch, terminal=terminal)
        others = {signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM}
        assert set(found.handled) == {TERM, INT, HUP, *others}
        assert [each for each in found.handled if found.is_reload(each)] == [HUP]
        monkeypatch.setattr(signals, "has_terminal", lambda: False)
        assert found.is_reload(HUP) is not terminal


def test_without_a_configuration_to_load_it_is_a_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    found = meanings(monkeypatch, can_reload=False)
    assert (HUP in found.handled, found.is_reload(HUP)) == (True, False)


def test_under_nohup_it_is_never_a_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    found = meanings(monkeypatch, nohup=True, terminal=True)
    monkeypatch.setattr(signals, "has_terminal", lambda: False)
    assert found.is_reload(HUP)
    assert HUP not in meanings(monkeypatch, nohup=True, can_reload=False).handled
