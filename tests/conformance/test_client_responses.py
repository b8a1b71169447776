"""Responses to Codex and Claude Code: calls in the form that each of them reads, and its next request.

An upstream of another protocol calls the client's own tools by the names in its request. The client must get the
calls as its own vendor would have sent them, and its next request must be translated. What else breaks clients, such as
the form of frames or a cut response that looks complete, the laws of test_laws.py exclude for every client.
"""

import json
from typing import Any

from agents.received import received_by, unwrapped
from agents.requests import CLAUDE_CODE, CODEX, CODEX_COMPACTION, TARGETS
from failures.responses import Call, Reasoning, Text, stream
from failures.translate import Received, each, translate_request
from failures.turns import calls_of, outline, results_of
from laws.clients import endpoint_of
from oracle import CHAT, GEMINI, MESSAGES, RESPONSES

from dragoman import Capabilities

Json = dict[str, Any]

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
PATCH = '*** Begin Patch\n*** Add File: "a".txt\n+one\\two\n*** End Patch\n'
# A tool of Claude Code that no request has but by a search.
DEFERRED = "DeferredToolPlaceholder"

others_of_codex = each("upstream", (CHAT, MESSAGES))
others_of_claude = each("upstream", (CHAT, RESPONSES))


def codex_receives(
    upstream: str, *blocks: Any, body: Json = CODEX, capabilities: Capabilities | None = None
) -> Received:
    response = stream(upstream, *blocks)
    return received_by(RESPONSES, upstream, body, response, capabilities=capabilities or TARGETS[upstream])


def items_of(received: Received) -> list[Json]:
    return [event["item"] for event in received.of("output_item.done")]


def function(call_id: str, name: str, arguments: str) -> Json:
    return {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments}


# --- Codex: calls -----------------------------------------------------------------------------------------------

WRAPPED = json.dumps({"input": PATCH})


@others_of_codex
def test_calls_of_all_kinds_come_in_codexs_own_form_and_go_back(upstream: str) -> None:
    """Codex answers the name of a namespace and of its tool in one with "unsupported call"."""
    received = codex_receives(
        upstream,
        Reasoning("Hmm."),
        Text("I look."),
        Call("call_1", "apply_patch", tuple(WRAPPED)),
        Call("call_2", "local_shell", ('{"command": ', '["ls"]}')),
        Call("call_3", "tool_search", ('{"query": "cal', 'endar"}')),
        Call("call_4", "multi_agent_v1__wait_agent", ("{}",)),
        Call("call_5", "mcp__calendar__list_events", ('{"day"', ": 1}")),  # a search has found it
        Call("call_6", "exec_command", ('{"cmd":"ls"}',)),
    )
    items = items_of(received)
    assert received.events[-1]["response"]["output"] == items
    assert [{k: v for k, v in item.items() if k not in ("id", "status")} for item in items[2:]] == [
        {"type": "custom_tool_call", "call_id": "call_1", "name": "apply_patch", "input": PATCH},
        {"type": "local_shell_call", "call_id": "call_2", "action": {"type": "exec", "command": ["ls"], "env": {}}},
        {"type": "tool_search_call", "call_id": "call_3", "arguments": {"query": "calendar"}, "execution": "client"},
        {**function("call_4", "wait_agent", "{}"), "namespace": "multi_agent_v1"},
        {**function("call_5", "list_events", '{"day": 1}'), "namespace": "mcp__calendar"},
        function("call_6", "exec_command", '{"cmd":"ls"}'),
    ]  # fmt: skip
    assert [item["type"] for item in items[:2]] == ["reasoning", "message"]
    assert items[0]["summary"] == [{"type": "summary_text", "text": "Hmm."}]
    assert unwrapped(items[0]["encrypted_content"]) is not None
    # Text, reasoning and calls are sent back as the upstream made them.
    outputs: list[Json] = [
        {"type": "custom_tool_call_output", "call_id": "call_1", "output": "1"},
        {"type": "function_call_output", "call_id": "call_2", "output": "2"},
        {"type": "tool_search_output", "call_id": "call_3", "execution": "client", "tools": []},
        *({"type": "function_call_output", "call_id": f"call_{n}", "output": str(n)} for n in (4, 5, 6)),
    ]
    body = {**CODEX, "input": [*CODEX["input"], *items, *outputs]}
    requested = translate_request(RESPONSES, upstream, body, capabilities=TARGETS[upstream])
    turn = next(each for each in reversed(requested.body["messages"]) if each["role"] == "assistant")
    if upstream == CHAT:
        assert (turn["reasoning_content"], turn["content"]) == ("Hmm.", "I look.")
    else:
        assert turn["content"][0] == {"type": "thinking", "thinking": "Hmm.", "signature": "c2VhbGVk"}
        assert turn["content"][1] == {"type": "text", "text": "I look."}
    assert [call[:2] for call in calls_of(upstream, requested.body)][-6:] == [
        ("call_1", "apply_patch"),
        ("call_2", "local_shell"),
        ("call_3", "tool_search"),
        ("call_4", "multi_agent_v1__wait_agent"),
        ("call_5", "mcp__calendar__list_events"),
        ("call_6", "exec_command"),
    ]
    found = [result[0] for result in results_of(upstream, requested.body)][-6:]
    assert found == [f"call_{n}" for n in range(1, 7)]


# --- Codex: compaction ------------------------------------------------------------------------------------------

SUMMARY = "The user wants the picture mended."


