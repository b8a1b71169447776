"""Find what became of a probe by comparing the output with it and without it.

Where the marks came out, what else changed and which entries of the ledger are new: that says what the cell is.
Nothing here states what is right.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from functools import partial

from dragoman import Loss, LossCode, RemoteProtocolError, RequestRefused
from fidelity.probe import Json, Mark, Probe, steps_of
from fidelity.run import Output, answer_output, capabilities_of, request_output
from fidelity.where import places_of


class Fate(Enum):
    """The result of a probe, as the page names it."""

    CARRIED = "carried"
    ALTERED = "altered"
    WRAPPED = "wrapped"
    BY_US = "done by the gateway"
    LEFT_OUT = "left out"
    REFUSED = "refused"
    NOTHING = "nothing to carry"
    LOST = "silently lost"  # a bug of the product


@dataclass(frozen=True, slots=True)
class Note:
    """Entries of the ledger with one code and one reason, and the members that they are about."""

    code: str
    members: tuple[str, ...]
    detail: str


@dataclass(frozen=True, slots=True)
class Cell:
    """places: where it came out. notes: entries of the ledger. words: a refusal's, or why there is nothing."""

    fate: Fate
    places: tuple[str, ...] = ()
    notes: tuple[Note, ...] = ()
    words: str = ""


def cells_of(origin: str, other: str, probe: Probe) -> list[Cell]:
    """Return what happens to a row between two protocols: a cell for each kind of upstream, for a stream just one."""
    if isinstance(probe.body, list):
        return [judge(probe, partial(answer_output, origin, other))]
    return [judge(probe, partial(request_output, origin, other, each)) for each in capabilities_of(other)]


def judge(probe: Probe, run: Callable[[Json], Output]) -> Cell:
    """Translate a probe with and without its subject, and return what became of it."""
    streams = isinstance(probe.body, list)
    try:
        out = run(probe.body)
    except (RemoteProtocolError, RequestRefused) as error:
        return Cell(Fate.REFUSED, words=error.message)
    base = None
    if probe.without is not None:
        # If it is not valid without, all that is said is about it.
        with suppress(RemoteProtocolError, RequestRefused):
            base = run(probe.without)
    known = set() if base is None else {(loss.code, loss.path) for loss in base.losses}
    # An entry about a thing around the probe may also be about something next to the probe.
    losses = [
        loss
        for loss in out.losses
        if (loss.code, loss.path) not in known or (loss.path and covers(loss.path, probe.place))
    ]
    marks = probe.marks()
    recorded = _recorded_in_stream if streams else _recorded
    # If there is just one mark, new entries are about it, whatever they name.
    noted = {
        path for path, _ in marks for loss in losses if len(marks) == 1 or recorded(loss, path, probe.place)
    }
    wire, wrapped, here, lost = _sorted(marks, out)
    changes = base is None or (out.wire, out.here) != (base.wire, base.here)
    if probe.nothing and not (losses or changes):
        return Cell(Fate.NOTHING, words=probe.nothing)
    if silent := [path for path, _ in lost if path not in noted]:
        return Cell(Fate.LOST, words=", ".join(silent))
    notes = _notes(losses, probe.place)
    if any(loss.code is LossCode.WRAPPED for loss in losses):
        return Cell(Fate.WRAPPED, notes=notes)
    arrived = bool(wire or wrapped or here)
    if losses and not (arrived if marks else changes):
        return Cell(Fate.LEFT_OUT, notes=notes)
    if not (arrived or changes):
        return Cell(Fate.LOST, words=probe.place)
    if not losses and not wire and wrapped:
        return Cell(Fate.WRAPPED)
    if not losses and not wire and (here or (base is not None and out.here != base.here)):
        return Cell(Fate.BY_US)
    others = None if base is None else base.wire
    places = places_of(out.wire, others, [forms for _, forms in wire], streams=streams)
    if losses:
        return Cell(Fate.ALTERED, places, notes)
    return Cell(Fate.CARRIED, places, words="the rest wrapped" if wrapped else "")


def _sorted(marks: list[Mark], out: Output) -> tuple[list[Mark], ...]:
    """Return the marks that are sent, those in wrapped signatures, those that the gateway acts on, and all others."""
    found: tuple[list[Mark], ...] = ([], [], [], [])
    for path, forms in marks:
        arrived = [any(form in text for form in forms) for text in (out.wire, out.wrapped, out.here)]
        found[[*arrived, True].index(True)].append((path, forms))
    return found


def covers(outer: str, inner: str) -> bool:
    return inner == outer or inner.startswith(f"{outer}/")


def _recorded(loss: Loss, path: str, place: str) -> bool:
    """True if an entry is about a mark. Entries outside of the probe count, because writers use their own places."""
    if covers(place, loss.path):
        return bool(loss.path) and (covers(loss.path, path) or covers(path, loss.path))
    return True


# Names of the same thing in different protocols.
_SAME = {"annotation": "annotations", "citation": "annotations", "citations": "annotations"}


def _recorded_in_stream(loss: Loss, path: str, place: str) -> bool:
    """True if an entry is about a mark of a stream. Its place is in the whole response: a member's name, or a block."""
    named = {_SAME.get(step, step) for step in steps_of(loss.path) if not step.isdigit()}
    return (
        bool(named & {_SAME.get(step, step) for step in steps_of(path)})
        or loss.path.rpartition("/")[2].isdigit()
    )


def _notes(losses: list[Loss], place: str) -> tuple[Note, ...]:
    """Return the entries; those with the same words become one with several members."""
    members: dict[tuple[str, str], list[str]] = {}
    for loss in losses:
        named = members.setdefault((loss.code.value, loss.detail), [])
        if loss.path.startswith(f"{place}/"):
            named.append(loss.path[len(place) + 1 :].replace("/", "."))
    return tuple(Note(code, tuple(named), detail) for (code, detail), named in members.items())
