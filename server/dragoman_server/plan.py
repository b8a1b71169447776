"""What one request will do: pure, from the client's bytes to the upstream's.

Strategy: everything that can be wrong with a request is found here, before any upstream is called: route,
translation, losses. The clock and the random id come in as arguments, so the same input gives the same plan.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from dragoman import (
    REGISTRY,
    Exchange,
    Policy,
    ProtocolSpec,
    Relay,
    RemoteProtocolError,
    RequestTranslator,
    ResponseTranslator,
    Target,
    TranslatedRequest,
    peek,
)

from . import headers as header_tables
from .routes import UnknownModel, resolve
from .settings import NO_REASONING_FIELD, Settings, UpstreamSettings
from .upstream import UpstreamTimeouts

# Query parameters that a relay keeps: Anthropic's SDK marks its beta surface with `?beta=true`.
_RELAYED_QUERY = frozenset({"beta=true"})


@dataclass(frozen=True, slots=True)
class Plan:
    """One request, translated and addressed.

    streams: the client wants a stream of events.
    """

    id: str
    client: ProtocolSpec
    upstream: ProtocolSpec
    settings: UpstreamSettings
    upstream_model: str
    translated: TranslatedRequest
    exchange: Exchange
    url: str
    headers: list[tuple[str, str]] = field(repr=False)  # the upstream's key is among them
    streams: bool

    @property
    def timeouts(self) -> UpstreamTimeouts:
        own = self.settings
        return UpstreamTimeouts(
            connect_s=own.connect_s, read_s=own.read_s, write_s=own.write_s, pool_s=own.pool_s
        )

    @property
    def proxy(self) -> str | None:
        return None if self.settings.proxy is None else self.settings.proxy.reveal()

    def answer(self, *, upstream_streams: bool) -> ResponseTranslator | Relay:
        """The machine for the answer. A relay only where both bodies have one form: else it is translated."""
        if self.translated.relayed and upstream_streams == self.streams:
            return Relay(self.client, self.exchange, streams=self.streams)
        return ResponseTranslator(
            self.upstream,
            self.client,
            self.exchange,
            tools=self.translated.tools,
            upstream_streams=upstream_streams,
            client_streams=self.streams,
        )


def make_plan(
    settings: Settings,
    client: ProtocolSpec,
    headers: Mapping[str, str],
    query: str,
    body: bytes,
    *,
    id: str,
    now: int,
) -> Plan:
    """Plan one request. headers: lower-case names. id: letters and digits. now: seconds since the epoch.

    Raises RemoteProtocolError: 400 for what is wrong with the body, 404 for a model that leads nowhere.
    """
    peeked = peek(body)
    if not peeked.model:
        raise RemoteProtocolError("model is required", path="/model", code="missing_required_parameter")
    route = resolve(settings, client.name, peeked.model)
    if isinstance(route, UnknownModel):
        raise RemoteProtocolError(route.message, status_hint=404, path="/model", code="model_not_found")
    target = settings.upstream(route.upstream)
    assert target is not None  # resolve() only gives upstreams that exist
    upstream = REGISTRY[route.upstream_protocol]
    translator = RequestTranslator(
        client,
        upstream,
        target=_target(settings, target),
        policy=Policy(target.loss_policy or settings.server.loss_policy),
    )
    translated = translator.translate(body, model=route.upstream_model, peeked=peeked)
    url = target.base_url_for(upstream.name) + upstream.path
    if translated.relayed and query in _RELAYED_QUERY:
        url = f"{url}?{query}"
    return Plan(
        id=id,
        client=client,
        upstream=upstream,
        settings=target,
        upstream_model=route.upstream_model,
        translated=translated,
        exchange=translated.exchange(id=id, now=now),
        url=url,
        headers=header_tables.for_upstream(target, upstream.name, client.name, headers, stream=peeked.stream),
        streams=peeked.stream,
    )


def _target(settings: Settings, upstream: UpstreamSettings) -> Target:
    """What the configuration says an upstream takes."""
    field = upstream.reasoning_field
    return Target(
        max_tokens=upstream.max_tokens or settings.server.default_max_tokens,
        max_tokens_field="max_tokens"
        if upstream.max_tokens_field == "max_tokens"
        else "max_completion_tokens",
        reasoning_field=None if field == NO_REASONING_FIELD else field,
        custom_tools=upstream.custom_tools,
        developer_role=upstream.developer_role,
        mid_system=upstream.mid_system,
        cache_marks=upstream.cache_marks,
        sampling=upstream.takes_sampling,
        thinking="budget" if upstream.thinking == "budget" else "adaptive",
    )
