"""Find the upstream that serves a model name. Pure: settings in, a route or a reason out.

The first rule that matches decides:

1. an alias of `[models]`, exact before patterns with `*`; it may lead to a chain, the best first;
2. `upstream/NAME`, where the first segment is the name of an upstream;
3. a name in an upstream's own `models` list;
4. a well-known family, such as `claude-*`, by `capabilities.providers`;
5. the only upstream, if there is just one: it may have models that are not listed here;
6. with no upstream but the simulator, the simulator's `echo`, so that any client works at the first try.

Everything else is UnknownModel. A client whose protocol the upstream speaks is relayed in that protocol.

Rules 4 and 5 guess. Agents request models of one vendor whatever upstream there is, so a guess leads to the upstream's
default model if the upstream neither lists the name nor is that vendor's. `catalog.py` has fetched the list by then.
"""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from types import MappingProxyType
from typing import TypeAlias

import msgspec

from dragoman_server.capabilities.providers import (
    protocols_of_model,
    provider_name,
    providers_of_model,
)
from dragoman_server.models.info import ModelInfo
from dragoman_server.relayed.table import TABLE
from dragoman_server.settings import SIMULATOR, Settings, UpstreamSettings
from dragoman_server.settings.patterns import WILDCARD, captures, matches, substitute, targets_of
from dragoman_server.settings.problems import nearest, printable
from dragoman_server.simulator import MODELS

# The simulator's model that serves all names when there is no upstream.
SIMULATOR_DEFAULT_MODEL = f"{SIMULATOR}/echo"

# The models that Claude Code and Codex request by themselves.
AGENT_MODELS = ("claude-*", "gpt-*", "codex-*")

# Words in names of models that do not chat. Few lists have the purpose of a model.
_NO_CHAT_WORDS = (*dict.fromkeys(word for row in TABLE for word in row.words), "realtime")

# The models that each upstream lists, by the upstream's name and the model's id; without upstreams of unknown lists.
ListedModels = Mapping[str, Mapping[str, ModelInfo]]
NO_LISTED_MODELS: ListedModels = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class ModelRoute:
    """Where a request goes: the upstream's name, and the model and the protocol to use there.

    Attributes:
        advice: What to do if the upstream does not have the model, "" if it probably has it.
        rule: The rule that has led there, for people.
    """

    upstream: str
    upstream_model: str
    upstream_protocol: str
    advice: str = field(default="", compare=False)
    rule: str = field(default="", compare=False)


class UnknownModel(msgspec.Struct, frozen=True):
    """No rule matches.

    Attributes:
        message: The error for the client.
        suggestion: A name that would work.
    """

    message: str
    suggestion: str | None = None


def default_model(settings: Settings) -> str | None:
    """Return the name of the model for requests that name none, None if there is none."""
    if settings.server.default_model is None and not settings.upstreams and settings.server.offers_simulator:
        return SIMULATOR_DEFAULT_MODEL  # rule 6
    return settings.server.default_model


def default_model_of(upstream: UpstreamSettings, listed: Collection[str] = ()) -> str | None:
    """Return the upstream's model for names that it does not have: the configured one, else the only one it has."""
    if upstream.default_model is not None:
        return upstream.default_model
    # Lists have thousands of models, and two of them show that there is not only one.
    chat_models = filter_chat_models(chain(upstream.models, listed))
    only = next(chat_models, None)
    return only if all(model == only for model in chat_models) else None


def filter_chat_models(models: Iterable[str]) -> Iterator[str]:
    """Yield the models that chat, judged by their names."""
    return (model for model in models if not any(word in model.lower() for word in _NO_CHAT_WORDS))


def deciding_upstream(settings: Settings, model: str) -> UpstreamSettings | None:
    """Return the upstream whose list decides where the name leads, None if no list is needed."""
    key = "deciding upstream", model
    found: tuple[UpstreamSettings | None] | None = settings.resolved.get(key)
    return (found or settings.resolved.keep(key, (_deciding_upstream(settings, model),)))[0]


def _deciding_upstream(settings: Settings, model: str) -> UpstreamSettings | None:
    if _alias(settings, model) or _named(settings, model):
        return None
    guessed = _guessed(settings, model)
    return guessed[0] if guessed is not None and _is_agent_default(guessed[0], model) else None


def resolve(
    settings: Settings, client_protocol: str | None, model: str, listed: ListedModels = NO_LISTED_MODELS
) -> ModelRoute | UnknownModel:
    """Return where a request goes first, see resolve_chain()."""
    chain = resolve_chain(settings, client_protocol, model, listed)
    return chain if isinstance(chain, UnknownModel) else chain[0]


