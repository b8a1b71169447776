"""The oracle itself: good streams pass, and each rule has a broken stream that it must catch.

A broken stream is a good one with one change. The change is an operation on the list of payloads, so a row is a
change and the problem that the oracle must report.
"""

# ruff: noqa: E501 -- the tables are read by row

from __future__ import annotations

import copy
import json
import re
from pathlib import Path

import pytest
from oracle import CHAT, MESSAGES, PROTOCOL_NAMES, RESPONSES, check_models, check_stream, check_whole
from oracle import samples as s
from oracle.changes import (
    CUSTOM,
    DONE,
    GOOD,
    RESPONSES_ERROR,
    RESPONSES_FAILED,
    VARIANTS,
    Change,
    append,
    cut,
    drop,
    insert,
    put,
)


@pytest.mark.parametrize("protocol", PROTOCOL_NAMES)
def test_good_streams_pass(protocol: str) -> None:
    for name, change in VARIANTS[protocol]:
        payloads = GOOD[protocol]()
        change(payloads)
        assert check_stream(protocol, s.render(protocol, payloads), include_usage=True) == [], name


# What the vendors' types catch. tests/sansio/lint has the rows about order and framing.
BROKEN: dict[str, list[tuple[str, Change, str]]] = {
    CHAT: [
        ("no id", drop(2, "id"), "id: Field required"),
        ("no choices", drop(2, "choices"), "choices: Field required"),
        ("no delta", put(2, "choices.0.delta", None), "delta: Input should be an object"),
        ("wrong object", put(2, "object", "chunk"), "object: Input should be"),
        ("created is a text", put(2, "created", "1"), "created: Input should be a valid integer"),
        ("unknown field", put(2, "provider", "x"), "provider: unknown to"),
        ("unknown delta field", put(2, "choices.0.delta.thinking", "x"), "thinking: unknown to"),
        ("content is a list", put(2, "choices.0.delta.content", []), "content: Input should be a valid string"),
        ("reasoning is no text", put(1, "choices.0.delta.reasoning_content", 3), "reasoning_content: not a string"),
        ("odd reasoning detail", put(1, "choices.0.delta.reasoning_details", [{"type": "x"}]), "type: unknown 'x'"),
        ("odd finish_reason", put(8, "choices.0.finish_reason", "eos"), "finish_reason: Input should be"),
        ("odd service_tier", put(2, "service_tier", ""), "service_tier: Input should be"),
        ("odd custom fragment", put(4, "choices.0.delta.tool_calls", [{**CUSTOM, "custom": {"text": "x"}}]), "custom.text: Extra inputs"),
        ("error without param", cut(3, {"error": {"message": "gone", "type": "x", "code": None}}), "error.param: absent"),
        ("no tool index", drop(4, "choices.0.delta.tool_calls.0.index"), "index: Field required"),
    ],
    MESSAGES: [
        ("unknown event", insert(3, {"type": "message_pause"}), "type: unknown event"),
        ("ping with fields", put(1, "time", 1), "ping: carries fields"),
        ("no container", drop(0, "message.container"), "message.container: absent"),
        ("no stop_reason key", drop(0, "message.stop_reason"), "message.stop_reason: absent"),
        ("no cache counts", drop(0, "message.usage.cache_read_input_tokens"), "cache_read_input_tokens: absent"),
        ("no input_tokens", drop(0, "message.usage.input_tokens"), "input_tokens: Field required"),
        ("no usage at the start", drop(0, "message.usage"), "message.usage: Field required"),
        ("nothing in message_start", drop(0, "message"), "message: Field required"),
        ("no model", drop(0, "message.model"), "message.model: Field required"),
        ("no caller", drop(10, "content_block.caller"), "content_block.caller: absent"),
        ("no input", drop(10, "content_block.input"), "content_block.input: Field required"),
        ("no tool id", drop(10, "content_block.id"), "content_block.id: Field required"),
        ("no signature at start", drop(2, "content_block.signature"), "content_block.signature: Field required"),
        ("no index", drop(6, "index"), "index: Field required"),
        ("no delta usage", drop(17, "usage"), "usage: Field required"),
        ("null delta counts absent", drop(17, "usage.input_tokens"), "usage.input_tokens: absent"),
        ("odd stop_reason", put(17, "delta.stop_reason", "stop"), "stop_reason: Input should be"),
        ("unknown field", put(7, "delta.citations", []), "citations: unknown to TextDelta"),
        ("odd error type", cut(8, {"type": "error", "error": {"type": "server_error", "message": "x"}}), "error.type: unknown"),
        ("error without message", cut(8, {"type": "error", "error": {"type": "api_error"}}), "error.message: must be"),
        ("[DONE]", append(DONE), "json:"),
    ],
    RESPONSES: [
        ("unknown event", insert(2, {"type": "keepalive"}), "type: unknown event 'keepalive'"),
        ("no logprobs", drop(10, "logprobs"), "logprobs: Field required"),
        ("no logprobs when done", drop(12, "logprobs"), "logprobs: Field required"),
        ("no summary", drop(2, "item.summary"), "item.summary: Field required"),
        ("no content", drop(8, "item.content"), "item.content: Field required"),
        ("no annotations", drop(9, "part.annotations"), "part.annotations: Field required"),
        ("no item_id", drop(10, "item_id"), "item_id: Field required"),
        ("no output_index", drop(10, "output_index"), "output_index: Field required"),
        ("no output_index of an item", drop(8, "output_index"), "output_index: Field required"),
        ("no item id", drop(14, "item.id"), "item.id: Field required"),
        ("no item status", drop(8, "item.status"), "item.status: Field required"),
        ("no call_id", drop(18, "item.call_id"), "item.call_id: Field required"),
        ("a status and no more", put(23, "response", {"status": "completed"}), "response.id: Field required"),
        ("no tools", drop(0, "response.tools"), "response.tools: Field required"),
        ("no error key", drop(0, "response.error"), "response.error: absent"),
        ("no access_programs", drop(0, "response.access_programs"), "access_programs: absent"),
        ("no cache write count", drop(23, "response.usage.input_tokens_details.cache_write_tokens"), "cache_write_tokens: Field required"),
        ("tool echo without strict", put(0, "response.tools", [{"type": "function", "name": "f", "parameters": None}]), "response.tools.0.strict: absent"),
        ("unknown field", put(10, "text", "x"), "text: unknown to"),
        ("odd error code", cut(12, RESPONSES_ERROR, {**RESPONSES_FAILED, "response": s.response("failed", error={"code": "x", "message": "m"})}), "response.error.code: Input should be"),
        ("error without param", cut(12, {k: v for k, v in RESPONSES_ERROR.items() if k != "param"}, RESPONSES_FAILED), "param: absent"),
    ],
}  # fmt: skip


