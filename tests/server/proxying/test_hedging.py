"""A second account beside the first, when that one is silent for a time: the first content counts."""

import weakref
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import anyio
import pytest
from gateway.fakes import FakeClient, Late, Sleep
from gateway.provider import PoolGateway, RawResponse, check_text, good, pool_of, script_of
from gateway.provider_errors import broken, invalid, limited, unauthorized
from oracle import CHAT, MESSAGES, PROTOCOL_NAMES, RESPONSES, check_error
from virtual_time import VIRTUAL_BACKENDS

from dragoman import RequestRefused
from dragoman_server.accounts.stores.base import Operation, Rate
from dragoman_server.accounts.stores.memory import MemoryAccountStore
from dragoman_server.accounts.stores.operations import Change, Reserve, Spend
from dragoman_server.proxying.destinations import Destination
from dragoman_server.proxying.plan import Plan, Planner
from dragoman_server.upstream.errors import UpstreamBroken

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.backends(*VIRTUAL_BACKENDS),
    pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"]),
]


class SlowStore(MemoryAccountStore):
    """Each call takes a time."""

    def __init__(self, take_s: float = 0.0, failed_s: float = 0.0) -> None:
        super().__init__()
        self._take_s, self._failed_s = take_s, failed_s

    async def apply(self, operation: Operation[Any]) -> Any:
        if isinstance(operation, Reserve):
            await anyio.sleep(self._take_s)
        elif isinstance(operation, Change) and operation.needed(
            {}
        ):  # a failure: a success changes nothing here
            await anyio.sleep(self._failed_s)
        return await super().apply(operation)

    def open_leases(self) -> int:
        return sum(len(each) for each in self._expiries.values())


def silent(seconds: float, text: str = "Hello from a") -> Any:
    return good(text, before=[Sleep(seconds)])


def late(play: RawResponse, seconds: float) -> RawResponse:
    return RawResponse(play.parts, play.status, play.headers, [Sleep(seconds), *play.before])


def hedged(protocol: str, plays: dict[str, Any], hedge_s: float = 2, **more: Any) -> PoolGateway:
    limits = {name: {"max_concurrent_requests": 5} for name in plays}
    return pool_of(protocol, plays, upstream={"hedge_s": hedge_s}, accounts=limits, **more)


def ended_at(response: FakeClient) -> float:
    return response.messages[-1][0]


@pytest.mark.parametrize("client", PROTOCOL_NAMES)
@pytest.mark.parametrize("upstream", PROTOCOL_NAMES)
@pytest.mark.each_choice
async def test_the_second_account_is_tried_after_the_delay_and_may_win(
    client: str, upstream: str, stream: bool, record: Any
) -> None:
    pool = hedged(upstream, {"a": silent(60), "b": silent(1, "Hello from b")})
    response = await pool.call(client, stream=stream)
    check_text(client, response, "Hello from b", stream=stream)
    assert [(request.account, request.at) for request in pool.provider.sent] == [("a", 0), ("b", 2)]
    assert ended_at(response) == 3
    assert pool.provider.sent[0].closed_at == 3, "the slower one is ended at once"
    assert (record()["account"], record()["attempts"], record()["outcome"]) == ("up/b", 2, "completed")
    assert record()["hedge"] == {"account": "up/a", "outcome": "cancelled"}
    assert record()["sent_s"] == 2


async def test_a_response_that_has_begun_is_not_hedged(stream: bool) -> None:
    """Silence counts. A whole response is silent until its end."""
    pool = hedged(MESSAGES, {"a": good("Hello from a", between=[Sleep(30)]), "b": silent(60, "Hello from b")})
    response = await pool.call(MESSAGES, stream=stream, leaves_after=500)
    check_text(MESSAGES, response, "Hello from a", stream=stream)
    assert pool.attempted == (["a"] if stream else ["a", "b"])


