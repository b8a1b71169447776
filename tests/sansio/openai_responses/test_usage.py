"""Usage of a Responses response, read and written."""

from __future__ import annotations

from typing import Any

import pytest
from responses_client import response_payloads

from dragoman._ir.events import Usage


def test_usage_that_never_came_is_all_zero() -> None:
    payloads = response_payloads(usage=())
    assert payloads[-1]["response"]["usage"] == {
        "input_tokens": 0,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": 0,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 0,
    }
    assert "tool_usage" not in payloads[-1]["response"]


def test_searches_are_in_tool_usage() -> None:
    [*_, last] = response_payloads(usage=(Usage(1, 2, searches=3),))
    assert last["response"]["tool_usage"]["web_search"] == {"num_requests": 3}
    assert set(last["response"]["tool_usage"]) == {"image_gen", "web_search"}


WRITES = {"ttl_30m_tokens": 6, "ttl_12h_tokens": 4}
EXTRAS: list[tuple[dict[str, Any], Any, tuple[str, ...]]] = [
    ({"input_tokens_details": {"cache_write_tokens_details": WRITES}}, WRITES, ()),
    ({"cache_creation": {"ephemeral_5m_input_tokens": 6, "ephemeral_1h_input_tokens": 4}}, WRITES, ()),
    ({"cache_creation": {"ephemeral_5m_input_tokens": 6}}, {"ttl_30m_tokens": 6, "ttl_12h_tokens": 0}, ()),
    ({"cache_creation": {"ephemeral_1d_input_tokens": 6}}, None, ("/usage/cache_creation",)),
    ({"input_tokens_details": {"odd": 1}}, None, ("/usage/input_tokens_details",)),
    ({"iterations": []}, None, ("/usage/iterations",)),
]


@pytest.mark.parametrize(("extra", "writes", "lost"), EXTRAS)
def test_cache_writes_by_lifetime(extra: Any, writes: Any, lost: tuple[str, ...]) -> None:
    [*_, last] = response_payloads(usage=(Usage(20, 2, cache_write=10, extra=extra),), lost=lost)
    assert last["response"]["usage"]["input_tokens_details"].get("cache_write_tokens_details") == writes


def test_usage_comes_in_pieces() -> None:
    payloads = response_payloads(usage=(Usage(input=10), Usage(output=2)))
    assert payloads[-1]["response"]["usage"]["total_tokens"] == 12
