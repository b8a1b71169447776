"""When to send a heartbeat. Time is an argument, the deadline is a result.

Any byte to the client is a sign of life, so the deadline is the last byte plus the interval. The bytes of a heartbeat
are `Endpoint.heartbeat`; the gateway sends them in `ClientStream._send_heartbeat`.
"""

from __future__ import annotations


class Keepalive:
    """Deadlines for heartbeats. Sleep until next_deadline(), and if due(), send heartbeat bytes and call sent().

    Args:
        interval: seconds of silence before one is due; 0 or less for never.
        now: the current time in seconds, of any monotonic clock.
    """

    __slots__ = ("_interval", "_last")

    def __init__(self, interval: float, now: float) -> None:
        self._interval = interval
        self._last = now

    def sent(self, now: float) -> None:
        """Note that bytes went to the client: the interval starts again."""
        self._last = now

    def next_deadline(self) -> float | None:
        """Return the time of the next heartbeat, None for never."""
        return self._last + self._interval if self._interval > 0 else None

    def due(self, now: float) -> bool:
        """True if no bytes went to the client for the whole interval."""
        deadline = self.next_deadline()
        return deadline is not None and now >= deadline
