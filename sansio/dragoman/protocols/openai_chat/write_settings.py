"""The settings of a request, printed for a Chat Completions upstream.

Strategy: settings of equal meaning go through tables. Reasoning is asked for in the one way that the upstream
understands, with the nearest effort that its model takes; structured output with `strict` only where the server
would not refuse it. What has no place goes into the ledger.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from dragoman._ir.losses import Ledger, child
from dragoman._ir.parameters import (
    DEFAULT_EFFORT,
    Converter,
    effort_of_budget,
    fit_effort,
    hash_longer_than,
    write_params,
)
from dragoman._ir.request import Param, ReasoningConfig, Request
from dragoman._wire.json import JSON, JSONObject
from dragoman._wire.json_schema import is_strict
from dragoman.codec import Capabilities
from dragoman.protocols.openai_chat.tables import (
    CHAT_TEMPLATE_KWARGS,
    MAX_SAFETY_IDENTIFIER,
    MAX_USER,
    PARAM_NAMES,
    REASONING_SETTINGS,
    SERVICE_TIER_ALIASES,
    SERVICE_TIERS,
)

# --- plain settings ----------------------------------------------------------------------------------------


def write_settings(
    request: Request, same_protocol: bool, capabilities: Capabilities, out: JSONObject, ledger: Ledger
) -> None:
    """Put the plain settings into `out`. own: the request came as Chat Completions."""
    if request.params:
        converters = _MARKING_CONVERTERS if capabilities.cache_marks == "breakpoint" else _CONVERTERS
        if "service_tier" in capabilities.refuses:
            converters = {**converters, "speed": _no_speed}
        if same_protocol:  # the client's words for tiers are the upstream's
            converters = {param: each for param, each in converters.items() if param != "service_tier"}
        write_params(request, PARAM_NAMES[capabilities.max_tokens_field], converters, out, ledger)
        if not same_protocol:
            _finish(request, capabilities, out, ledger)


def write_native_settings(request: Request, out: JSONObject, ledger: Ledger) -> None:
    """The same for a request that came as Chat Completions, with limit, reasoning and format in its own words."""
    newer = request.raw.get("max_completion_tokens") is not None
    write_params(request, PARAM_NAMES["max_completion_tokens" if newer else "max_tokens"], {}, out, ledger)
    for key in REASONING_SETTINGS:
        if request.raw.get(key) is not None:
            out[key] = request.raw[key]
    if request.response_format is not None:
        out["response_format"] = request.raw["response_format"]


def _finish(request: Request, capabilities: Capabilities, out: JSONObject, ledger: Ledger) -> None:
    """Settings that become another one than their name says."""
    if request.params.get("speed") == "fast" and request.params.get("service_tier", "fast") != "fast":
        out["service_tier"] = "fast"
        path = request.param_paths.get("service_tier", "/service_tier")
        ledger.dropped(path, "the speed is said in its place")
    wanted = _LOGPROBS in (request.params.get("include") or ())
    if wanted and "logprobs" in capabilities.refuses:
        ledger.dropped(request.param_paths.get("include", "/include"), "the upstream takes no logprobs")
        wanted = False
    if wanted or "top_logprobs" in out:
        out["logprobs"] = True  # "must be set to true if top_logprobs is used"


_LOGPROBS = "message.output_text.logprobs"
# Encrypted reasoning travels inside the conversation anyway.
_SERVED_INCLUDES = frozenset({_LOGPROBS, "reasoning.encrypted_content"})


def _service_tier(value: JSON, path: str, ledger: Ledger) -> JSON:
    if type(value) is str and value in SERVICE_TIERS:
        return value
    tier = SERVICE_TIER_ALIASES.get(str(value))
    if tier is None:
        ledger.dropped(path, "the target protocol has no such service tier")
    else:
        ledger.altered(path, f"sent as {tier}")
    return tier


def _speed(value: JSON, path: str, ledger: Ledger) -> JSON:
    """Messages' `speed: fast` is a service tier here; any other speed is the ordinary one."""
    if value not in ("fast", "standard"):
        ledger.dropped(path, "the target protocol has no such speed")
    return value if value == "fast" else None


