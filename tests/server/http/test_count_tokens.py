"""Counts of input tokens, as a server drives the application: the upstream's own, or marked estimates."""

import json
from typing import Any

import pytest
from gateway.fakes import FakeClient, Script, Sleep
from gateway.simulated import KEY, gateway
from oracle import GEMINI, MESSAGES, RESPONSES, check_error

from dragoman_server.http.count_tokens import COUNT_TIMEOUT_S
from dragoman_server.upstream.errors import (
    UpstreamBroken,
    UpstreamTimeout,
    UpstreamTimeoutPhase,
    UpstreamUnreachable,
)

pytestmark = pytest.mark.anyio

# Chat Completions has no such endpoint.
PATHS = {
    MESSAGES: "/v1/messages/count_tokens",
    RESPONSES: "/v1/responses/input_tokens",
    GEMINI: "/v1beta/{model}:countTokens",
}
# The upstream that counts itself.
VENDORS = {MESSAGES: "anthropic", RESPONSES: "openai", GEMINI: "google"}
# The end of its URL.
ENDS = {
    MESSAGES: "/v1/messages/count_tokens",
    RESPONSES: "/v1/responses/input_tokens",
    GEMINI: "/m:countTokens",
}
# The member with the count, and the constant one.
MEMBERS = {MESSAGES: "input_tokens", RESPONSES: "input_tokens", GEMINI: "totalTokens"}
CONSTANTS = {MESSAGES: {}, RESPONSES: {"object": "response.input_tokens"}, GEMINI: {}}


each_protocol = pytest.mark.parametrize("protocol", PATHS)


def path_to(protocol: str, model: str) -> str:
    return PATHS[protocol].replace("{model}", model)


def asking(protocol: str, model: str, text: str = "Hello", **more: Any) -> dict[str, Any]:
    if protocol == GEMINI:
        return {"contents": [{"role": "user", "parts": [{"text": text}]}], **more}
    if protocol == MESSAGES:
        return {"model": model, "messages": [{"role": "user", "content": text}], **more}
    return {"model": model, "input": text, **more}


def count_response(protocol: str, tokens: int) -> bytes:
    extra = {"context_management": {"original_input_tokens": 9}} if protocol == MESSAGES else {}
    return json.dumps({**CONSTANTS[protocol], MEMBERS[protocol]: tokens, **extra}, indent=1).encode()


def check_estimate(protocol: str, client: FakeClient) -> int:
    assert client.status == 200, client.body
    assert client.headers["dragoman-estimate"] == "true"
    assert client.headers["content-type"] == "application/json"
    request_id = client.headers["dragoman-request-id"]
    assert client.headers["request-id"] == client.headers["x-request-id"] == request_id
    response = json.loads(client.body)
    tokens = response.pop(MEMBERS[protocol])
    assert response == CONSTANTS[protocol]
    assert isinstance(tokens, int)
    return tokens


def check_refusal(protocol: str, client: FakeClient, status: int, message: str) -> None:
    assert client.status == status, client.body
    assert check_error(protocol, status, client.body) == []
    assert message in client.error["message"]


# Estimates.


@each_protocol
@pytest.mark.parametrize("upstream", ["chat", "messages", "stateless"])
async def test_i10_a_count_is_served_for_every_upstream(protocol: str, upstream: str, record: Any) -> None:
    async with gateway() as up:
        path = path_to(protocol, f"{upstream}/echo")
        for query in ("?beta=true", ""):
            client = await up.call(path + query, asking(protocol, f"{upstream}/echo"))
            assert 3 < check_estimate(protocol, client) < 20
        assert not up.upstreams.sent
    assert record() | {"id": "", "duration_s": 0} == {
        "id": "",
        "protocol": protocol,
        "method": "POST",
        "path": path,
        "client_address": "127.0.0.1",
        "model": f"{upstream}/echo",
        "upstream": upstream,
        "upstream_protocol": {
            "chat": "openai_chat",
            "messages": "anthropic_messages",
            "stateless": "openai_responses",
        }[upstream],
        "upstream_model": "echo",
        "stream": False,
        "status": 200,
        "outcome": "completed",
        "duration_s": 0,
        "input_tokens": record()["input_tokens"],
        "estimated": True,
    }


async def test_a_stored_conversation_is_sent_to_an_upstream_that_counts() -> None:
    scripts = {ENDS[RESPONSES]: Script([count_response(RESPONSES, 77)])}
    async with gateway(scripts, response_store="memory") as up:
        first = await up.json("/v1/responses", asking(RESPONSES, "chat/echo", "one"))
        body = asking(RESPONSES, "openai/echo", previous_response_id=first["id"])
        assert (await up.json(PATHS[RESPONSES], body))["input_tokens"] == 77
        assert len(up.last.body["input"]) == 3


# The upstream's own count.


