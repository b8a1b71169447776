"""Tables of the simple API: roles, settings, and what its responses have no place for."""

from __future__ import annotations

from typing import Literal

from dragoman._ir.events import BlockKind
from dragoman._ir.parameters import param_paths
from dragoman._ir.request import Param

NAME = "simple_chat"

SimpleRole = Literal["system", "user", "assistant"]
ROLES: dict[str, SimpleRole] = {"system": "system", "user": "user", "assistant": "assistant"}

PARAMS: dict[str, Param] = {"temperature": "temperature"}
PARAM_PATHS: dict[Param, str] = param_paths(PARAMS)

# Blocks whose text is the content. A refusal is text of the model, too.
TEXT_KINDS = frozenset({BlockKind.TEXT, BlockKind.REFUSAL})

# What a response may have beside its text: the path under which it is recorded, and the detail of the loss.
LOST_BLOCKS: dict[BlockKind, tuple[str, str]] = {
    BlockKind.REASONING: ("/reasoning", "answers have no reasoning here"),
    BlockKind.TOOL_CALL: ("/tool_calls", "the client offers no tools, and answers have no calls here"),
}
NO_ANNOTATIONS = "text has no annotations here"
NO_LOGPROBS = "text has no log probabilities here"
NO_PHASE = "messages have no phase here"
NO_SERVICE_TIER = "answers do not tell the service tier here"
NO_STOP_REASON = "answers do not tell here why the model stopped"
NO_STOP_DETAILS = "answers tell no more here than that the model stopped"
NO_EXPLANATION = "there is text, and no place for an explanation beside it"
NO_USAGE = "answers have no usage here"
AS_TEXT = "told as the answer's text: nothing marks it here"
