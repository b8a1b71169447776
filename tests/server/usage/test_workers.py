"""Usage equals the sums of the log after requests over two workers, of which one is killed while it serves.

REQUESTS=10000 sends as many; `make test` sends few.
"""

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
# Those of the requests that have to be counted, and that of the requests in the last second of a worker that is killed.
MODELS, LAST = ("sim/tools", "sim/reasoning"), ("sim/echo",)
LAST_S = 1.0


class Gateway(GatewayProcess):
    def call(self, method: str, path: str, body: Any = None) -> str:
        """Return the response's text. An empty one: the worker was killed."""
        try:
            response, text = self.request(method, path, body, authorization=f"Bearer {ADMIN}")
        except (OSError, http.client.HTTPException):
            return ""
        assert response.status == 200, text
        return text.decode()

    def send(self, requests: int, models: tuple[str, ...]) -> None:
        bodies = [
            {"model": model, "messages": [{"role": "user", "content": "Hello " * size}]}
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

    def used(self, models: tuple[str, ...]) -> dict[str, Any]:
        """Return the sums of these models, from whichever worker. It has what that one has counted until now."""
        while not (text := self.call("GET", "/admin/usage?since=1d&by=model")):
            pass
        rows = [row for row in json.loads(text)["rows"] if f"sim/{row['model']}" in models]
        return {name: sum(row[name] for row in rows) for name in (*SUMS, "requests")}

    def workers(self) -> list[int]:
        families = text_string_to_metric_families(self.call("GET", "/metrics"))
        samples = (sample for family in families for sample in family.samples)
        return [int(each.labels["pid"]) for each in samples if each.name == "process_resident_memory_bytes"]

    def lines(self, models: tuple[str, ...] = (*MODELS, *LAST)) -> list[dict[str, Any]]:
        found = [json.loads(line) for line in self.output if line.startswith("{")]
        return [line for line in found if line.get("model") in models]


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
    with Gateway(env=environ).ready() as gateway, ThreadPoolExecutor(1) as thread:
        victim = gateway.workers()[0]
        gateway.send(REQUESTS, MODELS)
        wait_until(lambda: len(gateway.lines(MODELS)) == REQUESTS)
        killed = max(map(at, gateway.lines(MODELS))) + LAST_S
        while time.time() < killed:
            gateway.send(8, LAST)
        last = thread.submit(gateway.send, 100, LAST)
        os.kill(victim, signal.SIGKILL)
        gateway.wait_for_line("starting another")
        last.result()

        expected = sums_of(gateway.lines(MODELS))
        wait_until(lambda: gateway.used(MODELS) == pytest.approx(expected))
        # Lines of both workers: those of the one that was not killed are counted.
        in_its_last = sum(abs(at(line) - killed) < LAST_S for line in gateway.lines(LAST))
        wait_until(lambda: 0 <= len(gateway.lines(LAST)) - gateway.used(LAST)["requests"] <= in_its_last)
        gateway.signal(signal.SIGTERM)
        assert gateway.wait() == 0
    assert oct((tmp_path / "state/dragoman/usage.sqlite").stat().st_mode)[-3:] == "600"


def at(line: dict[str, Any]) -> float:
    return datetime.fromisoformat(line["time"]).timestamp()
