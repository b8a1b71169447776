"""Read and write how much a model shall reason, in the official setting and in half a dozen dialects.

Clients mix several dialects. A table lists the places and what each is about; the first of several that are about the
same thing counts, and what a later one says differently goes into `extra`. An upstream gets the one setting that it
supports, with the nearest effort that its model supports.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from dragoman._ir.effort import DEFAULT_EFFORT, effort_of_budget, fit_effort
from dragoman._ir.losses import Ledger
from dragoman._ir.request import (
    ReasoningConfig,
    Request,
)
from dragoman._wire.json import JSON, JSONObject
from dragoman.codec import Capabilities
from dragoman.protocols.openai_chat.checks import (
    KNOWN_REASONING,
    KNOWN_TEMPLATE_KWARGS,
    KNOWN_THINKING,
    extra_fields,
    require_text,
    wrong_type,
)
from dragoman.protocols.openai_chat.tables import (
    CHAT_TEMPLATE_KWARGS,
    REASONING_SETTINGS,
)


def _budget(value: JSON, path: str) -> int:
    if type(value) is not int:
        raise wrong_type(path, "an integer", value)
    return value


def _switch(value: JSON, path: str) -> str | None:
    """A plain switch says whether, and not how much."""
    return ("adaptive" if value else "disabled") if type(value) is bool else None


def _mode(value: JSON, path: str) -> str | None:
    return value if value in ("enabled", "disabled", "adaptive") else None


def _display_if_excluded(value: JSON, path: str) -> str | None:
    return ("omitted" if value else "summarized") if type(value) is bool else None


def _display_if_included(value: JSON, path: str) -> str | None:
    return ("summarized" if value else "omitted") if type(value) is bool else None


# Setting, its member ("" for none), the field of ReasoningConfig that it is about, and how to read it. A reader that
# gives None does not know the value.
_PLACES: tuple[tuple[str, str, str, Callable[[JSON, str], str | int | None]], ...] = (
    ("reasoning_effort", "", "effort", require_text),
    ("reasoning", "effort", "effort", require_text),
    ("reasoning", "enabled", "mode", _switch),
    ("reasoning", "max_tokens", "budget", _budget),
    ("reasoning", "exclude", "display", _display_if_excluded),
    ("thinking", "type", "mode", _mode),
    ("thinking", "budget_tokens", "budget", _budget),
    ("enable_thinking", "", "mode", _switch),
    ("chat_template_kwargs", "enable_thinking", "mode", _switch),
    ("chat_template_kwargs", "thinking", "mode", _switch),
    ("thinking_budget", "", "budget", _budget),
    ("include_reasoning", "", "display", _display_if_included),
)

_KNOWN_MEMBERS = {
    "reasoning": KNOWN_REASONING,
    "thinking": KNOWN_THINKING,
    "chat_template_kwargs": KNOWN_TEMPLATE_KWARGS,
}


def read_reasoning(body: JSONObject, extra: JSONObject) -> ReasoningConfig | None:
    """What a body says about reasoning, None when it says nothing that is understood.

    Raises RemoteProtocolError (400) for an effort or budget of a wrong type.
    """
    if not any(key in body for key in REASONING_SETTINGS):
        return None
    for key, known in _KNOWN_MEMBERS.items():
        holder = body.get(key)
        unknown = extra_fields(holder, known) if type(holder) is dict else holder
        if unknown is not None:
            extra[key] = unknown
    found: dict[str, JSON] = {}
    paths: dict[str, str] = {}
    for key, member, field, read in _PLACES:
        value = body.get(key)
        path = f"/{key}"
        if member:
            value = value.get(member) if type(value) is dict else None
            path = f"{path}/{member}"
        if value is None:
            continue
        meaning = read(value, path)
        if meaning is None or not _agrees(field, found.setdefault(field, meaning), meaning):
            extra[key] = {**extra.get(key, {}), member: value} if member else value
        else:
            paths.setdefault(field, path)
    if not found:
        return None
    if "budget" in found and found.get("mode") != "disabled":
        found["mode"] = "enabled"
    effort_path = paths.get("effort", "")
    path = next((paths[field] for field in ("budget", "mode", "display") if field in paths), effort_path)
    if path.count("/") > 1:
        path = path.rpartition("/")[0]
    return ReasoningConfig(**found, path=path, effort_path="" if effort_path == path else effort_path)


def _agrees(field: str, first: JSON, later: JSON) -> bool:
    if field == "mode":
        return (first == "disabled") is (later == "disabled")
    return bool(first == later)


def write_reasoning(
    request: Request, same_protocol: bool, capabilities: Capabilities, out: JSONObject, ledger: Ledger
) -> None:
    """Ask for reasoning in the way that the upstream understands."""
    config = request.reasoning
    if config is None:
        return
    if (
        same_protocol
        and config.path == f"/{CHAT_TEMPLATE_KWARGS}"
        and capabilities.reasoning_setting == "reasoning_effort"
    ):
        # What the template of the model takes is known to who wrote the request, not to us.
        out[CHAT_TEMPLATE_KWARGS] = request.raw[CHAT_TEMPLATE_KWARGS]
        config = msgspec.structs.replace(config, mode=None, path=config.effort_path)
    path = config.path or "/reasoning"
    if config.display is not None:
        ledger.dropped(config.display_path or path, "whether reasoning is shown is up to the upstream")
    requested = _requested_effort(config)
    if requested is None:
        return
    if config.mode == "disabled" and config.effort not in (None, "none"):
        ledger.dropped(config.effort_path or path, "no effort beside thinking that is switched off")
    setting = capabilities.reasoning_setting
    at = (config.effort_path or path) if config.effort is not None else path
    if setting is None:
        ledger.dropped(at, "the upstream has no setting for reasoning")
        if config.mode is not None or config.budget is not None:
            ledger.dropped(path, "the upstream has no setting for reasoning")
        return
    if requested == "none" and setting in ("thinking", "enable_thinking"):
        # "thinking cannot be disabled when reasoning_effort is set": the switch goes alone.
        out[setting] = {"type": "disabled"} if setting == "thinking" else False
        return
    if setting == "reasoning" and config.effort is None and config.budget is not None and requested != "none":
        out["reasoning"] = {"max_tokens": config.budget}
        return
    if config.budget is not None and requested != "none":
        ledger.altered(path, "the budget in tokens is lost: an effort is all that can be said")
    effort = fit_effort(requested, capabilities.efforts)
    if (
        setting == "reasoning_effort"
        and not capabilities.tools_with_effort
        and effort != "none"
        and "tools" in out
    ):
        # "Function tools with reasoning_effort are not supported for ... in /v1/chat/completions. To use function
        # tools, use /v1/responses or set reasoning_effort to 'none'."
        ledger.altered(at, "the model takes no effort beside tools in Chat Completions")
        if fit_effort("none", capabilities.efforts) != "none":
            return
        effort = "none"
    elif effort != requested:
        ledger.altered(at, f"sent as {effort}, the nearest that the model takes")
    if setting == "reasoning":
        out["reasoning"] = {"effort": effort}
    elif setting == "reasoning_effort":
        out["reasoning_effort"] = effort
    else:
        out[setting] = {"type": capabilities.thinking_type} if setting == "thinking" else True
        if capabilities.efforts:
            out["reasoning_effort"] = effort
        elif config.effort is not None:
            ledger.altered(at, "sent as a switch: how much to think cannot be said")


def _requested_effort(config: ReasoningConfig) -> str | None:
    """What the configuration comes to, as an effort; None when it asks for nothing."""
    if config.mode == "disabled":
        return "none"
    if config.effort is not None:
        return config.effort
    if config.budget is not None:
        return effort_of_budget(config.budget)
    return None if config.mode is None else DEFAULT_EFFORT
