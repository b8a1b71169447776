"""The parts of a protocol: a ProtocolSpec or an UpstreamSpec, made of a few functions and two small machines.

Everything that the rest of the core and the gateway need of a protocol is a field here, so a protocol is one folder
and one line in dragoman.protocols. Clients speak every protocol; those that upstreams speak too have an UpstreamSpec.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, Protocol, TypeAlias

import msgspec

from dragoman._ir.assembly import AssembledBlock, AssembledResponse, Fold, ReasoningPart
from dragoman._ir.capabilities import Capabilities, Enforced, HostedUse
from dragoman._ir.endpoints import (
    MODEL_IN_PATH,
    Endpoint,
    ModelList,
    TokenCount,
    WebSocketSpec,
    WebSocketWriter,
    fill_path,
)
from dragoman._ir.events import Ended, Event, Failed, Usage
from dragoman._ir.fast_path import Delta, DeltaTemplate
from dragoman._ir.losses import Ledger
from dragoman._ir.request import Param, Request, Role
from dragoman._ir.tools import Grammar
from dragoman._ir.undo import ToolOrigin, Undo
from dragoman._ir.wrapped_signatures import WRAPPED_MARKER, Signer
from dragoman._wire.aws_event_stream import AwsMessage, AwsMessageReader
from dragoman._wire.errors import WireError
from dragoman._wire.framing import JSON_ARRAY, NDJSON, SSE, FrameReader, FrameWriter, Framing, reframe
from dragoman._wire.json import JSON, JSONObject
from dragoman._wire.masking import Masker
from dragoman._wire.sse import Frame

__all__ = [
    "JSON_ARRAY", "MODEL_IN_PATH", "NDJSON", "NOT_REPEATED", "SSE", "AssembledBlock", "AssembledResponse",
    "AwsMessage", "AwsMessageReader", "BillingHeader", "Capabilities", "CheckInput", "DeltaTemplate",
    "Endpoint", "Enforced", "Fold", "FrameReader", "FrameWriter", "Framing", "HostedUse", "ModelList",
    "ProtocolSpec", "RateLimitHeaders", "ReasoningPart", "RelayObserver", "ResponseContext",
    "SignaturePlaces", "StoredEventWriter", "StreamReader", "StreamWriter", "TokenCount", "ToolLimits",
    "ToolOrigin", "Unchecked", "Undo", "UpstreamSpec", "WebSocketSpec", "WebSocketWriter", "fill_path", "find_endpoint",
    "reframe",
]  # fmt: skip

# Returns why an input of a free-text tool breaks the tool's grammar, None if it does not. Raises Unchecked.
CheckInput: TypeAlias = Callable[[Grammar, str], str | None]


class Unchecked(Exception):
    """An input could not be checked against its grammar. The message gives the reason, and quotes neither."""


class ToolLimits(msgspec.Struct, frozen=True):
    """The limits of a protocol for tools.

    Attributes:
        max_name: Characters of a name. Names always consist of letters, digits, `_` and `-`.
        letter_first: Names begin with a letter or `_`.
        max_call_id: Characters of a call id, None for any number.
        call_id_chars: Call ids are restricted to the characters of names.
        custom: The protocol has custom (free text) tools.
        custom_by_default: Its servers usually accept them.
        namespaces: Names may have a namespace next to them.
        allowed: A choice may list the tools that may be called.
        hosted_tools: The tools run by the provider that it has a form for.
        mcp_choice: It can restrict an MCP server to some of its tools.
        hosted_choice: A choice of no tool is about those run by the provider, too.
        plain_schemas: A tool's schema is an object with properties, which combines no others at its top.
    """

    max_name: int = 64
    letter_first: bool = False
    max_call_id: int | None = 64
    call_id_chars: bool = False
    custom: bool = True
    custom_by_default: bool = False
    namespaces: bool = False
    allowed: bool = True
    hosted_tools: frozenset[HostedUse] = frozenset(("web_search", "code_execution", "mcp"))
    mcp_choice: bool = True
    hosted_choice: bool = True
    plain_schemas: bool = True


class RateLimitHeaders(msgspec.Struct, frozen=True):
    """The headers that report what remains of a rate limit.

    Attributes:
        prefix: The start of all of them. Headers of an upstream with this prefix are for the client.
        suffix: The end of the name, with `{limit}` for one of `limits` and `{what}` for `limit`, `remaining`, `reset`.
        limits: The limited things, as the headers name them.
        reset: How the end of a limit is written: as a duration such as `6m0s`, or as a time in RFC 3339's format.
    """

    prefix: str
    suffix: str = "{what}-{limit}"
    limits: tuple[str, ...] = ("requests", "tokens")
    reset: Literal["duration", "time"] = "duration"

    def header(self, limit: str, what: Literal["limit", "remaining", "reset"]) -> str:
        """Return the name of one header."""
        return self.prefix + self.suffix.format(limit=limit, what=what)


def find_endpoint(
    protocols: Iterable[ProtocolSpec], path: str, query: str = ""
) -> tuple[ProtocolSpec, Endpoint, str] | None:
    """Return protocol, endpoint and model ("" unless the path has it) of a path below the gateway's root, or None."""
    for spec in protocols:
        for endpoint in spec.endpoints:
            model = endpoint.match(path, query)
            if model is not None:
                return spec, endpoint, model
    return None