def _no_speed(value: JSON, path: str, ledger: Ledger) -> JSON:
    if value != "standard":
        ledger.dropped(path, "the upstream takes no service tier")
    return None


def _include(value: JSON, path: str, ledger: Ledger) -> JSON:
    for index, item in enumerate(value if type(value) is list else ()):
        if type(item) is not str or item not in _SERVED_INCLUDES:
            ledger.dropped(child(path, index), "the target protocol has nothing of the kind to include")
    return None


def _no_marks(value: JSON, path: str, ledger: Ledger) -> JSON:
    ledger.dropped(path, "the upstream takes no cache marks")
    return None


_MARKING_CONVERTERS: Mapping[Param, Converter] = {
    "service_tier": _service_tier,
    "speed": _speed,
    "include": _include,
    "background": lambda value, path, ledger: None,  # false, or it would have been refused
    "safety_identifier": hash_longer_than(MAX_SAFETY_IDENTIFIER),
    "user": hash_longer_than(MAX_USER),
}
_CONVERTERS: Mapping[Param, Converter] = {**_MARKING_CONVERTERS, "prompt_cache_options": _no_marks}


# --- reasoning ---------------------------------------------------------------------------------------------


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
    wish = _effort(config)
    if wish is None:
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
    if wish == "none" and setting in ("thinking", "enable_thinking"):
        # "thinking cannot be disabled when reasoning_effort is set": the switch goes alone.
        out[setting] = {"type": "disabled"} if setting == "thinking" else False
        return
    if setting == "reasoning" and config.effort is None and config.budget is not None and wish != "none":
        out["reasoning"] = {"max_tokens": config.budget}
        return
    if config.budget is not None and wish != "none":
        ledger.altered(path, "the budget in tokens is lost: an effort is all that can be said")
    effort = fit_effort(wish, capabilities.efforts)
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
    elif effort != wish:
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


def _effort(config: ReasoningConfig) -> str | None:
    """What the configuration comes to, as an effort; None when it asks for nothing."""
    if config.mode == "disabled":
        return "none"
    if config.effort is not None:
        return config.effort
    if config.budget is not None:
        return effort_of_budget(config.budget)
    return None if config.mode is None else DEFAULT_EFFORT


# --- structured output -------------------------------------------------------------------------------------

_ASK_FOR_JSON = "Answer with one JSON object."


def write_response_format(
    request: Request, same_protocol: bool, messages: list[JSONObject], out: JSONObject, ledger: Ledger
) -> None:
    """Put the form of the answer into `out`; `messages` are the request's own, printed."""
    form = request.response_format
    if form is None:
        return
    path = form.path or "/response_format"
    if form.schema is None:
        out["response_format"] = {"type": "json_object"}
        if not any(_says_json(message) for message in messages):
            # "'messages' must contain the word 'json' in some form, to use response_format of type json_object."
            _instruct(messages, _ASK_FOR_JSON)
            ledger.altered(
                path, "the messages got an instruction to answer in JSON, without which it is refused"
            )
        return
    schema: JSONObject = {"name": form.name or "response"}  # the name is required
    if form.description is not None:
        schema["description"] = form.description
    schema["schema"] = form.schema
    if form.strict is not None:
        schema["strict"] = form.strict and is_strict(form.schema)
        if form.strict and not schema["strict"]:
            ledger.altered(path, "the schema is outside of what the server takes as strict")
    if same_protocol and form.extra:
        schema.update(form.extra)
    out["response_format"] = {"type": "json_schema", "json_schema": schema}


def _says_json(message: JSONObject) -> bool:
    content = message.get("content")
    texts = [content] if type(content) is str else [part.get("text") for part in content or ()]
    return any(type(text) is str and "json" in text.lower() for text in texts)


def _instruct(messages: list[JSONObject], text: str) -> None:
    """Add an instruction to the system's words, which some servers take in one message at the head alone."""
    first = messages[0] if messages else {}
    if first.get("role") not in ("system", "developer"):
        messages.insert(0, {"role": "system", "content": text})
    elif type(first["content"]) is str:
        first["content"] = f"{first['content']}\n\n{text}"
    else:
        first["content"] = [*first["content"], {"type": "text", "text": text}]
