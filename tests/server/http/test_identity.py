"""Only honest identity: requests to an upstream identify the gateway, whatever the client is."""

from collections.abc import Mapping

import pytest
from agents.requests import CASES
from gateway.scripted import PATHS, PROTOCOL_NAMES, SECRET, STREAMS, request_body, scripted

from dragoman_server import __version__
from dragoman_server.config.values import InvalidValue, header_name
from dragoman_server.settings.secret import Secret

pytestmark = pytest.mark.anyio


# Headers that identify clients, their SDKs and their accounts.
IDENTITY = {
    "user-agent": "claude-cli/2.1.0 (external, cli)",
    "x-app": "cli",
    "originator": "codex_cli_rs",
    "session_id": "canary-session",
    "session-id": "canary-session",
    "conversation_id": "canary-conversation",
    "chatgpt-account-id": "canary-account",
    "openai-organization": "canary-organization",
    "openai-project": "canary-project",
    "x-claude-code-session-id": "canary-session",
    "x-client-request-id": "canary-request",
    "x-stainless-lang": "js",
    "x-stainless-package-version": "0.99.0",
    "x-stainless-runtime": "node",
    "http-referer": "https://canary.example",
    "x-title": "canary",
    "via": "1.1 canary",
    "x-forwarded-for": "192.0.2.1",
    "cookie": "session=canary",
    "origin": "http://canary.localhost",
}
# Headers that the gateway itself sends, except the vendors' headers for features.
CLIENT_HEADERS = {"user-agent", "content-type", "accept", "authorization", "x-api-key", "anthropic-version"}


async def sent_to(
    upstream: str, client: str, headers: Mapping[str, str], streams: bool = True
) -> dict[str, str]:
    gateway = scripted(
        upstream, STREAMS[upstream], upstream={"api_key": Secret("sk-own-0123456789")}, secret=SECRET
    )
    assert (await gateway.call(PATHS[client], request_body(client, streams=streams), headers)).status == 200
    return gateway.sent[-1].headers


@pytest.mark.parametrize("client", PROTOCOL_NAMES)
@pytest.mark.parametrize("upstream", PROTOCOL_NAMES)
@pytest.mark.parametrize("streams", [False, True], ids=["whole", "stream"])
@pytest.mark.each_choice
async def test_headers_that_identify_the_client_are_not_forwarded(
    client: str, upstream: str, streams: bool
) -> None:
    got = await sent_to(upstream, client, IDENTITY, streams)
    assert got["user-agent"] == f"dragoman/{__version__}"
    assert got.keys() <= CLIENT_HEADERS
    assert not set(IDENTITY.values()) & set(got.values())
    assert got == await sent_to(upstream, client, {}, streams)


async def test_the_gateway_does_not_imitate_real_clients() -> None:
    for case in CASES:
        got = await sent_to(case.protocol, case.protocol, case.headers)
        assert got["user-agent"] == f"dragoman/{__version__}", case.client
        assert not [name for name in got if name.startswith(("x-stainless-", "x-claude-", "session"))], (
            case.client
        )
        named = case.headers.get("user-agent", "no user agent").lower()
        assert named not in " ".join(got.values()).lower(), case.client


@pytest.mark.parametrize("upstream", PROTOCOL_NAMES)
async def test_not_even_settings_made_by_hand_change_the_name(upstream: str) -> None:
    gateway = scripted(
        upstream, STREAMS[upstream], upstream={"headers": {"User-Agent": Secret("claude-cli/2.1.0")}}
    )
    assert (await gateway.call(PATHS[upstream], request_body(upstream, streams=True))).status == 200
    assert gateway.sent[-1].headers["user-agent"] == f"dragoman/{__version__}"


@pytest.mark.parametrize(
    "name", ["User-Agent", "x-app", "Originator", "X-Stainless-OS", "x-stainless-retry-count"]
)
def test_the_configuration_cannot_name_another_client(name: str) -> None:
    with pytest.raises(InvalidValue, match="the gateway sends its own"):
        header_name(name)


@pytest.mark.parametrize("name", ["HTTP-Referer", "X-Title", "x-team", "anthropic-beta"])
def test_an_operator_may_identify_itself(name: str) -> None:
    assert header_name(name) == name.lower()
