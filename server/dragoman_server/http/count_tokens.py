"""Count the input tokens of a request: with the upstream's own endpoint where it has one, else by an estimate.

An upstream that counts gets the request in its own protocol. An estimate is made from what the client sent, tools and
images included, and is marked by the header `dragoman-estimate: true`. A count has its own time limit, and if the
upstream cannot count at the moment, the client gets an estimate instead of an error.
"""

import anyio
from msgspec.structs import replace
from starlette.routing import BaseRoute

from dragoman import RemoteProtocolError, RequestHead, RequestRefused, estimate_tokens
from dragoman.codec import Endpoint, ProtocolSpec, TokenCount, fill_path
from dragoman.jsontext import JSONObject, decode_object, encode
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


def counting_routes(gateway: Gateway) -> list[BaseRoute]:
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
        destination = self.destination(request_head.model)
        request.record.model, request.record.stream = request_head.model, False
        record_destination(request.record, destination)
        unresolved = None
        if self.protocol.stored_responses is not None:
            expanded = await self.expand(request, body, request_head, destination, store_response=False)
            body, unresolved = expanded.body, expanded.unresolved
        count_spec = _upstream_count(destination)
        if count_spec is not None:
            reply = await self._count_upstream(request, body, request_head, destination, count_spec)
            if request.record.outcome == "client_left":
                return
            if reply is not None:
                await request.respond(reply)
                return
        if unresolved is not None:
            if count_spec is None:
                raise unresolved
            raise RequestRefused(
                f'only upstream "{request.record.upstream}" has the conversation, and it cannot count tokens at the '
                "moment",
                status=503,
            )
        tokens = await request.off_loop(len(body), self._estimate, body)
        request.record.input_tokens, request.record.estimated = tokens, True
        await request.respond_json(self._count(tokens), ESTIMATE_HEADERS)

    async def _count_upstream(
        self,
        request: ClientRequest,
        body: bytes,
        request_head: RequestHead,
        destination: Destination,
        count_spec: TokenCount,
    ) -> Reply | None:
        """Return the upstream's count, None if it cannot count now. count_spec: the upstream's.

        The client does not get the refusal of a translated request, because the upstream refused what we made.
        """
        capabilities = capabilities_for(
            self.gateway.settings, destination.settings, destination.upstream_model, destination.upstream
        )
        relayed = (
            destination.upstream.name == self.protocol.name
            and capabilities.relay == "exact"
            and self._count_spec.wrapper not in request_head.fields  # it names the model once more
        )

        member = _counts_in(destination, count_spec) or count_spec.member
        passes = relayed and member == count_spec.member  # its host leaves request and count as they are

        def as_count(plan: Plan) -> Plan:
            plan = plan if relayed else _as_count_request(plan, count_spec)
            path = fill_path(count_spec.path, plan.destination.upstream_model)
            return plan.at_path(path, member)

        if not relayed:
            body = await request.off_loop(len(body), lambda: encode(self._complete(body)))
        plan = await self.plan(request, body, change=as_count)
        reply = None
        with anyio.move_on_after(COUNT_TIMEOUT_S):
            reply = await self.carry_out(request, plan, sends=False)
        if reply is None:
            if request.record.outcome != "client_left":
                request.record.error = f"the upstream did not count within {COUNT_TIMEOUT_S:g} s"
            return None
        if reply.status == 200:
            tokens = decode_object(reply.body, "the count").get(member)
            if type(tokens) is not int:
                request.record.error = "the upstream's response is not a token count"
                return None
            request.record.input_tokens = tokens
            if not passes:
                reply = replace(reply, body=encode(self._count(tokens)))
            return reply
        return reply if passes and reply.status < 500 else None

    def _count(self, tokens: int) -> JSONObject:
        """Return the response to the client."""
        return {**self._count_spec.constant, self._count_spec.member: tokens}

    def _complete(self, body: bytes) -> JSONObject:
        """Return the request for a response whose tokens are counted."""
        return self._count_spec.read(decode_object(body, "the request body"))

    def _estimate(self, body: bytes) -> int:
        """Return the estimated count. Raises RemoteProtocolError for a request that could not get a response either."""
        value = self._complete(body)
        try:
            return estimate_tokens(self.protocol.read_request(value, self._signer))
        except RecursionError:
            raise RemoteProtocolError("the request body is nested too deep") from None


def _upstream_count(to: Destination) -> TokenCount | None:
    """Return how an upstream counts the tokens of a model, None if it does not."""
    count_spec = to.upstream.token_count if to.settings.counts_tokens else None
    return None if count_spec is None or _counts_in(to, count_spec) is None else count_spec


def _counts_in(to: Destination, count_spec: TokenCount) -> str | None:
    """Return the member of the answer with the count, "" for the protocol's; None if a cloud has no count."""
    api = cloud_api_of(to.settings)
    if api is None or not api.routes:
        return ""
    route = api.route(to.upstream.base_path + count_spec.path, to.upstream_model)
    return None if route is None else route.counts_in


def _as_count_request(plan: Plan, count_spec: TokenCount) -> Plan:
    """Turn a translated request for a response into one for a count, in the upstream's protocol on both sides."""
    destination, client = plan.destination, plan.destination.upstream
    prefix = client.model_list.name_prefix if client.model_list is not None else ""
    fields = decode_object(plan.body, "the translated request")
    body = encode(count_spec.write(fields, prefix + destination.upstream_model))
    return replace(plan, client=client, body=body, planner=None, fan_out=1, fallbacks=())
