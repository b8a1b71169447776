"""The base of all endpoints: one log line per request, and errors in the client's form.

Endpoints are plain ASGI applications, because a stream needs `receive` and `send` with nothing in between. An endpoint
implements `serve()`; the code here turns its errors into responses.
"""

import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import anyio
import anyio.lowlevel
from starlette.datastructures import Headers
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from dragoman import ErrorKind, RemoteProtocolError, RequestHead, RequestRefused, Usage, WireError, peek
from dragoman.codec import MODEL_IN_PATH, SSE, Endpoint, ProtocolSpec
from dragoman_server.accounts.limits import ClientRefused
from dragoman_server.accounts.usage import Meter, usage_of
from dragoman_server.gateway import Gateway
from dragoman_server.http.cloud_paths import CloudRequest
from dragoman_server.http.errors import INTERNAL_ERROR
from dragoman_server.http.operations import (
    UPSTREAM_ERRORS,
    VENDORS_OBJECT,
    ApiOperation,
    DescribedRoute,
    ErrorBody,
    MediaType,
)
from dragoman_server.http.request import BodyReader, Parameter, invalid_parameter
from dragoman_server.log import RequestRecord
from dragoman_server.models.others import other_models
from dragoman_server.models.routes import default_model
from dragoman_server.platform.off_loop import off_loop
from dragoman_server.proxying.affinity import reasoning_key, referred_ids
from dragoman_server.proxying.client_request import SCOPE_CLOUD, ClientDisconnected, ClientRequest, unix_time
from dragoman_server.proxying.destinations import Destination, find_destinations
from dragoman_server.proxying.plan import Plan, PlanChange, Planner
from dragoman_server.proxying.request_handler import RequestHandler, StoreResponse
from dragoman_server.responses.recent import Turn
from dragoman_server.responses.service import ExpandedRequest
from dragoman_server.upstream.content_coding import ACCEPTED_CODINGS
from dragoman_server.wire.headers import request_id_headers
from dragoman_server.wire.replies import Reply, error_reply, protocol_of_client

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


class Explained(Exception):
    """How a request would be planned that is not to be sent."""

    def __init__(self, planner: Planner) -> None:
        self.planner = planner


