"""Invariants: what the transport reads as a response of an upstream, h11 reads as the same response with the same body;
what h11 refuses, the transport refuses; and how the bytes are cut does not show.
"""

import h11
from fuzz import chunks, cut_places, cuts, damage, fuzz
from hypothesis import strategies as st

from dragoman_server.upstream.http1 import FramingError, Http1Exchange

_HEADS = [
    b"HTTP/1.1 200 OK\r\n",
    b"HTTP/1.0 200 OK\r\n",
    b"HTTP/1.1 204 \r\n",
    b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n",
    b"HTTP/1.1 304 Not Modified\r\n",
]
_FIELDS = [
    b"Content-Length: 5\r\n",
    b"Content-Length: 0\r\n",
    b"Transfer-Encoding: chunked\r\n",
    b"Transfer-Encoding: identity\r\n",
    b"content-length: 5\r\n",
    b"Transfer-Encoding: Chunked \r\n",
    b"Connection: close\r\n",
    b"connection:\tKeep-Alive \r\n",
    b"Connection: x, close\r\n",
    b"X-A: b\r\n",
    b"X-A:\r\n",
    b"X-Folded: a\r\n b\r\n",
]
_BODIES = [
    b"hello",
    b"",
    b"5\r\nhello\r\n0\r\n\r\n",
    b"5;a=b\r\nhello\r\nA\r\n0123456789\r\n0\r\nx: y\r\n\r\n",
    b"0\r\n\r\nHTTP/1.1 200 OK\r\n\r\n",
]
responses = st.builds(
    lambda head, fields, body, plan: damage(head + b"".join(fields) + b"\r\n" + body, plan),
    st.sampled_from(_HEADS),
    st.lists(st.sampled_from(_FIELDS), max_size=3),
    st.sampled_from(_BODIES),
    st.lists(cuts, max_size=3),
)

Read = tuple[int, list[tuple[str, str]], bytes, bool] | None


def by_transport(parts: list[bytes]) -> tuple[Read, bool]:
    """Status, headers, body and a flag for a complete one; None where it is refused. True if the connection is kept."""
    context = Http1Exchange("POST")
    head, body = None, b""
    try:
        for part in parts:
            if head is None:
                head = context.receive_data(part) if part else None
                part = b"" if head is None else head.leftover
            if head is not None:
                body += head.body.receive_data(part)
    except FramingError:
        return None, False
    if head is None:
        return None, False
    head.body.receive_eof()
    if head.body.error is not None:
        return None, False
    return (head.status, head.headers, body, head.body.complete), head.keep_alive


def by_h11(data: bytes) -> Read:
    connection = h11.Connection(h11.CLIENT, max_incomplete_event_size=2**20)
    connection.send(h11.Request(method="POST", target="/", headers=[("host", "x"), ("content-length", "0")]))
    connection.send(h11.EndOfMessage())
    head, body = None, b""
    try:
        connection.receive_data(data)
        connection.receive_data(b"")
        while True:
            event = connection.next_event()
            if isinstance(event, h11.Response):
                head = event
            elif isinstance(event, h11.Data):
                body += event.data
            elif isinstance(event, h11.EndOfMessage) and head is not None:
                headers = [(name.decode(), value.decode("latin-1")) for name, value in head.headers]
                return head.status_code, headers, body, True
            elif not isinstance(event, h11.InformationalResponse):
                return None
    except h11.RemoteProtocolError:
        return None


def check(data: bytes, places: list[int]) -> None:
    read = by_transport([data])
    assert by_transport(chunks(data, places)) == read, "the cut shows"
    # The transport is stricter: what it accepts, it reads as h11 does.
    assert read[0] is None or read[0] == by_h11(data)


@fuzz(responses, cut_places, examples=250)
def test_damaged_responses(data: bytes, places: list[int]) -> None:
    check(data, places)
