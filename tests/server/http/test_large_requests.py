"""What is handled in a thread: requests, whose clients may leave and get the usual errors, and events of responses."""

import json
import threading
from typing import Any

import anyio
import pytest
from gateway.fakes import FakeClient, Script
from gateway.scripted import CHAT, MESSAGES, PROTOCOL_NAMES, chunk, scripted, stream
from gateway.simulated import gateway
from laws.clients import path_of
from virtual_time import REAL_BACKENDS

import dragoman
from dragoman import ResponseTranslator
from dragoman_server.http import endpoint
from dragoman_server.platform.off_loop import INLINE_BYTES

# A thread knows nothing of virtual time.
pytestmark = [pytest.mark.anyio, pytest.mark.backends(*REAL_BACKENDS)]

ALL_PATHS = [
    *(path_of(name, "sim/echo", stream=False) for name in PROTOCOL_NAMES),
    "/v1/messages/count_tokens",
]
TEXT = "x" * INLINE_BYTES


def body(**more: Any) -> bytes:
    messages = [{"role": "user", "content": TEXT}]
    each = {"messages": messages, "input": messages, "contents": [{"parts": [{"text": TEXT}]}]}
    return json.dumps({"model": "sim/echo", "max_tokens": 9, **each, **more}).encode()


@pytest.mark.parametrize("path", ALL_PATHS)
async def test_it_gets_its_response_or_its_error(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    threads = []

    def peek(data: bytes, model_in_path: str) -> Any:
        threads.append(threading.current_thread())
        return dragoman.peek(data, model_in_path)

    monkeypatch.setattr(endpoint, "peek", peek)
    async with gateway() as up:
        assert (await up.call(path, body())).status == 200
        assert (await up.call(path, body(tools=1))).status == 400
        assert (await up.call(path, body() + b"]")).status == 400
    assert threading.current_thread() not in threads
    assert len(threads) == 3


@pytest.mark.parametrize("path", ALL_PATHS)
async def test_a_client_that_leaves_does_not_wait_for_it(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    began, may_end = threading.Event(), threading.Event()

    def peek(data: bytes, model_in_path: str) -> Any:
        began.set()
        assert may_end.wait(60)
        raise AssertionError

    class Leaving(FakeClient):
        async def receive(self) -> Any:
            if self._body:
                return await super().receive()
            while not began.is_set():
                await anyio.lowlevel.checkpoint()
            return {"type": "http.disconnect"}

    monkeypatch.setattr(endpoint, "peek", peek)
    try:
        async with gateway() as up:
            client = Leaving(body())
            with anyio.fail_after(60):
                await up.call(path, client=client)
            assert client.messages == []
    finally:
        may_end.set()


@pytest.mark.parametrize("reads", [1, 5])
async def test_a_large_event_is_translated_in_a_thread_however_it_is_cut(
    reads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, large, end = stream(chunk({"content": "Hi"}), chunk({"content": TEXT}), chunk({}, "stop")).body
    assert isinstance(large, bytes)
    size = len(large) // reads
    parts = [large[at : at + size] for at in range(0, len(large), size)]
    inline = list[bool]()

    def receive_data(machine: ResponseTranslator, data: bytes) -> None:
        inline.append(threading.current_thread() is threading.main_thread())
        receive(machine, data)

    receive = ResponseTranslator.receive_data
    monkeypatch.setattr(ResponseTranslator, "receive_data", receive_data)
    gateway = scripted(CHAT, Script([first, *parts, end]))
    assert (await gateway.request(MESSAGES, streams=True)).body.count(TEXT.encode()) == 1
    found = (inline[0], inline[-2], inline[-1])
    assert found == (True, False, True), "the end of the event is not handled on the loop"
