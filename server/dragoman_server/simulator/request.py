"""The parts of a request that scripts use: the last text of the user, the tools, their results, the size.

Everything is read from the core's request document, so that scripts work alike in all protocols.
"""

import base64
import binascii
import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

from dragoman.document import (
    CacheMark,
    CustomTool,
    FunctionTool,
    HostedTool,
    Media,
    Message,
    OpaquePart,
    Reasoning,
    Refusal,
    Request,
    Text,
    ToolCall,
    ToolResult,
)
from dragoman.events import ToolHead, ToolKind
from dragoman_server.simulator.example import example_text

# Tokens of an image or a file. Vendors count by its size.
_MEDIA_TOKENS = 100

_CALL = re.compile(r"^call[ \t]+(\S+)[ \t]*", re.MULTILINE)

# More calls than any client makes in one turn. The search for one may take time in proportion to the text.
_MAX_CALLS = 128

# The prefixes of call ids that vendors' clients expect.
_CALL_PREFIX = {"anthropic_messages": "toolu_"}

AnyPart = Text | Refusal | Media | Reasoning | ToolCall | ToolResult | OpaquePart


@dataclass(frozen=True, slots=True)
class SimulatedRequest:
    """One request, as scripts use it.

    document: the core's request document. token: a hash of the request, for ids.
    setting: the number after `@`, or the model's default.
    """

    document: Request
    token: str
    setting: float

    @property
    def max_tokens(self) -> int | None:
        """The client's limit for generated tokens."""
        limit = self.document.params.get("max_output_tokens")
        return limit if isinstance(limit, int) else None

    @property
    def user_text(self) -> str:
        """The text of the last message of the user that has any."""
        for message in reversed(self.document.messages):
            if message.role == "user":
                text = "\n".join(part.text for part in message.parts if isinstance(part, Text))
                if text.strip():
                    return text
        return ""

    @property
    def parts(self) -> Iterator[AnyPart]:
        """All parts of the conversation. Those in tool results follow the result."""
        for message in self.document.messages:
            yield from _flat(message)

    @property
    def results(self) -> list[ToolResult]:
        """The tool results since the assistant's last message.

        Clients put notes beside the results, in the same message; text in a message of its own is a new turn.
        """
        talk = [message for message in self.document.messages if message.role in ("user", "assistant")]
        found: list[ToolResult] = []
        if not talk or not any(isinstance(part, ToolResult) for part in talk[-1].parts):
            return found
        while talk and talk[-1].role == "user":
            found[:0] = [part for part in talk.pop().parts if isinstance(part, ToolResult)]
        return found

    @property
    def tools(self) -> list[FunctionTool | CustomTool]:
        """The client's own tools that may be called."""
        choice = self.document.tool_choice
        tools = [tool for tool in self.document.tools if not isinstance(tool, HostedTool)]
        if choice is None:
            return tools
        if choice.mode == "none":
            return []
        if choice.mode == "named":
            return [t for t in tools if t.name == choice.name and t.namespace in (choice.namespace, None)]
        if choice.mode == "allowed":
            named = {(ref.namespace, ref.name) for ref in choice.allowed}
            return [tool for tool in tools if (tool.namespace, tool.name) in named]
        return tools

    @property
    def parallel(self) -> bool:
        """True if several calls may be made at once."""
        return self.document.parallel_tool_calls is not False

    def tool_head(self, tool: FunctionTool | CustomTool, number: int) -> ToolHead:
        """Return the head of tool call `number` of the response."""
        kind = ToolKind.CUSTOM if isinstance(tool, CustomTool) else ToolKind.FUNCTION
        prefix = _CALL_PREFIX.get(self.document.protocol, "call_")
        return ToolHead(f"{prefix}{self.token[:20]}{number}", tool.name, kind, tool.namespace)

    def requested_calls(self) -> list[tuple[FunctionTool | CustomTool, str]]:
        """Return the calls that the user requested by lines `call NAME INPUT`, with their inputs.

        The input of a function is one JSON object or, if that is none, the rest of the line; without any it
        is made from the schema. A custom tool gets all of the text that follows. NAME need not be offered.
        """
        offered = {tool.name: tool for tool in self.tools}
        text, at = self.user_text, 0
        found: list[tuple[FunctionTool | CustomTool, str]] = []
        while len(found) < _MAX_CALLS and (match := _CALL.search(text, at)) is not None:
            tool = offered.get(match.group(1)) or FunctionTool(match.group(1))
            at = match.end()
            if isinstance(tool, CustomTool):
                found.append((tool, text[at:]))
                break
            end = _end_of_input(text, at)
            found.append((tool, text[at:end] or example_text(tool.parameters)))
            at = end
        return found

    def quote_results(self) -> str:
        """Return the tool results as text."""
        names = {part.call_id: part.name for part in self.parts if isinstance(part, ToolCall)}
        lines = []
        for result in self.results:
            verb = "failed" if result.is_error else "returned"
            content = "\n".join(filter(None, map(_quote, result.parts)))
            lines.append(f"{names.get(result.call_id, 'An unknown tool')} {verb}: {content or '(nothing)'}")
        return "\n".join(lines)


