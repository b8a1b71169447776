"""Responses in the background go on without their clients, and can be followed, cancelled and read meanwhile."""

from __future__ import annotations

import json
import math
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from gateway.fakes import FakeClient, Script, Sleep
from gateway.simulated import Gateway, frames, gateway
from gateway.stored import ON, PATH, STATELESS, create_response, refused, text_of
from virtual_time import REAL_BACKENDS, VIRTUAL_BACKENDS

from dragoman import PROTOCOLS, Usage
from dragoman_server.accounts.limits import ClientLimits
from dragoman_server.log import RequestRecord
from dragoman_server.responses import background
from dragoman_server.responses.service import StoredResponseService
from dragoman_server.responses.stores import base, memory
from dragoman_server.responses.stores.base import (
    EventPage,
    ResponseEvents,
    ResponseKey,
    ResponseStoreError,
    StoredResponse,
)
from dragoman_server.responses.stores.memory import MemoryResponseStore
from dragoman_server.settings import ClientKey
from dragoman_server.settings.client_keys import hash_client_key
from dragoman_server.settings.secret import Secret
from dragoman_server.upstream.errors import UpstreamBroken

pytestmark = [pytest.mark.anyio, pytest.mark.backends(*VIRTUAL_BACKENDS)]
one_backend = pytest.mark.backends(VIRTUAL_BACKENDS[0])
each_upstream = pytest.mark.parametrize("upstream", [*STATELESS, "openai"])

STORED_EVENTS = PROTOCOLS["openai_responses"].stored_responses
assert STORED_EVENTS is not None

WORDS = "one two three four five six"


def request(upstream: str, model: str = "echo@2", *, stream: bool = True, **more: Any) -> dict[str, Any]:
    """Two words in a second, so the response takes three."""
    return {"model": f"{upstream}/{model}", "input": WORDS, "stream": stream, "background": True, **more}


async def begin(up: Gateway, upstream: str = "chat", model: str = "echo@2", **more: Any) -> dict[str, Any]:
    """Begin a response, and return what its client gets at once."""
    response: dict[str, Any] = await up.json(PATH, request(upstream, model, stream=False, **more))
    assert (response["status"], response["output"], response["background"]) == ("in_progress", [], True)
    return response


async def begin_stream(
    up: Gateway,
    upstream: str = "chat",
    leaves_after: float = 1.2,
    leaves_at: bytes | None = None,
    **more: Any,
) -> list[dict[str, Any]]:
    """Begin a stream whose client leaves, and return the events that it has got."""
    body = json.dumps(request(upstream, **more)).encode()
    client = FakeClient(body, anyio.current_time() + leaves_after, leaves_at=leaves_at)
    await up.call(PATH, client=client)
    assert not client.finished
    return frames(client.body)


async def follow(
    up: Gateway, id: str, after: int | None = None, client: FakeClient | None = None
) -> FakeClient:
    query = "" if after is None else f"&starting_after={after}"
    return await up.call(f"{PATH}/{id}?stream=true{query}", method="GET", client=client)


async def ended(up: Gateway, id: str) -> dict[str, Any]:
    """The response once it is no longer made."""
    with anyio.fail_after(100):
        while True:
            found: dict[str, Any] = await up.get(f"{PATH}/{id}")
            if found["status"] != "in_progress":
                return found
            await anyio.sleep(0.1)


@pytest.fixture
def records(monkeypatch: pytest.MonkeyPatch) -> list[RequestRecord]:
    """The records of requests that were counted, but for those that only read."""
    counted: list[RequestRecord] = []

    def count(self: Any, record: RequestRecord, now: float) -> None:
        counted.append(record)

    monkeypatch.setattr("dragoman_server.usage.recorder.UsageRecorder.count", count)
    return counted


# Going on without a client.


