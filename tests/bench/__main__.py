"""The figures of core and gateway: `make bench`. docs/performance.md explains them.

Figures are ratios to bare work of the same run: decoding and encoding the same JSON (core), passing on the same bytes
(gateway). Other checkouts and Pythons are measured in the same run.
"""

import argparse
import subprocess
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import bench_server
import msgspec
from bench_figures import PAIRS, Figure, Variant, record

CORE = Path(__file__).with_name("bench_core.py")
LOOPS = [name for name in ("asyncio", "uvloop", "trio") if name != "uvloop" or find_spec("uvloop")]


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="make bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", choices=("core", "server"))
    parser.add_argument("--pair", action="append", choices=[*PAIRS, "all"], help="default: messages>chat")
    parser.add_argument("--figure", action="append", choices=bench_server.SCENARIOS, help="of the gateway")
    parser.add_argument("--loop", action="append", choices=LOOPS, help="default: all")
    parser.add_argument("--rounds", type=int, default=5, help="of the gateway's figures")
    parser.add_argument("--seconds", type=float, default=2.0, help="of each measurement of the gateway")
    parser.add_argument("--tree", action="append", default=[], type=Path, help="another checkout to compare")
    parser.add_argument("--python", action="append", default=[], help="another interpreter with dependencies")
    parser.add_argument("--record", action="store_true", help="append the figures to tests/bench/history.csv")
    args = parser.parse_args()
    pairs = PAIRS if "all" in (args.pair or ()) else args.pair or ["messages>chat"]
    variants = [Variant.make(tree, python) for tree in (*args.tree, None) for python in (None, *args.python)]
    figures: list[Figure] = []
    for figure in _figures(args, pairs, variants):
        print(figure.line(), flush=True)
        figures.append(figure)
    if args.record:
        record(figures)


def _figures(args: argparse.Namespace, pairs: list[str], variants: list[Variant]) -> Iterator[Figure]:
    if args.only != "server":
        for variant in variants:
            yield from _core(variant, pairs)
    if args.only != "core":
        scenarios = args.figure or list(bench_server.SCENARIOS)
        loops = args.loop or LOOPS
        yield from bench_server.bench(variants, loops, scenarios, pairs, args.rounds, args.seconds)


def _core(variant: Variant, pairs: list[str]) -> list[Figure]:
    """Run bench_core.py in its own process, because trees and Pythons differ."""
    options = [each for pair in pairs for each in ("--pair", pair)]
    command = [variant.python, str(CORE), "--json", *options]
    output = subprocess.run(command, env=variant.environment, stdout=subprocess.PIPE, check=True).stdout
    figures = msgspec.json.decode(output, type=list[Figure])
    return [msgspec.structs.replace(each, python=variant.version, commit=variant.commit) for each in figures]


if __name__ == "__main__":
    main()
