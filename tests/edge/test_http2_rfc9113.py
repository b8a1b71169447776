"""RFC 9113, section by section: frames that a client may send or must not, and the responses to them.

The cases are those of h2spec, and those that a request can be malformed in. After every one that concerns a single
stream the connection goes on: it acknowledges a ping.
"""

# ruff: noqa: E501 -- the tables are read by row

import json
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest
from edge import BACKENDS, CHAT_PATH, EdgeGateway, Gateways, wait_until, waits
from h2_client import (
    HEADERS,
    MAX_WINDOW,
    PREFACE,
    Headers,
    Peer,
    answered,
    code_of,
    data,
    headers,
    is_end,
    ping,
    raw,
    reset,
    settings,
    window,
)
from hyperframe.frame import (
    ContinuationFrame,
    DataFrame,
    Frame,
    GoAwayFrame,
    HeadersFrame,
    PriorityFrame,
    RstStreamFrame,
    SettingsFrame,
)

pytestmark = pytest.mark.process

POST = headers(("content-type", "application/json"), method="POST", path=CHAT_PATH)
CHAT = b'{"model": "up/m", "stream": true, "messages": [{"role": "user", "content": "Hi"}]}'

# Numbers of frame types and flags, for frames that hyperframe would not make.
DATA, HEADERS_, PRIORITY, RST, SETTINGS, PUSH, PING, GOAWAY, WINDOW, CONTINUATION = range(10)
END_STREAM, END_HEADERS, PADDED = 0x1, 0x4, 0x8
ACK = 0x1


@pytest.fixture(scope="module", params=BACKENDS)
def gateway(request: pytest.FixtureRequest, gateways: Gateways) -> Iterator[EdgeGateway]:
    with gateways.lend(request.param, waits) as running:
        known = len(running.gateway.log())
        yield running.gateway
        # None of the cases is an internal error.
        assert [
            line
            for line in running.gateway.log()[known:]
            if "error of ours" in str(line) or "traceback" in str(line)
        ] == []


Sent = list[Frame | bytes]


class Row(NamedTuple):
    """outcome: a status of stream 1; `RST n CODE`; `GOAWAY CODE`, after which the server closes; "" for nothing."""

    section: str
    what: str
    frames: Callable[[Peer], Sent]
    outcome: str


def head(flags: int, stream_id: int, block: bytes, kind: int = HEADERS_) -> bytes:
    return raw(kind, flags, stream_id, block)


def block(peer: Peer, fields: Headers = HEADERS) -> bytes:
    return peer.encoder.encode(fields)


def chat(peer: Peer, stream_id: int = 1) -> Sent:
    """Return a request whose response is a stream that does not end."""
    return [peer.request(stream_id, POST, end=False), data(stream_id, CHAT, end=True)]


def responded_first(peer: Peer) -> Sent:
    """Return a request that has its response when these frames have been sent."""
    peer.send(peer.request(1))
    assert peer.status_of(1) == "200"
    return []


def malformed(**pseudo: str | None) -> Callable[[Peer], Sent]:
    return lambda peer: [peer.request(1, headers(**pseudo))]


def with_field(name: str, value: str) -> Callable[[Peer], Sent]:
    return lambda peer: [peer.request(1, headers((name, value)))]


def continued(peer: Peer) -> Sent:
    whole = block(peer)
    return [
        HeadersFrame(1, data=whole[:3], flags=["END_STREAM"]),
        ContinuationFrame(1, data=whole[3:6]),
        ContinuationFrame(1, data=whole[6:], flags=["END_HEADERS"]),
    ]


PROTOCOL_ERROR = "GOAWAY PROTOCOL_ERROR"
FRAME_SIZE_ERROR = "GOAWAY FRAME_SIZE_ERROR"
MALFORMED = "RST 1 PROTOCOL_ERROR"

