"""Token counts and service tiers, read and written."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman._ir.events import Usage
from dragoman._ir.losses import Ledger
from dragoman.protocols.anthropic_messages.usage import UsageReader, write_start_usage, write_usage

ITERATIONS = [
    {"type": "compaction", "input_tokens": 100, "output_tokens": 30, "cache_read_input_tokens": 4},
    {"type": "message", "input_tokens": 10, "output_tokens": 3, "cache_read_input_tokens": 1},
    "odd",
]


@pytest.mark.parametrize(
    ("start", "later", "usages"),
    [
        pytest.param(
            {
                "input_tokens": 3,
                "cache_read_input_tokens": 5,
                "cache_creation_input_tokens": 7,
                "output_tokens": 1,
            },
            {"output_tokens": 9},
            [Usage(15, 1, 5, 7), Usage(15, 9, 5, 7)],
            id="cache counts in",
        ),
        pytest.param(
            {"input_tokens": 1000, "output_tokens": 0},
            {
                "input_tokens": 100,
                "cache_read_input_tokens": 900,
                "cache_creation_input_tokens": None,
                "output_tokens": 4,
            },
            [Usage(1000, 0), Usage(1000, 4, 900)],
            id="D3 later figures replace",
        ),
        pytest.param(
            {"input_tokens": None, "output_tokens": -1},
            {
                "output_tokens": 2,
                "output_tokens_details": {"thinking_tokens": 1},
                "server_tool_use": {"web_search_requests": 1},
            },
            [Usage(), Usage(output=2, reasoning=1, searches=1)],
            id="unknown figures, reasoning, searches",
        ),
        pytest.param(
            {
                "input_tokens": 1,
                "cache_creation": {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 0},
                "inference_geo": "eu",
                "speed": "standard",
                "server_tool_use": {"web_search_requests": 0, "web_fetch_requests": 0},
            },
            {
                "output_tokens": 2,
                "cache_creation": {"ephemeral_5m_input_tokens": 3, "ephemeral_1h_input_tokens": 0},
                "server_tool_use": {"web_search_requests": 2, "web_fetch_requests": 1},
            },
            [
                Usage(1, searches=0),
                Usage(
                    1,
                    2,
                    extra={
                        "cache_creation": {"ephemeral_5m_input_tokens": 3, "ephemeral_1h_input_tokens": 0}
                    },
                    searches=2,
                ),
            ],
            id="cache writes, if any",
        ),
        pytest.param(
            {"input_tokens": 9, "output_tokens": 0},
            {"input_tokens": 2, "output_tokens": 3, "cache_read_input_tokens": 1, "iterations": ITERATIONS},
            [Usage(9, 0), Usage(115, 33, 5)],
            id="the sum over all iterations",
        ),
        pytest.param(
            {"input_tokens": 9, "output_tokens": 0},
            {"output_tokens": 3, "iterations": "odd"},
            [Usage(9, 0), Usage(9, 3)],
            id="iterations that cannot be read",
        ),
    ],
)
def test_usage_of_messages_streams(start: Any, later: Any, usages: list[Usage]) -> None:
    reader = UsageReader(Ledger())
    assert [reader.read(start), reader.read(later)] == usages


@pytest.mark.parametrize(
    ("counted", "extra"),
    [
        ({"web_search_requests": 1, "web_fetch_requests": 2}, {"server_tool_use": {"web_fetch_requests": 2}}),
        ({"web_search_requests": 1}, {}),
    ],
)
def test_all_counters_reach_clients_of_the_protocol(counted: Any, extra: Any) -> None:
    ledger = Ledger()
    reader = UsageReader(ledger, same_protocol=True)
    usage = reader.read({"input_tokens": 3, "output_tokens": 4, "server_tool_use": counted, "new": 5})
    assert (usage.searches, usage.extra) == (1, {**extra, "new": 5})
    assert list(ledger) == []


@pytest.mark.parametrize(
    ("usage", "written", "losses"),
    [
        (Usage(), (0, 0, 0, 0), []),
        (Usage(input=3, output=1, cached=9), (0, 0, 9, 1), []),
        (
            Usage(input=3, output=1, extra={"audio_tokens": 1, "speed": "fast"}),
            (3, 0, 0, 1),
            ["/usage/audio_tokens"],
        ),
    ],
)
def test_write_usage(usage: Usage, written: Any, losses: list[str]) -> None:
    ledger = Ledger()
    figures = write_usage(usage, ledger)
    names = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "output_tokens")
    assert tuple(figures[name] for name in names) == written
    assert figures.get("speed") == (usage.extra or {}).get("speed")
    assert [loss.path for loss in ledger] == losses


@pytest.mark.parametrize(
    ("usage", "written"),
    [
        (Usage(), None),
        (Usage(searches=2), {"web_search_requests": 2, "web_fetch_requests": 0}),
        (
            Usage(searches=2, extra={"server_tool_use": {"web_fetch_requests": 1, "odd": 3}}),
            {"web_search_requests": 2, "web_fetch_requests": 1, "odd": 3},
        ),
    ],
)
def test_calls_of_server_tools_are_counted(usage: Usage, written: Any) -> None:
    """Both counters are required if there is one."""
    assert write_usage(usage, Ledger())["server_tool_use"] == written


@pytest.mark.parametrize(("tier", "losses"), [("scale", ["/service_tier"]), ("auto", []), (None, [])])
def test_a_tier_without_a_name_in_this_protocol(tier: str | None, losses: list[str]) -> None:
    ledger = Ledger()
    assert write_start_usage(1, tier, ledger)["service_tier"] is None
    assert [loss.path for loss in ledger] == losses
