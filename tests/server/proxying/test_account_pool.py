"""The pool around a request: which accounts are tried, which are reserved, and that every lease is given back.

The effects of each error are in test_error_effects.py, parallel attempts in test_hedging.py.
"""

import json
import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import anyio
import pytest
from failures.translate import each, every_pair
from gateway.fakes import FakeClient, Sleep
from gateway.provider import (
    EPOCH,
    InBand,
    PoolGateway,
    RawResponse,
    check_one_beginning,
    check_text,
    good,
    in_band,
    pool_of,
)
from gateway.provider_errors import LIMITS, broken, invalid, limited, unauthorized
from oracle import (
    CHAT,
    GEMINI,
    MESSAGES,
    PROTOCOL_NAMES,
    check_error,
    check_stream,
)
from oracle.frames import as_object, lenient_frames
from virtual_time import VIRTUAL_BACKENDS

from dragoman_server.accounts.stores.base import Operation
from dragoman_server.accounts.stores.memory import MemoryAccountStore
from dragoman_server.accounts.stores.operations import Change, Release, Reserve
from dragoman_server.policy.error_actions import ErrorAction
from dragoman_server.policy.health import Backoff, Health
from dragoman_server.proxying import attempt
from dragoman_server.upstream.errors import UpstreamBroken

pytestmark = [pytest.mark.anyio, pytest.mark.backends(*VIRTUAL_BACKENDS)]

BOTH = pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])


class Leases(MemoryAccountStore):
    """Counts the requests under way. Giving one back takes a time, as it does where the store is outside."""

    def __init__(self, release_s: float = 0.0) -> None:
        super().__init__()
        self._release_s = release_s
        self.all: list[str] = []

    async def apply(self, operation: Operation[Any]) -> Any:
        if isinstance(operation, Reserve):
            self.all.append(operation.lease)
        if isinstance(operation, Release):
            await anyio.sleep(self._release_s)
        return await super().apply(operation)

    @property
    def open(self) -> int:
        return sum(len(each) for each in self._expiries.values())


def late(play: RawResponse, seconds: float) -> RawResponse:
    return RawResponse(play.parts, play.status, play.headers, [Sleep(seconds), *play.before])


# Leases are given back.

BROKEN = UpstreamBroken("http://up.test: the connection broke")
WAYS_OUT: dict[str, dict[str, Any]] = {
    "completed": {"a": good("Hello")},
    "completed by another": {"a": broken(MESSAGES), "b": good("Hello")},
    "refused": {"a": invalid(MESSAGES), "b": good("Hello")},
    "all failed": {"a": limited(MESSAGES), "b": unauthorized(MESSAGES)},
    "broken in the middle": {"a": good("Hello", between=[BROKEN]), "b": good("Hello")},
    "no connection": {"a": RawResponse(before=[BROKEN]), "b": RawResponse(before=[BROKEN])},
}


@BOTH
@each("client")
@pytest.mark.parametrize("way", WAYS_OUT)
@pytest.mark.each_choice
async def test_leases_are_given_back_on_every_way_out(client: str, way: str, stream: bool) -> None:
    store, plays = Leases(), WAYS_OUT[way]
    limits = {name: {"max_concurrent_requests": 1} for name in plays}
    await pool_of(MESSAGES, plays, accounts=limits, store=store).call(client, stream=stream)
    assert store.open == 0


@BOTH
@pytest.mark.parametrize(
    "play",
    [
        good("Hello", before=[Sleep(60)]),
        good("Hello", between=[Sleep(60)]),
        late(broken(MESSAGES), 60),
    ],
    ids=["silence", "the middle", "a slow error"],
)
@pytest.mark.parametrize("how", ["leaves", "cancelled"])
@pytest.mark.parametrize(("release_s", "ended_at", "unreleased"), [(0.05, 5.05, 0), (math.inf, 6, 1)])
@pytest.mark.each_choice
async def test_leases_are_given_back_when_the_client_leaves(
    play: Any, how: str, release_s: float, ended_at: float, unreleased: int, stream: bool
) -> None:
    store = Leases(release_s)
    limits = {name: {"max_concurrent_requests": 1} for name in "ab"}
    pool = pool_of(MESSAGES, {"a": play, "b": play}, accounts=limits, store=store)
    if how == "leaves":
        await pool.call(MESSAGES, stream=stream, leaves_after=5)
    else:
        with anyio.move_on_after(5):
            await pool.call(MESSAGES, stream=stream)
    assert anyio.current_time() == ended_at
    assert store.open == unreleased
    assert pool.attempted == ["a"], "no other account is tried for a client that has left"
    assert pool.health("a") == Health(last_used=EPOCH), "it is not the account's error"


