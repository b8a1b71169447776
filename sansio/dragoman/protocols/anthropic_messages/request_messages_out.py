"""Write messages as turns of two roles, with their content blocks, media and cache marks.

Blocks of consecutive messages of one role join one turn. System messages in mid-conversation are written as such only
for models that accept them. An earlier pass has already paired calls and results. Media that the API would refuse raise
an error with the path in the client's body, because an image that is silently dropped is worse.
"""

from __future__ import annotations

import binascii
from base64 import b64decode
from collections.abc import Iterable, Sequence

import msgspec

from dragoman._ir.losses import Ledger
from dragoman._ir.native import overlaid
from dragoman._ir.request import (
    Media,
    Message,
    OpaquePart,
    Part,
    Reasoning,
    Refusal,
    Role,
    Text,
    ToolCall,
    ToolResult,
)
from dragoman._ir.tools import CacheMark, input_object
from dragoman._wire.exceptions import RequestRefused
from dragoman._wire.json import JSONObject
from dragoman.protocols.anthropic_messages.capabilities import MessagesCapabilities as Capabilities
from dragoman.protocols.anthropic_messages.request_thinking import UNSIGNED
from dragoman.protocols.anthropic_messages.tables import CACHE_TTL_NAMES, IMAGE_TYPES, NAME


