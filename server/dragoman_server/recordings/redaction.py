"""Remove secrets, and on request all texts, from what is recorded.

Texts are replaced letter by letter, so that lengths, JSON and the cuts between pieces stay as they were, and a
recording without texts can still be replayed. Members that are no text of people or models stay, such as types, roles
and ids.
"""

import re
from collections.abc import Callable, Iterable, Sequence

from dragoman import UPSTREAMS
from dragoman_server.settings.secret import MASK

# Headers whose values are credentials, in requests and responses.
_SECRET_HEADERS = frozenset(
    {
        "authorization",
        "proxy-authorization",
        "api-key",
        "x-goog-api-key",
        "cookie",
        "set-cookie",
        *(spec.auth_header for spec in UPSTREAMS.values()),
    }
)

# The members whose strings the protocols define, or whose values link one part of a conversation with another.
_KEPT_MEMBERS = frozenset(
    rb"type role id object model status finish_reason stop_reason native_finish_reason name call_id tool_call_id "
    rb"tool_use_id item_id response_id previous_response_id service_tier code event phase media_type detail effort "
    rb"format syntax tool_choice parallel_tool_calls truncation status display verbosity ttl mode".split()
)
# A string, and the colon if it is a name.
_STRING = re.compile(rb'"((?:[^"\\]|\\.)*)"(\s*:)?', re.DOTALL)
# What is replaced: letters, and the bytes of all other characters. Not the words that are JSON values, inside of
# arguments, nor escapes.
_LETTERS = re.compile(rb"\\u[0-9a-fA-F]{4}|\\.|\b(?:true|false|null)\b|[A-Za-z\x80-\xff]|[2-9]")


def redact_headers(
    headers: Iterable[tuple[str, str]], mask: Callable[[str], str]
) -> tuple[tuple[str, str], ...]:
    """Return headers without credentials. mask: removes known secrets from other values."""
    return tuple((name, MASK if name.lower() in _SECRET_HEADERS else mask(value)) for name, value in headers)


def redact_texts(data: bytes) -> bytes:
    """Return a body, JSON or a stream of events, with an x for each letter of its texts. The length stays."""
    if data.lstrip()[:1] in (b"{", b"["):
        return _redact_json(data)
    return b"".join(map(_redact_line, data.splitlines(keepends=True)))


def redact_pieces(pieces: Sequence[bytes]) -> list[bytes]:
    """Return the pieces of a body as redact_texts() has it."""
    redacted, out, at = redact_texts(b"".join(pieces)), [], 0
    for piece in pieces:
        out.append(redacted[at : at + len(piece)])
        at += len(piece)
    return out


def _redact_line(line: bytes) -> bytes:
    field, colon, value = line.partition(b":")
    if field in (b"event", b"id", b"retry") or line.strip() in (b"data: [DONE]", b""):
        return line
    if field == b"data" and value.lstrip()[:1] in (b"{", b"["):
        return field + colon + _redact_json(value)
    return field + colon + _without_letters(value) if field == b"data" else _without_letters(line)


def _redact_json(data: bytes) -> bytes:
    name = b""

    def replace(match: re.Match[bytes]) -> bytes:
        nonlocal name
        if match[2] is not None:
            name = match[1]
            return match[0]
        return match[0] if name in _KEPT_MEMBERS else b'"' + _without_letters(match[1]) + b'"'

    return _STRING.sub(replace, data)


def _without_letters(text: bytes) -> bytes:
    return _LETTERS.sub(_replace, text)


def _replace(match: re.Match[bytes]) -> bytes:
    found = match[0]
    if found.startswith(b"\\u"):
        return b"\\u0078"
    if len(found) > 1:
        return found  # an escape, or a word that is a JSON value
    return b"1" if found.isdigit() else b"x"
