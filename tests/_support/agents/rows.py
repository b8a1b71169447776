"""What becomes of each value of a client's request: rows of the tables in `tables_*`, and their check.

A table has one row for every place of the client's body, and says where in the upstream's body it
arrives, as what, and with which code the ledger records it. The check walks both bodies. A place of the client's
without a row, a place of the upstream's that no row explains, and an entry of the ledger that no row expects
are problems, as is every value that differs from its row. So a table is the whole translation, and a field that is
dropped silently, invented, or both sent and recorded as a loss cannot pass.

Places are JSON Pointers; `{n}` in one stands for one step, the same on both sides, and `{n:1,2}` for one of these.
A row is for a leaf, or with `/...` behind its place for all that is there. The first row that fits counts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

Json = dict[str, Any]
# A check of a value: the sent and the arrived one -> True if the row is right.
Check = Callable[[Any, Any], bool]


@dataclass(frozen=True)
class Row:
    """places: where it arrives, none for nowhere. code: of the entry in the ledger, at `at` or at its own place."""

    places: tuple[str, ...] = ()
    check: Check | None = None
    code: str | None = None
    at: str | None = None


def to(*places: str, code: str | None = None, at: str | None = None) -> Row:
    """It arrives as it is, at each of these places."""
    return Row(places, lambda sent, found: same(sent, found), code, at)


def made(value: Any, *places: str, code: str | None = None, at: str | None = None) -> Row:
    """It arrives as this value."""
    return Row(places, lambda _, found: same(value, found), code, at)


def by(change: Callable[[Any], Any], *places: str, code: str | None = None, at: str | None = None) -> Row:
    """It arrives as what this makes of it."""
    return Row(places, lambda sent, found: same(change(sent), found), code, at)


def inside(*places: str, code: str | None = None, at: str | None = None) -> Row:
    """It arrives as a part of a longer text."""
    return Row(places, lambda sent, found: isinstance(found, str) and sent in found, code, at)


def as_json(place: str) -> Row:
    """An object arrives as JSON text."""
    return Row((place,), lambda sent, found: isinstance(found, str) and same(sent, json.loads(found)))


def from_json(place: str) -> Row:
    """JSON text arrives as the object."""
    return Row((place,), lambda sent, found: same(json.loads(sent), found))


def lost(code: str = "dropped", at: str | None = None) -> Row:
    """It does not arrive, and the ledger says so."""
    return Row(code=code, at=at)


# It is implied: by the form of its surroundings, or by the upstream's default.
IMPLIED = Row()


def same(one: Any, other: Any) -> bool:
    """Equal as JSON: 1 is not true, and 1.0 is not 1."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


# --- places -----------------------------------------------------------------------------------------------------


def child(path: str, step: str | int) -> str:
    return f"{path}/{str(step).replace('~', '~0').replace('/', '~1')}"


def members(value: Any) -> Iterable[tuple[str | int, Any]]:
    """Of an object or a list; none of a leaf, as which an empty one counts."""
    if isinstance(value, dict):
        return value.items()
    return enumerate(value) if isinstance(value, list) else ()


def leaves(value: Any, path: str = "") -> Iterator[str]:
    inner = list(members(value))
    if not inner:
        yield path
    for step, each in inner:
        yield from leaves(each, child(path, step))


_MISSING = object()


def found_at(value: Any, path: str) -> Any:
    for step in path.split("/")[1:]:
        step = step.replace("~1", "/").replace("~0", "~")
        if isinstance(value, list) and step.isdecimal() and int(step) < len(value):
            value = value[int(step)]
        elif isinstance(value, dict) and step in value:
            value = value[step]
        else:
            return _MISSING
    return value


@cache
def _pattern(place: str) -> re.Pattern[str]:
    """A place as an expression. `{n}` or `{n:1,2}`, which takes these steps alone."""
    parts = re.split(r"(\{\w+(?::[^}]*)?\})", place)
    out = [re.escape(part) if not part.startswith("{") else _step(part[1:-1]) for part in parts]
    return re.compile("".join(out))


def _step(name: str) -> str:
    name, _, choices = name.partition(":")
    return f"(?P<{name}>{choices.replace(',', '|') or '[^/]+'})"


# --- the check --------------------------------------------------------------------------------------------------


@dataclass
class TableCheck:
    """One request under one table. added: what the upstream gets that the client did not say, place -> value."""

    sent: Json
    got: Json
    rows: Mapping[str, Row]
    added: Mapping[str, Any]
    problems: list[str] = field(default_factory=list)
    expected_losses: set[tuple[str, str]] = field(default_factory=set)
    used: set[str] = field(default_factory=set)
    _explained: set[str] = field(default_factory=set)

    def run(self, losses: Iterable[tuple[str, str]]) -> list[str]:
        """All that is wrong. losses: (code, path) of each entry of the ledger."""
        self._walk("", self.sent)
        for place in leaves(self.got):
            if not any(_covers(each, place) for each in self._explained):
                self._out_of_nowhere(place)
        reported = set(losses)
        self.problems += [
            f"the ledger says {each}, no row does" for each in sorted(reported - self.expected_losses)
        ]
        self.problems += [
            f"the ledger does not say {each}" for each in sorted(self.expected_losses - reported)
        ]
        return self.problems

    def _walk(self, path: str, value: Any) -> None:
        inner = list(members(value))
        for place, row in self.rows.items():
            whole = place.endswith("/...")
            match = (whole or not inner) and _pattern(place.removesuffix("/...")).fullmatch(path)
            if match:
                self.used.add(place)
                self._apply(path, value, row, match.groupdict())
                return
        if not inner:
            self.problems.append(f"no row for {path} = {value!r}")
        for step, each in inner:
            self._walk(child(path, step), each)

    def _apply(self, path: str, value: Any, row: Row, steps: dict[str, str]) -> None:
        if row.code:
            self.expected_losses.add((row.code, row.at.format(**steps) if row.at is not None else path))
        for template in row.places:
            place = template.format(**steps)
            found = found_at(self.got, place)
            self._explained.add(place)
            if found is _MISSING:
                self.problems.append(f"{path} does not arrive at {place}")
            elif row.check is not None and not row.check(value, found):
                self.problems.append(f"{path} arrives at {place} as {found!r}")

    def _out_of_nowhere(self, place: str) -> None:
        for pattern, value in self.added.items():
            if _pattern(pattern).fullmatch(place):
                self.used.add(pattern)
                if not same(value, found_at(self.got, place)):
                    self.problems.append(f"{place} is {found_at(self.got, place)!r}, not {value!r}")
                return
        self.problems.append(f"out of nowhere: {place} = {found_at(self.got, place)!r}")


def _covers(outer: str, inner: str) -> bool:
    return inner == outer or inner.startswith(f"{outer}/")
