"""What the commands on recorded bytes share: names of protocols, files or stdin, and what a document is."""

import codecs
import json
import sys
from collections.abc import Iterator, Mapping
from enum import Enum
from itertools import chain
from typing import IO

import click

from dragoman import PROTOCOLS, UPSTREAMS, Ledger, ProtocolError
from dragoman.codec import JSON_ARRAY, ProtocolSpec, UpstreamSpec
from dragoman.jsontext import MAX_DOCUMENT_BYTES, decode_object
from dragoman.sse import FrameDecoder
from dragoman_server.cli.options import FAILURE, exit_with

# A read of stdin returns the available bytes, so that a stream is translated as it arrives.
_READ_BYTES = 64 * 1024

# The fields of the HTML standard's event streams (9.2.6), and a comment.
_STREAM_LINES = (b"data:", b"event:", b"id:", b"retry:", b":")
# Enough bytes to see how a document begins.
_HEAD_BYTES = 16


class Kind(Enum):
    """What a document is."""

    REQUEST = "request"
    RESPONSE = "response"
    STREAM = "stream"


# A protocol is given by its name, or only by the last word of it if upstreams speak it.
PROTOCOL_NAMES: Mapping[str, ProtocolSpec] = {
    **{name.rpartition("_")[2]: spec for name, spec in UPSTREAMS.items()},
    **PROTOCOLS,
}

protocol_choice = click.Choice(tuple(PROTOCOL_NAMES))
PROTOCOLS_HELP = f"{', '.join(name.rpartition('_')[2] for name in UPSTREAMS)} or a full name"
file_argument = click.Argument(["file"], type=click.File("rb", lazy=False), default="-")


def read_pieces(file: IO[bytes]) -> Iterator[bytes]:
    """Yield the bytes of a file, of a pipe as they arrive."""
    # A buffered reader's read() waits until it has all that was requested.
    read = getattr(file, "read1", file.read)
    while piece := read(_READ_BYTES):
        yield piece


def read_document(file: IO[bytes]) -> bytes:
    """Return a whole file. Print an error and exit if it is larger than any document may be."""
    data = file.read(MAX_DOCUMENT_BYTES + 1)
    if len(data) > MAX_DOCUMENT_BYTES:
        exit_with(FAILURE, f"{file.name} has more than {MAX_DOCUMENT_BYTES} bytes")
    return data


def read_events(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the server-sent events of a stream. It may be one JSON array."""
    head = next(pieces, b"")
    pieces = chain((head,), pieces)
    if not head.lstrip().startswith(b"["):
        yield from pieces
        return
    assert JSON_ARRAY.reader is not None
    decoder = FrameDecoder(JSON_ARRAY.reader())
    for piece in pieces:
        yield decoder.receive_data(piece)
        if decoder.error is not None:
            raise decoder.error


def begins_stream(head: bytes) -> bool | None:
    """True if a document that begins with these bytes is a stream. None if more bytes are needed.

    No protocol has an array as a request or as a whole response.
    """
    text = head.removeprefix(codecs.BOM_UTF8).lstrip()
    if not text or (len(text) < _HEAD_BYTES and any(line.startswith(text) for line in _STREAM_LINES)):
        return None
    return text.startswith((*_STREAM_LINES, b"["))


def kind_of_document(body: bytes, protocol: ProtocolSpec) -> Kind:
    """Return the kind of a protocol's JSON document; one that is no object counts as a request."""
    try:
        members = decode_object(body, "it")
    except ProtocolError:
        return Kind.REQUEST
    responds = isinstance(protocol, UpstreamSpec) and protocol.is_response(members)
    return Kind.RESPONSE if responds or "error" in members else Kind.REQUEST


def print_losses(losses: Ledger, *, as_json: bool) -> None:
    """Print losses on stderr, one line each."""
    for loss in losses:
        if as_json:
            line = json.dumps({"code": loss.code.value, "path": loss.path, "detail": loss.detail})
        else:
            line = f"loss: {loss.code.value} {loss.path or '/'}: {loss.detail}"
        click.echo(line, err=True)
    if losses.overflow:
        line = f"{losses.overflow} more losses are not listed"
        click.echo(json.dumps({"detail": line}) if as_json else line, err=True)


def print_bytes(data: bytes) -> None:
    """Print bytes on stdout, and flush them."""
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()
