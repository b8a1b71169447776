"""I. Requests: limits, roles, tool choices, structured output and names, each in the upstream's form."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from failures.gateway import UpstreamResponse, gateway, path_of, request_for
from failures.responses import Call, Text, stream
from failures.rules import refused
from failures.translate import each, pairs, receive, translate_request
from failures.turns import SCHEMA, Result, User, calls_of, model, request, text_in
from laws.clients import spec_of
from oracle import CHAT, CLIENTS, MESSAGES, PROTOCOL_NAMES, RESPONSES, check_whole

from dragoman import UPSTREAMS, Capabilities, ResponseTranslator

pytestmark = pytest.mark.each_protocol

Json = dict[str, Any]


# --- limits and roles ---------------------------------------------------------------------------------------------

LIMITS = {
    CHAT: ("max_tokens", "max_completion_tokens"),
    MESSAGES: ("max_tokens",),
    RESPONSES: ("max_output_tokens",),
}
ALL_LIMITS = {name for names in LIMITS.values() for name in names}
# (client, its name for the limit)
each_limit_name = pytest.mark.parametrize(
    ("client", "limit"),
    [(client, name) for client in (MESSAGES, RESPONSES) for name in LIMITS[client]],
    ids=["messages", "responses"],
)


@each_limit_name
@pytest.mark.parametrize("expected", LIMITS[CHAT])
def test_I7_the_limit_has_the_upstreams_name(client: str, limit: str, expected: Any) -> None:
    body = {**request(client, User("Hi")), limit: 77}
    sent = translate_request(client, CHAT, body, capabilities=Capabilities(max_tokens_field=expected)).body
    assert {name: sent[name] for name in sent.keys() & ALL_LIMITS} == {expected: 77}


@pytest.mark.parametrize("limit", LIMITS[CHAT])
@each("upstream", (MESSAGES, RESPONSES))
def test_I7_both_names_of_chat_are_read(limit: str, upstream: str) -> None:
    sent = translate_request(CHAT, upstream, {**request(CHAT, User("Hi")), limit: 77}).body
    assert {name: sent[name] for name in sent.keys() & ALL_LIMITS} == {LIMITS[upstream][0]: 77}


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("base_url", "expected"),
    [("https://api.openai.com/v1", "max_completion_tokens"), ("https://api.mistral.ai/v1", "max_tokens")],
)
async def test_I7_known_hosts_need_no_setting(base_url: str, expected: str) -> None:
    async with gateway(
        CHAT, UpstreamResponse([stream(CHAT, Text("Hi"))]), upstream={"base_url": base_url}
    ) as up:
        await up.call("/v1/messages", request_for(MESSAGES, CHAT, max_tokens=77))
        assert {name: up.sent[name] for name in up.sent.keys() & ALL_LIMITS} == {expected: 77}


def with_roles(client: str, role: str) -> Json:
    body = request(client, User("Hi"), tools=())
    body["input" if client == RESPONSES else "messages"].insert(0, {"role": role, "content": "Be brief."})
    return body


@pytest.mark.parametrize("role", ["developer", "system"])
@pytest.mark.parametrize("knows", [True, False])
def test_I8_roles_that_the_model_refuses_are_changed(role: str, knows: bool) -> None:
    sent = translate_request(
        RESPONSES, CHAT, with_roles(RESPONSES, role), capabilities=Capabilities(developer_role=knows)
    ).body
    first = sent["messages"][0]
    assert first["role"] == (role if knows else "system")
    assert text_in(first["content"]) == "Be brief."


@pytest.mark.parametrize("role", ["developer", "system"])
def test_I8_messages_has_a_system_field(role: str) -> None:
    for client in (CHAT, RESPONSES):
        sent = translate_request(client, MESSAGES, with_roles(client, role)).body
        assert text_in(sent["system"]) == "Be brief."
        assert [message["role"] for message in sent["messages"]] == ["user"]


@pairs((CHAT, RESPONSES), [MESSAGES])
def test_I9_max_tokens_is_always_sent(client: str, upstream: str) -> None:
    """A client need not name one; Messages requires one."""
    assert (
        translate_request(client, upstream, request(client, User("Hi"))).body["max_tokens"]
        == Capabilities().max_tokens
    )
    sent = translate_request(
        client, upstream, request(client, User("Hi")), capabilities=Capabilities(max_tokens=555)
    ).body
    assert sent["max_tokens"] == 555


@pytest.mark.anyio
@each("client", [client for client in CLIENTS if client != MESSAGES])
async def test_I9_max_tokens_has_a_default(client: str) -> None:
    configured: dict[str, Any] = {"default_max_tokens": 999}
    for server, limit in (({}, 32_000), (configured, 999)):
        async with gateway(MESSAGES, UpstreamResponse([stream(MESSAGES, Text("Hi"))]), **server) as up:
            received = await up.call(path_of(client), request_for(client, MESSAGES))
            assert received.status == 200
            assert up.sent["max_tokens"] == limit


# --- structured output --------------------------------------------------------------------------------------------

FORM: Json = {
    "type": "object",
    "properties": {"a": {"type": "object", "properties": {"b": {"type": "integer", "minimum": 3}}}},
    "required": ["a"],
}
RESPONSE = '{"a": {"b": 7}}'
# What the upstream can do by itself.
STRUCTURED: tuple[Any, ...] = ("schema", "object", "none")
each_structured = pytest.mark.parametrize("structured", STRUCTURED)


def formed(client: str, *, tools: tuple[str, ...] = (), **fields: Any) -> Json:
    """A request for a response in the form of FORM."""
    body = request(client, User("Hi"), tools=tools, stream=True, **fields)
    if client == CHAT:
        inner = {"name": "found", "schema": FORM, "strict": True}
        return body | {"response_format": {"type": "json_schema", "json_schema": inner}}
    if client == RESPONSES:
        return body | {
            "text": {"format": {"type": "json_schema", "name": "found", "schema": FORM, "strict": True}}
        }
    return body | {"output_config": {"format": {"type": "json_schema", "schema": FORM}}}


def translated_response(upstream: str, body: Json) -> bytes:
    """Return the upstream's blocks for a request: a call of the forced tool, or else text."""
    choice = body.get("tool_choice")
    if isinstance(choice, dict):
        name = choice.get("name") or choice.get("function", {}).get("name")
        if name:
            return stream(upstream, Call("call_x", name, (RESPONSE[:6], RESPONSE[6:])))
    return stream(upstream, Text(RESPONSE))