async def test_each_reservation_of_a_request_has_its_own_lease() -> None:
    """A store that was late may still end an earlier one."""
    store = Leases()
    pool = pool_of(MESSAGES, {"a": broken(MESSAGES), "b": good("Hello")}, store=store)
    await pool.call(MESSAGES)
    assert len(store.all) == len(set(store.all)) == 2


# Limits.


@BOTH
async def test_the_limit_of_concurrent_requests(stream: bool) -> None:
    plays = {name: good("Hello", before=[Sleep(10)]) for name in "ab"}
    pool = pool_of(CHAT, plays, accounts={name: {"max_concurrent_requests": 2} for name in "ab"})
    response: list[FakeClient] = []

    async def call() -> None:
        response.append(await pool.call(CHAT, stream=stream))

    async with anyio.create_task_group() as tasks:
        for _ in range(5):
            tasks.start_soon(call)
    assert sorted(pool.attempted) == ["a", "a", "b", "b"]
    assert response[0].status == 429, "the fifth one is refused at once"
    assert response[0].headers["retry-after"] == "1"
    assert [each.status for each in response[1:]] == [200] * 4


@BOTH
async def test_the_limit_of_tokens_per_minute(stream: bool) -> None:
    """A response costs 13 tokens: they are counted when it has ended, and a debt is paid off by waiting."""
    pool = pool_of(CHAT, {"a": good("Hello"), "b": good("Hello")}, accounts={"a": {"tokens_per_minute": 6}})
    for requested in (["a"], ["a", "b"], ["a", "b", "b"]):
        await pool.call(CHAT, stream=stream)
        assert pool.attempted == requested
    await anyio.sleep(71)
    await pool.call(CHAT, stream=stream)
    assert pool.attempted[-1] == "a"


@BOTH
async def test_a_single_account_may_have_limits_without_being_a_pool(stream: bool) -> None:
    plays = {"a": [unauthorized(CHAT), limited(CHAT, ("retry-after", "70")), good("Hello")]}
    pool = pool_of(CHAT, plays, accounts={"a": {"requests_per_minute": 3}})
    responses = [await pool.call(client, stream=stream) for client in (CHAT, GEMINI, CHAT)]
    assert [response.status for response in responses] == [401, 429, 200]
    assert _delay(responses[1]) == "70s"
    assert pool.health("a") == Health(last_used=EPOCH)
    response = await pool.call(CHAT, stream=stream)
    assert response.status == 429
    assert check_error(CHAT, 429, response.body) == []
    assert response.headers["retry-after"] == "20"
    assert pool.attempted == ["a"] * 3


# One account is no pool.


@BOTH
@each("client")
async def test_the_errors_of_a_single_account_pass_as_they_come(
    client: str, stream: bool, record: Any
) -> None:
    plays = [
        limited(MESSAGES, ("retry-after", "70")),
        unauthorized(MESSAGES),
        *[broken(MESSAGES)] * 4,
        good("Hello"),
    ]
    pool = pool_of(MESSAGES, {"a": plays})
    response = await pool.call(client, stream=stream)
    assert (response.status, response.headers["retry-after"]) == (429, "70")
    assert (record()["upstream_status"], record()["attempts"], record()["outcome"]) == (429, 1, "failed")
    assert [(await pool.call(client, stream=stream)).status for _ in range(5)] == [401, 500, 500, 500, 500]
    check_text(client, await pool.call(client, stream=stream), "Hello", stream=stream)
    assert pool.store.health() == {"up/a": Health(last_used=EPOCH)}, "its use is recorded, and no failure"


@BOTH
async def test_an_account_that_the_operator_has_disabled_is_not_used_even_if_it_is_the_only_one(
    stream: bool,
) -> None:
    pool = pool_of(MESSAGES, {"a": good("Hello")})
    await pool.store.apply(Change("up/a", lambda health: health.after_disabling("disabled by the operator")))
    response = await pool.call(MESSAGES, stream=stream)
    assert (response.status, response.headers["x-should-retry"]) == (503, "false")
    assert pool.attempted == []
    await pool.store.apply(Change("up/a", Health.after_reset))
    assert (await pool.call(MESSAGES, stream=stream)).status == 200


