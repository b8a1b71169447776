"""Members of messages that only some protocols have: the participant's `name`, and the `phase` of an answer.

What the upstream's protocol lacks, or the upstream refuses, is dropped. A phase that a client's protocol has no member
for travels through the client like a signature: in reasoning without text before its message. "when sending
follow-up requests, preserve and resend phase on all assistant messages — dropping it can degrade performance"
(openai-python 3.54.0, `ResponseOutputMessage`).
"""

from __future__ import annotations

import msgspec

from dragoman._ir.native import changed
from dragoman._ir.request import Message, Part, Reasoning, Request
from dragoman._ir.wrapped_signatures import unwrap_phase
from dragoman._transforms.pass_context import PassContext

# Member of Message -> what losses call it. In `Capabilities.refuses` it has the prefix `message_`.
_MEMBERS = {"name": "names on messages", "phase": "message phases"}


def fit_message_members(request: Request, context: PassContext) -> Request:
    """Put carried phases back, and drop the members of messages that the upstream does not have."""
    fitted = [
        each if each.name is None and each.phase is None else _fit(each, context)
        for message in request.messages
        for each in _with_phases(message)
    ]
    if list(map(id, fitted)) == list(map(id, request.messages)):
        return request
    return msgspec.structs.replace(request, messages=tuple(fitted))


def _with_phases(message: Message) -> tuple[Message, ...]:
    """Return a message for each phase that the client carried in it, the message itself if there is none."""
    if message.plain_text or message.role != "assistant":
        return (message,)
    pieces: list[tuple[str | None, list[Part]]] = [(message.phase, [])]
    for part in message.parts:
        phase = unwrap_phase(part.signature) if type(part) is Reasoning else None
        if phase is None:
            pieces[-1][1].append(part)
        else:
            pieces.append((phase, []))
    if len(pieces) == 1:
        return (message,)
    return tuple([changed(message, content=tuple(parts), phase=phase) for phase, parts in pieces if parts])


def _fit(message: Message, context: PassContext) -> Message:
    for member, what in _MEMBERS.items():
        if getattr(message, member) is None:
            continue
        if (
            member not in context.upstream.message_members
            or f"message_{member}" in context.capabilities.refuses
        ):
            context.ledger.dropped(f"{message.path}/{member}", f"the upstream does not accept {what}")
            message = changed(message, (member,), **{member: None})
    return message
