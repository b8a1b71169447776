"""Requests for a Responses upstream, as its writer makes them."""

from __future__ import annotations

from typing import Any

from core.passes import fit_and_write

from dragoman._ir.losses import Ledger, LossCode
from dragoman._ir.request import Message, Request
from dragoman._wire.json import decode, encode
from dragoman.protocols.openai_responses import SPEC
from dragoman.protocols.openai_responses.capabilities import ResponsesCapabilities as Capabilities


def write(
    *messages: Message,
    protocol: str = "openai_chat",
    capabilities: Capabilities = Capabilities(),
    **fields: Any,
) -> tuple[dict[str, Any], list[tuple[LossCode, str]]]:
    """Return the body for a request that came in a protocol, and the losses as (code, path)."""
    ledger = Ledger()
    body = fit_and_write(SPEC, Request(protocol, "m", messages, **fields), capabilities, ledger)
    assert decode(encode(body)) == body
    return body, [(loss.code, loss.path) for loss in ledger]


def message(role: Any, *parts: Any, **fields: Any) -> Message:
    return Message(role, parts, "/messages/0", **fields)
