"""The conversation as turns of two roles.

Strategy: messages go in one by one, blocks of the same role join one turn. Two rules of the API shape the rest:
"text content blocks must contain non-whitespace text", and system messages stand in mid-conversation only where
the model takes them. That calls and results pair, and that results come first in their turn, was seen to before.
"""

from __future__ import annotations

import binascii
from base64 import b64decode
from collections.abc import Iterable

import msgspec

from dragoman._ir.losses import Ledger, LossCode
from dragoman._ir.request import (
    CacheMark,
    Media,
    Message,
    OpaquePart,
    Part,
    Reasoning,
    Refusal,
    Text,
    ToolCall,
    ToolResult,
)
from dragoman._wire.exceptions import RemoteProtocolError
from dragoman._wire.json import JSON, JSONObject, is_object_text
from dragoman.protocols.anthropic_messages.tables import (
    CACHE_TTL_NAMES,
    IMAGE_TYPES,
    MAGIC,
    MAX_CACHE_MARKS,
    NAME,
)


class ConversationWriter:
    """Builds `messages`. Call add() for each message in order.

    own: the request came in this protocol, so extra fields are printed again.
    mid_system: the upstream takes the role system in mid-conversation.
    effort: of a message in mid-conversation that asked for one, for own requests: its path, and the effort.
    unsigned: thinking blocks without a signature are printed again.
    """

    __slots__ = (
        "_effort",
        "_last",
        "_ledger",
        "_marks",
        "_mid_system",
        "_same_protocol",
        "_unsigned",
        "turns",
    )

    def __init__(
        self,
        ledger: Ledger,
        marks: CacheControlWriter,
        mid_system: bool,
        same_protocol: bool = False,
        effort: tuple[str, str] | None = None,
        unsigned: bool = False,
    ) -> None:
        self.turns: list[JSONObject] = []
        self._ledger = ledger
        self._marks = marks
        self._same_protocol = same_protocol
        self._mid_system = mid_system
        self._effort = effort
        self._unsigned = unsigned
        self._last = ""  # the role of the last turn

    def add(self, message: Message) -> None:
        """Add one message."""
        role = message.role
        parts = message.parts
        # The short way, for nearly every message of a long conversation: a new turn of plain text.
        if len(parts) == 1 and role != self._last and (role == "user" or role == "assistant"):
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
                    self.turns.append({"role": role, "content": text})
                    self._last = role
                    return
        if message.name is not None:
            self._ledger.dropped(f"{message.path}/name", "Messages has no names on messages")
        if message.phase is not None:
            self._ledger.dropped(f"{message.path}/phase", "Messages has no phases of messages")
        if role == "assistant" or role == "user":
            self._add_turn(message)
        else:
            self._add_system(message)

    def disallow_system(self) -> None:
        """From now on no message may have the role system."""
        self._mid_system = False

    def needs_thinking(self) -> bool:
        """Whether the conversation is in a tool loop whose last assistant turn does not begin with thinking.

        With thinking enabled that is refused: "Expected `thinking` or `redacted_thinking`, but found ...".
        """
        turns = self.turns
        at = len(turns) - 1
        while at >= 0 and turns[at]["role"] != "assistant":
            at -= 1
        if at < 0 or at + 1 == len(turns):
            return False
        after = turns[at + 1]["content"]
        if type(after) is str or after[0]["type"] != "tool_result":
            return False
        # A turn with results has calls, so it is a list.
        return turns[at]["content"][0]["type"] not in ("thinking", "redacted_thinking")

    # --- roles --------------------------------------------------------------------------------------------

    def system_blocks(self, message: Message) -> list[JSONObject]:
        """The blocks of a system message: texts, and those of this protocol that say which tools there are."""
        blocks: list[JSONObject] = []
        for part in message.parts:
            if isinstance(part, Text):
                blocks += self._texts(part)
            elif isinstance(part, OpaquePart):
                blocks += self._opaque_blocks(part)
            else:
                self._ledger.dropped(part.path, "a system message takes text alone")
        return blocks

    def _add_system(self, message: Message) -> None:
        if self._mid_system:
            blocks = self.system_blocks(message)
            changes = (
                self._same_protocol
                and self._effort is not None
                and self._effort[0].startswith(f"{message.path}/")
            )
            if not blocks and not changes:
                return
            turn: JSONObject = {"role": "system"}
            if blocks:
                turn["content"] = plain_or_blocks(blocks)
            self.turns.append(turn)
            self._last = "system"
            if self._same_protocol:
                merge_extra(turn, message.extra)
            if changes and self._effort is not None:
                merge_extra(turn, {"output_config": {"effort": self._effort[1]}})
            return
        # Never to the top: there it would say something else and change the cached prefix.
        self._ledger.altered(message.path, "sent as marked user text: the upstream takes no system role here")
        blocks = []
        for part in message.parts:
            if isinstance(part, OpaquePart) and part.text is not None:
                part = Text(part.text, path=part.path)
            if isinstance(part, Text):
                for block in self._texts(part):
                    block["text"] = f"<system>\n{block['text']}\n</system>"
                    blocks.append(block)
            else:
                self._ledger.dropped(part.path, "a system message takes text alone")
        if blocks:
            self._append("user", blocks)

    def _add_turn(self, message: Message) -> None:
        assistant = message.role == "assistant"
        blocks: list[JSONObject] = []
        for part in message.parts:
            if type(part) is ToolCall:
                blocks.append(self._call_block(part))
            elif type(part) is ToolResult and not assistant:
                blocks.append(self._result_block(part))
            else:
                blocks += self._blocks(part, assistant)
        if blocks:
            self._append(message.role, blocks)
            if self._same_protocol:
                merge_extra(self.turns[-1], message.extra)

    def _append(self, role: str, blocks: list[JSONObject]) -> None:
        if role == self._last:
            blocks_of(self.turns[-1]).extend(blocks)
        else:
            self.turns.append({"role": role, "content": plain_or_blocks(blocks)})
            self._last = role

    # --- blocks -------------------------------------------------------------------------------------------

    def _blocks(self, part: Part, assistant: bool = False) -> Iterable[JSONObject]:
        """The blocks for one part: one, or none when there is nothing to say or no way to say it."""
        if isinstance(part, Text):
            return self._texts(part)
        if isinstance(part, Reasoning):
            return self._thought_blocks(part)
        if isinstance(part, OpaquePart):
            return self._opaque_blocks(part)
        if isinstance(part, Refusal):
            self._ledger.altered(part.path, "the refusal was sent as plain text")
            return ({"type": "text", "text": part.text},) if has_visible_text(part.text) else ()
        if isinstance(part, (ToolResult, ToolCall)):
            self._ledger.dropped(part.path, "neither calls nor results may stand here")
            return ()
        if assistant and not self._same_protocol:
            # "document blocks are not allowed in assistant messages", nor are images.
            self._ledger.dropped(part.path, "an assistant message takes no images and files")
            return ()
        return (self._finished(write_media(part, self._same_protocol, self._ledger), part),)

    def _texts(self, part: Text) -> Iterable[JSONObject]:
        """A text block with its mark, its citations and its extra fields; none where the API would refuse it."""
        if not self._same_protocol and not has_visible_text(part.text):
            self._ledger.add(LossCode.REPAIRED, part.path, "a text of blanks was left out: it is refused")
            return ()
        block: JSONObject = {"type": "text", "text": part.text}
        if part.cache is not None:
            self._marks.put(block, part.cache)
        if self._same_protocol:
            if part.citations is not None:
                block["citations"] = part.citations
            merge_extra(block, part.extra)
        elif part.citations is not None:
            self._ledger.altered(
                part.path, "sent without its citations: the upstream takes back only its own"
            )
        return (block,)

    def _thought_blocks(self, part: Reasoning) -> Iterable[JSONObject]:
        seal = part.seal
        if seal is None and self._unsigned and part.text and not part.forged:
            return ({"type": "thinking", "thinking": part.text, "signature": "", **(part.extra or {})},)
        if seal is None:
            self._ledger.dropped(part.path, "unsigned reasoning: the upstream takes back only what it signed")
            return ()
        if seal.origin != NAME:
            self._ledger.add(
                LossCode.FOREIGN_SEAL,
                part.path,
                f"reasoning of {seal.origin or 'an answer that was cut off'}, which this upstream cannot read",
            )
            return ()
        if self._same_protocol and part.extra:
            self._ledger.dropped(
                f"{part.path}/cache_control", "cache_control cannot be set on thinking blocks"
            )
        return (seal.native,)

    def _opaque_blocks(self, part: OpaquePart) -> Iterable[JSONObject]:
        """An own block as it came; one of another protocol is left out."""
        if part.origin == NAME:
            return (part.native,)
        self._ledger.add(LossCode.UNKNOWN_KIND, part.path, f"Messages has no counterpart of {part.kind}")
        return ()

    def _call_block(self, part: ToolCall) -> JSONObject:
        block: JSONObject = {
            "type": "tool_use",
            "id": part.call_id,
            "name": part.name,
            "input": input_object(part.input, part.path, self._ledger),
        }
        return self._finished(block, part)

    def _result_block(self, part: ToolResult) -> JSONObject:
        if len(part.parts) == 1 and part.is_error is None and part.cache is None and not self._same_protocol:
            only = part.parts[0]
            if (
                type(only) is Text
                and only.cache is None
                and only.citations is None
                and has_visible_text(only.text)
            ):  # as in nearly all results
                return {"type": "tool_result", "tool_use_id": part.call_id, "content": only.text}
        block: JSONObject = {"type": "tool_result", "tool_use_id": part.call_id}
        content: list[JSONObject] = []
        for inner in part.parts:
            if type(inner) is Text and not inner.text:
                continue  # many tools give nothing back
            content += self._blocks(inner)
        if content:
            block["content"] = plain_or_blocks(content)
        if part.is_error is not None:
            block["is_error"] = part.is_error
        return self._finished(block, part)

    def _finished(self, block: JSONObject, part: ToolCall | ToolResult | Media) -> JSONObject:
        if part.cache is not None:
            self._marks.put(block, part.cache)
        if self._same_protocol and part.extra:
            merge_extra(block, part.extra)
        return block


