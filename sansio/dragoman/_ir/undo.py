"""The changes of a request that its response has to undo.

A request is changed into what the upstream accepts. Each change that the response has to undo is one field here, and
nothing else passes from one direction to the other. The stages over the response's events read it.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from dragoman._ir.events import ToolKind
from dragoman._ir.request import ResponseFormat
from dragoman._ir.tools import Grammar, ToolChoice


class ToolOrigin(msgspec.Struct, frozen=True):
    """The client's tool behind a tool that was sent.

    Attributes:
        name: The client's name of the tool.
        namespace: The namespace of the client's tool, or None.
        kind: How the client's tool is called.
        wrapped: It is a custom tool sent as a function.
        hosted: The kind of the client's HostedTool that this function was sent for, or None.
        grammar: The grammar of the input of a wrapped tool, None for any text.
    """

    name: str
    namespace: str | None
    kind: ToolKind
    wrapped: bool
    hosted: str | None = None
    grammar: Grammar | None = None


class Undo(msgspec.Struct, frozen=True):
    """The changes on the way to the upstream.

    Attributes:
        origins: Sent name of a tool -> the client's tool.
        used_ids: The call ids that the conversation used.
        json_tool: The sent name of a tool that the client did not offer, whose input is the text of the response.
        strip_code_fence: JSON was requested by instructions or by a tool, so a code fence around it is no part of it.
        stop_sequences: Stop sequences that the upstream does not support.
        compacts: The response is a summary that takes the place of the conversation.
        unenforced_format: The format that the client requires and the upstream is not known to enforce, see
            `_transforms.response_checks`.
        unenforced_choice: The tool choice that the client requires and the upstream is not known to enforce.
        declared: The sent names of all tools, for upstreams that report a call of another one as an error.
    """

    origins: Mapping[str, ToolOrigin] = {}
    used_ids: frozenset[str] = frozenset()
    json_tool: str | None = None
    strip_code_fence: bool = False
    stop_sequences: tuple[str, ...] = ()
    compacts: bool = False
    unenforced_format: ResponseFormat | None = None
    unenforced_choice: ToolChoice | None = None
    declared: frozenset[str] = frozenset()
