"""Settings and tool choices that the upstream does not support.

What the model is known to refuse is dropped, or lowered to what it accepts, and recorded as a loss, because otherwise
the whole request is refused. Two settings are not lost with an upstream that lacks them: stop sequences are searched
for in the response, and several choices are requested by several requests, if the caller can do that. A required tool
call has priority over reasoning, which is disabled for a model that cannot do both.
"""

from __future__ import annotations

from operator import is_not

import msgspec

from dragoman._ir.losses import Ledger
from dragoman._ir.native import changed
from dragoman._ir.parameters import fit_effort
from dragoman._ir.request import Param, ReasoningConfig, Request
from dragoman._ir.tools import FunctionTool, Tool, member_path
from dragoman._transforms.pass_context import PassContext
from dragoman._transforms.stop_sequences import split_stop_sequences
from dragoman._wire.exceptions import RequestRefused
from dragoman._wire.json import JSON
from dragoman._wire.json_schema import is_strict
from dragoman._wire.limits import CHOICES
from dragoman.codec import Capabilities

# An upstream that refuses these settings never does what they turn on, so dropping `false` loses nothing.
_NO_LOSS_IF_FALSE: frozenset[Param] = frozenset(("background", "logprobs", "store"))

# GPT-5.1 to 5.4 accept temperature, top_p and logprobs only with effort none, which is the default of some (OpenAI's
# model guide, cited in vercel/ai#10932, read 2026-11-22).
_ACCEPTED_AT_NONE: frozenset[Param] = frozenset(("temperature", "top_p", "logprobs", "top_logprobs"))


def drop_unsupported(request: Request, context: PassContext) -> Request:
    """Drop settings that the upstream refuses, and record each loss.

    Stop sequences that it does not support are left for the response, and choices for several requests. Raises
    RequestRefused (400) for more choices than the caller can request.
    """
    params = request.params
    upstream, capabilities, ledger = context.upstream, context.capabilities, context.ledger
    left: dict[Param, JSON] = dict(params)
    if "stop" in left:
        limit = 0 if "stop" in capabilities.refuses else upstream.max_stop_sequences
        left["stop"], stops = split_stop_sequences(left["stop"], limit, request.path_of("stop"), ledger)
        if left["stop"] is None:
            del left["stop"]
        if stops:
            context.undo = msgspec.structs.replace(context.undo, stop_sequences=stops)
    if "n" in left:
        if type(left["n"]) is int:
            CHOICES.check(left["n"], request.path_of("n"), "the request")
        if not upstream.choices or "n" in capabilities.refuses:
            context.fan_out = _fan_out(left.pop("n"), request.path_of("n"), context.max_fan_out)
    most, asked = capabilities.max_output_tokens, left.get("max_output_tokens")
    if most is not None and type(asked) is int and asked > most:
        left["max_output_tokens"] = most
        ledger.altered(
            request.path_of("max_output_tokens"),
            f"lowered to {most}: the upstream's model accepts no more, or its context window has no more room",
        )
    refused = capabilities.refuses
    if capabilities.sampling_at_none and _effort_is_none(request, capabilities):
        refused -= _ACCEPTED_AT_NONE
    for param in () if refused.isdisjoint(left) else [each for each in left if each in refused]:
        if left.pop(param) is not False or param not in _NO_LOSS_IF_FALSE:
            ledger.dropped(request.path_of(param), "the upstream or its model refuses this setting")
    if not capabilities.sampling_pair and "temperature" in left and "top_p" in left:
        # "`temperature` and `top_p` cannot both be specified for this model. Please use only one."
        # (BerriAI/litellm#15097, read 2026-11-22)
        ledger.dropped(
            request.path_of("top_p"), "the model does not accept top_p together with a temperature"
        )
        del left["top_p"]
    return request if left == params else msgspec.structs.replace(request, params=left)


