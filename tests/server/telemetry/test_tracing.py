"""Spans and histograms of requests and attempts, with the names of the conventions, and no word of a body."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from gateway.fakes import Sleep, call
from gateway.provider import good, pool_of
from gateway.provider_errors import limited
from gateway.scripted import CHAT, ScriptedGateway, chat_response, chunk, scripted, stream, whole
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes
from opentelemetry.semconv._incubating.metrics import gen_ai_metrics
from opentelemetry.trace import SpanKind, StatusCode
from virtual_time import VIRTUAL_BACKENDS

from dragoman_server.app import Application
from dragoman_server.telemetry import semconv

pytestmark = [pytest.mark.anyio, pytest.mark.backends(*VIRTUAL_BACKENDS)]

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = "b7ad6b7169203331"
TRACEPARENT = {"traceparent": f"00-{TRACE}-{PARENT}-01", "tracestate": "vendor=1", "baggage": "user=alice"}
WORD = "a-word-of-the-body"
REQUEST = {"model": "up/m", "max_tokens": 5, "messages": [{"role": "user", "content": WORD}]}


@dataclass
class Collected:
    """What the gateway has reported."""

    exporter: InMemorySpanExporter = field(default_factory=InMemorySpanExporter)
    reader: InMemoryMetricReader = field(default_factory=InMemoryMetricReader)

    @asynccontextmanager
    async def providers(self) -> AsyncIterator[tuple[TracerProvider, MeterProvider]]:
        tracers = TracerProvider(shutdown_on_exit=False)
        tracers.add_span_processor(SimpleSpanProcessor(self.exporter))
        yield tracers, MeterProvider([self.reader], shutdown_on_exit=False)

    def spans(self, kind: SpanKind) -> list[ReadableSpan]:
        return [span for span in self.exporter.get_finished_spans() if span.kind is kind]

    @property
    def server(self) -> ReadableSpan:
        (span,) = self.spans(SpanKind.SERVER)
        return span

    def points(self) -> dict[str, list[Any]]:
        """Return the data points of each histogram."""
        (resource,) = self.reader.get_metrics_data().resource_metrics
        (scope,) = resource.scope_metrics
        return {metric.name: list(metric.data.data_points) for metric in scope.metrics}


@pytest.fixture
def collected(monkeypatch: pytest.MonkeyPatch) -> Collected:
    found = Collected()
    monkeypatch.setattr("dragoman_server.telemetry.sdk.providers", found.providers)
    return found


def gateway(*responses: Any, **more: Any) -> ScriptedGateway:
    usage = {"prompt_tokens": 20, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 5}}
    answer = whole(chat_response({"content": WORD}, usage=usage))
    return scripted(CHAT, *(responses or (answer,)), **{"otel": True, **more})


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def parent_of(span: ReadableSpan) -> int:
    return span.parent.span_id


async def send(app: Application, path: str = "/v1/messages", body: Any = REQUEST, **headers: str) -> Any:
    async with app.lifespan():
        return await call(app, path, body, headers=headers)


# Spans.


async def test_a_request_is_a_server_span_with_a_client_span_below_it(collected: Collected) -> None:
    response = await send(gateway().app)
    server, (client,) = collected.server, collected.spans(SpanKind.CLIENT)
    assert (server.name, client.name) == ("POST /v1/messages", "chat m")
    assert server.parent is None
    assert parent_of(client) == server.context.span_id
    assert attributes(server) == {
        "http.request.method": "POST",
        "http.route": "/v1/messages",
        "http.response.status_code": 200,
        "url.path": "/v1/messages",
        "url.scheme": "http",
        "gen_ai.request.model": "up/m",
        "dragoman.request_id": response.headers["dragoman-request-id"],
        "dragoman.client_protocol": "anthropic_messages",
        "dragoman.outcome": "completed",
        "dragoman.upstream": "up",
        "dragoman.account": "up/default",
    }
    assert attributes(client) == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "up",
        "gen_ai.request.model": "m",
        "gen_ai.request.stream": False,
        "gen_ai.usage.input_tokens": 20,
        "gen_ai.usage.output_tokens": 7,
        "gen_ai.usage.cache_read.input_tokens": 5,
        "http.response.status_code": 200,
        "server.address": "up.test",
        "server.port": 80,
        "dragoman.upstream": "up",
        "dragoman.upstream_protocol": "openai_chat",
        "dragoman.account": "up/default",
    }
    assert server.status.status_code is StatusCode.UNSET


async def test_a_trace_of_the_client_goes_on_to_the_upstream(collected: Collected, record: Any) -> None:
    made = gateway()
    await send(made.app, **TRACEPARENT)
    server, (client,) = collected.server, collected.spans(SpanKind.CLIENT)
    assert f"{parent_of(server):016x}" == PARENT
    assert made.sent[0].headers["traceparent"] == f"00-{TRACE}-{client.context.span_id:016x}-01"
    assert made.sent[0].headers["tracestate"] == "vendor=1"
    assert "baggage" not in made.sent[0].headers
    assert record()["trace_id"] == TRACE


@pytest.mark.parametrize("hostile", ["", "00-0-0-00", "x" * 10_000, f"ff-{TRACE}-{PARENT}-01", "00-é"])
async def test_a_wrong_header_begins_a_trace_of_its_own(collected: Collected, hostile: str) -> None:
    made = gateway()
    await send(made.app, traceparent=hostile)
    assert collected.server.parent is None
    assert hostile == "" or hostile not in made.sent[0].headers["traceparent"]


async def test_without_the_switch_nothing_of_a_trace_leaves(record: Any) -> None:
    made = gateway(otel=False)
    await send(made.app, **TRACEPARENT)
    assert not {"traceparent", "tracestate", "baggage"} & set(made.sent[0].headers)
    assert "trace_id" not in record()


async def test_each_attempt_has_a_span(collected: Collected) -> None:
    pool = pool_of(CHAT, {"a": limited(CHAT), "b": good("Hello")}, otel=True)
    async with pool.app.lifespan():
        await pool.call(CHAT)
    failed, completed = collected.spans(SpanKind.CLIENT)
    assert attributes(failed)["dragoman.account"] == "up/a"
    assert attributes(failed)["error.type"] == "rate_limit"
    assert attributes(failed)["http.response.status_code"] == 429
    assert failed.status.status_code is StatusCode.ERROR
    assert attributes(completed)["dragoman.account"] == "up/b"
    assert "error.type" not in attributes(completed)
    assert collected.server.status.status_code is StatusCode.UNSET


async def test_a_second_attempt_beside_the_first_has_a_span_and_ends_cancelled(collected: Collected) -> None:
    plays = {"a": good("Hello", before=[Sleep(60)]), "b": good("Hello")}
    pool = pool_of(CHAT, plays, upstream={"hedge_s": 2}, otel=True)
    async with pool.app.lifespan():
        await pool.call(CHAT)
    outcomes = {
        attributes(span)["dragoman.account"]: attributes(span).get("error.type")
        for span in collected.spans(SpanKind.CLIENT)
    }
    assert outcomes == {"up/a": "cancelled", "up/b": None}


async def test_a_failed_request_is_an_error_and_a_refused_one_is_the_clients(collected: Collected) -> None:
    made = gateway(whole({"error": {"message": WORD}}, 500))
    async with made.app.lifespan():
        await call(made.app, "/v1/messages", REQUEST)
        await call(made.app, "/v1/messages", {**REQUEST, "messages": 5})
    failed, refused = collected.spans(SpanKind.SERVER)
    assert failed.status.status_code is StatusCode.ERROR
    assert refused.status.status_code is StatusCode.UNSET
    assert attributes(refused)["error.type"] == "invalid_request"
    assert len(collected.spans(SpanKind.CLIENT)) == 1


async def test_losses_are_events(collected: Collected) -> None:
    await send(gateway().app, body={**REQUEST, "top_k": 3})
    (event,) = collected.server.events
    assert event.name == "dragoman.loss"
    assert dict(event.attributes or {}) == {"dragoman.loss.code": "dropped", "dragoman.loss.path": "/top_k"}


@pytest.mark.parametrize(
    ("method", "path", "route"),
    [
        *(
            ("GET", f"/v1/responses/{id}/input_items", "responses/{id}/input_items")
            for id in ("r_1", "s", "v1")
        ),
        ("POST", "/v1/publishers/up/models/m:generateContent", "{model}:generateContent"),
        ("POST", "/v1/publishers/up/models/m:countTokens", "{model}:countTokens"),
    ],
)
async def test_a_route_has_names_in_place_of_ids(
    collected: Collected, method: str, path: str, route: str
) -> None:
    made = gateway(response_store="memory")
    async with made.app.lifespan():
        await call(made.app, path, {}, method=method)
    assert collected.server.name == f"{method} /v1/{route}"


async def test_nothing_that_was_written_is_reported(collected: Collected) -> None:
    made = gateway(whole({"error": {"message": WORD, "code": WORD}}, 500))
    async with made.app.lifespan():
        await call(made.app, "/v1/messages", {**REQUEST, "top_k": WORD})
        await call(made.app, "/v1/messages", REQUEST)
    reported = "".join(span.to_json() for span in collected.exporter.get_finished_spans())
    reported += str(collected.reader.get_metrics_data())
    assert len(collected.spans(SpanKind.SERVER)) == 2
    assert WORD not in reported


@pytest.mark.parametrize("name", ["\ud800", "x" * 100_000])
async def test_a_hostile_name_can_be_exported_and_is_short(collected: Collected, name: str) -> None:
    made = gateway(upstream={"models": ("m",), "model_list": False})
    await send(made.app, body={**REQUEST, "model": f"up/{name}"})
    spans = encode_spans(collected.exporter.get_finished_spans()).SerializePartialToString()
    assert 0 < len(spans) < 5000


# Histograms.


async def test_the_figures_of_a_stream(collected: Collected) -> None:
    usage = {"prompt_tokens": 20, "completion_tokens": 5}
    events = chunk({"content": "a"}), chunk({"content": "b"}), chunk({}, "stop"), chunk(usage=usage)
    script = stream(*events, done=True)
    script.body = [Sleep(2), *script.body[:2], Sleep(8), *script.body[2:]]
    await send(gateway(script, upstream={"models": ("m",)}).app, body={**REQUEST, "stream": True})
    points = collected.points()
    assert {name: point.sum for name, (point, *_) in points.items()} == {
        "gen_ai.client.operation.duration": 10,
        "gen_ai.client.operation.time_to_first_chunk": 2,
        "gen_ai.client.token.usage": 20,
        "gen_ai.server.request.duration": 10,
        "gen_ai.server.time_to_first_token": 2,
        "gen_ai.server.time_per_output_token": 2,
    }
    tokens = {
        point.attributes["gen_ai.token.type"]: point.sum for point in points["gen_ai.client.token.usage"]
    }
    assert tokens == {"input": 20, "output": 5}
    assert dict(points["gen_ai.server.request.duration"][0].attributes) == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "up",
        "gen_ai.request.model": "m",
        "server.address": "up.test",
        "server.port": 80,
    }


async def test_heartbeats_are_no_content(collected: Collected, record: Any) -> None:
    events = chunk({"content": "a"}), chunk({}, "stop")
    script = stream(*events, done=True)
    script.body = [Sleep(35), *script.body]
    await send(gateway(script, keepalive_s=10).app, body={**REQUEST, "stream": True})
    assert (record()["first_byte_s"], record()["first_content_s"]) == (10, 35)
    points = collected.points()
    for name in ("gen_ai.client.operation.time_to_first_chunk", "gen_ai.server.time_to_first_token"):
        assert points[name][0].sum == 35


async def test_a_name_that_a_client_made_up_is_in_no_metric(collected: Collected) -> None:
    made = gateway(upstream={"models": ("m",), "model_list": False})
    await send(made.app, body={**REQUEST, "model": "up/invented"})
    models = {
        point.attributes["gen_ai.request.model"] for each in collected.points().values() for point in each
    }
    assert models == {"other"}


async def test_an_error_is_in_the_durations(collected: Collected) -> None:
    await send(gateway(whole({"error": {"message": "no"}}, 503)).app)
    for name in ("gen_ai.client.operation.duration", "gen_ai.server.request.duration"):
        (point,) = collected.points()[name]
        assert point.attributes["error.type"] == "overloaded"


# Names.


def test_the_names_are_those_of_the_conventions() -> None:
    published = {value for value in vars(gen_ai_attributes).values() if isinstance(value, str)}
    published |= {value for value in vars(gen_ai_metrics).values() if isinstance(value, str)}
    ours = {
        value for value in vars(semconv).values() if isinstance(value, str) and value.startswith("gen_ai.")
    }
    ours |= {*semconv.USAGE.values(), *(spec.name for spec in semconv.INSTRUMENTS)}
    assert ours <= published
    providers = {each.value for each in gen_ai_attributes.GenAiProviderNameValues}
    assert set(semconv.PROVIDER_NAMES.values()) <= providers
