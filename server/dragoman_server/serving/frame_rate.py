"""Limits on frames that cost work and have little content, for HTTP/2 and WebSocket alike; no I/O."""

import msgspec


class FrameRate(msgspec.Struct, frozen=True):
    """A limit on events: `burst` in one go, `per_second` in the long run."""

    burst: int
    per_second: int


# Far above what clients send, and far below a noticeable load: a frame costs some 30 microseconds. Clients that measure
# the bandwidth with pings send one a round trip; those that keep a connection, one a second.
CONTROL_FRAMES = FrameRate(1000, 100)

# A data frame of fewer bytes that does not end what it belongs to counts as empty.
SMALL_DATA = 64


class TokenBucket:
    """Enforces one FrameRate."""

    __slots__ = ("_at", "_left", "_rate")

    def __init__(self, rate: FrameRate, now: float) -> None:
        self._rate = rate
        self._left: float = rate.burst
        self._at = now

    def take(self, now: float) -> bool:
        """Take one token. Return False if none is left."""
        self.add((now - self._at) * self._rate.per_second)
        self._at = now
        self._left -= 1
        return self._left >= 0

    def add(self, count: float) -> None:
        self._left = min(self._rate.burst, self._left + count)
