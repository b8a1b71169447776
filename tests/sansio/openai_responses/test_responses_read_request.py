"""What a Responses request means: bodies in, requests out."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman._errors import RemoteProtocolError
from dragoman._events import Seal, ToolKind
from dragoman._request import (
    CacheMark,
    CustomTool,
    FunctionTool,
    Grammar,
    HostedTool,
    Media,
    Message,
    OpaquePart,
    ReasoningConfig,
    Refusal,
    Request,
    ResponseFormat,
    Text,
    Thought,
    ToolCall,
    ToolChoice,
    ToolResult,
)
from dragoman._seal import PREFIX, Sealer
from dragoman.protocols.openai_responses import SPEC

ORIGIN = "openai_responses"


def read(sealer: Sealer = Sealer(), **body: Any) -> Request:
    return SPEC.read_request({"model": "m", "input": "hi", **body}, sealer)


def item(value: dict[str, Any], sealer: Sealer = Sealer()) -> Message:
    (message,) = read(sealer, input=[value]).messages
    return message


def content(part: dict[str, Any]) -> Any:
    (found,) = item({"role": "user", "content": [part]}).parts
    return found


def test_a_string_is_one_user_message() -> None:
    request = read()
    assert request.messages == (Message("user", (Text("hi", path="/input"),), "/input"),)
    assert (request.protocol, request.model, request.stream, request.extra) == (ORIGIN, "m", False, None)
    assert request.raw == {"model": "m", "input": "hi"}


def test_instructions_lead_and_say_where_they_stood() -> None:
    request = read(instructions="be brief", stream=True)
    assert request.messages[0] == Message(
        "system", (Text("be brief", path="/instructions"),), "/instructions"
    )
    assert request.messages[1].role == "user"
    assert request.stream


def test_input_may_be_absent_when_something_else_holds_the_conversation() -> None:
    request = SPEC.read_request({"model": "m", "previous_response_id": "resp_1"}, Sealer())
    assert request.messages == ()
    assert request.params == {"previous_response_id": "resp_1"}


@pytest.mark.parametrize("role", ["user", "assistant", "system", "developer"])
@pytest.mark.parametrize("typed", [{}, {"type": "message"}])
def test_messages_with_and_without_type(role: Any, typed: dict[str, Any]) -> None:
    assert item({**typed, "role": role, "content": "x"}) == Message(
        role, (Text("x", path="/input/0/content"),), "/input/0"
    )


def test_a_message_keeps_id_phase_and_unknown_fields() -> None:
    message = item(
        {
            "type": "message",
            "role": "assistant",
            "id": "msg_1",
            "status": "completed",
            "phase": "commentary",
            "odd": 1,
            "content": [{"type": "output_text", "text": "x", "annotations": []}],
        }
    )
    assert message == Message(
        "assistant",
        (Text("x", path="/input/0/content/0"),),
        "/input/0",
        phase="commentary",
        item_id="msg_1",
        extra={"odd": 1},
    )


PART = "/input/0/content/0"
MARK = {"mode": "explicit", "ttl": "12h"}
PARTS: list[tuple[dict[str, Any], Any]] = [
    ({"type": "input_text", "text": "a"}, Text("a", path=PART)),
    ({"type": "text", "text": "a"}, Text("a", path=PART)),
    (
        {"type": "input_text", "text": "a", "prompt_cache_breakpoint": MARK},
        Text("a", CacheMark(f"{PART}/prompt_cache_breakpoint", "long"), path=PART),
    ),
    (
        {"type": "input_text", "text": "a", "prompt_cache_breakpoint": {"mode": "explicit"}},
        Text("a", CacheMark(f"{PART}/prompt_cache_breakpoint"), path=PART),
    ),
    (
        {"type": "output_text", "text": "a", "annotations": [{"type": "file_path"}], "logprobs": []},
        Text("a", citations=[{"type": "file_path"}], path=PART),
    ),
    (
        {"type": "output_text", "text": "a", "logprobs": [{"token": "a"}]},
        Text("a", extra={"logprobs": [{"token": "a"}]}, path=PART),
    ),
    ({"type": "input_text", "text": "a", "odd": 1}, Text("a", extra={"odd": 1}, path=PART)),
    ({"type": "refusal", "refusal": "no"}, Refusal("no", path=PART)),
    (
        {"type": "input_image", "image_url": "data:image/png;base64,QUJD", "detail": "low"},
        Media("image", "base64", "QUJD", "image/png", detail="low", path=PART),
    ),
    (
        {"type": "input_image", "image_url": "data:;base64,QUJD"},
        Media("image", "base64", "QUJD", path=PART),
    ),
    (
        {"type": "input_image", "image_url": "https://x/y.png"},
        Media("image", "url", "https://x/y.png", path=PART),
    ),
    (
        {"type": "input_image", "image_url": "data:image/svg+xml,%3Csvg/%3E"},
        Media("image", "url", "data:image/svg+xml,%3Csvg/%3E", path=PART),
    ),
    (
        {"type": "input_image", "file_id": "file_1", "odd": 1},
        Media("image", "file_id", "file_1", extra={"odd": 1}, path=PART),
    ),
    (
        {"type": "input_file", "file_data": "data:application/pdf;base64,QUJD", "filename": "a.pdf"},
        Media("file", "base64", "QUJD", "application/pdf", "a.pdf", path=PART),
    ),
    ({"type": "input_file", "file_data": "QUJD"}, Media("file", "base64", "QUJD", path=PART)),
    (
        {"type": "input_file", "file_url": "https://x/y.pdf", "detail": "high"},
        Media("file", "url", "https://x/y.pdf", detail="high", path=PART),
    ),
    ({"type": "input_file", "file_id": "file_1"}, Media("file", "file_id", "file_1", path=PART)),
    (
        {"type": "input_audio", "input_audio": {}},
        OpaquePart(ORIGIN, "input_audio", {"type": "input_audio", "input_audio": {}}, PART),
    ),
]


@pytest.mark.parametrize(("part", "expected"), PARTS)
def test_content_parts(part: dict[str, Any], expected: Any) -> None:
    assert content(part) == expected


CALLS: list[tuple[dict[str, Any], ToolCall]] = [
    (
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
        ToolCall("c", "f", "{}", path="/input/0"),
    ),
    (
        {
            "type": "function_call",
            "call_id": "c",
            "name": "f",
            "arguments": "",
            "id": "fc_1",
            "namespace": "ns",
            "status": "completed",
            "caller": {"type": "program", "caller_id": "p"},
        },
        ToolCall(
            "c",
            "f",
            "",
            namespace="ns",
            item_id="fc_1",
            extra={"caller": {"type": "program", "caller_id": "p"}},
            path="/input/0",
        ),
    ),
    (
        {"type": "function_call", "call_id": "c", "name": "f", "id": ""},
        ToolCall("c", "f", "", path="/input/0"),
    ),
    (
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": {"a": 1}},
        ToolCall("c", "f", '{"a":1}', path="/input/0"),
    ),
    (
        {"type": "custom_tool_call", "call_id": "c", "name": "f", "input": "free text"},
        ToolCall("c", "f", "free text", ToolKind.CUSTOM, path="/input/0"),
    ),
]


@pytest.mark.parametrize(("value", "expected"), CALLS)
def test_calls(value: dict[str, Any], expected: ToolCall) -> None:
    assert item(value) == Message("assistant", (expected,), "/input/0")


RESULTS: list[tuple[dict[str, Any], ToolResult]] = [
    (
        {"type": "function_call_output", "call_id": "c", "output": "done"},
        ToolResult("c", (Text("done", path="/input/0/output"),), path="/input/0"),
    ),
    (
        {"type": "custom_tool_call_output", "call_id": "c", "output": "done", "id": "o_1", "odd": 1},
        ToolResult(
            "c",
            (Text("done", path="/input/0/output"),),
            ToolKind.CUSTOM,
            item_id="o_1",
            extra={"odd": 1},
            path="/input/0",
        ),
    ),
    (
        {
            "type": "function_call_output",
            "call_id": "c",
            "name": "f",
            "namespace": None,
            "status": "completed",
            "output": [
                {"type": "input_text", "text": "see"},
                {"type": "input_image", "image_url": "https://x/y.png", "detail": "auto"},
            ],
        },
        ToolResult(
            "c",
            (
                Text("see", path="/input/0/output/0"),
                Media("image", "url", "https://x/y.png", detail="auto", path="/input/0/output/1"),
            ),
            path="/input/0",
        ),
    ),
]


@pytest.mark.parametrize(("value", "expected"), RESULTS)
def test_results(value: dict[str, Any], expected: ToolResult) -> None:
    assert item(value) == Message("user", (expected,), "/input/0")


def test_reasoning_keeps_the_whole_item_as_its_seal() -> None:
    value = {
        "type": "reasoning",
        "id": "rs_1",
        "summary": [{"type": "summary_text", "text": "one"}, {"type": "summary_text", "text": "two"}, "odd"],
        "encrypted_content": "gAAA",
        "odd": 1,
    }
    assert item(value).parts == (Thought("one\n\ntwo", Seal(ORIGIN, value), "rs_1", {"odd": 1}, "/input/0"),)


def test_reasoning_content_is_its_text_when_there_is_no_summary() -> None:
    value = {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "deep"}]}
    assert item(value).parts == (Thought("deep", Seal(ORIGIN, value), path="/input/0"),)


def test_reasoning_that_we_sealed_is_unwrapped() -> None:
    sealer = Sealer(b"secret")
    seal = Seal("anthropic_messages", {"type": "thinking", "thinking": "t", "signature": "s"}, "c")
    value = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": sealer.wrap(seal)}
    assert item(value, sealer).parts == (Thought("", seal, "rs_1", path="/input/0"),)


def test_forged_reasoning_is_only_text() -> None:
    value = {"type": "reasoning", "summary": [{"text": "t"}], "encrypted_content": PREFIX + "AAAA.mac"}
    assert item(value, Sealer(b"secret")).parts == (Thought("t", None, path="/input/0"),)


@pytest.mark.parametrize(
    ("kind", "role"),
    [
        ("local_shell_call", "assistant"),
        ("local_shell_call_output", "user"),
        ("shell_call", "assistant"),
        ("shell_call_output", "user"),
        ("apply_patch_call", "assistant"),
        ("apply_patch_call_output", "user"),
        ("computer_call", "assistant"),
        ("computer_call_output", "user"),
        ("web_search_call", "assistant"),
        ("file_search_call", "assistant"),
        ("code_interpreter_call", "assistant"),
        ("image_generation_call", "assistant"),
        ("mcp_call", "assistant"),
        ("mcp_list_tools", "assistant"),
        ("mcp_approval_request", "assistant"),
        ("mcp_approval_response", "user"),
        ("compaction", "assistant"),
        ("compaction_trigger", "user"),
        ("item_reference", "assistant"),
        ("configuration_update", "user"),
        ("program", "assistant"),
        ("program_output", "user"),
        ("tool_search_call", "assistant"),
        ("tool_search_output", "user"),
        ("something_of_tomorrow", "assistant"),
    ],
)
def test_other_items_ride_along_whole(kind: str, role: Any) -> None:
    value = {"type": kind, "id": "x"}
    assert item(value) == Message(role, (OpaquePart(ORIGIN, kind, value, "/input/0"),), "/input/0")


def test_additional_tools_are_tools() -> None:
    request = read(
        tools=[{"type": "function", "name": "a"}],
        input=[
            {"role": "user", "content": "x"},
            {"type": "additional_tools", "role": "developer", "tools": [{"type": "custom", "name": "b"}]},
            {"type": "additional_tools", "role": "developer"},
        ],
    )
    assert request.tools == (
        FunctionTool("a", path="/tools/0"),
        CustomTool("b", path="/input/1/tools/0"),
    )
    assert [message.path for message in request.messages] == ["/input/0"]


TOOLS: list[tuple[dict[str, Any], Any]] = [
    (
        {
            "type": "function",
            "name": "f",
            "description": "d",
            "parameters": {"type": "object"},
            "strict": True,
        },
        FunctionTool("f", "d", {"type": "object"}, True, path="/tools/0"),
    ),
    (
        {"type": "function", "name": "f", "parameters": None, "strict": None, "defer_loading": True},
        FunctionTool("f", extra={"defer_loading": True}, path="/tools/0"),
    ),
    ({"type": "custom", "name": "c", "format": {"type": "text"}}, CustomTool("c", path="/tools/0")),
    (
        {
            "type": "custom",
            "name": "c",
            "format": {"type": "grammar", "syntax": "lark", "definition": "start: X"},
        },
        CustomTool("c", grammar=Grammar("lark", "start: X"), path="/tools/0"),
    ),
    (
        {"type": "web_search", "external_web_access": True},
        HostedTool(ORIGIN, "web_search", {"type": "web_search", "external_web_access": True}, "/tools/0"),
    ),
    (
        {"type": "namespace", "name": "ns", "description": "d", "tools": []},
        HostedTool(
            ORIGIN,
            "namespace",
            {"type": "namespace", "name": "ns", "description": "d", "tools": []},
            "/tools/0",
        ),
    ),
]


@pytest.mark.parametrize(("tool", "expected"), TOOLS)
def test_tools(tool: dict[str, Any], expected: Any) -> None:
    assert read(tools=[tool]).tools == (expected,)


def test_a_namespace_gives_its_name_to_its_tools() -> None:
    tools = [
        {
            "type": "namespace",
            "name": "ns",
            "tools": [{"type": "function", "name": "f"}, {"type": "custom", "name": "c"}],
        },
        {"type": "function", "name": "g"},
    ]
    assert read(tools=tools).tools == (
        FunctionTool("f", namespace="ns", path="/tools/0/tools/0"),
        CustomTool("c", namespace="ns", path="/tools/0/tools/1"),
        FunctionTool("g", path="/tools/1"),
    )


CHOICE = "/tool_choice"
HOSTED_CHOICES: list[dict[str, Any]] = [
    {"type": "mcp", "server_label": "s"},
    {"type": "apply_patch"},
    {"type": "shell"},
    {"type": "programmatic_tool_calling"},
    {"type": "web_search_preview"},
]
CHOICES: list[tuple[Any, ToolChoice]] = [
    ("auto", ToolChoice("auto", path=CHOICE)),
    ("none", ToolChoice("none", path=CHOICE)),
    ("required", ToolChoice("required", path=CHOICE)),
    ({"type": "function", "name": "f"}, ToolChoice("named", "f", path=CHOICE)),
    ({"type": "custom", "name": "c"}, ToolChoice("named", "c", ToolKind.CUSTOM, path=CHOICE)),
    (
        {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "f"}]},
        ToolChoice("allowed", allowed=("f",), required=True, path=CHOICE),
    ),
]


@pytest.mark.parametrize(("value", "expected"), CHOICES)
def test_tool_choice(value: Any, expected: ToolChoice) -> None:
    request = read(tool_choice=value)
    assert request.tool_choice == expected
    assert request.extra is None


@pytest.mark.parametrize("value", HOSTED_CHOICES)
def test_choices_of_hosted_tools_are_unknown_fields(value: dict[str, Any]) -> None:
    request = read(tool_choice=value)
    assert request.tool_choice is None
    assert request.extra == {"tool_choice": value}


def test_a_list_of_allowed_tools_with_hosted_ones_is_kept_beside_its_names() -> None:
    value = {
        "type": "allowed_tools",
        "mode": "auto",
        "tools": [{"type": "function", "name": "f"}, {"type": "shell"}],
    }
    request = read(tool_choice=value)
    assert request.tool_choice == ToolChoice("allowed", allowed=("f",), path=CHOICE)
    assert request.extra == {"tool_choice": value}


def test_reasoning_settings() -> None:
    assert read(reasoning={"effort": "low"}).reasoning == ReasoningConfig(effort="low", path="/reasoning")
    assert read(reasoning={"summary": "detailed", "mode": "pro"}).reasoning == ReasoningConfig(
        show="summarized", extra={"mode": "pro", "summary": "detailed"}, path="/reasoning"
    )
    assert read(reasoning={"generate_summary": "auto"}).reasoning == ReasoningConfig(
        show="summarized", extra={"generate_summary": "auto"}, path="/reasoning"
    )


FORMAT = "/text/format"
FORMATS: list[tuple[Any, ResponseFormat | None]] = [
    (None, None),
    ({"type": "text"}, None),
    ({"type": "json_object"}, ResponseFormat(path=FORMAT)),
    (
        {
            "type": "json_schema",
            "name": "n",
            "schema": {"type": "object"},
            "strict": True,
            "description": "d",
            "odd": 1,
        },
        ResponseFormat({"type": "object"}, "n", "d", True, {"odd": 1}, FORMAT),
    ),
]


@pytest.mark.parametrize(("value", "expected"), FORMATS)
def test_text_format(value: Any, expected: ResponseFormat | None) -> None:
    request = read(text={"format": value, "verbosity": "low", "odd": 1})
    assert request.response_format == expected
    assert request.params == {"verbosity": "low"}
    assert request.param_paths["verbosity"] == "/text/verbosity"
    assert request.extra == {"text": {"odd": 1}}


def test_settings_keep_their_values_and_null_is_absent() -> None:
    request = read(
        temperature=0,
        top_p=0.5,
        max_output_tokens=9,
        metadata={"a": "b"},
        store=True,
        service_tier="flex",
        client_metadata={"session_id": "s"},
        user=None,
        parallel_tool_calls=False,
        access_programs={"cyber": "standard"},
    )
    assert request.params == {
        "temperature": 0,
        "top_p": 0.5,
        "max_output_tokens": 9,
        "metadata": {"a": "b"},
        "store": True,
        "service_tier": "flex",
        "client_metadata": {"session_id": "s"},
    }
    assert request.parallel_tool_calls is False
    assert request.extra == {"access_programs": {"cyber": "standard"}}


def test_values_that_ask_for_nothing_are_no_settings() -> None:
    assert (
        read(store=False, background=False, truncation="disabled", metadata={}, top_logprobs=0).params == {}
    )
    assert read(background=True, truncation="auto", top_logprobs=2).params == {
        "background": True,
        "truncation": "auto",
        "top_logprobs": 2,
    }


@pytest.mark.parametrize(
    ("include", "params"),
    [
        ([], {}),
        (["reasoning.encrypted_content"], {}),
        (["message.output_text.logprobs"], {"logprobs": True}),
        (
            ["reasoning.encrypted_content", "file_search_call.results"],
            {"include": ["reasoning.encrypted_content", "file_search_call.results"]},
        ),
    ],
)
def test_include(include: list[str], params: dict[str, Any]) -> None:
    assert read(include=include).params == params


ERRORS: list[tuple[dict[str, Any], str, str]] = [
    ({"model": None}, "/model", "missing_required_parameter"),
    ({"model": 1}, "/model", "invalid_type"),
    ({"model": ""}, "/model", "invalid_type"),
    ({"input": None}, "/input", "missing_required_parameter"),
    ({"input": 1}, "/input", "invalid_type"),
    ({"input": ["x"]}, "/input/0", "invalid_type"),
    ({"input": [{"type": 1}]}, "/input/0/type", "invalid_type"),
    ({"input": [{"type": "message", "content": "x"}]}, "/input/0/role", "missing_required_parameter"),
    ({"input": [{"role": "tool", "content": "x"}]}, "/input/0/role", "invalid_value"),
    ({"input": [{"role": ["user"], "content": "x"}]}, "/input/0/role", "invalid_value"),
    ({"input": [{"role": "user", "phase": 1, "content": "x"}]}, "/input/0/phase", "invalid_type"),
    ({"input": [{"role": "user", "content": [{"type": []}]}]}, "/input/0/content/0/type", "invalid_type"),
    (
        {"tools": [{"type": "function", "name": "f", "description": 1}]},
        "/tools/0/description",
        "invalid_type",
    ),
    ({"reasoning": {"effort": 3}}, "/reasoning/effort", "invalid_type"),
    ({"input": [{"role": "user"}]}, "/input/0/content", "missing_required_parameter"),
    ({"input": [{"role": "user", "content": 1}]}, "/input/0/content", "invalid_type"),
    ({"input": [{"role": "user", "content": ["x"]}]}, "/input/0/content/0", "invalid_type"),
    ({"input": [{"role": "user", "content": [{}]}]}, "/input/0/content/0/type", "missing_required_parameter"),
    (
        {"input": [{"role": "user", "content": [{"type": "input_text"}]}]},
        "/input/0/content/0/text",
        "missing_required_parameter",
    ),
    (
        {"input": [{"role": "user", "content": [{"type": "input_text", "text": 1}]}]},
        "/input/0/content/0/text",
        "invalid_type",
    ),
    (
        {"input": [{"role": "user", "content": [{"type": "input_image"}]}]},
        "/input/0/content/0",
        "missing_required_parameter",
    ),
    (
        {"input": [{"role": "user", "content": [{"type": "input_file", "filename": "x"}]}]},
        "/input/0/content/0",
        "missing_required_parameter",
    ),
    ({"input": [{"type": "function_call", "name": "f"}]}, "/input/0/call_id", "missing_required_parameter"),
    ({"input": [{"type": "function_call", "call_id": "c", "name": 1}]}, "/input/0/name", "invalid_type"),
    (
        {"input": [{"type": "function_call_output", "call_id": "c"}]},
        "/input/0/output",
        "missing_required_parameter",
    ),
    (
        {"input": [{"type": "function_call_output", "call_id": "c", "output": 1}]},
        "/input/0/output",
        "invalid_type",
    ),
    ({"instructions": ["x"]}, "/instructions", "invalid_type"),
    ({"temperature": "warm"}, "/temperature", "invalid_type"),
    ({"max_output_tokens": True}, "/max_output_tokens", "invalid_type"),
    ({"stream": "yes"}, "/stream", "invalid_type"),
    ({"tools": {}}, "/tools", "invalid_type"),
    ({"tools": ["x"]}, "/tools/0", "invalid_type"),
    ({"tools": [{"name": "x"}]}, "/tools/0/type", "missing_required_parameter"),
    ({"tools": [{"type": "function"}]}, "/tools/0/name", "missing_required_parameter"),
    (
        {"tools": [{"type": "custom", "name": "c", "format": {"type": "grammar"}}]},
        "/tools/0/format/syntax",
        "missing_required_parameter",
    ),
    ({"input": [{"type": "additional_tools", "tools": "x"}]}, "/input/0/tools", "invalid_type"),
    ({"tool_choice": "any"}, "/tool_choice", "invalid_value"),
    ({"tool_choice": {}}, "/tool_choice/type", "missing_required_parameter"),
    ({"tool_choice": {"type": "function"}}, "/tool_choice/name", "missing_required_parameter"),
    ({"tool_choice": {"type": "allowed_tools"}}, "/tool_choice/tools", "missing_required_parameter"),
    ({"tool_choice": {"type": "allowed_tools", "tools": "x"}}, "/tool_choice/tools", "invalid_type"),
    ({"text": {"format": "json"}}, "/text/format", "invalid_type"),
    ({"text": {"format": {"type": "xml"}}}, "/text/format/type", "invalid_value"),
    ({"text": {"format": {"type": "json_schema", "name": "n"}}}, "/text/format/schema", "invalid_type"),
]


@pytest.mark.parametrize(("change", "path", "code"), ERRORS)
def test_bad_requests_name_the_place(change: dict[str, Any], path: str, code: str) -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        read(**change)
    assert (caught.value.path, caught.value.code, caught.value.status_hint) == (path, code, 400)
    assert caught.value.param is not None
    assert caught.value.param in caught.value.message


def test_a_refusal_in_a_tool_result_is_kept_with_its_words() -> None:
    refusal = {"type": "refusal", "refusal": "no"}
    item = {"type": "function_call_output", "call_id": "c", "output": [refusal]}
    [message] = read(input=[item]).messages
    [result] = message.parts
    assert isinstance(result, ToolResult)
    assert result.parts == (OpaquePart("openai_responses", "refusal", refusal, "/input/0/output/0", "no"),)
