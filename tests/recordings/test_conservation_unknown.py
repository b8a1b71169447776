"""Fields that nobody knows, put into what was recorded: see tests/conformance/test_conservation_unknown.py."""

from functools import cache
from typing import Any

import corpus
import pytest
from hypothesis import given
from hypothesis import strategies as st
from laws.runs import first_response
from laws.unknown import RULES, Body, has_content, lost_of_frame, lost_of_request, lost_of_response
from oracle import PROTOCOL_NAMES, as_object
from oracle.frames import lenient_frames

PAIRS = [(client, upstream) for client in PROTOCOL_NAMES for upstream in PROTOCOL_NAMES]
FOREIGN = [pair for pair in PAIRS if pair[0] != pair[1]]
# Each example costs a translation of the whole stream.
LONG = 60_000


@cache
def requests(protocol: str) -> list[Body]:
    every = [*corpus.recordings(), *corpus.equivalents()]
    return [each.request for each in every if each.protocol == protocol and each.request]


@cache
def whole_responses(protocol: str) -> list[Body]:
    found = [
        each
        for each in corpus.equivalents()
        if each.protocol == protocol and each.status == 200 and each.name not in corpus.FAILURES
    ]
    return [body for each in found if (body := as_object(each.body))]


@cache
def streams(protocol: str) -> list[list[Any]]:
    recorded = [each.read() for each in corpus.recordings() if each.protocol == protocol]
    parsed = [
        [as_object(frame.data) or frame.data for frame in lenient_frames(stream)]
        for stream in recorded
        if len(stream) < LONG
    ]
    return [frames for frames in map(first_response, parsed) if any(map(has_content, frames))]


@pytest.mark.parametrize(("client", "upstream"), PAIRS)
@given(data=st.data())
@RULES
def test_unknown_fields_of_requests_are_recorded(client: str, upstream: str, data: st.DataObject) -> None:
    body = data.draw(st.sampled_from(requests(client)))
    assert lost_of_request(client, upstream, body, data) == []


@pytest.mark.parametrize(("upstream", "client"), FOREIGN)
@given(data=st.data())
@RULES
def test_unknown_fields_of_responses_are_recorded(upstream: str, client: str, data: st.DataObject) -> None:
    body = data.draw(st.sampled_from(whole_responses(upstream)))
    assert lost_of_response(upstream, client, body, data) == []


@pytest.mark.parametrize(("upstream", "client"), FOREIGN)
@given(data=st.data())
@RULES
def test_unknown_members_of_chunks_and_deltas_are_recorded(
    upstream: str, client: str, data: st.DataObject
) -> None:
    frames = data.draw(st.sampled_from(streams(upstream)))
    assert lost_of_frame(upstream, client, frames, data) == []
