"""The effects of each class of error: on the client, on the account it came from, and on the next one.

A provider with two accounts fails with the first in every known way of vendors: by status and body, inside
a body with status 200, and on the wire. Three protocols of clients, three of providers, streaming and not.
"""

from __future__ import annotations

import json
from email.utils import formatdate
from functools import partial

import anyio
import pytest
from failures.translate import each, name_of
from gateway.fakes import FakeClient, Sleep
from gateway.provider import EPOCH, InBand, PoolGateway, RawResponse, check_text, good, pool_of, with_headers
from gateway.provider_errors import ALL, Case, broken, cases, invalid, limited, unauthorized
from oracle import MESSAGES, check_error, compare_error, read_error
from virtual_time import VIRTUAL_BACKENDS

from dragoman_server.accounts.error_actions import ErrorAction
from dragoman_server.accounts.health import Health
from dragoman_server.settings import RuleSettings
from dragoman_server.settings.secret import Secret
from dragoman_server.upstream.client import (
    UpstreamTimeout,
    UpstreamTimeoutPhase,
    UpstreamUnreachable,
)

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.backends(*VIRTUAL_BACKENDS),
    pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"]),
]


def form_of(case: Case) -> str:
    """Return where the failure is: in an HTTP error, in the body of a good status, or, by name, on the wire."""
    if isinstance(case.play, InBand):
        return "alone" if case.play.bare else "in the body"
    return "http" if isinstance(case.play, RawResponse) and case.play.status != 200 else case.name


def on_each(action: ErrorAction) -> pytest.MarkDecorator:
    """Parametrize a test with one case of each protocol and form."""
    found = {(case.protocol, form_of(case)): case for case in reversed(cases(action))}
    ids = [f"{name_of(case.protocol)}-{case.name}" for case in found.values()]
    return pytest.mark.parametrize("case", found.values(), ids=ids)


def failing(case: Case) -> PoolGateway:
    """Return a pool whose first account always fails so; the second one is good."""
    return pool_of(case.protocol, {"a": case.play, "b": good("Hello from b")})


def untouched(health: Health) -> bool:
    return (
        health.disabled is None
        and not health.cooldown_until
        and not health.failures
        and not health.consecutive_cooldowns
    )


def check_client_error(client: str, case: Case, response: FakeClient) -> None:
    """Check that the client got the error in its own form, with the provider's text and class."""
    status, body = response.status or 0, response.body
    assert check_error(client, status, body) == []
    if isinstance(case.play, RawResponse) and case.play.status != 200:
        data = case.play.parts[0]
        assert isinstance(data, bytes)
        sent = read_error(case.protocol, case.play.status, data)
        problems = compare_error(sent, read_error(client, status, body))
        # Statuses that no protocol has are tested elsewhere.
        assert [problem for problem in problems if not problem.startswith("status: 451")] == []
    assert case.message in json.loads(body)["error"]["message"]


def action_taken(pool: PoolGateway) -> ErrorAction:
    health = pool.health("a")
    if health.disabled:
        return ErrorAction.DISABLE
    if pool.cooldown_left("a"):
        return ErrorAction.COOL_DOWN
    if health.failures:
        return ErrorAction.RETRY_LATER
    return ErrorAction.RETURN_TO_CLIENT if pool.attempted == ["a"] else ErrorAction.TRY_NEXT


@each("client")
@each("upstream")
async def test_every_known_error_has_its_action(client: str, upstream: str, stream: bool) -> None:
    """All known errors of vendors. The tests below follow one of each form to its end."""
    for case in cases(*ErrorAction):
        if case.protocol == upstream:
            pool = failing(case)
            response = await pool.call(client, stream=stream)
            assert action_taken(pool) is case.action, case.name
            if case.action is ErrorAction.RETURN_TO_CLIENT:
                check_client_error(client, case, response)
            else:
                check_text(client, response, "Hello from b", stream=stream)


@each("client")
@on_each(ErrorAction.RETURN_TO_CLIENT)
@pytest.mark.each_choice
async def test_an_error_of_the_request_is_returned_at_once(client: str, case: Case, stream: bool) -> None:
    pool = failing(case)
    response = await pool.call(client, stream=stream)
    assert pool.attempted == ["a"]
    check_client_error(client, case, response)
    assert untouched(pool.health("a"))
    assert "retry-after" not in response.headers


@each("client")
@on_each(ErrorAction.TRY_NEXT)
@pytest.mark.each_choice
async def test_an_account_without_enough_tokens_is_passed_over_and_stays_in_use(
    client: str, case: Case, stream: bool
) -> None:
    pool = failing(case)
    for _ in range(2):
        check_text(client, await pool.call(client, stream=stream), "Hello from b", stream=stream)
    assert pool.attempted == ["a", "b", "a", "b"]
    assert untouched(pool.health("a"))


