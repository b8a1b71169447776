"""Tools, their names and the ids of their calls, fitted to what an upstream accepts.

One pass over the request changes tools, choices, calls and results into what the protocol's ToolLimits and the
upstream's capabilities allow, and notes the changes in Undo; a stage over the response's events changes names back.
So readers and writers need no other protocol's limits.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter, is_
from typing import TypeVar

import msgspec

from dragoman._ir.events import ToolKind
from dragoman._ir.losses import Ledger
from dragoman._ir.native import changed, unknown_members
from dragoman._ir.request import Request, ToolCall, ToolResult
from dragoman._ir.tools import (
    CustomTool,
    FunctionTool,
    HostedTool,
    McpServer,
    Tool,
    ToolChoice,
    ToolRef,
    member_path,
)
from dragoman._ir.undo import ToolOrigin
from dragoman._transforms.freeform import custom_tool_as_function, wrap_input
from dragoman._transforms.pass_context import CUSTOM_CALLS, Contents, PassContext, map_parts
from dragoman._transforms.tool_names_and_ids import (
    fit_call_id,
    fit_name,
    fits_call_ids,
    fits_names,
    hashed_name,
)
from dragoman._transforms.tool_schemas import plain_schema, tidy_schema
from dragoman._wire.exceptions import RequestRefused, dotted_path
from dragoman._wire.json import JSON, JSONObject
from dragoman._wire.json_schema import inline_references

CallOrResult = TypeVar("CallOrResult", ToolCall, ToolResult)

_CUSTOM = ToolKind.CUSTOM  # an Enum's member is slow to look up
_namespace = attrgetter("namespace")


def fit_tools(request: Request, context: PassContext) -> Request:
    """Return the request with tools, choices, calls and ids that the upstream accepts.

    Raises RequestRefused (400) if the only tool, or the required one, cannot be sent.
    """
    _refuse_without_its_tool(request, context)
    request = _offer_allowed(request, context)
    if not context.capabilities.schema_references:
        request = _without_references(request, context.ledger)
    if request.protocol != context.upstream.name:
        request = _with_accepted_schemas(request, context)
    fitter, tools = _ToolFitter(context), request.tools
    declared = _names_of(tools)
    kept = declared if fitter.accepts(tools, declared) else _NONE
    if not kept:
        if request.protocol != context.upstream.name:
            tools = _each_name_once(tools, context.ledger)
        tools = tuple([fitter.tool(tool) for tool in tools])
        declared = _names_of(tools)
    if not fitter.accepts_calls(context.contents, kept):
        request = map_parts(request, {ToolCall: fitter.call, ToolResult: fitter.result})
    choice = request.tool_choice
    if choice is not None and fitter.origins:
        choice = fitter.choice(choice)
    used_ids = frozenset(context.contents.ids)
    if declared or used_ids:
        context.undo = msgspec.structs.replace(
            context.undo, origins=fitter.origins, used_ids=used_ids, declared=declared
        )
    same = tools is request.tools or (
        len(tools) == len(request.tools) and all(map(is_, tools, request.tools))
    )
    if choice is request.tool_choice and same:
        return request  # as most are
    return msgspec.structs.replace(request, tools=tools, tool_choice=choice)


_NONE: frozenset[str] = frozenset()


def _names_of(tools: tuple[Tool, ...]) -> frozenset[str]:
    return frozenset([tool.name for tool in tools if type(tool) is not HostedTool])


def _each_name_once(tools: tuple[Tool, ...], ledger: Ledger) -> tuple[Tool, ...]:
    """Return the tools without further ones of the same name, as two MCP servers may have.

    Anthropic and DeepSeek answer "tools: Tool names must be unique." (onyx#9229, openhanako#789), Google "Duplicate
    function declaration found" (smarter#537, all read 2026-12-01). A client runs one of them, whichever was called.
    """
    kept: dict[object, Tool] = {}
    for tool in tools:
        key = id(tool) if type(tool) is HostedTool else (tool.namespace, tool.name)
        if kept.setdefault(key, tool) is not tool:
            ledger.dropped(tool.path, "an earlier tool has the same name")
    return tuple(kept.values())


def _refuse_without_its_tool(request: Request, context: PassContext) -> None:
    """Refuse a request that loses its only tool, or the required one.

    Other tools that the provider was to run can be left out. Without the only one, or the required one, a model
    still responds, and clients mistake that for the tool's result.
    """
    lost = [tool for tool in request.tools if type(tool) is HostedTool and not _is_sent(tool, context)]
    choice = request.tool_choice
    mode = None if choice is None else choice.mode
    if not lost or mode == "none":
        return
    kinds = {tool.kind for tool in lost}
    if choice is not None and mode == "named":
        required = choice.hosted in kinds
    elif choice is not None and mode == "allowed":
        required = bool(choice.allowed) and all(ref.hosted in kinds for ref in choice.allowed)
    else:
        required = len(lost) == len(request.tools)
    if required:
        tool = next((tool for tool in lost if choice is not None and tool.kind == choice.hosted), lost[0])
        raise RequestRefused(
            f"{dotted_path(tool.path)}: the upstream does not run {tool.kind}, and no other tool can be called "
            "instead: leave it out, or use a model whose upstream runs it",
            path=tool.path,
            code="unsupported_value",
        )


def _is_sent(tool: HostedTool, context: PassContext) -> bool:
    """True if the upstream, or a function in its place, does what the tool does."""
    upstream = context.upstream
    if tool.function_fallback is not None or (tool.origin == upstream.name and not context.only_functions):
        return True  # an upstream supports the hosted tools of its protocol
    limits, use = upstream.tool_limits, tool.use
    if (
        use is None
        or use.__struct_config__.tag not in limits.hosted_tools & context.capabilities.hosted_tools
    ):
        return False
    return limits.mcp_choice or type(use) is not McpServer or use.allowed_tools is None


def _offer_allowed(request: Request, context: PassContext) -> Request:
    """Send only the tools that may be called if the upstream's choice cannot say which: that restricts as much."""
    ledger, upstream, choice = context.ledger, context.upstream, request.tool_choice
    refuses = context.capabilities.refuses
    kept: list[Tool] = []
    if choice is not None and choice.mode == "none" and not upstream.tool_limits.hosted_choice:
        for tool in request.tools:
            if (
                isinstance(tool, HostedTool)
                and tool.origin != upstream.name
                and tool.function_fallback is None
            ):
                ledger.dropped(tool.path, "not offered: no tool may be called")
            else:
                kept.append(tool)
        return msgspec.structs.replace(request, tools=tuple(kept))
    if choice is None:
        return request
    if choice.mode == "named" and "named_tool" in refuses:
        allowed: tuple[ToolRef, ...] = (
            ToolRef(choice.name or "", choice.namespace, choice.kind, choice.hosted),
        )
    elif choice.mode == "allowed" and not (upstream.tool_limits.allowed and "allowed_tools" not in refuses):
        allowed = choice.allowed
    else:
        return request
    names = {(ref.namespace, ref.name) for ref in allowed if ref.hosted is None}
    kinds = {ref.hosted for ref in allowed if ref.hosted is not None}
    missing: set[object] = {*names, *kinds}
    for tool in request.tools:
        key = tool.kind if isinstance(tool, HostedTool) else (tool.namespace, tool.name)
        if key in names or key in kinds:
            kept.append(tool)
            missing.discard(key)
        else:
            ledger.dropped(tool.path, "not offered: it is not among the allowed tools")
    if missing:
        ledger.dropped(choice.path, "an allowed tool is not among those declared")
    choice = ToolChoice("required" if choice.requires_call else "auto", path=choice.path)
    return msgspec.structs.replace(request, tools=tuple(kept), tool_choice=choice)


def _without_references(request: Request, ledger: Ledger) -> Request:
    """Return the request with definitions in the place of references, in the schemas of its tools and its format."""

    def inlined(schema: JSON, path: str) -> JSON:
        return inline_references(schema, path, ledger.altered)

    form = request.response_format
    if form is not None:
        found = inlined(form.schema, f"{form.path}{form.schema_member}")
        form = form if found is form.schema else msgspec.structs.replace(form, schema=found)
    return _with_schemas(msgspec.structs.replace(request, response_format=form), inlined)


def _with_accepted_schemas(request: Request, context: PassContext) -> Request:
    if not context.upstream.tool_limits.plain_schemas:
        return _with_schemas(request, lambda schema, path: tidy_schema(schema))
    return _with_schemas(request, lambda schema, path: plain_schema(schema, path, context.ledger.altered))


def _with_schemas(request: Request, change: Callable[[JSONObject, str], JSON]) -> Request:
    """Return the request with the schemas of its tools changed. change: gets a schema and its path."""
    tools = list(request.tools)
    for index, tool in enumerate(tools):
        if type(tool) is FunctionTool and type(tool.parameters) is dict:
            found = change(tool.parameters, member_path(tool, "parameters"))
            if found is not tool.parameters:
                tools[index] = changed(tool, parameters=found)
    if all(map(is_, tools, request.tools)):
        return request
    return msgspec.structs.replace(request, tools=tuple(tools))


class _ToolFitter:
    """Fits the tools of one request, and the calls of them.

    Attributes:
        origins: Sent name of a changed tool -> the client's tool.
    """

    def __init__(self, context: PassContext) -> None:
        accepted = context.capabilities.custom_tools
        limits = context.upstream.tool_limits
        self._keeps_own = not context.only_functions
        self._limits = limits if self._keeps_own else msgspec.structs.replace(limits, namespaces=False)
        self._protocol = context.upstream.name
        self._call_id_form = context.capabilities.call_ids
        self._ledger = context.ledger
        self._custom = limits.custom and (limits.custom_by_default if accepted is None else accepted)
        self._functions: dict[str, str] = {}  # kind of a hosted tool -> the sent name of its function
        # Namespace and name -> the sent name and namespace.
        self._sent_names: dict[tuple[str | None, str], tuple[str, str | None]] = {}
        self._used_names: set[tuple[str | None, str]] = set()
        self.origins: dict[str, ToolOrigin] = {}
        self._sent_ids: dict[str, str] = {}  # the client's call id -> the id that is sent

    def accepts(self, tools: tuple[Tool, ...], names: frozenset[str]) -> bool:
        """True if there are tools, all functions without namespaces whose names fit and differ, as nearly always."""
        return (
            len(names) == len(tools) > 0
            and {FunctionTool}.issuperset(map(type, tools))
            and {None}.issuperset(map(_namespace, tools))
            and fits_names(names, self._limits)
        )

    def accepts_calls(self, contents: Contents, kept: frozenset[str]) -> bool:
        """True if all calls and results stay as they are, as nearly always. kept: names of tools that stay, too."""
        others = [call for call in contents.calls if call.namespace is not None or call.name not in kept]
        fits = (
            not self._functions
            and (self._keeps_own or not any(call.hosted for call in contents.calls))
            and (self._custom or CUSTOM_CALLS not in contents.subjects)
            and fits_call_ids(contents.ids, self._limits, self._call_id_form)
        )
        if fits and not others:
            return True
        for name in kept:
            self._name(name, None)
        return fits and all(
            self._name(call.name, call.namespace) == (call.name, call.namespace) for call in others
        )

    def tool(self, tool: Tool) -> Tool:
        if type(tool) is HostedTool:
            if tool.function_fallback is None or (tool.origin == self._protocol and self._keeps_own):
                return tool
            return self._as_function(tool, tool.function_fallback)
        if self._functions and tool.namespace is None and tool.name in self._functions.values():
            self._sent_names[None, tool.name] = (self._distinct_name(tool.name, ""), None)
        name, namespace = self._name(tool.name, tool.namespace)
        is_custom = type(tool) is CustomTool
        if name == tool.name and namespace == tool.namespace and (self._custom or not is_custom):
            return tool
        kind = ToolKind.CUSTOM if is_custom else ToolKind.FUNCTION
        if isinstance(tool, CustomTool) and not self._custom:
            self.origins[name] = ToolOrigin(
                tool.name, tool.namespace, kind, wrapped=True, grammar=tool.grammar
            )
            if tool.grammar is not None:
                self._ledger.altered(
                    member_path(tool, "format"),
                    "the grammar is described to the model; the upstream cannot enforce it",
                )
            return custom_tool_as_function(tool, name)
        self.origins[name] = ToolOrigin(tool.name, tool.namespace, kind, wrapped=False)
        fitted: CustomTool | FunctionTool = changed(tool, name=name, namespace=namespace)
        return fitted

    def _as_function(self, tool: HostedTool, function: FunctionTool) -> FunctionTool:
        """Return a function of the same name, because the client runs the tool. Its calls are changed back."""
        if (None, function.name) in self._sent_names:
            # The client has its own tool by this name: this one gets another.
            name = self._distinct_name(function.name, tool.kind)
        else:
            name, _ = self._name(function.name, None)
        self.origins[name] = ToolOrigin(
            function.name, None, ToolKind.FUNCTION, wrapped=False, hosted=tool.kind
        )
        self._functions[tool.kind] = name
        self._ledger.altered(tool.path, f"the tool {tool.kind} was sent as a function")
        return changed(function, name=name, cache=tool.cache)

    def choice(self, choice: ToolChoice) -> ToolChoice:
        allowed = tuple([self._ref(each) for each in choice.allowed])
        if choice.name is None and choice.hosted is None:
            return msgspec.structs.replace(choice, allowed=allowed)
        ref = self._ref(ToolRef(choice.name or "", choice.namespace, choice.kind, choice.hosted))
        return msgspec.structs.replace(
            choice,
            name=ref.name or None,
            namespace=ref.namespace,
            kind=ref.kind,
            hosted=ref.hosted,
            allowed=allowed,
        )

    def _ref(self, ref: ToolRef) -> ToolRef:
        if ref.hosted is not None:
            return ToolRef(self._functions[ref.hosted]) if ref.hosted in self._functions else ref
        name, namespace = self._name(ref.name, ref.namespace)
        kind = ToolKind.CUSTOM if ref.kind is ToolKind.CUSTOM and self._custom else ToolKind.FUNCTION
        return ToolRef(name, namespace, kind)

    def call(self, call: ToolCall) -> ToolCall:
        """Return the call itself unless it must change: most never do."""
        as_function = self._is_function(call)
        call_id = self._sent_ids[call.call_id] = fit_call_id(call.call_id, self._limits, self._call_id_form)
        if call.hosted in self._functions:
            name, namespace = self._functions[call.hosted], None
        else:
            found = self._sent_names.get((call.namespace, call.name))
            name, namespace = found or self._name(call.name, call.namespace)
        if not as_function and call_id == call.call_id and name == call.name and namespace == call.namespace:
            return call
        if as_function:  # an object of another form
            call = _without_form(call)
        return changed(
            call,
            ("namespace",) if namespace is None else (),
            call_id=call_id,
            name=name,
            namespace=namespace,
            kind=ToolKind.FUNCTION if as_function else call.kind,
            input=wrap_input(call.input) if as_function and call.kind is _CUSTOM else call.input,
        )

    def result(self, result: ToolResult) -> ToolResult:
        as_function = self._is_function(result)
        call_id = self._sent_ids.get(result.call_id)
        if not call_id:
            call_id = fit_call_id(result.call_id, self._limits, self._call_id_form)
            self._sent_ids[result.call_id] = call_id
        if not as_function and call_id == result.call_id:
            return result
        if as_function and result.hosted is not None:
            result = _without_form(result)
        kind = ToolKind.FUNCTION if as_function else result.kind
        return changed(result, call_id=call_id, kind=kind)

    def _is_function(self, part: ToolCall | ToolResult) -> bool:
        """True for a call, or its result, that was of another form for the client."""
        if part.kind is _CUSTOM:
            return not self._custom
        return part.hosted is not None and not self._keeps_own

    def _name(self, name: str, namespace: str | None) -> tuple[str, str | None]:
        found = self._sent_names.get((namespace, name))
        if found is not None:
            return found
        sent_namespace = namespace if self._limits.namespaces else None
        sent = fit_name(name, namespace, self._limits)
        if (sent_namespace, sent) in self._used_names:
            # `a__b` may be a name by itself and the tool b of namespace a: the later one gets a hash.
            sent = hashed_name(sent, f"{namespace}\0{name}", self._limits)
        self._used_names.add((sent_namespace, sent))
        self._sent_names[namespace, name] = (sent, sent_namespace)
        return sent, sent_namespace

    def _distinct_name(self, name: str, kind: str) -> str:
        """Return a name to send for a tool whose name another tool has already."""
        sent = hashed_name(name, f"{kind}\0{name}", self._limits)
        self._used_names.add((None, sent))
        return sent


def _without_form(part: CallOrResult) -> CallOrResult:
    """Return a call or result without its object, which had another form."""
    return msgspec.structs.replace(part, native=None, before=unknown_members(part), shape=None, hosted=None)
