"""Request -> the body for a Chat Completions upstream.

Strategy: the conversation is cut into assistant runs and everything between them, because Chat is the strictest
about turns: one assistant message holds all calls of a turn, its results follow it at once, and only then may
the user speak. Requests that came as Chat keep their fields, and unless they are mended for the upstream
(Target.relay), their message boundaries and words as well.
"""

from __future__ import annotations

from collections.abc import Sequence

from dragoman._ir.losses import Ledger
from dragoman._ir.request import Message, Request, ToolResult
from dragoman._wire.exceptions import RemoteProtocolError, dotted_path
from dragoman._wire.json import JSONObject
from dragoman.codec import Capabilities
from dragoman.protocols.openai_chat.tables import NAME, REJECTED_PARAMS
from dragoman.protocols.openai_chat.write_messages import MessageWriter
from dragoman.protocols.openai_chat.write_parts import deep_merge
from dragoman.protocols.openai_chat.write_settings import (
    write_native_settings,
    write_reasoning,
    write_response_format,
    write_settings,
)
from dragoman.protocols.openai_chat.write_tools import write_native_tools, write_tools


def write_request(request: Request, capabilities: Capabilities, ledger: Ledger) -> JSONObject:
    """The body to send. What it cannot carry is entered in `ledger`.

    Raises RemoteProtocolError (400) for settings without which the request would mean something else.
    """
    for param in REJECTED_PARAMS:
        if request.params.get(param):
            path = request.param_paths.get(param, f"/{param}")
            raise RemoteProtocolError(
                f"{dotted_path(path)} needs a server that stores conversations; this upstream speaks Chat Completions:"
                " send the whole conversation instead",
                path=path,
                code="unsupported_value",
            )
    same_protocol = request.protocol == NAME
    exact = same_protocol and capabilities.relay == "exact"
    messages = _messages(request, same_protocol, exact, capabilities, ledger)
    out: JSONObject = {"model": request.model, "messages": messages}
    if request.stream:
        out["stream"] = True
        if not exact or request.include_usage:
            # Always asked for: whoever writes to a client of another protocol leaves it out where it is not wanted.
            out["stream_options"] = {"include_usage": True}
    if exact:
        write_native_tools(request, out)
        write_native_settings(request, out, ledger)
    else:
        write_tools(request, same_protocol, capabilities, out, ledger)
        write_response_format(request, same_protocol, messages, out, ledger)
        write_reasoning(request, same_protocol, capabilities, out, ledger)
        write_settings(request, same_protocol, capabilities, out, ledger)
    if same_protocol:
        for key, value in (request.extra or {}).items():
            out[key] = deep_merge(out.get(key), value)
    return out


def _messages(
    request: Request, same_protocol: bool, exact: bool, capabilities: Capabilities, ledger: Ledger
) -> list[JSONObject]:
    writer = MessageWriter(request, same_protocol, capabilities, ledger)
    messages = request.messages
    count = len(messages)
    spoken = _last_spoken(messages) if capabilities.reasoning_back == "tool_loop" else count
    index = 0
    while index < count:
        end = index + 1
        if messages[index].role == "assistant":
            while not exact and end < count and messages[end].role == "assistant":
                end += 1
            writer.write_assistant_turn(messages[index:end], index > spoken)
        else:
            while end < count and messages[end].role != "assistant":
                end += 1
            writer.write_between_turns(messages[index:end])
        index = end
    return writer.finish()


def _last_spoken(messages: Sequence[Message]) -> int:
    """The place of the last message in which the user says something, -1 when there is none."""
    for index in range(len(messages) - 1, -1, -1):
        message = messages[index]
        if message.role == "user" and any(type(part) is not ToolResult for part in message.parts):
            return index
    return -1
