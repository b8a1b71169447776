"""GET /admin/usage: what was used, by all keys."""

import time
from collections.abc import Sequence

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from dragoman_server.accounts.stored_keys import all_keys
from dragoman_server.gateway import Gateway
from dragoman_server.http.admin.replies import respond
from dragoman_server.http.auth import ADMIN_PATH
from dragoman_server.http.operations import AdminRoute, ApiOperation
from dragoman_server.http.usage import USAGE_PARAMETERS, UsageReport, usage_json, usage_query
from dragoman_server.usage.stores.base import UsageStoreError

UNREADABLE = "the usage store does not respond, or would have to return too much at once"


def usage_routes(gateway: Gateway) -> Sequence[BaseRoute]:
    """Return the route of /admin/usage."""

    async def read_usage(request: Request) -> Response:
        try:
            query = usage_query(request.url.query, time.time())
            keys = all_keys(gateway.settings, gateway.stored_keys)
            return respond(gateway, request, await usage_json(gateway.usage, query, keys))
        except UsageStoreError:
            raise HTTPException(503, UNREADABLE) from None

    operation = ApiOperation(
        summary="What was used, by all keys",
        answers={200: (UsageReport,)},
        errors=(503,),
        parameters=USAGE_PARAMETERS,
    )
    return [AdminRoute(f"{ADMIN_PATH}/usage", read_usage, GET=operation)]