ENDED = {CHAT: "stop", MESSAGES: "end_turn", RESPONSES: "completed"}


@pairs()
@each_structured
def test_I13_the_response_to_a_schema_is_text(client: str, upstream: str, structured: Any) -> None:
    """No call of a tool that the client never offered, and no stop that waits for its result."""
    body, capabilities = formed(client), Capabilities(structured_output=structured)
    sent = translate_request(client, upstream, body, capabilities=capabilities).body
    received = receive(
        upstream,
        client,
        translated_response(upstream, sent),
        body,
        capabilities=capabilities,
        include_usage=False,
    )
    assert received.gist == [("text", RESPONSE)]
    assert received.finish == ENDED[client]
    requested_by_tool = bool(sent.get("tools"))
    assert requested_by_tool is (structured == "none")


@pairs()
@each_structured
def test_I13_a_whole_response_to_a_schema_is_text(client: str, upstream: str, structured: Any) -> None:
    requested = translate_request(
        client,
        upstream,
        formed(client) | {"stream": False},
        capabilities=Capabilities(structured_output=structured),
    )
    machine = ResponseTranslator(
        client=spec_of(client),
        upstream=UPSTREAMS[upstream],
        context=requested.response_context(),
        client_streams=False,
    )
    machine.receive_data(translated_response(upstream, requested.body))
    machine.receive_eof()
    data = machine.data_to_send()
    assert check_whole(client, data) == []
    whole = json.loads(data)
    if client == CHAT:
        (choice,) = whole["choices"]
        assert (choice["message"]["content"], choice["finish_reason"]) == (RESPONSE, "stop")
        assert not choice["message"].get("tool_calls")
    elif client == MESSAGES:
        assert [(block["type"], block["text"]) for block in whole["content"]] == [("text", RESPONSE)]
        assert whole["stop_reason"] == "end_turn"
    else:
        assert [item["type"] for item in whole["output"]] == ["message"]


