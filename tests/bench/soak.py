"""Minutes of mixed load with faults on each backend, and a table of what they cost: `make soak MINUTES=10`.

After it clients leave, some hundreds in each phase of a request and ten thousand anywhere. Exit code 1 when a bound is
broken. The parts are tests/_support/soak.py, leaving.py and census.py; short forms of them are part of the suite.
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "_support"))

from census import left_behind
from edge import BACKENDS
from http_certificate import make_certificate
from leaving import PHASES, World
from soak import Soak


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--clients", type=int, default=8, help="how many at once")
    parser.add_argument("--backend", choices=BACKENDS, help="by default all, at the same time")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--leaves", type=int, default=300, help="clients that leave in each phase")
    parser.add_argument(
        "--aborts", type=int, default=10_000, help="clients that leave a server in this process"
    )
    asked = parser.parse_args()
    if asked.backend is None:
        runs = [subprocess.Popen([sys.executable, *sys.argv, "--backend", each]) for each in BACKENDS]
        return max([run.wait() for run in runs])
    directory = Path(tempfile.mkdtemp(prefix="dragoman-soak-"))
    certificate = make_certificate(directory)
    soak = Soak(directory, asked.backend, certificate, clients=asked.clients, seed=asked.seed)
    figures = soak.run(asked.minutes * 60)
    print(f"{figures.table()}\n  {'log':15} {directory}/log", flush=True)
    lines = _leaving(directory, asked.backend, asked.leaves)
    behind = left_behind(asked.backend, asked.aborts)
    lines.append(f"  {asked.aborts} clients left behind: {', '.join(behind) or 'nothing'}")
    print("\n".join([f"[{asked.backend}] leaving", *lines]), flush=True)
    return bool(figures.broken() or behind)


def _leaving(directory: Path, backend: str, times: int) -> list[str]:
    """A line for each phase: how long the upstream is kept when the client leaves there, in milliseconds."""
    lines = []
    (directory / "leaving").mkdir()
    with World(directory / "leaving", backend, make_certificate(directory)) as world:
        for phase in PHASES:
            for ways in (("fin", "rst"), ("close", "reset")):
                taken = sorted(world.leaves(phase, ways[n % 2]) * 1000 for n in range(times // 2))
                p50, p99 = (taken[len(taken) * percent // 100] for percent in (50, 99))
                name = f"{phase}, {' and '.join(ways)}"
                lines.append(f"  {name:42} p50 {p50:6.1f} ms, p99 {p99:6.1f} ms")
    return lines


if __name__ == "__main__":
    sys.exit(main())
