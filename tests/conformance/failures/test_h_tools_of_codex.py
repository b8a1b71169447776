"""H. Responses clients such as Codex: tools in forms that other protocols do not have, there and back."""

from __future__ import annotations

import json
from typing import Any

import pytest
from failures.responses import Call, Text, stream
from failures.rules import refused
from failures.translate import Received, UpstreamRequest, each, receive, translate_request
from failures.turns import SCHEMA, User, calls_of, request, results_of
from laws.clients import spec_of
from oracle import CHAT, MESSAGES, RESPONSES, check_whole

from dragoman import UPSTREAMS, Capabilities, RequestRefused, ResponseTranslator

pytestmark = pytest.mark.each_protocol

Json = dict[str, Any]
PATCH = '*** Begin Patch\n*** Add File: "ü".txt\n+\\n is no line end\n*** End Patch\n'
GRAMMAR = {"type": "grammar", "syntax": "lark", "definition": 'start: "*** Begin Patch" /.*/s'}
APPLY: Json = {"type": "custom", "name": "apply_patch", "description": "Changes files.", "format": GRAMMAR}
# Upstreams without custom tools. Responses upstreams usually have them, so a setting disables them.
NO_CUSTOM = Capabilities(custom_tools=False)
CLIENTS = (CHAT, RESPONSES)

# (client, upstream): free-text tools exist in two protocols, and there are servers of all three without them.
customs = pytest.mark.parametrize(
    ("client", "upstream"),
    [(CHAT, MESSAGES), (CHAT, RESPONSES), (RESPONSES, CHAT), (RESPONSES, MESSAGES)],
    ids=["chat-messages", "chat-responses", "responses-chat", "responses-messages"],
)


def tool_for(client: str) -> Json:
    if client == RESPONSES:
        return APPLY
    form = {"type": "grammar", "grammar": {name: GRAMMAR[name] for name in ("syntax", "definition")}}
    custom = {"name": "apply_patch", "description": "Changes files.", "format": form}
    return {"type": "custom", "custom": custom}


def requested(client: str, *turns: Json, tools: list[Json] | None = None, **fields: Any) -> Json:
    body = request(client, User("Hi"), tools=(), stream=True, **fields)
    body["tools"] = [tool_for(client)] if tools is None else tools
    body["messages" if client == CHAT else "input"] += turns
    return body


def functions(upstream: str, body: Json) -> list[tuple[str, str, Json]]:
    """Name, description and schema of the tools in a request, all of which must be functions."""
    found = []
    for tool in body["tools"]:
        assert tool.get("type", "function") == "function", tool
        inner = tool["function"] if upstream == CHAT else tool
        schema = inner["input_schema" if upstream == MESSAGES else "parameters"]
        found.append((inner["name"], inner.get("description", ""), schema))
    return found


@customs
def test_H1_H2_a_custom_tool_becomes_a_function_that_requires_a_string(client: str, upstream: str) -> None:
    """A tool without a schema is called with `{}`."""
    sent = translate_request(client, upstream, requested(client), capabilities=NO_CUSTOM)
    ((name, description, schema),) = functions(upstream, sent.body)
    assert name == "apply_patch"
    assert description.startswith("Changes files.")
    assert GRAMMAR["definition"] in description
    assert (schema["type"], list(schema["properties"])) == ("object", ["input"])
    assert schema["properties"]["input"]["type"] == "string"
    assert schema["required"] == ["input"]
    assert [code for path, code in sent.losses.items() if "format" in path] == ["altered"]


def response_of(client: str, upstream: str, *fragments: str) -> Received:
    call = Call("call_a", "apply_patch", fragments)
    return receive(
        upstream,
        client,
        stream(upstream, call),
        requested(client),
        capabilities=NO_CUSTOM,
        include_usage=False,
    )


def fragments_of(text: str, step: int) -> list[str]:
    return [text[at : at + step] for at in range(0, len(text), step)]


