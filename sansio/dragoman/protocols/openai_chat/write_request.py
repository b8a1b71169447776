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
from dragoman._wire.exceptions import RemoteProtocolError, dotted
from dragoman._wire.json import JSONObject
from dragoman.codec import Target
from dragoman.protocols.openai_chat.tables import NAME, STATEFUL
from dragoman.protocols.openai_chat.write_messages import MessageWriter
from dragoman.protocols.openai_chat.write_parts import merge
from dragoman.protocols.openai_chat.write_settings import (
    write_format,
    write_own_settings,
    write_reasoning,
    write_settings,
)
from dragoman.protocols.openai_chat.write_tools import write_own_tools, write_tools


def write_request(request: Request, target: Target, ledger: Ledger) -> JSONObject:
    """The body to send. What it cannot carry is entered in `ledger`.

    Raises RemoteProtocolError (400) for settings without which the request would mean something else.
    """
    for param in STATEFUL:
        if request.params.get(param):
            path = request.param_paths.get(param, f"/{param}")
            raise RemoteProtocolError(
                f"{dotted(path)} needs a server that stores conversations; this upstream speaks Chat Completions:"
                " send the whole conversation instead",
                path=path,
                code="unsupported_value",
            )
    own = request.protocol == NAME
    exact = own and target.relay == "exact"
    messages = _messages(request, own, exact, target, ledger)
    out: JSONObject = {"model": request.model, "messages": messages}
    if request.stream:
        out["stream"] = True
        if not exact or request.include_usage:
            # Always asked for: whoever writes to a client of another protocol leaves it out where it is not wanted.
            out["stream_options"] = {"include_usage": True}
    if exact:
        write_own_tools(request, out)
        write_own_settings(request, out, ledger)
    else:
        write_tools(request, own, target, out, ledger)
        write_format(request, own, messages, out, ledger)
        write_reasoning(request, own, target, out, ledger)
        write_settings(request, own, target, out, ledger)
    if own:
        for key, value in (request.extra or {}).items():
            out[key] = merge(out.get(key), value)
    return out


def _messages(request: Request, own: bool, exact: bool, target: Target, ledger: Ledger) -> list[JSONObject]:
    writer = MessageWriter(request, own, target, ledger)
    messages = request.messages
    count = len(messages)
    spoken = _last_spoken(messages) if target.reasoning_back == "tool_loop" else count
    index = 0
    while index < count:
        end = index + 1
        if messages[index].role == "assistant":
            while not exact and end < count and messages[end].role == "assistant":
                end += 1
            writer.assistant(messages[index:end], index > spoken)
        else:
            while end < count and messages[end].role != "assistant":
                end += 1
            writer.others(messages[index:end])
        index = end
    return writer.finish()


def _last_spoken(messages: Sequence[Message]) -> int:
    """The place of the last message in which the user says something, -1 when there is none."""
    for index in range(len(messages) - 1, -1, -1):
        message = messages[index]
        if message.role == "user" and any(type(part) is not ToolResult for part in message.parts):
            return index
    return -1
