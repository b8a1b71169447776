"""Chat requests that are rewritten for a Chat upstream: defined fields stay, and capabilities are respected."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from core.passes import fit_and_write, pass_context
from core.same_protocol import read_same_protocol

from dragoman._ir.events import Signature
from dragoman._ir.losses import Ledger
from dragoman._ir.native import changed
from dragoman._ir.request import Message, Reasoning, Text, ToolResult
from dragoman._ir.tools import CacheMark
from dragoman._transforms.reasoning_cache import restore_reasoning
from dragoman.protocols.openai_chat import SPEC
from dragoman.protocols.openai_chat.capabilities import ChatCapabilities as Capabilities

HI = {"role": "user", "content": "Hi"}
CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
CALLS = {"role": "assistant", "content": None, "tool_calls": [CALL]}
IMAGE = {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}
FUNCTION = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
MARK = {"type": "ephemeral", "ttl": "5m"}
BARE_MARK = {"type": "ephemeral"}


def rewrite(body: dict[str, Any], **capabilities: Any) -> tuple[dict[str, Any], list[str]]:
    """Return the body for the upstream, and the paths in the ledger."""
    ledger = Ledger()
    request = read_same_protocol(SPEC, {"model": "m", **body})
    out = fit_and_write(SPEC, request, Capabilities(relay="rewrite", **capabilities), ledger)
    return out, [loss.path for loss in ledger]


def text(content: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": content, **more}


# Messages stay as they came.
UNCHANGED: list[tuple[dict[str, Any], list[dict[str, Any]]]] = [
    ({"mid_system": True}, [HI, {"role": "system", "content": "a"}]),
    ({}, [HI, {**HI, "weight": 1}]),
    ({}, [HI, {**HI, "name": "ada"}]),
    ({"tool_images": True}, [HI, CALLS, {"role": "tool", "tool_call_id": "c1", "content": [IMAGE]}]),
    (
        {"cache_marks": "cache_control"},
        [
            {
                "role": "user",
                "content": [text("a", cache_control=MARK), text("b", cache_control=BARE_MARK)],
            }
        ],
    ),
    ({}, [HI, {"role": "assistant", "content": None, "audio": {"id": "a1"}}, HI]),
    ({}, [{"role": "assistant", "content": "a", "annotations": [{"type": "odd"}]}]),
    ({}, [{"role": "user", "content": [{"type": "odd", "odd": 1}]}]),
    (
        {},
        [
            {
                "role": "user",
                "content": [
                    text("a", new=1),
                    {"type": "image_url", "image_url": {"url": "https://i", "new": 1}, "new": 2},
                    {"type": "file", "file": {"file_id": "file-1"}},
                    {"type": "file", "file": {"file_data": "https://d"}},
                ],
            }
        ],
    ),
    ({}, [{"role": "assistant", "content": [text("a"), {"type": "refusal", "refusal": "b", "new": 1}]}]),
]


@pytest.mark.parametrize(
    ("capabilities", "before", "after", "losses"),
    [
        # Shapes.
        (
            {},
            [{"role": "user", "content": [text("a"), text("b")]}],
            [{"role": "user", "content": "a\n\nb"}],
            [],
        ),
        (
            {"text_content": "parts"},
            [{"role": "user", "content": [text("a"), text("b")]}],
            [{"role": "user", "content": [text("a"), text("b")]}],
            [],
        ),
        # Roles and their order.
        (
            {},
            [{"role": "developer", "content": "a"}, HI],
            [{"role": "system", "content": "a"}, HI],
            [],
        ),
        (
            {},
            [HI, {"role": "system", "content": "a"}],
            [{"role": "user", "content": "Hi\n\n<system>\na\n</system>"}],
            ["/messages/1/role"],
        ),
        (
            {},
            [HI, {"role": "assistant", "content": "a"}, {"role": "assistant", "content": "b"}],
            [HI, {"role": "assistant", "content": "a\n\nb"}],
            [],
        ),
        (
            {"turn_order": "alternate"},
            [{"role": "assistant", "content": "a"}, HI],
            [
                {"role": "user", "content": "(The assistant speaks first.)"},
                {"role": "assistant", "content": "a"},
                HI,
            ],
            ["/messages/0"],
        ),
        # Pictures of tools.
        (
            {},
            [HI, CALLS, {"role": "tool", "tool_call_id": "c1", "content": [IMAGE]}],
            [
                HI,
                CALLS,
                {"role": "tool", "tool_call_id": "c1", "content": "[image: see the next message]"},
                {"role": "user", "content": [IMAGE]},
            ],
            ["/messages/2/content/0"],
        ),
        # Calls and results in the legacy form are written in the current one.
        (
            {},
            [
                HI,
                {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}},
                {"role": "function", "name": "f", "content": "r"},
            ],
            [
                HI,
                {
                    "role": "assistant",
                    "content": None,
                    "tool_calls": [{**CALL, "id": "call_1_f"}],
                },
                {"role": "tool", "tool_call_id": "call_1_f", "content": "r"},
            ],
            [],
        ),
        # Marks.
        (
            {},
            [{"role": "user", "content": [text("a", cache_control=MARK)]}],
            [{"role": "user", "content": "a"}],
            ["/messages/0/content/0/cache_control"],
        ),
        ({}, [{**HI, "cache_control": MARK}], [HI], ["/messages/0/cache_control"]),
        (
            {"cache_marks": "cache_control"},
            [{"role": "user", "content": [text("a", cache_control=MARK, new=1)] * 5}],
            [
                {
                    "role": "user",
                    "content": [text("a", new=1), *[text("a", cache_control=MARK, new=1)] * 4],
                }
            ],
            ["/messages/0/content/0/cache_control"],
        ),
        (
            {},
            [HI, CALLS, {"role": "tool", "tool_call_id": "c1", "content": "r", "cache_control": MARK}],
            [HI, CALLS, {"role": "tool", "tool_call_id": "c1", "content": "r"}],
            ["/messages/2/cache_control"],
        ),
        ({}, [HI, {"role": "assistant", "content": None, "name": "bot"}], [HI], []),
    ],
)
def test_messages(
    capabilities: dict[str, Any],
    before: list[dict[str, Any]],
    after: list[dict[str, Any]],
    losses: list[str],
) -> None:
    out, lost = rewrite({"messages": before}, **capabilities)
    assert out["messages"] == after
    assert lost == losses


@pytest.mark.parametrize(("capabilities", "messages"), UNCHANGED)
def test_messages_that_stay(capabilities: dict[str, Any], messages: list[dict[str, Any]]) -> None:
    out, lost = rewrite({"messages": messages}, **capabilities)
    assert (out["messages"], lost) == (messages, [])


def test_an_empty_list_of_tools_is_left_out() -> None:
    messages = [{"role": "user", "content": "a"}]
    out, lost = rewrite({"messages": messages, "tools": []})
    assert ("tools" in out, lost) == (False, [])


def test_what_only_an_sdk_reads_is_not_sent() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    from_an_sdk = {
        **call,
        "index": 0,
        "function": {**call["function"], "parsed_arguments": {}},  # type: ignore[dict-item]
        "provider_specific_fields": {"thought_signature": "s"},
        "own": 1,
    }
    out, lost = rewrite(
        {
            "messages": [
                {
                    "role": "assistant",
                    "content": None,
                    "tool_calls": [from_an_sdk],
                    "parsed": {"a": 1},
                    "provider_specific_fields": {"citations": [1]},
                    "own": 1,
                },
                {"role": "tool", "tool_call_id": "c", "content": "r"},
            ]
        }
    )
    assert out["messages"][0] == {
        "role": "assistant",
        "content": None,
        "tool_calls": [{**call, "own": 1}],
        "own": 1,
    }
    assert lost == [
        "/messages/0/tool_calls/0/provider_specific_fields",
        "/messages/0/provider_specific_fields",
    ]


def turn_with(**fields: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": "a", **fields}


THINKING = {"type": "thinking", "thinking": [text("so")]}
SIGNED = [{"type": "reasoning.text", "text": "so", "signature": "s", "format": "anthropic-claude-v1"}]


@pytest.mark.parametrize(
    ("field", "before", "after", "losses"),
    [
        ("reasoning_content", {"reasoning_content": "so"}, {"reasoning_content": "so"}, []),
        ("reasoning", {"reasoning_content": "so"}, {"reasoning": "so"}, []),
        ("reasoning_content", {"reasoning": "so"}, {"reasoning_content": "so"}, []),
        (
            "reasoning",
            {"reasoning": "so", "reasoning_content": "so"},
            {"reasoning": "so"},
            [],
        ),
        (
            "reasoning",
            {"reasoning": "so", "reasoning_content": "other"},
            {"reasoning": "so", "reasoning_content": "other"},
            [],
        ),
        # Signatures go back to the protocol that made them.
        ("reasoning_details", {"reasoning_details": SIGNED}, {"reasoning_details": SIGNED}, []),
        ("reasoning_details", {"reasoning_content": "so"}, {"reasoning_content": "so"}, []),
        (None, {"reasoning_content": "so"}, {}, ["/messages/1/reasoning_content"]),
        # Mistral refuses such members, and accepts reasoning in the content.
        (None, {"content": [THINKING, text("a")]}, {"content": [THINKING, text("a")]}, []),
    ],
)
def test_earlier_reasoning(
    field: str | None, before: dict[str, Any], after: dict[str, Any], losses: list[str]
) -> None:
    out, lost = rewrite({"messages": [HI, turn_with(**before), HI]}, reasoning_field=field)
    assert out["messages"][1] == turn_with(**after)
    assert lost == losses


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
def test_cached_reasoning_replaces_the_clients(field: str) -> None:
    """Some clients send it back under another name. The upstream gets it once, as it sent it."""
    turn = {**CALLS, "reasoning_content": "so"}
    body = {"model": "m", "messages": [HI, turn, {"role": "tool", "tool_call_id": "c1", "content": "r"}]}
    cached = Reasoning("", Signature("openai_chat", {field: "so"}))
    request = read_same_protocol(SPEC, body)
    request = restore_reasoning(
        request, pass_context(request, client=SPEC, reasoning_lookup=lambda calls: (cached,))
    )
    out = fit_and_write(SPEC, request, Capabilities(relay="rewrite", reasoning_field=field), Ledger())
    assert out["messages"][1] == {**CALLS, field: "so"}


def test_reasoning_of_merged_turns_is_joined() -> None:
    turns = [turn_with(reasoning_content="so"), turn_with(reasoning_content="then")]
    out, _ = rewrite({"messages": [HI, *turns, HI]})
    assert out["messages"][1] == {
        "role": "assistant",
        "content": "a\n\na",
        "reasoning_content": "so\n\nthen",
    }


SETTINGS_TOOLS: list[tuple[dict[str, Any], dict[str, Any], dict[str, Any], list[str]]] = [
    ({}, {"max_tokens": 5}, {"max_completion_tokens": 5}, []),
    ({"max_tokens_field": "max_tokens"}, {"max_completion_tokens": 5}, {"max_tokens": 5}, []),
    (
        {"efforts": ("low", "high")},
        {"reasoning_effort": "max"},
        {"reasoning_effort": "high"},
        ["/reasoning_effort"],
    ),
    (
        {"reasoning_setting": "thinking"},
        {"reasoning_effort": "none"},
        {"thinking": {"type": "disabled"}},
        [],
    ),
    (
        {},
        {"thinking": {"type": "disabled", "new": 1}},
        {"reasoning_effort": "none", "thinking": {"new": 1}},
        [],
    ),
    ({}, {"prompt_cache_options": {"mode": "implicit"}}, {}, ["/prompt_cache_options"]),
    (
        {"efforts": ("low", "high")},
        {"chat_template_kwargs": {"thinking": True}, "reasoning_effort": "max"},
        {"chat_template_kwargs": {"thinking": True}, "reasoning_effort": "high"},
        ["/reasoning_effort"],
    ),
    (
        {"reasoning_setting": "enable_thinking"},
        {"chat_template_kwargs": {"thinking": False}},
        {"enable_thinking": False},
        [],
    ),
    ({}, {"stream": True}, {"stream": True, "stream_options": {"include_usage": True}}, []),
    # Tools.
    ({}, {"tools": [FUNCTION], "tool_choice": "auto"}, {"tools": [FUNCTION]}, []),
    (
        {},
        {"tools": [{**FUNCTION, "cache_control": MARK}]},
        {"tools": [FUNCTION]},
        ["/tools/0/cache_control"],
    ),
    (
        {},
        {"functions": [FUNCTION["function"]], "function_call": {"name": "f"}},
        {
            "tools": [FUNCTION],
            "tool_choice": {"type": "function", "function": {"name": "f"}},
            "parallel_tool_calls": False,
        },
        [],
    ),
]
# Settings of a template are sent on, unless the upstream has another setting for reasoning.
UNCHANGED_SETTINGS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({}, {"service_tier": "ludicrous"}),
    ({}, {"new": 1, "metadata": {}}),
    ({}, {"top_logprobs": 3, "logprobs": False}),
    ({}, {"metadata": {"user_id": "u"}}),
    ({"cache_marks": "breakpoint"}, {"prompt_cache_options": {"mode": "implicit"}}),
    ({}, {"chat_template_kwargs": {"a": 1}}),
    ({"efforts": ("low", "high")}, {"chat_template_kwargs": {"enable_thinking": False, "a": 1}}),
    (
        {},
        {
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "n", "schema": {}, "new": 1},
            }
        },
    ),
    ({}, {"tools": [{**FUNCTION, "new": 1}]}),
    ({}, {"tools": [{"type": "odd", "odd": 1}]}),
    ({}, {"web_search_options": {"new": 1}}),
    ({"cache_marks": "cache_control"}, {"tools": [{**FUNCTION, "cache_control": MARK}]}),
]


def test_settings_and_tools(subtests: pytest.Subtests) -> None:
    unchanged = [(capabilities, fields, fields, []) for capabilities, fields in UNCHANGED_SETTINGS]
    for capabilities, before, after, losses in [*SETTINGS_TOOLS, *unchanged]:
        with subtests.test(capabilities=capabilities, before=before):
            out, lost = rewrite({"messages": [HI], **before}, **capabilities)
            assert {name: value for name, value in out.items() if name not in ("model", "messages")} == after
            assert lost == losses


def test_a_message_that_a_pass_has_added_gets_no_members_of_the_clients() -> None:
    """Its path is that of the part that it replaces."""
    ledger = Ledger()
    annotated = {**CALLS, "annotations": [{"type": "odd"}]}
    request = read_same_protocol(SPEC, {"model": "m", "messages": [HI, annotated]})
    call = request.messages[1].parts[0]
    result = ToolResult("c1", (Text("none"),), path=call.path)
    messages = (*request.messages, Message("user", (result,), call.path))
    changed = msgspec.structs.replace(request, messages=messages)
    out = fit_and_write(SPEC, changed, Capabilities(relay="rewrite"), ledger)
    assert out["messages"][2] == {"role": "tool", "tool_call_id": "c1", "content": "none"}


def test_a_marked_result_may_have_parts_without_a_type() -> None:
    parts = [{"content": "x"}]
    result = {"role": "tool", "tool_call_id": "c1", "content": parts, "cache_control": MARK}
    out, losses = rewrite({"messages": [HI, CALLS, result]})
    assert out["messages"][2]["content"] == parts
    assert "/messages/2/cache_control" in losses


def test_a_repaired_request_gets_required_members() -> None:
    required: dict[str, Any] = {"reasoning_back": "always", "thought_signatures": True}
    out, losses = rewrite({"messages": [HI, CALLS]}, **required)
    [call] = out["messages"][1]["tool_calls"]
    assert out["messages"][1]["reasoning_content"] == " "
    assert call == {
        **CALL,
        "extra_content": {"google": {"thought_signature": "skip_thought_signature_validator"}},
    }
    assert losses == ["/messages/1"]


def test_what_a_pass_has_changed_keeps_all_else() -> None:
    by_id = {"type": "file", "file": {"file_id": "file-1"}}
    by_url = {"type": "file", "file": {"file_data": "https://d"}, "new": 1}
    user = {"role": "user", "content": [{**by_id, "cache_control": MARK}, {**by_url, "cache_control": MARK}]}
    call = {**CALL, "new": 1, "provider_specific_fields": {"a": 1}}
    out, losses = rewrite({"messages": [user, {**CALLS, "new": 1, "tool_calls": [call]}]})
    assert out["messages"] == [
        {**user, "content": [by_id, by_url]},
        {**CALLS, "new": 1, "tool_calls": [{**CALL, "new": 1}]},
    ]
    assert losses == [
        "/messages/0/content/0/cache_control",
        "/messages/0/content/1/cache_control",
        "/messages/1/tool_calls/0/provider_specific_fields",
    ]
    plain = {"role": "assistant", "content": "a"}
    out, losses = rewrite({"messages": [HI, {**plain, "provider_specific_fields": {"a": 1}}]})
    assert (out["messages"][1], losses) == (plain, ["/messages/1/provider_specific_fields"])
    request = read_same_protocol(SPEC, {"model": "m", "messages": [HI], "tools": [{**FUNCTION, "new": 1}]})
    marked = changed(request.tools[0], name="g", cache=CacheMark("/tools/0/cache_control"))  # type: ignore[type-var]
    request = msgspec.structs.replace(request, tools=(marked,))
    body = fit_and_write(SPEC, request, Capabilities(cache_marks="cache_control"), Ledger())
    function = {**FUNCTION["function"], "name": "g"}  # type: ignore[dict-item]
    assert body["tools"] == [{"type": "function", "function": function, "new": 1, "cache_control": BARE_MARK}]
    result = {"role": "tool", "tool_call_id": "c1", "content": "x", "new": 1}
    request = read_same_protocol(SPEC, {"model": "m", "messages": [HI, CALLS, result]})
    message = request.messages[2]
    message = changed(message, parts=(changed(message.parts[0], call_id="c9"),))  # type: ignore[type-var]
    request = msgspec.structs.replace(request, messages=(*request.messages[:2], message))
    body = fit_and_write(SPEC, request, Capabilities(), Ledger())
    assert body["messages"][2] == {**result, "tool_call_id": "c9"}
