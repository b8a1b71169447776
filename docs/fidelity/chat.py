"""Probes for everything that clients of Chat Completions can send."""

from __future__ import annotations

from typing import Any

from fidelity.probe import DATA, PICTURE, SCHEMA, Body, Probe, kinds, probe

_POINT = {"mode": "explicit", "ttl": "30m"}
_MARK = {"type": "ephemeral", "ttl": "1h"}
_HI = {"role": "user", "content": "Hi"}
_FUNCTION = {"type": "function", "function": {"name": "see", "parameters": SCHEMA}}
_CUSTOM = {"type": "custom", "custom": {"name": "patch"}}
_CALL = {"id": "call_1", "type": "function", "function": {"name": "see", "arguments": "{}"}}
_DONE = {"role": "tool", "tool_call_id": "call_1", "content": "done"}


def _body(**fields: Any) -> Body:
    return {"model": "m", "messages": [_HI], **fields}


def _field(name: str, value: Any, **context: Any) -> Probe:
    return probe("Fields", f"`{name}`", _body(**context, **{name: value}), f"/{name}")


def _member(section: str, dotted: str, value: Any, **context: Any) -> Probe:
    """Return a row about a member of a field that may have other members."""
    field, member = dotted.split(".")
    whole = {**context.pop(field, {}), member: value}
    return probe(section, f"`{dotted}`", _body(**context, **{field: whole}), f"/{field}/{member}")


FIELDS = [
    probe("Fields", "`model`", _body(model="Zqmodel"), "/model", needed=True),
    probe(
        "Fields",
        "`messages`",
        _body(messages=[{"role": "user", "content": "Zqhi"}]),
        "/messages",
        needed=True,
    ),
    _field("audio", {"format": "wav", "voice": {"id": "Zqvoice"}}),
    _field("frequency_penalty", 0.25),
    _field("presence_penalty", 0.25),
    _field("function_call", {"name": "see"}, functions=[{"name": "see", "parameters": SCHEMA}]),
    _field("functions", [{"name": "Zqname", "description": "Zqtext", "parameters": SCHEMA}]),
    _field("logit_bias", {"1234": 7}),
    _field("logprobs", True),
    _field("top_logprobs", 3, logprobs=True),
    _field("max_completion_tokens", 4321),
    _field("max_tokens", 4321),
    _field("metadata", {"team": "Zqteam"}),
    _field("modalities", ["text", "audio"], audio={"format": "wav", "voice": "alloy"}),
    _field("moderation", {"model": "Zqmodel", "policy": {"input": {"mode": "score"}}}),
    _field("n", 3),
    _field("parallel_tool_calls", False, tools=[_FUNCTION]),
    _field("prediction", {"type": "content", "content": "Zqlikely"}),
    _field("prompt_cache_key", "Zqkey"),
    probe(
        "Fields",
        "`prompt_cache_options.mode`",
        _body(prompt_cache_options={"mode": "explicit"}),
        "/prompt_cache_options/mode",
        swap="implicit",
    ),
    _member("Fields", "prompt_cache_options.ttl", "30m", prompt_cache_options={"mode": "implicit"}),
    _field("prompt_cache_retention", "24h"),
    _field("reasoning_effort", "low"),
    _field("response_format", {"type": "json_object"}),
    _field("safety_identifier", "Zqwho"),
    _field("seed", 11),
    _field("service_tier", "priority"),
    _field("stop", ["Zqend", "Zqhalt"]),
    _field("store", True),
    _field("stream", True),
    _member("Fields", "stream_options.include_usage", True, stream=True),
    _member("Fields", "stream_options.include_obfuscation", False, stream=True),
    _field("temperature", 0.5),
    _field("top_p", 0.97),
    _field("tool_choice", "required", tools=[_FUNCTION]),
    _field("tools", [{"type": "function", "function": {"name": "Zqname", "parameters": SCHEMA}}]),
    _field("user", "Zqwho"),
    _field("verbosity", "low"),
    _member("Fields", "web_search_options.search_context_size", "low", tools=[_FUNCTION]),
    _member(
        "Fields",
        "web_search_options.user_location",
        {
            "type": "approximate",
            "approximate": {"city": "Zqcity", "country": "NO", "region": "Zqregion", "timezone": "Zqzone"},
        },
        tools=[_FUNCTION],
    ),
]