# In the place of a member of the client's body that is too large to be repeated. It is known by its identity, and never
# written: only what stands there if the client set nothing has the type that the response's member needs. It counts as
# true, because the client has set something.
NOT_REPEATED = msgspec.Raw(b'"..."')


class ResponseContext(msgspec.Struct, frozen=True):
    """The facts of a request that its response needs. TranslatedRequest.response_context() makes one.

    Attributes:
        request: The client's request, as its protocol's reader returned it, without its messages and tools.
        id: A token from outside (letters and digits), unique to this response. Ids in the response derive from it.
        now: Seconds since the epoch.
        model: The name of the model that the client gets.
        signer: Wraps reasoning signatures on their way to the client.
        prompt_tokens: An estimate, for protocols that report a figure before the upstream does.
        upstream_model: The model that was requested from the upstream, "" if unknown. Signatures are bound to it.
        undo: The changes of the passes over the request.
        endpoint: Where the request came in, None for the first one of its protocol.
        echo: Members of the client's body that the response repeats, see ProtocolSpec.echoed_members. NOT_REPEATED in
            the place of a value that is too large for that.
        stored: The response is stored for the client. Protocols that have a member for it report that.
        clock: Returns the seconds since the epoch when the response is complete. Without it `now` is reported.
        rewritten: The upstream speaks the client's protocol, and the request was fitted to it (Capabilities.relay).
        mask: Removes from errors of the upstream, anywhere in the response, what the client may not see. None: nothing.
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
    echo: JSONObject = {}
    stored: bool = False
    clock: Callable[[], int] | None = None
    rewritten: bool = False
    mask: Masker | None = None

    def __repr__(self) -> str:
        return f"<ResponseContext {self.id} of {self.model}>"

    def response_id(self, prefix: str, upstream_id: str) -> str:
        """Return the id of the response: the upstream's if a later request may refer to it there, else one of ours."""
        return upstream_id if self.rewritten and not self.stored and upstream_id else f"{prefix}{self.id}"


class StreamReader(Protocol):
    """Frames of an upstream's stream in, events out. Raises RemoteProtocolError for what it cannot read."""

    def read(self, frame: Frame) -> Sequence[Event]:
        """Return the events of this frame: none, one or many."""

    def eof(self) -> Sequence[Event]:
        """Return the last events after the end of the stream, nothing if the end event has come.

        Raises RemoteProtocolError if the response is not complete: an early end is never a success.
        """

    def template_for(self, delta: Delta) -> DeltaTemplate | None:
        """Return how frames like the last one can be read without decoding them, or None.

        Called if the last frame gave only this delta. Return a template only if every following frame that differs
        only in its text would decode to this same delta with that text.
        """


class StreamWriter(Protocol):
    """Events in, whole server-sent events out. The events come in legal order, see dragoman.testing."""

    def send(self, event: Event) -> bytes:
        """Return the bytes for one event, b"" if there are none yet."""

    def send_texts(self, delta: Delta, texts: list[str]) -> bytes:
        """Return the bytes that send() would return for deltas like this one with these texts, one at least.

        Called only for a delta of an open block whose text was the last thing that was written, so that most writers
        put the same bytes around each text.
        """


class _FramedWriter(msgspec.Struct):
    """A writer whose events reach the client in another framing. See StreamWriter."""

    _writer: StreamWriter
    _frames: FrameWriter

    def send(self, event: Event) -> bytes:
        data = reframe(self._frames, self._writer.send(event))
        return data + self._frames.eof() if type(event) in (Ended, Failed) else data

    def send_texts(self, delta: Delta, texts: list[str]) -> bytes:
        return reframe(self._frames, self._writer.send_texts(delta, texts))


