"""Configuration texts, and what loading them gives."""

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from dragoman_server.capabilities.provider import Provider
from dragoman_server.config.loader import LoadedConfig, load
from dragoman_server.settings.problems import ConfigError

CANARY = "sk-canary-0123456789-abcdefghij-wq7zk"

LOCAL = """\
[[upstreams]]
name = "local"
protocol = "openai_chat"
base_url = "http://127.0.0.1:9000/v1"
"""

FULL = Path(__file__).with_name("full.toml").read_text("utf-8")
SECRET = "a-secret-of-some-length-0123456789-wq7zk"


def load_text(text: str | bytes, environ: Mapping[str, str] | None = None, **flags: str) -> LoadedConfig:
    Path("dragoman.toml").write_bytes(text.encode() if isinstance(text, str) else text)
    return load(environ=environ or {}, flags=flags)


def errors(text: str | bytes, environ: Mapping[str, str] | None = None, **flags: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load_text(text, environ, **flags)
    return str(caught.value).splitlines()


def needed_besides_key(provider: Provider) -> dict[str, str]:
    """Return values of the variables that make an upstream of a provider, besides its key."""
    names = [*re.findall(r"\$\{(\w+)\}", provider.base_url), *(by for _, by in provider.headers)]
    return {name: "https://r.example/" if name.endswith("_ENDPOINT") else "us-east-1" for name in names}
