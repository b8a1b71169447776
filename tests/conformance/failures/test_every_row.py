"""Every row of the list of failures has a test or a row of one that is named after it, or a reason against one."""

from __future__ import annotations

import re
import runpy
from collections import Counter
from functools import cache
from pathlib import Path

TESTS = Path(__file__).resolve().parents[2]
# Not imported: this folder is no package, and not on the path of modules.
REASONS: dict[str, str] = runpy.run_path(str(Path(__file__).with_name("not_applicable.py")))["REASONS"]
LIST = Path(__file__).with_name("README.md")

# `| A1 | what must not happen again |`
_ROW = re.compile(r"^\| *([A-Z]\d+) *\|", re.MULTILINE)
# `def test_A1_what_it_says`, `async def test_i18_i19_both_at_once`, rows of tables: `"A3 A14 what it says": (`, and
# titles of rows of readers: `# A12 what it says`.
_TEST = re.compile(
    r"^(?:async )?def test((?:_[A-Za-z]\d+)+)_\w|^(?:#| *(?:id=)?\")((?:\s?[A-Za-z]\d+ )+)[A-Za-z]",
    re.MULTILINE,
)


@cache
def rows() -> list[str]:
    """The ids in the list, in its order."""
    return _ROW.findall(LIST.read_text(encoding="utf-8"))


@cache
def named() -> Counter[str]:
    """Id -> how many tests, or rows of a table of tests, are named after it."""
    found: Counter[str] = Counter()
    for path in (*TESTS.rglob("test_*.py"), *TESTS.glob("sansio/*/*_in*.txt")):
        if path.is_relative_to(TESTS / "recordings"):
            continue  # `make test` does not run them
        for of_test, of_row in _TEST.findall(path.read_text(encoding="utf-8")):
            found.update((of_test.replace("_", " ") + of_row).upper().split())
    return found


def test_the_list_has_no_gaps() -> None:
    """The groups have no gaps: an id that the pattern does not match would be one."""
    assert len(rows()) == len(set(rows()))
    for group in sorted({row[0] for row in rows()}):
        numbers = [int(row[1:]) for row in rows() if row[0] == group]
        assert numbers == list(range(1, len(numbers) + 1)), group
    assert {row[0] for row in rows()} >= set("ABCDEFGHI")


def test_every_row_has_a_test_or_a_reason() -> None:
    assert [row for row in rows() if not named()[row] and row not in REASONS] == []


def test_no_row_has_both() -> None:
    assert [row for row in rows() if named()[row] and row in REASONS] == []


def test_reasons_are_sentences_about_rows_of_the_list() -> None:
    assert [row for row in REASONS if row not in rows()] == []
    for row, reason in REASONS.items():
        assert re.fullmatch(r"[A-Z].{20,}\.", reason, re.DOTALL), row