async def test_an_account_at_its_limit_is_no_second_one(stream: bool) -> None:
    plays = {"a": silent(30), "b": silent(60, "Hello from b")}
    limits = {"b": {"max_concurrent_requests": 1}}
    pool = pool_of(MESSAGES, plays, upstream={"hedge_s": 2}, accounts=limits)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(pool.call, MESSAGES)
        await anyio.sleep(10)
        response = await pool.call(MESSAGES, stream=stream)
        tasks.cancel_scope.cancel()
    # The first request has b as its second account, so the other one had but a.
    check_text(MESSAGES, response, "Hello from a", stream=stream)
    assert pool.attempted == ["a", "b", "a"]


async def test_a_hedge_may_cross_upstreams_and_protocols(stream: bool) -> None:
    pool = pool_of(
        MESSAGES,
        {"a": silent(60), "c": good("Hello from c")},
        upstream={"hedge_s": 2},
        others={"else": (CHAT, ["c"])},
        models={"m": ("up/one", "else/two")},
    )
    response = await pool.call(RESPONSES, stream=stream, model="m")
    check_text(RESPONSES, response, "Hello from c", stream=stream)
    assert [request.body["model"] for request in pool.provider.sent] == ["one", "two"]


# Failures.


async def test_when_the_second_one_fails_the_first_goes_on(stream: bool, record: Any) -> None:
    pool = hedged(MESSAGES, {"a": silent(30), "b": limited(MESSAGES), "c": good("Hello from c")})
    check_text(MESSAGES, await pool.call(MESSAGES, stream=stream), "Hello from a", stream=stream)
    assert pool.attempted == ["a", "b"]
    assert pool.health("b").consecutive_cooldowns == 1
    assert record()["hedge"] == {"account": "up/b", "outcome": "failed"}
    (failed,) = record()["failures"]
    assert (failed["account"], failed["status"]) == ("up/b", 429)
    assert "rate limit" in failed["cause"]
    assert (record()["account"], record()["outcome"]) == ("up/a", "completed")
    assert not {"error", "sent_s"} & record().keys(), "it is about the request to a, which was sent at once"


async def test_when_all_fail_the_client_gets_the_error(stream: bool, record: Any) -> None:
    plays = {"a": late(limited(MESSAGES, ("retry-after", "30")), 5), "b": late(unauthorized(MESSAGES), 6)}
    pool = hedged(MESSAGES, plays)
    response = await pool.call(MESSAGES, stream=stream)
    assert response.status == 429
    assert check_error(MESSAGES, 429, response.body) == []
    found = response.headers["retry-after"]
    assert found == "27", "the account has rested for 3 seconds when the other one failed"
    assert record()["outcome"] == "failed"
    assert record()["hedge"]["outcome"] == "failed"
    assert pool.health("b").disabled


@pytest.mark.parametrize("first", [True, False], ids=["the first", "the second"])
async def test_an_error_of_the_request_ends_both(first: bool, stream: bool, record: Any) -> None:
    slow, quick = silent(60), late(invalid(MESSAGES), 4)
    pool = hedged(MESSAGES, {"a": quick if first else slow, "b": slow if first else quick, "c": good("no")})
    response = await pool.call(MESSAGES, stream=stream)
    assert response.status == 400
    assert check_error(MESSAGES, 400, response.body) == []
    assert ended_at(response) == (4 if first else 6)
    assert {request.closed_at for request in pool.provider.sent} == {ended_at(response)}
    assert pool.attempted == ["a", "b"]


# Leases are given back.


@pytest.mark.parametrize("leaves", [1, 3])
async def test_a_client_that_leaves_ends_both(leaves: float, stream: bool, record: Any) -> None:
    store = SlowStore()
    pool = hedged(MESSAGES, {"a": silent(60), "b": silent(60)}, store=store)
    await pool.call(MESSAGES, stream=stream, leaves_after=leaves)
    assert {request.closed_at for request in pool.provider.sent} == {leaves}
    assert len(pool.attempted) == (1 if leaves == 1 else 2)
    assert store.open_leases() == 0
    assert record()["outcome"] == "client_left"


