"""Patterns of model names: `*` stands for any text, and nothing else is special.

Names may have brackets, as in `claude-opus-4-8[1m]`, and so may patterns.
"""

from collections.abc import Iterable
from typing import Generic, TypeVar

WILDCARD = "*"

_T = TypeVar("_T")


def matches(name: str, pattern: str) -> bool:
    """True if the pattern matches the whole name. Case matters, as it does at upstreams."""
    return captures(name, pattern) is not None


def captures(name: str, pattern: str) -> tuple[str, ...] | None:
    """Return the text that each `*` of the pattern stands for, in order; None if the pattern does not match.

    The last `*` takes as much as it can, the others as little. It takes linear time, because clients choose the names.
    """
    first, *others = pattern.split(WILDCARD)
    if not others:
        return () if name == pattern else None
    *middle, last = others
    place, end = len(first), len(name) - len(last)
    if place > end or not name.startswith(first) or not name.endswith(last):
        return None
    texts = []
    for literal in middle:
        found = name.find(literal, place, end)
        if found < 0:
            return None
        texts.append(name[place:found])
        place = found + len(literal)
    return *texts, name[place:end]


def substitute(target: str, texts: tuple[str, ...]) -> str:
    """Return the target with its `*` replaced by the texts, in order. There may be more texts than `*`."""
    first, *others = target.split(WILDCARD)
    return first + "".join(text + literal for text, literal in zip(texts, others, strict=False))


def targets_of(chain: str | tuple[str, ...]) -> tuple[str, ...]:
    """Return what a name of `[models]` means: each `upstream/model`, the best first."""
    return (chain,) if isinstance(chain, str) else chain


class PatternTable(Generic[_T]):
    """Values by patterns. The first row that matches a name is found without trying all of them.

    Patterns without `*` are looked up, the others by the text before their first `*`.
    """

    __slots__ = ("_by_prefix", "_lengths", "_names", "_values")

    def __init__(self, rows: Iterable[tuple[str, _T]]) -> None:
        self._values: list[_T] = []
        # Places in the list of values.
        self._names: dict[str, int] = {}
        self._by_prefix: dict[str, list[tuple[int, str]]] = {}
        for place, (pattern, value) in enumerate(rows):
            self._values.append(value)
            prefix, wildcard, _ = pattern.partition(WILDCARD)
            if wildcard:
                self._by_prefix.setdefault(prefix, []).append((place, pattern))
            else:
                self._names.setdefault(pattern, place)
        self._lengths = sorted({len(prefix) for prefix in self._by_prefix})

    def first(self, *names: str) -> _T | None:
        """Return the value of the first row that matches one of the names, None if there is none."""
        if not self._values:  # of most tables
            return None
        missing = len(self._values)
        first = min([self._names.get(name, missing) for name in names], default=missing)
        for name in names:
            for length in self._lengths:
                for place, pattern in self._by_prefix.get(name[:length], ()):
                    if place > first:
                        break
                    if matches(name, pattern):
                        first = place
                        break
        return None if first == missing else self._values[first]
