"""Find where something came out, as places in a form for people.

A place is written `messages[tool].content`: what an element of an array is (its type, its role) stands in the
brackets. Places of a stream have the event's type before them: `content_block_delta: delta.text`.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import takewhile

from fidelity.probe import Json

# More places than this do not help a reader.
MOST = 3
# Numbers that count events and blocks: they move when anything is added.
_COUNTERS = {(name,) for name in ("sequence_number", "index", "output_index", "item_id", "id")}


@dataclass(frozen=True, slots=True)
class Leaf:
    """event: the type of the frame, "" outside of streams."""

    event: str
    steps: tuple[str, ...]
    value: str


def places_of(wire: str, base: str | None, marks: list[frozenset[str]], *, streams: bool) -> tuple[str, ...]:
    """Return where marks came out; if that is nowhere, where a document differs from another."""
    leaves = _leaves_of(wire, streams=streams)
    places = _places_of_marks(leaves, marks)
    if places or base is None:
        return places
    here, there = Counter(leaves), Counter(_leaves_of(base, streams=streams))
    added, removed = (
        [leaf for leaf in leaves if leaf.steps[-1:] not in _COUNTERS]
        for leaves in (here - there, there - here)
    )
    new = added or removed
    return _in_words([leaf for leaf in new if leaf.event == new[0].event])


def _leaves_of(wire: str, *, streams: bool) -> list[Leaf]:
    if not streams:
        return list(_leaves("", json.loads(wire), ()))
    found: list[Leaf] = []
    for line in wire.splitlines():
        if line.startswith("data: {"):
            frame = json.loads(line.removeprefix("data: "))
            found += _leaves(frame.pop("type", "chunk"), frame, ())
    return found


def _leaves(event: str, value: Json, steps: tuple[str, ...]) -> Iterator[Leaf]:
    if isinstance(value, dict) and value:
        for key, member in value.items():
            yield from _leaves(event, member, (*steps, key))
    elif isinstance(value, list) and value:
        for member in value:
            yield from _leaves(event, member, (*steps[:-1], f"{steps[-1] if steps else ''}[{_kind(member)}]"))
    else:
        yield Leaf(event, steps, json.dumps(value))


def _kind(member: Json) -> str:
    if not isinstance(member, dict):
        return ""
    named = (member.get(key) for key in ("type", "role"))
    return next((name for name in named if isinstance(name, str)), "")


def _places_of_marks(out: list[Leaf], marks: list[frozenset[str]]) -> tuple[str, ...]:
    """Where marks come out. In a stream that is the first event that has one: others repeat it.

    Of the members that share a mark (a call and its result share an id) one that has another mark too is named.
    """
    found = []
    for forms in marks:
        leaves = [
            leaf for leaf in out if any(form in text for text in (leaf.value, *leaf.steps) for form in forms)
        ]
        found.append([leaf for leaf in leaves if leaf.event == leaves[0].event])
    chosen: dict[tuple[str, str], list[Leaf]] = {}
    for leaves in sorted(filter(None, found), key=lambda leaves: len(set(map(_group, leaves)))):
        named = next(filter(chosen.__contains__, map(_group, leaves)), _group(leaves[0]))
        chosen.setdefault(named, []).extend(leaf for leaf in leaves if _group(leaf) == named)
    return _in_words([leaf for group in chosen.values() for leaf in group])


def _in_words(leaves: list[Leaf]) -> tuple[str, ...]:
    """Return the places in words; places of one member become one."""
    groups: dict[tuple[str, str], list[tuple[str, ...]]] = {}
    for leaf in leaves:
        groups.setdefault(_group(leaf), []).append(leaf.steps)
    places = [(event, ".".join(_common(steps))) for (event, _), steps in groups.items()]
    unique = list(dict.fromkeys(": ".join(filter(None, place)) for place in places))
    return (*unique[:MOST], "...") if len(unique) > MOST else tuple(unique)


def _common(ways: list[tuple[str, ...]]) -> Iterator[str]:
    """Yield the steps with which all ways begin."""
    return (steps[0] for steps in takewhile(lambda steps: len(set(steps)) == 1, zip(*ways, strict=False)))


def _group(leaf: Leaf) -> tuple[str, str]:
    return leaf.event, leaf.steps[0] if leaf.steps else ""
