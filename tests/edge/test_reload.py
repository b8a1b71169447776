"""Reloads of a running gateway: no request is lost, in one process and in several."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import socket
import ssl
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from edge import (
    CHAT_PATH,
    CHAT_WHOLE,
    STREAM_HEAD,
    Conversation,
    EdgeGateway,
    Running,
    Upstream,
    chat,
    chunk,
    post,
    read_response,
    wait_until,
    waits,
    whole,
)
from h2_client import Peer, data, headers
from http_certificate import Certificate, make_certificate

pytestmark = pytest.mark.process

ADMIN = "admin-canary-0123456789-0123456789-wq7zk"
SERVER = f'admin_key = "{ADMIN}"'
REQUESTS, RELOADS, CLIENTS = 60, 4, 5
# One process, and a supervisor with its workers.
GATEWAYS = [("asyncio", 1), ("trio", 2)]


def responds(conversation: Conversation) -> None:
    while conversation.read() is not None:
        conversation.send(whole(CHAT_WHOLE))


@contextmanager
def serving(directory: Path, backend: str, workers: int = 1, more: str = "") -> Iterator[Running]:
    server = f"{SERVER}\nworkers = {workers}\n{more}"
    with (
        Upstream(responds) as upstream,
        EdgeGateway(directory, upstream, backend=backend, server=server) as gateway,
    ):
        yield Running(upstream, gateway.ready())


@pytest.fixture(scope="module", params=GATEWAYS, ids=str)
def shared(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Running, Path]]:
    """A gateway for all tests but those that need another one; the last test stops it."""
    directory = tmp_path_factory.mktemp("reload")
    with serving(directory, *request.param) as running:
        yield running, directory


@pytest.fixture
def running(shared: tuple[Running, Path]) -> Iterator[Running]:
    """The shared gateway, which gets its first configuration back."""
    (upstream, gateway), directory = shared
    file = directory / "dragoman.toml"
    text = file.read_text()
    upstream.restart(responds)
    yield shared[0]
    file.write_text(text)
    if not gateway.has_ended:
        assert reload(gateway)[0] == 200


@pytest.fixture
def files(shared: tuple[Running, Path]) -> Files:
    return Files(shared[1])


class Files:
    """The configuration of a running gateway."""

    def __init__(self, directory: Path) -> None:
        self._file = directory / "dragoman.toml"

    def replace(self, before: str, after: str) -> None:
        text = self._file.read_text()
        assert before in text
        # In one step: a reload may read it at any time.
        (written := self._file.with_suffix(".new")).write_text(text.replace(before, after))
        written.replace(self._file)


def reload(gateway: EdgeGateway) -> tuple[int, dict[str, Any]]:
    """POST /admin/reload."""
    return request(gateway, "POST", "/admin/reload", {"authorization": f"Bearer {ADMIN}"})


def request(
    gateway: EdgeGateway, method: str, path: str, headers: dict[str, str] | None = None, body: bytes = b""
) -> tuple[int, dict[str, Any]]:
    connection = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=60)
    try:
        connection.request(method, path, body, headers or {})
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    finally:
        connection.close()


def ask(gateway: EdgeGateway) -> int:
    """Return the status of a request to the upstream."""
    body = json.dumps(chat("m", stream=False)).encode()
    return request(gateway, "POST", CHAT_PATH, {"content-type": "application/json"}, body)[0]


def test_no_request_is_lost(running: Running, files: Files) -> None:
    """Reloads while requests come, half of them by signal, which move the upstream to and fro."""
    one, gateway = running
    before = reloads(gateway)
    with Upstream(responds) as two:
        urls = [one.url, two.url]
        ready, done = threading.Semaphore(0), threading.Semaphore(0)

        def send(_: int) -> int:
            ready.acquire()
            status = ask(gateway)
            done.release()
            return status

        with ThreadPoolExecutor(CLIENTS) as clients:
            statuses = clients.map(send, range(REQUESTS))
            for number in range(RELOADS):
                ready.release(REQUESTS // RELOADS)
                for _ in range(REQUESTS // RELOADS // 2):
                    done.acquire()
                files.replace(urls[number % 2], urls[(number + 1) % 2])
                if number % 2:
                    gateway.signal(signal.SIGHUP)
                else:
                    assert reload(gateway)[0] == 200
                count = before + number + 1
                wait_until(lambda count=count: reloads(gateway) >= count, what=f"{number + 1} reloads")
            assert list(statuses) == [200] * REQUESTS
        sent = [sum(len(each.requests) for each in upstream.conversations) for upstream in (one, two)]
        assert sum(sent) == REQUESTS
        assert all(sent), "both configurations were used"
    assert not any(line["level"] == "error" for line in gateway.log())


def reloads(gateway: EdgeGateway) -> int:
    return sum("the configuration was reloaded" in line for line in gateway.output)


def test_a_signal_is_a_reload_whatever_it_interrupts(running: Running, files: Files) -> None:
    gateway = running.gateway
    for _ in range(100):
        gateway.signal(signal.SIGHUP)
        assert request(gateway, "GET", "/healthz")[0] == 200
    files.replace('models = ["m"]', 'models = ["last"]')
    gateway.signal(signal.SIGHUP)
    wait_until(lambda: request(gateway, "GET", "/v1/models/last")[0] == 200)
    assert not any(line["level"] == "error" for line in gateway.log())


@pytest.mark.parametrize(
    "shared", GATEWAYS[:1], indirect=True, ids=str
)  # each worker has its own connections
def test_connections_to_an_old_upstream_are_closed_when_its_last_request_ends(
    running: Running, files: Files
) -> None:
    old, gateway = running
    release = threading.Event()

    def script(conversation: Conversation) -> None:
        if b'"stream": true' in (conversation.read() or b""):
            conversation.send(STREAM_HEAD + chunk("Hello"))
            release.wait(60)
            conversation.send(chunk(finish_reason="stop") + b"data: [DONE]\n\n")
        else:
            conversation.send(whole(CHAT_WHOLE))
            conversation.until_closed()

    old.restart(script)
    with Upstream(responds) as new:
        with gateway.connect() as client:
            client.sendall(post(CHAT_PATH, chat("m")))
            old.wait_for(1)
            assert ask(gateway) == 200
            idle = old.wait_for(2)
            files.replace(old.url, new.url)
            assert reload(gateway)[0] == 200
            assert idle.closed_at is None, "the stream may still need it"
            release.set()
            assert b"[DONE]" in read_response(client)
        old.wait_closed(idle)


def test_a_wrong_configuration_changes_nothing_and_is_reported(running: Running, files: Files) -> None:
    gateway = running.gateway
    files.replace('models = ["m"]', 'model = "m"')
    status, result = reload(gateway)
    problem = result["errors"][0]
    assert (status, result["status"]) == (422, "refused")
    assert re.search(
        r'dragoman\.toml:\d+: upstreams\[0\]\.model: unknown key; did you mean "models"\?', problem
    )
    gateway.signal(signal.SIGHUP)
    for _ in range(2):
        gateway.wait_for_line("the configuration was not reloaded: .*unknown key")
    assert ask(gateway) == 200


def workers_of(gateway: EdgeGateway) -> list[int]:
    """The processes that its supervisor has started to serve."""
    children = Path(f"/proc/{gateway.pid}/task/{gateway.pid}/children").read_text().split()
    workers = []
    for pid in map(int, children):
        with suppress(OSError):  # it has ended since
            if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes():
                workers.append(pid)
    return workers


def test_a_replaced_worker_has_the_new_configuration(running: Running, files: Files) -> None:
    gateway = running.gateway
    workers = workers_of(gateway)
    files.replace('models = ["m"]', 'models = ["n"]')
    assert reload(gateway)[0] == 200
    files.replace('models = ["n"]', 'models = "broken"')
    for pid in workers:
        os.kill(pid, signal.SIGKILL)
    for _ in workers:
        gateway.wait_for_line("starting another")
    wait_until(lambda: len(workers_of(gateway)) == len(workers))
    status, body = request(gateway, "GET", "/v1/models/n")
    assert (status, body["id"]) == (200, "n")


def test_load_balancers_see_a_stop_before_connections_are_refused(running: Running, files: Files) -> None:
    """The last test of the shared gateway."""
    gateway = running.gateway
    files.replace(SERVER, f"{SERVER}\ndrain_delay_s = 3600")
    assert reload(gateway)[0] == 200
    assert request(gateway, "GET", "/readyz") == (200, {"status": "ready"})
    gateway.signal(signal.SIGTERM)
    wait_until(lambda: request(gateway, "GET", "/readyz") == (503, {"status": "draining"}))
    assert request(gateway, "GET", "/healthz")[0] == 200
    assert ask(gateway) == 200
    gateway.signal(signal.SIGTERM)  # the second signal waits for nothing
    assert gateway.wait() == 0
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", gateway.port))


def test_a_worker_that_is_starting_gets_the_new_configuration_once_it_serves(tmp_path: Path) -> None:
    # With a store in a file, the application takes a while to start.
    store = 'account_store = "sqlite"\naccount_store_path = "accounts.db"'
    with serving(tmp_path, "asyncio", 2, store) as (_, gateway):
        before = workers_of(gateway)
        os.kill(before[0], signal.SIGKILL)
        wait_until(lambda: len({*workers_of(gateway)} - {*before}) == 1)
        assert reload(gateway)[0] == 200
        gateway.signal(signal.SIGTERM)
        assert gateway.wait() == 0
    found = [line["message"] for line in gateway.log() if line["level"] == "error"]
    assert found == ["worker 0 ended by SIGKILL; starting another"]


def test_a_renewed_certificate_is_used_by_the_next_connection(
    tmp_path: Path, certificate: Certificate
) -> None:
    renewed = make_certificate(tmp_path)
    cert, key = tmp_path / "server.pem", tmp_path / "server.key"
    cert.write_bytes(Path(certificate.cert).read_bytes())
    key.write_bytes(Path(certificate.key).read_bytes())
    with serving(tmp_path, "trio", more=f'certfile = "{cert}"\nkeyfile = "{key}"') as (_, gateway):
        before = certificate_of(gateway)
        cert.write_bytes(Path(renewed.cert).read_bytes())
        gateway.signal(signal.SIGHUP)
        gateway.wait_for_line("not reloaded: certfile .* cannot be used together")
        assert certificate_of(gateway) == before
        key.write_bytes(Path(renewed.key).read_bytes())
        gateway.signal(signal.SIGHUP)
        gateway.wait_for_line("the configuration was reloaded")
        assert certificate_of(gateway) != before


def certificate_of(gateway: EdgeGateway) -> bytes | None:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with gateway.connect() as plain, context.wrap_socket(plain) as client:
        return client.getpeercert(binary_form=True)


@pytest.mark.parametrize(("backend", "workers"), GATEWAYS)
def test_a_file_that_blocks_does_not_block_a_stop(tmp_path: Path, backend: str, workers: int) -> None:
    """A named pipe that nobody writes to, as a file system that hangs."""
    with serving(tmp_path, backend, workers) as (_, gateway):
        file = tmp_path / "dragoman.toml"
        file.unlink()
        os.mkfifo(file)
        gateway.signal(signal.SIGHUP)
        with gateway.connect():
            assert request(gateway, "GET", "/healthz")[0] == 200
        gateway.signal(signal.SIGTERM)
        assert gateway.wait() == 0


def test_streams_that_a_stop_cuts_end_with_an_error_and_without_an_end(tmp_path: Path, backend: str) -> None:
    with (
        Upstream(waits) as upstream,
        EdgeGateway(tmp_path, upstream, backend=backend, server="drain_s = 0.2") as gateway,
        socket.create_connection(("127.0.0.1", gateway.ready().port)) as client,
        gateway.connect() as other,
    ):
        client.sendall(post(CHAT_PATH, chat()))
        peer = Peer(other)
        peer.begin()
        head = peer.request(1, headers(method="POST", path=CHAT_PATH), end=False)
        peer.send(head, data(1, json.dumps(chat()).encode(), end=True))
        received = b""
        while b"Hello" not in received:
            received += client.recv(65_536)
        while b"Hello" not in peer.contents.get(1, b""):
            peer.receive()
        gateway.signal(signal.SIGTERM)
        while more := client.recv(65_536):
            received += more
        frames = peer.until_closed()
        assert gateway.wait() == 0
    error = b'{"error":{"message":"the gateway is stopping: the response is cut here"'
    assert error in received
    assert not received.endswith(b"0\r\n\r\n")
    assert error in peer.contents[1]
    # The reset behind it may not get out before the connection ends.
    assert not any("END_STREAM" in frame.flags for frame in frames if frame.stream_id == 1)