@each_upstream
async def test_a_stream_goes_on_without_its_client(upstream: str, records: list[RequestRecord]) -> None:
    async with gateway(**ON) as up:
        seen = await begin_stream(up, upstream)
        id, last = seen[0]["response"]["id"], seen[-1]["sequence_number"]
        assert (await up.get(f"{PATH}/{id}"))["status"] == "in_progress"
        assert records == []
        events = [*seen, *frames((await follow(up, id, last)).body)]
        assert anyio.current_time() == pytest.approx(3, abs=0.5)
        assert events == frames((await follow(up, id)).body)
        assert [event["sequence_number"] for event in events] == list(range(len(events)))
        assert "".join(event.get("delta", "") for event in events) == WORDS
        assert events[-1]["response"] == await ended(up, id)
        assert len(up.upstreams.sent) == 1
        assert up.last.body.keys().isdisjoint(("background", "background_options"))
        (record,) = records
        assert (record.outcome, record.background, record.status) == ("completed", True, 200)
        assert (record.output_tokens, record.duration_s) == (6, pytest.approx(3, abs=0.5))


@each_upstream
async def test_a_response_can_be_polled(upstream: str, records: list[RequestRecord]) -> None:
    async with gateway(**ON) as up:
        response = await begin(up, upstream, metadata={"a": "b"})
        assert anyio.current_time() < 0.1
        id = response["id"]
        assert response["metadata"] == {"a": "b"}
        assert await up.get(f"{PATH}/{id}") == response
        error = await refused(up, 400, {"model": "chat/echo", "input": "x", "previous_response_id": id})
        assert "its status is in_progress" in error["message"]
        assert (await follow(up, id)).status == 400
        found = await ended(up, id)
        assert (found["status"], found["id"], text_of(found)) == ("completed", id, WORDS)
        assert (found["background"], found["store"]) == (True, True)
        later = await create_response(up, "chat", "more", previous_response_id=id)
        assert later["usage"]["input_tokens"] == 13
        assert [record.background for record in records] == [None, True, None]


async def test_the_client_of_another_protocol_still_ends_its_request_by_leaving() -> None:
    async with gateway(**ON) as up:
        for path, more in (("/v1/chat/completions", {}), ("/v1/messages", {"max_tokens": 99})):
            messages = [{"role": "user", "content": WORDS}]
            body = {"model": "chat/echo@2", "messages": messages, "stream": True, **more}
            leaves_at = anyio.current_time() + 1.2
            await up.call(path, client=FakeClient(json.dumps(body).encode(), leaves_after=leaves_at))
            assert anyio.current_time() == pytest.approx(leaves_at)
            assert up.app._served.gateway.background.count == 0


FAILURES = {
    "refused": (Script([b'{"error":{"message":"slow down"}}'], status=429, connect=[Sleep(1)]), "slow down"),
    "broken": (Script([b'data: {"id":"1","choices":[]}\n\n', Sleep(1), UpstreamBroken("cut")]), "cut"),
}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("failure", FAILURES)
async def test_a_failure_of_the_upstream_is_that_of_the_response(
    failure: str, stream: bool, records: list[RequestRecord]
) -> None:
    script, message = FAILURES[failure]
    async with gateway({"/chat/completions": script}, **ON) as up:
        client = await up.call(PATH, request("chat", "m", stream=stream))
        id = (frames(client.body)[0]["response"] if stream else json.loads(client.body))["id"]
        found = await ended(up, id)
        assert found["status"] == "failed"
        assert message in found["error"]["message"]
        if stream:
            last = frames(client.body)[-1]
            assert (last["type"], last["response"]) == ("response.failed", found)
        assert [record.outcome for record in records] == ["failed"]


@pytest.mark.parametrize("members", [{"output": None}, {"status": "in_progress"}])
async def test_an_end_that_is_none_is_a_failure(members: dict[str, Any]) -> None:
    """Whatever a server says at the end of its stream."""
    begun = {"id": "resp_up", "object": "response", "status": "in_progress", "output": []}
    events = [("created", begun), ("completed", {**begun, "status": "completed", **members})]
    script = [
        f"event: response.{kind}\ndata: {json.dumps({'type': f'response.{kind}', 'response': response})}\n\n"
        for kind, response in events
    ]
    async with gateway({"/responses": Script([each.encode() for each in script])}, **ON) as up:
        last = frames((await up.call(PATH, request("stateless", "m"))).body)[-1]
        assert (last["type"], last["response"]["status"]) == ("response.failed", "failed")
        assert "without its output" in last["response"]["error"]["message"]
        assert await up.get(f"{PATH}/{last['response']['id']}") == last["response"]


