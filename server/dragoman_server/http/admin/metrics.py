"""GET /metrics: all metrics as text, for Prometheus.

The text is made in a thread, because with thousands of label sets it takes longer than a stream may wait. Scrapes have
no line in the log: there is one every few seconds, and it says nothing about the gateway's work.
"""

from functools import partial

import anyio
import anyio.to_thread
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from dragoman_server.gateway import Gateway
from dragoman_server.http.auth import METRICS_PATH
from dragoman_server.http.operations import ApiOperation, DescribedRoute, MediaType
from dragoman_server.platform.extras import missing_extra
from dragoman_server.wire.headers import OPERATOR_HEADERS


def metrics_route(gateway: Gateway) -> BaseRoute:
    """Return the route."""
    # Further scrapes wait, because each would only take time from the others.
    limiter = anyio.CapacityLimiter(1)

    async def endpoint(request: Request) -> Response:
        exposition = await gateway.scrape()
        if exposition is None:
            reason = missing_extra("metrics") or "was off when the gateway was started, so it needs a restart"
            raise HTTPException(404, f"metrics are off: {METRICS_PATH} {reason}")
        accept = request.headers.get("accept", "")
        text, content_type = await anyio.to_thread.run_sync(partial(exposition, accept), limiter=limiter)
        return Response(text, headers={"content-type": content_type, **dict(OPERATOR_HEADERS)})

    # The second form is for scrapers that ask for it.
    texts = (MediaType("text/plain"), MediaType("application/openmetrics-text"))
    operation = ApiOperation(summary="All metrics, for Prometheus", answers={200: texts}, errors=(404,))
    return DescribedRoute(METRICS_PATH, endpoint, GET=operation)
