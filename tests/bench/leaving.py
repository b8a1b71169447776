"""How long an upstream is kept when its client leaves, in each phase of a request: `make leaving`.

A table for each backend, in milliseconds. The time ends when the upstream's own socket has seen the close; where there
is none, with the gateway's line in its log. The gateway has its own core where there are two, so that what is
measured is not the waiting for those who measure. Exit code 1 when a client's leaving took longer than promised.
"""

import argparse
import math
import os
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "_support"))

from edge import BACKENDS
from http_certificate import make_certificate
from leaving import PHASES, World

MAX_MS = 250.0
# Clients that are there at the same time; they leave one after the other.
_TOGETHER = 20


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--times", type=int, default=200, help="clients in each phase, for each version of HTTP"
    )
    parser.add_argument("--backend", choices=BACKENDS, help="by default all, one after the other")
    arguments = parser.parse_args()
    late = 0
    for backend in [arguments.backend] if arguments.backend else BACKENDS:
        with tempfile.TemporaryDirectory(prefix="dragoman-leaving-") as directory:
            late += measure(Path(directory), backend, arguments.times)
    return bool(late)


def measure(directory: Path, backend: str, times: int) -> int:
    """Print the table of one backend. The number of those that took longer than promised."""
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    late = 0
    with World(directory, backend, make_certificate(directory)) as world:
        if len(cores) > 1:
            os.sched_setaffinity(0, cores[1:])
            for gateway in (world.plain, world.tls):
                os.sched_setaffinity(gateway.pid, cores[:1])
        print(f"[{backend}] {'':28} {'n':>5} {'p50':>7} {'p99':>7} {'max':>7} ms", flush=True)
        for phase in PHASES:
            for version, ways in (("HTTP/1.1", ("fin", "rst")), ("HTTP/2", ("close", "reset"))):
                taken: list[float] = []
                while len(taken) < times:
                    taken += _leave(world, phase, [ways[n % 2] for n in range(min(_TOGETHER, times))])
                taken.sort()
                p50, p99 = (taken[len(taken) * percent // 100] for percent in (50, 99))
                name = f"{phase}, {version}"
                print(f"  {name:36} {len(taken):6} {p50:7.1f} {p99:7.1f} {taken[-1]:7.1f}", flush=True)
                late += sum(each > MAX_MS for each in taken)
    if len(cores) > 1:
        os.sched_setaffinity(0, cores)
    return late


def _leave(world: World, phase: str, ways: list[str]) -> list[float]:
    try:
        return [seconds * 1000 for seconds in world.leave(phase, ways)]
    except AssertionError:
        return [math.inf]  # one that was not seen to leave; those behind it are not counted


if __name__ == "__main__":
    sys.exit(main())
