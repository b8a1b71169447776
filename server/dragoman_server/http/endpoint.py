"""The base of all endpoints: one log line per request, and errors in the client's form.

Endpoints are plain ASGI applications, because a stream needs `receive` and `send` with nothing in between. An endpoint
implements `serve()`; the code here turns its errors into responses.
"""

import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import TypeVar

import anyio
import anyio.lowlevel
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from dragoman import ErrorKind, RemoteProtocolError, RequestHead, RequestRefused, Usage, WireError, peek
from dragoman.codec import MODEL_IN_PATH, Endpoint, ProtocolSpec
from dragoman.jsontext import JSON, encode
from dragoman_server.accounts.limits import BudgetReservation, ClientRefused
from dragoman_server.accounts.usage import Meter, usage_of
from dragoman_server.cancellation import Arguments, return_if_cancelled
from dragoman_server.clock import event_loop_clock
from dragoman_server.gateway import Gateway
from dragoman_server.headers import JSON_HEADERS, HeaderList, request_id_headers
from dragoman_server.http.auth import SCOPE_KEY
from dragoman_server.http.errors import INTERNAL_ERROR
from dragoman_server.http.request import ClientDisconnected, read_body
from dragoman_server.log import RequestRecord
from dragoman_server.models.routes import default_model
from dragoman_server.off_loop import INLINE_BYTES, off_loop
from dragoman_server.proxying.affinity import reasoning_key
from dragoman_server.proxying.destinations import Destination, find_destinations, record_destination
from dragoman_server.proxying.plan import Plan, PlanChange, Planner
from dragoman_server.proxying.request_handler import (
    RequestHandler,
    StoreResponse,
)
from dragoman_server.recordings.recorder import SCOPE_TAPE, Tape
from dragoman_server.replies import Reply, error_reply, send_reply
from dragoman_server.responses.service import ExpandedRequest
from dragoman_server.settings import ClientKey
from dragoman_server.streams.byte_stream import WRITE_NOW, WriteNow
from dragoman_server.telemetry.requests import RequestTelemetry
from dragoman_server.upstream.content_coding import ACCEPTED_CODINGS

Result = TypeVar("Result")

ERRORS = logging.getLogger("dragoman.errors")

# Seconds for counting what a request used, after everything else was cancelled.
_SETTLE_S = 5.0

# Seconds for estimating the tokens of a large request that has ended. After that its bytes are counted.
_ESTIMATE_S = 5.0

# Seconds for the last error response, after everything else was cancelled.
_LAST_ERROR_S = 5.0

_GATEWAY_STOPS = WireError(
    ErrorKind.OVERLOADED,
    "the gateway is stopping, and the upstream had not responded yet; send the request again",
    status=503,
)


