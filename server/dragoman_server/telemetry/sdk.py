"""Set up the SDK of OpenTelemetry as its own variables say, and stop it within bounded time.

The variables are the standard's: OTEL_SERVICE_NAME, OTEL_TRACES_EXPORTER, OTEL_EXPORTER_OTLP_ENDPOINT and so on. The
SDK reads most of them itself; here is the part that it leaves to an application. One around the gateway that has set up
OpenTelemetry keeps its own providers.
"""

import os
import threading
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from importlib.metadata import entry_points
from typing import Any

import anyio.to_thread
from opentelemetry import metrics, trace
from opentelemetry.metrics import MeterProvider
from opentelemetry.sdk import metrics as sdk_metrics
from opentelemetry.sdk import trace as sdk_trace
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import TracerProvider

from dragoman_server import __version__

# Seconds for sending the rest when the gateway stops. A collector that does not respond must not hold that up.
SHUTDOWN_S = 2.0

# By OTEL_EXPORTER_OTLP_PROTOCOL: the exporter's entry point. The extra has the first one.
_OTLP = {"http/protobuf": "otlp_proto_http", "grpc": "otlp_proto_grpc"}
_DEFAULT_PROTOCOL = "http/protobuf"


class TelemetryError(Exception):
    """The variables ask for an exporter that is not installed."""


@asynccontextmanager
async def providers() -> AsyncIterator[tuple[TracerProvider, MeterProvider]]:
    """Give the providers of spans and of metrics; the SDK's are shut down at the end. Raises TelemetryError."""
    # The application around the gateway may have set up OpenTelemetry.
    has_providers = not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)
    if os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true" or has_providers:
        yield trace.get_tracer_provider(), metrics.get_meter_provider()
        return
    resource = _resource()
    tracers = sdk_trace.TracerProvider(resource=resource, shutdown_on_exit=False)
    for exporter in _exporters("traces"):
        tracers.add_span_processor(BatchSpanProcessor(exporter))
    readers = [PeriodicExportingMetricReader(exporter) for exporter in _exporters("metrics")]
    meters = sdk_metrics.MeterProvider(readers, resource=resource, shutdown_on_exit=False)
    try:
        yield tracers, meters
    finally:
        # Side by side, because both may wait for the same collector.
        threads = [threading.Thread(target=provider.shutdown, daemon=True) for provider in (tracers, meters)]
        for thread in threads:
            thread.start()
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(partial(_join, threads))


def _join(threads: list[threading.Thread]) -> None:
    deadline = time.monotonic() + SHUTDOWN_S
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))


def _resource() -> Resource:
    ours = {
        "service.name": "dragoman",
        "service.version": __version__,
        # Each worker counts for itself.
        "service.instance.id": str(uuid.uuid4()),
    }
    return Resource.create(ours).merge(OTELResourceDetector().detect())


def _exporters(signal: str) -> list[Any]:
    """Return the exporters that OTEL_TRACES_EXPORTER or OTEL_METRICS_EXPORTER names, by default OTLP."""
    upper = signal.upper()
    names = os.environ.get(f"OTEL_{upper}_EXPORTER") or "otlp"
    found = []
    for name in dict.fromkeys(name.strip() for name in names.split(",")):
        if name in ("", "none"):
            continue
        entry = _otlp_exporter(upper) if name == "otlp" else name
        (loaded, *_) = entry_points(group=f"opentelemetry_{signal}_exporter", name=entry) or (None,)
        if loaded is None:
            raise TelemetryError(
                f"OTEL_{upper}_EXPORTER={name} needs the exporter {entry}, which is not installed"
            )
        found.append(loaded.load()())
    return found


def _otlp_exporter(upper: str) -> str:
    variables = (f"OTEL_EXPORTER_OTLP_{upper}_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
    protocol = next(filter(None, map(os.environ.get, variables)), _DEFAULT_PROTOCOL)
    return _OTLP.get(protocol, protocol)
