"""Usage of a Responses response, read and written."""

from __future__ import annotations

from typing import Any

import pytest
from responses_client import response_payloads
from responses_upstream import created, ended, events_of

from dragoman._ir.events import Usage
from dragoman._ir.losses import Ledger

DETAILS = {"ttl_12h_tokens": 4, "ttl_30m_tokens": 6}
USAGES: list[tuple[Any, list[Usage]]] = [
    (None, []),
    (
        {"input_tokens": 10, "input_tokens_details": {"cache_write_tokens_details": DETAILS}},
        [Usage(10, extra={"input_tokens_details": {"cache_write_tokens_details": DETAILS}})],
    ),
    (
        {
            "input_tokens": 10,
            "input_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 2},
            "output_tokens": 5,
            "output_tokens_details": {"reasoning_tokens": 3},
            "total_tokens": 15,
            "cost": 0.1,
        },
        [Usage(10, 5, 4, 2, 3)],
    ),
    ({"input_tokens": "many", "output_tokens": 1, "input_tokens_details": None}, [Usage(None, 1)]),
]


@pytest.mark.parametrize(("usage", "expected"), USAGES)
def test_usage(usage: Any, expected: list[Usage]) -> None:
    assert events_of(created(), ended(usage=usage))[1:-2] == expected


NO_IMAGES = {"input_tokens": 0, "input_tokens_details": {"image_tokens": 0}, "total_tokens": 0}


@pytest.mark.parametrize(
    ("used", "usage", "losses"),
    [
        ({"web_search": {"num_requests": 2}, "image_gen": NO_IMAGES}, Usage(3, 2, searches=2), []),
        ({"web_search": {"num_requests": 0}}, Usage(3, 2, searches=0), []),
        ({"web_search": None, "image_gen": {**NO_IMAGES, "total_tokens": 1}}, Usage(3, 2), ["image_gen"]),
        ("odd", Usage(3, 2), []),
    ],
)
def test_usage_of_hosted_tools(used: Any, usage: Usage, losses: list[str]) -> None:
    ledger = Ledger()
    assert events_of(created(), ended(tool_usage=used), ledger=ledger)[1] == usage
    assert [loss.path for loss in ledger] == [f"/tool_usage/{name}" for name in losses]


def test_searches_count_without_other_figures() -> None:
    used = {"web_search": {"num_requests": 1}}
    assert events_of(created(), ended(usage=None, tool_usage=used))[1] == Usage(searches=1)


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
    (
        {"cache_creation": {"ephemeral_5m_input_tokens": 6}},
        {"ttl_30m_tokens": 6, "ttl_12h_tokens": 0},
        (),
    ),
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
