"""Thinking and effort for an upstream, and the settings that thinking forbids."""

from __future__ import annotations

from typing import Any

import pytest
from core.same_protocol import read_same_protocol

from dragoman._ir.losses import Ledger
from dragoman.protocols.anthropic_messages import SPEC
from dragoman.protocols.anthropic_messages.capabilities import MessagesCapabilities as Capabilities

LOOP = [
    {"role": "user", "content": "Hi"},
    {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "f", "input": {}}]},
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "r"}]},
]


@pytest.mark.parametrize(("messages", "has_thinking"), [(LOOP, False), (LOOP[:1], True)])
def test_a_budget_is_dropped_in_a_tool_loop_whose_reasoning_is_missing(
    messages: list[Any], has_thinking: bool
) -> None:
    """This applies to requests of this protocol, too, from which an earlier pass drops foreign signatures."""
    thinking = {"type": "enabled", "budget_tokens": 2000}
    body = {"model": "m", "max_tokens": 9000, "thinking": thinking, "messages": messages}
    ledger = Ledger()
    budget = Capabilities(thinking="budget")
    written = SPEC.write_request(read_same_protocol(SPEC, body), budget, ledger)
    assert ("thinking" in written) is has_thinking
    assert [loss.path for loss in ledger] == ([] if has_thinking else ["/thinking"])
