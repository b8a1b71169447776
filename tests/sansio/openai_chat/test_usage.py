"""Token counts: read from the forms of all kinds of servers, written in the official one."""

from __future__ import annotations

from typing import Any

import pytest
from chat_client import response, whole

from dragoman._ir.events import Usage


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