ROWS = [
    Row("4.1", "a frame of an unknown type", lambda p: [raw(0x16, 0, 0, b"12345678")], ""),
    Row("4.1", "unknown flags", lambda p: [raw(PING, 0xFE, 0, b"12345678")], ""),
    Row("4.1", "the reserved bit", lambda p: [head(5, 0x80000001, block(p))], "200"),
    Row("4.2", "DATA above MAX_FRAME_SIZE", lambda p: [p.request(1, POST, end=False), data(1, bytes(16385))], FRAME_SIZE_ERROR),
    Row("4.2", "HEADERS above MAX_FRAME_SIZE", lambda p: [head(5, 1, bytes(16385))], FRAME_SIZE_ERROR),
    Row("4.2", "DATA of MAX_FRAME_SIZE", lambda p: [p.request(1, POST, end=False), data(1, bytes(16384))], ""),
    Row("4.3", "a block that is no HPACK", lambda p: [head(5, 1, b"\xff\xff\xff\xff\xff")], "GOAWAY COMPRESSION_ERROR"),
    Row("4.3", "PRIORITY within a block", lambda p: [head(1, 1, block(p)), PriorityFrame(3)], PROTOCOL_ERROR),
    Row("4.3", "HEADERS of another stream within a block", lambda p: [head(1, 1, block(p)), p.request(3)], PROTOCOL_ERROR),
    Row("5.1", "DATA when idle", lambda p: [data(1, b"x")], PROTOCOL_ERROR),
    Row("5.1", "RST_STREAM when idle", lambda p: [reset(1)], PROTOCOL_ERROR),
    Row("5.1", "WINDOW_UPDATE when idle", lambda p: [window(1, 100)], PROTOCOL_ERROR),
    Row("5.1", "CONTINUATION when idle", lambda p: [head(4, 1, block(p), CONTINUATION)], PROTOCOL_ERROR),
    Row("5.1", "PRIORITY when idle", lambda p: [PriorityFrame(1), p.request(1)], "200"),
    Row("5.1", "DATA when half-closed", lambda p: [*chat(p), data(1, b"x")], "RST 1 STREAM_CLOSED"),
    Row("5.1", "HEADERS when half-closed", lambda p: [*chat(p), p.request(1)], "RST 1 STREAM_CLOSED"),
    Row("5.1", "PRIORITY and WINDOW_UPDATE when half-closed", lambda p: [*chat(p), PriorityFrame(1), window(1, 9)], ""),
    Row("5.1", "DATA after RST_STREAM", lambda p: [*chat(p), reset(1), data(1, b"x")], "RST 1 STREAM_CLOSED"),
    Row("5.1", "HEADERS after RST_STREAM", lambda p: [*chat(p), reset(1), p.request(1)], "RST 1 STREAM_CLOSED"),
    Row("5.1", "CONTINUATION after RST_STREAM", lambda p: [*chat(p), reset(1), head(4, 1, b"", CONTINUATION)], PROTOCOL_ERROR),
    Row("5.1", "PRIORITY, WINDOW_UPDATE, RST_STREAM after RST_STREAM", lambda p: [*chat(p), reset(1), PriorityFrame(1), window(1, 9), reset(1)], ""),
    Row("5.1", "DATA when closed", lambda p: [*responded_first(p), data(1, b"x")], "RST 1 STREAM_CLOSED"),
    Row("5.1", "HEADERS when closed", lambda p: [*responded_first(p), p.request(1)], "GOAWAY STREAM_CLOSED"),
    Row("5.1", "PRIORITY, WINDOW_UPDATE, RST_STREAM when closed", lambda p: [*responded_first(p), PriorityFrame(1), window(1, 9), reset(1)], ""),
    Row("5.1.1", "an even number", lambda p: [p.request(2)], PROTOCOL_ERROR),
    Row("5.1.1", "a lower number than before", lambda p: [*chat(p, 5), p.request(3)], PROTOCOL_ERROR),
    Row("5.1.1", "numbers left out", lambda p: [p.request(1), p.request(101)], "200"),
    Row("5.1.2", "one stream too many", lambda p: [p.request(n, POST, end=False) for n in range(1, 2 * 129, 2)], "RST 257 REFUSED_STREAM"),
    Row("5.3.2", "PRIORITY that depends on itself", lambda p: [PriorityFrame(1, depends_on=1), p.request(1)], "200"),
    Row("5.3.2", "a tree of priorities", lambda p: [*(PriorityFrame(n, depends_on=n + 2) for n in range(1, 1000, 2)), p.request(1)], "200"),
    Row("5.5", "an unknown frame within a block", lambda p: [head(1, 1, block(p)), raw(0x16, 0, 0, b"x")], PROTOCOL_ERROR),
    Row("6.1", "DATA on stream 0", lambda p: [raw(DATA, 0, 0, b"x")], PROTOCOL_ERROR),
    Row("6.1", "DATA with more padding than frame", lambda p: [p.request(1, POST, end=False), raw(DATA, PADDED, 1, b"\x05xx")], PROTOCOL_ERROR),
    Row("6.1", "DATA with padding", lambda p: [p.request(1, headers(method="POST"), end=False), raw(DATA, PADDED | END_STREAM, 1, b"\x02xx\0\0")], "405"),
    Row("6.2", "HEADERS on stream 0", lambda p: [head(5, 0, block(p))], PROTOCOL_ERROR),
    Row("6.2", "HEADERS with more padding than frame", lambda p: [head(5 | PADDED, 1, b"\xff" + block(p))], PROTOCOL_ERROR),
    Row("6.3", "PRIORITY on stream 0", lambda p: [raw(PRIORITY, 0, 0, bytes(5))], PROTOCOL_ERROR),
    Row("6.3", "PRIORITY of 4 octets", lambda p: [raw(PRIORITY, 0, 1, bytes(4))], FRAME_SIZE_ERROR),
    Row("6.4", "RST_STREAM on stream 0", lambda p: [raw(RST, 0, 0, bytes(4))], PROTOCOL_ERROR),
    Row("6.4", "RST_STREAM of 3 octets", lambda p: [*chat(p), raw(RST, 0, 1, bytes(3))], FRAME_SIZE_ERROR),
    # FRAME_SIZE_ERROR in the RFC; hyperframe does not distinguish it from other errors.
    Row("6.5", "SETTINGS with ACK and content", lambda p: [raw(SETTINGS, ACK, 0, bytes(6))], PROTOCOL_ERROR),
    Row("6.5", "SETTINGS on a stream", lambda p: [raw(SETTINGS, 0, 1, b"")], PROTOCOL_ERROR),
    Row("6.5", "SETTINGS of 3 octets", lambda p: [raw(SETTINGS, 0, 0, bytes(3))], FRAME_SIZE_ERROR),
    Row("6.5.2", "ENABLE_PUSH of 2", lambda p: [settings({2: 2})], PROTOCOL_ERROR),
    Row("6.5.2", "INITIAL_WINDOW_SIZE above 2^31-1", lambda p: [settings({4: 2**31})], "GOAWAY FLOW_CONTROL_ERROR"),
    Row("6.5.2", "MAX_FRAME_SIZE below 2^14", lambda p: [settings({5: 16383})], PROTOCOL_ERROR),
    Row("6.5.2", "MAX_FRAME_SIZE above 2^24-1", lambda p: [settings({5: 2**24})], PROTOCOL_ERROR),
    Row("6.5.2", "unknown settings", lambda p: [raw(SETTINGS, 0, 0, bytes.fromhex("fff000000001 fff100000002"))], ""),
    Row("6.6", "PUSH_PROMISE", lambda p: [*chat(p), raw(PUSH, 4, 1, b"\0\0\0\x02" + block(p))], PROTOCOL_ERROR),
    Row("6.7", "PING acknowledgement of nothing", lambda p: [ping(ack=True)], ""),
    Row("6.7", "PING on a stream", lambda p: [raw(PING, 0, 1, bytes(8))], PROTOCOL_ERROR),
    Row("6.7", "PING of 6 octets", lambda p: [raw(PING, 0, 0, bytes(6))], FRAME_SIZE_ERROR),
    Row("6.8", "GOAWAY on a stream", lambda p: [raw(GOAWAY, 0, 1, bytes(8))], PROTOCOL_ERROR),
    Row("6.8", "GOAWAY of 4 octets", lambda p: [raw(GOAWAY, 0, 0, bytes(4))], FRAME_SIZE_ERROR),
    Row("6.9", "WINDOW_UPDATE of 0 for the connection", lambda p: [raw(WINDOW, 0, 0, bytes(4))], PROTOCOL_ERROR),
    Row("6.9", "WINDOW_UPDATE of 0 for a stream", lambda p: [*chat(p), raw(WINDOW, 0, 1, bytes(4))], PROTOCOL_ERROR),
    Row("6.9", "WINDOW_UPDATE of 3 octets", lambda p: [raw(WINDOW, 0, 0, bytes(3))], FRAME_SIZE_ERROR),
    Row("6.9.1", "a window of the connection above 2^31-1", lambda p: [window(0, MAX_WINDOW)], "GOAWAY FLOW_CONTROL_ERROR"),
    Row("6.9.1", "a window of a stream above 2^31-1", lambda p: [*chat(p), window(1, MAX_WINDOW)], "RST 1 FLOW_CONTROL_ERROR"),
    Row("6.9.1", "more DATA than one window, as room is given back", lambda p: [p.request(1, POST, end=False), *(data(1, bytes(16384)) for _ in range(17))], ""),
    Row("6.9.2", "a window above 2^31-1 by SETTINGS", lambda p: [*chat(p), window(1, MAX_WINDOW - 65535), settings({4: 65536})], "GOAWAY FLOW_CONTROL_ERROR"),
    Row("6.10", "HEADERS with CONTINUATION", continued, "200"),
    Row("6.10", "CONTINUATION after END_HEADERS", lambda p: [*chat(p), head(4, 1, block(p), CONTINUATION)], PROTOCOL_ERROR),
    Row("6.10", "CONTINUATION of another stream", lambda p: [head(1, 1, block(p)), head(4, 3, b"", CONTINUATION)], PROTOCOL_ERROR),
    Row("6.10", "CONTINUATION on stream 0", lambda p: [head(1, 1, block(p)), head(4, 0, b"", CONTINUATION)], PROTOCOL_ERROR),
    Row("7", "RST_STREAM with an unknown code", lambda p: [*chat(p), raw(RST, 0, 1, b"\0\0\xff\xff")], ""),
    Row("8.1", "a second HEADERS without END_STREAM", lambda p: [p.request(1, POST, end=False), p.request(1, [("x", "y")], end=False)], MALFORMED),
    Row("8.1", "trailers", lambda p: [p.request(1, headers(method="POST"), end=False), data(1, b"{}"), p.request(1, [("x", "y")])], "405"),
    Row("8.1", "pseudo-headers in trailers", lambda p: [p.request(1, POST, end=False), p.request(1, [(":path", "/")])], MALFORMED),
    Row("8.1.1", "less content than content-length", lambda p: [p.request(1, [*POST, ("content-length", "5")], end=False), data(1, b"{}", end=True)], MALFORMED),
    Row("8.1.1", "more content than content-length", lambda p: [p.request(1, [*POST, ("content-length", "1")], end=False), data(1, b"{}")], MALFORMED),
    Row("8.1.1", "no content, and a content-length", lambda p: [p.request(1, [*POST, ("content-length", "5")])], MALFORMED),
    Row("8.1.1", "trailers before the content-length is reached", lambda p: [p.request(1, [*POST, ("content-length", "5")], end=False), p.request(1, [("x", "y")])], MALFORMED),
    Row("8.1.1", "two content-lengths", lambda p: [p.request(1, [*POST, ("content-length", "5"), ("content-length", "6")], end=False)], MALFORMED),
    Row("8.1.1", "a content-length that is no number", lambda p: [p.request(1, [*POST, ("content-length", "+5")], end=False)], MALFORMED),
    Row("8.2.1", "an upper-case name", with_field("X-Test", "1"), MALFORMED),
    Row("8.2.1", "a blank in a name", with_field("x test", "1"), MALFORMED),
    Row("8.2.1", "a colon in a name", with_field("x:test", "1"), MALFORMED),
    Row("8.2.1", "an empty name", with_field("", "1"), MALFORMED),
    Row("8.2.1", "NUL in a value", with_field("x-test", "a\0b"), MALFORMED),
    Row("8.2.1", "CR and LF in a value", with_field("x-test", "a\r\nb"), MALFORMED),
    Row("8.2.1", "a value that begins with a blank", with_field("x-test", " a"), MALFORMED),
    *(
        Row("8.2.2", f"{name}: {value}", with_field(name, value), MALFORMED)
        for name, value in (
            ("connection", "keep-alive"),
            ("keep-alive", "1"),
            ("proxy-connection", "close"),
            ("transfer-encoding", "chunked"),
            ("upgrade", "websocket"),
            ("te", "gzip"),
        )
    ),
    Row("8.2.2", "te: trailers", with_field("te", "trailers"), "200"),
    Row("8.3", "a pseudo-header behind a header", lambda p: [p.request(1, [HEADERS[0], ("x", "y"), *HEADERS[1:]])], MALFORMED),
    Row("8.3", "an unknown pseudo-header", malformed(test="1"), MALFORMED),
    Row("8.3", "a pseudo-header of responses", malformed(status="200"), MALFORMED),
    Row("8.3", "a pseudo-header of informational responses", malformed(status="100"), PROTOCOL_ERROR),
    Row("8.3.1", "no :method", malformed(method=None), MALFORMED),
    Row("8.3.1", "no :scheme", malformed(scheme=None), MALFORMED),
    Row("8.3.1", "no :path", malformed(path=None), MALFORMED),
    Row("8.3.1", "an empty :path", malformed(path=""), MALFORMED),
    Row("8.3.1", "two of :path", lambda p: [p.request(1, [*HEADERS, (":path", "/")])], MALFORMED),
    Row("8.3.1", "neither :authority nor host", malformed(authority=None), MALFORMED),
    Row("8.3.1", ":authority and another host", with_field("host", "example.org"), MALFORMED),
    Row("8.3.1", "a name that is not ours", malformed(authority="rebound.example"), "421"),
    Row("8.3.1", "host without :authority", lambda p: [p.request(1, headers(("host", "127.0.0.1"), authority=None))], "200"),
    Row("8.3.1", "a password in :authority", malformed(authority="me:canary@127.0.0.1"), MALFORMED),
    Row("8.3.1", "a :path without a slash", malformed(path="healthz"), MALFORMED),
    Row("8.3.1", "a URL as :path", malformed(path="http://127.0.0.1/healthz"), MALFORMED),
    Row("8.3.1", "a fragment in :path", malformed(path="/healthz#x"), MALFORMED),
    Row("8.3.1", "a :path that is not ASCII", malformed(path="/h\u00e9"), MALFORMED),
    Row("8.3.1", "* as :path of GET", malformed(path="*"), MALFORMED),
    Row("8.3.1", "* as :path of OPTIONS", malformed(method="OPTIONS", path="*"), "200"),
    Row("8.3.1", "a :method that is no token", malformed(method="G T"), MALFORMED),
    Row("8.3.1", "a :method that is not ASCII", malformed(method="G\u00c9T"), MALFORMED),
    Row("8.5", "CONNECT", malformed(method="CONNECT", scheme=None, path=None), MALFORMED),
    Row("8.5", "CONNECT with :path", malformed(method="CONNECT"), MALFORMED),
    Row("8.5", "the extended CONNECT, without a version of WebSocket", malformed(method="CONNECT", protocol="websocket"), "426"),
    Row("8.5", "the extended CONNECT to another protocol", malformed(method="CONNECT", protocol="connect-ip"), "501"),
    Row("8.5", ":protocol without CONNECT", malformed(protocol="websocket"), MALFORMED),
]  # fmt: skip


