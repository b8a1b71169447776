"""Read contents and their parts.

A part has exactly one data member, and side data. Its signature is that of the vendor, or carries signatures of others
(see `_ir.wrapped_signatures`); both become reasoning before the part, of a text behind it. Calls need no ids here:
those without get one made of their place and content, and results are matched with calls by id, by name or by place.
"""

from __future__ import annotations

import binascii
from base64 import b64decode
from collections import deque
from collections.abc import Callable, Sequence
from itertools import groupby
from operator import eq
from typing import Literal

import msgspec

from dragoman._ir.events import Signature, ToolKind
from dragoman._ir.losses import Loss, LossCode
from dragoman._ir.native import changed, unknown_members
from dragoman._ir.request import (
    Media,
    Message,
    MessagePaths,
    OpaquePart,
    Part,
    Paths,
    Reasoning,
    Role,
    Text,
    ToolCall,
    ToolResult,
)
from dragoman._ir.shape import OBJECT, STRING, Setting, read_members
from dragoman._ir.wrapped_signatures import SEPARATOR, Signer
from dragoman._wire.exceptions import RemoteProtocolError, dotted_path
from dragoman._wire.json import JSON, JSONObject, encode, encode_text, text_or_none, wrong_type
from dragoman.protocols.gemini import shapes, tables
from dragoman.protocols.gemini.checks import CHECKS, rename
from dragoman.protocols.gemini.tables import DATA_MEMBERS, NAME, ROLES, SIGNATURE, SIGNED

_PATHS = MessagePaths("contents", "parts")
_EMPTY: JSONObject = {"text": ""}  # is refused: "required oneof field 'data' must have one initialized field"

_FUNCTION = ToolKind.FUNCTION  # a member of an Enum is slow to look up

# Characters of the hash in a made call id.
_HASH = 24


