"""Store reasoning for Chat clients that do not send it back, for as long as a tool loop takes.

The reasoning of a response is stored under a hash of its conversation and the ids of its tool calls, which the client
does send back. The store is limited in bytes, entries and time, and drops the least recently used entry first. It is in
the memory of one process, so each worker of a gateway has its own. A lost entry costs the model its earlier reasoning
only. Large requests are planned in threads, which look entries up.
"""

import hashlib
import threading
from collections import OrderedDict

import msgspec

from dragoman.document import Reasoning
from dragoman.jsontext import decode, encode

# After a tool that takes longer than this, the model has to reason again.
MAX_AGE_S = 3600.0
# Small entries cost more than their bytes.
MAX_ENTRIES = 100_000
# Bytes of an entry besides its reasoning: its key, its place in the order, the objects around it.
_OVERHEAD = 256


class _Entry(msgspec.Struct, frozen=True):
    reasoning: bytes
    expires: float


class ReasoningStore:
    """Reasoning by conversation and tool call ids. Times are seconds of a monotonic clock.

    Args:
        max_bytes: of all entries together.

    Attributes:
        bytes: The bytes in use.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._entries: OrderedDict[bytes, _Entry] = OrderedDict()
        self._lock = threading.Lock()
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._entries)

    def put(
        self, conversation: str, calls: tuple[str, ...], reasoning: tuple[Reasoning, ...], now: float
    ) -> None:
        """Store the reasoning of a response. conversation: its key. calls: the ids of its tool calls."""
        key = _key(conversation, calls)
        entry = _Entry(encode(msgspec.to_builtins(reasoning)), now + MAX_AGE_S)
        with self._lock:
            self._drop(key)
            if _size(entry) > self._max_bytes:
                return
            self._entries[key] = entry
            self.bytes += _size(entry)
            while self.bytes > self._max_bytes or len(self._entries) > MAX_ENTRIES:
                self._drop(next(iter(self._entries)))

    def get(
        self, conversation: str, calls: tuple[str, ...], now: float, *, renew: bool = True
    ) -> tuple[Reasoning, ...] | None:
        """Return the reasoning for these tool call ids, None if there is none or it has expired.

        renew: false leaves the entry the age and the place in the order that it has.
        """
        key = _key(conversation, calls)
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                return None
            if entry.expires <= now:
                self._drop(key)
                return None
            if renew:  # each request of a conversation sends all its turns again
                self._entries.move_to_end(key)
                self._entries[key] = msgspec.structs.replace(entry, expires=now + MAX_AGE_S)
        return msgspec.convert(decode(entry.reasoning), tuple[Reasoning, ...])

    def _drop(self, key: bytes) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self.bytes -= _size(entry)


def _size(entry: _Entry) -> int:
    return len(entry.reasoning) + _OVERHEAD


def _key(conversation: str, calls: tuple[str, ...]) -> bytes:
    return hashlib.sha256(encode([conversation, *calls])).digest()