@pytest.mark.parametrize("protocol", PROTOCOL_NAMES)
def test_broken_streams_are_caught(protocol: str) -> None:
    for name, change, problem in BROKEN[protocol]:
        payloads = GOOD[protocol]()
        change(payloads)
        found = check_stream(protocol, s.render(protocol, payloads), include_usage=True)
        assert [reported for reported in found if problem in reported], (name, found)


BROKEN_WHOLE: list[tuple[str, Change, str]] = [
    (CHAT, drop(0, "choices.0.logprobs"), "choices.0.logprobs: absent"),
    (CHAT, drop(0, "choices.0.message.refusal"), "choices.0.message.refusal: absent"),
    (CHAT, put(0, "choices.0.finish_reason", None), "finish_reason: Input should be"),
    (CHAT, put(0, "choices.0.message.reasoning_details", [{}]), "type: unknown"),
    (MESSAGES, drop(0, "diagnostics"), "diagnostics: absent"),
    (MESSAGES, put(0, "content.0.signature", ""), "an empty signature"),
    (MESSAGES, put(0, "content.1.text", ""), "a text block without text"),
    (MESSAGES, put(0, "content.2.id", ""), "empty or used twice"),
    (MESSAGES, put(0, "stop_reason", None), "no stop_reason"),
    (MESSAGES, put(0, "stop_reason", "end_turn"), "although the turn ends with tool calls"),
    (RESPONSES, drop(0, "metadata"), "metadata: absent"),
    (RESPONSES, put(0, "created_at", None), "created_at: Input should be"),
]


@pytest.mark.parametrize("protocol", PROTOCOL_NAMES)
def test_good_whole_responses_pass(protocol: str) -> None:
    assert check_whole(protocol, json.dumps(s.WHOLE[protocol]).encode()) == []


def test_broken_whole_responses_are_caught(subtests: pytest.Subtests) -> None:
    for protocol, change, problem in BROKEN_WHOLE:
        with subtests.test(protocol=protocol, problem=problem):
            payloads = [copy.deepcopy(s.WHOLE[protocol])]
            change(payloads)
            found = check_whole(protocol, json.dumps(payloads[0]).encode())
            assert [reported for reported in found if problem in reported], found


MODEL = {"id": "m", "object": "model", "created": 1, "owned_by": "o"}
MODEL_INFO = {
    "id": "m",
    "type": "model",
    "display_name": "M",
    "created_at": "2026-01-01T00:00:00Z",
    "lifecycle": "active",
}


def test_model_lists() -> None:
    assert check_models(CHAT, json.dumps({"object": "list", "data": [MODEL]}).encode()) == []
    page = {"data": [MODEL_INFO], "first_id": "m", "last_id": "m", "has_more": False}
    assert check_models(MESSAGES, json.dumps(page).encode()) == []
    assert check_models(CHAT, b'{"data": []}') == ["object: absent", "object: must be 'list'"]
    assert check_models(MESSAGES, json.dumps({**page, "data": [MODEL]}).encode()) != []


def test_the_oracle_shares_only_the_judge_with_the_product() -> None:
    folder = Path(s.__file__).parent
    sources = {path.name: path.read_text() for path in folder.glob("*.py")}
    assert [
        name
        for name, text in sources.items()
        if re.search(r"(import|from) dragoman(?!\.lint| import lint)", text)
    ] == []
    assert len(sources) > 10
