"""What a protocol is: a ProtocolSpec or an UpstreamSpec, made of a few functions and two small machines.

Strategy: everything that the rest of the core needs of a protocol is a field here, so that a protocol is one
folder and one line in the registry. Clients speak every protocol; most, not all, are spoken by upstreams too, and
those have the fields of a second half. N readers and N writers meet in the events; nobody knows pairs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, Protocol, TypeAlias

import msgspec

from dragoman._ir.assembly import AssembledResponse
from dragoman._ir.events import ArgumentsDelta, Event, ReasoningDelta, TextDelta, Usage
from dragoman._ir.fast_path import DeltaTemplate
from dragoman._ir.losses import Ledger
from dragoman._ir.request import Grammar, Param, Refusable, Request
from dragoman._ir.signatures import WRAPPED_MARKER, Signer
from dragoman._ir.undo import Undo
from dragoman._wire.errors import WireError
from dragoman._wire.json import JSONObject
from dragoman._wire.masking import Masker
from dragoman._wire.sse import Frame

HostedUse: TypeAlias = Literal["web_search", "code_execution", "mcp"]
Enforced: TypeAlias = Literal["schema", "tool_choice"]

# Returns why an input of a free-text tool breaks the tool's grammar, None when it does not. Raises Unchecked.
CheckInput: TypeAlias = Callable[[Grammar, str], str | None]


class Unchecked(Exception):
    """An input could not be checked against its grammar. The message gives the reason, and quotes neither."""


class Capabilities(msgspec.Struct, frozen=True):
    """What one upstream takes, beyond its protocol. The defaults suit the widest range of servers.

    max_tokens: sent to Messages upstreams when the client named no limit, for there it is required.
    custom_tools: takes OpenAI's custom (free text) tools; else they go as functions with one string. None: as
        servers of its protocol usually do (ToolLimits.custom_usual).
    developer_role: knows the role "developer"; else it goes as "system".
    text_content: what a Chat upstream takes where a message has nothing but text: one string, or a list of parts too.
    turn_order: what a Chat upstream refuses of the order of turns: nothing; a user's turn behind a tool's result; that
        and whatever else keeps user and assistant from taking turns.
    mid_system: takes system messages in mid-conversation; else they go as user text at their place.
    max_tokens_field: what a Chat upstream calls the limit.
    reasoning_field: where a Chat upstream wants earlier reasoning back, None for nowhere.
    sampling: a Messages upstream takes temperature, top_p and top_k (API version 2023-06-01, older models).
    thinking: how a Messages upstream's model takes thinking: "adaptive" with effort, "budget", or not at all.
    cache_marks: what a Chat or Responses upstream knows on content parts: `prompt_cache_breakpoint`, or in Chat
        `cache_control` as in Messages.
    cache_keys: a Chat or Responses upstream keeps the caches of prompts by `prompt_cache_key`.
    efforts: the reasoning efforts that the model takes, None for all that its protocol has.
    reasoning_setting: what a Chat upstream calls the wish for reasoning, None when it has no such setting:
        `reasoning_effort`; `reasoning` ({"effort": ...}); `thinking` ({"type": "disabled"} or as `thinking_type`);
        `enable_thinking` (a boolean).
    thinking_type: the type that stands for thinking in a Chat upstream's `thinking`.
    reasoning_back: the turns of the assistant whose reasoning a Chat upstream demands: none, those with calls since the
        user last spoke, or all.
    thought_signatures: a Chat upstream demands Google's signature with the first call of a turn.
    structured: what the upstream can do for structured output: keep to a schema, give any JSON object, or
        nothing, in which case it is asked for in words or by a tool.
    hosted: what the upstream runs itself: "web_search", "code_execution", "mcp".
    tool_images: a Chat upstream takes images in tool messages.
    call_ids: "alnum9" for servers whose call ids are nine letters or digits.
    forced_tools: takes a `tool_choice` that demands a call: always, while it does not think, or never.
    sampling_pair: takes temperature and top_p in one request.
    sampling_at_none: what it refuses of sampling, it takes with effort "none", which is its default.
    tools_with_effort: a Chat upstream takes tools beside `reasoning_effort`.
    enforces: what the upstream is known to make the model do, so that nobody needs to look: keep to a strict schema,
        call a tool when one is demanded.
    prefill: a conversation may end with the assistant's words, which the model continues.
    refuses: settings and members (neutral names) that the upstream answers with an error.
    summaries: when a Responses upstream is asked for summaries of its reasoning: whenever the client wants reasoning,
        when it asks to see it, or never.
    unwraps_signatures: the upstream is a gateway of this kind too, which unwraps what it wrapped: between equals
        its signatures pass as they are.
    relay: what becomes of a request that came in the upstream's own protocol: "exact" passes its bytes and those of
        the answer; "rewrite" fits it to this target as any other, and writes the answer anew.
    """

    max_tokens: int = 32000
    custom_tools: bool | None = None
    text_content: Literal["string", "parts"] = "string"
    turn_order: Literal["any", "no_user_after_tool", "alternate"] = "any"
    developer_role: bool = False
    mid_system: bool = False
    max_tokens_field: Literal["max_tokens", "max_completion_tokens"] = "max_completion_tokens"
    reasoning_field: str | None = "reasoning_content"
    sampling: bool = True
    thinking: Literal["adaptive", "budget", "none"] = "adaptive"
    cache_marks: Literal["none", "breakpoint", "cache_control"] = "none"
    cache_keys: bool = False
    efforts: tuple[str, ...] | None = None
    reasoning_setting: Literal["reasoning_effort", "reasoning", "thinking", "enable_thinking"] | None = (
        "reasoning_effort"
    )
    thinking_type: Literal["enabled", "adaptive"] = "enabled"
    reasoning_back: Literal["never", "tool_loop", "always"] = "never"
    thought_signatures: bool = False
    structured_output: Literal["schema", "object", "none"] = "schema"
    hosted_tools: frozenset[HostedUse] = frozenset()
    tool_images: bool = False
    call_ids: Literal["any", "alnum9"] = "any"
    forced_tools: Literal["yes", "not_thinking", "no"] = "yes"
    sampling_pair: bool = True
    sampling_at_none: bool = False
    tools_with_effort: bool = True
    enforces: frozenset[Enforced] = frozenset()
    prefill: bool = True
    refuses: frozenset[Refusable] = frozenset()
    summaries: Literal["auto", "requested", "never"] = "requested"
    unwraps_signatures: bool = False
    relay: Literal["exact", "rewrite"] = "exact"

    @property
    def can_force_tools(self) -> bool:
        """Whether the model can be made to call a tool, if need be by telling it not to think."""
        if self.forced_tools != "not_thinking" or self.efforts == ():
            return self.forced_tools != "no"
        return self.reasoning_setting is not None and (self.efforts is None or "none" in self.efforts)


class ToolLimits(msgspec.Struct, frozen=True):
    """What a protocol allows for tools.

    max_name, max_call_id: in characters. Names always consist of letters, digits, `_` and `-`.
    call_id_chars: call ids are restricted to the same characters.
    custom: custom tools exist in the protocol; custom_usual: and its servers usually take them.
    namespaces: names may have a namespace beside them.
    allowed: a choice may list the tools that may be called.
    hosted: the uses of tools that the provider runs for which it has a form.
    """

    max_name: int = 64
    max_call_id: int | None = 64
    call_id_chars: bool = False
    custom: bool = True
    custom_by_default: bool = False
    namespaces: bool = False
    allowed: bool = True
    hosted_tools: frozenset[HostedUse] = frozenset(("web_search", "code_execution", "mcp"))


class RateLimitHeaders(msgspec.Struct, frozen=True):
    """The headers with what is left of a rate limit.

    prefix: how all of them begin. What an upstream sends under it is for the client.
    rest: of the name, with `{limit}` for one of `limits`, and `{what}` for `limit`, `remaining` or `reset`.
    limits: what is limited, in the words of the headers.
    reset: how the end of a limit is written: as a duration such as `6m0s`, or as a time in RFC 3339's format.
    """

    prefix: str
    rest: str = "{what}-{limit}"
    limits: tuple[str, ...] = ("requests", "tokens")
    reset: Literal["duration", "time"] = "duration"

    def header(self, limit: str, what: Literal["limit", "remaining", "reset"]) -> str:
        """Return the name of one header."""
        return self.prefix + self.rest.format(limit=limit, what=what)


class ModelList(msgspec.Struct, frozen=True):
    """Where an upstream lists its models.

    path: below the base URL, see UpstreamSpec.base_path.
    query: parameters of every page.
    cursor: the parameter with the last id of the page before.
    """

    path: str = "/models"
    query: Mapping[str, str] = {}
    cursor: str = "after"


class TokenCount(msgspec.Struct, frozen=True):
    """How the input tokens of a request are counted. The answer has them as `input_tokens`.

    path: below the one where answers are made; the upstream's is the same.
    fields: members of requests for an answer that these have as well. Others are an error to the vendors' servers.
    stand_ins: members that requests for an answer must have and these need not, with a value for each.
    constant: what the answer says beside the figure.
    """

    path: str
    fields: frozenset[str]
    stand_ins: JSONObject = {}
    constant: JSONObject = {}


class Endpoint(msgspec.Struct, frozen=True):
    """One place where clients of a protocol send their requests.

    path: below the gateway's root.
    heartbeat: bytes that clients take as a sign of life, legal between any two frames; b"" for none.
    streams: when an answer is a stream: as the body's `stream` says, or whatever the body says.
    framing: how a stream is cut: into server-sent events, or into lines of JSON.
    media_type: of a stream. Everything else is application/json.
    """

    path: str
    heartbeat: bytes = b""
    streams: Literal["requested", "always", "never"] = "requested"
    framing: Literal["sse", "ndjson"] = "sse"
    media_type: str = "text/event-stream; charset=utf-8"

    def streams_if(self, asked: bool) -> bool:
        """Whether the answer is a stream. asked: what the body says."""
        return asked if self.streams == "requested" else self.streams == "always"


class ResponseContext(msgspec.Struct, frozen=True):
    """What both halves of an answer may know of the request that caused it.

    request: what the client asked, as its protocol's reader gave it.
    id: a token from outside (letters and digits), unique to this answer; ids that we make derive from it.
    now: seconds since the epoch.
    model: the model name that the client is told.
    prompt_tokens: an estimate, for protocols that name a figure before the upstream tells.
    upstream_model: the model that the upstream was asked for, "" when unknown. Seals are pinned to it.
    book: what the request's passes changed.
    endpoint: where the request came in, None for the first one of its protocol.
    stored: somebody keeps the answer for the client. Protocols that have a word for it say so.
    clock: what tells the seconds since the epoch when the answer is complete. Without one, that is told to be `now`.
    mended: the upstream speaks the client's protocol, and the request was fitted to it (Target.relay).
    mask: removes from errors of the upstream, anywhere in the answer, what the client may not see. None: nothing.
    """

    request: Request
    id: str
    now: int
    model: str
    signer: Signer = Signer()
    prompt_tokens: int = 0
    upstream_model: str = ""
    undo: Undo = Undo()
    endpoint: Endpoint | None = None
    stored: bool = False
    clock: Callable[[], int] | None = None
    rewritten: bool = False
    mask: Masker | None = None

    def response_id(self, prefix: str, upstream_id: str) -> str:
        """The id of the answer: the upstream's where that means something to it later on, else one of ours."""
        return upstream_id if self.rewritten and not self.stored and upstream_id else f"{prefix}{self.id}"


