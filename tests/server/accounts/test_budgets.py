"""Money: the cost of a request by the price list, and the budgets of keys."""

import json
import sys
import tomllib
from contextlib import nullcontext, suppress
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import anyio
import pytest
from gateway.fakes import FakeClient, Script, Sleep
from gateway.scripted import (
    CHAT,
    MESSAGES,
    NOON,
    PATHS,
    PROTOCOL_NAMES,
    WHOLE_RESPONSES,
    Clock,
    chat_response,
    messages_response,
    scripted,
    whole,
)
from msgspec.structs import replace

from dragoman import RemoteProtocolError, RequestRefused, Usage, peek
from dragoman_server.accounts import prices
from dragoman_server.accounts.limits import ClientLimits, ClientRefused, _counter
from dragoman_server.accounts.prices import Prices, cost, names_of
from dragoman_server.accounts.stores.base import Operation
from dragoman_server.accounts.stores.memory import MemoryAccountStore
from dragoman_server.accounts.stores.operations import Spend
from dragoman_server.accounts.stores.tables import LEASE_S
from dragoman_server.capabilities.providers import provider_name
from dragoman_server.models.others import other_models
from dragoman_server.settings import ClientKey, Group, Price, Settings, UpstreamSettings

# Prices.

PLAIN = Price(model="*", input=3.0, output=15.0)
TIERS = Prices(
    [
        Price(model="m", input=6.0, output=30.0, above_tokens=100),
        Price(model="m", input=0.0, output=15.0),
        Price(model="m", input=12.0, output=60.0, above_tokens=1000),
    ],
    (),
).find("m", None, None)
assert TIERS is not None
FULL = Price(model="*", input=3.0, output=15.0, cached_input=0.3, cache_write=3.75)
MILLION = 1_000_000


LONG = replace(FULL, cache_write_1h=6.0)

COSTS: list[tuple[Price, Usage, float]] = [
    (PLAIN, Usage(), 0.0),
    (PLAIN, Usage(input=MILLION), 3.0),
    (PLAIN, Usage(output=MILLION), 15.0),
    (PLAIN, Usage(input=MILLION, output=MILLION), 18.0),
    (PLAIN, Usage(input=MILLION, cached=MILLION), 3.0),
    (FULL, Usage(input=MILLION), 3.0),
    (FULL, Usage(input=MILLION, cached=MILLION), 0.3),
    (FULL, Usage(input=MILLION, cache_write=MILLION), 3.75),
    (FULL, Usage(input=4 * MILLION, cached=MILLION, cache_write=MILLION), 2 * 3.0 + 0.3 + 3.75),
    (FULL, Usage(input=MILLION, cached=2 * MILLION), 0.3),  # no part is larger than its whole
    (Price(model="*", input=3.0, output=15.0, cached_input=0.0), Usage(input=MILLION, cached=MILLION), 0.0),
    (LONG, Usage(input=MILLION, cache_write=MILLION), 3.75),
    (TIERS, Usage(input=100, output=MILLION), 15.0),
    (TIERS, Usage(input=101, cached=101, output=MILLION), 30.0 + 101 * 6e-6),  # cached ones count, and all are dearer
    (TIERS, Usage(input=1001, output=MILLION), 60.0 + 1001 * 12e-6),
    (TIERS, Usage(output=MILLION), 15.0),
]  # fmt: skip


def test_the_cost_of_a_request() -> None:
    for price, usage, dollars in COSTS:
        assert cost(price, usage) == pytest.approx(dollars), (price, usage)