class ConversationWriter(msgspec.Struct):
    """Builds `messages`.

    native: the request came in this protocol, so what no pass has changed is written as it came.
    """

    _capabilities: Capabilities
    _ledger: Ledger
    _native: bool = False
    _turns: list[JSONObject] = []
    _last: str = ""  # the role of the last turn, "" if it is the client's own

    def write(self, messages: Sequence[Message]) -> list[JSONObject]:
        """Return the turns for messages: each is one, or a part of the last one if the role is the same."""
        for message in messages:
            role = message.role
            is_turn = role == "user" or role == "assistant"
            if self._native:
                is_kept = is_turn or self._capabilities.mid_system
                if self._capabilities.thinking == "none":
                    is_kept = is_kept and Reasoning not in map(type, message.parts)
                if message.native is not None and is_kept:
                    self._turns.append(message.native)
                    self._last = ""
                    continue
            elif message.plain_text and is_turn and role != self._last:
                # A shortcut for nearly all messages of a long conversation: a new turn of plain text.
                text = message.plain_text
                if not text.isspace():
                    self._turns.append({"role": role, "content": text})
                    self._last = role
                    continue
            if is_turn:
                self._append(role, self._turn_blocks(message), message)
            else:
                self._add_system(message)
        if self._last == "assistant" and not self._native:
            self._strip_end(messages[-1].path)
        return self._turns

    def _strip_end(self, path: str) -> None:
        """Keep "final assistant content cannot end with trailing whitespace" (forgecode#1872, read 2026-11-30)."""
        turn = self._turns[-1]
        content = turn["content"]
        last = content if type(content) is str else content[-1].get("text")
        if type(last) is str and last[-1:].isspace():
            self._ledger.altered(
                path, "the upstream accepts no whitespace at the end of an assistant's last text"
            )
            text = last.rstrip()
            turn["content"] = text if last is content else [*content[:-1], {**content[-1], "text": text}]

    # --- roles --------------------------------------------------------------------------------------------

    def system_blocks(self, message: Message) -> list[JSONObject]:
        """Return the blocks of a system message: texts, and opaque blocks of this protocol that change the tools."""
        blocks: list[JSONObject] = []
        for part in message.parts:
            if isinstance(part, (Text, OpaquePart)):
                blocks += self._blocks(part)
            else:
                self._ledger.dropped(part.path, "a system message can contain only text")
        return blocks

    def _add_system(self, message: Message) -> None:
        if self._capabilities.mid_system:
            self._last = ""
            self._append("system", self.system_blocks(message), message)
            return
        # Not into `system`: there it would apply from the start, and change the cached prefix.
        self._ledger.altered(
            message.path, "sent as marked user text: the upstream does not accept the system role here"
        )
        blocks: list[JSONObject] = []
        for part in message.parts:
            if isinstance(part, OpaquePart) and part.text is not None:
                part = Text(part.text, path=part.path)
            if not isinstance(part, Text):
                self._ledger.dropped(part.path, "a system message can contain only text")
            for block in self._blocks(part) if isinstance(part, Text) else ():
                blocks.append({**block, "text": f"<system>\n{block['text']}\n</system>"})
        self._append("user", blocks)

    def _turn_blocks(self, message: Message) -> list[JSONObject]:
        blocks: list[JSONObject] = []
        role = message.role
        for part in message.content or message.parts:
            kind = type(part)
            if self._native:
                blocks += self._blocks(part, role)
            elif kind is ToolCall:
                blocks.append(self._call_block(part))  # type: ignore[arg-type]
            elif kind is ToolResult and role == "user":
                blocks.append(self._result_block(part))  # type: ignore[arg-type]
            elif type(part) is not Text:
                blocks += self._new_blocks(part, role)
            elif not part.text.isspace() or not self._append_blank(part, role, blocks):
                blocks += self._text_blocks(part)
        return blocks

    def _append(self, role: str, blocks: list[JSONObject], message: Message | None = None) -> None:
        """Add blocks as a turn, or to the last one if that has the role. message: that they are all of."""
        before = message.before if message is not None and self._native else None
        if not blocks and (before is None or "output_config" not in before):
            return
        if role == self._last:
            turn = self._turns[-1]
            if type(turn["content"]) is str:
                turn["content"] = [{"type": "text", "text": turn["content"]}]
            turn["content"].extend(blocks)
        else:
            self._turns.append({"role": role, "content": plain_or_blocks(blocks)})
            self._last = role
        if before is not None:
            self._turns[-1] = {**before, **self._turns[-1]}

    def _append_blank(self, part: Text, role: str, blocks: list[JSONObject]) -> bool:
        """Append a blank text to the text before it in the turn, such as a line break between two cited texts.

        A separate block would be refused. Return False if there is no such text, or the part has a mark.
        """
        if part.cache is not None:
            return False
        before = blocks or (self._turns[-1]["content"] if role == self._last else None)
        if type(before) is str:
            self._turns[-1]["content"] = before + part.text
        elif before and before[-1]["type"] == "text":
            before[-1]["text"] += part.text
        else:
            return False
        return True

    # --- blocks -------------------------------------------------------------------------------------------

    def _blocks(self, part: Part, role: Role | None = None) -> Iterable[JSONObject]:
        """Return the block of a part, or none if the part is empty or the API does not accept it here.

        role: of the turn, None in system messages and results.
        """
        if self._native:
            if type(part) is Reasoning and self._capabilities.thinking == "none":
                self._ledger.dropped(part.path, "the model does not reason")
                return ()
            if part.native is not None:
                return (part.native,)
            return [overlaid(block, part) for block in self._new_blocks(part, role)]  # type: ignore[arg-type]
        return self._new_blocks(part, role)

    def _new_blocks(self, part: Part, role: Role | None) -> Iterable[JSONObject]:
        if isinstance(part, Text):
            return self._text_blocks(part)
        if isinstance(part, ToolCall) and role is not None:
            return (self._call_block(part),)
        if isinstance(part, ToolResult) and role == "user":
            return (self._result_block(part),)
        if isinstance(part, Reasoning):
            return self._thinking_blocks(part)
        if isinstance(part, OpaquePart):
            return self._opaque_blocks(part)
        if isinstance(part, Refusal):
            self._ledger.altered(part.path, "the refusal was sent as plain text")
            return ({"type": "text", "text": part.text},) if has_visible_text(part.text) else ()
        if isinstance(part, (ToolResult, ToolCall)):
            self._ledger.dropped(part.path, "tool calls and results are not allowed here")
            return ()
        return (_marked(write_media(part, self._ledger), part.cache),)

    def _text_blocks(self, part: Text) -> Iterable[JSONObject]:
        """Return a text block with its mark, none if the API would refuse it."""
        if not has_visible_text(part.text):
            self._ledger.repaired(part.path, "a blank text was left out: it is refused")
            return ()
        if part.citations is not None and not self._native:
            self._ledger.altered(part.path, "sent without its citations: the upstream accepts only its own")
        return (_marked({"type": "text", "text": part.text}, part.cache),)

    def _thinking_blocks(self, part: Reasoning) -> Iterable[JSONObject]:
        signature = part.signature
        if signature is None:
            self._ledger.dropped(part.path, UNSIGNED)
        elif signature.origin != NAME or type(signature.native) is not dict:
            self._ledger.foreign_reasoning(part.path, signature.origin)
        else:
            return (signature.native,)
        return ()

    def _opaque_blocks(self, part: OpaquePart) -> Iterable[JSONObject]:
        """Return a block of this protocol unchanged, nothing for another protocol's block."""
        if part.origin == NAME:
            return (part.native,)
        self._ledger.unknown_kind(part.path, f"Messages has no counterpart of {part.kind}")
        return ()

    def _call_block(self, part: ToolCall) -> JSONObject:
        block: JSONObject = {
            "type": "tool_use",
            "id": part.call_id,
            "name": part.name,
            "input": input_object(part.input, part.path, self._ledger),
        }
        return block if part.cache is None else _marked(block, part.cache)

    def _result_block(self, part: ToolResult) -> JSONObject:
        block: JSONObject = {"type": "tool_result", "tool_use_id": part.call_id}
        if has_visible_text(part.plain_text):
            block["content"] = part.plain_text  # a shortcut for nearly all results
            return block
        content: list[JSONObject] = []
        for inner in part.parts:
            if type(inner) is Text and not inner.text:
                continue  # many tools return nothing
            content += self._blocks(inner)
        if content:
            block["content"] = plain_or_blocks(content)
        if part.is_error is not None:
            block["is_error"] = part.is_error
        return _marked(block, part.cache)


