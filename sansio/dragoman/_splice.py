"""Change one top-level value of a JSON object and leave every other byte.

Strategy: a relay must not re-encode (number spelling, escapes and key order feed prompt caches and
signatures). msgspec gives the exact bytes of each top-level value; walking over them finds where the value
stands without looking into the others. A body that the walk cannot follow (a key twice) is scanned token by
token.
"""

from __future__ import annotations

import re

import msgspec

from ._errors import RemoteProtocolError
from ._json import MAX_DOCUMENT_BYTES, encode, kind_of

_SPACE = rb"[ \t\r\n]*"
_KEY = re.compile(_SPACE + rb",?" + _SPACE + rb'"((?:[^"\\]|\\.)*)"' + _SPACE + rb":" + _SPACE, re.DOTALL)
_TOKEN = re.compile(rb'"((?:[^"\\]|\\.)*)"|[\[\]{}]', re.DOTALL)
_VALUE_END = re.compile(rb"[,}\]\s]")

_decode_raw = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode_any = msgspec.json.Decoder().decode


class Peek(msgspec.Struct, frozen=True):
    """What routing needs of a request, without decoding the rest.

    model: "" when the body names none.
    fields: each top-level value as its exact bytes.
    """

    model: str
    stream: bool
    fields: dict[str, msgspec.Raw]


def peek(body: bytes) -> Peek:
    """Look at the top level of a request body.

    Raises RemoteProtocolError (400, or 413 when it is too long) when it is not a JSON object, or when `model`
    or `stream` has the wrong type.
    """
    if len(body) > MAX_DOCUMENT_BYTES:
        raise RemoteProtocolError(f"the request body has more than {MAX_DOCUMENT_BYTES} bytes", status_hint=413)
    try:
        fields = _decode_raw(body)
    except msgspec.ValidationError:
        raise RemoteProtocolError("the request body must be a JSON object", code="invalid_json") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RemoteProtocolError(f"the request body is not valid JSON: {error}", code="invalid_json") from None
    model = _field(fields, "model")
    if model is not None and type(model) is not str:
        raise RemoteProtocolError(f"model must be a string, not {kind_of(model)}", path="/model")
    stream = _field(fields, "stream")
    if stream is not None and type(stream) is not bool:
        raise RemoteProtocolError(f"stream must be a boolean, not {kind_of(stream)}", path="/stream")
    return Peek(model or "", bool(stream), fields)


def _field(fields: dict[str, msgspec.Raw], name: str) -> object:
    raw = fields.get(name)
    if raw is None:
        return None
    try:
        value: object = _decode_any(raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise RemoteProtocolError(f"{name} is not valid JSON: {error}", path=f"/{name}") from None
    return value


def splice_model(body: bytes, peeked: Peek, model: str) -> bytes:
    """The body with another model name. Every byte outside of that one value stays."""
    if peeked.model == model:
        return body
    span = _walk(body, peeked.fields, "model") or _scan(body, b"model")
    if span is None:  # no model in the body: the caller chose one
        start = body.index(b"{") + 1
        comma = b"," if peeked.fields else b""
        return body[:start] + b'"model":' + encode(model) + comma + body[start:]
    start, end = span
    return body[:start] + encode(model) + body[end:]


def _walk(body: bytes, fields: dict[str, msgspec.Raw], name: str) -> tuple[int, int] | None:
    """Where the value of `name` stands, if every value stands where the order of `fields` says."""
    at = body.index(b"{") + 1
    for key, raw in fields.items():
        found = _KEY.match(body, at)
        value = bytes(raw).strip()
        if found is None or not body.startswith(value, found.end()):
            return None
        if key == name:
            return found.end(), found.end() + len(value)
        at = found.end() + len(value)
    return None


def _scan(body: bytes, name: bytes) -> tuple[int, int] | None:
    """Where the last top-level value of `name` stands. JSON readers let the last of two equal keys win."""
    depth = 0
    span = None
    for token in _TOKEN.finditer(body):
        mark = token.group()
        if mark in b"{[":
            depth += 1
        elif mark in b"}]":
            depth -= 1
        elif depth == 1 and token.group(1) == name:
            key = _KEY.match(body, token.start())
            if key is not None:
                span = key.end(), _value_end(body, key.end())
    return span


def _value_end(body: bytes, start: int) -> int:
    """The end of a scalar that starts here. Only `model`, a string or null, is ever asked for."""
    text = _TOKEN.match(body, start)
    if text is not None:
        return text.end()
    end = _VALUE_END.search(body, start)
    return len(body) if end is None else end.start()