class BaseEndpoint(ABC):
    """One path, for clients of one protocol.

    Attributes:
        endpoint: Where requests come in, None for the protocol's first one.
    """

    def __init__(self, gateway: Gateway, protocol: ProtocolSpec, endpoint: Endpoint | None = None) -> None:
        self.gateway = gateway
        self.protocol = protocol
        self.endpoint = endpoint
        self._framing = SSE if endpoint is None else endpoint.framing

    @abstractmethod
    async def serve(self, request: ClientRequest) -> Awaitable[object] | None:
        """Respond to one request, or return what does, to be awaited without the frame of this one.

        A RemoteProtocolError or RequestRefused that is raised before anything is sent becomes an error response in the
        client's form.
        """

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        record = self.gateway.request_began(scope, self.protocol.name)
        request = ClientRequest(scope, receive, send, record, self._framing)
        telemetry = request.telemetry = self.gateway.telemetry.begin(
            record, scope, request.headers, request.time, self.endpoint
        )
        if telemetry is not None:
            request.response.watch = telemetry.watch
            if telemetry.publish_wire is not None:
                from dragoman_server.recordings.live import LiveWire  # few have a reader

                LiveWire(telemetry.publish_wire, self.gateway.settings).listen_to(request)
        endpoint, serve = self.endpoint, self.serve
        if endpoint is not None and endpoint.query and not endpoint.accepts(request.query):
            serve = self._refuse_form
        return self.account_for(request, serve)

    async def account_for(
        self, request: ClientRequest, serve: Callable[[ClientRequest], Awaitable[Awaitable[object] | None]]
    ) -> None:
        """Serve a request, and count it once it has ended, unless it was handed over. serve: see serve()."""
        try:
            try:
                rest = await serve(request)
                if rest is not None:
                    await rest
            except (RemoteProtocolError, RequestRefused) as error:
                if request.response.started:
                    raise
                await self._send_refusal(request, error)
        except ClientDisconnected:
            request.record.outcome = "client_left"
        except Exception:  # by itself, or in the group of the request's tasks
            record = request.record
            if request.response.broken:
                record.outcome = "client_left"
                return
            record.outcome, record.error = "failed", "internal error"
            record.error_kind = INTERNAL_ERROR.kind.value
            ERRORS.exception("request %s failed", record.id)
            if request.response.started:
                raise  # the server then closes the connection in the middle, so the client sees a broken response
            await self._send_last_error(request, INTERNAL_ERROR)
        except anyio.get_cancelled_exc_class():
            request.record.outcome = "cancelled"
            if not request.response.started:
                # The server would send an empty 500.
                await self._send_last_error(request, _GATEWAY_STOPS)
            raise
        finally:
            if not request.handed_over:
                await self._count_request(request)

    async def _count_request(self, request: ClientRequest) -> None:
        record = request.record
        record.duration_s = request.time() - request.started
        usage, meter = None, request.response.meter
        if meter is not None and request.plan is not None:
            usage = await self._usage_of(record, request.plan, meter)
        if request.telemetry is not None:
            request.telemetry.end()
        self.gateway.request_ended(record)
        if request.counted:
            self.gateway.usage.count(record, time.time())
        if request.key is not None and (usage is not None or request.reserved):
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
        server = self.gateway.settings.server
        body = await BodyReader(
            request.receive,
            request.headers,
            server.max_body_bytes,
            server.body_timeout_s,
            request.receive_now,
        ).read_all()
        cloud: CloudRequest | None = request.scope.get(SCOPE_CLOUD)
        if cloud is not None:
            body, headers = await request.off_loop(len(body), cloud.as_served, body, request.headers)
            request.headers = {**request.headers, **headers}
        request_head = await request.off_loop(len(body), peek, body, request.model_in_path)
        model = request_head.model or default_model(self.gateway.settings) or ""
        others: Sequence[str] = ()
        if request.key is not None and request.key.limits_models:
            others = await request.off_loop(len(body), other_models, body, request_head)
        await self.admit(request, model, len(body), counts=counts, others=others)
        return body, request_head

    async def admit(
        self,
        request: ClientRequest,
        model: str,
        size: int,
        *,
        counts: bool = True,
        others: Sequence[str] = (),
    ) -> None:
        """Let a request pass whose client key may send it. Raises RequestRefused for all others.

        model: "" for none. size: of the body, in bytes. counts: as for read(). others: from other_models().
        """
        gateway, limits = self.gateway, self.gateway.limits
        request.record.model = model or None
        if not request.explains:
            await gateway.catalog.ensure_list_for(model)
        counts = counts and not request.explains
        if request.key is not None:
            listed = gateway.catalog.listed
            prices = limits.check_model(request.key, self.protocol.name, model, listed, others)
            if counts:
                request.reserved = await limits.admit(request.key, limits.estimate(prices, size))
        if counts and limits.needs_usage(request.key):
            request.response.meter = Meter()
        request.admitted, request.counted = not request.explains, counts

    async def _usage_of(self, record: RequestRecord, plan: Plan, meter: Meter) -> Usage:
        """Return what a request has used. Put the price into its record."""
        size = len(plan.body) if record.input_tokens is None else 0  # an estimate reads the request
        usage = None
        with anyio.move_on_after(_ESTIMATE_S, shield=True):
            usage = await off_loop(size, usage_of, record, plan, meter)
        if usage is None:
            record.input_tokens, record.estimated = plan.context.prompt_tokens, True
            usage = usage_of(record, plan, meter)
        record.cost_usd = self.gateway.limits.cost(
            record.model,
            record.upstream,
            record.upstream_model,
            usage,
            record.cache_write_1h_tokens,
            record.units,
        )
        return usage

    async def _refuse_form(self, request: ClientRequest) -> None:
        """Refuse a query that is none of those of the endpoints at this path."""
        endpoint = self.endpoint
        assert endpoint is not None
        here = [each for each in self.protocol.endpoints if each.path == endpoint.path] or [endpoint]
        name = endpoint.query.partition("=")[0]
        raise invalid_parameter(name, " or ".join(each.query.partition("=")[2] for each in here))

    async def _send_refusal(
        self, request: ClientRequest, error: RemoteProtocolError | RequestRefused
    ) -> None:
        refusal = error.as_wire_error()
        request.record.outcome, request.record.error = "refused", error.message
        request.record.error_kind = refusal.kind.value
        headers = error.headers(self.protocol) if isinstance(error, ClientRefused) else ()
        await self._refuse(request, refusal, headers)

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
        if request_head is None:
            request_head = await request.off_loop(len(body), peek, body, request.model_in_path)
        store = self.gateway.reasoning_store
        if store is not None and self.protocol.clients_drop_signatures:
            request.reasoning_key = await request.off_loop(
                len(body), reasoning_key, request.owner, request.headers, request_head
            )
        gateway = self.gateway
        chain, account = self.destinations(request_head.model), ""
        if len(chain) > 1 or len(chain[0].accounts) > 1:
            # Only one of them has a file that was uploaded to it.
            account = await gateway.pool.account_of(await request.off_loop(len(body), referred_ids, body))
        # Eight by place, because with one name more CPython makes a dict of all of them.
        planner = Planner(
            gateway.settings,
            self.protocol,
            request.headers,
            request.query,
            body,
            request_head,
            request.record.id,
            request.now,
            clock=unix_time,
            upstreams=gateway.upstreams,
            listed=gateway.catalog.listed,
            endpoint=self.endpoint,
            client_key=request.key,
            # Maybe in a thread, which has no such clock.
            reasoning_lookup=None
            if store is None or not request.reasoning_key
            else partial(store.get, request.reasoning_key, now=request.time(), renew=not request.explains),
            check_input=None if gateway.input_checker is None else gateway.input_checker(),
            change=change,
            refused_members=gateway.refused_members,
            chain=chain,
            account=account,
        )
        return await self.first_plan(request, planner)

    def first_plan(self, request: ClientRequest, planner: Planner) -> Awaitable[Plan]:
        """Return what plans a request. Raises Explained for one that is not to be sent."""
        if request.explains:
            raise Explained(planner)
        return request.off_loop(len(planner.body), planner.first)

    async def expand(
        self,
        request: ClientRequest,
        body: bytes,
        request_head: RequestHead,
        destination: Destination,
        *,
        store_response: bool,
        background: bool = False,
        turn: Turn | None = None,
    ) -> ExpandedRequest:
        """Insert what a request refers to, see StoredResponseService.expand(). Its budget then bears all of that."""
        gateway = self.gateway
        expanded = await gateway.responses.expand(
            body,
            request_head,
            destination,
            store_response=store_response,
            background=background,
            now=request.now,
            owner=request.owner,
            max_bytes=gateway.settings.server.max_body_bytes,
            off_loop=request.off_loop,
            turn=turn,
        )
        if request.key is not None and request.reserved and len(expanded.body) > len(body):
            others = await request.off_loop(len(body), other_models, body, request_head)
            listed = gateway.catalog.listed
            prices = gateway.limits.check_model(
                request.key, self.protocol.name, destination.model, listed, others
            )
            dollars = gateway.limits.estimate(prices, len(expanded.body))
            request.reserved = await gateway.limits.reserve_more(request.key, request.reserved, dollars)
        return expanded

    def carry_out(
        self,
        request: ClientRequest,
        plan: Plan,
        *,
        sends: bool = True,
        store_response: StoreResponse | None = None,
        is_last: bool = False,
    ) -> Awaitable[Reply | None]:
        """Return what carries out a planned request. See RequestHandler, also for the arguments."""
        if not request.admitted:
            raise RuntimeError("a request must be admitted before it is sent")
        # Not awaited here: the arguments have the plan, and a stream may stay open for hours.
        handler = RequestHandler(
            request, plan, self.gateway, sends=sends, store_response=store_response, is_last=is_last
        )
        return handler.run()

    def destinations(self, model: str) -> tuple[Destination, ...]:
        """Return where a request for this model may go, the best first. Raises as find_destinations() does."""
        gateway = self.gateway
        return find_destinations(
            gateway.settings, self.protocol, model, gateway.upstreams, gateway.catalog.listed
        )


