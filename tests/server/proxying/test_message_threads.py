"""Threads of Messages, whose history a server stores: refused for upstreams without them, so the SDK sends it all."""

from typing import Any

import pytest
from gateway.provider import good, pool_of
from oracle import CHAT, MESSAGES, RESPONSES, check_error

pytestmark = pytest.mark.anyio
FOREIGN = pytest.mark.parametrize("upstream", [CHAT, RESPONSES])


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
    assert (await pool_of(upstream, {"a": good("Hello")}).call(MESSAGES, body=body)).status == 200


async def test_a_thread_goes_to_an_upstream_of_its_protocol() -> None:
    thread = {"type": "continue", "previous_message_id": "msg_1"}
    others = {"else": (MESSAGES, ["b"])}
    plays = {"a": good("Hello"), "b": good("Hello from b")}
    pool = pool_of(CHAT, plays, others=others, models={"m": ("up/m", "else/m")})
    response = await pool.call(MESSAGES, body={"thread": thread}, model="m")
    assert (response.status, pool.attempted) == (200, ["b"])
    assert pool.provider.sent[0].body["thread"] == thread
