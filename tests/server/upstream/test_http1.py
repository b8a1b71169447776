"""Request and response heads as bytes, and the bodies that a response can have."""

# ruff: noqa: E501 -- the tables are read by row

import pytest

from dragoman_server.upstream.http1 import (
    MAX_HEAD,
    MAX_INTERIM,
    FramingError,
    Http1Exchange,
    RequestError,
    ResponseHead,
    request_head,
)

OK = b"HTTP/1.1 200 OK\r\n"


def head_of(data: bytes, method: str = "POST", *, byte_by_byte: bool = False) -> ResponseHead:
    context = Http1Exchange(method)
    chunks = [data[i : i + 1] for i in range(len(data))] if byte_by_byte else [data]
    for position, chunk in enumerate(chunks, 1):
        head = context.receive_data(chunk)
        if head is not None:
            leftover = b"".join(chunks[position:])
            return head if not leftover else with_leftover(head, leftover)
    raise AssertionError("the head is not complete")


def with_leftover(head: ResponseHead, leftover: bytes) -> ResponseHead:
    return ResponseHead(head.status, head.headers, head.keep_alive, head.body, head.leftover + leftover)


@pytest.mark.parametrize(
    ("method", "length", "framing"),
    [
        ("POST", 2, b"Content-Length: 2\r\n"),
        ("POST", 0, b"Content-Length: 0\r\n"),
        ("GET", 0, b""),
        ("PUT", None, b"Transfer-Encoding: chunked\r\n"),
    ],
)
def test_a_request_is_written_with_its_headers_as_given(
    method: str, length: int | None, framing: bytes
) -> None:
    headers = [("X-Api-Key", "k"), ("connection", "close"), ("Content-Length", "7"), ("X-Name", "caf\xe9")]
    assert request_head(method, b"/v1/messages?beta=true", b"up.example", headers, length) == (
        b"%b /v1/messages?beta=true HTTP/1.1\r\nHost: up.example\r\nX-Api-Key: k\r\nX-Name: caf\xe9\r\n"
        b"accept-encoding: identity\r\n%b\r\n" % (method.encode(), framing)
    )


@pytest.mark.parametrize(
    ("target", "host", "headers"),
    [
        (b"/", b"up.example", [("authorization", "Bearer sk-secret\r\nx: y")]),
        (b"/", b"up.example", [("authorization", "sk-secret\nx")]),
        (b"/", b"up.example", [("authorization", "\u20acsk-secret")]),
        (b"/", b"up.example", [("a\nb", "sk-secret")]),
        (b"/", b"up.example", [("bad name", "sk-secret")]),
        (b"/sk-secret x", b"up.example", []),
        (b"/", b"up.example\r\nx: sk-secret", []),
    ],
    ids=[
        "CRLF in a value",
        "LF in a value",
        "no latin-1",
        "LF in a name",
        "blank in a name",
        "blank in the target",
        "CRLF in the host",
    ],
)
@pytest.mark.promise("S5")
def test_a_request_that_cannot_be_written_is_refused_without_quoting_it(
    target: bytes, host: bytes, headers: list[tuple[str, str]]
) -> None:
    with pytest.raises(RequestError) as caught:
        request_head("POST", target, host, headers, 0)
    assert "sk-secret" not in str(caught.value)
    assert caught.value.__context__ is None


@pytest.mark.parametrize("byte_by_byte", [False, True], ids=["whole", "byte by byte"])
def test_a_head_keeps_order_and_repeated_fields(byte_by_byte: bool) -> None:
    data = OK + b"Set-Cookie: a\r\nX-Id:  7 \r\nset-cookie: b\r\nContent-Length: 3\r\n\r\nabcREST"
    head = head_of(data, byte_by_byte=byte_by_byte)
    assert head.status == 200
    expected = [("set-cookie", "a"), ("x-id", "7"), ("set-cookie", "b"), ("content-length", "3")]
    assert (head.headers, head.leftover) == (expected, b"abcREST")
    assert head.body.receive_data(head.leftover) == b"abc"
    assert head.body.complete
    assert head.body.unused == b"REST"


# method, head, keep-alive, the body for b"2\r\nab\r\n0\r\n\r\n", complete then, complete after the end.
CODED = b"2\r\nab\r\n0\r\n\r\n"
BODIES = {
    "length": ("POST", OK + b"content-length: 4\r\n", True, b"2\r\na", True, True),
    "length, twice the same": ("POST", OK + b"content-length: 4, 4\r\n", True, b"2\r\na", True, True),
    "length zero": ("POST", OK + b"content-length: 0\r\n", True, b"", True, True),
    "length not reached": ("POST", OK + b"content-length: 99\r\n", True, CODED, False, False),
    "chunked": ("POST", OK + b"transfer-encoding: chunked\r\n", True, b"ab", True, True),
    "chunked, upper case": ("POST", OK + b"Transfer-Encoding: CHUNKED\r\n", True, b"ab", True, True),
    "until close": ("POST", OK, False, CODED, False, True),
    "until close, with its header": ("POST", OK + b"connection: close\r\n", False, CODED, False, True),
    "length and close": ("POST", OK + b"content-length: 4\r\nconnection: x, Close\r\n", False, b"2\r\na", True, True),
    "HTTP/1.0 with length": ("POST", b"HTTP/1.0 200 OK\r\ncontent-length: 4\r\n", False, b"2\r\na", True, True),
    "HTTP/1.0 chunked all the same": ("POST", b"HTTP/1.0 200 OK\r\ntransfer-encoding: chunked\r\n", False, b"ab", True, True),
    "HEAD has none": ("HEAD", OK + b"content-length: 4\r\n", True, b"", True, True),
    "HEAD has none, chunked": ("HEAD", OK + b"transfer-encoding: chunked\r\n", True, b"", True, True),
    "204 has none": ("POST", b"HTTP/1.1 204 No Content\r\n", True, b"", True, True),
    "304 has none": ("GET", b"HTTP/1.1 304 Not Modified\r\ncontent-length: 4\r\n", True, b"", True, True),
}  # fmt: skip


