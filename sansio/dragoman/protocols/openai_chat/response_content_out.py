"""What streamed and whole responses share: the state of a choice, tool calls, log probabilities, and the members for
reasoning of other vendors with its wrapped signature."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from dragoman._ir import events
from dragoman._ir.assembly import AssembledBlock
from dragoman._ir.events import BlockKind, Signature, ToolHead, ToolKind
from dragoman._ir.losses import Ledger
from dragoman._wire.json import JSON, JSONObject
from dragoman.codec import ResponseContext
from dragoman.protocols._openai.citations import write_url_citation
from dragoman.protocols.openai_chat.reasoning import Position, position_id
from dragoman.protocols.openai_chat.tables import (
    LOSSY_STOP_REASONS,
    NAME,
    SIGNATURE_FORMAT,
    STOP_REASON_NAMES,
)

# Between paragraphs of reasoning, which here is one string.
PARAGRAPH_BREAK = "\n\n"


class WrittenChoice(msgspec.Struct):
    """What a stream and a whole response have to count and collect of one choice.

    Call `start_block`, `cite` and `end_block` for each block, then `explanation` and `finish_reason`.

    calls: the number of tool calls so far; annotations: the citations so far.
    last_part: block and part of the last reasoning text of a stream; stopped: the end of the choice in a stream.
    """

    _index: int
    _context: ResponseContext
    _ledger: Ledger
    calls: int = 0
    annotations: list[JSON] = []
    last_part: tuple[int, int] | None = None
    stopped: events.Stopped | None = None
    _chars: int = 0  # characters of text in blocks that have ended
    _details: int = 0  # entries of reasoning_details
    _has_content: bool = False  # there is a text or refusal

    @property
    def legacy(self) -> bool:
        """True if the client sent the legacy `functions`, and therefore reads only `function_call`."""
        echo = self._context.echo
        return bool(echo.get("functions")) and not echo.get("tools")

    def start_block(self, block: events.BlockStarted | AssembledBlock) -> Position:
        """Return the position of a block. Record its losses."""
        position = self._chars, self.calls
        if block.tool is not None:
            self.calls += 1
        elif block.kind is events.TEXT and self.calls:
            self._ledger.altered(
                f"/choices/{self._index}/message/content",
                "text after a tool call: a message has all its text before its calls",
            )
        return position

    def cite(self, citations: Iterable[events.Annotation], position: Position, size: int) -> None:
        """Collect the citations of a block in the official form. One without a span cites the whole block.

        size: of the block's text in characters.
        """
        base = position[0]
        for event in citations:
            native = event.native
            if event.url is None and event.origin == NAME:
                self.annotations.append(native)
                continue
            path = event.path or f"/choices/{self._index}/message/annotations"
            url = event.url if event.origin == NAME else event.cited_url(path, self._ledger)
            if url is None:
                continue
            cited = write_url_citation(url, event.title, event.start, event.end, size)
            cited["start_index"] += base
            cited["end_index"] += base
            if event.origin == NAME:
                self.annotations.append({**native, "url_citation": {**native["url_citation"], **cited}})
            else:
                self.annotations.append({"type": "url_citation", "url_citation": cited})

    def end_block(
        self, kind: BlockKind, size: int, position: Position, signature: Signature | None
    ) -> list[JSONObject]:
        """Return the entries of `reasoning_details` with which a client sends a block's signature back.

        size: of the block's text in characters. A Chat upstream's own entries are returned unchanged.
        """
        if kind is events.TEXT:
            self._chars += size
        if kind in (events.TEXT, events.REFUSAL) and size:
            self._has_content = True
        if signature is None:
            return []
        native = signature.native if signature.origin == NAME else None
        details: list[JSONObject]
        if type(native) is dict and type(native.get("reasoning_details")) is list:
            details = native["reasoning_details"]
        else:
            data = self._context.signer.wrap(signature)
            index, entry_id = self._details, position_id(position)
            details = [
                {"type": "reasoning.encrypted", "data": data, "format": SIGNATURE_FORMAT, "index": index}
            ]
            if entry_id is not None:
                details[0]["id"] = entry_id
        self._details += len(details)
        return details

    def add_compaction(self, text: str) -> None:
        """Count a summary, which is text of the message."""
        self._chars += len(text)
        self._has_content = True

    def explanation(self, stopped: events.Stopped) -> str | None:
        """Return the upstream's explanation if it is to be sent as a refusal: there is no other text."""
        if stopped.explanation is not None and self._has_content:
            self._ledger.dropped(
                "/stop_details/explanation",
                "the response has text; Chat Completions has no field for the explanation",
            )
            return None
        return stopped.explanation

    def finish_reason(self, stopped: events.Stopped) -> str:
        reason = stopped.reason
        if reason in LOSSY_STOP_REASONS:
            why = f"the upstream stopped for {reason.value}, which is reported as stop"
            self._ledger.altered(f"/choices/{self._index}/finish_reason", why)
        if reason in (events.END, events.TOOL_USE):
            # Agents act on this value: it is tool_calls if and only if there are some.
            reason = events.TOOL_USE if self.calls else events.END
        if self.legacy and reason is events.TOOL_USE:
            return "function_call"
        return STOP_REASON_NAMES[reason]


def write_tool_call(head: ToolHead, text: str) -> JSONObject:
    """Return a tool call with `text` as its arguments or input."""
    inner: JSONObject = {"name": head.name, "input" if head.kind is ToolKind.CUSTOM else "arguments": text}
    return {"id": head.call_id, "type": head.kind.value, head.kind.value: inner}


def write_logprobs(content: list[JSON] | None, refusal: list[JSON] | None) -> JSONObject:
    """Return the `logprobs` of a choice for the tokens of its text and of its refusal."""
    return {"content": _complete_tokens(content) or None, "refusal": _complete_tokens(refusal) or None}


def _complete_tokens(tokens: JSON) -> list[JSONObject]:
    """Add `bytes`, null where unknown, because Chat requires the member and Responses may lack it."""
    if type(tokens) is not list:
        return []
    whole = ({"bytes": None, **token} for token in tokens if type(token) is dict)
    return [
        {**token, "top_logprobs": _complete_tokens(token["top_logprobs"])}
        if "top_logprobs" in token
        else token
        for token in whole
    ]
