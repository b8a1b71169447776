"""Several responses put together as the choices of one: see branches.txt as well."""

import pytest
from core.events import ERROR, STARTED
from core.toy_protocol import context_of, events_of, stream_of, toy

from dragoman._engine.fan_out import FanOut
from dragoman._ir.events import Failed


def test_nothing_is_accepted_after_a_failure() -> None:
    machine = FanOut(client=toy("client"), upstream=toy("upstream"), context=context_of(), count=2)
    for number, events in enumerate(([STARTED, Failed(ERROR)], [STARTED])):
        machine.start(number, upstream_streams=True).receive_data(stream_of(events))
    machine.merge()
    assert events_of(machine.data_to_send()) == [STARTED, Failed(ERROR)]


def test_there_is_at_least_one_response() -> None:
    with pytest.raises(ValueError, match="count is 0"):
        FanOut(client=toy("client"), upstream=toy("upstream"), context=context_of(), count=0)