async def test_a_response_may_take_as_long_as_the_settings_say(records: list[RequestRecord]) -> None:
    async with gateway(**ON, background_timeout_s=2.0) as up:
        for stream in (False, True):
            client = await up.call(PATH, request("chat", stream=stream))
            first = frames(client.body)[0]["response"] if stream else json.loads(client.body)
            found = await ended(up, first["id"])
            assert (found["status"], "background_timeout_s" in found["error"]["message"]) == ("failed", True)
            assert (records[-1].outcome, records[-1].error_kind) == ("failed", "timeout")
        assert frames(client.body)[-1]["response"] == found
        assert anyio.current_time() == pytest.approx(4, abs=0.5)


async def test_what_a_stop_cuts_off_has_failed(records: list[RequestRecord]) -> None:
    async with gateway(**ON) as up:
        store = up.app._served.gateway.responses.store
        assert store is not None
        whole = await begin(up)
        stream = await begin_stream(up)
    for id in (whole["id"], stream[0]["response"]["id"]):
        found = await store.get("", id, int(time.time()))
        body = json.loads(found.body)
        assert (found.lease, body["status"]) == (0, "failed")
        assert "the gateway is stopping" in body["error"]["message"]
    page = await store.read_events(("", stream[0]["response"]["id"]), -1, 0)
    assert frames(page.events.data)[-1]["type"] == "response.failed"
    assert [record.outcome for record in records] == ["cancelled"] * 2


async def test_a_stop_waits_for_what_is_made() -> None:
    async with gateway(**ON) as up:
        await begin(up)
        await up.app.drained()
        assert anyio.current_time() == pytest.approx(3, abs=0.5)
        await up.app.drained()


async def test_a_reload_does_not_end_what_is_made() -> None:
    async with gateway(**ON) as up:
        before = up.app._served
        response = await begin(up)
        await up.app.reload(before.gateway.settings)
        await anyio.sleep(0.5)
        assert before in up.app._in_use
        assert (await ended(up, response["id"]))["status"] == "completed"
        await anyio.sleep(0.1)
        assert before not in up.app._in_use


# Cancelling.


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("upstream", STATELESS)
async def test_a_response_can_be_cancelled(upstream: str, stream: bool, records: list[RequestRecord]) -> None:
    script = Script([Sleep(60)])
    async with gateway({"/chat/completions": script, "/messages": script, "/responses": script}, **ON) as up:
        if stream:
            id = (await begin_stream(up, upstream))[0]["response"]["id"]
        else:
            id = (await begin(up, upstream))["id"]
        await anyio.sleep(1)
        cancelled_at = anyio.current_time()
        cancelled = await up.json(f"{PATH}/{id}/cancel", {})
        assert (cancelled["status"], cancelled["output"], cancelled["error"]) == ("cancelled", [], None)
        await anyio.sleep(0.25)
        assert up.last.closed_at is not None
        assert up.last.closed_at - cancelled_at <= 0.25
        assert await up.json(f"{PATH}/{id}/cancel", {}) == cancelled == await up.get(f"{PATH}/{id}")
        if stream:
            last = frames((await follow(up, id)).body)[-1]
            assert (last["type"], last["response"]) == ("response.failed", cancelled)
        assert [record.outcome for record in records] == ["cancelled"]


async def test_what_has_ended_cannot_be_cancelled() -> None:
    async with gateway(**ON) as up:
        for model, status in (
            ("echo", "a completed"),
            ("error-500", "a failed"),
            ("length", "an incomplete"),
        ):
            response = await begin(up, model=model)
            await ended(up, response["id"])
            error = await refused(up, 400, {}, f"{PATH}/{response['id']}/cancel")
            assert error["message"] == f"Cannot cancel {status} response."