class RelayObserver(Protocol):
    """Watches a relayed stream. It changes nothing. A class that inherits it starts with the values here.

    Only the first and last frames are passed in, in order; a frame may be passed twice.

    Attributes:
        usage: The tokens that were reported so far.
        content_started: Content has come: a delta that is not empty, or a start with content, such as the name of a
            tool. It cannot be taken back.
        ended: The stream ended well.
        stream_finished: The frame has come that ends a stream for good: nothing may follow it.
        error: The error that the upstream reported in the stream, or None.
        whole_body: The whole response, once a frame has repeated it, be it as a failed one; None in protocols where
            none does.
    """

    usage: Usage = Usage()
    content_started: bool = False
    ended: bool = False
    stream_finished: bool = False
    error: WireError | None = None
    whole_body: JSONObject | None = None

    def observe(self, frame: Frame) -> None:
        """Read one frame that was passed on. Never raises."""

    def fail(self, error: WireError) -> bytes:
        """Return frames that end a stream which broke off, in the form of the protocol."""


class StoredEventWriter(Protocol):
    """The bytes of one response's stream in, the events of a stored response out: numbered without a gap, and about it.

    Attributes:
        members: What every Response object in them has, its id among them.
        next: The number of the next event.
        final: The response that the last event has, None before the end.
    """

    members: JSONObject
    final: JSONObject | None

    @property
    def next(self) -> int: ...

    def begin(self, response: JSONObject) -> bytes:
        """Return the event that says that the response has begun. The stream's own is left out."""

    def receive(self, data: bytes) -> list[bytes]:
        """Return the events that the bytes complete, none behind the one that sets `final`."""

    def end(self, response: JSONObject) -> bytes:
        """Return the last event, for a response that has failed without one. It replaces an end that is not stored."""

    def error(self, error: WireError) -> bytes:
        """Return the event for an error of sending the events, which leaves the response as it is."""


class ProtocolSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One protocol, as clients speak it.

    Attributes:
        name: Its key in PROTOCOLS and in configurations.
        endpoints: The paths at which it is served. The first one is the default.
        sequential: Streams have one open block at a time.
        choices: A response may have several choices.
        tool_limits: Its limits for tools.
        settings: The neutral names of the plain settings of its requests.
        read_request: The client's decoded body -> request. Raises RemoteProtocolError.
        stream_writer: Makes the writer of one stream.
        write_whole: An assembled response -> body for the client.
        write_error: An error and the gateway's request id or None -> status and body for the client.
        returns_signatures: A REASONING block with a signature reaches the client, and the client sends it back.
        message_members: Which of `name` and `phase` its messages may have.
        file_store: The vendor's store that its file ids refer to. Protocols with the same store can exchange ids.
        clients_drop_signatures: Many of its clients do not send it back: `_transforms.reasoning_cache` keeps it.
        shows_searches: Its writer has a form for an Opaque of another protocol with a web search in it.
        needs_usage: Its responses report usage even if the client did not request it.
        usage_at_start: Its streams begin with usage. As upstreams report it at the end, estimates are sent.
        needs_model: A request has to name a model; else there may be a default, and Request.model may be "".
        server_state_params: Settings that refer to a conversation on its own servers -> code of the error elsewhere.
        failed_bodies: write_whole accepts a response with an error too, and writes it as a failed one.
        echoed_members: Members of a request that its responses repeat, or depend on.
        stored_responses: If its responses can be stored, and later requests refer to them, as in the Responses API:
            makes the writer of the events of one, from its members and the number of the first event. None if not.
        websocket: How it is served over a WebSocket, None if it is not.
        version_header: Name and default of the header with the API's version that its clients send; None for none.
        rate_limit_headers: The rate limit headers of its responses, None if its clients expect none.
        token_count: How its clients have tokens counted, None if they do not.
        model_list_form: The vendor in whose form its clients read a list of models.
        path_prefixes: Beginnings of paths that only its clients request, such as another version of its API. Below each
            of them is a list of models.
        client_headers: Lower-case names of headers that only its clients send, besides version_header.
        reference: The page of the vendor that documents the bodies of requests and responses, "" if none does.
        request_type, response_type: What is in these bodies, for documentation; None where a vendor documents it.
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
    settings: frozenset[Param] = frozenset()
    returns_signatures: bool = True
    message_members: frozenset[str] = frozenset()
    file_store: str = ""
    clients_drop_signatures: bool = False
    shows_searches: bool = False
    needs_usage: bool = True
    usage_at_start: bool = False
    needs_model: bool = True
    failed_bodies: bool = False
    echoed_members: tuple[str, ...] = ()
    server_state_params: Mapping[Param, str] = {}
    stored_responses: Callable[[JSONObject, int], StoredEventWriter] | None = None
    websocket: WebSocketSpec | None = None
    version_header: tuple[str, str] | None = None
    rate_limit_headers: RateLimitHeaders | None = None
    token_count: TokenCount | None = None
    model_list_form: Literal["openai", "anthropic", "google"] = "openai"
    path_prefixes: tuple[str, ...] = ()
    client_headers: frozenset[str] = frozenset()
    reference: str = ""
    request_type: type | None = None
    response_type: type | None = None

    def framed_writer(self, context: ResponseContext, ledger: Ledger) -> StreamWriter:
        """Make the writer of one stream in the framing of the endpoint where its request came in."""
        writer, endpoint = self.stream_writer(context, ledger), context.endpoint or self.endpoints[0]
        framing = endpoint.framing
        return writer if framing.writer is None else _FramedWriter(writer, framing.writer())


