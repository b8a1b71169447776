"""Write messages as contents of two roles.

Parts of consecutive messages of one role join one content, but for what follows results: "Please ensure that the number
of function response parts is equal to the number of function call parts of the function call turn." (seen in recorded
responses, November 2026). System messages in mid-conversation are marked user text: moved to `systemInstruction` they
would change the cached prefix of every later request (CLIProxyAPI#5490, read 2026-11-23).
"""

from __future__ import annotations

from collections.abc import Sequence

from dragoman._ir.losses import Ledger, LossCode
from dragoman._ir.media_types import type_by_name
from dragoman._ir.native import overlaid
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
from dragoman._ir.tools import input_object
from dragoman._wire.json import JSONObject
from dragoman.protocols.gemini.capabilities import GeminiCapabilities as Capabilities
from dragoman.protocols.gemini.signatures import SignedParts
from dragoman.protocols.gemini.tables import DETAIL_NAMES, MEDIA_TYPES, NAME, SIGNED

_ROLES = {"assistant": "model", "user": "user"}


class ContentsWriter:
    """Builds `contents`.

    native: the request came in this protocol, so what no pass has changed is written as it came.
    """

    # No Struct, whose attributes take three times as long to set.
    def __init__(self, capabilities: Capabilities, ledger: Ledger, signed: SignedParts, native: bool) -> None:
        self._capabilities = capabilities
        self._ledger = ledger
        self._native = native
        self._signed = signed  # the last content, if it is the model's
        self._contents: list[JSONObject] = []
        self._names: dict[str, str] = {}  # of the calls, by their ids, because results have none
        self._open = ""  # the role of the last content, "" if it is the client's own
        self._parts: list[JSONObject] = []  # its parts
        # Of results that cannot hold them; they follow the turn's last result.
        self._media: list[JSONObject] = []

    def write(self, messages: Sequence[Message]) -> list[JSONObject]:
        """Return the contents for messages: each is one, or a part of the last one if the role is the same."""
        for message in messages:
            role = _ROLES.get(message.role)
            if role is None:
                self._add_system(message)
            elif self._native:
                self._add_native(message, role)
            elif message.plain_text and role != self._open:
                self._start(role, [{"text": message.plain_text}])  # most are
            else:
                for part in message.content or message.parts:
                    if type(part) is Text and role != self._open and part.text and part.citations is None:
                        self._start(role, [{"text": part.text}])  # a shortcut for most: no signature waits
                    else:
                        self._append(role, self._part(part, role))
        self._start("", [])
        return self._contents

    def _add_native(self, message: Message, role: str) -> None:
        """Write a message of this protocol: as it came, or its parts that did not change as they came."""
        self._names.update({part.call_id: part.name for part in message.parts if type(part) is ToolCall})
        if message.native is not None:
            self._start("", [])
            self._contents.append(message.native)
            return
        before = len(self._contents)
        for part in message.parts:
            self._append(role, self._part(part, role))
        if message.before is not None and before < len(self._contents):
            self._contents[-1] = {**message.before, **self._contents[-1]}

    def system_parts(self, message: Message) -> list[JSONObject]:
        """Return the parts of the instructions at the head of a conversation."""
        parts: list[JSONObject | None] = []
        for part in message.parts:
            if type(part) is Text or (type(part) is OpaquePart and part.origin == NAME):
                parts.append(self._part(part, "system"))
            else:
                self._ledger.dropped(part.path, "a system message can contain only text")
        return [part for part in parts if part is not None]

    def _add_system(self, message: Message) -> None:
        self._ledger.altered(
            message.path, "sent as marked user text: the upstream has no system role in mid-conversation"
        )
        for part in self.system_parts(message):
            self._append("user", {**part, "text": f"<system>\n{part.get('text')}\n</system>"})

    def _append(self, role: str, part: JSONObject | None) -> None:
        if part is None:
            return
        is_behind = role == "user" and "functionResponse" not in part and self._ends_with_result()
        if is_behind or role != self._open:
            self._start(role, [])
        if role == "model":
            self._signed.add(part)
        else:
            self._parts.append(part)

    def _ends_with_result(self) -> bool:
        return bool(self._parts) and "functionResponse" in self._parts[-1]

    def _start(self, role: str, parts: list[JSONObject]) -> None:
        """End the open content and begin one of this role, or none. Media of results go in between."""
        if self._media and self._ends_with_result():
            media, self._media = self._media, []
            if role == "user":
                parts[:0] = media
            else:
                self._contents.append({"role": "user", "parts": media})
        if self._open == "model" and (self._signed.waits or not self._parts) and not self._signed.finish():
            self._contents.pop()
        self._open, self._parts = role, parts
        if role == "model":
            self._signed.parts = parts
        if role:
            self._contents.append({"role": role, "parts": parts})

    # --- parts --------------------------------------------------------------------------------------------

    def _part(self, part: Part, role: str) -> JSONObject | None:
        """Return the part for one, None if it is empty, or not accepted here, or has only a signature."""
        # isinstance() of a struct takes ten times as long as this to say no.
        if self._native and part.native is not None and type(part) is not Reasoning:
            return part.native
        written: JSONObject | None = None
        if type(part) is Text:
            if part.citations is not None:
                self._ledger.altered(part.path, "sent without its citations: Gemini has none in requests")
            written = {"text": part.text} if part.text else None
        elif type(part) is ToolCall and role == "model":
            written = self._call(part)
        elif type(part) is ToolResult and role == "user":
            written = self._result(part)
        elif type(part) is Refusal:
            self._ledger.altered(part.path, "the refusal was sent as plain text")
            written = {"text": part.text} if part.text else None
        elif type(part) is Media:
            written = write_media(part, self._ledger)
        elif type(part) is Reasoning:
            written = self._reasoning(part, role)
        elif type(part) is not OpaquePart:
            self._ledger.dropped(part.path, "tool calls and results are not allowed here")
        elif part.origin == NAME:
            written = part.native
        else:
            self._ledger.add(LossCode.UNKNOWN_KIND, part.path, f"Gemini has no counterpart of {part.kind}")
        return overlaid(written, part) if self._native and written is not None else written  # type: ignore[arg-type]

    def _reasoning(self, part: Reasoning, role: str) -> JSONObject | None:
        """Write what this vendor has signed. Other reasoning is not required back, and none is accepted as thoughts."""
        signature = part.signature
        if role != "model":
            self._ledger.dropped(part.path, "only messages of the model can contain reasoning")
        elif signature is None:
            if self._native and part.native is not None:
                return part.native
            self._ledger.dropped(part.path, "unsigned reasoning: the upstream needs none back")
        elif signature.origin != NAME or type(signature.native) is not dict:
            self._ledger.foreign_reasoning(part.path, signature.origin)
        elif not (self._native and signature.native.get(SIGNED)):  # the part still has it
            if role != self._open:
                self._start(role, [])
            self._signed.sign(signature.native)
        return None

    def _call(self, part: ToolCall) -> JSONObject:
        self._names[part.call_id] = part.name
        arguments = input_object(part.input, part.path, self._ledger)
        if not self._capabilities.function_ids:
            return {"functionCall": {"name": part.name, "args": arguments}}
        return {"functionCall": {"id": part.call_id, "name": part.name, "args": arguments}}

    def _result(self, part: ToolResult) -> JSONObject:
        """Return the part of a result. Media that it cannot hold wait for its turn's end."""
        text = part.plain_text  # as most are
        texts: list[str] = []
        media: list[JSONObject] = []
        for inner in () if text else part.parts:
            written = self._part(inner, "result") or {"text": ""}
            if "text" in written:
                texts.append(written["text"])
            elif self._capabilities.tool_images:
                media.append(written)
            else:
                self._media.append(written)
                self._ledger.altered(inner.path, "moved out of the tool result into the content after it")
        # "use "output" key to specify function output and "error" key to specify error details" (google-genai 3.4.0).
        # It is an object, never a list or a text (vscode-copilot-chat#2745, read 2026-11-22).
        result: JSONObject = {"id": part.call_id} if self._capabilities.function_ids else {}
        result["name"] = self._names.get(part.call_id, part.call_id)
        text = text or "\n\n".join(filter(None, texts))
        result["response"] = {"error" if part.is_error else "output": text}
        if media:
            result["parts"] = media
        return {"functionResponse": result}


