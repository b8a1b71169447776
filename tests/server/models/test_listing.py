"""The request for the models of one upstream: its URL and headers, its bounds, and its failures."""

from typing import Any

import pytest
from gateway.fakes import Script
from gateway.scripted import ListingUpstreams, anthropic_list, openai_list

from dragoman_server.models import listing as model_lists
from dragoman_server.models.listing import ModelListError, can_list, fetch_models
from dragoman_server.settings import AccountSettings, UpstreamSettings
from dragoman_server.settings.secret import Secret
from dragoman_server.settings.upstreams import UPSTREAM_PROTOCOLS
from dragoman_server.upstream.errors import (
    UpstreamIdleClosed,
    UpstreamTimeout,
    UpstreamTimeoutPhase,
    UpstreamUnreachable,
)

pytestmark = pytest.mark.anyio

CHAT, MESSAGES, RESPONSES, *_ = UPSTREAM_PROTOCOLS
KEYS = [
    "sk-one-canary-0123456789",
    "sk-two-canary-0123456789",
    "sk-three-canary-012345",
    "sk-four-canary-0123456",
]
OPENAI_URL = "http://up.test/v1/models"


def upstream_of(protocol: str = CHAT, base_url: str = "http://up.test/v1", **more: Any) -> UpstreamSettings:
    return UpstreamSettings(name="up", protocol=protocol, base_url=base_url, **more)


def account(number: int, **more: Any) -> AccountSettings:
    return AccountSettings(upstream="up", name=f"a{number}", api_key=Secret(KEYS[number]), **more)


async def ids_of(
    upstreams: ListingUpstreams, upstream: UpstreamSettings | None = None, accounts: int = 1, **more: Any
) -> list[str]:
    async with upstreams:
        keys = [account(number, **more) for number in range(accounts)]
        return [model.id for model in await fetch_models(upstreams, upstream or upstream_of(), keys)]


LIST_URLS: list[tuple[str, str, str]] = [
    (CHAT, "http://up.test/v1", "http://up.test/v1/models"),
    (CHAT, "http://up.test/v1/", "http://up.test/v1/models"),
    (CHAT, "http://up.test/api/openai", "http://up.test/api/openai/models"),
    (RESPONSES, "http://up.test/v1", "http://up.test/v1/models"),
    (MESSAGES, "http://up.test", "http://up.test/v1/models"),
    (MESSAGES, "http://up.test/anthropic", "http://up.test/anthropic/v1/models"),
]


async def test_the_request_for_a_model_list() -> None:
    for protocol, base_url, url in LIST_URLS:
        upstreams = ListingUpstreams({url: [openai_list("a", "b")]})
        upstream = upstream_of(protocol, base_url, headers={"X-Team": Secret("red")})
        assert await ids_of(upstreams, upstream) == ["a", "b"], base_url
        (request,) = upstreams.sent
        assert request.headers["x-team"] == "red", base_url
        assert request.headers["accept"] == "application/json", base_url
        assert request.headers["user-agent"].startswith("dragoman/"), base_url
        assert "content-type" not in request.headers, base_url
        if protocol == MESSAGES:
            assert request.query == {"limit": "1000"}, base_url
            assert request.headers["x-api-key"] == KEYS[0], base_url
            assert request.headers["anthropic-version"] == "2023-06-01", base_url
            assert "authorization" not in request.headers, base_url
        else:
            assert request.query == {}, base_url
            assert request.headers["authorization"] == f"Bearer {KEYS[0]}", base_url
            assert "anthropic-version" not in request.headers, base_url


@pytest.mark.parametrize(
    ("of_upstream", "of_account", "used"),
    [(None, None, None), ("http://p:1", None, "http://p:1"), ("http://p:1", "http://q:2", "http://q:2")],
)
async def test_the_proxy(of_upstream: str | None, of_account: str | None, used: str | None) -> None:
    upstreams = ListingUpstreams({OPENAI_URL: [openai_list("a")]})
    upstream = upstream_of(proxy=None if of_upstream is None else Secret(of_upstream))
    await ids_of(upstreams, upstream, proxy=None if of_account is None else Secret(of_account))
    assert upstreams.sent[0].proxy == used


async def test_without_a_key() -> None:
    upstreams = ListingUpstreams({OPENAI_URL: [openai_list("a")]})
    async with upstreams:
        await fetch_models(upstreams, upstream_of(), [AccountSettings(upstream="up", name="default")])
    assert "authorization" not in upstreams.sent[0].headers


@pytest.mark.parametrize(("protocol", "cursor"), [(CHAT, "after"), (MESSAGES, "after_id")])
async def test_pages_are_followed(protocol: str, cursor: str) -> None:
    url = "http://up.test/v1/models"
    pages = [
        anthropic_list("a", "b", has_more=True),
        anthropic_list("b", "c&d=/", has_more=True),
        anthropic_list("e"),
    ]
    upstreams = ListingUpstreams({url: pages})
    base = "http://up.test" if protocol == MESSAGES else "http://up.test/v1"
    assert await ids_of(upstreams, upstream_of(protocol, base)) == ["a", "b", "c&d=/", "e"]
    assert [request.query.get(cursor) for request in upstreams.sent] == [None, "b", "c&d=/"]
    found = {request.query.get("limit") for request in upstreams.sent}
    assert found == {"1000" if protocol == MESSAGES else None}


