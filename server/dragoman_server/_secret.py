"""A string that does not show itself.

Not a subclass of str, on purpose: a subclass leaks through `"".join`, `%s` in C code and JSON encoders.
"""

import hmac

MASK = "****"
# The last characters tell two keys apart. Of a short secret they would tell too much.
_SHOWN = 4
_LONG_ENOUGH_TO_SHOW = 24


class Secret:
    """Holds a secret string; `repr`, `str` and formatting give the mask, `reveal()` gives the value."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        """The value itself: for the one place that sends it, never for a message."""
        return self._value

    def __str__(self) -> str:
        if len(self._value) < _LONG_ENOUGH_TO_SHOW:
            return MASK
        return MASK + self._value[-_SHOWN:]

    def __repr__(self) -> str:
        return f"Secret({str(self)!r})"

    def __format__(self, spec: str) -> str:
        return format(str(self), spec)

    def __bool__(self) -> bool:
        return bool(self._value)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        return hmac.compare_digest(self._value.encode(), other._value.encode())

    def __hash__(self) -> int:
        return hash((Secret, self._value))

    def __reduce__(self) -> tuple[type["Secret"], tuple[str]]:
        # Worker processes get their settings through a pipe of multiprocessing.
        return Secret, (self._value,)
