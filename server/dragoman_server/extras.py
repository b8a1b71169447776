"""The optional parts of an installation that settings may need."""

from contextlib import suppress
from importlib.util import find_spec

# By the extra's name in pyproject.toml: the module that it brings.
_MODULES = {"metrics": "prometheus_client", "otel": "opentelemetry.sdk", "valkey": "coredis"}


def missing_extra(name: str) -> str | None:
    """Return what to do about an extra that is not installed, None if it is."""
    with suppress(ModuleNotFoundError):  # the package around the module is missing as well
        if find_spec(_MODULES[name]) is not None:
            return None
    return f"needs an extra: in a clone of Dragoman, pip install '.[{name}]'"
