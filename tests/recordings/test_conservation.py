"""Nothing that was recorded is silently lost: see tests/conformance/test_conservation.py."""

from functools import cache
from typing import Any

import corpus
import pytest
from laws.losses import MEANINGLESS_IN_REQUESTS, MEANINGLESS_IN_RESPONSES, lost_in, lost_in_frames
from laws.runs import first_response, translated, translated_response
from oracle import PROTOCOL_NAMES, SIMPLE_EVENTS, as_object
from oracle.frames import lenient_frames

from dragoman import RemoteProtocolError, RequestRefused

PAIRS = [(client, upstream) for client in PROTOCOL_NAMES for upstream in PROTOCOL_NAMES]
FOREIGN = [pair for pair in PAIRS if pair[0] != pair[1]]


@cache
def recorded_requests() -> dict[str, list[Any]]:
    """All recorded request bodies, by protocol."""
    found: dict[str, list[Any]] = {protocol: [] for protocol in PROTOCOL_NAMES}
    for recording in corpus.recordings():
        if recording.request is not None:
            found[recording.protocol].append(recording.request)
    for response in corpus.equivalents():
        if response.request is not None:
            found[response.protocol].append(response.request)
    return found


@pytest.mark.parametrize(("client", "upstream"), PAIRS)
def test_recorded_requests_lose_nothing_silently(client: str, upstream: str) -> None:
    tried: set[str] = set()
    lost: list[str] = []
    for body in recorded_requests()[client]:
        try:
            translated(client, upstream, body)
        except (RemoteProtocolError, RequestRefused) as error:
            if not error.path:
                raise
            continue
        run = lambda each: translated(client, upstream, each)  # noqa: E731
        lost += lost_in(body, client, MEANINGLESS_IN_REQUESTS, run, tried)
    assert lost == []


@pytest.mark.parametrize(("upstream", "client"), FOREIGN)
def test_recorded_responses_lose_nothing_silently(upstream: str, client: str) -> None:
    tried: set[str] = set()
    run = lambda each: translated_response(upstream, client, each)  # noqa: E731
    lost = [
        lost
        for response in corpus.equivalents()
        if response.protocol == upstream and response.status == 200 and response.name not in corpus.FAILURES
        for lost in lost_in(as_object(response.body), upstream, MEANINGLESS_IN_RESPONSES, run, tried)
    ]
    assert lost == []


@pytest.mark.parametrize(
    ("upstream", "client"), [*FOREIGN, *[(upstream, SIMPLE_EVENTS) for upstream in PROTOCOL_NAMES]]
)
def test_recorded_frames_lose_nothing_silently(upstream: str, client: str) -> None:
    tried: set[str] = set()
    lost = []
    for recording in corpus.recordings():
        if recording.protocol == upstream:
            frames = [as_object(frame.data) or frame.data for frame in lenient_frames(recording.read())]
            try:
                lost += lost_in_frames(upstream, client, first_response(frames), tried)
            except (RemoteProtocolError, RequestRefused):
                continue  # it ends in an error
    assert lost == []
