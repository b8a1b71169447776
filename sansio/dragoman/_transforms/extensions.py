"""Values that a request loses merely because it leaves its protocol.

One walk over the document before any writer gets it. Fields that the client's protocol does not define cannot be
translated, so they are losses for every upstream. A block without a counterpart may have a plain text; then the text is
sent instead. Tools whose loading is deferred wait for the search that finds them.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from dragoman._ir.losses import Ledger
from dragoman._ir.request import Media, Message, OpaquePart, Param, Part, Request, Text, ToolCall, ToolResult
from dragoman._ir.tools import FunctionTool, HostedTool, Tool
from dragoman._transforms.pass_context import PassContext
from dragoman._wire.exceptions import RequestRefused, dotted_path


def refuse_server_state(request: Request, server_state_params: Mapping[Param, str]) -> None:
    """Raise RequestRefused for a request with one of these settings, see ProtocolSpec.server_state_params."""
    for param, code in server_state_params.items():
        if param in request.params:
            path = request.path_of(param)
            where = dotted_path(path)
            message = f"{where}: this conversation is not stored anywhere; send all its messages without the setting"
            raise RequestRefused(message, path=path, code=code)


def strip_extensions(request: Request, context: PassContext) -> Request:
    """Strip what only the client's protocol defines, and record each loss. Foreign blocks with a text become text.

    Raises RequestRefused if the request refers to a conversation that a server of that protocol would have.
    """
    if context.rewritten:
        return request
    refuse_server_state(request, context.client.server_state_params)
    ledger, defined = context.ledger, request.defined
    for repair in request.repairs:
        ledger.add(repair.code, repair.path, repair.detail)
    ledger.unknown_fields("", request.extra, defined)
    for tool in request.tools:
        if not isinstance(tool, HostedTool) and tool.extra is not None:
            ledger.unknown_fields(tool.path, tool.extra, defined)
    for namespace in request.namespaces:
        if namespace.description:
            ledger.dropped(
                f"{namespace.path}/description", "the namespace was taken apart: other protocols have none"
            )
        ledger.unknown_fields(namespace.path, namespace.extra, defined)
    for config in (request.reasoning, request.response_format):
        if config is not None:
            ledger.unknown_fields(config.path, config.extra, defined)
    messages: list[Message] | None = None
    for number, message in enumerate(request.messages):
        if message.extra is not None:
            ledger.unknown_fields(message.path, message.extra, defined)
        if len(message.parts) == 1:
            part = message.parts[0]
            if type(part) is Text and part.extra is None:
                continue  # nearly all of them
        changed: list[Part | None] | None = None
        for index, part in enumerate(message.parts):
            if type(part) is ToolResult:
                if part.extra is None and len(part.parts) == 1:
                    only = part.parts[0]
                    if type(only) is Text and only.extra is None:
                        continue  # as nearly all results are
            elif type(part) is not OpaquePart and part.extra is None:  # type: ignore[union-attr]
                continue  # nearly all others
            plain = _plain(part, defined, ledger)
            if plain is not part:
                changed = changed or list(message.parts)
                changed[index] = plain
        if changed is not None:
            messages = messages or list(request.messages)
            parts = tuple([part for part in changed if part is not None])
            messages[number] = msgspec.structs.replace(message, parts=parts)
    if messages is not None:
        request = msgspec.structs.replace(request, messages=tuple(messages))
    if any(type(tool) is FunctionTool and tool.deferred for tool in request.tools):
        request = msgspec.structs.replace(request, tools=_loaded(request, ledger))
    return request


def _loaded(request: Request, ledger: Ledger) -> tuple[Tool, ...]:
    """Drop deferred tools that no search has found yet. Readers clear `deferred` of those that were found.

    If the provider is to search, upstreams of other protocols cannot: all tools are sent there.
    """
    tools = request.tools
    if any(
        isinstance(tool, HostedTool) and "tool_search" in tool.kind and tool.function_fallback is None
        for tool in tools
    ):
        return tools
    choice = request.tool_choice
    named: set[tuple[str | None, str | None]] = {
        (part.namespace, part.name)
        for each in request.messages
        for part in each.parts
        if type(part) is ToolCall
    }
    if choice is not None:
        named |= {(choice.namespace, choice.name), *[(ref.namespace, ref.name) for ref in choice.allowed]}
    loaded: list[Tool] = []
    for tool in tools:
        if type(tool) is FunctionTool and tool.deferred and (tool.namespace, tool.name) not in named:
            ledger.dropped(tool.path, "its loading is deferred, and no search has found it yet")
        else:
            loaded.append(tool)
    return tuple(loaded)


def _plain(part: Part, defined: frozenset[str], ledger: Ledger) -> Part | None:
    """Return the part itself, or its text; None for what is not for the model."""
    if isinstance(part, OpaquePart):
        if part.text == "":
            ledger.dropped(part.path, f"the {part.kind} is only for its own provider")
            return None
        return _as_text(part, ledger)
    if part.extra is not None:
        ledger.unknown_fields(part.path, part.extra, defined)
    if isinstance(part, ToolResult):
        inner: list[Text | Media | OpaquePart] = []
        for each in part.parts:
            if isinstance(each, OpaquePart):
                inner.append(_as_text(each, ledger))
                continue
            if each.extra is not None:
                ledger.unknown_fields(each.path, each.extra, defined)
            inner.append(each)
        if any(new is not old for new, old in zip(inner, part.parts, strict=True)):
            return msgspec.structs.replace(part, parts=tuple(inner))
    return part


def _as_text(part: OpaquePart, ledger: Ledger) -> Text | OpaquePart:
    if part.text is None:
        return part
    ledger.altered(part.path, f"{part.kind} has no counterpart: its content was sent as text")
    return Text(part.text, path=part.path, rendered=True)
