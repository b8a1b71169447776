"""The two processes of the client tests: the simulator behind HTTP, and a gateway that has it as upstream.

The simulator is named four times, once for each protocol, so every pair of protocols can be asked for by
the model's name alone: `chat/echo`, `messages/echo`, `responses/echo`, `gemini/echo`.
"""

import http.client
import itertools
import json
import time
from pathlib import Path
from typing import ClassVar, NamedTuple

import pytest
from command.process import DEADLINE_S, GatewayProcess, Server
from oracle import CHAT, GEMINI, MESSAGES, RESPONSES

from dragoman import UPSTREAMS as SPECS

# Protocol -> the name of the upstream that speaks it.
UPSTREAMS = {CHAT: "chat", MESSAGES: "messages", RESPONSES: "responses", GEMINI: "gemini"}

# The clients whose SDKs these tests have. Gemini's brings many packages: tests/coding_agents has its own environment.
SDK_PROTOCOLS = (CHAT, MESSAGES, RESPONSES)

# Short, so that heartbeats come into every silence that a test can afford.
KEEPALIVE_S = 0.2

# A name of the gateway's own for a model.
ALIAS = "nick"


class Pair(NamedTuple):
    """A client's protocol and an upstream's."""

    client: str
    upstream: str

    def __str__(self) -> str:
        return f"{UPSTREAMS[self.client]}-to-{UPSTREAMS[self.upstream]}"

    def model(self, name: str) -> str:
        """The simulator's model, by way of the upstream of this pair."""
        return f"{UPSTREAMS[self.upstream]}/{name}"

    @property
    def relayed(self) -> bool:
        return self.client == self.upstream


PAIRS = [Pair(*pair) for pair in itertools.product(SDK_PROTOCOLS, UPSTREAMS)]

each_backend = pytest.mark.parametrize("backend", ["asyncio", "trio"])


class Simulator(Server):
    """A running `dragoman simulate`."""

    COMMAND: ClassVar[tuple[str, ...]] = ("-m", "dragoman_server", "simulate", "--port", "0")

    def stats(self) -> dict[str, int]:
        """How many requests were opened, closed and aborted so far."""
        counts: dict[str, int] = json.loads(self.get("/stats"))
        return counts

    def settled(self) -> dict[str, int]:
        """The counts, once no request is open."""
        deadline = time.monotonic() + DEADLINE_S
        while time.monotonic() < deadline:
            counts = self.stats()
            if counts["opened"] == counts["closed"]:
                return counts
            time.sleep(0.01)
        raise AssertionError(f"requests are still open: {counts}")

    def wait_for(self, name: str, count: int, within_s: float = DEADLINE_S) -> float:
        """Seconds until a count has come so far. Raises AssertionError after `within_s`."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=DEADLINE_S)
        begun = time.monotonic()
        try:
            while True:
                connection.request("GET", "/stats")
                counts = json.loads(connection.getresponse().read())
                elapsed = time.monotonic() - begun
                if counts[name] >= count:
                    return elapsed
                assert elapsed < within_s, f"{name} is not {count} after {elapsed:.3f} s: {counts}"
                time.sleep(0.005)
        finally:
            connection.close()


class Gateway(GatewayProcess):
    """A running `dragoman serve` in front of a simulator."""

    def __init__(self, directory: Path, simulator: Simulator, backend: str) -> None:
        file = directory / "dragoman.toml"
        file.write_text(_config(simulator.port))
        super().__init__("--config", str(file), "--backend", backend)


def _config(port: int) -> str:
    lines = ["[server]", f"keepalive_s = {KEEPALIVE_S}", "simulator = false", 'log_level = "warning"']
    lines.append(f'default_model = "{ALIAS}"')
    for protocol, name in UPSTREAMS.items():
        # As the vendors' SDKs take it: with /v1 for OpenAI's protocols, without for Anthropic's.
        base = f"http://127.0.0.1:{port}" + SPECS[protocol].base_path
        lines += [
            "[[upstreams]]",
            f'name = "{name}"',
            f'protocol = "{protocol}"',
            f'base_url = "{base}"',
            'models = ["echo", "tools"]',
            "unwraps_signatures = true",
        ]
    return "\n".join([*lines, "[models]", f'{ALIAS} = "messages/echo"']) + "\n"