def _flat(message: Message) -> Iterator[AnyPart]:
    for part in message.parts:
        yield part
        if isinstance(part, ToolResult):
            yield from part.parts


def _end_of_input(text: str, at: int) -> int:
    """Return the end of the input that starts at `at`: of the JSON object, else of the line."""
    if text.startswith("{", at):
        try:
            return json.JSONDecoder().raw_decode(text, at)[1]
        except (ValueError, RecursionError):
            pass
    line = text.find("\n", at)
    return len(text) if line < 0 else line


def _quote(part: Text | Media | OpaquePart) -> str:
    if isinstance(part, Text):
        return part.text
    return describe(part) if isinstance(part, Media) else f"[{part.kind}]"


def describe(media: Media) -> str:
    """Return a text for an image, file or sound: its kind, its type, and the length and hash of its bytes."""
    names = [media.kind, media.media_type or "type unknown"]
    if media.filename is not None:
        names.append(f'"{media.filename}"')
    if media.source in ("url", "file_id"):
        return f"[{', '.join(names)}, {media.source} {media.data}]"
    data = media.data.encode("utf-8", "surrogatepass")
    if media.source == "base64":
        try:
            data = base64.b64decode(data, validate=True)
        except binascii.Error:
            return f"[{', '.join(names)}, not valid base64]"
    digest = hashlib.sha256(data).hexdigest()[:8]
    return f"[{', '.join(names)}, {len(data)} bytes, sha256 {digest}]"


@dataclass(frozen=True, slots=True)
class PromptTokens:
    """The tokens of the prompt. total: all. cached: read from a cache. cache_write: written to it."""

    total: int
    cached: int
    cache_write: int


def prompt_tokens(request: Request) -> PromptTokens:
    """Count the tokens of a request; one word is one token.

    Everything before the assistant's last turn has been sent before, so it counts as cached. A breakpoint of the client
    writes what follows, up to the breakpoint.
    """
    turns = [index for index, message in enumerate(request.messages) if message.role == "assistant"]
    before = turns[-1] if turns else 0
    while before > 0 and request.messages[before - 1].role == "assistant":
        before -= 1
    total = cached = marked = 0
    for index, message in enumerate(request.messages):
        if index == before:
            cached = total
        for part in _flat(message):
            total += _cost(part)
            if isinstance(getattr(part, "cache", None), CacheMark):
                marked = total
    return PromptTokens(total, cached, max(0, marked - cached))


def _cost(part: AnyPart) -> int:
    if isinstance(part, Text | Refusal | Reasoning):
        return len(part.text.split())
    if isinstance(part, ToolCall):
        return len(part.input.split())
    return _MEDIA_TOKENS if isinstance(part, Media) else 0
