"""Which responses are stored, when, for whom, and what happens if they cannot be."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from gateway.fakes import FakeClient, Script, Sleep, http_scope
from gateway.simulated import Gateway, frames, gateway
from gateway.stored import (
    ON,
    PATH,
    STATELESS,
    create_response,
    each_mode,
    each_stateless,
    refused,
    text_of,
)

from dragoman import PROTOCOLS
from dragoman_server.app import create_app
from dragoman_server.proxying import client_stream
from dragoman_server.proxying.request_handler import STORE_TIMEOUT_S
from dragoman_server.responses import service as stored_responses
from dragoman_server.responses.stores.base import ResponseStoreError, StoredResponse
from dragoman_server.responses.stores.memory import MemoryResponseStore
from dragoman_server.settings import ClientKey, Settings
from dragoman_server.settings.client_keys import hash_client_key
from dragoman_server.settings.secret import Secret
from dragoman_server.streams.byte_stream import NOW
from dragoman_server.upstream.errors import UpstreamBroken, UpstreamUnreachable

pytestmark = pytest.mark.anyio


@pytest.fixture
def stored(monkeypatch: pytest.MonkeyPatch) -> list[StoredResponse]:
    """All that was put into stores."""
    found: list[StoredResponse] = []
    put = MemoryResponseStore.put

    async def noting(self: MemoryResponseStore, response: StoredResponse) -> bool:
        found.append(response)
        return await put(self, response)

    monkeypatch.setattr(MemoryResponseStore, "put", noting)
    return found


@pytest.fixture(params=["asyncio", "trio"])
def real_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


# Stored responses.

RESPONSE: dict[str, Any] = {"id": "resp_r", "object": "response", "model": "m", "output": []}

# The end of an upstream's URL, and the beginning of its response.
BEGUN: dict[str, tuple[str, bytes]] = {
    "chat": (
        "/chat/completions",
        b'data: {"id":"1","model":"m","choices":[{"index":0,"delta":{"content":"Hello"}}]}\n\n',
    ),
    "messages": (
        "/messages",
        b'event: message_start\ndata: {"type":"message_start","message":{"id":"1","model":"m"}}\n\n'
        b'event: content_block_start\ndata: {"type":"content_block_start","index":0,'
        b'"content_block":{"type":"text","text":""}}\n\n'
        b'event: content_block_delta\ndata: {"type":"content_block_delta","index":0,'
        b'"delta":{"type":"text_delta","text":"Hello"}}\n\n',
    ),
    "stateless": (
        "/responses",
        b'event: response.created\ndata: {"type":"response.created","sequence_number":0,"response":'
        b'{"id":"resp_r","object":"response","model":"m","status":"in_progress","output":[]}}\n\n'
        b'event: response.output_item.added\ndata: {"type":"response.output_item.added","sequence_number":1,'
        b'"output_index":0,"item":{"type":"message","id":"msg_r","role":"assistant","content":[]}}\n\n'
        b'event: response.output_text.delta\ndata: {"type":"response.output_text.delta","sequence_number":2,'
        b'"item_id":"msg_r","output_index":0,"content_index":0,"delta":"Hello"}\n\n',
    ),
}

END_OF_CHAT = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'


async def refuses_to_go_on_from(up: Gateway, response: dict[str, Any]) -> None:
    body = {"model": "chat/echo", "input": "x", "previous_response_id": response["id"]}
    error = await refused(up, 400, body)
    assert (error["code"], error["param"]) == ("previous_response_not_found", "previous_response_id")
    assert f"its status is {response['status']}" in error["message"]


@pytest.mark.parametrize(
    ("stored", "text", "sent"),
    [
        (False, b" world", ["failed"]),
        (True, b" world", []),
        (False, b" world" * 1000, []),
    ],
    ids=["open", "not yet stored", "large"],
)
async def test_a_stop_sends_no_end_that_is_not_stored_or_holds_the_loop(
    stored: bool, text: bytes, sent: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def hangs(self: MemoryResponseStore, response: StoredResponse) -> bool:
        await anyio.sleep_forever()
        return True

    received = bytearray()
    monkeypatch.setattr(MemoryResponseStore, "put", hangs)
    # So that nothing needs a thread, for which no virtual time waits.
    monkeypatch.setattr(client_stream, "INLINE_BYTES", 200)
    script = [BEGUN["chat"][1], Sleep(0.1), BEGUN["chat"][1].replace(b"Hello", text), Sleep(0.1)]
    request = {"model": "chat/m", "input": "x", "stream": True, "store": stored}
    client = FakeClient(json.dumps(request).encode())
    extensions = {NOW: {"write": lambda data: received.extend(data) is None}}
    async with gateway(
        {"/chat/completions": Script([*script, END_OF_CHAT if stored else Sleep(60)])}, **ON
    ) as up:
        with anyio.move_on_after(1):
            await up.app(http_scope(PATH, extensions=extensions), client.receive, client.send)
    ends = ("completed", "failed", "incomplete")
    assert [each for each in ends if f"event: response.{each}\n".encode() in client.body + received] == sent


@each_stateless
async def test_a_failed_response_is_stored_as_failed(up: Gateway, upstream: str) -> None:
    client = await up.call(PATH, {"model": f"{upstream}/error-mid", "input": "one", "stream": True})
    last = frames(client.body)[-1]
    assert last["type"] == "response.failed"
    reported = last["response"]
    found = await up.get(f"{PATH}/{reported['id']}")
    assert (found["status"], found["error"]) == ("failed", reported["error"])
    # Items that had begun are there as well.
    assert found["output"] == reported["output"]
    assert [item["status"] for item in found["output"]] == ["incomplete"]
    (item,) = (await up.get(f"{PATH}/{reported['id']}/input_items"))["data"]
    assert item["content"][0]["text"] == "one"
    await refuses_to_go_on_from(up, found)


@each_stateless
async def test_a_response_that_breaks_off_is_stored_as_failed(upstream: str) -> None:
    end, begun = BEGUN[upstream]
    async with gateway({end: Script([begun, Sleep(1), UpstreamBroken("cut")])}, **ON) as up:
        client = await up.call(PATH, {"model": f"{upstream}/m", "input": "one", "stream": True})
        reported = frames(client.body)[-1]["response"]
        assert reported["status"] == "failed"
        found = await up.get(f"{PATH}/{reported['id']}")
        assert (found["status"], found["error"]) == ("failed", reported["error"])


async def test_a_response_without_content_is_stored_if_the_client_has_its_id() -> None:
    """Silence causes heartbeats, and after them an error can only be sent in the stream."""
    failures = {
        "unreachable": Script(connect=[Sleep(5), UpstreamUnreachable("no way")]),
        "refused": Script([b'{"error":{"message":"slow down"}}'], status=429, connect=[Sleep(5)]),
    }
    for script in failures.values():
        async with gateway({"/chat/completions": script}, **ON, keepalive_s=1.0) as up:
            client = await up.call(PATH, {"model": "chat/m", "input": "one", "stream": True})
            reported = frames(client.body)[-1]["response"]
            assert (reported["status"], reported["output"]) == ("failed", [])
            assert (await up.get(f"{PATH}/{reported['id']}"))["error"] == reported["error"]


@each_mode
async def test_a_refused_request_is_not_stored(stream: bool, stored: list[StoredResponse]) -> None:
    """A plain error has no id to request."""
    cut = b'data: {"id":"1","choices":[]}\n\ndata: {"err'
    for script in (Script([b"{}"], status=429), Script(connect=[UpstreamUnreachable("no")]), Script([cut])):
        async with gateway({"/chat/completions": script}, **ON) as up:
            client = await up.call(PATH, {"model": "chat/m", "input": "one", "stream": stream})
            assert client.status >= 400
    assert stored == []


FAILED = {**RESPONSE, "error": {"code": "server_error", "message": "oops"}}


@pytest.mark.parametrize("status", ["failed", "cancelled"])
async def test_a_relayed_response_is_stored_as_the_upstream_sent_it(status: str) -> None:
    reply = {**FAILED, "status": status}
    event = {"type": f"response.{status}", "sequence_number": 3, "response": reply}
    end = f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()
    async with gateway({"/responses": Script([BEGUN["stateless"][1], end])}, **ON) as up:
        await up.call(PATH, {"model": "stateless/m", "input": "one", "stream": True})
        found = await up.get(f"{PATH}/{reply['id']}")
        assert found == {**reply, "store": True, "previous_response_id": None}
        await refuses_to_go_on_from(up, found)


@pytest.mark.parametrize("status", ["failed", "cancelled"])
@each_mode
async def test_a_failure_before_content_is_a_plain_error(
    stream: bool, status: str, stored: list[StoredResponse]
) -> None:
    """So another account could be tried; and it has no id to request."""
    reply = {**FAILED, "status": status}
    event = {"type": f"response.{status}", "sequence_number": 0, "response": reply}
    data = f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" if stream else json.dumps(reply)
    async with gateway({"/responses": Script([data.encode()])}, **ON) as up:
        client = await up.call(PATH, {"model": "stateless/m", "input": "one", "stream": stream})
        assert client.status >= 400
        message = "oops" if stream or status == "failed" else "the response was cancelled at the upstream"
        assert client.error["message"] == message
    assert stored == []


@each_stateless
async def test_the_response_to_a_client_that_leaves_is_stored_as_cancelled(upstream: str) -> None:
    end, begun = BEGUN[upstream]
    async with gateway({end: Script([begun, Sleep(60)])}, **ON) as up:
        body = {"model": f"{upstream}/m", "input": "one", "stream": True}
        client = await up.call(PATH, client=FakeClient(json.dumps(body).encode(), leaves_after=5))
        assert not client.finished
        id = frames(client.body)[0]["response"]["id"]
        found = await up.get(f"{PATH}/{id}")
        assert (found["status"], found["error"]) == ("cancelled", None)
        await refuses_to_go_on_from(up, found)


async def test_nothing_is_stored_for_a_client_that_leaves_before_its_response(
    stored: list[StoredResponse],
) -> None:
    async with gateway({"/chat/completions": Script(connect=[Sleep(60)])}, **ON) as up:
        body = {"model": "chat/m", "input": "one", "stream": True}
        client = await up.call(PATH, client=FakeClient(json.dumps(body).encode(), leaves_after=5))
        assert client.messages == []
    assert stored == []


# The time of storing.


async def test_it_is_stored_before_the_client_gets_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The next request of the client may arrive while the store still writes."""
    order: list[str] = []
    put = MemoryResponseStore.put

    async def slow(self: MemoryResponseStore, response: StoredResponse) -> bool:
        await anyio.sleep(5)
        order.append("kept")
        return await put(self, response)

    class Watching(FakeClient):
        async def send(self, message: Any) -> None:
            if b"response.completed" in message.get("body", b""):
                order.append("told")
            await super().send(message)

    monkeypatch.setattr(MemoryResponseStore, "put", slow)
    async with gateway(**ON, keepalive_s=1.0) as up:
        for upstream in STATELESS:
            order.clear()
            body = {"model": f"{upstream}/echo", "input": "one", "stream": True}
            await up.call(PATH, client=Watching(json.dumps(body).encode()))
            assert order == ["kept", "told"], upstream


