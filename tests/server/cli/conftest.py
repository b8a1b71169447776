import os
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _clean_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory of the test's own, and nothing of the tester's keys and settings."""
    monkeypatch.chdir(tmp_path)
    for name in os.environ:
        if name.endswith(("_API_KEY", "_AUTH_TOKEN", "_BASE_URL")) or name.startswith("DRAGOMAN_"):
            monkeypatch.delenv(name)
