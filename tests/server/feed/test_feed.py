"""The feed at /admin/events: the life of a request, resuming, filters, slow readers, and how a reader ends."""

import contextlib
import json
import logging
import os
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from gateway.fakes import FakeClient, FakeUpstreams, Script, Sleep, call, http_scope
from gateway.scripted import SECRET, chat_response, whole
from msgspec import structs
from virtual_time import REAL_BACKENDS, VIRTUAL_BACKENDS

from dragoman_server.app import Application
from dragoman_server.feed.events import (
    MAX_BATCH_EVENTS,
    MAX_LABEL_LENGTH,
    WIRE_EVENT,
    EndedRequest,
    EventBatch,
    EventFilter,
)
from dragoman_server.feed.feed import GATHER_S, KEPT_S, MAX_ENDED, MAX_READERS, MAX_WAITING, Feed
from dragoman_server.feed.reader import FeedReader
from dragoman_server.feed.requests import MAX_LOSSES, bounded_losses
from dragoman_server.feed.workers import DIRECTORY_VARIABLE, serving_workers
from dragoman_server.gateway import Gateway
from dragoman_server.http.admin.events import HEARTBEAT_S
from dragoman_server.log import RequestRecord
from dragoman_server.platform.changes import Changes
from dragoman_server.recordings.live import MAX_REQUEST_BYTES, MAX_TEXT_BYTES, LiveWire
from dragoman_server.settings import AccountSettings, ServerSettings, Settings, UpstreamSettings
from dragoman_server.settings.secret import Mask, Secret
from dragoman_server.telemetry.requests import Telemetry
from dragoman_server.upstream.errors import UpstreamUnreachable

pytestmark = [pytest.mark.anyio, pytest.mark.backends(*VIRTUAL_BACKENDS)]

ADMIN_KEY = "admin-canary-0123456789-0123456789-wq7zk"
ADMIN = {"authorization": f"Bearer {ADMIN_KEY}"}
UPSTREAM_KEY = "sk-canary-a-0123456789-0123456789"
SETTINGS = Settings(
    server=ServerSettings(secret=SECRET, admin_key=Secret(ADMIN_KEY)),
    upstreams=(UpstreamSettings(name="up", protocol="openai_chat", base_url="http://up.test/v1"),),
    accounts=(
        AccountSettings(upstream="up", name="a", api_key=Secret(UPSTREAM_KEY)),
        AccountSettings(upstream="up", name="b", api_key=Secret("sk-canary-b-0123456789-0123456789")),
    ),
)
ALL = EventFilter()
QUESTION = {"model": "up/m", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]}
ANSWER = whole(chat_response({"content": "Hello"}))
BUSY = Script([json.dumps({"error": {"message": f"busy {UPSTREAM_KEY}"}}).encode()], status=500)


def chunk(text: str) -> bytes:
    choices = [{"index": 0, "delta": {"content": text}}]
    delta = {"id": "c", "object": "chat.completion.chunk", "choices": choices}
    return f"data: {json.dumps(delta)}\n\n".encode()


def stream(*steps: bytes | Sleep) -> Script:
    return Script([*steps, b"data: [DONE]\n\n"], headers=[("content-type", "text/event-stream")])


def events_of(client: FakeClient) -> list[tuple[str, dict[str, Any]]]:
    """Return the types and the data of the events that a reader got."""
    found = []
    for block in client.body.decode().split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.splitlines() if not line.startswith(":"))
        if "event" in fields:
            found.append((fields["event"], json.loads(fields["data"]) | {"id": fields.get("id")}))
    return found


def types_of(client: FakeClient) -> list[str]:
    return [kind for kind, _ in events_of(client)]


@contextlib.asynccontextmanager
async def serving(*scripts: Script, settings: Settings = SETTINGS) -> AsyncIterator[Application]:
    app = Application(Gateway(settings, FakeUpstreams(*(scripts or [ANSWER]))))
    async with app.lifespan():
        yield app


@contextlib.asynccontextmanager
async def reading(
    app: Application, query: str = "", client: FakeClient | None = None, **headers: str
) -> AsyncIterator[FakeClient]:
    """Read the feed inside of this block. It gets what has happened before the block ends."""
    client = client or FakeClient()
    scope = http_scope("/admin/events", "GET", {**ADMIN, **headers}, query_string=query.encode())
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(app, scope, client.receive, client.send)
        await anyio.sleep(0.01)
        yield client
        await anyio.sleep(0.2)
        tasks.cancel_scope.cancel()


