"""A day of requests in virtual time on asyncio and trio, and what it leaves: `make soak-day`. Exit code 1: too much.

The parts are in tests/_support/day.py; tests/server/gateway/test_day.py looks at what clients get.
"""

import argparse
import logging
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "_support"))

from day import HOURS, MAX_LEFT_AN_HOUR, WARM_HOURS, Day
from virtual_time import VIRTUAL_BACKENDS, backend

# After the first hours resident memory keeps its level.
MAX_GROWTH_MIB = 2.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--every", type=float, default=10.0, help="seconds between two requests of a key")
    parser.add_argument("--backend", choices=VIRTUAL_BACKENDS, help="by default all, one after the other")
    arguments = parser.parse_args()
    if arguments.backend is None:
        commands = [[sys.executable, *sys.argv, "--backend", each] for each in VIRTUAL_BACKENDS]
        return max(subprocess.run(command).returncode for command in commands)
    logging.disable()
    day = Day(arguments.every)
    day.run(*backend(arguments.backend))
    growth = max(day.resident_mib[WARM_HOURS:]) - day.resident_mib[WARM_HOURS]
    print(f"[{arguments.backend}] {HOURS} hours, {day.requests} requests, {time.process_time():.0f} s")
    for name, each in (("objects", day.objects), ("resident MiB", day.resident_mib)):
        print(f"  {name:14} {'  '.join(f'{value:.6g}' for value in each[::4])}  {each[-1]:.6g}")
    print(
        f"  an hour leaves {day.left_an_hour:.1f} objects; memory has grown by {growth:.1f} MiB", flush=True
    )
    return day.left_an_hour > MAX_LEFT_AN_HOUR or growth > MAX_GROWTH_MIB


if __name__ == "__main__":
    sys.exit(main())