class ConversationReader(msgspec.Struct):
    """Reads the contents of one request.

    repairs: what the contents lose.
    """

    signer: Signer
    repairs: list[Loss] = []
    _has_calls: bool = False  # in the content that is being read
    # Of the last content with calls: their ids and names, until a result without an id comes; then the ids by name, and
    # all of them under None; and the ids that have a result.
    _calls: list[tuple[str, str]] = []
    _waiting: dict[str | None, deque[str]] = {}
    _answered: set[str] = set()
    _is_native: bool = True  # the message says what the content says
    _thoughts: list[Reasoning] = []  # without a signature, which a later part may carry
    _signed_later: list[Reasoning] = []  # those of the message whose text has come to such a signature

    def read(self, contents: JSON) -> list[Message]:
        """Return the messages of a list of contents, or of a single one in its place."""
        if type(contents) is dict:
            return [self.content(contents, "/contents", ("/contents/parts/0",))]
        if type(contents) is not list:
            raise wrong_type("/contents", "an array of contents", contents)
        if not contents:
            raise RemoteProtocolError("contents is not specified", path="/contents", code="invalid_value")
        paths = zip(contents, _PATHS, strict=False)
        roles = [content.get("role") for content in contents if type(content) is dict]
        if not any(map(eq, roles, roles[1:])):  # as in most
            return [self.content(content, path, part_paths) for content, (path, _, part_paths) in paths]
        turns = groupby(paths, lambda each: _is_models(each[0]) or each[1][0])
        return [self._turn(list(turn)) for _, turn in turns]

    def _turn(self, contents: list[tuple[JSON, Paths]]) -> Message:
        """Return the message of adjacent contents of the model.

        Chats of Google's SDKs send each chunk of a stream as one (google-genai 3.6.1, `Chat.send_message_stream`).
        """
        content, (path, _, part_paths) = contents[0]
        if len(contents) == 1:
            return self.content(content, path, part_paths)
        self._is_native, self._has_calls = False, False
        read: list[Part] = []
        for content, (at, _, part_paths) in contents:
            self._read_parts(content["parts"], at, part_paths, read)
        return self._message("assistant", read, path, None, None)

    def content(self, content: JSON, path: str, part_paths: tuple[str, ...]) -> Message:
        """Return the message of one content. part_paths: of its first parts in a list."""
        if type(content) is not dict:
            raise wrong_type(path, "a content", content)
        name, parts = content.get("role"), content.get("parts")
        role = ROLES.get(name) if type(name) is str else None
        if role is not None and type(parts) is list and len(parts) == 1 and len(content) == 2:
            part = parts[0]  # a shortcut for most: one text or result
            if type(part) is dict and len(part) == 1:
                if type(text := part.get("text")) is str:
                    only = (Text(text, None, None, part_paths[0], native=part),)
                    return Message(role, only, path, native=content, plain_text=text)
                if part.get("functionResponse") is not None:
                    return Message(role, (self._result(part, part_paths[0]),), path, native=content)
        if role is None:
            role = ROLES.get((CHECKS.optional(content, "role", path, STRING) or "user").lower())
        if role is None:
            raise RemoteProtocolError(
                f"Please use a valid role: user, model. {dotted_path(path)} has another.",
                path=f"{path}/role",
                code="invalid_value",
            )
        shape = None if len(content) == 2 and name and parts else shapes.CONTENT_SHAPE
        listed = [parts] if type(parts) is dict else parts or []
        if listed is not parts:
            part_paths = (f"{path}/parts",)  # of a part in the place of the list
        if type(listed) is not list:
            raise wrong_type(f"{path}/parts", "an array of parts", parts)
        self._is_native, self._has_calls = True, False
        read: list[Part] = []
        self._read_parts(listed, path, part_paths, read)
        return self._message(role, read, path, content, shape)

    def _read_parts(self, parts: list[JSON], path: str, known: tuple[str, ...], read: list[Part]) -> None:
        """Append what the parts of the content at a path say. known: the paths of the first ones."""
        if len(parts) > len(known):
            known += tuple([f"{path}/parts/{index}" for index in range(len(known), len(parts))])
        for index, part in enumerate(parts):
            at = known[index]
            if type(part) is not dict:
                raise wrong_type(at, "a part", part)
            if len(part) == 1 and type(text := part.get("text")) is str:
                read.append(Text(text, None, None, at, native=part))  # as most are
                continue
            read += self._part(part, at)

    def _message(
        self, role: Role, read: list[Part], path: str, content: JSONObject | None, shape: JSON
    ) -> Message:
        """Return the message of what was read. content: the only one that it comes from, None if there are several."""
        self._thoughts = []
        if self._signed_later:
            moved, self._signed_later = set(map(id, self._signed_later)), []
            read = [part for part in read if id(part) not in moved]
        if role == "assistant" and len(read) > 1:
            texts = [part for part in read if type(part) is Text]
            if len(texts) > 1 or (texts and not texts[0].text):
                self._is_native = self._is_native and all(part.native != _EMPTY for part in texts)
                read = _joined(read)
        if self._is_native:
            return Message(role, tuple(read), path, native=content, shape=shape)
        return Message(role, tuple(_foreign_first(read)), path, before=content, shape=shape)

    def _part(self, part: JSONObject, path: str) -> Sequence[Part]:
        """Return the parts for one: reasoning that its signature carries, and the part itself."""
        kind, signature = next(iter(part), None), part.get(SIGNATURE)
        if (
            len(part) > 1 + (SIGNATURE in part) + ("thought" in part)
            or kind not in _PLAIN
            or part[kind] is None
        ):
            rename(part)
            signature = part.get(SIGNATURE)
            kind = next((name for name in DATA_MEMBERS if part.get(name) is not None), None)
        is_signed = signature or (self._thoughts and kind != "text")
        signed = self._signatures(part, kind, path) if is_signed else ()
        if kind is None:
            unknown = next((name for name in part if name not in shapes.TEXT_SHAPE), None)
            if unknown is not None:
                return (*signed, OpaquePart(NAME, unknown, part, path))
            if not signature:
                self.repairs.append(
                    Loss(LossCode.REPAIRED, path, "a part without data was left out: it is refused")
                )
                self._is_native = False
            return signed
        reader = _READERS.get(kind)
        found = None if reader is None else reader(self, part, path)
        if found is None:
            return (*signed, OpaquePart(NAME, kind, part, path, _render(kind, part[kind])))
        if type(found) is Reasoning:
            if not signed:
                self._thoughts.append(found)
            return signed or (found,)
        if signature and type(found) is Text and not found.text:
            return signed  # there only for the signature
        if not signed:
            return (found,)
        if type(signature) is str and self.signer.is_wrapped(signature):
            found = changed(found, (SIGNATURE,))  # type: ignore[type-var]  # opaque parts are above
        # On a text, clients have put that of the empty one behind it, too (AI SDK).
        return (found, *signed) if signature and type(found) is Text else (*signed, found)

    def _signatures(self, part: JSONObject, kind: str | None, path: str) -> tuple[Part, ...]:
        """Return what a part's signature carries, as reasoning. If it is wrapped, thoughts before it are its text."""
        text, is_thought = text_or_none(part.get(SIGNATURE)), part.get("thought") is True
        if text is None or text in tables.PLACEHOLDERS:
            if not is_thought:
                self._thoughts = []
            return ()
        thoughts, self._thoughts = self._thoughts, []
        if not is_thought:
            path = f"{path}/{SIGNATURE}"
        seen = part["text"] if is_thought and type(part.get("text")) is str else ""
        if not self.signer.is_wrapped(text):
            native: JSONObject = {SIGNED: kind, SIGNATURE: text}
            if kind is None or part.get("thought") or not part[kind]:
                native = part  # there only for its signature, or thoughts
            elif kind not in _READERS:
                return ()  # the part stays as it came
            return (Reasoning(seen, Signature(NAME, native), path),)
        self._is_native = False
        signatures = self.signer.unwrap_list(text)
        if not signatures:
            return (Reasoning("", None, path, forged=True),)
        if signatures[0] == SEPARATOR:
            self._thoughts = thoughts  # what they belong to comes behind it
            return (Reasoning("", SEPARATOR, path),)
        self._signed_later += thoughts
        readable = "".join([thought.text for thought in thoughts]) + seen
        first, *others = signatures
        return (Reasoning(readable, first, path), *[Reasoning("", each, path) for each in others])

    def _text(self, part: JSONObject, path: str) -> Part:
        text = CHECKS.required(part, "text", path, STRING)
        if part.get("thought") is True:
            return Reasoning(text, None, path, native=part, shape=shapes.TEXT_SHAPE)
        return Text(text, path=path, native=part, shape=shapes.TEXT_SHAPE)

    def _call(self, part: JSONObject, path: str) -> Part:
        found, shape = _usual(part, "functionCall", "args"), None
        if found is None:
            call, at = CHECKS.required(part, "functionCall", path, OBJECT), f"{path}/functionCall"
            rename(call)
            name, shape = CHECKS.required(call, "name", at, STRING), shapes.CALL_SHAPE
            found = CHECKS.optional(call, "id", at, STRING), name, CHECKS.object(call, "args", at)
        call_id, name, arguments = found
        text = encode_text(arguments)
        call_id = call_id or _made_id(path, name, text)
        if not self._has_calls:
            self._has_calls, self._calls, self._waiting, self._answered = True, [], {}, set()
        self._calls.append((call_id, name))
        return ToolCall(call_id, name, text, _FUNCTION, None, None, path, native=part, shape=shape)

    def _result(self, part: JSONObject, path: str) -> Part:
        found, shape = _usual(part, "functionResponse", "response"), None
        media: list[JSONObject] = []
        if found is None:
            at = f"{path}/functionResponse"
            result, shape = CHECKS.required(part, "functionResponse", path, OBJECT), shapes.RESULT_SHAPE
            rename(result)
            name, media = (
                CHECKS.optional(result, "name", at, STRING) or "",
                CHECKS.objects(result, "parts", at),
            )
            found = CHECKS.optional(result, "id", at, STRING), name, CHECKS.object(result, "response", at)
        call_id, name, response = found
        text, failed = _result_text(response)
        content: list[Text | Media | OpaquePart] = []
        if text:
            content.append(Text(text, None, None, f"{path}/functionResponse/response"))
        for index, inner in enumerate(media) if media else ():
            place = f"{path}/functionResponse/parts/{index}"
            kind = next(iter(inner), "part")
            opaque = OpaquePart(NAME, kind, inner, place, _render(kind, inner.get(kind)))
            content.append(self._media(inner, place) or opaque)
        call_id = self._answers(call_id, name)
        return ToolResult(
            call_id,
            tuple(content),
            _FUNCTION,
            failed,
            None,
            path,
            native=part,
            shape=shape,
            plain_text=text if shape is None and failed is None else "",
        )

    def _answers(self, call_id: str | None, name: str) -> str:
        """Return the id of the call that a result is for: the result's, else the next one's of its name, or of any."""
        if not call_id:
            for each, called in self._calls:
                for key in (called, None):
                    self._waiting.setdefault(key, deque()).append(each)
            self._calls.clear()
            for ids in (self._waiting.get(name), self._waiting.get(None)):
                while ids and not call_id:
                    found = ids.popleft()
                    call_id = None if found in self._answered else found
            call_id = call_id or f"call_{name}"
        self._answered.add(call_id)
        return call_id

    def _media(self, part: JSONObject, path: str) -> Media | None:
        read_members(part, shapes.MEDIA_SHAPE, wrong_type, path)  # checks the types
        data = part.get("inlineData") or part.get("fileData") or {}
        media_type = data.get("mimeType") or ""
        kind = media_type.partition("/")[0]
        content: JSON = data.get("data")
        uri: JSON = data.get("fileUri")
        level = (part.get("mediaResolution") or {}).get("level")
        source: Literal["base64", "text", "url", "file_id"] = "base64"
        if content is None and uri is None:
            return None
        if content is None:
            is_public = uri.startswith(("https://", "http://")) and not uri.startswith(_FILES)
            source, content = "url" if is_public else "file_id", uri
        else:
            content = content.replace("-", "+").replace("_", "/")  # the alphabet for URLs
            content += "=" * (-len(content) % 4)
            if kind == "text" and (text := _plain_text(content)) is not None:
                source, content = "text", text
        is_file = kind not in ("image", "audio", "video")
        shape = shapes.MEDIA_SHAPE if is_file else shapes.UNNAMED_SHAPE
        if part.get("inlineData") and part.get("fileData"):
            shape = {**shape, "fileData": Setting(None)}  # a part has one of them: the first was read
        return Media(
            "file" if is_file else kind,  # type: ignore[arg-type]
            source,
            content,
            media_type or None,
            data.get("displayName") if is_file else None,
            tables.DETAILS.get(level) if type(level) is str else None,
            path=path,
            native=part,
            shape=shape,
        )


