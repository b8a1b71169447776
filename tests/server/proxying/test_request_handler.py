"""One request, one task group: what each side gets, when, and that nothing outlives the request.

Time is virtual; the upstream plays a script and the client is a pair of ASGI callables.
"""

import gc
import weakref
from functools import partial
from typing import Any

import anyio
import pytest
from gateway.fakes import FakeClient, FakeUpstream, FakeUpstreams, Late, Script, Sleep, carry_out
from gateway.scripted import (
    CHAT,
    GEMINI,
    HELLO,
    MESSAGES,
    PROTOCOL_NAMES,
    RESPONSES,
    STOP,
    USAGE,
    WHOLE_RESPONSES,
    plan_of,
)
from laws.clients import endpoint_of
from virtual_time import VIRTUAL_BACKENDS

from dragoman_server.accounts.usage import Meter, estimate_input
from dragoman_server.log import RequestRecord
from dragoman_server.proxying import request_handler
from dragoman_server.proxying.client_request import HttpChannel
from dragoman_server.proxying.plan import Plan
from dragoman_server.settings import AccountSettings, Settings, UpstreamSettings
from dragoman_server.settings.secret import Secret
from dragoman_server.upstream.errors import (
    UpstreamBroken,
    UpstreamTimeout,
    UpstreamTimeoutPhase,
)

pytestmark = [pytest.mark.anyio, pytest.mark.backends(*VIRTUAL_BACKENDS)]
one_backend = pytest.mark.backends(VIRTUAL_BACKENDS[0])  # no task group, stream or clock is under test

# The first read of the Chat upstream, which has no content yet.
START = HELLO.replace(b"Hello", b"")
WORD = HELLO.replace(b'"role": "assistant", ', b"")
END = STOP + USAGE
(WHOLE,) = (part for part in WHOLE_RESPONSES[CHAT].body if isinstance(part, bytes))


def plan_for(
    client: str, *, stream: bool, upstream: str = CHAT, accounts: str = "", hedge_s: float = 0
) -> Plan:
    up = UpstreamSettings(name="up", protocol=upstream, base_url="http://127.0.0.1:9/v1", hedge_s=hedge_s)
    keys = [AccountSettings(upstream="up", name=name, api_key=Secret(name * 9)) for name in accounts]
    return plan_of(Settings(upstreams=(up,), accounts=tuple(keys)), client, streams=stream)


async def run(
    script: Script,
    *,
    client: str = MESSAGES,
    stream: bool = True,
    keepalive_s: float = 10,
    **more: Any,
) -> tuple[FakeClient, FakeUpstream, RequestRecord]:
    upstream, fake = FakeUpstream(script), FakeClient(**more)
    request = await carry_out(plan_for(client, stream=stream), upstream, fake, keepalive_s=keepalive_s)
    assert upstream.open_count == 0
    return fake, upstream, request.record


@pytest.mark.parametrize("client", PROTOCOL_NAMES)
@pytest.mark.parametrize(
    ("first", "hedging"),
    [
        ([], {}),
        ([], {"hedge_s": 2}),
        ([Script(connect=[Sleep(60)])], {"hedge_s": 0.5, "accounts": "ab"}),
        ([Script(connect=[Sleep(0.7), UpstreamBroken("reset")])], {"hedge_s": 0.5, "accounts": "ab"}),
    ],
    ids=["alone", "not hedged yet", "hedged", "hedged, and the first one failed"],
)
async def test_the_request_is_let_go_of_once_its_client_gets_a_response(
    client: str, first: list[Script], hedging: dict[str, Any]
) -> None:
    plan = plan_for(client, stream=True, **hedging)
    planner = weakref.ref(plan.planner)
    upstreams = FakeUpstreams(*first, Script([START, WORD, Sleep(10), END], connect=[Sleep(1)]))
    handling = carry_out(plan, upstreams, FakeClient(), measured=True)
    del plan

    async def look() -> None:
        await anyio.sleep(0.9)
        assert planner() is not None, "another attempt may need it"
        await anyio.sleep(4)
        assert planner() is None

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(look)
        await handling


REPORTED = WORD.replace(b'"choices"', b'"usage":{"prompt_tokens":3},"choices"')


