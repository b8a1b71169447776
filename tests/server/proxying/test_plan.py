"""One request planned: settings, headers and bytes in; the upstream's bytes, URL and headers out."""

import json
from typing import Any

import pytest

from dragoman import PROTOCOLS, Relay, RemoteProtocolError, RequestRefused, ResponseTranslator, peek
from dragoman.events import Signature
from dragoman_server.models.info import ModelInfo
from dragoman_server.models.routes import NO_LISTED_MODELS, ListedModels
from dragoman_server.proxying.plan import Plan, Planner
from dragoman_server.proxying.refused_members import REMEMBERED_S, RefusedMembers
from dragoman_server.settings import ClientKey, ServerSettings, Settings, UpstreamSettings
from dragoman_server.settings.client_keys import make_signer
from dragoman_server.settings.secret import Secret

CHAT, MESSAGES, RESPONSES = PROTOCOL_NAMES = ("openai_chat", "anthropic_messages", "openai_responses")
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
    client_key: ClientKey | None = None,
    check_input: Any = None,
    reasoning_lookup: Any = None,
    listed: ListedModels = NO_LISTED_MODELS,
    **upstream: Any,
) -> Plan:
    base = "http://127.0.0.1:9" if protocol == MESSAGES else "http://127.0.0.1:9/v1"
    settings = Settings(
        server=server or ServerSettings(),
        upstreams=(UpstreamSettings.of(name="up", protocol=protocol, base_url=base, **upstream),),
    )
    data = json.dumps({**BODIES[client], **(body or {})}).encode()
    return Planner(
        settings,
        PROTOCOLS[client],
        headers or {},
        query,
        data,
        peek(data),
        id="abc",
        now=5,
        client_key=client_key,
        check_input=check_input,
        reasoning_lookup=reasoning_lookup,
        listed=listed,
    ).first()


