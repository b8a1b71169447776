"""What a protocol is: one ProtocolSpec, made of a few functions and two small machines.

Strategy: everything that the rest of the core needs of a protocol is a field here, so that a protocol is one
folder and one line in the registry. N readers and N writers meet in the events; nobody knows pairs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, Protocol

import msgspec

from ._events import ArgumentsDelta, Event, ReasoningDelta, TextDelta, Usage
from ._fault import Fault
from ._fold import Answer
from ._json import JSONObject
from ._lane import LaneHint
from ._loss import Ledger
from ._request import Request
from ._seal import Sealer
from ._sse import Frame


class Target(msgspec.Struct, frozen=True):
    """What one upstream takes, beyond its protocol. The defaults suit the widest range of servers.

    max_tokens: sent to Messages upstreams when the client named no limit, for there it is required.
    custom_tools: takes OpenAI's custom (free text) tools; else they go as functions with one string. None: as
        servers of its protocol usually do (ToolRule.custom_usual).
    developer_role: knows the role "developer"; else it goes as "system".
    mid_system: takes system messages in mid-conversation; else they go as user text at their place.
    max_tokens_field: what a Chat upstream calls the limit.
    reasoning_field: where a Chat upstream wants earlier reasoning back, None for nowhere.
    sampling: a Messages upstream takes temperature, top_p and top_k (API version 2023-06-01, older models).
    thinking: how a Messages upstream's model takes thinking: "adaptive" with effort, or "budget".
    cache_marks: a Chat or Responses upstream knows `prompt_cache_breakpoint` on content parts.
    """

    max_tokens: int = 32000
    custom_tools: bool | None = None
    developer_role: bool = False
    mid_system: bool = False
    max_tokens_field: Literal["max_tokens", "max_completion_tokens"] = "max_completion_tokens"
    reasoning_field: str | None = "reasoning_content"
    sampling: bool = True
    thinking: Literal["adaptive", "budget"] = "adaptive"
    cache_marks: bool = False


class ToolRule(msgspec.Struct, frozen=True):
    """What a protocol allows for tools.

    max_name, max_call_id: in characters. Names always consist of letters, digits, `_` and `-`.
    call_id_chars: call ids are restricted to the same characters.
    custom: custom tools exist in the protocol; custom_usual: and its servers usually take them.
    namespaces: names may have a namespace beside them.
    """

    max_name: int = 64
    max_call_id: int | None = 64
    call_id_chars: bool = False
    custom: bool = True
    custom_usual: bool = False
    namespaces: bool = False


class Exchange(msgspec.Struct, frozen=True):
    """What both halves of an answer may know of the request that caused it.

    request: what the client asked, as its protocol's reader gave it.
    id: a token from outside (letters and digits), unique to this answer; ids that we make derive from it.
    now: seconds since the epoch.
    model: the model name that the client is told.
    prompt_tokens: an estimate, for protocols that name a figure before the upstream tells.
    """

    request: Request
    id: str
    now: int
    model: str
    sealer: Sealer = Sealer()
    prompt_tokens: int = 0


class StreamReader(Protocol):
    """Frames of an upstream's stream in, events out. Raises RemoteProtocolError for what it cannot read."""

    def read(self, frame: Frame) -> Sequence[Event]:
        """The events that this frame stands for: none, one or many."""

    def eof(self) -> Sequence[Event]:
        """The stream ended. The last events, or nothing if the end event had come.

        Raises RemoteProtocolError when the answer is not complete: an early end is never a success.
        """

    def lane(self, delta: TextDelta | ReasoningDelta | ArgumentsDelta) -> LaneHint | None:
        """How frames like the last one can be read without decoding them, see `_lane`.

        Called when the last frame gave just this delta. A reader may answer only if it would read each frame
        that differs in the text alone as the same delta with that text, until another frame comes. None: it
        would not.
        """


class StreamWriter(Protocol):
    """Events in, bytes of the client's stream out. The events must be legal (see `_grammar`)."""

    def send(self, event: Event) -> bytes:
        """The bytes for one event, b"" when it has none of its own yet."""


class Tap(Protocol):
    """Watches a relayed stream. It may not change it.

    It is shown the first frames and the last ones, in their order and maybe twice, not those between.
    """

    usage: Usage
    ended: bool
    failed: bool

    def watch(self, frame: Frame) -> None:
        """Look at one frame that was passed on. Never raises: a relay does not judge."""

    def fail(self, fault: Fault) -> bytes:
        """Frames that end a stream which broke off, in the form of the protocol."""


class ProtocolSpec(msgspec.Struct, frozen=True):
    """One protocol.

    name: its key in the registry and in configurations.
    path: of its endpoint, below the upstream's base URL as that vendor's SDK takes it.
    client_path: of the same endpoint below the gateway's root.
    sequential: streams have one open block at a time.
    choices: an answer may have several alternatives.
    heartbeat: bytes that clients of this protocol take as a sign of life, legal between any two frames.
    tools: what it allows for tools.
    read_request: the client's decoded body -> request. Raises RemoteProtocolError.
    write_request: request -> body for the upstream; what it cannot carry goes into the ledger. Raises
        RemoteProtocolError for what must not be dropped.
    stream_reader, stream_writer: machines for one stream.
    read_whole: a decoded whole answer -> events. Raises RemoteProtocolError.
    write_whole: a folded answer -> body for the client.
    read_fault: status and body of an upstream's error answer -> fault. Never raises.
    is_fault: whether an error body has the form that clients of this protocol read: it can be relayed then.
    write_fault: fault -> status and body for the client. The second argument is our request id or None.
    tap: watcher of a relayed stream of this protocol.
    """

    name: str
    path: str
    client_path: str
    sequential: bool
    choices: bool
    heartbeat: bytes
    tools: ToolRule
    read_request: Callable[[JSONObject, Sealer], Request]
    write_request: Callable[[Request, Target, Ledger], JSONObject]
    stream_reader: Callable[[Exchange, Ledger], StreamReader]
    stream_writer: Callable[[Exchange, Ledger], StreamWriter]
    read_whole: Callable[[JSONObject, Exchange, Ledger], Sequence[Event]]
    write_whole: Callable[[Answer, Exchange, Ledger], JSONObject]
    read_fault: Callable[[int, bytes], Fault]
    is_fault: Callable[[bytes], bool]
    write_fault: Callable[[Fault, str | None], tuple[int, bytes]]
    tap: Callable[[Exchange], Tap]
