"""Invariant: whatever bytes an upstream streams, its protocol's reader gives events in legal order which end in exactly
one of Ended or Failed, or a RemoteProtocolError ends them; never another exception, however the bytes are cut.
"""

from typing import Any

from fuzz import chunks, cut_places, fuzz, mutated_streams, streams
from laws.pairs import requested

from dragoman import NEED_DATA, UPSTREAMS, EventReader, RemoteProtocolError
from dragoman.events import Ended, Failed
from dragoman.testing import EventOrderChecker


def read(protocol: str, parts: list[bytes]) -> list[Any]:
    """The events, and behind them the error that ended them."""
    reader = EventReader(UPSTREAMS[protocol], requested(protocol))
    found: list[Any] = []
    try:
        for part in parts:
            reader.receive_data(part)
            while (event := reader.next_event()) is not NEED_DATA:
                found.append(event)
        reader.receive_eof()
        while (event := reader.next_event()) is not NEED_DATA:
            found.append(event)
    except RemoteProtocolError as error:
        found.append(str(error))
    return found


def check(protocol: str, stream: bytes, places: list[int]) -> None:
    found = read(protocol, chunks(stream, places))
    assert found == read(protocol, [stream]), "the cut shows"
    *events, last = found
    checker = EventOrderChecker()
    for event in events:
        assert not isinstance(event, (Ended, Failed)), "something follows the end"
        checker.check(event)
    if isinstance(last, str):
        return
    assert isinstance(last, (Ended, Failed))
    checker.check(last)


@fuzz(mutated_streams(streams()), cut_places, examples=120)
def test_mutated_streams(drawn: tuple[str, bytes], places: list[int]) -> None:
    check(*drawn, places)
