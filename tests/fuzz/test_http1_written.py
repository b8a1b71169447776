"""Invariants: requests and responses have the bytes that h11 writes, and what h11 refuses to write is refused; a
connection goes on after a response only where h11 would let it.
"""

from contextlib import suppress
from typing import Any

import h11
from fuzz import fuzz
from hypothesis import strategies as st

from dragoman_server.serving.http1_response import Http1Response, ResponseError
from dragoman_server.upstream.http1 import RequestError, request_head

_NAMES = [
    b"Host",
    b"X-A",
    b"Content-Length",
    b"content-length",
    b"Connection",
    b" Connection ",
    b"Expect",
    b"Transfer-Encoding",
    b"Upgrade",
]
_VALUES = [
    b"up.example",
    b"2",
    b"0",
    b"3",
    b"02",
    b"a\r\nb: c",
    b"a b\t\xff",
    b"close",
    b"Keep-Alive",
    b" a",
    b"close\n",
    b"chunked",
]
names = st.sampled_from(_NAMES) | st.binary(max_size=3)
values = st.sampled_from(_VALUES) | st.binary(max_size=3)
headers = st.lists(st.tuples(names, values), max_size=3)
plain_headers = st.lists(
    st.sampled_from([(b"X-A", b"b"), (b"content-length", b"2"), (b"Connection", b"keep-alive")])
)
contents = st.sampled_from([b"", b"{}"])

TRANSPORTS_OWN = {b"host", b"content-length", b"connection", b"expect", b"transfer-encoding", b"upgrade"}

Headers = list[tuple[bytes, bytes]]


@fuzz(headers, contents, examples=250)
def test_requests(headers: Headers, content: bytes) -> None:
    given = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in headers]
    sent = [
        (b"Host", b"up.example"),
        *[field for field in headers if field[0].lower() not in TRANSPORTS_OWN],
        (b"accept-encoding", b"identity"),
        (b"Content-Length", b"%d" % len(content)),
    ]
    connection = h11.Connection(h11.CLIENT)
    try:
        parts = [
            connection.send(h11.Request(method="POST", target="/v1?a", headers=sent)),
            connection.send(h11.Data(data=content)) if content else b"",
            connection.send(h11.EndOfMessage()),
        ]
        expected = b"".join(part or b"" for part in parts)
    except h11.LocalProtocolError:
        expected = None
    try:
        written = request_head("POST", b"/v1?a", b"up.example", given, len(content)) + content
    except RequestError:
        written = None
    assert written == expected


@fuzz(
    st.sampled_from(["POST", "GET", "HEAD"]),
    st.sampled_from(["1.1", "1.0"]),
    st.lists(
        st.tuples(
            st.sampled_from(["connection", "upgrade", "x-a"]), st.sampled_from(["close", "keep-alive", "b"])
        ),
        max_size=1,
    ),
    st.sampled_from([200, 404, 599, 100, 204, 304, 600]),
    headers | plain_headers,
    st.lists(contents, max_size=2),
    examples=250,
)
def test_responses(
    method: str, version: str, fields: list[tuple[str, str]], status: int, headers: Headers, body: list[bytes]
) -> None:
    request = [(b"host", b"a"), *((name.encode(), value.encode()) for name, value in fields)]
    connection = h11.Connection(h11.SERVER)
    lines = b"".join(b"%b: %b\r\n" % field for field in request)
    connection.receive_data(b"%b / HTTP/%b\r\n%b\r\n" % (method.encode(), version.encode(), lines))
    connection.next_event()
    response = Http1Response(version, method, dict(request).get(b"connection", b""))
    stripped = [(name.strip(), value.strip()) for name, value in headers]

    def part(data: bytes, *, is_last: bool = False) -> bytes:
        before, after = response.around(len(data), is_last=is_last)
        return before + data + after

    parts: list[tuple[Any, Any]] = [
        (lambda: response.begin(status, headers), h11.Response),
        *((lambda data=data: part(data), lambda data=data: h11.Data(data=data)) for data in body),
        (lambda: part(b"", is_last=True), h11.EndOfMessage),
    ]
    for write, event in parts:
        expected = written = None
        with suppress(h11.LocalProtocolError):
            made = event(status_code=status, headers=stripped) if event is h11.Response else event()
            expected = connection.send(made)
        with suppress(ResponseError):
            written = write()
        if event is h11.Response and (changed_by_h11(stripped) or b"host" in names_of(stripped)):
            return
        assert written == expected
        if written is None:
            return
    assert response.is_kept == (connection.our_state is h11.DONE)


def changed_by_h11(headers: Headers) -> bool:
    """True for headers that h11 corrects. None of them is ever sent, neither by a client nor by an application."""
    lengths = [value for name, value in headers if name.lower() == b"content-length"]
    return (
        b"transfer-encoding" in names_of(headers)
        or len(lengths) > 1
        or any(b"," in length for length in lengths)
    )


def names_of(headers: Headers) -> list[bytes]:
    return [name.lower() for name, _ in headers]
