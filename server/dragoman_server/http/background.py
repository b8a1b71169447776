"""Responses in the background: begin one, and send the events of one to a client.

The client that begins a response follows it as any other does. So it may leave and come back, at any gateway that
shares the store, and what it has seen does not depend on the gateway that makes the response.
"""

import math
from collections.abc import Awaitable

import msgspec

from dragoman import ErrorKind, RequestRefused, ResponseTranslator, WireError, peek
from dragoman.codec import ProtocolSpec
from dragoman.jsontext import JSONObject, decode
from dragoman_server.accounts.limits import ClientRefused
from dragoman_server.gateway import Gateway
from dragoman_server.http.endpoint import BaseEndpoint
from dragoman_server.proxying.client_request import SCOPE_GOES_ON, ClientRequest
from dragoman_server.proxying.plan import Plan
from dragoman_server.responses.service import HOW_TO_ENABLE, ExpandedRequest
from dragoman_server.responses.stores.base import ResponseKey
from dragoman_server.wire.headers import (
    STREAM_HEADERS,
    HeaderList,
    encode_headers,
    loss_header,
    request_id_headers,
    retry_headers,
)

# Seconds after which a client that was refused may try again. A response in the background takes some seconds at least.
_RETRY_S = 5

# Ends a response that has not begun, see _opening().
_NOT_BEGUN = WireError(ErrorKind.CANCELLED, "the response has not begun")


class TooManyInBackground(ClientRefused):
    """A request for a response in the background, while this process makes as many as it may."""

    def headers(self, protocol: ProtocolSpec) -> HeaderList:
        return retry_headers(_RETRY_S)


def check(gateway: Gateway) -> None:
    """Raise RequestRefused if no further response can be made in the background now."""
    if gateway.responses.store is None:
        raise RequestRefused(
            f"background needs stored responses, and this gateway stores none: {HOW_TO_ENABLE} in its configuration",
            path="/background",
            code="unsupported_parameter",
        )
    limit = gateway.settings.server.max_background_responses
    if gateway.background.count >= limit:
        raise TooManyInBackground(
            f"the gateway makes {limit} responses in the background already; try again later", status=429
        )


async def begin(
    endpoint: BaseEndpoint, request: ClientRequest, plan: Plan, expanded: ExpandedRequest
) -> Awaitable[None]:
    """Begin the response of a planned request. Return what sends the client what there is of it, or its events.

    Raises RequestRefused if it cannot be stored, and ClientDisconnected.
    """
    gateway = endpoint.gateway
    opening = await request.off_loop(len(plan.body), _opening, plan)
    check(gateway)  # others may have come while it was planned
    made = await gateway.background.open(
        opening,
        expanded,
        owner=request.owner,
        streams=plan.streams,
        limit_s=gateway.settings.server.background_timeout_s,
        holder=gateway,
    )
    losses = [(name, plan.scrub(value)) for name, value in loss_header(plan.losses)]
    streams, plans = plan.streams, [plan]
    other = request.hand_over(made, made.receive)
    other.record.background = True

    async def carry_out(request: ClientRequest) -> None:
        # The request lets go of its plan when it can: see RequestHandler.
        await endpoint.carry_out(request, plans.pop())
        made.note_end(request.record)

    go_on = request.scope.get(SCOPE_GOES_ON)
    finish = None if go_on is None else go_on()

    async def serve() -> None:
        try:
            await endpoint.account_for(other, carry_out)
        finally:
            if finish is not None:
                await finish()

    gateway.background.run(made, serve)
    if streams:
        return send_events(endpoint, request, made.key, -1, losses)
    return request.respond_json(made.body, losses)


def _opening(plan: Plan) -> JSONObject:
    """Return the Response object of a request that was not sent yet, as its protocol writes it."""
    context = plan.context
    if plan.relayed:  # then nothing else has read what the response repeats
        sent = peek(plan.body).fields
        echo = {name: decode(bytes(sent[name])) for name in plan.client.echoed_members if name in sent}
        context = msgspec.structs.replace(context, echo={**echo, **context.echo})
    machine = ResponseTranslator(
        client=plan.client,
        upstream=plan.destination.upstream,
        context=context,
        upstream_streams=True,
        client_streams=True,
        store_response=True,
    )
    machine.fail(_NOT_BEGUN)
    body = machine.whole_body()
    assert body is not None
    return body


async def send_events(
    endpoint: BaseEndpoint,
    request: ClientRequest,
    key: ResponseKey,
    after: int,
    headers: HeaderList | None = None,
) -> None:
    """Send the events of a response behind a number, and those that come, as a stream.

    Raises RequestRefused if they are not there, and ClientDisconnected.
    """
    gateway, response, record = endpoint.gateway, request.response, request.record
    served = endpoint.protocol.endpoints[0]
    page = await gateway.background.followers.read(key, after)
    record.stream, record.status = True, 200
    ids = request_id_headers(record.id)
    all_headers = [("content-type", served.media_type), *STREAM_HEADERS, *ids, *(headers or ())]
    last = b""

    async def send() -> None:
        nonlocal last
        await response.start(200, encode_headers(all_headers))
        try:
            await gateway.background.followers.follow(
                key,
                page,
                response.write,
                heartbeat=served.heartbeat,
                heartbeat_s=gateway.settings.server.keepalive_s or math.inf,
            )
        except RequestRefused as refusal:
            # The response goes on, and can be requested: only what follows here is not to be had.
            record.outcome, record.error = "failed", refusal.message
            last = gateway.responses.event_writer({}, 0).error(refusal.as_wire_error())

    await request.while_connected(send)
    if record.outcome == "open":
        record.outcome = "completed"
    await response.end(last)
