"""Recorded responses and requests of real servers and clients."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from corpus import files
from oracle.compare import compare
from oracle.frames import strict_frames
from oracle.meaning_responses import read_stream
from oracle.order_responses import ResponsesOrder
from oracle.types import check_event

from dragoman import RequestTranslator
from dragoman._engine.linearizer import Linearizer
from dragoman._ir.assembly import Fold
from dragoman._ir.event_order import EventOrderChecker
from dragoman._ir.events import Event, Failed, Opaque
from dragoman._ir.losses import Ledger
from dragoman._ir.request import Request
from dragoman._wire.errors import ErrorKind, WireError
from dragoman._wire.exceptions import RemoteProtocolError, RequestRefused
from dragoman._wire.json import decode, decode_object, encode
from dragoman._wire.sse import SSEParser
from dragoman.codec import ResponseContext
from dragoman.protocols.openai_responses import SPEC

ORIGIN = "openai_responses"
STREAMS = files("responses/*.sse")
REQUESTS = files("responses/*.request.json")
CONTEXT = ResponseContext(Request("openai_chat", "m", ()), "x1", 1, "alias")


def events_of(data: bytes, size: int) -> list[Event]:
    """Legal events with one open block at a time; a stream that breaks off ends with a failure."""
    parser, reader, checker, linear = (
        SSEParser(),
        SPEC.stream_reader(CONTEXT, Ledger()),
        EventOrderChecker(),
        Linearizer(),
    )
    events: list[Event] = []
    try:
        for at in range(0, len(data), size):
            for frame in parser.receive_data(data[at : at + size]):
                events += reader.read(frame)
        for frame in parser.receive_eof():
            events += reader.read(frame)
        events += reader.eof()
    except (RemoteProtocolError, RequestRefused) as error:
        events.append(Failed(WireError(ErrorKind.TRUNCATED, error.message)))
    for event in events:
        checker.check(event)
    return [each for event in events for each in linear.send(event)]


@pytest.mark.parametrize("path", STREAMS, ids=lambda path: path.stem)
def test_streams(path: Path) -> None:
    data = path.read_bytes()
    events = events_of(data, len(data))
    assert events == events_of(data, 11)
    assert ("eof" in path.name) is (type(events[-1]) is Failed)
    # What the provider ran by itself is for its own clients; here a client of another protocol is served.
    events = [event for event in events if type(event) is not Opaque]
    writer, fold = SPEC.stream_writer(CONTEXT, Ledger()), Fold()
    written = b""
    for event in events:
        fold.send(event)
        written += writer.send(event)
    frames, problems = strict_frames(written)
    order = ResponsesOrder()
    for number, frame in enumerate(frames):
        problems += check_event(ORIGIN, frame.data)
        order.feed(number, frame)
    assert problems + order.close() == []
    assert compare(read_stream(data), read_stream(written), ORIGIN) == []
    if type(events[-1]) is not Failed:
        body = encode(SPEC.write_whole(fold.response(), CONTEXT, Ledger()))
        assert json.loads(body) == json.loads(frames[-1].data)["response"]


@pytest.mark.parametrize("path", REQUESTS, ids=lambda path: path.stem.removesuffix(".request"))
def test_requests_come_back_whole(path: Path) -> None:
    body: dict[str, Any] = decode_object(path.read_bytes(), "the request body")
    body = {**body.get("body", body), "wrapped": "drg1."}
    out = RequestTranslator(client=SPEC, upstream=SPEC).translate(encode(body))
    assert (decode(out.body), len(out.losses)) == (body, 0)