# What has no names in it, or gets them from its reader.
_PLAIN = frozenset(("text", "functionCall", "functionResponse"))

# Where the vendor's API has the files that clients have uploaded.
_FILES = "https://generativelanguage.googleapis.com/"

_READERS: dict[str, Callable[[ConversationReader, JSONObject, str], Part | None]] = {
    "text": ConversationReader._text,
    "functionCall": ConversationReader._call,
    "functionResponse": ConversationReader._result,
    "inlineData": ConversationReader._media,
    "fileData": ConversationReader._media,
}


def _is_models(content: JSON) -> bool:
    """True for a content of the model with parts and nothing else."""
    return (
        type(content) is dict
        and len(content) == 2
        and content.get("role") == "model"
        and type(content.get("parts")) is list
    )


def _joined(parts: list[Part]) -> list[Part]:
    """Join adjacent texts of the model: they are pieces of one, as in its streams, which an empty one may end."""
    out: list[Part] = []
    for are_texts, found in groupby(parts, lambda part: type(part) is Text and unknown_members(part) is None):
        if not are_texts:
            out += found
            continue
        texts = [piece for piece in found if type(piece) is Text and piece.text]
        if len(texts) > 1:
            texts = [Text("".join([piece.text for piece in texts]), path=texts[0].path)]
        out += texts
    return out or parts[:1]


