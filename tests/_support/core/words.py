"""The words of rows: what their lines may name, and how values are shown in them."""

import pkgutil
from enum import Enum
from importlib import import_module
from typing import Any

import msgspec
from core import toy_protocol

from dragoman import _transforms, codec
from dragoman._engine import linearizer
from dragoman._ir import events, request, tools, undo
from dragoman._ir.losses import Ledger, LossPolicy
from dragoman._ir.native import Node, unknown_members
from dragoman._wire import errors
from dragoman._wire.exceptions import RemoteProtocolError, RequestRefused
from dragoman.protocols.openai_chat import capabilities

NAMED = [events, request, tools, errors, undo, codec, toy_protocol, capabilities, linearizer]
TRANSFORMS = [
    import_module(f"{_transforms.__name__}.{each.name}")
    for each in pkgutil.iter_modules(_transforms.__path__)
]
VOCABULARY: dict[str, Any] = {"LossPolicy": LossPolicy} | {
    name: value for module in (*NAMED, *TRANSFORMS) for name, value in vars(module).items() if name[0] != "_"
}

# What a document is made of, of which only the members that have no place in it are shown.
NODE = [field.name for field in msgspec.structs.fields(Node)]


def usual(field: msgspec.structs.FieldInfo) -> Any:
    return field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()


def shown(value: Any) -> str:
    """The constructor call of a value."""
    if isinstance(value, msgspec.Struct):
        parts = []
        for field in msgspec.structs.fields(value):
            inner = getattr(value, "parts" if field.name == "content" else field.name)
            if field.required:
                parts.append(shown(inner))
            elif field.name not in ("native", *NODE) and inner != usual(field):
                parts.append(f"{field.name}={shown(inner)}")
        if isinstance(value, Node) and (unknown := unknown_members(value)):
            parts.append(f"unknown={shown(unknown)}")
        return f"{type(value).__name__}({', '.join(parts)})"
    if isinstance(value, Enum):
        return str(value)
    if isinstance(value, tuple):
        return f"({''.join(f'{shown(each)}, ' for each in value).removesuffix(' ' if len(value) == 1 else ', ')})"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{name!r}: {shown(each)}' for name, each in value.items())}}}"
    return f"frozenset({sorted(value)})" if isinstance(value, frozenset) else repr(value)


def of_error(error: RemoteProtocolError | RequestRefused) -> str:
    words = (str(error.status), error.path, error.code)
    return "error " + " ".join(filter(None, words)) + f": {error.message}"


def losses(ledger: Ledger, start: int = 0) -> list[str]:
    return [f"! {loss.code.value} {loss.path}" for loss in list(ledger)[start:]]
