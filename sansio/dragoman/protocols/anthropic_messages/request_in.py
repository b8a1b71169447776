"""Read a client's body into the neutral request.

Content blocks are read in `request_messages_in`, tools in `tools`; unknown fields are kept as extra fields. Settings
that newer clients send in the middle of a conversation (more tools, another effort, a summary of all before it) move to
where the neutral request has them. Each setting that is more than a name and a value has a function.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from dragoman._ir.parameters import read_params
from dragoman._ir.request import (
    Message,
    OpaquePart,
    Param,
    Part,
    ReasoningConfig,
    Request,
    ResponseFormat,
    Text,
    ToolResult,
)
from dragoman._ir.signatures import Signer
from dragoman._ir.tools import FunctionTool, Tool
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
from dragoman.protocols.anthropic_messages.request_messages_in import (
    EffortOverride,
    ReadContext,
    read_content,
)
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

# Paths of the first messages, made once, because formatting a number costs as much as building a message.
_PATHS = tuple([f"/messages/{index}" for index in range(512)])


def read_request(body: JSONObject, signer: Signer) -> Request:
    """Return the neutral request of a body. Raises RemoteProtocolError (400) with the path of what is wrong."""
    model = required_field(body, "model", "", str, "string")
    required_field(body, "max_tokens", "", int, "integer")
    body_messages = required_field(body, "messages", "", list, "list")
    context = ReadContext(signer)
    messages: list[Message] = []
    system = body.get("system")
    if system is not None:
        parts = _split_billing_header(read_content(system, "/system", context), system)
        if parts:
            messages.append(Message("system", parts, "/system"))
    first_message = len(messages)
    _read_messages(body_messages, context, messages)
    if context.summary is not None:
        messages = _start_at_summary(messages, first_message, context.summary)
    if context.effort is not None:
        messages = [_without_effort(message, context.effort) for message in messages]
    extra: JSONObject = extra_fields(body, KNOWN_BODY) or {}
    tools = read_tools(body, extra)
    if context.has_system_messages or any(isinstance(tool, FunctionTool) and tool.deferred for tool in tools):
        tools = _add_found_tools(tools, messages[first_message:])
    choice, parallel = read_tool_choice(body, tools, extra)
    compact, instructions = read_compaction(body, extra)
    if instructions is not None:
        messages.append(instructions)
    return Request(
        protocol=NAME,
        model=model,
        messages=tuple(messages),
        tools=tuple(tools),
        tool_choice=choice,
        parallel_tool_calls=parallel,
        parallel_path="/tool_choice/disable_parallel_tool_use",
        stream=body.get("stream") is True,
        params=read_settings(body, extra),
        param_paths=PARAM_PATHS,
        reasoning=read_reasoning(body, context.effort, extra),
        response_format=read_response_format(body, extra),
        extra=extra or None,
        defined=NATIVE_FIELDS,
        compact=compact,
    )


def _read_messages(body_messages: list[JSON], context: ReadContext, messages: list[Message]) -> None:
    """Add the messages of a body to `messages`."""
    for index, message in enumerate(body_messages):
        path = _PATHS[index] if index < len(_PATHS) else f"/messages/{index}"
        if type(message) is not dict:
            raise invalid_request(path, "Input should be an object")
        role = message.get("role")
        if role not in _ROLES:
            raise invalid_request(f"{path}/role", "Input should be 'user', 'assistant' or 'system'")
        content = message.get("content")
        if content is None and not (role == "system" and "output_config" in message):
            raise invalid_request(f"{path}/content", "Field required")
        parts: tuple[Part, ...]
        if type(content) is str and content:
            parts = (Text(content, None, None, None, path + "/content"),)  # by far the most frequent
        else:
            parts = () if content is None else read_content(content, f"{path}/content", context)
        if role == "system":
            context.has_system_messages = True
        if len(message) == 2 and content is not None:
            messages.append(Message(role, parts, path))
            continue
        if role == "system" and message.get("output_config") is not None:
            context.effort = _read_effort(message, path) or context.effort
        messages.append(Message(role, parts, path, extra=extra_fields(message, KNOWN_MESSAGE)))


def _split_billing_header(parts: tuple[Part, ...], system: JSON) -> tuple[Part, ...]:
    """Return the system parts with Claude Code's line for its provider as an opaque part of its own.

    The line differs in each request, so with it no cache would match the text behind it.
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


