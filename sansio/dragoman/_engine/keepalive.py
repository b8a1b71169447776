"""When to send a heartbeat. Time is an argument, the deadline comes out.

Strategy: any byte to the client counts as a sign of life, so the deadline is the last byte plus the interval.
Whoever drives it sleeps until the deadline, asks due(), sends heartbeat bytes and calls sent().
"""

from __future__ import annotations


class Keepalive:
    """Deadlines for heartbeats.

    Args:
        interval: seconds of silence before one is due; 0 or less for never.
        now: the current time in seconds, of any monotonic clock.
    """

    __slots__ = ("_interval", "_last")

    def __init__(self, interval: float, now: float) -> None:
        self._interval = interval
        self._last = now

    def sent(self, now: float) -> None:
        """Bytes went to the client: the silence starts anew."""
        self._last = now

    def next_deadline(self) -> float | None:
        """When to look again, None for never."""
        return self._last + self._interval if self._interval > 0 else None

    def due(self, now: float) -> bool:
        """Whether the silence has lasted for the whole interval."""
        deadline = self.next_deadline()
        return deadline is not None and now >= deadline
