"""Shrink a recording to a small one that shows the same difference: delta debugging on events, then on JSON members."""

import json
import re
from collections.abc import Callable, Iterator

import msgspec

from dragoman import lint
from dragoman.jsontext import JSON
from dragoman_server.recordings.document import Piece, Recording, RecordingError, as_bytes, as_text, joined
from dragoman_server.recordings.replay import (
    Difference,
    Replayed,
    attempt_of,
    decoded,
    frames_of,
    kind_of,
    replay,
    value_of,
)

# How often the recording is translated.
_MAX_TRIES = 5000


def minimize(recording: Recording, difference: Difference) -> Recording:
    """Return a recording with a smaller request and response of the upstream that shows the same difference.

    The same: the request sent now has the same wrong value at the same place of such an event, or still lacks the
    recorded value, which the upstream sent; the response fails with the same error or not at all; and it breaks the
    rules of its protocol that it broke.
    """
    symptom = _symptom(recording, replay(recording), difference)
    tries = 0

    def shows(small: Recording) -> bool:
        nonlocal tries
        tries += 1
        if tries > _MAX_TRIES:
            return False
        try:
            replayed = replay(small)
        except RecordingError:
            return False
        return _symptom(small, replayed, difference) == symptom and _has(small, replayed, difference)

    if difference.where == "request":
        return _minimize_body(recording, shows)
    attempt = attempt_of(recording)
    raw = joined(attempt.pieces)
    events = raw.split(b"\n\n") if not raw.lstrip().startswith(b"{") else [raw]
    small = _shrink(events, lambda kept: shows(_with_response(recording, b"\n\n".join(kept))))
    for number in range(len(small)):
        small = _shrink_event(
            small, number, lambda kept: shows(_with_response(recording, b"\n\n".join(kept)))
        )
    return _as_test(_minimize_body(_with_response(recording, b"\n\n".join(small)), shows), difference)


def _as_test(small: Recording, difference: Difference) -> Recording:
    """Return a recording that shows nothing but the difference: the event that was recorded, and the request of now."""
    attempt = msgspec.structs.replace(attempt_of(small), body=as_text(replay(small).request))
    recorded = small.response
    if difference.event is not None:
        events = frames_of(joined(recorded.pieces))[difference.event : difference.event + 1]
        text = "".join(f"event: {as_text(event.event)}\ndata: {as_text(event.data)}\n\n" for event in events)
        recorded = msgspec.structs.replace(recorded, pieces=(Piece(0.0, text),))
    return msgspec.structs.replace(small, attempts=(attempt,), response=recorded)


def _shrink_event(events: list[bytes], number: int, shows: Callable[[list[bytes]], bool]) -> list[bytes]:
    """Return the events with less in the data of one of them."""
    head, data, document = events[number].rpartition(b"data: ")

    def with_document(text: bytes) -> list[bytes]:
        return [*events[:number], head + data + text, *events[number + 1 :]]

    return with_document(_shrink_document(document, lambda text: shows(with_document(text))))


def _with_response(recording: Recording, data: bytes) -> Recording:
    attempt = msgspec.structs.replace(attempt_of(recording), pieces=(Piece(0.0, as_text(data)),))
    return msgspec.structs.replace(recording, attempts=(attempt,))


def _minimize_body(recording: Recording, shows: Callable[[Recording], bool]) -> Recording:
    def with_body(text: bytes) -> Recording:
        request = msgspec.structs.replace(recording.request, body=as_text(text))
        return msgspec.structs.replace(recording, request=request)

    body = as_bytes(recording.request.body)
    return with_body(_shrink_document(body, lambda text: shows(with_body(text))))


def _symptom(
    recording: Recording, replayed: Replayed, difference: Difference
) -> tuple[str, frozenset[str]] | None:
    """Return how the response fails, and the rules that it breaks; None if the difference is in the request."""
    if difference.where == "request":
        return None
    protocol, data = recording.request.protocol, replayed.response
    if protocol not in lint.PROTOCOLS or not data:
        return replayed.error, frozenset()
    check = lint.check_whole if data.startswith(b"{") else lint.check_stream
    rules = [finding.rule for finding in check(protocol, data).findings]
    errors = frozenset(rule.id for rule in rules if rule.severity is lint.RuleSeverity.ERROR)
    return replayed.error, errors


def _has(small: Recording, replayed: Replayed, difference: Difference) -> bool:
    """True if the value that differs is still sent, or is still missing where the other side sent it."""
    if difference.where == "request":
        received, sent = small.request.body, replayed.request
    else:
        received, sent = as_text(joined(attempt_of(small).pieces)), replayed.response
    if not replayed.request:
        return False
    if difference.now is None:
        text = _text_of(difference.recorded)
        return text in received and text not in as_text(sent)
    if difference.event is None:
        documents = [decoded(sent)] if sent else []
    else:
        documents = [value_of(frame) for frame in frames_of(sent) if kind_of(frame) == difference.kind]
    return any(
        difference.now == json.dumps(value)
        for document in documents
        for value in _values(document, difference)
    )


def _text_of(recorded: str | None) -> str:
    """Return a string of the value that is missing now, by which it can be found in what the upstream sent."""
    strings = re.findall(r'"((?:[^"\\]|\\.)*)"(?!\s*:)', recorded or "")
    return max(strings, key=len, default=recorded or "")


def _values(document: JSON, difference: Difference) -> Iterator[JSON]:
    """Yield the value at the pointer of a difference, with any number for a place in a list."""
    places = [document]
    for step in difference.pointer.split("/")[1:]:
        step = step.replace("~1", "/").replace("~0", "~")
        found: list[JSON] = []
        for place in places:
            if isinstance(place, dict) and step in place:
                found.append(place[step])
            elif isinstance(place, list):
                found += place
        places = found
    yield from places


def _shrink(items: list[bytes], shows: Callable[[list[bytes]], bool]) -> list[bytes]:
    """Return fewer items that still show it: delta debugging, with halves first."""
    size = max(len(items) // 2, 1)
    while True:
        removed, at = False, 0
        while at < len(items):
            kept = items[:at] + items[at + size :]
            if len(kept) < len(items) and shows(kept):
                items, removed = kept, True
            else:
                at += size
        if size == 1 and not removed:
            return items
        size = max(size // 2, 1)


def _shrink_document(text: bytes, shows: Callable[[bytes], bool]) -> bytes:
    """Return a JSON document with fewer members and elements that still shows it."""
    document = decoded(text)
    if not isinstance(document, dict):
        return text
    shrunk = True
    while shrunk:
        shrunk = False
        for path in list(_paths(document)):
            smaller = _without(document, path)
            if smaller is not None and shows(data := json.dumps(smaller, separators=(",", ":")).encode()):
                document, text, shrunk = smaller, data, True
    return text


def _paths(value: JSON) -> Iterator[tuple[str | int, ...]]:
    """Yield the paths of all members and elements, the last ones first, outer before inner."""
    entries = list(
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    )
    for key, inner in reversed(entries):
        yield (key,)
        yield from ((key, *path) for path in _paths(inner))


def _without(document: JSON, path: tuple[str | int, ...]) -> JSON | None:
    """Return a copy without the value at a path, None if it is gone already."""
    copy = json.loads(json.dumps(document))
    holder = copy
    try:
        for step in path[:-1]:
            holder = holder[step]
        del holder[path[-1]]
    except (KeyError, IndexError, TypeError):
        return None
    return copy
