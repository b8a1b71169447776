"""Responses with values of wrong types never raise: they are read, or end as an error in the client's form.

The clients take turns, so that each of them gets some of the wrong values of every member.
"""

import copy
import json
from itertools import cycle
from typing import Any

import pytest
from laws.fixtures import WHOLE_RESPONSES

from dragoman import PROTOCOLS, UPSTREAMS, Outcome, Relay, ResponseTranslator
from dragoman.codec import ResponseContext
from dragoman.document import Request

ODD: tuple[Any, ...] = (None, True, -1, 1.5, "", [], {}, [{}], ["x"], {"type": {}})


def variants(value: Any) -> Any:
    """The value with each of its members replaced, one at a time, by something of another type."""
    members = (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    )
    for key, member in list(members):
        for odd in ODD:
            changed = copy.copy(value)
            changed[key] = odd
            yield changed
        for inner in variants(member):
            changed = copy.copy(value)
            changed[key] = inner
            yield changed


def context(client: str) -> ResponseContext:
    request = Request(client, "m", (), {"model": "m", "input": "hi"}, stream=True)
    return ResponseContext(request, "abc", 1, "m")


@pytest.mark.parametrize("protocol", UPSTREAMS)
def test_whole_responses(protocol: str) -> None:
    clients = cycle(PROTOCOLS)
    for response in WHOLE_RESPONSES[protocol].values():
        for changed in variants(response):
            client = next(clients)
            body = json.dumps(changed).encode()
            machine = ResponseTranslator(
                client=PROTOCOLS[client],
                upstream=PROTOCOLS[protocol],
                context=context(client),
                upstream_streams=False,
            )
            machine.receive_data(body)
            machine.receive_eof()
            assert machine.outcome is not Outcome.OPEN
            assert machine.data_to_send()
            relay = Relay(protocol=PROTOCOLS[protocol], context=context(protocol), streams=False)
            relay.receive_data(body)
            relay.receive_eof()
            assert relay.data_to_send() == body
