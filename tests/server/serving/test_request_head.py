"""The check of a request's head: each head of the table is refused with its status, or passes; however it is cut."""

import email
import email.policy

import h11
import pytest
from http_heads import CASES

from dragoman import RemoteProtocolError, RequestRefused
from dragoman_server.serving.request_head import (
    check_head,
    check_partial_head,
    parse_broken,
    split_absolute_form,
)

# These are the application's: there is nothing at the paths of the table.
PASSES = (200, 404, 421, 426)


def status_of(sent: bytes, *, cut: bool) -> int | None:
    """What the first head is refused with. cut: the bytes come one by one."""
    sent = sent[len(sent) - len(sent.lstrip(b"\r\n")) :] if sent.startswith(b"\r\n") else sent
    end = sent.find(b"\r\n\r\n") + 4
    try:
        if cut or end < 4:
            for size in range(end - 1 if end > 3 else len(sent) + 1):
                check_partial_head(sent[:size], size - 1)
        if end > 3:
            check_head(sent[:end])
    except (RemoteProtocolError, RequestRefused) as error:
        return error.status
    return None


@pytest.mark.promise("S5", "S7")
@pytest.mark.parametrize("name", CASES)
def test_a_head_passes_or_has_its_status(name: str) -> None:
    case = CASES[name]
    expected = None if case.statuses[0] in PASSES else case.statuses[0]
    assert status_of(case.sent, cut=False) == expected
    if len(case.sent) < 1000:
        assert status_of(case.sent, cut=True) == expected


@pytest.mark.promise("S5")
@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.statuses[0] in PASSES])
def test_what_passes_is_read_alike_by_h11_and_by_the_standard_library(name: str) -> None:
    head, _, _ = CASES[name].sent.lstrip(b"\r\n").partition(b"\r\n\r\n")
    request_line, _, fields = head.partition(b"\r\n")
    connection = h11.Connection(h11.SERVER, 2**20)
    connection.receive_data(head + b"\r\n\r\n")
    request = connection.next_event()
    assert isinstance(request, h11.Request)
    assert b"%s %s HTTP/%s" % (request.method, request.target, request.http_version) == request_line
    parsed = email.message_from_bytes(fields + b"\r\n\r\n", policy=email.policy.HTTP)
    found = [(name.lower().encode(), value.encode()) for name, value in parsed.raw_items()]
    assert [each for each in found if each[0] != b"transfer-encoding"] == [
        each for each in request.headers if each != (b"transfer-encoding", b"chunked")
    ]
    assert parsed.defects == []


@pytest.mark.parametrize(
    ("target", "parts"),
    [
        (b"/a", None),
        (b"*", None),
        (b"ftp://a/b", None),
        (b"http://", None),
        (b"http://a/b?c", (b"a", b"/b?c")),
        (b"HTTPS://a:1", (b"a:1", b"/")),
        (b"http://a?c", (b"a", b"/?c")),
    ],
)
def test_a_target_in_absolute_form(target: bytes, parts: tuple[bytes, bytes] | None) -> None:
    assert split_absolute_form(target) == parts


@pytest.mark.parametrize(
    ("head", "method", "target", "fields"),
    [
        (b"", b"GET", b"", []),
        (b"\x16\x03\x01", b"GET", b"", []),
        (b"POST /v1/messages HTTP/2.0\r\nA: b\r\nc\r\n", b"GET", b"/v1/messages", [(b"a", b"b")]),
        (b"HEAD /v1", b"HEAD", b"/v1", []),
        (b"GET /\xff HTTP/1.1", b"GET", b"", []),
        (b"GET http://a@b/c HTTP/1.1", b"GET", b"/c", []),
    ],
)
def test_what_can_be_read_of_a_broken_head(
    head: bytes, method: bytes, target: bytes, fields: list[tuple[bytes, bytes]]
) -> None:
    assert parse_broken(head) == (method, target, fields)
