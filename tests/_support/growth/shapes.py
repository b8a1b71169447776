"""Inputs of two sizes, made from every array, object, string and event of the golden fixtures.

A place of a fixture is a dimension: its array gets copies of an element, its object more members, its string more
characters, and a stream more events. `growth` is how much more CPU time an input of LARGE takes than one of SMALL.
"""

from __future__ import annotations

import copy
import gc
import json
import random
import re
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
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

# Of things. The larger is within most limits (`_wire/limits.py`), so that it is handled and not refused.
SMALL, LARGE = 500, 8_000
# A string of so many characters for each thing.
_CHARACTERS = 40
# An event of a stream, and a document, have at most this.
_MAX_BYTES = 8 * 1024 * 1024

# Linear work takes 16 times as long, its square 256 times.
MOST_GROWTH = 60.0
# Less than this is not looked at: 20 us for each thing is what the slowest linear work takes.
LEAST_S = 0.05

# Members that name a place or a thing; copies have equal ones, or each its own.
_INDEXES = frozenset({"index", "output_index", "content_index", "summary_index", "annotation_index"})
_IDS = frozenset(
    {"id", "call_id", "item_id", "tool_use_id", "tool_call_id", "name", "file_id", "url", "title"}
)

# How copies of an element or an event differ: in nothing, or each has its own ids or its own index.
WAYS = ("equal", "distinct", "rising", "distinct rising")
# What strings are made of. The marks begin something that a reader may look for the end of.
_TEXTS = {"of itself": "", "of quotes": '"', "of brackets": "[{", "of marks": "<think", "of lines": "\n\n"}
_MEMBERS = "members"


