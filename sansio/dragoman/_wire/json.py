"""JSON texts, decoded and encoded with limits.

msgspec decodes to plain builtins, so unknown keys survive, and encodes without spaces and without sorting, so the
same value always gives the same bytes. Two things that msgspec refuses are handled here: lone surrogates (models do
cut emoji in half) are left to the standard library, and nesting that exhausts the stack is an ordinary error.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator
from typing import Any, TypeAlias, cast

import msgspec

from dragoman._wire.exceptions import RemoteProtocolError, dotted_path
from dragoman._wire.limits import (
    DIGITS,
    LIMIT_EXCEEDED,
    SHORTEST,
    check_containers,
    check_values,
    may_have_large_containers,
)

JSON: TypeAlias = Any  # what a JSON text can hold: the only Any in the core
JSONObject: TypeAlias = dict[str, JSON]

# One request body or one whole response. The largest legitimate bodies are requests with inline images and PDFs:
# Anthropic accepts up to 32 MB (platform.claude.com/docs/en/api/errors, read 2026-11-22), OpenAI more.
MAX_DOCUMENT_BYTES = 64 * 1024 * 1024

# The largest integer that is taken for a count: a thousand times the tokens of any context. Millions of them add up to
# 64 bits.
MAX_COUNT = 10_000_000_000


def _finite(digits: str) -> float:
    value = float(digits)
    if value in (math.inf, -math.inf):
        raise ValueError("out of range")  # it could not be written again
    return value


# Of values of any type. msgspec 0.22 takes 9 us for a number such as 1e308 or 1e-310, thirty times what `float` does,
# and megabytes of them are one call, during which no other thread runs.
decode_value = msgspec.json.Decoder(float_hook=_finite).decode
_ENCODER = msgspec.json.Encoder()
_encode = _ENCODER.encode


def decode(data: bytes) -> JSON:
    """Decode one JSON text.

    Raises RemoteProtocolError if it is no JSON text, is nested too deep, is longer than MAX_DOCUMENT_BYTES, or has more
    in it than `_wire.limits` allows. The message has the reason and the byte, and never quotes the text.
    """
    size = len(data)
    if size > MAX_DOCUMENT_BYTES:
        raise RemoteProtocolError(
            f"the JSON text has {size} bytes; at most {MAX_DOCUMENT_BYTES} are accepted", status=413
        )
    if size > SHORTEST:  # unlike an event of a stream, for which each call matters
        check_values(data)
    try:
        value = decode_value(data)
    except RecursionError:
        raise too_deep() from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        value = _decode_leniently(data, error)
    if size > SHORTEST and may_have_large_containers(data):
        check_containers(value)
    return value


def decode_object(data: bytes, what: str) -> JSONObject:
    """Decode a text that must be an object. `what` is its name in errors, e.g. "the request body"."""
    try:
        value = decode(data)
    except RemoteProtocolError as error:
        if error.code == LIMIT_EXCEEDED:
            raise
        raise RemoteProtocolError(
            f"{what} is not valid JSON: {error.message}", status=error.status, code="invalid_json"
        ) from None
    if type(value) is not dict:
        raise RemoteProtocolError(f"{what} must be a JSON object, not {kind_of(value)}", code="invalid_json")
    return value


def object_or_none(data: bytes) -> JSONObject | None:
    """Return the object that a text is, None if it is none, or no JSON."""
    try:
        value = decode(data)
    except RemoteProtocolError:
        return None
    return value if type(value) is dict else None


def encode(value: JSON) -> bytes:
    """Encode as compact JSON in UTF-8, with keys in the order of the mapping."""
    try:
        return _encode(value)
    except UnicodeEncodeError:
        # A lone surrogate has no UTF-8 form, only a \u escape.
        import json  # see _decode_leniently

        return json.dumps(value, separators=(",", ":"), ensure_ascii=True, default=_plain).encode("ascii")


# Longer strings are encoded in parts, because other threads run between two calls, which take up to 7 ms.
LONG_TEXT = 1024 * 1024


def encode_long(value: JSON) -> bytes:
    """Encode a value with long strings. They may be ten objects and arrays deep, as those of all protocols."""
    return encode(_with_long_strings_encoded(value, 10))


def _with_long_strings_encoded(value: JSON, levels: int) -> JSON:
    if type(value) is str and len(value) > LONG_TEXT:
        parts = [encode(value[start : start + LONG_TEXT])[1:-1] for start in range(0, len(value), LONG_TEXT)]
        return msgspec.Raw(b"".join((b'"', *parts, b'"')))
    if type(value) is dict and levels:
        return {
            name: member  # nearly all are short strings, and a call takes longer
            if type(member) is str and len(member) <= LONG_TEXT
            else _with_long_strings_encoded(member, levels - 1)
            for name, member in value.items()
        }
    if type(value) is list and levels:
        return [_with_long_strings_encoded(element, levels - 1) for element in value]
    return value


def encode_strings(texts: list[str]) -> list[bytes]:
    """Encode each of some strings."""
    try:
        return list(map(_encode, texts))
    except UnicodeEncodeError:
        return list(map(encode, texts))


def encode_lines(values: list[JSON]) -> bytes:
    """Encode each of some values in a line, which has an end."""
    try:
        return _ENCODER.encode_lines(values)
    except UnicodeEncodeError:
        return b"".join([encode(value) + b"\n" for value in values])


def encode_text(value: JSON) -> str:
    """Encode as str, for JSON inside a JSON string, such as tool arguments."""
    try:
        return _encode(value).decode()
    except UnicodeEncodeError:
        return encode(value).decode()


class ObjectEnd(msgspec.Struct):
    """Finds the end of the JSON object that a text is, piece by piece, without looking at a piece twice.

    Attributes:
        reached: The text so far is one complete object.
    """

    reached: bool = False
    _pieces: list[str] = []
    _depth: int = 0
    _in_string: bool = False
    _skips: bool = False  # the next character is escaped
    _is_over: bool = False  # something follows the object, or it is none

    def feed(self, text: str) -> None:
        """Take the next piece."""
        if self._is_over or not text:
            return
        if self.reached:
            self._is_over = bool(text.strip(_BLANKS))
            self.reached = not self._is_over
            return
        self._pieces.append(text)
        at = int(self._skips)
        self._skips = False
        while found := (_IN_STRING if self._in_string else _OUTSIDE).search(text, at):
            mark, at = found.group(), found.end()
            if mark == '"':
                self._in_string = not self._in_string
            elif mark == "\\":
                self._skips = at == len(text)
                at += 1
            else:
                self._depth += 1 if mark in "{[" else -1
                if self._depth <= 0:
                    self.reached = is_object_text("".join(self._pieces))
                    self._is_over = not self.reached
                    self._pieces.clear()
                    return


_BLANKS = " \t\r\n"
_IN_STRING = re.compile(r'["\\]')
_OUTSIDE = re.compile(r'["{}\[\]]')


def is_object_text(text: str) -> bool:
    """True if a text is one complete JSON object, as tool arguments must be in the end."""
    try:
        # A text with a lone surrogate is complete as well: decode() accepts it.
        return type(decode(text.encode("utf-8", "surrogatepass"))) is dict
    except RemoteProtocolError:
        return False


def kind_of(value: object) -> str:
    """Return the JSON name of a value's type, for error messages."""
    if value is None:
        return "null"
    if value == "":
        return "an empty string"
    for types, name in _KINDS:
        if isinstance(value, types):
            return name
    return type(value).__name__


