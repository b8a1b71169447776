"""Which upstream serves a model name. Pure: settings in, a route or a reason out.

The first rule that fits decides:

1. an alias of `[models]`, exact before patterns with `*`; it may lead to a chain, the best first;
2. `upstream/NAME`, where the first segment is the name of an upstream;
3. a name that stands in an upstream's own `models` list;
4. a well-known family, such as `claude-*`, by the table below;
5. the only upstream there is, if there is one: it may know names that we do not;
6. with no upstream but the simulator, the simulator's `echo`, so that any client works at the first try.

Everything else is UnknownModel. A client whose own protocol the upstream speaks is relayed in it.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from ._patterns import matches
from ._suggest import nearest
from .settings import ANTHROPIC_MESSAGES, SIMULATOR, Settings, UpstreamSettings
from .simulator import MODELS

# The simulator's model that answers when there is nothing else.
DEFAULT_MODEL = f"{SIMULATOR}/echo"


@dataclass(frozen=True, slots=True)
class Route:
    """Where a request goes: the upstream's name, and the model and the protocol to use there."""

    upstream: str
    upstream_model: str
    upstream_protocol: str


@dataclass(frozen=True, slots=True)
class UnknownModel:
    """No rule fits. `message` is fit for the client; `suggestion` is a name that would work."""

    model: str
    message: str
    suggestion: str | None = None


@dataclass(frozen=True, slots=True)
class Family:
    """Model names that belong to a provider: the upstream of that name, else the first with that protocol."""

    pattern: str
    upstream: str
    protocol: str | None = None


FAMILIES = (
    # Messages is spoken for Claude alone often enough that any upstream which speaks it is a fair guess.
    Family("claude-*", "anthropic", ANTHROPIC_MESSAGES),
    Family("gpt-*", "openai"),
    Family("chatgpt-*", "openai"),
    Family("o1*", "openai"),
    Family("o3*", "openai"),
    Family("o4*", "openai"),
    Family("codex-*", "openai"),
    Family("deepseek-*", "deepseek"),
    Family("grok-*", "xai"),
    Family("mistral-*", "mistral"),
    Family("magistral-*", "mistral"),
    Family("ministral-*", "mistral"),
    Family("codestral-*", "mistral"),
    Family("devstral-*", "mistral"),
    Family("gemini-*", "gemini"),
    Family("kimi-*", "moonshot"),
    Family("glm-*", "zai"),
    Family("qwen*", "dashscope"),
)


def default_model(settings: Settings) -> str | None:
    """The name of the model for requests that may leave it out and do, None when there is none."""
    if settings.server.default_model is None and not settings.upstreams and settings.server.simulator:
        return DEFAULT_MODEL  # rule 6
    return settings.server.default_model


def resolve(settings: Settings, client_protocol: str, model: str) -> Route | UnknownModel:
    """Where a request of a client of `client_protocol` for `model` goes first."""
    chain = resolve_chain(settings, client_protocol, model)
    return chain if isinstance(chain, UnknownModel) else chain[0]


def resolve_chain(settings: Settings, client_protocol: str, model: str) -> tuple[Route, ...] | UnknownModel:
    """Where a request goes, and where it goes when that fails. At least one route."""
    if not model:
        return UnknownModel(model, "the request names no model")
    targets = _alias(settings, model) or _upstream_and_model(settings, model)
    if not targets:
        return _unknown(settings, model)
    routes = []
    for target in targets:
        name, _, upstream_model = target.partition("/")
        upstream = settings.upstream(name)
        # The loader checks aliases; settings made by hand may still have one that leads nowhere.
        if upstream is None:
            return UnknownModel(model, f'the model "{_short(model)}" leads to the unknown upstream "{name}"')
        protocol = client_protocol if client_protocol in upstream.protocols else upstream.protocol
        routes.append(Route(name, upstream_model, protocol))
    return tuple(routes)


def model_ids(settings: Settings) -> tuple[str, ...]:
    """The names that are known without asking an upstream: aliases, the upstreams' lists, the simulator's."""
    names = [alias for alias in settings.models if "*" not in alias]
    names += [f"{upstream.name}/{model}" for upstream in settings.upstreams for model in upstream.models]
    if settings.server.simulator:
        names += [f"{SIMULATOR}/{model}" for model in MODELS]
    return tuple(dict.fromkeys(names))


def _alias(settings: Settings, model: str) -> tuple[str, ...]:
    found = settings.models.get(model)
    if found is None:
        matching = (
            target for name, target in settings.models.items() if "*" in name and matches(model, name)
        )
        found = next(matching, ())
    return (found,) if isinstance(found, str) else found


def _upstream_and_model(settings: Settings, model: str) -> tuple[str, ...]:
    """Rules 2 to 6, as `upstream/model`."""
    first, slash, rest = model.partition("/")
    if slash and rest and settings.upstream(first) is not None:
        return (model,)
    chosen = next((upstream for upstream in settings.upstreams if model in upstream.models), None)
    chosen = chosen or next(_by_family(settings, model), None)
    if chosen is None and len(settings.upstreams) == 1:
        chosen = settings.upstreams[0]
    if chosen is not None:
        return (f"{chosen.name}/{model}",)
    return (DEFAULT_MODEL,) if not settings.upstreams and settings.server.simulator else ()


def _by_family(settings: Settings, model: str) -> Iterator[UpstreamSettings]:
    for family in FAMILIES:
        if matches(model, family.pattern):
            yield from (upstream for upstream in settings.upstreams if upstream.name == family.upstream)
            yield from (upstream for upstream in settings.upstreams if family.protocol in upstream.protocols)


def _unknown(settings: Settings, model: str) -> UnknownModel:
    # The simulator's names are no help to somebody who looks for a real model.
    known = [name for name in model_ids(settings) if not name.startswith(f"{SIMULATOR}/")]
    upstreams = [upstream.name for upstream in settings.upstreams]
    first, slash, rest = model.partition("/")
    suggestion = nearest(model, known)
    if suggestion is None and slash and rest and (name := nearest(first, upstreams)) is not None:
        suggestion = f"{name}/{rest}"
    hint = f'did you mean "{_short(suggestion)}"? ' if suggestion is not None else ""
    message = (
        f'the model "{_short(model)}" is not known here; {hint}write "upstream/model" with one of '
        f"the upstreams {', '.join(upstreams) or SIMULATOR}, or give the name a line in [models] of the configuration."
    )
    return UnknownModel(model, message, suggestion)


def _short(text: str) -> str:
    """A name from outside, made fit for a message."""
    visible = "".join(char if char.isprintable() else "?" for char in text[:100])
    return visible if len(text) <= 100 else visible + "..."
