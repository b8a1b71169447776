"""Headers that are forwarded between client and upstream, in both directions: allowlists, checked name by name."""

from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest
import rows

from dragoman import UPSTREAMS, Ledger
from dragoman_server import __version__
from dragoman_server.settings import UpstreamSettings
from dragoman_server.settings.secret import Secret
from dragoman_server.settings.values import InvalidValue, header_name
from dragoman_server.wire.headers import (
    USER_AGENT,
    client_response_headers,
    loss_header,
    request_id_headers,
    upstream_request_headers,
    with_key,
)

CHAT, MESSAGES, RESPONSES, GEMINI = PROTOCOL_NAMES = tuple(UPSTREAMS)


def for_each(names: list[str], meaning: Callable[[str], str]) -> list[str]:
    """Return what headers have in common, or each one's own."""
    meanings = {name: meaning(name) for name in names}
    if len(set(meanings.values())) == 1:
        return [meanings[names[0]]]
    return [f"{name}: {each}" for name, each in meanings.items()]


def upstream(protocol: str = CHAT, **more: object) -> UpstreamSettings:
    return UpstreamSettings(
        name="up",
        protocol=protocol,
        base_url="http://127.0.0.1:9",
        **more,  # type: ignore[arg-type]
    )


def sent(protocol: str, client: str, client_headers: dict[str, str], **more: object) -> dict[str, str]:
    settings, spec = upstream(protocol, **more), UPSTREAMS[protocol]
    pairs = upstream_request_headers(settings, spec, UPSTREAMS[client], client_headers, stream=False)
    if settings.api_key is not None:
        pairs = with_key(pairs, settings, spec, settings.api_key)
    assert len(pairs) == len(dict(pairs)), "no name twice"
    return dict(pairs)


@pytest.mark.promise("S4")
def test_client_headers_that_are_forwarded() -> None:
    def forwarded(name: str) -> str:
        def passes(protocol: str, client: str) -> bool:
            return sent(protocol, client, {name: "of the client"}).get(name) == "of the client"

        ways = [(to, client) for to, client in product(PROTOCOL_NAMES, repeat=2) if passes(to, client)]
        assert all(to == client for to, client in ways), (name, ways)
        return ", ".join(to for to, _ in ways) or "none"

    rows.check(Path(__file__).with_name("request_headers.txt"), lambda names: for_each(names, forwarded))


AUTH_HEADERS: list[tuple[str, str, str, str]] = [
    (CHAT, "auto", "authorization", "Bearer k"),
    (RESPONSES, "auto", "authorization", "Bearer k"),
    (MESSAGES, "auto", "x-api-key", "k"),
    (GEMINI, "auto", "x-goog-api-key", "k"),
    (MESSAGES, "bearer", "authorization", "Bearer k"),
    (CHAT, "x-api-key", "x-api-key", "k"),
]


def test_the_header_for_the_upstreams_key() -> None:
    for protocol, auth, name, value in AUTH_HEADERS:
        client = dict.fromkeys(("authorization", "x-api-key", "x-goog-api-key"), "Bearer of the client")
        headers = sent(protocol, protocol, client, api_key=Secret("k"), auth=auth)
        assert headers[name] == value, (protocol, auth)
        assert client.keys() & headers.keys() == {name}, (protocol, auth)


@pytest.mark.parametrize("protocol", PROTOCOL_NAMES)
def test_the_gateway_is_itself_whatever_client_and_settings_say(protocol: str) -> None:
    assert f"dragoman/{__version__}" == USER_AGENT
    claude = "claude-cli/2.1.0 (external, cli)"
    headers = sent(protocol, protocol, {"user-agent": claude}, headers={"User-Agent": Secret(claude)})
    assert headers["user-agent"] == USER_AGENT
    for name in ("User-Agent", "x-app", "Originator", "X-Stainless-OS", "x-stainless-retry-count"):
        with pytest.raises(InvalidValue, match="the gateway sends its own"):
            header_name(name)
    for name in ("HTTP-Referer", "X-Title", "x-team", "anthropic-beta"):
        assert header_name(name) == name.lower(), "an operator may say who they are"