async def refused(app: Application, query: str = "", headers: dict[str, str] = ADMIN) -> FakeClient:
    """Return a reader that leaves if it gets the feed."""
    client = FakeClient(leaves_after=anyio.current_time() + 1)
    scope = http_scope("/admin/events", "GET", headers, query_string=query.encode())
    await app(scope, client.receive, client.send)
    return client


async def chat(app: Application, **more: Any) -> FakeClient:
    return await call(app, "/v1/messages", QUESTION | more)


# The life of a request.


async def test_each_moment_of_a_request_is_an_event() -> None:
    retried = stream(chunk("Hel"), Sleep(1.5), chunk("lo"), Sleep(0.5), chunk("."))
    async with serving(BUSY, retried) as app, reading(app) as client:
        before = time.time()
        answer = await chat(app, stream=True, top_k=3)
        after = time.time()
    assert client.headers["cache-control"] == "no-store"
    (_, hello), *found = events_of(client)
    assert (hello["resumed"], hello["workers"]) == (None, [found[0][1]["worker"]])
    assert [kind for kind, _ in found] == [
        "request.begun",
        "request.planned",
        "request.attempt",
        "request.attempt_failed",
        "request.attempt",
        "request.first_byte",
        "request.progress",
        "request.progress",
        "request.ended",
    ]
    (id,) = {event["request"] for _, event in found}
    assert all(before - 1 <= event["at"] <= after + 1 for _, event in found)
    of = dict(found)
    assert of["request.begun"] | {"id": 0, "at": 0, "worker": 0} == {
        "id": 0,
        "at": 0,
        "worker": 0,
        "request": id,
        "protocol": "anthropic_messages",
        "method": "POST",
        "path": "/v1/messages",
        "client_address": "127.0.0.1",
    }
    planned = of["request.planned"]
    assert (planned["model"], planned["upstream"], planned["upstream_model"]) == ("up/m", "up", "m")
    assert (planned["upstream_protocol"], planned["stream"]) == ("openai_chat", True)
    assert planned["losses"] == ["dropped /top_k"]
    assert len(planned["session"]) == 16
    attempts = [event for kind, event in found if kind == "request.attempt"]
    expected = [(1, "up", "m", False), (2, "up", "m", False)]
    assert [(each["number"], each["upstream"], each["model"], each["hedge"]) for each in attempts] == expected
    assert {each["account"] for each in attempts} == {"up/a", "up/b"}
    failed = of["request.attempt_failed"]
    assert (failed["number"], failed["status"], failed["account"]) == (1, 500, attempts[0]["account"])
    assert failed["cause"].endswith("busy ****")
    assert (of["request.first_byte"]["status"], of["request.first_byte"]["seconds"]) == (200, 0)
    # The first after a second, with all frames until then; the last at the end.
    progress = [event for kind, event in found if kind == "request.progress"]
    assert progress[0]["frames"] < progress[1]["frames"]
    assert (progress[1]["frames"], progress[1]["bytes"]) == (answer.body.count(b"\n\n"), len(answer.body))
    ended = of["request.ended"]
    assert (ended["outcome"], ended["attempts"], ended["duration_s"]) == ("completed", 2, 2.0)
    assert ended["losses"][:1] == planned["losses"]


async def test_a_parallel_attempt_is_marked() -> None:
    hedged = structs.replace(SETTINGS.upstreams[0], hedge_s=1.0)
    slow = replace(ANSWER, connect=[Sleep(5)])
    settings = structs.replace(SETTINGS, upstreams=(hedged,))
    query = "type=request.attempt"
    async with serving(slow, ANSWER, settings=settings) as app, reading(app, query) as client:
        await chat(app)
    assert [event["hedge"] for _, event in events_of(client)[1:]] == [False, True]


