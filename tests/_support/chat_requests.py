"""Requests for a Chat upstream, as its writer makes them, and parts of them for the tests."""

from __future__ import annotations

from typing import Any

from core.passes import fit_and_write

from dragoman._ir.losses import Ledger
from dragoman._ir.request import Message, Part, Request
from dragoman.protocols.openai_chat import SPEC
from dragoman.protocols.openai_chat.capabilities import ChatCapabilities as Capabilities

Losses = list[tuple[str, str]]


def write_request(request: Request, capabilities: Capabilities) -> tuple[dict[str, Any], Losses]:
    """Return the body, and the losses as (code, path)."""
    ledger = Ledger()
    body = fit_and_write(SPEC, request, capabilities, ledger)
    return body, [(loss.code.value, loss.path) for loss in ledger]


def write(
    *messages: Message, capabilities: Capabilities = Capabilities(), **fields: Any
) -> tuple[dict[str, Any], Losses]:
    """Return the body for a request of another protocol, and the losses as (code, path)."""
    return write_request(Request("other", "m", messages, **fields), capabilities)


def messages_of(*messages: Message, capabilities: Capabilities = Capabilities()) -> tuple[list[Any], Losses]:
    body, losses = write(*messages, capabilities=capabilities)
    return body["messages"], losses


def user(*parts: Part) -> Message:
    return Message("user", parts, "/u")


def assistant(*parts: Part) -> Message:
    return Message("assistant", parts, "/a")


def text_part(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def wire_call(call_id: str, **fields: Any) -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": "f", "arguments": "{}"}, **fields}