class ByProtocol:
    """Passes a request on to the endpoint for the client's protocol, among these."""

    def __init__(self, endpoints: Iterable[BaseEndpoint]) -> None:
        self._endpoints = {each.protocol.name: each for each in endpoints}
        self._protocols = {name: each.protocol for name, each in self._endpoints.items()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.endpoint_for(scope)(scope, receive, send)

    def endpoint_for(self, scope: Scope) -> BaseEndpoint:
        """Return the one for a request."""
        query = scope["query_string"].decode("latin-1")
        return self._endpoints[protocol_of_client(query, Headers(scope=scope), self._protocols).name]


class ProtocolEndpoint(BaseEndpoint):
    """One endpoint of a protocol: POST a request, get a response in the same protocol."""

    endpoint: Endpoint

    def __init__(self, gateway: Gateway, protocol: ProtocolSpec, endpoint: Endpoint) -> None:
        super().__init__(gateway, protocol, endpoint)

    async def serve(self, request: ClientRequest) -> Awaitable[object] | None:
        return self.carry_out(request, await self.plan(request, *await self.read(request)), is_last=True)


def post_route(path: str, endpoint: BaseEndpoint, operation: ApiOperation) -> Route:
    """Return the route of requests to a path of a protocol, which may have a place for the model in it."""
    # Names of models may have a slash.
    return DescribedRoute(path.replace(MODEL_IN_PATH, "{model:path}"), endpoint, POST=operation)


def protocol_operation(protocol: ProtocolSpec, endpoint: Endpoint) -> ApiOperation:
    """Return what requests for a response do."""
    whole, stream = protocol.response_type or VENDORS_OBJECT, MediaType(endpoint.media_type)
    answers: dict[str, list[Any]] = {"never": [whole], "always": [stream], "requested": [whole, stream]}
    websocket = protocol.websocket
    also = (
        ", also over a WebSocket"
        if websocket is not None and websocket.endpoint.path == endpoint.path
        else ""
    )
    return vendors_operation(f"Create a response{also}", protocol, answers[endpoint.streams], endpoint)


def vendors_operation(
    summary: str, protocol: ProtocolSpec, answers: Sequence[Any], endpoint: Endpoint | None = None
) -> ApiOperation:
    """Return what requests do whose errors may be an upstream's. endpoint: where their query matters."""
    endpoint = endpoint or protocol.endpoints[0]
    name, _, value = endpoint.query.partition("=")
    # Where a stream is an array, so are its errors.
    as_array = endpoint.framing.error_body(b"{}") != b"{}"
    return ApiOperation(
        summary=f"{summary} ({protocol.name})",
        answers={200: answers},
        errors=UPSTREAM_ERRORS,
        body=protocol.request_type or VENDORS_OBJECT,
        parameters=[Parameter(name, "the form of the response", choices=(value,))] if name else (),
        place="the name of a model",
        protocol=protocol,
        error_types=[list[ErrorBody] if as_array else ErrorBody],
    )
