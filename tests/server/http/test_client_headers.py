"""Real clients at the gateway: their headers, keys and API versions.

Each client's own request is sent with its own headers to an upstream of each protocol, and what the
upstream gets is compared whole, so a header that passes by chance is a failure too.
"""

from typing import Any

import pytest
from agents.requests import CASES, Case
from gateway.fakes import FakeClient
from gateway.simulated import KEY as UPSTREAM_KEY
from gateway.simulated import Gateway, gateway
from oracle import CHAT, MESSAGES, PROTOCOL_NAMES, RESPONSES

from dragoman_server.settings import ClientKey
from dragoman_server.settings.keys import hash_client_key
from dragoman_server.settings.secret import Secret
from dragoman_server.wire.headers import USER_AGENT

pytestmark = pytest.mark.anyio

Json = dict[str, Any]

SECRET = Secret("a-secret-of-some-length-0123456789")
CLIENT_KEY = "drk_canary-" + "a" * 32
KEYS = (ClientKey(name="red", hash=hash_client_key(CLIENT_KEY, SECRET)),)

# The upstreams of `gateway.simulated` that have these protocols.
UPSTREAMS = {CHAT: "chat", MESSAGES: "messages", RESPONSES: "stateless"}
# Where the clients send to. Claude Code marks the beta forms.
PATHS = {CHAT: "/v1/chat/completions", MESSAGES: "/v1/messages?beta=true", RESPONSES: "/v1/responses"}

# Headers of a client that are forwarded to an upstream of the same protocol; no others are.
FORWARDED = {
    CHAT: (),
    MESSAGES: ("anthropic-beta", "anthropic-version"),
    RESPONSES: ("x-codex-beta-features",),
}
SEEN = {
    "user-agent": USER_AGENT,
    "content-type": "application/json",
    "accept": "text/event-stream",
}
AUTH = {
    CHAT: {"authorization": f"Bearer {UPSTREAM_KEY}"},
    RESPONSES: {"authorization": f"Bearer {UPSTREAM_KEY}"},
    MESSAGES: {"x-api-key": UPSTREAM_KEY},
}
NEWEST, OLDER = "2026-10-21", "2023-06-01"
# The key header of each client, as recorded; Claude Code sends either, or both.
KEY_HEADER = {CHAT: "authorization", RESPONSES: "authorization", MESSAGES: "x-api-key"}

# Requests that identify a client.
FIRST = {(case.client, case.protocol): case for case in reversed(CASES)}
clients = pytest.mark.parametrize(
    "case", FIRST.values(), ids=[f"{client}-{protocol}" for client, protocol in FIRST]
)
each_upstream = pytest.mark.parametrize("upstream", PROTOCOL_NAMES)


def key_headers(name: str, key: str = CLIENT_KEY) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"} if name == "authorization" else {name: key}


def body_for(case: Case, upstream: str) -> Json:
    return {**case.body, "model": f"{UPSTREAMS[upstream]}/echo"}


async def send(running: Gateway, case: Case, upstream: str, headers: dict[str, str]) -> FakeClient:
    return await running.call(
        PATHS[case.protocol], body_for(case, upstream), headers={**case.headers, **headers}
    )


@clients
@each_upstream
@pytest.mark.promise("S4")
@pytest.mark.each_choice
async def test_an_upstream_gets_these_headers_and_no_others(case: Case, upstream: str) -> None:
    async with gateway(keys=KEYS, secret=SECRET) as running:
        client = await send(running, case, upstream, key_headers(KEY_HEADER[case.protocol]))
        assert client.status == 200, client.body
        got = running.last.headers
    same_protocol = case.protocol == upstream
    expected = {**SEEN, **AUTH[upstream]}
    if upstream == MESSAGES:
        expected["anthropic-version"] = NEWEST
    if upstream == MESSAGES and not same_protocol and "temperature" in case.body:
        expected["anthropic-version"] = OLDER  # the newest refuses sampling settings
    if same_protocol:
        expected |= {name: case.headers[name] for name in FORWARDED[upstream] if name in case.headers}
    assert got == expected


# --- API versions and betas of Messages -------------------------------------------------------------------------


# --- Codex ------------------------------------------------------------------------------------------------------
