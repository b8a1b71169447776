"""Find the price of a model, and compute the cost of a request.

Prices are in the `[[prices]]` of the configuration, else in prices.toml, for providers' own hosts.

A price is looked up by all names that a model has: the one that the client sent, `upstream/model`, and the upstream's
own. The first table that matches any of them is used, so an exception goes before the rule. The prices of the package
are for the upstream's own name alone, and only where the base URL is the provider's, or of a cloud where its models
cost the same: another server with the same model has other prices, and a local one has none.
"""

import re
import tomllib
from collections.abc import Iterable, Mapping
from functools import cache, lru_cache
from itertools import chain
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from dragoman import Usage
from dragoman_server.settings import Price, UpstreamSettings
from dragoman_server.settings.patterns import PatternTable, captures

_FILE = Path(__file__).with_name("prices.toml")

# Providers append a date to the names of snapshots: claude-haiku-4-5-20251001, gpt-5.4-2026-03-05.
_NAMES = ("{model}", "{model}-20*")

_MILLION = 1_000_000


class Prices:
    """The prices of a configuration; false if nothing has one.

    Args:
        configured: `[[prices]]`, which come first.
    """

    def __init__(self, configured: Iterable[Price], upstreams: Iterable[UpstreamSettings]) -> None:
        rows = _in_tiers(configured)
        self._configured = PatternTable(rows)
        self._packaged = {each.name: found for each in upstreams if (found := packaged_prices(each.base_url))}
        self._any = bool(rows or self._packaged)

    def __bool__(self) -> bool:
        return self._any

    def find(self, model: str | None, upstream: str | None, upstream_model: str | None) -> Price | None:
        """Return the price of a model, None if it has none. model: as the client named it."""
        found = self._configured.first(*names_of(model, upstream, upstream_model))
        if found is None and upstream in self._packaged and upstream_model is not None:
            return self._packaged[upstream].first(upstream_model)
        return found


def names_of(model: str | None, upstream: str | None, upstream_model: str | None) -> list[str]:
    """Return all names of one model. model: as the client sent it."""
    full_name = f"{upstream}/{upstream_model}" if upstream and upstream_model else None
    return [name for name in (model, full_name, upstream_model) if name]


@lru_cache
def packaged_prices(base_url: str) -> PatternTable[Price] | None:
    """Return the package's prices of the server at this URL, None if it has none."""
    found = _tables(base_url)
    if clouds := found.get("clouds"):
        return _table(_tables(clouds[0]["prices_of"])["providers"], clouds[0].get("names", _NAMES))
    return _table(found["providers"], _NAMES) if found else None


def price_source(base_url: str) -> tuple[str, str] | None:
    """Return source and newest date of the package's prices of the server at this URL, None if it has none."""
    tables = chain.from_iterable(_tables(base_url).values())
    newest = max(tables, key=lambda each: each["date"], default=None)
    return None if newest is None else (newest["source"], str(newest["date"]))


def _is_at(base_url: str, pattern: str) -> bool:
    """True if a base URL is that of a table, in which a `*` is any text without a slash."""
    # A text with the host's end in it, so that no other host begins with it.
    texts = captures(f"{base_url}/", f"{pattern}/*")
    return texts is not None and not any("/" in text for text in texts[:-1])


@cache
def _file() -> list[tuple[str, str]]:
    """Return the tables of prices.toml, each with its base URL: to parse all of them takes 4 ms, at each start."""
    _, *tables = re.split(r"(?m)^(?=\[\[)", _FILE.read_text(encoding="utf-8"))
    return [(table.split('"', 2)[1], table) for table in tables]


def _tables(base_url: str) -> dict[str, list[dict[str, Any]]]:
    """Return those of the server at this URL: of its provider, or of clouds that have the prices of one."""
    return tomllib.loads("".join(table for url, table in _file() if _is_at(base_url, url)))


def _table(providers: Iterable[Mapping[str, Any]], names: Iterable[str]) -> PatternTable[Price]:
    """Return the prices by the names of their models. names: patterns with {model}."""
    models = _in_tiers([Price(**each) for provider in providers for each in provider["prices"]])
    return PatternTable([(name.format(model=model), price) for model, price in models for name in names])


def _in_tiers(prices: Iterable[Price]) -> list[tuple[str, Price]]:
    """Return each model's price for any request, which has those for long ones; in the order of their models."""
    found: dict[str, Price] = {}
    for price in sorted(prices, key=lambda each: -each.above_tokens):
        found[price.model] = replace(price, longer=found.get(price.model))
    order = {price.model: None for price in prices}
    return [(model, found[model]) for model in order]


def cost(
    price: Price, usage: Usage, written_1h: int | None = None, units: Mapping[str, float] | None = None
) -> float:
    """Return the cost in US dollars. Unknown figures of the usage cost nothing.

    written_1h: the part of the tokens written to a cache that is kept for an hour. units: what is billed besides
    tokens, by the name of its price.
    """
    usage = usage.consistent()
    while price.longer is not None and (usage.input or 0) > price.longer.above_tokens:
        price = price.longer
    cached, written = usage.cached or 0, usage.cache_write or 0
    plain = max(0, (usage.input or 0) - cached - written)
    dollars = plain * price.input + (usage.output or 0) * price.output
    dollars += cached * (price.input if price.cached_input is None else price.cached_input)
    short = price.input if price.cache_write is None else price.cache_write
    long = short if price.cache_write_1h is None else price.cache_write_1h
    for_hours = min(written_1h or 0, written)
    dollars += for_hours * long + (written - for_hours) * short
    for name, count in (units or {}).items():
        dollars += count * float(getattr(price, name))
    return dollars / _MILLION