async def test_to_delete_a_response_cancels_it(records: list[RequestRecord]) -> None:
    async with gateway(**ON) as up, anyio.create_task_group() as tasks:
        id = (await begin_stream(up))[0]["response"]["id"]
        follower = FakeClient()
        tasks.start_soon(follow, up, id, None, follower)
        await anyio.sleep(0.1)
        await up.json(f"{PATH}/{id}", method="DELETE")
        await anyio.sleep(0.25)
        assert [record.outcome for record in records] == ["cancelled"]
        await up.get(f"{PATH}/{id}", 404)
        assert frames(follower.body)[-1]["type"] == "error"
        assert anyio.current_time() < 2


# What cannot be begun.

REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"store": False}, "background needs store to be true"),
    ({"background": "yes"}, "background must be a boolean"),
    ({"background_options": []}, "background_options must be an object"),
    ({"background_options": {"completion_window": "2h"}, "stream": True}, "need stream to be false"),
    ({"previous_response_id": "resp_upstream"}, "Previous response with id 'resp_upstream' not found."),
    ({"input": [{"type": "item_reference", "id": "msg_upstream"}]}, "Item with id 'msg_upstream' not found."),
]


@one_backend
@pytest.mark.parametrize(("more", "message"), REFUSED)
async def test_what_cannot_be_made_in_the_background_is_refused(more: dict[str, Any], message: str) -> None:
    """Also at an upstream that stores responses: this gateway does not have them."""
    async with gateway(**ON) as up:
        client = await up.call(PATH, request("openai", stream=False) | more)
        assert client.status in (400, 404)
        assert message in client.error["message"]
        assert up.upstreams.sent == []


@one_backend
async def test_without_a_store_nothing_is_made_in_the_background() -> None:
    async with gateway() as up:
        error = await refused(up, 400, request("openai"))
        assert "server.response_store" in error["message"]
        assert (error["param"], error["code"]) == ("background", "unsupported_parameter")


@one_backend
@pytest.mark.parametrize(
    "options", [{"completion_window": "2h"}, {"continuation_id": "x"}, {"completion_window": "soonest"}, {}]
)
@pytest.mark.parametrize("upstream", ["chat", "stateless"])
async def test_options_that_have_no_effect_are_a_loss(upstream: str, options: dict[str, str]) -> None:
    async with gateway(**ON) as up:
        client = await up.call(PATH, request(upstream, stream=False, background_options=options))
        lost = "/background_options" in client.headers.get("dragoman-loss", "")
        assert lost == (options not in ({}, {"completion_window": "soonest"}))
    async with gateway(**ON, loss_policy="refuse") as up:
        client = await up.call(PATH, request(upstream, stream=False, background_options=options))
        assert client.status == (400 if lost else 200)
        assert (b'"lossy_translation"' in client.body) == lost


async def test_nothing_follows_an_end_that_is_stored_at_the_second_attempt(store: CountedStore) -> None:
    now = int(time.time())
    body = {"id": "resp_1", "status": "in_progress", "output": [], "previous_response_id": None}
    opened = StoredResponse("resp_1", "", now, b"{}", (), (), now + 10.0)
    await store.open(opened)
    writer = STORED_EVENTS({}, 0)
    made = background.BackgroundResponse(store, opened, body, writer, streams=True, limit_s=60, holder=None)
    end = {"type": "response.completed", "response": {**body, "status": "completed"}}

    async def serve() -> None:
        await made.write(b"data: %b\n\n" % json.dumps(end).encode())
        await anyio.sleep(0.1)
        assert store.closes == 1
        await made.end(b"data: {}\n\n")
        await anyio.sleep(1)

    await made.run(serve)
    page = await store.read_events(opened.key, -1, now)
    assert [event["type"] for event in frames(page.events.data)] == ["response.completed"]
    assert store.closes == 2


async def test_only_so_many_are_made_at_once() -> None:
    async with gateway(**ON, max_background_responses=2) as up:
        ids = [(await begin(up))["id"] for _ in range(2)]
        client = await up.call(PATH, request("chat"))
        assert (client.status, client.headers["retry-after"]) == (429, "5")
        for id in ids:
            await ended(up, id)
        await begin(up)