@each("upstream", (CHAT, MESSAGES))
@pytest.mark.parametrize("step", [1, 4, 1000])
def test_H3_the_call_comes_back_as_custom_tool_call(upstream: str, step: int) -> None:
    """An item of its own kind with its own events: Codex stops when a function is called instead."""
    received = response_of(RESPONSES, upstream, *fragments_of(json.dumps({"input": PATCH}), step))
    assert not [kind for kind in received.kinds if "function_call" in kind]
    ((added,), (done,)) = (
        [event["item"] for event in received.of(f"output_item.{word}")] for word in ("added", "done")
    )
    assert (added["type"], added["name"], added["call_id"], added["input"]) == (
        "custom_tool_call",
        "apply_patch",
        "call_a",
        "",
    )
    assert done == {**added, "input": PATCH}
    deltas = received.of("custom_tool_call_input.delta")
    assert "".join(event["delta"] for event in deltas) == PATCH
    assert [event["input"] for event in received.of("custom_tool_call_input.done")] == [PATCH]
    if step == 1:
        assert len(deltas) > 10, "it streams"
    assert received.of("completed")[0]["response"]["output"] == [done]


@each("upstream", (MESSAGES, RESPONSES))
def test_H3_a_chat_client_gets_a_custom_call(upstream: str) -> None:
    received = response_of(CHAT, upstream, *fragments_of(json.dumps({"input": PATCH}), 7))
    deltas = [choice["delta"] for event in received.events for choice in event["choices"]]
    parts = [part for delta in deltas for part in delta.get("tool_calls", [])]
    assert parts[0]["custom"]["name"] == "apply_patch"
    assert "".join(part["custom"].get("input", "") for part in parts) == PATCH
    assert not [part for part in parts if "function" in part]
    assert received.finish == "tool_calls"


@customs
def test_H3_in_a_whole_response_the_call_comes_back_as_custom_tool_call(client: str, upstream: str) -> None:
    context = translate_request(
        client, upstream, requested(client) | {"stream": False}, capabilities=NO_CUSTOM
    ).response_context()
    machine = ResponseTranslator(
        client=spec_of(client), upstream=UPSTREAMS[upstream], context=context, client_streams=False
    )
    arguments = json.dumps({"input": PATCH})
    machine.receive_data(stream(upstream, Call("call_a", "apply_patch", (arguments,))))
    machine.receive_eof()
    body = machine.data_to_send()
    assert check_whole(client, body) == []
    whole = json.loads(body)
    if client == CHAT:
        (call,) = whole["choices"][0]["message"]["tool_calls"]
        assert call == {"id": "call_a", "type": "custom", "custom": {"name": "apply_patch", "input": PATCH}}
    else:
        (item,) = whole["output"]
        assert (item["type"], item["call_id"], item["input"]) == ("custom_tool_call", "call_a", PATCH)


def history(client: str, output: Any = "Done.") -> list[Json]:
    """A free-text call and its result, as the client sends them back."""
    call: Json
    if client == RESPONSES:
        call = {"type": "custom_tool_call", "call_id": "call_a", "name": "apply_patch", "input": PATCH}
        return [call, {"type": "custom_tool_call_output", "call_id": "call_a", "output": output}]
    call = {"id": "call_a", "type": "custom", "custom": {"name": "apply_patch", "input": PATCH}}
    return [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_a", "content": output},
    ]


@customs
def test_H4_call_and_result_stay_in_the_history(client: str, upstream: str) -> None:
    """Under one id, also where the tool itself is no longer offered, and where a result has parts."""
    parts = [{"type": "input_text", "text": part} for part in ("Do", "ne.")]
    for turns in (history(client), *([history(client, parts)] if client == RESPONSES else [])):
        for tools in (None, []):
            body = requested(client, *turns, tools=tools)
            sent = translate_request(client, upstream, body, capabilities=NO_CUSTOM).body
            assert refused(upstream, sent) == []
            ((call_id, name, arguments),) = calls_of(upstream, sent)
            assert (call_id, name) == ("call_a", "apply_patch")
            assert (arguments if upstream == MESSAGES else json.loads(arguments)) == {"input": PATCH}
            ((call_id, text),) = results_of(upstream, sent)
            assert (call_id, text.replace("\n", "")) == ("call_a", "Done.")


