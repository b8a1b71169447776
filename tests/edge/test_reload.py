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
    LOOPS,
    STREAM_HEAD,
    Conversation,
    EdgeGateway,
    Running,
    Script,
    Upstream,
    chat,
    chunk,
    post,
    read_response,
    wait_until,
    whole,
)
from http_certificate import Certificate, make_certificate

pytestmark = [pytest.mark.process, pytest.mark.parametrize("backend", LOOPS), pytest.mark.each_choice]

ADMIN = "admin-canary-0123456789-0123456789-wq7zk"
SERVER = f'admin_key = "{ADMIN}"'
REQUESTS, RELOADS, CLIENTS = 100, 10, 5

each_worker_count = pytest.mark.parametrize("workers", [1, 2])


def responds(conversation: Conversation) -> None:
    while conversation.read() is not None:
        conversation.send(whole(CHAT_WHOLE))


@contextmanager
def serving(
    directory: Path, backend: str, workers: int = 1, more: str = "", script: Script = responds
) -> Iterator[Running]:
    server = f"{SERVER}\nworkers = {workers}\n{more}"
    with (
        Upstream(script) as upstream,
        EdgeGateway(directory, upstream, backend=backend, server=server) as gateway,
    ):
        yield Running(upstream, gateway.ready())


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


