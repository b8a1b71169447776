"""Every Python example in the documentation runs, and every link between pages leads somewhere."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
_BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\((?!https?://|#)([^)#]+)")

EXAMPLES = [
    pytest.param(page, match.group(1), id=f"{page.name}-{number}")
    for page in PAGES
    for number, match in enumerate(_BLOCK.finditer(page.read_text("utf-8")))
]


@pytest.mark.parametrize(("page", "code"), EXAMPLES)
def test_example_runs(page: Path, code: str) -> None:
    exec(compile(code, str(page), "exec"), {"__name__": "example"})


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    missing = [link for link in _LINK.findall(page.read_text("utf-8")) if not (page.parent / link).exists()]
    assert missing == []
