import os
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _clean_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory of the test's own, and nothing of the tester's keys and settings."""
    monkeypatch.chdir(tmp_path)
    for name in os.environ:
        own = ("_API_KEY", "_AUTH_TOKEN", "_BASE_URL", "_PROXY", "SSL_CERT_FILE")
        if name.upper().endswith(own) or name.startswith("DRAGOMAN_"):
            monkeypatch.delenv(name)