_MORE = "Fields of compatible servers"

MORE = [
    probe(_MORE, "`top_k`", _body(top_k=40), "/top_k"),
    _member(_MORE, "reasoning.effort", "low"),
    _member(_MORE, "reasoning.max_tokens", 5000),
    _member(_MORE, "reasoning.enabled", False),
    _member(_MORE, "reasoning.exclude", False, reasoning={"effort": "low"}),
    _member(_MORE, "thinking.type", "disabled"),
    _member(_MORE, "thinking.budget_tokens", 5000, thinking={"type": "enabled"}),
    probe(_MORE, "`enable_thinking`", _body(enable_thinking=False), "/enable_thinking"),
    probe(_MORE, "`thinking_budget`", _body(thinking_budget=5000), "/thinking_budget"),
    _member(_MORE, "chat_template_kwargs.enable_thinking", False),
    _member(_MORE, "chat_template_kwargs.thinking", False),
    probe(
        _MORE,
        "`include_reasoning`",
        _body(include_reasoning=True, reasoning_effort="low"),
        "/include_reasoning",
    ),
    probe(_MORE, "any field that nobody knows", _body(x_field="Zqfield"), "/x_field"),
]


def _said(message: Body, *rest: Body, before: tuple[Body, ...] = (_HI,)) -> Body:
    return _body(messages=[*before, message, *rest, {"role": "user", "content": "Go on"}])


def _assistant(member: str, value: Any, *rest: Body, **beside: Any) -> Probe:
    said = {"role": "assistant", "content": "Well", **beside, member: value}
    return probe("Messages", f"assistant: `{member}`", _said(said, *rest), f"/messages/1/{member}")


def _entry(**entry: Any) -> Probe:
    name = f"assistant: `{entry['type']}` of `{entry['format']}` in `reasoning_details`"
    said = {"role": "assistant", "content": "Well", "reasoning_details": [entry]}
    return probe("Messages", name, _said(said), "/messages/1/reasoning_details/0")


def _first(role: str) -> Probe:
    said = {"role": role, "content": "Zqwords"}
    return probe("Messages", f"`{role}` at the head", _body(messages=[said, _HI]), "/messages/0")


def _later(role: str) -> Probe:
    said = {"role": role, "content": "Zqwords"}
    return probe("Messages", f"`{role}` in mid-conversation", _said(said), "/messages/1")


