"""Write thinking and effort, and drop the settings that thinking forbids.

Models think adaptively with an effort or with a budget of tokens, see `Capabilities.thinking`. Effort wins over a
budget, because all protocols have it. Conflicts are resolved when the rest of the body is written.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dragoman._ir.losses import Ledger
from dragoman._ir.parameters import BUDGETS, DEFAULT_EFFORT, EFFORTS, MIN_BUDGET, effort_of_budget, fit_effort
from dragoman._ir.request import ReasoningConfig, Request
from dragoman._ir.wrapped_signatures import Signer, unwrap_summary
from dragoman._wire.json import JSON, JSONObject
from dragoman.codec import SignaturePlaces
from dragoman.protocols.anthropic_messages.capabilities import MessagesCapabilities as Capabilities
from dragoman.protocols.anthropic_messages.request_messages_in import is_made_search
from dragoman.protocols.anthropic_messages.tables import MARKED, MIN_TOP_P, NATIVE_EFFORTS, SAMPLING_PARAMS


def write_thinking(request: Request, capabilities: Capabilities, out: JSONObject, ledger: Ledger) -> None:
    """Write `thinking` and `output_config.effort` into `out`, and raise `max_tokens` where needed."""
    config = request.reasoning
    if config is None:
        return
    if config.mode == "disabled" or config.effort == "none":
        _write_disabled(config, capabilities, out, ledger)
        return
    if capabilities.thinking == "none":
        ledger.dropped(config.path, "the model does not reason")
        return
    if config.effort is not None and config.budget is not None:
        ledger.altered(config.path, "the effort was sent and not the budget")
    thinking = (
        _write_adaptive(config, capabilities, out, ledger)
        if capabilities.thinking == "adaptive"
        else _write_budget(request, config, out, ledger)
    )
    if thinking is not None:
        if config.display is not None:
            thinking["display"] = config.display
        out["thinking"] = thinking


def resolve_thinking_conflicts(
    request: Request, capabilities: Capabilities, out: JSONObject, ledger: Ledger
) -> None:
    """Drop settings that the API refuses together."""
    if request.reasoning is not None:
        drop_thinking_in_tool_loop(out, request.reasoning.path, ledger)
    thinks = (out.get("thinking") or {}).get("type") in ("enabled", "adaptive")
    for param in filter(out.__contains__, SAMPLING_PARAMS):
        value = out[param]
        reason = ""
        if not capabilities.sampling:
            reason = "the upstream's models do not accept sampling settings"
        elif thinks and _FORBIDDEN[param](value):
            reason = "this value is not allowed while the model reasons"
        if reason:
            ledger.dropped(request.path_of(param), reason)
            del out[param]


def drop_thinking_in_tool_loop(out: JSONObject, path: str, ledger: Ledger) -> None:
    """Drop a budget of thinking in the middle of a tool loop whose reasoning is missing. path: of the setting."""
    thinking = out.get("thinking")
    if type(thinking) is dict and thinking.get("type") == "enabled" and _needs_thinking(out["messages"]):
        ledger.altered(
            path, "reasoning was switched off: the request lacks the reasoning before the last tool calls"
        )
        del out["thinking"]


def _needs_thinking(messages: list[JSON]) -> bool:
    """Return True if the conversation is in a tool loop whose last assistant turn begins without thinking.

    With thinking enabled the API refuses that: "Expected `thinking` or `redacted_thinking`, but found `text`"
    (inspect_ai#3025, read 2026-11-22).
    """
    last = len(messages) - 1
    while last >= 0 and messages[last].get("role") != "assistant":
        last -= 1
    if last < 0 or last + 1 == len(messages) or _first_type(messages[last + 1]) != "tool_result":
        return False
    while last > 0 and messages[last - 1].get("role") == "assistant":
        last -= 1  # the server joins them into one turn
    return _first_type(messages[last]) not in ("thinking", "redacted_thinking")


def _first_type(message: JSONObject) -> JSON:
    content = message.get("content")
    first = content[0] if type(content) is list and content else None
    return first.get("type") if type(first) is dict else None


# Values that the API refuses with thinking: any temperature but 1, any top_k, and a top_p below 0.95
# (platform.claude.com/docs on thinking, read 2026-11-22).
_FORBIDDEN: dict[str, Callable[[JSON], bool]] = {
    "temperature": lambda value: value != 1,
    "top_k": lambda value: True,
    "top_p": lambda value: type(value) in (int, float) and value < MIN_TOP_P,
}


def _write_disabled(
    config: ReasoningConfig, capabilities: Capabilities, out: JSONObject, ledger: Ledger
) -> None:
    """Write disabled thinking, without an effort next to it (oh-my-pi#6590, read 2026-11-22)."""
    if config.effort not in (None, "none") or config.budget is not None:
        ledger.altered(_effort_path(config), "reasoning is off: its effort or budget was left out")
    if capabilities.thinking != "adaptive":
        return
    if capabilities.efforts is None or "none" in capabilities.efforts:
        out["thinking"] = {"type": "disabled"}
        return
    effort = fit_effort("none", _efforts(capabilities))
    ledger.altered(_effort_path(config), f"sent as effort {effort}: the model's reasoning cannot be disabled")
    out["output_config"] = {"effort": effort}


def _write_adaptive(
    config: ReasoningConfig, capabilities: Capabilities, out: JSONObject, ledger: Ledger
) -> JSONObject:
    effort = config.effort
    if effort is None and config.budget is not None:
        effort = effort_of_budget(config.budget)
        ledger.altered(
            config.path, "the token budget was converted to an effort: the model does not accept budgets"
        )
    if effort is not None:
        fitted = fit_effort(effort, _efforts(capabilities))
        if fitted != effort and config.effort is not None:
            ledger.altered(
                _effort_path(config), f"sent as {fitted}, the nearest effort that the model accepts"
            )
        out["output_config"] = {"effort": fitted}
    return {"type": "adaptive"}


def _write_budget(
    request: Request, config: ReasoningConfig, out: JSONObject, ledger: Ledger
) -> JSONObject | None:
    limit: int = out["max_tokens"]
    if config.effort is not None:
        known = config.effort if config.effort in EFFORTS else DEFAULT_EFFORT
        if known != config.effort:
            ledger.altered(_effort_path(config), f"an unknown effort was read as {known}")
        budget = BUDGETS[known]
    elif config.budget is not None:
        budget = config.budget
    elif config.mode is not None:
        budget = BUDGETS[DEFAULT_EFFORT]
    else:
        ledger.dropped(config.path, "the model reasons only with a budget, and the request has no effort")
        return None
    # "Must be ≥1024 and less than `max_tokens`." (anthropic 2.12.0, types/thinking_config_enabled_param.py) That limit
    # counts reasoning and answer, so an effort leaves a quarter of it for the answer. Who sends a budget, or requests
    # all that there is, has chosen otherwise.
    chosen = budget is None or (config.effort is None and config.budget is not None)
    most = limit - 1 if chosen else max(limit - limit // 4, MIN_BUDGET)
    if limit <= MIN_BUDGET:
        # The smallest budget does not fit below the client's limit, which stays the limit of the text.
        path = request.param_paths.get("max_output_tokens", "/max_tokens")
        ledger.altered(path, f"raised by {MIN_BUDGET}, the smallest reasoning budget")
        out["max_tokens"] = limit + MIN_BUDGET
        most = MIN_BUDGET
    fitted = most if budget is None else max(min(budget, most), MIN_BUDGET)
    if budget is not None and fitted != budget:
        path = config.path if config.effort is None else _effort_path(config)
        ledger.altered(path, f"sent as a budget of {fitted} tokens, which fits below the limit")
    return {"type": "enabled", "budget_tokens": fitted}


def _efforts(capabilities: Capabilities) -> tuple[str, ...]:
    """Return the efforts that the model accepts."""
    return (
        tuple([effort for effort in capabilities.efforts or () if effort in NATIVE_EFFORTS]) or NATIVE_EFFORTS
    )


def _effort_path(config: ReasoningConfig) -> str:
    return config.effort_path or config.path


# Signatures in a body that is relayed, see SignaturePlaces.

_FIELDS = {"thinking": "signature", "redacted_thinking": "data"}

UNSIGNED = "unsigned reasoning: the upstream accepts only what it signed"


def _replace_signed_block(
    block: JSONObject, native: JSONObject | None, message: JSONObject, path: str, ledger: Ledger
) -> Sequence[JSON]:
    """Return the vendor's own block instead of a wrapped one, and nothing for a search that was made for clients."""
    if native is not None:
        if "cache_control" in block:
            ledger.dropped(f"{path}/cache_control", MARKED)
        return (native,)
    if is_made_search(block):
        return ()
    return (block,)


def _finish_signatures(body: JSONObject, signer: Signer, ledger: Ledger) -> None:
    """Start the conversation at its last summary, if Dragoman made it, and fit the settings to lost reasoning."""
    body["messages"] = _from_summary(body["messages"], signer)
    drop_thinking_in_tool_loop(body, "/thinking", ledger)


def _from_summary(messages: list[JSON], signer: Signer) -> list[JSON]:
    for index in range(len(messages) - 1, -1, -1):
        message = messages[index]
        content = message.get("content")
        for number in range(len(content) - 1, -1, -1) if type(content) is list else ():
            summary = unwrap_summary(content[number], signer)
            if summary is None:
                continue
            text = {key: value for key, value in content[number].items() if key == "cache_control"}
            start = {"role": "user", "content": [{"type": "text", "text": summary, **text}]}
            rest = content[number + 1 :]
            return [start, *([{**message, "content": rest}] if rest else []), *messages[index + 1 :]]
    return messages


SIGNATURE_PLACES = SignaturePlaces(
    members=("content",), fields=_FIELDS, replace=_replace_signed_block, finish=_finish_signatures
)
