"""Which page of the site stands below which: what the index pages, each a README.md, list.

An index has no directives of Sphinx, because a Git host would show them as text. The links of docs/README.md below each
heading are a part of the site's menu; another index has the pages of its own folder below it. A page that is listed
twice belongs to the first place.
"""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
INDEX = "docs/README"
_LINK = re.compile(r"\]\((?!\w+:)([^)#]+\.md)\)")


def pages() -> list[str]:
    """Return the names of all pages, without their ending: paths from the root."""
    found = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]
    return sorted(path.relative_to(ROOT).with_suffix("").as_posix() for path in found)


def contents() -> dict[str, list[tuple[str, list[str]]]]:
    """Return what stands below each index: captions, and the names of pages below them."""
    seen = {INDEX}
    indices = [INDEX, *(each for each in pages() if each.startswith("docs/") and each.endswith("/README"))]
    return {each: _parts(each, seen) for each in dict.fromkeys(indices)}


def _parts(index: str, seen: set[str]) -> list[tuple[str, list[str]]]:
    path = (ROOT / index).with_suffix(".md")
    parts = []
    for part in re.split(r"^## ", path.read_text("utf-8"), flags=re.MULTILINE):
        linked = [(path.parent / link).resolve() for link in _LINK.findall(part)]
        names = [each.relative_to(ROOT).with_suffix("").as_posix() for each in linked]
        if index != INDEX:
            names = [each for each in names if each.startswith(index.removesuffix("README"))]
        new = [each for each in dict.fromkeys(names) if each not in seen]
        seen.update(new)
        parts.append((part.partition("\n")[0].lstrip("# "), new))
    return [each for each in parts if each[1]]


def toctrees(parts: list[tuple[str, list[str]]]) -> str:
    """Return the directives for the end of an index."""
    return "".join(
        f"\n```{{toctree}}\n:hidden:\n:caption: {caption}\n\n{''.join(f'/{name}{chr(10)}' for name in names)}```\n"
        for caption, names in parts
    )
