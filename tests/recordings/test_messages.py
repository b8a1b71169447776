"""Recorded responses of real servers, read and written again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from corpus import files

from dragoman import RequestTranslator
from dragoman._ir.assembly import Fold
from dragoman._ir.event_order import EventOrderChecker
from dragoman._ir.events import Event, Opaque
from dragoman._ir.losses import Ledger
from dragoman._ir.request import Request
from dragoman._wire.exceptions import RemoteProtocolError
from dragoman._wire.json import decode, decode_object, encode
from dragoman._wire.sse import SSEParser
from dragoman.codec import ResponseContext
from dragoman.protocols.anthropic_messages import SPEC

STREAMS = files("messages/*.sse")
REQUESTS = files("messages/*.request.json")
CONTEXT = ResponseContext(Request("anthropic_messages", "m", ()), "x1", 1, "alias")


def events_of(data: bytes, size: int) -> list[Event]:
    parser, reader, checker = SSEParser(), SPEC.stream_reader(CONTEXT, Ledger()), EventOrderChecker()
    events: list[Event] = []
    for at in range(0, len(data), size):
        for frame in parser.receive_data(data[at : at + size]):
            events += reader.read(frame)
    for frame in parser.receive_eof():
        events += reader.read(frame)
    events += reader.eof()
    for event in events:
        checker.check(event)
    return events


@pytest.mark.parametrize("path", STREAMS, ids=lambda path: path.stem)
def test_streams(path: Path) -> None:
    data = path.read_bytes()
    if "eof" in path.name:
        with pytest.raises(RemoteProtocolError, match="ended before its stop reason"):
            events_of(data, len(data))
        return
    events = events_of(data, len(data))
    assert events == events_of(data, 11)
    writer, fold = SPEC.stream_writer(CONTEXT, Ledger()), Fold()
    written = b""
    for event in events:
        fold.send(event)
        written += writer.send(event)
    again = Fold()
    for event in events_of(written, len(written)):
        again.send(event)
    assert contents(again) == contents(fold)
    assert again.response().stops == fold.response().stops
    whole = decode(encode(SPEC.write_whole(fold.response(), CONTEXT, Ledger())))
    assert whole["stop_reason"] == fold.response().stops[0].native
    assert len(whole["content"]) == len(contents(fold))


def contents(fold: Fold) -> list[Any]:
    """The blocks without what another server names differently."""
    return [
        block.native
        if isinstance(block, Opaque)
        else (
            block.kind,
            block.text,
            block.reasoning,
            block.signature and block.signature.native,
            block.complete,
        )
        for block in fold.response().blocks
        if not (isinstance(block, Opaque) and block.kind == "message")
    ]


@pytest.mark.parametrize("path", REQUESTS, ids=lambda path: path.stem)
def test_requests_come_back_whole(path: Path) -> None:
    body = {**decode_object(path.read_bytes(), "the recorded request"), "wrapped": "drg1."}
    out = RequestTranslator(client=SPEC, upstream=SPEC).translate(encode(body))
    assert (decode(out.body), len(out.losses)) == (body, 0)
