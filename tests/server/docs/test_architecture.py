"""The walk of a request in docs/architecture.md names files and functions that exist."""

import importlib
import re
from pathlib import Path

TEXT = (Path(__file__).parents[3] / "docs" / "architecture.md").read_text()
STEPS = re.findall(r"`([\w/]+)\.py` `([\w.]+)`", TEXT)


def test_every_step_of_the_walk_is_there() -> None:
    assert len(STEPS) > 20
    for path, name in STEPS:
        found = importlib.import_module("dragoman_server." + path.replace("/", "."))
        for part in name.split("."):
            found = getattr(found, part)
        assert callable(found)