CHOICES: dict[str, Any] = {
    "absent": None,
    "none": "none",
    "auto": "auto",
    "required": "required",
    "named": {"type": "function", "function": {"name": "add"}},
}
IN_MESSAGES = {
    "absent": None,
    "none": {"type": "none"},
    "auto": {"type": "auto"},
    "required": {"type": "any"},
    "named": {"type": "tool", "name": "add"},
}


@each_structured
@pytest.mark.parametrize("choice", CHOICES)
def test_I14_the_clients_own_choice_wins(structured: Any, choice: str) -> None:
    """Its tools stay the only ones, and nothing is forced that it did not force."""
    fields = {} if CHOICES[choice] is None else {"tool_choice": CHOICES[choice]}
    body = formed(CHAT, tools=("add",), **fields)
    sent = translate_request(
        CHAT, MESSAGES, body, capabilities=Capabilities(structured_output=structured)
    ).body
    assert [tool["name"] for tool in sent["tools"]] == ["add"]
    assert sent.get("tool_choice") == IN_MESSAGES[choice]
    assert ("format" in sent.get("output_config", {})) is (structured == "schema")


@each_structured
@pytest.mark.parametrize("thinking", ["adaptive", "budget"])
def test_I14_nothing_is_forced_beside_thinking(structured: Any, thinking: Any) -> None:
    """The vendor refuses a forced tool while the model thinks."""
    body = formed(CHAT, reasoning_effort="high")
    sent = translate_request(
        CHAT, MESSAGES, body, capabilities=Capabilities(structured_output=structured, thinking=thinking)
    ).body
    assert sent["thinking"]["type"] in ("adaptive", "enabled")
    assert "tool_choice" not in sent
    assert "tools" not in sent
    requested = json.dumps(sent.get("output_config", {})) + text_in(sent.get("system"))
    assert '"b"' in requested.replace("\\", ""), "the form is asked for all the same"


def test_I14_tool_choice_none_forces_no_tool() -> None:
    sent = translate_request(
        CHAT, MESSAGES, formed(CHAT, tool_choice="none"), capabilities=Capabilities(structured_output="none")
    ).body
    assert "tools" not in sent
    assert sent.get("tool_choice") in (None, {"type": "none"})


def objects_in(schema: Any) -> list[Json]:
    if isinstance(schema, list):
        return [found for each_ in schema for found in objects_in(each_)]
    if not isinstance(schema, dict):
        return []
    found = [schema] if schema.get("type") == "object" else []
    return found + objects_in(list(schema.values()))


@pairs((CHAT, RESPONSES), [MESSAGES])
def test_I15_the_schema_is_as_strict_as_the_upstream_requires(client: str, upstream: str) -> None:
    sent = translate_request(client, upstream, formed(client))
    schema = sent.body["output_config"]["format"]["schema"]
    objects = objects_in(schema)
    assert len(objects) == 2
    assert all(each_["additionalProperties"] is False for each_ in objects)
    assert "minimum" not in schema["properties"]["a"]["properties"]["b"], "not a keyword that it takes"
    assert schema["required"] == ["a"]
    assert set(sent.losses.values()) == {"altered"}


FENCED = {
    "bare": RESPONSE,
    "fence": f"```json\n{RESPONSE}\n```",
    "plain fence": f"```\n{RESPONSE}\n```\n",
    "blanks": f"\n ```json\n{RESPONSE}\n``` ",
}