@each("client")
@on_each(ErrorAction.COOL_DOWN)
@pytest.mark.each_choice
async def test_an_account_cools_down_after_a_rate_limit(client: str, case: Case, stream: bool) -> None:
    pool = failing(case)
    check_text(client, await pool.call(client, stream=stream), "Hello from b", stream=stream)
    assert pool.attempted == ["a", "b"]
    assert pool.cooldown_left("a") == 15
    check_text(client, await pool.call(client, stream=stream), "Hello from b", stream=stream)
    assert pool.attempted == ["a", "b", "b"]
    await anyio.sleep(15)
    check_text(client, await pool.call(client, stream=stream), "Hello from b", stream=stream)
    assert pool.attempted == ["a", "b", "b", "a", "b"]
    assert pool.cooldown_left("a") == 30, "the second one in a row"
    assert untouched(pool.health("b"))


@each("client")
@on_each(ErrorAction.DISABLE)
@pytest.mark.each_choice
async def test_an_account_that_is_used_up_or_refused_is_disabled_until_it_is_reset(
    client: str, case: Case, stream: bool
) -> None:
    pool = failing(case)
    check_text(client, await pool.call(client, stream=stream), "Hello from b", stream=stream)
    assert pool.attempted == ["a", "b"]
    assert pool.health("a").disabled
    await anyio.sleep(30 * 24 * 3600)
    check_text(client, await pool.call(client, stream=stream), "Hello from b", stream=stream)
    assert pool.attempted == ["a", "b", "b"]
    await pool.store.change("up/a", Health.after_reset)
    check_text(client, await pool.call(client, stream=stream), "Hello from b", stream=stream)
    assert pool.attempted == ["a", "b", "b", "a", "b"]
    assert untouched(pool.health("b"))


@each("client")
@on_each(ErrorAction.RETRY_LATER)
@pytest.mark.each_choice
async def test_an_account_cools_down_after_several_failures(client: str, case: Case, stream: bool) -> None:
    pool = failing(case)
    for number in range(3):
        assert pool.health("a").failures == tuple(
            pool.pool.clock() - 5 * back for back in range(number, 0, -1)
        )
        check_text(client, await pool.call(client, stream=stream), "Hello from b", stream=stream)
        assert pool.attempted == ["a", "b"] * (number + 1)
        assert pool.cooldown_left("a") == (5 if number == 2 else 0)
        await anyio.sleep(5 if number < 2 else 4)
    check_text(client, await pool.call(client, stream=stream), "Hello from b", stream=stream)
    assert pool.attempted[-2:] == ["b", "b"]
    assert untouched(pool.health("b"))


@each("protocol")
async def test_failures_that_are_far_apart_cause_no_cooldown(protocol: str, stream: bool) -> None:
    pool = pool_of(protocol, {"a": broken(protocol), "b": good("Hello")})
    for _ in range(5):
        check_text(protocol, await pool.call(protocol, stream=stream), "Hello", stream=stream)
        await anyio.sleep(16)
    assert pool.attempted == ["a", "b"] * 5


DATE = formatdate(EPOCH + 75, usegmt=True)
NAMED_TIMES = {
    "seconds": ([("retry-after", "40")], 40.0),
    "a fraction": ([("retry-after", "0.5")], 0.5),
    "a date": ([("retry-after", DATE)], 75.0),
    "milliseconds": ([("retry-after-ms", "1500"), ("retry-after", "2")], 1.5),
    "a time that has passed": ([("retry-after", formatdate(EPOCH - 9, usegmt=True))], 0.0),
    "nonsense": ([("retry-after", "soon")], 15.0),
}


@each("protocol")
@pytest.mark.parametrize("named", NAMED_TIMES)
@pytest.mark.each_choice
async def test_an_account_cools_down_as_long_as_the_provider_requires(
    protocol: str, named: str, stream: bool
) -> None:
    headers, seconds = NAMED_TIMES[named]
    pool = pool_of(protocol, {"a": with_headers(limited(protocol), *headers), "b": good("Hello")})
    check_text(protocol, await pool.call(protocol, stream=stream), "Hello", stream=stream)
    assert pool.cooldown_left("a") == pytest.approx(seconds)


async def test_jitter_makes_a_cooldown_longer_and_never_shorter(stream: bool) -> None:
    plays = {"a": limited(MESSAGES, ("retry-after", "40")), "b": good("Hello")}
    pool = pool_of(MESSAGES, plays, random=0.5)
    await pool.call(MESSAGES, stream=stream)
    assert pool.cooldown_left("a") == pytest.approx(42)


