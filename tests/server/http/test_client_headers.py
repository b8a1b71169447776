"""Real clients at the gateway: what an upstream gets of their headers.

Each client's own request is sent with its own headers to an upstream of each protocol, and what the
upstream gets is compared whole, so a header that passes by chance is a failure too.
"""

import pytest
from agents.requests import CASES, Case
from gateway.simulated import KEY as UPSTREAM_KEY
from gateway.simulated import gateway
from oracle import CHAT, GEMINI, MESSAGES, PROTOCOL_NAMES, RESPONSES

from dragoman_server.settings import ClientKey
from dragoman_server.settings.client_keys import hash_client_key
from dragoman_server.settings.secret import Secret
from dragoman_server.wire.headers import USER_AGENT

pytestmark = pytest.mark.anyio

SECRET = Secret("a-secret-of-some-length-0123456789")
CLIENT_KEY = "drk_canary-" + "a" * 32
KEYS = (ClientKey(name="red", hash=hash_client_key(CLIENT_KEY, SECRET)),)

# The upstreams of `gateway.simulated` that have these protocols.
UPSTREAMS = {CHAT: "chat", MESSAGES: "messages", RESPONSES: "stateless", GEMINI: "google"}
# Where the clients send to. Claude Code marks the beta forms.
PATHS = {CHAT: "/v1/chat/completions", MESSAGES: "/v1/messages?beta=true", RESPONSES: "/v1/responses"}

# Headers of a client that are forwarded to an upstream of the same protocol; no others are.
FORWARDED = {
    CHAT: (),
    MESSAGES: ("anthropic-beta", "anthropic-version"),
    RESPONSES: ("x-codex-beta-features",),
    GEMINI: (),
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
    GEMINI: {"x-goog-api-key": UPSTREAM_KEY},
}
NEWEST, OLDER = "2026-10-21", "2023-06-01"
# The first request of each client: it identifies the client.
FIRST = {(case.client, case.protocol): case for case in reversed(CASES)}


@pytest.mark.parametrize("case", FIRST.values(), ids=["-".join(names) for names in FIRST])
@pytest.mark.parametrize("upstream", PROTOCOL_NAMES)
@pytest.mark.promise("S4")
@pytest.mark.each_choice
async def test_an_upstream_gets_these_headers_and_no_others(case: Case, upstream: str) -> None:
    key = (
        {"x-api-key": CLIENT_KEY} if case.protocol == MESSAGES else {"authorization": f"Bearer {CLIENT_KEY}"}
    )
    body = {**case.body, "model": f"{UPSTREAMS[upstream]}/echo"}
    async with gateway(keys=KEYS, secret=SECRET) as running:
        client = await running.call(PATHS[case.protocol], body, headers={**case.headers, **key})
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
