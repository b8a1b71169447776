"""Nodes of a request document and the JSON objects that they were read from.

What no pass has changed goes to an upstream of the client's protocol as it came: a node keeps its object, passes change
nodes by `changed`, which forgets it, and the writer of the same protocol is the ordinary writer under `written`. What
else an object has is found where a request leaves its protocol, by `unknown_members`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, TypeVar

import msgspec

from dragoman._ir.shape import extra_members
from dragoman._wire.json import JSONObject


class Node(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A message, part or tool: what a protocol has as an object.

    Attributes:
        native: The object that it was read from, None for a node that a pass has made or changed.
        before: That object, without the members that were changed, if a pass or the reader has changed what it says.
        shape: The members of that object that its reader takes (see `_ir.shape`), None if it has no others.
        plain_text: The text of a message or result that is one text and nothing else, as its reader says: neither in
            the node nor in the text are a name, a mark, a failure, a citation or other members. As nearly all are,
            what has nothing to do for such a text needs to look at nothing else. "" for all others.
    """

    native: JSONObject | None = None
    before: JSONObject | None = None
    shape: Any = None
    plain_text: str = ""


AnyNode = TypeVar("AnyNode", bound=Node)


def extra_of(value: JSONObject, shape: Any) -> dict[str, Any]:
    """Return the fields of a node that keeps only those members of an object that its reader does not take.

    Most objects have none: then nothing looks for them again.
    """
    extra = extra_members(value, shape)
    return {} if extra is None else {"before": extra, "shape": {}}


def changed(node: AnyNode, without: Collection[str] = (), **fields: Any) -> AnyNode:
    """Return a node with other fields, which is no longer what it was read from.

    without: members of its object that are not for the upstream any more, although no writer writes them.
    """
    before = node.native or node.before
    if without and before is not None:
        before = {name: member for name, member in before.items() if name not in without}
    if node.plain_text:
        fields.setdefault("content", node.parts)  # type: ignore[attr-defined]  # of a message or a result
    return msgspec.structs.replace(node, **fields, native=None, before=before, plain_text="")


def written(node: AnyNode, write: Callable[[AnyNode], JSONObject]) -> JSONObject:
    """Return a node of a request that does not leave its protocol: as it came, or as `write` writes it."""
    return node.native if node.native is not None else overlaid(write(node), node)


def overlaid(out: JSONObject, node: Node) -> JSONObject:
    """Return the written members of a changed node over its own object, whose other members stay."""
    before = node.before
    if before is None:
        return out
    inner = {
        name: {**(extra_members(before[name], row) or {}), **out[name]}
        for name, row in (node.shape or {}).items()
        if type(row) is dict and type(before.get(name)) is dict and type(out.get(name)) is dict
    }
    return {**before, **out, **inner}


def unknown_members(node: Node) -> JSONObject | None:
    """Return the members of a node's object that have no place in the document, None if there are none."""
    return None if node.shape is None else extra_members(node.native or node.before or {}, node.shape)
