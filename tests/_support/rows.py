"""Tables in text files: what goes in, and indented below it what comes out today.

    # a note
    the lines of one input
      the lines of its output

`check(path, output_of)` compares a file with today's outputs, `compare(path, today)` one that is written otherwise, as
those of core/rows.py. With WRITE_ROWS in the environment, as `make golden` sets it, they write it instead, so that
a diff shows what a change of the code has changed.
"""

import difflib
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

OutputOf = Callable[[list[str]], list[str]]


def _written(table: str, output_of: OutputOf) -> Iterator[str]:
    """Yield the lines of the table with today's outputs."""
    inputs: list[str] = []
    for line in table.splitlines():
        is_output = line.startswith("  ")
        if is_output and inputs:
            yield from (f"  {each}" for text in output_of(inputs) for each in text.split("\n"))
            inputs = []
        elif not is_output:
            assert not inputs or line.strip(), f"without an output: {inputs}"
            inputs += [line] * (bool(line) and not line.startswith("# "))
            yield line
    assert not inputs, f"without an output: {inputs}"


def check(path: Path, output_of: OutputOf) -> None:
    """Fail if what comes out of an input is not what stands below it. A new input has a line "  ?" for its output."""
    compare(path, "\n".join(_written(path.read_text("utf-8"), output_of)) + "\n")


def compare(path: Path, today: str) -> None:
    """Fail if a table is not what it is with today's outputs."""
    before, after = path.read_text("utf-8").splitlines(keepends=True), today.splitlines(keepends=True)
    changes = "".join(difflib.unified_diff(before, after, str(path), "today", n=9))
    if "WRITE_ROWS" in os.environ:
        sys.stderr.write(changes)
        path.write_text(today, "utf-8")
    elif changes:
        pytest.fail(f"{changes}\n`make golden` writes {path.name} again.", pytrace=False)
