"""The files and functions that guides name exist: the walk of a request, and the table of questions."""

import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PACKAGES = {"dragoman": ROOT / "sansio/dragoman", "dragoman_server": ROOT / "server/dragoman_server"}


@pytest.mark.parametrize("page", ["docs/architecture.md", "CONTRIBUTING.md"])
def test_files_and_functions_that_a_page_names_are_there(page: str) -> None:
    names = re.findall(r"`([\w/]+)\.py` `([\w.]+)`", (ROOT / page).read_text())
    assert len(names) > 10
    for path, name in names:
        package = next(each for each, folder in PACKAGES.items() if (folder / f"{path}.py").is_file())
        found = importlib.import_module(f"{package}.{path.replace('/', '.')}")
        for part in name.split("."):
            found = getattr(found, part)


def test_folders_and_tables_that_the_guide_for_contributors_names_are_there() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    folders = [name for name in re.findall(r"`([\w/]+)/`", text) if "dragoman" not in name]
    for name in folders:
        assert any((folder / name).is_dir() for folder in (*PACKAGES.values(), ROOT)), name
    protocols = [
        PACKAGES["dragoman"] / "protocols" / name for name in ("anthropic_messages", "openai_responses")
    ]
    for file, name in (
        ("shapes", "REQUEST_SHAPE"),
        ("tables", "STOP_REASONS"),
        ("tables", "STOP_REASON_NAMES"),
    ):
        assert name in text
        assert all(f"\n{name}: " in (folder / f"{file}.py").read_text() for folder in protocols)
