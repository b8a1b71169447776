"""The order a Messages stream must keep.

Clients keep one current block: blocks are strictly sequential and numbered from 0, each with one start,
deltas of its own kind and one stop; one `message_delta` with the stop reason and the usage; `message_stop`,
and nothing after. An `error` event may end the stream anywhere instead.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from oracle.frames import Frame, as_object

# Which deltas a block may get; a block not listed comes whole in its start event.
DELTAS = {
    "text": {"text_delta", "citations_delta"},
    "thinking": {"thinking_delta", "signature_delta"},
    "tool_use": {"input_json_delta"},
    "server_tool_use": {"input_json_delta"},
    "mcp_tool_use": {"input_json_delta"},
    "compaction": {"compaction_delta"},
}
TOOLS = {"tool_use", "server_tool_use", "mcp_tool_use"}
# A turn that ended so may have been cut inside its last tool input.
CUT_SHORT = {"max_tokens", "model_context_window_exceeded", "refusal", "pause_turn"}


@dataclass(slots=True)
class Block:
    kind: str
    start: dict[str, Any]
    deltas: list[str] = field(default_factory=list)
    signed: bool = False
    filled: bool = False


class MessagesOrder:
    """Feed frames in order, then ask `close()` for all problems."""

    def __init__(self) -> None:
        self.problems: list[str] = []
        self.phase = "before"  # before, open, stopped, ended, failed
        self.blocks: list[Block] = []
        self.current: Block | None = None
        self.stop_reason: str | None = None
        self.cut: list[str] = []  # problems that only a cut turn excuses
        self.steps = {
            "message_start": self._message_start,
            "content_block_start": self._content_block_start,
            "content_block_delta": self._content_block_delta,
            "content_block_stop": self._content_block_stop,
            "message_delta": self._message_delta,
            "message_stop": self._message_stop,
        }

    def feed(self, number: int, frame: Frame) -> None:
        event = as_object(frame.data) or {}
        kind = event.get("type")
        where = f"frame {number} ({kind})"
        if frame.event is None:
            self._report(where, "no `event:` line; the official client skips such frames")
        elif frame.event != kind:
            self._report(where, f"`event: {frame.event}` is not the data's type")
        if self.phase in ("ended", "failed"):
            self._report(where, "something follows the end of the stream")
        elif kind == "ping":
            return
        elif kind == "error":
            self.phase = "failed"
        elif kind in self.steps:
            self.steps[kind](where, event)

    def _report(self, where: str, what: str) -> None:
        self.problems.append(f"{where}: order: {what}")

    def _message_start(self, where: str, event: dict[str, Any]) -> None:
        if self.phase != "before":
            self._report(where, "a second message_start")
        self.phase = "open"
        message = event.get("message") or {}
        if message.get("content"):
            self._report(where, "content is not empty")
        if message.get("stop_reason") is not None:
            self._report(where, "stop_reason is already set")
        if not message.get("id"):
            self._report(where, "empty id")

    def _content_block_start(self, where: str, event: dict[str, Any]) -> None:
        self._during(where)
        if self.current is not None:
            self._report(where, "the block before is still open")
        if event.get("index") != len(self.blocks):
            self._report(where, "block indexes are not contiguous from 0")
        start = event.get("content_block") or {}
        self.current = Block(start.get("type", ""), start)
        self.blocks.append(self.current)
        if start.get("text") or start.get("thinking") or start.get("signature"):
            self._report(where, f"a {self.current.kind} block does not start empty")
        caller = (start.get("caller") or {}).get("type", "direct")
        if self.current.kind in TOOLS:
            # Calls made by code come whole; clients read a direct call's input only from its deltas.
            self.current.filled = bool(start.get("input"))
            if self.current.filled and caller == "direct":
                self._report(where, "a tool block does not start with input {}")
            if not start.get("id") or not start.get("name"):
                self._report(where, "a tool block without id or name")
            ids = [block.start.get("id") for block in self.blocks if block.kind in TOOLS]
            if len(set(ids)) != len(ids):
                self._report(where, "a tool id is used twice")

    def _content_block_delta(self, where: str, event: dict[str, Any]) -> None:
        self._during(where)
        block = self.current
        if block is None or event.get("index") != len(self.blocks) - 1:
            self._report(where, "no such block is open")
            return
        delta = event.get("delta") or {}
        kind = delta.get("type")
        if kind not in DELTAS.get(block.kind, set()):
            self._report(where, f"{kind} in a {block.kind} block")
        if block.signed:
            self._report(where, "a delta after the signature")
        if kind == "signature_delta":
            block.signed = True
            if not delta.get("signature"):
                self._report(where, "an empty signature")
        fragment = delta.get("text") or delta.get("partial_json") or delta.get("thinking") or ""
        block.deltas.append(fragment if isinstance(fragment, str) else "")

    def _content_block_stop(self, where: str, event: dict[str, Any]) -> None:
        self._during(where)
        block = self.current
        if block is None or event.get("index") != len(self.blocks) - 1:
            self._report(where, "no such block is open")
            return
        self.current = None
        text = "".join(block.deltas)
        if block.kind == "text" and not text:
            self._report(where, "a text block without text")
        if block.kind == "thinking" and not block.signed:
            self._report(where, "a thinking block without a signature")
        if block.kind in TOOLS and not (block.filled and not text):
            self.problems += self.cut  # only the last block of a turn can be the cut one
            self.cut = [f"{where}: order: {problem}" for problem in input_problems(text)]

    def _message_delta(self, where: str, event: dict[str, Any]) -> None:
        self._during(where)
        delta = event.get("delta") or {}
        self.stop_reason = delta.get("stop_reason")
        self.phase = "stopped"
        if self.stop_reason is None:
            self._report(where, "no stop_reason")
        if self.current is not None and not (self.current.kind in TOOLS and self.stop_reason in CUT_SHORT):
            self._report(where, "a block is still open")
        if self.stop_reason not in CUT_SHORT:
            self.problems += self.cut
        kinds = [block.kind for block in self.blocks]
        for problem in stop_problems(self.stop_reason, delta.get("stop_sequence"), kinds):
            self._report(where, problem)

    def _message_stop(self, where: str, event: dict[str, Any]) -> None:
        del event
        if self.phase != "stopped":
            self._report(where, "no message_delta came before")
        self.phase = "ended"

    def _during(self, where: str) -> None:
        if self.phase == "before":
            self._report(where, "message_start has not come yet")
        elif self.phase == "stopped":
            self._report(where, "the message_delta has already come")

    def close(self) -> list[str]:
        if self.phase not in ("ended", "failed"):
            self.problems.append("order: the stream ends with neither message_stop nor an error")
        return self.problems


def input_problems(text: str) -> list[str]:
    """The sum of a tool's input deltas is one JSON object, `{}` at the least."""
    try:
        value = json.loads(text)
    except ValueError:
        return [f"the input deltas do not sum up to JSON: {text[:60]!r}"]
    return [] if isinstance(value, dict) else ["the input is not a JSON object"]