async def test_a_request_whose_client_leaves_has_no_progress_and_one_that_is_no_stream_one_frame() -> None:
    async with serving(replace(ANSWER, connect=[Sleep(5)]), ANSWER) as app, reading(app) as client:
        leaves = FakeClient(json.dumps(QUESTION).encode(), leaves_after=2.0)
        await app(http_scope("/v1/messages"), leaves.receive, leaves.send)
        await chat(app)
    found = events_of(client)[1:]
    begin = ["request.begun", "request.planned", "request.attempt"]
    assert [kind for kind, _ in found[:4]] == [*begin, "request.ended"]
    assert found[3][1]["outcome"] == "client_left"
    expected = [*begin, "request.first_byte", "request.progress", "request.ended"]
    assert [kind for kind, _ in found[4:]] == expected
    assert found[-2][1]["frames"] == 1


async def test_events_gather_for_a_reader() -> None:
    async with serving() as app, reading(app) as client:
        for _ in range(20):
            await chat(app)
    assert len(types_of(client)) == 121
    assert len(client.messages) <= 5


async def test_what_no_endpoint_receives_only_ends() -> None:
    async with serving() as app, reading(app) as client:
        await call(app, "/nothing", method="GET")
    assert types_of(client) == ["hello", "request.ended"]


def test_losses_are_bounded() -> None:
    assert bounded_losses(["a"] * MAX_LOSSES) == (["a"] * MAX_LOSSES, None)
    shown, left_out = bounded_losses(["x" * 5000] * (MAX_LOSSES + 3))
    assert left_out == 3
    assert len(str(shown)) < MAX_LOSSES * 600


@pytest.mark.prints_secrets  # the client gets back the name that it sent
async def test_no_secret_and_no_long_text_is_in_an_event() -> None:
    async with serving() as app, reading(app) as client:
        await chat(app, model=f"{UPSTREAM_KEY}/" + "long" * 400)
        kept = app._served.gateway.telemetry.feed.ring._events
        assert max(len(event.model) for event in kept) == MAX_LABEL_LENGTH
        await anyio.sleep(1)
        added = AccountSettings(upstream="up", name="c", api_key=Secret("sk-new-canary-0123456789"))
        await app.reload(structs.replace(SETTINGS, accounts=(*SETTINGS.accounts, added)))
        async with reading(app) as after:
            await chat(app, model="sk-new-canary-0123456789")
    assert events_of(after)[-1][1]["model"] == "****"
    assert UPSTREAM_KEY not in client.body.decode()
    assert dict(events_of(client))["request.ended"]["model"].startswith("****")
    assert len(client.body) < 8000


async def test_events_that_wait_are_few_and_masked_by_the_configuration_of_their_time() -> None:
    feed = Feed(Mask([UPSTREAM_KEY]))
    with feed.kept(ALL):
        for _ in range(MAX_WAITING + 1):
            feed.publish("request.begun", RequestRecord("id", "p", "/"), {"path": f"/{UPSTREAM_KEY}"})
        assert len(feed._ring.waiting) == 1
        feed.publish(WIRE_EVENT, RequestRecord("id", "p", "/"), {"text": "Hello"})
        assert not feed._ring.waiting
        feed.publish("request.begun", RequestRecord("id", "p", "/"), {"path": f"/{UPSTREAM_KEY}"})
        feed.configure(Mask(()))
        events = feed.ring.after(0, ALL).events
    assert [json.loads(event.data)["path"] for event in events] == ["/****"] * (MAX_WAITING + 2)


async def test_what_is_kept_while_nobody_reads_is_masked_by_the_configuration_of_its_time() -> None:
    feed = Feed(Mask([UPSTREAM_KEY]))
    feed.ended.append(EndedRequest(0.0, {"id": "id", "error": f"no {UPSTREAM_KEY}", "losses": []}))
    feed.configure(Mask(()))
    with feed.kept(ALL):
        [event] = feed.ring.after(0, ALL).events
    assert json.loads(event.data)["error"] == "no ****"
    assert feed.ended.maxlen == MAX_ENDED


async def test_a_reader_that_is_behind_does_not_wait_between_batches() -> None:
    feed, got = Feed(Mask(())), list[int]()

    async def take(batch: EventBatch) -> None:
        got.extend(event.number for event in batch.events)

    with feed.kept(ALL):
        for _ in range(3 * MAX_BATCH_EVENTS):
            feed.publish("request.begun", RequestRecord("id", "p", "/"), {})
        with anyio.move_on_after(GATHER_S / 2):
            await feed.follow(0, ALL, take)
    assert got == list(range(1, 3 * MAX_BATCH_EVENTS + 1))


