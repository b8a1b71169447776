"""Changes of one value of a document, after which the output must change.

A leaf is named by its JSON Pointer. Its pattern is the pointer with the type of each array element in place of
its number, so that a large recorded document is tried once for each kind of place and not for each place.
"""

import copy
from base64 import b64encode
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

Json = Any

# Members whose whole content is one value of free form: nothing inside is a place.
FREE = frozenset({"parameters", "input_schema", "schema", "output_schema", "input_examples", "arguments"})


PLANTED = "xPlanted"  # readers of proto3 JSON give a member with an underscore another name


@dataclass(frozen=True)
class Place:
    """One place of a document. value is what stands there; key is the name of a planted unknown member."""

    path: str
    pattern: str
    value: Json
    key: str | None = None


def steps_of(path: str) -> list[str]:
    return [step.replace("~1", "/").replace("~0", "~") for step in path.split("/")[1:]]


def child(path: str, key: object) -> str:
    return f"{path}/{str(key).replace('~', '~0').replace('/', '~1')}"


def leaves(document: Json) -> Iterator[Place]:
    """Every string, number and boolean. null means absent everywhere, so it is none."""
    for path, pattern, value in _walk(document, "", ""):
        if isinstance(value, (str, int, float)):
            yield Place(path, pattern, value)


def objects(document: Json) -> Iterator[Place]:
    """Every object, as the place of an unknown member. Free-form values are no objects of the protocol."""
    for path, pattern, value in _walk(document, "", ""):
        if isinstance(value, dict) and not FREE & set(pattern.split("/")):
            yield Place(child(path, PLANTED), child(pattern, PLANTED), value, PLANTED)


def _walk(value: Json, path: str, pattern: str) -> Iterator[tuple[str, str, Json]]:
    yield path, pattern, value
    if isinstance(value, dict):
        free = FREE & set(pattern.split("/"))
        for key, member in value.items():
            yield from _walk(member, child(path, key), f"{pattern}/*" if free else child(pattern, key))
    elif isinstance(value, list):
        for index, member in enumerate(value):
            yield from _walk(member, child(path, index), f"{pattern}/{_kind(member)}")


def _kind(member: Json) -> str:
    if not isinstance(member, dict):
        return "*"
    # Roles and forms of content have their own readers.
    names = [str(member[key]) for key in ("type", "role") if isinstance(member.get(key), str)]
    content = member.get("content")
    return "+".join([*names, type(content).__name__] if "role" in member else names) or "*"


def planted(document: Json, place: Place, token: str) -> tuple[Json, frozenset[str]]:
    """The document with another value at a place, and the strings by which to know it again.

    Numbers and booleans are known by nothing: an empty set.
    """
    changed, holder, key = _copied(document, place)
    holder[key], signs = _other(place, token)
    return changed, signs


def removed(document: Json, place: Place) -> Json:
    """The document without what stands at a place."""
    changed, holder, key = _copied(document, place)
    del holder[key]
    return changed


def _copied(document: Json, place: Place) -> tuple[Json, Any, Any]:
    """A copy of the document that may be changed at the place, and there what holds it and its key."""
    changed = holder = copy.copy(document)
    *way, last = steps_of(place.path)
    for step in way:
        key = key_in(holder, step)
        holder[key] = copy.copy(holder[key])
        holder = holder[key]
    return changed, holder, key_in(holder, last)


def key_in(holder: Json, step: str) -> Any:
    return int(step) if isinstance(holder, list) else step


def _other(place: Place, token: str) -> tuple[Json, frozenset[str]]:
    value = place.value
    if place.key is not None:
        return token, frozenset({token})
    if isinstance(value, bool):
        return not value, frozenset()
    if isinstance(value, (int, float)):
        return value + 1 if isinstance(value, int) else value + 0.015625, frozenset()
    head, comma, _ = value.partition(";base64,")
    if comma:
        coded = b64encode(token.encode()).decode()
        return f"{head};base64,{coded}", frozenset({token, coded})
    if value.startswith(("https://", "http://")):
        return value + token, frozenset({token})
    if value.startswith("{"):
        return f'{{"planted":"{token}"}}', frozenset({token})
    # Plain text may go on as base64.
    return token, frozenset({token, b64encode(token.encode()).decode()})


def covered(path: str, losses: Iterable[str]) -> bool:
    """Whether a ledger names the place, something inside it or something around it (but not all of it)."""
    return any(
        loss and (path == loss or path.startswith(f"{loss}/") or loss.startswith(f"{path}/"))
        for loss in losses
    )