async def test_a_server_without_pages_gets_a_second_request() -> None:
    upstreams = ListingUpstreams({OPENAI_URL: [anthropic_list("a", "b", has_more=True)]})
    assert await ids_of(upstreams) == ["a", "b"]
    assert len(upstreams.sent) == 2


async def test_there_are_only_so_many_pages() -> None:
    endless = [anthropic_list(f"m{number}", has_more=True) for number in range(100)]
    upstreams = ListingUpstreams({OPENAI_URL: endless})
    assert len(await ids_of(upstreams)) == len(upstreams.sent) == model_lists.MAX_PAGES


async def test_there_are_only_so_many_models() -> None:
    first = [f"m{number}" for number in range(model_lists.MAX_MODELS + 5)]
    upstreams = ListingUpstreams({OPENAI_URL: [openai_list(*first, has_more=True), openai_list("more")]})
    assert await ids_of(upstreams) == first[: model_lists.MAX_MODELS]
    assert len(upstreams.sent) == 1


@pytest.mark.parametrize(("size", "fits"), [(0, True), (1, False)])
async def test_all_pages_together_have_a_limit_of_bytes(
    size: int, fits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    pages = [anthropic_list("a", has_more=True), anthropic_list("b")]
    total = sum(len(step) for page in pages for step in page.body if isinstance(step, bytes))
    monkeypatch.setattr(model_lists, "MAX_BYTES", total - size)
    upstreams = ListingUpstreams({OPENAI_URL: pages})
    if fits:
        assert await ids_of(upstreams) == ["a", "b"]
    else:
        with pytest.raises(ModelListError, match="larger than"):
            await ids_of(upstreams)


FAILURES = {
    "another status": (Script([b"canary"], status=404), "status 404"),
    "an error of the server": (Script([b"canary"], status=500), "status 500"),
    "a redirect": (Script(status=302, headers=[("location", "http://canary/")]), "status 302"),
    "no list": (Script([b'{"canary": 1}']), "not a list of models"),
    "no JSON": (Script([b"<html>canary</html>"]), "JSON is malformed"),
    "connection refused": (
        Script(connect=[UpstreamUnreachable("http://up.test: cannot connect")]),
        "http://up.test: cannot connect",
    ),
    "silence": (
        Script([b"{", UpstreamTimeout("http://up.test: read timeout", UpstreamTimeoutPhase.READ)]),
        "read timeout",
    ),
}


@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.parametrize(
    "pages", [[], [anthropic_list("a", has_more=True)]], ids=["at once", "on the second page"]
)
@pytest.mark.each_choice
async def test_a_failure(failure: str, pages: list[Script]) -> None:
    script, text = FAILURES[failure]
    upstreams = ListingUpstreams({OPENAI_URL: [*pages, script]})
    with pytest.raises(ModelListError, match=text) as caught:
        await ids_of(upstreams, accounts=2)
    assert "canary" not in str(caught.value)
    # It is not the account's error, so no other one is tried.
    assert len(upstreams.sent) == len(pages) + 1


@pytest.mark.parametrize("status", [401, 402, 403, 429])
async def test_after_a_refused_account_the_next_one_is_tried(status: int) -> None:
    upstreams = ListingUpstreams({OPENAI_URL: [Script(status=status), openai_list("a")]})
    assert await ids_of(upstreams, accounts=2) == ["a"]
    found = [request.headers["authorization"] for request in upstreams.sent]
    assert found == [f"Bearer {key}" for key in KEYS[:2]]


async def test_only_so_many_accounts_are_tried() -> None:
    upstreams = ListingUpstreams({OPENAI_URL: [Script([b"canary"], status=401)]})
    with pytest.raises(ModelListError, match="status 401") as caught:
        await ids_of(upstreams, accounts=4)
    assert len(upstreams.sent) == model_lists.MAX_ACCOUNTS
    assert "canary" not in str(caught.value)


async def test_without_accounts_no_list_is_requested() -> None:
    upstreams = ListingUpstreams({})
    with pytest.raises(ModelListError, match="no account"):
        await ids_of(upstreams, accounts=0)
    assert upstreams.sent == []


async def test_the_facts_of_a_model_come_along() -> None:
    entry = {"id": "a", "context_length": 9000}
    upstreams = ListingUpstreams({OPENAI_URL: [openai_list(entry, "a", {"id": "a", "context_length": 1})]})
    async with upstreams:
        (model,) = await fetch_models(upstreams, upstream_of(), [account(0)])
    # The first one of a name counts.
    assert model.context == 9000


@pytest.mark.parametrize("protocol", UPSTREAM_PROTOCOLS)
async def test_the_upstreams_whose_lists_are_requested(protocol: str) -> None:
    assert can_list(upstream_of(protocol))
    assert not can_list(upstream_of(protocol, model_list=False))


async def test_an_upstream_of_an_own_protocol_gets_no_request() -> None:
    assert not can_list(upstream_of("their_own"))


async def test_a_list_lost_on_an_idle_connection_is_requested_again() -> None:
    lost = Script(connect=[UpstreamIdleClosed("http://up.test: the idle connection was closed")])
    upstreams = ListingUpstreams({OPENAI_URL: [lost, openai_list("m")]})
    assert await ids_of(upstreams) == ["m"]
    assert len(upstreams.sent) == 2
