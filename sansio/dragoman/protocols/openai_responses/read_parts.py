"""Content parts of a client's items -> parts of the document.

Strategy: the two or three shapes that nearly every part has are tried first; a part of an unknown type rides along
whole.
"""

from __future__ import annotations

from dragoman._ir.request import CacheMark, Media, OpaquePart, Part, Refusal, Text
from dragoman._wire.exceptions import RemoteProtocolError, dotted
from dragoman._wire.json import JSON, JSONObject
from dragoman.protocols.openai_responses import tables, wire
from dragoman.protocols.openai_responses.citations import sources_of
from dragoman.protocols.openai_responses.common import (
    extra_of,
    missing,
    optional,
    text_of,
    wrong_type,
)
from dragoman.protocols.openai_responses.wire import ORIGIN

_TEXT_PARTS = frozenset(("input_text", "output_text", "text"))


def read_parts(content: list[JSON], path: str) -> tuple[Part, ...]:
    """The parts of a list at `path`. Raises RemoteProtocolError for one that is no part."""
    if len(content) == 1:  # as nearly always
        return (_read_part(content[0], path + "/0"),)
    return tuple([_read_part(part, f"{path}/{index}") for index, part in enumerate(content)])


def _read_part(part: JSON, path: str) -> Part:
    if type(part) is not dict:
        raise wrong_type(path, "an object", part)
    kind = part.get("type")
    if type(kind) is not str:
        raise missing(f"{path}/type") if kind is None else wrong_type(f"{path}/type", "a string", kind)
    if kind in _TEXT_PARTS:
        text = part.get("text")
        if type(text) is not str:
            at = f"{path}/text"
            raise missing(at) if text is None else wrong_type(at, "a string", text)
        if len(part) == 2 or (len(part) == 3 and part.get("annotations") == []):
            return Text(
                text, None, None, None, path
            )  # the second is what servers answer and clients send back
        return _read_text(text, part, path)
    if kind == "input_image":
        return _read_image(part, path)
    if kind == "input_file":
        return _read_file(part, path)
    if kind == "refusal" and type(part.get("refusal")) is str:
        return Refusal(part["refusal"], extra_of(part, wire.REFUSAL), path)
    return OpaquePart(ORIGIN, kind, part, path)


def _read_text(text: str, part: JSONObject, path: str) -> Text:
    mark, extra = _read_mark(part, path, wire.OUTPUT_TEXT)
    if extra and not extra.get("logprobs", True):
        # Empty: says nothing.
        extra = {name: value for name, value in extra.items() if name != "logprobs"} or None
    annotations = part.get("annotations") or None
    return Text(text, mark, annotations, extra, path, sources_of(annotations))


def _read_mark(
    part: JSONObject, path: str, known: frozenset[str]
) -> tuple[CacheMark | None, JSONObject | None]:
    """The cache mark, and the fields beside the known ones. A mark that says more is among those, whole."""
    extra = extra_of(part, known)
    mark = part.get("prompt_cache_breakpoint")
    if type(mark) is not dict:
        return None, extra
    ttl = text_of(mark.get("ttl")) or ""
    if mark not in tables.PLAIN_MARKS:
        extra = {**(extra or {}), "prompt_cache_breakpoint": mark}
    return CacheMark(f"{path}/prompt_cache_breakpoint", tables.CACHE_TTL.get(ttl)), extra


def image_of(value: JSONObject, path: str, **fields: JSON) -> Media:
    """An image that is named by `image_url` (a URL or a data URI) or by `file_id`. Raises when it is not."""
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
        f"{dotted(path)} needs image_url or file_id, a string", path=path, code="missing_required_parameter"
    )


def _read_image(part: JSONObject, path: str) -> Media:
    detail = optional(part, path, "detail")
    mark, extra = _read_mark(part, path, wire.INPUT_IMAGE)
    return image_of(part, path, detail=detail, cache=mark, extra=extra)


def _read_file(part: JSONObject, path: str) -> Media:
    name = optional(part, path, "filename")
    detail = optional(part, path, "detail")
    mark, extra = _read_mark(part, path, wire.INPUT_FILE)
    data = part.get("file_data")
    if type(data) is str:
        media_type, encoded = split_data_uri(data)
        bare = data if encoded is None else encoded
        return Media("file", "base64", bare, media_type, name, detail, cache=mark, extra=extra, path=path)
    for field in ("file_url", "file_id"):
        value = part.get(field)
        if type(value) is str:
            source = "url" if field == "file_url" else "file_id"
            return Media(
                "file",
                source,  # type: ignore[arg-type]
                value,
                filename=name,
                detail=detail,
                cache=mark,
                extra=extra,
                path=path,
            )
    raise RemoteProtocolError(
        f"{dotted(path)} needs file_data, file_url or file_id, a string",
        path=path,
        code="missing_required_parameter",
    )


def split_data_uri(text: str) -> tuple[str | None, str | None]:
    """Media type and base64 text of a data URI, (None, None) for anything else."""
    if text[:5] != "data:":
        return None, None
    head, comma, data = text[5:].partition(",")
    if not comma or not head.endswith(";base64"):
        return None, None
    return head.removesuffix(";base64") or None, data
