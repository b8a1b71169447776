"""The SDK of OpenTelemetry is set up by its own variables, and a collector that hangs does not hold up a stop."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricExporter, MetricExportResult
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from virtual_time import REAL_BACKENDS

from dragoman_server.telemetry import sdk
from dragoman_server.telemetry.sdk import TelemetryError, providers

pytestmark = [pytest.mark.anyio, pytest.mark.backends(*REAL_BACKENDS)]


@pytest.fixture(autouse=True)
def environ(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Nothing is exported unless a test says so."""
    for signal in ("TRACES", "METRICS"):
        monkeypatch.setenv(f"OTEL_{signal}_EXPORTER", "none")
    return monkeypatch


async def test_the_resource_is_the_gateway_unless_a_variable_names_it(environ: pytest.MonkeyPatch) -> None:
    found = []
    for name in (None, "edge"):
        if name is not None:
            environ.setenv("OTEL_SERVICE_NAME", name)
            environ.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test")
        async with providers() as (tracers, _):
            assert isinstance(tracers, TracerProvider)
            found.append(dict(tracers.resource.attributes))
    first, second = found
    assert (first["service.name"], second["service.name"]) == ("dragoman", "edge")
    assert second["deployment.environment.name"] == "test"
    assert first["service.instance.id"] != second["service.instance.id"]


@pytest.mark.parametrize("variable", ["OTEL_TRACES_EXPORTER", "OTEL_METRICS_EXPORTER"])
async def test_an_exporter_that_is_not_installed(variable: str, environ: pytest.MonkeyPatch) -> None:
    environ.setenv(variable, "none,pigeon")
    with pytest.raises(TelemetryError, match=f"{variable}=pigeon needs the exporter pigeon"):
        async with providers():
            pass


@pytest.mark.parametrize("specific", [True, False])
async def test_the_protocol_of_otlp_chooses_the_exporter(specific: bool, environ: pytest.MonkeyPatch) -> None:
    environ.setenv("OTEL_TRACES_EXPORTER", "otlp")
    environ.setenv(f"OTEL_EXPORTER_OTLP_{'TRACES_' if specific else ''}PROTOCOL", "grpc")
    match = "otlp needs the exporter otlp_proto_grpc, which is not installed"
    with pytest.raises(TelemetryError, match=match):
        async with providers():
            pass


async def test_the_exporter_of_the_extra_is_there(environ: pytest.MonkeyPatch) -> None:
    environ.setenv("OTEL_TRACES_EXPORTER", "otlp")
    environ.setenv("OTEL_METRICS_EXPORTER", "otlp,console")
    assert len(sdk._exporters("traces")) == 1
    assert len(sdk._exporters("metrics")) == 2


async def test_it_can_be_disabled(environ: pytest.MonkeyPatch) -> None:
    environ.setenv("OTEL_SDK_DISABLED", "true")
    async with providers() as (tracers, _):
        assert not tracers.get_tracer("a").start_span("b").is_recording()


async def test_an_application_around_it_keeps_its_own(environ: pytest.MonkeyPatch) -> None:
    ours = TracerProvider(shutdown_on_exit=False), MeterProvider(shutdown_on_exit=False)
    environ.setattr(trace, "get_tracer_provider", lambda: ours[0])
    environ.setattr(metrics, "get_meter_provider", lambda: ours[1])
    async with providers() as given:
        assert given == ours
    assert ours[0].get_tracer("a").start_span("b").is_recording(), "it is not shut down"


class Hanging(SpanExporter, MetricExporter):
    """A collector that does not respond."""

    def __init__(self) -> None:
        MetricExporter.__init__(self)
        self.released = threading.Event()

    def export(self, *_: Any, **__: Any) -> Any:
        self.released.wait(60)
        return (
            SpanExportResult.SUCCESS if _ and isinstance(_[0], list | tuple) else MetricExportResult.SUCCESS
        )

    def force_flush(self, timeout_millis: float = 0) -> bool:
        return True

    def shutdown(self, timeout_millis: float = 0, **_: Any) -> None:
        pass


@pytest.fixture
def hanging(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hanging]:
    exporter = Hanging()
    monkeypatch.setattr(sdk, "_exporters", lambda signal: [exporter])
    monkeypatch.setattr(sdk, "SHUTDOWN_S", 0.05)
    yield exporter
    exporter.released.set()


async def test_a_collector_that_hangs_does_not_hold_up_the_stop(hanging: Hanging) -> None:
    async with providers() as (tracers, meters):
        tracers.get_tracer("a").start_span("b").end()
        meters.get_meter("a").create_counter("b").add(1)
    assert not hanging.released.is_set(), "it still hangs"
