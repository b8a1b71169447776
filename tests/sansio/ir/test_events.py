"""The event set: frozen, slotted, complete at birth."""

import gc

import pytest
from core.events import SAMPLES

from dragoman._ir.events import Annotation, Usage


def test_events_are_frozen_and_slotted(subtests: pytest.Subtests) -> None:
    for event in SAMPLES.values():
        with subtests.test(event=event):
            for name in event.__struct_fields__:
                with pytest.raises(AttributeError):
                    setattr(event, name, None)
            assert not hasattr(event, "__dict__")


def test_the_commonest_events_are_not_tracked_by_the_collector() -> None:
    for event in SAMPLES.values():
        if not {"native", "signature", "fault", "tokens"} & set(event.__struct_fields__):
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
        (Usage(service_tier="flex"), Usage(), Usage(service_tier="flex")),
        (Usage(service_tier="auto"), Usage(service_tier="flex"), Usage(service_tier="flex")),
    ],
)
def test_usage_replaces_field_by_field(before: Usage, later: Usage, after: Usage) -> None:
    assert before.updated(later) == after


@pytest.mark.parametrize(
    ("reported", "shown"),
    [
        (Usage(), Usage()),
        (Usage(9, 9, 4, 5, 9, {"a": 1}, 1, "flex"), Usage(9, 9, 4, 5, 9, {"a": 1}, 1, "flex")),
        (Usage(output=5, reasoning=9), Usage(output=5, reasoning=5)),
        (Usage(input=5, cached=9), Usage(input=5, cached=5)),
        (Usage(input=5, cached=3, cache_write=9), Usage(input=5, cached=3, cache_write=2)),
        (Usage(input=5, cache_write=9), Usage(input=5, cache_write=5)),
        (Usage(input=0, cached=9, cache_write=9), Usage(input=0, cached=0, cache_write=0)),
        (Usage(cached=9, cache_write=9, reasoning=9), Usage(cached=9, cache_write=9, reasoning=9)),
    ],
)
def test_no_part_is_larger_than_its_whole(reported: Usage, shown: Usage) -> None:
    assert reported.consistent() == shown
    assert shown.consistent() == shown


@pytest.mark.parametrize(
    ("one", "other", "both"),
    [
        (Usage(), Usage(), Usage()),
        (Usage(1, 2, 3, 4, 5, {"a": 1}, 6), Usage(), Usage(1, 2, 3, 4, 5, {"a": 1}, 6)),
        (
            Usage(1, 2, 3, 4, 5, {"a": 1}, 6, "flex"),
            Usage(1, 1, 1, 1, 1, {"b": 2}, 1),
            Usage(2, 3, 4, 5, 6, {"a": 1, "b": 2}, 7, "flex"),
        ),
    ],
)
def test_usage_of_two_responses(one: Usage, other: Usage, both: Usage) -> None:
    assert one.plus(other) == both
    assert other.plus(one) == both


@pytest.mark.parametrize(
    ("native", "more"),
    [
        ({"type": "url_citation", "url": "u", "title": "t", "start_index": 1, "end_index": 9}, False),
        ({"type": "url_citation", "url_citation": {"url": "u", "title": None}}, False),
        ({}, False),
        ({"url": "u", "cited_text": "words"}, True),
        ({"url": "another"}, True),
        ({"url": "u", "nested": {"index": 4}}, True),
        ({"url": "u", "list": []}, True),
        ({"url": "u", "flag": False}, True),
    ],
)
def test_which_annotations_are_more_than_a_link(native: dict[str, object], more: bool) -> None:
    assert Annotation(0, "toy", native, "u", "t", 1, 9).has_unmapped_fields() is more


def test_the_part_of_written_tokens_that_is_kept_for_an_hour() -> None:
    for extra, found in (
        (None, None),
        ({}, None),
        ({"cache_creation": 5}, None),
        ({"cache_creation": {"ephemeral_5m_input_tokens": 3}}, None),
        ({"cache_creation": {"ephemeral_1h_input_tokens": 7}}, 7),
        ({"cache_creation": {"ephemeral_1h_input_tokens": -7}}, None),
        ({"cache_creation": {"ephemeral_1h_input_tokens": "7"}}, 7),  # stands for one
    ):
        assert Usage(extra=extra).cache_write_1h == found, extra
