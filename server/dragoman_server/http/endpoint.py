"""What all endpoints have in common: one log line a request, and errors in the client's form.

Strategy: plain ASGI applications, for a stream needs `receive` and `send` and nothing in between. An endpoint says
in `serve` what it does; whatever goes wrong there is told by the code here.
"""

import logging
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Iterable, Mapping
from contextlib import suppress

import anyio
from starlette.datastructures import Headers
from starlette.types import Message, Receive, Scope, Send

from dragoman import ErrorKind, RemoteProtocolError, RequestHead, RequestRefused, Usage, WireError, peek
from dragoman._transforms.reasoning_cache import CachedReasoning, ReasoningLookup
from dragoman.codec import Endpoint, ProtocolSpec
from dragoman.jsontext import JSON, encode
from dragoman_server.accounts.limits import BudgetReservation, ClientRefused
from dragoman_server.accounts.usage import Meter, usage_of
from dragoman_server.gateway import Gateway
from dragoman_server.headers import JSON_HEADERS, HeaderList, request_id_headers
from dragoman_server.http.request_body import ClientDisconnected, read_body
from dragoman_server.keys import SCOPE_KEY
from dragoman_server.log import RequestRecord, log_request
from dragoman_server.models.routes import default_model
from dragoman_server.proxying.plan import Destination, Plan, find_destination, make_plan
from dragoman_server.proxying.request_handler import CacheReasoning, RequestHandler, StoreResponse
from dragoman_server.replies import Reply, error_reply, send_reply
from dragoman_server.settings import ClientKey, ServerSettings
from dragoman_server.upstream.content_coding import ACCEPTED_CODINGS

ERRORS = logging.getLogger("dragoman.errors")

# Seconds for counting what a request took, when everything else was cancelled.
_SETTLE_S = 5.0

# Seconds for the answer that an internal error still gets, when everything else was cancelled.
_LAST_WORDS_S = 5.0

_CUT = WireError(
    ErrorKind.OVERLOADED,
    "the gateway is stopping, and the upstream had not answered yet; send the request again",
    status=503,
)
INTERNAL_ERROR = WireError(ErrorKind.SERVER, "internal error of the gateway; its log has more", status=500)


class TrackingSend:
    """`send`, and what became of it.

    started: a response has begun, or is about to.
    meter: measures what the client gets, None where nobody asks.
    broken: "the server SHOULD raise an OSError when send is called after the client has gone" -- ASGI 2.4
    """

    __slots__ = ("_send", "broken", "meter", "started")

    def __init__(self, send: Send) -> None:
        self._send = send
        self.started = False
        self.broken = False
        self.meter: Meter | None = None

    async def __call__(self, message: Message) -> None:
        self.started = True
        if self.meter is not None:
            self.meter.add(message.get("body", b""))
        try:
            await self._send(message)
        except OSError:
            self.broken = True
            raise


class ClientRequest:
    """One request to an endpoint.

    headers: lower-case names; of a repeated header the values joined, as HTTP allows.
    now: seconds since the epoch.
    key: the client key that it came with, None where none are needed.
    body_bytes: the length of its body, once that was read.
    admitted: its key may send it, see BaseEndpoint.admit(). reserved: that much of its budget.
    plan: what went out for it, None while nothing did.
    """

    __slots__ = (
        "_server",
        "admitted",
        "body_bytes",
        "headers",
        "http1",
        "key",
        "now",
        "plan",
        "query",
        "receive",
        "record",
        "reserved",
        "scope",
        "send",
    )

    def __init__(
        self,
        scope: Scope,
        receive: Receive,
        send: TrackingSend,
        record: RequestRecord,
        server: ServerSettings,
    ) -> None:
        self.scope = scope
        self.receive = receive
        self.send = send
        self.record = record
        self.headers = _flat(Headers(scope=scope))
        self.query: str = scope.get("query_string", b"").decode("latin-1")
        self.http1: bool = scope.get("http_version", "1.1").startswith("1")
        self.now = unix_time()
        self.key: ClientKey | None = scope.get(SCOPE_KEY)
        if self.key is not None:
            record.client_key = self.key.name
        self.body_bytes = 0
        self.admitted = False
        self.reserved: BudgetReservation | None = None
        self.plan: Plan | None = None
        self._server = server

    @property
    def owner(self) -> str:
        """Whose is what is kept of this request: the name of its key, "" where nobody has one."""
        return "" if self.key is None else self.key.name

    async def body(self) -> bytes:
        """The request's body. Raises ClientDisconnected and RemoteProtocolError."""
        body = await read_body(
            self.receive,
            self.headers.get("content-encoding", ""),
            self.headers.get("content-length", ""),
            self._server.max_body_bytes,
            self._server.body_timeout_s,
        )
        self.body_bytes = len(body)
        return body

    async def respond(self, reply: Reply) -> None:
        self.record.status = reply.status
        await send_reply(self.send, reply)

    async def respond_json(self, value: JSON, headers: HeaderList | None = None) -> None:
        """Answer 200 with a JSON value."""
        record = self.record
        record.outcome = "completed"
        await self.respond(
            Reply(200, [*JSON_HEADERS, *request_id_headers((), record.id), *(headers or ())], encode(value))
        )


