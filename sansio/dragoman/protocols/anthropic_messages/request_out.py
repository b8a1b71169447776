"""Write the neutral request as a body for an upstream, and the headers that the body needs.

Leading system messages become `system`, all other messages turns (`request_messages_out`). Conflicts between settings
are resolved at the end. A request of this protocol (`Capabilities.relay` "rewrite") keeps all of the client's settings
that passes and capabilities do not change.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import msgspec

from dragoman._ir.losses import Ledger, child
from dragoman._ir.parameters import Converter, drop_unless, refuse_params, write_params
from dragoman._ir.request import Param, Request, ResponseFormat
from dragoman._wire.exceptions import RequestRefused, dotted_path
from dragoman._wire.json import JSON, JSONObject
from dragoman.protocols.anthropic_messages.capabilities import MessagesCapabilities as Capabilities
from dragoman.protocols.anthropic_messages.checks import text_or_empty
from dragoman.protocols.anthropic_messages.request_messages_out import ConversationWriter, plain_or_blocks
from dragoman.protocols.anthropic_messages.request_thinking import resolve_thinking_conflicts, write_thinking
from dragoman.protocols.anthropic_messages.shapes import SETTING_PATHS
from dragoman.protocols.anthropic_messages.tables import (
    BETA_HEADER,
    CACHE_OPTION_TTL_NAMES,
    COMPACT_EDIT,
    DEFAULT_COMPACT_THRESHOLD,
    IMPLIED_INCLUDES,
    NO_OP_VALUES,
    REQUEST_TIER_NAMES,
    SAMPLING_PARAMS,
    VERSION_HEADER,
)
from dragoman.protocols.anthropic_messages.tools import fit_schema, write_tools

# The settings at the top of a body.
_NAMES: dict[Param, str] = {param: path[1:] for param, path in SETTING_PATHS.items() if path.count("/") == 1}

_JSON_SENTENCE = "Answer with one JSON object and nothing else."


# The members of a body that are always written again, and the places of the response's format.
_WRITTEN = ("/system", "/tools", "/tool_choice")
_WRITTEN_REASONING = ("/thinking", "/output_config/effort")
_FORMAT_PLACES = ("/output_config/format", "/output_format")


def write_request(request: Request, capabilities: Capabilities, ledger: Ledger) -> JSONObject:
    """Return the body. Raises RequestRefused (400) for settings that may not be left out."""
    native, settings, config = request.native, request.changed_settings(), request.reasoning
    # The client's own system message sets the effort from there on.
    in_message = (
        bool(native) and config is not None and (config.effort_path or config.path).startswith("/messages/")
    )
    keeps_reasoning = in_message and capabilities.mid_system
    out: JSONObject = {
        "model": request.model,
        "max_tokens": resolve_max_tokens(request, capabilities.default_max_tokens),
    }
    write_params(settings, _NAMES, CONVERTERS, out, ledger)
    if not _USER_AND_TIER.isdisjoint(settings.params):
        write_user_and_tier(settings, out, ledger)
    _write_conversation(request, capabilities, out, ledger)
    out.update(write_tools(request, capabilities, ledger))
    if not keeps_reasoning:
        write_thinking(request, capabilities, out, ledger)
    form = settings.response_format
    if form is not None and form.schema is not None:
        out.setdefault("output_config", {})["format"] = _write_format(form, ledger)
    if native:
        if in_message and not keeps_reasoning and "effort" in (native.get("output_config") or {}):
            ledger.dropped("/output_config/effort", "a later message sets another effort")
        _add_unknown_members(request, out, ledger)
        written = _WRITTEN if keeps_reasoning else _WRITTEN + _WRITTEN_REASONING
        out = request.native_body(out, written, _FORMAT_PLACES)
    elif request.stream:
        out["stream"] = True
    resolve_thinking_conflicts(request, capabilities, out, ledger)
    return out


def _write_conversation(
    request: Request, capabilities: Capabilities, out: JSONObject, ledger: Ledger
) -> None:
    """Write `system` and `messages`."""
    native, messages = request.native, request.messages
    leading = request.leading_instructions("/messages/")
    if leading and len(leading) == len(messages) and not native:
        # "at least one message is required" (langchain#31696, read 2026-11-22): the last one becomes the user's.
        leading.pop()
        capabilities = msgspec.structs.replace(capabilities, mid_system=False)
    conversation = ConversationWriter(capabilities, ledger, bool(native))
    system: list[JSONObject] = []
    for message in leading:
        system += conversation.system_blocks(message)
    response_format = request.response_format
    if response_format is not None and response_format.schema is None and not native:
        ledger.altered(response_format.path, "requested by an instruction: Messages has no such setting")
        system.append({"type": "text", "text": _JSON_SENTENCE})
    was = request.received
    if was is not None and len(leading) == 1 and leading[0] is was.messages[0]:
        out["system"] = native["system"]  # no pass has changed it
    elif system:
        out["system"] = plain_or_blocks(system)
    rest = messages[len(leading) :]
    if native:
        rest = tuple([message for message in rest if message.path != "/compaction/instructions"])
    out["messages"] = conversation.write(rest)


def _add_unknown_members(request: Request, out: JSONObject, ledger: Ledger) -> None:
    """Add what the choice of a tool and the settings of reasoning have besides the document."""
    extra, config = request.extra or {}, request.reasoning
    choice = extra.get("tool_choice")
    if choice and "tool_choice" in out:
        out["tool_choice"].update(choice)
    else:
        ledger.unknown_fields("/tool_choice", choice)
    if config is not None and "thinking" in out:
        out["thinking"].update(config.extra or {})


def _write_format(response_format: ResponseFormat, ledger: Ledger) -> JSONObject:
    """Return `output_config.format`. It is always strict; name and description go into the schema."""
    path = response_format.path
    if response_format.strict is False:
        ledger.altered(f"{path}/strict", "the upstream always enforces the schema")
    at = f"{path}{response_format.schema_member}"
    schema = fit_schema(response_format.schema, lambda place, detail: ledger.altered(f"{at}{place}", detail))
    if type(schema) is dict:
        for key, value in (("title", response_format.name), ("description", response_format.description)):
            if value is not None and value != schema.setdefault(key, value):
                ledger.dropped(
                    f"{path}/{'name' if key == 'title' else key}", f"the schema already has a {key}"
                )
    return {"type": "json_schema", "schema": schema}


# Settings.

# Possessive: clients choose the text, and its dots must not be tried one by one.
_EMAIL = r"[^@\s]++@[^@\s][^@\s.]*+\.[^@\s]++"


def _skip(value: JSON, path: str, ledger: Ledger) -> JSON:
    """Return nothing: the setting is written by a function that needs more than its value."""
    return None


def _include(value: JSON, path: str, ledger: Ledger) -> JSON:
    if type(value) is not list or not set(map(str, value)) <= IMPLIED_INCLUDES:
        ledger.dropped(path, "Messages has no setting for what a response includes")


def _temperature(value: JSON, path: str, ledger: Ledger) -> JSON:
    if type(value) in (int, float) and value > 1:
        ledger.altered(path, "lowered to 1, the highest temperature of Messages")
        return 1
    return value


def _stop(value: JSON, path: str, ledger: Ledger) -> JSON:
    """Leave out blank sequences, which the API refuses (its documentation, read 2026-11-22)."""
    sequences = value if type(value) is list else [value]
    visible = [text for text in sequences if not str(text).isspace()]
    if len(visible) < len(sequences):
        ledger.dropped(path, "a blank stop sequence was left out: it is refused")
    return visible or None


def _context_management(value: JSON, path: str, ledger: Ledger) -> JSON:
    """Convert `[{"type": "compaction", "compact_threshold": tokens}]`, the neutral form."""
    edits: list[JSON] = []
    for index, item in enumerate(value if type(value) is list else [value]):
        if type(item) is not dict or item.get("type") != "compaction":
            ledger.dropped(f"{path}/{index}", "Messages has no such context management")
            continue
        tokens = item.get("compact_threshold")
        trigger = {"type": "input_tokens", "value": DEFAULT_COMPACT_THRESHOLD if tokens is None else tokens}
        edits.append({"type": COMPACT_EDIT, "trigger": trigger})
        for key in sorted(item.keys() - {"type", "compact_threshold"}):
            ledger.dropped(child(f"{path}/{index}", key), "Messages has no such setting")
    return {"edits": edits} if edits else None


def _prompt_cache_options(value: JSON, path: str, ledger: Ledger) -> JSON:
    """Convert `mode: implicit` to a mark at the top level, `explicit` to no such mark."""
    if type(value) is not dict or value.get("mode", "implicit") not in ("implicit", "explicit"):
        ledger.dropped(path, "Messages has no such options for the prompt cache")
        return None
    unwritten = {key for key, item in value.items() if item is not None} - {"mode"}
    mark: JSONObject | None = None
    if value.get("mode") == "implicit":
        mark = {"type": "ephemeral"}
        ttl = value.get("ttl")
        if type(ttl) is str and ttl in CACHE_OPTION_TTL_NAMES:
            mark["ttl"] = CACHE_OPTION_TTL_NAMES[ttl]
            unwritten.discard("ttl")
    for key in sorted(unwritten):
        ledger.dropped(child(path, key), "Messages has no such option for the prompt cache")
    return mark


CONVERTERS: dict[Param, Converter] = {
    **{
        param: drop_unless(defaults, "Messages has no such setting")
        for param, defaults in NO_OP_VALUES.items()
    },
    **refuse_params(NO_OP_VALUES),
    "context_management": _context_management,
    "include": _include,
    "max_output_tokens": _skip,
    "max_tool_calls": _skip,
    "prompt_cache_options": _prompt_cache_options,
    "safety_identifier": _skip,
    "service_tier": _skip,
    "stop": _stop,
    "temperature": _temperature,
    "user": _skip,
}


def resolve_max_tokens(request: Request, default: int) -> int:
    """Return `max_tokens`, which is required. Raises RequestRefused (400) if it is no integer."""
    limit = request.params.get("max_output_tokens")
    if limit is None:
        return default
    if type(limit) is not int:
        path = request.param_paths.get("max_output_tokens", "/max_tokens")
        raise RequestRefused(f"{dotted_path(path)} must be an integer", path=path, code="invalid_type")
    return limit


def write_user_and_tier(request: Request, out: JSONObject, ledger: Ledger) -> None:
    """Write `metadata.user_id`, and `service_tier` or `speed`."""
    params = request.params
    sent: Param | None = None
    for param in _IDENTIFIERS:
        if params.get(param) is None:
            continue
        if sent is None:
            sent = param
        elif params[param] != params[sent]:
            ledger.dropped(
                request.path_of(param),
                "Messages accepts only one identifier: safety_identifier was sent",
            )
    if sent is not None:
        out["metadata"] = {"user_id": _hash_email(params[sent], request.path_of(sent), ledger)}
    tier = params.get("service_tier")
    if tier == "fast":
        out["speed"] = "fast"
    elif type(tier) is str and tier in REQUEST_TIER_NAMES:
        out["service_tier"] = REQUEST_TIER_NAMES[tier]
    elif tier is not None:
        ledger.dropped(request.path_of("service_tier"), "Messages has no such service tier")


# The first one that the request has is sent.
_IDENTIFIERS: tuple[Param, ...] = ("safety_identifier", "user")
_USER_AND_TIER = frozenset((*_IDENTIFIERS, "service_tier"))


def _hash_email(value: JSON, path: str, ledger: Ledger) -> JSON:
    """Return an identifier, the hash of an e-mail address.

    "Do not include any identifying information such as name, email address, or phone number": anthropic 2.12.0,
    types/metadata_param.py.
    """
    if type(value) is not str or re.fullmatch(_EMAIL, value) is None:
        return value
    import hashlib  # loads OpenSSL, which is slow, and few identifiers need it

    ledger.altered(path, "sent as its SHA-256 hash: an e-mail address may not be an identifier")
    return hashlib.sha256(value.encode("utf-8", "surrogatepass")).hexdigest()


# Headers.

# Sampling settings are fields of 2023-06-01 only: anthropic 2.11.0 sends the newer version and has no such fields.
SAMPLING_VERSION: Final = "2023-06-01"
NEWEST_VERSION: Final = "2026-10-21"

# Beta features, as named in anthropic 2.12.0 (types/anthropic_beta_param.py). Without its beta a member of the body or
# of `output_config`, or an edit or tool of a type, is refused.
_BETAS: Mapping[str, str] = {
    "compaction": "compact-2026-09-04",
    "fallbacks": "server-side-fallback-2026-07-01",
    "mcp_servers": "mcp-client-2025-11-20",
    "speed": "fast-mode-2026-02-01",
    "task_budget": "task-budgets-2026-03-13",
    "clear_thinking_20251015": "context-management-2025-06-27",
    "clear_tool_uses_20250919": "context-management-2025-06-27",
    "compact_20260112": "compact-2026-01-12",
    "advisor_20260301": "advisor-tool-2026-03-01",
    "computer_20250124": "computer-use-2025-01-24",
    "computer_20251124": "computer-use-2025-11-24",
    "mcp_toolset": "mcp-client-2025-11-20",
}


def request_headers(body: JSONObject) -> tuple[tuple[str, str], ...]:
    """Return the headers for a body of write_request. Clients of this protocol send them themselves."""
    version = NEWEST_VERSION if body.keys().isdisjoint(SAMPLING_PARAMS) else SAMPLING_VERSION
    headers = ((VERSION_HEADER[0], version),)
    config, management = body.get("output_config") or {}, body.get("context_management") or {}
    used = {*body, *config}
    for typed in filter(None, (management.get("edits"), body.get("tools"))):
        used.update([text_or_empty(each.get("type")) for each in typed])
    if _BETAS.keys().isdisjoint(used):
        return headers
    used.difference_update([name for each in (body, config) for name, value in each.items() if value is None])
    betas = dict.fromkeys(beta for name, beta in _BETAS.items() if name in used)
    return (*headers, (BETA_HEADER, ",".join(betas))) if betas else headers
