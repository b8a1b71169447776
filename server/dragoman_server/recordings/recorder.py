"""Record requests, one file each, while the gateway serves them.

Of the other endpoints JSON is recorded, and the size and hash of everything else: files, forms, sound.

`Recorder` is ASGI around the endpoints. What the client gets passes through it; what upstreams get and send passes
through the senders that its attempts use instead of the gateway's. Without the setting `record` nothing of this exists.
"""

import logging
import os
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import msgspec
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dragoman.codec import ProtocolSpec, find_endpoint
from dragoman_server import __version__
from dragoman_server.capabilities.resolve import capabilities_for
from dragoman_server.hosts import UpstreamCall
from dragoman_server.log import RequestRecord
from dragoman_server.proxying.client_request import SCOPE_GOES_ON, SCOPE_SENDERS, path_below_mount
from dragoman_server.proxying.destinations import Destination
from dragoman_server.proxying.plan import Plan
from dragoman_server.recordings.call_listener import ListenedSender, SenderWithListener
from dragoman_server.recordings.document import (
    Piece,
    RecordedAttempt,
    RecordedRequest,
    RecordedResponse,
    Recording,
    UnrecordedBody,
    as_text,
    encode,
)
from dragoman_server.recordings.redaction import (
    mask_of,
    mask_pieces,
    redact_headers,
    redact_pieces,
    redact_query,
)
from dragoman_server.relayed.table import JSON, SSE, RelayedPath, rows_at
from dragoman_server.settings import Settings
from dragoman_server.settings.secret import Mask
from dragoman_server.streams.byte_stream import NOW
from dragoman_server.upstream.errors import UpstreamError
from dragoman_server.wire.headers import media_type

# Bytes of one request, all bodies of both sides together. The rest is left out.
MAX_RECORDED_BYTES = 16 * 1024 * 1024
# What a piece counts besides its bytes: it takes so much memory.
_PIECE_BYTES = 128
# For writing a file: the request has ended, and its client has its response.
_WRITE_S = 10.0
_LOG = logging.getLogger("dragoman.recordings")


@dataclass(slots=True)
class _File:
    """Bytes that are not recorded, as they pass."""

    size: int = 0
    at_s: float = 0.0
    _hash: Any = field(default_factory=sha256)

    def add(self, data: bytes, at_s: float) -> None:
        self.size += len(data)
        self.at_s = at_s
        self._hash.update(data)

    def recorded(self) -> UnrecordedBody | None:
        return UnrecordedBody(self.size, self._hash.hexdigest(), self.at_s) if self.size else None


@dataclass(slots=True)
class _IncomingResponse:
    """A response as it comes. file: in the place of pieces, where its body is not recorded."""

    status: int | None = None
    headers: Sequence[tuple[str, str]] = ()
    pieces: list[tuple[float, bytes]] = field(default_factory=list)
    file: _File = field(default_factory=_File)


