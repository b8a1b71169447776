"""Reasoning kept for Chat clients that do not send it back, for as long as a tool loop takes.

Strategy: what the core says is worth keeping of an answer is kept under a hash of its owner and the ids of its
calls, which the client does send back. The store is bounded in bytes, entries and time; what is used least recently
goes first. It is in the memory of one process: a gateway of several workers finds what its own worker kept.
Losing an entry costs the model its earlier reasoning, nothing else.
"""

import hashlib
from collections import OrderedDict
from typing import NamedTuple

import msgspec

from dragoman.document import Thought
from dragoman.jsontext import decode, encode

# A tool that takes longer than this has its model think again.
MAX_AGE_S = 3600.0
# Small ones cost more than their bytes.
MAX_ENTRIES = 100_000
# What an entry takes beside its reasoning: its key, its place in the order, the objects around.
_OVERHEAD = 256


class _Entry(NamedTuple):
    kept: bytes
    until: float


class ThoughtStore:
    """max_bytes: of all entries together. Times are seconds of any clock that only goes on."""

    def __init__(
        self, max_bytes: int, *, max_entries: int = MAX_ENTRIES, max_age_s: float = MAX_AGE_S
    ) -> None:
        self._max_bytes = max_bytes
        self._max_entries = max_entries
        self._max_age_s = max_age_s
        self._entries: OrderedDict[bytes, _Entry] = OrderedDict()
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._entries)

    def keep(self, owner: str, calls: tuple[str, ...], thoughts: tuple[Thought, ...], now: float) -> None:
        """owner: the name of the client's key, so that nobody finds another's."""
        key = _key(owner, calls)
        self._drop(key)
        entry = _Entry(encode(msgspec.to_builtins(thoughts)), now + self._max_age_s)
        if _size(entry) > self._max_bytes:
            return
        self._entries[key] = entry
        self.bytes += _size(entry)
        while self.bytes > self._max_bytes or len(self._entries) > self._max_entries:
            self._drop(next(iter(self._entries)))

    def recall(self, owner: str, calls: tuple[str, ...], now: float) -> tuple[Thought, ...] | None:
        """What was kept under these call ids, None when nothing is there any more."""
        key = _key(owner, calls)
        entry = self._entries.get(key)
        if entry is None:
            return None
        if entry.until <= now:
            self._drop(key)
            return None
        self._entries.move_to_end(key)
        # A conversation that goes on brings all its turns each time.
        self._entries[key] = entry._replace(until=now + self._max_age_s)
        return msgspec.convert(decode(entry.kept), tuple[Thought, ...])

    def _drop(self, key: bytes) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self.bytes -= _size(entry)


def _size(entry: _Entry) -> int:
    return len(entry.kept) + _OVERHEAD


def _key(owner: str, calls: tuple[str, ...]) -> bytes:
    return hashlib.sha256(encode([owner, *calls])).digest()