@pytest.mark.each_choice
@pytest.mark.parametrize("section", sorted({row.section for row in ROWS}))
@pytest.mark.promise("S11")
def test_each_frame_gets_the_response_that_the_rfc_requires(gateway: EdgeGateway, section: str) -> None:
    for row in ROWS:
        if row.section == section:
            try:
                check(gateway, row)
            except Exception as error:
                error.add_note(row.what)
                raise


def check(gateway: EdgeGateway, row: Row) -> None:
    with Peer(gateway.connect()) as peer:
        peer.begin()
        peer.send(*row.frames(peer))
        kind, _, expected = row.outcome.partition(" ")
        if kind == "GOAWAY":
            (found,) = answered(peer.until_closed(), GoAwayFrame)
            assert code_of(found) == expected
            return
        if kind == "RST":
            stream_id, _, code = expected.partition(" ")
            last = peer.until(lambda frame: is_end(frame, int(stream_id)))[-1]
            assert isinstance(last, RstStreamFrame)
            assert code_of(last) == code
        elif kind:
            assert peer.status_of(1) == row.outcome
        frames = peer.settle()
        if not kind:
            assert answered(frames, RstStreamFrame) == []
        assert answered(frames, GoAwayFrame) == []


def test_a_server_begins_with_its_settings_and_acknowledges_those_of_the_client(gateway: EdgeGateway) -> None:
    """3.4, 6.5.3."""
    with Peer(gateway.connect()) as peer:
        peer.send(PREFACE, settings({4: 1}))
        frames = peer.settle()
        assert isinstance(frames[0], SettingsFrame)
        assert "ACK" not in frames[0].flags
        # MAX_CONCURRENT_STREAMS, MAX_HEADER_LIST_SIZE and ENABLE_CONNECT_PROTOCOL (RFC 8441); no push.
        assert [frames[0].settings[number] for number in (3, 6, 8)] == [128, 65536, 1]
        assert not frames[0].settings.get(2)
        assert [frame.flags for frame in frames[1:] if isinstance(frame, SettingsFrame)] == [{"ACK"}]


