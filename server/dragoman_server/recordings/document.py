"""One recorded request as a document: JSON, with the bytes of both sides as text and the times of their arrival.

Bytes are UTF-8 nearly always; those that are not, such as half a character at the end of a read, are lone surrogates in
the text (Python's error handler `surrogateescape`), so nothing is lost.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

# Bytes that are read of a file: a recording has at most MAX_RECORDED_BYTES, which JSON may escape.
_MAX_FILE_BYTES = 256 * 1024 * 1024


class RecordingError(Exception):
    """A file that is no recording."""


class Piece(msgspec.Struct, frozen=True, array_like=True):
    """Bytes that came together.

    Attributes:
        at_s: Seconds since the request arrived.
    """

    at_s: float
    text: str

    @property
    def data(self) -> bytes:
        """The bytes."""
        return as_bytes(self.text)


class UnrecordedBody(msgspec.Struct, frozen=True):
    """What is recorded of a file's bytes, or a form's: not what they are.

    Attributes:
        size: Of what came or was sent.
        sha256: Of that, in hexadecimal digits.
        at_s: When the last of it came.
    """

    size: int
    sha256: str
    at_s: float


class RecordedRequest(msgspec.Struct, frozen=True):
    """The client's request.

    Attributes:
        body: Decoded, if it was compressed.
        file: In its place, as it came.
    """

    protocol: str
    path: str
    query: str = ""
    headers: tuple[tuple[str, str], ...] = ()
    body: str = ""
    method: str = "POST"
    file: UnrecordedBody | None = None


class RecordedAttempt(msgspec.Struct, frozen=True):
    """One request to an upstream, and its response.

    Attributes:
        capabilities: The capabilities that the gateway fitted the request to, of the protocol's type.
        status: None if there was no response.
        error: Why the connection broke, None if it did not.
        account: The id of its account.
        file, response_file: In the place of `body` and `pieces`.
    """

    at_s: float
    upstream: str
    protocol: str
    model: str
    url: str
    headers: tuple[tuple[str, str], ...]
    body: str
    capabilities: dict[str, Any]
    status: int | None = None
    response_headers: tuple[tuple[str, str], ...] = ()
    pieces: tuple[Piece, ...] = ()
    error: str | None = None
    account: str = ""
    method: str = "POST"
    file: UnrecordedBody | None = None
    response_file: UnrecordedBody | None = None


class RecordedResponse(msgspec.Struct, frozen=True):
    """What the client got.

    Attributes:
        status: None if it left before.
        completed: It got the end.
        file: In the place of `pieces`.
    """

    status: int | None = None
    headers: tuple[tuple[str, str], ...] = ()
    pieces: tuple[Piece, ...] = ()
    completed: bool = True
    file: UnrecordedBody | None = None


class Recording(msgspec.Struct, frozen=True, kw_only=True):
    """One request, from its arrival to the end of its response.

    Attributes:
        version: The version of this form.
        dragoman: The gateway's version.
        time: The time of its arrival, in seconds since the epoch.
        model: The name that the client gets.
        losses: The code and the place of each; those of the response have `answer:` before their place.
        texts: The texts are there; else each letter is an x.
        complete: Nothing was left out because it was too much.
    """

    id: str
    time: int
    dragoman: str
    request: RecordedRequest
    response: RecordedResponse
    attempts: tuple[RecordedAttempt, ...] = ()
    model: str = ""
    losses: tuple[str, ...] = ()
    texts: bool = True
    complete: bool = True
    version: int = 1


def as_text(data: bytes) -> str:
    """Return bytes as text, see the module."""
    return data.decode("utf-8", "surrogateescape")


def as_bytes(text: str) -> bytes:
    """Return the bytes that as_text() has made a text of."""
    return text.encode("utf-8", "surrogateescape")


def joined(pieces: Iterable[Piece]) -> bytes:
    """Return the bytes of pieces."""
    return b"".join([piece.data for piece in pieces])


def encode(recording: Recording) -> bytes:
    """Return the bytes of a file."""
    # msgspec refuses lone surrogates, which JSON can write.
    return json.dumps(msgspec.to_builtins(recording), indent=1).encode("ascii") + b"\n"


def load(path: Path) -> Recording:
    """Read a file. Raises RecordingError."""
    return parse(path, read(path))


def read(path: Path) -> bytes:
    """Return the bytes of a file. Raises RecordingError."""
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_FILE_BYTES + 1)
    except OSError as error:
        raise RecordingError(f"{path}: {error.strerror}") from None
    if len(data) > _MAX_FILE_BYTES:
        raise RecordingError(f"{path}: more than {_MAX_FILE_BYTES} bytes")
    return data


def parse(path: Path, data: bytes) -> Recording:
    """Return the recording in the bytes of a file. Raises RecordingError."""
    try:
        return msgspec.convert(json.loads(data), Recording)
    except (ValueError, RecursionError, msgspec.ValidationError) as error:
        raise RecordingError(f"{path}: not a recording: {error}") from None
