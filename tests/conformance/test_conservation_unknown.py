"""Unknown fields are never lost silently, whatever their place, name and value.

Hypothesis makes names and values, and puts several at once into any objects of any fixture, recorded request,
response or stream. Between different protocols each of them is in the ledger under its own path, or it is part of
a value that is kept whole; a null is ignored.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from laws.fixtures import REQUESTS, WHOLE_RESPONSES
from laws.unknown import RULES, lost_of_frame, lost_of_request, lost_of_response
from oracle import CHAT, GEMINI, MESSAGES, PROTOCOL_NAMES, RESPONSES
from oracle import samples as s

FOREIGN = [(source, target) for source in PROTOCOL_NAMES for target in PROTOCOL_NAMES if source != target]
SAMPLES = {CHAT: s.chat, MESSAGES: s.messages, RESPONSES: s.responses, GEMINI: s.gemini}


@pytest.mark.promise("R13")
@pytest.mark.parametrize(("client", "upstream"), FOREIGN)
@given(data=st.data())
@RULES
def test_unknown_fields_of_requests_are_recorded(client: str, upstream: str, data: st.DataObject) -> None:
    body = data.draw(st.sampled_from(list(REQUESTS[client].values())))
    assert lost_of_request(client, upstream, body, data) == []


@pytest.mark.promise("R12", "R13")
@pytest.mark.parametrize("protocol", PROTOCOL_NAMES)
@given(data=st.data())
@RULES
def test_the_same_protocol_gets_unknown_fields_as_they_are(protocol: str, data: st.DataObject) -> None:
    body = data.draw(st.sampled_from(list(REQUESTS[protocol].values())))
    assert lost_of_request(protocol, protocol, body, data) == []


@pytest.mark.promise("R13")
@pytest.mark.parametrize("protocol", PROTOCOL_NAMES)
@given(data=st.data())
@RULES
def test_a_repaired_request_keeps_unknown_fields(protocol: str, data: st.DataObject) -> None:
    body = data.draw(st.sampled_from(list(REQUESTS[protocol].values())))
    assert lost_of_request(protocol, protocol, body, data, rewrites=True) == []


@pytest.mark.promise("R13")
@pytest.mark.parametrize(("upstream", "client"), FOREIGN)
@given(data=st.data())
@RULES
def test_unknown_fields_of_responses_are_recorded(upstream: str, client: str, data: st.DataObject) -> None:
    body = data.draw(st.sampled_from(list(WHOLE_RESPONSES[upstream].values())))
    assert lost_of_response(upstream, client, body, data) == []


@pytest.mark.promise("R13")
@pytest.mark.parametrize(("upstream", "client"), FOREIGN)
@given(data=st.data())
@RULES
def test_unknown_members_of_chunks_and_deltas_are_recorded(
    upstream: str, client: str, data: st.DataObject
) -> None:
    assert lost_of_frame(upstream, client, SAMPLES[upstream](), data) == []