class StreamReader(Protocol):
    """Frames of an upstream's stream in, events out. Raises RemoteProtocolError for what it cannot read."""

    def read(self, frame: Frame) -> Sequence[Event]:
        """The events that this frame stands for: none, one or many."""

    def eof(self) -> Sequence[Event]:
        """The stream ended. The last events, or nothing if the end event had come.

        Raises RemoteProtocolError when the answer is not complete: an early end is never a success.
        """

    def template_for(self, delta: TextDelta | ReasoningDelta | ArgumentsDelta) -> DeltaTemplate | None:
        """How frames like the last one can be read without decoding them, see `_ir.fast_path`.

        Called when the last frame gave just this delta. A reader may answer only if it would read each frame
        that differs in the text alone as the same delta with that text, until another frame comes. None: it
        would not.
        """


class StreamWriter(Protocol):
    """Events in, bytes of the client's stream out. The events must be legal (see `_ir.event_order`)."""

    def send(self, event: Event) -> bytes:
        """The bytes for one event, b"" when it has none of its own yet."""


class RelayObserver(Protocol):
    """Watches a relayed stream. It may not change it.

    begun: content has come: a delta that is not empty, or a start with content, such as the name of a tool. It cannot
        be taken back.
    ended: it ended well. fault: the error that the upstream reported in it.
    last: the frame came that ends a stream for good: nothing may follow it.
    whole: the whole answer, once a frame has repeated it, be it as a failed one; None in protocols where none does.
    It is shown the first frames and the last ones, in their order and maybe twice, not those between.
    """

    usage: Usage
    content_started: bool
    ended: bool
    stream_finished: bool
    error: WireError | None
    whole_body: JSONObject | None

    def observe(self, frame: Frame) -> None:
        """Look at one frame that was passed on. Never raises: a relay does not judge."""

    def fail(self, error: WireError) -> bytes:
        """Frames that end a stream which broke off, in the form of the protocol."""


class ProtocolSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One protocol, as clients speak it.

    name: its key in the registry and in configurations.
    endpoints: where its requests come in; the first one counts where nobody says which.
    sequential: streams have one open block at a time.
    choices: an answer may have several alternatives.
    tools: what it allows for tools.
    read_request: the client's decoded body -> request. Raises RemoteProtocolError.
    stream_writer: makes the machine for one stream.
    write_whole: a folded answer -> body for the client.
    write_fault: fault -> status and body for the client. The second argument is our request id or None.
    returns_signatures: a REASONING block with a seal reaches the client and comes back with the conversation.
    clients_drop_signatures: though many of its clients do not send it back: whoever can keeps it for them, see
        `_transforms.reasoning_cache`.
    shows_searches: its writer has a form for an Opaque of another protocol that tells of a web search.
    needs_usage: its answers have figures for usage even when the client did not ask for them.
    usage_at_start: its streams begin with figures of usage, which only the end of an answer tells: estimates.
    needs_model: a request has to name a model; else a default may stand in, and Request.model may be "".
    server_held: settings that stand for what its own servers hold of a conversation, and the error code with which they
        are refused for other upstreams, where the answer would be to another conversation.
    failed_bodies: write_whole takes an answer with a fault, too, and prints it as a failed one.
    stored_responses: its answers can be kept, and referred to by later requests, as in the Responses API.
    version_header: name and default of the header with the API's version, which all its clients send; None: there is
        none.
    model_list_form: the vendor in whose form its clients read a list of models.
    token_count: how its clients have tokens counted, None where they do not.
    rate_limit_headers: those of its answers, None where its clients know of none.
    """

    name: str
    endpoints: tuple[Endpoint, ...]
    sequential: bool
    choices: bool
    tool_limits: ToolLimits
    read_request: Callable[[JSONObject, Signer], Request]
    stream_writer: Callable[[ResponseContext, Ledger], StreamWriter]
    write_whole: Callable[[AssembledResponse, ResponseContext, Ledger], JSONObject]
    write_error: Callable[[WireError, str | None], tuple[int, bytes]]
    returns_signatures: bool = True
    clients_drop_signatures: bool = False
    shows_searches: bool = False
    needs_usage: bool = True
    usage_at_start: bool = False
    needs_model: bool = True
    failed_bodies: bool = False
    server_state_params: Mapping[Param, str] = {}
    stored_responses: bool = False
    version_header: tuple[str, str] | None = None
    rate_limit_headers: RateLimitHeaders | None = None
    token_count: TokenCount | None = None
    model_list_form: Literal["openai", "anthropic"] = "openai"


def _none_needed(body: JSONObject) -> tuple[tuple[str, str], ...]:
    return ()


class UpstreamSpec(ProtocolSpec, frozen=True, kw_only=True):
    """A protocol that upstreams speak as well.

    base_path: how the base URL ends that the vendor's own SDK takes: "/v1", or nothing.
    path: of its endpoint, below that base URL.
    write_request: request -> body for the upstream; what it cannot carry goes into the ledger. Raises
        RemoteProtocolError for what must not be dropped.
    stream_reader: makes the machine for one stream.
    read_whole: a decoded whole answer -> events. Raises RemoteProtocolError.
    read_fault: status and body of an upstream's error answer -> fault. Never raises.
    is_fault: whether an error body has the form that clients of this protocol read: it can be relayed then.
    tap: watcher of a relayed stream of this protocol.
    end_marks: of these bytes every frame has some that sets Tap.last.
    error_signs: every frame that reports an error has one of these byte strings in it.
    answer_member: the member of a whole answer that holds what the model wrote.
    max_stops: how many stop sequences a request may have, None for any number.
    model_bound_signatures: its seals can be read by the model alone that made them.
    request_headers: names and values of headers that a written body demands beside it.
    auth_header: the header that has the key. In `authorization` it is a bearer token.
    forwarded_headers: lower-case names of headers that its clients may send to upstreams of this protocol.
    list_headers: those whose values are lists: what is configured is added to what was sent.
    response_headers: lower-case names of headers of answers that clients may see, beside those of rate limits.
    model_list: where the upstreams list their models, None where they do not.
    carriers: a body with any of these bytes carries something that was put into the conversation on behalf of
        another protocol. Servers refuse it, so such a body is not relayed as it is.
    """

    path: str
    write_request: Callable[[Request, Capabilities, Ledger], JSONObject]
    stream_reader: Callable[[ResponseContext, Ledger], StreamReader]
    read_whole: Callable[[JSONObject, ResponseContext, Ledger], Sequence[Event]]
    read_error: Callable[[int, bytes], WireError]
    is_native_error: Callable[[bytes], bool]
    observer: Callable[[ResponseContext], RelayObserver]
    end_markers: tuple[bytes, ...]
    output_member: str
    base_path: str = "/v1"
    error_markers: tuple[bytes, ...] = (b"error",)
    max_stop_sequences: int | None = None
    model_bound_signatures: bool = True
    request_headers: Callable[[JSONObject], Sequence[tuple[str, str]]] = _none_needed
    wrapped_markers: tuple[bytes, ...] = (WRAPPED_MARKER,)
    auth_header: str = "authorization"
    forwarded_headers: frozenset[str] = frozenset()
    list_headers: frozenset[str] = frozenset()
    response_headers: frozenset[str] = frozenset()
    model_list: ModelList | None = None
