"""Sphinx makes a site of the pages: `make docs-site`.

The pages are Markdown that a Git host shows as well. What only Sphinx needs is added to them when it reads them.
"""

import sys
import tomllib
from pathlib import Path

from sphinx.application import Sphinx

ROOT = Path(__file__).parents[3]
sys.path[:0] = [str(ROOT / each) for each in ("sansio", "server", "docs/_generate")]

import map_picture  # noqa: E402
import public_names  # noqa: E402
import site_contents  # noqa: E402

project = "Dragoman"
version = release = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
maximum_signature_line_length = 100  # longer ones have a line for each argument
napoleon_use_ivar = True
default_role = "code"  # as in Markdown
root_doc = site_contents.INDEX
include_patterns = ["*.md", "docs/**.md"]
exclude_patterns = ["docs/_generate", "build"]
highlight_language = "text"
myst_heading_anchors = 4

html_theme = "furo"
html_title = f"Dragoman {release}"
html_copy_source = False
html_show_copyright = False
templates_path = ["templates"]
html_additional_pages = {"index": "index.html"}  # leads to INDEX


def complete(app: Sphinx, page: str, source: list[str]) -> None:
    source[0] = map_picture.with_pictures(public_names.with_docstrings(source[0]))
    source[0] += site_contents.toctrees(site_contents.contents().get(page, []))


def setup(app: Sphinx) -> None:
    app.connect("source-read", complete)
