"""Requests of HTTP/1.1 as bytes: sound ones, and those that can be read in two ways.

Each requests paths below /seen, where the gateway has nothing: it returns 404 and writes a line with the path, so its
log says which requests it has seen.
"""

# ruff: noqa: E501 -- the tables are read by row

from typing import NamedTuple

HOST = b"host: localhost\r\n"
SECOND = b"GET /seen/2 HTTP/1.1\r\n" + HOST + b"\r\n"


class Case(NamedTuple):
    """statuses: of the responses, in their order. stays: the connection is kept open."""

    sent: bytes
    statuses: tuple[int, ...]
    stays: bool = False


def get(fields: bytes = b"", *, target: bytes = b"/seen/1", line: bytes = b"", host: bytes = HOST) -> bytes:
    return (line or b"GET " + target + b" HTTP/1.1") + b"\r\n" + host + fields + b"\r\n"


def post(fields: bytes, body: bytes = b"", *, version: bytes = b"1.1") -> bytes:
    return b"POST /seen/1 HTTP/" + version + b"\r\n" + HOST + fields + b"\r\n" + body


CHUNKED = b"transfer-encoding: chunked\r\n"
HELLO = b"5\r\nhello\r\n0\r\n\r\n"

WEBSOCKET = (
    b"connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n"
    b"sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
)

# What may stand in a header besides.
ROOM = 64 * 1024 - len(get(b"a: \r\n"))

