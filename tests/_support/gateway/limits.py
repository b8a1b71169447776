"""A gateway whose client keys have limits, over a scripted upstream, with the wall clock in the test's hand.

gateway = limited(CHAT, whole(chat_response({"content": "Hi"})), keys={"red": {"requests_per_minute": 2}})
client = await gateway.call("/v1/messages", {...}, key="red")
gateway.clock.now += 30
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from gateway.fakes import FakeClient, Script, http_scope
from gateway.scripted import (
    CHAT,
    MESSAGES,
    PATHS,
    PROTOCOL_NAMES,
    RESPONSES,
    SECRET,
    ScriptedUpstreams,
    chat_response,
    chunk,
    messages_response,
    responses_response,
    stream,
    whole,
)

from dragoman_server.accounts.limits import ClientLimits
from dragoman_server.accounts.stores.base import AccountStore
from dragoman_server.app import Application
from dragoman_server.gateway import Gateway
from dragoman_server.keys import hash_client_key
from dragoman_server.settings import ClientKey, Price, ServerSettings, Settings, UpstreamSettings

# The usage in the scripts' responses: 3 tokens in, 4 out.
TOKENS = 7
WHOLE_RESPONSES = {
    CHAT: whole(chat_response({"content": "Hello"})),
    MESSAGES: whole(messages_response([{"type": "text", "text": "Hello"}])),
    RESPONSES: whole(responses_response([])),
}
STREAMS = {
    CHAT: stream(
        chunk({"role": "assistant", "content": "Hello"}),
        chunk({}, "stop"),
        chunk(usage={"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}),
        done=True,
    ),
    MESSAGES: stream(
        {"type": "message_start", "message": {**messages_response([]), "stop_reason": None}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hello"}},
        {"type": "content_block_stop", "index": 0},
        {
            "type": "message_delta",
            "delta": {"stop_reason": "end_turn", "stop_sequence": None},
            "usage": {"output_tokens": 4},
        },
        {"type": "message_stop"},
    ),
    RESPONSES: stream(
        {"type": "response.created", "sequence_number": 0, "response": responses_response([])},
        {"type": "response.completed", "sequence_number": 1, "response": responses_response([])},
    ),
}

# Noon of a day in the middle of a month.
NOON = datetime(2026, 11, 21, 12, tzinfo=UTC).timestamp()


def request_body(protocol: str, model: str = "up/m", streams: bool = False) -> dict[str, Any]:
    """A small request to the path of a protocol."""
    messages_field = "input" if protocol == RESPONSES else "messages"
    text: Any = "Hi" if protocol == RESPONSES else [{"role": "user", "content": "Hi"}]
    body = {"model": model, messages_field: text, "stream": streams}
    return body | {"max_tokens": 9} if protocol == MESSAGES else body


class Clock:
    """Seconds since the epoch, as the test says."""

    def __init__(self) -> None:
        self.now = NOON

    def __call__(self) -> float:
        return self.now


@dataclass
class Limited:
    app: Application
    gateway: Gateway
    upstreams: ScriptedUpstreams
    clock: Clock

    async def call(
        self, path: str, body: Any, key: str = "red", client: FakeClient | None = None, method: str = "POST"
    ) -> FakeClient:
        client = client or FakeClient(json.dumps(body).encode())
        headers = {"x-api-key": f"drk_{key}"}
        await self.app(http_scope(path, method, headers), client.receive, client.send)
        return client

    async def request(
        self, protocol: str = CHAT, *, key: str = "red", streams: bool = False, model: str = "up/m"
    ) -> FakeClient:
        return await self.call(PATHS[protocol], request_body(protocol, model, streams), key)


def settings_with(
    protocol: str,
    keys: Mapping[str, Mapping[str, Any]],
    prices: Sequence[Price] = (),
    models: Mapping[str, str | tuple[str, ...]] | None = None,
    **server: Any,
) -> Settings:
    base = "http://up.test" if protocol == MESSAGES else "http://up.test/v1"
    return Settings(
        server=ServerSettings(**{"secret": SECRET, **server}),
        upstreams=tuple(
            UpstreamSettings(name=name, protocol=protocol, base_url=base) for name in ("up", "two")
        ),
        models=models or {},
        client_keys=tuple(
            ClientKey(name=name, hash=hash_client_key(f"drk_{name}", SECRET), **more)
            for name, more in keys.items()
        ),
        prices=tuple(prices),
    )


def limited(
    protocol: str,
    *scripts: Script,
    keys: Mapping[str, Mapping[str, Any]],
    store: AccountStore | None = None,
    clock: Clock | None = None,
    **settings: Any,
) -> Limited:
    """keys: name of a client key -> its settings. The upstreams' models are `up/...` and `two/...`."""
    upstreams = ScriptedUpstreams(scripts or (WHOLE_RESPONSES[protocol],))
    clock = clock or Clock()
    made = settings_with(protocol, keys, **settings)
    gateway = Gateway(made, upstreams, accounts=store)
    gateway.limits = ClientLimits(made, gateway.accounts, clock)
    return Limited(Application(gateway), gateway, upstreams, clock)


__all__ = ["PROTOCOL_NAMES", "Limited", "limited"]