def sent(*arguments: Any, **more: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(plan(*arguments, **more).body)
    return found


@pytest.mark.parametrize(
    ("client", "protocol", "query", "expected"),
    [
        (MESSAGES, MESSAGES, "beta=true", "?beta=true"),
        (MESSAGES, MESSAGES, "beta=true&x=1", ""),
        (MESSAGES, MESSAGES, "key=secret", ""),
        (MESSAGES, CHAT, "beta=true", ""),
    ],
)
def test_the_query_that_a_relay_keeps(client: str, protocol: str, query: str, expected: str) -> None:
    _, mark, found = plan(client, protocol, query=query).url.partition("?")
    assert mark + found == expected


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("upstream_streams", [True, False])
@pytest.mark.parametrize("protocol", [CHAT, MESSAGES])
def test_a_response_is_relayed_if_both_bodies_have_one_form(
    stream: bool, upstream_streams: bool, protocol: str
) -> None:
    made = plan(CHAT, protocol, {"stream": stream})
    relayed = protocol == CHAT and stream == upstream_streams
    assert type(made.response_machine(upstream_streams=upstream_streams)) is (
        Relay if relayed else ResponseTranslator
    )


def test_no_secret_is_in_the_repr() -> None:
    made = plan(CHAT, CHAT, api_key=Secret(CANARY), proxy=Secret(f"http://u:{CANARY}@p:1"))
    assert CANARY not in repr(made) + repr(made.headers)


SIMPLE = PROTOCOLS["simple_chat"]


def simple(server: ServerSettings, body: dict[str, Any], endpoint: int = 0) -> Plan:
    upstream = UpstreamSettings(name="up", protocol=MESSAGES, base_url="http://127.0.0.1:9")
    data = json.dumps({"messages": [{"role": "user", "content": "Hi"}], **body}).encode()
    settings = Settings(server=server, upstreams=(upstream,))
    place = SIMPLE.endpoints[endpoint]
    return Planner(settings, SIMPLE, {}, "", data, peek(data), id="abc", now=5, endpoint=place).first()


@pytest.mark.parametrize("body", [{}, {"model": None}, {"model": ""}])
def test_a_protocol_that_needs_no_model_gets_the_default(body: dict[str, Any]) -> None:
    made = simple(ServerSettings(default_model="up/big"), body)
    assert (made.destination.upstream_model, made.context.model) == ("big", "up/big")
    assert json.loads(made.body)["model"] == "big"
    assert simple(ServerSettings(default_model="up/big"), {"model": "up/small"}).context.model == "up/small"


def test_without_a_default_a_model_is_required_all_the_same() -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        simple(ServerSettings(), {})
    assert (caught.value.status, caught.value.path) == (400, "/model")
    assert caught.value.code == "missing_required_parameter"
    expected = "model is missing, and this gateway has no default: name one, or have server.default_model set"
    assert caught.value.message == expected


STREAM_SETTINGS: list[dict[str, Any]] = [{}, {"stream": True}, {"stream": False}]


@pytest.mark.parametrize(("endpoint", "streams"), [(0, False), (1, True), (2, True)])
def test_the_endpoint_decides_if_the_response_is_a_stream(endpoint: int, streams: bool) -> None:
    for requested in STREAM_SETTINGS:
        made = simple(ServerSettings(), {"model": "up/m", **requested}, endpoint)
        found = (made.streams, made.context.request.stream, made.context.endpoint)
        assert found == (streams, streams, SIMPLE.endpoints[endpoint]), requested
        assert json.loads(made.body).get("stream", False) is streams, requested
        assert ("accept", "text/event-stream" if streams else "application/json") in made.headers, requested


STRICT, LAX = (
    ClientKey(name="k", hash="", loss_policy="refuse"),
    ClientKey(name="k", hash="", may_loosen=True),
)


@pytest.mark.parametrize(
    ("server", "upstream", "key", "requested", "outcome"),
    [
        ("record", None, None, None, "recorded"),
        ("record", None, STRICT, None, "refused"),
        ("refuse", None, ClientKey(name="k", hash="", loss_policy="record"), None, "recorded"),
        ("record", "refuse", ClientKey(name="k", hash="", loss_policy="record"), None, "recorded"),
        ("record", None, None, "refuse", "refused"),
        ("record", "record", LAX, " Refuse ", "refused"),
        ("record", None, None, "record", "recorded"),
        ("refuse", None, None, "record", "not allowed"),
        ("record", "refuse", None, "record", "not allowed"),
        ("record", None, STRICT, "record", "not allowed"),
        ("refuse", None, LAX, "record", "recorded"),
        ("refuse", None, None, "refuse", "refused"),
        ("record", None, None, "strict", "wrong"),
        ("record", None, None, "", "wrong"),
        ("record", None, None, "refuse, record", "wrong"),
    ],
)
def test_strict_mode_by_server_upstream_key_and_request(
    server: str, upstream: str | None, key: ClientKey | None, requested: str | None, outcome: str
) -> None:
    headers = {} if requested is None else {"dragoman-loss-policy": requested}

    def make(client: str = CHAT) -> Plan:
        settings = ServerSettings(loss_policy=server)
        body = {"seed": 1}
        return plan(
            client, MESSAGES, body, server=settings, loss_policy=upstream, client_key=key, headers=headers
        )

    if outcome == "recorded":
        assert [loss.path for loss in make().losses] == ["/seed"]
        return
    with pytest.raises((RemoteProtocolError, RequestRefused)) as caught:
        make()
    status, text = {
        "refused": (400, "/seed"),
        "not allowed": (403, "dragoman-loss-policy: record is not allowed"),
        "wrong": (400, "write record or refuse"),
    }[outcome]
    assert caught.value.status == status
    assert text in caught.value.message


def test_plans_of_the_same_model_share_only_what_they_have_in_common() -> None:
    """Whatever was planned before with the same settings."""
    refused_members = RefusedMembers()
    upstream = UpstreamSettings.of(name="up", protocol=MESSAGES, base_url="http://127.0.0.1:9")
    settings = Settings(upstreams=(upstream,))
    data = json.dumps(BODIES[CHAT] | {"seed": 1, "user": "u"}).encode()

    def make(settings: Settings, refused: str, policy: str) -> tuple[bytes, list[str]] | str:
        if refused:
            refused_members.add("up", "m", refused, 0)
        headers, now = {"dragoman-loss-policy": policy}, 5 if refused else REMEMBERED_S
        try:
            made = Planner(
                settings,
                PROTOCOLS[CHAT],
                headers,
                "",
                data,
                peek(data),
                id="abc",
                now=now,
                refused_members=refused_members,
            ).first()
        except RequestRefused as error:
            return error.message
        return made.body, [loss.path for loss in made.losses]

    rows = [
        (refused, policy)
        for refused in ("", "metadata", "")
        for policy in ("record", "refuse", "record", "refuse")
    ]
    alone = [make(Settings(upstreams=(upstream,)), *row) for row in rows]
    assert [make(settings, *row) for row in rows] == alone
    assert len({*map(str, alone)}) == 4


BETA_HEADERS = {"anthropic-beta": "files-api-2025-04-14", "x-api-key": "of the client"}


@pytest.mark.parametrize("upstream", PROTOCOL_NAMES)
@pytest.mark.parametrize("client", [CHAT, MESSAGES])
def test_path_and_headers_of_a_plan_have_nothing_of_another_request(client: str, upstream: str) -> None:
    def make(settings: Settings, stream: bool, headers: dict[str, str], query: str) -> list[object]:
        data = json.dumps(BODIES[client] | {"stream": stream}).encode()
        made = Planner(settings, PROTOCOLS[client], headers, query, data, peek(data), id="abc", now=5).first()
        return [made.path, made.headers]

    def configured() -> Settings:
        up = UpstreamSettings.of(
            name="up",
            protocol=upstream,
            base_url="http://127.0.0.1:9",
            headers={"x-of-upstream": Secret("set")},
        )
        return Settings(upstreams=(up,))

    rows = [
        (stream, headers, query)
        for stream in (False, True, False)
        for headers, query in ((BETA_HEADERS, "beta=true"), ({}, ""), (BETA_HEADERS, ""), ({}, "beta=true"))
    ]
    settings = configured()
    made = [make(settings, *row) for row in rows]
    assert made == [make(configured(), *row) for row in rows]
    assert len({*map(str, made)}) == (8 if client == upstream == MESSAGES else 4 if client == upstream else 2)


# Signatures, stored reasoning, grammars.


def with_reasoning(signature: str) -> dict[str, Any]:
    """Return a conversation with reasoning of the assistant, as a client of Messages sends it back."""
    content = [
        {"type": "thinking", "thinking": "Hm.", "signature": signature},
        {"type": "text", "text": "Ho"},
    ]
    turns = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": content},
        {"role": "user", "content": "Hi"},
    ]
    return {"messages": turns}


