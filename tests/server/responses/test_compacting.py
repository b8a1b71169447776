"""POST /v1/responses/compact, as a server drives the application: forwarded, or served by a summary."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from gateway.fakes import FakeClient, Script, Sleep
from gateway.simulated import Gateway, gateway
from oracle import RESPONSES, check_error

from dragoman_server.upstream.errors import UpstreamUnreachable

pytestmark = pytest.mark.anyio

PATH = "/v1/responses/compact"


@pytest.fixture
async def up() -> AsyncIterator[Gateway]:
    async with gateway() as up:
        yield up


STORY = [
    {"role": "user", "content": "Build a ship"},
    {"type": "message", "id": "msg_a", "role": "assistant", "content": "Which one?"},
    {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "c1", "output": "wood"},
    {"role": "user", "content": [{"type": "input_text", "text": "A brig"}]},
]


@pytest.mark.parametrize("upstream", ["messages", "chat", "stateless"])
async def test_h12_a_conversation_is_summed_up(up: Gateway, upstream: str) -> None:
    """The case: Codex gets 404 and stops."""
    # `stream` is no setting of this endpoint, but clients send their usual settings.
    model = f"{upstream}/echo"
    body = {"model": model, "input": STORY, "instructions": "Be brief", "stream": True, "store": True}
    client = await up.call(PATH, body)
    assert client.status == 200, client.body
    assert client.headers["content-type"] == "application/json"
    response = json.loads(client.body)
    assert response.keys() == {"id", "object", "created_at", "output", "usage"}
    assert response["object"] == "response.compaction"
    assert response["id"].startswith("resp_")
    assert isinstance(response["created_at"], int)
    assert response["usage"]["total_tokens"] > 0
    # "a list of all user messages, followed by a single compaction item"
    assert [item["type"] for item in response["output"]] == ["message", "message", "compaction"]
    content = [item["content"][0] for item in response["output"][:2]]
    assert content == [{"type": "input_text", "text": text} for text in ("Build a ship", "A brig")]
    assert all(item["id"] for item in response["output"])
    assert upstream == "stateless" or not up.last.body.get("stream")


async def test_a_stored_conversation_is_summed_up() -> None:
    async with gateway(response_store="memory") as up:
        first = await up.json("/v1/responses", {"model": "messages/echo", "input": "Build a ship"})
        response = await up.json(PATH, {"model": "messages/echo", "previous_response_id": first["id"]})
        assert [item["type"] for item in response["output"]] == ["message", "compaction"]
        assert response["output"][0]["content"][0]["text"] == "Build a ship"
        assert "Build a ship" in json.dumps(up.last.body)


COMPACTED = b'{"id": "resp_c", "object": "response.compaction", "created_at": 5, "output": [], "usage": {}}'


@pytest.mark.parametrize("upstream", ["openai", "stateless"])
async def test_a_responses_upstream_does_it_itself(upstream: str) -> None:
    async with gateway({"/responses/compact": Script([COMPACTED])}) as up:
        body = {"model": f"{upstream}/gpt", "input": STORY, "prompt_cache_key": "k"}
        client = await up.call(PATH, body)
        assert (client.status, client.body) == (200, COMPACTED)
        assert up.last.url == "http://up.test/v1/responses/compact"
        assert up.last.body == {**body, "model": "gpt"}


async def test_a_stored_conversation_is_sent_to_a_responses_upstream() -> None:
    async with gateway({"/responses/compact": Script([COMPACTED])}, response_store="memory") as up:
        first = await up.json("/v1/responses", {"model": "messages/echo", "input": "Build a ship"})
        await up.json(PATH, {"model": "openai/gpt", "previous_response_id": first["id"], "input": "now"})
        assert "previous_response_id" not in up.last.body
        assert [item["role"] for item in up.last.body["input"]] == ["user", "assistant", "user"]


NO_TEXT = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "m",
    "content": [],
    "stop_reason": "end_turn",
    "stop_sequence": None,
    "usage": {"input_tokens": 5, "output_tokens": 0},
}
FAILURES = {
    "unreachable": (Script(connect=[UpstreamUnreachable("no way")]), 502),
    "an error": (
        Script([b'{"type":"error","error":{"type":"rate_limit_error","message":"slow down"}}'], status=429),
        429,
    ),
    "no summary": (Script([json.dumps(NO_TEXT).encode()]), 502),
}


@pytest.mark.parametrize("name", FAILURES)
async def test_a_summary_that_fails_is_an_error(name: str) -> None:
    script, status = FAILURES[name]
    async with gateway({"/v1/messages": script}) as up:
        client = await up.call(PATH, {"model": "messages/m", "input": STORY})
        assert client.status == status, client.body
        assert check_error(RESPONSES, status, client.body) == []
        assert client.finished


BAD: dict[str, tuple[Any, int]] = {
    "no JSON": (b"{", 400),
    "no model": ({"input": "x"}, 400),
    "an unknown model": ({"model": "nobody-knows", "input": "x"}, 404),
    "a wrong input": ({"model": "chat/m", "input": 5}, 400),
    "a conversation that is not there": ({"model": "chat/m", "previous_response_id": "resp_1"}, 400),
}


async def test_invalid_requests() -> None:
    for name in BAD:
        body, status = BAD[name]
        async with gateway(response_store="memory") as up:
            client = await up.call(PATH, body)
            assert client.status == status, name
            assert check_error(RESPONSES, status, client.body) == [], name
            assert not up.upstreams.sent, name


async def test_a_client_that_leaves_ends_the_call() -> None:
    async with gateway({"/v1/messages": Script(connect=[Sleep(60)])}) as up:
        body = json.dumps({"model": "messages/m", "input": STORY}).encode()
        client = await up.call(PATH, client=FakeClient(body, leaves_after=1))
        assert client.messages == []
        assert up.last.fake.closed_at == pytest.approx(1)
