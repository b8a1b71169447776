"""Remove secrets, and on request all texts, from recordings.

What came in pieces is replaced letter by letter, secrets and texts, so that lengths, JSON and the cuts between pieces
stay as they were, and the recording can still be replayed. Members that are no text of people or models stay, such as
types, roles and ids, and so do numbers, unless they are an array or are in an object whose members a user named.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain

from dragoman import UPSTREAMS
from dragoman_server.settings.secret import MASK, MIN_SECRET_LENGTH, Mask

# The names of headers whose values are credentials, in requests and responses: of clients, of what stands in front of
# the gateway, and of upstreams. Browsers have a key of OpenAI's in the subprotocols of a WebSocket.
_SECRET_HEADER = re.compile(
    r"api.?key|assertion|auth(?!enticate|ors?\b)|cookie|(?<!allow-)credential|jwt|(?<!idempotency-)key$|oidc|password|secret"
    r"|signature|token(?!s|-count)|sec-websocket-protocol",
    re.IGNORECASE,
)

# Query parameters whose values are credentials, whatever their length.
_SECRET_PARAMETERS = frozenset(spec.auth_query for spec in UPSTREAMS.values())

# The members whose strings the protocols define, or whose values link one part of a conversation with another.
_KEPT_MEMBERS = frozenset(
    rb"type role id object model status finish_reason stop_reason native_finish_reason name call_id tool_call_id "
    rb"tool_use_id item_id response_id previous_response_id service_tier code event phase media_type detail effort "
    rb"format syntax tool_choice parallel_tool_calls truncation status display verbosity ttl mode reason namespace "
    rb"request_id requestId modelVersion responseId finishReason blockReason serviceTier mimeType modality "
    rb"groundingChunkIndices".split()
)
# What such a string has if it is one: `code` is an error's, or a program that a model wrote.
_WORD = rb"[\w.:;/@|~=+-]*"
# The members whose objects have names that a user chose, so that none of theirs is of a protocol.
_FREE_MEMBERS = frozenset({b"input", b"args", b"arguments", b"metadata", b"variables"})
_FUNCTION_RESPONSES = (
    b"functionResponse",
    b"function_response",
)  # whose `response` is such an object
# A string, and the colon if it is a name. One without an end is matched too, or each of its escaped quotes would be the
# beginning of another one.
_STRING = re.compile(rb'"((?:[^"\\]|\\.)*+)(?:"(\s*:)?)?', re.DOTALL)
# What the texts of a document are found by. An array of numbers may be a text: its tokens, bytes or embedding.
_TOKEN = re.compile(
    _STRING.pattern + rb"|(?P<numbers>\[(?:[\s\d.eE,+-]|null)+(?:\]|\Z))|(?P<number>-?\d[\d.eE+-]*)|[{}\[]",
    re.DOTALL,
)
_DIGIT = rb"\d"
# An event's data, and the place in the response that it is about: `index`, `output_index`.
_LINE = rb"(?m)^data:[^\r\n]*"
_INDEX = rb'"(\w*index)"\s*:\s*(\d+)'
# The replaced characters: letters, and the bytes of all other characters. Not the words that are JSON values, inside of
# arguments, nor escapes.
_LETTERS = rb"\\u[0-9a-fA-F]{4}|\\.|\b(?:true|false|null)\b|(?P<letters>[A-Za-z]+|[\x80-\xff]+)|\d+"


def redact_headers(
    headers: Iterable[tuple[str, str]], mask: Callable[[str], str]
) -> tuple[tuple[str, str], ...]:
    """Return headers without credentials. mask: removes known secrets from other values."""
    return tuple((name, MASK if _is_secret(name) else mask(_redact_url(value))) for name, value in headers)


def mask_of(headers: Iterable[tuple[str, str]]) -> Mask:
    """Return the mask of the credentials in headers: those of clouds are not in the settings."""
    return Mask([value for name, value in headers if _is_secret(name)])


def _is_secret(name: str) -> bool:
    return _SECRET_HEADER.search(name) is not None


def _redact_url(value: str) -> str:
    """Return the value of a header, which may be a URL, as redact_query() has it."""
    url, mark, query = value.partition("?")
    return url + mark + redact_query(query) if "://" in url else value


def redact_query(query: str) -> str:
    """Return a query string without the values that are long enough for a key, because any of them may be one."""
    return "&".join(map(_redact_parameter, query.split("&")))


def _redact_parameter(parameter: str) -> str:
    name, sign, value = parameter.partition("=")
    if not sign:
        name, value = "", name
    hidden = len(value) >= MIN_SECRET_LENGTH or name in _SECRET_PARAMETERS
    return name + sign + (MASK if hidden else value)


def mask_pieces(pieces: Sequence[bytes], mask: Mask) -> list[bytes]:
    """Return the pieces of a body, with a * for each byte of a secret.

    A secret is found across the cuts of pieces and of deltas: a model may repeat it in several events.
    """
    body = b"".join(pieces)
    masked = bytearray(body)
    for start, end in chain(mask.spans(body.decode("latin-1")), _spans_in_deltas(body, mask)):
        masked[start:end] = b"*" * (end - start)
    return _cut(masked, pieces)


def _spans_in_deltas(body: bytes, mask: Mask) -> Iterator[tuple[int, int]]:
    """Yield the start and end of each part of the secrets in a stream's texts.

    The strings of one text come from members with one name, in events with the same indexes.
    """
    if _is_json(body):
        return
    texts: dict[object, list[tuple[int, int]]] = {}
    for line in re.finditer(_LINE, body):
        indexes, names, name = tuple(re.findall(_INDEX, line[0])), Counter[bytes](), b""
        for string in _STRING.finditer(body, *line.span()):
            if string[2] is not None:
                name = string[1]
            elif name not in _KEPT_MEMBERS:
                texts.setdefault((indexes, name, names[name]), []).append(string.span(1))
                names[name] += 1
    # A zero byte is in no secret.
    whole = b"\0".join([b"".join([body[start:end] for start, end in text]) for text in texts.values()])
    spans = iter(mask.spans(whole.decode("latin-1")))
    span, begins = next(spans, None), 0
    for text in texts.values():
        for start, end in text:
            ends = begins + end - start
            while span is not None and span[0] < ends:
                yield start + max(span[0] - begins, 0), start + min(span[1], ends) - begins
                if span[1] > ends:
                    break
                span = next(spans, None)
            begins = ends
        begins += 1


def redact_texts(data: bytes) -> bytes:
    """Return a body, JSON or a stream of events, with an x for each letter of its texts. The length stays."""
    if _is_json(data):
        return _redact_json(data)
    return b"".join(map(_redact_line, data.splitlines(keepends=True)))


def redact_pieces(pieces: Sequence[bytes]) -> list[bytes]:
    """Return the pieces of a body as redact_texts() has it."""
    return _cut(redact_texts(b"".join(pieces)), pieces)


def _cut(data: bytes | bytearray, pieces: Iterable[bytes]) -> list[bytes]:
    """Return the data in pieces of the same lengths."""
    out, at = [], 0
    for piece in pieces:
        out.append(bytes(data[at : at + len(piece)]))
        at += len(piece)
    return out


def _is_json(data: bytes) -> bool:
    return data.lstrip()[:1] in (b"{", b"[")


def _redact_line(line: bytes) -> bytes:
    field, colon, value = line.partition(b":")
    if field in (b"event", b"id", b"retry") or line.strip() in (b"data: [DONE]", b""):
        return line
    if field == b"data" and _is_json(value):
        return field + colon + _redact_json(value)
    return field + colon + _without_letters(value) if field == b"data" else _without_letters(line)


def _redact_json(data: bytes) -> bytes:
    name = b""
    in_array = False  # what follows is not the member itself
    # Those that are open, by the names of their members, and whether they are in an array.
    objects: list[tuple[bytes, bool]] = []
    free = 0  # how many of them are free, or in one that is

    def replace(match: re.Match[bytes]) -> bytes:
        nonlocal name, in_array, free
        found = match[0]
        if found == b"{":
            of_call = name == b"response" and bool(objects) and objects[-1][0] in _FUNCTION_RESPONSES
            of_items = name == b"input" and in_array
            free += bool(free or of_call or (name in _FREE_MEMBERS and not of_items))
            objects.append((name, in_array))
        elif found == b"}":
            name, in_array = objects.pop() if objects else (b"", False)
            free -= bool(free)
        elif found == b"[":
            in_array = True
        elif match["numbers"] or match["number"]:
            is_text = free or (match["numbers"] and name not in _KEPT_MEMBERS)
            return re.sub(_DIGIT, b"1", found) if is_text else found
        elif match[2] is not None:
            name, in_array = match[1], False
        elif free or name not in _KEPT_MEMBERS or re.fullmatch(_WORD, match[1]) is None:
            return found.replace(match[1], _without_letters(match[1]))
        return found

    return _TOKEN.sub(replace, data)


def _without_letters(text: bytes) -> bytes:
    return re.sub(_LETTERS, _replace, text)


def _replace(match: re.Match[bytes]) -> bytes:
    found = match[0]
    if match.lastgroup is not None:
        return b"x" * len(found)
    if found.startswith(b"\\u"):
        return b"\\u0078"
    return b"1" * len(found) if found.isdigit() else found  # an escape, or a word that is a JSON value
