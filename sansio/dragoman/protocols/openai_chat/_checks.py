"""What the readers of requests share: checks of JSON types, and how unknown fields and cache marks are kept."""

from __future__ import annotations

from dragoman._errors import RemoteProtocolError, dotted
from dragoman._json import JSON, JSONObject, kind_of
from dragoman._request import CacheMark

from ._tables import TTLS


def mark_of(value: JSONObject, path: str) -> CacheMark | None:
    """The cache mark of a part, message or tool, in the official form or in the one for Claude models."""
    for key in ("prompt_cache_breakpoint", "cache_control"):
        mark = value.get(key)
        if type(mark) is dict:
            return CacheMark(f"{path}/{key}", TTLS.get(str(mark.get("ttl"))))
    return None


def nested(extra: JSONObject | None, member: str, unknown: JSONObject | None) -> JSONObject | None:
    """Unknown fields of an object and of its one member, in the shape in which they stood."""
    return extra if unknown is None else {**(extra or {}), member: unknown}


def text_of(value: JSON, path: str) -> str:
    if type(value) is str:
        return value
    raise wrong(path, "a string", value)


def wrong(path: str, expected: str, value: JSON) -> RemoteProtocolError:
    return RemoteProtocolError(
        f"{dotted(path)} must be {expected}, not {kind_of(value) if value != '' else 'empty'}",
        path=path,
        code="invalid_type",
    )
