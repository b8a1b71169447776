"""Responses in, Responses out: what a reader and a writer of the same protocol make of a request is the request."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from dragoman._ir.events import Seal
from dragoman._ir.losses import Ledger, LossCode
from dragoman._ir.request import FunctionTool
from dragoman._ir.signatures import Sealer
from dragoman.codec import Target
from dragoman.protocols.openai_responses import SPEC

ORIGIN = "openai_responses"
CHAT, MESSAGES = "openai_chat", "anthropic_messages"


RICH: dict[str, Any] = {
    "model": "m",
    "instructions": "be brief",
    "stream": True,
    "store": False,
    "background": False,
    "truncation": "disabled",
    "metadata": {},
    "include": ["reasoning.encrypted_content", "file_search_call.results", "message.output_text.logprobs"],
    "max_output_tokens": 9,
    "prompt_cache_key": "k",
    "client_metadata": {"session_id": "s"},
    "parallel_tool_calls": True,
    "reasoning": {"effort": "low", "summary": "detailed", "context": "all_turns"},
    "text": {
        "format": {"type": "json_schema", "name": "n", "schema": {"type": "object"}, "odd": 1},
        "verbosity": "low",
        "odd": 2,
    },
    "tool_choice": {"type": "mcp", "server_label": "s"},
    "access_programs": {"cyber": "standard"},
    "tools": [
        {"type": "function", "name": "f", "parameters": None, "strict": True, "defer_loading": True},
        {
            "type": "namespace",
            "name": "ns",
            "description": "d",
            "odd": 1,
            "tools": [{"type": "function", "name": "g", "parameters": {}}, {"type": "custom", "name": "h"}],
        },
        {"type": "namespace", "name": "ns2", "description": "", "tools": [{"type": "custom", "name": "i"}]},
        {"type": "web_search", "external_web_access": True},
        {
            "type": "custom",
            "name": "c",
            "format": {"type": "grammar", "syntax": "lark", "definition": "start: X"},
        },
    ],
    "input": [
        {"role": "developer", "content": "dev", "type": "message"},
        {"type": "additional_tools", "role": "developer", "tools": [{"type": "custom", "name": "late"}]},
        {
            "type": "message",
            "role": "user",
            "id": "msg_0",
            "content": [
                {
                    "type": "input_text",
                    "text": "a",
                    "prompt_cache_breakpoint": {"mode": "explicit", "ttl": "30m"},
                    "odd": 1,
                },
                {"type": "input_image", "detail": "low", "image_url": "data:image/png;base64,QUJD"},
                {"type": "input_file", "file_data": "QUJD"},
                {"type": "input_file", "filename": "a.pdf", "file_url": "https://x/a.pdf"},
                {"type": "input_image", "detail": "auto", "file_id": "file_1"},
                {"type": "input_video", "url": "u"},
            ],
        },
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": None},
        {
            "type": "message",
            "role": "assistant",
            "id": "msg_1",
            "status": "completed",
            "phase": "commentary",
            "odd": 1,
            "content": [
                {
                    "type": "output_text",
                    "text": "b",
                    "annotations": [{"type": "file_path", "file_id": "f", "index": 0}],
                },
                {"type": "refusal", "refusal": "no"},
            ],
        },
        {
            "type": "function_call",
            "id": "fc_1",
            "call_id": "c1",
            "name": "g",
            "namespace": "ns",
            "arguments": '{"a": 1}',
            "status": "completed",
            "caller": {"type": "program", "caller_id": "p"},
        },
        {"type": "custom_tool_call", "id": "ctc_1", "call_id": "c2", "name": "c", "input": "x"},
        {
            "type": "function_call_output",
            "id": "o1",
            "call_id": "c1",
            "status": "completed",
            "name": "g",
            "output": [{"type": "input_text", "text": "one", "odd": 1}],
        },
        {"type": "function_call_output", "call_id": "c1", "output": [{"type": "input_text", "text": "one"}]},
        {"type": "custom_tool_call_output", "call_id": "c2", "output": [{"type": "input_video", "url": "u"}]},
        {"type": "item_reference", "id": "msg_9"},
        {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search"}},
        {
            "type": "additional_tools",
            "role": "developer",
            "tools": [{"type": "function", "name": "last", "parameters": {}}],
        },
    ],
}


def round_trip(body: dict[str, Any]) -> dict[str, Any]:
    ledger = Ledger()
    out = SPEC.write_request(SPEC.read_request(body, Sealer()), Target(), ledger)
    assert list(ledger) == []
    return out


def with_types(body: dict[str, Any]) -> dict[str, Any]:
    """Bare messages get their type, the one thing that is added."""
    return {**body, "input": [{"type": "message", **item} for item in body["input"]]}


def test_own_requests_come_back_whole() -> None:
    assert round_trip(RICH) == RICH


@pytest.mark.parametrize(
    "body",
    [
        {"model": "m", "input": "hi"},
        {"model": "m", "previous_response_id": "resp_1"},
        {"model": "m", "input": [], "conversation": {"id": "conv_1"}, "background": True, "store": True},
        {"model": "m", "input": "hi", "text": {"format": {"type": "json_object"}}},
        {"model": "m", "input": "hi", "instructions": ""},
        {"model": "m", "input": "hi", "stream_options": {"include_obfuscation": False}},
        {
            "model": "m",
            "input": [
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
            ],
        },
        {"model": "m", "input": "hi", "tools": [{"type": "custom", "name": "c", "format": {"type": "text"}}]},
        {"model": "m", "input": "hi", "tools": [{"type": "function", "name": "f", "strict": None}]},
        {
            "model": "m",
            "input": "hi",
            "instructions": "x",
            "reasoning": {"summary": "auto"},
            "tool_choice": "auto",
        },
    ],
)
def test_small_own_requests_come_back_whole(body: dict[str, Any]) -> None:
    assert round_trip(body) == body


def test_bare_messages_get_their_type() -> None:
    body = {"model": "m", "input": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}
    assert round_trip(body) == with_types(body)


def test_reasoning_sealed_for_another_protocol_is_named() -> None:
    seal = Seal(MESSAGES, {"type": "thinking", "thinking": "t", "signature": "s"})
    wrapped = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": Sealer().wrap(seal)}
    ledger = Ledger()
    request = SPEC.read_request({"model": "m", "input": [wrapped]}, Sealer())
    assert SPEC.write_request(request, Target(), ledger)["input"] == []
    assert [(loss.code, loss.path) for loss in ledger] == [(LossCode.FOREIGN_SEAL, "/input/0")]


def test_a_tool_that_changed_its_kind_takes_nothing_from_its_old_form() -> None:
    custom = {"type": "custom", "name": "c", "format": {"type": "text"}}
    request = SPEC.read_request({"model": "m", "input": "hi", "tools": [custom]}, Sealer())
    changed = msgspec.structs.replace(request, tools=(FunctionTool("c", path="/tools/0"),))
    assert SPEC.write_request(changed, Target(), Ledger())["tools"] == [{"type": "function", "name": "c"}]
