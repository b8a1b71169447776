"""The `dragoman` command around a tiny application, as a script that tests start in its own process.

The command imports `dragoman_server.app` when it serves; this script replaces it. Its paths:

/          "hello"                       /info    version of HTTP and scheme
/pid       the process's number          /read    the body, once it has come
/stream    "begin", then nothing         /flood   more bytes than any buffer holds
/block     blocks the event loop         /thread  "hangs"; the interpreter waits for such threads at its end

In the environment: CFG_FAIL, CFG_HANG: a start that fails, that hangs. CFG_STEP_S: seconds of each step of a stop,
and of a supervisor's pauses. CFG_DIE: a file; while it has lines, each process that starts takes one away and dies.
"""

import fcntl
import json
import os
import sys
import threading
import types
from functools import partial

import anyio
import anyio.from_thread
import anyio.to_thread

from dragoman_server.serving import run as serve
from dragoman_server.serving import supervisor

_FOREVER = threading.Event()

if "CFG_STEP_S" in os.environ:  # in workers too, which import this module
    serve.CLOSING_S = serve.SHUTDOWN_S = float(os.environ["CFG_STEP_S"])
    supervisor._RESPAWN_PAUSE_S = supervisor._MARGIN_S = serve.CLOSING_S


async def _send_body(send, body, more=False):
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]})
    await send({"type": "http.response.body", "body": body, "more_body": more})


async def _lifespan(receive, send):
    await receive()
    if "CFG_FAIL" in os.environ:
        raise_from = os.environ["CFG_FAIL"]
        message = f"Traceback\n  line\nOSError: {raise_from}\n"
        await send({"type": "lifespan.startup.failed", "message": message})
        return
    if "CFG_HANG" in os.environ:
        print("hanging", file=sys.stderr, flush=True)
        await anyio.sleep_forever()
    await send({"type": "lifespan.startup.complete"})
    await receive()
    print("the application has shut down", file=sys.stderr, flush=True)
    await send({"type": "lifespan.shutdown.complete"})


def _hang(tasks):
    anyio.from_thread.run_sync(tasks.cancel_scope.cancel)
    _FOREVER.wait()


async def _read(receive):
    body, more = b"", True
    while more:
        message = await receive()
        body += message.get("body", b"")
        more = message.get("more_body", False)
    return body


async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        await _lifespan(receive, send)
        return
    match scope["path"]:
        case "/pid":
            await _send_body(send, str(os.getpid()).encode())
        case "/info":
            await _send_body(send, json.dumps([scope["http_version"], scope["scheme"]]).encode())
        case "/read":
            await _send_body(send, await _read(receive))
        case "/stream":
            await _send_body(send, b"begin", more=True)
            await anyio.sleep_forever()
        case "/block":
            await _send_body(send, b"begin", more=True)
            while True:
                pass
        case "/thread":
            threading.Thread(target=_FOREVER.wait).start()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(partial(anyio.to_thread.run_sync, _hang, tasks, abandon_on_cancel=True))
            await _send_body(send, b"hangs")
        case "/flood":
            await _send_body(send, b"begin", more=True)
            while True:
                await send({"type": "http.response.body", "body": b"x" * 1_000_000, "more_body": True})
        case _:
            await _send_body(send, b"hello")


def _exit_if_configured():
    name = os.environ.get("CFG_DIE")
    if name is None:
        return
    with open(name, "r+", encoding="ascii") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # several workers start at once; closing the file frees it
        lines = file.readlines()
        file.seek(0)
        file.truncate()
        file.writelines(lines[1:])
    if lines:
        os._exit(7)


def create_app(settings):
    _exit_if_configured()
    return app


if __name__ == "__main__":
    app_module = types.ModuleType("dragoman_server.app")
    app_module.create_app = create_app
    sys.modules["dragoman_server.app"] = app_module

    from dragoman_server.cli.commands import main

    main(prog_name="dragoman")