def stop_problems(reason: str | None, sequence: str | None, kinds: list[str]) -> list[str]:
    """Does a stop reason fit the blocks?"""
    problems = []
    if "tool_use" in kinds and reason in ("end_turn", "stop_sequence"):
        problems.append(f"stop_reason {reason} although the turn ends with tool calls")
    if reason == "tool_use" and "tool_use" not in kinds:
        problems.append("stop_reason tool_use without a tool call")
    if (reason == "stop_sequence") != (sequence is not None):
        problems.append("stop_sequence is set if and only if the stop_reason says so")
    return problems


def whole_problems(body: dict[str, Any]) -> list[str]:
    """The same rules for a response that was not streamed."""
    blocks = [block for block in body.get("content") or [] if isinstance(block, dict)]
    kinds = [block.get("type", "") for block in blocks]
    problems = stop_problems(body.get("stop_reason"), body.get("stop_sequence"), kinds)
    if body.get("stop_reason") is None:
        problems.append("no stop_reason")
    ids = [block.get("id") for block in blocks if block.get("type") in TOOLS]
    if not all(ids) or len(set(ids)) != len(ids):
        problems.append("tool ids are empty or used twice")
    for number, block in enumerate(blocks):
        if block.get("type") == "text" and not block.get("text"):
            problems.append(f"content.{number}: a text block without text")
        if block.get("type") == "thinking" and not block.get("signature"):
            problems.append(f"content.{number}: an empty signature")
    return [f"order: {problem}" for problem in problems]
