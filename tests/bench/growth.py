"""How costs grow with what there is: per event, per message, per request. Run it with `make growth`.

A row has the calls of Python and C functions, and the microseconds of CPU time, of one unit of work at the smallest and
the largest size, and for each the exponent of a fit over all sizes: 0 is a cost that does not depend on the size, 1 one
that is in proportion to it. Work without calls shows only in the time. tests/test_growth.py holds the calls.
"""

import argparse
import logging
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "_support"))

from growth import DIMENSIONS
from growth.cost import measure, slope


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", help="only rows with this text")
    parser.add_argument("--rounds", type=int, default=5, help="rounds, of which the fastest counts")
    arguments = parser.parse_args()
    logging.disable()
    print(f"{'':69} {'sizes':>13} {'calls':>15} {'exp.':>5} {'us':>17} {'exp.':>5}")
    for dimension in DIMENSIONS:
        if arguments.only not in str(dimension):
            continue
        costs = [measure(dimension, size, arguments.rounds) for size in dimension.sizes]
        calls, us = [cost.calls for cost in costs], [cost.us for cost in costs]
        print(
            f"{dimension!s:69} {f'{dimension.sizes[0]} to {dimension.sizes[-1]}':>13} "
            f"{f'{calls[0]:.0f} to {calls[-1]:.0f}':>15} {slope(dimension.sizes, calls):5.2f} "
            f"{f'{us[0]:.1f} to {us[-1]:.1f}':>17} {slope(dimension.sizes, us):5.2f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
