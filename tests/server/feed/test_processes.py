"""A reader at one of two workers, of which one is killed and then the other: the reader gets what the rest does."""

import http.client
import json
import os
import signal
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from command.process import DEADLINE_S, GatewayProcess

pytestmark = pytest.mark.process

BODY = {"model": "sim/echo", "messages": [{"role": "user", "content": "Hello"}]}


class Reader:
    """A connection to the feed. The gateway has no keys, so it needs none."""

    def __init__(self, gateway: GatewayProcess, last_event_id: str | None = None) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=DEADLINE_S)
        headers = {} if last_event_id is None else {"last-event-id": last_event_id}
        self._connection.request("GET", "/admin/events", headers=headers)
        self._response = self._connection.getresponse()
        assert self._response.status == 200, self._response.read()
        self.id = ""
        self.workers: set[int] = set()
        self.hello = self.read("hello")
        self.worker = int(self.id.partition("-")[0], 16)
        self.workers |= set(self.hello["workers"])

    def __iter__(self) -> Iterator[tuple[str, dict[str, Any]]]:
        kind = ""
        while line := self._response.readline().decode():
            name, _, value = line.rstrip("\n").partition(": ")
            if name == "id":
                self.id = value
            elif name == "event":
                kind = value
            elif name == "data":
                yield kind, json.loads(value)

    def read(self, wanted: str) -> dict[str, Any]:
        """Return the next event of a type. Note the workers that come and go."""
        for kind, data in self:
            if kind == "worker.joined":
                self.workers.add(data["worker"])
            elif kind == "worker.left":
                self.workers.remove(data["worker"])
            if kind == wanted:
                return data
        raise AssertionError(f"it ended without {wanted}")

    def close(self) -> None:
        self._response.close()
        self._connection.close()


def chat(gateway: GatewayProcess) -> str:
    """Send a request, and return its id."""
    response, _ = gateway.request("POST", "/v1/chat/completions", BODY)
    assert response.status == 200
    return response.headers["dragoman-request-id"]


def requests_at_both(gateway: GatewayProcess, reader: Reader) -> None:
    """Send requests until the reader has seen the life of one at each worker."""
    seen: set[int] = set()
    while seen != reader.workers:
        id = chat(gateway)
        begun = reader.read("request.begun")
        assert begun["request"] == id
        seen.add(begun["worker"])
        assert reader.read("request.ended")["request"] == id


@pytest.mark.parametrize("backend", ["uvloop", "trio"])
def test_a_reader_outlives_the_workers(backend: str) -> None:
    # pytest's own directory has a path that is too long for a socket.
    with (
        tempfile.TemporaryDirectory() as path,
        GatewayProcess("--workers", "2", "--backend", backend, env={"TMPDIR": path}) as gateway,
    ):
        gateway.ready()
        (directory,) = Path(path).iterdir()
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700
        reader = Reader(gateway)
        while len(reader.workers) < 2:  # one may still have been busy with its start
            reader.read("worker.joined")
        requests_at_both(gateway, reader)

        (other,) = reader.workers - {reader.worker}
        os.kill(other, signal.SIGKILL)
        assert reader.read("worker.left")["worker"] == other
        assert reader.read("worker.joined")["worker"] not in (other, reader.worker)
        assert len(list(directory.iterdir())) == 2, "the socket of the dead one is removed"
        requests_at_both(gateway, reader)

        id = reader.id
        (survivor,) = reader.workers - {reader.worker}
        os.kill(reader.worker, signal.SIGKILL)
        assert list(reader) == []
        reader.close()
        again = Reader(gateway, id)
        assert again.hello["resumed"] is False
        assert survivor in again.workers
        while len(again.workers) < 2:
            again.read("worker.joined")
        requests_at_both(gateway, again)

        gateway.signal(signal.SIGTERM)
        assert again.read("end")["reason"] == "stopping"
        again.close()
        assert gateway.wait() == 0
        assert list(Path(path).iterdir()) == []
