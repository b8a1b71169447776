"""The names that programs may import, by module: docs/api.md lists them, and the site has their docstrings."""

import inspect
import re
from collections.abc import Iterator
from importlib import import_module
from types import GenericAlias

import dragoman

# What the docstring of the core names has an __all__.
_CORE = ["dragoman", *re.findall(r"^    (dragoman\.\w+) ", dragoman.__doc__ or "", re.MULTILINE)]
# Others, with those of their names that programs need.
_NAMED = {
    "dragoman.protocols.anthropic_messages.capabilities": ["MessagesCapabilities"],
    "dragoman.protocols.gemini.capabilities": ["GeminiCapabilities"],
    "dragoman.protocols.openai_chat.capabilities": ["ChatCapabilities"],
    "dragoman.protocols.openai_responses.capabilities": ["ResponsesCapabilities"],
    "dragoman_server.app": ["create_app", "Application"],
    "dragoman_server.config.loader": ["load", "LoadedConfig"],
    "dragoman_server.hosts": ["UpstreamCall"],
    "dragoman_server.policy.attempts": ["Account", "Attempts", "GiveUp", "Offer", "UpstreamAccounts"],
    "dragoman_server.policy.health": ["Health"],
    "dragoman_server.settings": ["Settings", "ServerSettings", "UpstreamSettings"],
    "dragoman_server.simulator": ["SimulatedUpstream", "create_simulator_app"],
}
# Constants and types have no docstring, or that of the class that they stand for.
_VALUES = {
    "CacheKeySource": "Returns a name for the conversation of a request, None if there is none.",
    "CachedReasoning": "Call ids of a turn, and the reasoning before them.",
    "CheckInput": "Returns why an input of a free-text tool breaks the tool's grammar, None if it does not.",
    "EFFORTS": "The efforts of reasoning, from least to most.",
    "Enforced": "What an upstream enforces, so that it need not be checked.",
    "Event": "One of the events of this module.",
    "HostedUse": "What a tool that the upstream runs does.",
    "JSON": "A decoded JSON value.",
    "JSONObject": "A decoded JSON object.",
    "JSON_ARRAY": "The framing of a stream as one JSON array.",
    "MAX_COUNT": "The largest count of tokens and the like that is read.",
    "MAX_DOCUMENT_BYTES": "The largest JSON text that is decoded.",
    "MAX_FINDINGS": "More findings than this are only counted.",
    "MODEL_IN_PATH": "Stands for the model in the path of an endpoint.",
    "Masker": "Returns a text without what its reader may not see.",
    "NDJSON": "The framing of a stream as lines of JSON.",
    "NEED_DATA": "What next_event() returns when it needs more bytes.",
    "NOT_REPEATED": "Stands for a member of the client's body that is too large to be repeated in the response.",
    "PLACES": "At how many places chop() cuts data in two.",
    "PROTOCOLS": "The protocols of clients, by name.",
    "Param": "The neutral name of a setting of requests.",
    "Part": "One of the parts of a message.",
    "REFUSABLE_MEMBERS": "What an upstream may refuse besides settings.",
    "RULES": "The rules, by their ids.",
    "ReasoningLookup": "Returns the reasoning that was cached for the call ids of a turn.",
    "Role": "The role of a message.",
    "SSE": "The framing of a stream as server-sent events.",
    "STATUS_BY_KIND": "The status of an error that came with none.",
    "Tool": "One of the kinds of tools.",
    "dragoman.lint.PROTOCOLS": "The names of the protocols that have rules.",
    "UPSTREAMS": "The protocols that upstreams speak as well, by name.",
}
_DIRECTIVES = re.compile(r"<!-- table: names of ([\w.]+) -->.*?<!-- end -->\n", re.DOTALL)
MODULES = (*_CORE, *_NAMED)


def names(module: str) -> list[str]:
    if module in _NAMED:
        return _NAMED[module]
    return list(import_module("dragoman._api" if module == "dragoman" else module).__all__)


def summary(module: str, name: str) -> str:
    """Return the first sentence of what is said about a name."""
    value = getattr(import_module(module), name)
    if not _has_docstring(value):
        return _VALUES.get(f"{module}.{name}") or _VALUES[name]
    paragraph = " ".join((inspect.getdoc(value) or "").partition("\n\n")[0].split())
    return re.split(r"(?<=[^.]{2}\.) ", paragraph)[0]


def _has_docstring(value: object) -> bool:
    """Whether it is a class or a function of ours. `Param` is str and `JSON` is Any, with docstrings about Python."""
    own = inspect.isclass(value) or inspect.isroutine(value)
    return own and not isinstance(value, GenericAlias) and value.__module__.startswith("dragoman")


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
        if not _has_docstring(value):
            yield f".. py:data:: {module}.{name}\n\n   {summary(module, name)}\n\n"
        elif inspect.isclass(value):
            yield f".. autoclass:: {module}.{name}\n   :members:\n\n"
        else:
            yield f".. autofunction:: {module}.{name}\n\n"
