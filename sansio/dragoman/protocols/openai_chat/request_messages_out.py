"""Write content parts and assistant turns for a Chat Completions upstream.

Text, media and cache marks become wire parts one by one, in order. One message holds all text and all calls of a turn,
so a run of messages is collected first and written then. Earlier reasoning goes where the upstream reads it: its own
members as it sent them, other text under the name that it reads. What it signed next to its calls goes back onto those
calls.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from dragoman._ir.events import ToolKind
from dragoman._ir.losses import Ledger
from dragoman._ir.native import AnyNode, changed, overlaid
from dragoman._ir.request import (
    Media,
    Message,
    OpaquePart,
    Part,
    Reasoning,
    Refusal,
    Request,
    Text,
    ToolCall,
    ToolResult,
)
from dragoman._ir.shape import has_content
from dragoman._ir.tools import CacheMark
from dragoman._wire.json import JSON, JSONObject
from dragoman.protocols.openai_chat.capabilities import ChatCapabilities as Capabilities
from dragoman.protocols.openai_chat.checks import write_cache_mark
from dragoman.protocols.openai_chat.reasoning import (
    add_texts,
    join_native_reasoning,
    native_reasoning,
    put_signed_members,
    stands_in_fields,
)
from dragoman.protocols.openai_chat.tables import (
    AUDIO_FORMATS,
    CACHE_MARK_NAMES,
    CALL_EXTRAS,
    DUMMY_THOUGHT_SIGNATURE,
    EXTRA_CONTENT,
    NAME,
    PROVIDER_FIELDS,
    REASONING_FIELDS,
    REASONING_SIGNATURE,
    REASONING_TEXTS,
)
from dragoman.protocols.openai_chat.tools import deep_merge

_CUSTOM = ToolKind.CUSTOM  # an Enum's member is slow to look up

# Members of a signature that go back even to an upstream without a reasoning member: extras, and parts of content.
_ALWAYS_RETURNED = {CALL_EXTRAS, EXTRA_CONTENT, "content"}

# Members that do not make a message worth sending.
_SPEAKER = {"role", "name"}

TEXT_PART_KEYS = {"type", "text"}

# The members of a message that its writer writes, and members of messages and calls that are not for servers, or that
# the writer puts elsewhere.
_WRITTEN = frozenset(
    (
        *("role", "content", "name", "tool_call_id", "tool_calls", "function_call", "refusal", "audio"),
        *REASONING_FIELDS,
    )
)
_SDK_MEMBERS = ("index", "parsed", "cache_control", "prompt_cache_breakpoint", PROVIDER_FIELDS)


class PartWriter:
    """Writes the parts of one request.

    native: the request came as Chat Completions, so what no pass has changed is sent as it came.
    joins_texts: several texts of a message are sent as one string. Not where one of them can have a cache mark: marks
        move, and the others have to stay as the upstream has cached them.
    """

    __slots__ = ("capabilities", "joins_texts", "ledger", "native")

    def __init__(self, request: Request, capabilities: Capabilities, ledger: Ledger) -> None:
        self.native = bool(request.native)
        self.capabilities = capabilities
        self.joins_texts = capabilities.text_content == "string" and capabilities.cache_marks == "none"
        self.ledger = ledger

    def write_part(self, part: Part, role: str, content: list[JSONObject]) -> None:
        """Append a part to the content of a message, as any number of wire parts. role: the one that is sent."""
        if self.native and part.native is not None:
            content.append(part.native)
            return
        if isinstance(part, Text):
            content.append({"type": "text", "text": part.text})
            if part.citations is not None and not self.native:
                self.ledger.altered(
                    part.path, "sent without its citations: Chat Completions has none in text parts"
                )
        elif isinstance(part, Media):
            self._media(part, content)
        elif isinstance(part, OpaquePart):
            self.ledger.unknown_kind(part.path, f"Chat Completions has no counterpart of {part.kind}")
            return
        else:
            # A user's call, reasoning or refusal. No protocol has them, but an embedder's request may.
            self.ledger.dropped(part.path, f"a {role} message cannot contain a {type(part).__name__}")
            return
        self.write_mark(part.cache, content[-1])
        if self.native:
            content[-1] = overlaid(content[-1], part)

    def write_mark(self, mark: CacheMark | None, part: JSONObject) -> None:
        """Put a cache mark on a wire part, or record its loss."""
        if mark is None:
            return
        name = CACHE_MARK_NAMES[self.capabilities.cache_marks]
        if name in part:
            self.ledger.altered(mark.path, "merged with the mark before it: both are at the same place")
        else:
            part[name] = write_cache_mark(mark, name)

    def write_message_fields(self, message: Message, body: JSONObject) -> None:
        """Put the members of a message besides its content into `body`."""
        if self.native:
            for key, value in (self.without_sdk_members(message).before or {}).items():
                if key not in _WRITTEN and value is not None:
                    self.put_member(key, value, f"{message.path}/{key}", body)
        if message.name is not None:
            body["name"] = message.name

    def put_member(self, name: str, value: JSON, path: str, body: JSONObject) -> None:
        """Put a member of a message into `body`, which may have that of a message before that was merged with it.

        An empty one gives way: SDKs send `prefix: false` with each message but the last.
        """
        if not has_content(body.get(name)):
            body[name] = value
        elif has_content(value) and body[name] != value:
            self.ledger.dropped(path, "merged with the message before it, which has another one")

    def without_sdk_members(self, node: AnyNode) -> AnyNode:
        """Return a message or call, as a changed one, without what servers refuse and only an SDK reads."""
        if (node.native or node.before or {}).get(PROVIDER_FIELDS) is not None:
            self.ledger.dropped(
                f"{node.path}/{PROVIDER_FIELDS}",  # type: ignore[attr-defined]
                "what LiteLLM adds to a response, for its callers",
            )
        return changed(node, _SDK_MEMBERS)

    def keeps(self, message: Message) -> bool:
        """True if the upstream accepts a message of this protocol as it came."""
        raw = message.native
        if raw is None or not self.native or PROVIDER_FIELDS in raw or not message.parts:
            return False
        content = raw.get("content")
        if type(content) is list and self.joins_texts and all(type(part) is Text for part in message.parts):
            return False
        for part in message.parts:
            kind = type(part)
            if kind is Reasoning or kind is OpaquePart or (kind is ToolResult and type(content) is not str):
                return False
            if kind is ToolCall and (not part.input.strip() or PROVIDER_FIELDS in (part.native or {})):  # type: ignore[union-attr]
                return False
        return True

    def write_content(self, parts: list[JSONObject]) -> JSON:
        """Return the parts, plain texts as one string with blank lines between them if that is enough."""
        if len(parts) > 1 and not self.joins_texts:
            return parts
        texts = [
            part["text"] for part in parts if len(part) == 2 and "text" in part and part.get("type") == "text"
        ]
        return "\n\n".join(texts) if len(texts) == len(parts) else parts

    def _media(self, part: Media, content: list[JSONObject]) -> None:
        if part.context is not None:
            content.append({"type": "text", "text": part.context})
            self.ledger.altered(f"{part.path}/context", "sent as a text part before the document")
        if part.citations is not None:
            self.ledger.dropped(f"{part.path}/citations", "Chat Completions has no citations of documents")
        if part.kind == "image":
            self._image(part, content)
        elif part.kind == "file":
            self._file(part, content)
        elif part.kind == "video":
            url = part.data if part.source == "url" else _data_uri(part)
            content.append({"type": "video_url", "video_url": {"url": url}})
        else:
            kind = (part.media_type or "").rpartition("/")[2]
            sound = {"data": part.data, "format": AUDIO_FORMATS.get(kind, kind)}
            content.append({"type": "input_audio", "input_audio": sound})

    def _image(self, part: Media, content: list[JSONObject]) -> None:
        image: JSONObject = {"url": part.data if part.source == "url" else _data_uri(part)}
        if part.detail is not None:
            image["detail"] = part.detail
        content.append({"type": "image_url", "image_url": image})

    def _file(self, part: Media, content: list[JSONObject]) -> None:
        if part.before is not None and self.native:
            content.append({"type": part.before["type"]})  # write_part() adds what the client sent
            return
        file: JSONObject = {}
        if part.detail is not None:
            self.ledger.dropped(f"{part.path}/detail", "Chat Completions has no detail setting for files")
        if part.filename is not None:
            file["filename"] = part.filename
        if part.source == "base64":
            if part.filename is None:
                # "The name of the file, used when passing the file to the model as a string." (openai-python 3.54.0)
                file["filename"] = "document.pdf" if part.media_type == "application/pdf" else "document"
            file["file_data"] = part.data if part.media_type is None else _data_uri(part)
        elif part.source == "file_id":
            file["file_id"] = part.data
        else:
            content.append({"type": "text", "text": self._file_as_text(part)})
            return
        content.append({"type": "file", "file": file})

    def _file_as_text(self, part: Media) -> str:
        """Return a document as text: its content, or its URL."""
        if part.source == "url":
            self.ledger.altered(
                part.path, "Chat Completions does not accept files by URL: the URL is sent as text"
            )
            return f"[document: {part.filename + ', ' if part.filename else ''}{part.data}]"
        if part.filename is None:
            return part.data
        self.ledger.altered(f"{part.path}/title", "sent as the first line of the document's text")
        return f"{part.filename}\n\n{part.data}"


def is_document_url(part: Media) -> bool:
    """True for a file as Mistral's clients send it, which a relay keeps where and as it is."""
    return (part.native or part.before or {}).get("type") == "document_url"