def wrapped(secret: str | None) -> str:
    native = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "canary"}
    secret_value = None if secret is None else Secret(secret)
    return make_signer(secret_value).wrap(Signature(origin=RESPONSES, model="m", native=native))


@pytest.mark.parametrize(
    ("made_with", "secret", "opens"),
    [("s" * 32, "s" * 32, True), ("t" * 32, "s" * 32, False), (None, "s" * 32, False), (None, None, True)],
)
def test_a_signature_is_unwrapped_with_the_secret_that_made_it(
    made_with: str | None, secret: str | None, opens: bool
) -> None:
    server = ServerSettings(secret=None if secret is None else Secret(secret))
    made = plan(MESSAGES, RESPONSES, with_reasoning(wrapped(made_with)), server=server)
    assert (b"canary" in made.body) is opens
    assert ("foreign_signature" in {loss.code.value for loss in made.losses}) is not opens
    assert made.context.signer == make_signer(server.secret)


# Capabilities of an upstream.


@pytest.mark.parametrize(("upstream_limit", "limit"), [(None, 700), (300, 300)])
def test_max_tokens_where_the_client_gave_none(upstream_limit: int | None, limit: int) -> None:
    server = ServerSettings(default_max_tokens=700)
    assert sent(CHAT, MESSAGES, server=server, max_tokens=upstream_limit)["max_tokens"] == limit
    body = sent(CHAT, MESSAGES, {"max_tokens": 9}, server=server, max_tokens=upstream_limit)
    assert body["max_tokens"] == 9


