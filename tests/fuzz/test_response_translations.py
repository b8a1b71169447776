"""Invariant: whatever an upstream of one protocol streams, a client of any gets a stream that its protocol's automaton
takes, with exactly one legal end; and for a whole response it gets a whole one, or there is an error.
"""

import re

import pytest
from fuzz import chunks, cut_places, fuzz, mutated_json, mutated_streams, streams
from hypothesis import strategies as st
from laws.clients import spec_of
from laws.fixtures import WHOLE_RESPONSES
from laws.pairs import requested
from oracle import as_object
from oracle.order import check_order

from dragoman import PROTOCOLS, UPSTREAMS, Outcome, ResponseTranslator

clients = st.sampled_from(sorted(PROTOCOLS))
WHOLE = {protocol: list(all_responses.values()) for protocol, all_responses in WHOLE_RESPONSES.items()}


def check(upstream: str, stream: bytes, client: str, places: list[int]) -> None:
    sent = translated(upstream, client, chunks(stream, places))
    assert problems(client, sent) == []
    assert sent == translated(upstream, client, [stream]), "the cut shows"


# Checks of the upstream's own content: a mutated response has no meaning any more.
ABOUT_CONTENT = re.compile(
    r"not JSON: cut short|choice indexes are not contiguous|a text block without text|an empty part"
    r"|summary is not its done parts|ids? (or call_ids are|is) empty or used twice|does not start empty"
    r"|stop_sequence is set if|with status incomplete in a completed response|done with a status"
    # A call that was cut stays open to the end; what comes behind it then is in the final output.
    r"|the item before is still open|the final output (is not the done items|has an item that was never done)"
)


def problems(client: str, sent: bytes) -> list[str]:
    """Return problems of framing and order, without those inside a vendor's own objects."""
    if client not in UPSTREAMS:
        return []
    found = check_order(client, sent, include_usage=True)
    return [each for each in found if not ABOUT_CONTENT.search(each)]


def translated(upstream: str, client: str, parts: list[bytes]) -> bytes:
    machine = ResponseTranslator(
        client=spec_of(client), upstream=UPSTREAMS[upstream], context=requested(client)
    )
    sent = b""
    for part in parts:
        machine.receive_data(part)
        sent += machine.data_to_send()
    machine.receive_eof()
    sent += machine.data_to_send()
    assert machine.outcome is not Outcome.OPEN
    assert (machine.error is not None) == (machine.outcome is Outcome.FAILED)
    machine.receive_data(b"data: more\n\n")
    machine.receive_eof()
    assert machine.data_to_send() == b"", "something follows the end"
    return sent


def check_response(upstream: str, body: bytes, client: str) -> None:
    machine = ResponseTranslator(
        client=spec_of(client),
        upstream=UPSTREAMS[upstream],
        context=requested(client, streams=False),
        upstream_streams=False,
    )
    machine.receive_data(body)
    machine.receive_eof()
    sent = machine.data_to_send()
    if machine.outcome is Outcome.COMPLETED:
        assert as_object(sent) is not None
    else:
        assert (machine.outcome, sent) == (Outcome.FAILED, b"")
        assert machine.error is not None


@pytest.mark.promise("R3")
@fuzz(mutated_streams(streams()), clients, cut_places, examples=60)
def test_mutated_streams(drawn: tuple[str, bytes], client: str, places: list[int]) -> None:
    check(*drawn, client, places)


@fuzz(mutated_json(WHOLE), clients, examples=80)
def test_mutated_whole_responses(drawn: tuple[str, bytes], client: str) -> None:
    check_response(*drawn, client)