# Settings in mid-conversation.


def _read_effort(message: JSONObject, path: str) -> EffortOverride | None:
    config = optional_object(message, "output_config", path)
    effort = optional_field(config, "effort", f"{path}/output_config", str, "string")
    return None if effort is None else (f"{path}/output_config/effort", effort)


def _without_effort(message: Message, override: EffortOverride) -> Message:
    """Return the message without the effort that is now the one of the request."""
    if message.extra is None or f"{message.path}/output_config/effort" != override[0]:
        return message
    extra = dict(message.extra)
    config = {key: value for key, value in extra.pop("output_config").items() if key != "effort"}
    if config:
        extra["output_config"] = config
    return msgspec.structs.replace(message, extra=extra or None)


def _start_at_summary(messages: list[Message], first_message: int, summary: Text) -> list[Message]:
    """Return the conversation from a summary on, which replaces everything before it."""
    index, part_index = next(
        (index, part_index)
        for index, message in enumerate(messages)
        for part_index, part in enumerate(message.parts)
        if part is summary
    )
    message = messages[index]
    rest = message.parts[part_index + 1 :]
    after = [msgspec.structs.replace(message, parts=rest)] if rest else []
    return [
        *messages[:first_message],
        Message("user", (summary,), summary.path),
        *after,
        *messages[index + 1 :],
    ]


def _add_found_tools(tools: list[Tool], messages: list[Message]) -> list[Tool]:
    """Return the tools and those that the messages define. Tools that the messages refer to are no longer deferred."""
    found: set[str] = set()
    defined: list[Tool] = []
    for message in messages:
        for part in message.parts:
            if type(part) is ToolResult:
                for inner in part.parts:
                    if type(inner) is OpaquePart and inner.kind == "tool_reference":
                        found.add(text_or_empty(inner.native.get("tool_name")))
            elif type(part) is OpaquePart and part.kind == "tool_addition":
                tool = optional_object(part.native, "tool", part.path)
                if tool.get("type") == "tool_definition":
                    definition = required_field(tool, "definition", f"{part.path}/tool", dict, "dictionary")
                    defined.append(read_tool(definition, f"{part.path}/tool/definition", {}))
                else:
                    found.add(text_or_empty(tool.get("name")))
    return [
        msgspec.structs.replace(tool, deferred=False)
        if isinstance(tool, FunctionTool) and tool.deferred and tool.name in found
        else tool
        for tool in tools
    ] + defined


# Settings: each function adds to `request_extra` what the neutral form has no place for.


def read_settings(body: JSONObject, request_extra: JSONObject) -> dict[Param, JSON]:
    """Return the plain settings by their neutral names."""
    for name, types, type_name in PARAM_TYPES:
        if body.get(name) is not None and type(body[name]) not in types:
            raise invalid_request(f"/{name}", f"Input should be a valid {type_name}")
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
        collect_extra(request_extra, "metadata", extra_fields(metadata, KNOWN_METADATA))
    if body.get("cache_control") is not None:
        params["prompt_cache_options"] = _read_cache_options(body, request_extra)
    if body.get("context_management") is not None:
        compactions = _read_compactions(body, request_extra)
        if compactions:
            params["context_management"] = compactions
    return params


def _read_cache_options(body: JSONObject, request_extra: JSONObject) -> JSONObject:
    """Return the options for a mark at the top level, which other protocols call the implicit mode."""
    mark = optional_object(body, "cache_control", "")
    options: JSONObject = {"mode": "implicit"}
    extra = extra_fields(mark, KNOWN_CACHE_CONTROL) or {}
    ttl: JSON = mark.get("ttl")
    if text_or_empty(ttl) in CACHE_OPTION_TTLS:
        options["ttl"] = CACHE_OPTION_TTLS[text_or_empty(ttl)]
    elif ttl is not None:
        extra["ttl"] = ttl
    if mark.get("type") not in (None, "ephemeral"):
        extra["type"] = mark["type"]
    collect_extra(request_extra, "cache_control", extra)
    return options


