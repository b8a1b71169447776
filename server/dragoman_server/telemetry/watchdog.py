"""Notice an event loop that does not run, which serves nobody: a thread asks it once a second.

That is one callback of the loop and one look of the thread in a second, and nothing for requests. The log gets the
place in the code and none of its values.
"""

import logging
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

import msgspec

from dragoman_server.platform.off_loop import calls_in_loop

_log = logging.getLogger("dragoman.loop")

# Seconds between two questions. A loop that has not answered until the next one has stood for at least as long.
STALL_S = 1.0

# Stalls are counted all, but written once in as many questions.
_LINE_EACH = 60

_PACKAGES = ("dragoman.", "dragoman_server.")


class Watchdog(msgspec.Struct, eq=False):
    """Asks one loop whether it runs. Call ask() once in STALL_S, from another thread.

    Attributes:
        _call_in_loop: Lets the loop call a function, see calls_in_loop().
        _frame: Returns the frame that the loop's thread is in, None if it has ended.
        _count: Called for each stall.
        _noticed: The stall that lasts was counted.
        _silent: Questions until a line may be written.
    """

    _call_in_loop: Callable[[Callable[[], object]], object]
    _frame: Callable[[], FrameType | None]
    _count: Callable[[], object]
    _answered: bool = True
    _noticed: bool = False
    _silent: int = 0

    def _answer(self) -> None:
        self._answered = True

    def ask(self) -> None:
        """Report a loop that has not answered the last question, else ask again."""
        self._silent = max(self._silent - 1, 0)
        if self._answered:
            self._answered = self._noticed = False
            with suppress(RuntimeError):  # the loop has ended
                self._call_in_loop(self._answer)
        elif not self._noticed:
            self._noticed = True
            self._count()
            if not self._silent:
                self._silent = _LINE_EACH
                _log.warning(
                    "the event loop has not run for %g s, and all requests wait: it is in %s",
                    STALL_S,
                    _place(self._frame()),
                )


def _place(frame: FrameType | None) -> str:
    """Return the module and the line of a frame, and of our frame that called it."""
    places: list[str] = []
    while frame is not None:
        module = str(frame.f_globals.get("__name__"))
        ours = module.startswith(_PACKAGES)
        if ours or not places:
            places.append(f"{module} line {frame.f_lineno}")
        if ours:
            break
        frame = frame.f_back
    return ", called by ".join(places) or "no code"


@contextmanager
def watching(count: Callable[[], object]) -> Iterator[None]:
    """Watch the running event loop inside of this block. count: called for each stall, in another thread."""
    loop_thread = threading.get_ident()
    watchdog = Watchdog(calls_in_loop(), lambda: sys._current_frames().get(loop_thread), count)
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(STALL_S):
            watchdog.ask()

    thread = threading.Thread(target=watch, name="dragoman-watchdog", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
