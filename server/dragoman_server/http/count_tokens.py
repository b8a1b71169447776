"""Count the input tokens of a request: with the upstream's own endpoint where it has one, else by an estimate.

An upstream that counts gets the request in its own protocol. An estimate is made from what the client sent, tools and
images included, and is marked by the header `dragoman-estimate: true`. A count has its own time limit, and if the
upstream cannot count at the moment, the client gets an estimate instead of an error.
"""

import anyio
import msgspec
from msgspec.structs import replace
from starlette.routing import Route

from dragoman import RemoteProtocolError, RequestHead, RequestRefused, estimate_tokens
from dragoman.codec import Endpoint, ProtocolSpec, TokenCount, fill_path
from dragoman.jsontext import JSONObject, decode_object, encode, read_count
from dragoman_server.capabilities.cloud_apis import cloud_api_of
from dragoman_server.capabilities.resolve import capabilities_for
from dragoman_server.gateway import Gateway
from dragoman_server.http.endpoint import BaseEndpoint, post_route, vendors_operation
from dragoman_server.http.operations import VENDORS_OBJECT
from dragoman_server.proxying.client_request import ClientRequest
from dragoman_server.proxying.destinations import Destination, record_destination
from dragoman_server.proxying.plan import Plan
from dragoman_server.settings.client_keys import make_signer
from dragoman_server.wire.headers import HeaderList
from dragoman_server.wire.replies import Reply

# Clients request dozens of counts when they start, and display nothing until they have them.
COUNT_TIMEOUT_S = 10.0

ESTIMATE_HEADERS: HeaderList = [("dragoman-estimate", "true")]


def counting_routes(gateway: Gateway) -> list[Route]:
    """Return the routes of each protocol that has a token count."""
    return [
        post_route(
            endpoint.path,
            CountEndpoint(gateway, spec, spec.token_count, endpoint),
            vendors_operation("Count the input tokens of a request", spec, (VENDORS_OBJECT,), endpoint),
        )
        for spec in gateway.protocols.values()
        if spec.token_count is not None
        for endpoint in spec.token_count.endpoints
    ]


class CountEndpoint(BaseEndpoint):
    """POST /v1/messages/count_tokens and others: one of TokenCount.endpoints."""

    def __init__(
        self, gateway: Gateway, protocol: ProtocolSpec, count_spec: TokenCount, endpoint: Endpoint
    ) -> None:
        super().__init__(gateway, protocol, endpoint)
        self._count_spec = count_spec
        self._signer = make_signer(gateway.settings.server.secret)

    async def serve(self, request: ClientRequest) -> None:
        body, request_head = await self.read(request, counts=False)
        destination = self.destinations(request_head.model)[0]
        request.record.model, request.record.stream = request_head.model, False
        record_destination(request.record, destination)
        unresolved = None
        if self.protocol.stored_responses is not None and not request.explains:
            expanded = await self.expand(request, body, request_head, destination, store_response=False)
            body, unresolved = expanded.body, expanded.unresolved
        count = self._upstream_count(request_head, destination)
        if count is not None:
            reply = await self._count_upstream(request, body, count)
            if request.record.outcome == "client_left":
                return
            if reply is not None:
                await request.respond(reply)
                return
        if unresolved is not None:
            if count is None:
                raise unresolved
            raise RequestRefused(
                f'only upstream "{request.record.upstream}" has the conversation, and it cannot count tokens at the '
                "moment",
                status=503,
            )
        tokens = await request.off_loop(len(body), self._estimate, body)
        request.record.input_tokens, request.record.estimated = tokens, True
        await request.respond_json(self._count(tokens), ESTIMATE_HEADERS)

    def _upstream_count(self, head: RequestHead, to: Destination) -> "_UpstreamCount | None":
        """Return how an upstream counts the tokens of a request, None if it does not."""
        spec = to.upstream.token_count if to.settings.counts_tokens else None
        api = cloud_api_of(to.settings)
        if spec is None:
            return None
        member = spec.member
        if api is not None and api.routes:
            route = api.route(to.upstream.base_path + spec.path, to.upstream_model)
            if route is None:
                return None
            member = route.counts_in or member
        relayed = (
            to.upstream.name == self.protocol.name
            and capabilities_for(self.gateway.settings, to.settings, to.upstream_model, to.upstream).relay
            == "exact"
            and self._count_spec.wrapper not in head.fields  # it names the model once more
        )
        return _UpstreamCount(spec, member, relayed, relayed and member == spec.member)

    async def _count_upstream(
        self, request: ClientRequest, body: bytes, count: "_UpstreamCount"
    ) -> Reply | None:
        """Return the upstream's count, None if it cannot count now.

        The client does not get the refusal of a translated request, because the upstream refused what we made.
        """
        if not count.relayed:
            body = await request.off_loop(len(body), self._request_of, body)
        plan = await self.plan(request, body, change=count.of_plan)
        reply = None
        with anyio.move_on_after(COUNT_TIMEOUT_S):
            reply = await self.carry_out(request, plan, sends=False)
        if reply is None:
            if request.record.outcome != "client_left":
                request.record.error = f"the upstream did not count within {COUNT_TIMEOUT_S:g} s"
            return None
        if reply.status == 200:
            tokens = read_count(decode_object(reply.body, "the count"), count.member)
            if tokens is None:
                request.record.error = "the upstream's response is not a token count"
                return None
            request.record.input_tokens = tokens
            return reply if count.passes else replace(reply, body=encode(self._count(tokens)))
        return reply if count.passes and reply.status < 500 else None

    def _request_of(self, body: bytes) -> bytes:
        """Return the request for a response whose tokens a client has counted."""
        return encode(self._count_spec.read(decode_object(body, "the request body")))

    def _count(self, tokens: int) -> JSONObject:
        """Return the response to the client."""
        return {**self._count_spec.constant, self._count_spec.member: tokens}

    def _estimate(self, body: bytes) -> int:
        """Return the estimated count. Raises RemoteProtocolError for a request that could not get a response either."""
        value = self._count_spec.read(decode_object(body, "the request body"))
        try:
            return estimate_tokens(self.protocol.read_request(value, self._signer))
        except RecursionError:
            raise RemoteProtocolError("the request body is nested too deep") from None


class _UpstreamCount(msgspec.Struct, frozen=True):
    """How an upstream counts the tokens of a request.

    Attributes:
        spec: Its protocol's.
        member: The member of its answer with the count.
        relayed: The request is sent as it came, in the protocol.
        passes: So is the answer, because its host changes neither.
    """

    spec: TokenCount
    member: str
    relayed: bool
    passes: bool

    def of_plan(self, plan: Plan) -> Plan:
        """Turn the plan of a request for a response into one for a count. See PlanChange."""
        plan = plan if self.relayed else _as_count_request(plan, self.spec)
        return plan.at_path(fill_path(self.spec.path, plan.destination.upstream_model), self.member)


def _as_count_request(plan: Plan, count_spec: TokenCount) -> Plan:
    """Turn a translated request for a response into one for a count, in the upstream's protocol on both sides."""
    destination, client = plan.destination, plan.destination.upstream
    prefix = client.model_list.name_prefix if client.model_list is not None else ""
    fields = decode_object(plan.body, "the translated request")
    body = encode(count_spec.write(fields, prefix + destination.upstream_model))
    return replace(plan, client=client, body=body, planner=None, fan_out=1, fallbacks=())
