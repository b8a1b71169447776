"""What the gateway costs: CPU time of its process per event and per request, beside a bare relay of bytes.

Gateways, upstream, relay and load client are separate processes (bench_peers.py). On two cores the gateways and the
relay have one, upstream and load client the other. All are started before the first measurement and take turns within
each round, in a random order, so that whatever else the machine does meets all of them; a figure is the median of the
quieter half of the rounds. docs/performance.md explains them.
"""

import os
import random
import statistics
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import msgspec
from bench_figures import PROTOCOLS, Figure, Variant

from dragoman import UPSTREAMS

PEERS = Path(__file__).with_name("bench_peers.py")
_CORES = sorted(os.sched_getaffinity(0))


class Scenario(NamedTuple):
    """warm_s: how long the load runs before it is measured."""

    connections: int
    warm_s: float
    unit: str


SCENARIOS = {
    "paced": Scenario(32, 1.0, "us/event"),
    "bulk": Scenario(16, 1.0, "us/event"),
    "whole": Scenario(16, 1.0, "us/request"),
    "forwarded": Scenario(1, 1.0, "us"),
    "first": Scenario(1, 1.0, "us"),
    "burst": Scenario(32, 1.0, "us"),
}


class Server(NamedTuple):
    """A process that is measured. variant: None for the relay."""

    variant: Variant | None
    loop: str
    pid: int
    port: int


class Load(msgspec.Struct, frozen=True):
    """What the load client reports: counts, and seconds."""

    requests: int
    events: int
    forwarded: float
    first: float
    p99: float


class Measurement(NamedTuple):
    """value: in the scenario's unit. waited: see Figure."""

    value: float
    waited: float
    p99: float


def bench(
    variants: list[Variant],
    loops: list[str],
    scenarios: list[str],
    pairs: list[str],
    rounds: int,
    seconds: float,
) -> Iterator[Figure]:
    _pin(0, 1)  # this process reads the gateways' logs
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="dragoman-bench-")))
        servers = list(_start(stack, directory, variants, loops))
        for scenario in scenarios:
            for pair in pairs:
                found: list[list[Measurement]] = [[] for _ in servers]
                for _ in range(rounds):
                    for index in random.sample(range(len(servers)), len(servers)):
                        found[index].append(_measure(servers[index], scenario, pair, seconds))
                bare = statistics.median(each.value for each in _quiet(found[-1]))
                for server, measured in zip(servers, found, strict=True):
                    yield _figure(server, scenario, pair, measured, bare)


def _quiet(measured: list[Measurement]) -> list[Measurement]:
    """Return the half in which the process waited least: CPU time grows when other processes use the same caches."""
    return sorted(measured, key=lambda each: each.waited)[: (len(measured) + 1) // 2]


def _figure(server: Server, scenario: str, pair: str, measured: list[Measurement], bare: float) -> Figure:
    quiet = _quiet(measured)
    value, waited, p99 = (statistics.median(each) for each in zip(*quiet, strict=True))
    python, commit = ("", "") if server.variant is None else (server.variant.version, server.variant.commit)
    return Figure(
        scenario,
        pair,
        value,
        SCENARIOS[scenario].unit,
        value / bare,
        server.loop,
        python,
        commit,
        waited,
        p99 * 1000 if scenario == "whole" else None,
    )


def _start(stack: ExitStack, directory: Path, variants: list[Variant], loops: list[str]) -> Iterator[Server]:
    """Start everything. Return the gateways, and last the relay."""
    upstream = stack.enter_context(running([sys.executable, str(PEERS), "upstream"], core=1))
    upstream_port = printed_port(upstream)
    relay = stack.enter_context(running([sys.executable, str(PEERS), "relay", upstream_port], core=0))
    for loop in loops:
        config = directory / f"{loop}.toml"
        config.write_text(config_of(loop, upstream_port), "utf-8")
        for variant in variants:
            command = [variant.python, "-m", "dragoman_server", "serve", "--config", str(config)]
            gateway = stack.enter_context(running(command, core=0, env=variant.environment))
            yield Server(variant, loop, gateway.pid, gateway_port(gateway))
    yield Server(None, "relay", relay.pid, int(printed_port(relay)))


def config_of(loop: str, upstream_port: str) -> str:
    lines = ["[server]", "port = 0", f'backend = "{loop}"', 'log_format = "json"']
    for name, protocol in PROTOCOLS.items():
        url = f"http://127.0.0.1:{upstream_port}" + UPSTREAMS[protocol].base_path
        lines += ["[[upstreams]]", f'name = "{name}"', f'protocol = "{protocol}"', f'base_url = "{url}"']
        lines += ['api_key = "k"']
    return "\n".join([*lines, "[models]", *(f'{name} = "{name}/m"' for name in PROTOCOLS)])


def _measure(server: Server, scenario: str, pair: str, seconds: float) -> Measurement:
    connections, warm, _ = SCENARIOS[scenario]
    warm = min(warm, seconds)
    client, upstream = pair.split(">")
    # The relay's client speaks the upstream's protocol. The model's name is that of the upstream.
    protocol = PROTOCOLS[client if server.variant else upstream]
    options = (server.port, protocol, scenario, connections, warm, seconds, upstream)
    with running([sys.executable, str(PEERS), "load", *map(str, options)], core=1) as load:
        assert load.stdout is not None
        expect_line(load, "begin")
        before = times_of(server.pid)
        expect_line(load, "end")
        used, waited = (after - begun for after, begun in zip(times_of(server.pid), before, strict=True))
        report = msgspec.json.decode(load.stdout.readline(), type=Load)
    count = report.requests if scenario == "whole" else report.events
    if not count:
        raise SystemExit(f"{server.loop}, {scenario}, {pair}: nothing was received in {seconds} s")
    by_the_clock = {"forwarded": report.forwarded, "first": report.first, "burst": report.first}.get(scenario)
    value = used / 1000 / count if by_the_clock is None else by_the_clock * 1e6
    return Measurement(value, waited / max(1, used + waited), report.p99)


def times_of(pid: int) -> tuple[int, int]:
    """Return how long all threads of a process ran, and were ready without a core, in nanoseconds (Linux)."""
    stats = [(task / "schedstat").read_text().split() for task in Path(f"/proc/{pid}/task").iterdir()]
    return sum(int(each[0]) for each in stats), sum(int(each[1]) for each in stats)


@contextmanager
def running(
    command: list[str], *, core: int, env: dict[str, str] | None = None
) -> Iterator["subprocess.Popen[str]"]:
    """Run a process on one core, and end it."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env)
    _pin(process.pid, core)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(30)


def _pin(pid: int, core: int) -> None:
    os.sched_setaffinity(pid, {_CORES[core % len(_CORES)]})


def expect_line(process: "subprocess.Popen[str]", line: str) -> None:
    found = process.stdout.readline()
    if found.strip() != line:
        raise SystemExit(f"the load client failed: {found}{process.stdout.read()}")


def printed_port(process: "subprocess.Popen[str]") -> str:
    return process.stdout.readline().strip()


def gateway_port(process: "subprocess.Popen[str]") -> int:
    assert process.stdout is not None
    output = ""
    for line in process.stdout:
        output += line
        if "listens on http://" in line:
            threading.Thread(target=process.stdout.read, daemon=True).start()  # its log
            return int(line.split("listens on http://")[1].split()[0].rpartition(":")[2])
    raise SystemExit(f"the gateway did not start: {output}")
