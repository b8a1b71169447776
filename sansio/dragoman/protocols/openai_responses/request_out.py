"""Write a request as the body for a Responses upstream.

Items, tools and settings each have a writer. Towards an upstream of the client's own protocol, what has no form in the
document is written again from `extra`, opaque parts and the client's body. For other clients nothing is stored unless
they request it, and reasoning comes back encrypted, so that it can travel through the client.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dragoman._ir.losses import Ledger
from dragoman._ir.parameters import Converter, fit_effort, requested_effort, write_params
from dragoman._ir.request import (
    Message,
    OpaquePart,
    Param,
    Part,
    ReasoningConfig,
    Request,
    ResponseFormat,
    Text,
)
from dragoman._ir.shape import setting_paths
from dragoman._ir.wrapped_signatures import Signer, unwrap_summary
from dragoman._wire.json import JSON, JSONObject
from dragoman.codec import SignaturePlaces
from dragoman.protocols._openai.settings import (
    DEFAULT_SCHEMA_NAME,
    ID_CONVERTERS,
    INCLUDE_LOGPROBS,
    INCLUDE_REASONING,
    JSON_INSTRUCTION,
    with_tiers,
)
from dragoman.protocols.openai_responses.capabilities import ResponsesCapabilities as Capabilities
from dragoman.protocols.openai_responses.request_messages_out import InputWriter, unwrapped_item
from dragoman.protocols.openai_responses.shapes import REQUEST_SHAPE
from dragoman.protocols.openai_responses.tables import (
    EFFORT_IMPLIES_SUMMARY,
    MIN_OUTPUT_TOKENS,
    SUMMARY_NAMES,
    TIERS,
    TITLE,
)
from dragoman.protocols.openai_responses.tools import (
    note_unsent_servers,
    sum_max_uses,
    write_tool_choice,
    write_tools,
)

# The names of settings. `text.verbosity` is written by functions.
_NAMES: dict[Param, str] = {
    **{param: path[1:] for param, path in setting_paths(REQUEST_SHAPE).items()},
    "speed": "service_tier",
}


def write_request(request: Request, capabilities: Capabilities, ledger: Ledger) -> JSONObject:
    """Write the body."""
    native, settings = bool(request.native), request.changed_settings()
    out: JSONObject = {"model": request.model}
    messages = request.messages
    if messages and _is_instructions(messages, capabilities, native):
        text = messages[0].parts[0]
        assert isinstance(text, Text)
        if not native:
            out["instructions"] = text.text
        messages = messages[1:]
    moved: frozenset[str] = frozenset()
    only_functions = capabilities.custom_tools is False
    if native and not capabilities.additional_tools:
        moved = _declarations(messages, ledger)
        messages = tuple([each for each in messages if each.path not in moved])
    items: JSON = InputWriter(ledger, native, only_functions).items(messages)
    if not native:
        _add_word_json(request, items, ledger)
    if native and type(request.native.get("input")) is not list and len(items) < 2:
        items = request.native.get("input")
    if items is not None:
        out["input"] = items
    if request.tools or request.tool_choice is not None or "mcp_servers" in request.params:
        _write_tools(request, capabilities, out, ledger, moved)
    if request.parallel_tool_calls is not None:
        out["parallel_tool_calls"] = request.parallel_tool_calls
    if request.stream:
        out["stream"] = True
    text_settings: JSONObject = {}
    if settings.response_format is not None:
        text_settings["format"] = _write_format(settings.response_format)
    verbosity = settings.params.get("verbosity")
    if verbosity is not None:
        text_settings["verbosity"] = verbosity
    if text_settings:
        out["text"] = text_settings
    if settings.params:
        refuses_tiers = "service_tier" in capabilities.refuses
        converters = with_tiers(CONVERTERS, request, refuses_tiers, TITLE, TIERS)
        write_params(settings, _NAMES, converters, out, ledger)
    if native:
        return _with_kept_members(request, capabilities, out, ledger)
    _write_implied_settings(request, capabilities, out, ledger)
    return out


def _declarations(messages: Sequence[Message], ledger: Ledger) -> frozenset[str]:
    """Return the paths of the items whose tools have to be sent among the request's."""
    moved = [each.path for each in messages if any(_declares(part) for part in each.parts)]
    for path in moved:
        ledger.altered(path, "its tools are sent among those of the request, which the server requires")
    return frozenset(moved)


def _declares(part: Part) -> bool:
    return isinstance(part, OpaquePart) and part.kind == "additional_tools"


