"""Streams of a Chat upstream for the tests of its readers, and the events that are read from them."""

from __future__ import annotations

from typing import Any

from dragoman._ir.request import Request
from dragoman.codec import ResponseContext


def context(**params: Any) -> ResponseContext:
    return ResponseContext(Request("other", "asked", (), params=params), "X1", 1, "alias")


def delta(index: int = 0, /, finish: Any = None, **members: Any) -> dict[str, Any]:
    return {"index": index, "delta": members, "finish_reason": finish}


def fragment(
    index: Any = None, call_id: Any = None, name: Any = None, arguments: Any = None
) -> dict[str, Any]:
    members = {"index": index, "id": call_id, "function": {"name": name, "arguments": arguments}}
    return {key: value for key, value in members.items() if value is not None}


def calls(*fragments: Any) -> dict[str, Any]:
    return {"tool_calls": list(fragments)}
