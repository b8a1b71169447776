"""Real clients at the gateway: their headers, keys and API versions.

Each client's own request is sent with its own headers to an upstream of each protocol, and what the
upstream gets is compared whole, so a header that passes by chance is a failure too.
"""

import json
from typing import Any

import pytest
from agents.requests import CASES, HEADERS, Case
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


@clients
@each_upstream
@pytest.mark.promise("S4")
@pytest.mark.each_choice
async def test_the_clients_key_goes_no_further(case: Case, upstream: str) -> None:
    async with gateway(keys=KEYS, secret=SECRET) as running:
        headers = {**key_headers("x-api-key"), **key_headers("authorization")}
        assert (await send(running, case, upstream, headers)).status == 200
        sent = json.dumps([running.last.url, running.last.headers, running.last.body])
    assert CLIENT_KEY not in sent


# --- API versions and betas of Messages -------------------------------------------------------------------------

MESSAGES_CASES = [case for case in FIRST.values() if case.protocol == MESSAGES]
messages_clients = pytest.mark.parametrize("case", MESSAGES_CASES, ids=[c.client for c in MESSAGES_CASES])


@messages_clients
@pytest.mark.parametrize("version", [OLDER, NEWEST])
@pytest.mark.parametrize("key_header", ["x-api-key", "authorization"])
@pytest.mark.each_choice
async def test_both_api_versions_with_either_key(case: Case, version: str, key_header: str) -> None:
    """The newer SDKs send Bearer and the newer version, Claude Code x-api-key and the older."""
    headers = {"anthropic-version": version, **key_headers(key_header)}
    async with gateway(keys=KEYS, secret=SECRET) as running:
        assert (await send(running, case, MESSAGES, headers)).status == 200
        assert running.last.headers["anthropic-version"] == version
        assert running.last.headers["x-api-key"] == UPSTREAM_KEY
        assert "authorization" not in running.last.headers
        # All but Claude Code's billing line, which is for its own provider.
        system = case.body["system"]
        if case.client == "claude-code":
            assert system[0]["text"].startswith("x-anthropic-billing-header")
            system = system[1:]
        assert running.last.body == {**case.body, "model": "echo", "system": system}


@messages_clients
@pytest.mark.parametrize("upstream", [CHAT, RESPONSES])
@pytest.mark.each_choice
async def test_betas_and_versions_are_only_for_messages(case: Case, upstream: str) -> None:
    headers = {"anthropic-beta": "a-2026-01-01,b-2026-01-01", "anthropic-version": NEWEST}
    async with gateway() as running:
        assert (await send(running, case, upstream, headers)).status == 200
        assert [name for name in running.last.headers if name.startswith("anthropic-")] == []


async def test_a_client_that_names_no_version_is_an_old_one() -> None:
    case = FIRST["aider", MESSAGES]
    async with gateway() as running:
        client = await running.call(PATHS[MESSAGES], body_for(case, MESSAGES))
        assert client.status == 200
        assert running.last.headers["anthropic-version"] == OLDER


@pytest.mark.parametrize("protocol", [CHAT, RESPONSES])
async def test_no_other_client_can_switch_betas_on(protocol: str) -> None:
    case = FIRST["opencode", protocol]
    headers = {"anthropic-beta": "context-1m-2025-08-07", "anthropic-version": OLDER}
    async with gateway() as running:
        assert (await send(running, case, MESSAGES, headers)).status == 200
        assert "anthropic-beta" not in running.last.headers
        assert running.last.headers["anthropic-version"] == NEWEST


# --- Codex ------------------------------------------------------------------------------------------------------

CODEX = FIRST["codex", RESPONSES]


@each_upstream
async def test_codexs_sessions_and_turns_stay_here(upstream: str) -> None:
    """Only the header for features of the vendor's own protocol is forwarded, and only to it."""
    async with gateway() as running:
        assert (await send(running, CODEX, upstream, {})).status == 200
        got = running.last.headers
    stay = HEADERS["codex", RESPONSES].keys() - {"accept", "user-agent", "x-codex-beta-features"}
    assert stay == {
        "originator",
        "session-id",
        "thread-id",
        "x-client-request-id",
        "x-codex-turn-metadata",
        "x-codex-window-id",
    }
    assert not stay & got.keys()
    assert got.get("x-codex-beta-features") == ("remote_compaction_v2" if upstream == RESPONSES else None)
    assert got["user-agent"] == USER_AGENT
