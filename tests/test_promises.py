"""docs/promises.md: each promise has tests, and each test with the marker `promise` counts."""

import re
from pathlib import Path

import page_tables

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGE = (DOCS / "promises.md").read_text("utf-8")
SECTIONS = {part.split("\n", 1)[0]: part for part in PAGE.split("\n### ")[1:]}


def test_every_promise_is_there_once_in_its_order() -> None:
    assert re.findall(r"^### (.*)", PAGE, re.MULTILINE) == page_tables.PROMISES
    assert all(f"<!-- table: {number} -->" in text for number, text in SECTIONS.items())


def test_every_promise_has_a_test() -> None:
    promises = page_tables.PROMISES
    assert [n for n in promises if not re.search(r"^- `tests/", SECTIONS[n], re.MULTILINE)] == []


def test_every_marker_counts() -> None:
    """It stands above a test, a class or in `pytestmark`, names what exists, and the main suite runs it."""
    assert page_tables.promised().keys() <= set(page_tables.PROMISES)
    for modules in page_tables.promised().values():
        assert all(len(names) == len(set(names)) for names in modules.values()), modules
    counted = sum(len(names) for modules in page_tables.promised().values() for names in modules.values())
    texts = [path.read_text("utf-8") for path in (ROOT / "tests").rglob("*.py")]
    written = [
        re.findall(r'"[RS]\d+"', mark)
        for text in texts
        for mark in re.findall(r"\bmark\.promise\((.*?)\)", text)
    ]
    assert counted == sum(map(len, written))
    assert not any(
        "tests/recordings/" in module for modules in page_tables.promised().values() for module in modules
    )


def test_links_to_promises_are_valid() -> None:
    for page in [ROOT / "README.md", *sorted(DOCS.glob("*.md"))]:
        linked = re.findall(r"promises\.md#([rs]\d+)", page.read_text("utf-8"))
        assert {each.upper() for each in linked} <= set(page_tables.PROMISES), page.name