# Attempts and waiting.


@BOTH
@pytest.mark.parametrize(
    ("server", "attempts"), [({"max_attempts": 1}, 1), ({"max_attempts": 3}, 3), ({}, 10)]
)
async def test_the_limit_of_attempts(server: Any, attempts: int, stream: bool, record: Any) -> None:
    pool = pool_of(CHAT, {name: broken(CHAT) for name in "abcdefghijkl"}, **server)
    assert (await pool.call(CHAT, stream=stream)).status == 500
    assert pool.attempted == list("abcdefghijkl")[:attempts]
    assert record()["attempts"] == attempts


async def cooling(pool: PoolGateway, action: ErrorAction = ErrorAction.COOL_DOWN, **seconds: float) -> None:
    """Cool accounts down for so long."""
    for account, after in seconds.items():
        failure = partial(
            Health.after_failure,
            action=action,
            cause="",
            now=pool.pool.clock(),
            retry_after=after,
        )
        await pool.store.apply(Change(f"up/{account}", failure))


@BOTH
@each("client")
async def test_a_patient_request_waits_for_the_first_account_that_comes_back(
    client: str, stream: bool, record: Any
) -> None:
    pool = pool_of(MESSAGES, {"a": good("Hello from a"), "b": good("Hello from b")}, account_wait_s=30)
    await cooling(pool, a=40, b=25)
    response = await pool.call(client, stream=stream)
    check_text(client, response, "Hello from b", stream=stream)
    assert [(request.account, request.at) for request in pool.provider.sent] == [("b", 25)]
    assert record()["sent_s"] == 25
    if stream:  # and the client gets heartbeats
        assert [when for when, _ in response.messages][:2] == [10, 10]


@BOTH
async def test_the_wait_for_an_account_ends(stream: bool) -> None:
    pool = pool_of(MESSAGES, {"a": good("Hello"), "b": good("Hello")}, account_wait_s=20)
    await cooling(pool, a=40, b=25)
    response = await pool.call(MESSAGES, stream=stream)
    assert (response.status, response.headers["retry-after"]) == (429, "25")
    assert anyio.current_time() == 0, "there is nothing to wait for"
    assert "25 s" in response.error["message"]
    assert _delay(await pool.call(GEMINI, stream=stream)) == "25s"


@each("client")
async def test_accounts_that_all_cool_down_after_failures_are_no_rate_limit(client: str) -> None:
    pool = pool_of(MESSAGES, {"a": good("Hello"), "b": good("Hello"), "c": good("Hello")})
    await cooling(pool, a=40, b=25, action=ErrorAction.RETRY_LATER)
    await pool.store.apply(Change("up/c", lambda health: health.after_disabling("")))
    response = await pool.call(client, stream=True)
    status = 529 if client == MESSAGES else 503
    assert (response.status, response.headers["retry-after"]) == (status, "25")
    assert check_error(client, status, response.body) == []
    await cooling(pool, a=50)
    assert (await pool.call(client, stream=True)).status == 429, "the client can do something about one"


def _delay(response: FakeClient) -> str:
    """Return the delay of RetryInfo, which is in the error as a sentence too."""
    [delay] = [each["retryDelay"] for each in response.error["details"] if "retryDelay" in each]
    assert response.error["message"].endswith(f" Please retry in {delay}.")
    return str(delay)


@BOTH
async def test_the_wait_is_for_free_slots_as_well(stream: bool) -> None:
    plays = {"a": good("Hello", before=[Sleep(4.5)])}
    pool = pool_of(MESSAGES, plays, accounts={"a": {"max_concurrent_requests": 1}}, account_wait_s=9)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(pool.call, MESSAGES)
        await anyio.lowlevel.checkpoint()
        response = await pool.call(MESSAGES, stream=stream)
    check_text(MESSAGES, response, "Hello", stream=stream)
    assert [request.at for request in pool.provider.sent] == [0, 5]


# Heartbeats before the first content.


