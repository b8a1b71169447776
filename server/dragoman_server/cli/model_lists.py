"""The models that the banner and `dragoman run` offer: the configured ones, and the ones that upstreams list."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import TypeAlias

import anyio
import msgspec

from dragoman_server.models.info import ModelInfo
from dragoman_server.models.listing import fetch_all
from dragoman_server.models.routes import (
    SIMULATOR_DEFAULT_MODEL,
    ListedModels,
    ModelRoute,
    UnknownModel,
    default_model_of,
    filter_chat_models,
    model_ids,
    resolve,
)
from dragoman_server.settings import SIMULATOR, Settings, UpstreamSettings
from dragoman_server.settings.patterns import WILDCARD, targets_of
from dragoman_server.upstream.client import UpstreamClient

# A user waits for it.
_TIMEOUT_S = 2.0

# The models of each upstream by its name, or why it has returned no list.
ModelLists: TypeAlias = Mapping[str, tuple[ModelInfo, ...] | str]


def fetch_lists(settings: Settings, upstreams: Sequence[UpstreamSettings]) -> ModelLists:
    """Fetch the lists of these upstreams in parallel, in its own event loop. Waits for two seconds at most."""

    async def fetch() -> ModelLists:
        async with UpstreamClient(expects_tls=False) as client:
            return await fetch_all(client, settings, upstreams, _TIMEOUT_S)

    return anyio.run(fetch) if upstreams else {}


class OfferedModels(msgspec.Struct, frozen=True, dict=True):
    """The models of a gateway with these settings, whose upstreams have returned these lists."""

    settings: Settings
    lists: ModelLists = msgspec.field(default_factory=dict)

    @cached_property
    def infos(self) -> ListedModels:
        """The models of the upstreams that have returned a list."""
        return {
            name: {model.id: model for model in models}
            for name, models in self.lists.items()
            if not isinstance(models, str)
        }

    def route(self, name: str) -> ModelRoute | UnknownModel:
        """Return where a name leads."""
        return resolve(self.settings, None, name, self.infos)

    def info(self, name: str) -> ModelInfo | None:
        """Return the known facts about the model that a name leads to."""
        route = self.route(name)
        if isinstance(route, UnknownModel):
            return None
        return self.infos.get(route.upstream, {}).get(route.upstream_model)

    def names(self) -> tuple[str, ...]:
        """Return the names that clients may use, without the simulator's where there is an upstream."""
        names = [
            name
            for name in model_ids(self.settings)
            if self.settings.lists_simulator or not name.startswith(f"{SIMULATOR}/")
        ]
        for upstream in self.settings.upstreams:
            default = [] if upstream.default_model is None else [upstream.default_model]
            listed = filter_chat_models(self.infos.get(upstream.name, ()))
            names += [f"{upstream.name}/{model}" for model in (*default, *listed)]
        return tuple(dict.fromkeys(names))

    def example(self) -> tuple[str | None, int | None]:
        """Return a model that should work: one that the configuration names, else one that an upstream lists; or None.

        The second value is the size of its context window in tokens, if its upstream reports it.
        """
        name = next(self._candidates(), None)
        info = None if name is None else self.info(name)
        return name, None if info is None else info.context

    def why_unknown(self) -> str:
        """Return the reason why example() has found none."""
        name = self.settings.upstreams[0].name
        reason = self.lists.get(name, "its list was not requested")
        return (
            f"the models of {name} are unknown ({reason if isinstance(reason, str) else 'its list is empty'})"
        )

    def _candidates(self) -> Iterator[str]:
        settings = self.settings
        if settings.server.default_model is not None:
            yield settings.server.default_model
        yield from (alias for alias in settings.models if WILDCARD not in alias)
        for chain in settings.models.values():
            first = targets_of(chain)[0]
            if WILDCARD not in first:
                yield first
        for upstream in settings.upstreams:
            models = self.infos.get(upstream.name, ())
            default = default_model_of(upstream, models)
            for model in [*([default] if default else ()), *filter_chat_models([*upstream.models, *models])]:
                yield f"{upstream.name}/{model}"
        if not settings.upstreams:
            yield SIMULATOR_DEFAULT_MODEL