# What models write instead of {"input": ...} -> the input that the client gets.
WRAPPED = {
    "as agreed": (json.dumps({"input": PATCH}), PATCH),
    "blanks": ('\n{ "input" :\t' + json.dumps(PATCH) + " } ", PATCH),
    "escaped": ('{"input":"' + "".join(f"\\u{ord(each):04x}" for each in PATCH) + '"}', PATCH),
    "another name": (json.dumps({"patch": PATCH}), PATCH),
    "beside others": (json.dumps({"why": "x", "input": PATCH}), PATCH),
    "bare": (PATCH, PATCH),
    # What the model wrote into the input is the input: what to make of it is the tool's choice.
    "fenced": (json.dumps({"input": f"```diff\n{PATCH}```"}), f"```diff\n{PATCH}```"),
    "heredoc": (
        json.dumps({"input": f"apply_patch <<'EOF'\n{PATCH}EOF"}),
        f"apply_patch <<'EOF'\n{PATCH}EOF",
    ),
    "nothing": ("{}", "{}"),
}


@each("client", CLIENTS)
@pytest.mark.parametrize("wrapped", WRAPPED)
@pytest.mark.parametrize("step", [1, 5, 1000])
def test_H5_the_input_is_unwrapped_from_any_argument(client: str, wrapped: str, step: int) -> None:
    text, found = WRAPPED[wrapped]
    upstream = CHAT if client == RESPONSES else RESPONSES
    received = response_of(client, upstream, *fragments_of(text, step))
    ((kind, call),) = received.gist
    assert (kind, call) == ("call", f"apply_patch({found})")


NAMESPACE: Json = {
    "type": "namespace",
    "name": "mcp__docs",
    "description": "The documentation.",
    "tools": [
        {"type": "function", "name": "add", "parameters": SCHEMA},
        {"type": "function", "name": "get_page", "parameters": SCHEMA},
    ],
}
ADD: Json = {"type": "function", "name": "add", "parameters": SCHEMA, "strict": False}
# Tools that a provider runs, or whose form it implies.
HOSTED: dict[str, Json] = {
    "web_search": {"type": "web_search", "external_web_access": True},
    "web_search_preview": {"type": "web_search_preview"},
    "tool_search": {"type": "tool_search", "execution": "client", "parameters": SCHEMA, "description": "x"},
    "tool_search of the server": {"type": "tool_search"},
    "local_shell": {"type": "local_shell"},
    "shell": {"type": "shell", "environment": {"type": "local"}},
    "apply_patch": {"type": "apply_patch"},
    "image_generation": {"type": "image_generation"},
    "file_search": {"type": "file_search", "vector_store_ids": ["vs_1"]},
    "code_interpreter": {"type": "code_interpreter", "container": {"type": "auto"}},
    "mcp": {"type": "mcp", "server_label": "docs", "server_url": "https://docs.example"},
    "computer": {"type": "computer"},
    "one that nobody knows": {"type": "from_next_year", "x": [1]},
}


def sent_with(upstream: str, *tools: Json, **fields: Any) -> UpstreamRequest:
    return translate_request(RESPONSES, upstream, requested(RESPONSES, tools=list(tools), **fields))


@each("upstream", (CHAT, MESSAGES))
@pytest.mark.parametrize("hosted", HOSTED)
def test_H6_no_unsupported_tool_fails_a_request(upstream: str, hosted: str) -> None:
    """It was sent as a function or left out; either way the client can know, and the rest goes. Only
    where nothing is left to be called there is no honest response."""
    sent = sent_with(upstream, HOSTED[hosted], ADD)
    found = functions(upstream, sent.body)
    assert found[-1] == ("add", "", SCHEMA)
    assert sent.losses["/tools/0"] in (["altered"] if len(found) == 2 else ["dropped", "unknown_kind"])
    if len(found) == 2:
        assert len(functions(upstream, sent_with(upstream, HOSTED[hosted]).body)) == 1
        return
    with pytest.raises(RequestRefused, match="the upstream does not run"):
        sent_with(upstream, HOSTED[hosted])