@one_backend
@pytest.mark.parametrize(
    ("client", "measured", "first", "estimated"),
    [
        (CHAT, True, WORD, True),  # a relay
        (MESSAGES, True, WORD, True),
        (CHAT, True, REPORTED, False),
        (CHAT, False, WORD, False),
    ],
)
async def test_its_prompt_is_estimated_before_if_the_upstream_has_not_counted_it(
    client: str, measured: bool, first: bytes, estimated: bool
) -> None:
    plan = plan_for(client, stream=True)
    expected = estimate_input(plan) if estimated else None
    upstream = FakeUpstream(Script([START, first, END]))
    request = await carry_out(plan, upstream, FakeClient(), measured=measured)
    meter = request.response.meter
    assert (None if meter is None else meter.estimated_input) == expected


async def test_first_bytes_do_not_wait_for_the_thread_that_estimates(monkeypatch: pytest.MonkeyPatch) -> None:
    async def busy(size: int, function: Any, *arguments: Any) -> Any:
        await anyio.sleep(5)
        return function(*arguments)

    monkeypatch.setattr(request_handler, "off_loop", busy)
    fake = FakeClient()
    upstream = FakeUpstream(Script([START, WORD, Sleep(10), END], connect=[Sleep(1)]))
    await carry_out(plan_for(MESSAGES, stream=True), upstream, fake, measured=True)
    assert [at for at, _ in fake.messages[:2]] == [1, 1]


@one_backend
async def test_headers_of_a_stream() -> None:
    script = Script([START, WORD, END], headers=[("x-request-id", "req_up"), ("set-cookie", "a=b")])
    fake, _, _ = await run(script)
    assert fake.headers["content-type"].startswith("text/event-stream")
    assert (fake.headers["cache-control"], fake.headers["x-accel-buffering"]) == ("no-cache", "no")
    assert "connection" not in fake.headers, "only the server knows what becomes of it"
    assert fake.headers["request-id"] == fake.headers["x-request-id"] == "req_up"
    assert "set-cookie" not in fake.headers


async def test_g9_each_event_goes_out_as_soon_as_it_exists() -> None:
    fake, _, _ = await run(Script([START, Sleep(1), WORD, Sleep(1), WORD, Sleep(1), END]), client=CHAT)
    times = [when for when, message in fake.messages if b"Hello" in message.get("body", b"")]
    assert times == [pytest.approx(1), pytest.approx(2)]


@pytest.mark.promise("R8")
@pytest.mark.parametrize("client", PROTOCOL_NAMES)
@pytest.mark.parametrize("where", ["before the head", "before the first byte", "in the middle"])
@pytest.mark.each_choice
async def test_g2_g6_silence_is_filled_with_heartbeats(client: str, where: str) -> None:
    scripts = {
        "before the head": Script([START, WORD, END], connect=[Sleep(25)]),
        "before the first byte": Script([Sleep(25), START, WORD, END]),
        "in the middle": Script([START + WORD, Sleep(25), END]),
    }
    fake, _, record = await run(scripts[where], client=client)
    beat = endpoint_of(client).heartbeat
    beats = [when for when, message in fake.messages if message.get("body", b"").endswith(beat)]
    assert [when for when in beats if when < 25] == [pytest.approx(10), pytest.approx(20)]
    assert fake.finished
    assert record.outcome == "completed"


@pytest.mark.promise("R8")
@pytest.mark.parametrize("client", PROTOCOL_NAMES)
async def test_sent_bytes_postpone_the_next_heartbeat(client: str) -> None:
    """The interval counts from the last bytes, and no response that flows has heartbeats in it."""
    flowing = Script([START, Sleep(4), WORD, Sleep(8), WORD, Sleep(25), END])
    fake, _, _ = await run(flowing, client=client)
    beat = endpoint_of(client).heartbeat
    beats = [when for when, message in fake.messages if message.get("body", b"").endswith(beat)]
    assert beats == [pytest.approx(4 + 8 + 10), pytest.approx(4 + 8 + 20)]


async def test_a_heartbeat_at_the_moment_of_an_event_does_not_change_the_order() -> None:
    """Both become due at once; which task comes first is chance on trio, so it is tried often."""
    for _ in range(50):
        fake, _, record = await run(Script([START, Late(1, WORD), Late(1, END)]), keepalive_s=1)
        events = [line for line in fake.body.split(b"\n") if line.startswith(b"event: ")]
        assert [event for event in events if event != b"event: ping"] == [
            b"event: message_start",
            b"event: content_block_start",
            b"event: content_block_delta",
            b"event: content_block_stop",
            b"event: message_delta",
            b"event: message_stop",
        ]
        assert fake.finished
        assert record.outcome == "completed"


