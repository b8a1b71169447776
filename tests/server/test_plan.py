"""One request planned: settings, headers and bytes in; the upstream's bytes, URL and headers out."""

import json
from typing import Any

import pytest

from dragoman import REGISTRY, Relay, RemoteProtocolError, ResponseTranslator
from dragoman_server._secret import Secret
from dragoman_server.plan import Plan, make_plan
from dragoman_server.settings import ServerSettings, Settings, UpstreamSettings

CHAT, MESSAGES, RESPONSES = PROTOCOLS = ("openai_chat", "anthropic_messages", "openai_responses")
CANARY = "sk-canary-0123456789-abcdefghij-wq7zk"

BODIES: dict[str, dict[str, Any]] = {
    CHAT: {"model": "up/m", "messages": [{"role": "user", "content": "Hi"}]},
    MESSAGES: {"model": "up/m", "max_tokens": 50, "messages": [{"role": "user", "content": "Hi"}]},
    RESPONSES: {"model": "up/m", "input": "Hi"},
}


def plan(
    client: str,
    protocol: str,
    body: dict[str, Any] | None = None,
    *,
    query: str = "",
    headers: dict[str, str] | None = None,
    server: ServerSettings | None = None,
    **upstream: Any,
) -> Plan:
    base = "http://127.0.0.1:9" if protocol == MESSAGES else "http://127.0.0.1:9/v1"
    settings = Settings(
        server=server or ServerSettings(),
        upstreams=(UpstreamSettings(name="up", protocol=protocol, base_url=base, **upstream),),
    )
    data = json.dumps({**BODIES[client], **(body or {})}).encode()
    return make_plan(settings, REGISTRY[client], headers or {}, query, data, id="abc", now=5)


def sent(*arguments: Any, **more: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(plan(*arguments, **more).translated.body)
    return found


@pytest.mark.parametrize("client", PROTOCOLS)
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_where_a_request_goes(client: str, protocol: str) -> None:
    made = plan(client, protocol)
    paths = {CHAT: "/v1/chat/completions", MESSAGES: "/v1/messages", RESPONSES: "/v1/responses"}
    assert made.url == "http://127.0.0.1:9" + paths[protocol]
    assert made.upstream_model == json.loads(made.translated.body)["model"] == "m"
    assert made.translated.relayed is (client == protocol)
    assert made.exchange.model == "up/m"


@pytest.mark.parametrize(
    ("client", "protocol", "query", "kept"),
    [
        (MESSAGES, MESSAGES, "beta=true", "?beta=true"),
        (MESSAGES, MESSAGES, "beta=true&x=1", ""),
        (MESSAGES, MESSAGES, "key=secret", ""),
        (MESSAGES, CHAT, "beta=true", ""),
    ],
)
def test_the_query_that_a_relay_keeps(client: str, protocol: str, query: str, kept: str) -> None:
    _, mark, found = plan(client, protocol, query=query).url.partition("?")
    assert mark + found == kept


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("upstream_streams", [True, False])
@pytest.mark.parametrize("protocol", [CHAT, MESSAGES])
def test_an_answer_is_relayed_where_both_bodies_have_one_form(
    stream: bool, upstream_streams: bool, protocol: str
) -> None:
    made = plan(CHAT, protocol, {"stream": stream})
    relayed = protocol == CHAT and stream == upstream_streams
    assert type(made.answer(upstream_streams=upstream_streams)) is (Relay if relayed else ResponseTranslator)


def test_timeouts_and_proxy_are_the_upstreams() -> None:
    made = plan(CHAT, CHAT, connect_s=1.0, read_s=2.0, write_s=3.0, pool_s=4.0, proxy=Secret("http://p:1"))
    limits = made.timeouts
    assert (limits.connect_s, limits.read_s, limits.write_s, limits.pool_s) == (1.0, 2.0, 3.0, 4.0)
    assert made.proxy == "http://p:1"
    assert plan(CHAT, CHAT).proxy is None


def test_no_secret_is_in_the_repr() -> None:
    made = plan(CHAT, CHAT, api_key=Secret(CANARY), proxy=Secret(f"http://u:{CANARY}@p:1"))
    assert ("authorization", f"Bearer {CANARY}") in made.headers
    assert CANARY not in repr(made)


@pytest.mark.parametrize("client", PROTOCOLS)
@pytest.mark.parametrize("model", [None, ""])
def test_a_model_is_required(client: str, model: str | None) -> None:
    with pytest.raises(RemoteProtocolError, match="model is required") as caught:
        plan(client, CHAT, {"model": model})
    assert (caught.value.status_hint, caught.value.param) == (400, "model")


def test_a_model_that_leads_nowhere() -> None:
    two = (
        UpstreamSettings(name="up", protocol=CHAT, base_url="http://127.0.0.1:9/v1"),
        UpstreamSettings(name="other", protocol=CHAT, base_url="http://127.0.0.1:9/v1"),
    )
    body = json.dumps({**BODIES[CHAT], "model": "upp/m"}).encode()
    with pytest.raises(RemoteProtocolError, match='did you mean "up/m"') as caught:
        make_plan(Settings(upstreams=two), REGISTRY[CHAT], {}, "", body, id="abc", now=5)
    assert (caught.value.status_hint, caught.value.code) == (404, "model_not_found")


@pytest.mark.parametrize(
    ("server", "upstream", "refused"),
    [
        ("record", None, False),
        ("refuse", None, True),
        ("refuse", "record", False),
        ("record", "refuse", True),
    ],
)
def test_the_loss_policy_is_the_upstreams_else_the_servers(
    server: str, upstream: str | None, refused: bool
) -> None:
    def make() -> Plan:
        settings = ServerSettings(loss_policy=server)
        return plan(CHAT, MESSAGES, {"seed": 1}, server=settings, loss_policy=upstream)

    if refused:
        with pytest.raises(RemoteProtocolError, match="seed"):
            make()
    else:
        assert [loss.path for loss in make().translated.losses] == ["/seed"]


# What an upstream takes.


@pytest.mark.parametrize(("own", "limit"), [(None, 700), (300, 300)])
def test_max_tokens_where_the_client_gave_none(own: int | None, limit: int) -> None:
    server = ServerSettings(default_max_tokens=700)
    assert sent(CHAT, MESSAGES, server=server, max_tokens=own)["max_tokens"] == limit
    given = sent(CHAT, MESSAGES, {"max_tokens": 9}, server=server, max_tokens=own)
    assert given["max_tokens"] == 9


@pytest.mark.parametrize("field", ["max_tokens", "max_completion_tokens"])
def test_the_name_of_the_limit(field: str) -> None:
    assert sent(MESSAGES, CHAT, max_tokens_field=field)[field] == 50


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning", "none"])
def test_where_earlier_reasoning_goes(field: str) -> None:
    turns = [
        {"type": "message", "role": "user", "content": "Hi"},
        {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "Hm."}]},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Ho"}]},
        {"type": "message", "role": "user", "content": "Hi"},
    ]
    message = sent(RESPONSES, CHAT, {"input": turns}, reasoning_field=field)["messages"][1]
    assert {name: message.get(name) for name in ("reasoning_content", "reasoning")} == {
        name: "Hm." if name == field else None for name in ("reasoning_content", "reasoning")
    }


