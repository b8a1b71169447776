"""docs/troubleshooting.md: each text of ours that it quotes is a text of the code."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "troubleshooting.md").read_text("utf-8")

# Stands for what differs, on the page and in the texts of f-strings here.
DIFFERS = "…"


def quoted() -> Iterator[str]:
    """Yield the texts of ours: the code spans in the first cell of each row, except in the table about clients."""
    ours, _, _ = PAGE.partition("## Texts of clients")
    for line in ours.splitlines():
        if line.startswith("| `"):
            yield from line.partition(" | ")[0].split("`")[1::2]


def text_of(node: ast.expr) -> str | None:
    """Return the text of a string, or of several that are joined in the source; … for each value in it."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else None
    if isinstance(node, ast.JoinedStr):
        return "".join(text_of(value) or DIFFERS for value in node.values)
    return None


@cache
def texts() -> tuple[str, ...]:
    found = set()
    for package in ("sansio", "server"):
        for file in (ROOT / package).rglob("*.py"):
            for node in ast.walk(ast.parse(file.read_text("utf-8"))):
                text = text_of(node) if isinstance(node, ast.expr) else None
                if text:
                    # The transport's texts have names in braces, which it replaces later.
                    found.add(re.sub(r"\{\w+\}", DIFFERS, text))
    return tuple(found)


@pytest.mark.no_cover
@pytest.mark.parametrize("text", sorted(set(quoted())))
def test_a_quoted_text_is_in_the_code(text: str) -> None:
    # Some are put together from several strings of the code.
    for part in re.split(r"…|; |: ", text):
        assert any(part.strip(" .,()") in each for each in texts()), part


def test_the_page_quotes_texts() -> None:
    assert len(set(quoted())) > 30