SECRET = Secret("a-secret-of-some-length-0123456789")


@one_backend
async def test_another_key_can_neither_follow_nor_cancel_it() -> None:
    keys = tuple(
        ClientKey(name=name, hash=hash_client_key(f"drk_{name}", SECRET)) for name in ("red", "blue")
    )
    async with gateway(keys=keys, secret=SECRET, **ON) as up:
        red, blue = ({"authorization": f"Bearer drk_{name}"} for name in ("red", "blue"))
        begun = await up.call(PATH, request("chat", stream=False), headers=red)
        path = f"{PATH}/{json.loads(begun.body)['id']}"
        for method, below in (("GET", ""), ("GET", "?stream=true"), ("POST", "/cancel"), ("DELETE", "")):
            assert (await up.call(path + below, {}, method, blue)).status == 404
        assert json.loads((await up.call(path, None, "GET", red)).body)["status"] == "in_progress"


@pytest.mark.parametrize("leaves_after", [1.2, 100])
async def test_the_limits_of_its_key_count_it_once(
    leaves_after: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When it has ended: the client that begins it, and those that follow it, are not counted."""
    settled: list[int | None] = []

    async def settle(self: Any, key: ClientKey, usage: Usage, *more: Any) -> None:
        settled.append(usage.output)

    monkeypatch.setattr(ClientLimits, "settle", settle)
    key = ClientKey(name="red", hash=hash_client_key("drk_red", SECRET), tokens_per_minute=1000)
    async with gateway(keys=(key,), secret=SECRET, **ON) as up:
        red = {"authorization": "Bearer drk_red"}
        client = FakeClient(json.dumps(request("chat")).encode(), leaves_after=leaves_after)
        await up.call(PATH, headers=red, client=client)
        assert settled == ([] if leaves_after < 3 else [6])
        id = frames(client.body)[0]["response"]["id"]
        await up.call(f"{PATH}/{id}?stream=true", method="GET", headers=red)
        await up.app.drained()
        assert settled == [6]


# Following.


class CountedStore(MemoryResponseStore):
    """Counts reads of events. Fails while `failing`, and the first time that a log is closed; the write of event
    `hangs_at` takes for ever.
    """

    reads = closes = 0
    failing = False
    hangs_at = -1

    async def read_events(self, key: ResponseKey, after: int, now: int) -> EventPage | None:
        self.reads += 1
        self._check()
        return await super().read_events(key, after, now)

    async def append(self, key: ResponseKey, events: ResponseEvents, now: int) -> bool:
        self._check()
        if events.first == self.hangs_at:
            await anyio.sleep_forever()
        return await super().append(key, events, now)

    async def close(self, *arguments: Any) -> bool:
        self.closes += 1
        if self.closes == 1:
            raise ResponseStoreError("the disk is slow")
        return await super().close(*arguments)

    async def open_logs(self, *arguments: Any) -> Any:
        self._check()
        return await super().open_logs(*arguments)

    def _check(self) -> None:
        if self.failing:
            raise ResponseStoreError("the disk is gone")


@asynccontextmanager
async def with_store(
    store: MemoryResponseStore, scripts: dict[str, Script] | None = None
) -> AsyncIterator[Gateway]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dragoman_server.gateway._response_store", lambda server: store)
        async with gateway(scripts, **ON) as up:
            yield up


@pytest.fixture
def store() -> CountedStore:
    return CountedStore(base.ResponseStoreLimits(10_000_000, 3600))


@pytest.mark.no_cover
async def test_many_follow_one_response(store: CountedStore) -> None:
    """They share what is read, and one that reads nothing holds up neither the others nor the response."""
    async with with_store(store) as up, anyio.create_task_group() as tasks:
        id = (await begin_stream(up, leaves_after=0.1))[0]["response"]["id"]
        followers = [FakeClient() for _ in range(1000)]
        for client in (FakeClient(pace=1e6), *followers):
            tasks.start_soon(follow, up, id, None, client)
        await ended(up, id)
        await anyio.sleep(1)
        whole = (await follow(up, id)).body
        assert all(client.body == whole and client.finished for client in followers)
        assert store.reads < 1200  # the first of each, and then one for all
        tasks.cancel_scope.cancel()


async def test_a_log_that_nobody_follows_is_not_read(store: CountedStore) -> None:
    async with with_store(store) as up:
        await begin_stream(up, leaves_after=0.5)
        await anyio.sleep(0.2)
        reads = store.reads
        await anyio.sleep(1)
        assert store.reads == reads


async def test_a_long_log_is_followed_page_by_page(monkeypatch: pytest.MonkeyPatch) -> None:
    async with gateway(**ON) as up:
        response = await create_response(up, "chat", WORDS, stream=True, background=True)
        whole = (await follow(up, response["id"])).body
        monkeypatch.setattr(base, "PAGE_BYTES", 300)
        assert (await follow(up, response["id"])).body == whole
        id = (await begin_stream(up, leaves_after=0.1))[0]["response"]["id"]
        events = frames((await follow(up, id)).body)
        assert [event["sequence_number"] for event in events] == list(range(len(frames(whole))))


async def test_silence_has_heartbeats() -> None:
    async with gateway({"/chat/completions": Script([Sleep(60)])}, **ON, keepalive_s=10.0) as up:
        body = json.dumps(request("chat", "m")).encode()
        client = await up.call(PATH, client=FakeClient(body, leaves_after=35))
        assert client.body.count(b": keepalive\n\n") == 3


async def test_what_is_no_longer_kept_is_an_error(
    monkeypatch: pytest.MonkeyPatch, store: CountedStore
) -> None:
    """Of a long response the latest events are kept."""
    monkeypatch.setattr(memory, "MAX_LOG_BYTES", 3000)
    async with with_store(store) as up, anyio.create_task_group() as tasks:
        slow = FakeClient(json.dumps(request("chat")).encode(), pace=20)
        tasks.start_soon(lambda: up.call(PATH, client=slow))
        await anyio.sleep(5)
        response = next(iter(store._responses.values()))
        refusal = await follow(up, response.id)
        assert (refusal.status, refusal.error["param"]) == (400, "starting_after")
        first = int(refusal.error["message"].split()[4])
        events = frames((await follow(up, response.id, first)).body)
        assert (events[0]["sequence_number"], events[-1]["type"]) == (first + 1, "response.completed")
        await anyio.sleep(200)
        last = frames(slow.body)[-1]
        assert (last["type"], last["param"]) == ("error", "starting_after")


async def test_events_are_kept_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    async with gateway(**ON) as up:
        response = await create_response(up, "chat", "one", stream=True, background=True)
        assert (await follow(up, response["id"])).status == 200
        now = time.time()
        monkeypatch.setattr(time, "time", lambda: now + base.LOG_KEPT_S + 2)
        assert (await follow(up, response["id"])).status == 400
        assert await up.get(f"{PATH}/{response['id']}") == response


@pytest.mark.parametrize("stream", [False, True])
async def test_a_response_that_is_too_large_for_the_store_has_failed(stream: bool) -> None:
    text = "x" * 20_000
    choices = [{"index": 0, "delta": {"content": text}, "finish_reason": "stop"}]
    delta = json.dumps({"id": "1", "choices": choices})
    message = {"role": "assistant", "content": text}
    whole = json.dumps({"id": "1", "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]})
    script = Script([f"data: {delta}\n\ndata: [DONE]\n\n".encode() if stream else whole.encode()])
    scripts = {"/chat/completions": script}
    async with with_store(CountedStore(base.ResponseStoreLimits(10_000, 3600)), scripts) as up:
        client = await up.call(PATH, request("chat", "m", stream=stream))
        id = (frames(client.body)[0]["response"] if stream else json.loads(client.body))["id"]
        found = await ended(up, id)
        assert "too large" in found["error"]["message"]
        if stream:
            events = frames(client.body)
            assert (events[-1]["type"], events[-1]["response"]) == ("response.failed", found)
            assert [event["sequence_number"] for event in events] == list(range(len(events)))
    async with with_store(CountedStore(base.ResponseStoreLimits(100, 3600))) as up:
        assert (await up.call(PATH, request("chat"))).status == 413
        assert up.upstreams.sent == []


# A store that does not work, and gateways that have died.


async def test_a_store_that_fails_for_a_while_loses_nothing(
    store: CountedStore, caplog: pytest.LogCaptureFixture
) -> None:
    async with with_store(store) as up:
        id = (await begin_stream(up))[0]["response"]["id"]
        store.failing = True
        await anyio.sleep(8)
        store.failing = False
        await anyio.sleep(1)
        events = frames((await follow(up, id)).body)
        assert [event["sequence_number"] for event in events] == list(range(len(events)))
        assert "".join(event.get("delta", "") for event in events) == WORDS
        assert caplog.text.count("is not stored, and tried again: the disk is gone") == 1


async def test_a_store_that_does_not_work_ends_what_is_made(
    store: CountedStore, records: list[RequestRecord]
) -> None:
    """Other gateways then count this one as dead."""
    async with with_store(store) as up:
        await begin(up, model="pause@600")
        store.failing = True
        await anyio.sleep(background.LEASE_S + 1)
        assert [record.outcome for record in records] == ["cancelled"]
        assert up.upstreams.open_now == 0


async def test_a_slow_store_pauses_the_upstream(store: CountedStore) -> None:
    piece = b'data: {"id":"1","choices":[{"index":0,"delta":{"content":"%s"}}]}\n\n' % (b"x" * 60_000)
    async with with_store(store, {"/chat/completions": Script([piece] * 100)}) as up:
        store.hangs_at = 1
        await up.call(PATH, client=FakeClient(json.dumps(request("chat", "m")).encode(), leaves_after=10))
        assert 5 < up.last.fake.reads < 30


async def test_no_event_is_lost_if_the_end_comes_before_a_thread_is_free(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def late(size: int, function: Any, *arguments: Any, abandon: bool = True) -> Any:
        await anyio.sleep(0.9)
        return function(*arguments)

    monkeypatch.setattr(background, "off_loop", late)
    async with gateway(**ON) as up:
        id = (await begin_stream(up))[0]["response"]["id"]
        await ended(up, id)
        events = frames((await follow(up, id)).body)
    assert "".join(event.get("delta", "") for event in events) == WORDS


async def test_the_response_of_a_gateway_that_has_died_has_failed(store: CountedStore) -> None:
    async with with_store(store) as up:
        stream = await create_response(up, "chat", "one", stream=True, background=True)
        now = int(time.time())
        for id, seconds in (("resp_dead", -1), ("resp_alive", 1000)):
            body = json.dumps({**stream, "id": id, "status": "in_progress", "output": []}).encode()
            assert await store.open(StoredResponse(id, "", now, body, (), (), float(now + seconds)))
            begun = ResponseEvents(0, 1, STORED_EVENTS({}, 0).begin({"id": id}))
            assert await store.append(("", id), begun, now)
        assert (await up.get(f"{PATH}/resp_alive"))["status"] == "in_progress"
        with anyio.move_on_after(10):  # whoever follows it when the gateway dies gets the end
            events = frames((await follow(up, "resp_dead")).body)
        found = await up.get(f"{PATH}/resp_dead")
        assert (found["status"], found["error"]["code"]) == ("failed", "server_error")
        assert [event["type"] for event in events] == ["response.created", "response.failed"]
        assert events[-1]["response"] == found
        error = await refused(up, 400, {}, f"{PATH}/resp_dead/cancel")
        assert error["message"] == "Cannot cancel a failed response."


async def test_who_has_renewed_its_lease_meanwhile_is_alive(store: CountedStore) -> None:
    now = int(time.time())
    await store.open(StoredResponse("resp_1", "", now, b"{}", (), (), now - 1.0))
    found = await store.get("", "resp_1", now)
    await store.open_logs([found.key], now + 10.0)
    assert not await StoredResponseService(store, STORED_EVENTS).end(found, {}, now, lease=found.lease)
    assert await store.open_logs([found.key])


async def test_it_can_be_cancelled_while_events_come(monkeypatch: pytest.MonkeyPatch) -> None:
    now = int(time.time())
    store = MemoryResponseStore(base.ResponseStoreLimits(10_000, 3600))
    opened = StoredResponse("resp_1", "", now, b"{}", (), (), now + 10.0)
    await store.open(opened)
    await store.append(opened.key, ResponseEvents(0, 1, b"data: 0\n\n"), now)
    close = store.close
    coming = [ResponseEvents(1, 1, b"data: 1\n\n"), ResponseEvents(2, 1, b"data: 2\n\n")]

    async def close_later(*arguments: Any) -> bool:
        if coming:
            await store.append(opened.key, coming.pop(0), now)
        return await close(*arguments)

    monkeypatch.setattr(store, "close", close_later)
    assert await StoredResponseService(store, STORED_EVENTS).end(opened, {"status": "cancelled"}, now)
    [last] = frames((await store.read_events(opened.key, 2, now)).events.data)
    assert (last["sequence_number"], last["type"]) == (3, "response.failed")


async def test_the_response_of_a_gateway_that_lives_has_not(monkeypatch: pytest.MonkeyPatch) -> None:
    now, asleep_s = time.time(), 0.0
    monkeypatch.setattr(time, "time", lambda: now + anyio.current_time() + asleep_s)
    async with gateway(**ON) as up:
        stream = await begin_stream(up, model="pause@100")
        id = stream[0]["response"]["id"]
        await anyio.sleep(4 * background.LEASE_S)
        assert (await up.get(f"{PATH}/{id}"))["status"] == "in_progress"
        asleep_s = 3600.0  # as of a laptop, whose clock jumps when it wakes
        assert (await up.get(f"{PATH}/{id}"))["status"] == "in_progress"
        assert frames((await follow(up, id)).body)[-1]["type"] == "response.completed"
        assert (await ended(up, id))["status"] == "completed"


# Two gateways with one file.


@pytest.mark.backends(*REAL_BACKENDS)
async def test_any_gateway_with_the_store_serves_the_rest(
    tmp_path: Path, records: list[RequestRecord]
) -> None:
    shared = {"response_store": "sqlite", "response_store_path": str(tmp_path / "responses.db")}
    async with gateway(**shared) as one, gateway(**shared) as two:
        seen = await begin_stream(one, model="echo@20", leaves_after=math.inf, leaves_at=b"output_text.delta")
        id, last = seen[0]["response"]["id"], seen[-1]["sequence_number"]
        events = [*seen, *frames((await follow(two, id, last)).body)]
        assert [event["sequence_number"] for event in events] == list(range(len(events)))
        assert events[-1]["response"] == await two.get(f"{PATH}/{id}")
        assert two.upstreams.sent == []

        took = []
        for _ in range(5):  # the shortest is what the gateways take, and not what else runs on the machine
            response = await begin(one, model="pause@60")
            await anyio.sleep(0.1)
            began = time.monotonic()
            assert (await two.json(f"{PATH}/{response['id']}/cancel", {}))["status"] == "cancelled"
            with anyio.fail_after(10):
                await one.app.drained()
            took.append(time.monotonic() - began)
            assert one.upstreams.open_now == 0
        assert min(took) < 0.25
        assert [record.outcome for record in records] == ["completed", *["cancelled"] * 5]


@pytest.mark.backends(*REAL_BACKENDS)
async def test_large_requests_that_come_at_once_are_not_more_than_may_be_made() -> None:
    """They are planned in threads, while others come."""
    statuses = []
    async with gateway(**ON, max_background_responses=1) as up:

        async def call() -> None:
            body = request("chat", "pause@60", stream=False) | {"input": "word " * 100_000}
            statuses.append((await up.call(PATH, body)).status)

        async with anyio.create_task_group() as tasks:
            for _ in range(4):
                tasks.start_soon(call)
    assert sorted(statuses) == [200, 429, 429, 429]