async def test_a_response_at_the_moment_at_which_its_client_leaves() -> None:
    """Which task comes first is chance on trio, so it is tried often."""
    for _ in range(50):
        fake, _, record = await run(Script([Late(5, WHOLE)]), stream=False, leaves_after=5)
        expected = ("completed", 200) if fake.finished else ("client_left", None)
        assert (record.outcome, record.status) == expected


@pytest.mark.promise("R10")
async def test_a_slow_client_pauses_the_upstream() -> None:
    upstream = FakeUpstream(Script([START, *[WORD] * 50, END]))
    plan = plan_for(MESSAGES, stream=True)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(partial(carry_out, plan, upstream, FakeClient(pace=3600), keepalive_s=0))
        await anyio.sleep(3500)
        # The first read has no text yet. One event is being sent, four wait in the outbox, two may be on their way.
        assert upstream.reads <= 8
        tasks.cancel_scope.cancel()
    assert upstream.open_count == 0


FAILURE_TAILS = {
    CHAT: b'data: {"error":',
    MESSAGES: b"event: error\n",
    RESPONSES: b"event: response.failed\n",
    GEMINI: b'data: {"error":',
}
SUCCESS = {
    CHAT: b"[DONE]",
    MESSAGES: b"message_stop",
    RESPONSES: b"response.completed",
    GEMINI: b'"finishReason"',
}


@pytest.mark.parametrize("client", PROTOCOL_NAMES)
@pytest.mark.parametrize(
    "tail",
    [
        [],
        [WORD[:30]],
        [UpstreamBroken("broke")],
        [UpstreamTimeout("late", UpstreamTimeoutPhase.READ)],
        [b"data: {]\n\n"],
    ],
    ids=["eof", "cut frame", "broken", "timeout", "nonsense"],
)
@pytest.mark.each_choice
async def test_g3_a_failure_after_content_ends_in_the_clients_error_form(
    client: str, tail: list[Any]
) -> None:
    fake, _, record = await run(Script([START + WORD, *tail]), client=client)
    assert fake.status == 200
    assert FAILURE_TAILS[client] in fake.body
    assert SUCCESS[client] not in fake.body
    assert fake.finished
    assert record.outcome == "failed"


@pytest.mark.parametrize("client", PROTOCOL_NAMES)
async def test_a_whole_response_for_a_client_that_streams(client: str) -> None:
    fake, _, record = await run(Script([WHOLE]), client=client, stream=True)
    assert fake.headers["content-type"].startswith("text/event-stream")
    assert SUCCESS[client] in fake.body
    assert b"Hello" in fake.body
    assert record.outcome == "completed"


@one_backend
@pytest.mark.parametrize("taken", [True, False])
async def test_a_piece_is_measured_once_whichever_way_it_takes(taken: bool) -> None:
    channel = HttpChannel(checked, lambda data: taken)
    channel.meter = Meter()
    watched: list[bytes] = []
    channel.watch = watched.append
    if not channel.write_now(b"data: x\n\n" * 3):
        await channel.write(b"data: x\n\n" * 3)
    assert channel.meter.tokens() == 3
    assert watched == [b"data: x\n\n" * 3]


async def checked(message: Any) -> None:
    assert message["more_body"]


@pytest.mark.promise("R9")
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("client", PROTOCOL_NAMES)
async def test_a_response_is_freed_at_once(
    client: str, stream: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tasks of a request are a cycle. Large objects must not wait for the garbage collector, which runs late."""
    responses: list[weakref.ref[Any]] = []
    make = Plan.response_machine

    def noting(self: Plan, *headers: Any, **more: Any) -> Any:
        response = make(self, *headers, **more)
        responses.append(weakref.ref(response))
        return response

    monkeypatch.setattr(Plan, "response_machine", noting)
    gc.disable()
    try:
        script = Script([START, WORD, END] if stream else [WHOLE])
        assert (await run(script, client=client, stream=stream))[0].status == 200
        assert [response() for response in responses] == [None]
    finally:
        gc.enable()


@pytest.mark.promise("R8")
async def test_no_heartbeat_after_the_end_or_when_switched_off() -> None:
    fake, _, _ = await run(Script([START, WORD, END, Sleep(100)]))
    assert fake.messages[-1][0] < 1
    fake, _, _ = await run(Script([START, Sleep(100), WORD, END]), keepalive_s=0)
    assert not fake.body.count(b"event: ping\ndata") > 1
