"""Cache marks on their way to an upstream.

Strategy: whoever prints a mark tells it here, in the order in which the upstream puts the prompt together (tools,
system, messages). At the end the rules about all of them are applied: their number, and that the ones that live
long stand first.
"""

from __future__ import annotations

from dragoman._ir.losses import Ledger
from dragoman._ir.request import CacheMark
from dragoman._wire.json import JSONObject
from dragoman.protocols.anthropic_messages.tables import CACHE_WRITE, MAX_MARKS


class Marks:
    """The marks of one request."""

    __slots__ = ("_put",)

    def __init__(self) -> None:
        self._put: list[tuple[JSONObject, CacheMark]] = []

    def put(self, block: JSONObject, mark: CacheMark) -> None:
        """Mark a block."""
        block["cache_control"] = (
            {"type": "ephemeral"} if mark.ttl is None else {"type": "ephemeral", "ttl": CACHE_WRITE[mark.ttl]}
        )
        self._put.append((block, mark))

    def settle(self, top: JSONObject | None, ledger: Ledger) -> None:
        """Take away what is too much. top: the mark at the top level, which counts, too."""
        room = MAX_MARKS if top is None else MAX_MARKS - 1
        extra = len(self._put) - room
        for block, mark in self._put[: max(extra, 0)]:
            del block["cache_control"]
            ledger.dropped(
                mark.path, f"the upstream takes up to {MAX_MARKS} cache marks: the last ones were sent"
            )
        short = False
        for block, mark in self._put[max(extra, 0) :]:
            if mark.ttl != "long":
                short = True
            elif short:
                # "a ttl='1h' cache_control block must not come after a ttl='5m' cache_control block".
                block["cache_control"]["ttl"] = CACHE_WRITE["short"]
                ledger.altered(
                    mark.path, "kept for the shorter time: a longer one may not follow a shorter one"
                )
        if short and top is not None and top.get("ttl") == CACHE_WRITE["long"]:
            top["ttl"] = CACHE_WRITE["short"]
            ledger.altered(
                "/prompt_cache_options/ttl", "kept for the shorter time, as the marks before it are"
            )