@each_worker_count
def test_no_request_is_lost(tmp_path: Path, backend: str, workers: int) -> None:
    """A hundred requests through ten reloads, half of them by signal, which move the upstream to and fro."""
    with Upstream(responds) as two, serving(tmp_path, backend, workers) as (one, gateway):
        files = Files(tmp_path)
        urls = [one.url, two.url]
        done = threading.Semaphore(0)

        def send(_: int) -> int:
            status = ask(gateway)
            done.release()
            return status

        with ThreadPoolExecutor(CLIENTS) as clients:
            statuses = clients.map(send, range(REQUESTS))
            for number in range(RELOADS):
                for _ in range(REQUESTS // RELOADS // 2):
                    done.acquire()
                files.replace(urls[number % 2], urls[(number + 1) % 2])
                if number % 2:
                    gateway.signal(signal.SIGHUP)
                else:
                    assert reload(gateway)[0] == 200
                wait_until(lambda count=number + 1: reloads(gateway) >= count, what=f"{number + 1} reloads")
            assert list(statuses) == [200] * REQUESTS
        sent = [sum(len(each.requests) for each in upstream.conversations) for upstream in (one, two)]
        assert sum(sent) == REQUESTS
        assert all(sent), "both configurations were used"
        gateway.signal(signal.SIGTERM)
        assert gateway.wait() == 0
    assert not any(line["level"] == "error" for line in gateway.log())


def reloads(gateway: EdgeGateway) -> int:
    return sum("the configuration was reloaded" in line for line in gateway.output)


@each_worker_count
def test_a_wrong_configuration_changes_nothing_and_is_reported(
    tmp_path: Path, backend: str, workers: int
) -> None:
    with serving(tmp_path, backend, workers) as (_, gateway):
        Files(tmp_path).replace('models = ["m"]', 'model = "m"')
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


def test_a_replaced_worker_has_the_new_configuration(tmp_path: Path, backend: str) -> None:
    with serving(tmp_path, backend, 2) as (_, gateway):
        Files(tmp_path).replace('models = ["m"]', 'models = ["n"]')
        assert reload(gateway)[0] == 200
        Files(tmp_path).replace('models = ["n"]', 'models = "broken"')
        for pid in workers_of(gateway):
            os.kill(pid, signal.SIGKILL)
        for _ in range(2):
            gateway.wait_for_line("starting another")
        wait_until(lambda: len(workers_of(gateway)) == 2)
        status, body = request(gateway, "GET", "/v1/models/n")
        assert (status, body["id"]) == (200, "n")


def test_a_worker_that_is_starting_gets_the_new_configuration_once_it_serves(
    tmp_path: Path, backend: str
) -> None:
    # With a store in a file, the application takes a while to start.
    store = 'account_store = "sqlite"\naccount_store_path = "accounts.db"'
    with serving(tmp_path, backend, 2, store) as (_, gateway):
        before = workers_of(gateway)
        os.kill(before[0], signal.SIGKILL)
        wait_until(lambda: len({*workers_of(gateway)} - {*before}) == 1)
        assert reload(gateway)[0] == 200
        gateway.signal(signal.SIGTERM)
        assert gateway.wait() == 0
    assert [line["message"] for line in gateway.log() if line["level"] == "error"] == [
        "worker 0 ended with code -9; starting another"
    ]


@each_worker_count
def test_a_signal_is_a_reload_whatever_it_interrupts(tmp_path: Path, backend: str, workers: int) -> None:
    with serving(tmp_path, backend, workers) as (_, gateway):
        for _ in range(100):
            gateway.signal(signal.SIGHUP)
            assert request(gateway, "GET", "/healthz")[0] == 200
        Files(tmp_path).replace('models = ["m"]', 'models = ["last"]')
        gateway.signal(signal.SIGHUP)
        wait_until(lambda: request(gateway, "GET", "/v1/models/last")[0] == 200)
        gateway.signal(signal.SIGTERM)
        assert gateway.wait() == 0
    errors = {line["message"] for line in gateway.log() if line["level"] == "error"}
    # The last one may be under way when the stop begins.
    assert errors <= {"the configuration was not reloaded: the gateway is stopping"}


def workers_of(gateway: EdgeGateway) -> list[int]:
    """The processes that its supervisor has started to serve."""
    children = Path(f"/proc/{gateway.pid}/task/{gateway.pid}/children").read_text().split()
    workers = []
    for pid in map(int, children):
        with suppress(OSError):  # it has ended since
            if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes():
                workers.append(pid)
    return workers


def test_connections_to_an_old_upstream_are_closed_when_its_last_request_ends(
    tmp_path: Path, backend: str
) -> None:
    release = threading.Event()

    def script(conversation: Conversation) -> None:
        if b'"stream": true' in (conversation.read() or b""):
            conversation.send(STREAM_HEAD + chunk("Hello"))
            release.wait(60)
            conversation.send(chunk(finish_reason="stop") + b"data: [DONE]\n\n")
        else:
            conversation.send(whole(CHAT_WHOLE))
            conversation.until_closed()

    with Upstream(responds) as new, serving(tmp_path, backend, script=script) as (old, gateway):
        with gateway.connect() as client:
            client.sendall(post(CHAT_PATH, chat("m")))
            old.wait_for(1)
            assert ask(gateway) == 200
            idle = old.wait_for(2)
            Files(tmp_path).replace(old.url, new.url)
            assert reload(gateway)[0] == 200
            assert idle.closed_at is None, "the stream may still need it"
            release.set()
            assert b"[DONE]" in read_response(client)
        old.wait_closed(idle)


def test_a_renewed_certificate_is_used_by_the_next_connection(
    tmp_path: Path, backend: str, certificate: Certificate
) -> None:
    renewed = make_certificate(tmp_path)
    cert, key = tmp_path / "server.pem", tmp_path / "server.key"
    cert.write_bytes(Path(certificate.cert).read_bytes())
    key.write_bytes(Path(certificate.key).read_bytes())
    with serving(tmp_path, backend, more=f'certfile = "{cert}"\nkeyfile = "{key}"') as (_, gateway):
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


@each_worker_count
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


@each_worker_count
def test_load_balancers_see_a_stop_before_connections_are_refused(
    tmp_path: Path, backend: str, workers: int
) -> None:
    with serving(tmp_path, backend, workers, "drain_delay_s = 3600") as (_, gateway):
        assert request(gateway, "GET", "/readyz") == (200, {"status": "ready"})
        gateway.signal(signal.SIGTERM)
        wait_until(lambda: request(gateway, "GET", "/readyz") == (503, {"status": "draining"}))
        assert request(gateway, "GET", "/healthz")[0] == 200
        assert ask(gateway) == 200
        gateway.signal(signal.SIGTERM)  # the second signal waits for nothing
        assert gateway.wait() == 0
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", gateway.port))
