"""Probes: for each row of the matrix, a small valid document that contains what the row is about.

Free strings of what a row is about begin with `Zq`, so that they are found again wherever they come out. What has none
(numbers, booleans, words of the protocol) is found by what its absence changes.
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from dragoman._ir.losses import child
from fidelity.streams import SUBJECT, frames_of

Json = Any
# The place of a marked string, and the forms in which the mark may come out.
Mark = tuple[str, frozenset[str]]

NEEDED = "?"  # stands for the other value of a subject if none is valid
_GONE: Any = object()
_MARK = re.compile(r"Zq[a-z0-9]+")
_BASE64 = re.compile(r"[A-Za-z0-9+/]{8,}={0,2}")


@dataclass(frozen=True, slots=True)
class Probe:
    """One row.

    body: a request, or the frames of a streamed response.
    place: a JSON Pointer to what it is about.
    without: the same document without it, or with another value there; None if none is valid.
    nothing: why it says nothing that could be carried, "" when it does. Then nothing may come of it.
    """

    section: str
    name: str
    body: Json
    place: str
    without: Json = None
    nothing: str = ""

    def marks(self) -> list[Mark]:
        return _marks(find(self.body, self.place), self.place)


def probe(section: str, name: str, document: Json, nothing: str = "", event: str = "") -> Probe:
    """Return a row about the subject of a document, or about the last event of a type if the stream has one."""
    body, streams = _settled(document, -1), isinstance(document, list)
    if streams:
        body = frames_of(body)
        if named := [at for at, frame in enumerate(body) if event in _types(frame)]:
            (*_, at) = named
            return Probe(section, name, body, f"/{at}", [*body[:at], *body[at + 1 :]], nothing)
    places = dict(subjects(frames_of(document) if streams else document))
    # A stream may repeat its subject: the first place with all of it.
    place = max(places, key=lambda place: len(_marks(find(body, place))))
    if places[place][0] == NEEDED:
        return Probe(section, name, body, place, None, nothing)
    without = _settled(document, 0)
    return Probe(section, name, body, place, frames_of(without) if streams else without, nothing)


def _types(frame: Json) -> list[str]:
    holders = [frame, frame.get("delta")] if isinstance(frame, dict) else []
    return [holder["type"] for holder in holders if isinstance(holder, dict) and "type" in holder]


def _settled(value: Json, which: int) -> Json:
    """Return a document with its subject's last value, or with its first and without a subject that has one only."""
    if isinstance(value, list):
        return [each for member in value if (each := _settled(member, which)) is not _GONE]
    if not isinstance(value, dict):
        return value
    if SUBJECT in value:
        return _GONE if which == 0 and len(value[SUBJECT]) == 1 else value[SUBJECT][which]
    return {key: each for key, member in value.items() if (each := _settled(member, which)) is not _GONE}


def subjects(value: Json, path: str = "") -> Iterator[tuple[str, list[Json]]]:
    if isinstance(value, dict) and SUBJECT in value:
        yield path, value[SUBJECT]
    else:
        for key, member in _members(value):
            yield from subjects(member, child(path, key))


def _marks(value: Json, path: str = "") -> list[Mark]:
    if isinstance(value, str):
        plain = [(mark, _coded(mark)) for mark in _MARK.findall(value)]
        coded = [(word, text) for word in _BASE64.findall(value) if _MARK.fullmatch(text := _decoded(word))]
        return [(path, frozenset(forms)) for forms in (*plain, *coded)]
    return [mark for key, member in _members(value) for mark in _marks(member, child(path, key))]


def _members(value: Json) -> Iterator[tuple[str | int, Json]]:
    if isinstance(value, dict):
        yield from value.items()
    elif isinstance(value, list):
        yield from enumerate(value)


def _coded(text: str) -> str:
    return b64encode(text.encode()).decode()


def _decoded(word: str) -> str:
    try:
        return b64decode(word, validate=True).decode()
    except ValueError:
        return ""  # an ordinary word


def steps_of(path: str) -> list[str]:
    return [step.replace("~1", "/").replace("~0", "~") for step in path.split("/")[1:]]


def find(body: Json, place: str) -> Json:
    for step in steps_of(place):
        body = body[int(step) if isinstance(body, list) else step]
    return body
