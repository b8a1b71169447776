"""Token counts: read from the forms of all kinds of servers, written in the official one."""

from __future__ import annotations

from typing import Any

import pytest
from chat_client import response, whole
from chat_upstream import DONE, SOME, USAGE, chunk, delta, events

from dragoman._ir.events import (
    Usage,
)
from dragoman._ir.losses import Ledger

READ_USAGE: list[tuple[dict[str, Any], Usage | None]] = [
    ({"usage": USAGE}, Usage(5, 2)),
    ({"usage": {"prompt_tokens": 5.0, "completion_tokens": True, "total_tokens": "x"}}, Usage(5)),
    ({"usage": {"prompt_tokens": -1, "completion_tokens": 0.5}}, Usage()),
    ({"usage": None}, None),
    ({"x_groq": {"usage": USAGE}}, Usage(5, 2)),
    (
        {
            "usage": {
                **USAGE,
                "prompt_tokens_details": {"cached_tokens": 3, "cache_write_tokens": 1, "audio_tokens": 0},
                "completion_tokens_details": {"reasoning_tokens": 1, "audio_tokens": 4},
            }
        },
        Usage(5, 2, 3, 1, 1, {"completion_tokens_details": {"audio_tokens": 4}}),
    ),
    ({"usage": {**USAGE, "prompt_cache_hit_tokens": 4, "prompt_cache_miss_tokens": 1}}, Usage(5, 2, 4)),
    (
        {"usage": {**USAGE, "cache_read_input_tokens": 4, "cache_creation_input_tokens": 1, "cost": 1}},
        Usage(5, 2, 4, 1),
    ),
    # Reasoning that completion_tokens does not include, as the total shows.
    (
        {"usage": {**USAGE, "total_tokens": 10, "completion_tokens_details": {"reasoning_tokens": 3}}},
        Usage(5, 5, reasoning=3),
    ),
    ({"usage": {**USAGE, "reasoning_tokens": 1}}, Usage(5, 2, reasoning=1)),
]


def test_read_usage(subtests: pytest.Subtests) -> None:
    for fields, expected in READ_USAGE:
        with subtests.test(fields=fields):
            for stream in (
                SOME + chunk(delta(finish="stop")) + chunk(**fields) + DONE,
                SOME + chunk(delta(finish="stop"), **fields) + DONE,
            ):
                assert next((event for event in events(stream) if isinstance(event, Usage)), None) == expected


def test_usage_in_every_chunk_counts_once_and_may_be_in_a_choice() -> None:
    stream = (
        SOME
        + chunk(delta(content="y"), usage={"prompt_tokens": 5})
        + chunk(delta(finish="stop"), usage=USAGE)
    )
    assert [event for event in events(stream) if isinstance(event, Usage)] == [Usage(5, 2)]
    stream = SOME + chunk({**delta(finish="stop"), "usage": USAGE}) + DONE
    assert [event for event in events(stream) if isinstance(event, Usage)] == [Usage(5, 2)]


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        (Usage(3), {"prompt_tokens": 3, "completion_tokens": 0, "total_tokens": 3}),
        (Usage(None, 3), {"prompt_tokens": 0, "completion_tokens": 3, "total_tokens": 3}),
        (Usage(1, 2, cache_write=1), {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}),
    ],
)
def test_unknown_counts_are_zero(usage: Usage, expected: Any) -> None:
    body = whole(response(usage))["usage"]
    assert {key: body[key] for key in expected} == expected
    assert body["prompt_tokens_details"].get("cache_write_tokens") == usage.cache_write


def test_native_counters_are_written() -> None:
    extra = {"completion_tokens_details": {"audio_tokens": 4}, "prompt_tokens_details": 5}
    body = whole(response(Usage(1, 2, extra=extra)))["usage"]
    assert body["completion_tokens_details"] == {"reasoning_tokens": 0, "audio_tokens": 4}


def test_searches_are_counted_as_openrouter_does() -> None:
    details = {"web_search_requests": 3}
    stream = SOME + chunk(delta(finish="stop"), usage={**USAGE, "server_tool_use_details": details}) + DONE
    ledger = Ledger()
    found = events(stream, ledger=ledger)
    assert [event for event in found if isinstance(event, Usage)] == [Usage(5, 2, searches=3)]
    assert len(ledger) == 0
    assert whole(response(Usage(1, 2, searches=3)))["usage"]["server_tool_use_details"] == details
