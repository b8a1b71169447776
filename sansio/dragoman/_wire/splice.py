"""The top level of a JSON object: read two values of it, replace one, and leave every other byte.

A relay must not encode a body again, because the spelling of numbers, escapes and the order of keys feed prompt caches
and signatures. msgspec returns the exact bytes of each top-level value; walking over them finds the place of a value
without looking into the others. A body that the walk cannot follow (a key twice, a lone surrogate) is scanned token by
token.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import msgspec

from dragoman._wire.exceptions import RemoteProtocolError
from dragoman._wire.json import (
    JSON,
    MAX_DOCUMENT_BYTES,
    decode,
    decode_object,
    decode_value,
    encode,
    kind_of,
)
from dragoman._wire.limits import MEMBERS, MODEL_CHARACTERS, check_values, marks

_SPACE = rb"[ \t\r\n]*+"
# Possessive, so that a string of many megabytes costs no memory.
_STRING = rb'"([^"\\]*+(?:\\.[^"\\]*+)*+)"'
_KEY = re.compile(_SPACE + rb",?" + _SPACE + _STRING + _SPACE + rb":" + _SPACE, re.DOTALL)
_END = re.compile(_SPACE + rb"\}" + _SPACE + rb"\Z")

_NESTING = {b"{": 1, b"[": 1, b"}": -1, b"]": -1}

_decode_raw = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode_items = msgspec.json.Decoder(list[msgspec.Raw]).decode


class RequestHead(msgspec.Struct, frozen=True):
    """The part of a request body that routing needs. The rest is not decoded.

    Attributes:
        model: The requested model, "" if the body has none.
        stream: The body requests a stream.
        fields: The exact bytes of each top-level value.
    """

    model: str
    stream: bool
    fields: dict[str, msgspec.Raw]

    def __repr__(self) -> str:
        return f"<RequestHead of {self.model} with {', '.join(self.fields)}>"


def peek(body: bytes, model_in_path: str = "") -> RequestHead:
    """Read the top level of a request body. model_in_path: the model that the request's path names, if it does.

    Raises RemoteProtocolError: 400 if the body is not a JSON object or `model` or `stream` has the wrong type, 413 if
    it is too long.
    """
    if len(body) > MAX_DOCUMENT_BYTES:
        raise RemoteProtocolError(f"the request body has more than {MAX_DOCUMENT_BYTES} bytes", status=413)
    check_values(body)
    try:
        fields = _decode_raw(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        # msgspec refuses lone surrogates, decode_object() does not. It raises for everything else.
        decode_object(body, "the request body")
        fields = {key: msgspec.Raw(body[start:end]) for key, start, end in _members(body)}
    MEMBERS.check(len(fields), "", "the request body")
    model = _field(fields, "model") if "model" in fields else None
    if model is not None and type(model) is not str:
        raise RemoteProtocolError(f"model must be a string, not {kind_of(model)}", path="/model")
    MODEL_CHARACTERS.check(max(len(model or ""), len(model_in_path)), "/model")
    stream = _field(fields, "stream") if "stream" in fields else None
    if stream is not None and type(stream) is not bool:
        raise RemoteProtocolError(f"stream must be a boolean, not {kind_of(stream)}", path="/stream")
    return RequestHead(model_in_path or model or "", bool(stream), fields)


def _field(fields: dict[str, msgspec.Raw], name: str) -> object:
    try:
        return decode_value(fields[name])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    try:
        value: object = decode(
            bytes(fields[name])
        )  # it decodes lone surrogates, and says why others are refused
    except RemoteProtocolError as error:
        raise RemoteProtocolError(f"{name} is not valid JSON: {error.message}", path=f"/{name}") from None
    return value


def splice_model(body: bytes, request_head: RequestHead, model: str) -> bytes:
    """Return the body with another model name. Every byte outside of that one value stays."""
    if model and "model" not in request_head.fields:  # the caller, or the path, has chosen one
        start = body.index(b"{") + 1
        comma = b"," if request_head.fields else b""
        return body[:start] + b'"model":' + encode(model) + comma + body[start:]
    # Not the head's model, which may be the path's.
    if not model or _field(request_head.fields, "model") == model:
        return body
    return splice_member(body, request_head, "model", model)


def splice_member(body: bytes, request_head: RequestHead, name: str, value: JSON) -> bytes:
    """Return the body with another value of a member that it has. Every byte outside of that one value stays."""
    start, end = _walk(body, request_head.fields, name) or _scan(body, name)
    return body[:start] + encode(value) + body[end:]


def splice_items(text: bytes, now: list[JSON], before: list[JSON]) -> bytes:
    """Return a JSON array with the items of `now`. Those that are the same objects as in `before` keep their bytes.

    before: the items of `text`, of which some may have been changed in place.
    """
    try:
        spelled = [bytes(raw).strip() for raw in _decode_items(text)]
        values = decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return encode(now)  # msgspec refuses lone surrogates
    gaps: list[bytes] = []  # before each item, and behind the last one
    at = 0
    for each in spelled:
        start = text.index(each, at)
        gaps.append(text[at:start])
        at = start + len(each)
    numbers = {id(item): number for number, item in enumerate(before)}
    out: list[bytes] = []
    for item in now:
        number = numbers.get(id(item), -1)
        gap = gaps[number] if number > 0 else b","
        same = number >= 0 and values[number] == item
        out += (gap if out else gaps[0], spelled[number] if same else encode(item))
    return b"".join([*out, text[at:]]) if out else b"[]"


def all_members(body: bytes, request_head: RequestHead) -> Iterable[tuple[str, bytes]]:
    """Give name and value of each top-level member, also of those that a later one with the same name replaces."""
    fields = request_head.fields
    if not fields or _walk(body, fields, next(reversed(fields))) is not None:
        return ((key, bytes(raw)) for key, raw in fields.items())
    return ((key, body[start:end]) for key, start, end in _members(body))


def _walk(body: bytes, fields: dict[str, msgspec.Raw], name: str) -> tuple[int, int] | None:
    """Return the span of the value of `name`, None if the values are not in the order of `fields`."""
    at = body.index(b"{") + 1
    span = None
    for key, raw in fields.items():
        found = _KEY.match(body, at)
        value = bytes(raw).strip()
        if found is None or not body.startswith(value, found.end()):
            return None
        at = found.end() + len(value)
        if key == name:
            span = found.end(), at
    # Members are left if a key is there twice, even with the same value: readers take the last one.
    return None if _END.match(body, at) is None else span


def _scan(body: bytes, name: str) -> tuple[int, int]:
    """Return the span of the last value of `name`, because JSON readers take the last of two equal keys."""
    return [(start, end) for key, start, end in _members(body) if key == name][-1]


def _members(body: bytes) -> Iterator[tuple[str, int, int]]:
    """Give key, and start and end of the value, of the top-level members of an object that has some."""
    depth = at = 0
    key = ""
    for mark in marks(body):
        text, end = mark.group(), mark.start()
        if depth == 1 and text in b",:}":
            part = body[at:end]
            if text == b":":
                key = decode(part)
            else:
                yield key, end - len(part.lstrip()), at + len(part.rstrip())
        depth += _NESTING.get(text, 0)
        if depth == 1 and text in b"{,:":
            at = mark.end()
