"""Threads of Messages, whose history a server stores: refused for upstreams without them, so the SDK sends it all."""

from __future__ import annotations

import json
from typing import Any

import anthropic
import httpx2
import pytest
from anthropic import beta_async_tool
from failures.responses import Call
from failures.whole import whole as whole_of
from gateway.provider import RawResponse, good, pool_of
from oracle import CHAT, MESSAGES, RESPONSES, check_error

pytestmark = pytest.mark.anyio
FOREIGN = pytest.mark.parametrize("upstream", [CHAT, RESPONSES])


@beta_async_tool
async def add(a: int, b: int) -> str:
    """Adds two numbers."""
    return str(a + b)


@FOREIGN
async def test_the_sdks_tool_runner_keeps_its_history(upstream: str) -> None:
    calls = whole_of(upstream, Call("call_1", "add", ('{"a": 1, "b": 2}',)))
    pool = pool_of(upstream, {"a": [RawResponse([json.dumps(calls).encode()]), good("It is 3.")]})
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app=pool.app)) as http:
        sdk = anthropic.AsyncAnthropic(base_url="http://localhost", api_key="any", http_client=http)
        question: Any = {"role": "user", "content": "What is 1 + 2?"}
        runner = sdk.beta.messages.tool_runner(model="up/m", max_tokens=100, tools=[add], messages=[question])
        last = await runner.until_done()
    assert [block.text for block in last.content if block.type == "text"] == ["It is 3."]
    assert len(pool.provider.sent) == 2
    sent = json.dumps(pool.provider.sent[-1].body)
    assert "What is 1 + 2?" in sent
    assert "call_1" in sent
    assert '"3"' in sent


async def test_the_simulator_holds_none_either() -> None:
    pool = pool_of(CHAT, {"a": good("Hello")}, simulator=True)
    response = await pool.call(MESSAGES, body={"thread": {"type": "create"}}, model="sim/echo")
    assert response.status == 400
    assert response.error["details"] == {"error_code": "thread_unsupported_request"}


@FOREIGN
@pytest.mark.parametrize(
    "thread",
    [{"type": "create"}, {"type": "continue", "previous_message_id": "msg_1"}],
    ids=["create", "continue"],
)
@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
async def test_a_thread_is_refused(upstream: str, thread: Any, stream: bool) -> None:
    pool = pool_of(upstream, {"a": good("Hello")})
    response = await pool.call(MESSAGES, body={"thread": thread}, stream=stream)
    assert pool.attempted == []
    assert response.status == 400
    assert check_error(MESSAGES, 400, response.body) == []
    assert response.error["details"] == {"error_code": "thread_unsupported_request"}


@pytest.mark.parametrize("upstream", [CHAT, RESPONSES, MESSAGES])
@pytest.mark.parametrize("body", [{"thread": None}, {"diagnostics": {"previous_message_id": "msg_1"}}])
async def test_no_thread_is_not_refused(upstream: str, body: Any) -> None:
    pool = pool_of(upstream, {"a": good("Hello")})
    assert (await pool.call(MESSAGES, body=body)).status == 200


async def test_a_thread_goes_to_an_upstream_of_its_protocol() -> None:
    thread = {"type": "continue", "previous_message_id": "msg_1"}
    others = {"else": (MESSAGES, ["b"])}
    plays = {"a": good("Hello"), "b": good("Hello from b")}
    pool = pool_of(CHAT, plays, others=others, models={"m": ("up/m", "else/m")})
    response = await pool.call(MESSAGES, body={"thread": thread}, model="m")
    assert (response.status, pool.attempted) == (200, ["b"])
    assert pool.provider.sent[0].body["thread"] == thread