@each("upstream", (CHAT, MESSAGES))
def test_H6_all_of_them_at_once(upstream: str) -> None:
    """No two tools may have one name there."""
    shell = {"type": "function", "name": "shell", "parameters": SCHEMA}
    sent = sent_with(upstream, ADD, APPLY, NAMESPACE, shell, *HOSTED.values())
    names = [name for name, _, _ in functions(upstream, sent.body)]
    assert names[:2] == ["add", "apply_patch"]
    assert len(set(names)) == len(names)


@each("upstream", (CHAT, MESSAGES))
@pytest.mark.parametrize("hosted_first", [True, False])
@pytest.mark.parametrize("hosted", ["shell", "local_shell", "apply_patch"])
def test_H6_a_function_of_the_same_name_is_another_tool(
    upstream: str, hosted: str, hosted_first: bool
) -> None:
    """The client's own function and the vendor's tool of the same name are distinguished, there and back."""
    function = {"type": "function", "name": hosted, "parameters": SCHEMA}
    tools = [HOSTED[hosted], function] if hosted_first else [function, HOSTED[hosted]]
    past = [
        {"type": "function_call", "call_id": "call_1", "name": hosted, "arguments": '{"a": 1}'},
        {"type": "function_call_output", "call_id": "call_1", "output": "ok"},
        *PAST[hosted],
    ]
    body = requested(RESPONSES, *past, tools=tools)
    sent = translate_request(RESPONSES, upstream, body).body
    wires = {json.dumps(schema) == json.dumps(SCHEMA): name for name, _, schema in functions(upstream, sent)}
    assert len(set(wires.values())) == 2
    calls = [(call_id, name) for call_id, name, _ in calls_of(upstream, sent)]
    assert calls == [("call_1", wires[True]), ("call_2", wires[False])]
    back = stream(upstream, Call("call_3", wires[True], ('{"a": 2}',)))
    received = receive(upstream, RESPONSES, back, body)
    ((item),) = received.of("completed")[0]["response"]["output"]
    assert (item["type"], item["name"]) == ("function_call", hosted)
    arguments = json.dumps(ARGUMENTS[hosted])
    received = receive(
        upstream, RESPONSES, stream(upstream, Call("call_4", wires[False], (arguments,))), body
    )
    ((item),) = received.of("completed")[0]["response"]["output"]
    assert item["type"] == f"{hosted}_call"


# What the model writes to call a vendor's tool, and such a call in the history.
ARGUMENTS: dict[str, Json] = {
    "shell": {"commands": ["ls"]},
    "local_shell": {"command": ["ls"]},
    "apply_patch": {"type": "delete_file", "path": "a.txt"},
}
PAST: dict[str, list[Json]] = {
    "shell": [
        {"type": "shell_call", "call_id": "call_2", "action": {"commands": ["ls"]}, "status": "completed"},
        {"type": "shell_call_output", "call_id": "call_2",
         "output": [{"stdout": "a", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}]},
    ],
    "local_shell": [
        {"type": "local_shell_call", "id": "lsh_1", "call_id": "call_2", "status": "completed",
         "action": {"type": "exec", "command": ["ls"], "env": {}}},
        {"type": "local_shell_call_output", "id": "call_2", "output": "a"},
    ],
    "apply_patch": [
        {"type": "apply_patch_call", "call_id": "call_2", "status": "completed",
         "operation": {"type": "delete_file", "path": "a.txt"}},
        {"type": "apply_patch_call_output", "call_id": "call_2", "status": "completed", "output": "ok"},
    ],
}  # fmt: skip


