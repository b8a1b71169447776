"""A client's connection on a scripted byte stream."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import anyio

from dragoman_server.serving.connection import Connection, WorkerContext
from dragoman_server.serving.server import protocol_for
from dragoman_server.settings import ServerSettings
from dragoman_server.streams.byte_stream import Take


@dataclass
class FakeStream:
    """Returns `incoming`, in order; then nothing more comes, or `b""` if `leaves`, or an error if `resets`.

    incoming: a number is so many seconds of silence. room: bytes that can be sent. peer_ends_at: when the system says
    that the client has ended, although there are bytes to read.
    """

    incoming: Sequence[bytes | float]
    leaves: bool = False
    resets: bool = False
    room: float = math.inf
    alpn: str | None = None
    sent: bytes = b""
    ended_at: float | None = None
    aborted_at: float | None = None
    waits: bool = False
    peer_ends_at: float = math.inf

    def __post_init__(self) -> None:
        self._aborted = anyio.Event()
        self._reading: anyio.CancelScope | None = None
        self._interrupted = False

    async def receive(self, timeout: float | None) -> bytes:
        try:
            with anyio.CancelScope() as self._reading:
                if self._interrupted:
                    self._reading.cancel()
                return await self._receive()
        finally:
            self._reading, self._interrupted = None, False
        raise InterruptedError

    async def _receive(self) -> bytes:
        await anyio.lowlevel.checkpoint()
        while self.incoming:
            first, *self.incoming = self.incoming
            if isinstance(first, bytes):
                return first
            await anyio.sleep(first)
        if self.leaves:
            return b""
        if self.resets:
            raise ConnectionResetError("reset")
        await self._aborted.wait()
        raise ConnectionAbortedError("closed by the gateway")

    async def receive_each(self, take: Take, timeout: float | None) -> None:
        while self.incoming:
            if not take(await self.receive(timeout)):
                return

    def interrupt(self) -> None:
        self._interrupted = True
        if self._reading is not None:
            self._reading.cancel()

    async def peer_ended(self) -> None:
        with anyio.move_on_at(self.peer_ends_at):
            await self._aborted.wait()

    def send_now(self, data: bytes) -> bytes | None:
        if self.aborted_at is not None:
            raise BrokenPipeError("closed")
        taken = data[: int(min(self.room, len(data)))]
        self.sent += taken
        self.room -= len(taken)
        # As often as not, a task has to wait.
        self.waits = not self.waits
        return None if len(taken) == len(data) and not self.waits else data[len(taken) :]

    async def send_all(self, data: bytes, timeout: float | None) -> None:
        await anyio.lowlevel.checkpoint()
        self.waits = True
        if self.send_now(data) is not None:
            with anyio.fail_after(timeout):
                await self._aborted.wait()
            raise BrokenPipeError("closed")

    def is_reusable(self) -> bool:
        raise AssertionError("for upstreams only")

    async def end(self, linger: float) -> None:
        self.ended_at = anyio.current_time()
        self.abort()

    def abort(self) -> None:
        if self.aborted_at is None:
            self.aborted_at = anyio.current_time()
            self._aborted.set()

    def alpn_protocol(self) -> str | None:
        return self.alpn


def connect(app: Any, stream: FakeStream, settings: ServerSettings | None = None) -> Connection:
    settings = settings or ServerSettings()
    worker = WorkerContext(app, settings, {})
    tls = stream.alpn is not None
    return Connection(worker, stream, ("192.0.2.1", 5), ("192.0.2.2", 80), protocol_for, tls=tls)
