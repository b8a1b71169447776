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
from dragoman.protocols.anthropic_messages.capabilities import MessagesCapabilities
from dragoman.protocols.openai_chat.capabilities import ChatCapabilities

pytestmark = pytest.mark.each_protocol

Json = dict[str, Any]


# --- limits and roles ---------------------------------------------------------------------------------------------

LIMITS = {
    CHAT: ("max_tokens", "max_completion_tokens"),
    MESSAGES: ("max_tokens",),
    RESPONSES: ("max_output_tokens",),
}
ALL_LIMITS = {name for names in LIMITS.values() for name in names}


def limit_in(body: Json) -> Json:
    return {name: body[name] for name in body.keys() & ALL_LIMITS}


def test_I7_the_limit_has_the_upstreams_name() -> None:
    """And both names of Chat are read."""
    for field in LIMITS[CHAT]:
        capabilities = ChatCapabilities(max_tokens_field=field)
        for other in (MESSAGES, RESPONSES):
            (own,) = LIMITS[other]
            body = {**request(other, User("Hi")), own: 77}
            assert limit_in(translate_request(other, CHAT, body, capabilities=capabilities).body) == {
                field: 77
            }
            body = {**request(CHAT, User("Hi")), field: 77}
            assert limit_in(translate_request(CHAT, other, body).body) == {own: 77}


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
        assert limit_in(up.sent) == {expected: 77}


def with_roles(client: str, role: str) -> Json:
    body = request(client, User("Hi"), tools=())
    body["input" if client == RESPONSES else "messages"].insert(0, {"role": role, "content": "Be brief."})
    return body


@pytest.mark.parametrize("role", ["developer", "system"])
def test_I8_roles_that_the_model_refuses_are_changed(role: str) -> None:
    for knows in (True, False):
        capabilities = ChatCapabilities(developer_role=knows)
        sent = translate_request(RESPONSES, CHAT, with_roles(RESPONSES, role), capabilities=capabilities).body
        first = sent["messages"][0]
        assert (first["role"], text_in(first["content"])) == (role if knows else "system", "Be brief.")
    for client in (CHAT, RESPONSES):
        sent = translate_request(client, MESSAGES, with_roles(client, role)).body
        assert text_in(sent["system"]) == "Be brief."
        assert [message["role"] for message in sent["messages"]] == ["user"]


@each("client", (CHAT, RESPONSES))
def test_I9_max_tokens_is_always_sent(client: str) -> None:
    """A client need not name one; Messages requires one."""
    for capabilities in (MessagesCapabilities(), MessagesCapabilities(max_tokens=555)):
        sent = translate_request(
            client, MESSAGES, request(client, User("Hi")), capabilities=capabilities
        ).body
        assert sent["max_tokens"] == capabilities.max_tokens


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


# A choice of tools in each protocol.
CHOICES: dict[str, dict[str, Any]] = {
    "absent": {CHAT: None, RESPONSES: None, MESSAGES: None},
    "auto": {CHAT: "auto", RESPONSES: "auto", MESSAGES: {"type": "auto"}},
    "any": {CHAT: "required", RESPONSES: "required", MESSAGES: {"type": "any"}},
    "none": {CHAT: "none", RESPONSES: "none", MESSAGES: {"type": "none"}},
    "named": {
        CHAT: {"type": "function", "function": {"name": "add"}},
        RESPONSES: {"type": "function", "name": "add"},
        MESSAGES: {"type": "tool", "name": "add"},
    },
}


@each_structured
@pytest.mark.parametrize("choice", CHOICES)
def test_I14_the_clients_own_choice_wins(structured: Any, choice: str) -> None:
    """Its tools stay the only ones, and nothing is forced that it did not force."""
    own = CHOICES[choice]
    body = formed(CHAT, tools=("add",), **({} if own[CHAT] is None else {"tool_choice": own[CHAT]}))
    capabilities = Capabilities(structured_output=structured)
    sent = translate_request(CHAT, MESSAGES, body, capabilities=capabilities).body
    assert [tool["name"] for tool in sent["tools"]] == ["add"]
    assert sent.get("tool_choice") == own[MESSAGES]
    assert ("format" in sent.get("output_config", {})) is (structured == "schema")


@each_structured
@pytest.mark.parametrize("thinking", ["adaptive", "budget"])
def test_I14_nothing_is_forced_beside_thinking(structured: Any, thinking: Any) -> None:
    """The vendor refuses a forced tool while the model thinks."""
    capabilities = MessagesCapabilities(structured_output=structured, thinking=thinking)
    sent = translate_request(
        CHAT, MESSAGES, formed(CHAT, reasoning_effort="high"), capabilities=capabilities
    ).body
    assert sent["thinking"]["type"] in ("adaptive", "enabled")
    assert not {"tool_choice", "tools"} & sent.keys()
    requested = json.dumps(sent.get("output_config", {})) + text_in(sent.get("system"))
    assert '"b"' in requested.replace("\\", ""), "the form is asked for all the same"


