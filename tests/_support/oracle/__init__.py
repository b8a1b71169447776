"""An oracle for what a gateway sends to its clients.

Types come from the official SDKs, order from `dragoman.lint`, and meaning from the product's readers (`meaning.py`).
Every function returns problems as strings `where: what`; an empty list is a pass. Protocols go by name: "openai_chat",
"anthropic_messages", "openai_responses", "gemini".
"""

from dragoman import lint
from oracle.compare import compare
from oracle.errors import ErrorResponse, check_error, compare_error, read_error
from oracle.frames import as_object, strict_frames
from oracle.meaning import Block, Kind, Meaning, Stop, meaning_of_stream, meaning_of_whole
from oracle.types import (
    CHAT,
    GEMINI,
    MESSAGES,
    PROTOCOL_NAMES,
    RESPONSES,
    SIMPLE_EVENTS,
    check_body,
    check_event,
    check_models_body,
)

__all__ = [
    "CHAT",
    "GEMINI",
    "MESSAGES",
    "PROTOCOL_NAMES",
    "RESPONSES",
    "SIMPLE_EVENTS",
    "Block",
    "ErrorResponse",
    "Kind",
    "Meaning",
    "Stop",
    "as_object",
    "check_error",
    "check_models",
    "check_stream",
    "check_whole",
    "compare",
    "compare_error",
    "meaning_of_stream",
    "meaning_of_whole",
    "read_error",
]


def check_stream(protocol: str, stream: bytes, *, include_usage: bool = False) -> list[str]:
    """Problems of a stream sent to a client: framing, types, order.

    `include_usage` is True for a Chat client that requested the usage chunk.
    """
    problems = [
        str(each) for each in lint.check_stream(protocol, stream, usage_requested=include_usage).findings
    ]
    for number, frame in enumerate(strict_frames(stream)[0]):
        if protocol != CHAT or frame.data != "[DONE]":
            problems += [f"frame {number}: {problem}" for problem in check_event(protocol, frame.data)]
    return problems


def check_whole(protocol: str, body: bytes) -> list[str]:
    """Problems of a whole response sent to a client."""
    return check_body(protocol, body) + [str(each) for each in lint.check_whole(protocol, body).findings]


def check_models(protocol: str, body: bytes) -> list[str]:
    """Problems of a model list sent to a client."""
    return check_models_body(protocol, body)