def test_the_length_of_a_body() -> None:
    for name, (method, lines, keep_alive, body, complete, complete_at_end) in BODIES.items():
        head = head_of(lines + b"\r\n" + CODED, method)
        assert head.keep_alive is keep_alive, name
        assert head.body.receive_data(head.leftover) == body, name
        assert head.body.complete is complete, name
        head.body.receive_eof()
        assert head.body.complete is complete_at_end, name
        assert (head.body.error is None) is complete_at_end, name


ERRORS = {
    "length and chunked": (OK + b"content-length: 4\r\ntransfer-encoding: chunked\r\n\r\n", "the response has both content-length and transfer-encoding"),
    "two lengths": (OK + b"content-length: 4\r\ncontent-length: 5\r\n\r\n", "the response head is not HTTP/1.1: conflicting Content-Length headers"),
    "negative length": (OK + b"content-length: -4\r\n\r\n", "the response head is not HTTP/1.1: bad Content-Length"),
    "another coding": (OK + b"transfer-encoding: gzip, chunked\r\n\r\n", "the response head is not HTTP/1.1: Only Transfer-Encoding: chunked is supported"),
    "not HTTP at all": (b"SSH-2.0-sk-secret\r\n\r\n", "the response head is not HTTP/1.1: illegal status line"),
    "bad header line": (OK + b"x-key sk-secret\r\n\r\n", "the response head is not HTTP/1.1: illegal header line"),
    "unasked upgrade": (
        b"HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\n\r\n",
        "the response head is not HTTP/1.1: Received server _SWITCH_UPGRADE event without a pending proposal",
    ),
    "interim for ever": (b"HTTP/1.1 100 Continue\r\n\r\n" * (MAX_INTERIM + 1), f"more than {MAX_INTERIM} interim responses before the final one"),
}  # fmt: skip


@pytest.mark.promise("S5")
def test_an_invalid_head_is_refused_without_quoting_it() -> None:
    for name, (data, message) in ERRORS.items():
        error = None
        try:
            head_of(data)
        except FramingError as caught:
            error = caught
        assert str(error) == message, name
        assert error is not None, name
        assert error.__cause__ is None, name


@pytest.mark.parametrize("cut", [1, 100_000])
def test_header_lines_of_a_response(cut: int) -> None:
    for count in (1000, 1001):
        data = b"HTTP/1.1 200 OK\r\n" + b"x-a: 1\r\n" * count + b"\r\n"
        exchange, head, error = Http1Exchange("POST"), None, None
        try:
            for start in range(0, len(data), cut):
                head = exchange.receive_data(data[start : start + cut])
        except FramingError as raised:
            error = str(raised)
        expected = None if count == 1000 else "the response head has more than 1000 header lines"
        assert (head is None, error) == (expected is not None, expected)


@pytest.mark.parametrize("first", [b"", b"HTTP/1.1 100 Continue\r\n\r\n"])
@pytest.mark.parametrize(
    "line", [b"", b"content-length: 2\r\nconnection: keep-alive, x\r\n"]
)  # plain; for h11
@pytest.mark.parametrize("cut", [None, 100, MAX_HEAD // 2, MAX_HEAD - 1])
def test_the_limit_of_a_head_does_not_depend_on_how_it_was_cut(
    first: bytes, line: bytes, cut: int | None
) -> None:
    for size, complete in ((MAX_HEAD, True), (MAX_HEAD + 1, False)):
        head = first + OK + line + b"x: %b\r\n\r\n"
        head %= b"v" * (size - len(head) + 2)
        assert len(head) == size
        context = Http1Exchange("POST")
        error = None
        try:
            for part in (head + b"body",) if cut is None else (head[:cut], head[cut:] + b"body"):
                found = context.receive_data(part)
        except FramingError as caught:
            error = caught
        assert str(error) == ("None" if complete else "the response head is larger than 64 KiB")
        assert not complete or (found is not None and found.leftover == b"body")


@pytest.mark.parametrize("byte_by_byte", [False, True], ids=["whole", "byte by byte"])
def test_interim_responses_are_skipped(byte_by_byte: bool) -> None:
    data = (
        b"HTTP/1.1 100 Continue\r\n\r\n"
        b"HTTP/1.1 103 Early Hints\r\nlink: </style.css>\r\n\r\n" + OK + b"content-length: 2\r\n\r\nok"
    )
    head = head_of(data, byte_by_byte=byte_by_byte)
    assert (head.status, head.headers, head.leftover) == (200, [("content-length", "2")], b"ok")


def test_interim_responses_are_counted() -> None:
    context = Http1Exchange("POST")
    assert context.receive_data(b"HTTP/1.1 100 Continue\r\n\r\n") is None
    assert context.interim_responses == 1
