"""What two workers serve beside one, for a machine on which their clients need a core as well: `make bench-workers`.

One worker and two have the same core and the same load, whole responses, and take turns. What a core of one worker
serves follows from its CPU time for a request. Two workers with a core each serve what the busier of both can: it has
its share of the requests, at the CPU time that a request takes where there are two. That of the supervisor counts too.
"""

import argparse
import random
import statistics
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import msgspec
from bench_figures import PROTOCOLS, Variant
from bench_server import PEERS, Load, config_of, expect_line, gateway_port, printed_port, running, times_of

_MIN_SCALE = 1.85


class _Round(NamedTuple):
    """Microseconds of CPU time for a request, and the largest share that one process has of it."""

    cost: float
    share: float


def _children(pid: int) -> list[int]:
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _measure(pid: int, port: int, connections: int, seconds: float) -> _Round:
    options = (port, PROTOCOLS["messages"], "whole", connections, 1.0, seconds, "chat")
    pids = [pid, *_children(pid)]
    with running([sys.executable, str(PEERS), "load", *map(str, options)], core=1) as load:
        assert load.stdout is not None
        expect_line(load, "begin")
        before = [times_of(each)[0] for each in pids]
        expect_line(load, "end")
        used = [times_of(each)[0] - begun for each, begun in zip(pids, before, strict=True)]
        requests = msgspec.json.decode(load.stdout.readline(), type=Load).requests
    return _Round(sum(used) / 1000 / requests, max(used) / sum(used))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--loop", action="append", choices=("asyncio", "uvloop", "trio"), help="default: all")
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=2.0)
    arguments = parser.parse_args()
    failed = False
    for loop in arguments.loop or ("asyncio", "uvloop", "trio"):
        found: dict[int, list[_Round]] = {1: [], 2: []}
        with _servers(loop, list(found)) as servers:
            for _ in range(arguments.rounds):
                for workers in random.sample(sorted(found), len(found)):
                    measured = _measure(*servers[workers], arguments.connections, arguments.seconds)
                    found[workers].append(measured)
        scales = sorted(one.cost / two.cost / two.share for one, two in zip(found[1], found[2], strict=True))
        one, two = (statistics.median(each.cost for each in found[workers]) for workers in (1, 2))
        share = statistics.median(each.share for each in found[2])
        scale = statistics.median(scales)
        failed |= scale < _MIN_SCALE
        print(
            f"[{loop}] one: {one:.0f} us/request; two: {two:.0f}, the busier has {share:.1%}: "
            f"two serve {scale:.2f} times one ({scales[0]:.2f} to {scales[-1]:.2f})",
            flush=True,
        )
    return failed


@contextmanager
def _servers(loop: str, numbers: list[int]) -> Iterator[dict[int, tuple[int, int]]]:
    """Start a gateway with each number of workers. Yield the process ids and ports by it."""
    variant = Variant.make(None, None)
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="dragoman-workers-")))
        upstream = stack.enter_context(running([sys.executable, str(PEERS), "upstream"], core=1))
        text = config_of(loop, printed_port(upstream))
        servers = {}
        for workers in numbers:
            config = directory / f"{workers}.toml"
            config.write_text(text.replace("[server]", f"[server]\nworkers = {workers}", 1), "utf-8")
            command = [variant.python, "-m", "dragoman_server", "serve", "--config", str(config)]
            gateway = stack.enter_context(running(command, core=0, env=variant.environment))
            servers[workers] = gateway.pid, gateway_port(gateway)
        yield servers


if __name__ == "__main__":
    sys.exit(main())
