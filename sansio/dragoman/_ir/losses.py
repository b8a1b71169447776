"""The loss ledger: what could not be carried, where it stood, and why.

Strategy: whoever finds that a value has no place on the other side writes one entry here instead of dropping
it. An entry names the place, never the value: prompts and secrets stay out of logs and headers. The policy
decides what a non-empty ledger means for a request.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from enum import Enum

import msgspec

from dragoman._wire.exceptions import RequestRefused
from dragoman._wire.json import JSONObject

# More entries than this are counted, not kept: a hostile request could name a million unknown keys.
MAX_ENTRIES = 1000


class LossCode(Enum):
    """Why a value was not carried as it was."""

    DROPPED = "dropped"  # the target has no place for it
    ALTERED = "altered"  # carried in another form that says less or says it differently
    UNKNOWN_FIELD = "unknown_field"  # not in the protocol as we know it, so it cannot be translated
    UNKNOWN_KIND = "unknown_kind"  # a block, item or tool type without a counterpart
    FOREIGN_SEAL = "foreign_seal"  # a signature or ciphertext that only another provider can read
    REPAIRED = "repaired"  # the history broke the target's rules and was mended
    SEALED = "sealed"  # carried so that it comes back to its maker, but nobody else can read it
    ESTIMATED = "estimated"  # a figure that the upstream did not tell
    BREACH = "breach"  # the model broke a rule of the client's that the upstream is not known to enforce
    UNCHECKED = "unchecked"  # whether it did, nobody could tell


class LossPolicy(Enum):
    """What to do when a request cannot be carried whole."""

    RECORD = "record"
    REFUSE = "refuse"


class Loss(msgspec.Struct, frozen=True):
    """One entry.

    code: why.
    path: a JSON Pointer into what the sender sent, e.g. `/messages/3/content/0/cache_control`. For a stream
        it names the place in the whole answer that the stream stands for.
    detail: a sentence for people, without the value.
    """

    code: LossCode
    path: str
    detail: str


class Ledger:
    """Collects losses of one request or answer, in the order in which they were found, without repeats."""

    __slots__ = ("_entries", "overflow")

    def __init__(self) -> None:
        self._entries: dict[tuple[LossCode, str], Loss] = {}
        self.overflow = 0  # entries beyond MAX_ENTRIES

    def add(self, code: LossCode, path: str, detail: str) -> None:
        key = (code, path)
        if key in self._entries:
            return
        if len(self._entries) >= MAX_ENTRIES:
            self.overflow += 1
            return
        self._entries[key] = Loss(code, path, detail)

    def dropped(self, path: str, detail: str) -> None:
        self.add(LossCode.DROPPED, path, detail)

    def altered(self, path: str, detail: str) -> None:
        self.add(LossCode.ALTERED, path, detail)

    def unknown_fields(
        self, path: str, extra: JSONObject | None, defined: Collection[str] = frozenset()
    ) -> None:
        """Enter every key of `extra`, the fields at `path` that nobody reads.

        defined: those that the sender's protocol has, and others have no place for, be it in an object of this key.
        """
        for key, value in (extra or {}).items():
            inner = value if type(value) is dict and value else (key,)
            if key in defined or all(name in defined for name in inner):
                self.dropped(child(path, key), "a field of its protocol alone")
            else:
                self.add(LossCode.UNKNOWN_FIELD, child(path, key), "not a field of this protocol version")

    def __iter__(self) -> Iterator[Loss]:
        return iter(self._entries.values())

    def __len__(self) -> int:
        return len(self._entries) + self.overflow

    def enforce(self, policy: LossPolicy) -> None:
        """Raise RequestRefused (400) when the policy refuses losses and there are some."""
        if policy is LossPolicy.REFUSE and self._entries:
            first = next(iter(self))
            what = first.path or "the request"
            more = f" (and {len(self) - 1} more)" if len(self) > 1 else ""
            raise RequestRefused(
                f"strict mode: {what} cannot be carried to the upstream: {first.detail}{more}",
                path=first.path,
                code="lossy_translation",
            )


def child(path: str, key: str | int) -> str:
    """The JSON Pointer of a member (RFC 6901: `~` is `~0`, `/` is `~1`)."""
    return f"{path}/{str(key).replace('~', '~0').replace('/', '~1')}"
