"""Custom (free text) tools on upstreams that have only functions, and back.

The tool becomes a function with one required string, `input`. The model's arguments are then JSON text around that
string. While they stream, the string is unescaped piece by piece, so the client gets the raw input as soon as the model
writes it. Arguments of any other shape are held until the end.
"""

from __future__ import annotations

import re
from enum import Enum

import msgspec

from dragoman._ir.native import unknown_members
from dragoman._ir.tools import CustomTool, FunctionTool
from dragoman._wire.exceptions import RemoteProtocolError
from dragoman._wire.json import JSONObject, decode, encode_text

_SCHEMA: JSONObject = {
    "type": "object",
    "properties": {"input": {"type": "string", "description": "The whole input of the tool, as plain text."}},
    "required": ["input"],
    "additionalProperties": False,
}

_BLANKS = " \t\r\n"
_HEAD = r'[ \t\r\n]*\{[ \t\r\n]*"input"[ \t\r\n]*:[ \t\r\n]*"'
# Every proper prefix of something that _HEAD matches.
_HEAD_PREFIX = r'[ \t\r\n]*(\{[ \t\r\n]*("(i(n(p(u(t("[ \t\r\n]*(:[ \t\r\n]*)?)?)?)?)?)?)?)?)?\Z'
_TAIL = r"[ \t\r\n]*\}[ \t\r\n]*\Z"
_SPECIAL = re.compile(r'["\\]')
# A whole escape, or as much of a wrong one as is certainly wrong; nothing while more text could complete it.
_ESCAPE = re.compile(r"\\(?:u[0-9a-fA-F]{4}|u(?=[0-9a-fA-F]{0,3}[^0-9a-fA-F])|[^u])", re.DOTALL)
_ESCAPES = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}


class _Part(Enum):
    """The part of `{"input": "..."}` that the arguments have reached; OTHER is another shape."""

    HEAD = "head"
    STRING = "string"
    TAIL = "tail"
    OTHER = "other"


def custom_tool_as_function(tool: CustomTool, name: str) -> FunctionTool:
    """Return the function for a custom tool. A grammar is appended to the description."""
    lines = [tool.description or "", "Put the input of this tool, as plain text, into `input`."]
    if tool.grammar is not None:
        lines.append(f"The input must match this {tool.grammar.syntax} grammar:\n{tool.grammar.definition}")
    return FunctionTool(
        name=name,
        description="\n\n".join(line for line in lines if line),
        parameters=_SCHEMA,
        cache=tool.cache,
        path=tool.path,
        before=unknown_members(tool),
    )


def wrap_input(text: str) -> str:
    """Return a custom call's input as the arguments of its function."""
    return encode_text({"input": text})


class InputWrapper(msgspec.Struct):
    """Wraps a custom tool's input into the arguments of its function, piece by piece."""

    _begun: bool = False

    exact = True

    def feed(self, text: str) -> str:
        head = "" if self._begun else '{"input":"'
        self._begun = True
        return head + encode_text(text)[1:-1]

    def finish(self) -> str:
        """Return the end of the arguments."""
        return ("" if self._begun else '{"input":"') + '"}'


class InputUnwrapper(msgspec.Struct):
    """Unwraps a custom tool's input from the arguments of its function, piece by piece.

    feed() returns the input that is certain so far; finish() returns the rest. `exact` is False afterwards if the
    arguments had another shape, and the input is the model's text as it was.
    """

    _part: _Part = _Part.HEAD
    _pieces: list[str] = []  # text that is not decided yet
    _surrogate: str = ""  # a high surrogate that waits for its other half
    exact: bool = True

    def feed(self, text: str) -> str:
        self._pieces.append(text)
        if self._part is _Part.STRING:
            return self._unescape()
        # Blanks decide nothing. Skipping them keeps the work linear: models do write endless blanks.
        if self._part is _Part.HEAD and text.strip(_BLANKS):
            pending = "".join(self._pieces)
            self._pieces = [pending]
            head = re.match(_HEAD, pending)
            if head is not None:
                self._part = _Part.STRING
                self._pieces = [pending[head.end() :]]
                return self._unescape()
            if re.match(_HEAD_PREFIX, pending) is None:
                self._part = _Part.OTHER
        return ""

    def finish(self) -> str:
        """Return the rest of the input."""
        rest = "".join(self._pieces)
        if self._part in (_Part.HEAD, _Part.OTHER):
            self.exact = False
            return _only_string(rest)
        # Cut inside the string: what came is the input so far. Text after it other than `}` is no input.
        self.exact = self._part is _Part.TAIL and re.match(_TAIL, rest) is not None
        return self._surrogate

    def _unescape(self) -> str:
        """Decode as much of the pending string text as is complete."""
        out: list[str] = []
        text = "".join(self._pieces)
        at = 0
        while True:
            special = _SPECIAL.search(text, at)
            end = len(text) if special is None else special.start()
            if end > at:
                out.append(self._pop_surrogate() + text[at:end])
                at = end
            if special is None:
                break
            if text[at] == '"':
                out.append(self._pop_surrogate())
                self._part = _Part.TAIL
                at += 1
                break
            escape = _ESCAPE.match(text, at)
            if escape is None:
                break  # the escape is not complete yet
            at = escape.end()
            self._put_escaped(escape.group(), out)
        self._pieces = [text[at:]]
        return "".join(out)

    def _put_escaped(self, escape: str, out: list[str]) -> None:
        """Add the character of one escape. The halves of a surrogate pair are two escapes and one character."""
        if len(escape) < 6:
            # A wrong escape is kept as the model wrote it.
            out.append(self._pop_surrogate() + _ESCAPES.get(escape[1], escape))
            return
        code = int(escape[2:], 16)
        if self._surrogate and 0xDC00 <= code <= 0xDFFF:
            out.append(chr(0x10000 + ((ord(self._pop_surrogate()) - 0xD800) << 10) + (code - 0xDC00)))
            return
        out.append(self._pop_surrogate())
        if 0xD800 <= code <= 0xDBFF:
            self._surrogate = chr(code)
        else:
            out.append(chr(code))

    def _pop_surrogate(self) -> str:
        waiting, self._surrogate = self._surrogate, ""
        return waiting


def _only_string(text: str) -> str:
    """Return the input in arguments of another shape: the one string of an object, else the text as it is."""
    try:
        value = decode(text.encode("utf-8", "surrogatepass"))
    except RemoteProtocolError:
        return text
    if type(value) is dict and len(value) == 1:
        only = next(iter(value.values()))
        if type(only) is str:
            return only
    return value["input"] if type(value) is dict and type(value.get("input")) is str else text
