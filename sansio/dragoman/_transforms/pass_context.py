"""What the passes over one request share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import msgspec

from dragoman._ir.losses import Ledger
from dragoman._ir.request import Message, Part, Reasoning, Request, Text, ToolResult
from dragoman._ir.undo import Undo
from dragoman.codec import Capabilities, ProtocolSpec, UpstreamSpec

# Returns a name for the conversation of a request, None if there is none.
CacheKeySource: TypeAlias = Callable[[], str | None]
# Call ids of a turn, as the client has them -> the reasoning that was cached for them.
ReasoningLookup: TypeAlias = Callable[[tuple[str, ...]], Sequence[Reasoning] | None]


class Contents(msgspec.Struct, frozen=True):
    """What messages hold besides plain texts: passes look here for what concerns them, which is nothing nearly always.

    Attributes:
        messages: The messages.
        odd: Those that are more than one plain text.
        parts: Their parts in the order of the prompt, those inside of results before the results, but for texts with
            neither a cache mark nor members of their own protocol.
        kinds: The classes of these parts, and Message if there are odd ones.
    """

    messages: tuple[Message, ...]
    odd: list[Message]
    parts: list[Part]
    kinds: set[type]


def find_contents(messages: tuple[Message, ...]) -> Contents:
    """Return what the messages hold."""
    odd = [message for message in messages if not message.plain]
    if not odd:
        return Contents(messages, odd, [], set())
    parts: list[Part] = [
        part
        for message in odd
        for part in message.parts
        if type(part) is not Text or part.shape is not None or part.cache is not None
    ]
    kinds = set(map(type, parts))
    if ToolResult in kinds and [part for part in parts if type(part) is ToolResult and not part.plain]:
        parts = [
            part
            for outer in parts
            for part in ((*outer.parts, outer) if type(outer) is ToolResult and not outer.plain else (outer,))
            if type(part) is not Text or part.shape is not None or part.cache is not None
        ]
        kinds = set(map(type, parts))
    kinds.add(Message)
    return Contents(messages, odd, parts, kinds)


class PassContext(msgspec.Struct):
    """The destination of a request, what its caller offers, and what the passes leave for the response.

    Attributes:
        client: The client's protocol.
        upstream: The upstream's protocol.
        capabilities: What the upstream accepts beyond its protocol.
        ledger: Gets the losses.
        received: The request as the client's reader returned it.
        contents: What the messages of the request hold that the next pass gets.
        rewritten: It does not leave its protocol, so what the protocol itself defines stays.
        signed_reasoning: False if the upstream has refused the conversation's signatures.
        reasoning_lookup: Returns cached reasoning, None without a cache.
        cache_key: Returns a name of the conversation, None without one.
        max_fan_out: How many requests the caller can send for one with `n`.
        fan_out: How many it has to send.
        undo: What the response has to undo.
    """

    client: ProtocolSpec
    upstream: UpstreamSpec
    capabilities: Capabilities
    ledger: Ledger
    received: Request
    contents: Contents
    rewritten: bool = False
    signed_reasoning: bool = True
    reasoning_lookup: ReasoningLookup | None = None
    cache_key: CacheKeySource | None = None
    max_fan_out: int = 1
    fan_out: int = 1
    undo: Undo = Undo()


# One change to a request: returns it as it is if nothing has to change.
Pass: TypeAlias = Callable[[Request, PassContext], Request]