def write_media(part: Media, ledger: Ledger) -> JSONObject:
    """Return the part of an image, a file, a sound or a video. Raises RequestRefused (400)."""
    out: JSONObject
    if part.citations is not None:
        ledger.dropped(f"{part.path}/citations", "Gemini has no such setting for files")
    if part.source == "text":
        if part.context is not None:
            ledger.altered(f"{part.path}/context", "sent before the text of the document")
        return {"text": part.as_text()}
    if part.context is not None:
        ledger.dropped(f"{part.path}/context", "Gemini has no such setting for files")
    if part.source == "base64" or part.data.startswith("data:"):
        media_type, data = part.inline()
        inline: JSONObject = {"mimeType": media_type or MEDIA_TYPES[part.kind], "data": data}
        out = {"inlineData": inline}
    else:
        file_type = part.media_type or type_by_name(part.data, part.filename)
        file: JSONObject = {} if file_type is None else {"mimeType": file_type}
        out = {"fileData": {**file, "fileUri": part.data}}
    if part.filename is not None and "inlineData" in out:
        out["inlineData"]["displayName"] = part.filename
    elif part.filename is not None:
        ledger.altered(part.path, "sent without its name: Gemini has no such setting for files by URL")
    level = DETAIL_NAMES.get(part.detail) if type(part.detail) is str else None
    if level is not None:
        out["mediaResolution"] = {"level": level}
    elif part.detail not in (None, "auto"):
        ledger.altered(part.path, "sent without its detail: Gemini has no such resolution")
    return out