@each("upstream", (CHAT, MESSAGES))
def test_H6_names_of_namespaces_are_flattened_and_restored(upstream: str) -> None:
    body = requested(RESPONSES, tools=[ADD, NAMESPACE])
    names = [name for name, _, _ in functions(upstream, translate_request(RESPONSES, upstream, body).body)]
    assert names == ["add", "mcp__docs__add", "mcp__docs__get_page"]
    calls = [Call(f"call_{number}", name) for number, name in enumerate(names)]
    received = receive(upstream, RESPONSES, stream(upstream, *calls), body)
    output = received.of("completed")[0]["response"]["output"]
    assert [(item["name"], item.get("namespace")) for item in output] == [
        ("add", None),
        ("add", "mcp__docs"),
        ("get_page", "mcp__docs"),
    ]
    added = [event["item"] for event in received.of("output_item.added")]
    assert [(item["name"], item.get("namespace")) for item in added] == [
        (item["name"], item.get("namespace")) for item in output
    ]
    results = [{"type": "function_call_output", "call_id": item["call_id"], "output": "1"} for item in output]
    sent = translate_request(
        RESPONSES, upstream, requested(RESPONSES, *output, *results, tools=[ADD, NAMESPACE])
    ).body
    assert [name for _, name, _ in calls_of(upstream, sent)] == names
    assert refused(upstream, sent) == []


@each("upstream", (CHAT, MESSAGES))
def test_H6_a_flattened_name_that_is_used_already(upstream: str) -> None:
    """The tool `add` of a namespace and a tool whose whole name looks the same."""
    plain = {**ADD, "name": "mcp__docs__add"}
    body = requested(RESPONSES, tools=[NAMESPACE, plain])
    names = [name for name, _, _ in functions(upstream, translate_request(RESPONSES, upstream, body).body)]
    assert len(set(names)) == 3
    received = receive(upstream, RESPONSES, stream(upstream, Call("call_a", names[2])), body)
    (item,) = received.of("completed")[0]["response"]["output"]
    assert (item["name"], item.get("namespace")) == ("mcp__docs__add", None)


@each("upstream", (CHAT, MESSAGES))
def test_H7_additional_tools_items_are_tools(upstream: str) -> None:
    """An `additional_tools` item is no message; what it brings can be called and comes back in its own form."""
    item = {"type": "additional_tools", "role": "developer", "tools": [APPLY, NAMESPACE]}
    body = requested(RESPONSES, item, {"role": "user", "content": "Go on"}, tools=[ADD])
    sent = translate_request(RESPONSES, upstream, body).body
    names = [name for name, _, _ in functions(upstream, sent)]
    assert names == ["add", "apply_patch", "mcp__docs__add", "mcp__docs__get_page"]
    assert [message["role"] for message in sent["messages"]] in (["user", "user"], ["user"])
    assert "additional_tools" not in json.dumps(sent)
    calls = Call("call_a", "apply_patch", (json.dumps({"input": PATCH}),)), Call("call_b", names[2])
    received = receive(upstream, RESPONSES, stream(upstream, *calls), body)
    patch, add = received.of("completed")[0]["response"]["output"]
    assert (patch["type"], patch["input"]) == ("custom_tool_call", PATCH)
    assert (add["name"], add["namespace"]) == ("add", "mcp__docs")


def test_H7_a_relay_keeps_additional_tools_in_place() -> None:
    item = {"type": "additional_tools", "role": "developer", "tools": [APPLY]}
    body = requested(RESPONSES, item, tools=[ADD])
    sent = translate_request(RESPONSES, RESPONSES, body).body
    assert (sent["input"], sent["tools"]) == (body["input"], [ADD])


@each("upstream", (CHAT, MESSAGES))
def test_H1_text_beside_the_call_stays_text(upstream: str) -> None:
    """The case: the model prints the patch, because the request did not have the tool."""
    call = Call("call_a", "apply_patch", (json.dumps({"input": PATCH}),))
    received = receive(upstream, RESPONSES, stream(upstream, Text(PATCH), call), requested(RESPONSES))
    assert received.gist == [("text", PATCH), ("call", f"apply_patch({PATCH})")]
