"""Send a body to an upstream while it arrives from the client.

One task reads the client: the one that waits for it to leave. It pauses while the upstream is not as fast. What was
read before the model was found is sent first; where that is more than memory should hold, it is in a file until then.
"""

import tempfile
from collections import deque
from typing import IO, ClassVar

import anyio
import anyio.to_thread

from dragoman import ErrorKind, RemoteProtocolError, RequestRefused, WireError
from dragoman_server.hosts import StreamedContent
from dragoman_server.platform.changes import Changes
from dragoman_server.relayed.form import Form
from dragoman_server.upstream.errors import ContentFailed

# A body up to this size is read before it is sent, so that it has a length and can be sent again.
SMALL_BYTES = 512 * 1024
# A body in which the model is looked for, and which has more, is in a file.
HELD_BYTES = 2**20
# In all files of a process.
MAX_SPOOLED_BYTES = 2**30
# The client is paused while more than this waits to be sent.
_MAX_WAITING = 256 * 1024
# Of a file at once.
_READ_BYTES = 256 * 1024
# Seconds in which a thread has to be free that removes a file.
_CLOSE_S = 5.0


class Upload:
    """The body of one request. Call aclose() at the end.

    Args:
        reader: the client's body.

    Attributes:
        begun: Some of it was sent, so that it cannot be sent again.
        size: The bytes that were read so far.
        spooled: The bytes in the files of all.
    """

    spooled: ClassVar[int] = 0

    def __init__(self, reader: StreamedContent) -> None:
        self.begun = False
        self.size = 0
        self._reader = reader
        self._pieces: deque[bytes] = deque()
        self._waiting = 0  # bytes of them
        self._file: IO[bytes] | None = None
        self._unread = 0  # bytes of it
        self._complete = False
        self._error: WireError | None = None
        self._changes = Changes()

    @property
    def length(self) -> int | None:
        """Its bytes, None if they are not known."""
        return self.size if self._complete else self._reader.length

    # Before it is sent.

    async def read(self) -> bytes:
        """Read more of it, and keep that until it is sent. Return it, b"" at the end. Raises what BodyReader does."""
        data = await self._receive()
        if self.size > HELD_BYTES:
            await self._spool(self._taken())
        return data

    async def _spool(self, data: bytes) -> None:
        """Write to the file. Raises RequestRefused if there is no room."""
        self._waiting = 0
        Upload.spooled += len(data)
        self._unread += len(data)
        try:
            if Upload.spooled > MAX_SPOOLED_BYTES:
                raise OSError
            if self._file is None:
                self._file = await anyio.to_thread.run_sync(tempfile.TemporaryFile)
            await anyio.to_thread.run_sync(self._file.write, data)
        except OSError:
            raise RequestRefused(
                "there is no room for more forms that have the model behind a file: put it first, name it in the "
                "header dragoman-model, or try again later",
                status=503,
            ) from None

    async def read_if_small(self) -> bytes | None:
        """Return the whole body if it is small, else None."""
        while not self._complete and max(self.length or 0, self.size) <= SMALL_BYTES:
            await self.read()
        return self._taken() if self._complete and self._file is None else None

    async def read_whole(self) -> bytes:
        """Return the whole body, whatever its size is."""
        while await self._receive():
            pass
        return self._taken()

    def _taken(self) -> bytes:
        body = b"".join(self._pieces)
        self._pieces.clear()
        return body

    async def aclose(self) -> None:
        """Remove the file."""
        Upload.spooled -= self._unread
        self._unread = 0
        if self._file is not None:
            with anyio.move_on_after(_CLOSE_S, shield=True):
                await anyio.to_thread.run_sync(self._file.close)

    async def _receive(self) -> bytes:
        data = await self._reader.receive()
        self.size += len(data)
        self._complete = not data
        if data:
            self._pieces.append(data)
            self._waiting += len(data)
        return data

    # While it is sent.

    async def pump(self) -> None:
        """Read the rest of it, as fast as it is sent. Raises ClientDisconnected.

        It does not return if the rest cannot be read, which ends the request.
        """
        try:
            while not self._complete:
                await self._receive()
                self._changes.note()
                while self._waiting > _MAX_WAITING:
                    await self._changes.wait()
        except (RemoteProtocolError, RequestRefused) as error:
            self._error = content_error(error)
            self._changes.note()
            await anyio.sleep_forever()

    async def next(self) -> bytes:
        """Return the next bytes to send; b"" at the end. Raises ContentFailed."""
        if self._file is not None and not self.begun:
            await anyio.to_thread.run_sync(self._file.seek, 0)
        self.begun = True
        if self._file is not None and self._unread:
            data: bytes = await anyio.to_thread.run_sync(self._file.read, min(self._unread, _READ_BYTES))
            self._unread -= len(data)
            Upload.spooled -= len(data)
            return data
        while not self._pieces:
            if self._error is not None:
                raise ContentFailed(self._error)
            if self._complete:
                return b""
            await self._changes.wait()
        data = self._pieces.popleft()
        self._waiting -= len(data)
        self._changes.note()
        return data


class UploadContent:
    """An upload as a call sends it. See StreamedContent.

    Args:
        form: passes it on, None where it is sent as it is.
        length: of what is sent.
    """

    def __init__(self, upload: Upload, form: Form | None, length: int | None) -> None:
        self.length = length
        self._upload, self._form = upload, form

    async def receive(self) -> bytes:
        while True:
            data = await self._upload.next()
            if self._form is None:
                return data
            try:
                passed = self._form.receive_data(data) if data else self._form.receive_eof()
            except RemoteProtocolError as error:
                raise ContentFailed(content_error(error)) from None
            if passed or not data:
                return passed


def content_error(error: RemoteProtocolError | RequestRefused) -> WireError:
    """Return the error of a body for its client. Whatever the status is, the upstream has not caused it."""
    kind = ErrorKind.TOO_LARGE if error.status == 413 else ErrorKind.INVALID_REQUEST
    return WireError(kind, error.message, status=error.status, code=error.code, param=None)
