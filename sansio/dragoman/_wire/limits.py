"""How many things a peer may send: one table for requests and responses of all protocols.

Bytes are limited where they are received. These rows limit counts, because a few megabytes can hold millions of small
things, each of which costs more than its bytes. A row is either a vendor's own limit or at least ten times what
recorded traffic shows, so that no honest peer meets one. docs/security.md shows the table.

What has no row of its name, such as messages, tools and tool calls, counts as elements of its array. In a response that
is translated, each block counts for BLOCKS as well (`_ir.event_order`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, TypeAlias

import msgspec

from dragoman._wire.exceptions import RemoteProtocolError, child, dotted_path

# The code of the errors below.
LIMIT_EXCEEDED = "limit_exceeded"


class CountLimit(msgspec.Struct, frozen=True):
    """The largest number of some things.

    Attributes:
        things: The counted things, as an error says it, "elements".
        most: That are accepted.
        reason: Why this number.
        where: In what they are counted, for the table in the docs.
    """

    things: str
    most: int
    reason: str
    where: str = ""

    def check(self, count: int, path: str, what: str = "") -> None:
        """Raise RemoteProtocolError if there are too many. what: has them, by default the value at the path."""
        if count > self.most:
            raise self.error(count, path, what)

    def error(self, count: int | str, path: str, what: str = "") -> RemoteProtocolError:
        """Return the error (400) for so many of them. count: also a text, "more than 10", where counting ended."""
        named = what or dotted_path(path) or "the JSON text"
        return RemoteProtocolError(self.message(count, named), path=path, code=LIMIT_EXCEEDED)

    def message(self, count: int | str, what: str) -> str:
        return f"{what} has {count} {self.things}; at most {self.most} are accepted"


VALUES = CountLimit(
    "values and names",
    500_000,
    "ten times a conversation of 10,000 messages; to decode them takes less than 0.1 s and 100 MB",
    "a JSON text",
)
ELEMENTS = CountLimit(
    "elements",
    100_000,
    # platform.claude.com/docs/en/api/messages, read 2026-11-22
    "Anthropic's limit for `messages`, the largest that a vendor documents for any array",
    "an array",
)
MEMBERS = CountLimit(
    "members",
    50_000,
    # platform.openai.com/docs/guides/structured-outputs, read 2026-11-22
    "ten times the 5,000 properties that OpenAI accepts in a schema",
    "an object",
)
DIGITS = CountLimit(
    "digits",
    4_300,
    "what Python converts, because the time grows with the square of the digits",
    "an integer",
)
MODEL_CHARACTERS = CountLimit(
    "characters",
    2_000,
    "forty times the longest that recorded traffic shows; each chunk of a Chat stream repeats it",
    "the name of a model",
)
CHOICES = CountLimit("choices", 128, "OpenAI's limit for `n`", "a request or a response")
BLOCKS = CountLimit(
    "content blocks", 10_000, "recorded responses have up to 100 parts, tool calls and items", "a response"
)
ANNOTATIONS = CountLimit("annotations", 10_000, "recorded responses have up to 100", "a response")
OPAQUE_VALUES = CountLimit(
    "values without an equivalent", 10_000, "recorded responses have up to 100", "a response"
)
REASONING_ENTRIES = CountLimit("reasoning entries", 10_000, "recorded messages have up to 50", "a message")
EVENT_HEADERS = CountLimit("headers", 100, "Bedrock sends three", "a message of an AWS event stream")
LINES = CountLimit(
    "lines",
    100_000,
    "servers send one or two, and some hundred of JSON that is indented",
    "an event of a stream",
)
STOP_SEQUENCES = CountLimit(
    "stop sequences",
    64,
    "vendors accept 4 to 5, and the gateway searches for the rest in each delta",
    "a request",
)
STOP_CHARACTERS = CountLimit(
    "characters in all its stop sequences", 16_384, "the same; a sequence is a few words", "a request"
)

# For the docs, in the order of the page.
LIMITS = (
    VALUES,
    ELEMENTS,
    MEMBERS,
    DIGITS,
    MODEL_CHARACTERS,
    CHOICES,
    BLOCKS,
    ANNOTATIONS,
    OPAQUE_VALUES,
    EVENT_HEADERS,
    LINES,
    REASONING_ENTRIES,
    STOP_SEQUENCES,
    STOP_CHARACTERS,
)

# Before each value and name but the first there is one of these.
_MARKS = b",:[{"
# Possessive, so that the search is linear for any text. A string may go on behind the part that is searched.
_STRING = rb'(?:[^"\\]++|\\.)*+(?:"|(?P<rest>\\?\Z))'
_REST_OF_STRING = re.compile(_STRING, re.DOTALL)
_TOKEN = re.compile(rb'"' + _STRING + rb"|(?P<mark>[,:\[{\]}])", re.DOTALL)
# Bytes that are searched in one call, during which no other thread runs: some milliseconds.
_PART = 1024 * 1024
# Bytes behind a part that what begins in it may have.
_LONGEST_MATCH = 64 * 1024

# A shorter text has no container with too much in it: an element and its comma have two bytes, a member, its colon and
# its comma five.
SHORTEST = min(2 * ELEMENTS.most, 5 * MEMBERS.most)

_CONTAINERS = (dict, list)
# The way from the top: the parent's way and the key, None at the top.
_Steps: TypeAlias = tuple[Any, str | int] | None


def count_bytes(data: bytes, each: bytes) -> int:
    """Return how many of these bytes there are. Other threads run in between."""
    parts = (data[start : start + _PART] for start in range(0, len(data), _PART))
    # bytes.count() takes one byte at a time, and so twice as long for four of them.
    return sum([len(part) - len(part.translate(None, each)) for part in parts])


def check_values(text: bytes) -> None:
    """Raise RemoteProtocolError (413) for a JSON text with too many values and names. It need not be valid.

    It comes before the text is decoded, because a decoder makes an object of each of them in one call, during which no
    other thread runs.
    """
    if len(text) <= VALUES.most or count_bytes(text, _MARKS) <= VALUES.most:
        return
    counted = (mark for mark in marks(text) if mark.group() in _MARKS)
    for count, _ in enumerate(counted, 1):
        if count > VALUES.most:
            error = VALUES.error(f"more than {VALUES.most}", "")
            error.status = 413
            raise error


def search(pattern: re.Pattern[bytes], text: bytes) -> Iterator[re.Match[bytes]]:
    """Give the matches in a text of any length, part by part, because other threads run in between.

    pattern: of a match that has at most 64 KiB: what is longer may be left out.
    """
    at = 0
    for end in range(_PART, len(text) + _PART, _PART):
        for found in pattern.finditer(text, at, end + _LONGEST_MATCH):
            if found.start() >= end:
                break
            yield found
            at = found.end()
        at = max(at, end)


def marks(text: bytes) -> Iterator[re.Match[bytes]]:
    """Give the commas, colons and brackets that are not inside of strings."""
    at, in_string = 0, False
    while at < len(text):
        end = next_at = at + _PART
        tokens: Iterable[re.Match[bytes]] = _TOKEN.finditer(text, at, end)
        if in_string:
            rest = _REST_OF_STRING.match(text, at, end)
            assert rest is not None  # of any text
            tokens, next_at = (rest,), rest.end()
        in_string = False
        for token in tokens:
            if token.lastgroup == "mark":
                yield token
            elif token.lastgroup is not None:
                in_string, next_at = True, token.start("rest")  # before half an escape
        if in_string and end >= len(text):
            return  # a string without an end
        at = next_at


def may_have_large_containers(text: bytes) -> bool:
    """True if a JSON text has so many commas or colons that an array or object may have too much in it."""
    return text.count(b",") >= ELEMENTS.most or text.count(b":") > MEMBERS.most


def check_containers(value: object) -> None:
    """Raise RemoteProtocolError (400) for an array or object in a decoded JSON text with too many elements."""
    waiting: list[tuple[Any, _Steps]] = [(value, None)] if type(value) in _CONTAINERS else []
    while waiting:
        container, steps = waiting.pop()
        is_object = type(container) is dict
        limit = MEMBERS if is_object else ELEMENTS
        if len(container) > limit.most:
            raise limit.error(len(container), _pointer(steps))
        members = container.items() if is_object else enumerate(container)
        waiting += [(inner, (steps, key)) for key, inner in members if inner and type(inner) in _CONTAINERS]


def _pointer(steps: _Steps) -> str:
    path: list[str | int] = []
    while steps is not None:
        steps, key = steps
        path.append(key)
    return "".join(child("", key) for key in reversed(path))
