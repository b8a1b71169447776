"""ResponseMachine: what a caller may do with any response, whichever class reads it."""

import pytest
from core.events import ERROR
from core.toy_protocol import HEARTBEAT, context_of, events_of, toy

from dragoman import FanOut, Relay, ResponseMachine, ResponseTranslator, Usage
from dragoman._engine.response_machine import Outcome
from dragoman._ir.events import Failed
from dragoman._wire.errors import ErrorKind, WireError

TOY = toy()


def machines() -> list[ResponseMachine]:
    """The type of this list is the test of mypy."""
    context = context_of()
    return [
        ResponseTranslator(client=TOY, upstream=TOY, context=context),
        Relay(protocol=TOY, context=context),
        FanOut(client=TOY, upstream=TOY, context=context, count=2),
    ]


def test_an_open_response(subtests: pytest.Subtests) -> None:
    for machine in machines():
        with subtests.test(machine=repr(machine)):
            assert (machine.outcome, machine.error, machine.usage) == (Outcome.OPEN, None, Usage())
            assert (machine.stop_reason, machine.upstream_model, machine.upstream_id) == (None, None, None)
            assert (machine.committed, len(machine.losses)) == (False, 0)
            assert (machine.data_to_send(), machine.heartbeat()) == (b"", HEARTBEAT)
            assert (machine.whole_body(), machine.cached_reasoning()) == (None, None)


def test_a_failure_ends_it_once(subtests: pytest.Subtests) -> None:
    for machine in machines():
        with subtests.test(machine=repr(machine)):
            machine.fail(ERROR)
            assert (machine.outcome, machine.error) == (Outcome.FAILED, ERROR)
            assert events_of(machine.data_to_send()) == [Failed(ERROR)]
            machine.fail(WireError(ErrorKind.TIMEOUT, "too late"))
            machine.receive_eof()
            assert (machine.error, machine.data_to_send(), machine.heartbeat()) == (ERROR, b"", b"")


def test_a_response_that_never_came_is_an_error(subtests: pytest.Subtests) -> None:
    for machine in machines():
        with subtests.test(machine=repr(machine)):
            machine.receive_eof()
            assert machine.error.kind is ErrorKind.TRUNCATED
