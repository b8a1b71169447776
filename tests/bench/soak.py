"""Minutes of mixed load with faults on each backend, and a table of what they cost: `make soak MINUTES=10`.

After it a thousand clients for each minute leave, anywhere in a request. Exit code 1 when a bound is broken. The parts
are tests/_support/soak.py and census.py; short forms of them are part of the suite.
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
from soak import Soak


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--clients", type=int, default=8, help="how many at once")
    parser.add_argument("--backend", choices=BACKENDS, help="by default all, at the same time")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--aborts", type=int, help="clients that leave a server in this process; by default 1000 a minute"
    )
    arguments = parser.parse_args()
    if arguments.backend is None:
        runs = [subprocess.Popen([sys.executable, *sys.argv, "--backend", each]) for each in BACKENDS]
        return max([run.wait() for run in runs])
    directory = Path(tempfile.mkdtemp(prefix="dragoman-soak-"))
    certificate = make_certificate(directory)
    soak = Soak(directory, arguments.backend, certificate, clients=arguments.clients, seed=arguments.seed)
    figures = soak.run(arguments.minutes * 60)
    print(f"{figures.table()}\n  {'log':15} {directory}/log", flush=True)
    aborts = round(1000 * arguments.minutes) if arguments.aborts is None else arguments.aborts
    behind = left_behind(arguments.backend, aborts, directory)
    print(f"[{arguments.backend}] {behind.line()}", flush=True)
    return bool(figures.broken() or figures.slow() or behind.found)


if __name__ == "__main__":
    sys.exit(main())