def _data_uri(part: Media) -> str:
    return f"data:{part.media_type or ''};base64,{part.data}"


def write_simple_turn(run: Sequence[Message], writer: PartWriter) -> JSONObject | None:
    """Return the wire message for a turn of plain texts followed by calls, None for any other turn."""
    texts: list[str] = []
    calls: list[JSONObject] = []
    for message in run:
        if message.name is not None:
            return None
        for part in message.content or message.parts:
            if type(part) is Text and not calls and part.cache is None and part.citations is None:
                texts.append(part.text)
            elif type(part) is ToolCall and part.cache is None:
                calls.append(_tool_call(part))
            else:
                return None
    if len(texts) > 1 and not writer.joins_texts:
        return None
    content = "\n\n".join(texts)
    if calls:
        return {"role": "assistant", "content": content or None, "tool_calls": calls}
    return {"role": "assistant", "content": content} if content else None


def write_turn(run: Sequence[Message], writer: PartWriter) -> JSONObject | None:
    """Return the wire message of a turn, None if nothing is left of it."""
    turn = _TurnWriter(writer, {"role": "assistant"})
    for message in run:
        before: Text | None = None
        for part in message.parts:
            turn.add(part, message)
            text = part if type(part) is Text else None
            if before is not None and text is not None and not writer.native and _is_split(before, text):
                first = turn.content.pop(-2)
                turn.content[-1]["text"] = first["text"] + turn.content[-1]["text"]
            before = text
        writer.write_message_fields(message, turn.body)
    return turn.finish(run[0])


