"""Custom (free text) tools on upstreams that only know functions, and back.

Strategy: the tool becomes a function with one required string, `input`. The model's arguments are then JSON
text around that string; while they stream, the string is unescaped piece by piece, so the client sees the raw
input as soon as the model writes it. Arguments of any other shape are held and judged at the end.
"""

from __future__ import annotations

import re

from ._errors import RemoteProtocolError
from ._json import JSONObject, decode, encode_text
from ._request import CustomTool, FunctionTool

_SCHEMA: JSONObject = {
    "type": "object",
    "properties": {"input": {"type": "string", "description": "The whole input of the tool, as plain text."}},
    "required": ["input"],
    "additionalProperties": False,
}

_HEAD = re.compile(r'[ \t\r\n]*\{[ \t\r\n]*"input"[ \t\r\n]*:[ \t\r\n]*"')
# Every proper prefix of something that _HEAD matches.
_HEAD_PREFIX = re.compile(
    r'[ \t\r\n]*(\{[ \t\r\n]*("(i(n(p(u(t("[ \t\r\n]*(:[ \t\r\n]*)?)?)?)?)?)?)?)?)?\Z'
)
_TAIL = re.compile(r"[ \t\r\n]*\}[ \t\r\n]*\Z")
_SPECIAL = re.compile(r'["\\]')
_ESCAPES = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}


def as_function(tool: CustomTool, name: str) -> FunctionTool:
    """The function that stands in for a custom tool. A grammar is told to the model in the description."""
    lines = [tool.description or "", "Put the input of this tool, as plain text, into `input`."]
    if tool.grammar is not None:
        lines.append(f"The input must match this {tool.grammar.syntax} grammar:\n{tool.grammar.definition}")
    return FunctionTool(
        name=name,
        description="\n\n".join(line for line in lines if line),
        parameters=_SCHEMA,
        cache=tool.cache,
        extra=tool.extra,
        path=tool.path,
    )


def wrap_input(text: str) -> str:
    """A custom call's input as the arguments of the function that stands in."""
    return encode_text({"input": text})


class InputUnwrapper:
    """Arguments text of the stand-in function in, the custom tool's input out, piece by piece.

    feed() gives what can be shown already; finish() gives the rest. `exact` is False afterwards when the
    arguments did not have the agreed shape, and the input is the model's text as it was.
    """

    __slots__ = ("_in_string", "_pending", "_surrogate", "_tail", "exact")

    def __init__(self) -> None:
        self._pending = ""  # text that is not decided yet
        self._in_string = False
        self._tail: str | None = None  # what follows the closing quote
        self._surrogate = ""  # a high surrogate that waits for its other half
        self.exact = True

    def feed(self, text: str) -> str:
        if self._tail is not None:
            self._tail += text
            return ""
        self._pending += text
        if not self._in_string:
            head = _HEAD.match(self._pending)
            if head is None:
                # Either the head is not complete yet, or this is another shape: finish() decides.
                self.exact = self.exact and _HEAD_PREFIX.match(self._pending) is not None
                return ""
            if not self.exact:
                return ""
            self._pending = self._pending[head.end() :]
            self._in_string = True
        return self._unescape()

    def finish(self) -> str:
        """The arguments are complete. Gives what is left of the input."""
        if self._in_string:
            rest = self._surrogate
            self._surrogate = ""
            # Cut inside the string: what came is the input so far. Text after it other than `}` is no input.
            self.exact = self._tail is not None and _TAIL.match(self._tail) is not None
            return rest
        self.exact = False
        return _only_string(self._pending)

    def _unescape(self) -> str:
        """Decode as much of the pending string text as is complete."""
        out: list[str] = []
        text = self._pending
        at = 0
        while True:
            special = _SPECIAL.search(text, at)
            if special is None:
                self._put(out, text[at:])
                at = len(text)
                break
            self._put(out, text[at : special.start()])
            at = special.start()
            if text[at] == '"':
                self._put(out, "", flush=True)
                self._tail = text[at + 1 :]
                at = len(text)
                break
            length = 6 if text[at + 1 : at + 2] == "u" else 2
            escape = text[at : at + length]
            if len(escape) < length:
                break  # the escape is not complete yet
            at += length
            self._put(out, _escaped(escape))
        self._pending = text[at:]
        return "".join(out)

    def _put(self, out: list[str], text: str, *, flush: bool = False) -> None:
        """Add text, joining the two halves of a surrogate pair that came as two escapes."""
        if self._surrogate and (text or flush):
            pair = self._surrogate + text[:1]
            if "\udc00" <= text[:1] <= "\udfff":
                out.append(pair.encode("utf-16", "surrogatepass").decode("utf-16"))
                text = text[1:]
            else:
                out.append(self._surrogate)
            self._surrogate = ""
        if len(text) == 1 and "\ud800" <= text <= "\udbff":
            self._surrogate = text
        elif text:
            out.append(text)


def _escaped(escape: str) -> str:
    """The character of one complete escape. A wrong one stands for itself: the model wrote it."""
    if len(escape) == 6:
        try:
            return chr(int(escape[2:], 16))
        except ValueError:
            return escape
    return _ESCAPES.get(escape[1], escape)


def _only_string(text: str) -> str:
    """The input in arguments of another shape: the one string of an object, else the text as it is."""
    try:
        value = decode(text.encode("utf-8", "surrogatepass"))
    except RemoteProtocolError:
        return text
    if type(value) is dict and len(value) == 1:
        only = next(iter(value.values()))
        if type(only) is str:
            return only
    return value["input"] if type(value) is dict and type(value.get("input")) is str else text
