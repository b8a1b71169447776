"""Write content parts and assistant turns for a Chat Completions upstream.

Text, media and cache marks become wire parts one by one, in order. One message holds all text and all calls of a turn,
so a run of messages is collected first and written then. Earlier reasoning goes where the upstream reads it: its own
members as it sent them, other text under the name that it reads. What it signed beside its calls goes back onto those
calls.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from dragoman._ir.events import ToolKind
from dragoman._ir.losses import Ledger, LossCode
from dragoman._ir.request import (
    CacheMark,
    Media,
    Message,
    OpaquePart,
    Part,
    Reasoning,
    Refusal,
    Request,
    Text,
    ToolCall,
)
from dragoman._wire.json import JSON, JSONObject
from dragoman.codec import Capabilities
from dragoman.protocols.openai_chat.reasoning import (
    add_texts,
    join_native_reasoning,
    native_reasoning,
    stands_in_fields,
    unwrapped_fields,
)
from dragoman.protocols.openai_chat.tables import (
    BREAKPOINT_TTL_NAMES,
    CALL_EXTRAS,
    DUMMY_THOUGHT_SIGNATURE,
    EXTRA_CONTENT,
    MAX_CACHE_MARKS,
    NAME,
)
from dragoman.protocols.openai_chat.tools import deep_merge, write_cache_control

_CUSTOM = ToolKind.CUSTOM  # an Enum's member is slow to look up

# Members of a seal that go back all the same where no member takes reasoning: what is none, and parts of the content.
_ALWAYS_RETURNED = {CALL_EXTRAS, EXTRA_CONTENT, "content"}

# What says of a message only whose it is.
_SPEAKER = {"role", "name"}

# Two names for the same: reasoning as one text.
_PLAIN_FIELDS = {"reasoning_content", "reasoning"}


def write_simple_turn(run: Sequence[Message]) -> JSONObject | None:
    """The wire message of a foreign assistant's turn of plain texts and then calls, None for any other."""
    texts: list[str] = []
    calls: list[JSONObject] = []
    for message in run:
        if message.name is not None or message.phase is not None:
            return None
        for part in message.parts:
            if type(part) is Text and not calls and part.cache is None and part.citations is None:
                texts.append(part.text)
            elif type(part) is ToolCall and part.cache is None:
                calls.append(_tool_call(part))
            else:
                return None
    content = "\n\n".join(texts)
    if calls:
        return {"role": "assistant", "content": content or None, "tool_calls": calls}
    return {"role": "assistant", "content": content} if content else None


def write_turn(run: Sequence[Message], parts: PartWriter, in_loop: bool = False) -> JSONObject | None:
    """The wire message of any turn, None when nothing is left of it. in_loop: the user has not spoken since."""
    turn = _TurnWriter(parts)
    for message in run:
        before: Part | None = None
        for part in message.parts:
            turn.part(part, message)
            if before is not None and not parts.same_protocol and _is_split_by_citation(before, part):
                turn.join_last_texts()
            before = part
        parts.write_message_fields(message, turn.body)
    return turn.finish(run[0], in_loop)