@every_pair(PROTOCOL_NAMES)
@pytest.mark.each_choice
async def test_heartbeats_do_not_forbid_another_attempt(client: str, upstream: str) -> None:
    """The status is sent, but no content is: the response may still come from another account, and begins once."""
    pool = pool_of(upstream, {"a": late(broken(upstream), 25), "b": good("Hello from b", before=[Sleep(25)])})
    response = await pool.call(client)
    check_text(client, response, "Hello from b", stream=True)
    assert pool.attempted == ["a", "b"]
    beats = [when for when, message in response.messages if message.get("body") and when < 50]
    assert beats == [10, 20, 30, 40]
    check_one_beginning(client, response)


# Chains.


@BOTH
@each("client")
@each("first")
@each("second")
@pytest.mark.each_choice
async def test_a_chain_continues_with_the_next_upstream(
    client: str, first: str, second: str, stream: bool
) -> None:
    plays = {"a": broken(first), "b": limited(first), "c": good("Hello from c")}
    pool = pool_of(first, plays, others={"else": (second, ["c"])}, models={"m": ("up/one", "else/two")})
    check_text(client, await pool.call(client, stream=stream, model="m"), "Hello from c", stream=stream)
    assert pool.attempted == ["a", "b", "c"]
    assert [request.model for request in pool.provider.sent] == ["one", "one", "two"]
    assert "//else.test/" in pool.provider.sent[2].url


# The plays of the accounts up/a and else/c, and the one whose error the client gets.
CHAINS_THAT_FAIL = {
    "both for now": (broken(MESSAGES), limited(CHAT), "c"),
    "the first for now": (limited(MESSAGES), unauthorized(CHAT), "a"),
    "the second for now": (unauthorized(MESSAGES), broken(CHAT), "c"),
    "the request is wrong": (invalid(MESSAGES), broken(CHAT), "a"),
    "the request is wrong for the second": (broken(MESSAGES), invalid(CHAT), "c"),
    "the first does not respond": (RawResponse(before=[BROKEN]), unauthorized(CHAT), "a"),
}


@BOTH
@pytest.mark.parametrize("case", CHAINS_THAT_FAIL)
async def test_the_log_names_the_upstream_whose_error_the_client_got(
    case: str, stream: bool, record: Any
) -> None:
    first, second, expected = CHAINS_THAT_FAIL[case]
    pool = chain_with({"a": first, "c": second}, MESSAGES, CHAT)
    # Of the two, only Messages has no place for it.
    response = await pool.call(CHAT, stream=stream, model="m", body={"seed": 7})
    places = {"a": ("up", MESSAGES, "one", "up/a"), "c": ("else", CHAT, "two", "else/c")}
    names = ("upstream", "upstream_protocol", "upstream_model", "account")
    found = record()
    assert tuple(found[name] for name in names) == places[expected]
    assert found["error"] in [
        each["cause"] for each in found["failures"] if each["account"] == found["account"]
    ]
    losses = ["dropped /seed"] if expected == "a" else []
    assert found.get("losses", []) == losses
    assert ("dragoman-loss" in response.headers) is bool(losses)


def chain_with(
    plays: dict[str, Any], first: str, second: str, theirs: Sequence[str] = "c", **more: Any
) -> PoolGateway:
    models = {"m": ("up/one", "else/two")}
    return pool_of(first, plays, others={"else": (second, theirs)}, models=models, **more)


# More choices than the gateway requests of a Messages upstream, one by one. One of the client's protocol may give them.
MANY = {"n": 20}


@BOTH
async def test_when_another_account_is_cooling_down_the_client_gets_retry_after(stream: bool) -> None:
    pool = chain_with({"a": good("Hello"), "c": good("Hello from c")}, CHAT, MESSAGES)
    await cooling(pool, a=30)
    response = await pool.call(CHAT, stream=stream, model="m", body=MANY)
    assert (response.status, response.headers["retry-after"]) == (429, "30")
    assert pool.attempted == []


@BOTH
async def test_without_another_account_the_client_gets_the_error(stream: bool, record: Any) -> None:
    pool = chain_with({"a": good("Hello"), "c": good("c"), "d": good("d")}, CHAT, MESSAGES, "cd")
    await pool.store.apply(Change("up/a", lambda health: health.after_disabling("")))
    response = await pool.call(CHAT, stream=stream, model="m", body=MANY)
    assert response.status == 400
    assert "n" in response.error["message"]
    assert pool.attempted == []
    assert (record()["upstream"], record()["upstream_model"]) == ("else", "two")