def _write_tools(
    request: Request, capabilities: Capabilities, out: JSONObject, ledger: Ledger, moved: frozenset[str]
) -> None:
    native = bool(request.native)
    # Tools that an input item declares are written there, but for those of the items at the paths `moved`. A server
    # that has functions only gets no such items.
    in_items = native and capabilities.custom_tools is not False
    tools = [
        tool
        for tool in request.tools
        if not (
            in_items and tool.path.startswith("/input/") and tool.path.partition("/tools/")[0] not in moved
        )
    ]
    body = write_tools(tools, request, capabilities, ledger) if tools else []
    if body:
        out["tools"] = body
    if not native:
        uses = sum_max_uses(tools, capabilities, ledger)
        if uses is not None:
            out["max_tool_calls"] = uses
    if "mcp_servers" in request.params:
        note_unsent_servers(request, capabilities, ledger)
    choice, was = request.tool_choice, request.received
    if choice is None:
        return
    if was is not None and choice is was.tool_choice:
        out["tool_choice"] = request.native["tool_choice"]
        return
    if choice.mode == "required" and not body and not native:
        ledger.dropped(choice.path, "no tool can be called")
        return
    chosen = write_tool_choice(choice, request.tools, request, capabilities, ledger)
    if chosen is not None:
        out["tool_choice"] = chosen


def _is_instructions(messages: tuple[Message, ...], capabilities: Capabilities, native: bool) -> bool:
    """True if the first message goes into `instructions`, which is one plain text.

    Several system texts stay items, because joining them would lose where one ends. So does one that can have a cache
    mark, whether it has one or not: clients move marks, and the text has to stay where the upstream has cached it. So
    does the only message: instructions without input are refused (openai-java#396, read 2026-12-01).
    """
    first = messages[0]
    if native:
        return first.path == "/instructions"
    if first.role != "system" or len(first.parts) != 1:
        return False
    part = first.parts[0]
    if type(part) is not Text or capabilities.cache_marks == "breakpoint" or part.citations:
        return False
    return len(messages) > 1 and messages[1].role not in ("system", "developer")


def _add_word_json(request: Request, items: list[JSON], ledger: Ledger) -> None:
    """Add the instruction at the end, where it changes no cached prefix."""
    text_format = request.response_format
    if text_format is None or text_format.schema is not None or any(_has_word_json(item) for item in items):
        return
    content = [{"type": "input_text", "text": JSON_INSTRUCTION}]
    items.append({"type": "message", "role": "system", "content": content})
    ledger.repaired(
        text_format.path, "the server requires the word JSON in the input: an instruction was added"
    )


def _has_word_json(item: JSONObject) -> bool:
    content = item.get("content")
    return type(content) is list and any("json" in (part.get("text") or "").lower() for part in content)


def _write_implied_settings(
    request: Request, capabilities: Capabilities, out: JSONObject, ledger: Ledger
) -> None:
    """Write what another protocol's request implies into `out`, and its reasoning."""
    # "Defaults to true when omitted" (openai-python 3.54.0, `store`), which clients of other protocols do not request.
    if "store" not in capabilities.refuses:
        out["store"] = request.params.get("store") is True
    include: list[str] = []
    encrypted = capabilities.encrypted_reasoning
    if request.reasoning is not None:
        reasoning = _write_reasoning(request.reasoning, request.protocol, capabilities, ledger)
        if reasoning:
            out["reasoning"] = reasoning
            encrypted = True
    # A model that does not reason refuses it: "Encrypted content is not supported with this model."
    # (pydantic/pydantic-ai#2865, read 2026-11-22)
    if encrypted:
        include.append(INCLUDE_REASONING)
    if request.params.get("logprobs"):
        include.append(INCLUDE_LOGPROBS)
    if include and "include" not in capabilities.refuses:
        out["include"] = include
    elif request.params.get("logprobs"):
        ledger.dropped(request.path_of("logprobs"), "the upstream does not accept `include`")


# The members of a body that are always written again.
_WRITTEN = ("/input", "/parallel_tool_calls", "/tools", "/tool_choice")


def _with_kept_members(
    request: Request, capabilities: Capabilities, out: JSONObject, ledger: Ledger
) -> JSONObject:
    """Return the client's own body with its written members, and its reasoning as the capabilities have it."""
    refused = [f"/{name}" for name in capabilities.refuses]
    out = request.native_body(out, (*_WRITTEN, *refused), ("/text/format",))
    config = request.reasoning
    if config is None or (config.effort_path or config.path).startswith("/input/"):
        return out  # unset, or set by an input item
    reasoning = dict(out.pop("reasoning", None) or {})
    fitted = _write_reasoning(config, request.protocol, capabilities, ledger)
    if capabilities.efforts == ():
        reasoning.clear()
        # Such a model refuses it, see _write_implied_settings.
        include = [each for each in out.pop("include", ()) if each != INCLUDE_REASONING]
        if include:
            out["include"] = include
    if "summary" not in fitted:
        for name in SUMMARY_NAMES:
            reasoning.pop(name, None)
    elif not reasoning.keys().isdisjoint(SUMMARY_NAMES):
        del fitted["summary"]  # the client's own setting stays
    if reasoning or fitted:
        out["reasoning"] = {**reasoning, **fitted}
    return out


