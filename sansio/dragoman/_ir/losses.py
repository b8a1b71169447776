"""The loss ledger: what could not be translated, where it was, and why.

Whatever finds that a value has no field on the other side records a loss here instead of dropping it in silence. A loss
names the place, never the value: prompts and secrets stay out of logs and headers. The policy decides if a request with
losses is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum

import msgspec

from dragoman._wire.exceptions import RequestRefused
from dragoman._wire.exceptions import child as child
from dragoman._wire.json import JSONObject

# More entries than this are only counted: a hostile request could have a million unknown keys.
MAX_ENTRIES = 1000


class LossCode(Enum):
    """Why a value was not translated as it was."""

    DROPPED = "dropped"  # the destination has no field for it
    ALTERED = "altered"  # translated to a form that has less or another meaning
    UNKNOWN_FIELD = "unknown_field"  # not in this version of the protocol, so it cannot be translated
    UNKNOWN_KIND = "unknown_kind"  # a block, item or tool type without a counterpart
    FOREIGN_SIGNATURE = "foreign_signature"  # a signature or ciphertext that only another vendor can read
    REPAIRED = "repaired"  # the history broke the upstream's rules and was repaired
    WRAPPED = "wrapped"  # wrapped, so that it comes back to the vendor that made it
    ESTIMATED = "estimated"  # a figure that the upstream did not report
    BREACH = "breach"  # the model broke a rule of the client that the upstream is not known to enforce
    UNCHECKED = "unchecked"  # such a rule could not be checked

    __hash__ = object.__hash__  # without a call of Python: the ledger looks each loss up


_DROPPED = LossCode.DROPPED  # members of an Enum are slow to look up


class LossPolicy(Enum):
    """What to do with a request that cannot be translated without a loss: record the loss, or refuse the request."""

    RECORD = "record"
    REFUSE = "refuse"


class Loss(msgspec.Struct, frozen=True):
    """One entry of the ledger.

    Attributes:
        code: Why the value was not translated.
        path: A JSON Pointer into what the sender sent, e.g. `/messages/3/content/0/cache_control`. For a stream it is
            the place in the whole response that corresponds to the stream.
        detail: A sentence for people, without the value.
    """

    code: LossCode
    path: str
    detail: str


class Ledger(msgspec.Struct, eq=False):
    """The losses of one request or response, in the order in which they were found, without repeats.

    Attributes:
        entries: By code and path. To ask if there are any takes no call, as len() does.
        overflow: The number of losses beyond MAX_ENTRIES. They are counted only.
    """

    entries: dict[tuple[LossCode, str], Loss] = {}
    overflow: int = 0

    def __repr__(self) -> str:
        return f"<Ledger with {len(self)} losses>"

    def add(self, code: LossCode, path: str, detail: str) -> None:
        """Record a loss, unless there is one with this code and path."""
        key = (code, path)
        if key in self.entries:
            return
        if len(self.entries) >= MAX_ENTRIES:
            self.overflow += 1
            return
        self.entries[key] = Loss(code, path, detail)

    def dropped(self, path: str, detail: str) -> None:
        """Record that a value was dropped."""
        self.add(_DROPPED, path, detail)

    def altered(self, path: str, detail: str) -> None:
        """Record that a value was translated to another form."""
        self.add(LossCode.ALTERED, path, detail)

    def unknown_kind(self, path: str, detail: str) -> None:
        """Record that a block, item or tool has no counterpart."""
        self.add(LossCode.UNKNOWN_KIND, path, detail)

    def foreign_signature(self, path: str, detail: str) -> None:
        """Record that the upstream cannot read a signature."""
        self.add(LossCode.FOREIGN_SIGNATURE, path, detail)

    def foreign_reasoning(self, path: str, origin: str) -> None:
        """Record that the upstream cannot read reasoning that this protocol has signed, "" for none."""
        whose = f"reasoning of {origin}" if origin else "reasoning without a signature"
        self.foreign_signature(path, f"{whose}, which this upstream cannot read")

    def repaired(self, path: str, detail: str) -> None:
        """Record that what the upstream would refuse was repaired."""
        self.add(LossCode.REPAIRED, path, detail)

    def unknown_fields(
        self, path: str, extra: JSONObject | None, defined: Mapping[str, bool | str] = {}
    ) -> None:
        """Record each member of `extra`, which no reader takes of the object at `path`.

        defined: what the sender's protocol defines, see Request.defined.
        """
        for key, value in (extra or {}).items():
            reason = defined.get(key)
            if reason is False and type(value) is dict and value:
                self.unknown_fields(child(path, key), value, defined)
            elif reason:
                self.dropped(
                    child(path, key), "a field that only its protocol has" if reason is True else reason
                )
            else:
                self.add(LossCode.UNKNOWN_FIELD, child(path, key), "not a field of this protocol version")

    def __iter__(self) -> Iterator[Loss]:
        return iter(self.entries.values())

    def __len__(self) -> int:
        return len(self.entries) + self.overflow

    def enforce(self, policy: LossPolicy) -> None:
        """Raise RequestRefused (400) if the policy refuses losses and there are some."""
        if self.entries and policy is LossPolicy.REFUSE:
            first = next(iter(self))
            place = first.path or "the request"
            more = f" (and {len(self) - 1} more)" if len(self) > 1 else ""
            raise RequestRefused(
                f"strict mode: {place} cannot be sent to the upstream: {first.detail}{more}",
                path=first.path,
                code="lossy_translation",
            )