def _foreign_first(parts: list[Part]) -> list[Part]:
    """Put what other vendors signed before the texts that it was sent behind, and leave out what ends others."""
    out: list[Part] = []
    texts: list[Part] = []
    carrier = None  # the path of the field that the part before came from
    for part in parts:
        if part.path == carrier:
            out.append(part)
            continue
        is_foreign = type(part) is Reasoning and part.signature is not None and part.signature.origin != NAME
        if carrier is not None or not (is_foreign or type(part) is Text):
            out += texts
            texts.clear()
        carrier = part.path if is_foreign else None
        if type(part) is Text:
            texts.append(part)
        elif type(part) is not Reasoning or part.signature != SEPARATOR:
            out.append(part)
    return out + texts


def _usual(part: JSONObject, kind: str, data: str) -> tuple[JSON, str, JSONObject] | None:
    """Return id, name and data of a call or a result without other members, as nearly all are; None for others."""
    value = part[kind]
    if type(value) is not dict or len(value) != 3 or len(part) > 1 + (SIGNATURE in part):
        return None
    call_id, name, found = value.get("id"), value.get("name"), value.get(data)
    if not call_id or type(call_id) is not str or type(name) is not str or type(found) is not dict:
        return None
    return call_id, name, found


def _made_id(path: str, name: str, text: str) -> str:
    """Return an id for a call without one: the same history gives the same ids in every request."""
    import hashlib  # loads OpenSSL: slow to import, and newer clients send ids

    return f"call_{hashlib.sha256(encode([path, name, text])).hexdigest()[:_HASH]}"


