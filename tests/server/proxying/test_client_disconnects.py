"""A client that closes the connection after the end of its response has got its response.

Time is virtual. The upstream keeps its connection open after the end, as many do for a moment.
"""

from typing import Any

import anyio
import pytest
from gateway.fakes import FakeClient, FakeUpstream, Script, Sleep, carry_out
from gateway.scripted import (
    CHAT,
    GEMINI,
    MESSAGES,
    PROTOCOL_NAMES,
    RESPONSES,
    STREAMS,
    chunk,
    plan_of,
    stream,
)
from virtual_time import VIRTUAL_BACKENDS

from dragoman_server.accounts.stores.base import Operation
from dragoman_server.accounts.stores.memory import MemoryAccountStore
from dragoman_server.accounts.stores.operations import Change
from dragoman_server.accounts.usage import usage_of
from dragoman_server.log import RequestRecord
from dragoman_server.policy.health import Health
from dragoman_server.proxying.attempt import DRAIN_S
from dragoman_server.settings import AccountSettings, Settings, UpstreamSettings

pytestmark = [pytest.mark.anyio, pytest.mark.backends(*VIRTUAL_BACKENDS)]

END_MARKS = {
    CHAT: b"data: [DONE]",
    MESSAGES: b"message_stop",
    RESPONSES: b"response.completed",
    GEMINI: b'"finishReason"',
}

TELLS: dict[str, bool] = {}  # as the fixture sets it


class Accounts(MemoryAccountStore):
    """Keeps the accounts whose success was reported. A report takes a time, as it does where the store is outside."""

    def __init__(self) -> None:
        super().__init__()
        self.successes: list[str] = []

    async def apply(self, operation: Operation[Any]) -> Any:
        if isinstance(operation, Change):
            await anyio.sleep(0.05)
            if not operation.change(Health(failures=(1.0,))).failures:
                self.successes.append(operation.account)
        return await super().apply(operation)


class Received:
    """The result of one request: its record, settled as an endpoint settles it, and its account's successes."""

    def __init__(self, record: RequestRecord, accounts: Accounts, upstream_client: FakeUpstream) -> None:
        self.record = record
        self.successes = accounts.successes
        self.upstream_client = upstream_client


@pytest.fixture(params=[True, False], ids=["told", "watching"], autouse=True)
def tells_now(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether the server calls the handler of a client that leaves, or a task waits for it: nothing else differs."""
    monkeypatch.setitem(TELLS, "tells_now", request.param)


async def run(
    client: str, upstream: str, script: Script, *, streams: bool = True, **client_behaviour: Any
) -> Received:
    settings = Settings(
        upstreams=(UpstreamSettings(name="up", protocol=upstream, base_url="http://up.test"),),
        accounts=tuple(AccountSettings(upstream="up", name=name) for name in ("a", "b")),
    )
    plan = plan_of(settings, client, streams=streams)
    upstream_client, accounts = FakeUpstream(script), Accounts()
    fake = FakeClient(**client_behaviour, **TELLS)
    request = await carry_out(
        plan, upstream_client, fake, settings=settings, accounts=accounts, measured=True
    )
    assert upstream_client.open_count == 0
    assert request.plan is not None
    assert request.response.meter is not None
    usage_of(request.record, request.plan, request.response.meter)
    return Received(request.record, accounts, upstream_client)


def open_behind(script: Script) -> Script:
    return Script([*script.body, Sleep(100)], headers=script.headers)


@pytest.mark.parametrize("upstream", PROTOCOL_NAMES)
@pytest.mark.parametrize("client", PROTOCOL_NAMES)
async def test_a_client_that_leaves_at_the_end_mark_has_its_response(client: str, upstream: str) -> None:
    response = await run(client, upstream, open_behind(STREAMS[upstream]), leaves_at=END_MARKS[client])
    record = response.record
    assert (record.outcome, record.error) == ("completed", None)
    assert (record.input_tokens, record.output_tokens, record.estimated) == (3, 4, None)
    assert len(response.successes) == 1
    # The end of Gemini's streams is that of the body, but its clients may leave at the finish reason.
    waited = DRAIN_S if upstream != GEMINI else 0 if client == GEMINI else 100
    assert response.upstream_client.closed_at == pytest.approx(waited)


@pytest.mark.parametrize("client", PROTOCOL_NAMES)
@pytest.mark.parametrize("leaves_after", [None, DRAIN_S / 2])
async def test_a_whole_response_is_sent_before_the_end_of_its_upstream_body(
    client: str, leaves_after: float | None
) -> None:
    response = await run(client, CHAT, open_behind(STREAMS[CHAT]), streams=False, leaves_after=leaves_after)
    assert response.record.first_byte_s == 0
    assert (response.record.outcome, response.record.status) == ("completed", 200)
    assert len(response.successes) == 1


FINISH = b'"finish_reason": "stop"'
USAGE = {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}


@pytest.mark.parametrize(
    ("last", "figures"),
    [
        (chunk({}, "stop", usage=USAGE), (3, 4, None)),
        # Usage would have come after it.
        (chunk({}, "stop"), (9, 2, True)),
    ],
)
async def test_a_finish_reason_is_an_end_for_a_client_that_leaves_at_it(
    last: dict[str, Any], figures: tuple[int, int, bool | None]
) -> None:
    script = open_behind(stream(chunk({"role": "assistant", "content": "Hello"}), last))
    response = await run(CHAT, CHAT, script, leaves_at=FINISH)
    record = response.record
    assert record.outcome == "completed"
    assert (record.input_tokens, record.output_tokens, record.estimated) == figures
    assert len(response.successes) == 1


async def test_an_unsent_end_is_no_completed_response_but_its_usage_counts() -> None:
    """The client is still reading the head of the response when the upstream has sent everything."""
    script = open_behind(Script([b"".join(STREAMS[CHAT].body)]))  # type: ignore[arg-type]
    response = await run(CHAT, CHAT, script, pace=10, leaves_after=5)
    record = response.record
    assert (record.outcome, record.upstream_completed) == ("client_left", True)
    assert (record.input_tokens, record.output_tokens, record.estimated) == (3, 4, None)
    assert len(response.successes) == 1


@pytest.mark.parametrize("client", PROTOCOL_NAMES)
async def test_a_client_that_leaves_before_the_end_has_left(client: str) -> None:
    script = open_behind(Script(STREAMS[client].body[:1], headers=STREAMS[client].headers))
    response = await run(client, client, script, leaves_after=5)
    record = response.record
    assert (record.outcome, record.upstream_completed, record.error) == ("client_left", None, None)
    assert record.estimated is True
    assert response.successes == []


@pytest.mark.parametrize("streams", [True, False])
async def test_nothing_is_sent_upstream_for_a_client_that_has_left_already(streams: bool) -> None:
    response = await run(CHAT, CHAT, STREAMS[CHAT], streams=streams, leaves_after=0)
    assert (response.record.outcome, response.upstream_client.content) == ("client_left", b"")
