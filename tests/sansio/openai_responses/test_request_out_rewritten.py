"""Responses requests fitted to a Responses upstream: fields of the protocol stay, and capabilities are obeyed."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from core.passes import fit_and_write, pass_context
from core.same_protocol import read_same_protocol
from laws.fixtures import REQUESTS

from dragoman._ir.events import Signature
from dragoman._ir.losses import Ledger, LossCode
from dragoman._ir.native import changed
from dragoman._ir.request import ReasoningConfig, Request, ResponseFormat
from dragoman._ir.signatures import Signer
from dragoman._ir.tools import FunctionTool
from dragoman._transforms.history import repair_history
from dragoman._wire.json import decode, encode
from dragoman.protocols.openai_responses import SPEC
from dragoman.protocols.openai_responses.capabilities import ResponsesCapabilities as Capabilities

ORIGIN = "openai_responses"
CHAT, MESSAGES = "openai_chat", "anthropic_messages"


MARKS = Capabilities(cache_marks="breakpoint")


def round_trip(body: dict[str, Any]) -> dict[str, Any]:
    ledger = Ledger()
    out = fit_and_write(SPEC, read_same_protocol(SPEC, body), MARKS, ledger)
    assert list(ledger) == []
    return out


@pytest.mark.parametrize("name", REQUESTS[ORIGIN])
def test_requests_return_whole(name: str) -> None:
    body = REQUESTS[ORIGIN][name]
    assert round_trip(body) == body


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"instructions": "", "reasoning": {"summary": "auto"}, "tool_choice": "auto"},
        {"tools": [{"type": "custom", "name": "c", "format": {"type": "text"}}]},
        {"tools": [{"type": "function", "name": "f", "parameters": None, "strict": None}]},
        {
            "input": [
                {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": None},
                {
                    "type": "message",
                    "role": "user",
                    "content": [{"type": "input_text", "text": "a", "annotations": [{"type": "odd"}]}],
                },
                {
                    "type": "function_call",
                    "call_id": "c",
                    "name": "f",
                    "arguments": "{}",
                    "caller": {"type": "direct"},
                },
                {
                    "type": "custom_tool_call_output",
                    "call_id": "c",
                    "output": [{"type": "input_video", "url": "u"}],
                },
            ],
        },
    ],
)
def test_small_requests_return_whole(fields: dict[str, Any]) -> None:
    body = {"model": "m", "input": "hi", **fields}
    assert round_trip(body) == body


def test_a_request_without_input() -> None:
    body = {"model": "m", "previous_response_id": "resp_1"}
    assert round_trip(body) == body


def test_a_signature_of_another_protocol_is_a_loss() -> None:
    signature = Signature(MESSAGES, {"type": "thinking", "thinking": "t", "signature": "s"})
    wrapped = {
        "type": "reasoning",
        "id": "rs_1",
        "summary": [],
        "encrypted_content": Signer().wrap(signature),
    }
    ledger = Ledger()
    request = read_same_protocol(SPEC, {"model": "m", "input": [wrapped]})
    assert fit_and_write(SPEC, request, Capabilities(), ledger)["input"] == []
    assert [(loss.code, loss.path) for loss in ledger] == [(LossCode.FOREIGN_SIGNATURE, "/input/0")]


def test_a_tool_of_another_kind_copies_nothing_from_the_body() -> None:
    custom = {"type": "custom", "name": "c", "format": {"type": "text"}}
    request = read_same_protocol(SPEC, {"model": "m", "input": "hi", "tools": [custom]})
    changed = msgspec.structs.replace(request, tools=(FunctionTool("c", path="/tools/0"),))
    assert fit_and_write(SPEC, changed, Capabilities(), Ledger())["tools"] == [
        {"type": "function", "name": "c"}
    ]


HI = {"type": "message", "role": "user", "content": "Hi"}
CALL = {
    "type": "function_call",
    "id": "fc_1",
    "call_id": "c1",
    "name": "f",
    "arguments": "{}",
    "status": "completed",
}
RESULT = {"type": "function_call_output", "call_id": "c1", "output": "r"}
POINT = {"mode": "explicit"}
JSON = {"type": "json_schema", "name": "n", "schema": {}, "new": 1}


def read(**body: Any) -> Request:
    return read_same_protocol(SPEC, {"model": "m", "input": [HI], **body})


def written(request: Request, **capabilities: Any) -> tuple[dict[str, Any], list[str]]:
    """Return the body for the upstream without its model, and the paths of the losses."""
    ledger = Ledger()
    out = decode(encode(fit_and_write(SPEC, request, Capabilities(relay="rewrite", **capabilities), ledger)))
    del out["model"]
    return out, [loss.path for loss in ledger]


@pytest.mark.parametrize(
    ("capabilities", "before", "after", "losses"),
    [
        (
            {"efforts": ("low", "high")},
            {"reasoning": {"effort": "max", "summary": "detailed", "new": 1}},
            {"reasoning": {"effort": "high", "summary": "detailed", "new": 1}},
            ["/reasoning/effort"],
        ),
        (
            {"efforts": ()},
            {"reasoning": {"effort": "low", "new": 1}, "include": ["reasoning.encrypted_content"]},
            {},
            ["/reasoning", "/reasoning/effort"],
        ),
        ({"efforts": ()}, {"reasoning": {"effort": "none"}, "include": ["x"]}, {"include": ["x"]}, []),
        (
            {"summaries": "never"},
            {"reasoning": {"effort": "low", "summary": "auto", "generate_summary": "auto"}},
            {"reasoning": {"effort": "low"}},
            ["/reasoning/summary"],
        ),
        ({"summaries": "never"}, {"reasoning": {"summary": "auto"}}, {}, ["/reasoning/summary"]),
        (
            {"refuses": frozenset({"store", "include"})},
            {"store": False, "include": ["reasoning.encrypted_content"], "metadata": {}},
            {"metadata": {}},
            [],
        ),
    ],
)
def test_settings_and_tools(
    capabilities: dict[str, Any], before: dict[str, Any], after: dict[str, Any], losses: list[str]
) -> None:
    out, lost = written(read(**before), **capabilities)
    assert out.pop("input") == [HI]
    assert out == after
    assert lost == losses


@pytest.mark.parametrize(
    "fields",
    [
        {"reasoning": {"effort": "low", "generate_summary": "detailed"}},
        {"store": True, "new": 1, "include": ["x"]},
        {"text": {"format": JSON, "verbosity": "low"}},
        {"text": {"format": {"type": "text", "new": 1}}},
        {"instructions": "I", "stream": True},
        {"tools": [{"type": "web_search", "new": 1}]},
    ],
)
def test_fields_of_the_protocol_stay(fields: dict[str, Any]) -> None:
    assert written(read(**fields)) == ({"input": [HI], **fields}, [])


def test_a_request_without_input_stays_without() -> None:
    body = {"model": "m", "previous_response_id": "resp_1"}
    assert fit_and_write(SPEC, read_same_protocol(SPEC, body), Capabilities(), Ledger()) == body


def test_marks_are_removed_for_an_upstream_without_them() -> None:
    text = {"type": "input_text", "text": "a", "prompt_cache_breakpoint": POINT}
    item = {"type": "message", "role": "user", "content": [text]}
    out, lost = written(read(input=[item]))
    assert out["input"] == [{**item, "content": [{"type": "input_text", "text": "a"}]}]
    assert lost == ["/input/0/content/0/prompt_cache_breakpoint"]
    assert written(read(input=[item]), cache_marks="breakpoint") == ({"input": [item]}, [])
    output_text = {**text, "type": "output_text", "annotations": []}
    item = {**item, "role": "assistant", "content": [output_text]}
    assert written(read(input=[item]), cache_marks="breakpoint") == ({"input": [item]}, [])


def test_settings_removed_by_a_pass_stay_removed() -> None:
    changed = read(text={"format": JSON, "verbosity": "low", "new": 1})
    changed = msgspec.structs.replace(changed, params={}, response_format=None)
    assert written(changed)[0]["text"] == {"new": 1}


def test_a_schema_that_a_pass_moved_into_the_text() -> None:
    changed = read(text={"format": JSON, "verbosity": "low"})
    changed = msgspec.structs.replace(changed, response_format=ResponseFormat(path="/text/format"))
    assert written(changed)[0]["text"] == {"format": {"type": "json_object"}, "verbosity": "low"}


def test_settings_added_by_a_pass_are_written() -> None:
    visible = ReasoningConfig(effort="low", display="summarized")
    changed = msgspec.structs.replace(read(), reasoning=visible)
    assert written(changed)[0]["reasoning"] == {"effort": "low", "summary": "auto"}
    changed = msgspec.structs.replace(read(), reasoning=ReasoningConfig(mode="disabled"))
    assert written(changed)[0]["reasoning"] == {"effort": "none"}


def test_an_effort_in_mid_conversation_stays_there() -> None:
    update = {"type": "configuration_update", "reasoning": {"effort": "max"}}
    out, lost = written(read(input=[HI, update], reasoning={"effort": "low"}), efforts=("low",))
    assert (out, lost) == ({"input": [HI, update], "reasoning": {"effort": "low"}}, [])


def repaired(*items: dict[str, Any]) -> list[dict[str, Any]]:
    request = read(input=list(items))
    request = repair_history(request, pass_context(request))
    written_items: list[dict[str, Any]] = written(request)[0]["input"]
    return written_items


SHELL = {
    "type": "shell_call",
    "id": "sh_1",
    "call_id": "c1",
    "action": {"commands": ["ls"]},
    "status": "completed",
}


def test_a_repaired_history_takes_nothing_back_from_the_clients_body() -> None:
    # A result without a call becomes text, a late result moves, and declarations of tools stay in their place.
    tools = {"type": "additional_tools", "role": "developer", "tools": []}
    part = {"type": "input_text", "text": "<tool_result>\nr\n</tool_result>"}
    orphan = {"type": "message", "role": "user", "content": [part]}
    late = repaired(HI, tools, {**RESULT, "call_id": "c9"}, CALL, HI, RESULT)
    assert late == [HI, tools, orphan, CALL, RESULT, HI]
    # A result made up by a pass has no fields of its call.
    made_up = repaired(CALL, HI)[1]
    assert made_up.keys() == {"type", "call_id", "output"}
    assert (made_up["type"], made_up["call_id"]) == ("function_call_output", "c1")
    # The call itself is written once.
    [call, result, message] = repaired(SHELL, HI)
    assert (call, result["type"], message) == (SHELL, "function_call_output", HI)


def test_what_a_pass_has_changed_keeps_all_else() -> None:
    cited = {"type": "output_text", "text": "a", "annotations": [{"type": "file_path"}], "new": 1}
    marked = {**cited, "prompt_cache_breakpoint": {"mode": "explicit"}}
    refusal = {"type": "refusal", "refusal": "b", "new": 2}
    said = {"type": "message", "id": "msg_1", "role": "assistant", "content": [marked, refusal], "new": 3}
    out, lost = written(read(input=[said]))
    assert out["input"] == [{**said, "content": [cited, refusal]}]
    assert lost == ["/input/0/content/0/prompt_cache_breakpoint"]
    request = read(input=[SHELL])
    [message] = request.messages
    message = changed(message, parts=(changed(message.parts[0], call_id="c9"),))  # type: ignore[type-var]
    assert written(msgspec.structs.replace(request, messages=(message,)))[0]["input"] == [
        {**SHELL, "call_id": "c9"}
    ]
