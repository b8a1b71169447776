"""Read contents and their parts.

A part has exactly one data member, and side data. Its signature is that of the vendor, or carries signatures of others
(see `_ir.wrapped_signatures`); both become reasoning before the part. Calls need no ids here: those without get one
made of their place and content, and results are matched with calls by id, by name or by place.
"""

from __future__ import annotations

import binascii
from base64 import b64decode
from collections import deque
from collections.abc import Callable, Sequence
from typing import Literal

import msgspec

from dragoman._ir.events import Signature, ToolKind
from dragoman._ir.losses import Loss, LossCode
from dragoman._ir.native import changed
from dragoman._ir.request import (
    Media,
    Message,
    MessagePaths,
    OpaquePart,
    Part,
    Reasoning,
    Role,
    Text,
    ToolCall,
    ToolResult,
)
from dragoman._ir.shape import OBJECT, STRING, read_settings
from dragoman._ir.wrapped_signatures import Signer
from dragoman._wire.exceptions import RemoteProtocolError, dotted_path
from dragoman._wire.json import JSON, JSONObject, encode, encode_text, text_or_none, wrong_type
from dragoman.protocols.gemini.checks import CHECKS, rename
from dragoman.protocols.gemini.shapes import (
    CALL_SHAPE,
    CONTENT_SHAPE,
    MEDIA_SHAPE,
    RESULT_SHAPE,
    TEXT_SHAPE,
    UNNAMED_SHAPE,
)
from dragoman.protocols.gemini.tables import (
    DATA_MEMBERS,
    DETAILS,
    DUMMY_SIGNATURE,
    NAME,
    PLACEHOLDERS,
    ROLES,
    SIGNATURE,
    SIGNED,
)

_PATHS = MessagePaths("contents", "parts/0")

_FUNCTION = ToolKind.FUNCTION  # a member of an Enum is slow to look up

# Characters of the hash in a made call id.
_HASH = 24


class _Calls(msgspec.Struct):
    """The calls of the last turn with some, and which of them have a result.

    new: ids and names of those that no result without an id could answer yet.
    """

    new: list[tuple[str, str]] = []
    _waiting: dict[str | None, deque[str]] = {}  # ids by name, and all of them under None
    _answered: set[str] = set()

    def answered(self, call_id: str | None, name: str) -> str:
        """Return the id of the call that a result answers: by its id, else by its name, else the next one."""
        if call_id:
            self._answered.add(call_id)
            return call_id
        for each, called in self.new:
            for key in (called, None):
                self._waiting.setdefault(key, deque()).append(each)
        self.new = []
        for ids in (self._waiting.get(name), self._waiting.get(None)):
            while ids:
                found = ids.popleft()
                if found not in self._answered:
                    self._answered.add(found)
                    return found
        return f"call_{name}"