def test_a_response_keeps_to_the_window(gateway: EdgeGateway) -> None:
    """6.9.2, 6.9.1: no more than the window, that SETTINGS opens and WINDOW_UPDATE, one octet at a time."""
    with Peer(gateway.connect()) as peer:
        peer.begin({4: 0})
        peer.send(peer.request(1))
        peer.until(lambda frame: isinstance(frame, HeadersFrame))
        assert answered(peer.settle(), DataFrame) == []
        peer.send(settings({4: 1}))
        peer.until(lambda frame: isinstance(frame, DataFrame))
        assert len(peer.contents[1]) == 1
        # Below zero: a window of two makes one available.
        peer.send(settings({4: 0}), window(1, 1))
        assert answered(peer.settle(), DataFrame) == []
        peer.send(window(1, 1))
        peer.until(lambda frame: isinstance(frame, DataFrame))
        assert len(peer.contents[1]) == 2
        peer.send(window(1, 1000))
        assert peer.status_of(1) == "200"


@pytest.mark.promise("R2", "S11")
@pytest.mark.parametrize(
    ("status", "fields"),
    [
        ("404", headers(method="POST", path="/nowhere")),
        ("405", headers(method="POST")),
        ("413", [*POST, ("content-length", str(10**12))]),
    ],
    ids=["404", "405", "413"],
)
def test_data_after_an_early_response_is_harmless(gateway: EdgeGateway, status: str, fields: Headers) -> None:
    """8.1: the whole response, then RST_STREAM with NO_ERROR; later data costs no window and no connection."""
    with Peer(gateway.connect()) as peer:
        peer.begin()
        peer.send(*chat(peer))
        peer.until(lambda frame: isinstance(frame, DataFrame))
        for stream_id in range(3, 43, 2):
            peer.send(peer.request(stream_id, fields, end=False))
            frames = peer.until(
                lambda frame, it=stream_id: isinstance(frame, RstStreamFrame) and frame.stream_id == it
            )
            assert peer.responses[stream_id][":status"] == status
            assert [code_of(frames[-1]), "END_STREAM" in frames[-2].flags] == ["NO_ERROR", True]
            # Twenty times 256 KiB: more than the connection's window, if it were not given back.
            peer.send(*(data(stream_id, bytes(16384)) for _ in range(16)))
            assert not any(is_end(frame, 1) for frame in peer.settle()), "the other stream goes on"


