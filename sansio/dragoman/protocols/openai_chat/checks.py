"""What several modules use: checks of JSON types, cache marks, arguments of calls."""

from __future__ import annotations

from dragoman._ir.checks import Checks
from dragoman._ir.tools import CacheMark
from dragoman._wire.json import JSON, JSONObject, encode_text, wrong_type
from dragoman.protocols.openai_chat.tables import CACHE_MARKS

# Checks of requests. They raise RemoteProtocolError (400).
CHECKS = Checks(wrong_type)


def read_cache_mark(value: JSONObject, path: str) -> CacheMark | None:
    """Return the cache mark of a part, message or tool, in the official form or the one for Claude models."""
    for key in CACHE_MARKS:
        mark = value.get(key)
        if type(mark) is dict:
            return CacheMark(f"{path}/{key}", _LIFETIMES.get(str(mark.get("ttl"))))
    return None


# The lifetimes of both forms, because clients mix them up.
_LIFETIMES = {name: each for _, lifetimes in CACHE_MARKS.values() for each, name in lifetimes.items()}


def write_cache_mark(mark: CacheMark, key: str) -> JSONObject:
    """Return a cache mark in the form of the member `key`."""
    members, lifetimes = CACHE_MARKS[key]
    return dict(members) if mark.ttl is None else {**members, "ttl": lifetimes[mark.ttl]}


def arguments_text(value: JSON) -> str:
    """Return a call's arguments as text. Some clients and servers send the object itself, or null for no arguments."""
    if type(value) is str:
        return value
    return "" if value is None else encode_text(value)
