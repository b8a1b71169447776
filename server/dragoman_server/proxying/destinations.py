"""Where the requests for a model go: upstream, model there, protocol and accounts."""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from dragoman import UPSTREAMS, RemoteProtocolError, RequestRefused
from dragoman.codec import ProtocolSpec, UpstreamSpec
from dragoman_server.log import RequestRecord
from dragoman_server.models import routes
from dragoman_server.settings import AccountSettings, Settings, UpstreamSettings
from dragoman_server.settings.problems import quote_value


class Destination(msgspec.Struct, frozen=True, eq=False):
    """Where a client's requests for a model go.

    Attributes:
        model: The name that the client uses, or the default.
        upstream_model: Its name at the upstream.
        upstream: The protocol that is spoken there.
        settings: The upstream's.
        accounts: Any of them may send the request.
        advice, rule: See ModelRoute.
        only_account: The name of the account that has to send it, which `accounts` then has alone; "" for any.
        common: What the planner has made for the requests so far that go there, by what that depends on besides.
    """

    model: str
    upstream_model: str
    upstream: UpstreamSpec
    settings: UpstreamSettings
    accounts: tuple[AccountSettings, ...]
    advice: str = ""
    rule: str = ""
    only_account: str = ""
    common: dict[tuple[int, bool], Any] = msgspec.field(default_factory=dict)

    @property
    def target(self) -> str:
        """Upstream and model, as `upstream/model`."""
        return f"{self.settings.name}/{self.upstream_model}"

    @property
    def renaming(self) -> str:
        """That the upstream gets another model than the client has named, and by which rule; "" if it does not."""
        if self.model in (self.upstream_model, self.target):
            return ""
        return f"{quote_value(self.model)} was routed to {quote_value(self.target)}: {self.rule}"


def find_destinations(
    settings: Settings,
    client: ProtocolSpec,
    model: str,
    upstreams: Mapping[str, UpstreamSpec] = UPSTREAMS,
    listed: routes.ListedModels = routes.NO_LISTED_MODELS,
) -> tuple[Destination, ...]:
    """Return the upstreams that may serve a model, the best first.

    model: as the request names it, "" if it names none. listed: see resolve_chain().

    Raises RemoteProtocolError if there is no model, RequestRefused (404) for one that no upstream serves.
    """
    model = model or _default_model(settings, client)
    key = "destinations", client.name, model
    found: _Found | None = settings.resolved.get(key)
    # A list is the same object until it has changed.
    if found is None or found.upstreams is not upstreams or found.listed != listed:
        chain = _find_destinations(settings, client, model, upstreams, listed)
        found = settings.resolved.keep(key, _Found(upstreams, dict(listed), chain))
    return found.chain


class _Found(msgspec.Struct, frozen=True):
    """Where a model leads, and what that depends on."""

    upstreams: Mapping[str, UpstreamSpec]
    listed: routes.ListedModels
    chain: tuple[Destination, ...]


def _find_destinations(
    settings: Settings,
    client: ProtocolSpec,
    model: str,
    upstreams: Mapping[str, UpstreamSpec],
    listed: routes.ListedModels,
) -> tuple[Destination, ...]:
    chain = routes.resolve_chain(settings, client.name, model, listed)
    if isinstance(chain, routes.UnknownModel):
        raise RequestRefused(chain.message, status=404, path="/model", code="model_not_found")
    destinations = []
    for route in chain:
        upstream = settings.upstream(route.upstream)
        assert upstream is not None  # resolve_chain() only returns upstreams that exist
        protocol = upstreams[route.upstream_protocol]
        accounts = settings.accounts_of(upstream)
        destinations.append(
            Destination(model, route.upstream_model, protocol, upstream, accounts, route.advice, route.rule)
        )
    return tuple(destinations)


def at_account(chain: Iterable[Destination], account: str) -> tuple[Destination, ...]:
    """Return the destinations that have this account, with no other one. account: its id, "" for any."""
    name = account.partition("/")[2]
    found = [(to, tuple([each for each in to.accounts if each.id == account])) for to in chain]
    return tuple(
        [
            msgspec.structs.replace(to, accounts=only, only_account=name, common={})
            for to, only in found
            if only
        ]
    )


def record_destination(record: RequestRecord, to: Destination) -> None:
    """Note where a request goes, for the log."""
    record.upstream, record.upstream_protocol = to.settings.name, to.upstream.name
    record.upstream_model = to.upstream_model or None
    record.rule = None if to.model == to.upstream_model or to.model == to.target else to.rule


def _default_model(settings: Settings, client: ProtocolSpec) -> str:
    """Return the model of a request that names none. Raises RemoteProtocolError."""
    model = None if client.needs_model else routes.default_model(settings)
    if model is not None:
        return model
    reason = "model is required"
    if not client.needs_model:
        reason = (
            "model is missing, and this gateway has no default: name one, or have server.default_model set"
        )
    raise RemoteProtocolError(reason, path="/model", code="missing_required_parameter")
