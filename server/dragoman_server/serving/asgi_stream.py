"""One HTTP request, between the protocol of its connection and ASGI.

It starts the application, queues what the application receives, and passes on what it sends. It does no I/O.
"""

from functools import lru_cache
from typing import Any
from urllib.parse import unquote

from starlette.types import ASGIApp

from dragoman_server.serving.connection import Connection, HTTPProtocol
from dragoman_server.serving.http1_response import WITHOUT_BODY
from dragoman_server.serving.request_head import StreamRequest
from dragoman_server.serving.tasks import AppEvents
from dragoman_server.serving.unsent import LARGE_BYTES
from dragoman_server.streams.byte_stream import NOW, WriteNow

# Paths that are kept, because clients use a few, again and again.
_KEPT_PATHS = 128

# Of the response to a request that the application has not answered.
_EMPTY = [(b"content-length", b"0"), (b"connection", b"close")]


@lru_cache(maxsize=_KEPT_PATHS)
def _decoded(path: bytes) -> str:
    return unquote(path.decode("ascii"))


def asgi_scope(
    request: StreamRequest, connection: Connection, kind: str, spec_version: str
) -> dict[str, Any]:
    """Return what ASGI scopes of both kinds have, "http" and "websocket"."""
    path, _, query = request.target.partition(b"?")
    return {
        "type": kind,
        "asgi": {"spec_version": spec_version, "version": "3.0"},
        "http_version": request.http_version,
        "path": _decoded(path),
        "raw_path": path,
        "query_string": query,
        "root_path": "",
        "headers": request.headers,
        "client": connection.client,
        "server": connection.server,
        "state": connection.worker.state.copy(),
    }


class HTTPStream:
    """One request.

    Attributes:
        app: Serves it.
        events: What it receives.
        closed: The protocol has closed the stream.
    """

    __slots__ = (
        *("_ended", "_method", "_status", "_stream_id", "_connection", "_writer"),
        *("app", "closed", "events"),
    )

    def __init__(
        self,
        app: ASGIApp,
        connection: Connection,
        writer: HTTPProtocol,
        stream_id: int,
        events: AppEvents,
    ) -> None:
        self.app = app
        self.events = events
        self.closed = False
        self._connection = connection
        self._writer = writer
        self._stream_id = stream_id
        self._method = ""
        self._status: int | None = None  # of the response, once it has begun
        self._ended = False  # the response

    # Called by the protocol.

    def begin(self, request: StreamRequest, write_now: WriteNow | None = None) -> None:
        """Start the application. write_now: see NOW."""
        self._method = request.method
        events = self.events
        now: dict[str, Any] = {
            "receive": events.get_now,
            "on_disconnect": events.on_disconnect,
            "rest": events.rest_of_task,
            "time": self._connection.worker.time,
        }
        if write_now is not None:
            now["write"] = write_now
        scope = asgi_scope(request, self._connection, "http", "2.1")
        scope["method"] = request.method
        scope["scheme"] = "https" if self._connection.tls else "http"
        scope["extensions"] = {NOW: now}
        self._connection.apps.start(self.app, scope, events, self._app_send)

    async def receive_data(self, data: bytes) -> None:
        """Pass on a part of the body."""
        if not self.closed:
            await self.events.put({"type": "http.request", "body": data, "more_body": True})

    async def receive_end(self) -> None:
        """Pass on the end of the body."""
        if not self.closed:
            await self.events.put({"type": "http.request", "body": b"", "more_body": False})

    def close(self) -> None:
        """Tell the application that the response is complete, or that the client has left."""
        if not self.closed:
            self.closed = True
            self.events.end({"type": "http.disconnect"}, has_left=not self._ended)

    @property
    def takes_body(self) -> bool:
        """True between the head of the response and its end, if there is anything in between."""
        has_body = self._method != "HEAD" and self._status not in WITHOUT_BODY
        return has_body and self._status is not None and not self._ended

    # Called by the application.

    async def _app_send(self, message: Any) -> None:
        """Send an ASGI message; None: the application has ended."""
        if message is None:
            if not self.closed:
                if self._status is None:
                    await self._writer.send_head(self._stream_id, 500, _EMPTY)
                    await self._writer.send_data(self._stream_id, b"", is_last=True)
                await self._writer.close_stream(self._stream_id)
        elif message["type"] == "http.response.start" and self._status is None:
            status = int(message["status"])
            await self._writer.send_head(self._stream_id, status, message.get("headers", ()))
            self._status = status
        elif message["type"] == "http.response.body" and self._status is not None and not self._ended:
            body = bytes(message.get("body", b"")) if self.takes_body else b""
            is_last = not message.get("more_body", False)
            if body or is_last:
                sending = self._writer.send_data(self._stream_id, body, is_last=is_last)
                if len(body) < LARGE_BYTES:
                    await sending
                elif not await self._connection.worker.unsent.send(len(body), sending):
                    await self._writer.close_stream(self._stream_id)
                    return
            if is_last:
                self._ended = True
                await self._writer.close_stream(self._stream_id)
        else:
            raise RuntimeError(f"{message['type']} cannot be sent now")
