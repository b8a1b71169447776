"""The messages and tools of a request, printed for a Chat Completions upstream.

Strategy: a writer collects the wire messages. Strings where strings will do, for many servers take nothing
else; lists of parts where a boundary, an image or a mark has to be kept. "A message with role tool must be a
response to a preceding message with tool_calls": so all results of a stretch between two assistant turns come
first, then the media that they held (a tool message is text only), then what else was said.
"""

from __future__ import annotations

from collections.abc import Sequence

from dragoman._events import ToolKind
from dragoman._json import JSON, JSONObject
from dragoman._loss import Ledger, LossCode
from dragoman._request import (
    CacheMark,
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
from dragoman._spec import Target

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
        if len(run) == 1 and run[0].role == "user" and not self._own:
            short = _short(run[0])
            if short is not None:
                self._spoken = True
                self.out.append(short)
                return
        results: list[JSONObject] = []
        shown: list[JSONObject] = []
        rest: list[JSONObject] = []
        for message in run:
            parts = message.parts
            role: str = message.role
            if role == "user":
                self._spoken = True
                short = None if self._own else _short(message)
                if short is not None:
                    (results if short["role"] == "tool" else rest).append(short)
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
            for each in content:
                if each.keys() >= _PLAIN_TEXT:
                    each["text"] = f"<system>\n{each['text']}\n</system>"
            body["content"] = _plainest(content)
        self._envelope(message, body)
        return body

    def _envelope(self, message: Message, body: JSONObject) -> None:
        """What a message has beside its content."""
        if message.name is not None:
            body["name"] = message.name
        if message.phase is not None:
            self._ledger.dropped(f"{message.path}/phase", "messages have no phase here")
        if not self._own:
            return
        control = self._raw(message).get("cache_control")
        if control is not None:
            body["cache_control"] = control
        if message.extra:
            body.update(message.extra)

    def _part(self, part: Part, message: Message, content: list[JSONObject]) -> None:
        """Append one part of a message to its content, in as many wire parts as it takes."""
        start = len(content)
        if isinstance(part, Text):
            content.append({"type": "text", "text": part.text})
            if part.citations is not None:
                self._ledger.altered(part.path, "sent without its citations: text parts have none here")
        elif isinstance(part, Media):
            self._media(part, content)
        elif isinstance(part, OpaquePart):
            self._opaque(part, content)
            return
        else:
            # A call, a thought or a refusal of a user: no protocol has them, a pass or an embedder might.
            self._ledger.dropped(
                part.path, f"a {type(part).__name__} may not stand in a {message.role} message"
            )
            return
        if len(content) > start:
            last = content[-1]
            self._mark(part.cache, message, last)
            if self._own and part.extra:
                content[-1] = merge(last, part.extra)
        elif part.cache is not None:
            self._ledger.dropped(part.cache.path, "the part that it stood on was left out")

    def _opaque(self, part: OpaquePart, content: list[JSONObject]) -> None:
        if part.origin == NAME:
            content.append(part.native)
        else:
            self._ledger.add(LossCode.UNKNOWN_KIND, part.path, f"{part.kind} has no counterpart")

    def _mark(self, mark: CacheMark | None, message: Message | None, part: JSONObject) -> None:
        """Put a cache mark on a wire part, or into the ledger. One on the whole message is in its envelope."""
        if mark is None:
            return
        if self._own and mark.path.endswith("/cache_control"):
            if message is None or mark.path != f"{message.path}/cache_control":
                part["cache_control"] = cache_control(mark)
        elif self._own or self._target.cache_marks:
            point: JSONObject = {"mode": "explicit"}
            if mark.ttl is not None:
                point["ttl"] = BREAKPOINT_TTL[mark.ttl]
            part["prompt_cache_breakpoint"] = point
        else:
            self._ledger.dropped(mark.path, "the upstream takes no cache marks")

    def _media(self, part: Media, content: list[JSONObject]) -> None:
        if part.context is not None:
            content.append({"type": "text", "text": part.context})
            self._ledger.altered(f"{part.path}/context", "sent as a text part before the document")
        if part.citations is not None:
            self._ledger.dropped(f"{part.path}/citations", "the target protocol has no citations")
        if part.kind == "image":
            self._image(part, content)
        elif part.kind == "file":
            self._file(part, content)
        else:
            sound = {"data": part.data, "format": (part.media_type or "").rpartition("/")[2]}
            content.append({"type": "input_audio", "input_audio": sound})

    def _image(self, part: Media, content: list[JSONObject]) -> None:
        if part.source == "file_id":
            self._ledger.dropped(part.path, "images are sent by URL or as data here, not by file id")
            return
        image: JSONObject = {"url": part.data if part.source == "url" else _data_uri(part)}
        if part.detail is not None:
            image["detail"] = part.detail
        content.append({"type": "image_url", "image_url": image})

    def _file(self, part: Media, content: list[JSONObject]) -> None:
        file: JSONObject = {}
        if part.detail is not None:
            self._ledger.dropped(f"{part.path}/detail", "files have no detail setting here")
        if part.filename is not None:
            file["filename"] = part.filename
        if part.source == "base64":
            if not self._own and part.filename is None:
                # "filename is required when passing the file as data"
                file["filename"] = "document.pdf" if part.media_type == "application/pdf" else "document"
            file["file_data"] = part.data if part.media_type is None else _data_uri(part)
        elif part.source == "file_id":
            file["file_id"] = part.data
            if not self._own:
                self._ledger.altered(part.path, "a file id means something to the server that gave it alone")
        elif self._own:
            file["file_data"] = part.data
        else:
            text = part.data
            if part.source == "url":
                text = f"[document: {part.data}]"
                self._ledger.altered(part.path, "files are not fetched by URL here: the URL is sent as text")
            elif part.filename is not None:
                text = f"{part.filename}\n\n{part.data}"
                self._ledger.altered(f"{part.path}/title", "sent as the first line of the document's text")
            content.append({"type": "text", "text": text})
            return
        content.append({"type": "file", "file": file})

    def _result(self, result: ToolResult, message: Message, shown: list[JSONObject]) -> JSONObject:
        """One tool message. Media that it cannot hold are appended to `shown`."""
        content: list[JSONObject] = []
        for part in result.parts:
            if self._own or not isinstance(part, Media) or part.source == "text":
                self._part(part, message, content)
                continue
            before = len(shown)
            self._part(part, message, shown)
            if len(shown) > before:
                content.append({"type": "text", "text": f"[{part.kind}: see the next message]"})
                self._ledger.altered(part.path, "moved out of the tool result into a user message after it")
        if result.is_error:
            _prefix(content, "Error: ")
            self._ledger.altered(f"{result.path}/is_error", "said by the prefix `Error: `")
        body: JSONObject = {"role": "tool", "tool_call_id": result.call_id}
        mark = result.cache
        if mark is not None and not (self._own and mark.path == f"{result.path}/cache_control"):
            texts = [part for part in content if part["type"] == "text"]
            if texts:
                self._mark(mark, None, texts[-1])
            else:
                self._ledger.dropped(mark.path, "the result has no text to carry a cache mark")
        body["content"] = _plainest(content)
        self._envelope(message, body)
        if self._own and result.extra:
            body.update(result.extra)
        return body

    def assistant(self, run: Sequence[Message]) -> None:
        """One assistant message of a run of them. Nothing is written when nothing is left of it."""
        self._spoken = True
        short = None if self._own else _short_turn(run)
        if short is not None:
            self.out.append(short)
            return
        content: list[JSONObject] = []
        refusals: list[str] = []
        calls: list[JSONObject] = []
        thoughts: list[Thought] = []
        body: JSONObject = {"role": "assistant"}
        for message in run:
            for part in message.parts:
                if isinstance(part, ToolCall):
                    calls.append(self._call(part, message))
                elif isinstance(part, Thought):
                    thoughts.append(part)
                elif isinstance(part, Refusal):
                    if self._own and part.path != f"{message.path}/refusal":
                        refusal = {"type": "refusal", "refusal": part.text}
                        content.append(merge(refusal, part.extra or {}))
                    else:
                        refusals.append(part.text)
                elif isinstance(part, OpaquePart) and part.kind == "audio" and part.origin == NAME:
                    body["audio"] = part.native
                elif self._own or not isinstance(part, Text) or part.text:
                    if calls and not self._own and isinstance(part, Text):
                        self._ledger.altered(part.path, "text after a tool call is sent before it")
                    self._part(part, message, content)
            self._envelope(message, body)
        fields, leading = self._reasoning(run[0], thoughts)
        content = leading + content
        if not (content or refusals or calls or fields or self._own):
            return
        body["content"] = self._assistant_content(content, bool(refusals or calls or body.get("audio")))
        if refusals:
            body["refusal"] = "".join(refusals)
        if calls:
            body["tool_calls"] = calls
        self.out.append({**body, **fields})

    def _assistant_content(self, content: list[JSONObject], optional: bool) -> JSON:
        """One string wherever that says it all: "content is required unless tool_calls is specified"."""
        if not content:
            return None if optional else ""
        if not self._own and all(part.keys() == _PLAIN_TEXT for part in content):
            return "".join([part["text"] for part in content])
        return _plainest(content)

    def _call(self, call: ToolCall, message: Message) -> JSONObject:
        body = _call_body(call)
        mark = call.cache
        if mark is not None:
            if self._own:
                self._mark(mark, message, body)
            else:
                self._ledger.dropped(mark.path, "tool calls take no cache marks here")
        return merge(body, call.extra) if self._own and call.extra else body

    def _reasoning(self, message: Message, thoughts: list[Thought]) -> tuple[JSONObject, list[JSONObject]]:
        """Earlier reasoning of a turn: the members of the message, and parts that lead its content."""
        natives: list[JSONObject] = []
        texts: list[str] = []
        if self._own and thoughts:
            natives.append(_unwrapped_fields(self._raw(message)))
        for thought in thoughts:
            seal = thought.seal
            if seal is not None and seal.origin == NAME and type(seal.native) is dict:
                if not self._own:
                    if self._target.reasoning_field is None:
                        self._ledger.dropped(thought.path, "the upstream takes no earlier reasoning")
                        continue
                elif thought.path.split("/")[3] in REASONING_FIELDS and not thought.path.endswith(_WRAPPED):
                    continue  # it is in the raw fields
                natives.append(seal.native)
                continue
            if self._own and not thought.path.endswith(_WRAPPED):
                continue  # as above, with another vendor's signature
            if seal is not None:
                self._ledger.add(
                    LossCode.FOREIGN_SEAL, thought.path, "only the provider that made it can read it"
                )
            if thought.text and not self._own:
                texts.append(thought.text)
                if self._target.reasoning_field is None:
                    self._ledger.dropped(thought.path, "the upstream takes no earlier reasoning")
        fields, leading = _joined(natives)
        field = self._target.reasoning_field
        if texts and field is not None:
            before = fields.get(field)
            fields[field] = "\n\n".join([before, *texts] if type(before) is str else texts)
        return fields, leading

    def _raw(self, message: Message) -> JSONObject:
        """The message as the client sent it: requests of this protocol name it by their path."""
        found: JSONObject = self._request.raw["messages"][int(message.path.rpartition("/")[2])]
        return found


# Where wrapped seals stood: the path of such a thought names the member that held it.
_WRAPPED = ("/data", "/signature")
_PLAIN_TEXT = {"type", "text"}
_CUSTOM = ToolKind.CUSTOM  # an Enum's member is slow to look up


def cache_control(mark: CacheMark) -> JSONObject:
    """A cache mark in the form that servers of Claude models take."""
    control: JSONObject = {"type": "ephemeral"}
    if mark.ttl is not None:
        control["ttl"] = CACHE_CONTROL_TTL[mark.ttl]
    return control


def merge(base: JSON, extra: JSON) -> JSON:
    """`extra` laid over `base`, objects within objects too."""
    if type(base) is not dict or type(extra) is not dict:
        return extra
    return {**base, **{key: merge(base.get(key), value) for key, value in extra.items()}}


def _call_body(call: ToolCall) -> JSONObject:
    if call.kind is _CUSTOM:
        custom = {"name": call.name, "input": call.input}
        return {"id": call.call_id, "type": "custom", "custom": custom}
    # A call without arguments must still hold a JSON object.
    function = {"name": call.name, "arguments": call.input or "{}"}
    return {"id": call.call_id, "type": "function", "function": function}


def _short(message: Message) -> JSONObject | None:
    """The wire message of a foreign client's user who gives one plain text or one plain result.

    None when there is more to the message. Nearly all messages between assistant turns are like that.
    """
    parts = message.parts
    if len(parts) != 1 or message.name is not None or message.phase is not None:
        return None
    part = parts[0]
    if type(part) is ToolResult:
        if len(part.parts) == 1 and part.cache is None and not part.is_error:
            text = part.parts[0]
            if type(text) is Text and text.cache is None and text.citations is None:
                return {"role": "tool", "tool_call_id": part.call_id, "content": text.text}
    elif type(part) is Text and part.cache is None and part.citations is None:
        return {"role": "user", "content": part.text}
    return None


def _short_turn(run: Sequence[Message]) -> JSONObject | None:
    """The same for a foreign assistant's turn of plain texts and then calls."""
    content = ""
    calls: list[JSONObject] = []
    for message in run:
        if message.name is not None or message.phase is not None:
            return None
        for part in message.parts:
            if type(part) is Text and not calls and part.cache is None and part.citations is None:
                content += part.text
            elif type(part) is ToolCall and part.cache is None:
                calls.append(_call_body(part))
            else:
                return None
    if calls:
        return {"role": "assistant", "content": content or None, "tool_calls": calls}
    return {"role": "assistant", "content": content} if content else None


def _plainest(content: list[JSONObject]) -> JSON:
    """A string for no part or one plain text part, else the parts."""
    if not content:
        return ""
    if len(content) == 1 and content[0].keys() == _PLAIN_TEXT and content[0]["type"] == "text":
        return content[0]["text"]
    return content


def _prefix(content: list[JSONObject], text: str) -> None:
    if content and content[0].get("type") == "text":
        content[0]["text"] = text + content[0]["text"]
    else:
        content.insert(0, {"type": "text", "text": text.rstrip(": ")})


def _data_uri(part: Media) -> str:
    return f"data:{part.media_type or ''};base64,{part.data}"


def _unwrapped_fields(raw: JSONObject) -> JSONObject:
    """The reasoning members of a raw message, without entries that hold our own wrapped seals."""
    fields: JSONObject = {}
    for key in REASONING_FIELDS:
        value = raw.get(key)
        if type(value) is list:
            value = [entry for entry in value if not is_wrapped_entry(entry)]
        if value:
            fields[key] = value
    return fields


def _joined(natives: list[JSONObject]) -> tuple[JSONObject, list[JSONObject]]:
    """Native reasoning of several blocks in one message. Only members that hold reasoning are taken: without a
    secret, a client could have written the rest."""
    fields: JSONObject = {}
    leading: list[JSONObject] = []
    for native in natives:
        content = native.get("content")
        if type(content) is list:
            leading += [part for part in content if type(part) is dict and part.get("type") == "thinking"]
        for key in REASONING_FIELDS:
            value, before = native.get(key), fields.get(key)
            if not value:
                continue
            if type(value) is list and type(before) is list:
                entries = Entries()
                for entry in (*before, *value):
                    entries.add(entry)
                value = entries.whole()
            elif type(value) is str and type(before) is str:
                value = f"{before}\n\n{value}"
            fields[key] = value
    return fields, leading
