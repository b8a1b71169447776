"""Cache marks of other protocols -> `prompt_cache_breakpoint`.

Strategy: only content parts of the client's side take one: texts, images, files and tool outputs. A mark on anything
else moves to the nearest such part before it, so that a little less is cached, and never more. A request may have
four; the last ones mark the most.
"""

from __future__ import annotations

from dragoman._ir.losses import Ledger
from dragoman._ir.request import CacheMark
from dragoman._wire.json import JSON, JSONObject
from dragoman.protocols.openai_responses import tables

# "Up to 4 explicit breakpoints a request."
MAX_MARKS = 4

_FIELD = "prompt_cache_breakpoint"
_OUTPUTS = frozenset(("function_call_output", "custom_tool_call_output"))


def as_breakpoint(mark: CacheMark) -> JSONObject:
    written: JSONObject = {"mode": "explicit"}
    if mark.ttl is not None:
        written["ttl"] = tables.CACHE_TTL_NAMES[mark.ttl]
    return written


class Marks:
    """Puts the marks of one request where they go.

    taken: whether the upstream takes any.
    """

    __slots__ = ("_ledger", "_placed", "_taken")

    def __init__(self, taken: bool, ledger: Ledger) -> None:
        self._taken = taken
        self._ledger = ledger
        self._placed: list[tuple[str, JSONObject]] = []

    def put(self, mark: CacheMark, part: JSONObject) -> None:
        """Mark a content part that takes marks. Of two on one part the longer one stays."""
        if not self._taken:
            self._ledger.dropped(mark.path, "this upstream takes no cache breakpoints")
            return
        if _FIELD not in part:
            self._placed.append((mark.path, part))
            part[_FIELD] = as_breakpoint(mark)
        elif mark.ttl == "long":
            part[_FIELD] = as_breakpoint(mark)

    def put_on_output(self, mark: CacheMark, item: JSONObject) -> None:
        """Mark the output of a tool."""
        self.put(mark, _last_of_output(item) if self._taken else {})

    def move(self, mark: CacheMark, items: list[JSON]) -> None:
        """Mark the nearest content part of the items before the place of a mark."""
        part = _last_part(items) if self._taken else None
        if part is not None:
            self._ledger.altered(mark.path, "moved to the content part before it: nothing else takes a mark")
            self.put(mark, part)
        elif self._taken:
            self._ledger.dropped(mark.path, "no content part stands before it, and nothing else takes a mark")
        else:
            self.put(mark, {})

    def finish(self) -> None:
        """Take off what is too much."""
        for path, part in self._placed[:-MAX_MARKS]:
            del part[_FIELD]
            self._ledger.dropped(path, f"a request may have {MAX_MARKS} breakpoints; the last ones are kept")


def _last_part(items: list[JSON]) -> JSONObject | None:
    for item in reversed(items):
        if item["type"] in _OUTPUTS:
            return _last_of_output(item)
        if item["type"] == "message" and item["content"][-1]["type"] in tables.MARKABLE:
            last: JSONObject = item["content"][-1]
            return last
    return None


def _last_of_output(item: JSONObject) -> JSONObject:
    """The last part of a tool's output, which becomes a list when it was a string."""
    if type(item["output"]) is str:
        item["output"] = [{"type": "input_text", "text": item["output"]}]
    last: JSONObject = item["output"][-1]
    return last
