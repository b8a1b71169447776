"""Tools, choices and settings of other protocols as a Responses upstream is sent them."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman._ir.events import ToolKind
from dragoman._ir.losses import Ledger, LossCode
from dragoman._ir.request import (
    CacheMark,
    CodeExecution,
    CustomTool,
    FunctionTool,
    Grammar,
    HostedTool,
    McpServer,
    Message,
    ReasoningConfig,
    Request,
    ResponseFormat,
    Text,
    ToolChoice,
    ToolRef,
    ToolResult,
    WebSearch,
)
from dragoman.codec import Target
from dragoman.protocols.openai_responses import SPEC

CHAT, MESSAGES = "openai_chat", "anthropic_messages"
USER = Message("user", (Text("hi"),), "/messages/9")
Losses = list[tuple[LossCode, str]]
CLOSED = {
    "type": "object",
    "properties": {"a": {"type": "string"}},
    "required": ["a"],
    "additionalProperties": False,
}
OPEN = {**CLOSED, "required": []}


def write(
    *messages: Message, protocol: str = CHAT, target: Target = Target(), **fields: Any
) -> tuple[dict[str, Any], Losses]:
    ledger = Ledger()
    body = SPEC.write_request(Request(protocol, "m", messages, {}, **fields), target, ledger)
    return body, [(loss.code, loss.path) for loss in ledger]


def test_tools_are_flat_and_say_parameters_and_strict() -> None:
    body, losses = write(
        USER,
        tools=(
            FunctionTool("f", "d", CLOSED, True),
            FunctionTool("g"),
            CustomTool("c", "free"),
            CustomTool("x", grammar=Grammar("regex", "a+")),
            HostedTool(MESSAGES, "web_search_20250305", {}, "/tools/4"),
        ),
    )
    assert body["tools"] == [
        {
            "type": "function",
            "name": "f",
            "description": "d",
            "parameters": CLOSED,
            "strict": True,
        },
        {
            "type": "function",
            "name": "g",
            "parameters": {"type": "object", "properties": {}},
            "strict": False,
        },
        {"type": "custom", "name": "c", "description": "free"},
        {"type": "custom", "name": "x", "format": {"type": "grammar", "syntax": "regex", "definition": "a+"}},
    ]
    assert losses == [(LossCode.UNKNOWN_KIND, "/tools/4")]


def test_no_tools_field_when_none_is_left() -> None:
    body, _ = write(USER, tools=(HostedTool(MESSAGES, "web_search_20250305", {}, "/tools/0"),))
    assert "tools" not in body


CHOICES: list[tuple[ToolChoice, Any]] = [
    (ToolChoice("auto"), "auto"),
    (ToolChoice("none"), "none"),
    (ToolChoice("required"), "required"),
    (ToolChoice("named", "f"), {"type": "function", "name": "f"}),
    (ToolChoice("named", "f", namespace="ns"), {"type": "function", "name": "f", "namespace": "ns"}),
    (ToolChoice("named", "c", ToolKind.CUSTOM), {"type": "custom", "name": "c"}),
    (
        ToolChoice("allowed", allowed=(ToolRef("f"), ToolRef("c", kind=ToolKind.CUSTOM)), required=True),
        {
            "type": "allowed_tools",
            "mode": "required",
            "tools": [{"type": "function", "name": "f"}, {"type": "custom", "name": "c"}],
        },
    ),
    (
        ToolChoice("allowed", allowed=(ToolRef("f"),)),
        {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "f"}]},
    ),
]


@pytest.mark.parametrize(("choice", "expected"), CHOICES)
def test_tool_choice(choice: ToolChoice, expected: Any) -> None:
    body, _ = write(
        USER, tools=(FunctionTool("f"), CustomTool("c")), tool_choice=choice, parallel_tool_calls=False
    )
    assert body["tool_choice"] == expected
    assert body["parallel_tool_calls"] is False


C, M = CHAT, MESSAGES
REASONING: list[tuple[str, ReasoningConfig, Any]] = [
    (C, ReasoningConfig(effort="low"), {"effort": "low"}),
    (C, ReasoningConfig(effort="none"), {"effort": "none"}),
    (C, ReasoningConfig(), None),
    (M, ReasoningConfig("disabled", "high"), {"effort": "none"}),
    (M, ReasoningConfig("adaptive"), {"effort": "high"}),
    (M, ReasoningConfig("adaptive", "medium", show="omitted"), {"effort": "medium"}),
    (M, ReasoningConfig("adaptive", "max", show="summarized"), {"effort": "max", "summary": "auto"}),
    (M, ReasoningConfig(effort="high"), {"effort": "high"}),
    (M, ReasoningConfig("enabled", "low", 30000), {"effort": "low"}),
    (M, ReasoningConfig("enabled", budget=1024), {"effort": "minimal"}),
    (M, ReasoningConfig("enabled", budget=4096), {"effort": "low"}),
    (M, ReasoningConfig("enabled", budget=12288), {"effort": "medium"}),
    (M, ReasoningConfig("enabled", budget=24576), {"effort": "high"}),
    (M, ReasoningConfig("enabled", budget=31999, show="omitted"), {"effort": "xhigh"}),
    (M, ReasoningConfig("enabled", budget=60000), {"effort": "max"}),
]


@pytest.mark.parametrize(("protocol", "config", "expected"), REASONING)
def test_reasoning(protocol: str, config: ReasoningConfig, expected: Any) -> None:
    body, _ = write(USER, protocol=protocol, reasoning=config)
    assert body.get("reasoning") == expected


@pytest.mark.parametrize(
    ("protocol", "config", "asking"),
    [
        (C, ReasoningConfig(effort="low"), {"auto"}),
        (C, ReasoningConfig(effort="none"), set()),
        (C, ReasoningConfig(effort="low", show="summarized"), {"auto", "asked"}),
        (C, ReasoningConfig(effort="low", show="omitted"), set()),
        (M, ReasoningConfig(effort="low"), set()),
        (M, ReasoningConfig("adaptive"), {"auto"}),
        (M, ReasoningConfig("enabled", budget=1024, show="summarized"), {"auto", "asked"}),
        (M, ReasoningConfig("disabled", show="summarized"), set()),
    ],
)
def test_summaries_are_asked_for_as_the_upstream_is_set(
    protocol: str, config: ReasoningConfig, asking: set[str]
) -> None:
    for summaries in ("auto", "asked", "never"):
        target = Target(summaries=summaries)
        body, _ = write(USER, target=target, protocol=protocol, reasoning=config)
        assert ("summary" in body["reasoning"]) is (summaries in asking), summaries


def test_a_summary_that_the_upstream_is_never_asked_for_is_told() -> None:
    config = ReasoningConfig("adaptive", show="summarized", path="/thinking", show_path="/thinking/display")
    _, losses = write(USER, target=Target(summaries="never"), protocol=M, reasoning=config)
    assert losses == [(LossCode.DROPPED, "/thinking/display")]


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        (ResponseFormat(), {"type": "json_object"}),
        (
            ResponseFormat({"type": "object"}),
            {"type": "json_schema", "name": "response", "schema": {"type": "object"}, "strict": False},
        ),
        (
            ResponseFormat(CLOSED, "n", "d", True),
            {
                "type": "json_schema",
                "name": "n",
                "schema": CLOSED,
                "description": "d",
                "strict": True,
            },
        ),
    ],
)
def test_response_format(form: ResponseFormat, expected: Any) -> None:
    body, _ = write(USER, response_format=form)
    assert body["text"] == {"format": expected}


PARAMS: list[tuple[dict[str, Any], dict[str, Any], list[Any]]] = [
    (
        {"max_output_tokens": 16, "temperature": 0, "top_p": 1},
        {"max_output_tokens": 16, "temperature": 0, "top_p": 1},
        [],
    ),
    ({"max_output_tokens": 1}, {"max_output_tokens": 16}, [(LossCode.ALTERED, "/max_output_tokens")]),
    (
        {"metadata": {"a": "b"}, "user": "u", "safety_identifier": "s"},
        {"metadata": {"a": "b"}, "user": "u", "safety_identifier": "s"},
        [],
    ),
    ({"prompt_cache_key": "k"}, {"prompt_cache_key": "k"}, []),
    ({"service_tier": "flex"}, {"service_tier": "flex"}, []),
    ({"service_tier": "standard_only"}, {"service_tier": "default"}, []),
    ({"service_tier": "odd"}, {}, [(LossCode.DROPPED, "/service_tier")]),
    ({"verbosity": "low"}, {"text": {"verbosity": "low"}}, []),
    (
        {"logprobs": True, "top_logprobs": 3},
        {"include": ["message.output_text.logprobs"], "top_logprobs": 3},
        [],
    ),
    ({"logprobs": False}, {}, []),
    ({"modalities": ["text"]}, {}, []),
    ({"modalities": ["text", "audio"]}, {}, [(LossCode.DROPPED, "/modalities")]),
    ({"store": True}, {"store": True}, []),
    ({"store": False}, {}, []),
    ({"speed": "fast", "service_tier": "auto"}, {"service_tier": "fast"}, []),
    ({"speed": "standard"}, {}, []),
    ({"speed": "odd"}, {}, [(LossCode.DROPPED, "/speed")]),
    (
        {"context_management": [{"type": "compaction", "compact_threshold": 9}]},
        {"context_management": [{"type": "compaction", "compact_threshold": 9}]},
        [],
    ),
    ({"prompt_cache_options": {"mode": "implicit"}}, {"prompt_cache_options": {"mode": "implicit"}}, []),
    (
        {"user": "u" * 64, "safety_identifier": "s" * 128},
        {"user": "u" * 64, "safety_identifier": "s" * 128},
        [],
    ),
    (
        {"user": "u" * 65, "safety_identifier": "s" * 129},
        {
            "user": "f20e249d15fa4b9f44ba21d154f62e1efa76ddfdce5d25139a33a4787cee5a8b",
            "safety_identifier": "e31d927ebc008be8d5cb8676e02f5b311fdb37fc1ad8c88d188a55ada7847dcc",
        },
        [(LossCode.ALTERED, "/user"), (LossCode.ALTERED, "/safety_identifier")],
    ),
    ({"mcp_servers": [{"name": "s"}]}, {}, [(LossCode.DROPPED, "/mcp_servers/0")]),
    ({"seed": 1}, {}, [(LossCode.DROPPED, "/seed")]),
    (
        {"presence_penalty": 1, "frequency_penalty": 1, "logit_bias": {}, "top_k": 3},
        {},
        [
            (LossCode.DROPPED, "/presence_penalty"),
            (LossCode.DROPPED, "/frequency_penalty"),
            (LossCode.DROPPED, "/logit_bias"),
            (LossCode.DROPPED, "/top_k"),
        ],
    ),
]


@pytest.mark.parametrize(("params", "expected", "losses"), PARAMS)
def test_settings(params: Any, expected: dict[str, Any], losses: list[Any]) -> None:
    plain, _ = write(USER)
    assert write(USER, params=params) == ({**plain, **expected}, losses)


# --- tools that the provider runs -----------------------------------------------------------------------------

RUNS_ALL = Target(hosted=frozenset(("web_search", "code_execution", "mcp")))
PLACE = {"type": "approximate", "city": "Oslo"}
DROPPED, ALTERED, UNKNOWN_KIND = LossCode.DROPPED, LossCode.ALTERED, LossCode.UNKNOWN_KIND


def hosted(native: Any, use: Any, kind: str = "web_search_20260318") -> HostedTool:
    return HostedTool(MESSAGES, kind, native, "/tools/0", use)


HOSTED: list[tuple[HostedTool, dict[str, Any], Losses]] = [
    (
        hosted({"type": "web_search_20260318", "name": "web_search"}, WebSearch()),
        {"type": "web_search"},
        [],
    ),
    (
        hosted(
            {"allowed_domains": ["a"], "user_location": {"city": "Oslo"}, "max_uses": 3},
            WebSearch(("a",), None, 3, {"city": "Oslo"}, "low"),
        ),
        {
            "type": "web_search",
            "filters": {"allowed_domains": ["a"]},
            "user_location": PLACE,
            "search_context_size": "low",
        },
        [],
    ),
    (
        hosted({"blocked_domains": ["b"]}, WebSearch(blocked_domains=("b",))),
        {"type": "web_search"},
        [(DROPPED, "/tools/0/blocked_domains")],
    ),
    (
        hosted({"response_inclusion": "full"}, WebSearch()),
        {"type": "web_search"},
        [(ALTERED, "/tools/0")],
    ),
    (hosted(None, WebSearch()), {"type": "web_search"}, []),
    (
        hosted({"name": "code_execution"}, CodeExecution(), "code_execution_20260521"),
        {"type": "code_interpreter", "container": {"type": "auto"}},
        [],
    ),
    (
        hosted({"mcp_server_name": "s"}, McpServer("s", "https://s", "key", ("a",)), "mcp_toolset"),
        {
            "type": "mcp",
            "server_label": "s",
            "server_url": "https://s",
            "authorization": "key",
            "allowed_tools": ["a"],
            "require_approval": "never",
        },
        [],
    ),
    (
        hosted({"mcp_server_name": "s"}, McpServer("s", "https://s"), "mcp_toolset"),
        {"type": "mcp", "server_label": "s", "server_url": "https://s", "require_approval": "never"},
        [],
    ),
]


@pytest.mark.parametrize(("tool", "expected", "losses"), HOSTED)
def test_tools_that_the_upstream_runs_too_are_its_own(
    tool: HostedTool, expected: dict[str, Any], losses: Losses
) -> None:
    body, lost = write(USER, protocol=MESSAGES, tools=(tool,), target=RUNS_ALL)
    assert body["tools"] == [expected]
    assert lost == losses


@pytest.mark.parametrize(("use", "code"), [(None, UNKNOWN_KIND), (CodeExecution(), DROPPED)])
def test_tools_that_it_does_not_run_are_left_out(use: Any, code: LossCode) -> None:
    target = Target(hosted=frozenset(("web_search",)))
    body, losses = write(USER, protocol=MESSAGES, tools=(hosted({}, use),), target=target)
    assert "tools" not in body
    assert losses == [(code, "/tools/0")]


SERVED = {"mcp_servers": [{"name": "a"}, {"name": "b"}, {"name": "c"}]}


@pytest.mark.parametrize(
    ("target", "losses"),
    [
        (RUNS_ALL, [(UNKNOWN_KIND, "/mcp_servers/1"), (DROPPED, "/mcp_servers/2")]),
        (
            Target(),
            [
                (DROPPED, "/tools/0"),
                (UNKNOWN_KIND, "/mcp_servers/1"),
                (DROPPED, "/mcp_servers/0"),
                (DROPPED, "/mcp_servers/2"),
            ],
        ),
    ],
)
def test_a_server_without_a_tool_that_was_sent_is_told(target: Target, losses: Losses) -> None:
    sent = hosted({"mcp_server_name": "a"}, McpServer("a", "https://a"), "mcp_toolset")
    untold = HostedTool(MESSAGES, "mcp_server", {"name": "b"}, "/mcp_servers/1", None)
    _, lost = write(USER, protocol=MESSAGES, tools=(sent, untold), target=target, params=SERVED)
    assert lost == losses


LIMITED = hosted({"max_uses": 3}, WebSearch(max_uses=3))


@pytest.mark.promise("R13")
@pytest.mark.parametrize(
    ("tools", "limit", "losses"),
    [
        ((LIMITED,), 3, []),
        ((LIMITED, FunctionTool("f")), 3, []),
        ((LIMITED, hosted({}, CodeExecution())), None, [(DROPPED, "/tools/0/max_uses")]),
        ((hosted({}, CodeExecution()),), None, []),
    ],
)
def test_the_limit_of_the_only_hosted_tool_is_that_of_all(tools: Any, limit: Any, losses: Losses) -> None:
    body, lost = write(USER, protocol=MESSAGES, tools=tools, target=RUNS_ALL)
    assert (body.get("max_tool_calls"), lost) == (limit, losses)


SEARCH, CODE = hosted({}, WebSearch(), "web"), hosted({}, CodeExecution(), "code")
SERVER = hosted({}, McpServer("s", "u"), "mcp_toolset")
GONE = hosted({}, None, "advisor")
TOOLS = (FunctionTool("f"), SEARCH, CODE, SERVER, GONE)
HOSTED_CHOICES: list[tuple[ToolChoice, Any, Losses]] = [
    (ToolChoice("named", hosted="web"), {"type": "web_search_preview"}, []),
    (ToolChoice("named", hosted="code"), {"type": "code_interpreter"}, []),
    (ToolChoice("named", hosted="mcp_toolset"), {"type": "mcp", "server_label": "s"}, []),
    (ToolChoice("named", hosted="advisor", path="/c"), None, [(DROPPED, "/c")]),
    (
        ToolChoice("allowed", allowed=(ToolRef("f"), ToolRef("", hosted="web"))),
        {
            "type": "allowed_tools",
            "mode": "auto",
            "tools": [{"type": "function", "name": "f"}, {"type": "web_search_preview"}],
        },
        [],
    ),
    (
        ToolChoice("allowed", allowed=(ToolRef("f"), ToolRef("", hosted="advisor")), path="/c"),
        {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "f"}]},
        [(ALTERED, "/c")],
    ),
    (
        ToolChoice("allowed", allowed=(ToolRef("", hosted="advisor"),), path="/c"),
        "none",
        [(ALTERED, "/c")],
    ),
]


@pytest.mark.parametrize(("choice", "expected", "losses"), HOSTED_CHOICES)
def test_a_choice_speaks_of_tools_that_are_there(choice: ToolChoice, expected: Any, losses: Losses) -> None:
    body, lost = write(USER, protocol=MESSAGES, tools=TOOLS, tool_choice=choice, target=RUNS_ALL)
    assert body.get("tool_choice") == expected
    assert lost == [(UNKNOWN_KIND, "/tools/0"), *losses]


def test_nothing_can_be_demanded_where_no_tool_is_left() -> None:
    choice = ToolChoice("required", path="/c")
    body, losses = write(USER, protocol=MESSAGES, tools=(GONE,), tool_choice=choice)
    assert "tool_choice" not in body
    assert losses == [(UNKNOWN_KIND, "/tools/0"), (DROPPED, "/c")]


# --- what tools and schemas say -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("protocol", "schema", "asked", "sent", "losses"),
    [
        (CHAT, CLOSED, True, True, []),
        (CHAT, OPEN, True, False, [(ALTERED, "/tools/0/strict")]),
        (CHAT, OPEN, None, False, []),
        (MESSAGES, CLOSED, True, True, []),
        (MESSAGES, CLOSED, None, False, []),
        (MESSAGES, OPEN, True, False, [(ALTERED, "/tools/0/strict")]),
        (MESSAGES, None, True, False, [(ALTERED, "/tools/0/strict")]),
    ],
)
def test_a_tool_is_strict_where_its_schema_may_be(
    protocol: str, schema: Any, asked: Any, sent: bool, losses: Losses
) -> None:
    tool = FunctionTool("f", parameters=schema, strict=asked, path="/tools/0")
    body, lost = write(USER, protocol=protocol, tools=(tool,))
    assert (body["tools"][0]["strict"], lost) == (sent, losses)


def test_deferred_tools_are_shown_and_examples_told() -> None:
    tool = FunctionTool("f", "does", path="/t", deferred=True, examples=[{"a": 1}, {"a": 2}])
    body, losses = write(
        USER, protocol=MESSAGES, tools=(tool, FunctionTool("g", deferred=False, examples=[{}]))
    )
    assert [each.get("description") for each in body["tools"]] == [
        'does\nExamples of its input:\n{"a":1}\n{"a":2}',
        "Examples of its input:\n{}",
    ]
    assert losses == [
        (DROPPED, "/t/defer_loading"),
        (ALTERED, "/t/input_examples"),
        (ALTERED, "/input_examples"),
    ]


@pytest.mark.parametrize("protocol", [CHAT, MESSAGES])
@pytest.mark.parametrize(
    ("schema", "asked", "sent", "losses"),
    [
        (CLOSED, True, True, []),
        (CLOSED, None, False, []),
        (OPEN, True, False, [(ALTERED, "/output_config/format")]),
        (OPEN, None, False, []),
    ],
)
def test_an_answers_schema_is_strict_where_it_may_be(
    protocol: str, schema: Any, asked: Any, sent: bool, losses: Losses
) -> None:
    form = ResponseFormat(schema, strict=asked, path="/output_config/format")
    body, lost = write(USER, protocol=protocol, response_format=form)
    assert (body["text"]["format"]["strict"], lost) == (sent, losses)


WORDS = {"type": "input_text", "text": "Answer with one JSON object."}


@pytest.mark.parametrize(
    ("said", "added"),
    [
        (Message("user", (Text("hi"),)), True),
        (Message("user", (Text("Give me Json, please"),)), False),
        (Message("user", (ToolResult("c", (Text("json"),)),)), True),
    ],
)
def test_the_word_json_is_in_the_input_of_who_wants_any_object(said: Message, added: bool) -> None:
    body, losses = write(said, response_format=ResponseFormat(path="/response_format"))
    last = {"type": "message", "role": "system", "content": [WORDS]}
    assert (body["input"][-1] == last) is added
    assert losses == ([(LossCode.REPAIRED, "/response_format")] if added else [])


def test_a_schema_needs_no_such_word() -> None:
    assert len(write(USER, response_format=ResponseFormat(CLOSED))[0]["input"]) == 1


@pytest.mark.parametrize(
    ("config", "efforts", "sent", "losses"),
    [
        (ReasoningConfig(effort="xhigh", effort_path="/e"), ("low", "high"), "high", [(ALTERED, "/e")]),
        (ReasoningConfig(effort="low", path="/r"), ("low", "high"), "low", []),
        (ReasoningConfig("disabled", path="/r"), ("minimal", "high"), "minimal", [(ALTERED, "/r")]),
    ],
)
def test_an_effort_that_the_model_does_not_take_becomes_the_nearest(
    config: ReasoningConfig, efforts: Any, sent: str, losses: Losses
) -> None:
    body, lost = write(USER, protocol=MESSAGES, reasoning=config, target=Target(efforts=efforts))
    assert (body["reasoning"]["effort"], lost) == (sent, losses)


@pytest.mark.parametrize(
    ("config", "losses"),
    [
        (ReasoningConfig(effort="low", path="/reasoning_effort"), ["/reasoning_effort"]),
        (
            ReasoningConfig("adaptive", "low", path="/thinking", effort_path="/output_config/effort"),
            ["/thinking", "/output_config/effort"],
        ),
        (ReasoningConfig(show="summarized"), ["/reasoning"]),
        # Nothing is lost.
        (ReasoningConfig("disabled", path="/thinking"), []),
        (ReasoningConfig(effort="none"), []),
    ],
)
def test_a_model_that_does_not_reason_is_not_asked_to(config: ReasoningConfig, losses: list[str]) -> None:
    body, lost = write(USER, reasoning=config, target=Target(efforts=()))
    assert not body.keys() & {"reasoning", "include"}
    assert lost == [(DROPPED, path) for path in losses]


def test_a_fast_speed_is_a_service_tier_where_one_is_taken() -> None:
    body, lost = write(USER, params={"speed": "fast"}, target=Target(refuses=frozenset({"service_tier"})))
    assert ("service_tier" in body, lost) == (False, [(DROPPED, "/speed")])


def test_what_nobody_asked_for_is_not_sent_where_it_is_refused() -> None:
    config = ReasoningConfig(effort="low")
    body, lost = write(USER, reasoning=config, target=Target(refuses=frozenset({"store", "include"})))
    assert (body.keys() & {"store", "include"}, lost) == (set(), [])
    body, lost = write(USER, params={"logprobs": True}, target=Target(refuses=frozenset({"include"})))
    assert ("include" in body, lost) == (False, [(DROPPED, "/logprobs")])


def test_marks_on_tools_have_no_place() -> None:
    tool = FunctionTool("f", cache=CacheMark("/tools/0/cache_control"))
    _, losses = write(USER, tools=(tool,), target=Target(cache_marks="breakpoint"))
    assert losses == [(DROPPED, "/tools/0/cache_control")]
