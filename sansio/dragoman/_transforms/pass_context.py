"""What the passes over one request share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

from dragoman._ir.events import ToolKind
from dragoman._ir.losses import Ledger
from dragoman._ir.native import changed
from dragoman._ir.request import Message, Part, Reasoning, Request, Role, Text, ToolCall, ToolResult
from dragoman._ir.undo import Undo
from dragoman.codec import Capabilities, ProtocolSpec, UpstreamSpec

# Returns a name for the conversation of a request, None if there is none.
CacheKeySource: TypeAlias = Callable[[], str | None]
# Call ids of a turn, as the client has them -> the reasoning that was cached for them.
ReasoningLookup: TypeAlias = Callable[[tuple[str, ...]], Sequence[Reasoning] | None]

_CUSTOM = ToolKind.CUSTOM  # an Enum's member is slow to look up


class Contents(msgspec.Struct, frozen=True):
    """What messages hold besides plain texts: passes look here for what concerns them, which is nothing nearly always.

    Attributes:
        odd: The messages that are more than one plain text.
        parts: Their parts in the order of the prompt, those inside of results before the results, but for texts with
            neither a cache mark nor members of their own protocol.
        calls: The calls among them.
        ids: The ids of all calls and results.
        kinds: The classes of these parts, Message if there are odd ones, and CUSTOM if a call or a result is a custom
            tool's.
        is_paired: The history needs no repair, see `history`: every call id is used once, the results of a turn's calls
            follow it directly, each call has one, and nothing is empty.
    """

    odd: list[Message]
    parts: list[Part]
    calls: list[ToolCall]
    ids: set[str]
    kinds: set[type | ToolKind]
    is_paired: bool


def find_contents(messages: tuple[Message, ...]) -> Contents:
    """Return what the messages hold, by one walk."""
    odd: list[Message] = []
    parts: list[Part] = []
    calls: list[ToolCall] = []
    ids: list[str] = []  # of turns' calls
    strays: list[str] = []  # ids of other calls, and of results without one
    waiting: set[str] = set()  # ids of a turn's calls without a result yet
    answering, is_paired, has_custom = False, True, False  # answering: the first result has come
    for message in messages:
        if message.plain_text and not waiting:
            continue  # as most are
        is_turn, within = message.role == "assistant", message.content or message.parts
        if not within or (waiting and (answering if is_turn else message.role != "user")):
            is_paired = False
        if not message.plain_text:
            odd.append(message)
        for part in within:
            if type(part) is Text:
                if part.shape is not None or part.cache is not None:
                    parts.append(part)
                if not part.text or (waiting and not is_turn):
                    is_paired = False
            elif type(part) is ToolCall:
                parts.append(part)
                calls.append(part)
                if part.kind is _CUSTOM:
                    has_custom = True
                if is_turn:
                    ids.append(part.call_id)
                    waiting.add(part.call_id)
                else:
                    strays.append(part.call_id)
                    is_paired = is_paired and not waiting
            elif type(part) is ToolResult:
                if not part.plain_text:
                    parts += find_contents((Message("user", part.parts),)).parts
                parts.append(part)
                if part.kind is _CUSTOM:
                    has_custom = True
                if is_turn or part.call_id not in waiting:
                    strays.append(part.call_id)
                    is_paired = False
                waiting.discard(part.call_id)
                answering = bool(waiting)
            else:
                parts.append(part)
                if waiting and not is_turn:
                    is_paired = False
    used_ids = set(ids)
    is_paired = is_paired and not waiting and len(used_ids) == len(ids)
    used_ids.update(strays)
    kinds: set[type | ToolKind] = set(map(type, parts))
    if odd:
        kinds.add(Message)
    if has_custom:
        kinds.add(_CUSTOM)
    return Contents(odd, parts, calls, used_ids, kinds, is_paired)


def map_parts(
    request: Request, changes: Mapping[type[Part], Callable[[Any], Part | None]], role: Role | None = None
) -> Request:
    """Return the request with its parts changed, itself if none was. A message without parts left is dropped.

    changes: by the type of a part; None drops it. role: changes only messages of this role.
    """
    messages: list[Message | None] | None = None
    for number, message in enumerate(request.messages):
        if role is not None and message.role != role:
            continue
        content = message.content or message.parts
        for part in content:
            if type(part) in changes:
                break
        else:
            continue  # nearly all of them
        parts: list[Part | None] = []
        for index, part in enumerate(content):
            change = changes.get(type(part))
            if change is not None and (new := change(part)) is not part:
                parts = parts or list(content)
                parts[index] = new
        if parts:
            messages = messages or list(request.messages)
            left = tuple([part for part in parts if part is not None])
            messages[number] = changed(message, content=left) if left else None
    if messages is None:
        return request
    kept = tuple([message for message in messages if message is not None])
    return msgspec.structs.replace(request, messages=kept)


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