def test_I14_tool_choice_none_forces_no_tool() -> None:
    capabilities = Capabilities(structured_output="none")
    sent = translate_request(CHAT, MESSAGES, formed(CHAT, tool_choice="none"), capabilities=capabilities).body
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


@pytest.mark.parametrize("choice", CHOICES)
def test_I16_I17_I18_I19_tools_and_choices_have_the_upstreams_form(choice: str) -> None:
    """One call at a time is a member of the choice of Messages, and a setting of the other two: it forces no call."""
    for client in PROTOCOL_NAMES:
        for alone in (None, False, True):
            chosen, fields = CHOICES[choice][client], {}
            if client == MESSAGES and alone is not None:
                if choice in ("absent", "none"):
                    continue  # has no place there
                chosen = {**chosen, "disable_parallel_tool_use": alone}
            elif alone is not None:
                fields["parallel_tool_calls"] = not alone
            fields |= {} if chosen is None else {"tool_choice": chosen}
            body = request(client, User("Hi"), **fields)
            (body["tools"][0].get("function") or body["tools"][0])["description"] = "Adds."
            for upstream in PROTOCOL_NAMES:
                sent = translate_request(client, upstream, body)
                if client == upstream:
                    assert sent.body == body
                    continue
                assert sent.losses == {}
                check_choice(upstream, sent.body, choice, alone=bool(alone))
                check_tool(upstream, sent.body["tools"])


def check_choice(upstream: str, sent: Json, choice: str, *, alone: bool) -> None:
    expected = CHOICES[choice][upstream]
    if upstream != MESSAGES:
        assert sent.get("tool_choice") in (expected, *([None] if choice == "auto" else []))
        assert sent.get("parallel_tool_calls", True) is not alone
    elif alone and choice != "none":
        assert sent["tool_choice"] == {**(expected or {"type": "auto"}), "disable_parallel_tool_use": True}
    else:
        found = sent.get("tool_choice")
        assert found == expected or (found, choice) in [({"type": "auto"}, "absent"), (None, "auto")]


def check_tool(upstream: str, tools: list[Json]) -> None:
    (tool,) = tools
    assert tool.get("type", "function") == "function"
    inner = tool["function"] if upstream == CHAT else tool
    schema = "input_schema" if upstream == MESSAGES else "parameters"
    expected = {"name": "add", "description": "Adds.", schema: SCHEMA}
    assert {name: inner[name] for name in inner if name not in ("type", "strict")} == expected


@each("client", (CHAT, RESPONSES))
def test_I17_a_choice_without_tools_is_not_sent(client: str) -> None:
    body = request(client, User("Hi"), tools=(), parallel_tool_calls=False)
    assert "tool_choice" not in translate_request(client, MESSAGES, body).body


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
def test_I20_mapped_names_are_valid_and_distinct_there_and_the_clients_own_here(
    client: str, upstream: str
) -> None:
    """Of tools, of calls in the history, of the choice; a response has the client's name of the tool."""
    body = request(client, User("Hi"), tools=ODD_NAMES, stream=True)
    names = wire_names(upstream, translate_request(client, upstream, body).body)
    assert all(re.fullmatch(r"[a-zA-Z0-9_-]+", name) for name in names)
    assert max(map(len, names)) <= ALLOWED[upstream]
    assert len(set(names)) == len(ODD_NAMES)
    calls = [Call(f"call_{number}", name) for number, name in enumerate(names)]
    received = receive(upstream, client, stream(upstream, *calls), body, include_usage=False)
    assert [call.name for call in received.meaning.calls] == list(ODD_NAMES)
    turn = [Call(f"call_{number}", name) for number, name in enumerate(ODD_NAMES)]
    results = [Result(call.id) for call in turn]
    turns = request(client, User("Hi"), model(*turn), *results, tools=ODD_NAMES)
    sent = translate_request(client, upstream, turns).body
    assert [name for _, name, _ in calls_of(upstream, sent)] == names == wire_names(upstream, sent)
    assert refused(upstream, sent) == []
    for name, wire in zip(ODD_NAMES, names, strict=True):
        sent = translate_request(client, upstream, {**body, "tool_choice": named(client, name)}).body
        assert sent["tool_choice"] == named(upstream, wire)


def named(protocol: str, name: str) -> Json:
    """The choice of one tool."""
    choice: Json = CHOICES["named"][protocol]
    return {**choice, "function": {"name": name}} if protocol == CHAT else {**choice, "name": name}