class _TurnWriter:
    """Collects one turn. carried: what goes back onto a call, with its id and the number of calls before it.

    said: the reasoning members of its messages, by their paths.
    """

    __slots__ = (
        "_writer",
        "body",
        "call_extras",
        "calls",
        "client_fields",
        "content",
        "reasoning",
        "refusals",
    )

    def __init__(self, parts: PartWriter) -> None:
        self._writer = parts
        self.body: JSONObject = {"role": "assistant"}
        self.content: list[JSONObject] = []
        self.refusals: list[str] = []
        self.calls: list[JSONObject] = []
        self.reasoning: list[Reasoning] = []
        self.client_fields: dict[str, JSONObject] = {}
        self.call_extras: list[tuple[Reasoning, int, str, JSONObject]] = []

    def part(self, part: Part, message: Message) -> None:
        same_protocol = self._writer.same_protocol
        if isinstance(part, ToolCall):
            self._call(part, message)
        elif isinstance(part, Reasoning):
            self._reasoning_part(part, message)
        elif isinstance(part, Refusal):
            if same_protocol and part.path != f"{message.path}/refusal":
                self.content.append(deep_merge({"type": "refusal", "refusal": part.text}, part.extra or {}))
            else:
                self.refusals.append(part.text)
        elif isinstance(part, OpaquePart) and part.kind == "audio" and part.origin == NAME:
            self.body["audio"] = part.native
        else:
            if self.calls and not same_protocol and isinstance(part, Text):
                self._writer.ledger.altered(part.path, "text after a tool call is sent before it")
            self._writer.part(part, message, self.content)

    def join_last_texts(self) -> None:
        """Put the last two texts together."""
        before = self.content.pop(-2)
        self.content[-1]["text"] = before["text"] + self.content[-1]["text"]

    def _call(self, call: ToolCall, message: Message) -> None:
        parts = self._writer
        if parts.exact and call.path.endswith("/function_call"):  # the legacy form
            function = {"name": call.name, "arguments": call.input}
            self.body["function_call"] = deep_merge(function, call.extra or {})
            return
        body = _tool_call(call)
        mark = call.cache
        if mark is not None:
            if parts.exact or parts.capabilities.cache_marks == "none":
                parts.mark(mark, message, body)
            elif self.content and self.content[-1].keys() >= TEXT_PART_KEYS:
                parts.ledger.altered(
                    mark.path, "tool calls take no cache marks here: moved to the text before"
                )
                parts.mark(mark, message, self.content[-1])
            else:
                parts.ledger.dropped(mark.path, "there is no text before the call that could carry the mark")
        self.calls.append(deep_merge(body, call.extra) if parts.same_protocol and call.extra else body)

    def _reasoning_part(self, reasoning: Reasoning, message: Message) -> None:
        self.reasoning.append(reasoning)
        # One that a pass has put there stands instead of what the client said.
        if self._writer.same_protocol and (self._writer.exact or stands_in_fields(reasoning)):
            self.client_fields[message.path] = unwrapped_fields(self._writer.raw_message(message))
        native = native_reasoning(reasoning)
        extras = native.get(CALL_EXTRAS)
        for call_id, extra in extras.items() if type(extras) is dict else ():
            if type(extra) is dict:
                self.call_extras.append((reasoning, len(self.calls), call_id, extra))
        extra_content = native.get(EXTRA_CONTENT)
        if type(extra_content) is dict:
            self.body[EXTRA_CONTENT] = deep_merge(self.body.get(EXTRA_CONTENT), extra_content)

    def finish(self, message: Message, in_loop: bool) -> JSONObject | None:
        """The message, None when nothing is left of it. message: the first one of the turn."""
        fields, leading = self._reasoning_fields()
        self._restore_call_extras()
        if not self._writer.exact:
            self._add_dummy_signature()
        content = leading + self.content
        calls, body = self.calls, self.body
        if not (content or self.refusals or calls or fields or body.keys() - _SPEAKER or self._writer.exact):
            return None
        optional = bool(self.refusals or calls or body.get("audio") or body.get("function_call"))
        body["content"] = self._content(content, optional, message)
        if self.refusals:
            body["refusal"] = "".join(self.refusals)
        if calls:
            body["tool_calls"] = calls
        if not (fields or leading or self._writer.exact):
            self._add_placeholder(fields, message, in_loop)
        return {**body, **fields}

    def _add_placeholder(self, fields: JSONObject, message: Message, in_loop: bool) -> None:
        """Put a blank where reasoning is demanded that is lost."""
        # "The `reasoning_content` in the thinking mode must be passed back to the API."
        capabilities = self._writer.capabilities
        demanded = capabilities.reasoning_back == "always" or (
            capabilities.reasoning_back == "tool_loop" and in_loop and bool(self.calls)
        )
        if demanded and capabilities.reasoning_field is not None:
            fields[capabilities.reasoning_field] = " "
            self._writer.ledger.add(
                LossCode.REPAIRED,
                message.path,
                "the upstream demands the reasoning of this turn: a blank stands for it",
            )

    def _add_dummy_signature(self) -> None:
        """Give the first call of a turn a signature, whoever made it."""
        # "Function call is missing a thought_signature in functionCall parts."
        if self._writer.capabilities.thought_signatures and self.calls:
            self.calls[0] = deep_merge(DUMMY_THOUGHT_SIGNATURE, self.calls[0])

    def _content(self, content: list[JSONObject], optional: bool, message: Message) -> JSON:
        """The content, None or "" when there is none."""
        # "content is required unless tool_calls is specified"
        raw = self._writer.raw_message(message).get("content") if self._writer.exact else None
        if not content:
            return raw if self._writer.exact else None if optional else ""
        if type(raw) is str and all(part.keys() == TEXT_PART_KEYS for part in content):
            # It may be in several parts here, cut where reasoning stood in it.
            return "".join([part["text"] for part in content])
        return self._writer.content(content)

    def _restore_call_extras(self) -> None:
        """Lay what came with a call onto it: by its id, or, as ids change on the way, by its place."""
        ids = [call["id"] for call in self.calls]
        for reasoning, position, call_id, extra in self.call_extras:
            at = ids.index(call_id) if call_id in ids else position
            if at < len(self.calls):
                self.calls[at] = deep_merge(extra, self.calls[at])
            else:
                self._writer.ledger.dropped(
                    reasoning.path, "the call that it belongs to is not there any more"
                )

    def _reasoning_fields(self) -> tuple[JSONObject, list[JSONObject]]:
        """Earlier reasoning of the turn: the members of the message, and parts that lead its content."""
        exact, ledger = self._writer.exact, self._writer.ledger
        field = self._writer.capabilities.reasoning_field
        # Whether the message's own members are printed again.
        returns_fields = exact or (self._writer.same_protocol and field is not None)
        natives: list[JSONObject] = []
        texts: list[str] = []
        if returns_fields:
            natives += self.client_fields.values()
        for reasoning in self.reasoning:
            if returns_fields and stands_in_fields(reasoning):
                continue  # it is in the raw members
            native = native_reasoning(reasoning)
            if native:
                if returns_fields or field is not None or native.keys() <= _ALWAYS_RETURNED:
                    natives.append(native)
                else:
                    ledger.dropped(reasoning.path, "the upstream takes no earlier reasoning")
                continue
            if reasoning.seal is not None:
                ledger.add(
                    LossCode.FOREIGN_SEAL, reasoning.path, "only the provider that made it can read it"
                )
            if reasoning.text and not exact:
                if field is None or field == "thinking_blocks":
                    # Blocks without a signature are refused, and signatures are not forged.
                    ledger.dropped(
                        reasoning.path, "the upstream takes no earlier reasoning that is not its own"
                    )
                else:
                    texts.append(reasoning.text)
        fields, leading = join_native_reasoning(natives)
        if texts and field is not None:
            add_texts(fields, field, texts)
        if returns_fields and not exact and field in _PLAIN_FIELDS:
            for other in (_PLAIN_FIELDS - {field}) & fields.keys():
                if fields.setdefault(field, fields[other]) == fields[other]:
                    del fields[other]  # the same words under the upstream's name of it
        return fields, leading


