"""Messages requests fitted to a Messages upstream: fields of the protocol stay, and capabilities are obeyed."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from core.passes import fit_and_write
from core.same_protocol import read_same_protocol

from dragoman._ir.losses import Ledger
from dragoman._ir.native import changed
from dragoman._ir.request import Message, Request, ResponseFormat, Text
from dragoman._ir.tools import FunctionTool, ToolChoice
from dragoman._wire.json import decode, encode
from dragoman.protocols.anthropic_messages import SPEC
from dragoman.protocols.anthropic_messages.capabilities import MessagesCapabilities as Capabilities

HI = {"role": "user", "content": "Hi"}
SCOPED_MARK = {"type": "ephemeral", "ttl": "1h", "scope": "global"}
BODY: dict[str, Any] = {
    "model": "m",
    "max_tokens": 100,
    "system": [
        {"type": "text", "text": "One."},
        {"type": "text", "text": "Two.", "cache_control": SCOPED_MARK},
    ],
    "messages": [
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "a", "citations": [{"type": "x"}], "new": 1},
                {
                    "type": "image",
                    "source": {"type": "file", "file_id": "f", "odd": 1},
                    "transformations": {"a": 1},
                },
                {"type": "search_result", "title": "t", "source": "s", "content": []},
            ],
        },
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": "sig"},
                {"type": "redacted_thinking", "data": "d"},
                {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"q": 1}},
                {"type": "text", "text": "b"},
                {"type": "image", "source": {"type": "url", "url": "https://x"}},
                {
                    "type": "tool_use",
                    "id": "t1",
                    "name": "f",
                    "input": {"z": 1, "a": [True]},
                    "caller": {"type": "code_execution_20260120", "tool_id": "s1"},
                    "cache_control": {"type": "ephemeral"},
                },
            ],
            "odd": "assistant",
        },
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "t1",
                    "content": [{"type": "tool_reference", "tool_name": "x"}],
                    "is_error": False,
                    "toolset_name": "ts",
                }
            ],
            "odd": "user",
        },
        {
            "role": "system",
            "content": [
                {"type": "text", "text": "Now.", "cache_control": {"type": "ephemeral", "ttl": "5m"}}
            ],
            "output_config": {"effort": "low"},
        },
        {"role": "assistant", "content": "prefill"},
    ],
    "tools": [
        {
            "name": "f",
            "description": "d",
            "input_schema": {"type": "object", "anyOf": []},
            "defer_loading": True,
        },
        {"type": "web_search_20250305", "name": "web_search", "max_uses": 3},
    ],
    "tool_choice": {"type": "auto", "disable_parallel_tool_use": True, "odd": 1},
    "thinking": {"type": "enabled", "budget_tokens": 2048, "display": "omitted", "block_binding": {"a": 1}},
    "output_config": {
        "effort": "high",
        "format": {"type": "json_schema", "schema": {"type": "object"}, "odd": 1},
        "task_budget": {"total": 1},
    },
    "metadata": {"user_id": "u", "odd": 1},
    "stop_sequences": ["END"],
    "service_tier": "standard_only",
    "speed": "fast",
    "container": "c",
    "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
    "mcp_servers": [{"type": "url", "name": "n", "url": "https://x"}],
    "inference_geo": "eu",
    "cache_control": {"type": "ephemeral"},
    "diagnostics": {"previous_message_id": "m1"},
    "compaction": {"type": "summarize", "instructions": "Short."},
    "thread": {"type": "continue", "previous_message_id": "m0"},
    "stream": True,
    "nothing": None,
}


def round_trip(
    body: dict[str, Any], capabilities: Capabilities = Capabilities(mid_system=True)
) -> tuple[Any, Ledger]:
    ledger = Ledger()
    request = read_same_protocol(SPEC, body)
    return decode(encode(fit_and_write(SPEC, request, capabilities, ledger))), ledger


def test_a_body_is_written_unchanged() -> None:
    body, ledger = round_trip(BODY)
    assert body == BODY
    assert len(ledger) == 0


def test_efforts_in_mid_conversation_are_written_unchanged() -> None:
    body = {
        "model": "m",
        "max_tokens": 1,
        "messages": [
            {"role": "user", "content": "a"},
            {"role": "system", "content": "Now.", "output_config": {"effort": "low"}},
            {"role": "user", "content": " "},
            {"role": "system", "output_config": {"effort": "max", "odd": 1}},
            {"role": "system", "content": "So."},
        ],
        "output_config": {"effort": "high"},
    }
    written, ledger = round_trip(body)
    assert written == body
    assert len(ledger) == 0


def test_sampling_settings_for_a_model_that_takes_none() -> None:
    body = {"model": "m", "max_tokens": 1, "messages": [{"role": "user", "content": "a"}], "temperature": 1}
    written, ledger = round_trip(body, Capabilities(sampling=False))
    assert "temperature" not in written
    assert [loss.path for loss in ledger] == ["/temperature"]


@pytest.mark.parametrize("kind", ["adaptive", "disabled", "between_tools"])
def test_thinking_is_written_unchanged(kind: str) -> None:
    body = {"model": "m", "max_tokens": 1, "messages": [HI], "thinking": {"type": kind}}
    assert round_trip(body)[0] == body


def test_a_mark_on_reasoning_is_removed() -> None:
    thinking = {"type": "thinking", "thinking": "t", "signature": "s"}
    turn = {"role": "assistant", "odd": 1, "content": [{**thinking, "cache_control": SCOPED_MARK}]}
    body = {"model": "m", "max_tokens": 1, "messages": [turn, turn]}
    assert round_trip(body)[0]["messages"] == [{**turn, "content": [thinking] * 2}]
    assert [loss.path for loss in read(messages=[turn]).repairs] == ["/messages/0/content/0/cache_control"]


def test_a_request_without_messages() -> None:
    body = {"model": "m", "max_tokens": 1, "system": "Be brief.", "messages": []}
    assert round_trip(body)[0] == body


MARK = {"type": "ephemeral"}
SCHEMA = {"type": "object", "properties": {}}
TOOL = {"name": "f", "input_schema": SCHEMA}
CALL = {"type": "tool_use", "id": "t1", "name": "f", "input": {}}
UNSIGNED = {"type": "thinking", "thinking": "so", "signature": ""}


def read(**body: Any) -> Request:
    return read_same_protocol(SPEC, {"model": "m", "max_tokens": 5000, "messages": [HI], **body})


def rewrite(request: Request, **capabilities: Any) -> tuple[dict[str, Any], list[str]]:
    """Return the body without `model` and `max_tokens`, and the paths in the ledger."""
    ledger = Ledger()
    out = decode(encode(fit_and_write(SPEC, request, Capabilities(relay="rewrite", **capabilities), ledger)))
    return (
        {name: value for name, value in out.items() if name not in ("model", "max_tokens")},
        [loss.path for loss in ledger],
    )


def test_a_system_message_in_mid_conversation() -> None:
    before = [HI, {"role": "system", "content": "S"}]
    marked = [HI, {"role": "user", "content": "<system>\nS\n</system>"}]
    out, lost = rewrite(read(messages=before))
    assert (out["messages"], lost) == (marked, ["/messages/1"])
    out, lost = rewrite(read(messages=before), mid_system=True)
    assert (out["messages"], lost) == (before, [])
    system = [Message("system", (Text(text),)) for text in "ab"]
    request = Request("other", "m", (Message("user", (Text("Hi"),)), *system))
    turns = [HI, {"role": "system", "content": "a"}, {"role": "system", "content": "b"}]
    assert rewrite(request, mid_system=True)[0]["messages"] == turns


def test_excess_cache_marks_are_dropped() -> None:
    texts = [{"type": "text", "text": "a", "cache_control": MARK} for _ in range(6)]
    out, lost = rewrite(read(messages=[{"role": "user", "content": texts}]))
    assert ["cache_control" in block for block in out["messages"][0]["content"]] == [False] * 2 + [True] * 4
    assert lost == ["/messages/0/content/0/cache_control", "/messages/0/content/1/cache_control"]


@pytest.mark.parametrize(
    "block",
    [
        {"type": "text", "text": "a", "citations": [{"type": "odd"}], "new": 1},
        {"type": "image", "source": {"type": "file", "file_id": "f"}, "transformations": {"a": 1}},
        {"type": "tool_result", "tool_use_id": "c", "is_error": True, "content": "a", "toolset_name": "t"},
    ],
)
def test_a_block_without_its_mark_keeps_all_else(block: dict[str, Any]) -> None:
    content = [{**block, "cache_control": {"type": "odd", "ttl": "5m"}}]
    request = read(messages=[{"role": "user", "content": content}])
    out, lost = rewrite(request, refuses=frozenset(("cache_control",)))
    assert out["messages"] == [{"role": "user", "content": [block]}]
    assert lost == ["/messages/0/content/0/cache_control"]


def test_of_a_changed_message_the_other_blocks_stay_as_they_came() -> None:
    odd = {"citations": [], "text": "b", "type": "text"}
    content = [{"type": "text", "text": "a", "cache_control": MARK}, odd]
    out, _ = rewrite(
        read(messages=[{"role": "user", "content": content, "clear_at": 1}]),
        refuses=frozenset(("cache_control",)),
    )
    [message] = out["messages"]
    assert message == {"role": "user", "content": [{"type": "text", "text": "a"}, odd], "clear_at": 1}
    assert list(message["content"][1]) == ["citations", "text", "type"]


def test_an_effort_in_mid_conversation_without_system_messages_is_that_of_the_request() -> None:
    later = {"role": "system", "content": "S", "output_config": {"effort": "low"}}
    for first, also_lost in ({}, []), ({"output_config": {"effort": "max"}}, ["/output_config/effort"]):
        out, lost = rewrite(read(messages=[HI, later, HI], **first), mid_system=False)
        assert out["output_config"] == {"effort": "low"}
        assert [turn["role"] for turn in out["messages"]] == ["user"] * 3
        assert lost == ["/messages/1", *also_lost]


def test_a_rewritten_effort_in_mid_conversation_stays_there() -> None:
    later = {"role": "system", "content": "S", "output_config": {"effort": "max"}}
    out, lost = rewrite(read(messages=[HI, later]), mid_system=True, efforts=("low",))
    assert (out["messages"], lost) == ([HI, later], [])
    assert "output_config" not in out


def test_the_limit_that_a_pass_removed_is_written() -> None:
    request = msgspec.structs.replace(read(), params={})
    out = fit_and_write(SPEC, request, Capabilities(relay="rewrite", max_tokens=99), Ledger())
    assert out["max_tokens"] == 99


def test_settings_that_a_pass_removed_are_removed() -> None:
    request = read(
        metadata={"user_id": "u"},
        cache_control=MARK,
        stop_sequences=["a", "b"],
        temperature=0.5,
        output_config={"format": {"type": "json_schema", "schema": SCHEMA}, "effort": "low"},
        output_format=None,
    )
    out, _ = rewrite(
        msgspec.structs.replace(
            request, params={"max_output_tokens": 5000, "stop": ["a"]}, response_format=None
        )
    )
    del out["messages"]
    assert out == {
        "stop_sequences": ["a"],
        "output_config": {"effort": "low"},
        "thinking": {"type": "adaptive"},
    }


def test_a_tool_that_a_pass_added() -> None:
    request = read(tools=[{**TOOL, "new": 1}])
    request = msgspec.structs.replace(
        request,
        tools=(*request.tools, FunctionTool("json", parameters=SCHEMA)),
        tool_choice=ToolChoice("named", "json"),
    )
    out, _ = rewrite(request)
    assert out["tools"] == [{**TOOL, "new": 1}, {"name": "json", "input_schema": SCHEMA}]
    assert out["tool_choice"] == {"type": "tool", "name": "json"}


def test_a_schema_that_a_pass_replaced_by_system_text() -> None:
    """There is no setting for any JSON object, and the instruction is system text."""
    request = read(
        system=[{"type": "text", "text": "S", "cache_control": MARK}],
        output_config={"format": {"type": "json_schema", "schema": SCHEMA}},
    )
    instruction = Message("system", (Text("Answer in JSON."),), "/output_config/format")
    request = msgspec.structs.replace(
        request,
        messages=(instruction, *request.messages),
        response_format=ResponseFormat(path="/output_config/format"),
    )
    system = [
        {"type": "text", "text": "Answer in JSON."},
        {"type": "text", "text": "S", "cache_control": MARK},
    ]
    assert rewrite(request) == ({"system": system, "messages": [HI]}, [])


def test_an_image_in_another_form_within_a_result_is_written_again() -> None:
    odd = {"type": "image_url", "image_url": "https://i.test/a.png", "new": 1}
    result = {"type": "tool_result", "tool_use_id": "t1", "content": [odd], "toolset_name": "s"}
    rest = {"type": "tool_result", "tool_use_id": "t2", "content": [{"type": "text", "text": "b"}]}
    deferred = {**TOOL, "defer_loading": True}
    out, lost = rewrite(read(messages=[HI, {"role": "user", "content": [result, rest]}], tools=[deferred]))
    assert out["tools"] == [deferred]
    image = {"type": "image", "source": {"type": "url", "url": "https://i.test/a.png"}, "new": 1}
    assert out["messages"][1]["content"] == [{**result, "content": [image]}, rest]
    assert lost == []


def test_a_model_that_does_not_reason_gets_no_reasoning() -> None:
    thinking = {"type": "thinking", "thinking": "so", "signature": "s"}
    text = {"type": "text", "text": "a", "new": 1}
    turns = [
        HI,
        {"role": "assistant", "content": [thinking, text]},
        HI,
        {"role": "assistant", "content": [text]},
    ]
    out, lost = rewrite(read(messages=turns), thinking="none")
    assert out["messages"] == [HI, {"role": "assistant", "content": [text]}, HI, turns[3]]
    assert lost == ["/messages/1/content/0"]


def test_a_call_that_a_pass_has_changed_keeps_all_else() -> None:
    request = read(messages=[HI, {"role": "assistant", "content": [{**CALL, "toolset_name": "s"}, UNSIGNED]}])
    turn = request.messages[1]
    call = changed(turn.parts[0], call_id="t9")  # type: ignore[type-var]
    turn = changed(turn, parts=(call, turn.parts[1]))
    out, _ = rewrite(msgspec.structs.replace(request, messages=(request.messages[0], turn)))
    assert out["messages"][1]["content"] == [{**CALL, "id": "t9", "toolset_name": "s"}, UNSIGNED]