CASES: dict[str, Case] = {
    # What must be served.
    "one request": Case(get(), (404,), stays=True),
    "two requests at once": Case(get() + SECOND, (404, 404), stays=True),
    "a body and a request": Case(post(b"content-length: 5\r\n", b"hello") + SECOND, (404, 404), stays=True),
    "chunks and a request": Case(post(CHUNKED, HELLO) + SECOND, (404, 404), stays=True),
    "a chunk extension": Case(post(CHUNKED, b"5;a=b\r\nhello\r\n0\r\n\r\n"), (404,), stays=True),
    "a trailer": Case(post(CHUNKED, b"5\r\nhello\r\n0\r\na: b\r\n\r\n") + SECOND, (404, 404), stays=True),
    "empty lines before and between": Case(b"\r\n\r\n" + get() + b"\r\n" + SECOND, (404, 404), stays=True),
    "a name with an underscore": Case(get(b"content_length: 5\r\n") + SECOND, (404, 404), stays=True),
    "Chunked in capitals": Case(post(b"Transfer-Encoding: CHUNKED\r\n", HELLO), (404,), stays=True),
    "a URL as the target": Case(get(target=b"http://localhost/seen/1"), (404,), stays=True),
    "another name in the target": Case(get(target=b"http://rebound.example/seen/1"), (421,), stays=True),
    "another name in Host than in the target": Case(get(target=b"http://localhost/seen/1", host=b"host: rebound.example\r\n"), (404,), stays=True),
    "HTTP/1.0": Case(get(line=b"GET /seen/1 HTTP/1.0"), (404,)),
    # For the application, which without client keys wants a loopback name.
    "HTTP/1.0 without Host": Case(get(line=b"GET /seen/1 HTTP/1.0", host=b""), (421,)),
    "connection: close": Case(get(b"connection: close\r\n") + SECOND, (404,)),
    "OPTIONS *": Case(get(line=b"OPTIONS * HTTP/1.1"), (200,), stays=True),
    "expect: 100-continue": Case(post(b"expect: 100-continue\r\ncontent-length: 5\r\n", b"hello"), (404,), stays=True),
    "an upgrade to h2c": Case(get(b"connection: upgrade, http2-settings\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABk\r\n"), (404,), stays=True),
    "an upgrade to WebSocket": Case(get(WEBSOCKET), (426,)),
    "an upgrade to WebSocket and more": Case(get(WEBSOCKET) + SECOND, (426,)),
    "an upgrade to WebSocket without a key": Case(get(b"connection: upgrade\r\nupgrade: websocket\r\n") + SECOND, (426,)),
    "an upgrade that is not ASCII": Case(get(b"connection: upgrade, \xe2\r\nupgrade: h2c\r\n"), (404,), stays=True),
    # Where a body ends: RFC 9112, 6.
    "Content-Length and Transfer-Encoding": Case(post(b"content-length: 5\r\n" + CHUNKED, b"0\r\n\r\n" + SECOND), (400,)),
    "Transfer-Encoding and Content-Length": Case(post(CHUNKED + b"content-length: 5\r\n", b"0\r\n\r\n" + SECOND), (400,)),
    "two lengths": Case(post(b"content-length: 5\r\ncontent-length: 6\r\n", b"hello"), (400,)),
    "a length twice": Case(post(b"content-length: 5\r\ncontent-length: 5\r\n", b"hello"), (400,)),
    "a list of lengths": Case(post(b"content-length: 5, 5\r\n", b"hello"), (400,)),
    "a length with a sign": Case(post(b"content-length: +5\r\n", b"hello"), (400,)),
    "a length in hex": Case(post(b"content-length: 0x5\r\n", b"hello"), (400,)),
    "a length of thirty digits": Case(post(b"content-length: " + b"9" * 30 + b"\r\n"), (400,)),
    "no length": Case(post(b"content-length:\r\n"), (400,)),
    "xchunked": Case(post(b"transfer-encoding: xchunked\r\n", HELLO), (400,)),
    "identity": Case(post(b"transfer-encoding: identity\r\n", b"hello"), (400,)),
    "chunked twice": Case(post(b"transfer-encoding: chunked, chunked\r\n", HELLO), (400,)),
    "chunked in two lines": Case(post(CHUNKED + CHUNKED, HELLO), (400,)),
    "chunked, then identity": Case(post(b"transfer-encoding: chunked, identity\r\n", HELLO), (400,)),
    "an empty coding": Case(post(b"transfer-encoding:\r\n", HELLO), (400,)),
    "chunked with a vertical tab": Case(post(b"transfer-encoding: \x0bchunked\r\n", HELLO), (400,)),
    "gzip, chunked": Case(post(b"transfer-encoding: gzip, chunked\r\n", HELLO), (501,)),
    "chunked in HTTP/1.0": Case(post(CHUNKED, HELLO, version=b"1.0"), (400,)),
    "a chunk size with a sign": Case(post(CHUNKED, b"+5\r\nhello\r\n0\r\n\r\n"), (404,)),
    "a chunk size in 0x": Case(post(CHUNKED, b"0x5\r\nhello\r\n0\r\n\r\n"), (404,)),
    "a chunk size of thirty digits": Case(post(CHUNKED, b"5" * 30 + b"\r\nhello"), (404,)),
    "a chunk that is longer than it says": Case(post(CHUNKED, b"3\r\nhello\r\n0\r\n\r\n" + SECOND), (404,)),
    "a chunk that ends in LF": Case(post(CHUNKED, b"5\r\nhello\n0\r\n\r\n" + SECOND), (404,)),
    "a chunk size that ends in LF": Case(post(CHUNKED, b"5\nhello\r\n0\r\n\r\n" + SECOND), (404,)),
    # Lines: RFC 9112, 2.2 and 5.
    "lines that end in LF": Case(get().replace(b"\r\n", b"\n"), (400,)),
    "one line that ends in LF": Case(b"GET /seen/1 HTTP/1.1\nhost: localhost\r\n\r\n", (400,)),
    "an empty line of LF": Case(b"GET /seen/1 HTTP/1.1\r\nhost: localhost\r\n\n" + SECOND, (400,)),
    "LF before the request": Case(b"\n" + get(), (400,)),
    "a bare CR": Case(get(b"a: b\rc: d\r\n"), (400,)),
    "a NUL": Case(get(b"a: b\x00c\r\n"), (400,)),
    "a control character": Case(get(b"a: b\x01c\r\n"), (400,)),
    "a folded line": Case(get(b"a: b\r\n c\r\n"), (400,)),
    "a folded line that hides a coding": Case(post(b"a: b\r\n\ttransfer-encoding: chunked\r\n", HELLO), (400,)),
    "a blank before the first field": Case(get(host=b" host: a\r\n"), (400,)),
    "a blank before the colon": Case(post(b"content-length : 5\r\n", b"hello"), (400,)),
    "a blank in a name": Case(get(b"a b: c\r\n"), (400,)),
    "no colon": Case(get(b"abc\r\n"), (400,)),
    "no name": Case(get(b": abc\r\n"), (400,)),
    # The first line: RFC 9112, 3.
    "HTTP/2.0": Case(get(line=b"GET /seen/1 HTTP/2.0"), (505,)),
    "HTTP/1.2": Case(get(line=b"GET /seen/1 HTTP/1.2"), (505,)),
    "HTTP/0.9": Case(b"GET /seen/1\r\n\r\n", (400,)),
    "http in small letters": Case(get(line=b"GET /seen/1 http/1.1"), (400,)),
    "two blanks": Case(get(line=b"GET  /seen/1 HTTP/1.1"), (400,)),
    "a tab": Case(get(line=b"GET\t/seen/1 HTTP/1.1"), (400,)),
    "a blank in the target": Case(get(target=b"/seen/1 /seen/2"), (400,)),
    "a fragment": Case(get(target=b"/seen/1#x"), (400,)),
    "no path": Case(get(target=b"seen/1"), (400,)),
    "bytes that are no ASCII": Case(get(target="/seen/é".encode()), (400,)),
    "* for GET": Case(get(target=b"*"), (400,)),
    "a host as the target": Case(get(line=b"GET a:80 HTTP/1.1"), (400,)),
    "CONNECT": Case(get(line=b"CONNECT a:80 HTTP/1.1"), (501,)),
    "a method in small letters": Case(get(line=b"get /seen/1 HTTP/1.1"), (501,)),
    "a method that nobody knows": Case(get(line=b"BREW /seen/1 HTTP/1.1"), (404,), stays=True),
    "the preface of TLS": Case(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", (400,)),
    "an expectation that nobody knows": Case(get(b"expect: coffee\r\n"), (417,)),
    # RFC 9112, 3.2.
    "no Host": Case(get(host=b""), (400,)),
    "two Hosts": Case(get(HOST), (400,)),
    "a Host with a path": Case(get(host=b"host: a/b\r\n"), (400,)),
    "a Host with a blank": Case(get(host=b"host: a b\r\n"), (400,)),
    "a URL with a name and a password": Case(get(target=b"http://x@a/seen/1"), (400,)),
    # Sizes.
    "a target that is just short enough": Case(get(target=b"/seen/1?" + b"a" * (8192 - 8)), (404,), stays=True),
    "a target that is too long": Case(get(target=b"/seen/1?" + b"a" * (8192 - 7)), (414,)),
    "a target without an end": Case(b"GET /seen/1?" + b"a" * 10_000, (414,)),
    "a head that is just small enough": Case(get(b"a: %s\r\n" % (b"a" * ROOM)), (404,), stays=True),
    "a head that is too large": Case(get(b"a: %s\r\n" % (b"a" * (ROOM + 1))), (431,)),
    "a head without an end": Case(get(b"a: " + b"a" * 70_000)[:-4], (431,)),
    "as many lines as may be": Case(get(b"a: b\r\n" * 99), (404,), stays=True),
    "too many lines": Case(get(b"a: b\r\n" * 100), (431,)),
}  # fmt: skip
