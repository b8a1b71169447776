"""The pool around a request: which accounts are tried, which are reserved, and that every lease is given back. What
clients get and which accounts are asked are rows of account_pool.txt.

The effects of each error are in test_error_effects.py, parallel attempts in test_hedging.py.
"""

import json
import math
from pathlib import Path
from typing import Any

import anyio
import pytest
from failures.translate import every_pair
from gateway import pool_rows
from gateway.fakes import FakeClient, Sleep
from gateway.pool_rows import BROKEN, Leases, late
from gateway.provider import (
    EPOCH,
    InBand,
    RawResponse,
    good,
    in_band,
    pool_of,
)
from gateway.provider_errors import LIMITS, broken, limited
from oracle import (
    CHAT,
    MESSAGES,
    check_stream,
)
from oracle.frames import as_object, lenient_frames
from virtual_time import VIRTUAL_BACKENDS

from dragoman_server.policy.health import Health
from dragoman_server.proxying import attempt

pytestmark = [pytest.mark.anyio, pytest.mark.backends(*VIRTUAL_BACKENDS)]

BOTH = pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])


def test_what_clients_get_and_which_accounts_are_asked(record: Any) -> None:
    pool_rows.check(Path(__file__).with_name("account_pool.txt"), record)


# Clients that leave.


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
    store = Leases(release_s=release_s)
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


@every_pair()
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