MESSAGES = [
    _first("developer"),
    _first("system"),
    _later("developer"),
    _later("system"),
    probe(
        "Messages",
        "`user`",
        _body(messages=[{"role": "user", "content": "Zqwords"}]),
        "/messages/0",
        needed=True,
    ),
    probe("Messages", "`assistant`", _said({"role": "assistant", "content": "Zqwords"}), "/messages/1"),
    probe(
        "Messages",
        "`tool`",
        _said({"role": "assistant", "tool_calls": [_CALL]}, {**_DONE, "content": "Zqdone"}),
        "/messages/2",
    ),
    probe(
        "Messages",
        "`function`",
        _said(
            {"role": "assistant", "content": None, "function_call": {"name": "see", "arguments": "{}"}},
            {"role": "function", "name": "see", "content": "Zqdone"},
        ),
        "/messages/2",
    ),
    probe(
        "Messages",
        "`name` of a system, developer or user message",
        _body(messages=[{**_HI, "name": "Zqname"}]),
        "/messages/0/name",
    ),
    probe(
        "Messages",
        "`cache_control` of a message",
        _body(messages=[{**_HI, "cache_control": _MARK}]),
        "/messages/0/cache_control",
    ),
    _assistant("name", "Zqname"),
    _assistant("refusal", "Zqrefusal"),
    _assistant("audio", {"id": "Zqaudio"}),
    _assistant(
        "function_call",
        {"name": "Zqname", "arguments": '{"city":"Zqcity"}'},
        {"role": "function", "name": "Zqname", "content": "done"},
    ),
    _assistant(
        "annotations",
        [
            {
                "type": "url_citation",
                "url_citation": {
                    "url": "https://example.com/Zqurl",
                    "title": "Zqtitle",
                    "start_index": 0,
                    "end_index": 4,
                },
            }
        ],
    ),
    _assistant(
        "tool_calls",
        [
            {
                "id": "Zqid",
                "type": "function",
                "function": {"name": "Zqname", "arguments": '{"city":"Zqcity"}'},
            }
        ],
        {"role": "tool", "tool_call_id": "Zqid", "content": "done"},
    ),
    probe(
        "Messages",
        "assistant: a custom call in `tool_calls`",
        _said(
            {
                "role": "assistant",
                "tool_calls": [
                    {"id": "Zqid", "type": "custom", "custom": {"name": "Zqname", "input": "Zqinput"}}
                ],
            },
            {"role": "tool", "tool_call_id": "Zqid", "content": "done"},
        ),
        "/messages/1/tool_calls/0",
    ),
    probe(
        "Messages",
        "assistant: `cache_control` of a call",
        _said({"role": "assistant", "tool_calls": [{**_CALL, "cache_control": _MARK}]}, _DONE),
        "/messages/1/tool_calls/0/cache_control",
    ),
    _assistant("reasoning_content", "Zqthought"),
    _assistant("reasoning", "Zqthought"),
    _entry(
        type="reasoning.text", text="Zqthought", signature="Zqsign", format="anthropic-claude-v1", index=0
    ),
    _entry(type="reasoning.text", text="Zqthought", format="unknown", index=0),
    _entry(type="reasoning.summary", summary="Zqshort", format="openai-responses-v1", index=0),
    _entry(type="reasoning.encrypted", data="Zqcipher", id="Zqid", format="openai-responses-v1", index=0),
    _assistant(
        "thinking_blocks",
        [
            {"type": "thinking", "thinking": "Zqthought", "signature": "Zqsign"},
            {"type": "redacted_thinking", "data": "Zqcipher"},
        ],
    ),
    _assistant("extra_content", {"google": {"thought_signature": "Zqsign"}}),
    probe(
        "Messages",
        "a member that nobody knows",
        _body(messages=[{**_HI, "x_field": "Zqfield"}]),
        "/messages/0/x_field",
    ),
]


def _asked(part: Body) -> tuple[Body, str]:
    return _body(
        messages=[{"role": "user", "content": [{"type": "text", "text": "Hi"}, part]}]
    ), "/messages/0/content/1"


def _told(part: Body) -> tuple[Body, str]:
    said = {"role": "assistant", "content": [{"type": "text", "text": "Well"}, part]}
    return _said(said), "/messages/1/content/1"


def _given(part: Body) -> tuple[Body, str]:
    result = {**_DONE, "content": [{"type": "text", "text": "done"}, part]}
    return _said({"role": "assistant", "tool_calls": [_CALL]}, result), "/messages/2/content/1"


def _part(name: str, part: Body, member: str) -> Probe:
    body, place = _asked(part)
    return probe("Content parts", name, body, f"{place}/{member}")


PARTS = [
    *kinds(
        "Content parts",
        _asked,
        {"type": "text", "text": "Zqtext"},
        {"type": "image_url", "image_url": {"url": PICTURE}},
    ),
    probe(
        "Content parts",
        "`image_url` of a URL",
        *_asked({"type": "image_url", "image_url": {"url": "https://example.com/Zqcat.png"}}),
    ),
    _part(
        "`detail` of `image_url`",
        {"type": "image_url", "image_url": {"url": PICTURE, "detail": "high"}},
        "image_url/detail",
    ),
    *kinds(
        "Content parts",
        _asked,
        {"type": "input_audio", "input_audio": {"data": DATA, "format": "wav"}},
        {
            "type": "file",
            "file": {"file_data": f"data:application/pdf;base64,{DATA}", "filename": "Zqpaper.pdf"},
        },
    ),
    probe(
        "Content parts",
        "`file` of plain text",
        *_asked(
            {
                "type": "file",
                "file": {"file_data": f"data:text/plain;base64,{DATA}", "filename": "Zqwords.txt"},
            }
        ),
    ),
    probe("Content parts", "`file` of a `file_id`", *_asked({"type": "file", "file": {"file_id": "Zqfile"}})),
    _part(
        "`prompt_cache_breakpoint`",
        {"type": "text", "text": "more", "prompt_cache_breakpoint": _POINT},
        "prompt_cache_breakpoint",
    ),
    _part("`cache_control`", {"type": "text", "text": "more", "cache_control": _MARK}, "cache_control"),
    probe(
        "Content parts",
        "a part that nobody knows",
        *_asked({"type": "video_url", "video_url": {"url": "Zqurl"}}),
    ),
    probe("Content parts", "assistant: `text`", *_told({"type": "text", "text": "Zqtext"})),
    probe("Content parts", "assistant: `refusal`", *_told({"type": "refusal", "refusal": "Zqrefusal"})),
    probe(
        "Content parts",
        "assistant: `thinking`",
        *_told({"type": "thinking", "thinking": [{"type": "text", "text": "Zqthought"}], "closed": True}),
    ),
    probe("Content parts", "tool: `text`", *_given({"type": "text", "text": "Zqtext"})),
    probe(
        "Content parts", "tool: `image_url`", *_given({"type": "image_url", "image_url": {"url": PICTURE}})
    ),
    probe(
        "Content parts",
        "tool: `file`",
        *_given({"type": "file", "file": {"file_data": f"data:application/pdf;base64,{DATA}"}}),
    ),
]