class SignaturePlaces(msgspec.Struct, frozen=True):
    """Where a request of a protocol has signatures, for bodies that are relayed with wrapped ones in them.

    Attributes:
        conversation: The member with the messages or items.
        members: The members of a message that are lists of objects with signatures; none if the items have them.
        fields: The field of a signature by the type of its object, "" for an object without one.
        prepare: Changes the messages before, into the spelling in which signatures are looked for.
        replace: Returns the objects in the place of one: `native` is what its signature wraps, None for an object
            without a wrapped signature. May change the message that the object is in.
        without: Returns what is left of an object whose signature is dropped.
        finish: Changes the rest of the body, after all signatures.
    """

    conversation: str = "messages"
    members: tuple[str, ...] = ()
    fields: Mapping[str, str] = {}
    prepare: Callable[[list[JSON]], None] = lambda conversation: None
    replace: Callable[[JSONObject, JSONObject | None, JSONObject, str, Ledger], Iterable[JSON]] = (
        lambda found, native, message, path, ledger: (found if native is None else native,)
    )
    without: Callable[[JSONObject], Iterable[JSON]] = lambda found: ()
    finish: Callable[[JSONObject, Signer, Ledger], None] = lambda body, signer, ledger: None


class BillingHeader(msgspec.Struct, frozen=True):
    """A line for the vendor's billing in the instructions, which its own client sends. It differs in each request."""

    member: str  # with the instructions
    marker: bytes  # in every body with the line
    strip: Callable[[JSON], JSON]  # returns the member without the line, the same object if it has none

    def drop(self, instructions: JSON, ledger: Ledger) -> JSON:
        """Return the member without the line, and record that it was dropped."""
        stripped = self.strip(instructions)
        if stripped is not instructions:
            ledger.dropped(
                f"/{self.member}", "the line for the billing of another provider: it is new in each request"
            )
        return stripped