# Two things at once. Which task comes first is chance on trio, so each of these is tried often there.

BREAKS = RawResponse(before=[UpstreamBroken("http://up.test: the connection broke")])


def at_once(seconds: float, text: str, *, stream: bool) -> RawResponse:
    """Return a script whose content comes without a moment in which the attempt could be ended before its end."""
    steps = list(script_of(MESSAGES, good(text), stream=stream).body)
    parts = [step for step in steps if isinstance(step, bytes)]
    first = (
        next(number for number, part in enumerate(parts) if b"Hello" in part) if stream else len(parts) - 1
    )
    return RawResponse([Late(seconds, b"".join(parts[: first + 1])), *parts[first + 1 :]])


SAME: dict[str, Callable[[bool], dict[str, Any]]] = {
    "both have content": lambda stream: {
        "a": at_once(5, "Hello from a", stream=stream),
        "b": at_once(3, "Hello from b", stream=stream),
    },
    "both respond": lambda stream: {"a": silent(5), "b": silent(3, "Hello from b")},
    "failure and content": lambda stream: {"a": late(broken(MESSAGES), 5), "b": silent(3, "Hello from b")},
    "content and failure": lambda stream: {"a": silent(5), "b": late(broken(MESSAGES), 3)},
    "content and no connection": lambda stream: {"a": at_once(5, "Hello from a", stream=stream), "b": late(BREAKS, 3)},
    "refusal and content": lambda stream: {"a": late(invalid(MESSAGES), 5), "b": silent(3, "Hello from b")},
    "refusal and content at once": lambda stream: {
        "a": replace(invalid(MESSAGES), parts=[Late(5, b"".join(invalid(MESSAGES).parts))]),  # type: ignore[arg-type]
        "b": at_once(3, "Hello from b", stream=stream),
    },
    "both fail": lambda stream: {"a": late(broken(MESSAGES), 5), "b": late(BREAKS, 3)},
    "failure and delay": lambda stream: {"a": late(broken(MESSAGES), 2), "b": good("Hello from b")},
    "content and delay": lambda stream: {"a": silent(2), "b": good("Hello from b")},
}  # fmt: skip


@pytest.mark.parametrize("what", SAME)
@pytest.mark.all_combinations
@pytest.mark.no_cover
async def test_at_the_same_moment(what: str, stream: bool, record: Any, anyio_backend_name: str) -> None:
    for _ in range(30 if anyio_backend_name == "trio" else 1):
        store = SlowStore()
        pool = hedged(MESSAGES, SAME[what](stream), store=store)
        response = await pool.call(MESSAGES, stream=stream)
        if response.status == 200:
            check_text(MESSAGES, response, _text(response), stream=stream)
        else:
            assert check_error(MESSAGES, response.status or 0, response.body) == []
        assert record()["outcome"] == ("completed" if response.status == 200 else "failed")
        if what != "failure and delay":  # either may be first
            assert ("hedge" in record()) == (len(pool.attempted) == 2)
        assert store.open_leases() == 0


def _text(response: FakeClient) -> str:
    return "Hello from a" if b"Hello from a" in response.body else "Hello from b"


# What happens while the second account is taken from the store, from 1 to 2 seconds after the request was sent.
MEANWHILE = [
    pytest.param(silent(1.5), "Hello from a", ["a"], id="content"),
    pytest.param(late(broken(MESSAGES), 1.5), "Hello from b", ["a", "b"], id="a failure"),
    pytest.param(late(invalid(MESSAGES), 1.5), None, ["a"], id="a refusal"),
]


@pytest.mark.parametrize(("first", "content", "requested"), MEANWHILE)
async def test_while_the_second_account_is_looked_for(
    first: Any, content: str | None, requested: list[str], stream: bool
) -> None:
    store = SlowStore(take_s=1)
    pool = hedged(MESSAGES, {"a": first, "b": silent(9, "Hello from b")}, hedge_s=1, store=store)
    response = await pool.call(MESSAGES, stream=stream)
    if content is None:
        assert response.status == 400
    else:
        check_text(MESSAGES, response, content, stream=stream)
    assert pool.attempted == requested
    assert store.open_leases() == 0


