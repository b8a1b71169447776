"""What idle WebSockets cost a server in memory, and 500 of them that stream: `make memory-websockets`.

A table for each backend, of the process of an application that only sends back what it receives. All have negotiated
permessage-deflate.
"""

import asyncio
import contextlib
import os
import resource
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "_support"))

from edge import BACKENDS
from websocket_client import OVER, frame
from websocket_echo import Echo

from dragoman_server.serving.websocket_frames import TEXT

_COUNTS = (1000, 2000)
_STREAMING = 500
_SECONDS = 10.0
_TOGETHER = 50
# An event of a stream; a server's frame of it has a head of four bytes.
_EVENT = b"x" * 300
_DEFLATE = {"sec-websocket-extensions": "permessage-deflate"}

Client = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def open_one(port: int) -> Client:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(OVER["http/1.1"].opening(_DEFLATE))
    await reader.readuntil(b"\r\n\r\n")
    await exchange((reader, writer))
    return reader, writer


async def exchange(client: Client) -> None:
    reader, writer = client
    writer.write(frame(TEXT, _EVENT))
    await reader.readexactly(4 + len(_EVENT))


async def measure(echo: Echo) -> None:
    def resident() -> float:
        return int(Path(f"/proc/{echo.pid}/statm").read_text().split()[1]) * resource.getpagesize() / 2**20

    start = resident()
    print(f"  at the start                 {start:7.1f} MiB", flush=True)
    clients: list[Client] = []
    for count in _COUNTS:
        while len(clients) < count:
            clients += await asyncio.gather(*(open_one(echo.port) for _ in range(_TOGETHER)))
        await asyncio.sleep(3)
        cost = resident() - start
        print(
            f"  {count} idle, above the start   {cost:7.1f} MiB  {cost * 1024 / count:.1f} KiB each",
            flush=True,
        )
    end, most = time.monotonic() + _SECONDS, 0.0

    async def stream(client: Client) -> None:
        while time.monotonic() < end:
            await exchange(client)

    streams = asyncio.gather(*map(stream, clients[:_STREAMING]))
    while not streams.done():
        most = max(most, resident())
        await asyncio.wait([streams], timeout=0.1)
    await streams
    print(f"  {_STREAMING} of them stream         {most - start:7.1f} MiB", flush=True)
    for _, writer in clients:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


def main() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with tempfile.TemporaryDirectory() as directory:
        os.environ["XDG_STATE_HOME"] = directory
        for backend in BACKENDS:
            print(f"[{backend}]", flush=True)
            with Echo(backend, "0") as echo:
                asyncio.run(measure(echo.ready()))


if __name__ == "__main__":
    main()