class BaseEndpoint(ABC):
    """One path, for clients of one protocol."""

    def __init__(self, gateway: Gateway, protocol: ProtocolSpec) -> None:
        self.gateway = gateway
        self.protocol = protocol

    @abstractmethod
    async def serve(self, call: ClientRequest) -> None:
        """Answer one request.

        RemoteProtocolError, raised before anything is sent, is answered in the client's form: it is for what is
        wrong with the request.
        """

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        record = RequestRecord(id=uuid.uuid4().hex, protocol=self.protocol.name, path=scope["path"])
        begun = anyio.current_time()
        out = TrackingSend(send)
        call = ClientRequest(scope, receive, out, record, self.gateway.settings.server)
        try:
            await self._serve_or_refuse(call)
        except ClientDisconnected:
            record.outcome = "client_left"
        except Exception:  # alone, or in the group of the exchange's tasks
            if out.broken:
                record.outcome = "client_left"
                return
            record.outcome, record.error = "failed", "internal error"
            ERRORS.exception("request %s failed", record.id)
            if out.started:
                raise  # the server then closes the connection without a proper end, which is the honest signal
            await self._say_last(out, INTERNAL_ERROR, record)
        except anyio.get_cancelled_exc_class():
            record.outcome = "cancelled"
            if not out.started:
                # hypercorn 0.18 protocol/http_stream.py:139 would send a 500 with nothing in it.
                await self._say_last(out, _CUT, record)
            raise
        finally:
            record.duration_s = anyio.current_time() - begun
            settling = self._settling(call)
            log_request(record)
            if settling is not None:
                with anyio.move_on_after(_SETTLE_S, shield=True):
                    await settling

    async def _say_last(self, out: TrackingSend, error: WireError, record: RequestRecord) -> None:
        with anyio.move_on_after(_LAST_WORDS_S, shield=True), suppress(OSError):
            await self._refuse(out, error, record)

    async def admit(self, call: ClientRequest, model: str, *, counts: bool = True) -> None:
        """Let a request pass if its client key may send it. Nothing goes out for one that has not passed here.

        model: as the request names it, "" when it names none. counts: it is one of the requests that have limits.
        Raises RemoteProtocolError.
        """
        model = model or default_model(self.gateway.settings) or ""
        await self.gateway.catalog.ensure_list_for(model)
        if call.key is not None:
            if model:  # else it is refused when it is planned
                self.gateway.limits.check_model(
                    call.key, self.protocol.name, model, self.gateway.catalog.listed
                )
            if counts:
                limits, listed = self.gateway.limits, self.gateway.catalog.listed
                estimate = 0.0
                if call.key.budget is not None:
                    estimate = limits.estimate(self.protocol.name, model, call.body_bytes, listed)
                call.reserved = await limits.admit(call.key, estimate)
        if counts and self.gateway.limits.wants_usage(call.key):
            call.send.meter = Meter()
        call.admitted = True

    def _settling(self, call: ClientRequest) -> Awaitable[None] | None:
        """What counts the tokens and the money of a request that has ended, None where there is nothing to count.

        The record gets the price.
        """
        record, meter = call.record, call.send.meter
        limits, usage = self.gateway.limits, Usage()
        if call.plan is not None and meter is not None:
            usage = usage_of(record, call.plan, meter)
            record.cost_usd = limits.cost(record.model, record.upstream, record.upstream_model, usage)
        elif call.reserved is None:
            return None
        return None if call.key is None else limits.settle(call.key, usage, record.cost_usd, call.reserved)

    async def _serve_or_refuse(self, call: ClientRequest) -> None:
        try:
            await self.serve(call)
        except (RemoteProtocolError, RequestRefused) as error:
            if call.send.started:
                raise
            call.record.outcome, call.record.error = "refused", error.message
            more = error.headers(self.protocol) if isinstance(error, ClientRefused) else []
            await self._refuse(call.send, error.as_wire_error(), call.record, more)

    async def _refuse(
        self, send: Send, error: WireError, record: RequestRecord, more: Iterable[tuple[str, str]] = ()
    ) -> None:
        headers = [*request_id_headers((), record.id), *more]
        if error.status == 415:
            # "... the response SHOULD have an Accept-Encoding header field" -- RFC 9110, 12.5.3
            headers.append(("accept-encoding", ACCEPTED_CODINGS))
        reply = error_reply(self.protocol, error, record.id, headers)
        record.status = reply.status
        await send_reply(send, reply)

    def _remember(self, call: ClientRequest) -> CacheReasoning | None:
        thoughts = self.gateway.reasoning_store
        if thoughts is None:
            return None
        owner = call.owner  # the call refers to the plan, which must not refer to the call

        def cache_reasoning(cached_reasoning: CachedReasoning) -> None:
            thoughts.put(owner, *cached_reasoning, anyio.current_time())

        return cache_reasoning

    def request_handler(
        self,
        plan: Plan,
        call: ClientRequest,
        *,
        send: Send | None = None,
        store_response: StoreResponse | None = None,
    ) -> RequestHandler:
        """The exchange of a planned request. send: what takes the answer, by default the client."""
        if not call.admitted:
            raise RuntimeError("a request must be admitted before it is sent")
        call.plan = plan
        record_plan(call.record, plan)
        return RequestHandler(
            plan,
            self.gateway.sender_for,
            call.receive,
            send or call.send,
            call.record,
            pool=self.gateway.pool,
            keepalive_s=self.gateway.settings.server.keepalive_s,
            http1=call.http1,
            store_response=store_response,
            cache_reasoning=self._remember(call),
        )

    def destination(self, model: str) -> Destination:
        """Where the requests of a client for a model go first. Raises RemoteProtocolError, see find_destinations()."""
        gateway = self.gateway
        return find_destination(
            gateway.settings, self.protocol, model, gateway.upstreams, gateway.catalog.listed
        )

    async def fetch_reply(self, plan: Plan, call: ClientRequest) -> Reply | None:
        """The reply to a plan without a stream, before the client has it. None when the client has left."""
        taken = _ReplyCapture()
        await self.request_handler(plan, call, send=taken).run()
        return taken.reply


