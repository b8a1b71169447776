"""Read the head of an HTTP/1.1 request, and refuse what is wrong with it.

If RFC 9112 allows a recipient to be lenient or strict, this is strict: if a proxy in front reads the same bytes in
another way, one client's bytes can become another one's request. nginx, haproxy and h11 agree on what the checks
accept. h11 0.16 by itself accepts bare LF as a line end, folded lines, `HTTP/2.0`, Content-Length next to
Transfer-Encoding, and Content-Length repeated.

A head that breaks the grammar raises RemoteProtocolError (400), one that is valid and not served RequestRefused.
"""

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache

import msgspec

from dragoman import RemoteProtocolError, RequestRefused
from dragoman_server.streams.http1_head import FIELD_LINE, TOKEN, joined

# Claude Code and Codex send some 10 KiB of headers.
MAX_HEAD_BYTES = 64 * 1024
# Apache's default. Clients of this field send some thirty, proxies a dozen more.
MAX_FIELDS = 100
# "It is RECOMMENDED that all HTTP senders and recipients support, at a minimum, URIs with lengths of 8000 octets"
# -- RFC 9110, 4.1
MAX_TARGET_BYTES = 8 * 1024
# The target with a method and a version around it.
_MAX_LINE_BYTES = MAX_TARGET_BYTES + 64

_REQUEST_LINE = re.compile(rb"(%b) ([!-~]+) HTTP/([0-9])\.([0-9])" % TOKEN)
_FIELD = re.compile(FIELD_LINE)
HOST = re.compile(rb"(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._~!$&'()*+,;=%-]*)(?::[0-9]*)?")
# Request lines that are kept, because clients send a few, again and again.
_KEPT_LINES = 128
# Header lines that are kept, of so many bytes: a client sends those with these names in each of its requests, and they
# are not secret.
_KEPT_FIELDS = 512
_KEPT_SIZE = 256
_KEPT_NAMES = re.compile(
    rb"accept(?:-encoding|-language)?|anthropic-(?:beta|dangerous-direct-browser-access|version)|connection|content-type|"
    rb"host|openai-beta|originator|sec-fetch-mode|user-agent|x-app|x-stainless-[a-z-]+",
    re.IGNORECASE,
)
_MAX_LENGTH_DIGITS = 19
_ABSOLUTE = re.compile(rb"https?://[^/?#]+(?=[/?]|$)", re.IGNORECASE)

_ONE_HOST = "it needs exactly one Host header"

# Patterns that make a head invalid, even an incomplete one, each with the error.
_BROKEN = (
    # "A recipient of such a bare CR MUST consider that element to be invalid or replace each bare CR with SP";
    # it "MAY recognize a single LF as a line terminator" -- RFC 9112, 2.2
    (re.compile(rb"(?<!\r)\n|\r[^\n]"), "a line does not end in CRLF"),
    # "CTL characters are invalid" in a field value -- RFC 9110, 5.5
    (re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]"), "it contains a control character"),
)
# The same for a complete head.
_MALFORMED = (
    # "A server that receives an obs-fold ... MUST either reject the message by sending a 400 (Bad Request) ... or
    # replace" -- RFC 9112, 5.2. The first line: "MUST either reject the message as invalid or consume" -- 2.2
    (re.compile(rb"\r\n[\t ]"), "a header line is folded, or begins with white space"),
    # "A server MUST reject ... any received request message that contains whitespace between a header field name and
    # colon" -- RFC 9112, 5.1
    (re.compile(rb"\r\n[^:\r]*[\t ]:"), "there is white space before the colon of a header"),
)


def check_partial_head(part: bytes | bytearray, start: int = 0) -> None:
    """Check an incomplete head. start: how many bytes of it were checked before.

    Raises RemoteProtocolError, or RequestRefused with status 414 or 431.
    """
    if (broken := _first_error(_BROKEN, part, max(0, start - 1))) is not None:
        raise _malformed(broken)
    if len(part) > _MAX_LINE_BYTES and part.find(b"\r\n", 0, _MAX_LINE_BYTES) < 0:
        raise _target_too_long()
    if len(part) > MAX_HEAD_BYTES:
        raise _too_large()


class StreamRequest(msgspec.Struct, frozen=True):
    """The head of a request.

    Attributes:
        headers: With lower-case names, and without HTTP/2's pseudo-headers.
        target: Path and query, or "*".
    """

    headers: list[tuple[bytes, bytes]]
    http_version: str
    method: str
    target: bytes


