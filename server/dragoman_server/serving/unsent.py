"""Large bodies on their way to clients: all of a worker together have a bound.

A whole response is in memory until its client has read it, and a client that reads slowly takes its time.
"""

import logging
from collections.abc import Awaitable

import anyio

# Four of the largest responses of upstreams.
MAX_UNSENT_BYTES = 256 * 1024 * 1024
# Smaller ones are not counted: a client that does not read costs more than that anyway.
LARGE_BYTES = 64 * 1024

_log = logging.getLogger("dragoman.http")


class UnsentBodies:
    """The large bodies of the connections of one worker that are being sent."""

    def __init__(self) -> None:
        self._sizes: dict[anyio.CancelScope, int] = {}  # the oldest first
        self._total = 0

    async def send(self, size: int, sending: Awaitable[None]) -> bool:
        """Await what sends a body of this size. Return false if it was cut off to make room for newer ones."""
        with anyio.CancelScope() as scope:
            self._sizes[scope] = size
            self._total += size
            while self._total > MAX_UNSENT_BYTES and (oldest := next(iter(self._sizes))) is not scope:
                self._total -= self._sizes.pop(oldest)
                oldest.cancel()
                text = "clients have not read %d bytes of their responses; the oldest of these is cut off"
                _log.warning(text, MAX_UNSENT_BYTES)
            try:
                await sending
            finally:
                self._total -= self._sizes.pop(scope, 0)
        return not scope.cancelled_caught