async def test_a_later_error_does_not_shorten_a_cooldown(stream: bool) -> None:
    """Two requests are under way when the account is limited; the one that ends last names a shorter time."""

    def slow(seconds: float, after: str) -> RawResponse:
        play = limited(MESSAGES, ("retry-after", after))
        return RawResponse(play.parts, play.status, play.headers, [Sleep(seconds)])

    plays = {"a": [slow(1, "60"), slow(2, "5")], "b": good("Hello")}
    pool = pool_of(MESSAGES, plays, upstream={"selection": "weighted"})
    async with anyio.create_task_group() as tasks:
        for _ in range(2):
            tasks.start_soon(partial(pool.call, MESSAGES, stream=stream))
    assert pool.attempted[:2] == ["a", "a"]
    assert pool.cooldown_left("a") == pytest.approx(59)
    assert pool.health("a").consecutive_cooldowns == 1


@each("protocol")
async def test_a_failure_with_a_time_is_a_cooldown_at_once(protocol: str, stream: bool) -> None:
    play = with_headers(broken(protocol), ("retry-after", "9"))
    pool = pool_of(protocol, {"a": play, "b": good("Hello")})
    check_text(protocol, await pool.call(protocol, stream=stream), "Hello", stream=stream)
    assert pool.cooldown_left("a") == 9


# Proxies.

GONE = RawResponse(before=[UpstreamUnreachable("the proxy did not connect to http://up.test")])
LATE = RawResponse(before=[UpstreamTimeout("http://up.test: connect timeout", UpstreamTimeoutPhase.CONNECT)])
ONE, TWO = Secret("http://user:hidden@one.test:1"), Secret("http://two.test:1")


def behind_a_proxy(a: RawResponse) -> PoolGateway:
    """Return two accounts behind one proxy, and a third one of another upstream behind another."""
    plays = {"a": a, "b": good("Hello from b"), "c": good("Hello from c")}
    return pool_of(
        MESSAGES,
        plays,
        accounts={"a": {"proxy": ONE}, "b": {"proxy": ONE}, "c": {"proxy": TWO}},
        others={"else": (MESSAGES, ["c"])},
        models={"m": ("up/m", "else/m")},
    )


@pytest.mark.parametrize("failure", [GONE, LATE], ids=["refused", "no time"])
async def test_a_proxy_that_fails_cools_down_and_not_the_account(failure: RawResponse, stream: bool) -> None:
    pool = behind_a_proxy(failure)
    for _ in range(3):
        response = await pool.call(MESSAGES, stream=stream, model="m")
        check_text(MESSAGES, response, "Hello from b", stream=stream)
    assert pool.attempted == ["a", "b"] * 3
    assert [request.proxy for request in pool.provider.sent[:2]] == [ONE.reveal()] * 2
    assert untouched(pool.health("a"))
    assert "hidden" not in repr(pool.store.health())


async def test_all_accounts_behind_a_cooling_proxy_are_passed_over(stream: bool) -> None:
    pool = behind_a_proxy(GONE)
    pool.provider.play("b", GONE)
    for requested in (["a", "b", "c"], ["a", "c"], ["c"]):
        before = len(pool.attempted)
        response = await pool.call(MESSAGES, stream=stream, model="m")
        check_text(MESSAGES, response, "Hello from c", stream=stream)
        assert pool.attempted[before:] == requested
    assert pool.provider.sent[-1].proxy == TWO.reveal()
    assert untouched(pool.health("a"))
    assert untouched(pool.health("b"))
    await anyio.sleep(5)
    pool.provider.play("a", good("Hello from a"))
    response = await pool.call(MESSAGES, stream=stream, model="m")
    check_text(MESSAGES, response, "Hello from a", stream=stream)


async def test_after_a_proxys_cooldown_its_accounts_take_turns_again(stream: bool) -> None:
    """The state of the proxy does not replace the state of the accounts."""
    pool = behind_a_proxy(GONE)
    pool.provider.play("b", GONE)
    for _ in range(2):
        await pool.call(MESSAGES, stream=stream, model="m")
    await anyio.sleep(6)
    for account in ("a", "b"):
        pool.provider.play(account, good("Hello"))
    for _ in range(4):
        await anyio.sleep(1)
        await pool.call(MESSAGES, stream=stream, model="m")
    assert pool.attempted[-4:] == ["a", "b", "a", "b"]


async def test_a_success_resets_the_failures_of_a_proxy(stream: bool) -> None:
    pool = behind_a_proxy(GONE)
    pool.provider.play("b", GONE)
    for _ in range(2):
        await pool.call(MESSAGES, stream=stream, model="m")
    (proxy,) = [name for name in pool.store.health() if name.startswith("proxy:")]
    assert pool.store.health()[proxy].consecutive_cooldowns == 1
    await anyio.sleep(6)
    pool.provider.play("a", good("Hello"))
    pool.provider.play("b", good("Hello"))
    await pool.call(MESSAGES, stream=stream, model="m")
    assert pool.store.health()[proxy].consecutive_cooldowns == 0


