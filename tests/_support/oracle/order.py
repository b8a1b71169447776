"""One automaton per protocol over the strictly read frames, and the same rules for whole responses."""

from __future__ import annotations

from oracle import order_chat, order_messages, order_responses
from oracle.frames import Frame, as_object
from oracle.types import CHAT, MESSAGES, RESPONSES

WHOLE = {
    CHAT: order_chat.whole_problems,
    MESSAGES: order_messages.whole_problems,
    RESPONSES: order_responses.whole_problems,
}


def check_order(protocol: str, frames: list[Frame], *, include_usage: bool = False) -> list[str]:
    """Problems of the order of a stream's frames. `include_usage` is what a Chat client requested."""
    automaton: order_chat.ChatOrder | order_messages.MessagesOrder | order_responses.ResponsesOrder
    if protocol == CHAT:
        automaton = order_chat.ChatOrder(include_usage=include_usage)
    elif protocol == MESSAGES:
        automaton = order_messages.MessagesOrder()
    else:
        automaton = order_responses.ResponsesOrder()
    for number, frame in enumerate(frames):
        automaton.feed(number, frame)
    return automaton.close()


def check_whole_order(protocol: str, text: str | bytes) -> list[str]:
    """Problems of a whole response that its types do not show."""
    body = as_object(text)
    return WHOLE[protocol](body) if body is not None else []
