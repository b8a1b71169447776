"""The messages and tools of a request, printed for a Chat Completions upstream.

Strategy: a writer collects the wire messages. Strings where strings will do, for many servers take nothing
else; lists of parts where a boundary, an image or a mark has to be kept. "A message with role tool must be a
response to a preceding message with tool_calls": so all results of a stretch between two assistant turns come
first, then the media that they held (a tool message is text only), then what else was said.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..._events import ToolKind
from ..._json import JSON, JSONObject
from ..._loss import Ledger, LossCode
from ..._request import (
    CacheMark,
    CustomTool,
    FunctionTool,
    Media,
    Message,
    OpaquePart,
    Part,
    Refusal,
    Request,
    Text,
    Thought,
    ToolCall,
    ToolResult,
)
from ..._spec import Target
from ._reasoning import Entries, is_wrapped_entry
from ._tables import BREAKPOINT_TTL, CACHE_CONTROL_TTL, NAME, REASONING_FIELDS


class MessageWriter:
    """Collects wire messages in `out`. Feed it assistant runs and the runs between them, in order."""

    __slots__ = ("_ledger", "_own", "_request", "_spoken", "_target", "out")

    def __init__(self, request: Request, own: bool, target: Target, ledger: Ledger) -> None:
        self._request = request
        self._own = own
        self._target = target
        self._ledger = ledger
        self._spoken = False  # something other than system text has been said
        self.out: list[JSONObject] = []

    def others(self, run: Sequence[Message]) -> None:
        """Messages between two assistant turns: results first, then their media, then the rest in order."""
        results: list[JSONObject] = []
        shown: list[JSONObject] = []
        rest: list[JSONObject] = []
        for message in run:
            parts = message.parts
            role = message.role
            if role == "user":
                self._spoken = True
                if len(parts) == 1 and type(parts[0]) is Text and not _rich(message, parts[0]):
                    rest.append({"role": "user", "content": parts[0].text})
                    continue
                found = [part for part in parts if type(part) is ToolResult]
                if found:
                    for result in found:
                        results.append(self._result(result, message, shown))
                    parts = tuple(part for part in parts if type(part) is not ToolResult)
                    if not parts:
                        continue
            else:
                role = self._system_role(message)
            body = self._plain(message, role, parts)
            if body is not None:
                rest.append(body)
        self.out += results
        if shown:
            self.out.append({"role": "user", "content": shown})
        self.out += rest

    def _system_role(self, message: Message) -> str:
        path = f"{message.path}/role"
        if self._spoken and not self._own and not self._target.mid_system:
            self._ledger.altered(path, "system text in mid-conversation is sent as user text")
            return "user"
        if message.role == "developer":
            if self._target.developer_role:
                return "developer"
            self._ledger.altered(path, "role developer is sent as system")
        return "system"

    def _plain(self, message: Message, role: str, parts: Sequence[Part]) -> JSONObject | None:
        """A message of any role but assistant and tool, None when nothing of it is left."""
        content: list[JSONObject] = []
        for part in parts:
            self._part(part, message, content)
        if not content and not self._own:
            return None
        body: JSONObject = {"role": role, "content": _plainest(content)}
        if role == "user" and message.role != "user":
            # Marked, so that the model can tell it from what the user wrote.
            for part in content:
                part["text"] = f"<system>\n{part['text']}\n</system>"
            body["content"] = _plainest(content)
        self._envelope(message, body)
        return body

    def _envelope(self, message: Message, body: JSONObject) -> None:
        """What a message has beside its content."""
        if message.name is not None:
            body["name"] = message.name
        if message.phase is not None:
            self._ledger.dropped(f"{message.path}/phase", "messages have no phase here")
        if self._own and message.extra:
            body.update(message.extra)

    def _part(self, part: Part, message: Message, content: list[JSONObject]) -> None:
        """Append one part of a message to its content, in as many wire parts as it takes."""
        start = len(content)
        if isinstance(part, Text):
            content.append({"type": "text", "text": part.text})
            if part.citations is not None:
                self._ledger.dropped(f"{part.path}/citations", "text parts have no citations here")
        elif isinstance(part, Media):
            self._media(part, content)
        elif isinstance(part, OpaquePart):
            self._opaque(part, content)
            return
        else:
            # A call, a thought or a refusal of a user: no protocol has them, a pass or an embedder might.
            self._ledger.dropped(part.path, f"a {type(part).__name__} may not stand in a {message.role} message")
            return
        if len(content) > start:
            last = content[-1]
            if self._own and part.extra:
                content[-1] = last = merge(last, part.extra)
            self._mark(part.cache, message, content, last)
        elif part.cache is not None:
            self._ledger.dropped(part.cache.path, "the part that it stood on was left out")

    def _opaque(self, part: OpaquePart, content: list[JSONObject]) -> None:
        if part.origin == NAME:
            content.append(part.native)
        else:
            self._ledger.add(LossCode.UNKNOWN_KIND, part.path, f"{part.kind} has no counterpart")

    def _mark(
        self, mark: CacheMark | None, message: Message | None, body: list[JSONObject], part: JSONObject
    ) -> None:
        """Put a cache mark on a wire part, or into the ledger."""
        if mark is None:
            return
        if self._own and mark.path.endswith("/cache_control"):
            control: JSONObject = {"type": "ephemeral"}
            if mark.ttl is not None:
                control["ttl"] = CACHE_CONTROL_TTL[mark.ttl]
            if message is None or mark.path != f"{message.path}/cache_control":
                part["cache_control"] = control
        elif self._own or self._target.cache_marks:
            point: JSONObject = {"mode": "explicit"}
            if mark.ttl is not None:
                point["ttl"] = BREAKPOINT_TTL[mark.ttl]
            part["prompt_cache_breakpoint"] = point
        else:
            self._ledger.dropped(mark.path, "the upstream takes no cache marks")
