"""Check what a server sends against the rules of its protocol: streams, whole responses and errors.

An independent judge: it imports no reader and no writer, and its rules are written from the vendors' documents. What
the gateway sends has no findings; a finding about somebody else's server has the rule, the byte, and what to do.

>>> from dragoman import lint
>>> for finding in lint.check_stream("openai_chat", b'data: {"choices":[]}\\n\\ndata: [DONE]\\n\\n').findings[2:4]:
...     print(finding)
byte 6, event 0 /model: warning chat-tolerated: model is absent
byte 6, event 0 /object: error chat-required: object is absent
"""

from __future__ import annotations

from collections.abc import Callable

from dragoman._wire.json import JSONObject
from dragoman.lint import chat, gemini, messages, responses
from dragoman.lint.framing import in_array, read_frames
from dragoman.lint.report import MAX_FINDINGS, LintFinding, Report, byte_offset
from dragoman.lint.rules import RULES, Rule, RuleSeverity

__all__ = [
    "MAX_FINDINGS",
    "PROTOCOLS",
    "RULES",
    "LintFinding",
    "Report",
    "Rule",
    "RuleSeverity",
    "byte_offset",
    "check_error",
    "check_stream",
    "check_whole",
]

_WHOLE: dict[str, Callable[[JSONObject, Report], None]] = {
    "openai_chat": chat.check_whole,
    "anthropic_messages": messages.check_whole,
    "openai_responses": responses.check_whole,
    "gemini": gemini.check_whole,
}

# The names of the protocols that have rules.
PROTOCOLS = tuple(_WHOLE)


def check_stream(
    protocol: str, stream: bytes, *, usage_requested: bool | None = None, call_forced: bool = False
) -> Report:
    """Check a whole stream of server-sent events, or of elements of a JSON array where the protocol has them.

    Args:
        protocol: one of PROTOCOLS.
        stream: all of its bytes.
        usage_requested: a Chat request has `stream_options.include_usage`; None if that is unknown.
        call_forced: the `tool_choice` of a Chat request names a function.
    """
    report = Report()
    checks: chat.ChatStream | messages.MessagesStream | responses.ResponsesStream | gemini.GeminiStream
    if protocol == "openai_chat":
        checks = chat.ChatStream(report, usage_requested=usage_requested, call_forced=call_forced)
    elif protocol == "anthropic_messages":
        checks = messages.MessagesStream(report)
    elif protocol == "gemini":
        checks = gemini.GeminiStream(report)
        if not in_array(stream):
            checks.read_bytes(stream)
    else:
        checks = responses.ResponsesStream(report)
    for frame in read_frames(stream, report, crlf=protocol == "gemini"):
        report.enter(frame.data, frame.data_offset, frame.number)
        checks.read(frame)
    report.enter("", len(stream))
    checks.close()
    return report


def check_whole(protocol: str, body: bytes, *, call_forced: bool = False) -> Report:
    """Check a whole response. The arguments are check_stream()'s."""
    report, value = _read(body)
    if value is None:
        return report
    if protocol == "openai_chat":
        chat.check_whole(value, report, call_forced=call_forced)
    else:
        _WHOLE[protocol](value, report)
    return report


def check_error(protocol: str, status: int, body: bytes) -> Report:
    """Check the body of an error response with an HTTP status. protocol: one of PROTOCOLS."""
    report, value = _read(body)
    if not 400 <= status <= 599:
        report.add("http-status", f"{status} is not the status of an error")
    if value is None:
        return report
    if protocol == "anthropic_messages":
        messages.check_error(value, report, status)
    elif protocol == "gemini":
        gemini.check_error(value, report, status)
    else:
        chat.check_error(value, report, "chat" if protocol == "openai_chat" else "responses")
    return report


def _read(body: bytes) -> tuple[Report, JSONObject | None]:
    """Return the object that a body is, None for another one, and a report of that."""
    report = Report()
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        report.at_byte("json-syntax", error.start, "not UTF-8")
        return report, None
    report.enter(text)
    return report, report.read_object()
