"""The event set: frozen, slotted, complete at birth."""

import gc

import pytest
from core_events import SAMPLES
from dragoman._events import Event, Usage


@pytest.mark.parametrize("event", SAMPLES.values(), ids=lambda event: type(event).__name__)
def test_frozen_and_light(event: Event) -> None:
    for name in event.__struct_fields__:
        with pytest.raises(AttributeError):
            setattr(event, name, None)
    assert not hasattr(event, "__dict__")


def test_the_commonest_events_are_not_tracked_by_the_collector() -> None:
    for event in SAMPLES.values():
        if not {"native", "seal", "fault", "tokens"} & set(event.__struct_fields__):
            assert not gc.is_tracked(event)


@pytest.mark.parametrize(
    ("before", "later", "after"),
    [
        (Usage(), Usage(), Usage()),
        (Usage(input=1, output=2), Usage(), Usage(input=1, output=2)),
        (Usage(input=1, output=2), Usage(output=5), Usage(input=1, output=5)),
        (Usage(input=7), Usage(input=0), Usage(input=0)),
        (Usage(1, 2, 3, 4, 5), Usage(6, 7, 8, 9, 10), Usage(6, 7, 8, 9, 10)),
        (Usage(extra={"a": 1, "b": 1}), Usage(extra={"b": 2}), Usage(extra={"a": 1, "b": 2})),
        (Usage(), Usage(extra={"b": 2}), Usage(extra={"b": 2})),
        (Usage(extra={"a": 1}), Usage(), Usage(extra={"a": 1})),
    ],
)
def test_usage_replaces_field_by_field(before: Usage, later: Usage, after: Usage) -> None:
    assert before.updated(later) == after
