"""Chat requests for a Chat upstream: written as they came, but for wrapped signatures."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman._ir.events import (
    Signature,
)
from dragoman._ir.losses import Ledger, LossCode
from dragoman._ir.signatures import Signer
from dragoman.codec import Capabilities
from dragoman.protocols.openai_chat import SPEC

CHAT = "openai_chat"
IMAGE_PART = {"type": "image_url", "image_url": {"url": "data:image/png;base64,QUJD"}}


def text_part(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


THINKING = {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}], "closed": True}
CAPABILITIES = Capabilities(developer_role=True, max_tokens_field="max_completion_tokens")
MARK = {"type": "ephemeral", "ttl": "1h"}
BARE_MARK = {"type": "ephemeral"}

ALL_MESSAGES: list[dict[str, Any]] = [
    {"role": "system", "content": "s"},
    {"role": "developer", "content": [text_part("d"), {"type": "text", "text": "e", "x": 1}]},
    {"role": "user", "content": "hi", "name": "Ann", "x": 1},
    {"role": "user", "content": ""},
    {"role": "assistant", "content": "one", "annotations": [1]},
    {"role": "assistant", "content": [text_part("a"), {"type": "refusal", "refusal": "b", "x": 1}]},
    {"role": "assistant", "content": None, "refusal": "no", "audio": {"id": "a1"}},
    {
        "role": "assistant",
        "content": "x",
        "reasoning_content": "hm",
        "reasoning_details": [{"type": "reasoning.text", "text": "hm", "index": 0, "odd": 1}],
        "tool_calls": [
            {
                "id": "c1",
                "type": "function",
                "function": {"name": "f", "arguments": "{}"},
                "extra_content": {"google": {"thought_signature": "G"}},
                "cache_control": MARK,
            },
            {"id": "c2", "type": "custom", "custom": {"name": "p", "input": "raw"}},
        ],
    },
    {
        "role": "tool",
        "tool_call_id": "c1",
        "content": [text_part("r"), IMAGE_PART],
        "cache_control": MARK,
        "x": 1,
    },
    {"role": "tool", "tool_call_id": "c2", "content": "done", "name": "p"},
    {"role": "system", "content": "in between", "cache_control": BARE_MARK},
    {
        "role": "user",
        "content": [
            {**text_part("marked"), "cache_control": BARE_MARK},
            {**text_part("too"), "prompt_cache_breakpoint": {"mode": "explicit"}},
            {"type": "image_url", "image_url": {"url": "https://i", "detail": "low", "z": 1}, "y": 1},
            {"type": "input_audio", "input_audio": {"data": "QQ==", "format": "mp3"}},
            {"type": "file", "file": {"file_id": "file-1"}},
            {"type": "file", "file": {"file_data": "https://d"}},
            {"type": "file", "file": {"file_data": "data:application/pdf;base64,QQ=="}},
            {"type": "video_url", "video_url": {"url": "https://v"}},
        ],
    },
    # Signatures of another vendor, as OpenRouter needs them back.
    {
        "role": "assistant",
        "content": "y",
        "reasoning": "hm",
        "reasoning_details": [
            {
                "type": "reasoning.text",
                "text": "hm",
                "signature": "S",
                "format": "anthropic-claude-v1",
                "index": 0,
            }
        ],
    },
    {"role": "assistant", "content": [THINKING, text_part("z")]},
]

FULL_BODY: dict[str, Any] = {
    "model": "m",
    "messages": ALL_MESSAGES,
    "stream": True,
    "stream_options": {"include_usage": True, "include_obfuscation": False},
    "tools": [
        {"type": "function", "function": {"name": "f", "z": 1}, "cache_control": MARK},
        {"type": "custom", "custom": {"name": "p", "z": 1}},
        {
            "type": "custom",
            "custom": {
                "name": "q",
                "format": {"type": "grammar", "grammar": {"definition": "a+", "syntax": "regex"}},
            },
        },
        {"type": "function", "function": {"name": "g", "parameters": {}, "strict": True}},
        {"type": "web_search", "x": 1},
    ],
    "tool_choice": "auto",
    "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {"a": 1}, "z": 1}},
    "reasoning_effort": "low",
    "reasoning": {"effort": "low"},
    "max_completion_tokens": 5,
    "stop": ["a", "b", "c", "d", "e"],
    "service_tier": "on_demand",
    "mystery": {"deep": [1]},
}


def round_trip(
    body: dict[str, Any], signer: Signer = Signer(), capabilities: Capabilities = CAPABILITIES
) -> tuple[dict[str, Any], list[Any]]:
    ledger = Ledger()
    return SPEC.write_request(SPEC.read_request(body, signer), capabilities, ledger), list(ledger)


def test_a_chat_request_is_written_as_it_came() -> None:
    body, losses = round_trip(FULL_BODY)
    assert body["messages"] == ALL_MESSAGES
    assert body == FULL_BODY
    assert losses == []


@pytest.mark.parametrize(
    "fields",
    [
        {"stream": True},
        {"stream": True, "stream_options": {"include_obfuscation": False}},
        {"max_tokens": 5},
        {"max_completion_tokens": 5},
    ],
)
def test_only_what_the_client_requested_is_requested(fields: dict[str, Any]) -> None:
    body = {"model": "m", "messages": ALL_MESSAGES, **fields}
    assert round_trip(body) == (body, [])


def test_developer_messages_are_system_messages_where_the_role_is_unknown() -> None:
    body, losses = round_trip({"model": "m", "messages": ALL_MESSAGES[1:2]}, capabilities=Capabilities())
    assert (body["messages"][0]["role"], losses) == ("system", [])


def test_wrapped_signatures_are_unwrapped() -> None:
    signer = Signer()
    native = {"reasoning": "hm", "reasoning_details": [{"type": "reasoning.encrypted", "data": "G"}]}

    def message(signature: Signature) -> dict[str, Any]:
        entry = {
            "type": "reasoning.encrypted",
            "data": signer.wrap(signature),
            "format": "dragoman-v1",
            "index": 0,
        }
        return {"role": "assistant", "content": "x", "reasoning_content": "hm", "reasoning_details": [entry]}

    body, losses = round_trip(
        {
            "model": "m",
            "messages": [message(Signature(CHAT, native)), message(Signature("anthropic_messages", {}))],
        },
        signer,
    )
    assert body["messages"] == [
        {"role": "assistant", "content": "x", "reasoning_content": "hm", **native},
        {"role": "assistant", "content": "x", "reasoning_content": "hm"},
    ]
    assert [(loss.code, loss.path) for loss in losses] == [
        (LossCode.FOREIGN_SIGNATURE, "/messages/1/reasoning_details/0/data")
    ]


def test_a_forged_signature_is_removed_and_the_text_stays() -> None:
    entry = {"type": "reasoning.encrypted", "data": "drg1.x"}
    message = {"role": "assistant", "content": "x", "reasoning": "hm", "reasoning_details": [entry]}
    body, losses = round_trip({"model": "m", "messages": [message]})
    assert body["messages"] == [{"role": "assistant", "content": "x", "reasoning": "hm"}]
    assert losses == []


def test_tools_without_messages() -> None:
    body, losses = round_trip(
        {"model": "m", "messages": [], "tools": [{"type": "function", "function": {"name": "f"}}]}
    )
    assert body["tools"] == [{"type": "function", "function": {"name": "f"}}]
    assert losses == []


def test_legacy_functions_are_written_as_they_came() -> None:
    body = {
        "model": "m",
        "messages": [
            {
                "role": "assistant",
                "content": None,
                "function_call": {"name": "f", "arguments": "{}", "x": 1},
            },
            {"role": "function", "name": "f", "content": "4"},
            {"role": "function", "name": "stranger", "content": "5"},
        ],
        "functions": [{"name": "f", "parameters": {"type": "object"}, "x": 1}, {"name": "g"}],
        "function_call": {"name": "f"},
    }
    assert round_trip(body) == (body, [])


def test_a_choice_without_tools_is_written_as_it_came() -> None:
    body = {"model": "m", "messages": [], "tool_choice": "none", "parallel_tool_calls": False}
    assert round_trip(body) == (body, [])