@BOTH
async def test_the_first_upstreams_error_is_returned_though_other_accounts_cool_down(stream: bool) -> None:
    plays = {"a": broken(CHAT), "c": good("c"), "d": good("d")}
    pool = chain_with(plays, CHAT, MESSAGES, "cd", account_wait_s=8)
    await cooling(pool, a=6)
    await pool.store.apply(
        Change(
            "else/d",
            lambda health: health.after_failure(
                ErrorAction.COOL_DOWN, "", EPOCH, retry_after=3, random=0.0, backoff=Backoff()
            ),
        )
    )
    response = await pool.call(CHAT, stream=stream, model="m", body=MANY)
    assert [(request.account, request.at) for request in pool.provider.sent] == [("a", 6)]
    assert response.status == 500


# Which of several.


@pytest.mark.parametrize(("random", "account"), [(0.0, "a"), (0.2, "a"), (0.3, "b"), (0.99, "b")])
async def test_weights(random: float, account: str) -> None:
    limits = {"a": {"weight": 1}, "b": {"weight": 3}}
    plays = {name: good("Hello") for name in "ab"}
    pool = pool_of(CHAT, plays, accounts=limits, upstream={"selection": "weighted"}, random=random)
    for _ in range(3):
        await pool.call(CHAT)
        await anyio.sleep(1)
    assert pool.attempted == [account] * 3


REMAINING = {
    MESSAGES: ("anthropic-ratelimit-requests-limit", "anthropic-ratelimit-requests-remaining"),
    CHAT: ("x-ratelimit-limit-requests", "x-ratelimit-remaining-requests"),
}


@BOTH
@pytest.mark.parametrize("protocol", REMAINING)
async def test_the_one_with_the_most_left_is_next(protocol: str, stream: bool) -> None:
    limit, left = REMAINING[protocol]
    plays = {
        name: good("Hello", headers=((limit, "100"), (left, backoff)))
        for name, backoff in (("a", "20"), ("b", "70"))
    }
    pool = pool_of(protocol, plays, upstream={"selection": "most_remaining"})
    for _ in range(4):
        await pool.call(protocol, stream=stream)
        await anyio.sleep(1)
    # Of an account that nothing is known of all is left.
    assert pool.attempted == ["a", "b", "b", "b"]
    assert (pool.health("a").remaining, pool.health("b").remaining) == (0.2, 0.7)


# Conversations.


@BOTH
async def test_a_conversation_moves_when_it_must_and_stays_there(stream: bool) -> None:
    plays = {"a": [good("Hello"), limited(CHAT, ("retry-after", "5")), good("Hello")], "b": good("Hello")}
    pool = pool_of(CHAT, plays, upstream={"sticky": True})
    for _ in range(4):
        await pool.call(CHAT, stream=stream)
        await anyio.sleep(9)
    assert pool.attempted == ["a", "a", "b", "b", "b"]


# Several choices for one request, each requested by a separate branch.

TWO = {"n": 2}


def responses_in(response: FakeClient, *, stream: bool) -> list[str]:
    if not stream:
        return [choice["message"]["content"] for choice in json.loads(response.body)["choices"]]
    texts: dict[int, str] = {}
    for frame in lenient_frames(response.body):
        for choice in (as_object(frame.data) or {}).get("choices", []):
            texts[choice["index"]] = texts.get(choice["index"], "") + (choice["delta"].get("content") or "")
    return [texts[index] for index in sorted(texts)]


FAILURES: dict[str, Any] = {
    "an error": broken(MESSAGES),
    "no connection": RawResponse(before=[BROKEN]),
    "an error inside": InBand({"type": "error", "error": {"type": "api_error", "message": "broken"}}),
    "an empty body": RawResponse(),
}


@BOTH
@pytest.mark.parametrize("failure", FAILURES)
async def test_when_one_of_several_choices_fails_another_account_gives_all(
    failure: str, stream: bool
) -> None:
    plays = {"a": [good("Hello from a", before=[Sleep(9)]), FAILURES[failure]], "b": good("Hello from b")}
    pool = pool_of(MESSAGES, plays)
    response = await pool.call(CHAT, stream=stream, body=TWO)
    assert responses_in(response, stream=stream) == ["Hello from b"] * 2
    assert pool.attempted == ["a", "a", "b", "b"]
    assert anyio.current_time() == 0, "the other call of the first account is ended at once"
    assert len(pool.health("a").failures) == 1


