"""Checks of requests, lenient access to members, and citations and images as readers and writers share them."""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal

from dragoman._ir.checks import Checks
from dragoman._ir.media_types import split_data_uri
from dragoman._ir.request import Media, Text
from dragoman._ir.shape import STRING
from dragoman._wire.exceptions import RemoteProtocolError, dotted_path
from dragoman._wire.json import JSON, JSONObject, encode_text, leaves, wrong_type
from dragoman.protocols._openai.citations import write_url_citation


def _wrong_type(path: str, expected: str, value: JSON) -> RemoteProtocolError:
    return missing_field(path) if value is None else wrong_type(path, expected, value)


CHECKS = Checks(_wrong_type)


def required_text(value: JSONObject, name: str, path: str) -> str:
    """Return a string that must not be empty. Raises RemoteProtocolError."""
    found = value.get(name)
    if type(found) is str and found:
        return found
    raise CHECKS.wrong_type(f"{path}/{name}", STRING.name, found or None)


def missing_field(path: str) -> RemoteProtocolError:
    return RemoteProtocolError(
        f"{dotted_path(path)} is required", path=path, code="missing_required_parameter"
    )


def write_citations(part: Text) -> list[JSON]:
    """Return annotations for the citations of another protocol."""
    length = len(part.text)
    return [
        {"type": "url_citation", **write_url_citation(each.url, each.title, each.start, each.end, length)}
        for each in part.sources
    ]


def has_unmapped_citations(part: Text) -> bool:
    """True if the citations have values that are not in the sources read from them."""
    mapped = [[each.url, each.title, each.start, each.end] for each in part.sources]
    return not leaf_values(part.citations, skipped=("type",)) <= leaf_values(mapped)


def leaf_values(value: JSON, skipped: Collection[str] = ()) -> set[str]:
    """Return the strings, numbers and booleans in a value, encoded, without those in members of the skipped names."""
    return {encode_text(leaf) for leaf in leaves(value, skipped) if leaf is not None}


# Members with the content of an image or a file. In the first one it may be a data URI.
_SOURCES = {"image": ("image_url", "file_id"), "file": ("file_data", "file_url", "file_id")}


def read_media(kind: Literal["image", "file"], value: JSONObject, path: str, **fields: JSON) -> Media:
    """Read an image or a file. Raises RemoteProtocolError without any content."""
    names = _SOURCES[kind]
    name = next((name for name in names if type(value.get(name)) is str), None)
    if name is None:
        raise RemoteProtocolError(
            f"{dotted_path(path)} needs {', '.join(names[:-1])} or {names[-1]}, a string",
            path=path,
            code="missing_required_parameter",
        )
    content: str = value[name]
    if name == names[0] and (found := split_data_uri(content)) is not None:
        return Media(kind, "base64", found[1], found[0] or None, path=path, **fields)
    source: Literal["base64", "url", "file_id"] = (
        "base64" if name == "file_data" else "file_id" if name == "file_id" else "url"
    )
    return Media(kind, source, content, path=path, **fields)
