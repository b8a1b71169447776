"""What the readers of requests share: checks of JSON types, and how unknown fields and cache marks are kept."""

from __future__ import annotations

from dragoman._ir.request import CacheMark
from dragoman._wire.exceptions import RemoteProtocolError, dotted
from dragoman._wire.json import JSON, JSONObject, kind_of
from dragoman.protocols.openai_chat import wire
from dragoman.protocols.openai_chat.tables import BREAKPOINT_TTL, CACHE_CONTROL_TTL, TTLS


def marked(value: JSONObject, path: str, known: frozenset[str]) -> tuple[CacheMark | None, JSONObject | None]:
    """The cache mark of a part, message or tool, in the official form or in the one for Claude models, and the
    members beside the known ones. A mark that says more than its ttl is among those, as it came.
    """
    found: CacheMark | None = None
    extra = wire.unknown(value, known)
    if "cache_control" not in value and "prompt_cache_breakpoint" not in value:
        return None, extra  # as nearly always
    for key, plain in _PLAIN_MARKS.items():
        mark = value.get(key)
        if type(mark) is not dict:
            continue
        if found is not None or {**plain, **mark, "ttl": None} != plain or mark.get("ttl") not in _TTLS[key]:
            extra = {**(extra or {}), key: mark}
        if found is None:
            found = CacheMark(f"{path}/{key}", TTLS.get(str(mark.get("ttl"))))
    return found, extra


# What each form of mark says beside its ttl, and the ttls that it has.
_PLAIN_MARKS: dict[str, JSONObject] = {
    "prompt_cache_breakpoint": {"mode": "explicit", "ttl": None},
    "cache_control": {"type": "ephemeral", "ttl": None},
}
_TTLS: dict[str, tuple[str | None, ...]] = {
    "prompt_cache_breakpoint": (None, *BREAKPOINT_TTL.values()),
    "cache_control": (None, *CACHE_CONTROL_TTL.values()),
}


def nested(extra: JSONObject | None, member: str, unknown: JSONObject | None) -> JSONObject | None:
    """Unknown fields of an object and of its one member, in the shape in which they stood."""
    return extra if unknown is None else {**(extra or {}), member: unknown}


def text_of(value: JSON, path: str) -> str:
    if type(value) is str:
        return value
    raise wrong(path, "a string", value)


def optional_text(value: JSONObject, name: str, path: str) -> str | None:
    """A text that may be absent or null."""
    found = value.get(name)
    return None if found is None else text_of(found, f"{path}/{name}")


def wrong(path: str, expected: str, value: JSON) -> RemoteProtocolError:
    return RemoteProtocolError(
        f"{dotted(path)} must be {expected}, not {kind_of(value) if value != '' else 'empty'}",
        path=path,
        code="invalid_type",
    )
