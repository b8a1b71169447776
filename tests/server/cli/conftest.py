import logging
import os
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _clean_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory of the test's own, and nothing of the tester's keys and settings."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path.with_name(f"{tmp_path.name}-state")))
    for name in os.environ:
        own = ("_API_KEY", "_AUTH_TOKEN", "_BASE_URL", "_PROXY", "SSL_CERT_FILE")
        if name.upper().endswith(own) or name.startswith("DRAGOMAN_"):
            monkeypatch.delenv(name)


@pytest.fixture(autouse=True)
def _own_log(logger: logging.Logger) -> None:
    """The log of this process as it was: commands that serve configure it for theirs."""