_KINDS: tuple[tuple[type | tuple[type, ...], str], ...] = (
    (bool, "a boolean"),
    ((int, float), "a number"),
    (str, "a string"),
    (dict, "an object"),
    (list, "an array"),
)


def object_or_empty(value: JSON) -> JSONObject:
    return value if type(value) is dict else {}


def objects_in(value: JSON) -> list[JSONObject]:
    """Return the objects of a list, [] for a value that is no list."""
    return [each for each in value if type(each) is dict] if type(value) is list else []


def read_count(value: JSON, *path: str) -> int | None:
    """Return the count at a path of members: an integer from 0 to MAX_COUNT, or a value that stands for one.

    None without it.
    """
    for name in path:
        value = value.get(name) if type(value) is dict else None
    if type(value) is not int and value is not None:
        value = read_integer(value)
    return value if type(value) is int and 0 <= value <= MAX_COUNT else None


def read_integer(value: JSON) -> JSON:
    """Return the integer that a float or a text equals, any other value as it is."""
    value = read_number(value)
    return int(value) if type(value) is float and value.is_integer() else value


def read_number(value: JSON) -> JSON:
    """Return the number that a text is in JSON, any other value as it is."""
    if type(value) is not str:
        return value
    try:
        found = decode(value.encode("utf-8", "replace"))
    except RemoteProtocolError:
        return value
    return found if type(found) is int or type(found) is float else value


