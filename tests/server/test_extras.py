"""The command that adds an extra: it installs from where the installation came, because no index has it."""

import shlex
import sys
from importlib.metadata import PackageNotFoundError

import pytest

from dragoman_server.platform.extras import install_command

FOLDER = "file:///home/me/my%20clone"
WHEEL = "file:///tmp/dragoman-0.1.0-py3-none-any.whl"


class Distribution:
    """An installed distribution whose metadata has this direct_url.json, or none."""

    def __init__(self, direct_url: str | None) -> None:
        self.direct_url = direct_url

    def read_text(self, name: str) -> str | None:
        assert name == "direct_url.json"
        return self.direct_url


@pytest.mark.parametrize(
    ("direct_url", "arguments"),
    [
        (f'{{"url": "{FOLDER}", "dir_info": {{"editable": true}}}}', ["-e", "/home/me/my clone[otel]"]),
        (f'{{"url": "{FOLDER}", "dir_info": {{}}}}', [f"dragoman[otel] @ {FOLDER}"]),
        (f'{{"url": "{WHEEL}", "archive_info": {{}}}}', [f"dragoman[otel] @ {WHEEL}"]),
        (None, ["dragoman[otel]"]),
    ],
)
def test_the_command(direct_url: str | None, arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.metadata.distribution", lambda name: Distribution(direct_url))
    assert shlex.split(install_command("otel")) == [sys.executable, "-m", "pip", "install", *arguments]


def test_without_metadata(monkeypatch: pytest.MonkeyPatch) -> None:
    def distribution(name: str) -> Distribution:
        raise PackageNotFoundError(name)

    monkeypatch.setattr("importlib.metadata.distribution", distribution)
    assert shlex.split(install_command("otel"))[-1] == "dragoman[otel]"
