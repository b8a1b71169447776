"""Inputs of several sizes, made from every array, object, string and event of the golden fixtures.

Members that no fixture has are taken from the protocols' tables of shapes.

A place of a fixture is a dimension: its array gets copies of an element, its object more members, its string more
characters, and a stream more events. The CPU time for an input of twice the size is about twice as long.
"""

import copy
import gc
import json
import math
import random
import re
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from itertools import chain, pairwise
from typing import Any

import golden
from laws.clients import endpoint_of, spec_of
from laws.pairs import requested

from dragoman import (
    PROTOCOLS,
    UPSTREAMS,
    Capabilities,
    Relay,
    RemoteProtocolError,
    RequestRefused,
    RequestTranslator,
    ResponseTranslator,
    translate_error,
)
from dragoman._wire.limits import VALUES

JSON = Any
Steps = tuple[str | int, ...]

# Of things. They are within most limits (`_wire/limits.py`), so that the input is handled and not refused.
SIZES = (2_000, 4_000, 8_000)
LARGE = SIZES[-1]
# A string of so many characters for each thing.
_CHARACTERS = 40
# An event of a stream, and a document, have at most this.
_MAX_BYTES = 8 * 1024 * 1024

# Linear work takes twice as long for twice the size, its square four times. Memory that is farther away, or a check of
# what is large only, adds to one step, but not to both: they are alike within this factor if something grows.
MOST_GROWTH = 2.5
ALIKE = 2.0
# Less than this is not looked at: 20 us for each thing is what the slowest linear work takes.
LEAST_S = 0.05

# Members that name a place or a thing; copies have equal ones, or each its own.
_INDEXES = frozenset({"index", "output_index", "content_index", "summary_index", "annotation_index"})
_IDS = frozenset(
    {"id", "call_id", "item_id", "tool_use_id", "tool_call_id", "name", "file_id", "url", "title"}
)

# How copies of an element, of all elements or of an event differ: in nothing, or each has its own ids or its own index.
# With both, ids are long and differ at their end; with indexes only, texts are long. So a scan that compares ids, and a
# text that is copied for each of them, take much longer than all that is linear, also inside of one call.
WAYS = ("equal", "distinct", "rising", "distinct rising")
_LONG = 200
# What strings are made of. The marks begin something that a reader may look for the end of.
_TEXTS = {"of itself": "", "of quotes": '"', "of brackets": "[{", "of marks": "<think", "of lines": "\n\n"}
_MEMBERS = "members"


@dataclass(frozen=True)
class Case:
    """A fixture of a protocol, the place in it that grows and how, and the protocol of the other side.

    place: the steps from the top, in a stream from its list of events; () is the whole of it. It may be in a member
        that the fixture does not have, see `lacking`.
    """

    kind: str
    protocol: str
    other: str
    fixture: str
    place: Steps
    how: str

    def __str__(self) -> str:
        place = "/".join(map(str, self.place)) or "all"
        return f"{self.kind} {self.protocol} to {self.other}, {self.fixture}: {place} {self.how}"

    def work(self, size: int) -> Callable[[], None]:
        """Return what handles this input with so many things."""
        return _WORK[self.kind](self, reads(self, size))


def seconds(works: list[Callable[[], None]], rounds: int) -> list[float]:
    """Return the CPU time of this thread that each of them takes in its fastest round.

    They take turns, so that other work on this machine slows all of them down.
    """
    best = [math.inf] * len(works)
    gc.disable()
    try:
        for _ in range(rounds):
            for number, work in enumerate(works):
                start = time.thread_time()
                work()
                best[number] = min(best[number], time.thread_time() - start)
        return best
    finally:
        gc.enable()


