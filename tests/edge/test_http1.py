"""HTTP/1.1 at the client's side: where requests begin and end, their deadlines, and how the gateway notices a client
that leaves.
"""

from __future__ import annotations

import contextlib
import json
import select
import socket
import threading
import time
import zlib
from collections.abc import Iterator
from typing import Any

import pytest
from command.process import DEADLINE_S
from edge import (
    CHAT_PATH,
    CHAT_STREAM,
    MESSAGES_PATH,
    RESPONSES_PATH,
    STREAM_HEAD,
    Conversation,
    EdgeGateway,
    Gateways,
    Script,
    Stopwatch,
    Upstream,
    chat,
    chunk,
    post,
    reset_at_close,
    wait_until,
    waits,
)
from http_heads import CASES, SECOND
from trials import trials

pytestmark = pytest.mark.process

# The rule: an upstream is closed as soon after its client has left.
LEAVING_S = 0.25

# Time that a head may take, and silence in a body; and less than both are by default.
SLOW_S = 0.3
DEFAULT_S = 25.0


@pytest.fixture
def served(gateways: Gateways, backend: str) -> Iterator[Served]:
    yield from _served(gateways, backend, f"max_body_bytes = {2**23}")


@pytest.fixture
def impatient(gateways: Gateways, backend: str) -> Iterator[Served]:
    """Only for tests of time: a pause of this process would end any other request too."""
    yield from _served(gateways, backend, f"header_timeout_s = {SLOW_S}\nbody_timeout_s = {SLOW_S}")


def _served(gateways: Gateways, backend: str, server: str) -> Iterator[Served]:
    with gateways.lend(backend, server=server) as (upstream, gateway):
        served = Served(gateway, upstream)
        yield served
        for client in served.clients:
            client.leave("FIN")


class Served:
    def __init__(self, gateway: EdgeGateway, upstream: Upstream) -> None:
        self.gateway = gateway
        self.upstream = upstream
        self.clients: list[Client] = []

    def connect(self) -> Client:
        self.clients.append(Client(self.gateway.connect()))
        return self.clients[-1]

    def lines(self, path: str, count: int = 1) -> list[dict[str, Any]]:
        """Return the lines of the log about a path, when there are so many."""
        deadline = time.monotonic() + DEADLINE_S
        while True:
            found = [line for line in self.gateway.log() if line.get("path") == path]
            if len(found) >= count or time.monotonic() > deadline:
                return found
            time.sleep(0.01)