def has_visible_text(text: str) -> bool:
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


def input_object(text: str, path: str, ledger: Ledger) -> JSON:
    """Arguments as the object that a tool_use block must have, character for character as written."""
    if is_object_text(text):
        return msgspec.Raw(text.encode("utf-8"))
    if not text or text.isspace():
        return {}
    ledger.altered(path, "the arguments are no JSON object: they were sent as text under the key _raw")
    return {"_raw": text}


def merge_extra(block: JSONObject, extra: JSONObject | None) -> None:
    """Print extra fields again; objects on both sides are joined."""
    for key, value in (extra or {}).items():
        present = block.get(key)
        block[key] = {**present, **value} if type(present) is dict and type(value) is dict else value


# Types that are text under another name: they go as plain text.
_TEXT_TYPES = frozenset(
    {"application/json", "application/xml", "application/x-yaml", "application/javascript"}
)


def write_media(part: Media, same_protocol: bool, ledger: Ledger) -> JSONObject:
    """The block for an image or a file, without mark and extra fields. Raises RemoteProtocolError (400)."""
    if part.detail not in (None, "auto"):
        ledger.altered(part.path, "sent without its detail: Messages has no such setting")
    if part.kind == "audio":
        raise _refused(part, "the upstream takes no audio; send a transcript as text")
    if part.source == "file_id":
        if not same_protocol:
            raise _refused(
                part, "a file id is known only to the vendor that gave it; send the file's data or URL"
            )
        source: JSONObject = {"type": "file", "file_id": part.data}
    elif part.source == "url" and not part.data.startswith("data:"):
        if not part.data.startswith(("https://", "http://")):
            raise _refused(part, "the URL must begin with https:// or be a data: URI")
        source = {"type": "url", "url": part.data}
    elif part.source == "text":
        source = {"type": "text", "media_type": "text/plain", "data": part.data}
    else:
        media_type, data = _typed(part)
        source = _image_source(part, media_type, data) if part.kind == "image" else {}
        source = source or _document_source(part, media_type, data, ledger)
    if part.kind == "image":
        return {"type": "image", "source": source}
    block: JSONObject = {"type": "document", "source": source}
    for key, value in (("title", part.filename), ("context", part.context), ("citations", part.citations)):
        if value is not None:
            block[key] = value
    return block


