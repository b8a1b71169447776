"""End the process some time after a stop has begun, whatever hangs.

The event loop may be blocked, and when it has ended the interpreter waits for all threads that are no daemons: one that
reads a file system that does not respond never returns. The timer is not stopped by the end of the loop, only by that
of the process.
"""

import logging
import math
import os
import queue
import threading
import time
from contextlib import suppress

_log = logging.getLogger("dragoman.server")

# For the last line of the log. What hangs may be the reader of the log.
_REPORT_S = 1.0


class ExitTimer:
    """Ends the process at the earliest of the times that within() was called for."""

    def __init__(self) -> None:
        self._times = queue.SimpleQueue[float]()
        self._late = threading.Event()
        # Started now, because a signal handler that starts a thread may interrupt another start, which holds a lock,
        # and Python 3.12 starts none while it waits for threads at its end.
        self._reporter = threading.Thread(target=self._report, name="dragoman exit report", daemon=True)
        self._reporter.start()
        threading.Thread(target=self._wait, name="dragoman exit timer", daemon=True).start()

    def within(self, seconds: float) -> None:
        """End the process after so many seconds if it has not ended by then. A signal handler may call it."""
        self._times.put(time.monotonic() + seconds)

    def _wait(self) -> None:
        end = math.inf
        while (left := end - time.monotonic()) > 0:
            with suppress(queue.Empty):
                end = min(end, self._times.get(timeout=None if end == math.inf else left))
        self._late.set()
        self._reporter.join(_REPORT_S)
        os._exit(0)

    def _report(self) -> None:
        self._late.wait()
        names = sorted({thread.name for thread in threading.enumerate() if not thread.daemon})
        text = "the stop takes too long; exiting without waiting for these threads: %s"
        _log.warning(text, ", ".join(names))
        logging.shutdown()
