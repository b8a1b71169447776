"""docs/simulator.md shows the models that there are."""

import runpy
from pathlib import Path

DOCS = Path(__file__).parents[3] / "docs"
TEXT = (DOCS / "simulator.md").read_text("utf-8")


def test_the_table_of_models_is_current() -> None:
    # If this fails, run `python docs/generate.py`.
    assert runpy.run_path(str(DOCS / "generate.py"))["page"](TEXT) == TEXT