# Readers that are not there, come back, or are slow.


async def test_without_a_reader_nothing_is_kept_and_after_the_last_one_only_for_a_while() -> None:
    async with serving() as app:
        feed = app._served.gateway.telemetry.feed
        plain = Telemetry(Settings(), {})
        assert plain.begin(RequestRecord("id", "p", "/"), http_scope("/"), {}, anyio.current_time) is None
        await chat(app)
        assert (feed.is_open, feed.ring.kept) == (False, (1, 0))
        async with reading(app):
            await chat(app)
        kept = feed.ring.kept
        assert feed.is_open
        await anyio.sleep(KEPT_S - 1)
        async with reading(app):  # another one, from whose end on the time counts
            pass
        await anyio.sleep(KEPT_S - 1)
        assert (feed.is_open, feed.ring.kept) == (True, kept)
        await anyio.sleep(2)
        assert not feed.is_open
        assert feed.ring.kept.first > kept.last, "and nothing is left"


async def test_a_reader_goes_on_behind_the_last_event_that_it_has() -> None:
    async with serving() as app:
        async with reading(app) as client:
            await chat(app)
        last = events_of(client)[2][1]["id"]
        await chat(app)  # while nobody reads
        async with reading(app, **{"last-event-id": last}) as again:
            pass
        (_, hello), *missed = events_of(again)
        assert hello["resumed"] is True
        whole_life = types_of(client)[1:]
        assert [kind for kind, _ in missed] == whole_life[2:] + whole_life
        await anyio.sleep(KEPT_S + 1)
        async with reading(app, **{"last-event-id": last}) as late:
            await chat(app)
    assert events_of(late)[0][1]["resumed"] is False
    # Of what was lost it gets the ends of the requests.
    assert types_of(late)[1:] == ["request.ended"] * 2 + whole_life


@pytest.mark.prints_secrets  # the client gets back the name that it sent, and pytest's handler has no mask
async def test_the_ends_of_requests_are_kept_while_nobody_reads(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "dragoman.requests")
    async with serving() as app:
        began = time.time()
        await chat(app, top_k=3)
        await chat(app, model=f"up/{UPSTREAM_KEY}")
        async with reading(app, "kept=true") as first:
            await chat(app)
        async with reading(app, "kept=true&type=request.ended&model=up/m") as second, reading(app) as other:
            pass
        for _ in range(MAX_ENDED):
            await call(app, "/nothing", method="GET")
        assert len(app._served.gateway.telemetry.feed.ended) == MAX_ENDED
    (_, hello), (kind, ended), (_, masked), *rest = events_of(first)
    assert (hello["resumed"], kind, ended["losses"]) == (None, "request.ended", ["dropped /top_k"])
    assert began <= ended["at"] <= time.time()
    assert (masked["model"], masked["losses"]) == ("up/****", [])
    assert [kind for kind, _ in rest][-1] == "request.ended"
    expected = [ended["request"], rest[-1][1]["request"]]
    assert [event["request"] for _, event in events_of(second)[1:]] == expected
    assert types_of(other) == ["hello"], "only who asks for them"


@pytest.mark.parametrize(
    "id",
    [
        "",
        "1",
        "x.1",
        "{name}.",
        "{name}.-1",
        "{name}.99",
        "{name}.1,",
        "12-0123abcd.1",
        "{name}.1;",
        "{name}.0,{name}.0",
    ],
)
async def test_an_id_that_is_none_of_this_gateway_is_refused(id: str) -> None:
    async with serving() as app:
        headers = {**ADMIN, "last-event-id": id.format(name=app._served.gateway.telemetry.feed.name)}
        client = await refused(app, headers=headers)
        assert (client.status, client.error["type"]) == (400, "invalid_request_error")
        assert "Last-Event-ID" in client.error["message"]
        assert not app._served.gateway.telemetry.feed._readers


