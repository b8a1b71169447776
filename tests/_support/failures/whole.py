"""Responses that do not stream, of the blocks in failures/responses.py."""

from typing import Any

from failures.responses import (
    CHAT_ENDS,
    COST,
    GEMINI_ENDS,
    MESSAGES_ENDS,
    Block,
    Call,
    Cost,
    payloads,
    stream,
)
from laws.turns import ASSEMBLE
from oracle import CHAT, GEMINI, MESSAGES
from oracle import samples as s

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
    if protocol == GEMINI:
        return s.parts(*assembled, finish=GEMINI_ENDS[stop], usage=cost.gemini)
    final = payloads(protocol, *blocks, stop=stop, cost=cost)[-1]
    assert isinstance(final, dict)
    found: Json = final["response"]
    return found
