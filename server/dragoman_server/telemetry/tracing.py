"""Report requests to OpenTelemetry: a server span for each, below it a client span for each attempt, and histograms.

A trace that a client has begun goes on here, and goes on to the upstream (W3C Trace Context). Baggage does not, because
it is the client's data. Spans have names, numbers and places in documents, never anything that was written in one.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import anyio
import msgspec
from opentelemetry.context import Context
from opentelemetry.metrics import Histogram, MeterProvider
from opentelemetry.trace import (
    Span,
    SpanKind,
    Status,
    StatusCode,
    Tracer,
    TracerProvider,
    format_trace_id,
    set_span_in_context,
)
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from dragoman import Usage
from dragoman_server import __version__
from dragoman_server.capabilities.providers import address_of, provider_name
from dragoman_server.log import RequestRecord, shorten
from dragoman_server.settings import UpstreamSettings
from dragoman_server.telemetry import semconv
from dragoman_server.telemetry.semconv import InstrumentSpec
from dragoman_server.wire.headers import HeaderList

if TYPE_CHECKING:
    from dragoman_server.telemetry.metrics import KnownModels

# The name of the instrumentation, which is the gateway's own.
_SCOPE = "dragoman"

_PROPAGATOR = TraceContextTextMapPropagator()

_Attributes = dict[str, str | int | float | bool]

# The metrics have the label "input" or "output"; cached tokens are parts of the input.
_TOKEN_TYPES = ("input", "output")


def _text(text: str) -> str:
    """Return a text from outside as an attribute. OTLP is UTF-8, and one lone surrogate would lose a whole batch."""
    return shorten(text).encode("utf-8", "replace").decode("utf-8")


class Tracing:
    """Where spans and histograms go.

    Args:
        tracers, meters: the SDK's, or the surrounding application's.
        known: the models that may be named in metrics.
    """

    def __init__(self, tracers: TracerProvider, meters: MeterProvider, known: "KnownModels") -> None:
        self._tracer = tracers.get_tracer(_SCOPE, __version__, schema_url=semconv.SCHEMA_URL)
        meter = meters.get_meter(_SCOPE, __version__, schema_url=semconv.SCHEMA_URL)
        self._known = known
        self._histograms: dict[InstrumentSpec, Histogram] = {
            spec: meter.create_histogram(
                spec.name, spec.unit, spec.help, explicit_bucket_boundaries_advisory=spec.boundaries
            )
            for spec in semconv.INSTRUMENTS
        }

    def request(
        self, record: RequestRecord, method: str, scheme: str, route: str, headers: Mapping[str, str]
    ) -> "RequestTrace":
        """Begin the span of a request. route: its path, with names in braces for what varies. headers: the client's."""
        parent = _PROPAGATOR.extract(headers, Context())
        span = self._tracer.start_span(
            _text(f"{method} {route}"),
            parent,
            SpanKind.SERVER,
            {
                semconv.HTTP_METHOD: method,
                semconv.HTTP_ROUTE: _text(route),
                semconv.URL_PATH: _text(record.path),
                semconv.URL_SCHEME: scheme,
                semconv.REQUEST_ID: record.id,
                semconv.CLIENT_PROTOCOL: record.protocol,
            },
        )
        context = span.get_span_context()
        record.trace_id = format_trace_id(context.trace_id) if context.is_valid else None
        return RequestTrace(self, self._tracer, span, record)

    def record(self, spec: InstrumentSpec, value: float, attributes: _Attributes) -> None:
        """Add a value to a histogram."""
        self._histograms[spec].record(value, attributes)

    def destination(self, upstream: UpstreamSettings, model: str) -> _Attributes:
        """Return the attributes of an upstream's metrics."""
        host, port = address_of(upstream.base_url)
        provider = provider_name(upstream.base_url)
        attributes: _Attributes = {
            semconv.OPERATION: semconv.CHAT,
            # "The attribute SHOULD be set based on the instrumentation's best knowledge" -- its definition
            semconv.PROVIDER: semconv.PROVIDER_NAMES.get(provider or "", provider or upstream.name),
            semconv.REQUEST_MODEL: self._known.label(upstream.name, model),
            semconv.SERVER_ADDRESS: host,
        }
        if port is not None:
            attributes[semconv.SERVER_PORT] = port
        return attributes