def _read_compactions(body: JSONObject, request_extra: JSONObject) -> list[JSON]:
    """Return the edits that summarize the conversation, in the form of other protocols. The rest are extra fields."""
    management = optional_object(body, "context_management", "")
    compactions: list[JSON] = []
    extra_edits: list[JSON] = []
    for index, edit in enumerate(object_list(management, "edits", "/context_management")):
        if edit == KEEP_THINKING_EDIT:
            continue
        if edit.get("type") != COMPACT_EDIT:
            extra_edits.append(edit)
            continue
        trigger = optional_object(edit, "trigger", f"/context_management/edits/{index}")
        value = trigger.get("value", DEFAULT_COMPACT_THRESHOLD)
        compactions.append({"type": "compaction", "compact_threshold": value})
        edit_extra = extra_fields(edit, KNOWN_COMPACT_EDIT) or {}
        collect_extra(edit_extra, "trigger", extra_fields(trigger, KNOWN_TRIGGER))
        if trigger.get("type") not in (None, "input_tokens"):
            collect_extra(edit_extra, "trigger", {"type": trigger["type"]})
        if edit_extra:
            extra_edits.append(edit_extra)
    extra = extra_fields(management, KNOWN_CONTEXT_MANAGEMENT) or {}
    if extra_edits:
        extra["edits"] = extra_edits
    collect_extra(request_extra, "context_management", extra)
    return compactions


def read_compaction(body: JSONObject, request_extra: JSONObject) -> tuple[bool, Message | None]:
    """Return True if the client requests a summary, and its instructions as a message."""
    if body.get("compaction") is None:
        return False, None
    compaction = optional_object(body, "compaction", "")
    collect_extra(request_extra, "compaction", extra_fields(compaction, KNOWN_COMPACTION))
    if compaction.get("type") != "summarize":
        raise invalid_request("/compaction/type", "Input should be 'summarize'")
    path = "/compaction/instructions"
    instructions = optional_field(compaction, "instructions", "/compaction", str, "string")
    return True, Message("user", (Text(instructions, path=path),), path) if instructions else None


def read_reasoning(
    body: JSONObject, override: EffortOverride | None, request_extra: JSONObject
) -> ReasoningConfig | None:
    """Return thinking and effort. override: the last effort in mid-conversation, which applies from there on."""
    config = optional_object(body, "output_config", "")
    effort = optional_field(config, "effort", "/output_config", str, "string")
    effort_path = "/output_config/effort"
    if override is not None:
        if effort not in (None, override[1]):
            collect_extra(request_extra, "output_config", {"effort": effort})
        effort_path, effort = override
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
        kind = "disabled"  # the closest one: no reasoning before the response
    elif kind not in ("adaptive", "enabled", "disabled"):
        raise invalid_request(
            "/thinking/type", "Input should be 'adaptive', 'enabled', 'disabled' or 'between_tools'"
        )
    if show not in (None, "summarized", "omitted"):
        extra["display"] = display
        show = "summarized" if display == "updates" else None  # the closest one
    path = effort_path if effort is not None else ""
    display_path = "/thinking/display" if show is not None else ""
    return ReasoningConfig(kind, effort, budget, show, extra or None, "/thinking", path, display_path)


def read_response_format(body: JSONObject, request_extra: JSONObject) -> ResponseFormat | None:
    """Return the schema of the response, from either of its places."""
    config = optional_object(body, "output_config", "")
    collect_extra(request_extra, "output_config", extra_fields(config, KNOWN_OUTPUT_CONFIG))
    path = "/output_config/format" if config.get("format") is not None else "/output_format"
    output_format = optional_object(config, "format", "/output_config")
    older = optional_object(body, "output_format", "")
    if output_format and older:
        request_extra["output_format"] = older
    output_format = output_format or older
    if not output_format:
        return None
    if output_format.get("type") != "json_schema":
        raise invalid_request(f"{path}/type", "Input should be 'json_schema'")
    schema = required_field(output_format, "schema", path, dict, "dictionary")
    extra = extra_fields(output_format, KNOWN_OUTPUT_FORMAT)
    # Strict, because the API always enforces the schema.
    return ResponseFormat(schema, strict=True, extra=extra, path=path)
