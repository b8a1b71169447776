"""What the passes over a request leave for the way back.

Strategy: a request is changed into what the upstream takes; each change that the answer has to undo is one entry
here, and nothing else passes from the one direction to the other. The stages over the answer's events read it.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from dragoman._ir.events import ToolKind
from dragoman._ir.request import Grammar, ResponseFormat, ToolChoice


class Origin(msgspec.Struct, frozen=True):
    """What a tool is called on the client's side.

    wrapped: it is a custom tool sent as a function.
    hosted: the kind of the client's HostedTool for which this function stands in.
    grammar: what the input of a wrapped tool must look like.
    """

    name: str
    namespace: str | None
    kind: ToolKind
    wrapped: bool
    hosted: str | None = None
    grammar: Grammar | None = None


class Book(msgspec.Struct, frozen=True):
    """What was changed on the way to the upstream.

    origins: wire name of a tool -> the client's tool.
    used_ids: the call ids that the conversation used.
    json_tool: the wire name of a tool that the client did not offer, whose input is the answer's text.
    bare_json: the answer was asked to be JSON in words or by a tool, so a code fence around it is not part of it.
    stops: stop sequences that the upstream does not know.
    compacts: the answer is a summary that takes the place of the conversation.
    form, choice: what the client demands of the answer and the upstream is not known to enforce, see
        `_transforms.response_checks`.
    """

    origins: Mapping[str, Origin] = {}
    used_ids: frozenset[str] = frozenset()
    json_tool: str | None = None
    bare_json: bool = False
    stops: tuple[str, ...] = ()
    compacts: bool = False
    form: ResponseFormat | None = None
    choice: ToolChoice | None = None
