"""Responses that do not stream, and conversations of several rounds, for the tests of failures."""

from __future__ import annotations

from typing import Any

from failures.responses import CHAT_ENDS, COST, MESSAGES_ENDS, Block, Call, Cost, payloads, stream
from failures.translate import WIDE, UpstreamRequest, receive, receive_whole, translate_request
from laws.turns import ASSEMBLE, NEXT, WHOLE
from oracle import CHAT, MESSAGES, RESPONSES
from oracle import samples as s
from translation import MODEL

from dragoman import Capabilities

Json = dict[str, Any]


def whole(protocol: str, *blocks: Block, stop: str = "", cost: Cost = COST) -> Json:
    """The document that an upstream sends for these blocks to a request that does not stream."""
    stop = stop or ("tool" if any(isinstance(block, Call) for block in blocks) else "end")
    assembled = ASSEMBLE[protocol](stream(protocol, *blocks, stop=stop, cost=cost))
    if protocol == CHAT:
        assembled = {**assembled, "content": assembled["content"] or None, "refusal": None}
        choice = {"index": 0, "message": assembled, "logprobs": None, "finish_reason": CHAT_ENDS[stop]}
        return {**s.chunk(), "object": "chat.completion", "choices": [choice], "usage": cost.chat}
    if protocol == MESSAGES:
        usage = {**s.MESSAGES_USAGE, **cost.messages}
        return s.message(content=assembled, stop_reason=MESSAGES_ENDS[stop], usage=usage)
    final = payloads(protocol, *blocks, stop=stop, cost=cost)[-1]
    assert isinstance(final, dict)
    found: Json = final["response"]
    return found


def turn_of_client(upstream: str, client: str, *blocks: Block, streams: bool) -> Any:
    """A response with these blocks as the client puts it together, in the form in which it sends it back."""
    if streams:
        return receive(upstream, client, stream(upstream, *blocks), translates=True).turn
    return WHOLE[client](receive_whole(upstream, client, whole(upstream, *blocks)))


def conversation(client: str, *turns: Any) -> Json:
    """The client's next request after these turns, each of which it has answered."""
    body = NEXT[client](turns[0]) | {"model": MODEL}
    key = "input" if client == RESPONSES else "messages"
    for turn in turns[1:]:
        body[key] = body[key] + NEXT[client](turn)[key][1:]
    return body


def after_rounds(
    upstream: str,
    client: str,
    *rounds: tuple[Block, ...],
    streams: bool,
    capabilities: Capabilities = WIDE,
    back_to: str = "",
    model: str = MODEL,
) -> UpstreamRequest:
    """What an upstream is sent after these responses went through a client and came back.

    back_to, model: another upstream, or another model, than those that answered.
    """
    turns = [turn_of_client(upstream, client, *blocks, streams=streams) for blocks in rounds]
    return translate_request(
        client, back_to or upstream, conversation(client, *turns), capabilities=capabilities, model=model
    )
