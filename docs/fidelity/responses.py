"""Probes for what clients of Responses can send besides items: fields, tools, choices, formats."""

from __future__ import annotations

from typing import Any

from fidelity.probe import SCHEMA, Body, Probe, probe
from fidelity.responses_items import ITEMS, PARTS

_FUNCTION = {"type": "function", "name": "see", "parameters": SCHEMA, "strict": False}
_CUSTOM = {"type": "custom", "name": "patch"}
_SERVER = {
    "type": "mcp",
    "server_label": "Zqserver",
    "server_url": "https://example.com/Zqmcp",
    "require_approval": "never",
}


def _body(**fields: Any) -> Body:
    return {"model": "m", "input": "Hi", **fields}


def _field(name: str, value: Any, *, nothing: str = "", **context: Any) -> Probe:
    body = _body(**context, **{name: value})
    return probe("Fields", f"`{name}`", body, f"/{name}", nothing=nothing)


def _member(dotted: str, value: Any, **context: Any) -> Probe:
    field, member = dotted.split(".")
    whole = {**context.pop(field, {}), member: value}
    return probe("Fields", f"`{dotted}`", _body(**context, **{field: whole}), f"/{field}/{member}")


def _include(value: str, *, nothing: str = "") -> Probe:
    return probe("Fields", f"`include`: `{value}`", _body(include=[value]), "/include/0", nothing=nothing)


FIELDS = [
    probe("Fields", "`model`", _body(model="Zqmodel"), "/model", needed=True),
    probe("Fields", "`input` as a string", _body(input="Zqwords"), "/input", needed=True),
    _field("instructions", "Zqrule"),
    _field("access_programs", {"cyber": "standard"}),
    _field("background", True),
    _field("background_options", {"completion_window": "2h", "continuation_id": "Zqkey"}),
    _field("client_metadata", {"session": "Zqsession"}),
    _field("context_management", [{"type": "compaction", "compact_threshold": 90000}]),
    probe("Fields", "`conversation` as an id", _body(conversation="Zqtalk"), "/conversation"),
    probe("Fields", "`conversation` as an object", _body(conversation={"id": "Zqtalk"}), "/conversation"),
    _field("image", {"context_compression": "disabled"}),
    _include("file_search_call.results"),
    _include("web_search_call.results"),
    _include("web_search_call.action.sources", nothing="sources are always given where there are any"),
    _include("message.input_image.image_url"),
    _include("computer_call_output.output.image_url"),
    _include("code_interpreter_call.outputs"),
    _include("reasoning.encrypted_content", nothing="sealed reasoning is always given"),
    _include("message.output_text.logprobs"),
    _field("max_output_tokens", 4321),
    _field("max_tool_calls", 6),
    _field("metadata", {"team": "Zqteam"}),
    _field("moderation", {"model": "Zqmodel", "policy": {"input": {"mode": "score"}}}),
    _field("parallel_tool_calls", False, tools=[_FUNCTION]),
    _field("previous_response_id", "Zqbefore"),
    _field("prompt", {"id": "Zqprompt", "version": "Zqversion", "variables": {"city": "Zqcity"}}),
    _field("prompt_cache_key", "Zqkey"),
    probe(
        "Fields",
        "`prompt_cache_options.mode`",
        _body(prompt_cache_options={"mode": "explicit"}),
        "/prompt_cache_options/mode",
        swap="implicit",
    ),
    _member("prompt_cache_options.ttl", "12h", prompt_cache_options={"mode": "implicit"}),
    _member("prompt_cache_options.prewarm", True, prompt_cache_options={"mode": "implicit"}),
    _member(
        "prompt_cache_options.comparison_response_id", "Zqbefore", prompt_cache_options={"mode": "implicit"}
    ),
    _field("prompt_cache_retention", "24h"),
    _member("reasoning.effort", "low"),
    _member("reasoning.summary", "concise", reasoning={"effort": "low"}),
    _member("reasoning.generate_summary", "concise", reasoning={"effort": "low"}),
    _member("reasoning.context", "all_turns", reasoning={"effort": "low"}),
    _member("reasoning.mode", "pro", reasoning={"effort": "low"}),
    _field("safety_identifier", "Zqwho"),
    _field("service_tier", "priority"),
    _field("store", True),
    _field("stream", True),
    _member("stream_options.include_obfuscation", True, stream=True),
    _field("temperature", 0.5),
    _field("top_p", 0.97),
    _field("tool_choice", "required", tools=[_FUNCTION]),
    _field("tools", [{**_FUNCTION, "name": "Zqname"}]),
    _field("top_logprobs", 3, include=["message.output_text.logprobs"]),
    _field("truncation", "auto"),
    _field("user", "Zqwho"),
    _member("text.verbosity", "low"),
    probe("Fields", "any field that nobody knows", _body(x_field="Zqfield"), "/x_field"),
]

