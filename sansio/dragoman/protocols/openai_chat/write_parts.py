"""Content parts of a request, printed for a Chat Completions upstream.

Strategy: what every kind of message shares: text, media and marks become wire parts one by one, in the message's
order. What has no part of its own goes on as text where it says something, else into the ledger.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from dragoman._ir.losses import Ledger, LossCode
from dragoman._ir.request import CacheMark, Media, Message, OpaquePart, Part, Request, Text
from dragoman._wire.json import JSON, JSONObject
from dragoman.codec import Target
from dragoman.protocols.openai_chat.tables import (
    BREAKPOINT_TTL,
    CACHE_CONTROL_TTL,
    MAX_MARKS,
    NAME,
)

PLAIN_TEXT = {"type", "text"}


class PartWriter:
    """Prints the parts of one request.

    own: the request came as Chat Completions: its own fields are printed again. exact: and so are its forms.
    """

    __slots__ = ("_marked", "_request", "exact", "ledger", "own", "target")

    def __init__(self, request: Request, own: bool, target: Target, ledger: Ledger) -> None:
        self._request = request
        self.own = own
        self.exact = own and target.relay == "exact"
        self.target = target
        self.ledger = ledger
        self._marked: list[tuple[JSONObject, str, CacheMark]] = []  # in their order

    def part(self, part: Part, message: Message, content: list[JSONObject]) -> None:
        """Append one part of a message to its content, in as many wire parts as it takes."""
        start = len(content)
        if isinstance(part, Text):
            content.append({"type": "text", "text": part.text})
            if part.citations is not None and not self.own:
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
            if self.own and part.extra:
                content[-1] = merge(last, part.extra)
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
                part["cache_control"] = cache_control(mark)
        elif self.target.cache_marks == "none":
            self.ledger.dropped(mark.path, "the upstream takes no cache marks")
        else:
            name, form = _MARKS[self.target.cache_marks]
            if name in part:
                self.ledger.altered(mark.path, "one with the mark before it: both stand at the same place")
            else:
                part[name] = form(mark)
                self._marked.append((part, name, mark))

    def keep_last_marks(self) -> None:
        """Take back the marks that are too many. The last ones cover the most."""
        for part, name, mark in self._marked[:-MAX_MARKS]:
            del part[name]
            self.ledger.dropped(
                mark.path, f"at most {MAX_MARKS} cache marks are allowed: the last ones are kept"
            )

    def envelope(self, message: Message, body: JSONObject) -> None:
        """What a message has beside its content."""
        if message.name is not None:
            if "message_name" in self.target.refuses:
                self.ledger.dropped(f"{message.path}/name", "the upstream takes no names of speakers")
            else:
                body["name"] = message.name
        if message.phase is not None:
            self.ledger.dropped(f"{message.path}/phase", "messages have no phase here")
        if not self.own:
            return
        raw = self.raw(message)
        for key in ("cache_control", "annotations"):
            if raw.get(key) is not None and (self.exact or key == "annotations"):
                body[key] = raw[key]
        if message.extra:
            body.update(message.extra)

    def content(self, parts: list[JSONObject]) -> JSON:
        """One string for plain texts, the parts where they say more than that."""
        if len(parts) < 2 or (self.target.text_content == "string" and not self.exact):
            return one_string(parts)
        return parts

    def raw(self, message: Message) -> JSONObject:
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
            if not self.own:
                self.ledger.altered(part.path, "a file id means something to the server that gave it alone")
        elif self.own:
            file["file_data"] = part.data
        else:
            content.append({"type": "text", "text": self._words_of_file(part)})
            return
        content.append({"type": "file", "file": file})

    def _words_of_file(self, part: Media) -> str:
        """A document as text: its own, or where it is to be found."""
        if part.source == "url":
            self.ledger.altered(part.path, "files are not fetched by URL here: the URL is sent as text")
            return f"[document: {part.filename + ', ' if part.filename else ''}{part.data}]"
        if part.filename is None:
            return part.data
        self.ledger.altered(f"{part.path}/title", "sent as the first line of the document's text")
        return f"{part.filename}\n\n{part.data}"


def cache_control(mark: CacheMark) -> JSONObject:
    """A cache mark in the form that servers of Claude models take."""
    control: JSONObject = {"type": "ephemeral"}
    if mark.ttl is not None:
        control["ttl"] = CACHE_CONTROL_TTL[mark.ttl]
    return control


def _breakpoint(mark: CacheMark) -> JSONObject:
    point: JSONObject = {"mode": "explicit"}
    if mark.ttl is not None:
        point["ttl"] = BREAKPOINT_TTL[mark.ttl]
    return point


# Target.cache_marks -> the member of a part, and its value.
_MARKS: Mapping[str, tuple[str, Callable[[CacheMark], JSONObject]]] = {
    "breakpoint": ("prompt_cache_breakpoint", _breakpoint),
    "cache_control": ("cache_control", cache_control),
}


def merge(base: JSON, extra: JSON) -> JSON:
    """`extra` laid over `base`, objects within objects too."""
    if type(base) is not dict or type(extra) is not dict:
        return extra
    return {**base, **{key: merge(base.get(key), value) for key, value in extra.items()}}


def one_string(parts: list[JSONObject]) -> JSON:
    """Plain texts with a blank line between them, the parts where one is no plain text."""
    if all(part.keys() == PLAIN_TEXT and part["type"] == "text" for part in parts):
        return "\n\n".join([part["text"] for part in parts])
    return parts


def _data_uri(part: Media) -> str:
    return f"data:{part.media_type or ''};base64,{part.data}"