def _marked(block: JSONObject, mark: CacheMark | None) -> JSONObject:
    """Return a block with its cache mark."""
    if mark is not None:
        block["cache_control"] = write_cache_mark(mark)
    return block


def write_cache_mark(mark: CacheMark) -> JSONObject:
    """Return the value of `cache_control`."""
    return {"type": "ephemeral", **({} if mark.ttl is None else {"ttl": CACHE_TTL_NAMES[mark.ttl]})}


def has_visible_text(text: str) -> bool:
    """Return True if the API accepts the text.

    "text content blocks must contain non-whitespace text" (LibreChat-AI/agents#124, read 2026-11-22).
    """
    return bool(text) and not text.isspace()


def plain_or_blocks(blocks: list[JSONObject]) -> str | list[JSONObject]:
    """Return one block of plain text as a string, everything else unchanged."""
    if len(blocks) == 1 and len(blocks[0]) == 2 and blocks[0].get("type") == "text":
        return blocks[0]["text"]  # type: ignore[no-any-return]
    return blocks


# Media.

# Media types that are text although they do not begin with text/.
_TEXT_TYPES = frozenset(
    {"application/json", "application/xml", "application/x-yaml", "application/javascript"}
)


def write_media(part: Media, ledger: Ledger) -> JSONObject:
    """Return the block of an image or a file, without its mark. Raises RequestRefused (400)."""
    if part.detail not in (None, "auto"):
        ledger.altered(part.path, "sent without its detail: Messages has no such setting")
    if part.source == "file_id":
        source: JSONObject = {"type": "file", "file_id": part.data}
    elif part.source == "url" and not part.data.startswith("data:"):
        if not part.data.startswith(("https://", "http://")):
            raise _refused(part, "the URL must begin with https:// or be a data: URI")
        source = {"type": "url", "url": part.data}
    elif part.source == "text":
        source = {"type": "text", "media_type": "text/plain", "data": part.data}
    else:
        media_type, data = part.inline()
        if part.kind != "image":
            source = _document_source(part, media_type, data, ledger)
        elif media_type in IMAGE_TYPES:
            source = {"type": "base64", "media_type": media_type, "data": data}
        else:
            raise _refused(
                part, f"the image type {media_type or '(none)'} is not one of jpeg, png, gif and webp"
            )
    if part.kind == "image":
        return {"type": "image", "source": source}
    block: JSONObject = {"type": "document", "source": source}
    for key, value in (("title", part.filename), ("context", part.context), ("citations", part.citations)):
        if value is not None:
            block[key] = value
    return block


def _document_source(part: Media, media_type: str, data: str, ledger: Ledger) -> JSONObject:
    if media_type == "application/pdf":
        return {"type": "base64", "media_type": media_type, "data": data}
    if not media_type.startswith("text/") and media_type not in _TEXT_TYPES:
        raise _refused(part, f"the file type {media_type or '(none)'} is neither PDF nor text")
    try:
        text = b64decode(data, validate=True).decode("utf-8")
    except (binascii.Error, UnicodeDecodeError):
        raise _refused(part, "the file is not base64-encoded UTF-8 text, as its type requires") from None
    if media_type != "text/plain":
        ledger.altered(part.path, f"sent as text/plain: the upstream does not accept {media_type}")
    return {"type": "text", "media_type": "text/plain", "data": text}


def _refused(part: Media, message: str) -> RequestRefused:
    return RequestRefused(message, path=part.path, code="unsupported_value")
