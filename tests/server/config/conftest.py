from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Configuration files are found in the working directory, which is a test's own."""
    monkeypatch.chdir(tmp_path)