_JSON = {
    "type": "json_schema",
    "name": "Zqname",
    "description": "Zqtext",
    "schema": SCHEMA,
    "strict": True,
}


def _format(value: Body, *, nothing: str = "") -> Probe:
    body = _body(text={"format": value})
    return probe("Text formats", f"`{value['type']}`", body, "/text/format", nothing=nothing)


FORMATS = [
    _format({"type": "text"}, nothing="it is the default everywhere"),
    _format({"type": "json_object"}),
    _format(_JSON),
]


def _tool(**tool: Any) -> Probe:
    return probe("Tools", f"`{tool['type']}`", _body(tools=[_FUNCTION, tool]), "/tools/1")


def _option(name: str, value: Any, *, of: Body = _FUNCTION, nothing: str = "") -> Probe:
    called = f"`{name}` of `{of['type']}`"
    return probe(
        "Tools", called, _body(tools=[{**of, name: value}, _CUSTOM]), f"/tools/0/{name}", nothing=nothing
    )


_PLACE = {
    "type": "approximate",
    "city": "Zqcity",
    "country": "NO",
    "region": "Zqregion",
    "timezone": "Zqzone",
}
_SEARCH = {"type": "web_search"}
_GRAMMAR = {"type": "grammar", "definition": 'start: "Zqgrammar"', "syntax": "lark"}
_SPACE = [
    {"type": "function", "name": "Zqname", "description": "Zqtext", "parameters": SCHEMA, "strict": True},
    {"type": "custom", "name": "Zqother", "description": "Zqwords"},
]

