"""A second account beside the first, when that one is silent for a time: the first content counts."""

import weakref
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest
from gateway import pool_rows
from gateway.fakes import FakeClient, Late
from gateway.pool_rows import BROKEN, Leases, hello, late
from gateway.provider import PoolGateway, RawResponse, check_text, good, pool_of, script_of
from gateway.provider_errors import broken, invalid
from oracle import CHAT, MESSAGES, check_error
from virtual_time import VIRTUAL_BACKENDS

from dragoman import RequestRefused
from dragoman_server.proxying.destinations import Destination
from dragoman_server.proxying.plan import Plan, Planner

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.backends(*VIRTUAL_BACKENDS),
]
BOTH = pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])


def hedged(protocol: str, plays: dict[str, Any], hedge_s: float = 2, **more: Any) -> PoolGateway:
    limits = {name: {"max_concurrent_requests": 5} for name in plays}
    return pool_of(protocol, plays, upstream={"hedge_s": hedge_s}, accounts=limits, **more)


def test_which_accounts_are_asked_and_which_one_wins(record: Any) -> None:
    pool_rows.check(Path(__file__).with_name("hedging.txt"), record)


# Two things at once. Which task comes first is chance on trio, so each of these is tried often there.

BREAKS = RawResponse(before=[BROKEN])


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
    "both respond": lambda stream: {"a": hello("a", 5), "b": hello("b", 3)},
    "failure and content": lambda stream: {"a": late(broken(MESSAGES), 5), "b": hello("b", 3)},
    "content and failure": lambda stream: {"a": hello("a", 5), "b": late(broken(MESSAGES), 3)},
    "content and no connection": lambda stream: {"a": at_once(5, "Hello from a", stream=stream), "b": late(BREAKS, 3)},
    "refusal and content": lambda stream: {"a": late(invalid(MESSAGES), 5), "b": hello("b", 3)},
    "refusal and content at once": lambda stream: {
        "a": replace(invalid(MESSAGES), parts=[Late(5, b"".join(invalid(MESSAGES).parts))]),  # type: ignore[arg-type]
        "b": at_once(3, "Hello from b", stream=stream),
    },
    "both fail": lambda stream: {"a": late(broken(MESSAGES), 5), "b": late(BREAKS, 3)},
    "failure and delay": lambda stream: {"a": late(broken(MESSAGES), 2), "b": hello("b")},
    "content and delay": lambda stream: {"a": hello("a", 2), "b": hello("b")},
}  # fmt: skip


@BOTH
@pytest.mark.parametrize("what", SAME)
@pytest.mark.all_combinations
@pytest.mark.no_cover
async def test_at_the_same_moment(what: str, stream: bool, record: Any, anyio_backend_name: str) -> None:
    for _ in range(30 if anyio_backend_name == "trio" else 1):
        store = Leases()
        pool = hedged(MESSAGES, SAME[what](stream), store=store)
        response = await pool.call(MESSAGES, stream=stream)
        if response.status == 200:
            check_text(MESSAGES, response, _text(response), stream=stream)
        else:
            assert check_error(MESSAGES, response.status or 0, response.body) == []
        assert record()["outcome"] == ("completed" if response.status == 200 else "failed")
        if what != "failure and delay":  # either may be first
            assert ("hedge" in record()) == (len(pool.attempted) == 2)
        assert store.open == 0


def _text(response: FakeClient) -> str:
    return "Hello from a" if b"Hello from a" in response.body else "Hello from b"


@BOTH
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
        {"a": hello("a", before=2, between=5), "c": hello("c")},
        upstream={"hedge_s": 1},
        others={"else": (CHAT, ["c"])},
        models={"m": ("up/one", "else/two")},
    )
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(look)
        response = await pool.call(MESSAGES, stream=stream, model="m")
    check_text(MESSAGES, response, "Hello from a" if stream or not fits else "Hello from c", stream=stream)


# Several choices for one request, each a separate branch.


@BOTH
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
        store = Leases()
        pool = hedged(MESSAGES, plays, store=store)
        response = await pool.call(CHAT, stream=stream, body={"n": 2})
        assert response.status == 200
        winners = [account for account in "ab" if f"Hello from {account}".encode() in response.body]
        assert len(winners) == 1
        assert winners[0] in responses
        assert pool.attempted == ["a", "a", "b", "b"]
        assert store.open == 0
