"""The figures of the benchmarks, and the file with those of earlier commits, tests/bench/history.csv."""

import csv
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple, Self

import msgspec

PROTOCOLS = {
    "messages": "anthropic_messages",
    "chat": "openai_chat",
    "responses": "openai_responses",
    "gemini": "gemini",
}
PAIRS = [f"{client}>{upstream}" for client in PROTOCOLS for upstream in PROTOCOLS]
ROOT = Path(__file__).parents[2]
FILE = Path(__file__).with_name("history.csv")
COLUMNS = ("date", "commit", "python", "figure", "pair", "loop", "ratio", "waited")


class Variant(NamedTuple):
    """A checkout at its commit, run by a Python of some version."""

    tree: Path
    commit: str
    python: str
    version: str

    @classmethod
    def make(cls, tree: Path | None, python: str | None) -> Self:
        """None: this checkout, this Python."""
        tree, python = (tree or ROOT).resolve(), python or sys.executable
        commit = _output("git", "-C", str(tree), "rev-parse", "--short=8", "HEAD") or "no commit"
        version = _output(python, "-c", "import platform; print(platform.python_version())")
        return cls(tree, commit, python, version)

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "PYTHONPATH": f"{self.tree / 'sansio'}{os.pathsep}{self.tree / 'server'}"}


def _output(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True).stdout.strip()


class Figure(msgspec.Struct, frozen=True):
    """One measured figure.

    name: as in docs/performance.md.
    pair: CLIENT>UPSTREAM.
    value: in `unit`, on this machine.
    ratio: `value` divided by that of the bare work in the same run.
    loop: the event loop; empty for the core.
    waited: the part of the time in which the process was ready to run and had no core; None for the core.
    """

    name: str
    pair: str
    value: float
    unit: str
    ratio: float
    loop: str = ""
    python: str = ""
    commit: str = ""
    waited: float | None = None
    p99_ms: float | None = None

    def line(self) -> str:
        by = " ".join(each for each in (self.loop, self.python, self.commit) if each)
        line = f"{self.name:<24}{self.pair:<20}{by:<26}{self.value:>8.2f} {self.unit:<12}x{self.ratio:<6.2f}"
        if self.waited is not None:
            line += f" waited {self.waited:>4.0%}"
        return line if self.p99_ms is None else f"{line}  p99 {self.p99_ms:.1f} ms"


def record(figures: list[Figure]) -> None:
    """Append all figures but those of the relay."""
    date = time.strftime("%Y-%m-%d", time.gmtime())
    with FILE.open("a", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        if not file.tell():
            writer.writerow(COLUMNS)
        for each in figures:
            if each.commit:
                waited = "" if each.waited is None else f"{each.waited:.2f}"
                row = (each.commit, each.python, each.name, each.pair, each.loop, f"{each.ratio:.2f}", waited)
                writer.writerow((date, *row))


def read() -> list[dict[str, str]]:
    """Return the rows of the file, oldest first."""
    with FILE.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))