def test_what_is_written_to_a_cache_for_an_hour_has_its_own_price() -> None:
    usage = Usage(input=MILLION, cache_write=MILLION)
    for price, written_1h, dollars in (
        (LONG, MILLION, 6.0),
        (LONG, MILLION // 4, 0.25 * 6.0 + 0.75 * 3.75),
        (LONG, 2 * MILLION, 6.0),  # no part is larger than its whole
        (FULL, MILLION, 3.75),
        (PLAIN, MILLION, 3.0),
    ):
        assert cost(price, usage, written_1h) == pytest.approx(dollars), (price, written_1h)


MATCHING_PRICES: list[tuple[tuple[str, ...], str | None]] = [
    (("fast",), "fast"),
    (("up/m-1",), "up/m-1"),
    (("m-1",), "m-1"),
    (("m-*",), "m-*"),
    (("up/*", "fast"), "up/*"),  # the first in the file, not the narrowest
    (("fast", "up/*"), "fast"),
    (("m", "up", "M-1", "fas"), None),
    ((), None),
]


def test_the_first_price_that_matches_one_of_the_names() -> None:
    for patterns, found in MATCHING_PRICES:
        table = Prices([Price(model=pattern, input=1.0, output=1.0) for pattern in patterns], ())
        price = table.find("fast", "up", "m-1")
        assert (price and price.model) == found, patterns
        assert bool(table) == bool(patterns)


# Base URLs and models, with the price of a million input tokens in prices.toml, None for no price.
PACKAGED: list[tuple[str, str, float | None]] = [
    ("https://api.anthropic.com", "claude-haiku-4-5-20251001", 1.0),
    ("https://api.anthropic.com/v1", "claude-opus-5", 5.0),
    ("https://api.anthropic.com", "claude-opus-5-5", 4.0),
    ("https://api.anthropic.com", "claude-opus-5-fast", None),
    ("https://api.anthropic.com", "anthropic/claude-opus-5", None),
    ("https://api.openai.com/v1", "gpt-5.4-2026-03-05", 2.5),
    ("https://api.openai.com/v1", "gpt-4o-2024-08-06", 2.5),
    ("https://api.openai.com/v1", "gpt-4o-2024-05-13", 5.0),
    ("https://api.z.ai/api/paas/v4", "glm-5.3", 1.4),
    ("https://api.z.ai/api/coding/paas/v4", "glm-5.3", None),  # a plan with a fixed price
    # Clouds where the provider's models cost the same.
    ("https://aws-external-anthropic.eu-west-1.api.aws", "claude-opus-5-5", 4.0),
    ("https://mine.services.ai.azure.com/anthropic", "claude-opus-5", 5.0),
    ("https://mine.services.ai.azure.com/openai/v1", "gpt-5.4", None),
    ("https://aiplatform.googleapis.com/v1/projects/mine/locations/global", "claude-opus-5", 5.0),
    ("https://aiplatform.googleapis.com/v1/projects/mine/locations/global", "claude-haiku-4-5@20251001", 1.0),
    ("https://aiplatform.googleapis.com/v1/projects/mine/locations/global", "gemini-2.5-pro", None),
    ("https://aiplatform.googleapis.com/v1/projects/mine/locations/eu", "claude-opus-5", None),
    ("https://bedrock-runtime.us-east-1.amazonaws.com", "global.anthropic.claude-opus-5", 5.0),
    ("https://bedrock-runtime.us-east-1.amazonaws.com", "global.anthropic.claude-haiku-4-5-20251001-v1:0", 1.0),
    ("https://bedrock-runtime.us-east-1.amazonaws.com", "eu.anthropic.claude-opus-5", None),
    # Not the provider's host: other prices, or none.
    ("https://evil.test/.services.ai.azure.com/anthropic", "claude-opus-5", None),
    ("https://eu.api.openai.com/v1", "gpt-5.4", None),
    ("https://api.openai.com.evil.test/v1", "gpt-5.4", None),
    ("https://api.openai.com:444/v1", "gpt-5.4", None),
    ("http://127.0.0.1:8000/v1", "gpt-5.4", None),
]  # fmt: skip


def test_the_prices_of_the_package_are_for_the_hosts_of_the_providers() -> None:
    for url, model, dollars in PACKAGED:
        upstream = UpstreamSettings(name="up", protocol="openai_chat", base_url=url)
        price = Prices((), [upstream]).find("alias", "up", model)
        assert (price and price.input) == dollars, (url, model)
        limits = ClientLimits(Settings(upstreams=(upstream,)), MemoryAccountStore())
        assert price is None or limits.needs_usage(None)
        mine = Prices([Price(model="alias", input=7.0, output=7.0)], [upstream]).find("alias", "up", model)
        assert (mine and mine.input) == 7.0, "the configuration comes first"


def test_the_file_of_prices() -> None:
    file = tomllib.loads((Path(prices.__file__).with_name("prices.toml")).read_text())
    tables = [*file["providers"], *file["clouds"]]
    assert [url for url, _ in prices._file()] == [each["base_url"] for each in tables]
    seen = set()
    for cloud in file["clouds"]:
        assert cloud["source"].startswith("https://")
        assert isinstance(cloud["date"], date)
        assert provider_name(cloud["base_url"].replace("*", "a")) is not None
    for provider in file["providers"]:
        assert {provider["source"][:8], provider.get("transcript", "https://")[:8]} == {"https://"}
        assert isinstance(provider["date"], date)
        assert provider_name(provider["base_url"]) is not None
        for row in provider["prices"]:
            key = provider["base_url"], row["model"], row.get("above_tokens", 0)
            assert key not in seen, key
            seen.add(key)
            assert row.get("cached_input", 0) <= row["input"] <= row["output"], row
            assert "*" not in row["model"]
    for url, model, above in seen:
        assert (url, model, 0) in seen, (model, above)


def test_unknown_names_are_left_out() -> None:
    assert names_of(None, None, None) == []
    assert names_of("fast", "up", None) == ["fast"]


def moment(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


PERIODS: list[tuple[str, str, str, str | None]] = [
    ("day", "2026-11-21T12:00", "2026-11-21", "2026-11-22T00:00"),
    ("day", "2026-12-31T23:59:59", "2026-12-31", "2027-01-01T00:00"),
    ("month", "2026-11-21T12:00", "2026-11", "2026-12-01T00:00"),
    ("month", "2026-12-31T23:59:59", "2026-12", "2027-01-01T00:00"),
    ("month", "2027-01-31T00:00", "2027-01", "2027-02-01T00:00"),
    ("month", "2028-02-29T00:00", "2028-02", "2028-03-01T00:00"),
    ("total", "2026-11-21T12:00", "total", None),
]


def test_the_counter_of_a_budget_period() -> None:
    for period, now, name, ends in PERIODS:
        key = ClientKey(name="red", hash="0" * 64, budget=1.0, budget_period=period)
        counter, end = _counter(key, moment(now))
        assert counter == f"budget:red:{name}", (period, now)
        assert (end and end.timestamp()) == (ends and moment(ends)), (period, now)


# Through the application. A response of the scripts is 3 tokens in and 4 out: at these prices a dollar.


CACHED_CHAT = chat_response(
    {"content": "Hi"},
    usage={
        "prompt_tokens": 10,
        "completion_tokens": 1,
        "total_tokens": 11,
        "prompt_tokens_details": {"cached_tokens": 8},
    },
)
CACHED_MESSAGES = messages_response([{"type": "text", "text": "Hi"}]) | {
    "usage": {
        "input_tokens": 1,
        "output_tokens": 1,
        "cache_read_input_tokens": 8,
        "cache_creation_input_tokens": 1,
    }
}


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("upstream", "reply", "dollars"),
    [
        (CHAT, CACHED_CHAT, 2 * 0.01 + 8 * 0.001 + 0.1),
        (MESSAGES, CACHED_MESSAGES, 0.01 + 8 * 0.001 + 0.02 + 0.1),
    ],
)
@pytest.mark.parametrize("protocol", PROTOCOL_NAMES)
async def test_the_log_has_the_price_and_caches_count(
    protocol: str, upstream: str, reply: dict[str, Any], dollars: float, record: Any
) -> None:
    price = Price(model="*", input=1e4, output=1e5, cached_input=1e3, cache_write=2e4)
    gateway = scripted(upstream, whole(reply), keys={"red": {}}, prices=[price])
    assert (await gateway.request(protocol)).status == 200
    assert record()["cost_usd"] == pytest.approx(dollars)
    assert "estimated" not in record()


@pytest.mark.anyio
@pytest.mark.parametrize("protocol", [MESSAGES, CHAT])
async def test_the_log_has_the_price_of_what_is_cached_for_an_hour(protocol: str, record: Any) -> None:
    price = Price(model="*", input=0, output=0, cache_write=1e6, cache_write_1h=1e7)  # dollars for a token
    usage = {
        "input_tokens": 1,
        "output_tokens": 1,
        "cache_creation_input_tokens": 5,
        "cache_creation": {"ephemeral_5m_input_tokens": 3, "ephemeral_1h_input_tokens": 2},
    }
    gateway = scripted(MESSAGES, whole({**CACHED_MESSAGES, "usage": usage}), prices=[price])
    assert (await gateway.request(protocol)).status == 200
    assert (record()["cache_write_1h_tokens"], record()["cost_usd"]) == (2, 3 * 1 + 2 * 10)


async def spent_by(limits: ClientLimits, key: ClientKey) -> float | None:
    [spent] = await limits.spent([key])
    return spent


# Requests that are under way together.

SMALL = (Price(model="up/*", input=0.0, output=1.0),)  # a thousandth of a dollar is reserved


@pytest.mark.anyio
@pytest.mark.parametrize(("left", "served"), [(0.0005, 1), (0.001, 1), (0.0025, 3), (1.0, 40)])
async def test_the_possible_cost_of_requests_under_way_is_reserved(left: float, served: int) -> None:
    slow = Script([Sleep(1), *WHOLE_RESPONSES[CHAT].body])
    gateway = scripted(CHAT, slow, keys={"red": {"budget": left}}, prices=SMALL)
    response: list[FakeClient] = []

    async def one() -> None:
        response.append(await gateway.request())

    async with anyio.create_task_group() as tasks:
        for _ in range(40):
            tasks.start_soon(one)
    assert [client.status for client in response].count(200) == served
    assert len(gateway.upstreams.sent) == served


@pytest.mark.anyio
async def test_the_reservation_is_released_and_the_true_price_counts() -> None:
    """For responses, errors of upstreams, requests that are refused later, and clients that leave."""
    keys = {"red": {"budget": 1.0, "budget_period": "total", "requests_per_minute": 5}}
    scripts = (WHOLE_RESPONSES[CHAT], Script([b"{}"], status=400), Script([Sleep(60)]))
    gateway = scripted(CHAT, *scripts, keys=keys, prices=SMALL)

    async def spent() -> float:
        [key] = gateway.gateway.settings.client_keys
        found = await spent_by(gateway.gateway.limits, key)
        assert found is not None
        return found

    assert (await gateway.request()).status == 200
    price = await spent()
    assert price == pytest.approx(4e-6)  # four tokens out
    assert (await gateway.request()).status == 400
    assert await spent() == pytest.approx(price)
    assert (await gateway.call(PATHS[MESSAGES], {"model": "up/m", "messages": 5})).status == 400
    assert await spent() == pytest.approx(price)
    leaving = FakeClient(json.dumps({"model": "up/m", "messages": []}).encode(), leaves_after=1)
    await gateway.call(PATHS[CHAT], {}, client=leaving)
    assert await spent() < price + 1e-5
    for _ in range(3):
        last = await gateway.request()
    assert last.status == 429  # too fast
    assert await spent() < price + 1e-5


@pytest.mark.anyio
async def test_the_reservation_is_released_if_the_request_is_cancelled_before_it_passed() -> None:
    class Slow(MemoryAccountStore):
        async def apply(self, operation: Operation[Any]) -> Any:
            if isinstance(operation, Spend):
                await anyio.sleep_forever()
            return await super().apply(operation)

    key = ClientKey(name="red", hash="", budget=1.0, budget_period="total", requests_per_minute=5)
    store = Slow()
    limits = ClientLimits(Settings(), store, lambda: NOON)
    with anyio.move_on_after(0.1):
        await limits.admit(key, 0.5)
    assert await spent_by(limits, key) == 0


@pytest.mark.anyio
@pytest.mark.parametrize("period", ["day", "total"])
async def test_what_a_gateway_had_reserved_that_was_killed_is_free_again_later(period: str) -> None:
    """Without that a budget without an end would lose it for ever, at each crash."""
    key = ClientKey(name="red", hash="", budget=1.0, budget_period=period)
    store, clock = MemoryAccountStore(), Clock()
    killed, other = (ClientLimits(Settings(), store, clock) for _ in range(2))
    for _ in range(2):
        await killed.admit(key, 0.75)
    for seconds in (0, LEASE_S):
        clock.now = NOON + seconds
        assert await spent_by(other, key) == 1.5
        # It may be free again soon, so this is not the refusal of a budget that is spent.
        match = "of the client key red is reserved for its requests"
        with pytest.raises(ClientRefused, match=match) as refused:
            await other.admit(key, 0.5)
        assert (refused.value.status, refused.value.code) == (429, "rate_limit_exceeded")
    clock.now = NOON + 2 * LEASE_S
    assert await spent_by(other, key) == 0
    reserved = await other.admit(key, 0.5)
    # It ends as late as that too: the true price counts, and what has expired is not released again.
    clock.now += 2 * LEASE_S
    await other.settle(key, Usage(), 0.75, reserved)
    assert await spent_by(other, key) == 0.75


@pytest.mark.anyio
async def test_what_a_store_has_lost_is_not_taken_back() -> None:
    """It would be a credit for later requests."""
    key = ClientKey(name="red", hash="", budget=2.0)
    stores = [MemoryAccountStore(), MemoryAccountStore()]
    before, after = (ClientLimits(Settings(), store, Clock()) for store in stores)
    await after.settle(key, Usage(), 2.0, await before.admit(key, 1.5))
    with pytest.raises(ClientRefused, match="the budget of the client key red is spent"):
        await after.admit(key, 0.5)


@pytest.mark.anyio
async def test_what_the_key_had_reserved_is_released_if_its_group_has_nothing_left() -> None:
    group = Group(name="team", budget=1e-6, budget_period="total")
    key = ClientKey(name="red", hash="", group="team", budget=9.0).in_group_of({"team": group})
    limits = ClientLimits(Settings(), MemoryAccountStore(), lambda: NOON)
    reserved = await limits.admit(key, 2.0)
    assert await limits.spent([key, group, ClientKey(name="x", hash="")]) == [2.0, 2.0, None]
    with pytest.raises(ClientRefused, match="the budget of the group team is reserved"):
        await limits.admit(key, 0.5)
    assert await limits.spent([key, group]) == [2.0, 2.0]
    await limits.settle(key, Usage(), 0.25, reserved)
    many = [ClientKey(name=f"k{number}", hash="", budget=1.0) for number in range(250)]
    assert await limits.spent([*many, key, group]) == [*[0.0] * 250, 0.25, 0.25]


@pytest.mark.anyio
async def test_a_higher_estimate_takes_the_place_of_the_first() -> None:
    key = ClientKey(name="red", hash="", budget=2.0, budget_period="total")
    clock = Clock()
    limits = ClientLimits(Settings(), MemoryAccountStore(), clock)
    for seconds in (0, LEASE_S):  # in one counter, and in two
        reserved = await limits.admit(key, 0.25)
        assert reserved is not None
        clock.now += seconds
        reserved = await limits.reserve_more(key, reserved, 1.5)
        assert await spent_by(limits, key) == 1.5
        await limits.settle(key, Usage(), 0.0, reserved)
        assert await spent_by(limits, key) == 0


@pytest.mark.anyio
async def test_a_request_that_costs_what_was_reserved_needs_no_more() -> None:
    key = ClientKey(name="red", hash="", budget=1.0)
    limits = ClientLimits(Settings(), MemoryAccountStore(), Clock())
    first, _ = [await limits.admit(key, 0.5) for _ in range(2)]
    assert await limits.reserve_more(key, first, 0.5) == [*first]


@pytest.mark.anyio
async def test_what_a_request_has_reserved_does_not_refuse_it_the_rest() -> None:
    key = ClientKey(name="red", hash="", budget=1.0)
    limits = ClientLimits(Settings(), MemoryAccountStore(), Clock())
    reserved = await limits.reserve_more(key, await limits.admit(key, 1.5), 2.0)
    assert sum(each.dollars for each in reserved) == 2.0
    with pytest.raises(ClientRefused, match="is reserved for its requests"):
        await limits.admit(key, 0.5)


# Models that a request names besides its own.

RESTRICTED = {"models": ["up/m", "up/small-*", "fast"]}
PRICED = {"budget": 1.0, "budget_period": "total"}
BIG = {"model": "big"}
ADVISOR = {"type": "advisor_1", "name": "advisor"}
FUNCTION = {"name": "f", "parameters": {"properties": {"model": {"type": "string"}}}}
OTHERS: list[tuple[dict[str, Any], str, dict[str, Any], str]] = [
    (RESTRICTED, MESSAGES, {"fallbacks": [BIG]}, "may not use the model 'big'"),
    (RESTRICTED, MESSAGES, {"fallbacks": [{"model": "small-1"}, BIG]}, "may not use the model 'big'"),
    (RESTRICTED, MESSAGES, {"fallbacks": [{"model": "small-1"}], "tools": [{**ADVISOR, "model": "fast"}]}, ""),
    (RESTRICTED, MESSAGES, {"tools": [ADVISOR | BIG]}, "may not use the model 'big'"),
    (RESTRICTED, MESSAGES, {"fallbacks": "default"}, ""),
    (RESTRICTED, CHAT, {"models": ["small-1", "big"]}, "may not use the model 'big'"),
    (RESTRICTED, CHAT, {"Model": "big"}, "may not use the model 'big'"),
    (RESTRICTED, CHAT, {"MODELS": ["big"]}, "may not use the model 'big'"),
    (RESTRICTED, CHAT, {"fallbacks": [{"Model": "big"}]}, "may not use the model 'big'"),
    (RESTRICTED, CHAT, {"tools": [{"type": "function", "function": FUNCTION}]}, ""),
    (RESTRICTED, CHAT, {"models": [f"small-{n}" for n in range(101)]}, "at most 100 models"),
    (PRICED, CHAT, {"models": ["small-1"]}, ""),
    (PRICED, CHAT, {"models": ["big"]}, "'up/big' needs a table"),
    ({}, CHAT, {"models": ["big"]}, ""),
]  # fmt: skip


@pytest.mark.anyio
@pytest.mark.parametrize(("limits", "protocol", "members", "refusal"), OTHERS)
async def test_other_models_in_a_request_are_checked_too(
    limits: dict[str, Any], protocol: str, members: dict[str, Any], refusal: str
) -> None:
    prices = (Price(model="up/m", input=1.0, output=1.0), Price(model="up/small-*", input=1.0, output=1.0))
    gateway = scripted(protocol, keys={"red": limits}, prices=prices)
    client = await gateway.call(
        PATHS[protocol], {"model": "up/m", "max_tokens": 5, "messages": [], **members}
    )
    assert refusal in (client.error["message"] if client.status != 200 else ""), client.body
    assert (client.status == 200, len(gateway.upstreams.sent)) == (not refusal, int(not refusal)), client.body


TWICE = {
    "the model": (b'"model":"big","model":"up/m"', b"'big'"),
    "the model, escaped": (b'"mod\\u0065l":"big","model":"up/m"', b"'big'"),
    "the model, of which a reader may take either": (b'"model":"small-1","model":"up/m"', b""),
    "others": (b'"fallbacks":[{"model":"big"}],"fallbacks":[],"model":"up/m"', b"'big'"),
    "the model of another": (b'"fallbacks":[{"model":"big","model":"small-1"}],"model":"up/m"', b"'big'"),
    "the model of a tool": (b'"tools":[{"model":"big","model":"small-1"}],"model":"up/m"', b"'big'"),
    "something else": (b'"user":"a","user":"b","model":"up/m"', b""),
}


@pytest.mark.anyio
@pytest.mark.parametrize(("members", "refused"), TWICE.values(), ids=TWICE)
async def test_a_model_that_a_later_member_of_its_name_replaces_is_checked_too(
    members: bytes, refused: bytes
) -> None:
    gateway = scripted(CHAT, keys={"red": RESTRICTED})
    client = await gateway.call(PATHS[CHAT], b"{" + members + b',"messages":[]}')
    assert (client.status, len(gateway.upstreams.sent)) == ((403, 0) if refused else (200, 1)), client.body
    assert refused in client.body


@pytest.mark.parametrize("nested", [(b"[", b"]"), (b'{"a":', b"}")])
def test_models_that_are_nested_too_deep_are_an_error_of_the_client(nested: tuple[bytes, bytes]) -> None:
    # peek(), and each function behind it, accepts as much as the stack has left there.
    for depth in range(sys.getrecursionlimit() * 3 // 4, sys.getrecursionlimit()):
        body = b'{"fallbacks":[%b1%b]}' % tuple(mark * depth for mark in nested)
        with suppress(RemoteProtocolError):
            assert other_models(body, peek(body)) == []


@pytest.mark.parametrize(
    ("limits", "others", "refusal"),
    [
        ({"models": ("small",)}, ["small"], ""),
        ({"models": ("small",)}, ["small", "big"], "may not use the model 'big'"),
        ({"budget": 1.0, "budget_period": "total"}, ["small"], "what this request costs is not known"),
    ],
)
def test_other_models_are_checked_where_a_request_has_none_by_which_it_is_routed(
    limits: dict[str, Any], others: list[str], refusal: str
) -> None:
    key = ClientKey(name="red", hash="", **limits)
    checked = ClientLimits(Settings(), MemoryAccountStore())
    with pytest.raises(RequestRefused, match=refusal) if refusal else nullcontext():
        assert checked.check_model(key, CHAT, "", others=others) == []