class Client:
    """Reads responses one by one."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self.socket.settimeout(DEADLINE_S)
        self._file = connection.makefile("rb")

    def send(self, data: bytes) -> None:
        with contextlib.suppress(ConnectionError):
            self.socket.sendall(data)

    def response(self) -> tuple[int, dict[str, str], bytes] | None:
        """Return status, headers and body of the next response, or None if the server has closed the connection."""
        line = self._file.readline()
        if not line:
            return None
        status = int(line.split()[1])
        headers = {}
        while (line := self._file.readline()) != b"\r\n":
            name, _, value = line.decode().partition(":")
            headers[name.lower()] = value.strip()
        if status == 100:
            return self.response()
        return status, headers, self._file.read(int(headers.get("content-length", "0")))

    def status(self) -> int | None:
        """Return the status of the next response."""
        found = self.response()
        return None if found is None else found[0]

    def leave(self, how: str) -> None:
        """FIN or RST."""
        if how == "RST" and self.socket.fileno() >= 0:
            reset_at_close(self.socket)
        self._file.close()
        self.socket.close()


# Requests.


@pytest.mark.promise("S5", "S7")
def test_bytes_that_are_requests(served: Served) -> None:
    """One connection for each row of the table: the responses, and if it is open afterwards."""
    wrong = {}
    for name, case in CASES.items():
        client = served.connect()
        client.send(case.sent)
        statuses = []
        for _ in case.statuses:
            statuses.append(client.status())
        client.send(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n")
        stays = client.status() == 200
        if (tuple(statuses), stays) != (case.statuses, case.stays):
            wrong[name] = statuses, stays
    assert wrong == {}


REFUSED = {
    # Bytes after `METHOD target HTTP/1.1`, its line end included; the status.
    "400": (b"GET %s HTTP/1.1\r\nhost: localhost\r\nhost: b\r\n\r\n", 400),
    "414": (b"GET %s?" + b"a" * 9000 + b" HTTP/1.1\r\nhost: localhost\r\n\r\n", 414),
    "417": (b"GET %s HTTP/1.1\r\nhost: localhost\r\nexpect: x\r\n\r\n", 417),
    "431": (b"GET %s HTTP/1.1\r\nhost: localhost\r\na: " + b"a" * 66_000 + b"\r\n\r\n", 431),
    "501": (b"GET %s HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: gzip, chunked\r\n\r\n", 501),
    "505": (b"GET %s HTTP/2.0\r\nhost: localhost\r\n\r\n", 505),
    "408": (b"GET %s HTTP/1.1\r\nhost: localhost\r\n", 408),
}


@pytest.mark.promise("S7")
@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("endpoint", [CHAT_PATH, MESSAGES_PATH])
@pytest.mark.each_choice
def test_a_refusal_has_the_clients_form_and_one_line_in_the_log(
    served: Served, impatient: Served, name: str, endpoint: str
) -> None:
    sent, status = REFUSED[name]
    path = f"{endpoint}/{name}"
    requested = impatient if status == 408 else served
    client = requested.connect()
    client.send(sent % path.encode())
    response = client.response()
    assert response is not None
    assert client.response() is None, "the connection must end"
    found, headers, body = response
    assert (found, headers["content-type"], headers["connection"]) == (status, "application/json", "close")
    document = json.loads(body)
    if endpoint == MESSAGES_PATH:
        assert (document["type"], document["request_id"]) == ("error", headers["dragoman-request-id"])
    assert document["error"]["message"].startswith("the request's head ")
    (line,) = requested.lines(path)
    expected = ("refused", status, document["error"]["message"])
    assert (line["outcome"], line["status"], line["error"]) == expected
    assert line["id"] == headers["dragoman-request-id"]
    assert (line["method"], line["client_address"]) == ("GET", "127.0.0.1")


def test_a_refusal_of_head_has_no_body(served: Served) -> None:
    client = served.connect()
    client.send(b"HEAD /v1/models HTTP/2.0\r\nhost: localhost\r\n\r\n")
    response = client.socket.recv(65536)
    assert response.startswith(b"HTTP/1.1 505")
    assert response.endswith(b"\r\n\r\n")
    assert client.socket.recv(65536) == b""


CHUNKED = (
    b"POST " + MESSAGES_PATH.encode() + b" HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n"
)
BROKEN_BODIES = {
    "a chunk that is longer than its size": b"3\r\nhello\r\n0\r\n\r\n",
    "a trailer that is none": b"5\r\nhello\r\n0\r\na b\r\n\r\n",
    "a CR in an extension": b"5;a\rb\r\nhello\r\n0\r\n\r\n",
}


@pytest.mark.promise("S5", "S7")
@pytest.mark.parametrize("name", BROKEN_BODIES)
@pytest.mark.each_choice
def test_a_body_with_broken_chunks_is_refused_by_its_endpoint(served: Served, name: str) -> None:
    before = len(served.lines(MESSAGES_PATH, 0))
    client = served.connect()
    client.send(CHUNKED + BROKEN_BODIES[name] + SECOND)
    response = client.response()
    assert response is not None
    assert client.response() is None
    assert (response[0], response[1]["connection"]) == (400, "close")
    assert json.loads(response[2])["error"]["message"].startswith("the request's body cannot be read: ")
    lines = served.lines(MESSAGES_PATH, before + 1)[before:]
    assert [(line["outcome"], line["status"]) for line in lines] == [("refused", 400)]


BOMB = zlib.compress(bytes(2**26), wbits=31)


def heavy(body: bytes, coding: str = "identity") -> bytes:
    return post(MESSAGES_PATH, body, {"content-encoding": coding})


HEAVY_REQUESTS = {
    "a bomb": (heavy(BOMB, "gzip"), 413),
    "a bomb in a bomb": (heavy(zlib.compress(BOMB, wbits=31), "gzip, gzip"), 413),
    "arrays in arrays": (heavy(b'{"model": "up/m", "messages": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"), 400),
    "objects in objects": (heavy(b'{"a":' * 100_000 + b"1" + b"}" * 100_000), 400),
    "chunks of a byte": (CHUNKED + b"1\r\nx\r\n" * 30_000 + b"0\r\n\r\n", 400),
}  # fmt: skip


@pytest.mark.promise("S8", "S9")
def test_a_body_that_decompresses_or_nests_without_end_delays_no_other_request(served: Served) -> None:
    resident = served.gateway.resident_bytes
    for request, status in HEAVY_REQUESTS.values():
        clients = [served.connect() for _ in range(4)]
        for client in clients:
            client.send(request)
        watch = Stopwatch(served.gateway)
        assert json.loads(served.gateway.get("/healthz")) == {"status": "ok", "name": "dragoman"}
        assert watch.worked() < 1
        assert [client.status() for client in clients] == [status] * 4
    assert served.gateway.resident_bytes - resident < 2**27


# Deadlines.


@pytest.mark.promise("S10")
@pytest.mark.each_choice
@pytest.mark.parametrize("chunks", [[], [b"{"], [b"{", *[b" "] * 8]], ids=["silent", "stops", "trickles"])
def test_a_slow_body_is_refused_and_others_are_served(impatient: Served, chunks: list[bytes]) -> None:
    client = impatient.connect()
    begun = time.monotonic()
    client.send(
        b"POST " + RESPONSES_PATH.encode() + b" HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1000\r\n\r\n"
    )
    for data in chunks:
        client.send(data)
        assert json.loads(impatient.gateway.get("/healthz")) == {"status": "ok", "name": "dragoman"}
        time.sleep(0.05)
    response = client.response()
    assert response is not None
    assert SLOW_S <= time.monotonic() - begun < DEFAULT_S
    assert (response[0], response[1]["connection"]) == (408, "close")
    assert "the request body" in json.loads(response[2])["error"]["message"]
    assert client.response() is None


@pytest.mark.promise("S10")
def test_a_head_that_trickles_is_refused(impatient: Served) -> None:
    client = impatient.connect()
    begun = time.monotonic()
    client.send(b"GET /v1/models HTTP/1.1\r\nhost: localhost\r\na: ")
    while not select.select([client.socket], [], [], 0.03)[0]:
        assert time.monotonic() - begun < DEFAULT_S, "each byte has moved the deadline"
        client.send(b"a")
    assert client.status() == 408
    # The time counts for each head, and only while there is one.
    client = impatient.connect()
    client.send(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n\r\n")
    assert client.status() == 200
    time.sleep(1.2 * SLOW_S)
    client.send(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n")
    assert client.status() == 200


# Bytes after a request.


def silent(conversation: Conversation) -> None:
    """Read a request and send nothing until the gateway closes."""
    if conversation.read() is not None:
        conversation.until_closed()


def half_a_body(conversation: Conversation) -> None:
    if conversation.read() is not None:
        conversation.send(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 99\r\n\r\n{")
        conversation.until_closed()


BEHIND = {
    "nothing": b"",
    "an empty line": b"\r\n",
    "a request": SECOND,
    "half a request": SECOND[:10],
    "more than is held": b"GET /seen/3 HTTP/1.1\r\nhost: localhost\r\na: " + b"a" * 300_000,
}
# Name -> behaviour of the upstream, and `stream` of the client's request.
PHASES: dict[str, tuple[Script, bool]] = {
    "before the head of a stream": (silent, True),
    "in the middle of a stream": (waits, True),
    "before the head of a whole response": (silent, False),
    "in the middle of a whole response": (half_a_body, False),
}


@pytest.mark.promise("R1", "R2")
@pytest.mark.parametrize("phase", PHASES)
def test_a_client_that_leaves_is_noticed_despite_pipelined_data(served: Served, phase: str) -> None:
    script, stream = PHASES[phase]
    served.upstream.script = script
    for behind, data in BEHIND.items():
        for how in ("FIN", "RST"):
            for trial in trials():
                count = len(served.upstream.conversations)
                client = served.connect()
                client.send(post(CHAT_PATH, chat(stream=stream)) + data)
                conversation = _requested(served.upstream, count)
                while script is waits and b"Hello" not in client.socket.recv(65536):
                    pass
                with trial:
                    watch = Stopwatch(served.gateway)
                    client.leave(how)
                    took = watch.seconds(served.upstream.wait_closed(conversation))
                    assert took < LEAVING_S, (behind, how)


def _requested(upstream: Upstream, before: int) -> Conversation:
    """Return the conversation after the first so many, when it has a request."""
    found: list[Conversation] = []
    wait_until(
        lambda: found.extend(each for each in upstream.conversations[before:] if each.requests) or found
    )
    return found[0]


def test_a_pipelined_request_is_served_after_the_first_response(served: Served) -> None:
    def slowly(conversation: Conversation) -> None:
        if conversation.read() is not None:
            conversation.send(STREAM_HEAD + chunk("Hello"))
            time.sleep(0.2)
            conversation.send(CHAT_STREAM)

    served.upstream.script = slowly
    client = served.connect()
    client.send(post(CHAT_PATH, chat()) + b"\r\n" + SECOND[:30])
    time.sleep(0.1)
    client.send(SECOND[30:] + post(CHAT_PATH, chat()))
    data = b""
    while data.count(b"[DONE]") < 2 or not data.endswith(b"0\r\n\r\n"):
        data += client.socket.recv(65536)
    order = [data.index(b"HTTP/1.1 200"), data.index(b"HTTP/1.1 404"), data.rindex(b"HTTP/1.1 200")]
    assert order == sorted(order)


@pytest.mark.promise("R9")
def test_too_much_pipelined_data_ends_the_connection_after_the_response(served: Served) -> None:
    flooded = threading.Event()

    def script(conversation: Conversation) -> None:
        if conversation.read() is not None:
            flooded.wait(
                DEADLINE_S
            )  # else the response may have ended before there is too much after its request
            conversation.send(STREAM_HEAD + CHAT_STREAM)

    served.upstream.script = script
    resident = served.gateway.resident_bytes
    client = served.connect()
    client.send(post(CHAT_PATH, chat()) + b"GET /seen/3 HTTP/1.1\r\nhost: localhost\r\na: ")
    flood = b"a" * 2**20
    with contextlib.suppress(OSError):
        for _ in range(32):
            client.socket.sendall(flood)
    flooded.set()
    data = b""
    with contextlib.suppress(ConnectionError):
        while more := client.socket.recv(65536):
            data += more
    assert b"[DONE]" in data
    assert data.count(b"HTTP/1.1 ") == 1
    assert served.gateway.resident_bytes - resident < 8 * 2**20
