"""Every row of the list of failures has a test or a row of one that is named after it, or a reason against one."""

import re
from collections import Counter
from functools import cache
from pathlib import Path

TESTS = Path(__file__).resolve().parents[2]
LIST = Path(__file__).with_name("README.md")
REASONS: dict[str, str] = {}

# `| A1 | what must not happen again |`
_ROW = re.compile(r"^\| *([A-Z]\d+) *\|", re.MULTILINE)
# `def test_f6_f7_what_it_says`, `id="A19 what it says"`, and `# A3 A7 what it says`, also behind a title and a colon.
_TEST = re.compile(
    r"^(?:async )?def test((?:_[A-Za-z]\d+)+)_\w|\bid=\"((?:[A-Z]\d+ )+)\w|^# (?:[^:\n]+: )?((?:[A-Za-z]\d+ )+)\w",
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
    for path in (*TESTS.rglob("test_*.py"), *TESTS.rglob("*.txt")):
        for ids in _TEST.findall(path.read_text(encoding="utf-8")):
            found.update("".join(ids).replace("_", " ").upper().split())
    return found


def test_the_list_has_no_gaps() -> None:
    """The groups have no gaps: an id that the pattern does not match would be one."""
    assert len(rows()) == len(set(rows()))
    for group in sorted({row[0] for row in rows()}):
        numbers = [int(row[1:]) for row in rows() if row[0] == group]
        assert numbers == list(range(1, len(numbers) + 1)), group
    assert {row[0] for row in rows()} >= set("ABCDEFGHI")


def test_every_row_has_a_test_or_a_reason() -> None:
    assert [row for row in rows() if bool(named()[row]) is (row in REASONS)] == []
    assert REASONS.keys() <= set(rows())