class RequestTrace(msgspec.Struct, frozen=True, eq=False):
    """The span of one request. Call end() once, when its record is complete."""

    _tracing: Tracing
    _tracer: Tracer
    _span: Span
    _record: RequestRecord
    _destinations: dict[str, _Attributes] = msgspec.field(default_factory=dict)

    def attempt(
        self, upstream: UpstreamSettings, protocol: str, model: str, account: str, *, stream: bool
    ) -> "AttemptTrace":
        """Begin the span of an attempt. protocol: the upstream's. model: its name there. account: as in the log."""
        of_metrics = self._destinations[f"{upstream.name}/{model}"] = self._tracing.destination(
            upstream, model
        )
        span = self._tracer.start_span(
            _text(f"{semconv.CHAT} {model}"),
            set_span_in_context(self._span, Context()),
            SpanKind.CLIENT,
            {
                **of_metrics,
                semconv.REQUEST_MODEL: _text(model),
                semconv.REQUEST_STREAM: stream,
                semconv.UPSTREAM: upstream.name,
                semconv.UPSTREAM_PROTOCOL: protocol,
                semconv.ACCOUNT: account,
            },
        )
        return AttemptTrace(self._tracing, span, of_metrics, stream=stream)

    def end(self) -> None:
        """End the span, with what the record has."""
        record, span = self._record, self._span
        if span.is_recording():
            for loss in record.losses:
                code, _, path = loss.partition(" ")
                span.add_event(semconv.LOSS_EVENT, {semconv.LOSS_CODE: code, semconv.LOSS_PATH: _text(path)})
            known: Mapping[str, str | int | float | bool | None] = {
                semconv.OUTCOME: record.outcome,
                semconv.HTTP_STATUS: record.status,
                semconv.ERROR_TYPE: record.error_kind,
                semconv.CLIENT_KEY: record.client_key,
                semconv.UPSTREAM: record.upstream,
                semconv.ACCOUNT: record.account,
                semconv.REQUEST_MODEL: None if record.model is None else _text(record.model),
                semconv.COST_USD: record.cost_usd,
            }
            span.set_attributes({name: value for name, value in known.items() if value is not None})
            # "... for HTTP status codes in the 4xx range span status MUST be left unset in case of SpanKind.SERVER"
            # -- OpenTelemetry's conventions for HTTP spans
            if record.outcome == "failed" and not 400 <= (record.status or 0) < 500:
                span.set_status(Status(StatusCode.ERROR))
        span.end()
        self._record_metrics()

    def _record_metrics(self) -> None:
        record, duration = self._record, self._record.duration_s
        known = self._destinations.get(f"{record.upstream}/{record.upstream_model}")
        if known is None or duration is None:
            return  # it was sent nowhere
        failed = record.outcome != "completed"
        attributes = {**known, semconv.ERROR_TYPE: record.error_kind or record.outcome} if failed else known
        self._tracing.record(semconv.SERVER_DURATION, duration, attributes)
        first = record.first_content_s or record.first_byte_s
        if failed or not record.stream or first is None:
            return
        self._tracing.record(semconv.SERVER_FIRST_TOKEN, first, known)
        if record.output_tokens is not None and record.output_tokens > 1:
            seconds = max(0.0, duration - first) / (record.output_tokens - 1)
            self._tracing.record(semconv.SERVER_OUTPUT_TOKEN, seconds, known)


class AttemptTrace:
    """The span of one attempt. Call end() once.

    Attributes:
        headers: By which the upstream continues the trace.
    """

    def __init__(self, tracing: Tracing, span: Span, of_metrics: _Attributes, *, stream: bool) -> None:
        carrier: dict[str, str] = {}
        _PROPAGATOR.inject(carrier, set_span_in_context(span, Context()))
        self.headers: HeaderList = list(carrier.items())
        self._tracing = tracing
        self._span = span
        self._of_metrics = of_metrics
        self._stream = stream
        self._began = anyio.current_time()

    def first_content(self) -> None:
        """Record that the first content has arrived."""
        if self._stream:
            seconds = anyio.current_time() - self._began
            self._span.set_attribute(semconv.TIME_TO_FIRST_CHUNK, seconds)
            self._tracing.record(semconv.CLIENT_FIRST_CHUNK, seconds, self._of_metrics)

    def end(self, status: int | None, error: str | None, usage: Usage | None) -> None:
        """End the span.

        status: of the upstream's response. error: its class, None if the response is complete. usage: as reported.
        """
        attributes, span = self._of_metrics, self._span
        if status is not None:
            span.set_attribute(semconv.HTTP_STATUS, status)
        for kind, name in semconv.USAGE.items():
            tokens = None if usage is None else getattr(usage, kind)
            if tokens is not None:
                span.set_attribute(name, tokens)
                if kind in _TOKEN_TYPES:
                    self._tracing.record(
                        semconv.CLIENT_TOKENS, tokens, {**attributes, semconv.TOKEN_TYPE: kind}
                    )
        if error is not None:
            attributes = {**attributes, semconv.ERROR_TYPE: error}
            span.set_attribute(semconv.ERROR_TYPE, error)
            span.set_status(Status(StatusCode.ERROR))
        span.end()
        self._tracing.record(semconv.CLIENT_DURATION, anyio.current_time() - self._began, attributes)