def test_the_limit_of_the_models_list_applies_where_no_other_is_known() -> None:
    def limit(model: str, **capabilities: Any) -> int:
        listed = {"up": {model: ModelInfo(model, context=64_000, output=16_000)}}
        body = {"model": f"up/{model}", "max_tokens": 32_000}
        planned = plan(MESSAGES, CHAT, body, listed=listed, **capabilities)
        limit: int = json.loads(planned.body)["max_tokens"]
        assert [loss.path for loss in planned.losses] == ["/max_tokens"] * (limit < 32_000)
        return limit

    assert limit("m") == 16_000
    assert limit("m", max_output_tokens=20_000) == 20_000
    assert limit("m", max_output_tokens=40_000) == 32_000
    assert limit("gpt-3.5-turbo") == 4096  # of its family


@pytest.mark.parametrize(
    ("protocol", "member"),
    [(CHAT, "max_tokens"), (MESSAGES, "max_tokens"), (RESPONSES, "max_output_tokens")],
)
def test_a_limit_is_lowered_in_a_rewritten_request_only(protocol: str, member: str) -> None:
    for relay, limit, losses in (("exact", 9000, []), ("rewrite", 100, ["/" + member])):
        made = plan(protocol, protocol, {member: 9000}, relay=relay, max_output_tokens=100)
        assert json.loads(made.body)[member] == limit
        assert [loss.path for loss in made.losses] == losses


def test_a_limit_is_lowered_to_what_the_prompt_leaves_of_the_context_window() -> None:
    text = "Hello " * 33_000  # about 50,000 tokens
    listed = {"up": {"m": ModelInfo("m", context=65_536)}}

    def limit(**capabilities: Any) -> int:
        body = {"model": "up/m", "max_tokens": 32_000, "messages": [{"role": "user", "content": text}]}
        planned = plan(MESSAGES, CHAT, body, listed=listed, **capabilities)
        found: int = json.loads(planned.body)["max_tokens"]
        assert [loss.path for loss in planned.losses] == ["/max_tokens"] * (found < 32_000)
        return found

    assert limit() == 8192
    assert limit(context_window=80_000) == 24_576
    assert limit(context_window=131_072) == 32_000


def test_the_limit_that_messages_requires_fits_in_the_context_window_too() -> None:
    text = {"messages": [{"role": "user", "content": "Hello " * 6_000}]}
    assert sent(CHAT, MESSAGES, text, context_window=32_768)["max_tokens"] == 20_480


def test_an_image_takes_less_of_the_context_window_than_its_bytes() -> None:
    source = {"type": "base64", "media_type": "image/png", "data": "A" * 100_000}
    image = {"messages": [{"role": "user", "content": [{"type": "image", "source": source}]}]}
    body = {"model": "up/m", "max_tokens": 32_000, **image}
    assert sent(MESSAGES, CHAT, body, context_window=40_000)["max_tokens"] == 32_000


@pytest.mark.parametrize(
    ("context", "output", "limit"),
    [(None, None, None), (64, None, 64), (None, 16, 16), (64, 16, 16), (64, 100, 64)],
)
def test_no_output_is_longer_than_the_context(
    context: int | None, output: int | None, limit: int | None
) -> None:
    assert ModelInfo("m", context=context, output=output).largest_limit == limit


SESSION = {"x-claude-code-session-id": "5f0c9a2e-8d3b-4a57-9a51-2b7a3d1e6c40"}


