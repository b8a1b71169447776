"""Usage equals the sums of the log after requests over two workers, of which one is killed while it serves.

REQUESTS=10000 sends as many; `make test` sends few.
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from command.process import DEADLINE_S, GatewayProcess
from prometheus_client.parser import text_string_to_metric_families

pytestmark = pytest.mark.process

ADMIN = "admin-canary-0123456789-0123456789-wq7zk"
REQUESTS = int(os.environ.get("REQUESTS", "300"))
CONFIG = """
[server]
log_format = "json"
workers = 2
[[prices]]
model = "sim/*"
input = 3.0
output = 15.0
"""
SUMS = ("input_tokens", "output_tokens", "reasoning_tokens", "cost_usd")
# What a worker has counted in this time before it was killed may be lost: the interval of writes, and a write itself.
LOST_S = 1.5


class Gateway(GatewayProcess):
    def call(self, method: str, path: str, body: str | None = None) -> str:
        """Send a request on its own connection, so that any worker may get it. An empty text: the worker was killed."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=DEADLINE_S)
        headers = {"authorization": f"Bearer {ADMIN}", "content-type": "application/json"}
        try:
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            text = response.read().decode()
            assert response.status == 200, text
            return text
        except (OSError, http.client.HTTPException):
            return ""
        finally:
            connection.close()

    def send(self, requests: int) -> None:
        models = ("sim/echo", "sim/tools", "sim/reasoning")
        bodies = [
            json.dumps({"model": model, "messages": [{"role": "user", "content": "Hello " * size}]})
            for model in models
            for size in (1, 10, 100)
        ]
        with ThreadPoolExecutor(8) as threads:
            list(
                threads.map(
                    lambda number: self.call("POST", "/v1/chat/completions", bodies[number % len(bodies)]),
                    range(requests),
                )
            )

    def used(self) -> dict[str, Any]:
        """Return the sums of all rows, from whichever worker. It has what that one has counted until now."""
        while not (text := self.call("GET", "/admin/usage?since=1d")):
            pass
        total = json.loads(text)["total"]
        return {name: total[name] for name in (*SUMS, "requests")}

    def settled(self) -> dict[str, Any]:
        """Return the sums once they have not changed for longer than a worker waits with a write."""
        found, since = self.used(), time.monotonic()
        while time.monotonic() < since + LOST_S:
            if (now := self.used()) != found:
                found, since = now, time.monotonic()
        return found

    def workers(self) -> list[int]:
        families = text_string_to_metric_families(self.call("GET", "/metrics"))
        samples = (sample for family in families for sample in family.samples)
        return [int(each.labels["pid"]) for each in samples if each.name == "process_resident_memory_bytes"]

    def lines(self) -> list[dict[str, Any]]:
        found = [json.loads(line) for line in self.output if line.startswith("{")]
        return [line for line in found if line.get("path") == "/v1/chat/completions"]


def sums_of(lines: list[dict[str, Any]]) -> dict[str, Any]:
    return {name: sum(line.get(name, 0) for line in lines) for name in SUMS} | {"requests": len(lines)}


def wait_until(condition: Callable[[], bool]) -> None:
    """Wait for what workers write about each second, and for lines of theirs that were not read yet."""
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_usage_equals_the_sums_of_the_log(tmp_path: Path) -> None:
    (tmp_path / "some.toml").write_text(CONFIG)
    environ = {
        "DRAGOMAN_CONFIG": str(tmp_path / "some.toml"),
        "DRAGOMAN_ADMIN_KEY": ADMIN,
        "XDG_STATE_HOME": str(tmp_path / "state"),
        "TMPDIR": str(tmp_path),
    }
    with Gateway(env=environ).ready() as gateway:
        gateway.send(REQUESTS // 2)
        before = REQUESTS // 2
        wait_until(lambda: len(gateway.lines()) == before)
        expected = sums_of(gateway.lines())
        wait_until(lambda: gateway.used() == pytest.approx(expected))

        with ThreadPoolExecutor(1) as thread:
            rest = thread.submit(gateway.send, REQUESTS - before)
            while len(gateway.lines()) < before + (REQUESTS - before) // 2:
                time.sleep(0.001)
            killed = time.time()
            os.kill(gateway.workers()[0], signal.SIGKILL)
            gateway.wait_for_line("starting another")
            rest.result()

        def lost() -> int:
            return len(gateway.lines()) - gateway.used()["requests"]

        # Lines of both workers: those of the one that was not killed are counted.
        wait_until(lambda: 0 <= lost() <= sum(abs(at(line) - killed) < LOST_S for line in gateway.lines()))
        wait_until(
            lambda: len(gateway.lines()) >= REQUESTS - 8
        )  # as many were open with each of both, at most
        lines, kept = gateway.lines(), gateway.settled()
        print(f"{len(lines)} requests, {lost()} lost with the worker that was killed")
        gateway.send(30)
        wait_until(lambda: len(gateway.lines()) == len(lines) + 30)
        more = sums_of(gateway.lines()[len(lines) :])
        wait_until(lambda: gateway.used() == pytest.approx({name: kept[name] + more[name] for name in more}))
        gateway.signal(signal.SIGTERM)
        assert gateway.wait() == 0
    assert oct((tmp_path / "state/dragoman/usage.sqlite").stat().st_mode)[-3:] == "600"


def at(line: dict[str, Any]) -> float:
    return datetime.fromisoformat(line["time"]).timestamp()
