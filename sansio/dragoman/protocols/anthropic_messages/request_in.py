"""A client's body -> the request document.

Strategy: messages are read one after the other, blocks by `_read_blocks`, tools by `_read_tools`, settings by
`_read_settings`; what none of them knows is kept. What the newer forms say in the middle of the conversation (more
tools, another effort, a summary in place of what came before) is put where the document has it. A message of plain
text, by far the commonest, takes a short way.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from dragoman._ir.parameters import read_params
from dragoman._ir.request import (
    FunctionTool,
    Message,
    OpaquePart,
    Param,
    Part,
    ReasoningConfig,
    Request,
    ResponseFormat,
    Text,
    Tool,
    ToolResult,
)
from dragoman._ir.signatures import Signer
from dragoman._wire.json import JSON, JSONObject
from dragoman.protocols.anthropic_messages.checks import (
    KNOWN_BODY,
    KNOWN_CACHE_CONTROL,
    KNOWN_COMPACT_EDIT,
    KNOWN_COMPACTION,
    KNOWN_CONTEXT_MANAGEMENT,
    KNOWN_MESSAGE,
    KNOWN_METADATA,
    KNOWN_OUTPUT_CONFIG,
    KNOWN_OUTPUT_FORMAT,
    KNOWN_THINKING,
    KNOWN_TRIGGER,
    collect_extra,
    extra_fields,
    invalid_request,
    object_list,
    optional_field,
    optional_object,
    required_field,
    text_or_empty,
)
from dragoman.protocols.anthropic_messages.messages_in import ReadContext, read_content
from dragoman.protocols.anthropic_messages.tables import (
    BILLING_HEADER,
    CACHE_OPTION_TTLS,
    COMPACT_EDIT,
    DEFAULT_COMPACT_THRESHOLD,
    KEEP_THINKING_EDIT,
    NAME,
    NATIVE_FIELDS,
    PARAM_PATHS,
    PARAM_TYPES,
    PARAMS,
    REQUEST_TIERS,
)
from dragoman.protocols.anthropic_messages.tools import read_tool, read_tool_choice, read_tools

_ROLES = ("user", "assistant", "system")

# The paths of the first messages, made once: to print a number costs as much as to build a message.
_PATHS = tuple([f"/messages/{index}" for index in range(512)])


def read_request(body: JSONObject, signer: Signer) -> Request:
    """The request that a body stands for. Raises RemoteProtocolError (400) with the path of what is wrong."""
    model = required_field(body, "model", "", str, "string")
    required_field(body, "max_tokens", "", int, "integer")
    messages = required_field(body, "messages", "", list, "list")
    reading = ReadContext(signer)
    read: list[Message] = []
    system = body.get("system")
    if system is not None:
        parts = _without_header(read_content(system, "/system", reading), system)
        if parts:
            read.append(Message("system", parts, "/system"))
    lead = len(read)
    later: EffortOverride | None = None
    directs = False  # there are system messages in mid-conversation
    for index, message in enumerate(messages):
        path = _PATHS[index] if index < len(_PATHS) else f"/messages/{index}"
        if type(message) is not dict:
            raise invalid_request(path, "Input should be an object")
        role = message.get("role")
        if role not in _ROLES:
            raise invalid_request(f"{path}/role", "Input should be 'user', 'assistant' or 'system'")
        content = message.get("content")
        if content is None and not (role == "system" and "output_config" in message):
            raise invalid_request(f"{path}/content", "Field required")
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
        read.append(Message(role, parts, path, extra=extra_fields(message, KNOWN_MESSAGE)))
    if reading.summary is not None:
        read = _from_summary(read, lead, reading.summary)
    if later is not None:
        read = [_without_effort(message, later) for message in read]
    left: JSONObject = extra_fields(body, KNOWN_BODY) or {}
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
        defined=NATIVE_FIELDS,
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


def _effort(message: JSONObject, path: str) -> EffortOverride | None:
    config = optional_object(message, "output_config", path)
    effort = optional_field(config, "effort", f"{path}/output_config", str, "string")
    return None if effort is None else (f"{path}/output_config/effort", effort)


def _without_effort(message: Message, later: EffortOverride) -> Message:
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
                        shown.add(text_or_empty(inner.native.get("tool_name")))
            elif type(part) is OpaquePart and part.kind == "tool_addition":
                tool = optional_object(part.native, "tool", part.path)
                if tool.get("type") == "tool_definition":
                    definition = required_field(tool, "definition", f"{part.path}/tool", dict, "dictionary")
                    more.append(read_tool(definition, f"{part.path}/tool/definition", {}))
                else:
                    shown.add(text_or_empty(tool.get("name")))
    return [_shown(tool, shown) for tool in tools] + more


def _shown(tool: Tool, shown: set[str]) -> Tool:
    if isinstance(tool, FunctionTool) and tool.deferred and tool.name in shown:
        return msgspec.structs.replace(tool, deferred=False)
    return tool


# The effort that a message in mid-conversation asks for: where, and which.
EffortOverride = tuple[str, str]


def read_settings(body: JSONObject, left: JSONObject) -> dict[Param, JSON]:
    """The plain settings by neutral name. left: takes unknown fields."""
    for name, kinds, what in PARAM_TYPES:
        if body.get(name) is not None and type(body[name]) not in kinds:
            raise invalid_request(f"/{name}", f"Input should be a valid {what}")
    params = read_params(body, PARAMS)
    for index, text in enumerate(params.get("stop", ())):
        if type(text) is not str:
            raise invalid_request(f"/stop_sequences/{index}", "Input should be a valid string")
    if "service_tier" in params:
        params["service_tier"] = REQUEST_TIERS.get(params["service_tier"], params["service_tier"])
    if body.get("metadata") is not None:
        metadata = optional_object(body, "metadata", "")
        user = optional_field(metadata, "user_id", "/metadata", str, "string")
        if user is not None:
            params["user"] = user
        collect_extra(left, "metadata", extra_fields(metadata, KNOWN_METADATA))
    if body.get("cache_control") is not None:
        params["prompt_cache_options"] = _cache_options(body, left)
    if body.get("context_management") is not None:
        compactions = _read_compactions(body, left)
        if compactions:
            params["context_management"] = compactions
    return params


def _cache_options(body: JSONObject, left: JSONObject) -> JSONObject:
    """A mark at the top level asks for what the others call the implicit mode."""
    mark = optional_object(body, "cache_control", "")
    options: JSONObject = {"mode": "implicit"}
    unknown = extra_fields(mark, KNOWN_CACHE_CONTROL) or {}
    ttl: JSON = mark.get("ttl")
    if text_or_empty(ttl) in CACHE_OPTION_TTLS:
        options["ttl"] = CACHE_OPTION_TTLS[text_or_empty(ttl)]
    elif ttl is not None:
        unknown["ttl"] = ttl
    if mark.get("type") not in (None, "ephemeral"):
        unknown["type"] = mark["type"]
    collect_extra(left, "cache_control", unknown)
    return options


def _read_compactions(body: JSONObject, left: JSONObject) -> list[JSON]:
    """The edits that sum up the conversation, in the form of the others; the rest is unknown to them."""
    management = optional_object(body, "context_management", "")
    compactions: list[JSON] = []
    others: list[JSON] = []
    for index, edit in enumerate(object_list(management, "edits", "/context_management")):
        if edit == KEEP_THINKING_EDIT:
            continue
        if edit.get("type") != COMPACT_EDIT:
            others.append(edit)
            continue
        trigger = optional_object(edit, "trigger", f"/context_management/edits/{index}")
        value = trigger.get("value", DEFAULT_COMPACT_THRESHOLD)
        compactions.append({"type": "compaction", "compact_threshold": value})
        more = extra_fields(edit, KNOWN_COMPACT_EDIT) or {}
        collect_extra(more, "trigger", extra_fields(trigger, KNOWN_TRIGGER))
        if trigger.get("type") not in (None, "input_tokens"):
            collect_extra(more, "trigger", {"type": trigger["type"]})
        if more:
            others.append(more)
    unknown = extra_fields(management, KNOWN_CONTEXT_MANAGEMENT) or {}
    if others:
        unknown["edits"] = others
    collect_extra(left, "context_management", unknown)
    return compactions


def read_compaction(body: JSONObject, left: JSONObject) -> tuple[bool, Message | None]:
    """Whether the client wants the conversation summed up, and how, in a message of its own."""
    if body.get("compaction") is None:
        return False, None
    compaction = optional_object(body, "compaction", "")
    collect_extra(left, "compaction", extra_fields(compaction, KNOWN_COMPACTION))
    if compaction.get("type") != "summarize":
        raise invalid_request("/compaction/type", "Input should be 'summarize'")
    path = "/compaction/instructions"
    instructions = optional_field(compaction, "instructions", "/compaction", str, "string")
    return True, Message("user", (Text(instructions, path=path),), path) if instructions else None


def read_reasoning(
    body: JSONObject, later: EffortOverride | None, left: JSONObject
) -> ReasoningConfig | None:
    """Thinking and effort. later: an effort in mid-conversation, which counts from there on."""
    config = optional_object(body, "output_config", "")
    effort = optional_field(config, "effort", "/output_config", str, "string")
    effort_path = "/output_config/effort"
    if later is not None:
        if effort not in (None, later[1]):
            collect_extra(left, "output_config", {"effort": effort})
        effort_path, effort = later
    thinking = optional_object(body, "thinking", "")
    if not thinking:
        return None if effort is None else ReasoningConfig(effort=effort, path=effort_path)
    extra = extra_fields(thinking, KNOWN_THINKING) or {}
    kind: JSON = thinking.get("type")
    display: JSON = thinking.get("display")
    show: Literal["summarized", "omitted"] | None = display
    budget = optional_field(thinking, "budget_tokens", "/thinking", int, "integer")
    if kind == "between_tools":
        extra["type"] = kind
        kind = "disabled"  # the nearest: no reasoning before the answer
    elif kind not in ("adaptive", "enabled", "disabled"):
        raise invalid_request(
            "/thinking/type", "Input should be 'adaptive', 'enabled', 'disabled' or 'between_tools'"
        )
    if show not in (None, "summarized", "omitted"):
        extra["display"] = display
        show = "summarized" if display == "updates" else None  # the nearest
    path = effort_path if effort is not None else ""
    display_path = "/thinking/display" if show is not None else ""
    return ReasoningConfig(kind, effort, budget, show, extra or None, "/thinking", path, display_path)


def read_response_format(body: JSONObject, left: JSONObject) -> ResponseFormat | None:
    """The schema of the answer, in either of its places."""
    config = optional_object(body, "output_config", "")
    collect_extra(left, "output_config", extra_fields(config, KNOWN_OUTPUT_CONFIG))
    path = "/output_config/format" if config.get("format") is not None else "/output_format"
    found = optional_object(config, "format", "/output_config")
    older = optional_object(body, "output_format", "")
    if found and older:
        left["output_format"] = older
    found = found or older
    if not found:
        return None
    if found.get("type") != "json_schema":
        raise invalid_request(f"{path}/type", "Input should be 'json_schema'")
    schema = required_field(found, "schema", path, dict, "dictionary")
    # The server always keeps to the schema.
    return ResponseFormat(schema, strict=True, extra=extra_fields(found, KNOWN_OUTPUT_FORMAT), path=path)