class ClientRequest:
    """The HTTP side of one request: what the client sent, its log record, and how far the response got.

    headers: lower-case names; the values of a repeated header are joined, as HTTP allows.
    model_in_path: the model that the path names, "" if it names none.
    query: the query string, without the question mark.
    now: when it arrived, in seconds since the epoch.
    key: the client key that it came with, None where none is needed.
    admitted: its key may send it, see BaseEndpoint.read().
    counted: it counts for its key's limits and usage.
    reserved: the part of its key's budget that is reserved for it.
    plan: the plan that was carried out for it, None until then.
    reasoning_key: under which reasoning is kept, "" for protocols whose clients send it back.
    started: a response has begun, or is about to.
    meter: measures what the client gets, None where nothing needs it.
    telemetry: its part in metrics and traces, None where there are none.
    broken: `send` raised OSError, as it should "when send is called after the client has gone" -- ASGI 2.4
    """

    def __init__(self, scope: Scope, receive: Receive, send: Send, record: RequestRecord) -> None:
        self.scope = scope
        self.receive = receive
        self.record = record
        self.headers = _joined_headers(scope)
        self.model_in_path: str = scope.get("path_params", {}).get("model", "")
        self.query: str = scope.get("query_string", b"").decode("latin-1")
        self.now = unix_time()
        self.key: ClientKey | None = scope.get(SCOPE_KEY)
        if self.key is not None:
            record.client_key = self.key.name
        self.admitted = False
        self.counted = False
        self.reserved: BudgetReservation | None = None
        self.plan: Plan | None = None
        self.reasoning_key = ""
        self.started = False
        self.meter: Meter | None = None
        self.telemetry: RequestTelemetry | None = None
        self.broken = False
        self._send = send
        self._write_now: WriteNow | None = scope.get("extensions", {}).get(WRITE_NOW, {}).get("write")

    async def send(self, message: Message) -> None:
        """Send an ASGI message of the response."""
        self.started = True
        if self.meter is not None:
            self.meter.add(message.get("body", b""))
        try:
            await self._send(message)
        except OSError:
            self.broken = True
            raise

    def write_now(self, data: bytes) -> bool:
        """Pass bytes of the body past `send`, which has begun the response, if that is possible. See WriteNow."""
        if self._write_now is None or not self._write_now(data):
            return False
        if self.meter is not None:
            self.meter.add(data)
        return True

    @property
    def owner(self) -> str:
        """Owner of anything stored for this request: the client key's name, or "" without keys."""
        return "" if self.key is None else self.key.name

    async def off_loop(
        self, size: int, function: Callable[[*Arguments], Result], *arguments: *Arguments
    ) -> Result:
        """Call off_loop() before a response begins. A client that leaves ends the wait for a thread.

        size: of the input, in bytes. Raises ClientDisconnected, and what the function raises.
        """
        if size <= INLINE_BYTES:
            return function(*arguments)
        return await self.while_connected(off_loop(size, function, *arguments))

    async def while_connected(self, work: Awaitable[Result]) -> Result:
        """Await what takes long, before a response begins, and cancel it if the client leaves.

        Raises ClientDisconnected, and the errors for clients that the work raises.
        """
        refused: RemoteProtocolError | RequestRefused | None = None
        left = False

        async def watch() -> None:
            nonlocal left
            while (await self.receive())["type"] != "http.disconnect":
                pass
            left = True
            tasks.cancel_scope.cancel()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(return_if_cancelled, watch)
            try:
                result = await work
            except (RemoteProtocolError, RequestRefused) as error:
                refused = error  # outside of the group, which would wrap it
            tasks.cancel_scope.cancel()
        if left:
            raise ClientDisconnected
        await anyio.lowlevel.checkpoint_if_cancelled()  # see return_if_cancelled()
        if refused is not None:
            raise refused
        return result

    async def respond(self, reply: Reply) -> None:
        """Send a whole response."""
        self.record.status = reply.status
        await send_reply(self.send, reply)

    async def respond_json(self, value: JSON, headers: HeaderList | None = None) -> None:
        """Send a JSON value with status 200."""
        record = self.record
        record.outcome = "completed"
        await self.respond(
            Reply(200, [*JSON_HEADERS, *request_id_headers(record.id), *(headers or ())], encode(value))
        )


