"""docs/simulator.md shows the models that there are."""

from pathlib import Path

from dragoman_server.simulator.table import markdown

PAGE = Path(__file__).parents[3] / "docs" / "simulator.md"


def test_the_table_of_models_is_current() -> None:
    # If this fails, put the output of `python -m dragoman_server.simulator.table` into the page.
    assert markdown() in PAGE.read_text("utf-8")