@dataclass(frozen=True)
class Case:
    """A fixture of a protocol, the place in it that grows and how, and the protocol of the other side.

    place: the steps from the top, in a stream from its list of events; () is the whole of it.
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


def seconds(work: Callable[[], None], rounds: int) -> float:
    """Return the CPU time of this thread that the fastest of some rounds takes."""
    gc.collect()
    gc.disable()
    try:
        best = float("inf")
        for _ in range(rounds):
            start = time.thread_time()
            work()
            best = min(best, time.thread_time() - start)
        return best
    finally:
        gc.enable()


def problem(case: Case) -> str:
    """Return what is wrong if the large input takes more than linear time, else nothing.

    It is measured with more rounds before it counts, so that another process does not look like growth.
    """
    large, small = case.work(LARGE), case.work(SMALL)
    text = ""
    for rounds in (1, 3, 7):
        most = seconds(large, rounds)
        if most <= LEAST_S:
            return ""
        least = seconds(small, 3 * rounds)
        if most <= MOST_GROWTH * least:
            return ""
        text = f"{case}: {SMALL}: {1000 * least:.1f} ms, {LARGE}: {1000 * most:.1f} ms"
    return text


# --- the inputs -----------------------------------------------------------------------------------------------


def copies(element: JSON, count: int, how: str) -> list[JSON]:
    """Return copies of an element. how: "distinct" ids, "rising" indexes, or both, "equal" otherwise."""
    if "distinct" not in how and "rising" not in how:
        return [element] * count
    text = json.dumps(element)
    if "distinct" in how:
        text = _ID.sub(r'"\g<name>": "\g<value>@N@"', text)
    if "rising" in how:
        text = _INDEX.sub(r'"\g<name>": @N@', text)
    if "@N@" not in text:
        return [element] * count
    return [json.loads(text.replace("@N@", str(number))) for number in range(count)]


_ID = re.compile(rf'"(?P<name>{"|".join(sorted(_IDS))})": "(?P<value>(?:[^"\\]|\\.)*)"')
_INDEX = re.compile(rf'"(?P<name>{"|".join(sorted(_INDEXES))})": \d+')


def grown(document: JSON, place: Steps, how: str, size: int) -> JSON:
    """Return the document with more at this place."""
    root = {"": copy.deepcopy(document)}
    holder: Any = root
    *steps, last = ("", *place)
    for step in steps:
        holder = holder[step]
    value = holder[last]
    if how in WAYS:
        holder[last:last] = copies(value, _fitting(value, size), how)
    elif how == _MEMBERS:
        value |= {f"unknown_{number}": number for number in range(size)}
    else:
        unit = _TEXTS[how] or value or "x"
        holder[last] = value + (unit * (size * _CHARACTERS // len(unit) + 1))[: size * _CHARACTERS]
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
            for number, inner in enumerate(value):
                element = f"{shape}/*{_kind(inner)}"
                yield element, (*place, number), WAYS if isinstance(inner, dict) else WAYS[:1]
                todo.append((element, (*place, number), inner))


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
    found: dict[tuple[str, ...], Case] = {}
    for (kind, protocol, name), fixture in _fixtures().items():
        others = UPSTREAMS if kind == "request" else PROTOCOLS
        for shape, place, ways in _shapes_of(kind, fixture):
            for other in others:
                for how in ways:
                    case = Case(kind, protocol, other, name, place, how)
                    found.setdefault((kind, protocol, other, shape, how), case)
    return list(found.values())


def sample(count: int) -> list[Case]:
    """Return some cases, the same ones each time: of copies of each element of each array, and so many others."""
    one_each: dict[tuple[str, ...], Case] = {}
    others = []
    for case in cases():
        names = [step for step in case.place if isinstance(step, str)]
        if case.how not in WAYS or case.other not in UPSTREAMS:
            others.append(case)
        elif names and "rising" in case.how and case.other != case.protocol:
            one_each.setdefault((case.kind, case.protocol, names[-1], str(case.place[-1])), case)
    return [*one_each.values(), *random.Random(count).sample(others, count)]


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
                    found[key] = json.loads(fixture["text"])
            elif kind in _WORK:
                found[key] = fixture["body"]
    return {key: value for key, value in found.items() if isinstance(value, dict | list)}


def _shapes_of(kind: str, fixture: JSON) -> Iterator[tuple[str, Steps, tuple[str, ...]]]:
    if kind != "stream":
        yield from shapes(fixture)
        return
    yield f"all {id(fixture)}", (), WAYS  # each stream has its own order of events
    for number, (_, value) in enumerate(fixture):
        if value is not None:
            members = f"event{_kind(value)}{sorted(value)}"
            yield members, (number,), WAYS
            for shape, place, ways in shapes(value):
                yield members + shape, (number, *place), ways


def reads(case: Case, size: int) -> list[bytes]:
    """Return the input with so many things: a document in one piece, a stream event by event."""
    fixture = _fixtures()[case.kind, case.protocol, case.fixture]
    if case.kind != "stream":
        return [json.dumps(grown(fixture, case.place, case.how, size)).encode()]
    events: list[Event] = list(fixture)
    if not case.place:  # all but the first event and the end, again and again
        middle = [value for _, value in events[1:-2] if value is not None]
        again = copies(middle, _fitting(middle, size), case.how) if middle else []
        events[1:1] = [(b"", value) for each in again for value in each]
        return [_frame(event) for event in events]
    number, *rest = case.place
    assert isinstance(number, int)
    head, value = events[number]
    if not rest and case.how in WAYS:
        events[number:number] = [(head, each) for each in copies(value, _fitting(value, size), case.how)]
    else:
        events[number] = head, grown(value, tuple(rest), case.how, size)
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


def _machine(case: Case, *, streams: bool) -> Relay | ResponseTranslator:
    context = requested(case.other, streams=streams)
    if case.other == case.protocol:
        return Relay(protocol=UPSTREAMS[case.other], context=context, streams=streams)
    return ResponseTranslator(
        client=spec_of(case.other),
        upstream=UPSTREAMS[case.protocol],
        context=context,
        upstream_streams=streams,
    )


def _response(case: Case, data: list[bytes]) -> Callable[[], None]:
    def work() -> None:
        machine = _machine(case, streams=case.kind == "stream")
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
