"""Serve the endpoints of `relayed.table`: find the model, and relay the bytes to where it leads.

A request that names no model goes to the upstream that `[endpoints]` has for its path; without one it is a 404 that
says what to write there.
"""

import json

from starlette.routing import BaseRoute

from dragoman import RemoteProtocolError, RequestHead, RequestRefused
from dragoman.codec import Endpoint
from dragoman_server.accounts.usage import NoMeter
from dragoman_server.gateway import Gateway
from dragoman_server.http.endpoint import BaseEndpoint
from dragoman_server.http.operations import (
    UPSTREAM_ERRORS,
    VENDORS_OBJECT,
    ApiOperation,
    DescribedRoute,
    MediaType,
)
from dragoman_server.http.request import path_below_mount
from dragoman_server.proxying.client_request import ClientRequest
from dragoman_server.proxying.relayed_plan import RelayedPlanner
from dragoman_server.relayed.table import JSON, TABLE, Cost, ModelPlace, RelayedPath, leads_there, rule_for

_NO_HEAD = RequestHead("", False, {})


def relayed_routes(gateway: Gateway) -> list[BaseRoute]:
    """Return the routes of the table."""
    return [
        DescribedRoute(
            path, RelayingEndpoint(gateway, row, path), **dict.fromkeys(row.methods, _operation(row))
        )
        for row in TABLE
        for path in row.paths
    ]


def _operation(row: RelayedPath) -> ApiOperation:
    answers = [VENDORS_OBJECT if each == JSON else MediaType(each) for each in row.answers]
    return ApiOperation(summary=row.does, answers={200: answers}, errors=UPSTREAM_ERRORS, body=VENDORS_OBJECT)


class RelayingEndpoint(BaseEndpoint):
    """One path of a row."""

    endpoint: Endpoint

    def __init__(self, gateway: Gateway, row: RelayedPath, path: str) -> None:
        endpoint = Endpoint(path, streams="always")
        super().__init__(gateway, gateway.protocols[row.protocols[0]], endpoint)
        self._row = row

    async def serve(self, request: ClientRequest) -> None:
        path = path_below_mount(request.scope)
        if not leads_there(self.endpoint.path, path):
            raise RequestRefused(
                f"{path[:100]!a} is no path of this endpoint", status=404, code="unknown_url"
            )
        body, head = await self.read_unchecked(request)
        upstream = None if head.model else self._upstream_for(request, path)
        await self.admit(request, head.model, len(body))
        if request.response.meter is not None:
            request.response.meter = NoMeter()
        planner = self._planner(request, path, body, head, upstream)
        plan = await request.off_loop(len(body), planner.first)
        del planner, body, head  # the plan is released when nothing more is sent
        handling = self.carry_out(request, plan)
        del plan
        await handling

    def _upstream_for(self, request: ClientRequest, path: str) -> str:
        """Return the upstream of a request that names no model. Raises RemoteProtocolError and RequestRefused."""
        settings = self.gateway.settings
        found = rule_for(settings.endpoints, path)
        if found is None and self._row.needs_model:
            raise RemoteProtocolError("model is required", path="/model", code="missing_required_parameter")
        able = [each.name for each in settings.upstreams if {*each.protocols} & {*self._row.protocols}]
        if found is None and len(able) == 1 and self._row.model is not ModelPlace.NONE:
            found = able[0]  # the vendor has a default model
        if found is None:
            rule = f"{json.dumps(self.endpoint.path.partition('/{')[0])} = {json.dumps(next(iter(able), 'UPSTREAM'))}"
            raise RequestRefused(
                f"the request names no model, and no upstream is set for {path[:100]}: add to dragoman.toml, below "
                f"[endpoints]: {rule}",
                status=404,
                code="unknown_url",
            )
        if request.key is not None:
            gateway, costs = self.gateway, self._row.cost is not Cost.NONE
            gateway.limits.check_upstream(request.key, found, costs=costs, listed=gateway.catalog.listed)
        return found

    def _planner(
        self, request: ClientRequest, path: str, body: bytes, head: RequestHead, upstream: str | None
    ) -> RelayedPlanner:
        gateway = self.gateway
        return RelayedPlanner(
            gateway.settings,
            self.protocol,
            request.headers,
            request.query,
            body,
            id=request.record.id,
            now=request.now,
            upstreams=gateway.upstreams,
            listed=gateway.catalog.listed,
            endpoint=self.endpoint,
            request_head=head,
            client_key=request.key,
            row=self._row,
            method=request.scope["method"],
            path=path,
            upstream=upstream,
        )
