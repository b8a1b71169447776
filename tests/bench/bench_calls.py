"""Which layers the Python calls and bytecodes of an event and of a request belong to.

    python tests/bench/bench_calls.py [--loop trio] [--functions 30]

The load is that of the guard, tests/server/serving/test_calls.py. Calls and bytecodes are counted, not timed, so the
machine does not matter. Time follows the bytecodes.
"""

import argparse
import sys
from collections import Counter
from functools import partial
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import anyio

sys.path.insert(0, str(Path(__file__).parents[1] / "server" / "serving"))

import test_calls

from dragoman_server.platform.clock import event_loop

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


class BytecodeCounter(test_calls.Counter):
    """Keeps what was counted between each start() and stop(): calls and bytecodes by function."""

    def __init__(self) -> None:
        super().__init__()
        self.spans: list[tuple[Counter[CodeType], Counter[CodeType]]] = []

    def start(self) -> None:
        self.spans.append((Counter(), Counter()))
        sys.settrace(self._trace)

    def stop(self) -> int:
        sys.settrace(None)
        return self.spans[-1][0].total()

    def _trace(self, frame: FrameType, event: str, argument: Any) -> Any:
        calls, bytecodes = self.spans[-1]
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        calls[frame.f_code] += 1

        def trace(frame: FrameType, event: str, argument: Any) -> Any:
            if event == "opcode":
                bytecodes[frame.f_code] += 1
            return trace

        return trace


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--loop", choices=("asyncio", "uvloop", "trio"), default="asyncio")
    parser.add_argument("--functions", type=int, default=0, help="how many of the largest functions to list")
    arguments = parser.parse_args()
    counter = BytecodeCounter()
    backend = "trio" if arguments.loop == "trio" else "asyncio"
    anyio.run(test_calls.serve, backend, partial(test_calls.drive, counter), {}, **event_loop(arguments.loop))
    repeats = (test_calls.EVENTS, test_calls.REQUESTS)
    layers: dict[str, list[float]] = {}  # calls and bytecodes of an event, calls and bytecodes of a request
    for span, repeat in enumerate(repeats):
        for kind, counts in enumerate(counter.spans[span]):
            for code, count in counts.items():
                layers.setdefault(layer(code.co_filename), [0.0] * 4)[2 * span + kind] += count / repeat
    rows: dict[str, list[float]] = {}
    for name, found in layers.items():
        row = name if found[0] >= FEW[0] or found[2] >= FEW[1] else "others"
        rows[row] = [a + b for a, b in zip(rows.get(row, [0.0] * 4), found, strict=True)]
    print(f"{'':<32}{'an event':>20}{'a request':>20}")
    print(f"{'layer':<32}{'calls':>10}{'bytecodes':>10}{'calls':>10}{'bytecodes':>10}")
    for name, found in sorted(rows.items(), key=lambda row: -row[1][3]):
        print(f"{name:<32}{found[0]:>10.1f}{found[1]:>10.0f}{found[2]:>10.1f}{found[3]:>10.0f}")
    all_ = [sum(column) for column in zip(*rows.values(), strict=True)]
    print(f"{'all':<32}{all_[0]:>10.1f}{all_[1]:>10.0f}{all_[2]:>10.1f}{all_[3]:>10.0f}")
    for span, repeat in enumerate(repeats) if arguments.functions else ():
        calls, bytecodes = counter.spans[span]
        print(f"\n{('an event', 'a request')[span]:<10}{'calls':>8}{'bytecodes':>11}")
        for code, count in bytecodes.most_common(arguments.functions):
            place = f"{layer(code.co_filename)} {code.co_qualname}"
            print(f"{'':<10}{calls[code] / repeat:>8.1f}{count / repeat:>11.0f}  {place}")


if __name__ == "__main__":
    main()