@each_protocol
async def test_the_upstream_counts_where_it_can(protocol: str, record: Any) -> None:
    response = count_response(protocol, 728)
    script = Script([response[:5], response[5:]], headers=[("request-id", "req_theirs")])
    async with gateway({ENDS[protocol]: script}) as up:
        model = f"{VENDORS[protocol]}/m"
        body = asking(protocol, model, unknown_field=[1.50])
        headers = {"anthropic-beta": "b-1", "cookie": "private"}
        client = await up.call(path_to(protocol, model), body, headers=headers)
        assert (client.status, client.body) == (200, response)
        assert "dragoman-estimate" not in client.headers
        assert client.headers["request-id"] == "req_theirs"
        expected = "http://up.test" + ("/v1beta/models" if protocol == GEMINI else "") + ENDS[protocol]
        assert up.last.url == expected
        assert up.last.body == (body if protocol == GEMINI else {**body, "model": "m"})
        if protocol == MESSAGES:
            assert up.last.headers["x-api-key"] == KEY
            assert up.last.headers["anthropic-version"] == "2023-06-01"
            assert up.last.headers["anthropic-beta"] == "b-1"
        elif protocol == GEMINI:
            assert up.last.headers["x-goog-api-key"] == KEY
        else:
            assert up.last.headers["authorization"] == f"Bearer {KEY}"
        assert "cookie" not in up.last.headers
        assert up.last.fake.open_count == 0
    line = record()
    assert (line["outcome"], line["input_tokens"], line["status"]) == ("completed", 728, 200)
    assert "estimated" not in line