def resolve_chain(
    settings: Settings, client_protocol: str | None, model: str, listed: ListedModels = NO_LISTED_MODELS
) -> tuple[ModelRoute, ...] | UnknownModel:
    """Return where a request goes, and where it goes if that fails: at least one route.

    client_protocol: decides which protocol is spoken there, not where the request goes; None means any.
    """
    if not model:
        return UnknownModel("the request names no model")
    advice = ""
    found = _alias(settings, model) or _named(settings, model)
    if found is None:
        guessed = _guessed(settings, model)
        if guessed is not None:
            best, rule = guessed
            upstream_model, advice = _model_at(best, model, listed.get(best.name, ()))
            if upstream_model != model:
                rule += ", which has this model by default"
            found = rule, (f"{best.name}/{upstream_model}",)
        elif not settings.upstreams and settings.server.offers_simulator:
            found = "there is no upstream", (SIMULATOR_DEFAULT_MODEL,)
        else:
            return _unknown(settings, model, listed)
    rule, targets = found
    routes = []
    for target in targets:
        name, _, upstream_model = target.partition("/")
        upstream = settings.upstream(name)
        # The loader checks aliases; settings made by hand may still have one that leads nowhere.
        if upstream is None:
            return UnknownModel(f'the model "{_short(model)}" is routed to the unknown upstream "{name}"')
        if not upstream_model:  # the text that a pattern matched was empty
            return UnknownModel(f'the model "{_short(model)}" is routed to no model of the upstream "{name}"')
        served = protocols_of_model(upstream, upstream_model)
        protocol = client_protocol if client_protocol in served else served[0]
        routes.append(ModelRoute(name, upstream_model, protocol, advice, rule))
    return tuple(routes)


def model_ids(settings: Settings) -> tuple[str, ...]:
    """Return the names that the settings have: aliases, the upstreams' lists, the simulator's."""
    names = [alias for alias in settings.models if WILDCARD not in alias]
    names += [f"{upstream.name}/{model}" for upstream in settings.upstreams for model in upstream.models]
    if settings.server.offers_simulator:
        names += [f"{SIMULATOR}/{model}" for model in MODELS]
    return tuple(dict.fromkeys(names))


# The rule that has matched, and where it leads, as `upstream/model`, the best first.
_Found: TypeAlias = tuple[str, tuple[str, ...]]


def _alias(settings: Settings, model: str) -> _Found | None:
    exact = settings.models.get(model)
    found = settings.aliases.first(model) if exact is None else (model, exact)
    if found is None:
        return None
    name, target = found
    texts = captures(model, name) or ()
    return f"models.{name}", tuple(substitute(destination, texts) for destination in targets_of(target))


def _named(settings: Settings, model: str) -> _Found | None:
    """Apply rules 2 and 3."""
    first, slash, model_name = model.partition("/")
    if slash and model_name and settings.upstream(first) is not None:
        return "it names the upstream", (model,)
    listing = settings.upstream_of_model.get(model)
    return None if listing is None else ("the upstream's models have it", (f"{listing}/{model}",))


def _guessed(settings: Settings, model: str) -> tuple[UpstreamSettings, str] | None:
    """Apply rules 4 and 5. Return the upstream and the rule."""
    by_family = next(_by_family(settings, model), None)
    if by_family is not None:
        return by_family, "a well-known family of models"
    return (settings.upstreams[0], "the only upstream") if len(settings.upstreams) == 1 else None


def _is_agent_default(upstream: UpstreamSettings, model: str) -> bool:
    """True if agents request the model by themselves and the upstream is not the model's vendor."""
    vendors = [provider.name for provider in providers_of_model(model)]
    requested_by_agents = any(matches(model, pattern) for pattern in AGENT_MODELS)
    if not requested_by_agents or not any(filter_chat_models([model])):
        return False
    return provider_name(upstream.base_url) not in vendors


def _model_at(upstream: UpstreamSettings, model: str, listed: Collection[str]) -> tuple[str, str]:
    """Return the model that a guess leads to, and the advice if the upstream may not have it."""
    if model in listed or not _is_agent_default(upstream, model):
        return model, ""
    default = default_model_of(upstream, listed)
    if default is not None:
        return default, ""
    return model, _line_to_add(upstream, model, listed)


def _line_to_add(upstream: UpstreamSettings, model: str, listed: Collection[str]) -> str:
    """Return the advice how to make the name lead to a model of the upstream."""
    name = next((pattern for pattern in AGENT_MODELS if matches(model, pattern)), _short(model))
    some_model = next(filter_chat_models(chain(upstream.models, listed)), "MODEL")
    target = f"{upstream.name}/{default_model_of(upstream, listed) or some_model}"
    return f"add to dragoman.toml, below [models]: {json.dumps(name)} = {json.dumps(target)}"


def _by_family(settings: Settings, model: str) -> Iterator[UpstreamSettings]:
    for provider in providers_of_model(model):
        named = settings.upstream(provider.name)
        if named is not None:
            yield named
        if provider.models_elsewhere:
            yield from (each for each in settings.upstreams if provider.protocols[0] in each.protocols)


def _unknown(settings: Settings, model: str, listed: ListedModels) -> UnknownModel:
    # The simulator's names do not help a user who looks for a real model.
    known = [name for name in model_ids(settings) if not name.startswith(f"{SIMULATOR}/")]
    upstreams = [upstream.name for upstream in settings.upstreams]
    first, slash, model_name = model.partition("/")
    suggestion = nearest(model, known)
    if suggestion is None and slash and model_name and (name := nearest(first, upstreams)) is not None:
        suggestion = f"{name}/{model_name}"
    hint = f'did you mean "{_short(suggestion)}"? ' if suggestion is not None else ""
    message = (
        f'the model "{_short(model)}" is not known here; {hint}write "upstream/model" with one of '
        f"the upstreams {', '.join(upstreams) or SIMULATOR}"
    )
    if suggestion is None and settings.upstreams:
        best = settings.upstreams[0]
        message += f", or {_line_to_add(best, model, listed.get(best.name, ()))}"
    return UnknownModel(message, suggestion)


def _short(text: str) -> str:
    """Return a name from outside so that it can be in a message."""
    visible = printable(text[:100], "?")
    return visible if len(text) <= 100 else visible + "..."
