"""Log lines of which a peer could cause any number: one in ten seconds, and how many were left out."""

import logging
import time

__all__ = ["LimitedLog"]

_PAUSE_S = 10.0


class LimitedLog:
    """One kind of line of one logger."""

    def __init__(self, logger: logging.Logger, level: int) -> None:
        self._logger = logger
        self._level = level
        self._not_before = 0.0
        self._left_out = 0

    def log(self, message: str, *arguments: object) -> None:
        now = time.monotonic()
        if now < self._not_before:
            self._left_out += 1
            return
        if self._left_out:
            message, arguments = f"{message} (and %d times before)", (*arguments, self._left_out)
        self._logger.log(self._level, message, *arguments)
        self._not_before, self._left_out = now + _PAUSE_S, 0
