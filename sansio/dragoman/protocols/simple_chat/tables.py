"""Tables of the simple API: roles, settings, and the details of its losses."""

from __future__ import annotations

from typing import Annotated, Literal, NotRequired, TypedDict

from msgspec import Meta

from dragoman._ir.events import BlockKind
from dragoman._ir.shape import NUMBER, STRING, Setting, Shape, setting_paths

NAME = "simple_chat"

SimpleRole = Literal["system", "user", "assistant"]
ROLES: dict[str, SimpleRole] = {"system": "system", "user": "user", "assistant": "assistant"}


class SimpleMessage(TypedDict):
    """A message of the conversation."""

    role: SimpleRole
    content: str


class SimpleRequest(TypedDict):
    """A request of the simple API."""

    messages: Annotated[list[SimpleMessage], Meta(min_length=1)]
    model: NotRequired[str | None]
    temperature: NotRequired[float | None]


class SimpleResponse(TypedDict):
    """A whole response of the simple API."""

    id: str
    model: str
    created: int
    message: SimpleMessage
    done: Literal[True]


# The members of a request, see `_ir.shape`. `model` may be left out: the server has a default then.
REQUEST_SHAPE: dict[str, Shape] = {
    "model": STRING,
    "messages": None,
    "temperature": Setting("temperature", NUMBER),
}
SETTING_PATHS = setting_paths(REQUEST_SHAPE)
MESSAGE_SHAPE: dict[str, Shape] = {"role": None, "content": None}

# Blocks whose text is the content. A refusal is text of the model, too.
TEXT_KINDS = frozenset({BlockKind.TEXT, BlockKind.REFUSAL})

# Blocks that are not text -> the path under which the loss is recorded, and its detail.
LOST_BLOCKS: dict[BlockKind, tuple[str, str]] = {
    BlockKind.REASONING: ("/reasoning", "the simple API has no reasoning"),
    BlockKind.TOOL_CALL: ("/tool_calls", "the simple API has no tool calls"),
}
NO_ANNOTATIONS = "the simple API has no annotations"
NO_LOGPROBS = "the simple API has no log probabilities"
NO_SERVICE_TIER = "the simple API has no service tier"
NO_STOP_REASON = "the simple API has no stop reason"
NO_STOP_DETAILS = "the simple API reports only that the model stopped"
NO_EXPLANATION = "the response has text; the simple API has no field for the explanation"
NO_USAGE = "the simple API has no usage"
AS_TEXT = "sent as text of the response: the simple API has no field for it"
