"""What a unit of work costs at several sizes of something that it should not depend on.

A dimension has its sizes and makes the work for one of them; `measure` counts the calls of Python and C functions in it
and takes its CPU time. Counts are the same on every machine and in every run; a walk that makes no call is only in the
time.
"""

import asyncio
import gc
import inspect
import math
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from types import FrameType
from typing import Any

import anyio

# The work is a function, which may be a coroutine function; it is called several times. With it, how many units it has.
Work = tuple[Callable[[], Any], int]

_ROUNDS = 5


@dataclass(frozen=True)
class Dimension:
    """Something that the cost of a unit of work should not depend on.

    unit: of the work. of: what there is 'sizes' of.
    make: returns the work for a size, or a context in which it may be called.
    """

    unit: str
    of: str
    sizes: tuple[int, ...]
    make: Callable[[int], Work | AbstractAsyncContextManager[Work]]

    def __str__(self) -> str:
        return f"{self.unit} by {self.of}"


@dataclass(frozen=True)
class Cost:
    """The cost of one unit. calls: of Python and C functions. us: of CPU time, of the fastest of some rounds."""

    calls: float
    us: float


class _StoppedClock(asyncio.SelectorEventLoop):
    """Nothing is late on a busy machine, where a stream is passed on in another way when it is slow."""

    def time(self) -> float:
        return 0.0


def measure(dimension: Dimension, size: int, rounds: int = _ROUNDS) -> Cost:
    options = {"loop_factory": _StoppedClock}
    return anyio.run(_measure, dimension, size, rounds, backend_options=options)


async def _measure(dimension: Dimension, size: int, rounds: int) -> Cost:
    made = dimension.make(size)
    async with nullcontext(made) if isinstance(made, tuple) else made as (work, units):
        return await _cost(work, units, rounds)


async def _cost(work: Callable[[], Any], units: int, rounds: int) -> Cost:
    async def run() -> None:
        result = work()
        if inspect.isawaitable(result):
            await result

    await run()
    gc.collect()
    gc.disable()
    calls = 0

    def count(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal calls
        if event in ("call", "c_call"):
            calls += 1

    sys.setprofile(count)
    try:
        await run()
    finally:
        sys.setprofile(None)
        gc.enable()
    times = []
    for _ in range(rounds):
        begun = time.process_time()
        await run()
        times.append(time.process_time() - begun)
    return Cost(calls / units, min(times, default=math.nan) / units * 1e6)


def slope(sizes: Sequence[int], costs: Sequence[float]) -> float:
    """Return the exponent of size by which the cost grows: the slope of the line through both logarithms."""
    xs, ys = [math.log(size) for size in sizes], [math.log(cost) for cost in costs]
    x, y = sum(xs) / len(xs), sum(ys) / len(ys)
    return sum((a - x) * (b - y) for a, b in zip(xs, ys, strict=True)) / sum((a - x) ** 2 for a in xs)
