"""Checks that the readers share, in the words of the vendor's validator: `messages.0.content: Field required`."""

from __future__ import annotations

from dragoman._ir.checks import Checks
from dragoman._ir.shape import ARRAY, BOOLEAN, INTEGER, NUMBER, STRING
from dragoman._ir.tools import CacheMark
from dragoman._wire.exceptions import RemoteProtocolError
from dragoman._wire.json import JSON, JSONObject
from dragoman.protocols.anthropic_messages.tables import CACHE_TTLS


def invalid_request(path: str, message: str) -> RemoteProtocolError:
    """Return an error (400) in the form of the vendor's validator."""
    return RemoteProtocolError(f"{path[1:].replace('/', '.')}: {message}", path=path, code="invalid_request")


# The words for types, where they are other ones than ours.
_TYPE_NAMES = {
    STRING.name: "a valid string",
    BOOLEAN.name: "a valid boolean",
    INTEGER.name: "a valid integer",
    NUMBER.name: "a valid number",
    ARRAY.name: "a valid list",
}


def wrong_type(path: str, type_name: str, value: JSON) -> RemoteProtocolError:
    """Return the error (400) for a value that is missing or not of a type."""
    return invalid_request(
        path,
        "Field required" if value is None else f"Input should be {_TYPE_NAMES.get(type_name, type_name)}",
    )


CHECKS = Checks(wrong_type)


def string_or_none(value: JSON) -> str | None:
    """Return a string, even an empty one, None for any other value."""
    return value if type(value) is str else None


def text_or_empty(value: JSON) -> str:
    """Return a text as a key of a table: "" for everything else."""
    return value if type(value) is str else ""


def read_cache_mark(value: JSONObject, path: str) -> CacheMark | None:
    """Return the cache mark of a block, a tool or the body."""
    if value.get("cache_control") is None:
        return None  # as nearly always
    mark = CHECKS.object(value, "cache_control", path)
    return CacheMark(f"{path}/cache_control", CACHE_TTLS.get(text_or_empty(mark.get("ttl"))))


def cited_url(citation: JSONObject) -> str | None:
    """Return the URL of the cited web page, None if it is none. A search result of the client may have one as well."""
    url = citation.get("url")
    if type(url) is str:
        return url
    source = citation.get("source")
    return source if type(source) is str and source.startswith(("https://", "http://")) else None


def cited_title(citation: JSONObject) -> str | None:
    return string_or_none(citation.get("title", citation.get("document_title")))
