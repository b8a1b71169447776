"""Probes: for each row of the matrix, a small valid document that contains what the row is about.

Free strings of what is asked about begin with `Zq`, so that they are known again wherever they come out. What
has none (numbers, switches, words of the protocol) is known by what its absence changes.
"""

from __future__ import annotations

import copy
import re
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from dragoman._ir.losses import child

Json = Any
Body = dict[str, Any]

_MARK = re.compile(r"Zq[a-z0-9]+")
_BASE64 = re.compile(r"[A-Za-z0-9+/]{8,}={0,2}")


def coded(text: str) -> str:
    return b64encode(text.encode()).decode()


DATA = coded("Zqdata")
PICTURE = f"data:image/png;base64,{DATA}"
SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string", "description": "Zqschema"}},
    "required": ["city"],
    "additionalProperties": False,
}


@dataclass(frozen=True, slots=True)
class Probe:
    """One row.

    body: a request, or the frames of a streamed answer.
    place: a JSON Pointer to what it is about; "" is the whole document.
    without: the same document without it (or with its commonest value), None when it cannot be without.
    nothing: why it says nothing that could be carried, "" when it does. Then nothing may come of it.
    """

    section: str
    name: str
    body: Json
    place: str
    without: Json = None
    nothing: str = ""

    def marks(self) -> Iterator[tuple[str, frozenset[str]]]:
        """Yield the places of marked strings, and the forms in which each mark may come out."""
        for path, text in strings(find(self.body, self.place), self.place):
            yield from ((path, forms) for forms in marks_of(text))


def marks_of(text: str) -> Iterator[frozenset[str]]:
    for mark in _MARK.findall(text):
        yield frozenset({mark, coded(mark)})
    for word in _BASE64.findall(text):
        plain = _decoded(word)
        if _MARK.fullmatch(plain):
            yield frozenset({word, plain})


def _decoded(word: str) -> str:
    try:
        return b64decode(word, validate=True).decode()
    except ValueError:
        return ""  # an ordinary word


def strings(value: Json, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict):
        for key, member in value.items():
            yield from strings(member, child(path, key))
    elif isinstance(value, list):
        for index, member in enumerate(value):
            yield from strings(member, child(path, index))


def steps_of(path: str) -> list[str]:
    return [step.replace("~1", "/").replace("~0", "~") for step in path.split("/")[1:]]


def find(body: Json, place: str) -> Json:
    for step in steps_of(place):
        body = body[int(step) if isinstance(body, list) else step]
    return body


# Stands for a value that is to be left out.
NONE: Any = object()


def changed(body: Json, place: str, value: Json = NONE) -> Json:
    """Return a copy with another value at a place, or without the place."""
    out = copy.deepcopy(body)
    *way, last = steps_of(place)
    holder = out
    for step in way:
        holder = holder[int(step) if isinstance(holder, list) else step]
    key: Any = int(last) if isinstance(holder, list) else last
    if value is NONE:
        del holder[key]
    else:
        holder[key] = value
    return out


def probe(
    section: str,
    name: str,
    body: Json,
    place: str,
    *,
    swap: Json = NONE,
    needed: bool = False,
    nothing: str = "",
) -> Probe:
    """Return a row. swap: the value in the other document, by default none. needed: no document is valid without it."""
    without = None if needed else changed(body, place, swap)
    return Probe(section, name, body, place, without, nothing)


Filler = Callable[[Json], tuple[Json, str]]  # what a row is about -> a document with it, and its place there


def kinds(section: str, fill: Filler, *things: Body) -> list[Probe]:
    """Return a row for each thing, named by its type."""
    return [probe(section, f"`{thing['type']}`", *fill(thing)) for thing in things]
