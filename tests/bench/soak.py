"""Minutes of mixed load with faults on each backend, and a table of what they cost: `make soak MINUTES=10`.

Exit code 1 when a bound is broken. The load is tests/_support/soak.py; a short form of it is part of the suite.
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "_support"))

from edge import BACKENDS
from http_certificate import make_certificate
from soak import Soak


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--clients", type=int, default=8, help="how many at once")
    parser.add_argument("--backend", choices=BACKENDS, help="by default all, at the same time")
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    if asked.backend is None:
        runs = [subprocess.Popen([sys.executable, *sys.argv, "--backend", each]) for each in BACKENDS]
        return max([run.wait() for run in runs])
    directory = Path(tempfile.mkdtemp(prefix="dragoman-soak-"))
    certificate = make_certificate(directory)
    figures = Soak(directory, asked.backend, certificate, clients=asked.clients, seed=asked.seed).run(
        asked.minutes * 60
    )
    print(f"{figures.table()}\n  {'log':15} {directory}/log", flush=True)
    return bool(figures.broken())


if __name__ == "__main__":
    sys.exit(main())
