"""Read `[models]`: names that clients send, and the `upstream/model`, or the chain of them, that each stands for."""

from collections.abc import Mapping

from dragoman_server.config.problems import did_you_mean, quote_value, type_name
from dragoman_server.config.sources import ConfigSources
from dragoman_server.config.toml_lines import KeyPath
from dragoman_server.settings import Settings
from dragoman_server.settings.patterns import WILDCARD


def read_model_aliases(
    sources: ConfigSources, upstreams: Mapping[str, KeyPath]
) -> dict[str, str | tuple[str, ...]]:
    """Return the destinations by alias, and record what is wrong with them.

    upstreams: the names of all upstreams, and where the file has them.
    """
    models: dict[str, str | tuple[str, ...]] = {}
    for alias, raw in sources.table(("models",), sources.document.get("models", {})).items():
        path: KeyPath = ("models", alias)
        chain = raw if isinstance(raw, list) else [raw]
        if not chain:
            sources.add_problem(path, "is an empty chain")
        found, references = list[str](), list[str]()
        for index, each in enumerate(chain):
            place = (*path, index) if isinstance(raw, list) else path
            problems_before = len(sources.problems)
            destination = sources.expand(place, each, references)
            problem = _problem(destination, each, alias, upstreams)
            if problem is None and destination in found:
                sources.add_problem(place, f"{quote_value(each)} is listed twice")
            elif problem is not None and len(sources.problems) == problems_before:
                sources.add_problem(place, problem)
            found.append(str(destination))
        models[alias] = tuple(found) if isinstance(raw, list) else found[0]
        sources.record_file_origin(path, references)
    return models


def check_default_model(sources: ConfigSources, settings: Settings) -> None:
    """Record a problem if no upstream has the default model."""
    if settings.server.default_model is None:
        return
    # The router takes a while to import, and most configurations have no default model.
    from dragoman_server.models.routes import UnknownModel, resolve

    route = resolve(settings, None, settings.server.default_model)
    if isinstance(route, UnknownModel):
        hint = "" if route.suggestion is None else f"; did you mean {quote_value(route.suggestion)}?"
        text = f'is routed to no upstream: write a name of [models], or "upstream/model"{hint}'
        sources.add_problem(("server", "default_model"), text)


def _problem(destination: object, raw: object, alias: str, upstreams: Mapping[str, KeyPath]) -> str | None:
    """Return what is wrong with a destination. raw: the destination before interpolation."""
    if not isinstance(destination, str):
        hint = "; write names with dots in quotes" if isinstance(destination, dict) else ""
        return f"expected a string, found {type_name(destination)}{hint}"
    upstream, _, model = destination.partition("/")
    if not upstream or not model:
        return f'{quote_value(raw)} is not of the form "upstream/model"'
    if upstream not in upstreams:
        hint = did_you_mean(upstream, upstreams) or "; there are " + (", ".join(sorted(upstreams)) or "none")
        return f"unknown upstream {quote_value(str(raw).partition('/')[0])}{hint}"
    # The matches of the alias replace the * of the destination.
    here, there = destination.count(WILDCARD), alias.count(WILDCARD)
    if here <= there:
        return None
    return (
        f"{quote_value(raw)} has {here} *, and the name {quote_value(alias)} has {there or 'none'}: a * here stands "
        "for what the * of the name matched; write the model's own name in its place"
    )
