"""An open stream does not hold its request: a prompt may have megabytes, and the stream stay open for hours.
And what it holds is bounded: `make memory` measures all of it, in a real process.

Time is virtual. References are counted: the client's body is one object from the server to the passes over the request,
and the client's headers are in the scope.
"""

import gc
import json
import sys
import tracemalloc

import anyio
import pytest
from gateway.fakes import FakeClient, OneResponse, Script, Sleep, http_scope
from gateway.scripted import CHAT, HELLO, PROTOCOL_NAMES, request_body
from laws.clients import path_of
from virtual_time import VIRTUAL_BACKENDS

from dragoman_server.app import create_app
from dragoman_server.settings import Settings, UpstreamSettings

pytestmark = [pytest.mark.anyio, pytest.mark.backends(*VIRTUAL_BACKENDS)]


@pytest.mark.parametrize("protocol", PROTOCOL_NAMES)
async def test_an_open_stream_does_not_hold_its_request(protocol: str) -> None:
    body = json.dumps(request_body(protocol, streams=True)).encode()
    upstream = UpstreamSettings(name="up", protocol=CHAT, base_url="http://127.0.0.1:9/v1")
    upstreams = OneResponse(Script([HELLO, Sleep(100)], connect=[Sleep(10)]))
    app = create_app(Settings(upstreams=(upstream,)), client=upstreams)
    client = FakeClient(body)
    scope = http_scope(path_of(protocol, "up/m"), headers={"user-agent": "SDK/1.0"})
    async with app.lifespan(), anyio.create_task_group() as tasks:
        not_sent, of_head = sys.getrefcount(body), sys.getrefcount(scope)
        tasks.start_soon(app, scope, client.receive, client.send)
        await anyio.sleep(5)
        assert sys.getrefcount(body) >= not_sent, "another account may need it"
        await anyio.sleep(10)
        assert b"Hello" in client.body
        assert sys.getrefcount(body) == not_sent - 1, "only this test has it"
        assert sys.getrefcount(scope) == of_head
        tasks.cancel_scope.cancel()


# In KiB, without the connections of client and upstream, and with what the fakes in their place hold. A task that waits
# would add four to the most that a protocol has, 35.
KIB_OF_A_STREAM = 38
STREAMS = 20


@pytest.mark.parametrize("protocol", PROTOCOL_NAMES)
async def test_what_an_open_stream_holds(protocol: str) -> None:
    body = json.dumps(request_body(protocol, streams=True)).encode()
    upstream = UpstreamSettings(name="up", protocol=CHAT, base_url="http://127.0.0.1:9/v1")
    upstreams = OneResponse(Script([HELLO, Sleep(1000)]))
    app = create_app(Settings(upstreams=(upstream,)), client=upstreams)
    async with app.lifespan(), anyio.create_task_group() as tasks:

        async def open_streams() -> int:
            for _ in range(STREAMS):
                client = FakeClient(body)
                tasks.start_soon(app, http_scope(path_of(protocol, "up/m")), client.receive, client.send)
            await anyio.sleep(5)
            gc.collect()
            return tracemalloc.get_traced_memory()[0]

        tracemalloc.start()
        try:
            before = await open_streams()
            each = (await open_streams() - before) / STREAMS / 1024
        finally:
            tracemalloc.stop()
        tasks.cancel_scope.cancel()
    assert each < KIB_OF_A_STREAM, f"{each:.1f} KiB"
