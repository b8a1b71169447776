"""The metrics, the traces and the feed of events where they are on, and the part of one request in them.

They are made from the same moments of a request: it begins, is planned, makes attempts, responds, and ends.
"""

import logging
import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from time import time
from typing import TYPE_CHECKING

from starlette.types import Scope

from dragoman import Ledger
from dragoman.codec import Endpoint
from dragoman_server.feed.events import EndedRequest
from dragoman_server.feed.feed import Feed
from dragoman_server.feed.requests import RequestEvents, with_bounded_losses
from dragoman_server.feed.workers import serving_workers
from dragoman_server.log import RequestRecord
from dragoman_server.platform.extras import missing_extra
from dragoman_server.settings import Settings, UpstreamSettings
from dragoman_server.telemetry.metrics import KnownModels, Metrics, ModelNames, exposes_metrics
from dragoman_server.telemetry.watchdog import watching

if TYPE_CHECKING:
    from dragoman_server.telemetry.tracing import AttemptTrace, RequestTrace, Tracing

_log = logging.getLogger("dragoman.metrics")


class Telemetry:
    """The metrics, the traces and the feed of a gateway, and the watchdog of its event loop.

    Raises ValueError if an extra is missing.

    Attributes:
        metrics: None where /metrics is off.
        known: The models that may be named.
        feed: What /admin/events reads.
    """

    def __init__(self, settings: Settings, listed: ModelNames) -> None:
        if settings.server.otel and (missing := missing_extra("otel")) is not None:
            raise ValueError(f"otel {missing}")
        self._otel = settings.server.otel
        self.known = KnownModels()
        self._tracing: Tracing | None = None
        self.metrics = Metrics(settings.server.backend, self.known) if exposes_metrics(settings) else None
        self.feed = Feed(settings.mask)
        self.configure(settings, listed)

    def configure(self, settings: Settings, listed: ModelNames) -> None:
        """Use the names of this configuration from now on. listed: what upstreams list, which may grow.

        An exporter that was off stays off, because several workers can count together only if they were started for it.
        """
        self.known.configure(settings, listed)
        self.feed.configure(settings.mask)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Watch the event loop and serve the feed inside of this block, and report to OpenTelemetry if that is on."""
        with watching(self._count_stall):
            async with self._reporting(), self.feed.running(), serving_workers(self.feed):
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
            self._tracing = Tracing(tracers, meters, self.known)
            try:
                yield
            finally:
                self._tracing = None

    def begin(
        self,
        record: RequestRecord,
        scope: Scope,
        headers: Mapping[str, str],
        clock: Callable[[], float],
        endpoint: Endpoint | None = None,
    ) -> "RequestTelemetry | None":
        """Return the part of a request that begins, None where nothing is switched on.

        headers: the client's. clock: of the event loop. endpoint: where it came in, if that is one of a protocol.
        """
        metrics, tracing, feed = self.metrics, self._tracing, self.feed
        if metrics is None and tracing is None and not feed.is_open:
            return None
        trace = None
        if tracing is not None:
            trace = tracing.request(
                record, scope["method"], scope.get("scheme", "http"), _route(scope, endpoint), headers
            )
        events = RequestEvents(feed, record, os.getpid(), clock) if feed.is_open else None
        return RequestTelemetry(metrics, trace, events, record)

    def count(self, record: RequestRecord, line: dict[str, object] | None) -> None:
        """Count a request that has ended: also one that no endpoint received. line: in the log, if it has one."""
        if self.metrics is not None:
            try:
                self.metrics.count(record)
            except OSError as error:  # the disk that several workers share is full
                _log.error("the metrics cannot be written: %s", error.strerror)
        feed = self.feed
        if line is None and feed.is_open:
            line = record.as_dict()
        if line is not None:
            # Nothing else is done while nobody reads.
            ended = EndedRequest(time(), with_bounded_losses(line) if record.losses else line)
            feed.ended.append(ended)
            if feed.is_open:
                feed.publish("request.ended", record, ended.data)


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
    """The part of one request. Call end() once, after its record is complete and before it is counted.

    Attributes:
        watch: Is called with the bytes that the client gets, None where nothing needs them.
        publish_wire: Is called with what client and upstreams send, None where nobody reads that: see LiveWire.
    """

    __slots__ = ("_events", "_metrics", "_record", "_streams", "_trace", "publish_wire", "watch")

    def __init__(
        self,
        metrics: Metrics | None,
        trace: "RequestTrace | None",
        events: RequestEvents | None,
        record: RequestRecord,
    ) -> None:
        self._metrics, self._trace, self._events = metrics, trace, events
        self._record = record
        self._streams = False
        self.watch: Callable[[bytes], None] | None = None if events is None else events.sent
        self.publish_wire = None if events is None or not events.wants_wire else events.wire
        if metrics is not None:
            metrics.open_requests.inc()

    def planned(self, *, stream: bool, losses: Ledger, session: str | None) -> None:
        """Record that the request will be sent.

        stream: the client gets a stream. losses: of the request. session: the key of its conversation.
        """
        if stream and not self._streams and self._metrics is not None:
            self._metrics.open_streams.inc()
            self._streams = True
        if self._events is not None:
            self._events.planned(stream=stream, losses=losses, session=session)

    def attempt(
        self, upstream: UpstreamSettings, protocol: str, model: str, account: str, *, stream: bool
    ) -> "AttemptTrace | None":
        """Record that an attempt begins, and return its span. See RequestTrace.attempt()."""
        if self._events is not None:
            self._events.attempt(upstream.name, model, account)
        if self._trace is None:
            return None
        return self._trace.attempt(upstream, protocol, model, account, stream=stream)

    def attempt_failed(self, number: int) -> None:
        """Record that an attempt has failed, whose row in the request's record is the last one."""
        if self._events is not None:
            self._events.attempt_failed(number, self._record.failures[-1])

    def first_byte(self) -> None:
        """Record that the response begins."""
        if self._events is not None:
            self._events.first_byte()

    def end(self) -> None:
        """Record that the request has ended."""
        if self._metrics is not None:
            self._metrics.open_requests.dec()
            if self._streams:
                self._metrics.open_streams.dec()
        if self._trace is not None:
            self._trace.end()
        if self._events is not None:
            self._events.end()
