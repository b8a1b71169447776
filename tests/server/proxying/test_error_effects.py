"""The effects of each class of error: on the client, on the account it came from, and on the next one.

A provider with two accounts fails with the first in every known way of vendors: by status and body, inside
a body with status 200, and on the wire. All protocols of clients and of providers, streaming and not.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from failures.translate import each
from gateway import pool_rows
from gateway.fakes import FakeClient
from gateway.provider import PoolGateway, RawResponse, check_text, good, pool_of
from gateway.provider_errors import Case, cases
from oracle import check_error, compare_error, read_error
from virtual_time import VIRTUAL_BACKENDS

from dragoman_server.policy.error_actions import ErrorAction
from dragoman_server.policy.health import Health

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.backends(*VIRTUAL_BACKENDS),
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


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
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


def test_what_follows(record: Any) -> None:
    pool_rows.check(Path(__file__).with_name("error_effects.txt"), record)