@pytest.mark.parametrize(
    ("query", "place"),
    [
        ("type=request", "type"),
        ("kept=yes", "kept"),
        ("type=", "type"),
        ("typ=request.begun", "typ"),
        ("key=nobody", "key"),
        ("upstream=nowhere", "upstream"),
        ("request=", "request"),
        ("model=", "model"),
        ("type=request.begun&type=no", "type"),
        ("&".join(["model=a"] * 200), "100 parameters"),
    ],
)
async def test_a_filter_that_is_not_there_is_refused(query: str, place: str) -> None:
    async with serving() as app:
        client = await refused(app, query)
    assert client.status == 400
    assert place in client.error["message"]


async def test_filters() -> None:
    async with serving() as app:
        async with reading(app, "type=request.ended&type=request.begun&upstream=up") as client:
            await chat(app)
        async with reading(app, "model=up/other") as other, reading(app, "model=up/m&upstream=sim") as none:
            await chat(app)
            await chat(app, model="up/other")
    # Where it goes is not known yet when a request begins.
    assert types_of(client) == ["hello", "request.ended"]
    assert {event.get("model") for kind, event in events_of(other) if kind == "request.ended"} == {"up/other"}
    assert types_of(none) == ["hello"]


async def test_a_slow_reader_loses_events_and_slows_no_request() -> None:
    async with serving() as app:
        feed = app._served.gateway.telemetry.feed
        feed.ring._max_events = 20
        async with reading(app, client=FakeClient(pace=10.0)) as client:
            began = anyio.current_time()
            for _ in range(10):
                await chat(app)
            assert anyio.current_time() == began
            await anyio.sleep(60)
    kinds = types_of(client)
    place = kinds.index("lost")
    lost = events_of(client)[place][1]
    assert (lost["id"], lost["count"]) == (None, feed.ring.kept.last - 20 - (place - 1))
    assert len(kinds) == 1 + (place - 1) + 1 + 20


async def test_readers_are_limited() -> None:
    async with serving() as app, contextlib.AsyncExitStack() as stack:
        for _ in range(MAX_READERS):
            await stack.enter_async_context(reading(app))
        client = await refused(app)
        assert client.status == 503
        assert f"{MAX_READERS} readers" in client.error["message"]


async def test_heartbeats_have_the_newest_id() -> None:
    async with serving() as app, reading(app, "type=request.begun&model=none") as client:
        await chat(app)
        await anyio.sleep(HEARTBEAT_S)
        assert client.body.endswith(
            f": heartbeat\nid: {app._served.gateway.telemetry.feed.name}.6\n\n".encode()
        )
        await anyio.sleep(HEARTBEAT_S)
    assert client.body.count(b": heartbeat\n") == 2


# What client and upstreams send.

WIRE = "type=request.wire&type=request.progress&type=request.ended"


def wires_of(client: FakeClient) -> dict[tuple[str, str, int | None], str]:
    """Return the texts of one request by their side, direction and attempt."""
    texts: dict[tuple[str, str, int | None], str] = {}
    for kind, event in events_of(client):
        if kind == "request.wire":
            place = event["side"], event["direction"], event.get("attempt")
            texts[place] = texts.get(place, "") + event["text"]
    return texts


async def test_both_wires_of_a_request_while_it_runs() -> None:
    broken = Script(connect=[UpstreamUnreachable("no route")])
    third = AccountSettings(upstream="up", name="c", api_key=Secret("sk-canary-c-0123456789-0123456789"))
    settings = structs.replace(SETTINGS, accounts=(*SETTINGS.accounts, third))
    words = stream(chunk("Hel"), Sleep(5), chunk("lo"))
    async with serving(BUSY, broken, words, settings=settings) as app:
        async with reading(app, WIRE) as client:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(partial(chat, app, stream=True))
                await anyio.sleep(2)
                assert '"Hel"' in wires_of(client)["client", "response", None]
            sent = app._served.gateway.client.sent  # type: ignore[attr-defined]
        got = wires_of(client)
        assert json.loads(got["client", "request", None]) == QUESTION | {"stream": True}
        expected = [each.content.decode() for each in sent]
        assert [got["upstream", "request", number] for number in (1, 2, 3)] == expected
        assert json.loads(got["upstream", "response", 1])["error"]["message"].startswith("busy *")
        assert got["upstream", "response", 2] == ""
        assert got["upstream", "response", 3].endswith("data: [DONE]\n\n")
        assert "event: message_stop" in got["client", "response", None]
        events = [event for _, event in events_of(client)]
        expected = ["http://up.test/v1/chat/completions"] * 3
        assert [event["url"] for event in events if "url" in event] == expected
        assert [event["status"] for event in events if "status" in event and "side" in event] == [500, 200]
        assert [event["error"] for event in events if "side" in event and "error" in event] == ["no route"]
        keys = [dict(event["headers"]).get("authorization") for event in events if "url" in event]
        assert keys == ["****"] * 3
        # It is counted as well.
        (*_, progress, ended) = events
        assert (progress["bytes"], ended["outcome"]) == (len(got["client", "response", None]), "completed")
        assert not app._served.gateway.telemetry.feed.wants_wire
        # Those who do not ask for it get nothing of it, not even of what is kept, and then it is not made.
        first = events_of(client)[0][1]["id"]
        async with reading(app, **{"last-event-id": first}) as other:
            await chat(app)
    assert wires_of(other) == {}
    assert {"request.progress", "request.ended"} <= set(types_of(other))