@pytest.mark.parametrize("failure", FAILURES)
async def test_when_part_of_a_response_was_sent_the_stream_ends(failure: str) -> None:
    failing = FAILURES[failure]
    if isinstance(failing, InBand):
        failing = RawResponse([in_band(MESSAGES, failing, stream=True)])
    plays = {"a": [good("Hello from a", between=[Sleep(60)]), late(failing, 9)], "b": good("Hello from b")}
    pool = pool_of(MESSAGES, plays)
    response = await pool.call(CHAT, body=TWO)
    assert pool.attempted == ["a", "a"]
    assert response.body.count(b"Hello from a") == 1
    assert b"[DONE]" not in response.body
    last = as_object(lenient_frames(response.body)[-1].data) or {}
    assert last["error"]["message"]
    assert anyio.current_time() == 9
    assert len(pool.health("a").failures) == 1


# Odd responses.


@pytest.mark.promise("S7")
@BOTH
@pytest.mark.parametrize("responses", [1, 2])
async def test_a_response_without_an_end_is_a_failure(
    responses: int, stream: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The buffer has a limit. A stream that is sent as it comes may be of any length."""
    monkeypatch.setattr(attempt, "MAX_RESPONSE_BYTES", 20_000)
    pool = pool_of(MESSAGES, {"a": good("Hello" * 5000), "b": good("Hello from b")})
    response = await pool.call(CHAT, stream=stream, body={"n": responses})
    if stream and responses == 1:
        assert responses_in(response, stream=stream) == ["Hello" * 5000]
    else:
        assert responses_in(response, stream=stream) == ["Hello from b"] * responses
        assert len(pool.health("a").failures) == 1


EMPTY_RESPONSES = {
    "an empty object": [b"{}"],
    "another object": [b'{"status":"ok"}'],
    "an empty body": [b""],
    "a comment": [b": PROCESSING\n\n"],
    "an end mark": [b"data: [DONE]\n\n", b'event: message_stop\ndata: {"type":"message_stop"}\n\n'],
}  # fmt: skip


@BOTH
@each("protocol")
@pytest.mark.parametrize("empty", EMPTY_RESPONSES.values(), ids=EMPTY_RESPONSES)
@pytest.mark.each_choice
async def test_an_empty_relayed_response_is_a_failure(
    protocol: str, empty: list[bytes], stream: bool
) -> None:
    """The next account is tried; without one, the client gets an error."""
    body = empty[-1] if protocol == MESSAGES else empty[0]
    headers = (("content-type", "text/event-stream" if stream else "application/json"),)
    failing = RawResponse([body], headers=headers)
    pool = pool_of(protocol, {"a": failing, "b": good("Hello")})
    check_text(protocol, await pool.call(protocol, stream=stream), "Hello", stream=stream)
    assert len(pool.health("a").failures) == 1

    response = await pool_of(protocol, {"a": failing}).call(protocol, stream=stream)
    assert response.status == 502
    assert check_error(protocol, response.status, response.body) == []


@BOTH
async def test_an_account_need_not_have_a_key(stream: bool) -> None:
    """It does not send that of another one, either."""
    pool = pool_of(MESSAGES, {"a": broken(MESSAGES), "nobody": good("Hello")})
    check_text(MESSAGES, await pool.call(MESSAGES, stream=stream), "Hello", stream=stream)
    assert pool.attempted == ["a", "nobody"]


@every_pair(PROTOCOL_NAMES)
@pytest.mark.each_choice
async def test_g5_when_all_fail_after_heartbeats_the_stream_ends_with_the_error(
    client: str, upstream: str
) -> None:
    pool = pool_of(upstream, {"a": late(limited(upstream), 15), "b": late(limited(upstream), 15)})
    response = await pool.call(client)
    assert pool.attempted == ["a", "b"]
    assert response.status == 200
    assert check_stream(client, response.body, include_usage=True) == []
    last = as_object(lenient_frames(response.body)[-1].data) or {}
    assert LIMITS[upstream]["error"]["message"] in json.dumps(last)