def _plain_text(data: str) -> str | None:
    try:
        return b64decode(data).decode("utf-8")
    except (binascii.Error, UnicodeDecodeError):
        return None


def _result_text(response: JSONObject) -> tuple[str, bool | None]:
    """Return the text of a result, and True for a failure.

    "use "output" key to specify function output and "error" key to specify error details (if any). If "output" and
    "error" keys are not specified, then whole "response" is treated as function output." (google-genai 3.4.0,
    FunctionResponse) Clients have other names for the only key as well.
    """
    if len(response) == 1:
        [(key, value)] = response.items()
        if key in ("output", "result", "content", "error"):
            return value if type(value) is str else encode_text(value), key == "error" or None
    return (encode_text(response) if response else ""), None


# Parts as text.


def _render(kind: str, value: JSON) -> str | None:
    """Return the text of a part for models of other vendors, "" for what only the vendor's server reads."""
    data = value if type(value) is dict else {}
    if kind == "executableCode":
        return f"```{str(data.get('language') or '').lower()}\n{data.get('code') or ''}\n```"
    if kind == "codeExecutionResult":
        return (
            f"Code was run, with {data.get('outcome') or 'OUTCOME_UNSPECIFIED'}:\n{data.get('output') or ''}"
        )
    if kind == "audioTranscription":
        return text_or_none(data.get("text"))
    if kind == "toolResponse":
        return f"A tool of the provider returned:\n{encode_text(data.get('response'))}"
    return "" if kind == "toolCall" else None
