"""Write messages as turns of two roles, with their content blocks, media and cache marks.

Blocks of consecutive messages of one role join one turn. System messages in mid-conversation are written as such only
for models that accept them. An earlier pass has already paired calls and results. Media that the API would refuse raise
an error with the path in the client's body, because an image that is silently dropped is worse.
"""

from __future__ import annotations

import binascii
from base64 import b64decode
from collections.abc import Iterable

import msgspec

from dragoman._ir.losses import Ledger, LossCode
from dragoman._ir.request import (
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
from dragoman._ir.tools import CacheMark
from dragoman._wire.exceptions import RequestRefused
from dragoman._wire.json import JSON, JSONObject, is_object_text
from dragoman.protocols.anthropic_messages.capabilities import MessagesCapabilities as Capabilities
from dragoman.protocols.anthropic_messages.request_thinking import MARKED, UNSIGNED
from dragoman.protocols.anthropic_messages.tables import (
    CACHE_TTL_NAMES,
    IMAGE_TYPES,
    MAGIC,
    MAX_CACHE_MARKS,
    NAME,
)


class ConversationWriter:
    """Builds `messages`: call add() for each message in order, then read `turns`.

    same_protocol: the request came in this protocol, so extra fields are written again.
    """

    __slots__ = ("_capabilities", "_last", "_ledger", "_marks", "_same_protocol", "turns")

    def __init__(
        self,
        capabilities: Capabilities,
        marks: CacheControlWriter,
        ledger: Ledger,
        same_protocol: bool = False,
    ) -> None:
        self.turns: list[JSONObject] = []
        self._ledger = ledger
        self._marks = marks
        self._same_protocol = same_protocol
        self._capabilities = capabilities
        self._last = ""  # the role of the last turn

    def add(self, message: Message) -> None:
        """Write a message as a turn, or into the last turn if the role is the same."""
        role = message.role
        parts = message.parts
        # A shortcut for nearly all messages of a long conversation: a new turn of plain text.
        if len(parts) == 1 and role != self._last and (role == "user" or role == "assistant"):
            part = parts[0]
            if (
                type(part) is Text
                and part.cache is None
                and part.citations is None
                and part.extra is None
                and message.extra is None
            ):
                text = part.text
                if text and not text.isspace():
                    self.turns.append({"role": role, "content": text})
                    self._last = role
                    return
        if role == "assistant" or role == "user":
            self._add_turn(message)
        else:
            self._add_system(message)

    # --- roles --------------------------------------------------------------------------------------------

    def system_blocks(self, message: Message) -> list[JSONObject]:
        """Return the blocks of a system message: texts, and opaque blocks of this protocol that change the tools."""
        blocks: list[JSONObject] = []
        for part in message.parts:
            if isinstance(part, Text):
                blocks += self._text_blocks(part)
            elif isinstance(part, OpaquePart):
                blocks += self._opaque_blocks(part)
            else:
                self._ledger.dropped(part.path, "a system message can contain only text")
        return blocks

    def _add_system(self, message: Message) -> None:
        if self._capabilities.mid_system:
            turn: JSONObject = {"role": "system"}
            blocks = self.system_blocks(message)
            if blocks:
                turn["content"] = plain_or_blocks(blocks)
            if self._same_protocol:
                merge_extra(turn, message.extra)
            if len(turn) > 1:
                self.turns.append(turn)
                self._last = "system"
            return
        # Not into `system`: there it would apply from the start, and change the cached prefix.
        self._ledger.altered(
            message.path, "sent as marked user text: the upstream does not accept the system role here"
        )
        blocks = []
        for part in message.parts:
            if isinstance(part, OpaquePart) and part.text is not None:
                part = Text(part.text, path=part.path)
            if isinstance(part, Text):
                for block in self._text_blocks(part):
                    block["text"] = f"<system>\n{block['text']}\n</system>"
                    blocks.append(block)
            else:
                self._ledger.dropped(part.path, "a system message can contain only text")
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
            elif (
                type(part) is Text and part.text.isspace() and self._append_blank(part, message.role, blocks)
            ):
                continue
            else:
                blocks += self._blocks(part, assistant)
        if blocks:
            self._append(message.role, blocks)
            if self._same_protocol:
                merge_extra(self.turns[-1], message.extra)

    def _append(self, role: str, blocks: list[JSONObject]) -> None:
        if role == self._last:
            turn = self.turns[-1]
            if type(turn["content"]) is str:
                turn["content"] = [{"type": "text", "text": turn["content"]}]
            turn["content"].extend(blocks)
        else:
            self.turns.append({"role": role, "content": plain_or_blocks(blocks)})
            self._last = role

    def _append_blank(self, part: Text, role: str, blocks: list[JSONObject]) -> bool:
        """Append a blank text to the text before it in the turn, such as a line break between two cited texts.

        A block of its own would be refused. Return False if there is no such text, or the part has a mark.
        """
        if self._same_protocol or part.cache is not None:
            return False
        before = blocks or (self.turns[-1]["content"] if role == self._last else None)
        if type(before) is str:
            self.turns[-1]["content"] = before + part.text
        elif before and before[-1]["type"] == "text":
            before[-1]["text"] += part.text
        else:
            return False
        return True

    # --- blocks -------------------------------------------------------------------------------------------

    def _blocks(self, part: Part, assistant: bool = False) -> Iterable[JSONObject]:
        """Return the block of a part, or none if the part is empty or the API does not accept it here."""
        if isinstance(part, Text):
            return self._text_blocks(part)
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
        if assistant and not self._same_protocol:
            # The API refuses documents in assistant messages (its documentation of version 2026-10-21, read in November
            # 2026), and images.
            self._ledger.dropped(part.path, "an assistant message cannot contain images or files")
            return ()
        return (self._with_extras(write_media(part, self._same_protocol, self._ledger), part),)

    def _text_blocks(self, part: Text) -> Iterable[JSONObject]:
        """Return a text block with its mark, its citations and its extra fields, none if the API would refuse it."""
        if not self._same_protocol and not has_visible_text(part.text):
            self._ledger.add(LossCode.REPAIRED, part.path, "a blank text was left out: it is refused")
            return ()
        block: JSONObject = {"type": "text", "text": part.text}
        if self._same_protocol and part.citations is not None:
            block["citations"] = part.citations
        elif part.citations is not None:
            self._ledger.altered(part.path, "sent without its citations: the upstream accepts only its own")
        return (self._with_extras(block, part),)

    def _thinking_blocks(self, part: Reasoning) -> Iterable[JSONObject]:
        if self._same_protocol and self._capabilities.thinking == "none":
            self._ledger.dropped(part.path, "the model does not reason")
            return ()
        signature = part.signature
        if signature is None and self._same_protocol and part.text and not part.forged:
            # A server that signs nothing takes back its own reasoning.
            return ({"type": "thinking", "thinking": part.text, "signature": "", **(part.extra or {})},)
        if signature is None:
            self._ledger.dropped(part.path, UNSIGNED)
            return ()
        if signature.origin != NAME:
            self._ledger.add(
                LossCode.FOREIGN_SIGNATURE,
                part.path,
                f"reasoning of {signature.origin or 'a response that was cut off'}, which this upstream cannot read",
            )
            return ()
        if self._same_protocol and part.extra:
            self._ledger.dropped(f"{part.path}/cache_control", MARKED)
        return (signature.native,)

    def _opaque_blocks(self, part: OpaquePart) -> Iterable[JSONObject]:
        """Return a block of this protocol unchanged, none for one of another protocol."""
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
        return self._with_extras(block, part)

    def _result_block(self, part: ToolResult) -> JSONObject:
        if len(part.parts) == 1 and part.is_error is None and part.cache is None and not self._same_protocol:
            only = part.parts[0]
            if (
                type(only) is Text
                and only.cache is None
                and only.citations is None
                and has_visible_text(only.text)
            ):
                # A shortcut for nearly all results.
                return {"type": "tool_result", "tool_use_id": part.call_id, "content": only.text}
        block: JSONObject = {"type": "tool_result", "tool_use_id": part.call_id}
        content: list[JSONObject] = []
        for inner in part.parts:
            if type(inner) is Text and not inner.text:
                continue  # many tools return nothing
            content += self._blocks(inner)
        if content:
            block["content"] = plain_or_blocks(content)
        if part.is_error is not None:
            block["is_error"] = part.is_error
        return self._with_extras(block, part)

    def _with_extras(self, block: JSONObject, part: Text | ToolCall | ToolResult | Media) -> JSONObject:
        if part.cache is not None:
            self._marks.put(block, part.cache)
        if self._same_protocol and part.extra:
            merge_extra(block, part.extra)
        return block


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


def input_object(text: str, path: str, ledger: Ledger) -> JSON:
    """Return arguments as the object that a tool_use block needs, with the model's own characters."""
    if is_object_text(text):
        return msgspec.Raw(text.encode("utf-8"))
    if not text or text.isspace():
        return {}
    ledger.altered(path, "the arguments are not a JSON object: they were sent as text under the key _raw")
    return {"_raw": text}


def merge_extra(block: JSONObject, extra: JSONObject | None) -> None:
    """Write extra fields into a block. Objects on both sides are merged."""
    for key, value in (extra or {}).items():
        written = block.get(key)
        block[key] = {**written, **value} if type(written) is dict and type(value) is dict else value


# Media.

# Media types that are text although they do not begin with text/.
_TEXT_TYPES = frozenset(
    {"application/json", "application/xml", "application/x-yaml", "application/javascript"}
)


def write_media(part: Media, same_protocol: bool, ledger: Ledger) -> JSONObject:
    """Return the block of an image or a file, without mark and extra fields. Raises RequestRefused (400)."""
    if part.detail not in (None, "auto"):
        ledger.altered(part.path, "sent without its detail: Messages has no such setting")
    if part.kind == "audio":
        raise _refused(part, "the upstream does not accept audio; send a transcript as text")
    if part.source == "file_id":
        if not same_protocol:
            raise _refused(
                part, "a file id is valid only at the vendor that issued it; send the file's data or URL"
            )
        source: JSONObject = {"type": "file", "file_id": part.data}
    elif part.source == "url" and not part.data.startswith("data:"):
        if not part.data.startswith(("https://", "http://")):
            raise _refused(part, "the URL must begin with https:// or be a data: URI")
        source = {"type": "url", "url": part.data}
    elif part.source == "text":
        source = {"type": "text", "media_type": "text/plain", "data": part.data}
    else:
        media_type, data = _media_type_and_data(part)
        if part.kind != "image":
            source = _document_source(part, media_type, data, ledger)
        elif media_type in IMAGE_TYPES:
            source = {"type": "base64", "media_type": IMAGE_TYPES[media_type], "data": data}
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


def _media_type_and_data(part: Media) -> tuple[str, str]:
    """Return media type and base64 text. Without a type the first bytes give it."""
    media_type = part.media_type or ""
    data = part.data
    if data.startswith("data:"):
        head, comma, data = data[5:].partition(",")
        media_type, _, coding = head.partition(";")
        if not comma or not coding.endswith("base64"):
            raise _refused(part, "a data: URI must have the form data:<type>;base64,<data>")
    if not media_type or media_type == "application/octet-stream":
        media_type = next((name for magic, name in MAGIC if data.startswith(magic)), media_type)
    return media_type.lower(), data


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
    return RequestRefused(message, status=400, path=part.path, code="unsupported_value")


# Cache marks.


class CacheControlWriter:
    """The cache marks of one request.

    Blocks are marked in the order in which the upstream builds the prompt (tools, system, messages). finish() applies
    the rules about all marks: their number, and that longer ones come first.
    """

    __slots__ = ("_written",)

    def __init__(self) -> None:
        self._written: list[tuple[JSONObject, CacheMark]] = []

    def put(self, block: JSONObject, mark: CacheMark) -> None:
        """Mark a block."""
        block["cache_control"] = (
            {"type": "ephemeral"}
            if mark.ttl is None
            else {"type": "ephemeral", "ttl": CACHE_TTL_NAMES[mark.ttl]}
        )
        self._written.append((block, mark))

    def finish(self, top: JSONObject | None, ledger: Ledger) -> None:
        """Drop and shorten marks that the API would refuse. top: the mark at the top level, which counts as well."""
        limit = MAX_CACHE_MARKS if top is None else MAX_CACHE_MARKS - 1
        excess = max(len(self._written) - limit, 0)
        for block, mark in self._written[:excess]:
            del block["cache_control"]
            ledger.dropped(
                mark.path, f"at most {MAX_CACHE_MARKS} cache marks are allowed: the last ones are kept"
            )
        after_short = False
        for block, mark in self._written[excess:]:
            if mark.ttl != "long":
                after_short = True
            elif after_short:
                # "a ttl='1h' cache_control block must not come after a ttl='5m' cache_control block"
                # (claude-code-cache-fix#44, read 2026-11-22)
                block["cache_control"]["ttl"] = CACHE_TTL_NAMES["short"]
                ledger.altered(
                    mark.path, "kept for the shorter time: a longer time must not follow a shorter one"
                )
        if after_short and top is not None and top.get("ttl") == CACHE_TTL_NAMES["long"]:
            top["ttl"] = CACHE_TTL_NAMES["short"]
            ledger.altered(
                "/prompt_cache_options/ttl", "kept for the shorter time, as the marks before it are"
            )