CUSTOM = {"tools": [{"type": "custom", "name": "apply_patch"}]}


@pytest.mark.parametrize(
    ("client", "protocol", "said", "kind"),
    [
        (RESPONSES, CHAT, None, "function"),
        (RESPONSES, CHAT, False, "function"),
        (RESPONSES, CHAT, True, "custom"),
        (CHAT, RESPONSES, None, "custom"),
        (CHAT, RESPONSES, True, "custom"),
        (CHAT, RESPONSES, False, "function"),
    ],
)
def test_custom_tools(client: str, protocol: str, said: bool | None, kind: str) -> None:
    tools = (
        CUSTOM if client == RESPONSES else {"tools": [{"type": "custom", "custom": {"name": "apply_patch"}}]}
    )
    (tool,) = sent(client, protocol, tools, custom_tools=said)["tools"]
    assert tool["type"] == kind


@pytest.mark.parametrize(("said", "role"), [(True, "developer"), (False, "system")])
def test_the_role_developer(said: bool, role: str) -> None:
    turns = [{"role": "developer", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
    messages = sent(RESPONSES, CHAT, {"input": turns}, developer_role=said)["messages"]
    assert messages[0] == {"role": role, "content": "Be brief."}


@pytest.mark.parametrize(("said", "role"), [(True, "system"), (False, "user")])
@pytest.mark.parametrize(("client", "protocol"), [(CHAT, MESSAGES), (RESPONSES, CHAT)])
def test_system_messages_in_mid_conversation(client: str, protocol: str, said: bool, role: str) -> None:
    turns = [
        {"role": "user", "content": "Hi"},
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Ho"},
    ]
    body = {"messages" if client == CHAT else "input": turns}
    messages = sent(client, protocol, body, mid_system=said)["messages"]
    assert next(m["role"] for m in messages if "Be brief." in json.dumps(m)) == role


@pytest.mark.parametrize("protocol", [CHAT, RESPONSES])
@pytest.mark.parametrize("said", [True, False])
def test_cache_marks(protocol: str, said: bool) -> None:
    content = [{"type": "text", "text": "Hi", "cache_control": {"type": "ephemeral"}}]
    made = plan(MESSAGES, protocol, {"messages": [{"role": "user", "content": content}]}, cache_marks=said)
    assert (b"prompt_cache_breakpoint" in made.translated.body) is said
    assert len(made.translated.losses) == (0 if said else 1)


@pytest.mark.parametrize(
    ("version", "said", "kept"),
    [
        ("2023-06-01", None, True),
        ("bedrock-2023-05-31", None, True),
        ("2026-10-21", None, False),
        ("2027-01-01", None, False),
        ("2026-10-21", True, True),
        ("2023-06-01", False, False),
    ],
)
def test_sampling_goes_with_the_api_version_that_is_sent(version: str, said: bool | None, kept: bool) -> None:
    made = plan(CHAT, MESSAGES, {"temperature": 0.5}, anthropic_version=version, sampling=said)
    assert dict(made.headers)["anthropic-version"] == version
    assert (json.loads(made.translated.body).get("temperature") == 0.5) is kept
    assert len(made.translated.losses) == (0 if kept else 1)


def test_a_relay_keeps_its_clients_version_and_sampling() -> None:
    made = plan(
        MESSAGES,
        MESSAGES,
        {"temperature": 0.5},
        headers={"anthropic-version": "2023-06-01"},
        anthropic_version="2026-10-21",
    )
    assert dict(made.headers)["anthropic-version"] == "2023-06-01"
    assert json.loads(made.translated.body)["temperature"] == 0.5


@pytest.mark.parametrize(
    ("said", "thinking"),
    [("adaptive", {"type": "adaptive"}), ("budget", {"type": "enabled", "budget_tokens": 2048})],
)
def test_how_thinking_is_asked_for(said: str, thinking: dict[str, Any]) -> None:
    body = sent(CHAT, MESSAGES, {"reasoning_effort": "low", "max_tokens": 9000}, thinking=said)
    assert body["thinking"] == thinking
    assert body.get("output_config") == ({"effort": "low"} if said == "adaptive" else None)
