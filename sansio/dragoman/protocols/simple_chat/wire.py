"""The JSON of the simple API: what its clients send, as far as it is defined."""

# No `from __future__ import annotations` here: TypedDict compiles each string annotation at import.
from typing import TypedDict


class SimpleMessage(TypedDict):
    role: str
    content: str


class SimpleRequest(TypedDict, total=False):
    """model may be left out; then the server has a default."""

    model: str
    messages: list[SimpleMessage]
    temperature: float


KNOWN_BODY = frozenset(SimpleRequest.__annotations__)
KNOWN_MESSAGE = frozenset(SimpleMessage.__annotations__)
