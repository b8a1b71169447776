"""Clients that cause much work with few bytes over HTTP/2: they get ENHANCE_YOUR_CALM, and others are not affected."""

# ruff: noqa: E501 -- the tables are read by row

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

import pytest
from edge import BACKENDS, CHAT_PATH, EdgeGateway, Gateways, Stopwatch, read_response, waits
from h2_client import HEADERS, Peer, answered, code_of, data, headers, ping, raw, reset, settings, window
from hyperframe.frame import ContinuationFrame, GoAwayFrame, HeadersFrame, PriorityFrame

pytestmark = [pytest.mark.process, pytest.mark.promise("S11")]

POST = headers(method="POST", path=CHAT_PATH)

# How long the event loop may work on a flood before another client has its response.
MAX_DELAY_S = 0.75


@pytest.fixture(scope="module", params=BACKENDS)
def gateway(request: pytest.FixtureRequest, gateways: Gateways) -> Iterator[EdgeGateway]:
    with gateways.lend(request.param, waits) as running:
        yield running.gateway


class Flood(NamedTuple):
    """frames: bytes to send, each of `count` times. outcome: the code of the GOAWAY."""

    what: str
    count: int
    frames: Callable[[Peer, int], list[bytes]]
    outcome: str = "ENHANCE_YOUR_CALM"


def request(peer: Peer, index: int, *, end: bool = True) -> bytes:
    return peer.request(2 * index + 1, end=end).serialize()


def once(first: Callable[[Peer], bytes], then: bytes) -> Callable[[Peer, int], list[bytes]]:
    return lambda peer, index: [then] if index else [first(peer), then]


def unfinished(peer: Peer) -> bytes:
    return HeadersFrame(1, data=peer.encoder.encode(HEADERS)).serialize()


def bomb(peer: Peer, _: int) -> list[bytes]:
    """Return a header of 3 KiB, and 4,000 references to it, of a byte each."""
    return [raw(1, 0x5, 1, peer.encoder.encode([*HEADERS, ("x-bomb", "a" * 3000)]) + b"\xbe" * 4000)]


def table_sizes(peer: Peer, _: int) -> list[bytes]:
    """Return a request after 160,000 changes of the decoder's table, of a byte each, which add nothing to the list."""
    changes = bytes([0x20]) * 16_000
    more = [raw(9, 0, 1, changes)] * 9
    return [raw(1, 0x1, 1, changes), *more, raw(9, 0x4, 1, peer.encoder.encode(HEADERS))]


FLOODS = [
    Flood("PING", 50_000, lambda _, __: [ping().serialize()]),
    Flood("SETTINGS", 3000, lambda _, __: [settings({4: 65535}).serialize()]),
    Flood("PRIORITY", 3000, lambda _, __: [PriorityFrame(1).serialize()]),
    Flood("frames of an unknown type", 3000, lambda _, __: [raw(0x16, 0, 0)]),
    Flood("WINDOW_UPDATE", 3000, lambda _, __: [window(0, 1).serialize()]),
    Flood("empty DATA", 3000, once(lambda p: p.request(1, POST, end=False).serialize(), data(1).serialize())),
    Flood("DATA of one byte", 3000, once(lambda p: p.request(1, POST, end=False).serialize(), data(1, b"x").serialize())),
    Flood("rapid reset", 10_000, lambda p, n: [request(p, n), reset(2 * n + 1).serialize()]),
    Flood("made you reset, by a window", 2000, lambda p, n: [request(p, n, end=False), window(2 * n + 1, 2**31 - 1).serialize()]),
    Flood("made you reset, by DATA behind the end", 2000, lambda p, n: [request(p, n), data(2 * n + 1, bytes(64)).serialize()]),
    Flood("made you reset, by what is malformed", 2000, lambda p, n: [p.request(2 * n + 1, headers(path=None)).serialize()]),
    Flood("made you reset, by a path", 2000, lambda p, n: [p.request(2 * n + 1, headers(path="nowhere")).serialize()]),
    Flood("more requests than streams", 3000, lambda p, n: [p.request(2 * n + 1, POST, end=False).serialize()]),
    Flood("empty CONTINUATION", 3000, once(unfinished, ContinuationFrame(1).serialize()), "PROTOCOL_ERROR"),
    Flood("CONTINUATION", 65, once(unfinished, ContinuationFrame(1, data=bytes(16384)).serialize())),
    Flood("a small block of large headers", 1, bomb),
    Flood("a large block of no headers", 1, table_sizes),
]  # fmt: skip


@contextmanager
def another_client(gateway: EdgeGateway) -> Iterator[list[float]]:
    """Requests /healthz all the time on its own connection: how long the gateway worked until each response."""
    took: list[float] = []
    done = threading.Event()

    def send_request() -> None:
        with gateway.connect() as client:
            while not (took and done.is_set()):
                watch = Stopwatch(gateway)
                client.sendall(b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
                assert read_response(client).startswith(b"HTTP/1.1 200 ")
                took.append(watch.worked())
                time.sleep(0.005)

    thread = threading.Thread(target=send_request)
    thread.start()
    try:
        yield took
    finally:
        done.set()
        thread.join()


@pytest.mark.parametrize("flood", FLOODS, ids=lambda flood: flood.what.replace(" ", "_"))
def test_a_flood_ends_its_connection_and_delays_no_other(gateway: EdgeGateway, flood: Flood) -> None:
    with Peer(gateway.connect()) as peer, another_client(gateway) as took:
        peer.begin()
        frames = b"".join(frame for index in range(flood.count) for frame in flood.frames(peer, index))
        with suppress(ConnectionError):
            peer.send(frames)
        (found,) = answered(peer.until_closed(), GoAwayFrame)
    assert code_of(found) == flood.outcome
    assert took
    assert max(took) < MAX_DELAY_S
