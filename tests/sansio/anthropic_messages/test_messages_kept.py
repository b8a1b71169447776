"""What a body says beyond what the document and the events hold is kept beside them, or entered as a loss."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman._ir.events import Started, Usage
from dragoman._ir.losses import Ledger
from dragoman._ir.request import Request, Thought
from dragoman._ir.signatures import Sealer
from dragoman._wire.json import encode
from dragoman._wire.sse import Frame
from dragoman.codec import Exchange
from dragoman.protocols.anthropic_messages import SPEC

EXCHANGE = Exchange(Request("other", "m", (), {}), "x1", 1, "alias")


def parts_of(*blocks: Any) -> tuple[Any, ...]:
    body = {"model": "m", "max_tokens": 9, "messages": [{"role": "assistant", "content": list(blocks)}]}
    return SPEC.read_request(body, Sealer()).messages[0].parts


def test_an_unsigned_thought_keeps_its_other_fields() -> None:
    mark = {"type": "ephemeral"}
    [found] = parts_of({"type": "thinking", "thinking": "a", "x": 1, "cache_control": mark})
    assert found == Thought("a", None, extra={"cache_control": mark, "x": 1}, path="/messages/0/content/0")


def test_a_cache_mark_of_another_type_is_kept() -> None:
    [found] = parts_of({"type": "text", "text": "a", "cache_control": {"type": "odd"}})
    assert found.extra == {"cache_control": {"type": "odd"}}


MESSAGE = {"id": "i", "type": "message", "role": "assistant", "model": "m", "content": []}
START = {"type": "message_start", "message": MESSAGE}


def opened(block: Any, **fields: Any) -> dict[str, Any]:
    return {"type": "content_block_start", "index": 0, "content_block": block, **fields}


def delta(fields: Any, **more: Any) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": 0, "delta": fields, **more}


def stop(**fields: Any) -> dict[str, Any]:
    return {"type": "message_delta", "delta": {"stop_reason": "end_turn", **fields}}


TEXT = {"type": "text", "text": ""}
A = {"type": "text_delta", "text": "a"}


@pytest.mark.parametrize(
    ("events", "losses"),
    [
        ([{**START, "x": 1}], [("unknown_field", "/x")]),
        (
            [{**START, "message": {**MESSAGE, "usage": {"service_tier": "odd"}}}],
            [("dropped", "/usage/service_tier")],
        ),
        (
            [START, opened({**TEXT, "x": 1}, y=1)],
            [("unknown_field", "/content/0/y"), ("unknown_field", "/content/0/x")],
        ),
        (
            [START, opened(TEXT), delta(A), delta({**A, "x": 1}, y=1)],
            [("unknown_field", "/content/0/y"), ("unknown_field", "/content/0/x")],
        ),
        (
            [START, opened(TEXT), {"type": "content_block_stop", "index": 0, "x": 1}],
            [("unknown_field", "/content/0/x")],
        ),
        ([START, stop(), {"type": "message_stop", "x": 1}], [("unknown_field", "/x")]),
        # A block that travels whole keeps what its deltas bring.
        ([START, opened({"type": "odd"}), delta({"type": "odd_delta", "x": 1})], []),
        (
            [START, stop(stop_details={"type": "refusal", "category": "bio"})],
            [("dropped", "/stop_details/category")],
        ),
        (
            [START, {**stop(), "usage": {"output_tokens_details": {"thinking_tokens": 1, "x": 1}}}],
            [("unknown_field", "/usage/output_tokens_details/x")],
        ),
    ],
)
def test_events_that_say_more(events: Any, losses: Any) -> None:
    ledger = Ledger()
    reader = SPEC.stream_reader(EXCHANGE, ledger)
    for event in events:
        reader.read(Frame(b"", encode(event)))
    assert [(loss.code.value, loss.path) for loss in ledger] == losses


@pytest.mark.parametrize(
    ("counted", "extra"),
    [
        ({"web_search_requests": 1, "web_fetch_requests": 2}, {"server_tool_use": {"web_fetch_requests": 2}}),
        ({"web_search_requests": 1}, {}),
    ],
)
def test_all_counters_reach_clients_of_the_protocol(counted: Any, extra: Any) -> None:
    exchange = Exchange(Request("anthropic_messages", "m", (), {}), "x1", 1, "alias")
    usage = {"input_tokens": 3, "output_tokens": 4, "server_tool_use": counted, "new": 5}
    ledger = Ledger()
    body = {**MESSAGE, "usage": usage, "stop_reason": "end_turn"}
    [told] = [each for each in SPEC.read_whole(body, exchange, ledger) if isinstance(each, Usage)]
    assert (told.searches, told.extra) == (1, {**extra, "new": 5})
    assert list(ledger) == []


@pytest.mark.parametrize(
    ("client", "losses"),
    [
        ("anthropic_messages", [("unknown_field", "/content/0/x")]),
        ("another", []),  # it travels with the seal
    ],
)
def test_thinking_that_says_more(client: str, losses: Any) -> None:
    ledger = Ledger()
    exchange = Exchange(Request(client, "m", (), {}), "x1", 1, "alias")
    thinking = {"type": "thinking", "thinking": "so", "signature": "s", "x": 1}
    SPEC.read_whole({**MESSAGE, "content": [thinking], "stop_reason": "end_turn"}, exchange, ledger)
    assert [(loss.code.value, loss.path) for loss in ledger] == losses


@pytest.mark.parametrize(("tier", "losses"), [("scale", ["/service_tier"]), ("auto", []), (None, [])])
def test_a_service_tier_without_a_word_for_it(tier: str | None, losses: list[str]) -> None:
    ledger = Ledger()
    SPEC.stream_writer(EXCHANGE, ledger).send(Started("i", "m", service_tier=tier))
    assert [loss.path for loss in ledger] == losses