@others_of_codex
def test_a_compaction_trigger_gives_exactly_one_item_and_it_comes_back_as_the_summary(upstream: str) -> None:
    received = codex_receives(upstream, Reasoning("Hmm."), Text(SUMMARY), body=CODEX_COMPACTION)
    (item,) = items_of(received)
    assert set(item) == {"id", "type", "encrypted_content"}
    assert unwrapped(item["encrypted_content"]) == {"summary": SUMMARY}
    assert received.kinds == ["created", "in_progress", "output_item.added", "output_item.done", "completed"]
    after = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Go on."}]}
    body = {**CODEX, "input": [CODEX["input"][0], item, after]}
    requested = translate_request(RESPONSES, upstream, body, capabilities=TARGETS[upstream])
    assert f"Summary of the conversation so far:\\n{SUMMARY}" in json.dumps(requested.body)
    roles = [message["role"] for message in requested.body["messages"]]
    assert roles == (["system", "user"] if upstream == CHAT else ["user"])
    assert [path for path in requested.losses if path.startswith("/input/1")] == []


# --- Claude Code ------------------------------------------------------------------------------------------------


@others_of_claude
def test_claude_code_gets_calls_in_its_own_form(upstream: str) -> None:
    """Input in the start of a block is fatal for it; so is a block that does not stop."""
    received = received_by(
        MESSAGES,
        upstream,
        CLAUDE_CODE,
        stream(
            upstream,
            Reasoning("Hmm."),
            Text("I look."),
            Call("call_1", "ToolSearch", ('{"query": ', '"a"}')),
            Call("call_2", "ListAgents", ()),
        ),
        capabilities=TARGETS[upstream],
    )
    blocks = [event["content_block"] for event in received.of("content_block_start")]
    assert [block["type"] for block in blocks] == ["thinking", "text", "tool_use", "tool_use"]
    found = [(b["id"], b["name"], b["input"]) for b in blocks[2:]]
    assert found == [("call_1", "ToolSearch", {}), ("call_2", "ListAgents", {})]
    thinking, text, search, agents = received.turn
    assert (thinking["thinking"], text["text"]) == ("Hmm.", "I look.")
    assert unwrapped(thinking["signature"]) is not None
    assert (search["input"], agents["input"]) == ({"query": "a"}, {})
    assert received.of("message_delta")[0]["delta"]["stop_reason"] == "tool_use"


@others_of_claude
def test_the_next_request_of_claude_code_is_translated(upstream: str) -> None:
    """Its vendor gets the thinking, the reference to a tool becomes text, the image stays an image."""
    response = stream(
        upstream,
        Reasoning("Hmm."),
        Call("call_1", "ToolSearch", ('{"query": "a"}',)),
        Call("call_2", "Read", ('{"file_path": "b"}',)),
    )
    turn = received_by(MESSAGES, upstream, CLAUDE_CODE, response, capabilities=TARGETS[upstream]).turn
    content = [{key: value for key, value in block.items() if value is not None} for block in turn]
    picture = {"type": "base64", "media_type": "image/png", "data": PIXEL}
    results = [
        {
            "type": "tool_result",
            "tool_use_id": "call_1",
            "content": [{"type": "tool_reference", "tool_name": DEFERRED}],
        },
        {"type": "tool_result", "tool_use_id": "call_2", "content": [{"type": "image", "source": picture}]},
    ]
    body = {
        **CLAUDE_CODE,
        "messages": [
            CLAUDE_CODE["messages"][0],
            {"role": "assistant", "content": content},
            {"role": "user", "content": results},
        ],
    }
    requested = translate_request(MESSAGES, upstream, body, capabilities=TARGETS[upstream])
    reported = results_of(upstream, requested.body)
    assert reported[0] == ("call_1", f"The tool {DEFERRED} can be called now.")
    url = f"data:image/png;base64,{PIXEL}"
    if upstream == CHAT:
        roles = outline(CHAT, requested.body)
        assert roles == ["system", "user", "assistant", "tool", "tool", "user"]
        assert requested.body["messages"][2]["reasoning_content"] == "Hmm."
        assert requested.body["messages"][-1]["content"] == [{"type": "image_url", "image_url": {"url": url}}]
    else:
        kinds = outline(RESPONSES, requested.body)
        assert kinds[2:] == ["reasoning", *["function_call"] * 2, *["function_call_output"] * 2]
        assert requested.body["input"][2]["encrypted_content"] == "c2VhbGVk"
        (image,) = requested.body["input"][-1]["output"]
        assert (image["type"], image["image_url"]) == ("input_image", url)
    assert not {path for path in requested.losses if path.startswith("/messages/1")}


# --- heartbeats --------------------------------------------------------------------------------------------------


@each("protocol")
def test_heartbeats_have_a_form_that_clients_accept(protocol: str) -> None:
    """All agents drop a stream that is silent for 300 s. Comments are ignored, but not by Gemini's SDKs, which take an
    empty chunk; Messages has a ping.
    """
    beat = endpoint_of(protocol).heartbeat
    assert beat.endswith(b"\r\n\r\n" if protocol == GEMINI else b"\n\n")
    assert beat.startswith({MESSAGES: b"event: ping\n", GEMINI: b"data: {}"}.get(protocol, b":"))
    assert protocol != MESSAGES or Received(protocol, beat, None).events == [{"type": "ping"}]
    assert protocol != RESPONSES or Received(protocol, beat, None).events == []
