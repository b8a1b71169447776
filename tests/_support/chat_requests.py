"""Requests for a Chat upstream, as its writer makes them, and parts of them for the tests."""

from typing import Any

from core.passes import fit_and_write

from dragoman._ir.losses import Ledger
from dragoman._ir.request import Request
from dragoman.protocols.openai_chat import SPEC
from dragoman.protocols.openai_chat.capabilities import ChatCapabilities as Capabilities

Losses = list[tuple[str, str]]


def write_request(request: Request, capabilities: Capabilities) -> tuple[dict[str, Any], Losses]:
    """Return the body, and the losses as (code, path)."""
    ledger = Ledger()
    body = fit_and_write(SPEC, request, capabilities, ledger)
    return body, [(loss.code.value, loss.path) for loss in ledger]


def wire_call(call_id: str, **fields: Any) -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": "f", "arguments": "{}"}, **fields}