class BaseEndpoint(ABC):
    """One path, for clients of one protocol. endpoint: where requests come in, by default the protocol's first one."""

    def __init__(self, gateway: Gateway, protocol: ProtocolSpec, endpoint: Endpoint | None = None) -> None:
        self.gateway = gateway
        self.protocol = protocol
        self.endpoint = endpoint

    @abstractmethod
    async def serve(self, request: ClientRequest) -> None:
        """Respond to one request.

        A RemoteProtocolError or RequestRefused that is raised before anything is sent becomes an error response in the
        client's form.
        """

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        record = self.gateway.request_began(scope, self.protocol.name)
        loop_time = event_loop_clock()
        started = loop_time()
        request = ClientRequest(scope, receive, send, record)
        request.telemetry = self.gateway.telemetry.begin(record, scope, request.headers)
        try:
            await self._serve_or_refuse(request)
        except ClientDisconnected:
            record.outcome = "client_left"
        except Exception:  # by itself, or in the group of the request's tasks
            if request.broken:
                record.outcome = "client_left"
                return
            record.outcome, record.error = "failed", "internal error"
            record.error_kind = INTERNAL_ERROR.kind.value
            ERRORS.exception("request %s failed", record.id)
            if request.started:
                raise  # the server then closes the connection in the middle, so the client sees a broken response
            await self._send_last_error(request, INTERNAL_ERROR)
        except anyio.get_cancelled_exc_class():
            record.outcome = "cancelled"
            if not request.started:
                # hypercorn 0.18 protocol/http_stream.py:139 would send an empty 500.
                await self._send_last_error(request, _GATEWAY_STOPS)
            raise
        finally:
            record.duration_s = loop_time() - started
            usage = await self._usage_of(request)
            self.gateway.request_ended(record)
            if request.telemetry is not None:
                request.telemetry.end()
            if request.key is not None and request.counted:
                tokens = (record.input_tokens or 0) + (record.output_tokens or 0)
                self.gateway.key_usage.count(request.key.name, tokens, record.cost_usd or 0.0, time.time())
            if request.key is not None and (usage is not None or request.reserved is not None):
                with anyio.move_on_after(_SETTLE_S, shield=True):
                    await self.gateway.limits.settle(
                        request.key, usage or Usage(), record.cost_usd, request.reserved
                    )

    async def _send_last_error(self, request: ClientRequest, error: WireError) -> None:
        with anyio.move_on_after(_LAST_ERROR_S, shield=True), suppress(OSError):
            await self._refuse(request, error)

    async def read(self, request: ClientRequest, *, counts: bool = True) -> tuple[bytes, RequestHead]:
        """Return a request's body and head, if its client key may send it. Nothing is sent upstream before this.

        counts: the request counts for the key's limits.

        Raises ClientDisconnected, RemoteProtocolError and RequestRefused.
        """
        gateway, limits, server = self.gateway, self.gateway.limits, self.gateway.settings.server
        body = await read_body(
            request.receive,
            request.headers.get("content-encoding", ""),
            request.headers.get("content-length", ""),
            server.max_body_bytes,
            server.body_timeout_s,
        )
        request_head = await request.off_loop(len(body), peek, body, request.model_in_path)
        model = request_head.model or default_model(gateway.settings) or ""
        request.record.model = model or None
        await gateway.catalog.ensure_list_for(model)
        if request.key is not None:
            prices = limits.check_model(request.key, self.protocol.name, model, gateway.catalog.listed)
            if counts:
                request.reserved = await limits.admit(request.key, limits.estimate(prices, len(body)))
        if counts and limits.needs_usage(request.key):
            request.meter = Meter()
        request.admitted, request.counted = True, counts
        return body, request_head

    async def _usage_of(self, request: ClientRequest) -> Usage | None:
        """Return what a request has used, None if nothing needs it. Put the price into its record."""
        record, plan, meter = request.record, request.plan, request.meter
        if plan is None or meter is None:
            return None
        size = plan.request.size if record.input_tokens is None else 0  # an estimate reads the request
        usage = None
        with anyio.move_on_after(_ESTIMATE_S, shield=True):
            usage = await off_loop(size, usage_of, record, plan, meter)
        if usage is None:
            record.input_tokens, record.estimated = plan.context.prompt_tokens, True
            usage = usage_of(record, plan, meter)
        record.cost_usd = self.gateway.limits.cost(
            record.model, record.upstream, record.upstream_model, usage
        )
        return usage

    async def _serve_or_refuse(self, request: ClientRequest) -> None:
        try:
            await self.serve(request)
        except (RemoteProtocolError, RequestRefused) as error:
            if request.started:
                raise
            refusal = error.as_wire_error()
            request.record.outcome, request.record.error = "refused", error.message
            request.record.error_kind = refusal.kind.value
            await self._refuse(
                request,
                refusal,
                error.headers(self.protocol) if isinstance(error, ClientRefused) else (),
            )

    async def _refuse(
        self, request: ClientRequest, error: WireError, extra_headers: Iterable[tuple[str, str]] = ()
    ) -> None:
        id = request.record.id
        headers = [*request_id_headers(id), *extra_headers]
        if error.status == 415:
            # "... the response SHOULD have an Accept-Encoding header field" -- RFC 9110, 12.5.3
            headers.append(("accept-encoding", ACCEPTED_CODINGS))
        await request.respond(error_reply(self.protocol, error, id, headers))

    async def plan(
        self,
        request: ClientRequest,
        body: bytes,
        request_head: RequestHead | None = None,
        change: PlanChange | None = None,
    ) -> Plan:
        """Plan the request with this body, which may differ from the client's.

        Raises RemoteProtocolError, RequestRefused and ClientDisconnected.

        request_head: from peek() for this body, if that was called already. change: see PlanChange.
        """
        # The request refers to the plan, which must not refer to the request.
        store = self.gateway.reasoning_store
        if store is not None and self.protocol.clients_drop_signatures:
            if request_head is None:
                request_head = await request.off_loop(len(body), peek, body)
            request.reasoning_key = await request.off_loop(
                len(body), reasoning_key, request.owner, request.headers, request_head
            )
        key = request.reasoning_key
        gateway, now = self.gateway, anyio.current_time()
        planner = Planner(
            gateway.settings,
            self.protocol,
            request.headers,
            request.query,
            body,
            id=request.record.id,
            now=request.now,
            clock=unix_time,
            upstreams=gateway.upstreams,
            listed=gateway.catalog.listed,
            endpoint=self.endpoint,
            model_in_path=request.model_in_path,
            request_head=request_head,
            client_key=request.key,
            reasoning_lookup=None
            if store is None
            else lambda calls: store.get(key, calls, now),  # maybe in a thread, which has no such clock
            check_input=None if gateway.input_checker is None else gateway.input_checker(),
            change=change,
            refused_members=gateway.refused_members,
        )
        return await request.off_loop(len(body), planner.first)

    async def expand(
        self,
        request: ClientRequest,
        body: bytes,
        request_head: RequestHead,
        destination: Destination,
        *,
        store_response: bool,
    ) -> ExpandedRequest:
        """Insert what a request refers to, see StoredResponseService.expand(). Its budget then bears all of that."""
        gateway = self.gateway
        expanded = await gateway.responses.expand(
            body,
            request_head,
            destination,
            store_response=store_response,
            now=request.now,
            owner=request.owner,
            max_bytes=gateway.settings.server.max_body_bytes,
            off_loop=request.off_loop,
        )
        if request.key is not None and request.reserved is not None and len(expanded.body) > len(body):
            prices = gateway.limits.check_model(
                request.key, self.protocol.name, destination.model, gateway.catalog.listed
            )
            dollars = gateway.limits.estimate(prices, len(expanded.body))
            request.reserved = await gateway.limits.reserve_more(request.key, request.reserved, dollars)
        return expanded

    def request_handler(
        self,
        plan: Plan,
        request: ClientRequest,
        *,
        sends: bool = True,
        store_response: StoreResponse | None = None,
    ) -> RequestHandler:
        """Return what carries out a planned request. Its `run()` sends the response.

        sends: false leaves the response, a whole one, in `reply`. store_response: see RequestHandler.
        """
        if not request.admitted:
            raise RuntimeError("a request must be admitted before it is sent")
        store, key = self.gateway.reasoning_store, request.reasoning_key
        request.plan = plan
        request.record.model, request.record.stream = plan.context.model, plan.streams
        record_destination(request.record, plan.destination)
        telemetry = request.telemetry
        if telemetry is not None:
            telemetry.planned(stream=plan.streams)
        tape: Tape | None = request.scope.get(SCOPE_TAPE)
        sender_for = self.gateway.sender_for
        return RequestHandler(
            plan,
            sender_for if tape is None else tape.senders_for(plan, sender_for),
            request.receive,
            request.send if sends else None,
            request.record,
            pool=self.gateway.pool,
            keepalive_s=self.gateway.settings.server.keepalive_s,
            needs_usage=request.meter is not None,
            write_now=request.write_now,
            store_response=store_response,
            cache_reasoning=None
            if store is None
            else lambda cached: store.put(key, *cached, anyio.current_time()),
            trace=None if telemetry is None else telemetry.trace,
        )

    def destination(self, model: str) -> Destination:
        """Return where a request for this model goes first. Raises RemoteProtocolError, see find_destinations()."""
        gateway = self.gateway
        return find_destinations(
            gateway.settings, self.protocol, model, gateway.upstreams, gateway.catalog.listed
        )[0]

    async def fetch_reply(self, plan: Plan, request: ClientRequest) -> Reply | None:
        """Carry out a plan that does not stream, and return its reply instead of sending it.

        None if the client has left.
        """
        handler = self.request_handler(plan, request, sends=False)
        await handler.run()
        return handler.reply


class ProtocolEndpoint(BaseEndpoint):
    """One endpoint of a protocol: POST a request, get a response in the same protocol."""

    async def serve(self, request: ClientRequest) -> None:
        # Without a name for the body, which would keep it until the response has ended.
        await self.request_handler(await self.plan(request, *await self.read(request)), request).run()


def post_route(path: str, endpoint: BaseEndpoint) -> Route:
    """Return the route of requests to a path of a protocol, which may have a place for the model in it."""
    # Names of models may have a slash.
    return Route(path.replace(MODEL_IN_PATH, "{model:path}"), endpoint, methods=["POST"])


def unix_time() -> int:
    """Return the seconds since the epoch."""
    return int(time.time())


def _joined_headers(scope: Scope) -> dict[str, str]:
    joined: dict[str, str] = {}
    for raw_name, raw_value in scope["headers"]:
        name, value = raw_name.decode("latin-1"), raw_value.decode("latin-1")
        joined[name] = f"{joined[name]}, {value}" if name in joined else value
    return joined
