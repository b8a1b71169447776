"""Find what became of a probe by comparing the output with it and without it.

Where the marks came out, what else changed and which entries of the ledger are new: that says what the cell is.
Nothing here knows what is right.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum

from dragoman import Capabilities, Loss, LossCode, RemoteProtocolError, RequestRefused
from fidelity.probe import Json, Probe, steps_of
from fidelity.run import Output, answer_output, request_output
from fidelity.where import in_words, leaves_of, new_places, places_of_marks


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


_REST = "the rest wrapped"

Run = Callable[[Json], Output]


def cell_of_request(client: str, upstream: str, capabilities: Capabilities, probe: Probe) -> Cell:
    run: Run = lambda body: request_output(client, upstream, capabilities, body)  # noqa: E731
    return judge(probe, run)


def cell_of_answer(upstream: str, client: str, probe: Probe) -> Cell:
    run: Run = lambda frames: answer_output(upstream, client, frames)  # noqa: E731
    return judge(probe, run, streams=True)


def judge(probe: Probe, run: Run, *, streams: bool = False) -> Cell:
    """Translate a probe with and without its subject, and return what became of it."""
    try:
        out = run(probe.body)
    except (RemoteProtocolError, RequestRefused) as error:
        return Cell(Fate.REFUSED, words=error.message)
    base = None
    if probe.without is not None:
        try:
            base = run(probe.without)
        except (RemoteProtocolError, RequestRefused):
            base = None  # it is not valid without, so all that is said is about it
    known = set() if base is None else {(loss.code, loss.path) for loss in base.losses}
    # An entry about a thing around the probe may also be about something next to the probe.
    losses = [
        loss
        for loss in out.losses
        if (loss.code, loss.path) not in known or (loss.path and covers(loss.path, probe.place))
    ]
    found = _Found()
    marks = list(probe.marks())
    tells = _tells_of_stream if streams else _tells
    for path, forms in marks:
        # If there is just one mark, new entries are about it, whatever they name.
        told = any(len(marks) == 1 or tells(loss, path, probe.place) for loss in losses)
        found.add(path, forms, out, told=told)
    changes = base is None or (out.wire, out.here) != (base.wire, base.here)
    leaves = leaves_of(out.wire, streams=streams)
    places = places_of_marks(leaves, found.wire)
    if base is not None and not places:
        new = new_places(leaves, leaves_of(base.wire, streams=streams))
        places = in_words([leaf for leaf in new if leaf.event == new[0].event])
    here = bool(found.here) or (base is not None and out.here != base.here)
    return _judge(probe, losses, found, places, changes=changes, here=here)


@dataclass(slots=True)
class _Found:
    """The marks of a probe by their result: those that came out, and the places of those that did not."""

    wire: list[frozenset[str]] = field(default_factory=list)
    sealed: list[frozenset[str]] = field(default_factory=list)
    here: list[frozenset[str]] = field(default_factory=list)
    told: list[str] = field(default_factory=list)  # the ledger has it
    lost: list[str] = field(default_factory=list)

    def add(self, path: str, forms: frozenset[str], out: Output, *, told: bool) -> None:
        def holds(text: str) -> bool:
            return any(form in text for form in forms)

        if holds(out.wire):
            self.wire.append(forms)
        elif holds(out.sealed):
            self.sealed.append(forms)
        elif holds(out.here):
            self.here.append(forms)
        elif told:
            self.told.append(path)
        else:
            self.lost.append(path)

    @property
    def any(self) -> bool:
        return bool(self.wire or self.sealed or self.here or self.told or self.lost)

    @property
    def arrived(self) -> bool:
        return bool(self.wire or self.sealed or self.here)


def _judge(
    probe: Probe, losses: list[Loss], found: _Found, places: tuple[str, ...], *, changes: bool, here: bool
) -> Cell:
    if probe.nothing and not (losses or changes):
        return Cell(Fate.NOTHING, words=probe.nothing)
    if found.lost:
        return Cell(Fate.LOST, words=", ".join(found.lost))
    notes = _notes(losses, probe.place)
    if not losses:
        if not (found.arrived or changes):
            return Cell(Fate.LOST, words=probe.place)
        if found.sealed and not found.wire:
            return Cell(Fate.WRAPPED)
        if here and not found.wire:
            return Cell(Fate.BY_US)
        return Cell(Fate.CARRIED, places, words=_REST if found.sealed else "")
    if any(loss.code is LossCode.WRAPPED for loss in losses):
        return Cell(Fate.WRAPPED, notes=notes)
    stays = found.arrived if found.any else changes
    return Cell(Fate.ALTERED, places, notes) if stays else Cell(Fate.LEFT_OUT, notes=notes)


def covers(outer: str, inner: str) -> bool:
    return inner == outer or inner.startswith(f"{outer}/")


def _tells(loss: Loss, path: str, place: str) -> bool:
    """True if an entry is about a mark. Entries outside of the probe count, because writers use their own places."""
    if covers(place, loss.path):
        return bool(loss.path) and (covers(loss.path, path) or covers(path, loss.path))
    return True


# Names of the same thing in different protocols.
_SAME = {"annotation": "annotations", "citation": "annotations", "citations": "annotations"}


def _tells_of_stream(loss: Loss, path: str, place: str) -> bool:
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
