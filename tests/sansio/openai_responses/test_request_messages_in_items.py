"""Members of input items that no other protocol can have, beyond those that are rows of request_in.txt."""

from typing import Any

import pytest
from core.passes import pass_context
from core.same_protocol import read_same_protocol

from dragoman._ir.losses import Ledger
from dragoman._transforms.extensions import strip_extensions
from dragoman.protocols.openai_responses import SPEC

SCHEMA = {"type": "json_schema", "name": "n", "schema": {"type": "object"}}
UPDATE = {"type": "configuration_update", "reasoning": {"effort": "low"}, "text": {"format": SCHEMA}}


@pytest.mark.parametrize(("body", "item", "losses"), [
    ({"reasoning": {"effort": "low"}}, UPDATE, []),
    ({"reasoning": {"effort": "high"}}, UPDATE, ["/reasoning/effort"]),
    ({"reasoning": {"summary": "auto"}}, UPDATE, []),
    ({"text": {"format": SCHEMA}}, UPDATE, []),
    ({"text": {"format": {"type": "text"}}}, UPDATE, []),
    ({"text": {"format": {"type": "json_object", "x": 1}}}, UPDATE, ["/text/format/type", "/text/format/x"]),
    ({"text": {"format": SCHEMA}}, {**UPDATE, "text": {"format": {"type": "text"}}}, ["/text/format"]),
    ({}, {**UPDATE, "x": 1}, ["/input/0/x"]),
    ({}, {**UPDATE, "reasoning": {"effort": "low", "x": 1}}, ["/input/0/reasoning/x"]),
    ({}, {**UPDATE, "text": "odd"}, ["/input/0/text"]),
    ({}, {"type": "configuration_update", "reasoning": None, "text": {}}, []),
    ({}, {"type": "compaction_trigger", "x": 1}, ["/input/0/x"]),
    ({}, {"type": "additional_tools", "role": "developer"}, []),
])  # fmt: skip
def test_replaced_settings_and_unknown_members_are_losses(body: Any, item: Any, losses: list[str]) -> None:
    ledger = Ledger()
    request = read_same_protocol(SPEC, {"model": "m", "input": [item], **body})
    strip_extensions(request, pass_context(request, ledger, client=SPEC))
    assert [loss.path for loss in ledger] == losses
