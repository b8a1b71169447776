"""What a request loses merely by leaving its protocol.

Strategy: one walk over the document before any writer sees it. Fields that the client's protocol does not define
cannot be translated by anybody, so they are losses whatever the target is. A block without a counterpart may
still say something in plain words; then the words go on as text.
"""

from __future__ import annotations

import msgspec

from ._loss import Ledger
from ._request import Message, OpaquePart, Part, Request, Text, ToolResult


def leave_protocol(request: Request, ledger: Ledger) -> Request:
    """The request as another protocol can carry it at best; what that costs is entered in the ledger."""
    _enter_unknown_fields(request, ledger)
    messages: list[Message] | None = None
    for number, message in enumerate(request.messages):
        parts = _plain_parts(message.parts, ledger)
        if parts is not message.parts:
            messages = messages or list(request.messages)
            messages[number] = msgspec.structs.replace(message, parts=parts)
    return request if messages is None else msgspec.structs.replace(request, messages=tuple(messages))


def _plain_parts(parts: tuple[Part, ...], ledger: Ledger) -> tuple[Part, ...]:
    """The same tuple when nothing changes, which is the rule."""
    changed: list[Part] | None = None
    for index, part in enumerate(parts):
        plain: Part = part
        if isinstance(part, OpaquePart):
            plain = _plain(part, ledger)
        elif isinstance(part, ToolResult):
            inner = tuple(
                [_plain(each, ledger) if isinstance(each, OpaquePart) else each for each in part.parts]
            )
            if inner != part.parts:
                plain = msgspec.structs.replace(part, parts=inner)
        if plain is not part:
            changed = changed or list(parts)
            changed[index] = plain
    return parts if changed is None else tuple(changed)


def _plain(part: OpaquePart, ledger: Ledger) -> Text | OpaquePart:
    if part.text is None:
        return part
    ledger.altered(part.path, f"{part.kind} has no counterpart; what it says goes on as text")
    return Text(part.text, path=part.path)


def _enter_unknown_fields(request: Request, ledger: Ledger) -> None:
    ledger.unknown_fields("", request.extra)
    for tool in request.tools:
        extra = getattr(tool, "extra", None)
        if extra is not None:
            ledger.unknown_fields(tool.path, extra)
    for namespace in request.namespaces:
        if namespace.description:
            ledger.dropped(
                f"{namespace.path}/description", "namespaces, which others have not, are taken apart"
            )
        ledger.unknown_fields(namespace.path, namespace.extra)
    for config in (request.reasoning, request.response_format):
        if config is not None:
            ledger.unknown_fields(config.path, config.extra)
    for message in request.messages:
        if message.extra is not None:
            ledger.unknown_fields(message.path, message.extra)
        for part in message.parts:
            if isinstance(part, OpaquePart):
                continue
            if part.extra is not None:
                ledger.unknown_fields(part.path, part.extra)
            if isinstance(part, ToolResult):
                for inner in part.parts:
                    if not isinstance(inner, OpaquePart) and inner.extra is not None:
                        ledger.unknown_fields(inner.path, inner.extra)
