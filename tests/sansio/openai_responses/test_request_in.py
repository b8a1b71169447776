"""Bodies of Responses requests: their settings, their repairs and their errors."""

from __future__ import annotations

from typing import Any

import pytest
from core.passes import pass_context
from core.same_protocol import read_same_protocol

from dragoman._ir.losses import Ledger, LossCode
from dragoman._ir.request import Message, ReasoningConfig, Request, ResponseFormat, Text, ToolCall, ToolResult
from dragoman._ir.signatures import Signer
from dragoman._ir.tools import FunctionTool, ToolChoice, ToolRef
from dragoman._transforms.extensions import strip_extensions
from dragoman._wire.exceptions import RemoteProtocolError
from dragoman.protocols.openai_responses import SPEC
from dragoman.protocols.openai_responses.capabilities import ResponsesCapabilities as Capabilities

ORIGIN = "openai_responses"


def read(signer: Signer = Signer(), **body: Any) -> Request:
    return read_same_protocol(SPEC, {"model": "m", "input": "hi", **body}, signer)


def test_a_string_is_one_user_message() -> None:
    request = read()
    assert request.messages == (Message("user", (Text("hi", path="/input"),), "/input"),)
    assert (request.protocol, request.model, request.stream, request.extra) == (ORIGIN, "m", False, None)


def test_instructions_are_the_first_message() -> None:
    request = read(instructions="be brief", stream=True)
    assert request.messages[0] == Message(
        "system", (Text("be brief", path="/instructions"),), "/instructions"
    )
    assert request.messages[1].role == "user"
    assert request.stream


def test_input_may_be_absent_when_something_else_holds_the_conversation() -> None:
    request = SPEC.read_request({"model": "m", "previous_response_id": "resp_1"}, Signer())
    assert request.messages == ()
    assert request.params == {"previous_response_id": "resp_1"}


def test_reasoning_settings() -> None:
    place = {"path": "/reasoning", "effort_path": "/reasoning/effort"}
    assert read(reasoning={"effort": "low"}).reasoning == ReasoningConfig(effort="low", **place)
    assert read(reasoning={"summary": "detailed", "mode": "pro"}).reasoning == ReasoningConfig(
        display="summarized",
        display_path="/reasoning/summary",
        extra={"mode": "pro", "summary": "detailed"},
        **place,
    )
    assert read(reasoning={"generate_summary": "concise"}).reasoning == ReasoningConfig(
        display="summarized",
        display_path="/reasoning/generate_summary",
        extra={"generate_summary": "concise"},
        **place,
    )
    assert read(reasoning={"generate_summary": "auto"}).reasoning == ReasoningConfig(
        display="summarized",
        display_path="/reasoning/generate_summary",
        **place,
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


def test_values_that_request_nothing_are_no_settings() -> None:
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
        (["web_search_call.action.sources"], {}),
        (
            ["reasoning.encrypted_content", "file_search_call.results"],
            {"include": ["reasoning.encrypted_content", "file_search_call.results"]},
        ),
    ],
)
def test_include(include: list[str], params: dict[str, Any]) -> None:
    assert read(include=include).params == params


@pytest.mark.parametrize(
    ("options", "extra"),
    [
        (None, None),
        ({}, None),
        ({"include_obfuscation": False}, None),
        ({"include_obfuscation": True}, {"stream_options": {"include_obfuscation": True}}),
    ],
)
def test_stream_options(options: Any, extra: Any) -> None:
    assert read(stream_options=options).extra == extra


FUNCTION = {"type": "function", "name": "f"}


