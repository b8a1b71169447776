"""The check of a request's head: each head of the table is refused with its status, or passes; however it is cut."""

import email
import email.policy

import h11
import pytest
from http_heads import CASES

from dragoman import RemoteProtocolError, RequestRefused
from dragoman_server.serving import request_head
from dragoman_server.serving.request_head import (
    check_partial_head,
    parse_broken,
    read_head,
    split_absolute_form,
)

# These are the application's: there is nothing at the paths of the table.
PASSES = (200, 404, 421, 426)


def status_of(sent: bytes, *, cut: bool) -> int | None:
    """Return the status with which the first head is refused, or None. cut: the bytes come one by one."""
    sent = sent[len(sent) - len(sent.lstrip(b"\r\n")) :] if sent.startswith(b"\r\n") else sent
    end = sent.find(b"\r\n\r\n") + 4
    try:
        if cut or end < 4:
            for size in range(end - 1 if end > 3 else len(sent) + 1):
                check_partial_head(sent[:size], size - 1)
        if end > 3:
            read_head(sent[:end])
    except (RemoteProtocolError, RequestRefused) as error:
        return error.status
    return None


@pytest.mark.promise("S5", "S7")
def test_a_request_head_is_accepted_or_refused_with_its_status() -> None:
    for name, case in CASES.items():
        expected = None if case.statuses[0] in PASSES else case.statuses[0]
        assert status_of(case.sent, cut=False) == expected, name
        if len(case.sent) < 1000:
            assert status_of(case.sent, cut=True) == expected, name


@pytest.mark.promise("S5")
def test_h11_and_the_standard_library_read_the_same_in_an_accepted_head() -> None:
    accepted = {name: case for name, case in CASES.items() if case.statuses[0] in PASSES}
    for name, case in accepted.items():
        head, _, _ = case.sent.lstrip(b"\r\n").partition(b"\r\n\r\n")
        request_line, _, fields = head.partition(b"\r\n")
        connection = h11.Connection(h11.SERVER, 2**20)
        connection.receive_data(head + b"\r\n\r\n")
        request = connection.next_event()
        assert isinstance(request, h11.Request), name
        read, values = read_head(head + b"\r\n\r\n")
        assert (read.method.encode(), read.http_version.encode()) == (request.method, request.http_version)
        host, target = split_absolute_form(request.target) or (values.get(b"host"), request.target)
        assert (read.target, dict(read.headers).get(b"host")) == (target, host)
        # h11 writes this coding in lower case.
        headers = {n: v.lower() if n == b"transfer-encoding" else v for n, v in values.items()}
        assert headers == {n: b", ".join(v for m, v in request.headers if m == n) for n, _ in request.headers}
        assert [n for n, _ in read.headers if n != b"host"] == [n for n, _ in request.headers if n != b"host"]
        assert b"%s %s HTTP/%s" % (request.method, request.target, request.http_version) == request_line, name
        parsed = email.message_from_bytes(fields + b"\r\n\r\n", policy=email.policy.HTTP)
        found = [(n.lower().encode(), v.encode(errors="surrogateescape")) for n, v in parsed.raw_items()]
        seen = [each for each in found if each[0] != b"transfer-encoding"]
        assert seen == [each for each in request.headers if each != (b"transfer-encoding", b"chunked")], name
        assert parsed.defects == [], name


TARGETS: list[tuple[bytes, tuple[bytes, bytes] | None]] = [
    (b"/a", None),
    (b"*", None),
    (b"ftp://a/b", None),
    (b"http://", None),
    (b"http://a/b?c", (b"a", b"/b?c")),
    (b"HTTPS://a:1", (b"a:1", b"/")),
    (b"http://a?c", (b"a", b"/?c")),
]


def test_a_target_in_absolute_form() -> None:
    for target, parts in TARGETS:
        assert split_absolute_form(target) == parts, target


BROKEN_HEADS: list[tuple[bytes, bytes, bytes, list[tuple[bytes, bytes]]]] = [
    (b"", b"GET", b"", []),
    (b"\x16\x03\x01", b"GET", b"", []),
    (b"POST /v1/messages HTTP/2.0\r\nA: b\r\nc\r\n", b"POST", b"/v1/messages", [(b"a", b"b")]),
    (b"HEAD /v1", b"HEAD", b"/v1", []),
    (b"get /v1", b"GET", b"/v1", []),
    (b"GET /\xff HTTP/1.1", b"GET", b"", []),
    (b"GET http://a@b/c HTTP/1.1", b"GET", b"/c", []),
]


def test_method_path_and_fields_are_read_from_a_broken_head() -> None:
    for head, method, target, fields in BROKEN_HEADS:
        assert parse_broken(head) == (method, target, fields), head


def test_few_header_lines_are_kept_and_none_that_may_be_secret() -> None:
    names = (b"Authorization", b"X-Api-Key", b"Anthropic-Auth-Token", b"Cookie", b"X-Anything")
    secret = [b"%b: 0123456789" % name for name in names]
    number = request_head._KEPT_FIELDS * 2
    for value in range(number):
        read_head(b"\r\n".join([b"GET / HTTP/1.1", b"Host: a", *secret, b"User-Agent: %d" % value, b"", b""]))
    kept = request_head._FIELDS
    assert kept[b"User-Agent: %d" % (number - 1)] == (b"user-agent", b"%d" % (number - 1))
    assert len(kept) <= request_head._KEPT_FIELDS
    assert not kept.keys() & set(secret)
    hosts = request_head._kept_host.cache_info()
    read_head(b"GET / HTTP/1.1\r\nHost: %b\r\n\r\n" % (b"a" * 60_000))
    assert request_head._kept_host.cache_info() == hosts, "a head may be one long host"
