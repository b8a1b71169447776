"""The conversation as turns of two roles.

Strategy: messages go in one by one, blocks of the same role join one turn. Three rules of the API shape the
rest: roles alternate; "tool_use ids were found without tool_result blocks immediately after" means that all
results of a turn's calls stand at the head of the one user turn that follows it; "text content blocks must
be non-empty". A result that comes later in the conversation is moved there, a missing one is stood in for,
and one without a call is left out: all three are entered in the ledger as repairs.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from dragoman._json import JSON, JSONObject, is_object_text
from dragoman._loss import Ledger, LossCode
from dragoman._request import (
    CacheMark,
    Media,
    Message,
    OpaquePart,
    Part,
    Refusal,
    Text,
    Thought,
    ToolCall,
    ToolResult,
)

from ._media import media_block
from ._tables import CACHE_WRITE, NAME

_MISSING = "No result: the conversation went on before the tool had answered."


class Conversation:
    """Builds `messages`. Call add() for each message in order, then finish().

    own: the request came in this protocol, so extra fields are printed again and nothing is repaired.
    mid_system: the upstream takes the role system in mid-conversation.
    """

    __slots__ = ("_assistant", "_calls", "_heads", "_last", "_ledger", "_mid_system", "_own", "turns")

    def __init__(self, ledger: Ledger, own: bool, mid_system: bool) -> None:
        self.turns: list[JSONObject] = []
        self._ledger = ledger
        self._own = own
        self._mid_system = mid_system
        self._last = ""  # the role of the last turn
        self._assistant = -1  # where the last assistant turn stands
        self._calls: dict[str, str] = {}  # its calls that have no result yet: id -> path
        self._heads = 0  # how many results the user turn after it has

    def add(self, message: Message) -> None:
        """Add one message: at its place, or where the rules put its parts."""
        role = message.role
        parts = message.parts
        # The short way, for nearly every message of a long conversation: a new turn of plain text.
        if (
            len(parts) == 1
            and role != self._last
            and (role == "user" or (role == "assistant" and not self._calls))
        ):
            part = parts[0]
            if (
                type(part) is Text
                and part.cache is None
                and part.citations is None
                and part.extra is None
                and message.extra is None
                and message.name is None
                and message.phase is None
            ):
                text = part.text
                if text and not text.isspace():
                    if role == "assistant":
                        self._assistant = len(self.turns)
                        self._heads = 0
                    self.turns.append({"role": role, "content": text})
                    self._last = role
                    return
        if message.name is not None:
            self._ledger.dropped(f"{message.path}/name", "Messages has no names on messages")
        if message.phase is not None:
            self._ledger.dropped(f"{message.path}/phase", "Messages has no phases of messages")
        if role == "assistant":
            self._add_assistant(message)
        elif role == "user":
            self._add_user(message)
        else:
            self._add_system(message)

    def finish(self) -> list[JSONObject]:
        """The turns. Nothing may be added after."""
        self._close_calls()
        return self.turns

    def needs_thinking(self) -> bool:
        """Whether the conversation is in a tool loop whose last assistant turn does not begin with thinking.

        With thinking enabled that is refused: "Expected `thinking` or `redacted_thinking`, but found ...".
        """
        if self._assistant < 0 or not self._heads:
            return False
        content = self.turns[self._assistant]["content"]
        return bool(content[0]["type"] not in ("thinking", "redacted_thinking"))

    # --- roles --------------------------------------------------------------------------------------------

    def _add_system(self, message: Message) -> None:
        blocks = system_blocks(message, self._own, self._ledger)
        if not blocks:
            return
        if self._mid_system:
            turn = self._start("system", plain_or_blocks(blocks))
            if self._own:
                merge(turn, message.extra)
            return
        # Never to the top: there it would say something else and change the cached prefix.
        self._ledger.altered(message.path, "sent as marked user text: the upstream takes no system role here")
        for block in blocks:
            block["text"] = f"<system>\n{block['text']}\n</system>"
        self._append("user", blocks)

    def _add_user(self, message: Message) -> None:
        rest: list[JSONObject] = []
        for part in message.parts:
            if type(part) is ToolResult:
                self._answer(part)
            else:
                rest += self._blocks(part, assistant=False)
        if rest:
            self._append("user", rest)
        if self._own and message.extra and self.turns:
            merge(self.turns[-1], message.extra)

    def _add_assistant(self, message: Message) -> None:
        blocks: list[JSONObject] = []
        calls: list[ToolCall] = []
        for part in message.parts:
            if type(part) is ToolCall:
                calls.append(part)
                blocks.append(self._call_block(part))
            elif type(part) is Text:
                if visible(part.text):
                    blocks.append(text_block(part, self._own, self._ledger))
            else:
                blocks += self._blocks(part, assistant=True)
        if not blocks:
            return
        self._append("assistant", blocks)
        if self._own:
            merge(self.turns[-1], message.extra)
        for call in calls:
            self._calls[call.call_id] = call.path

    def _answer(self, result: ToolResult) -> None:
        """Put a result behind those at the head of the turn that follows the last assistant turn."""
        if self._calls.pop(result.call_id, None) is None and not self._own:
            self._ledger.add(
                LossCode.REPAIRED,
                result.path,
                "left out: no unanswered call of that id stands before this result",
            )
            return
        self._insert(self._result_block(result))

    def _insert(self, block: JSONObject) -> None:
        turns = self.turns
        at = self._assistant + 1
        if at == len(turns):
            self._last = "user"
            turns.append({"role": "user", "content": [block]})
        elif turns[at]["role"] != "user":
            turns.insert(at, {"role": "user", "content": [block]})
        else:
            blocks_of(turns[at]).insert(self._heads, block)
        self._heads += 1

    def _close_calls(self) -> None:
        """The assistant goes on, or nothing more comes: calls without a result get one that says so."""
        if not self._own:
            for call_id, path in self._calls.items():
                self._ledger.add(
                    LossCode.REPAIRED, path, "the call has no result: one that says so was added"
                )
                self._insert(
                    {"type": "tool_result", "tool_use_id": call_id, "content": _MISSING, "is_error": True}
                )
        self._calls.clear()

    def _start(self, role: str, content: JSON) -> JSONObject:
        if role == "assistant":
            if self._calls:
                self._close_calls()
            self._assistant = len(self.turns)
            self._heads = 0
        turn: JSONObject = {"role": role, "content": content}
        self.turns.append(turn)
        self._last = role
        return turn

    def _append(self, role: str, blocks: list[JSONObject]) -> None:
        if role == self._last:
            blocks_of(self.turns[-1]).extend(blocks)
        else:
            self._start(role, blocks if len(blocks) > 1 else plain_or_blocks(blocks))

    # --- blocks -------------------------------------------------------------------------------------------

    def _blocks(self, part: Part, *, assistant: bool) -> Iterable[JSONObject]:
        """The blocks for one part: one, or none when there is nothing to say or no way to say it."""
        if isinstance(part, Text):
            return (text_block(part, self._own, self._ledger),) if visible(part.text) else ()
        if isinstance(part, ToolCall):
            return (self._call_block(part),)
        if isinstance(part, Thought):
            return self._thought_blocks(part)
        if isinstance(part, OpaquePart):
            return opaque_blocks(part, self._ledger)
        if isinstance(part, Refusal):
            self._ledger.altered(part.path, "the refusal was sent as plain text")
            return ({"type": "text", "text": part.text},) if visible(part.text) else ()
        if isinstance(part, ToolResult):
            self._ledger.dropped(part.path, "a tool result may not stand in an assistant message")
            return ()
        if assistant and not self._own:
            # "document blocks are not allowed in assistant messages", nor are images.
            self._ledger.dropped(part.path, "an assistant message takes no images and files")
            return ()
        return (self._finished(media_block(part, self._own, self._ledger), part),)

    def _thought_blocks(self, part: Thought) -> Iterable[JSONObject]:
        seal = part.seal
        if seal is None:
            self._ledger.dropped(part.path, "unsigned reasoning: the upstream takes back only what it signed")
            return ()
        if seal.origin != NAME:
            self._ledger.add(
                LossCode.FOREIGN_SEAL,
                part.path,
                f"reasoning of {seal.origin}, which this upstream cannot read",
            )
            return ()
        if self._own and part.extra:
            self._ledger.dropped(
                f"{part.path}/cache_control", "cache_control cannot be set on thinking blocks"
            )
        return (seal.native,)

    def _call_block(self, part: ToolCall) -> JSONObject:
        return self._finished(
            {
                "type": "tool_use",
                "id": part.call_id,
                "name": part.name,
                "input": input_object(part.input, part.path, self._ledger),
            },
            part,
        )

    def _result_block(self, part: ToolResult) -> JSONObject:
        if len(part.parts) == 1 and part.is_error is None and part.cache is None and not self._own:
            only = part.parts[0]
            if type(only) is Text and is_plain(only) and visible(only.text):  # as in nearly all results
                return {"type": "tool_result", "tool_use_id": part.call_id, "content": only.text}
        block: JSONObject = {"type": "tool_result", "tool_use_id": part.call_id}
        content: list[JSONObject] = []
        for inner in part.parts:
            content += self._blocks(inner, assistant=False)
        if content:
            block["content"] = plain_or_blocks(content)
        if part.is_error is not None:
            block["is_error"] = part.is_error
        return self._finished(block, part)

    def _finished(self, block: JSONObject, part: ToolCall | ToolResult | Media) -> JSONObject:
        if part.cache is not None:
            block["cache_control"] = cache_control(part.cache)
        if self._own and part.extra:
            merge(block, part.extra)
        return block


def is_plain(part: Text) -> bool:
    """Whether a text has nothing but its characters."""
    return part.cache is None and part.citations is None and part.extra is None


def visible(text: str) -> bool:
    """Whether the API takes it: "text content blocks must contain non-whitespace text"."""
    return bool(text) and not text.isspace()


def blocks_of(turn: JSONObject) -> list[JSONObject]:
    """The content of a turn as a list of blocks, to be extended in place."""
    content = turn["content"]
    if type(content) is str:
        content = turn["content"] = [{"type": "text", "text": content}]
    return content  # type: ignore[no-any-return]


def plain_or_blocks(blocks: list[JSONObject]) -> str | list[JSONObject]:
    """One block of plain text as a string, everything else as it is."""
    if len(blocks) == 1 and len(blocks[0]) == 2 and blocks[0].get("type") == "text":
        return blocks[0]["text"]  # type: ignore[no-any-return]
    return blocks


def text_block(part: Text, own: bool, ledger: Ledger) -> JSONObject:
    """A text block with its mark, its citations and its extra fields."""
    block: JSONObject = {"type": "text", "text": part.text}
    if part.cache is None and part.citations is None and part.extra is None:
        return block
    if part.cache is not None:
        block["cache_control"] = cache_control(part.cache)
    if part.citations is not None and not own:
        ledger.altered(part.path, "sent without its citations, which are those of another protocol")
    if own:
        if part.citations is not None:
            block["citations"] = part.citations
        merge(block, part.extra)
    return block


def system_blocks(message: Message, own: bool, ledger: Ledger) -> list[JSONObject]:
    """The text blocks of a system message: it takes no others."""
    blocks: list[JSONObject] = []
    for part in message.parts:
        if isinstance(part, Text):
            if visible(part.text):
                blocks.append(text_block(part, own, ledger))
        elif isinstance(part, OpaquePart):
            blocks += opaque_blocks(part, ledger)
        else:
            ledger.dropped(part.path, "a system message takes text alone")
    return blocks


def opaque_blocks(part: OpaquePart, ledger: Ledger) -> Iterable[JSONObject]:
    """An own block as it came; one of another protocol is left out."""
    if part.origin == NAME:
        return (part.native,)
    ledger.add(LossCode.UNKNOWN_KIND, part.path, f"Messages has no counterpart of {part.kind}")
    return ()


def input_object(text: str, path: str, ledger: Ledger) -> JSON:
    """Arguments as the object that a tool_use block must have, character for character as written."""
    if is_object_text(text):
        return msgspec.Raw(text.encode("utf-8"))
    if not text or text.isspace():
        return {}
    ledger.altered(path, "the arguments are no JSON object: they were sent as text under the key _raw")
    return {"_raw": text}


def cache_control(mark: CacheMark) -> JSONObject:
    """`cache_control` for a mark."""
    if mark.ttl is None:
        return {"type": "ephemeral"}
    return {"type": "ephemeral", "ttl": CACHE_WRITE[mark.ttl]}


def merge(block: JSONObject, extra: JSONObject | None) -> None:
    """Print extra fields again; objects on both sides are joined."""
    for key, value in (extra or {}).items():
        present = block.get(key)
        block[key] = {**present, **value} if type(present) is dict and type(value) is dict else value