@pytest.mark.promise("S7")
@pytest.mark.parametrize(
    ("status", "fields"),
    [
        ("431", [*POST, ("x-large", "a" * 65536)]),
        ("431", [*POST, *((f"x-{number}", "a") for number in range(100))]),
        ("414", headers(method="POST", path=CHAT_PATH + "?" + "a" * 8192)),
    ],
    ids=["headers", "header_lines", "path"],
)
def test_a_head_that_is_too_large_is_refused_in_the_form_of_its_protocol(
    gateway: EdgeGateway, status: str, fields: Headers
) -> None:
    """10.5.1."""

    def refused() -> list[int]:
        return [line["status"] for line in gateway.log() if line.get("outcome") == "refused"]

    before = len(refused())
    with Peer(gateway.connect()) as peer:
        peer.begin()
        encoded = block(peer, fields)
        first, *parts = (encoded[start : start + 16384] for start in range(0, 70_000, 16384))
        peer.send(HeadersFrame(1, data=first, flags=["END_STREAM"]))
        peer.send(*(ContinuationFrame(1, data=part) for part in parts))
        peer.send(ContinuationFrame(1, flags=["END_HEADERS"]))
        assert peer.status_of(1) == status
        assert json.loads(peer.contents[1])["error"]["message"]
        peer.settle()
    # The line of an earlier test may come late.
    wait_until(lambda: int(status) in refused()[before:])
