"""Which signals stop the gateway, and which one reloads its configuration.

SIGHUP has two meanings: the terminal was closed, and, from `kill -HUP` or a service manager, read the configuration
again. A process that had a controlling terminal at its start and has none any more got the first one.
"""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import msgspec

from dragoman_server.platform.off_loop import calls_in_loop


def signals_named(*names: str) -> tuple[signal.Signals, ...]:
    """Return the signals of these names that this platform has."""
    return tuple(number for number in signal.Signals if number.name in names)


# The signals besides SIGTERM that end a process which does not handle them, so each is a stop in order. A terminal
# sends the first three to all its processes, and `kill` with a group any.
GROUP_SIGNALS = signals_named("SIGINT", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGALRM")


class SignalMeanings(msgspec.Struct, frozen=True):
    """What signals mean for a process.

    Attributes:
        handled: Those that it handles.
        reload: The one of them that may mean a reload, None if there is nothing to load again.
        had_terminal: The process had a controlling terminal at its start.
    """

    handled: tuple[signal.Signals, ...]
    reload: signal.Signals | None = None
    had_terminal: bool = False

    def is_reload(self, number: int) -> bool:
        """True if a signal that has arrived means a reload, and not a stop."""
        return number == self.reload and not (self.had_terminal and not has_terminal())


def signal_meanings(*, can_reload: bool) -> SignalMeanings:
    """Return what signals mean for a process that has just started. can_reload: see SignalMeanings.reload."""
    hangup = getattr(signal, "SIGHUP", None)  # Windows has none
    # Under nohup, a closed terminal does not stop it.
    is_nohup = hangup is not None and signal.getsignal(hangup) is signal.SIG_IGN
    handled = [number for number in GROUP_SIGNALS if number != hangup or can_reload or not is_nohup]
    return SignalMeanings(
        (signal.SIGTERM, *handled),
        hangup if can_reload else None,
        had_terminal=has_terminal() and not is_nohup,
    )


@contextmanager
def signal_handlers(
    signals: SignalMeanings,
    *,
    reload: Callable[[], None],
    stop: Callable[[str], None],
    stop_begins: Callable[[], None],
) -> Iterator[None]:
    """Inside of this block, call reload() or stop(name of the signal) in the running event loop for each signal.

    stop_begins: called before, and without the loop, because code that does not return may block that.
    """
    call_soon = calls_in_loop()

    def handle(number: int, frame: object) -> None:
        if signals.is_reload(number):
            call_soon(reload)
            return
        stop_begins()
        call_soon(partial(stop, signal.Signals(number).name))

    before = {number: signal.signal(number, handle) for number in signals.handled}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def has_terminal() -> bool:
    """True if this process has a controlling terminal. It loses it when the terminal is closed."""
    try:
        os.close(os.open(os.ctermid(), os.O_RDONLY | os.O_NOCTTY))
    except (AttributeError, OSError):
        return False
    return True