@pytest.mark.parametrize(
    ("body", "extra"),
    [
        ({"text": {"format": {"type": "text"}}}, None),
        ({"text": {"format": {"type": "text", "x": 1}}}, {"text": {"format": {"type": "text", "x": 1}}}),
        ({"tool_choice": FUNCTION}, None),
        ({"tool_choice": {**FUNCTION, "x": 1}}, {"tool_choice": {**FUNCTION, "x": 1}}),
        ({"tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [FUNCTION]}}, None),
        (
            {"tool_choice": {"type": "allowed_tools", "mode": "odd", "tools": [FUNCTION]}},
            {"tool_choice": {"type": "allowed_tools", "mode": "odd", "tools": [FUNCTION]}},
        ),
        (
            {"tool_choice": {"type": "allowed_tools", "tools": [{**FUNCTION, "x": 1}]}},
            {"tool_choice": {"type": "allowed_tools", "tools": [{**FUNCTION, "x": 1}]}},
        ),
    ],
)
def test_settings_with_further_members(body: Any, extra: Any) -> None:
    assert read(**body).extra == extra


SCHEMA = {"type": "object", "properties": {}}
FLAT = {"type": "function", "name": "f", "parameters": SCHEMA}
NESTED = {"type": "function", "function": {"name": "g", "description": "d", "parameters": SCHEMA}}
REF = {"type": "function", "function": {"name": "g"}}


def repaired(request: Request) -> list[str]:
    ledger = Ledger()
    strip_extensions(request, pass_context(request, ledger))
    assert {loss.code for loss in ledger} <= {LossCode.REPAIRED}
    return [loss.path for loss in ledger]


def test_functions_in_the_form_of_chat_completions() -> None:
    request = read(tools=[FLAT, NESTED, {"type": "function", "function": {"name": "h", "strict": True}}])
    assert request.tools == (
        FunctionTool("f", None, SCHEMA, path="/tools/0"),
        FunctionTool("g", "d", SCHEMA, False, path="/tools/1"),  # the default of Chat Completions
        FunctionTool("h", None, None, True, path="/tools/2"),
    )
    assert repaired(request) == ["/tools/1", "/tools/2"]
    written = SPEC.write_request(request, Capabilities(), Ledger())["tools"]
    assert written[0] == FLAT
    assert written[1] == {"type": "function", "strict": False, **NESTED["function"]}  # type: ignore[dict-item]


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        (REF, ToolChoice("named", "g", path="/tool_choice")),
        (
            {
                "type": "allowed_tools",
                "allowed_tools": {"mode": "required", "tools": [REF, {"type": "function", "name": "f"}]},
            },
            ToolChoice("allowed", allowed=(ToolRef("g"), ToolRef("f")), required=True, path="/tool_choice"),
        ),
    ],
)
def test_choices_in_the_form_of_chat_completions(choice: Any, expected: ToolChoice) -> None:
    request = read(tools=[FLAT], tool_choice=choice)
    assert request.tool_choice == expected
    assert repaired(request) == ["/tool_choice"]


@pytest.mark.parametrize(
    ("kind", "text"), [("function_call", {"arguments": "{}"}), ("custom_tool_call", {"input": "x"})]
)
def test_a_call_whose_output_names_its_id(kind: str, text: Any) -> None:
    request = read(
        input=[
            {"type": kind, "id": "call_1", "call_id": None, "name": "f", **text},
            {"type": kind, "id": "fc_2", "call_id": "call_2", "name": "f", **text},
            {"type": f"{kind}_output", "call_id": "call_1", "output": "1"},
            {"type": f"{kind}_output", "call_id": "call_2", "output": "2"},
        ]
    )
    parts = [message.parts[0] for message in request.messages]
    assert [part.call_id for part in parts if isinstance(part, (ToolCall, ToolResult))] == [
        "call_1",
        "call_2",
        "call_1",
        "call_2",
    ]
    assert [part.item_id for part in parts if isinstance(part, ToolCall)] == [None, "fc_2"]
    assert repaired(request) == ["/input/0"]


REFUSED_BODIES: list[tuple[Any, str]] = [
    ({"tools": [{"type": "function", "function": "g"}]}, "/tools/0/name"),
    ({"tools": [{"type": "function", "function": {}}]}, "/tools/0/name"),
    ({"tools": "f"}, "/tools"),
    ({"tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "auto"}}}, "/tool_choice/tools"),
    # without a result that names it
    (
        {"input": [{"type": "function_call", "id": "call_1", "name": "f", "arguments": "{}"}]},
        "/input/0/call_id",
    ),
    (
        {
            "input": [
                {"type": "function_call", "id": "call_1", "name": "f", "arguments": "{}"},
                {"type": "function_call_output", "call_id": ["call_1"], "output": "1"},
                "odd",
            ]
        },
        "/input/0/call_id",
    ),
    ({"input": [{"type": ["function_call"], "id": "call_1"}]}, "/input/0/type"),
]


def test_bodies_without_a_plain_meaning_are_refused(subtests: pytest.Subtests) -> None:
    for body, path in REFUSED_BODIES:
        with subtests.test(path=path):
            with pytest.raises(RemoteProtocolError) as caught:
                read(**body)
            assert caught.value.path == path


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
    ({"tool_choice": {"type": "allowed_tools", "tools": ["x"]}}, "/tool_choice/tools/0", "invalid_type"),
    ({"text": {"format": "json"}}, "/text/format", "invalid_type"),
    ({"text": {"format": {"type": "xml"}}}, "/text/format/type", "invalid_value"),
    (
        {"text": {"format": {"type": "json_schema", "name": "n"}}},
        "/text/format/schema",
        "missing_required_parameter",
    ),
    ({"text": {"format": {"type": "json_schema", "schema": 1}}}, "/text/format/schema", "invalid_type"),
    ({"stream_options": "odd"}, "/stream_options", "invalid_type"),
    ({"include": ["x", {}]}, "/include/1", "invalid_type"),
    ({"input": [{"type": {}, "id": "fc_1"}]}, "/input/0/type", "invalid_type"),
]


def test_bad_requests_name_the_place(subtests: pytest.Subtests) -> None:
    for change, path, code in ERRORS:
        with subtests.test(path=path, code=code):
            with pytest.raises(RemoteProtocolError) as caught:
                read(**change)
            assert (caught.value.path, caught.value.code, caught.value.status) == (path, code, 400)
            assert caught.value.param is not None
            assert caught.value.param in caught.value.message