def test_headers_of_the_upstreams_settings_win_over_all_but_the_key() -> None:
    extra = {"OpenAI-Beta": Secret("ours"), "authorization": Secret("other"), "x-team": Secret("red")}
    headers = sent(CHAT, CHAT, {"openai-beta": "theirs"}, headers=extra, api_key=Secret("k"))
    assert (headers["openai-beta"], headers["x-team"]) == ("ours", "red")
    assert headers["authorization"] == "Bearer k"


BETAS: list[tuple[str, str | None, str | None, tuple[str, ...] | None, str | None]] = [
    (MESSAGES, "a,b", None, None, "a,b"),
    (MESSAGES, "a,b", "b, c", None, "a,b,c"),
    (MESSAGES, None, "c", None, "c"),
    (CHAT, "a", None, ("n",), "n"),
    (RESPONSES, "a", "c", ("n", "c"), "n,c"),
    (CHAT, "a", None, None, None),
    (CHAT, "a", "c", None, "c"),
]


def test_i4_betas_are_the_clients_or_the_translations_and_the_configured() -> None:
    for client, client_headers, configured, needed, sent_on in BETAS:
        extra = {"Anthropic-Beta": Secret(configured)} if configured else {}
        headers = upstream_request_headers(
            upstream(MESSAGES, headers=extra),
            UPSTREAMS[MESSAGES],
            UPSTREAMS[client],
            {} if client_headers is None else {"anthropic-beta": client_headers},
            stream=False,
            needed=[] if not needed else [("anthropic-beta", ",".join(needed))],
        )
        assert dict(headers).get("anthropic-beta") == sent_on, (client, client_headers, configured)


@pytest.mark.promise("S4")
def test_upstream_headers_that_are_forwarded() -> None:
    def forwarded(name: str) -> str:
        after = [("retry-after", "7"), *request_id_headers("id")]
        sent = client_response_headers([(name, "1"), ("retry-after", "7")], UPSTREAMS[CHAT], "id")
        assert sent in (after, [(name, "1"), *after]), name
        return "kept from the client" if sent == after else "forwarded"

    rows.check(Path(__file__).with_name("response_headers.txt"), lambda names: for_each(names, forwarded))


@pytest.mark.parametrize(
    ("headers", "found"),
    [
        ([], "own"),
        ([("request-id", "req_1")], "req_1"),
        ([("x-request-id", "req_2"), ("request-id", "req_3")], "req_2"),
        ([("server", "x")], "own"),
    ],
)
def test_the_id_to_quote(headers: list[tuple[str, str]], found: str) -> None:
    expected = [("request-id", found), ("x-request-id", found), ("dragoman-request-id", "own")]
    assert client_response_headers(headers, UPSTREAMS[CHAT], "own") == expected


def ledger(*paths: str) -> Ledger:
    losses = Ledger()
    for path in paths:
        losses.dropped(path, "why")
    return losses


@pytest.mark.parametrize(
    ("paths", "value"),
    [
        (["/seed"], "1; dropped=/seed"),
        (["/seed", "/n"], "2; dropped=/seed, dropped=/n"),
        (["/a\r\nx-forged: 1\u2028é"], r"1; dropped=/a\r\nx-forged: 1\u2028\xe9"),
        (["/" + "x" * 2000], "1, ..."),
    ],
)
def test_losses_in_a_header(paths: list[str], value: str) -> None:
    assert loss_header(ledger(*paths)) == [("dragoman-loss", value)]


def test_no_loss_has_no_header_and_a_thousand_have_a_short_one() -> None:
    assert loss_header(ledger()) == []
    ((_, value),) = loss_header(ledger(*[f"/messages/{number}/name" for number in range(1000)]))
    assert value.startswith("1000; dropped=/messages/0/name, dropped=/messages/1/name")
    assert value.endswith(", ...")
    assert len(value) < 1100
