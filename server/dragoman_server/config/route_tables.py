"""Read the tables that say where requests go: `[models]` and `[endpoints]`."""

import msgspec

from dragoman_server.config.sources import ConfigSources
from dragoman_server.config.toml_lines import KeyPath
from dragoman_server.relayed.table import SERVED_PATHS, is_served
from dragoman_server.settings import SIMULATOR
from dragoman_server.settings.patterns import WILDCARD
from dragoman_server.settings.problems import did_you_mean, quote_value, type_name


class RouteTables(ConfigSources, kw_only=True):
    """Reads both, once the names of the upstreams are known.

    Attributes:
        names: The names of all upstreams, and where the file has them.
    """

    names: dict[str, KeyPath] = msgspec.field(default_factory=dict)

    def models(self) -> dict[str, str | tuple[str, ...]]:
        """Return the destinations by the names that clients send: each is `upstream/model`, or a chain of them."""
        models: dict[str, str | tuple[str, ...]] = {}
        for alias, raw in self.table(("models",), self.document.get("models", {})).items():
            path: KeyPath = ("models", alias)
            chain = raw if isinstance(raw, list) else [raw]
            if not chain:
                self.add_problem(path, "is an empty chain")
            found, references = list[str](), list[str]()
            for index, target in enumerate(chain):
                place = (*path, index) if isinstance(raw, list) else path
                problems_before = len(self.problems)
                destination = self.expand(place, target, references)
                problem = self._destination_problem(destination, target, alias)
                if problem is None and destination in found:
                    self.add_problem(place, f"{quote_value(target)} is listed twice")
                elif problem is not None and len(self.problems) == problems_before:
                    self.add_problem(place, problem)
                found.append(str(destination))
            models[alias] = tuple(found) if isinstance(raw, list) else found[0]
            self.record_file_origin(path, references)
        return models

    def endpoints(self) -> dict[str, tuple[str, ...]]:
        """Return the upstreams by the paths at which they serve requests that name no model."""
        endpoints = dict[str, tuple[str, ...]]()
        for served, raw in self.table(("endpoints",), self.document.get("endpoints", {})).items():
            path: KeyPath = ("endpoints", served)
            references = list[str]()
            found = [
                self.expand(path, each, references) for each in (raw if isinstance(raw, list) else [raw])
            ]
            if not is_served(served):
                hint = did_you_mean(served, SERVED_PATHS) or ": docs/endpoints.md lists them"
                self.add_problem(path, f"is no path that is relayed{hint}")
            for upstream in found:
                if not isinstance(upstream, str):
                    self.add_problem(path, f"expected a string, found {type_name(upstream)}")
                elif upstream == SIMULATOR:
                    self.add_problem(path, "the simulator has none of these paths")
                elif upstream not in self.names:
                    text = f"unknown upstream {quote_value(upstream)}{self.names_hint(upstream)}"
                    self.add_problem(path, text)
            endpoints[served] = tuple(map(str, found))
            self.record_file_origin(path, references)
        return endpoints

    def _destination_problem(self, destination: object, raw: object, alias: str) -> str | None:
        """Return the problem of a destination. raw: the destination before interpolation."""
        if not isinstance(destination, str):
            hint = "; write names with dots in quotes" if isinstance(destination, dict) else ""
            return f"expected a string, found {type_name(destination)}{hint}"
        upstream, _, model = destination.partition("/")
        if not upstream or not model:
            return f'{quote_value(raw)} is not of the form "upstream/model"'
        if upstream not in self.names:
            return f"unknown upstream {quote_value(str(raw).partition('/')[0])}{self.names_hint(upstream)}"
        # The matches of the alias replace the * of the destination.
        here, there = destination.count(WILDCARD), alias.count(WILDCARD)
        if here <= there:
            return None
        return (
            f"{quote_value(raw)} has {here} *, and the name {quote_value(alias)} has {there or 'none'}: a * here "
            "stands for what the * of the name matched; write the model's own name in its place"
        )

    def names_hint(self, upstream: str) -> str:
        """Return the upstreams that there are, or the one that was probably meant."""
        there_are = "; there are " + (", ".join(sorted(self.names)) or "none")
        return did_you_mean(upstream, self.names) or there_are
