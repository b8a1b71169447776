"""The names that programs may import, by module: docs/api.md lists them, and the site has their docstrings."""

import inspect
import re
from collections.abc import Iterator
from importlib import import_module

import dragoman

# What the docstring of the core names has an __all__.
_CORE = ["dragoman", *re.findall(r"^    (dragoman\.\w+) ", dragoman.__doc__ or "", re.MULTILINE)]
# Of the gateway: what an application that has it inside needs.
_GATEWAY = {
    "dragoman_server.app": ["create_app", "Application"],
    "dragoman_server.config.loader": ["load", "LoadedConfig"],
    "dragoman_server.hosts": ["UpstreamCall"],
    "dragoman_server.policy.attempts": ["Account", "Attempts", "GiveUp", "Offer", "UpstreamAccounts"],
    "dragoman_server.policy.health": ["Health"],
    "dragoman_server.settings": ["Settings", "UpstreamSettings"],
    "dragoman_server.simulator": ["SimulatedUpstream", "create_simulator_app"],
}
_DIRECTIVES = re.compile(r"<!-- table: names of ([\w.]+) -->.*?<!-- end -->\n", re.DOTALL)
MODULES = (*_CORE, *_GATEWAY)


def names(module: str) -> list[str]:
    if module in _GATEWAY:
        return _GATEWAY[module]
    return list(import_module("dragoman._api" if module == "dragoman" else module).__all__)


def summary(module: str, name: str) -> str:
    """Return the first sentence of what a name's docstring says, nothing for a value."""
    value = getattr(import_module(module), name)
    if not (inspect.isclass(value) or inspect.isroutine(value)):
        return ""
    paragraph = " ".join((inspect.getdoc(value) or "").partition("\n\n")[0].split())
    return re.split(r"(?<=[^.]{2}\.) ", paragraph)[0]


def with_docstrings(page: str) -> str:
    """Return the page with directives below each table, for Sphinx."""
    return _DIRECTIVES.sub(
        lambda match: f"{match[0]}\n```{{eval-rst}}\n{''.join(_directives(match[1]))}```\n", page
    )


def _directives(module: str) -> Iterator[str]:
    earlier = MODULES[: MODULES.index(module)]
    for name in names(module):
        value = getattr(import_module(module), name)
        if any(getattr(import_module(each), name, None) is value for each in earlier if name in names(each)):
            continue  # it stands there
        if inspect.isclass(value):
            yield f".. autoclass:: {module}.{name}\n   :members:\n\n"
        elif inspect.isroutine(value):
            yield f".. autofunction:: {module}.{name}\n\n"
        else:
            yield f".. py:data:: {module}.{name}\n\n"