@pytest.mark.parametrize("fits", [True, False], ids=["it fits", "it is refused"])
async def test_a_plan_for_the_second_account_that_comes_too_late_is_let_go_of(
    fits: bool, stream: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A large request is planned for another upstream in a thread. The planner has the request."""
    planners: list[weakref.ref[Planner]] = []

    async def plan(self: Planner, destination: Destination, *, signed_reasoning: bool = True) -> Plan:
        planners.append(weakref.ref(self))
        await anyio.sleep(2)
        if not fits:
            raise RequestRefused("it has an image")
        return self.plan(destination)

    async def look() -> None:
        await anyio.sleep(3.5)
        assert not stream or [planner() for planner in planners] == [None]

    monkeypatch.setattr(Planner, "plan_off_loop", plan)
    pool = pool_of(
        MESSAGES,
        {"a": good("Hello from a", before=[Sleep(2)], between=[Sleep(5)]), "c": good("Hello from c")},
        upstream={"hedge_s": 1},
        others={"else": (CHAT, ["c"])},
        models={"m": ("up/one", "else/two")},
    )
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(look)
        response = await pool.call(MESSAGES, stream=stream, model="m")
    check_text(MESSAGES, response, "Hello from a" if stream or not fits else "Hello from c", stream=stream)


@pytest.mark.parametrize(
    ("first", "status"),
    [(silent(1.5), 200), (late(broken(MESSAGES), 1.5), 500), (late(invalid(MESSAGES), 1.5), 400)],
    ids=["content", "a failure", "a refusal"],
)
async def test_no_free_second_account_when_the_first_has_ended(first: Any, status: int, stream: bool) -> None:
    """The second account is at its limit, and by then the first one has failed as well."""
    store = SlowStore(take_s=1)
    plays = {"a": first, "b": good("Hello from b")}
    accounts = {"b": {"requests_per_minute": 1}}
    pool = pool_of(MESSAGES, plays, upstream={"hedge_s": 1}, accounts=accounts, store=store)
    await store.apply(Spend([(Rate("up/b requests", 1, 60.0), 1.0)], pool.pool.clock(), at_once=True))
    assert (await pool.call(MESSAGES, stream=stream)).status == status
    assert pool.attempted == ["a"]


async def test_a_failure_that_is_being_stored_is_not_hedged(stream: bool) -> None:
    store = SlowStore(failed_s=3)
    pool = hedged(MESSAGES, {"a": late(broken(MESSAGES), 1), "b": good("Hello from b")}, store=store)
    check_text(MESSAGES, await pool.call(MESSAGES, stream=stream), "Hello from b", stream=stream)
    assert [(request.account, request.at) for request in pool.provider.sent] == [("a", 0), ("b", 4)]


# Several choices for one request, each a separate branch.


@pytest.mark.parametrize(
    ("quick", "responses"), [(3, "b"), (6, "a"), (5, "ab")], ids=["the second", "the first", "both at once"]
)
async def test_several_choices_are_one_attempt(quick: float, responses: str, stream: bool) -> None:
    """All of them come from one account, and all the calls of the other are ended."""
    for _ in range(10):
        plays = {
            "a": at_once(7, "Hello from a", stream=True),
            "b": at_once(quick, "Hello from b", stream=True),
        }
        store = SlowStore()
        pool = hedged(MESSAGES, plays, store=store)
        response = await pool.call(CHAT, stream=stream, body={"n": 2})
        assert response.status == 200
        winners = [account for account in "ab" if f"Hello from {account}".encode() in response.body]
        assert len(winners) == 1
        assert winners[0] in responses
        assert pool.attempted == ["a", "a", "b", "b"]
        assert store.open_leases() == 0