def may_grow(case: Case) -> bool:
    """Return false if two small sizes show that problem() would return nothing. It takes a tenth of the time.

    Of what problem() finds, a quarter or more is square at the first of its sizes: there it takes at least a sixteenth
    of LEAST_S, and 4.9 times what it takes at a quarter of that size.
    """
    works = [case.work(size) for size in (SIZES[0] // 4, SIZES[0])]
    for rounds in (1, 4):
        small, large = seconds(works, rounds)
        if large <= LEAST_S / 16 or large <= 4.5 * small:
            return False
    return True


def problem(case: Case) -> str:
    """Return what is wrong if the time grows more than the input at each step, else nothing.

    It is measured with more rounds before it counts, so that another process does not look like growth.
    """
    works = [case.work(LARGE)]
    if seconds(works, 1)[0] <= LEAST_S:
        return ""
    works[:0] = [case.work(size) for size in SIZES[:-1]]
    for rounds in (1, 4, 16):
        times = seconds(works, rounds)
        steps = sorted(after / before for before, after in pairwise(times))
        if times[-1] <= LEAST_S or steps[0] <= MOST_GROWTH or steps[-1] > ALIKE * steps[0]:
            return ""
    return f"{case}: " + ", ".join(
        f"{size}: {1000 * each:.1f} ms" for size, each in zip(SIZES, times, strict=True)
    )


# --- the inputs -----------------------------------------------------------------------------------------------


def copies(element: JSON, count: int, how: str, texts: Collection[str] = ()) -> list[JSON]:
    """Return copies of an element. how: one of WAYS. texts: the members with free text."""
    text = json.dumps(element)
    if how == "rising" and texts:
        named = "|".join(map(re.escape, texts))
        text = re.sub(rf'("(?:{named})": "(?:[^"\\]|\\.)*)"', rf'\g<1>{" " * _LONG}"', text)
    if "distinct" in how:
        long = "-" * _LONG if "rising" in how else ""
        text = _ID.sub(rf'"\g<name>": "\g<value>{long}@N@"', text)
    if "rising" in how:
        text = _INDEX.sub(r'"\g<name>": @I@', text)
    if "@N@" not in text and "@I@" not in text:
        return [json.loads(text)] * count
    return [
        json.loads(text.replace("@N@", f"{number:05}").replace("@I@", str(number))) for number in range(count)
    ]


_ID = re.compile(rf'"(?P<name>{"|".join(sorted(_IDS))})": "(?P<value>(?:[^"\\]|\\.)*)"')
_INDEX = re.compile(rf'"(?P<name>{"|".join(sorted(_INDEXES))})": \d+')


def grown(document: JSON, place: Steps, how: str, size: int, protocol: str) -> JSON:
    """Return the document with more at this place."""
    root = {"": copy.deepcopy(document)}
    steps: Steps = ("", *place)
    holder: Any = None
    value: Any = root
    for step in steps:
        if isinstance(value, dict) and step not in value:
            value[step] = copy.deepcopy(_value_of(protocol, str(step)))
        holder, value = value, value[step]
    if how in WAYS:
        made = copies(value, _fitting(value, size), how, _texts_of(protocol))
        if isinstance(holder, list):
            holder[steps[-1] : steps[-1]] = made
        else:
            value[:0] = chain.from_iterable(made)
    elif how == _MEMBERS:
        value |= {f"unknown_{number}": number for number in range(size)}
    else:
        unit = _TEXTS[how] or value or "x"
        holder[steps[-1]] = value + (unit * (size * _CHARACTERS // len(unit) + 1))[: size * _CHARACTERS]
    return root[""]


def _fitting(element: JSON, size: int) -> int:
    """Return how many copies of this element are within the limits of a document, in the relation of the sizes."""
    text = json.dumps(element)
    values = 1 + sum(text.count(mark) for mark in ",:[{")
    most = min(LARGE, VALUES.most * 9 // 10 // values, _MAX_BYTES // len(text))
    return max(size * most // LARGE, 1)


def shapes(document: JSON) -> Iterator[tuple[str, Steps, tuple[str, ...]]]:
    """Yield the shape of each place, which is the same in all fixtures, the place, and how it can grow."""
    todo: list[tuple[str, Steps, JSON]] = [("", (), document)]
    while todo:
        shape, place, value = todo.pop()
        if isinstance(value, str):
            yield shape, place, tuple(_TEXTS)
        elif isinstance(value, dict):
            yield shape, place, (_MEMBERS,)
            todo += [(f"{shape}/{name}", (*place, name), inner) for name, inner in value.items()]
        elif isinstance(value, list):
            if len(value) > 1 and all(isinstance(inner, dict) for inner in value):
                yield f"{shape}/{[_kind(inner) for inner in value]}", place, WAYS
            for number, inner in enumerate(value):
                element = f"{shape}/*{_kind(inner)}"
                yield element, (*place, number), WAYS if isinstance(inner, dict) else WAYS[:1]
                todo.append((element, (*place, number), inner))


def lacking(protocol: str, documents: list[tuple[str, Steps, JSON]]) -> Iterator[tuple[str, Steps, str]]:
    """Yield each member of the protocol's tables of shapes that no object has which the table is for: all members of
    such an object are in the table. The member comes into the largest of them, by fixture and place.

    documents: with their fixtures, and their places there.
    """
    objects: list[tuple[str, Steps, dict[str, JSON]]] = []
    todo = documents[:]
    while todo:
        fixture, place, value = todo.pop()
        if isinstance(value, dict):
            objects.append((fixture, place, value))
        inner = (
            value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        )
        todo += [(fixture, (*place, step), each) for step, each in inner]
    for table in _tables(protocol):
        of_table = [each for each in objects if each[2].keys() <= table.keys()]
        fixture, place, largest = max(of_table, key=lambda each: len(each[2]), default=("", (), {}))
        for name in table.keys() - set().union(*[value for *_, value in of_table]) if largest else ():
            yield fixture, place, name


@cache
def _tables(protocol: str) -> list[dict[str, Any]]:
    """Return the members of all objects in a protocol's tables of shapes."""
    name = f"dragoman.protocols.{spec_of(protocol).name}.shapes"
    module = vars(import_module(name)) if find_spec(name) else {}
    todo = [value for name, value in module.items() if not name.startswith("__")]
    found: dict[int, dict[str, Any]] = {}
    while todo:
        shape = getattr(todo[-1], "shapes", todo[-1])
        del todo[-1]
        if isinstance(shape, Mapping) and id(shape) not in found:
            found[id(shape)] = dict(shape)
            todo += shape.values()
        elif isinstance(shape, list):
            todo += shape
    return list(found.values())


@cache
def _value_of(protocol: str, name: str) -> JSON:
    """Return the largest value that a member has in a fixture, and a list for one that is in none."""
    unknown = [{"type": "text", "text": "x", "id": "x", "index": 0}]
    return max(_values(protocol).get(name, [unknown]), key=lambda value: len(json.dumps(value)))


@cache
def _texts_of(protocol: str) -> frozenset[str]:
    """Return the members with free text: a value in a fixture has blanks."""
    texts = {
        name
        for name, values in _values(protocol).items()
        if any(isinstance(value, str) and " " in value for value in values)
    }
    return frozenset(texts - _IDS)


@cache
def _values(protocol: str) -> dict[str, list[JSON]]:
    """Return the values that each member has in the fixtures."""
    values: dict[str, list[JSON]] = {}
    todo: list[JSON] = [fixture for (_, of, _), fixture in _fixtures().items() if of == protocol]
    while todo:
        value = todo.pop()
        if isinstance(value, dict):
            for name, inner in value.items():
                values.setdefault(name, []).append(inner)
            todo += value.values()
        elif isinstance(value, list | tuple):
            todo += value
    return values


def _kind(value: JSON) -> str:
    kind = value.get("type", value.get("role")) if isinstance(value, dict) else type(value).__name__
    return f"<{kind}>" if isinstance(kind, str) else ""


Event = tuple[bytes, JSON]


def _events_of(text: str) -> list[Event]:
    """Return the frames of a stream: what stands before the data, and the data, None if it is no JSON object."""
    found: list[Event] = []
    for block in text.encode("utf-8", "surrogateescape").split(b"\n\n"):
        head, mark, data = block.rpartition(b"data:")
        try:
            value = json.loads(data) if mark else None
        except ValueError:
            value = None
        found.append((head, value) if isinstance(value, dict) else (block, None))
    return found


def _frame(event: Event) -> bytes:
    head, value = event
    return head + (b"data: " + json.dumps(value).encode() if value is not None else b"") + b"\n\n"


# --- all cases ------------------------------------------------------------------------------------------------


@cache
def cases() -> list[Case]:
    """Return one case for each shape, each way to grow it, and each protocol of the other side."""
    return [*_cases_of(_places()), *_cases_of(_lacking_places())]


def sample(count: int) -> list[Case]:
    """Return some cases, the same ones each time: of copies of an element of each array, and so many others."""
    one_each: dict[tuple[str, ...], Case] = {}
    others = _cases_of(_lacking_places())
    for case in _cases_of(_places()):
        names = [step for step in case.place if isinstance(step, str)]
        if case.how not in WAYS or case.other not in UPSTREAMS:
            others.append(case)
        elif names and case.how == "distinct rising" and case.other != case.protocol:
            one_each.setdefault((case.kind, case.protocol, names[-1]), case)
    return [*one_each.values(), *random.Random(count).sample(others, count)]


# Kind, protocol and name of the fixture, the shape of a place in it, the place, and how it can grow.
Place = tuple[str, str, str, str, Steps, tuple[str, ...]]


def _cases_of(places: Iterator[Place]) -> list[Case]:
    found: dict[tuple[str, ...], Case] = {}
    for kind, protocol, name, shape, place, ways in places:
        for other in UPSTREAMS if kind == "request" else PROTOCOLS:
            for how in ways:
                case = Case(kind, protocol, other, name, place, how)
                found.setdefault((kind, protocol, other, shape, how), case)
    return list(found.values())


def _places() -> Iterator[Place]:
    for (kind, protocol, name), fixture in _fixtures().items():
        if kind == "stream":
            yield kind, protocol, name, f"all {name}", (), WAYS  # each has its own order of events
        for at, value in _documents_of(kind, fixture):
            head = f"event{_kind(value)}{sorted(value)}" if at else ""
            if at:
                yield kind, protocol, name, head, at, WAYS
            for shape, place, ways in shapes(value):
                yield kind, protocol, name, head + shape, (*at, *place), ways


def _lacking_places() -> Iterator[Place]:
    """Give the members that fixtures lack, and the elements of those that are arrays."""
    documents: dict[tuple[str, str], list[tuple[str, Steps, JSON]]] = {}
    for (kind, protocol, name), fixture in _fixtures().items():
        of_kind = documents.setdefault((kind, protocol), [])
        of_kind += [(name, at, value) for at, value in _documents_of(kind, fixture)]
    for (kind, protocol), of_kind in documents.items():
        for name, place, member in sorted(lacking(protocol, of_kind), key=str):
            for _, inside, ways in shapes(_value_of(protocol, member)):
                at = (*place, member, *inside)
                if not inside or (len(inside) == 1 and isinstance(inside[0], int)):
                    yield kind, protocol, name, f"{name} {at}", at, ways


def _documents_of(kind: str, fixture: JSON) -> list[tuple[Steps, JSON]]:
    """Return the fixture itself, or the events of a stream, with their places."""
    if kind != "stream":
        return [((), fixture)]
    return [((number,), value) for number, (_, value) in enumerate(fixture) if value is not None]


@cache
def _fixtures() -> dict[tuple[str, str, str], JSON]:
    """Return documents and lists of events, by kind, protocol and name."""
    found: dict[tuple[str, str, str], JSON] = {}
    for kind, fixtures in golden.fixtures().items():
        for fixture in fixtures:
            key = kind, fixture["protocol"], fixture["name"]
            if kind == "stream":
                found[key] = _events_of(fixture["text"])
            elif kind == "error":
                with suppress(ValueError):
                    found[key] = fixture["body"] if "body" in fixture else json.loads(fixture["text"])
            elif kind in _WORK:
                found[key] = fixture["body"]
    return {key: value for key, value in found.items() if isinstance(value, dict | list)}


def reads(case: Case, size: int) -> list[bytes]:
    """Return the input with so many things: a document in one piece, a stream event by event."""
    fixture = _fixtures()[case.kind, case.protocol, case.fixture]
    if case.kind != "stream":
        return [json.dumps(grown(fixture, case.place, case.how, size, case.protocol)).encode()]
    events: list[Event] = list(fixture)
    texts = _texts_of(case.protocol)
    if not case.place:  # all but the first event and the end, again and again
        middle = [value for _, value in events[1:-2] if value is not None]
        again = copies(middle, _fitting(middle, size), case.how, texts) if middle else []
        events[1:1] = [(b"", value) for each in again for value in each]
        return [_frame(event) for event in events]
    number, *rest = case.place
    assert isinstance(number, int)
    head, value = events[number]
    if not rest and case.how in WAYS:
        events[number:number] = [
            (head, each) for each in copies(value, _fitting(value, size), case.how, texts)
        ]
    else:
        events[number] = head, grown(value, tuple(rest), case.how, size, case.protocol)
    return [_frame(event) for event in events]


# --- the work -------------------------------------------------------------------------------------------------


def _request(case: Case, data: list[bytes]) -> Callable[[], None]:
    def work() -> None:
        for capabilities in (Capabilities(), Capabilities(relay="rewrite")):
            if case.protocol != case.other and capabilities.relay == "rewrite":
                return
            translator = RequestTranslator(
                client=spec_of(case.protocol),
                upstream=UPSTREAMS[case.other],
                endpoint=endpoint_of(case.protocol),
                capabilities=capabilities,
                max_fan_out=4,
            )
            with suppress(RemoteProtocolError, RequestRefused):
                translator.translate(data[0]).response_context(id="0123456789abcdef", now=1)

    return work


def _machines(case: Case, *, streams: bool) -> Iterator[Relay | ResponseTranslator]:
    context = requested(case.other, streams=streams)
    if case.other == case.protocol:
        yield Relay(protocol=UPSTREAMS[case.other], context=context, streams=streams)
    yield ResponseTranslator(
        client=spec_of(case.other),
        upstream=UPSTREAMS[case.protocol],
        context=context,
        upstream_streams=streams,
        store_response=streams,
    )


def _response(case: Case, data: list[bytes]) -> Callable[[], None]:
    def work() -> None:
        for machine in _machines(case, streams=case.kind == "stream"):
            for read in data:
                machine.receive_data(read)
                machine.data_to_send()
            machine.receive_eof()
            machine.data_to_send()

    return work


def _error(case: Case, data: list[bytes]) -> Callable[[], None]:
    def work() -> None:
        translate_error(400, data[0], upstream=UPSTREAMS[case.protocol], client=spec_of(case.other))

    return work


_WORK: dict[str, Callable[[Case, list[bytes]], Callable[[], None]]] = {
    "request": _request,
    "whole": _response,
    "error": _error,
    "stream": _response,
}
