"""The optional parts of an installation that settings may need, and the command that adds one."""

import json
import shlex
import sys
from contextlib import suppress
from importlib.util import find_spec
from urllib.parse import urlsplit

# By the extra's name in pyproject.toml: the module that it brings.
_MODULES = {
    "azure": "azure.identity",
    "bedrock": "botocore",
    "metrics": "prometheus_client",
    "otel": "opentelemetry.sdk",
    "socks": "socksio",
    "top": "textual",
    "valkey": "coredis",
    "vertex": "google.auth",
}

# What follows it is the command that installs the extra.
NEEDS_EXTRA = "needs an extra: "


def missing_extra(name: str) -> str | None:
    """Return what to do about an extra that is not installed, None if it is."""
    with suppress(ModuleNotFoundError):  # the package around the module is missing as well
        if find_spec(_MODULES[name]) is not None:
            return None
    return NEEDS_EXTRA + install_command(name)


def install_command(extra: str) -> str:
    """Return the shell command that adds an extra to this installation, from where it came."""
    # The first takes a tenth of a start, and few need it.
    from importlib.metadata import PackageNotFoundError, distribution
    from urllib.request import url2pathname

    package = f"dragoman[{extra}]"
    options = ["-m", "pip", "install"]
    with suppress(PackageNotFoundError):
        # https://packaging.python.org/en/latest/specifications/direct-url/
        origin = json.loads(distribution("dragoman").read_text("direct_url.json") or "{}")
        url = origin.get("url", "")
        if origin.get("dir_info", {}).get("editable"):
            options.append("-e")
            package = f"{url2pathname(urlsplit(url).path)}[{extra}]"
        elif url.startswith("file:"):
            package = f"{package} @ {url}"
    return shlex.join([sys.executable, *options, package])