@pytest.mark.backends(*REAL_BACKENDS)  # large bodies are handled in a thread
async def test_what_is_shown_of_a_wire_is_bounded() -> None:
    long = whole(chat_response({"content": "word " * 100_000}))
    async with serving(long) as app, reading(app, WIRE) as client:
        await chat(app, messages=[{"role": "user", "content": "x" * MAX_TEXT_BYTES * 2}])
        await chat(app, stream=True)
    shown = [event for kind, event in events_of(client) if kind == "request.wire"]
    assert max(len(event["text"]) for event in shown) == MAX_TEXT_BYTES
    (question,) = [
        event for event in shown if event["direction"] == "request" and event.get("left_out", 0) > 0
    ][:1]
    assert question["left_out"] > MAX_TEXT_BYTES
    many: list[dict[str, Any]] = []
    wire = LiveWire(lambda data: many.append(dict(data)), SETTINGS)
    for _ in range(MAX_REQUEST_BYTES // 1000 + 5):
        wire.text("client", "response", b"x" * 1000)
    assert sum(len(event["text"]) for event in many) == MAX_REQUEST_BYTES
    assert [event["last"] for event in many] == [None] * (len(many) - 1) + [True]


@pytest.mark.backends(*REAL_BACKENDS)  # a recording is written in a thread
async def test_a_wire_has_no_texts_where_recordings_have_none_and_both_can_be_made(tmp_path: Path) -> None:
    server = structs.replace(SETTINGS.server, record_texts=False, record=str(tmp_path))
    async with (
        serving(settings=structs.replace(SETTINGS, server=server)) as app,
        reading(app, WIRE) as client,
    ):
        await chat(app)
    (recorded,) = os.listdir(tmp_path)
    assert json.loads(await anyio.Path(tmp_path, recorded).read_text())["attempts"][0]["status"] == 200
    texts = "".join(wires_of(client).values())
    assert "Hello" not in texts
    assert '"Hi"' not in texts
    assert '"xxxxx"' in texts


# How a reader ends.


async def test_it_ends_when_its_client_leaves() -> None:
    async with serving() as app:
        client = FakeClient(leaves_after=5.0)
        await app(http_scope("/admin/events", "GET", ADMIN), client.receive, client.send)
        assert anyio.current_time() == 5.0
        assert app._served.gateway.telemetry.feed._readers == []


@pytest.mark.parametrize("pace", [0.0, 30.0], ids=["reads", "does not read"])
async def test_a_stop_and_a_reload_end_it_within_250_ms(pace: float) -> None:
    async with serving() as app:
        for reason in ("reloaded", "stopping"):
            client = FakeClient(pace=pace)
            async with anyio.create_task_group() as tasks:
                scope = http_scope("/admin/events", "GET", ADMIN)
                tasks.start_soon(app, scope, client.receive, client.send)
                await anyio.sleep(40.0)
                began = anyio.current_time()
                if reason == "reloaded":
                    admin_key = Secret("x" * 40)
                    await app.reload(
                        structs.replace(
                            SETTINGS, server=structs.replace(SETTINGS.server, admin_key=admin_key)
                        )
                    )
                    await app.reload(SETTINGS)
                else:
                    app.draining = True
            assert anyio.current_time() - began <= 0.25
            if not pace:
                assert events_of(client)[-1][1]["reason"] == reason
                assert client.finished
        client = await refused(app)
        assert client.status == 503


async def test_a_bug_of_the_feed_ends_no_request(caplog: pytest.LogCaptureFixture) -> None:
    """A reader whose connection breaks while it is written to has left."""

    class Broken(FakeClient):
        async def send(self, message: Any) -> None:
            if message["type"] == "http.response.body":
                raise OSError
            await super().send(message)

    async with serving() as app:
        client = Broken()
        await app(http_scope("/admin/events", "GET", ADMIN), client.receive, client.send)
    assert [each for each in caplog.records if each.levelname == "ERROR"] == []


# Several workers.


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(DIRECTORY_VARIABLE, str(tmp_path))
    return tmp_path


class Reader:
    """A reader at one worker, which notes what it gets."""

    def __init__(self, feed: Feed, after: dict[str, int] | None = None, wanted: EventFilter = ALL) -> None:
        self.got: list[tuple[str, Any]] = []
        self.changes = Changes()
        self.reader = FeedReader(feed, wanted, after, self.take, self.changed)

    async def take(self, worker: str, batch: EventBatch) -> None:
        assert not batch.lost, "it knows from the beginning that some are missing"
        for event in batch.events:
            self.got.append((worker, event.request))
            self.reader.places[worker] = event.number

        self.changes.note()

    async def changed(self, kind: str, worker: str) -> None:
        self.got.append((worker, kind))
        self.changes.note()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        with self.reader._feed.reader(self.reader._wanted):
            async with anyio.create_task_group() as tasks:
                await self.reader.start(tasks)
                tasks.start_soon(self.reader.go_on)
                yield
                tasks.cancel_scope.cancel()

    async def wait_for(self, *found: tuple[str, Any]) -> None:
        with anyio.fail_after(20):
            while sorted(self.got) != sorted(found):
                await self.changes.wait()
        self.got.clear()


@contextlib.asynccontextmanager
async def worker() -> AsyncIterator[Feed]:
    feed = Feed(Mask(()))
    async with feed.running(), serving_workers(feed):
        yield feed


def publish(feed: Feed, id: str) -> None:
    feed.publish("request.begun", RequestRecord(id, "p", "/"), {})


@pytest.mark.backends(*REAL_BACKENDS)
async def test_a_reader_gets_the_events_of_all_workers_and_resumes_at_any(directory: Path) -> None:
    async with worker() as one, worker() as two:
        publish(two, "unread")
        reader = Reader(one)
        async with reader.running():
            assert two.is_open
            assert not two.wants_wire
            publish(one, "a")
            publish(two, "b")
            await reader.wait_for((one.name, "a"), (two.name, "b"))
            async with worker() as three:
                await reader.wait_for((three.name, "worker.joined"))
                publish(three, "c")
                await reader.wait_for((three.name, "c"))
            await reader.wait_for((three.name, "worker.left"))
            places = dict(reader.reader.places)
        assert places.keys() == {one.name, two.name}
        publish(two, "d")
        publish(one, "e")
        again = Reader(two, places)
        async with again.running():
            assert again.reader.resumed is True
            await again.wait_for((two.name, "d"), (one.name, "e"))
        with_wire = Reader(one, places, EventFilter(type=frozenset({WIRE_EVENT})))
        async with with_wire.running():
            assert two.wants_wire
        two.ring._max_events = 1
        publish(two, "f")
        # A worker that has died has taken its last events with it.
        gone = Reader(one, {**places, three.name: 1})
        async with gone.running():
            assert gone.reader.resumed is False
            await gone.wait_for((two.name, "f"), (one.name, "e"))
        assert set(os.listdir(directory)) == {one.name, two.name}


@pytest.mark.backends(*REAL_BACKENDS)
async def test_what_is_kept_comes_from_all_workers(directory: Path) -> None:
    async with worker() as one, worker() as two:
        one.ended.append(EndedRequest(1.0, {"id": "a"}))
        two.ended.append(EndedRequest(2.0, {"id": "b"}))
        reader = Reader(one, {})
        async with reader.running():
            assert reader.reader.resumed is None
            await reader.wait_for((one.name, "a"), (two.name, "b"))