def _write_format(text_format: ResponseFormat) -> JSONObject:
    if text_format.schema is None:
        return {"type": "json_object"}
    out: JSONObject = {
        "type": "json_schema",
        "name": text_format.name or DEFAULT_SCHEMA_NAME,
        "schema": text_format.schema,
    }
    if text_format.description is not None:
        out["description"] = text_format.description
    out["strict"] = bool(text_format.strict)
    return out


def _write_reasoning(
    config: ReasoningConfig, protocol: str, capabilities: Capabilities, ledger: Ledger
) -> JSONObject:
    out: JSONObject = {}
    wanted = requested_effort(config)
    path = config.path
    if capabilities.efforts == ():
        # "Unsupported parameter: 'reasoning.effort' is not supported with this model." (BerriAI/litellm#38842, read
        # 2026-11-22)
        if config.requests_reasoning or config.display is not None or config.extra:
            for place in dict.fromkeys((path, config.effort_path or path)):
                ledger.dropped(place, "the model does not reason")
        return out
    if config.budget is not None:
        ledger.altered(path, "the token budget was converted to an effort")
    elif config.effort not in (None, wanted):
        ledger.altered(path, "reasoning is off: its effort was left out")
    effort = None if wanted is None else fit_effort(wanted, capabilities.efforts)
    if effort != wanted:
        ledger.altered(
            config.effort_path or path, f"sent as {effort}, the nearest effort that the model accepts"
        )
    if effort is not None:
        out["effort"] = effort
    if effort != "none" and _wants_summary(config, effort, protocol, capabilities, ledger):
        out["summary"] = "auto"
    return out


def _wants_summary(
    config: ReasoningConfig, effort: str | None, protocol: str, capabilities: Capabilities, ledger: Ledger
) -> bool:
    """True if a summary is to be requested. Not every account may: "Your organization must be verified to generate
    reasoning summaries" (openai-cookbook#2271, read 2026-11-22).
    """
    requested = config.display == "summarized"
    if capabilities.summaries == "never":
        if requested:
            ledger.dropped(
                config.display_path or config.path, "summaries are not requested from this upstream"
            )
        return False
    if capabilities.summaries == "requested" or config.display is not None:
        return requested
    # The client requests reasoning and leaves open whether it is visible.
    effort_implies = effort is not None and protocol in EFFORT_IMPLIES_SUMMARY
    return effort_implies or config.mode in ("adaptive", "enabled")


def _written_elsewhere(value: JSON, path: str, ledger: Ledger) -> JSON:
    """Write nothing: another function does."""
    return None


def _text_only(value: JSON, path: str, ledger: Ledger) -> JSON:
    if value != ["text"]:
        ledger.dropped(path, "Responses returns only text")
    return None


def _output_tokens(value: JSON, path: str, ledger: Ledger) -> JSON:
    if type(value) is int and value < MIN_OUTPUT_TOKENS:
        ledger.altered(path, f"raised to {MIN_OUTPUT_TOKENS}, the lowest limit of Responses")
        return MIN_OUTPUT_TOKENS
    return value


CONVERTERS: Mapping[Param, Converter] = {
    **ID_CONVERTERS,
    "logprobs": _written_elsewhere,
    "max_output_tokens": _output_tokens,
    "mcp_servers": _written_elsewhere,  # see `note_unsent_servers`
    "modalities": _text_only,
    "store": _written_elsewhere,
    "verbosity": _written_elsewhere,
}


# Signatures in the client's body, see SignaturePlaces.


def _replace_signed_item(
    item: JSONObject, native: JSONObject | None, body: JSONObject, path: str, ledger: Ledger
) -> Sequence[JSON]:
    """Return the vendor's own item, nothing if it does not take it back."""
    if native is None:
        return (item,)
    unwrapped = unwrapped_item(native, path, ledger)
    return () if unwrapped is None else (unwrapped,)


def _write_summaries(body: JSONObject, signer: Signer, ledger: Ledger) -> None:
    """Write summaries that Dragoman made as messages."""
    for index, item in enumerate(body["input"]):
        summary = unwrap_summary(item, signer)
        if summary is not None:
            content = [{"type": "input_text", "text": summary}]
            body["input"][index] = {"type": "message", "role": "user", "content": content}


SIGNATURE_PLACES = SignaturePlaces(
    conversation="input",
    fields={"reasoning": "encrypted_content"},
    replace=_replace_signed_item,
    finish=_write_summaries,
)