@pairs((CHAT, RESPONSES), PROTOCOL_NAMES)
@pytest.mark.parametrize("fenced", FENCED)
@pytest.mark.parametrize("structured", ["object", "none"])
def test_I15_the_content_is_bare_json(client: str, upstream: str, fenced: str, structured: Any) -> None:
    """Where an instruction requested it: a client parses the content as it is."""
    body, capabilities = formed(client, tools=("add",)), Capabilities(structured_output=structured)
    data = stream(upstream, *[Text(text) for text in [FENCED[fenced]]])
    received = receive(upstream, client, data, body, capabilities=capabilities, include_usage=False)
    assert received.gist == [("text", RESPONSE)]


# --- tools and choices --------------------------------------------------------------------------------------------

# Messages' choice -> that of the other two.
IN_CHAT: dict[str, tuple[Json, Any]] = {
    "auto": ({"type": "auto"}, "auto"),
    "any": ({"type": "any"}, "required"),
    "none": ({"type": "none"}, "none"),
    "tool": ({"type": "tool", "name": "add"}, {"type": "function", "function": {"name": "add"}}),
}


def for_responses(choice: Any) -> Any:
    return choice if isinstance(choice, str) else {"type": "function", **choice["function"]}


@each("upstream", (CHAT, RESPONSES))
@pytest.mark.parametrize("choice", ["auto", "any", "tool"])
@pytest.mark.parametrize("alone", [True, False])
def test_I16_one_call_at_a_time_is_requested(upstream: str, choice: str, alone: bool) -> None:
    tool_choice, upstream_meaning = IN_CHAT[choice]
    body = request(MESSAGES, User("Hi"), tool_choice={**tool_choice, "disable_parallel_tool_use": alone})
    sent = translate_request(MESSAGES, upstream, body)
    assert sent.body.get("parallel_tool_calls", True) is not alone
    # Chat's default is left out.
    assert sent.body.get("tool_choice", "auto") == (
        upstream_meaning if upstream == CHAT else for_responses(upstream_meaning)
    )
    assert sent.losses == {}


@pytest.mark.parametrize("choice", ["auto", "any", "tool"])
def test_I16_a_relay_keeps_the_setting_for_parallel_calls(choice: str) -> None:
    tool_choice = {**IN_CHAT[choice][0], "disable_parallel_tool_use": True}
    body = request(MESSAGES, User("Hi"), tool_choice=tool_choice)
    assert translate_request(MESSAGES, MESSAGES, body).body["tool_choice"] == tool_choice


@pairs((CHAT, RESPONSES), [MESSAGES])
def test_I17_one_call_at_a_time_forces_no_call(client: str, upstream: str) -> None:
    """The setting has no place of its own there: it rides on the choice that leaves all open."""
    sent = translate_request(client, upstream, request(client, User("Hi"), parallel_tool_calls=False)).body
    assert sent["tool_choice"] == {"type": "auto", "disable_parallel_tool_use": True}
    both = translate_request(client, upstream, request(client, User("Hi"), parallel_tool_calls=True)).body
    assert both.get("tool_choice", {"type": "auto"}) == {"type": "auto"}
    bare = translate_request(
        client, upstream, request(client, User("Hi"), tools=(), parallel_tool_calls=False)
    ).body
    assert "tool_choice" not in bare, "a choice without tools is refused"


@pairs((CHAT, RESPONSES), [MESSAGES])
@pytest.mark.parametrize("alone", [None, True, False])
def test_I18_none_stays_none(client: str, upstream: str, alone: bool | None) -> None:
    fields: Json = {} if alone is None else {"parallel_tool_calls": not alone}
    sent = translate_request(client, upstream, request(client, User("Hi"), tool_choice="none", **fields)).body
    assert sent["tool_choice"] == {"type": "none"}
    assert [tool["name"] for tool in sent["tools"]] == ["add"], "earlier calls of it are in the history"