@pytest.mark.parametrize("protocol", [CHAT, RESPONSES])
def test_a_session_has_a_prompt_cache_key_if_the_host_accepts_one(protocol: str) -> None:
    key = sent(MESSAGES, protocol, headers=SESSION, cache_keys=True, refuses=())["prompt_cache_key"]
    assert len(key) == 32
    assert (
        key
        == sent(MESSAGES, protocol, {"max_tokens": 60}, headers=SESSION, cache_keys=True, refuses=())[
            "prompt_cache_key"
        ]
    )
    other = {"x-claude-code-session-id": "another"}
    assert key != sent(MESSAGES, protocol, headers=other, cache_keys=True, refuses=())["prompt_cache_key"]
    for named in (
        sent(MESSAGES, protocol, headers=SESSION),  # a host of which nothing is known
        sent(MESSAGES, MESSAGES, headers=SESSION),
        sent(protocol, protocol, headers=SESSION, cache_keys=True, refuses=()),  # relayed byte for byte
    ):
        assert "prompt_cache_key" not in named
    rewritten = plan(protocol, protocol, headers=SESSION, cache_keys=True, refuses=(), relay="rewrite")
    assert json.loads(rewritten.body)["prompt_cache_key"] == key
    assert not rewritten.losses
    assert not plan(MESSAGES, protocol, headers=SESSION, cache_keys=True, refuses=()).losses


@pytest.mark.parametrize("client", [CHAT, MESSAGES])
@pytest.mark.parametrize(
    ("model", "settings", "requested"),
    [
        ("gpt-5.6", {}, True),
        ("o3", {}, True),
        ("gpt-4o", {}, False),
        ("gpt-5-chat-latest", {}, False),
        ("m", {}, False),  # its host's efforts say nothing about the model
        ("gpt-5.6", {"efforts": ()}, False),
        ("gpt-5.6", {"encrypted_reasoning": False}, False),
        ("m", {"encrypted_reasoning": True}, True),
    ],
)
def test_reasoning_is_requested_of_models_that_reason(
    client: str, model: str, settings: dict[str, Any], requested: bool
) -> None:
    body = sent(client, RESPONSES, {"model": f"up/{model}"}, **settings)
    assert ("reasoning.encrypted_content" in body.get("include", ())) is requested


OLD, NEW = "2023-06-01", "2026-10-21"


VERSIONS_BY_SAMPLING: list[tuple[dict[str, Any], str, bool | None, str]] = [
    ({}, "m", None, NEW),
    ({"temperature": 0}, "m", None, OLD),
    ({"top_p": 0.9}, "m", None, OLD),
    ({"temperature": 1}, "m", False, NEW),
    ({"temperature": 1}, "claude-opus-5", None, NEW),
    ({"temperature": 1}, "claude-haiku-4-5", None, OLD),
    ({"temperature": 1}, "claude-opus-5", True, OLD),
    # Settings that thinking forbids are left out, and then nothing needs the old version.
    ({"temperature": 0.5, "reasoning_effort": "high", "max_tokens": 32_000}, "claude-haiku-4-5", None, NEW),
]  # fmt: skip


def test_the_old_api_version_is_sent_only_if_sampling_needs_it() -> None:
    for body, model, setting, version in VERSIONS_BY_SAMPLING:
        made = plan(CHAT, MESSAGES, {**body, "model": f"up/{model}"}, sampling=setting)
        assert dict(made.headers)["anthropic-version"] == version, (body, model, setting)
        written = json.loads(made.body)
        assert bool({"temperature", "top_p"} & written.keys()) is (version == OLD), (body, model, setting)


RELAYED_VERSIONS: list[tuple[str | None, str, str]] = [
    (OLD, "auto", OLD),
    (NEW, "auto", NEW),
    ("2030-01-01", "auto", "2030-01-01"),
    (None, "auto", OLD),
    (None, NEW, NEW),
    (OLD, NEW, OLD),
]


def test_a_relay_forwards_its_clients_version_whatever_it_is() -> None:
    for client_version, configured, version in RELAYED_VERSIONS:
        headers = {} if client_version is None else {"anthropic-version": client_version}
        made = plan(MESSAGES, MESSAGES, headers=headers, anthropic_version=configured)
        assert dict(made.headers)["anthropic-version"] == version, (client_version, configured)