def leaves(value: JSON, skipped: Collection[str] = ()) -> Iterator[JSON]:
    """Give the values in a value that are neither objects nor arrays, without those in members of the skipped names."""
    left = [value]
    while left:
        value = left.pop()
        if isinstance(value, dict):
            left += [member for name, member in value.items() if name not in skipped]
        elif isinstance(value, (list, tuple)):
            left += value
        else:
            yield value


def size_up_to(most: int, value: JSON) -> int:
    """Return about as many bytes as the JSON text of a value has, at least, or a number above `most` if it has more.

    To encode it takes a tenth of a second if it is large, and this a few milliseconds at most.
    """
    size, left = 0, [value]
    while left and size <= most:
        value = left.pop()
        size += 2
        if isinstance(value, dict):
            size += sum(map(len, value))
            left += value.values()
        elif isinstance(value, (list, tuple)):
            left += value
        elif isinstance(value, (str, msgspec.Raw)):
            size += len(value)
    return size


def wrong_type(path: str, expected: str, value: JSON) -> RemoteProtocolError:
    """Return the error (400) for a value at `path`. expected: what it should be, such as "a string"."""
    return RemoteProtocolError(
        f"{dotted_path(path)} must be {expected}, not {kind_of(value)}", path=path, code="invalid_type"
    )


def invalid_value(path: str, expected: str) -> RemoteProtocolError:
    """Return the error (400) for a value at `path` of the right type. expected: what it should be."""
    return RemoteProtocolError(f"{dotted_path(path)} must be {expected}", path=path, code="invalid_value")


def text_or_none(value: JSON) -> str | None:
    """Return a string that is not empty, None for any other value. Servers send null, "" and other types."""
    return value if type(value) is str and value else None


def _decode_leniently(data: bytes, error: Exception) -> JSON:
    """Decode lone surrogates, which only the standard library accepts. Everything else raises msgspec's error."""
    if b"\\u" in data:
        import json  # takes longer to load than a protocol does, and such texts are rare

        try:
            # As str, because json.loads would guess UTF-16 and skip a BOM in bytes.
            return json.loads(data.decode("utf-8"), parse_constant=_no_constant, parse_float=_finite)
        except (ValueError, RecursionError):
            pass
    if "out of range" in str(error):
        raise RemoteProtocolError(
            f"a number is out of range: at most {DIGITS.most} digits, and 1e308, are accepted"
        )
    if "utf-8" in str(error).lower():  # of either class: UnicodeDecodeError is raised by msgspec before 0.23
        raise RemoteProtocolError(f"the text is not UTF-8 (byte {_first_bad_byte(data)})") from None
    raise RemoteProtocolError(str(error)[:200])


def _no_constant(name: str) -> JSON:
    raise ValueError(name)  # NaN and Infinity are no JSON


def _first_bad_byte(data: bytes) -> int:
    """Return the first byte that is no UTF-8. msgspec counts from the start of the string it is in."""
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        return error.start
    return len(data)


def _plain(value: object) -> JSON:
    """Convert raw JSON and structs for the standard library's encoder: no other value here needs that."""
    if isinstance(value, msgspec.Struct):
        return cast(JSON, msgspec.to_builtins(value))
    import json  # which its caller has loaded

    return json.loads(bytes(cast(msgspec.Raw, value)))


def too_deep() -> RemoteProtocolError:
    """Return the error for a RecursionError: the value is nested deeper than the stack allows.

    That is hundreds of levels or, from Python 3.13 on, thousands: ten times what any schema in the field needs. Our
    own count would cost as much as decoding the text.
    """
    return RemoteProtocolError("the JSON text is nested too deep")