def _tool(tool: Body) -> tuple[Body, str]:
    return _body(tools=[_FUNCTION, tool]), "/tools/1"


_DEFINITION = {"name": "Zqname", "description": "Zqtext", "parameters": SCHEMA, "strict": True}
_GRAMMAR = {"type": "grammar", "grammar": {"definition": 'start: "Zqgrammar"', "syntax": "lark"}}

TOOLS = [
    probe("Tools", "`function`", *_tool({"type": "function", "function": _DEFINITION})),
    probe(
        "Tools",
        "`strict` of a function",
        _body(tools=[{"type": "function", "function": _DEFINITION}]),
        "/tools/0/function/strict",
    ),
    probe(
        "Tools",
        "`custom`",
        *_tool(
            {
                "type": "custom",
                "custom": {"name": "Zqname", "description": "Zqtext", "format": {"type": "text"}},
            }
        ),
    ),
    probe(
        "Tools",
        "`format` of type `grammar`",
        _body(tools=[{"type": "custom", "custom": {"name": "patch", "format": _GRAMMAR}}]),
        "/tools/0/custom/format",
    ),
    probe(
        "Tools",
        "`cache_control`",
        _body(tools=[{**_FUNCTION, "cache_control": _MARK}]),
        "/tools/0/cache_control",
    ),
    probe("Tools", "a tool that nobody knows", *_tool({"type": "x_tool", "name": "Zqname"})),
]


def _choice(name: str, choice: Any, **context: Any) -> Probe:
    return probe(
        "Tool choice",
        name,
        _body(tool_choice=choice, **{"tools": [_FUNCTION, _CUSTOM], **context}),
        "/tool_choice",
    )


CHOICES = [
    probe("Tool choice", "`auto`", _body(tools=[_FUNCTION], tool_choice="auto"), "/tool_choice", swap="none"),
    _choice("`none`", "none"),
    _choice("`required`", "required"),
    _choice("`function`", {"type": "function", "function": {"name": "see"}}),
    _choice("`custom`", {"type": "custom", "custom": {"name": "patch"}}),
    _choice(
        "`allowed_tools`",
        {
            "type": "allowed_tools",
            "allowed_tools": {
                "mode": "required",
                "tools": [{"type": "function", "function": {"name": "see"}}],
            },
        },
    ),
]


def _format(name: str, value: Body) -> Probe:
    return probe("Response formats", name, _body(response_format=value), "/response_format")


_JSON = {"name": "Zqname", "description": "Zqtext", "schema": SCHEMA, "strict": True}

FORMATS = [
    probe(
        "Response formats",
        "`text`",
        _body(response_format={"type": "text"}),
        "/response_format",
        nothing="it is the default everywhere",
    ),
    _format("`json_object`", {"type": "json_object"}),
    _format("`json_schema`", {"type": "json_schema", "json_schema": _JSON}),
    _format("a format that nobody knows", {"type": "grammar", "grammar": "Zqgrammar"}),
]

REQUESTS: list[Probe] = [*FIELDS, *MORE, *MESSAGES, *PARTS, *TOOLS, *CHOICES, *FORMATS]
