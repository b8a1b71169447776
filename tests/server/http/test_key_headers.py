"""Headers for keys, versions and features: those that a client may send, and those that its upstream gets."""

from typing import Any

import pytest
from gateway.scripted import (
    CHAT,
    MESSAGES,
    PATHS,
    PROTOCOL_NAMES,
    RESPONSES,
    chat_response,
    messages_response,
    responses_response,
    scripted,
    whole,
)

from dragoman_server.settings.secret import Secret

pytestmark = pytest.mark.anyio


REPLIES = {
    CHAT: whole(chat_response({"content": "Hello"})),
    MESSAGES: whole(messages_response([{"type": "text", "text": "Hello"}])),
    RESPONSES: whole(responses_response([])),
}
REQUEST = {"model": "up/m", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]}
OLD, NEW = "2023-06-01", "2026-10-21"
UPSTREAM_KEY = Secret("sk-upstream-0123456789")
BETA = "context-1m-2025-08-07,some-beta-of-tomorrow"


async def headers_sent(
    protocol: str, headers: dict[str, str], path: str = MESSAGES, **upstream: Any
) -> dict[str, str]:
    gateway = scripted(
        protocol, REPLIES[protocol], upstream={"api_key": UPSTREAM_KEY, **upstream}, keys={"red": {}}
    )
    body = {"model": "up/m", "input": "Hi"} if path == RESPONSES else REQUEST
    client = await gateway.call(PATHS[path], body, headers)
    assert client.status == 200, client.body
    return gateway.sent[0].headers


@pytest.mark.parametrize(
    "key", [{"x-api-key": "drk_red"}, {"authorization": "Bearer drk_red"}], ids=["x", "bearer"]
)
@pytest.mark.parametrize("version", [OLD, NEW, None])
@pytest.mark.parametrize("protocol", PROTOCOL_NAMES)
@pytest.mark.each_choice
async def test_a_client_of_messages_at_every_upstream(
    protocol: str, version: str | None, key: dict[str, str]
) -> None:
    client_version = {} if version is None else {"anthropic-version": version}
    sent = await headers_sent(protocol, {**key, **client_version, "anthropic-beta": BETA})
    if protocol == MESSAGES:
        assert sent["x-api-key"] == UPSTREAM_KEY.reveal()
        assert sent["anthropic-version"] == (version or OLD)
        assert sent["anthropic-beta"] == BETA
        assert "authorization" not in sent
    else:
        assert sent["authorization"] == f"Bearer {UPSTREAM_KEY.reveal()}"
        assert not {"x-api-key", "anthropic-version", "anthropic-beta"} & sent.keys()
    assert "drk_red" not in str(sent)


@pytest.mark.parametrize("client", [CHAT, RESPONSES])
async def test_another_client_at_messages(client: str) -> None:
    """The gateway sends the version that it wrote; the client's headers for another vendor are not forwarded."""
    sent = await headers_sent(
        MESSAGES, {"x-api-key": "drk_red", "anthropic-beta": BETA, "anthropic-version": OLD}, client
    )
    assert sent["x-api-key"] == UPSTREAM_KEY.reveal()
    assert sent["anthropic-version"] == NEW
    assert "anthropic-beta" not in sent


@pytest.mark.parametrize(
    ("auth", "protocol", "name", "value"),
    [
        ("bearer", MESSAGES, "authorization", f"Bearer {UPSTREAM_KEY.reveal()}"),
        ("x-api-key", CHAT, "x-api-key", UPSTREAM_KEY.reveal()),
    ],
)
async def test_an_upstream_may_need_the_other_header(auth: str, protocol: str, name: str, value: str) -> None:
    sent = await headers_sent(protocol, {"x-api-key": "drk_red"}, auth=auth)
    assert sent[name] == value
    assert len({"authorization", "x-api-key"} & sent.keys()) == 1
