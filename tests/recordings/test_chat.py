"""Recorded responses of real servers: each is read, printed for a Chat client, and read strictly again."""

from __future__ import annotations

from pathlib import Path

import pytest
from corpus import files
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from oracle.meaning_chat import read_stream

from dragoman._ir.assembly import AssembledBlock, AssembledResponse, Fold
from dragoman._ir.event_order import EventOrderChecker
from dragoman._ir.events import Failed
from dragoman._ir.losses import Ledger
from dragoman._ir.request import Request
from dragoman._wire.exceptions import RemoteProtocolError
from dragoman._wire.sse import SSEParser
from dragoman.codec import ResponseContext
from dragoman.protocols.openai_chat import SPEC

STREAMS = files("chat/*.sse")
CONTEXT = ResponseContext(Request("other", "m", (), stream=True), "X1", 7, "alias")


def read_response(stream: bytes, cut: int) -> tuple[AssembledResponse, bytes]:
    """Return the folded response, and what a Chat client gets. Raise if the stream is not complete."""
    parser, checker, fold = SSEParser(), EventOrderChecker(), Fold()
    reader, writer = SPEC.stream_reader(CONTEXT, Ledger()), SPEC.stream_writer(CONTEXT, Ledger())
    out = b""
    frames = [
        frame for at in range(0, len(stream), cut) for frame in parser.receive_data(stream[at : at + cut])
    ]
    steps = [lambda frame=frame: reader.read(frame) for frame in [*frames, *parser.receive_eof()]]
    for step in [*steps, reader.eof]:
        for event in step():
            checker.check(event)
            fold.send(event)
            out += writer.send(event)
            if type(event) is Failed:
                return fold.response(), out
    return fold.response(), out


@pytest.mark.parametrize("path", STREAMS, ids=lambda path: path.stem)
def test_recorded_stream(path: Path) -> None:
    stream = path.read_bytes()
    if "eof" in path.stem:
        with pytest.raises(RemoteProtocolError):
            read_response(stream, len(stream))
        return
    response, printed = read_response(stream, len(stream))
    assert read_response(stream, 1)[1] == printed
    for frame in SSEParser().receive_data(printed):
        if frame.data != b"[DONE]" and b'{"error"' not in frame.data:
            ChatCompletionChunk.model_validate_json(frame.data, strict=True)
    if response.error is not None:
        return
    body = SPEC.write_whole(response, CONTEXT, Ledger())
    ChatCompletion.model_validate(body, strict=True)
    # What the tests' own reader makes of the server's bytes and of ours.
    before, after = read_stream(stream), read_stream(printed)
    assert (after.stop, after.stop_sequence) == (before.stop, before.stop_sequence)
    assert after.choices.keys() == before.choices.keys()
    calls = [
        block for block in response.blocks if isinstance(block, AssembledBlock) and block.tool is not None
    ]
    sent = [block for blocks in before.choices.values() for block in blocks if block.id]
    assert [(block.tool.call_id, block.tool.name, block.text) for block in calls if block.tool] == [
        (block.id, block.name, block.text) for block in sent
    ]