class _ReplyCapture:
    """Stands in for `send`, and takes a whole reply."""

    def __init__(self) -> None:
        self.reply: Reply | None = None
        self._status = 0
        self._headers: HeaderList = []

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._status = message["status"]
            self._headers = [
                (name.decode("ascii"), value.decode("latin-1"))
                for name, value in message["headers"]
                if name != b"content-length"
            ]
        else:
            self.reply = Reply(self._status, self._headers, message["body"])


class ProtocolEndpoint(BaseEndpoint):
    """One endpoint of a protocol: POST a request, get an answer in the same protocol."""

    def __init__(self, gateway: Gateway, protocol: ProtocolSpec, endpoint: Endpoint) -> None:
        super().__init__(gateway, protocol)
        self.endpoint = endpoint

    async def serve(self, call: ClientRequest) -> None:
        body = await call.body()
        request_head = peek(body)
        await self.admit(call, request_head.model)
        await self.request_handler(self.plan(call, body, request_head), call).run()

    def plan(self, call: ClientRequest, body: bytes, request_head: RequestHead | None = None) -> Plan:
        """peeked: what peek() gave for this body, if it was looked at. Raises RemoteProtocolError."""
        return make_plan(
            self.gateway.settings,
            self.protocol,
            call.headers,
            call.query,
            body,
            id=call.record.id,
            now=call.now,
            clock=unix_time,
            endpoint=self.endpoint,
            request_head=request_head,
            upstreams=self.gateway.upstreams,
            listed=self.gateway.catalog.listed,
            client_key=call.key,
            reasoning_lookup=self._reasoning_lookup(call),
            check_input=self.gateway.check_input,
        )

    def _reasoning_lookup(self, call: ClientRequest) -> ReasoningLookup | None:
        thoughts = self.gateway.reasoning_store
        if thoughts is None:
            return None
        owner = call.owner  # as in _remember()
        return lambda calls: thoughts.get(owner, calls, anyio.current_time())


def unix_time() -> int:
    """Since the epoch."""
    return int(time.time())


def record_plan(record: RequestRecord, plan: Plan) -> None:
    """What the log says of where a request went."""
    record.model = plan.context.model
    record.stream = plan.streams
    record.upstream = plan.settings.name
    record.upstream_protocol = plan.upstream.name
    record.upstream_model = plan.upstream_model


def _flat(headers: Headers | Mapping[str, str]) -> dict[str, str]:
    flat: dict[str, str] = {}
    for name, value in headers.items():
        flat[name] = f"{flat[name]}, {value}" if name in flat else value
    return flat
