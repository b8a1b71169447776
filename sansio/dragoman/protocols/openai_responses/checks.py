"""Checks of requests, lenient access to members, and citations and images as readers and writers share them."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from dragoman._ir.checks import Checks
from dragoman._ir.request import Citation, Media, Text
from dragoman._ir.shape import STRING, Shape, extra_members
from dragoman._wire.exceptions import RemoteProtocolError, dotted_path
from dragoman._wire.json import JSON, JSONObject, encode_text, text_or_none, wrong_type
from dragoman.protocols.openai_responses.shapes import IMPLIED_VALUES


def _wrong_type(path: str, expected: str, value: JSON) -> RemoteProtocolError:
    return missing_field(path) if value is None else wrong_type(path, expected, value)


CHECKS = Checks(_wrong_type)


def int_or_none(value: JSON) -> int | None:
    return value if type(value) is int else None


def object_or_empty(value: JSON) -> JSONObject:
    return value if type(value) is dict else {}


def objects_in(value: JSON) -> list[JSONObject]:
    """Return the objects of a list, [] for a value that is no list."""
    return [each for each in value if type(each) is dict] if type(value) is list else []


def required_text(value: JSONObject, name: str, path: str) -> str:
    """Return a string that must not be empty. Raises RemoteProtocolError."""
    found: str | None = CHECKS.optional(value, name, path, STRING)
    if not found:
        raise missing_field(f"{path}/{name}")
    return found


def read_extra(value: JSONObject, shape: Mapping[str, Shape]) -> JSONObject | None:
    """Return the members that have no place in the document, without those that it implies."""
    extra = extra_members(value, shape)
    if extra is None:
        return None
    return {name: member for name, member in extra.items() if member != IMPLIED_VALUES.get(name)} or None


def missing_field(path: str) -> RemoteProtocolError:
    return RemoteProtocolError(
        f"{dotted_path(path)} is required", path=path, code="missing_required_parameter"
    )


def invalid_value(path: str, expected: str) -> RemoteProtocolError:
    return RemoteProtocolError(f"{dotted_path(path)} must be {expected}", path=path, code="invalid_value")


def read_citations(annotations: JSON) -> tuple[Citation, ...]:
    """Return the web pages that annotations cite. Other kinds name files in the vendor's store."""
    found = []
    for each in objects_in(annotations):
        url = text_or_none(each.get("url"))
        if url is not None:
            start, end = int_or_none(each.get("start_index")), int_or_none(each.get("end_index"))
            found.append(Citation(url, text_or_none(each.get("title")), start, end))
    return tuple(found)


def write_url_citation(
    url: str, title: str | None, start: int | None, end: int | None, length: int
) -> JSONObject:
    """Return a `url_citation`. All its fields are required, so a span without an end runs to `length` of the text."""
    return {
        "type": "url_citation",
        "url": url,
        "title": title or url,
        "start_index": start or 0,
        "end_index": length if end is None else end,
    }


def write_citations(part: Text) -> list[JSON]:
    """Return annotations for the citations of another protocol."""
    return [
        write_url_citation(each.url, each.title, each.start, each.end, len(part.text))
        for each in part.sources
    ]


def has_unmapped_citations(part: Text) -> bool:
    """True if the citations have values that are not in the sources read from them."""
    mapped = [[each.url, each.title, each.start, each.end] for each in part.sources]
    return not leaf_values(part.citations, skipped=("type",)) <= leaf_values(mapped)


def leaf_values(value: JSON, skipped: Collection[str] = ()) -> set[str]:
    """Return the strings, numbers and booleans in a value, encoded, without those in members of the skipped names."""
    if type(value) is dict:
        value = [member for name, member in value.items() if name not in skipped]
    if type(value) is list:
        return set[str]().union(*[leaf_values(each, skipped) for each in value])
    return set() if value is None else {encode_text(value)}


def read_image(value: JSONObject, path: str, **fields: JSON) -> Media:
    """Read an image from `image_url` (a URL or a data URI) or `file_id`. Raises RemoteProtocolError without one."""
    url = value.get("image_url")
    if type(url) is str:
        media_type, data = split_data_uri(url)
        if data is not None:
            return Media("image", "base64", data, media_type, path=path, **fields)
        return Media("image", "url", url, path=path, **fields)
    file_id = value.get("file_id")
    if type(file_id) is str:
        return Media("image", "file_id", file_id, path=path, **fields)
    raise RemoteProtocolError(
        f"{dotted_path(path)} needs image_url or file_id, a string",
        path=path,
        code="missing_required_parameter",
    )


def split_data_uri(text: str) -> tuple[str | None, str | None]:
    """Return media type and base64 text of a data URI, (None, None) for anything else."""
    if text[:5] != "data:":
        return None, None
    head, comma, data = text[5:].partition(",")
    if not comma or not head.endswith(";base64"):
        return None, None
    return head.removesuffix(";base64") or None, data
