"""An oracle for what a gateway sends to its clients.

It shares no reader and no writer with the product: types come from the official SDKs, order from `dragoman.lint`,
meaning, with its own readers. Every function returns problems as strings `where: what`; an empty list is
a pass. Protocols go by name: "openai_chat", "anthropic_messages", "openai_responses", "gemini",
and for clients "simple_chat/chat/stream" and "simple_chat/chat/sse" as well.
"""

from dragoman import lint
from oracle import meaning_chat, meaning_gemini, meaning_messages, meaning_responses, simple
from oracle.compare import compare
from oracle.errors import ErrorResponse, check_error, compare_error, read_error
from oracle.frames import as_object, strict_frames
from oracle.meaning import Block, Kind, Meaning, Stop, Usage
from oracle.types import (
    CHAT,
    CLIENTS,
    GEMINI,
    MESSAGES,
    PROTOCOL_NAMES,
    RESPONSES,
    SIMPLE,
    SIMPLE_EVENTS,
    SIMPLE_LINES,
    check_body,
    check_event,
    check_models_body,
)

__all__ = [
    "CHAT",
    "CLIENTS",
    "GEMINI",
    "MESSAGES",
    "PROTOCOL_NAMES",
    "RESPONSES",
    "SIMPLE",
    "SIMPLE_EVENTS",
    "SIMPLE_LINES",
    "Block",
    "ErrorResponse",
    "Kind",
    "Meaning",
    "Stop",
    "Usage",
    "check_error",
    "check_models",
    "check_stream",
    "check_whole",
    "compare",
    "compare_error",
    "meaning_of_client_stream",
    "meaning_of_upstream",
    "meaning_of_whole",
    "read_error",
]

_READERS = {
    CHAT: meaning_chat,
    MESSAGES: meaning_messages,
    RESPONSES: meaning_responses,
    GEMINI: meaning_gemini,
    SIMPLE_LINES: simple,
    SIMPLE_EVENTS: simple,
}


def check_stream(protocol: str, stream: bytes, *, include_usage: bool = False) -> list[str]:
    """Problems of a stream sent to a client: framing, types, order.

    `include_usage` is True for a Chat client that requested the usage chunk.
    """
    if protocol in SIMPLE:
        return simple.check_lines(stream) if protocol == SIMPLE_LINES else simple.check_events(stream)
    problems = [
        str(each) for each in lint.check_stream(protocol, stream, usage_requested=include_usage).findings
    ]
    for number, frame in enumerate(strict_frames(stream)[0]):
        if protocol != CHAT or frame.data != "[DONE]":
            problems += [f"frame {number}: {problem}" for problem in check_event(protocol, frame.data)]
    return problems


def check_whole(protocol: str, body: bytes) -> list[str]:
    """Problems of a whole response sent to a client."""
    if protocol in SIMPLE:
        return simple.check_whole(body)
    return check_body(protocol, body) + [str(each) for each in lint.check_whole(protocol, body).findings]


def check_models(protocol: str, body: bytes) -> list[str]:
    """Problems of a model list sent to a client."""
    return check_models_body(protocol, body)


def meaning_of_upstream(protocol: str, stream: bytes) -> Meaning:
    """What a provider's recorded stream says, with all its oddities forgiven."""
    return _READERS[protocol].read_stream(stream)


def meaning_of_client_stream(protocol: str, stream: bytes) -> Meaning:
    """The bytes that a client receives from a stream. The reader forgives; judge the bytes with `check_stream` too."""
    return _READERS[protocol].read_stream(stream)


def meaning_of_whole(protocol: str, body: bytes) -> Meaning:
    """What a whole response says, an upstream's or ours."""
    payload = as_object(body)
    if payload is None:
        raise ValueError("a whole answer is one JSON object")
    return _READERS[protocol].read_whole(payload)
