"""What a request document has of the client's objects, for comparing documents."""

from typing import Any

import msgspec

from dragoman._ir.native import Node, unknown_members
from dragoman._ir.request import Request
from dragoman._ir.tools import HostedTool
from dragoman.codec import ProtocolSpec


def with_unknown_members(spec: ProtocolSpec, value: Any) -> Any:
    """Return a request, node or tuple of nodes with only the unknown members of each object as its `native`."""
    if isinstance(value, tuple):
        return tuple([with_unknown_members(spec, each) for each in value])
    if not isinstance(value, (Request, Node, HostedTool)):
        return value
    inner = {
        "content" if name == "parts" else name: with_unknown_members(spec, getattr(value, name))
        for name in ("messages", "parts", "tools", "namespaces", "function_fallback")
        if hasattr(value, name)
    }
    if isinstance(value, Node):
        inner |= {"native": unknown_members(value), "before": None, "shape": None, "plain_text": ""}
    return msgspec.structs.replace(value, **inner)