class _TurnWriter(msgspec.Struct):
    """Collects one turn.

    reasoning: each block with the number of calls before it, and its message.
    """

    _writer: PartWriter
    body: JSONObject
    content: list[JSONObject] = []
    refusals: list[str] = []
    calls: list[JSONObject] = []
    reasoning: list[tuple[Reasoning, int, Message]] = []

    def add(self, part: Part, message: Message) -> None:
        native = self._writer.native
        if type(part) is ToolCall:
            self._add_call(part)
        elif type(part) is Reasoning:
            self.reasoning.append((part, len(self.calls), message))
        elif type(part) is Refusal and not (native and part.native is not None):
            self.refusals.append(part.text)
        elif type(part) is OpaquePart and part.kind == "audio" and part.origin == NAME:
            self._writer.put_member("audio", part.native, part.path, self.body)
        else:
            if self.calls and not native and type(part) is Text:
                self._writer.ledger.altered(part.path, "text after a tool call is sent before it")
            self._writer.write_part(part, "assistant", self.content)

    def _add_call(self, call: ToolCall) -> None:
        writer = self._writer
        body = _tool_call(call)
        mark = call.cache
        if mark is not None:
            if self.content and self.content[-1].keys() >= TEXT_PART_KEYS:
                writer.ledger.altered(
                    mark.path,
                    "tool calls cannot have cache marks in Chat Completions: moved to the text before",
                )
                writer.write_mark(mark, self.content[-1])
            else:
                writer.ledger.dropped(mark.path, "there is no text before the tool call to put the mark on")
        self.calls.append(overlaid(body, writer.without_sdk_members(call)) if writer.native else body)

    def finish(self, message: Message) -> JSONObject | None:
        """Return the wire message, None if nothing is left of it. message: the first one of the turn."""
        fields, leading = self._reasoning_fields()
        content = leading + self.content
        calls, body = self.calls, self.body
        for reasoning, position, _ in self.reasoning:
            native = native_reasoning(reasoning)
            put_signed_members(native, body, calls, position, reasoning.path, self._writer.ledger)
        if self._writer.capabilities.thought_signatures and calls:
            # Google: "Function call is missing a thought_signature in functionCall parts." (openclaude#67, read
            # 2026-11-22)
            calls[0] = deep_merge(DUMMY_THOUGHT_SIGNATURE, calls[0])
        if not (content or self.refusals or calls or fields or body.keys() - _SPEAKER):
            return None
        optional = bool(self.refusals or calls or body.get("audio"))
        # "Required unless `tool_calls` or `function_call` is specified." (openai-python 3.54.0)
        body["content"] = self._writer.write_content(content) if content else None if optional else ""
        if self.refusals:
            body["refusal"] = "".join(self.refusals)
        if calls:
            body["tool_calls"] = calls
        if not (fields or leading):
            self._add_placeholder(fields, message)
        return {**body, **fields}

    def _add_placeholder(self, fields: JSONObject, message: Message) -> None:
        """Put a blank where the upstream requires reasoning that is lost."""
        # DeepSeek: "The `reasoning_content` in the thinking mode must be passed back to the API." (pi#3636, read
        # 2026-11-22)
        capabilities = self._writer.capabilities
        # In a loop of tool calls it is only required since the last user text. But a blank that went away with the
        # next user text would change what the upstream has cached.
        required = capabilities.reasoning_back == "always" or (
            capabilities.reasoning_back == "tool_loop" and bool(self.calls)
        )
        if required and capabilities.reasoning_field is not None:
            fields[capabilities.reasoning_field] = " "
            self._writer.ledger.repaired(
                message.path,
                "the upstream requires the reasoning of this turn: a blank was sent in its place",
            )

    def _reasoning_fields(self) -> tuple[JSONObject, list[JSONObject]]:
        """Return the earlier reasoning of the turn: members of the message, and parts at the start of its content."""
        ledger = self._writer.ledger
        field = self._writer.capabilities.reasoning_field
        # Whether the client's own members are sent on.
        returns_fields = self._writer.native and field is not None
        own: dict[str, JSONObject] = {}  # those members, by the path of the message
        natives: list[JSONObject] = []
        texts: list[str] = []
        for reasoning, _, message in self.reasoning:
            if returns_fields and stands_in_fields(reasoning):
                raw: JSONObject = message.native or message.before or {}
                own[message.path] = {key: raw[key] for key in REASONING_FIELDS if raw.get(key)}
                continue
            native = native_reasoning(reasoning)
            if native:
                if returns_fields or field is not None or native.keys() <= _ALWAYS_RETURNED:
                    natives.append(native)
                else:
                    ledger.dropped(reasoning.path, "the upstream does not accept earlier reasoning")
                continue
            if reasoning.signature is not None:
                ledger.foreign_signature(reasoning.path, "only its vendor can read this reasoning")
            if reasoning.text:
                if field is None or field == "thinking_blocks":
                    # Such blocks need a signature, and we forge none.
                    ledger.dropped(
                        reasoning.path, "the upstream does not accept earlier reasoning that is not its own"
                    )
                else:
                    texts.append(reasoning.text)
        fields, leading = join_native_reasoning([*own.values(), *natives])
        if texts and field is not None:
            add_texts(fields, field, texts)
        # A text that is signed keeps the name that its server gave it.
        if returns_fields and field in REASONING_TEXTS and REASONING_SIGNATURE not in fields:
            for other in REASONING_TEXTS:
                if (
                    other != field
                    and other in fields
                    and fields.setdefault(field, fields[other]) == fields[other]
                ):
                    del fields[other]  # the same text under the upstream's name for it
        return fields, leading


def _is_split(before: Text, part: Text) -> bool:
    """True if two texts are pieces of one that a citation has split."""
    cited = before.citations is not None or part.citations is not None
    return cited and before.cache is None and not (before.rendered or part.rendered)


def _tool_call(call: ToolCall) -> JSONObject:
    if call.kind is _CUSTOM:
        custom = {"name": call.name, "input": call.input}
        return {"id": call.call_id, "type": "custom", "custom": custom}
    # MiniMax refuses other texts: "invalid function arguments json string" (pi#5468, read 2026-11-22).
    arguments = "{}" if not call.input or call.input.isspace() else call.input
    function = {"name": call.name, "arguments": arguments}
    return {"id": call.call_id, "type": "function", "function": function}