@dataclass(slots=True, eq=False)
class UnfinishedRecording:
    """The recording of one request while it runs.

    Attributes:
        row: Of its path, if that is relayed.
        record, request_headers, body, model: Set when the request is planned. Its record is complete when it ends.
    """

    scope: Scope
    row: RelayedPath | None = None
    protocol: str = ""
    record: RequestRecord | None = None
    request_headers: Sequence[tuple[str, str]] = ()
    body: bytes = b""
    model: str = ""
    attempts: list["_Attempt"] = field(default_factory=list)
    response: _IncomingResponse = field(default_factory=_IncomingResponse)
    completed: bool = False
    complete: bool = True
    file: _File = field(default_factory=_File)
    time: int = field(default_factory=lambda: int(time.time()))
    _started: float = field(default_factory=anyio.current_time)
    _bytes: int = 0

    def now(self) -> float:
        """Return the seconds since the request arrived."""
        return round(anyio.current_time() - self._started, 6)

    def keeps_request(self, headers: Iterable[tuple[str, str]]) -> bool:
        """True if the body of a request is recorded, and not its hash."""
        return self.row is None or media_type(headers) in ("", JSON)

    def keep(self, data: bytes) -> bytes:
        """Return the bytes that may still be recorded."""
        kept = data[: max(MAX_RECORDED_BYTES - self._bytes, 0)]
        self._bytes += len(kept)
        self.complete = self.complete and len(kept) == len(data)
        return kept

    def add(self, response: _IncomingResponse, data: bytes) -> None:
        """Record bytes of a response that came together, as far as they may still be recorded."""
        kind = media_type(response.headers)
        row, is_error = self.row, (response.status or 200) >= 400
        if row is not None and not (kind in (JSON, SSE) and (kind in row.answers or is_error)):
            response.file.add(data, self.now())
        elif data and (kept := self.keep(data)):
            self._bytes += _PIECE_BYTES
            response.pieces.append((self.now(), kept))

    def listening(self, plan: Plan, record: RequestRecord) -> ListenedSender:
        """Record the plan of the request. Return what sends its attempts and records them."""
        self.record, self.model, self.protocol = record, plan.context.model, plan.client.name
        # The path of a cloud has some of the headers in the body.
        self.request_headers = (
            _decoded(self.scope["headers"]) if plan.planner is None else [*plan.planner.headers.items()]
        )
        if plan.planner is not None and self.keeps_request(self.request_headers):
            self.body = self.keep(plan.planner.body)
        return lambda to, account, sender: SenderWithListener(partial(self.attempt, to, account), sender)

    def attempt(self, to: Destination, account: str, call: UpstreamCall) -> "_Attempt":
        """Begin to record a call."""
        keeps = self.keeps_request(call.headers)
        attempt = _Attempt(
            self,
            self.now(),
            to,
            account,
            msgspec.structs.replace(call, content=self.keep(call.held) if keeps else b""),
        )
        if not keeps:
            attempt.sent(call.held)
        self.attempts.append(attempt)
        return attempt

    async def take(self, message: Message) -> None:
        """Record an ASGI message of the response."""
        if message["type"] == "http.response.start":
            self.response.status = message["status"]
            self.response.headers = _decoded(message["headers"])
        else:
            self.completed = not message.get("more_body", False)
            self.add(self.response, message.get("body", b""))

    async def received(self, receive: Receive) -> Message:
        """Receive an ASGI message of the request, whose body may not be recorded."""
        message = await receive()
        if message["type"] == "http.request":
            self.file.add(message.get("body", b""), self.now())
        return message


@dataclass(slots=True)
class _Attempt:
    """An attempt as it goes on, see RecordedAttempt and CallListener.

    Attributes:
        call: With the part of its body that is recorded.
    """

    unfinished: UnfinishedRecording
    at_s: float
    destination: Destination
    account: str
    call: UpstreamCall
    response: _IncomingResponse = field(default_factory=_IncomingResponse)
    error: str | None = None
    file: _File = field(default_factory=_File)

    def sent(self, data: bytes) -> None:
        self.file.add(data, self.unfinished.now())

    def head(self, status: int, headers: Sequence[tuple[str, str]]) -> None:
        self.response.status, self.response.headers = status, headers

    def received(self, data: bytes) -> None:
        self.unfinished.add(self.response, data)

    def failed(self, error: UpstreamError) -> None:
        self.error = str(error)


