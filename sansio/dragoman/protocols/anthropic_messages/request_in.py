"""Read a client's body into the neutral request.

Content blocks are read in `request_messages_in`, tools in `tools`; unknown fields stay in the objects they came in.
Settings that newer clients send in the middle of a conversation (more tools, another effort, a summary of all before
it) move to where the neutral request has them. Each setting that is more than a name and a value has a function; the
others are rows of REQUEST_SHAPE in `shapes`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from dragoman._ir.native import changed
from dragoman._ir.request import (
    Message,
    MessagePaths,
    OpaquePart,
    Param,
    Part,
    ReasoningConfig,
    Request,
    ResponseFormat,
    Text,
    ToolResult,
    plain_text_of,
)
from dragoman._ir.shape import OBJECT, STRING, extra_members, read_members
from dragoman._ir.tools import CacheMark, FunctionTool, Tool
from dragoman._ir.wrapped_signatures import Signer
from dragoman._wire.json import JSON, JSONObject
from dragoman.codec import BillingHeader
from dragoman.protocols.anthropic_messages.checks import (
    CHECKS,
    invalid_request,
    read_cache_mark,
    text_or_empty,
    wrong_type,
)
from dragoman.protocols.anthropic_messages.request_messages_in import (
    EffortOverride,
    ReadContext,
    read_content,
)
from dragoman.protocols.anthropic_messages.shapes import (
    COMPACT_EDIT_SHAPE,
    DEFINED_MEMBERS,
    FORMAT_SHAPE,
    MESSAGE_SHAPE,
    REQUEST_SHAPE,
    SETTING_PATHS,
    THINKING_SHAPE,
)
from dragoman.protocols.anthropic_messages.tables import (
    BILLING_HEADER,
    CACHE_OPTION_TTLS,
    COMPACT_EDIT,
    DEFAULT_COMPACT_THRESHOLD,
    KEEP_THINKING_EDIT,
    NAME,
    REQUEST_TIERS,
)
from dragoman.protocols.anthropic_messages.tools import read_tool, read_tool_choice, read_tools

_ROLES = ("user", "assistant", "system")

_PATHS = MessagePaths("messages")


# Members that are no plain settings, and that few requests have.
_SPECIAL = frozenset(
    [
        "cache_control",
        "compaction",
        "context_management",
        "mcp_servers",
        "output_config",
        "output_format",
        "service_tier",
        "stop_sequences",
        "thinking",
        "tool_choice",
        "tools",
    ]
)
_REQUIRED = ("model", "max_tokens", "messages")


def read_request(body: JSONObject, signer: Signer) -> Request:
    """Return the neutral request of a body. Raises RemoteProtocolError (400) with the path of the fault."""
    settings, extra = read_members(body, REQUEST_SHAPE, wrong_type)
    if None in map(body.get, _REQUIRED):
        missing = next(name for name in _REQUIRED if body.get(name) is None)
        raise invalid_request(f"/{missing}", "Field required")
    context = ReadContext(signer)
    messages: list[Message] = []
    mark = read_cache_mark(body, "")
    system = body.get("system")
    if system is not None:
        parts = _split_billing_header(read_content(system, "/system", context), system)
        if parts:
            messages.append(Message("system", parts, "/system"))
    first_message = len(messages)
    _read_messages(body["messages"], context, messages)
    if context.summary is not None:
        messages = _start_at_summary(messages, first_message, context.summary)
    if context.effort is not None:
        messages = [_with_read_effort(message, context.effort) for message in messages]
    fields: dict[str, Any] = {}
    if context.has_system_messages or not _SPECIAL.isdisjoint(body):
        fields = _read_special(body, messages, first_message, settings, mark, context, extra)
    return Request(
        protocol=NAME,
        model=body["model"],
        messages=tuple(messages),
        parallel_path="/tool_choice/disable_parallel_tool_use",
        stream=body.get("stream") is True,
        params=settings,
        param_paths=SETTING_PATHS,
        extra=extra or None,
        repairs=tuple(context.repairs),
        defined=DEFINED_MEMBERS,
        **fields,
    )


def _read_special(
    body: JSONObject,
    messages: list[Message],
    first_message: int,
    settings: dict[Param, JSON],
    mark: CacheMark | None,
    context: ReadContext,
    extra: JSONObject,
) -> dict[str, Any]:
    """Return the fields of the request that few requests set. What cannot be read is added to `extra`."""
    tools = read_tools(body, extra) if "tools" in body or "mcp_servers" in body else []
    deferred = [tool for tool in tools if type(tool) is FunctionTool and tool.deferred]
    if context.has_system_messages or deferred:
        tools = _add_found_tools(tools, messages[first_message:])
    choice, parallel = (
        read_tool_choice(body["tool_choice"], tools) if body.get("tool_choice") else (None, None)
    )
    if (compaction := body.get("compaction")) is not None:
        messages += _read_compaction(compaction)
    _convert_settings(settings, body, extra)
    if mark is not None:
        settings["prompt_cache_options"] = {"mode": "implicit"}
        if mark.ttl is not None:
            settings["prompt_cache_options"]["ttl"] = CACHE_OPTION_TTLS[mark.ttl]
    return {
        "tools": tuple(tools),
        "tool_choice": choice,
        "parallel_tool_calls": parallel,
        "reasoning": _read_reasoning(body, context.effort, extra),
        "response_format": _read_response_format(body, extra),
        "compact": compaction is not None,
    }


def _read_messages(body_messages: list[JSON], context: ReadContext, messages: list[Message]) -> None:
    """Add the messages of a body to `messages`."""
    for message, (path, content_path, block_paths) in zip(body_messages, _PATHS, strict=False):
        if type(message) is not dict:
            raise invalid_request(path, "Input should be an object")
        role, content = message.get("role"), message.get("content")
        if (role == "user" or role == "assistant") and type(content) is str and content and len(message) == 2:
            # by far the most frequent
            messages.append(Message(role, (), path, native=message, plain_text=content))
            continue
        if role not in _ROLES:
            raise invalid_request(f"{path}/role", "Input should be 'user', 'assistant' or 'system'")
        if content is None and not (role == "system" and "output_config" in message):
            raise invalid_request(f"{path}/content", "Field required")
        parts = () if content is None else read_content(content, content_path, context, block_paths)
        shape = None if len(message) == 2 else MESSAGE_SHAPE
        if role == "system":
            context.has_system_messages = True
            if message.get("output_config") is not None:
                context.effort = _read_effort(message, path) or context.effort
        if context.is_native:
            plain = plain_text_of(parts) if shape is None else ""
            messages.append(Message(role, parts, path, native=message, shape=shape, plain_text=plain))
        else:
            messages.append(Message(role, parts, path, before=message, shape=shape))
            context.is_native = True


def _split_billing_header(parts: tuple[Part, ...], system: JSON) -> tuple[Part, ...]:
    """Return the system parts with Claude Code's line for its provider as a separate opaque part.

    The line differs in each request, so with it no cache would match the text behind it.
    """
    first = parts[0] if parts else None
    if type(first) is not Text or not first.text.startswith(BILLING_HEADER):
        return parts
    line, _, rest = first.text.partition("\n")
    if rest.strip():
        parts = (changed(first, text=rest.lstrip("\n")), *parts[1:])
        block: JSON = {"type": "text", "text": line}
    else:
        parts = parts[1:]
        block = {"type": "text", "text": system} if type(system) is str else system[0]
    return (OpaquePart(NAME, "billing header", block, first.path, ""), *parts)


def _without_billing_header(system: JSON) -> JSON:
    """Return a system text or its blocks without that line, the same object if it has none."""
    first = system[0] if type(system) is list and system else None
    text = first.get("text") if type(first) is dict else system
    if type(text) is not str or not text.startswith(BILLING_HEADER):
        return system
    rest = text.partition("\n")[2].lstrip("\n")
    if type(first) is not dict:
        return rest
    return [*([{**first, "text": rest}] if rest.strip() else []), *system[1:]]


BILLING = BillingHeader("system", BILLING_HEADER.encode(), _without_billing_header)


# Settings in mid-conversation.


def _read_effort(message: JSONObject, path: str) -> EffortOverride | None:
    config = CHECKS.object(message, "output_config", path)
    effort = CHECKS.optional(config, "effort", f"{path}/output_config", STRING)
    return None if effort is None else (f"{path}/output_config/effort", effort)


def _with_read_effort(message: Message, override: EffortOverride) -> Message:
    """Return the message with the effort that is now the one of the request as a member that was read."""
    if f"{message.path}/output_config/effort" != override[0]:
        return message
    return msgspec.structs.replace(message, shape={**MESSAGE_SHAPE, "output_config": {"effort": None}})


def _start_at_summary(messages: list[Message], first_message: int, summary: Text) -> list[Message]:
    """Return the conversation from a summary on, which replaces everything before it."""
    index = next(index for index, message in enumerate(messages) if summary in message.parts)
    message = messages[index]
    rest = message.parts[message.parts.index(summary) + 1 :]
    after = [changed(message, content=rest)] if rest else []
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
                tool = CHECKS.object(part.native, "tool", part.path)
                if tool.get("type") == "tool_definition":
                    definition = CHECKS.required(tool, "definition", f"{part.path}/tool", OBJECT)
                    defined.append(read_tool(definition, f"{part.path}/tool/definition", {}))
                else:
                    found.add(text_or_empty(tool.get("name")))
    return [
        msgspec.structs.replace(tool, deferred=False)
        if isinstance(tool, FunctionTool) and tool.deferred and tool.name in found
        else tool
        for tool in tools
    ] + defined


# Settings that are more than a name and a value. Their types have been checked by REQUEST_SHAPE.


def _convert_settings(settings: dict[Param, JSON], body: JSONObject, extra: JSONObject) -> None:
    """Translate values that are other ones in the neutral request."""
    for index, text in enumerate(settings.get("stop", ())):
        if type(text) is not str:
            raise wrong_type(f"/stop_sequences/{index}", STRING.name, text)
    tier = settings.get("service_tier")
    if tier in REQUEST_TIERS:
        settings["service_tier"] = REQUEST_TIERS[tier]
    compactions = (
        _read_compactions(body["context_management"], extra) if body.get("context_management") else []
    )
    if compactions:
        settings["context_management"] = compactions


def _read_compactions(management: JSONObject, extra: JSONObject) -> list[JSON]:
    """Return the edits that summarize the conversation, in the form of other protocols."""
    compactions: list[JSON] = []
    unread: list[JSON] = []
    for index, edit in enumerate(CHECKS.objects(management, "edits", "/context_management")):
        if edit == KEEP_THINKING_EDIT:
            continue
        if edit.get("type") != COMPACT_EDIT:
            unread.append(edit)
            continue
        trigger = CHECKS.object(edit, "trigger", f"/context_management/edits/{index}")
        value = trigger.get("value", DEFAULT_COMPACT_THRESHOLD)
        compactions.append({"type": "compaction", "compact_threshold": value})
        edit_extra = extra_members(edit, COMPACT_EDIT_SHAPE) or {}
        if trigger.get("type") not in (None, "input_tokens"):
            edit_extra["trigger"] = {**edit_extra.get("trigger", {}), "type": trigger["type"]}
        if edit_extra:
            unread.append(edit_extra)
    if unread:
        extra.setdefault("context_management", {})["edits"] = unread
    return compactions


def _read_compaction(compaction: JSONObject) -> Sequence[Message]:
    """Return the instructions for a summary, which the client requests with them or without, as a message."""
    if compaction.get("type") != "summarize":
        raise invalid_request("/compaction/type", "Input should be 'summarize'")
    path = "/compaction/instructions"
    instructions = compaction.get("instructions")
    return (Message("user", (Text(instructions, path=path),), path),) if instructions else ()


def _read_reasoning(
    body: JSONObject, override: EffortOverride | None, extra: JSONObject
) -> ReasoningConfig | None:
    """Return thinking and effort. override: the last effort in mid-conversation, which applies from there on."""
    effort = (body.get("output_config") or {}).get("effort")
    effort_path = "/output_config/effort"
    if override is not None:
        if effort not in (None, override[1]):
            extra.setdefault("output_config", {})["effort"] = effort
        effort_path, effort = override
    thinking = body.get("thinking")
    if not thinking:
        return None if effort is None else ReasoningConfig(effort=effort, path=effort_path)
    _, unread = read_members(thinking, THINKING_SHAPE, wrong_type, "/thinking")
    kind: JSON = thinking.get("type")
    display: JSON = thinking.get("display")
    show: Literal["summarized", "omitted"] | None = display
    if kind == "between_tools":
        unread["type"] = kind
        kind = "disabled"  # the closest one: no reasoning before the response
    elif kind not in ("adaptive", "enabled", "disabled"):
        raise invalid_request(
            "/thinking/type", "Input should be 'adaptive', 'enabled', 'disabled' or 'between_tools'"
        )
    if show not in (None, "summarized", "omitted"):
        unread["display"] = display
        show = "summarized" if display == "updates" else None  # the closest one
    path = effort_path if effort is not None else ""
    display_path = "/thinking/display" if show is not None else ""
    budget = thinking.get("budget_tokens")
    return ReasoningConfig(kind, effort, budget, show, unread or None, "/thinking", path, display_path)


def _read_response_format(body: JSONObject, extra: JSONObject) -> ResponseFormat | None:
    """Return the schema of the response, from either of its places."""
    output_format, path = (body.get("output_config") or {}).get("format"), "/output_config/format"
    older = body.get("output_format")
    if output_format and older:
        extra["output_format"] = older
    elif older:
        output_format, path = older, "/output_format"
    if not output_format:
        return None
    if output_format.get("type") != "json_schema":
        raise invalid_request(f"{path}/type", "Input should be 'json_schema'")
    schema = CHECKS.required(output_format, "schema", path, OBJECT)
    # Strict, because the API always enforces the schema.
    return ResponseFormat(schema, strict=True, extra=extra_members(output_format, FORMAT_SHAPE), path=path)