async def test_a_relayed_response_is_stored_though_the_connection_stays_open() -> None:
    """The last event comes long before the end of the body, and the client goes on at once."""
    reply = {"id": "resp_slow", "object": "response", "status": "completed", "model": "m", "output": []}
    events = [
        {"type": "response.created", "sequence_number": 0, "response": {**reply, "status": "in_progress"}},
        {"type": "response.output_text.delta", "sequence_number": 1, "delta": "x"},
        {"type": "response.completed", "sequence_number": 2, "response": reply},
    ]
    steps = [f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode() for event in events]
    found: list[int | None] = []
    async with gateway({"/responses": Script([*steps, Sleep(60)])}, **ON) as up:

        class GoingOn(FakeClient):
            async def send(self, message: Any) -> None:
                if b"response.completed" in message.get("body", b""):
                    found.append((await up.call(f"{PATH}/resp_slow", method="GET")).status)
                await super().send(message)

        body = {"model": "stateless/m", "input": "one", "stream": True}
        client = await up.call(PATH, client=GoingOn(json.dumps(body).encode()))
        assert client.body == b"".join(steps)
        assert found == [200]


@pytest.mark.parametrize(
    ("takes_s", "ends_at", "statuses"), [(3, 2 + 3, ["completed"]), (3600, 2 + STORE_TIMEOUT_S, [])]
)
async def test_a_client_that_leaves_while_the_response_is_stored(
    takes_s: float, ends_at: float, statuses: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The response is complete, though its end was not sent. There is a deadline for storing it."""
    stored: list[StoredResponse] = []

    async def slow(self: MemoryResponseStore, response: StoredResponse) -> bool:
        await anyio.sleep(takes_s)
        stored.append(response)
        return True

    monkeypatch.setattr(MemoryResponseStore, "put", slow)
    end, begun = BEGUN["chat"]
    async with gateway({end: Script([begun, END_OF_CHAT])}, **ON) as up:
        body = json.dumps({"model": "chat/m", "input": "one", "stream": True}).encode()
        client = await up.call(PATH, client=FakeClient(body, leaves_after=2))
        assert not client.finished
    assert [json.loads(response.body)["status"] for response in stored] == statuses
    assert anyio.current_time() == pytest.approx(ends_at)


# Owners.

SECRET = Secret("a-secret-of-some-length-0123456789")
RED, BLUE = ({"authorization": f"Bearer drk_{name * 32}"} for name in ("a", "b"))
KEYS = tuple(
    ClientKey(name=name, hash=hash_client_key(headers["authorization"].removeprefix("Bearer "), SECRET))
    for name, headers in (("red", RED), ("blue", BLUE))
)

BELOW = {
    "had": ("GET", ""),
    "listed": ("GET", "/input_items"),
    "cancelled": ("POST", "/cancel"),
    "forgotten": ("DELETE", ""),
}


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_responses_of_another_key_are_not_found(kind: str, real_backend: str, tmp_path: Path) -> None:
    server: dict[str, Any] = {"response_store": kind, "secret": SECRET}
    if kind == "sqlite":
        server["response_store_path"] = str(tmp_path / "responses.db")

    async def run() -> None:
        async with gateway(**server, keys=KEYS) as up:
            body = {"model": "chat/echo", "input": "one two"}
            first = json.loads((await up.call(PATH, body, headers=RED)).body)
            for method, path in BELOW.values():
                client = await up.call(f"{PATH}/{first['id']}{path}", {}, method, BLUE)
                assert client.status == 404, (method, path)
                message = client.error["message"]
                assert message == f"Response with id '{first['id']}' not found."
            going_on = {**body, "previous_response_id": first["id"]}
            reference = {"type": "item_reference", "id": first["output"][0]["id"]}
            referring = {**body, "input": [reference]}
            sent = len(up.upstreams.sent)
            for path in ("", "/compact", "/input_tokens"):
                client = await up.call(PATH + path, going_on, headers=BLUE)
                assert (client.status, client.error["code"]) == (400, "previous_response_not_found")
                assert (await up.call(PATH + path, referring, headers=BLUE)).status == 404
            assert len(up.upstreams.sent) == sent
            for mine in (going_on, referring):
                client = await up.call(PATH, mine, headers=RED)
                assert client.status == 200, client.body
            for method, path in BELOW.values():
                client = await up.call(f"{PATH}/{first['id']}{path}", {}, method, RED)
                assert client.status == (400 if path == "/cancel" else 200)

    anyio.run(run, backend=real_backend)


# Trouble with the store.


@pytest.fixture
def errors(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    return lambda: [each.message for each in caplog.records if each.name == stored_responses.ERRORS.name]


async def broken(self: Any, *arguments: Any) -> Any:
    raise ResponseStoreError("the disk is full")


@pytest.mark.promise("R11")
@each_mode
async def test_a_response_that_cannot_be_stored_is_sent_all_the_same(
    stream: bool, monkeypatch: pytest.MonkeyPatch, errors: Callable[[], list[str]], record: Any
) -> None:
    """That is reported in the response if it is not sent yet; of a stream in the ledger, which the log has."""
    monkeypatch.setattr(MemoryResponseStore, "put", broken)
    async with gateway(**ON) as up:
        client = await up.call(PATH, {"model": "chat/echo", "input": "one", "stream": stream})
    response = frames(client.body)[-1]["response"] if stream else json.loads(client.body)
    assert text_of(response) == "one"
    assert errors() == [f"response {response['id']} was not stored: the disk is full"]
    if not stream:
        assert response["store"] is False
        assert "dropped=answer:/store" in client.headers["dragoman-loss"]
    assert "dropped answer:/store" in record()["losses"]


async def test_a_response_that_is_too_large_to_be_stored_is_logged(errors: Callable[[], list[str]]) -> None:
    async with gateway(**ON, response_store_max_bytes=1) as up:
        first = await create_response(up, "chat", "one")
        assert errors() == [f"response {first['id']} is too large for the response store"]


async def test_a_store_that_cannot_be_read_is_503(
    up: Gateway, monkeypatch: pytest.MonkeyPatch, errors: Callable[[], list[str]]
) -> None:
    for name in ("get", "items", "delete"):
        monkeypatch.setattr(MemoryResponseStore, name, broken)
    body: dict[str, Any] = {"model": "chat/echo", "input": "x"}
    error = await refused(up, 503, {**body, "previous_response_id": "resp_1"})
    assert "try again later" in error["message"]
    assert "disk" not in error["message"]
    await refused(up, 503, {**body, "input": [{"type": "item_reference", "id": "msg_1"}]})
    await up.get(f"{PATH}/resp_1", 503)
    await up.json(f"{PATH}/resp_1", method="DELETE", status=503)
    assert errors() == ["the disk is full"] * 4


# Files, with real time: a thread is at work.


def test_a_file_that_cannot_be_used_stops_the_start(real_backend: str, tmp_path: Path) -> None:
    async def run() -> None:
        async with gateway(response_store="sqlite", response_store_path=str(tmp_path / "no" / "x.db")):
            pass

    with pytest.raises(ResponseStoreError, match="No such file"):
        anyio.run(run, backend=real_backend)


async def test_a_gateway_without_the_protocol_has_none_of_its_paths() -> None:
    app = create_app(Settings(), protocols={"openai_chat": PROTOCOLS["openai_chat"]})
    client = FakeClient()
    await app(http_scope(f"{PATH}/resp_1", "GET"), client.receive, client.send)
    assert client.status == 404
    assert "there is nothing at this path" in client.error["message"]


async def test_a_store_without_its_file_is_an_error() -> None:
    with pytest.raises(ValueError, match="response_store_path is needed"):
        async with gateway(response_store="sqlite"):
            pass


@each_mode
async def test_a_response_with_store_false_is_not_stored(up: Gateway, stream: bool) -> None:
    first = await create_response(up, "chat", "one", stream=stream, store=False)
    await refused(up, 400, {"model": "chat/echo", "input": "x", "previous_response_id": first["id"]})
    await up.get(f"{PATH}/{first['id']}", 404)