def _typed(part: Media) -> tuple[str, str]:
    """Media type and base64 text, from a data: URI, from what was said, or from the first bytes."""
    media_type = part.media_type or ""
    data = part.data
    if data.startswith("data:"):
        head, comma, data = data[5:].partition(",")
        media_type, _, coding = head.partition(";")
        if not comma or not coding.endswith("base64"):
            raise _refused(part, "a data: URI must have the form data:<type>;base64,<data>")
    if not media_type or media_type == "application/octet-stream":
        media_type = next((found for magic, found in MAGIC if data.startswith(magic)), media_type)
    return media_type.lower(), data


def _image_source(part: Media, media_type: str, data: str) -> JSONObject:
    known = IMAGE_TYPES.get(media_type)
    if known is None:
        raise _refused(part, f"the image type {media_type or '(none)'} is not one of jpeg, png, gif and webp")
    return {"type": "base64", "media_type": known, "data": data}


def _document_source(part: Media, media_type: str, data: str, ledger: Ledger) -> JSONObject:
    if media_type == "application/pdf":
        return {"type": "base64", "media_type": media_type, "data": data}
    if not media_type.startswith("text/") and media_type not in _TEXT_TYPES:
        raise _refused(part, f"the file type {media_type or '(none)'} is neither PDF nor text")
    try:
        text = b64decode(data, validate=True).decode("utf-8")
    except (binascii.Error, UnicodeDecodeError):
        raise _refused(part, "the file is not base64 of UTF-8 text, as its type says") from None
    if media_type != "text/plain":
        ledger.altered(part.path, f"sent as text/plain: the upstream has no {media_type}")
    return {"type": "text", "media_type": "text/plain", "data": text}