@each("upstream", (CHAT, RESPONSES))
@pytest.mark.parametrize("choice", IN_CHAT)
def test_I19_tools_and_choice_are_in_the_upstreams_form(upstream: str, choice: str) -> None:
    tool_choice, upstream_meaning = IN_CHAT[choice]
    body = request(MESSAGES, User("Hi"), tool_choice=tool_choice)
    body["tools"][0]["description"] = "Adds."
    sent = translate_request(MESSAGES, upstream, body).body
    assert sent.get("tool_choice", "auto") == (
        upstream_meaning if upstream == CHAT else for_responses(upstream_meaning)
    )
    (tool,) = sent["tools"]
    assert tool["type"] == "function"
    inner = tool["function"] if upstream == CHAT else tool
    assert {name: inner[name] for name in ("name", "description", "parameters")} == {
        "name": "add",
        "description": "Adds.",
        "parameters": SCHEMA,
    }
    assert "input_schema" not in inner


@pairs((CHAT, RESPONSES), PROTOCOL_NAMES)
@pytest.mark.parametrize("choice", IN_CHAT)
def test_I19_calls_are_in_the_clients_form(client: str, upstream: str, choice: str) -> None:
    in_messages, in_chat = IN_CHAT[choice]
    tool_choice = in_chat if client == CHAT else for_responses(in_chat)
    sent = translate_request(client, upstream, request(client, User("Hi"), tool_choice=tool_choice)).body
    forms = {CHAT: in_chat, RESPONSES: for_responses(in_chat), MESSAGES: in_messages}
    assert sent.get("tool_choice", "auto") == forms[upstream]


# --- names --------------------------------------------------------------------------------------------------------

LONG = "mcp__a_server_with_a_very_long_name_indeed__and_a_tool_with_a_longer_one_"
ODD_NAMES = (
    "mcp.files.read",
    "mcp_files.read",
    "mcp/files/read",
    "größe",
    f"{LONG}1",
    f"{LONG}2",
    f"{LONG * 3}",
)
ALLOWED = {CHAT: 64, MESSAGES: 128, RESPONSES: 64}


def wire_names(upstream: str, body: Json) -> list[str]:
    return [(tool.get("function") or tool)["name"] for tool in body["tools"]]


@pairs()
def test_I20_mapped_names_are_valid_and_distinct(client: str, upstream: str) -> None:
    names = wire_names(
        upstream, translate_request(client, upstream, request(client, User("Hi"), tools=ODD_NAMES)).body
    )
    assert all(re.fullmatch(r"[a-zA-Z0-9_-]+", name) for name in names)
    assert max(map(len, names)) <= ALLOWED[upstream]
    assert len(set(names)) == len(ODD_NAMES)


@pairs()
def test_I20_responses_and_history_have_the_clients_names(client: str, upstream: str) -> None:
    """A response has the client's name of the tool, and the next request with that name is translated."""
    body = request(client, User("Hi"), tools=ODD_NAMES, stream=True)
    names = wire_names(upstream, translate_request(client, upstream, body).body)
    calls = [Call(f"call_{number}", name) for number, name in enumerate(names)]
    received = receive(upstream, client, stream(upstream, *calls), body, include_usage=False)
    assert [call.name for call in received.meaning.calls] == list(ODD_NAMES)
    turn = [Call(f"call_{number}", name) for number, name in enumerate(ODD_NAMES)]
    results = [Result(call.id) for call in turn]
    turns = request(client, User("Hi"), model(*turn), *results, tools=ODD_NAMES)
    sent = translate_request(client, upstream, turns).body
    assert [name for _, name, _ in calls_of(upstream, sent)] == names == wire_names(upstream, sent)
    assert refused(upstream, sent) == []


NAMED: dict[str, Any] = {
    CHAT: lambda name: {"type": "function", "function": {"name": name}},
    MESSAGES: lambda name: {"type": "tool", "name": name},
    RESPONSES: lambda name: {"type": "function", "name": name},
}


@pairs()
@pytest.mark.parametrize("name", ODD_NAMES)
def test_I20_a_choice_names_the_same_tool(client: str, upstream: str, name: str) -> None:
    body = request(client, User("Hi"), tools=ODD_NAMES, tool_choice=NAMED[client](name))
    sent = translate_request(client, upstream, body).body
    wire = wire_names(upstream, sent)[ODD_NAMES.index(name)]
    assert sent["tool_choice"] == NAMED[upstream](wire)
