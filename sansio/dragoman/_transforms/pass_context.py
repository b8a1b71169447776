"""What the passes over one request share."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import compress
from typing import Any, TypeAlias

import msgspec

from dragoman._ir.events import ToolKind
from dragoman._ir.losses import Ledger
from dragoman._ir.native import changed
from dragoman._ir.request import Message, Part, Reasoning, Request, Role, Text, ToolCall, ToolResult
from dragoman._ir.undo import Undo
from dragoman._ir.wrapped_signatures import unwrap_phase
from dragoman.codec import Capabilities, ProtocolSpec, UpstreamSpec

# Returns a name for the conversation of a request, None if there is none.
CacheKeySource: TypeAlias = Callable[[], str | None]
# Call ids of a turn, as the client has them -> the reasoning that was cached for them.
ReasoningLookup: TypeAlias = Callable[[tuple[str, ...]], Sequence[Reasoning] | None]

_CUSTOM = ToolKind.CUSTOM  # an Enum's member is slow to look up

# What a pass is about: a class of parts, a field of Request, a setting, or one of these.
Subject: TypeAlias = type | str
UNREAD: Subject = "members that only the client's protocol has"
MARKS: Subject = "cache marks"
SPEAKERS: Subject = "names and phases of messages"
UNPAIRED: Subject = "a history to repair"
CUSTOM_CALLS: Subject = "calls of custom tools, or their results"


class Contents(msgspec.Struct, frozen=True):
    """What messages hold besides plain texts: passes look here for what concerns them, which is nothing nearly always.

    Attributes:
        subjects: What they hold: ToolCall for calls and results, the classes of other parts but for texts, and those
            above. UNPAIRED unless every call id is used once, the results of a turn's calls follow it directly, each
            call has one, and nothing is empty.
        shaped: The messages and parts with a shape (see `_ir.native.Node`), messages first.
        marked: The parts with cache marks in the order of the prompt, those inside of results before the results.
        calls: The calls.
        reasoning: The reasoning of turns.
        ids: The ids of all calls and results.
    """

    subjects: set[Subject] = set()
    shaped: list[Any] = []
    marked: list[Part] = []
    calls: list[ToolCall] = []
    reasoning: list[Reasoning] = []
    ids: set[str] = set()


def find_contents(messages: Sequence[Message]) -> Contents:
    """Return what the messages hold, by one walk."""
    found = Contents()
    subjects, shaped, marked, calls = found.subjects, found.shaped, found.marked, found.calls
    shaped_parts: list[Any] = []
    ids: list[str] = []  # of turns' calls
    strays: list[str] = []  # ids of other calls, and of results without one
    waiting: set[str] = set()  # ids of a turn's calls without a result yet
    answering, is_paired = False, True  # answering: the first result has come
    for message in messages:
        if message.plain_text and not waiting:
            continue  # as most are
        is_turn, within = message.role == "assistant", message.content or message.parts
        if not within or (waiting and (answering if is_turn else message.role != "user")):
            is_paired = False
        if message.shape is not None:
            shaped.append(message)
        if message.name is not None or message.phase is not None:
            subjects.add(SPEAKERS)
        for part in within:
            if type(part) is Text:
                is_paired = is_paired and part.text != "" and (is_turn or not waiting)
            elif type(part) is ToolCall:
                calls.append(part)
                if part.kind is _CUSTOM:
                    subjects.add(CUSTOM_CALLS)
                (ids if is_turn else strays).append(part.call_id)
                if is_turn:
                    waiting.add(part.call_id)
                else:
                    is_paired = is_paired and not waiting
            elif type(part) is ToolResult:
                if not part.plain_text:
                    _find_inside(part, found, shaped_parts)
                if part.kind is _CUSTOM:
                    subjects.add(CUSTOM_CALLS)
                if is_turn or part.call_id not in waiting:
                    strays.append(part.call_id)
                    is_paired = False
                waiting.discard(part.call_id)
                answering = bool(waiting)
            else:
                subjects.add(type(part))
                is_paired = is_paired and (is_turn or not waiting)
                if type(part) is Reasoning and is_turn:
                    found.reasoning.append(part)
                if type(part) is Reasoning and unwrap_phase(part.signature) is not None:
                    subjects.add(SPEAKERS)
            if part.shape is not None:
                shaped_parts.append(part)
            if part.cache is not None:
                marked.append(part)
    found.ids.update(ids)
    is_paired = is_paired and not waiting and len(found.ids) == len(ids)
    found.ids.update(strays)
    shaped += shaped_parts
    subjects.update(compress((UNPAIRED, UNREAD, MARKS, ToolCall), (not is_paired, shaped, marked, found.ids)))
    return found


def _find_inside(result: ToolResult, found: Contents, shaped: list[Any]) -> None:
    """Add what the parts of a result hold. shaped: those with a shape."""
    inner = find_contents((Message("user", result.parts),))
    found.subjects.update(inner.subjects - {UNPAIRED})
    found.marked.extend(inner.marked)
    shaped += inner.shaped


def map_parts(
    request: Request,
    changes: Mapping[type[Part], Callable[[Any], Part | None]],
    roles: Collection[Role] | None = None,
) -> Request:
    """Return the request with its parts changed, itself if none was. A message without parts left is dropped.

    changes: by the type of a part; None drops it. roles: of the messages to change, None for all.
    """
    messages: list[Message | None] | None = None
    for number, message in enumerate(request.messages):
        if roles is not None and message.role not in roles:
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

    @property
    def only_functions(self) -> bool:
        """True for a server of Responses without free-text tools. It has no namespaces, and runs no tools either."""
        return self.upstream.tool_limits.custom_by_default and self.capabilities.custom_tools is False


# One change to a request: returns it as it is if nothing has to change.
Pass: TypeAlias = Callable[[Request, PassContext], Request]