def _refused(part: Media, message: str) -> RemoteProtocolError:
    return RemoteProtocolError(message, status_hint=400, path=part.path, code="unsupported_value")


class CacheControlWriter:
    """The marks of one request."""

    __slots__ = ("_put",)

    def __init__(self) -> None:
        self._put: list[tuple[JSONObject, CacheMark]] = []

    def put(self, block: JSONObject, mark: CacheMark) -> None:
        """Mark a block."""
        block["cache_control"] = (
            {"type": "ephemeral"}
            if mark.ttl is None
            else {"type": "ephemeral", "ttl": CACHE_TTL_NAMES[mark.ttl]}
        )
        self._put.append((block, mark))

    def finish(self, top: JSONObject | None, ledger: Ledger) -> None:
        """Take away what is too much. top: the mark at the top level, which counts, too."""
        room = MAX_CACHE_MARKS if top is None else MAX_CACHE_MARKS - 1
        extra = len(self._put) - room
        for block, mark in self._put[: max(extra, 0)]:
            del block["cache_control"]
            ledger.dropped(
                mark.path, f"the upstream takes up to {MAX_CACHE_MARKS} cache marks: the last ones were sent"
            )
        short = False
        for block, mark in self._put[max(extra, 0) :]:
            if mark.ttl != "long":
                short = True
            elif short:
                # "a ttl='1h' cache_control block must not come after a ttl='5m' cache_control block".
                block["cache_control"]["ttl"] = CACHE_TTL_NAMES["short"]
                ledger.altered(
                    mark.path, "kept for the shorter time: a longer one may not follow a shorter one"
                )
        if short and top is not None and top.get("ttl") == CACHE_TTL_NAMES["long"]:
            top["ttl"] = CACHE_TTL_NAMES["short"]
            ledger.altered(
                "/prompt_cache_options/ttl", "kept for the shorter time, as the marks before it are"
            )