class Recorder:
    """Records the requests for endpoints of protocols, and what is relayed. An ASGI application around another one."""

    def __init__(
        self, app: ASGIApp, settings: Settings, protocols: Mapping[str, ProtocolSpec], folder: str
    ) -> None:
        self._app = app
        self._settings = settings
        self._protocols = protocols
        self._folder = Path(folder)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_post = scope["type"] == "http" and scope["method"] == "POST"
        query = scope.get("query_string", b"").decode("latin-1")
        found = find_endpoint(self._protocols.values(), path_below_mount(scope), query) if is_post else None
        rows = [] if found or scope["type"] != "http" else rows_at(scope["method"], path_below_mount(scope))
        if found is None and not rows:
            await self._app(scope, receive, send)
            return
        # All bytes have to pass `send`.
        extensions = {name: each for name, each in scope.get("extensions", {}).items() if name != NOW}
        unfinished = UnfinishedRecording(scope, rows[0][0] if rows else None)

        async def send_and_record(message: Message) -> None:
            await unfinished.take(message)
            await send(message)

        async def finish() -> None:
            if unfinished.record is not None:
                with anyio.move_on_after(_WRITE_S, shield=True):
                    # Megabytes are masked and written.
                    await anyio.to_thread.run_sync(self._write, unfinished, abandon_on_cancel=True)

        goes_on = False

        def go_on() -> Callable[[], Awaitable[None]]:
            nonlocal goes_on
            goes_on = True
            return finish

        entries = {"extensions": extensions, SCOPE_SENDERS: unfinished.listening, SCOPE_GOES_ON: go_on}
        try:
            receives = receive if unfinished.row is None else partial(unfinished.received, receive)
            await self._app({**scope, **entries}, receives, send_and_record)
        finally:
            if not goes_on:
                await finish()

    def _recording(self, unfinished: UnfinishedRecording) -> Recording:
        mask = self._settings.mask
        assert unfinished.record is not None
        return Recording(
            id=unfinished.record.id,
            time=unfinished.time,
            dragoman=__version__,
            request=RecordedRequest(
                unfinished.protocol,
                path_below_mount(unfinished.scope),
                mask(redact_query(unfinished.scope.get("query_string", b"").decode("latin-1"))),
                redact_headers(unfinished.request_headers, mask),
                self._text(unfinished.body, mask),
                unfinished.scope["method"],
                None if unfinished.body else unfinished.file.recorded(),
            ),
            response=RecordedResponse(
                unfinished.response.status,
                redact_headers(unfinished.response.headers, mask),
                self._pieces(unfinished.response.pieces, mask),
                unfinished.completed,
                unfinished.response.file.recorded(),
            ),
            attempts=tuple([self._attempt(attempt) for attempt in unfinished.attempts]),
            model=unfinished.model,
            losses=tuple(map(mask, unfinished.record.losses)),
            texts=self._settings.server.record_texts,
            complete=unfinished.complete,
        )

    def _attempt(self, attempt: _Attempt) -> RecordedAttempt:
        mask, to = self._settings.mask.joined(mask_of(attempt.call.headers)), attempt.destination
        fitted_to = capabilities_for(self._settings, to.settings, to.upstream_model, to.upstream)
        url, mark, query = attempt.call.url.partition("?")
        if attempt.unfinished.row is not None:  # it is the client's
            query = redact_query(query)
        return RecordedAttempt(
            attempt.at_s,
            to.settings.name,
            to.upstream.name,
            to.upstream_model,
            mask(url + mark + query),
            redact_headers(attempt.call.headers, mask),
            self._text(attempt.call.held, mask),
            msgspec.to_builtins(fitted_to),
            attempt.response.status,
            redact_headers(attempt.response.headers, mask),
            self._pieces(attempt.response.pieces, mask),
            None if attempt.error is None else mask(attempt.error),
            attempt.account,
            attempt.call.method,
            attempt.file.recorded(),
            attempt.response.file.recorded(),
        )

    def _text(self, body: bytes, mask: Mask) -> str:
        [masked] = self._bodies([body], mask)
        return as_text(masked)

    def _pieces(self, pieces: list[tuple[float, bytes]], mask: Mask) -> tuple[Piece, ...]:
        bodies = self._bodies([data for _, data in pieces], mask)
        return tuple([Piece(at_s, as_text(data)) for (at_s, _), data in zip(pieces, bodies, strict=True)])

    def _bodies(self, pieces: Sequence[bytes], mask: Mask) -> list[bytes]:
        """Return the pieces of a body as they are recorded."""
        masked = mask_pieces(pieces, mask)
        return masked if self._settings.server.record_texts else redact_pieces(masked)

    def _write(self, unfinished: UnfinishedRecording) -> None:
        server = self._settings.server
        recording = self._recording(unfinished)
        try:
            write(self._folder, recording, server.record_max_files, server.record_max_age_s)
        except OSError as error:
            _LOG.warning("the request %s is not recorded: %s: %s", recording.id, self._folder, error.strerror)


def _decoded(headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[str, str]]:
    return [(name.decode("latin-1"), value.decode("latin-1")) for name, value in headers]


def write(folder: Path, recording: Recording, max_files: int, max_age_s: float) -> Path:
    """Write a recording that only its owner can read, and remove those that are too old or too many. Raises OSError."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = folder / f"{_stamp(recording.time)}-{recording.id}.json"
    data = encode(recording)
    # Those who read the folder find whole files only, also when the disk is full.
    part = path.with_suffix(".part")
    try:
        with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as written:
            written.write(data)
        part.rename(path)
    except OSError:
        part.unlink(missing_ok=True)
        raise
    # The names begin with the time. Only files of this form are removed.
    found = [file for file in folder.glob("????????T??????Z-*") if file.suffix in (".json", ".part")]
    oldest = _stamp(time.time() - max_age_s)
    for number, file in enumerate(sorted(found, reverse=True)):
        if number >= max_files or file.name < oldest:
            file.unlink(missing_ok=True)
    return path


def _stamp(seconds: float) -> str:
    return time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(seconds))