def read_head(head: bytes) -> tuple[StreamRequest, dict[bytes, bytes]]:
    """Read a whole head, with the empty line at its end. Return also the values of its headers by name, see joined().

    Raises RemoteProtocolError, or RequestRefused with status 414, 417, 431, 501 or 505.
    """
    request_line, *lines, _, _ = head.split(b"\r\n")
    try:
        headers = [*map(_FIELDS.__getitem__, lines[:MAX_FIELDS])]
    except ValueError:
        error = _first_error(_BROKEN, head) or _first_error(_MALFORMED, head)
        raise _malformed(error or "a header line is not `name: value`") from None
    read = _kept_request_line if request_line.find(b"?") < 0 else _checked_request_line
    method, target, version = read(request_line)
    if len(head) > MAX_HEAD_BYTES:
        raise _too_large()
    if len(lines) > MAX_FIELDS:
        raise _too_many()
    fields = joined(headers)
    if len(fields) < len(headers) and sum(name == b"host" for name, _ in headers) > 1:
        raise _malformed(_ONE_HOST)
    _check_framing(fields, version)
    # "A server MUST respond with a 400 (Bad Request) status code to any HTTP/1.1 request message that lacks a Host
    # header field and to any request message that contains more than one Host header field line or a Host header field
    # with an invalid field value." -- RFC 9112, 3.2
    if b"host" in fields:
        host = fields[b"host"]
        (_kept_host if len(host) <= _KEPT_SIZE else _check_host)(host)
    elif version == "1.1":
        raise _malformed(_ONE_HOST)
    if b"expect" in fields and {each.strip() for each in fields[b"expect"].lower().split(b",")} != {
        b"100-continue"
    }:
        # "A server that receives an Expect field value containing a member other than 100-continue MAY respond with a
        # 417" -- RFC 9110, 10.1.1
        raise _refused(417, "the only supported expectation is 100-continue")
    if not target.startswith(b"/") and (absolute := split_absolute_form(target)) is not None:
        # "the origin server MUST ignore the received Host header field (if any) and instead replace it with the host
        # information of the request-target" -- RFC 9112, 3.2.2
        authority, target = absolute
        _check_host(authority)
        headers = [(b"host", authority), *(field for field in headers if field[0] != b"host")]
    return StreamRequest(headers, version, method, target), fields


class _KeptFields(dict[bytes, tuple[bytes, bytes]]):
    """Names and values by header line, without its end. Raises ValueError for what is no such line."""

    def __missing__(self, line: bytes) -> tuple[bytes, bytes]:
        if _FIELD.fullmatch(line + b"\r") is None:
            raise ValueError
        name, _, value = line.partition(b":")
        field = name.lower(), value.strip(b"\t ")
        if len(line) <= _KEPT_SIZE and _KEPT_NAMES.fullmatch(name) is not None:
            if len(self) >= _KEPT_FIELDS:
                self.clear()
            self[line] = field
        return field


_FIELDS = _KeptFields()


def check_fields(target: bytes, fields: Sequence[tuple[bytes, bytes]]) -> None:
    """Apply the same limits to a head of HTTP/2; h2 has checked everything else.

    Raises RequestRefused with status 414 or 431.
    """
    if len(target) > MAX_TARGET_BYTES:
        raise _target_too_long()
    # The size of a list "is calculated based on ... the length of the name and value in units of octets plus an
    # overhead of 32 octets for each field" -- RFC 9113, 6.5.2
    if sum(len(name) + len(value) + 32 for name, value in fields) > MAX_HEAD_BYTES:
        raise _too_large()
    if len(fields) > MAX_FIELDS:
        raise _too_many()


def split_absolute_form(target: bytes) -> tuple[bytes, bytes] | None:
    """Split a target in absolute form into authority and path; None for other forms.

    "a server MUST accept the absolute-form in requests" -- RFC 9112, 3.2.2
    """
    match = _ABSOLUTE.match(target)
    if match is None:
        return None
    rest = target[match.end() :]
    return match[0].partition(b"://")[2], rest if rest.startswith(b"/") else b"/" + rest


def parse_broken(head: bytes) -> tuple[bytes, bytes, list[tuple[bytes, bytes]]]:
    """Return the readable method, target and fields of a head that is invalid or incomplete.

    The method is b"GET" and the target b"" if none can be read.
    """
    request_line, *lines = head.split(b"\n")
    method, target = (*request_line.split(), b"", b"")[:2]
    if (absolute := split_absolute_form(target)) is not None:
        target = absolute[1]
    if re.fullmatch(rb"/[!-~]*", target) is None:
        target = b""
    fields = [line.partition(b":") for line in lines[:MAX_FIELDS]]
    return (
        method if re.fullmatch(rb"[A-Z]{1,20}", method) else b"GET",
        target[:MAX_TARGET_BYTES],
        [(name.strip().lower(), value.strip()) for name, colon, value in fields if colon],
    )