class ConversationReader(msgspec.Struct):
    """Reads the contents of one request.

    repairs: what the contents lose.
    """

    signer: Signer
    repairs: list[Loss] = []
    _has_calls: bool = False  # in the content that is being read
    _calls: _Calls = msgspec.field(default_factory=_Calls)
    _is_native: bool = True  # the message says what the content says
    _thoughts: list[Reasoning] = []  # without a signature, which a later part may carry

    def read(self, contents: JSON) -> list[Message]:
        """Return the messages of a list of contents, or of a single one in its place."""
        if type(contents) is dict:
            return [self.content(contents, "/contents", "/contents/parts/0")]
        if type(contents) is not list:
            raise wrong_type("/contents", "an array of contents", contents)
        if not contents:
            raise RemoteProtocolError("contents is not specified", path="/contents", code="invalid_value")
        out: list[Message] = []
        for content, (path, first) in zip(contents, _PATHS, strict=False):
            role = None
            if type(content) is dict and len(content) == 2:
                # A shortcut for nearly all: a role and one text, call or result.
                parts, name = content.get("parts"), content.get("role")
                role = ROLES.get(name) if type(name) is str else None
                if role is not None and type(parts) is list and len(parts) == 1:
                    part = parts[0]
                    if type(part) is dict and len(part) == 1:
                        text = part.get("text")
                        if type(text) is str:
                            read = (Text(text, None, None, first, native=part),)
                            out.append(Message(role, read, path, native=content))
                            continue
                        self._has_calls = False
                        found = self._usual(part, first)
                        if found is not None:
                            out.append(Message(role, (found,), path, native=content))
                            continue
            out.append(self.content(content, path, first, role))
        return out

    def content(self, content: JSON, path: str, first: str, role: Role | None = None) -> Message:
        """Return the message of one content. first: the path of its first part in a list. role: if it is known."""
        if type(content) is not dict:
            raise wrong_type(path, "a content", content)
        shape = None if len(content) == 2 and "role" in content and "parts" in content else CONTENT_SHAPE
        if role is None:
            name = CHECKS.optional(content, "role", path, STRING) or "user"
            role = ROLES.get(name) or ROLES.get(name.lower())
        if role is None:
            raise RemoteProtocolError(
                f"Please use a valid role: user, model. {dotted_path(path)} has another.",
                path=f"{path}/role",
                code="invalid_value",
            )
        parts = content.get("parts")
        listed = [parts] if type(parts) is dict else parts or []
        if type(listed) is not list:
            raise wrong_type(f"{path}/parts", "an array of parts", parts)
        self._is_native, self._has_calls = True, False
        read: list[Part] = []
        # What other vendors signed goes before the texts that it was sent behind, which begin at this place.
        foreign: list[Part] = []
        behind = 0
        for index, part in enumerate(listed):
            at = f"{path}/parts" if listed is not parts else f"{path}/parts/{index}" if index else first
            if type(part) is not dict:
                raise wrong_type(at, "a part", part)
            if len(part) == 1 and type(text := part.get("text")) is str:
                read.append(Text(text, None, None, at, native=part))  # as most are
                continue
            for each in self._part(part, at):
                if type(each) is Reasoning and each.signature is not None and each.signature.origin != NAME:
                    foreign.append(each)
                    continue
                if type(each) is not Text:
                    if foreign:
                        read[behind:behind] = foreign
                        foreign.clear()
                    behind = len(read) + 1
                read.append(each)
        read[behind:behind] = foreign
        if self._thoughts:
            read += self._thoughts
            self._thoughts = []
        message = Message(role, tuple(read), path, native=content, shape=shape)
        return message if self._is_native else changed(message)

    def _part(self, part: JSONObject, path: str) -> Sequence[Part]:
        """Return the parts for one: reasoning that its signature carries, and the part itself."""
        signature = part.get(SIGNATURE)
        found = self._usual(part, path) if len(part) == 1 + (signature is not None) else None
        if found is not None and not self._thoughts and (signature is None or signature == DUMMY_SIGNATURE):
            return (found,)
        if not part.keys() <= _PLAIN_PART:
            rename(part)
            signature = part.get(SIGNATURE)
        kind = next((name for name in DATA_MEMBERS if part.get(name) is not None), None)
        signed = self._signatures(part, kind, path) if signature or self._thoughts else ()
        if kind is None:
            unknown = next((name for name in part if name not in TEXT_SHAPE), None)
            if unknown is None:
                if not signature:
                    self._repair(path, "a part without data was left out: it is refused")
                return signed
            return (*signed, OpaquePart(NAME, unknown, part, path))
        if found is None and kind in _READERS:
            found = _READERS[kind](self, part, path)
        if found is None:
            return (*signed, OpaquePart(NAME, kind, part, path, _render(kind, part[kind])))
        if type(found) is Reasoning:
            if not signed:
                self._thoughts.append(found)
            return signed
        if signature:
            if type(found) is Text and not found.text:
                return signed  # there only for the signature
            if type(signature) is str and self.signer.is_wrapped(signature):
                found = changed(found, (SIGNATURE,))  # type: ignore[type-var]  # opaque parts are above
            elif type(found) is Text:
                return (found, *signed)
        return (*signed, found)

    def _usual(self, part: JSONObject, path: str) -> Part | None:
        """Return a call or a result with an id, a name, its data and nothing else, as nearly all; None for others."""
        call = part.get("functionCall")
        value = part.get("functionResponse") if call is None else call
        if type(value) is not dict or len(value) != 3:
            return None
        call_id, name = value.get("id"), value.get("name")
        data = value.get("response" if call is None else "args")
        if type(call_id) is not str or type(name) is not str or type(data) is not dict or not call_id:
            return None
        if call is not None:
            self._note_call(call_id, name)
            return ToolCall(call_id, name, encode_text(data), _FUNCTION, None, None, path, native=part)
        text, failed = _result_text(data)
        texts = (Text(text, None, None, f"{path}/functionResponse/response"),) if text else ()
        self._calls.answered(call_id, name)
        return ToolResult(call_id, texts, _FUNCTION, failed, None, path, native=part)

    def _signatures(self, part: JSONObject, kind: str | None, path: str) -> tuple[Part, ...]:
        """Return what a part's signature carries, as reasoning. Thoughts before it are the text of the first."""
        text = text_or_none(part.get(SIGNATURE))
        thoughts, self._thoughts = self._thoughts, []
        if text is None or text in PLACEHOLDERS:
            if part.get("thought") is True:
                self._thoughts = thoughts  # more may come
                return ()
            return tuple(thoughts)
        if part.get("thought") is not True:
            path = f"{path}/{SIGNATURE}"
        seen = part["text"] if part.get("thought") is True and type(part.get("text")) is str else ""
        if not self.signer.is_wrapped(text):
            native: JSONObject = {SIGNED: kind, SIGNATURE: text}
            if kind is None or part.get("thought") or not part[kind]:
                native = part  # there only for its signature, or thoughts
            elif kind not in _READERS:
                return tuple(thoughts)  # the part stays as it came
            return (*thoughts, Reasoning(seen, Signature(NAME, native), path))
        self._is_native = False
        carried = self.signer.unwrap_list(text)
        readable = "".join([*[thought.text for thought in thoughts], seen])
        blocks = [Reasoning("", signature, path) for signature in carried]
        if not blocks:
            return (*thoughts, Reasoning("", None, path, forged=True))
        return (msgspec.structs.replace(blocks[0], text=readable), *blocks[1:])

    def _text(self, part: JSONObject, path: str) -> Part:
        text = CHECKS.required(part, "text", path, STRING)
        if part.get("thought") is True:
            return Reasoning(text, None, path, native=part, shape=TEXT_SHAPE)
        return Text(text, path=path, native=part, shape=TEXT_SHAPE)

    def _call(self, part: JSONObject, path: str) -> Part:
        call, at = CHECKS.required(part, "functionCall", path, OBJECT), f"{path}/functionCall"
        rename(call)
        name = CHECKS.required(call, "name", at, STRING)
        text = encode_text(CHECKS.object(call, "args", at))
        call_id = CHECKS.optional(call, "id", at, STRING) or _made_id(path, name, text)
        self._note_call(call_id, name)
        return ToolCall(call_id, name, text, path=path, native=part, shape=CALL_SHAPE)

    def _note_call(self, call_id: str, name: str) -> None:
        if not self._has_calls:
            self._calls, self._has_calls = _Calls(), True
        self._calls.new.append((call_id, name))

    def _result(self, part: JSONObject, path: str) -> Part:
        result, at = CHECKS.required(part, "functionResponse", path, OBJECT), f"{path}/functionResponse"
        rename(result)
        name = CHECKS.optional(result, "name", at, STRING) or ""
        call_id = self._calls.answered(CHECKS.optional(result, "id", at, STRING), name)
        text, failed = _result_text(CHECKS.object(result, "response", at))
        content: list[Text | Media | OpaquePart] = [Text(text, path=f"{at}/response")] if text else []
        for index, inner in enumerate(CHECKS.objects(result, "parts", at)):
            media = self._media(inner, f"{at}/parts/{index}")
            if not isinstance(media, Media):
                kind = next(iter(inner), "part")
                media = OpaquePart(NAME, kind, inner, f"{at}/parts/{index}", _render(kind, inner.get(kind)))
            content.append(media)
        return ToolResult(
            call_id, tuple(content), is_error=failed, path=path, native=part, shape=RESULT_SHAPE
        )

    def _media(self, part: JSONObject, path: str) -> Part | None:
        read_settings(part, MEDIA_SHAPE, wrong_type, path)  # checks the types
        data = part.get("inlineData") or part.get("fileData") or {}
        media_type = data.get("mimeType") or ""
        kind = media_type.partition("/")[0]
        content: str | None = data.get("data")
        uri: str | None = data.get("fileUri")
        level = (part.get("mediaResolution") or {}).get("level")
        source: Literal["base64", "text", "url", "file_id"] = "base64"
        if kind == "video":
            return None
        if content is not None:
            if not content.isalnum():  # nearly always; clients may send the alphabet for URLs
                content = content.replace("-", "+").replace("_", "/")
                content += "=" * (-len(content) % 4)
            if media_type.startswith("text/") and (text := _plain_text(content)) is not None:
                source, content = "text", text
        elif uri is not None:
            is_public = uri.startswith(("https://", "http://")) and not uri.startswith(_FILES)
            source, content = "url" if is_public else "file_id", uri
        else:
            return None
        is_file = kind not in ("image", "audio")
        return Media(
            "file" if is_file else kind,  # type: ignore[arg-type]
            source,
            content,
            media_type or None,
            data.get("displayName") if is_file else None,
            DETAILS.get(level) if type(level) is str else None,
            path=path,
            native=part,
            shape=MEDIA_SHAPE if is_file else UNNAMED_SHAPE,
        )

    def _repair(self, path: str, detail: str) -> None:
        self.repairs.append(Loss(LossCode.REPAIRED, path, detail))
        self._is_native = False


# Members of a part that need no names, or get them from their readers.
_PLAIN_PART = frozenset(("text", "functionCall", "functionResponse", SIGNATURE))

# Where the vendor's API has the files that clients have uploaded.
_FILES = "https://generativelanguage.googleapis.com/"

_READERS: dict[str, Callable[[ConversationReader, JSONObject, str], Part | None]] = {
    "text": ConversationReader._text,
    "functionCall": ConversationReader._call,
    "functionResponse": ConversationReader._result,
    "inlineData": ConversationReader._media,
    "fileData": ConversationReader._media,
}


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
        return f"Code was run, with {data.get('outcome')}:\n{data.get('output') or ''}"
    if kind in ("inlineData", "fileData"):
        return "[video: left out, you cannot see it]"
    if kind == "audioTranscription":
        return text_or_none(data.get("text"))
    if kind == "toolResponse":
        return f"A tool of the provider returned:\n{encode_text(data.get('response'))}"
    return "" if kind == "toolCall" else None