def _is_split_by_citation(before: Part, part: Part) -> bool:
    """Whether a citation has cut the two out of one text, so that nothing stood between them."""
    if not isinstance(before, Text) or not isinstance(part, Text):
        return False
    cited = before.citations is not None or part.citations is not None
    return cited and before.cache is None and not (before.rendered or part.rendered)


def _tool_call(call: ToolCall) -> JSONObject:
    if call.kind is _CUSTOM:
        custom = {"name": call.name, "input": call.input}
        return {"id": call.call_id, "type": "custom", "custom": custom}
    # A call without arguments must still hold a JSON object.
    arguments = "{}" if not call.input or call.input.isspace() else call.input
    function = {"name": call.name, "arguments": arguments}
    return {"id": call.call_id, "type": "function", "function": function}


TEXT_PART_KEYS = {"type", "text"}


class PartWriter:
    """Prints the parts of one request.

    own: the request came as Chat Completions: its own fields are printed again. exact: and so are its forms.
    """

    __slots__ = ("_cache_marks", "_request", "capabilities", "exact", "ledger", "same_protocol")

    def __init__(
        self, request: Request, same_protocol: bool, capabilities: Capabilities, ledger: Ledger
    ) -> None:
        self._request = request
        self.same_protocol = same_protocol
        self.exact = same_protocol and capabilities.relay == "exact"
        self.capabilities = capabilities
        self.ledger = ledger
        self._cache_marks: list[tuple[JSONObject, str, CacheMark]] = []  # in their order

    def part(self, part: Part, message: Message, content: list[JSONObject]) -> None:
        """Append one part of a message to its content, in as many wire parts as it takes."""
        start = len(content)
        if isinstance(part, Text):
            content.append({"type": "text", "text": part.text})
            if part.citations is not None and not self.same_protocol:
                self.ledger.altered(part.path, "sent without its citations: text parts have none here")
        elif isinstance(part, Media):
            self._media(part, content)
        elif isinstance(part, OpaquePart):
            if part.origin == NAME:
                content.append(part.native)
            else:
                self.ledger.add(LossCode.UNKNOWN_KIND, part.path, f"{part.kind} has no counterpart")
            return
        else:
            # A call, a thought or a refusal of a user: no protocol has them, a pass or an embedder might.
            self.ledger.dropped(
                part.path, f"a {type(part).__name__} may not stand in a {message.role} message"
            )
            return
        if len(content) > start:
            last = content[-1]
            self.mark(part.cache, message, last)
            if self.same_protocol and part.extra:
                content[-1] = deep_merge(last, part.extra)
        elif part.cache is not None:
            self.ledger.dropped(part.cache.path, "the part that it stood on was left out")

    def mark(self, mark: CacheMark | None, message: Message | None, part: JSONObject) -> None:
        """Put a cache mark on a wire part, or into the ledger. One on the whole message is in its envelope."""
        if mark is None:
            return
        if self.exact:
            if not mark.path.endswith("/cache_control"):
                part["prompt_cache_breakpoint"] = _breakpoint(mark)
            elif message is None or mark.path != f"{message.path}/cache_control":
                part["cache_control"] = write_cache_control(mark)
        elif self.capabilities.cache_marks == "none":
            self.ledger.dropped(mark.path, "the upstream takes no cache marks")
        else:
            name, form = _MARKS[self.capabilities.cache_marks]
            if name in part:
                self.ledger.altered(mark.path, "one with the mark before it: both stand at the same place")
            else:
                part[name] = form(mark)
                self._cache_marks.append((part, name, mark))

    def drop_excess_marks(self) -> None:
        """Take back the marks that are too many. The last ones cover the most."""
        for part, name, mark in self._cache_marks[:-MAX_CACHE_MARKS]:
            del part[name]
            self.ledger.dropped(
                mark.path, f"at most {MAX_CACHE_MARKS} cache marks are allowed: the last ones are kept"
            )

    def write_message_fields(self, message: Message, body: JSONObject) -> None:
        """What a message has beside its content."""
        if message.name is not None:
            if "message_name" in self.capabilities.refuses:
                self.ledger.dropped(f"{message.path}/name", "the upstream takes no names of speakers")
            else:
                body["name"] = message.name
        if message.phase is not None:
            self.ledger.dropped(f"{message.path}/phase", "messages have no phase here")
        if not self.same_protocol:
            return
        raw = self.raw_message(message)
        for key in ("cache_control", "annotations"):
            if raw.get(key) is not None and (self.exact or key == "annotations"):
                body[key] = raw[key]
        if message.extra:
            body.update(message.extra)

    def content(self, parts: list[JSONObject]) -> JSON:
        """One string for plain texts, the parts where they say more than that."""
        if len(parts) < 2 or (self.capabilities.text_content == "string" and not self.exact):
            return join_plain_texts(parts)
        return parts

    def raw_message(self, message: Message) -> JSONObject:
        """The message as the client sent it, {} for one that a pass has put there: paths of theirs lead elsewhere."""
        head, _, index = message.path.rpartition("/")
        found: JSONObject = self._request.raw["messages"][int(index)] if head == "/messages" else {}
        return found

    def _media(self, part: Media, content: list[JSONObject]) -> None:
        if part.context is not None:
            content.append({"type": "text", "text": part.context})
            self.ledger.altered(f"{part.path}/context", "sent as a text part before the document")
        if part.citations is not None:
            self.ledger.dropped(f"{part.path}/citations", "the target protocol has no citations")
        if part.kind == "image":
            self._image(part, content)
        elif part.kind == "file":
            self._file(part, content)
        else:
            sound = {"data": part.data, "format": (part.media_type or "").rpartition("/")[2]}
            content.append({"type": "input_audio", "input_audio": sound})

    def _image(self, part: Media, content: list[JSONObject]) -> None:
        if part.source == "file_id":
            self.ledger.dropped(part.path, "images are sent by URL or as data here, not by file id")
            return
        image: JSONObject = {"url": part.data if part.source == "url" else _data_uri(part)}
        if part.detail is not None:
            image["detail"] = part.detail
        content.append({"type": "image_url", "image_url": image})

    def _file(self, part: Media, content: list[JSONObject]) -> None:
        file: JSONObject = {}
        if part.detail is not None:
            self.ledger.dropped(f"{part.path}/detail", "files have no detail setting here")
        if part.filename is not None:
            file["filename"] = part.filename
        if part.source == "base64":
            if not self.exact and part.filename is None:
                # "filename is required when passing the file as data"
                file["filename"] = "document.pdf" if part.media_type == "application/pdf" else "document"
            file["file_data"] = part.data if part.media_type is None else _data_uri(part)
        elif part.source == "file_id":
            file["file_id"] = part.data
            if not self.same_protocol:
                self.ledger.altered(part.path, "a file id means something to the server that gave it alone")
        elif self.same_protocol:
            file["file_data"] = part.data
        else:
            content.append({"type": "text", "text": self._file_as_text(part)})
            return
        content.append({"type": "file", "file": file})

    def _file_as_text(self, part: Media) -> str:
        """A document as text: its own, or where it is to be found."""
        if part.source == "url":
            self.ledger.altered(part.path, "files are not fetched by URL here: the URL is sent as text")
            return f"[document: {part.filename + ', ' if part.filename else ''}{part.data}]"
        if part.filename is None:
            return part.data
        self.ledger.altered(f"{part.path}/title", "sent as the first line of the document's text")
        return f"{part.filename}\n\n{part.data}"


def _breakpoint(mark: CacheMark) -> JSONObject:
    point: JSONObject = {"mode": "explicit"}
    if mark.ttl is not None:
        point["ttl"] = BREAKPOINT_TTL_NAMES[mark.ttl]
    return point


# Target.cache_marks -> the member of a part, and its value.
_MARKS: Mapping[str, tuple[str, Callable[[CacheMark], JSONObject]]] = {
    "breakpoint": ("prompt_cache_breakpoint", _breakpoint),
    "cache_control": ("cache_control", write_cache_control),
}


def join_plain_texts(parts: list[JSONObject]) -> JSON:
    """Plain texts with a blank line between them, the parts where one is no plain text."""
    if all(part.keys() == TEXT_PART_KEYS and part["type"] == "text" for part in parts):
        return "\n\n".join([part["text"] for part in parts])
    return parts


def _data_uri(part: Media) -> str:
    return f"data:{part.media_type or ''};base64,{part.data}"
