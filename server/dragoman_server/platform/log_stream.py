"""Write the log to a stream that may stop taking it: a terminal that is held with Ctrl-S, a pipe that nobody reads, a
file on a full disk.

The event loop writes each line, so every request would wait for that stream. Lines that it does not take wait in memory
for the next one, and those for which there is no room are dropped and counted.
"""

import os
import select
import stat
import time
import weakref
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TextIO

# Some thousand lines: more than a collector of logs that is busy for a moment leaves behind.
MAX_WAITING_BYTES = 1024 * 1024
# Longer than nearly all lines. A socket that is ready takes more.
_WRITE_SIZE = 64 * 1024
# A reader that is only busy gets this long for the next bytes, once in _PATIENT_AGAIN_S.
_PATIENCE_S = 0.05
_PATIENT_AGAIN_S = 1.0


def is_coloured(stream: TextIO, environ: Mapping[str, str]) -> bool:
    """True if text for `stream` may have colours: a terminal that has them, and NO_COLOR is not set."""
    return stream.isatty() and not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"


class LogStream:
    """Passes lines on to a stream, in order. All are passed on if the stream is no file of the system.

    Args:
        warning: returns the line for a text, by which the log says how many lines were dropped.
    """

    def __init__(self, stream: TextIO, warning: Callable[[str], str]) -> None:
        self._stream = stream
        self._warning = warning
        self._dropped = 0
        self._waiting = bytearray()
        self._patient_at = 0.0
        self._poll: select.poll | None = None
        with suppress(AttributeError, OSError):  # no such call on Windows, no such file in tests
            self._open(stream.fileno())

    def _open(self, file: int) -> None:
        """Find out how to write to a file without waiting for who reads it.

        A terminal is ready if it takes a single byte, and two workers may write for the same room. O_NONBLOCK of the
        file itself would be that of all processes which have it, so it is opened again.
        """
        mode = os.fstat(file).st_mode
        self._write_size, self._waits = _WRITE_SIZE, not stat.S_ISREG(mode)
        if stat.S_ISFIFO(mode) or os.isatty(file):
            try:
                file = os.open(f"/proc/self/fd/{file}", os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY)
                weakref.finalize(self, os.close, file).atexit = False
                self._waits = False
            except OSError:  # it is another user's, or the system is not Linux
                # "The minimum number of bytes which can be written without blocking to a pipe when the pipe has been
                # reported as ready for writing" -- https://docs.python.org/3/library/select.html#select.PIPE_BUF
                self._write_size = select.PIPE_BUF
        self._file, self._poll = file, select.poll()
        self._poll.register(file, select.POLLOUT)

    def follow(self, before: "LogStream") -> None:
        """Take over the lines that wait in another one, if that has the same stream."""
        if before._stream is self._stream:
            self._waiting, self._dropped = before._waiting, before._dropped

    def write(self, line: str) -> None:
        """Write a line, let it wait, or drop it."""
        if self._poll is None:
            self._stream.write(line)
            self._stream.flush()
            return
        data = line.encode("utf-8", "backslashreplace")
        if self._dropped or len(self._waiting) + len(data) > MAX_WAITING_BYTES:
            if not self._write_waiting(self._poll):
                self._dropped += 1
                return
            if self._dropped:
                text = f"lines dropped because nothing took them: {self._dropped}"
                self._waiting += self._warning(text).encode()
                self._dropped = 0
        self._waiting += data
        self._write_waiting(self._poll)

    def flush(self) -> None:
        """Write the lines that wait."""
        if self._poll is not None:
            self._write_waiting(self._poll)

    def _write_waiting(self, poll: select.poll) -> bool:
        """Write what waits. Return false if not all of it is taken."""
        is_second = False
        while self._waiting:
            if self._waits and not self._is_ready(poll):
                return False
            # Whole lines, because other workers may write in between.
            size = self._waiting.rfind(b"\n", 0, select.PIPE_BUF) + 1 or self._write_size
            try:
                written = os.write(self._file, self._waiting[:size])
            except BlockingIOError:
                # A terminal is ready with less room than a line end takes.
                if is_second or not self._is_ready(poll):
                    return False
                is_second = True
            except OSError:  # a full disk may have taken half a line, which goes on when there is room
                return False
            else:
                del self._waiting[:written]
        return True

    def _is_ready(self, poll: select.poll) -> bool:
        now = time.monotonic()
        wait_s = _PATIENCE_S if now >= self._patient_at else 0.0
        if poll.poll(wait_s * 1000):
            return True
        if wait_s:
            self._patient_at = now + _PATIENT_AGAIN_S
        return False
