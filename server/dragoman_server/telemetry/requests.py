"""The metrics and the traces that are switched on, and the part of one request in them.

Three moments of a request count: it begins, it is planned, it ends. Attempts have their own spans.
"""

import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

from starlette.types import Scope

from dragoman.codec import Endpoint
from dragoman_server.log import RequestRecord
from dragoman_server.platform.extras import missing_extra
from dragoman_server.settings import Settings
from dragoman_server.telemetry.metrics import KnownModels, Metrics, ModelNames, exposes_metrics
from dragoman_server.telemetry.watchdog import watching

if TYPE_CHECKING:
    from dragoman_server.telemetry.tracing import RequestTrace, Tracing

_log = logging.getLogger("dragoman.metrics")


class Telemetry:
    """The metrics and the traces of a gateway, and the watchdog of its event loop.

    Raises ValueError if an extra is missing.

    Attributes:
        metrics: None where /metrics is off.
    """

    def __init__(self, settings: Settings, listed: ModelNames) -> None:
        if settings.server.otel and (missing := missing_extra("otel")) is not None:
            raise ValueError(f"otel {missing}")
        self._otel = settings.server.otel
        self._known = KnownModels()
        self._tracing: Tracing | None = None
        self.metrics = Metrics(settings.server.backend, self._known) if exposes_metrics(settings) else None
        self.configure(settings, listed)

    def configure(self, settings: Settings, listed: ModelNames) -> None:
        """Use the names of this configuration from now on. listed: what upstreams list, which may grow.

        An exporter that was off stays off, because several workers can count together only if they were started for it.
        """
        self._known.configure(settings, listed)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Watch the event loop inside of this block, and report to OpenTelemetry if that is switched on."""
        with watching(self._count_stall):
            async with self._reporting():
                yield

    def _count_stall(self) -> None:
        if self.metrics is not None:
            with suppress(OSError):  # the disk that several workers share is full
                self.metrics.loop_stalls.inc()

    @asynccontextmanager
    async def _reporting(self) -> AsyncIterator[None]:
        if not self._otel:
            yield
            return
        # The SDK takes a tenth of a second to import.
        from dragoman_server.telemetry.sdk import providers
        from dragoman_server.telemetry.tracing import Tracing

        async with providers() as (tracers, meters):
            self._tracing = Tracing(tracers, meters, self._known)
            try:
                yield
            finally:
                self._tracing = None

    def begin(
        self,
        record: RequestRecord,
        scope: Scope,
        headers: Mapping[str, str],
        endpoint: Endpoint | None = None,
    ) -> "RequestTelemetry | None":
        """Return the part of a request that begins, None where nothing is switched on.

        headers: the client's. endpoint: where it came in, if that is an endpoint of a protocol.
        """
        metrics, tracing = self.metrics, self._tracing
        if metrics is None and tracing is None:
            return None
        trace = None
        if tracing is not None:
            trace = tracing.request(
                record, scope["method"], scope.get("scheme", "http"), _route(scope, endpoint), headers
            )
        return RequestTelemetry(metrics, trace)

    def count(self, record: RequestRecord) -> None:
        """Count a request that has ended: also one that no endpoint received."""
        if self.metrics is not None:
            try:
                self.metrics.count(record)
            except OSError as error:  # the disk that several workers share is full
                _log.error("the metrics cannot be written: %s", error.strerror)


def _route(scope: Scope, endpoint: Endpoint | None) -> str:
    """Return the path with the names of its parameters instead of their values, which are ids and names."""
    if endpoint is not None:
        return f"{scope.get('root_path', '')}{endpoint.path}"
    path = str(scope["path"])
    for name, value in scope.get("path_params", {}).items():
        before, found, after = path.rpartition(f"/{value}")
        path = f"{before}/{{{name}}}{after}" if found else path
    return path


class RequestTelemetry:
    """The part of one request. Call end() once, after its record is complete.

    Attributes:
        trace: Gets its attempts, None where there are no traces.
    """

    __slots__ = ("_metrics", "_streams", "trace")

    def __init__(self, metrics: Metrics | None, trace: "RequestTrace | None") -> None:
        self.trace = trace
        self._metrics = metrics
        self._streams = False
        if metrics is not None:
            metrics.open_requests.inc()

    def planned(self, *, stream: bool) -> None:
        """Record that the request will be sent. stream: the client gets a stream."""
        if stream and not self._streams and self._metrics is not None:
            self._metrics.open_streams.inc()
            self._streams = True

    def end(self) -> None:
        """Record that the request has ended."""
        if self._metrics is not None:
            self._metrics.open_requests.dec()
            if self._streams:
                self._metrics.open_streams.dec()
        if self.trace is not None:
            self.trace.end()