async def test_an_upstreams_error_through_a_proxy_is_the_accounts(stream: bool) -> None:
    pool = behind_a_proxy(broken(MESSAGES))
    for _ in range(3):
        await pool.call(MESSAGES, stream=stream, model="m")
    assert pool.cooldown_left("a") == 5
    response = await pool.call(MESSAGES, stream=stream, model="m")
    check_text(MESSAGES, response, "Hello from b", stream=stream)
    assert pool.attempted == ["a", "b"] * 3 + ["b"]


# All of them.


@each("client")
@each("upstream", ALL)
@pytest.mark.each_choice
async def test_when_all_accounts_fail_the_client_gets_the_last_error_and_the_soonest_recovery(
    client: str, upstream: str, stream: bool
) -> None:
    plays = {
        "a": limited(upstream, ("retry-after", "30")),
        "b": limited(upstream, ("retry-after", "8"), ("retry-after-ms", "7500")),
        "c": limited(upstream, ("retry-after", "90")),
    }
    pool = pool_of(upstream, plays)
    response = await pool.call(client, stream=stream)
    assert pool.attempted == ["a", "b", "c"]
    assert response.status == 429
    assert check_error(client, 429, response.body) == []
    assert (response.headers["retry-after"], response.headers["retry-after-ms"]) == ("8", "7500")
    # And now no account is tried.
    response = await pool.call(client, stream=stream)
    assert pool.attempted == ["a", "b", "c"]
    assert response.status == 429
    assert check_error(client, 429, response.body) == []
    assert response.headers["retry-after"] == "8"


@each("client")
@pytest.mark.each_choice
async def test_a_passing_error_is_returned_before_a_lasting_one(client: str, stream: bool) -> None:
    """The client can try again when the first account is back; of the second it would think that it never can."""
    pool = pool_of(MESSAGES, {"a": limited(MESSAGES, ("retry-after", "30")), "b": unauthorized(MESSAGES)})
    response = await pool.call(client, stream=stream)
    assert pool.attempted == ["a", "b"]
    assert response.status == 429
    assert response.headers["retry-after"] == "30"


@each("client")
async def test_when_all_accounts_are_disabled_the_client_gets_no_retry_after(
    client: str, stream: bool
) -> None:
    pool = pool_of(MESSAGES, {"a": unauthorized(MESSAGES), "b": unauthorized(MESSAGES)})
    for _ in range(2):  # the request that finds the last key refused, and those after it
        response = await pool.call(client, stream=stream)
        assert pool.attempted == ["a", "b"]
        assert (response.status, response.headers["x-should-retry"]) == (503, "false")
        assert check_error(client, response.status or 0, response.body) == []
        assert "operator" in json.loads(response.body)["error"]["message"]
        assert "retry-after" not in response.headers


@each("client")
async def test_an_error_of_the_request_has_no_retry_after(client: str, stream: bool) -> None:
    """A cooling account does not make an invalid request worth repeating."""
    pool = pool_of(MESSAGES, {"a": limited(MESSAGES, ("retry-after", "30")), "b": invalid(MESSAGES)})
    response = await pool.call(client, stream=stream)
    assert pool.attempted == ["a", "b"]
    assert response.status == 400
    assert "retry-after" not in response.headers


# The upstream's own rules.


async def test_rules_come_before_the_table(stream: bool) -> None:
    plays = {"a": invalid(MESSAGES), "b": good("Hello")}
    rule = RuleSettings(action="cool_down", upstream="up", statuses=(400,), words=("Too Long",))
    pool = pool_of(MESSAGES, plays, rules=[rule])
    check_text(MESSAGES, await pool.call(MESSAGES, stream=stream), "Hello", stream=stream)
    assert pool.cooldown_left("a") == 15


@pytest.mark.parametrize(
    "rule",
    [
        RuleSettings(action="cool_down", upstream="other", statuses=(400,)),
        RuleSettings(action="cool_down", statuses=(400,), words=("short",)),
        RuleSettings(action="cool_down", codes=("rate_limit_error",)),
    ],
    ids=["another upstream's", "other words", "another code"],
)
async def test_a_rule_that_does_not_fit_changes_nothing(rule: RuleSettings, stream: bool) -> None:
    plays = {"a": invalid(MESSAGES), "b": good("Hello")}
    pool = pool_of(MESSAGES, plays, rules=[rule], others={"other": (MESSAGES, ())})
    assert (await pool.call(MESSAGES, stream=stream)).status == 400
    assert pool.attempted == ["a"]
    assert untouched(pool.health("a"))