def fit_tool_settings(request: Request, context: PassContext) -> Request:
    """Drop `strict`, `parallel_tool_calls` and a forced choice that the upstream does not support."""
    capabilities, ledger = context.capabilities, context.ledger
    refuses = capabilities.refuses
    if "tool_strict" in refuses:
        tools = tuple([_without_strict(tool, ledger) for tool in request.tools])
        request = msgspec.structs.replace(request, tools=tools)
    elif not context.rewritten and context.upstream.checks_strict_schemas:
        request = _fit_strict(request, ledger)
    if "parallel_tool_calls" in refuses and request.parallel_tool_calls is not None:
        if not request.parallel_tool_calls:
            ledger.dropped(request.parallel_path, "the upstream has no setting for parallel calls")
        request = msgspec.structs.replace(request, parallel_tool_calls=None)
    return request if request.tool_choice is None else _fit_choice(request, capabilities, ledger)


def _fit_strict(request: Request, ledger: Ledger) -> Request:
    """Return the request with `strict` only where the server accepts the schema as that."""
    form, tools = request.response_format, list(request.tools)
    for number, tool in enumerate(tools):
        if type(tool) is FunctionTool and tool.strict and not is_strict(tool.parameters):
            ledger.altered(member_path(tool, "strict"), _NOT_STRICT)
            tools[number] = changed(tool, strict=False)
    if any(map(is_not, tools, request.tools)):
        request = msgspec.structs.replace(request, tools=tuple(tools))
    if form is not None and form.strict and form.schema is not None and not is_strict(form.schema):
        ledger.altered(form.path, _NOT_STRICT)
        request = msgspec.structs.replace(
            request, response_format=msgspec.structs.replace(form, strict=False)
        )
    return request


_NOT_STRICT = "the server does not accept this schema as strict"


def _without_strict(tool: Tool, ledger: Ledger) -> Tool:
    if not isinstance(tool, FunctionTool) or tool.strict is None:
        return tool
    if tool.strict:
        ledger.dropped(member_path(tool, "strict"), "the upstream is not known to enforce a tool's schema")
    return changed(tool, ("strict",), strict=None)


def _fit_choice(request: Request, capabilities: Capabilities, ledger: Ledger) -> Request:
    """Return the request with a tool choice that is allowed with its reasoning."""
    choice = request.tool_choice
    if choice is None or capabilities.forced_tools == "yes":
        return request
    if not choice.requires_call:
        return request
    if not capabilities.can_force_tools:
        ledger.altered(choice.path, "sent as auto: the upstream's model does not accept a forced tool call")
        if choice.mode == "allowed":
            choice = msgspec.structs.replace(choice, required=False)
            return msgspec.structs.replace(request, tool_choice=choice)
        return msgspec.structs.replace(request, tool_choice=None)
    if capabilities.efforts == ():
        return request  # it does not reason
    # "Thinking may not be enabled when tool_choice forces tool use." (can1357/oh-my-pi#341) Some models reason unless
    # that is disabled (can1357/oh-my-pi#6590, both read 2026-11-22).
    config = request.reasoning
    if config is not None and config.requests_reasoning:
        ledger.altered(
            config.path, "reasoning is off: the model does not accept it together with a forced tool call"
        )
    return msgspec.structs.replace(request, reasoning=ReasoningConfig(mode="disabled"))


def _effort_is_none(request: Request, capabilities: Capabilities) -> bool:
    config = request.reasoning
    if config is None or not config.requests_reasoning:
        return True
    return config.effort is not None and fit_effort(config.effort, capabilities.efforts) == "none"


def _fan_out(value: JSON, path: str, max_fan_out: int) -> int:
    if type(value) is not int or value < 1:
        raise RequestRefused("n must be a positive integer", path=path, code="invalid_value")
    if value > max_fan_out:
        hint = (
            "send one request for each choice"
            if max_fan_out == 1
            else f"request at most {max_fan_out} choices"
        )
        raise RequestRefused(
            f"the upstream returns one choice per request: {hint}", path=path, code="unsupported_value"
        )
    return value
