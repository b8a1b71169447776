"""Responses to Codex and Claude Code: calls in the form that each of them reads, and its next request.

An upstream of another protocol calls the client's own tools by the names in its request. The client must get the
calls as its own vendor would have sent them, and its next request must be translated.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from agents.received import received_by, unwrapped
from agents.requests import CLAUDE_CODE, CODEX, CODEX_COMPACTION, MODELS, TARGETS
from failures.responses import Call, Cost, Reasoning, Text, frames, stream
from failures.translate import Received, UpstreamRequest, each, piecewise, translate_request
from failures.turns import calls_of, outline, results_of
from oracle import CHAT, MESSAGES, RESPONSES
from oracle import samples as s

from dragoman import PROTOCOLS, UPSTREAMS, Capabilities, ResponseTranslator

Json = dict[str, Any]

# What Codex sends before its work begins, and in it.
OPENING = CODEX["input"][:3]
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
PATCH = '*** Begin Patch\n*** Add File: "a".txt\n+one\\two\n*** End Patch\n'
(GRAMMAR,) = (tool["format"]["definition"] for tool in CODEX["tools"] if tool["type"] == "custom")
# A tool of Claude Code that no request has but by a search.
DEFERRED = "DeferredToolPlaceholder"

others_of_codex = each("upstream", (CHAT, MESSAGES))
others_of_claude = each("upstream", (CHAT, RESPONSES))


def codex_receives(
    upstream: str, *blocks: Any, body: Json = CODEX, capabilities: Capabilities | None = None
) -> Received:
    response = stream(upstream, *blocks)
    return received_by(RESPONSES, upstream, body, response, capabilities=capabilities or TARGETS[upstream])


def items_of(received: Received, *, done: bool = True) -> list[Json]:
    return [event["item"] for event in received.of("output_item.done" if done else "output_item.added")]


def the_item(received: Received) -> Json:
    """The one item of a response, which is the same at the end of it."""
    (item,) = items_of(received)
    assert received.events[-1]["response"]["output"] == [item]
    return item


def continued(upstream: str, *items: Json, body: Json = CODEX) -> UpstreamRequest:
    """The next request, with these items behind those of this one."""
    return translate_request(
        RESPONSES,
        upstream,
        {**body, "input": [*body["input"], *items]},
        capabilities=TARGETS[upstream],
        model=MODELS[upstream],
    )


# --- Codex: calls -----------------------------------------------------------------------------------------------

NAMESPACED = [
    pytest.param("multi_agent_v1__spawn_agent", "multi_agent_v1", "spawn_agent", id="offered"),
    pytest.param("mcp__calendar__list_events", "mcp__calendar", "list_events", id="found by a search"),
]


@others_of_codex
@pytest.mark.parametrize(("reported", "namespace", "name"), NAMESPACED)
def test_a_namespaced_call_comes_back_with_namespace_and_name(
    upstream: str, reported: str, namespace: str, name: str
) -> None:
    """Codex answers a flattened name with "unsupported call"."""
    received = codex_receives(upstream, Call("call_new", reported, ('{"message"', ': "x"}')))
    item = the_item(received)
    assert item == {
        "id": item["id"],
        "type": "function_call",
        "call_id": "call_new",
        "namespace": namespace,
        "name": name,
        "arguments": '{"message": "x"}',
        "status": "completed",
    }
    assert items_of(received, done=False) == [{**item, "arguments": "", "status": "in_progress"}]
    assert [event["delta"] for event in received.of("function_call_arguments.delta")] == [
        '{"message"',
        ': "x"}',
    ]
    # It is sent back under the upstream's name.
    requested = continued(
        upstream, item, {"type": "function_call_output", "call_id": "call_new", "output": "done"}
    )
    assert [call[:2] for call in calls_of(upstream, requested.body)][-1] == ("call_new", reported)
    assert results_of(upstream, requested.body)[-1] == ("call_new", "done")


@others_of_codex
def test_a_plain_call_has_no_namespace(upstream: str) -> None:
    item = the_item(codex_receives(upstream, Call("call_new", "exec_command", ('{"cmd":"ls"}',))))
    assert item == {
        "id": item["id"],
        "type": "function_call",
        "call_id": "call_new",
        "name": "exec_command",
        "arguments": '{"cmd":"ls"}',
        "status": "completed",
    }


@others_of_codex
def test_a_search_for_tools_is_an_item_of_its_own(upstream: str) -> None:
    received = codex_receives(
        upstream, Call("call_new", "tool_search", ('{"query": "cal', 'endar", "limit": 2}'))
    )
    item = the_item(received)
    assert item == {
        "id": item["id"],
        "type": "tool_search_call",
        "call_id": "call_new",
        "execution": "client",
        "arguments": {"query": "calendar", "limit": 2},
        "status": "completed",
    }
    assert items_of(received, done=False) == [{**item, "arguments": {}, "status": "in_progress"}]
    assert [kind for kind in received.kinds if "arguments" in kind] == []
    output = {
        "type": "tool_search_output",
        "call_id": "call_new",
        "status": "completed",
        "execution": "client",
        "tools": [],
    }
    requested = continued(upstream, item, output)
    assert [call[:2] for call in calls_of(upstream, requested.body)][-1] == ("call_new", "tool_search")
    assert results_of(upstream, requested.body)[-1][0] == "call_new"


@others_of_codex
def test_a_local_shell_call_comes_back_as_one(upstream: str) -> None:
    arguments = '{"command": ["ls", "-l"], "working_directory": "/tmp", "timeout_ms": 5}'
    received = codex_receives(upstream, Call("call_new", "local_shell", (arguments[:9], arguments[9:])))
    item = the_item(received)
    assert item == {
        "id": item["id"],
        "type": "local_shell_call",
        "call_id": "call_new",
        "action": {
            "type": "exec",
            "command": ["ls", "-l"],
            "env": {},
            "timeout_ms": 5,
            "working_directory": "/tmp",
        },
        "status": "completed",
    }
    (added,) = items_of(received, done=False)
    assert (added["id"], added["call_id"], added["status"]) == (item["id"], "call_new", "in_progress")
    requested = continued(
        upstream, item, {"type": "function_call_output", "call_id": "call_new", "output": "total 0"}
    )
    assert [call[:2] for call in calls_of(upstream, requested.body)][-1] == ("call_new", "local_shell")
    assert results_of(upstream, requested.body)[-1] == ("call_new", "total 0")


WRAPPED = json.dumps({"input": PATCH})
ESCAPED = json.dumps({"input": "äß🦎\u2028\t"}, ensure_ascii=True)


@others_of_codex
@pytest.mark.parametrize(
    ("fragments", "text"),
    [
        pytest.param((WRAPPED,), PATCH, id="at once"),
        pytest.param(tuple(WRAPPED), PATCH, id="letter by letter"),
        pytest.param(tuple(ESCAPED), "äß🦎\u2028\t", id="escapes cut in two"),
    ],
)
def test_a_patch_is_a_custom_call_with_its_plain_text(
    upstream: str, fragments: tuple[str, ...], text: str
) -> None:
    received = codex_receives(upstream, Call("call_new", "apply_patch", fragments))
    item = the_item(received)
    assert {k: v for k, v in item.items() if k not in ("id", "status")} == {
        "type": "custom_tool_call",
        "call_id": "call_new",
        "name": "apply_patch",
        "input": text,
    }
    deltas = [event["delta"] for event in received.of("custom_tool_call_input.delta")]
    assert "".join(deltas) == text
    assert [event["input"] for event in received.of("custom_tool_call_input.done")] == [text]
    assert received.of("function_call_arguments.delta", "function_call_arguments.done") == []
    requested = continued(
        upstream, item, {"type": "custom_tool_call_output", "call_id": "call_new", "output": "Done!"}
    )
    _, name, arguments = calls_of(upstream, requested.body)[-1]
    assert name == "apply_patch"
    assert (json.loads(arguments) if isinstance(arguments, str) else arguments) == {"input": text}
    assert results_of(upstream, requested.body)[-1] == ("call_new", "Done!")


@others_of_codex
def test_a_patch_streams_as_it_is_written(upstream: str) -> None:
    """Not a letter waits for the end of the call: people watch the patch grow."""
    data = stream(upstream, Call("call_new", "apply_patch", tuple(WRAPPED)))
    requested = translate_request(RESPONSES, upstream, CODEX, capabilities=TARGETS[upstream])
    machine = ResponseTranslator(
        client=PROTOCOLS[RESPONSES], upstream=UPSTREAMS[upstream], context=requested.response_context()
    )
    written, seen = "", ""
    for frame in frames(data):
        fragment = fragment_of(upstream, frame)
        written += fragment
        for sent in piecewise(machine, frame, 0):
            seen += "".join(
                e["delta"] for e in Received(RESPONSES, sent, machine).of("custom_tool_call_input.delta")
            )
        if fragment:
            assert seen == plain_so_far(written)
    assert seen == PATCH


def fragment_of(upstream: str, frame: bytes) -> str:
    """Return the arguments delta of a frame."""
    (event,) = Received(upstream, frame, None).events or [{}]  # type: ignore[arg-type]
    if upstream == MESSAGES:
        return str(event.get("delta", {}).get("partial_json", ""))
    calls = [choice["delta"].get("tool_calls") for choice in event.get("choices", [])]
    return "".join(call["function"]["arguments"] for found in calls if found for call in found)


def plain_so_far(written: str) -> str:
    """The text of `{"input": "...` as far as it is written; half an escape is not."""
    body = written.removeprefix('{"input": "')
    if body == written:
        return ""
    body = (
        body.removesuffix('"}').removesuffix('"')
        if written.endswith(('"}', '"')) and _closed(written)
        else body
    )
    while True:
        try:
            return str(json.loads(f'"{body}"'))
        except json.JSONDecodeError:
            body = body[:-1]


def _closed(written: str) -> bool:
    """True if the last quote ends the text and is not escaped."""
    remaining = written.removesuffix("}").removesuffix('"')
    return (len(remaining) - len(remaining.rstrip("\\"))) % 2 == 0


def test_a_custom_call_of_an_upstream_that_has_them_passes_as_it_is() -> None:
    """A Chat server with free-text tools: nothing is wrapped, so nothing is unwrapped."""
    capabilities = Capabilities(custom_tools=True)
    requested = translate_request(RESPONSES, CHAT, CODEX, capabilities=capabilities)
    tool = next(tool for tool in requested.body["tools"] if tool["type"] == "custom")
    assert tool["custom"] == {
        "name": "apply_patch",
        "description": "Edits files by a patch. It is FREEFORM, so do not wrap it in JSON.",
        "format": {"type": "grammar", "grammar": {"syntax": "lark", "definition": GRAMMAR}},
    }
    call = {"index": 0, "id": "call_new", "type": "custom", "custom": {"name": "apply_patch", "input": ""}}
    fragments = [PATCH[:20], PATCH[20:]]
    deltas = [{"tool_calls": [{"index": 0, "custom": {"input": fragment}}]} for fragment in fragments]
    chunks = [s.chunk({"role": "assistant"}), s.chunk({"tool_calls": [call]}), *map(s.chunk, deltas)]
    data = s.render(CHAT, [*chunks, s.chunk({}, "tool_calls"), {**s.chunk(), "usage": Cost().chat}, "[DONE]"])
    received = received_by(RESPONSES, CHAT, CODEX, data, capabilities=capabilities)
    assert the_item(received)["input"] == PATCH
    assert [event["delta"] for event in received.of("custom_tool_call_input.delta")] == fragments


@others_of_codex
def test_all_kinds_of_calls_in_one_turn_keep_their_order(upstream: str) -> None:
    received = codex_receives(
        upstream,
        Reasoning("Hmm."),
        Text("I look."),
        Call("call_1", "apply_patch", (WRAPPED,)),
        Call("call_2", "local_shell", ('{"command": []}',)),
        Call("call_3", "tool_search", ('{"query": "a"}',)),
        Call("call_4", "multi_agent_v1__wait_agent", ("{}",)),
    )
    kinds = [item["type"] for item in items_of(received)]
    assert kinds == [
        "reasoning",
        "message",
        "custom_tool_call",
        "local_shell_call",
        "tool_search_call",
        "function_call",
    ]
    reasoning = items_of(received)[0]
    assert reasoning["summary"] == [{"type": "summary_text", "text": "Hmm."}]
    assert unwrapped(reasoning["encrypted_content"]) is not None
    # Text, reasoning and calls are sent back as the upstream made them.
    outputs = [
        {"type": "custom_tool_call_output", "call_id": "call_1", "output": "1"},
        {"type": "function_call_output", "call_id": "call_2", "output": "2"},
        {"type": "tool_search_output", "call_id": "call_3", "execution": "client", "tools": []},
        {"type": "function_call_output", "call_id": "call_4", "output": "4"},
    ]
    requested = translate_request(
        RESPONSES, upstream, {**CODEX, "input": [*OPENING, *items_of(received), *outputs]}
    )
    turn = requested.body["messages"][-5 if upstream == CHAT else -2]
    if upstream == CHAT:
        assert turn["reasoning_content"] == "Hmm."
        assert turn["content"] == "I look."
    else:
        assert turn["content"][0] == {"type": "thinking", "thinking": "Hmm.", "signature": "c2VhbGVk"}
        assert turn["content"][1] == {"type": "text", "text": "I look."}
    assert [call[0] for call in calls_of(upstream, requested.body)] == [
        "call_1",
        "call_2",
        "call_3",
        "call_4",
    ]
    assert [result[0] for result in results_of(upstream, requested.body)] == [
        "call_1",
        "call_2",
        "call_3",
        "call_4",
    ]


# --- Codex: compaction ------------------------------------------------------------------------------------------

SUMMARY = "The user wants the picture mended."


@others_of_codex
@pytest.mark.parametrize(
    "blocks",
    [
        pytest.param((Text(SUMMARY),), id="words"),
        pytest.param((Reasoning("Hmm."), Text(SUMMARY)), id="words after thinking"),
    ],
)
def test_a_compaction_trigger_gives_exactly_one_compaction_item(
    upstream: str, blocks: tuple[Any, ...]
) -> None:
    received = codex_receives(upstream, *blocks, body=CODEX_COMPACTION)
    item = the_item(received)
    assert set(item) == {"id", "type", "encrypted_content"}
    assert item["type"] == "compaction"
    assert unwrapped(item["encrypted_content"]) == {"summary": SUMMARY}
    assert [item["type"] for item in items_of(received, done=False)] == ["compaction"]
    assert received.finish == "completed"
    assert received.kinds == ["created", "in_progress", "output_item.added", "output_item.done", "completed"]


@others_of_codex
def test_the_compaction_item_that_comes_back_is_the_summary(upstream: str) -> None:
    item = the_item(codex_receives(upstream, Text(SUMMARY), body=CODEX_COMPACTION))
    after = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Go on."}]}
    body = {**CODEX, "input": [OPENING[0], item, after]}
    requested = translate_request(RESPONSES, upstream, body, capabilities=TARGETS[upstream])
    texts = [part["text"] for message in requested.body["messages"] for part in parts_of(message)]
    texts_sent = [f"Summary of the conversation so far:\n{SUMMARY}", "Go on."]
    assert (
        texts[-len(texts_sent) :] == texts_sent
        if upstream == MESSAGES
        else texts[-1] == "\n\n".join(texts_sent)
    )
    roles = [message["role"] for message in requested.body["messages"]]
    assert roles == (["system", "user"] if upstream == CHAT else ["user"])
    assert [path for path in requested.losses if path.startswith("/input/1")] == []


def parts_of(message: Json) -> list[Json]:
    content = message["content"]
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


@others_of_codex
def test_a_summary_that_was_cut_is_no_summary(upstream: str) -> None:
    response = stream(upstream, Text("The user"), stop="length")
    received = received_by(RESPONSES, upstream, CODEX_COMPACTION, response, capabilities=TARGETS[upstream])
    assert items_of(received, done=False) == []
    assert received.kinds[-1] == "failed"


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
    assert [(b["id"], b["name"], b["input"]) for b in blocks[2:]] == [
        ("call_1", "ToolSearch", {}),
        ("call_2", "ListAgents", {}),
    ]
    thinking, text, search, agents = received.turn
    assert (thinking["thinking"], text["text"]) == ("Hmm.", "I look.")
    assert unwrapped(thinking["signature"]) is not None
    assert (search["input"], agents["input"]) == ({"query": "a"}, {})
    assert received.finish == "tool_use"


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