class UpstreamSpec(ProtocolSpec, frozen=True, kw_only=True):
    """A protocol that upstreams speak as well.

    Attributes:
        path: The endpoint, below the base URL, maybe with a query. `{model}` is the model, which is not in the body.
        stream_path: The endpoint of requests for a stream, None if it is the same.
        framing: How a stream comes from servers. Its reader gets server-sent events whatever this is.
        capabilities: What its servers differ in, with its own fields if it has any. A field of the same name in another
            protocol has the same annotation, because an upstream may speak both.
        write_request: Request and `capabilities` -> body for the upstream; losses are recorded. Raises RequestRefused
            for what must not be dropped.
        stream_reader: Makes the reader of one stream.
        read_whole: A decoded whole response -> events. Raises RemoteProtocolError.
        read_error: Status and body of an upstream's error response -> error. Never raises.
        is_native_error: True if an error body has the form that clients of this protocol read, so it can be relayed.
        overflow_markers: One of these byte strings is in an error by which clients notice that the prompt is too long.
            Without them, such an error is not relayed. Empty: clients look for none, or know the words of many servers.
        observer: Makes the observer of one relayed stream.
        end_markers: Every frame that sets RelayObserver.stream_finished has one of these byte strings in it.
        output_member: The member of a whole response with the model's output.
        feedback_member: The one that a whole response without output has in its place, None if all have output.
        base_path: The end of the base URL that the vendor's own SDK takes: "/v1", or nothing.
        error_markers: Every frame that reports an error has one of these byte strings in it.
        max_stop_sequences: How many stop sequences a request may have, None for any number.
        max_cache_marks: How many cache marks a request may have.
        cache_mark_form: `capabilities` -> the member that a cache mark on content is, None if the server accepts none.
            None instead of it: all accept them, on tools too, one for the whole request counts among them, and longer
            ones come first.
        media, file_id_media: The kinds of Media that a request may have, and those that it may have by file id.
        url_media: How the URLs begin that its servers read, by these kinds: as those of the web, if not listed.
        text_roles: The roles of messages that can have no Media.
        prefix_member: The member of an assistant's message that requests its continuation, None if there is none.
        checks_strict_schemas: Its servers refuse a schema as strict that does not close and require all of its objects.
        model_bound_signatures: Its signatures can be read only by the model that made them.
        request_headers: A written body -> names and values of the headers that it requires.
        wrapped_marker: Found in every body with a value that was put into the conversation on behalf of another
            protocol. Servers refuse it, so such a body is not relayed as it is.
        signature_places: Where its requests have signatures.
        refusals: Capabilities that a server may lack -> a pattern of its error (400, 422), as "parameter: message".
        relay_refusals: Those that a rewritten relay fits to such a server, too.
        billing_header: Where its requests have a line for the vendor's billing, None if they have none.
        content_members: What is content, or decides what the model does: it is sent even if a server has refused it.
        auth_header: The header with the key. In `authorization` it is a bearer token.
        auth_query: The parameter of the query in which a client may send its key instead, None if there is none.
        forwarded_headers: Lower-case names of headers that its clients may send to upstreams of this protocol.
        list_headers: Headers whose values are lists: configured values are added to the client's.
        response_headers: Lower-case names of response headers that clients may see, besides rate-limit headers.
        model_list: Where the upstreams list their models, None if they do not.
    """

    path: str
    stream_path: str | None = None
    framing: Framing = SSE
    write_request: Callable[[Request, Any, Ledger], JSONObject]
    stream_reader: Callable[[ResponseContext, Ledger], StreamReader]
    read_whole: Callable[[JSONObject, ResponseContext, Ledger], Sequence[Event]]
    read_error: Callable[[int, bytes], WireError]
    is_native_error: Callable[[bytes], bool]
    overflow_markers: tuple[bytes, ...] = ()
    observer: Callable[[ResponseContext], RelayObserver]
    end_markers: tuple[bytes, ...]
    output_member: str
    feedback_member: str | None = None
    capabilities: type[Capabilities] = Capabilities
    base_path: str = "/v1"
    error_markers: tuple[bytes, ...] = (b"error",)
    max_stop_sequences: int | None = None
    max_cache_marks: int = 4
    cache_mark_form: Callable[[Any], str | None] | None = lambda capabilities: None
    media: frozenset[str] = frozenset(("image", "file"))
    url_media: Mapping[str, tuple[str, ...]] = {}
    file_id_media: frozenset[str] = frozenset(("image", "file"))
    text_roles: frozenset[Role] = frozenset()
    prefix_member: str | None = None
    checks_strict_schemas: bool = False
    model_bound_signatures: bool = True
    request_headers: Callable[[JSONObject], Sequence[tuple[str, str]]] = lambda body: ()
    wrapped_marker: re.Pattern[bytes] = WRAPPED_MARKER
    signature_places: SignaturePlaces = SignaturePlaces()
    refusals: Mapping[str, re.Pattern[str]] = {}
    relay_refusals: frozenset[str] = frozenset()
    billing_header: BillingHeader | None = None
    content_members: frozenset[str] = frozenset({"model", "messages", "stream", "tools"})
    auth_header: str = "authorization"
    auth_query: str | None = None
    forwarded_headers: frozenset[str] = frozenset()
    list_headers: frozenset[str] = frozenset()
    response_headers: frozenset[str] = frozenset()
    model_list: ModelList | None = None

    @property
    def model_in_path(self) -> bool:
        """True if requests name their model in the path, and not in the body."""
        return MODEL_IN_PATH in self.path

    def is_response(self, body: JSONObject) -> bool:
        """True if a decoded body is a whole response, and no error."""
        return self.output_member in body or self.feedback_member in body

    def path_for(self, model: str, *, stream: bool) -> str:
        """Return the path and query of a request for a response, below the base URL. Raises RequestRefused."""
        return fill_path(self.stream_path if stream and self.stream_path is not None else self.path, model)
