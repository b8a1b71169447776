"""The effects of each class of error: on the client, on the account it came from, and on the next one.

A provider with two accounts fails with the first in every known way of vendors: by status and body, inside
a body with status 200, and on the wire. All protocols of clients and of providers, streaming and not.
"""

import json

import anyio
import pytest
from failures.translate import each
from gateway.fakes import FakeClient
from gateway.provider import PoolGateway, RawResponse, check_text, good, pool_of
from gateway.provider_errors import Case, broken, cases, invalid, limited, refusal, unauthorized
from oracle import MESSAGES, check_error, compare_error, read_error
from virtual_time import VIRTUAL_BACKENDS

from dragoman_server.policy.error_actions import ErrorAction
from dragoman_server.policy.health import Health
from dragoman_server.settings import RuleSettings
from dragoman_server.settings.secret import Secret
from dragoman_server.upstream.errors import (
    GatewayExhausted,
    UpstreamTimeout,
    UpstreamTimeoutPhase,
    UpstreamUnreachable,
)

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.backends(*VIRTUAL_BACKENDS),
    pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"]),
]


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
    assert untouched(health)
    return ErrorAction.RETURN_TO_CLIENT if pool.attempted == ["a"] else ErrorAction.TRY_NEXT


@each("client")
@each("upstream")
@pytest.mark.no_cover
async def test_every_known_error_has_its_action(client: str, upstream: str, stream: bool) -> None:
    for case in cases(*ErrorAction):
        if case.protocol == upstream:
            pool = pool_of(case.protocol, {"a": case.play, "b": good("Hello from b")})
            response = await pool.call(client, stream=stream)
            assert action_taken(pool) is case.action, case.name
            if case.action is ErrorAction.RETURN_TO_CLIENT:
                check_client_error(client, case, response)
            else:
                check_text(client, response, "Hello from b", stream=stream)
                assert pool.attempted == ["a", "b"], case.name
                assert untouched(pool.health("b")), case.name


# What always fails with account a -> the accounts that are tried by requests at these times.
FOLLOWED: dict[str, tuple[RawResponse, dict[float, str]]] = {
    "it cools down, and longer each time": (limited(MESSAGES), {0: "ab", 14: "b", 15: "ab", 44: "b", 45: "ab"}),
    "it is disabled": (unauthorized(MESSAGES), {0: "ab", 1: "b", 30 * 86_400: "b"}),
    "it cools down after several failures": (broken(MESSAGES), {0: "ab", 5: "ab", 10: "ab", 14: "b", 15: "ab"}),
    "it stays in use": (refusal(MESSAGES, 403, "Insufficient tokens left"), {0: "ab", 1: "ab"}),
}  # fmt: skip


@pytest.mark.parametrize("what", FOLLOWED)
async def test_what_follows_for_the_account(what: str, stream: bool) -> None:
    failure, attempted = FOLLOWED[what]
    pool = pool_of(MESSAGES, {"a": failure, "b": good("Hello from b")})
    for at, accounts in attempted.items():
        await anyio.sleep(at - anyio.current_time())
        before = len(pool.attempted)
        check_text(MESSAGES, await pool.call(MESSAGES, stream=stream), "Hello from b", stream=stream)
        assert "".join(pool.attempted[before:]) == accounts, at


@each("upstream")
async def test_what_the_gateway_has_run_out_of_is_no_fault_of_an_account(upstream: str, stream: bool) -> None:
    """Else a gateway without descriptors would cool down the accounts of all that share its store."""
    for error in (
        GatewayExhausted("cannot connect to http://up.test: Too many open files"),
        UpstreamTimeout("http://up.test: no free connection", UpstreamTimeoutPhase.POOL),
    ):
        pool = pool_of(upstream, {"a": RawResponse(before=[error]), "b": good("Hello from b")})
        for _ in range(5):
            response = await pool.call(MESSAGES, stream=stream)
            check_text(MESSAGES, response, "Hello from b", stream=stream)
        assert pool.attempted == ["a", "b"] * 5
        assert untouched(pool.health("a"))


# Proxies.

GONE = RawResponse(before=[UpstreamUnreachable("the proxy did not connect to http://up.test")])
LATE = RawResponse(before=[UpstreamTimeout("http://up.test: connect timeout", UpstreamTimeoutPhase.CONNECT)])
ONE, TWO = Secret("http://user:hidden@one.test:1"), Secret("http://two.test:1")


def behind_a_proxy(a: RawResponse) -> PoolGateway:
    """Return two accounts behind one proxy, and a third one of another upstream behind another."""
    plays = {"a": a, "b": good("Hello from b"), "c": good("Hello from c")}
    accounts = {"a": {"proxy": ONE}, "b": {"proxy": ONE}, "c": {"proxy": TWO}}
    others = {"else": (MESSAGES, ["c"])}
    return pool_of(MESSAGES, plays, accounts=accounts, others=others, models={"m": ("up/m", "else/m")})


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


# The upstream's own rules.


# A rule -> True if it is for this upstream and this error.
RULES = [
    (RuleSettings(action="cool_down", upstream="up", statuses=(400,), words=("Too Long",)), True),
    (RuleSettings(action="cool_down", upstream="other", statuses=(400,)), False),
    (RuleSettings(action="cool_down", statuses=(400,), words=("short",)), False),
    (RuleSettings(action="cool_down", codes=("rate_limit_error",)), False),
]


async def test_rules_that_fit_come_before_the_table(stream: bool) -> None:
    for rule, fits in RULES:
        plays = {"a": invalid(MESSAGES), "b": good("Hello")}
        pool = pool_of(MESSAGES, plays, rules=[rule], others={"other": (MESSAGES, ())})
        assert (await pool.call(MESSAGES, stream=stream)).status == (200 if fits else 400), rule
        assert action_taken(pool) is (ErrorAction.COOL_DOWN if fits else ErrorAction.RETURN_TO_CLIENT), rule
