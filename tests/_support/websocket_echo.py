"""A server process whose application sends back the messages of a WebSocket: `Echo("trio").ready()`.

For each client that leaves it writes a line: the close code, or at the path /deaf, where it sends and never receives,
that `send` has raised an OSError. Another kind of request gets a 200.
"""

import sys
from typing import ClassVar

import anyio
from command.process import Server
from starlette.types import ASGIApp, Receive, Scope, Send

from dragoman_server.serving.run import serve
from dragoman_server.settings import ServerSettings, Settings
from dragoman_server.streams.byte_stream import DRAINING


class Echo(Server):
    COMMAND: ClassVar[tuple[str, ...]] = (__file__,)


def log(*words: object) -> None:
    print(*words, file=sys.stderr, flush=True)


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "lifespan":
        for _ in range(2):
            await send({"type": f"{(await receive())['type']}.complete"})
    elif scope["type"] == "http":
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body"})
    else:
        await receive()
        await send({"type": "websocket.accept"})
        await (_talk(send) if scope["path"] == "/deaf" else _echo(scope, receive, send))


async def _talk(send: Send) -> None:
    try:
        while True:
            await send({"type": "websocket.send", "text": "."})
            await anyio.sleep(0.01)
    except OSError:
        log("raised OSError")


async def _echo(scope: Scope, receive: Receive, send: Send) -> None:
    async def close_when_draining() -> None:
        await scope["extensions"][DRAINING].wait()
        await send({"type": "websocket.close", "code": 1012})

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(close_when_draining)
        while (message := await receive())["type"] == "websocket.receive":
            await send({**message, "type": "websocket.send"})
        log("left", message["code"])
        tasks.cancel_scope.cancel()


def make_app(settings: Settings) -> ASGIApp:
    return app


if __name__ == "__main__":
    name, connections = sys.argv[1], int(sys.argv[2])
    settings = ServerSettings(backend=name, port=0, drain_s=1, max_connections=connections)
    serve(
        Settings(server=settings),
        make_app,
        on_ready=lambda bound: log(f"Dragoman listens on http://{bound.host}:{bound.port} ({bound.backend})"),
    )