TOOLS = [
    _tool(type="function", name="Zqname", description="Zqtext", parameters=SCHEMA, strict=False),
    _option("strict", True),
    _option("async", True),
    _option(
        "allowed_callers",
        ["direct"],
        nothing="that the model itself may call it goes without saying",
    ),
    probe(
        "Tools",
        "`allowed_callers` of `function`: `programmatic`",
        _body(tools=[{**_FUNCTION, "allowed_callers": ["programmatic"]}]),
        "/tools/0/allowed_callers",
    ),
    _option("defer_loading", True),
    _option("output_schema", {"type": "object", "description": "Zqoutput"}),
    _tool(type="custom", name="Zqname", description="Zqtext", format={"type": "text"}),
    _option("format", _GRAMMAR, of=_CUSTOM),
    _option("defer_loading", True, of=_CUSTOM),
    _option("async", True, of=_CUSTOM),
    _tool(type="namespace", name="Zqspace", description="Zqabout", tools=_SPACE),
    _tool(
        type="file_search",
        vector_store_ids=["Zqstore"],
        max_num_results=3,
        filters={"type": "eq", "key": "Zqkey", "value": "Zqvalue"},
        ranking_options={"ranker": "auto", "score_threshold": 0.5},
    ),
    _tool(type="computer"),
    _tool(type="computer_use_preview", display_height=600, display_width=800, environment="linux"),
    _tool(
        type="web_search",
        filters={"allowed_domains": ["Zqdomain.example"]},
        search_context_size="low",
        user_location=_PLACE,
    ),
    _tool(type="web_search_2025_08_26", filters={"allowed_domains": ["Zqdomain.example"]}),
    _option("external_web_access", False, of=_SEARCH),
    _option("search_context_size", "low", of=_SEARCH),
    _tool(type="web_search_preview", search_context_size="low", user_location=_PLACE),
    _tool(type="web_search_preview_2025_03_11", search_context_size="low", user_location=_PLACE),
    _option("search_content_types", ["image"], of={"type": "web_search_preview"}),
    probe("Tools", "`mcp`", _body(tools=[_FUNCTION, _SERVER]), "/tools/1"),
    probe(
        "Tools",
        "`mcp` that asks before it calls",
        _body(tools=[_FUNCTION, {**_SERVER, "require_approval": "always"}]),
        "/tools/1",
    ),
    _option("authorization", "Zqtoken", of=_SERVER),
    _option("allowed_tools", ["Zqname"], of=_SERVER),
    _option("headers", {"x-key": "Zqheader"}, of=_SERVER),
    _option("server_description", "Zqabout", of=_SERVER),
    _option("defer_loading", True, of=_SERVER),
    probe(
        "Tools",
        "`mcp` of a connector",
        _body(
            tools=[
                _FUNCTION,
                {"type": "mcp", "server_label": "Zqserver", "connector_id": "connector_gmail"},
            ]
        ),
        "/tools/1",
    ),
    _tool(type="code_interpreter", container={"type": "auto", "file_ids": ["Zqfile"], "memory_limit": "4g"}),
    _tool(type="programmatic_tool_calling"),
    _tool(type="image_generation", model="Zqmodel", quality="high", size="1024x1024", partial_images=2),
    _tool(type="local_shell"),
    _tool(type="shell", environment={"type": "local"}),
    _option("environment", {"type": "container_reference", "container_id": "Zqbox"}, of={"type": "shell"}),
    _tool(type="tool_search", execution="client", description="Zqtext", parameters=SCHEMA),
    _tool(type="apply_patch"),
    probe(
        "Tools",
        "a tool that nobody knows",
        _body(tools=[_FUNCTION, {"type": "x_tool", "name": "Zqname"}]),
        "/tools/1",
    ),
]


def _choice(called: str, choice: Any, *tools: Body) -> Probe:
    body = _body(tools=[_FUNCTION, _CUSTOM, *tools], tool_choice=choice)
    return probe("Tool choice", called, body, "/tool_choice")


def _hosted(kind: str, **tool: Any) -> Probe:
    return _choice(f"`{kind}`", {"type": kind}, {"type": kind, **tool})


CHOICES = [
    probe("Tool choice", "`auto`", _body(tools=[_FUNCTION], tool_choice="auto"), "/tool_choice", swap="none"),
    _choice("`none`", "none"),
    _choice("`required`", "required"),
    _choice("`function`", {"type": "function", "name": "see"}),
    _choice("`custom`", {"type": "custom", "name": "patch"}),
    _choice(
        "`allowed_tools`",
        {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "see"}]},
    ),
    _choice("`mcp`", {"type": "mcp", "server_label": "Zqserver"}, _SERVER),
    _choice("`name` of `mcp`", {"type": "mcp", "server_label": "Zqserver", "name": "Zqname"}, _SERVER),
    _hosted("apply_patch"),
    _hosted("shell"),
    _hosted("programmatic_tool_calling"),
    _hosted("file_search", vector_store_ids=["vs_1"]),
    _hosted("web_search_preview"),
    _hosted("web_search_preview_2025_03_11"),
    _hosted("computer"),
    _choice("`computer_use`", {"type": "computer_use"}, {"type": "computer"}),
    _hosted("computer_use_preview", display_height=6, display_width=8, environment="linux"),
    _hosted("image_generation"),
    _hosted("code_interpreter", container={"type": "auto"}),
]

REQUESTS: list[Probe] = [*FIELDS, *ITEMS, *PARTS, *TOOLS, *CHOICES, *FORMATS]
