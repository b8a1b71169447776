"""The parts of a request that scripts use: the last text of the user, the tools, their results, the size.

Everything is read from the core's request document, so that scripts work alike in all protocols.
"""

import base64
import binascii
import hashlib
import json
import re
from collections.abc import Iterator
from itertools import chain
from typing import TypeAlias

import msgspec

from dragoman.document import (
    CacheMark,
    CustomTool,
    FunctionTool,
    HostedTool,
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
from dragoman_server.simulator.example import example_text

# Tokens of an image or a file. Vendors count by its size.
_MEDIA_TOKENS = 100

_BLANK_LINE = r"\n[ \t]*+\n"
_CALL = re.compile(r"^call[ \t]+(\S+)[ \t]*", re.MULTILINE)

# More calls than any client makes in one turn. The search for one may take time in proportion to the text.
_MAX_CALLS = 128

ClientTool: TypeAlias = FunctionTool | CustomTool


class SimulatedRequest(msgspec.Struct, frozen=True):
    """One request, as scripts use it.

    Attributes:
        document: The core's request document.
        token: A hash of the request, for ids.
        number: The number after `@` in the model's name, or its default.
    """

    document: Request
    token: str
    number: float

    @property
    def max_tokens(self) -> int | None:
        """The client's limit for generated tokens."""
        limit = self.document.params.get("max_output_tokens")
        return limit if isinstance(limit, int) else None

    @property
    def stop_sequences(self) -> list[str]:
        """The texts at which the response has to stop."""
        value = self.document.params.get("stop")
        values = value if isinstance(value, list) else [value]
        return [text for text in values if isinstance(text, str) and text]

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
    def last_paragraph(self) -> str:
        """The last paragraph that the user has written.

        Agents put reminders and examples before it, in other blocks and other paragraphs.
        """
        for message in reversed(self.document.messages):
            if message.role == "user":
                for part in reversed(message.parts):
                    if isinstance(part, Text) and part.text.strip():
                        return [each for each in re.split(_BLANK_LINE, part.text) if each.strip()][-1]
        return ""

    @property
    def parts(self) -> Iterator[Part]:
        """All parts of the conversation. Those in tool results follow the result."""
        for message in self.document.messages:
            yield from _flat(message)

    @property
    def results(self) -> list[ToolResult]:
        """The tool results since the assistant's last message.

        Clients put notes next to the results, in the same message; text in a separate message is a new turn.
        """
        found: list[list[ToolResult]] = []
        for message in self.document.messages:
            if message.role == "assistant":
                found = []
            elif message.role == "user":
                found.append([part for part in message.parts if isinstance(part, ToolResult)])
        return list(chain.from_iterable(found)) if found and found[-1] else []

    @property
    def tools(self) -> list[ClientTool]:
        """The client's own tools that may be called."""
        tools = [tool for tool in self.document.tools if not isinstance(tool, HostedTool)]
        choice = self.document.tool_choice
        if choice is None or choice.mode in ("auto", "required"):
            return tools
        if choice.mode == "named":
            return [t for t in tools if t.name == choice.name and t.namespace in (choice.namespace, None)]
        allowed = {(ref.namespace, ref.name) for ref in choice.allowed}  # none in the mode "none"
        return [tool for tool in tools if (tool.namespace, tool.name) in allowed]

    def requested_calls(self) -> list[tuple[ClientTool, str]]:
        """Return the calls that the user requested by lines `call NAME INPUT`, with their inputs.

        The input of a function is one JSON object or, if that is none, the rest of the line; without any it
        is made from the schema. A custom tool gets all of the text that follows. NAME need not be offered.
        """
        offered = {tool.name: tool for tool in self.tools}
        text, at = self.user_text, 0
        found: list[tuple[ClientTool, str]] = []
        while len(found) < _MAX_CALLS and (match := _CALL.search(text, at)) is not None:
            tool = offered.get(match.group(1)) or FunctionTool(match.group(1))
            at = match.end()
            if isinstance(tool, CustomTool):
                return [*found, (tool, text[at:])]
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
            content = "\n".join(filter(None, map(describe, result.parts)))
            lines.append(f"{names.get(result.call_id, 'An unknown tool')} {verb}: {content or '(nothing)'}")
        return "\n".join(lines)

    def prompt_tokens(self) -> tuple[int, int, int]:
        """Return the tokens of the prompt, those read from a cache, and those written to it; one word is one token.

        Everything before the assistant's last turn has been sent before, so it counts as cached. A breakpoint of the
        client writes what follows, up to the breakpoint.
        """
        total = cached = marked = 0
        role = None
        for message in self.document.messages:
            if message.role == "assistant" and role != "assistant":
                cached = total
            role = message.role
            for part in _flat(message):
                total += _cost(part)
                if isinstance(getattr(part, "cache", None), CacheMark):
                    marked = total
        return total, cached, max(0, marked - cached)


def _flat(message: Message) -> Iterator[Part]:
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


def describe(part: Text | Media | OpaquePart) -> str:
    """Return a text as it is; for an image, file or sound its kind, its type, and the length and hash of its bytes."""
    if isinstance(part, Text):
        return part.text
    if isinstance(part, OpaquePart):
        return f"[{part.kind}]"
    facts = [part.kind, part.media_type or "type unknown"]
    if part.filename is not None:
        facts.append(f'"{part.filename}"')
    try:
        if part.source in ("url", "file_id"):
            facts.append(f"{part.source} {part.data}")
        else:
            data = part.data.encode("utf-8", "surrogatepass")
            data = base64.b64decode(data, validate=True) if part.source == "base64" else data
            facts += [f"{len(data)} bytes", f"sha256 {hashlib.sha256(data).hexdigest()[:8]}"]
    except binascii.Error:
        facts.append("not valid base64")
    return f"[{', '.join(facts)}]"


def _cost(part: Part) -> int:
    if isinstance(part, Text | Refusal | Reasoning):
        return len(part.text.split())
    if isinstance(part, ToolCall):
        return len(part.input.split())
    return _MEDIA_TOKENS if isinstance(part, Media) else 0
