"""Values that a request loses merely because it leaves its protocol.

One walk over the document before any writer gets it. Fields that the client's protocol does not define cannot be
translated, so they are losses for every upstream. A block without a counterpart may have a plain text; then the text is
sent instead. If it has none, a placeholder is sent for the user's. Tools whose loading is deferred wait for the search
that finds them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from operator import is_
from typing import Any

import msgspec

from dragoman._ir.losses import Ledger, LossCode
from dragoman._ir.native import changed, unknown_members
from dragoman._ir.request import OpaquePart, Param, Part, Request, Text, ToolCall, ToolResult
from dragoman._ir.tools import FunctionTool, HostedTool, Tool
from dragoman._transforms.content import placeholder
from dragoman._transforms.pass_context import PassContext, map_parts
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
    for repair in request.repairs:
        if repair.code is LossCode.REPAIRED or not context.rewritten:
            context.ledger.add(repair.code, repair.path, repair.detail)
    ledger, contents = context.ledger, context.contents
    if context.rewritten:
        return _fitted(request, context) if context.only_functions else request
    refuse_server_state(request, context.client.server_state_params)

    def note(nodes: Iterable[Any]) -> None:
        for node in nodes:
            if node.shape is not None and (unknown := unknown_members(node)) is not None:
                ledger.unknown_fields(node.path, unknown, request.defined)

    if request.extra:
        ledger.unknown_fields("", request.extra, request.defined)
    if request.tools:
        note(request.tools)
    if request.namespaces:
        note(request.namespaces)
    for config in (request.reasoning, request.response_format):
        if config is not None:
            ledger.unknown_fields(config.path, config.extra, request.defined)
    note(contents.shaped)
    return _fitted(request, context)


def _fitted(request: Request, context: PassContext) -> Request:
    """Return the request without what the upstream has no form for: namespaces, foreign items, tools to load later."""
    ledger = context.ledger
    for namespace in request.namespaces:
        if namespace.description:
            ledger.dropped(
                f"{namespace.path}/description", "the namespace was taken apart: the upstream has none"
            )
    if OpaquePart in context.contents.subjects:
        request = map_parts(request, dict.fromkeys((OpaquePart, ToolResult), partial(_plain, ledger=ledger)))
        request = map_parts(request, {OpaquePart: partial(_replaced, ledger=ledger)}, ["user"])
    if [tool for tool in request.tools if type(tool) is FunctionTool and tool.deferred]:
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


def _plain(part: Any, ledger: Ledger) -> Any:
    """Return the part itself, or its text; None if it is not for the model."""
    if type(part) is ToolResult:
        inner = tuple([_replaced(_plain(each, ledger) or each, ledger) for each in part.content])
        return part if all(map(is_, inner, part.content)) else changed(part, content=inner)
    if type(part) is not OpaquePart or part.text is None:
        return part
    if part.text == "":
        if part.shape is None:
            ledger.dropped(part.path, f"the {part.kind} is only for its own provider")
        return None
    ledger.altered(part.path, f"{part.kind} has no counterpart: its content was sent as text")
    return Text(part.text, part.cache, path=part.path, rendered=True)


def _replaced(part: Part, ledger: Ledger) -> Part:
    """Return a text for what only the client's protocol has: the model has to know of it, and no message gets empty."""
    if type(part) is not OpaquePart:
        return part
    ledger.unknown_kind(part.path, f"{part.kind} has no counterpart: a text was sent in its place")
    return placeholder(part, "you cannot see it")
