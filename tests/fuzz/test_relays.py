"""Invariant: what a relay sends is what the upstream sent, byte for byte, up to the end of a frame; behind that comes
the protocol's own error where the response did not end, else nothing; and however the bytes are cut it is the same.
"""

import re

import pytest
from fuzz import chunks, cut_places, fuzz, mutated_streams, streams
from laws.pairs import requested
from oracle import GEMINI
from oracle.frames import lenient_frames, strict_frames

from dragoman import UPSTREAMS, Outcome, Relay

BLANK_LINES = re.compile(rb"(?:\r\n|\n|\r){2,}")
# Where the upstream's are no numbers, those of our error frames are a guess.
NUMBER = re.compile(rb'"sequence_number":\d+')


def relayed(protocol: str, parts: list[bytes]) -> tuple[Relay, bytes]:
    relay = Relay(protocol=UPSTREAMS[protocol], context=requested(protocol))
    sent = b""
    for part in parts:
        relay.receive_data(part)
        sent += relay.data_to_send()
    relay.receive_eof()
    sent += relay.data_to_send()
    relay.receive_data(b"data: more\n\n")
    relay.receive_eof()
    assert relay.data_to_send() == b"", "something follows the end"
    return relay, sent


def check(protocol: str, stream: bytes, places: list[int]) -> None:
    relay, sent = relayed(protocol, [stream])
    assert relay.outcome in (Outcome.COMPLETED, Outcome.FAILED)
    if not stream.startswith(sent):
        same = next(
            at for at, (a, b) in enumerate(zip(sent, stream + b"\0" * len(sent), strict=False)) if a != b
        )
        passed = max((found.end() for found in BLANK_LINES.finditer(sent, 0, same)), default=0)
        # The upstream's own error passes as it came; one of ours is written behind what came before.
        assert relay.outcome is Outcome.FAILED
        frames, problems = strict_frames(sent[passed:])
        if protocol == GEMINI:  # its lines end otherwise, and an error has a second form that is no event
            frames, problems = lenient_frames(sent[passed:]), []
        assert problems == []
        assert frames
        assert all("error" in frame.data for frame in frames[-2:])
    again, cut = relayed(protocol, chunks(stream, places))
    assert (NUMBER.sub(b"", cut), again.outcome) == (NUMBER.sub(b"", sent), relay.outcome), "the cut shows"
    assert again.usage == relay.usage


@pytest.mark.promise("R3", "R4")
@fuzz(mutated_streams(streams()), cut_places, examples=120)
def test_mutated_streams(drawn: tuple[str, bytes], places: list[int]) -> None:
    check(*drawn, places)
