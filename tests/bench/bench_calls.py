"""Which layers the Python calls of an event and of a request belong to.

    python tests/bench/bench_calls.py [--backend trio]

The load is that of the guard, tests/server/serving/test_calls.py. Calls are counted, not timed, so the machine does not
matter.
"""

import argparse
import sys
from collections import Counter
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import anyio

sys.path.insert(0, str(Path(__file__).parents[1] / "server" / "serving"))

import test_calls

# Layers with fewer calls than these, for an event and for a request, are one line.
FEW = (1, 10)


def layer(path: str) -> str:
    """Return a package of the gateway, the core as a whole, or a library."""
    parts = Path(path).parts
    if "dragoman_server" in parts:
        return "/".join(parts[parts.index("dragoman_server") :][:2]).removesuffix(".py")
    if "dragoman" in parts:
        return "dragoman (core)"
    if "site-packages" in parts:
        return parts[parts.index("site-packages") + 1]
    return "asyncio" if "asyncio" in parts else "standard library"


class LayerCounter(test_calls.Counter):
    """Keeps what was counted between each start() and stop()."""

    def __init__(self) -> None:
        super().__init__()
        self.spans: list[Counter[str]] = []

    def start(self) -> None:
        self.spans.append(Counter())
        super().start()

    def _count(self, frame: FrameType, event: str, argument: Any) -> None:
        super()._count(frame, event, argument)
        if event == "call":
            self.spans[-1][layer(frame.f_code.co_filename)] += 1


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--backend", choices=("asyncio", "trio"), default="asyncio")
    backend = parser.parse_args().backend
    counter = LayerCounter()
    anyio.run(test_calls.serve, backend, partial(test_calls.drive, counter), {}, backend=backend)
    rows: dict[str, tuple[float, float]] = {}
    for name in set().union(*counter.spans):
        event, request = (
            counter.spans[0][name] / test_calls.EVENTS,
            counter.spans[1][name] / test_calls.REQUESTS,
        )
        row = name if event >= FEW[0] or request >= FEW[1] else "others"
        rows[row] = (rows.get(row, (0, 0))[0] + event, rows.get(row, (0, 0))[1] + request)
    print(f"{'layer':<32}{'an event':>10}{'a request':>11}")
    for name, (event, request) in sorted(rows.items(), key=lambda row: -row[1][1]):
        print(f"{name:<32}{event:>10.1f}{request:>11.0f}")
    print(
        f"{'all':<32}{sum(row[0] for row in rows.values()):>10.1f}{sum(row[1] for row in rows.values()):>11.0f}"
    )


if __name__ == "__main__":
    main()