# Client and upstream -> members of the client's request, and the request for the other protocol's count: its fields for
# responses but those that have no bearing on the count.
TRANSLATED: dict[tuple[str, str], tuple[dict[str, Any], dict[str, Any]]] = {
    (MESSAGES, RESPONSES): (
        {"system": "Be brief", "temperature": 0.5, "metadata": {"user_id": "u"}, "max_tokens": 5},
        {
            "model": "m",
            "input": [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hello"}]}],
            "instructions": "Be brief",
        },
    ),
    (RESPONSES, MESSAGES): (
        {"instructions": "Be brief", "temperature": 0.5, "user": "u", "max_output_tokens": 5, "store": False},
        {"model": "m", "messages": [{"role": "user", "content": "Hello"}], "system": "Be brief"},
    ),
    (GEMINI, MESSAGES): ({}, {"model": "m", "messages": [{"role": "user", "content": "Hello"}]}),
    (RESPONSES, GEMINI): (
        {"instructions": "Be brief", "user": "u", "max_output_tokens": 5, "store": False},
        {
            "generateContentRequest": {
                "model": "models/m",
                "contents": [{"role": "user", "parts": [{"text": "Hello"}]}],
                "systemInstruction": {"parts": [{"text": "Be brief"}]},
                "generationConfig": {"maxOutputTokens": 5},
            }
        },
    ),
}  # fmt: skip


@pytest.mark.parametrize(("client", "upstream"), TRANSLATED)
async def test_an_upstream_of_another_protocol_counts_as_well(
    client: str, upstream: str, record: Any
) -> None:
    more, sent = TRANSLATED[client, upstream]
    async with gateway({ENDS[upstream]: Script([count_response(upstream, 728)])}) as up:
        model = f"{VENDORS[upstream]}/m"
        response = await up.call(path_to(client, model), asking(client, model, **more))
        counted = {**CONSTANTS[client], MEMBERS[client]: 728}
        assert (response.status, json.loads(response.body)) == (200, counted)
        assert "dragoman-estimate" not in response.headers
        assert up.last.url.endswith(ENDS[upstream])
        assert up.last.body == sent
    assert (record()["input_tokens"], record()["outcome"]) == (728, "completed")
    assert "estimated" not in record()


# Part of the conversation is at the upstream.


@pytest.mark.parametrize("server", [{}, {"response_store": "memory"}], ids=["off", "on"])
async def test_a_conversation_that_only_the_upstream_has(server: dict[str, Any]) -> None:
    theirs = {"previous_response_id": "resp_theirs"}
    async with gateway({ENDS[RESPONSES]: Script([count_response(RESPONSES, 77)])}, **server) as up:
        body = asking(RESPONSES, "openai/m", **theirs)
        assert (await up.json(PATHS[RESPONSES], body))["input_tokens"] == 77
        assert up.last.body == {**body, "model": "m"}
        # An estimate would leave most of it out.
        client = await up.call(PATHS[RESPONSES], asking(RESPONSES, "stateless/m", **theirs))
        check_refusal(RESPONSES, client, 400, "not found" if server else "server.response_store")
    async with gateway({ENDS[RESPONSES]: Script(connect=[UpstreamUnreachable("no way")])}, **server) as up:
        message = 'only upstream "openai" has the conversation'
        check_refusal(RESPONSES, await up.call(PATHS[RESPONSES], body), 503, message)


FAILURES: dict[str, Script] = {
    "unreachable": Script(connect=[UpstreamUnreachable("no way")]),
    "timeout": Script(connect=[UpstreamTimeout("slow", UpstreamTimeoutPhase.READ)]),
    "broken": Script([b'{"input_', UpstreamBroken("cut")]),
    "overloaded": Script([b'{"type":"error","error":{"type":"overloaded_error","message":"x"}}'], status=529),
    "a server error": Script([b"<html>"], status=502),
    "no JSON": Script([b"hello"]),
    "no count": Script([b'{"input_tokens": "many"}']),
    "no possible count": Script([b'{"input_tokens": 10000000001}']),
    "cut": Script([b'{"input_']),
    "silence before the head": Script(connect=[Sleep(COUNT_TIMEOUT_S + 1)]),
    "silence in the body": Script([b'{"input_tokens"', Sleep(COUNT_TIMEOUT_S + 1), b":5}"]),
}


@each_protocol
@pytest.mark.parametrize("name", FAILURES)
@pytest.mark.each_choice
async def test_i12_when_the_upstream_cannot_count_now_there_is_an_estimate(
    protocol: str, name: str, record: Any
) -> None:
    """A count must not fail for an unrelated reason, and has a deadline."""
    async with gateway({ENDS[protocol]: FAILURES[name]}) as up:
        model = f"{VENDORS[protocol]}/m"
        client = await up.call(path_to(protocol, model), asking(protocol, model))
        check_estimate(protocol, client)
        assert len(up.upstreams.sent) == 1, "one request"
        assert up.last.fake.open_count == 0
    line = record()
    assert (line["outcome"], line["status"], line["estimated"]) == ("completed", 200, True)
    assert line["error"]
    assert line["duration_s"] <= COUNT_TIMEOUT_S + 0.1


REFUSALS = {
    MESSAGES: {
        400: b'{"type":"error","error":{"type":"invalid_request_error","message":"max_tokens: Extra inputs"}}',
        404: b'{"type":"error","error":{"type":"not_found_error","message":"model: m"}}',
        429: b'{"type":"error","error":{"type":"rate_limit_error","message":"slow down"}}',
    },
    RESPONSES: {
        status: json.dumps(
            {"error": {"message": "because", "type": "invalid_request_error", "param": None, "code": None}}
        ).encode()
        for status in (400, 404, 429)
    },
    GEMINI: {
        status: json.dumps({"error": {"code": status, "message": "because", "status": name}}).encode()
        for status, name in ((400, "INVALID_ARGUMENT"), (404, "NOT_FOUND"), (429, "RESOURCE_EXHAUSTED"))
    },
}


@each_protocol
@pytest.mark.parametrize("status", [400, 404, 429])
async def test_a_count_that_the_upstream_refuses_is_refused(protocol: str, status: int) -> None:
    body = REFUSALS[protocol][status]
    script = Script([body], status=status, headers=[("retry-after", "7")])
    async with gateway({ENDS[protocol]: script}) as up:
        model = f"{VENDORS[protocol]}/m"
        client = await up.call(path_to(protocol, model), asking(protocol, model))
        assert (client.status, client.body) == (status, body)
        assert client.headers["retry-after"] == "7"


@each_protocol
async def test_a_client_that_leaves_ends_the_call(protocol: str, record: Any) -> None:
    async with gateway({ENDS[protocol]: Script(connect=[Sleep(5)])}) as up:
        model = f"{VENDORS[protocol]}/m"
        body = json.dumps(asking(protocol, model)).encode()
        client = await up.call(path_to(protocol, model), client=FakeClient(body, leaves_after=1))
        assert client.messages == []
        assert up.last.fake.closed_at == pytest.approx(1)
    assert record()["outcome"] == "client_left"


# Requests that cannot be counted.

BAD: dict[str, tuple[bytes, int, str]] = {
    "no JSON": (b"{", 400, "not valid JSON"),
    "an array": (b"[]", 400, "must be a JSON object"),
    "no model": (b"{}", 400, "model is required"),
    "an unknown model": (b'{"model": "nobody-knows"}', 404, "nobody-knows"),
} | {
    f"100k deep, for {name}": (
        b'{"model": "%b/m", "messages": ' % name.encode() + b"[" * 100_000 + b"]" * 100_000 + b', "input": []}',
        400,
        "",
    )
    for name in ("chat", "openai", "anthropic")
}  # fmt: skip


@pytest.mark.parametrize("protocol", [MESSAGES, RESPONSES])  # Gemini's model is in the path
@pytest.mark.parametrize("name", BAD)
@pytest.mark.each_choice
async def test_an_invalid_body_is_refused(protocol: str, name: str, record: Any) -> None:
    body, status, message = BAD[name]
    async with gateway() as up:
        check_refusal(protocol, await up.call(PATHS[protocol], body), status, message)
    assert record()["outcome"] == "refused"