def _checked_request_line(line: bytes) -> tuple[str, bytes, str]:
    """Check the request line, and return method, target and version."""
    match = _REQUEST_LINE.fullmatch(line)
    if match is None:
        if len(line) > _MAX_LINE_BYTES:
            raise _target_too_long()
        error = _first_error(_BROKEN, line)
        raise _malformed(error or "its first line is not `METHOD /path HTTP/1.1`")
    method, target, major, minor = match.groups()
    if major != b"1" or minor not in b"01":
        # "the server does not support, or refuses to support, the major version of HTTP" -- RFC 9110, 15.6.6
        raise _refused(505, f"its version is HTTP/{major.decode()}.{minor.decode()}; send HTTP/1.1")
    if len(target) > MAX_TARGET_BYTES:
        raise _target_too_long()
    if method == b"CONNECT" or method != method.upper():
        # "The method token is case-sensitive" -- RFC 9112, 3.1. hypercorn 0.18 protocol/h11.py:240 makes `get` GET.
        raise _refused(
            501,
            f"the method {method[:20].decode()} is not supported; method names are upper-case",
        )
    is_origin = target.startswith(b"/") or _ABSOLUTE.match(target) is not None
    if b"#" in target or not (is_origin or (target == b"*" and method == b"OPTIONS")):
        raise _malformed("its target is neither a path nor a URL")  # RFC 9112, 3.2
    return method.decode(), target, f"1.{minor.decode()}"


# Not with a query, which may have a client key.
_kept_request_line = lru_cache(maxsize=_KEPT_LINES)(_checked_request_line)


def _check_framing(fields: Mapping[bytes, bytes], version: str) -> None:
    """Check that there is exactly one way to find the end of the body (RFC 9112, 6.1 to 6.3)."""
    length = fields.get(b"content-length")
    if b"transfer-encoding" in fields:
        codings = [coding.strip(b"\t ") for coding in fields[b"transfer-encoding"].lower().split(b",")]
        if length is not None:
            # "ought to be handled as an error" -- RFC 9112, 6.3
            raise _malformed("it has both Content-Length and Transfer-Encoding; send one of them")
        if version == "1.0":
            # "MUST treat the message as if the framing is faulty" -- RFC 9112, 6.1
            raise _malformed("HTTP/1.0 has no Transfer-Encoding")
        if codings.count(b"chunked") != 1 or codings[-1] != b"chunked":
            # "If a Transfer-Encoding header field is present in a request and the chunked transfer coding is not the
            # final encoding ... the server MUST respond with the 400" -- RFC 9112, 6.3
            raise _malformed("its Transfer-Encoding does not end in one `chunked`")
        if len(codings) > 1:
            # "A server that receives a request message with a transfer coding it does not understand SHOULD respond
            # with 501" -- RFC 9112, 6.1
            raise _refused(501, "the only Transfer-Encoding that is supported is chunked")
    elif length is not None and not (length.isdigit() and len(length) <= _MAX_LENGTH_DIGITS):
        # RFC 9112, 6.3: "unrecoverable error" but for a list of equal values, which nginx refuses as well.
        raise _malformed("its Content-Length is not one number")


def _check_host(host: bytes) -> None:
    if HOST.fullmatch(host) is None:
        raise _malformed("its Host is not a host and a port")


_kept_host = lru_cache(maxsize=_KEPT_LINES)(_check_host)


def _first_error(
    rules: Sequence[tuple[re.Pattern[bytes], str]], data: bytes | bytearray, start: int = 0
) -> str | None:
    return next((error for pattern, error in rules if pattern.search(data, start) is not None), None)


def _malformed(error: str) -> RemoteProtocolError:
    return RemoteProtocolError(f"the request's head is refused: {error}")


def _refused(status: int, error: str) -> RequestRefused:
    return RequestRefused(f"the request's head is refused: {error}", status=status)


def _too_large() -> RequestRefused:
    return _refused(431, f"it is larger than {MAX_HEAD_BYTES // 1024} KiB; send fewer or shorter headers")


def _too_many() -> RequestRefused:
    return _refused(431, f"it has more than {MAX_FIELDS} header lines; send fewer")


def _target_too_long() -> RequestRefused:
    return _refused(414, f"its target is longer than {MAX_TARGET_BYTES} bytes; shorten the path or the query")
