"""A client's body -> the request document.

Strategy: messages are read one after the other, blocks by `_read_blocks`, tools by `_read_tools`, settings by
`_read_settings`; what none of them knows is kept. What the newer forms say in the middle of the conversation (more
tools, another effort, a summary in place of what came before) is put where the document has it. A message of plain
text, by far the commonest, takes a short way.
"""

from __future__ import annotations

import msgspec

from dragoman._ir.request import (
    FunctionTool,
    Message,
    OpaquePart,
    Part,
    Request,
    Text,
    Tool,
    ToolResult,
)
from dragoman._ir.signatures import Sealer
from dragoman._wire.json import JSON, JSONObject
from dragoman.protocols.anthropic_messages.read_blocks import Reading, read_content
from dragoman.protocols.anthropic_messages.read_settings import (
    Later,
    read_compaction,
    read_reasoning,
    read_response_format,
    read_settings,
)
from dragoman.protocols.anthropic_messages.read_tools import (
    read_tool,
    read_tool_choice,
    read_tools,
)
from dragoman.protocols.anthropic_messages.tables import BILLING_HEADER, DEFINED, NAME, PARAM_PATHS
from dragoman.protocols.anthropic_messages.values import (
    invalid,
    object_of,
    optional,
    required,
    word,
)
from dragoman.protocols.anthropic_messages.wire import KNOWN_BODY, KNOWN_MESSAGE_PARAM, extra_of

_ROLES = ("user", "assistant", "system")

# The paths of the first messages, made once: to print a number costs as much as to build a message.
_PATHS = tuple([f"/messages/{index}" for index in range(512)])


def read_request(body: JSONObject, sealer: Sealer) -> Request:
    """The request that a body stands for. Raises RemoteProtocolError (400) with the path of what is wrong."""
    model = required(body, "model", "", str, "string")
    required(body, "max_tokens", "", int, "integer")
    messages = required(body, "messages", "", list, "list")
    reading = Reading(sealer)
    read: list[Message] = []
    system = body.get("system")
    if system is not None:
        parts = _without_header(read_content(system, "/system", reading), system)
        if parts:
            read.append(Message("system", parts, "/system"))
    lead = len(read)
    later: Later | None = None
    directs = False  # there are system messages in mid-conversation
    for index, message in enumerate(messages):
        path = _PATHS[index] if index < len(_PATHS) else f"/messages/{index}"
        if type(message) is not dict:
            raise invalid(path, "Input should be an object")
        role = message.get("role")
        if role not in _ROLES:
            raise invalid(f"{path}/role", "Input should be 'user', 'assistant' or 'system'")
        content = message.get("content")
        if content is None and not (role == "system" and "output_config" in message):
            raise invalid(f"{path}/content", "Field required")
        if type(content) is str and content:
            parts = (Text(content, None, None, None, path + "/content"),)  # the short way
        else:
            parts = () if content is None else read_content(content, f"{path}/content", reading)
        if role == "system":
            directs = True
        if len(message) == 2 and content is not None:
            read.append(Message(role, parts, path))
            continue
        if role == "system" and message.get("output_config") is not None:
            later = _effort(message, path) or later
        read.append(Message(role, parts, path, extra=extra_of(message, KNOWN_MESSAGE_PARAM)))
    if reading.summary is not None:
        read = _from_summary(read, lead, reading.summary)
    if later is not None:
        read = [_without_effort(message, later) for message in read]
    left: JSONObject = extra_of(body, KNOWN_BODY) or {}
    tools = read_tools(body, left)
    if directs or _defers(tools):
        tools = _changed(tools, read, lead)
    choice, parallel = read_tool_choice(body, tools, left)
    compact, how = read_compaction(body, left)
    if how is not None:
        read.append(how)
    return Request(
        protocol=NAME,
        model=model,
        messages=tuple(read),
        raw=body,
        tools=tuple(tools),
        tool_choice=choice,
        parallel_tool_calls=parallel,
        parallel_path="/tool_choice/disable_parallel_tool_use",
        stream=body.get("stream") is True,
        params=read_settings(body, left),
        param_paths=PARAM_PATHS,
        reasoning=read_reasoning(body, later, left),
        response_format=read_response_format(body, left),
        extra=left or None,
        defined=DEFINED,
        compact=compact,
    )


def _without_header(parts: tuple[Part, ...], system: JSON) -> tuple[Part, ...]:
    """The parts of the system text, with the line apart that Claude Code puts there for its provider.

    The line is another one in each request, so that no cache would find what stands behind it.
    """
    first = parts[0] if parts else None
    if type(first) is not Text or not first.text.startswith(BILLING_HEADER):
        return parts
    line, _, rest = first.text.partition("\n")
    if rest.strip():
        parts = (msgspec.structs.replace(first, text=rest.lstrip("\n")), *parts[1:])
        block: JSON = {"type": "text", "text": line}
    else:
        parts = parts[1:]
        block = {"type": "text", "text": system} if type(system) is str else system[0]
    return (OpaquePart(NAME, "billing header", block, first.path, ""), *parts)


# --- what is said in mid-conversation ---------------------------------------------------------------------


def _effort(message: JSONObject, path: str) -> Later | None:
    config = object_of(message, "output_config", path)
    effort = optional(config, "effort", f"{path}/output_config", str, "string")
    return None if effort is None else (f"{path}/output_config/effort", effort)


def _without_effort(message: Message, later: Later) -> Message:
    """The message without the effort that became that of the request."""
    if message.extra is None or f"{message.path}/output_config/effort" != later[0]:
        return message
    extra = dict(message.extra)
    config = {key: value for key, value in extra.pop("output_config").items() if key != "effort"}
    if config:
        extra["output_config"] = config
    return msgspec.structs.replace(message, extra=extra or None)


def _from_summary(read: list[Message], lead: int, summary: Text) -> list[Message]:
    """The conversation from a summary on: "all content blocks before it are ignored"."""
    number, at = next(
        (number, at)
        for number, message in enumerate(read)
        for at, part in enumerate(message.parts)
        if part is summary
    )
    message = read[number]
    rest = message.parts[at + 1 :]
    after = [msgspec.structs.replace(message, parts=rest)] if rest else []
    return [*read[:lead], Message("user", (summary,), summary.path), *after, *read[number + 1 :]]


def _defers(tools: list[Tool]) -> bool:
    return any(isinstance(tool, FunctionTool) and tool.deferred for tool in tools)


def _changed(tools: list[Tool], read: list[Message], lead: int) -> list[Tool]:
    """The tools with those that the conversation brings, and without deferring those that it has shown."""
    shown: set[str] = set()
    more: list[Tool] = []
    for message in read[lead:]:
        for part in message.parts:
            if type(part) is ToolResult:
                for inner in part.parts:
                    if type(inner) is OpaquePart and inner.kind == "tool_reference":
                        shown.add(word(inner.native.get("tool_name")))
            elif type(part) is OpaquePart and part.kind == "tool_addition":
                tool = object_of(part.native, "tool", part.path)
                if tool.get("type") == "tool_definition":
                    definition = required(tool, "definition", f"{part.path}/tool", dict, "dictionary")
                    more.append(read_tool(definition, f"{part.path}/tool/definition", {}))
                else:
                    shown.add(word(tool.get("name")))
    return [_shown(tool, shown) for tool in tools] + more


def _shown(tool: Tool, shown: set[str]) -> Tool:
    if isinstance(tool, FunctionTool) and tool.deferred and tool.name in shown:
        return msgspec.structs.replace(tool, deferred=False)
    return tool
